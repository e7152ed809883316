"""Add notes, recall under a budget, read why."""

from retcon import Memory

with Memory(":memory:") as memory:
    memory.add(
        "I adopted a cat named Pixel from the shelter on Mill Road. She is two years old and hides under the sofa.",
        user_id="ann",
        session="s1",
        speaker="ann",
        timestamp="2026-05-09T10:00",
    )
    memory.add(
        [
            {"role": "user", "content": "Pixel's first vet visit cost 84 euros. By the way, any tips for a shy cat?"},
            {"role": "assistant", "content": "Give her a quiet room first, and let her come to you."},
        ],
        user_id="ann",
        session="s2",
        timestamp="2026-05-12",
    )

    for budget in (16, 32, 256):
        recall = memory.recall("How much did the vet cost?", budget=budget, user_id="ann")
        print(f"{recall.action}, {recall.tokens} of {budget} tokens: {recall.decision.reason}")
        print(recall.text, end="\n\n")
        assert recall.tokens <= budget

    assert "84 euros" in recall.text
    assert memory.recall("How much did the vet cost?", budget=256, user_id="bob").text == ""  # another user's memory
