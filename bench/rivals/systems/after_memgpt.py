"""After MemGPT: a queue of messages, a recursive summary of what was evicted from it, and pages that are searched.

When the queue is full, its older half goes to the archive and into the summary, which is written anew from itself and
what is evicted. At a question the model first says what to search the archive for. Shown is the summary, within a
quarter of the budget, and the pages found. Functions are not called: the one that matters here is asked for directly.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.rivals.base import COUNTER, Setup, lines
from bench.rivals.systems.vectors import Vectors
from retcon.note import Note
from retcon.tokens import counter, cut

QUEUE = 2048  # tokens
WRITTEN = 256  # tokens of a summary
SUMMARIZE = (
    "Here is a summary of an earlier conversation, and the messages that followed. Write a new summary of both, in at"
    " most 150 words. Keep names, dates and facts.\n\nSummary so far: {summary}\n\nMessages:\n{evicted}\n\nNew summary:"
)
SEARCH = (
    "Summary of a conversation: {summary}\n\nThe full conversation is in an archive that can be searched. To answer the"
    " question below, what should be searched for? Reply with the search words alone.\n\nQuestion: {question}"
)


class MemGpt:
    """The three tiers."""

    def __init__(self, setup: Setup) -> None:
        self.model, self.archive, self.count = setup.model, Vectors(setup.encode), counter(COUNTER)
        self.queue, self.summary = list[str](), ""

    def add(self, history: Sequence[Note]) -> None:
        held = 0
        for turn in lines(history):
            self.queue.append(turn)
            held += self.count(turn)
            if held > QUEUE:
                half = max(1, len(self.queue) // 2)
                evicted, self.queue = self.queue[:half], self.queue[half:]
                self._evict(evicted)
                held = sum(map(self.count, self.queue))

    def _evict(self, evicted: Sequence[str]) -> None:
        self.archive.add(evicted)
        text = SUMMARIZE.format(summary=self.summary or "none", evicted="\n".join(evicted))
        self.summary = self.model.ask(text, max_tokens=WRITTEN) or self.summary

    def context(self, question: str, budget: int) -> Sequence[str]:
        words = self.model.ask(SEARCH.format(summary=self.summary or "none", question=question), max_tokens=32)
        pages = Vectors(self.archive.encode)
        pages.add([*self.archive.texts, *self.queue])
        return [cut(self.summary, budget // 4, self.count), *pages.nearest(f"{question} {words}")]


def open(name: str, setup: Setup) -> MemGpt:  # noqa: A001
    """An empty one."""
    return MemGpt(setup)
