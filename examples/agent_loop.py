"""An agent that asks memory for the next best text when its reader finds no answer in the first.

The reader here is a plain function with a pattern per question; put your model call in its place.
"""

import re

from retcon import Memory
from retcon.note import Recall

ANSWERS = {
    "When does the ferry leave?": r"ferry .* leaves at (\d\d:\d\d)",
    "What is the name of my landlord?": r"landlord is (\w+)",
}


def read(question: str, context: str) -> str | None:
    """The answer in the context, or None: "not in memory"."""
    found = re.search(ANSWERS[question], context)
    return found.group(1) if found else None


def answer(memory: Memory, question: str, budget: int) -> tuple[str | None, list[str]]:
    """The answer and the actions it took: recall, read, and escalate while there is something left to try."""
    recall: Recall | None = memory.recall(question, budget=budget, user_id="ines")
    actions = []
    while recall is not None:
        actions.append(recall.action)
        if found := read(question, recall.text):
            return found, actions
        recall = recall.escalate()
    return None, actions


with Memory(":memory:") as memory:
    memory.add("The ferry to Skye leaves at 07:40 from pier 2.", user_id="ines", timestamp="2026-06-01")
    memory.add("I booked the window table for Saturday.", user_id="ines", timestamp="2026-06-02")
    for question in ANSWERS:
        found, actions = answer(memory, question, budget=64)
        print(f"{question} -> {found or 'not in memory'} (tried {', '.join(actions)})")
    assert answer(memory, "When does the ferry leave?", budget=64) == ("07:40", ["retain"])
    assert answer(memory, "What is the name of my landlord?", budget=64) == (None, ["retain", "extract"])
