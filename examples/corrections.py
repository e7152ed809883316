"""A correction supersedes what it corrects; history keeps both; deleting takes everything along."""

from retcon import Memory

with Memory(":memory:") as memory:
    (first,) = memory.add("My new flat is at 12 Elm Street.", user_id="ann", timestamp="2026-03-01")
    second = memory.supersede(first.id, "My new flat is at 14 Elm Street, not 12.", timestamp="2026-03-03")

    recall = memory.recall("Where is my new flat?", budget=64, user_id="ann")
    print("recall: ", recall.text)
    assert "14 Elm Street" in recall.text
    assert [source.id for source in recall.sources] == [second.id]

    for note in memory.history(first.id):
        print("history:", note.timestamp, note.text)
    assert [note.id for note in memory.history(second.id)] == [first.id, second.id]

    gone = memory.delete_all(user_id="ann")
    print("deleted:", gone.notes, "notes; gone from the files too:", gone.purged)
    assert memory.recall("Where is my new flat?", budget=64, user_id="ann").text == ""
