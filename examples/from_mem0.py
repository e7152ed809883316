"""Code that was written for Mem0, on a retcon store: one import is another, and no key is needed."""

from retcon.mem0 import Memory

with Memory(":memory:") as memory:
    messages = [
        {"role": "user", "content": "I adopted a cat named Pixel in May."},
        {"role": "assistant", "content": "Lovely! I will remember Pixel."},
    ]
    added = memory.add(messages, user_id="ann", metadata={"topic": "pets"})
    cat = added["results"][0]["id"]

    memory.update(cat, data="I adopted a cat named Dot in May.")
    found = memory.search("cat", filters={"AND": [{"user_id": "ann"}, {"topic": {"in": ["pets"]}}]}, limit=3)
    print("search: ", [each["memory"] for each in found["results"]])
    assert found["results"][0]["id"] == cat

    for event in memory.history(cat):
        print("history:", event["event"], event["new_memory"])

    # What Mem0 does not have: the best text within a budget, from the memory beneath.
    print("recall: ", memory.memory.recall("What is my cat called?", budget=32, user_id="ann").text)
    memory.delete(cat)
    assert memory.get(cat) is None
