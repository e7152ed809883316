"""The server purges in the background: a delete rewrites nothing, and its words leave the files by themselves."""

from __future__ import annotations

from pathlib import Path

from conftest import bytes_of
from serving import client, served
from waiting import until

from retcon import Memory
from retcon.server import Limits

CANARY = "7777777canaryqz"


def test_deleted_words_leave_the_files_while_the_server_runs(memory: Memory, path: Path) -> None:
    memory.add([{"id": "a", "text": f"the {CANARY}"}, {"id": "b", "text": "a dog"}])
    with client(memory, limits=Limits(purge_every=0.01)) as api:
        assert CANARY.encode() in bytes_of(path)
        answer = api.delete("/memories/a").json()
        assert (answer["deleted"], answer["purged"]) == (1, False)
        assert api.post("/search", json={"query": CANARY}).json() == {"results": []}
        until(lambda: CANARY.encode() not in bytes_of(path) and not memory.count_unpurged())
        assert [note["id"] for note in api.get("/memories").json()["results"]] == ["b"]


def test_what_was_left_unpurged_is_purged_when_the_server_starts(path: Path) -> None:
    memory = Memory(path)
    memory.add([{"id": "a", "text": f"the {CANARY}"}, {"id": "b", "text": "a dog"}])
    memory.delete("a")
    memory.close(purge=False)  # as a kill leaves it
    with served(path, "--purge-every", "3600"), Memory(path) as memory:
        until(lambda: not memory.count_unpurged())
        assert CANARY.encode() not in bytes_of(path)
