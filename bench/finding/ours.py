"""A memory asked for all that is scored. Runs in this process, or beside the code of an older commit in its own.

    PYTHONPATH=OLDER python -P bench/finding/ours.py     reads histories and questions as JSON lines, writes answers

So that the same calls are made of both, it uses what both have: `Memory`, `search`, `recall` and their results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from retcon import Memory
from retcon.note import EXTRACT, RETAIN, Note

DEPTH = 50
WHOLE = 1_000_000  # a budget that shows all of the cluster


@dataclass(frozen=True, slots=True)
class Answer:
    """What a finder has for one question."""

    ranked: Sequence[str]  # ids of notes, best first
    texts: dict[str, list[str]]  # way -> a text for each budget
    cluster: dict[str, str | None] | None = None  # id -> the part that is shown, None where that is all of it


class Ours:
    """A memory as it comes, with the given options, over the notes."""

    ways: tuple[str, ...] = (EXTRACT, "recall")

    def __init__(self, notes: Sequence[Note], **options: Any) -> None:
        self.memory = Memory(":memory:", **options)
        self.memory.store.add(list(notes))
        self.memory._cluster = remember_last(self.memory._cluster)  # type: ignore[method-assign]

    def find(self, query: str, budgets: Sequence[int]) -> Answer:
        """What memory has for the query; texts for these budgets."""
        ranked = [hit.id for hit in self.memory.search(query, top_k=DEPTH)]
        recalls = [self.memory.recall(query, budget) for budget in budgets]
        extracts = [
            each if each.action == EXTRACT else self.memory.recall(query, each.budget, action=EXTRACT)
            for each in recalls
        ]
        texts = {EXTRACT: [each.text for each in extracts], "recall": [each.text for each in recalls]}
        return Answer(ranked, texts, self._show_cluster(query))

    def _show_cluster(self, query: str) -> dict[str, str | None]:
        """The notes that an action works on: those that whole notes without a bound show, and their duplicates."""
        found = self.memory.recall(query, WHOLE, action=RETAIN)
        twins: dict[str, str | None] = {each.id: None for each in found.dropped if each.code == "duplicate"}
        return twins | {source.id: source.text for source in found.sources}

    def close(self) -> None:
        self.memory.close()


def remember_last(gather: Callable[..., Any]) -> Callable[..., Any]:
    """The same, done once where it is called again for the same query: every budget works on the same candidates."""
    last: dict[str, Any] = {}

    def gather_once(query: str, *scope: Any, **options: Any) -> Any:
        if query not in last:
            last.clear()
            last[query] = gather(query, *scope, **options)
        return last[query]

    return gather_once


def serve(lines: Iterator[str]) -> Iterator[str]:
    """The answer to each question as a line; a line with notes opens the history that the next questions are about."""
    ours: Ours | None = None
    for line in lines:
        given = json.loads(line)
        if "notes" in given:
            ours = Ours([Note(**note) for note in given["notes"]])
        elif ours is not None:
            found = ours.find(given["query"], given["budgets"])
            yield json.dumps({"ranked": found.ranked, "texts": found.texts, "cluster": found.cluster})


if __name__ == "__main__":
    for answer in serve(iter(sys.stdin)):
        print(answer, flush=True)
