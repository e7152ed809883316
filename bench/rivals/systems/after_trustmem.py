"""After TrustMem: memory moves from raw turns to facts only through a transition that was verified.

A model writes the facts of a batch; each is then held against the batch by a second call. What is not confirmed is
dropped, and where less than half is confirmed the transition is refused: the raw turns of that batch stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.rivals.base import Setup, batches
from bench.rivals.endpoint import Call
from bench.rivals.systems.vectors import Vectors, ask_all
from retcon.note import Note
from retcon.pack import render

WRITE = (
    "List the facts that these messages state, one a line, each complete in itself with names and dates. No other"
    " text.\n\n{turns}\n\nFacts:"
)
VERIFY = "Messages:\n{turns}\n\nStatement: {fact}\n\nDo the messages state this? Answer yes or no."
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s*")


class TrustMem:
    """Facts that were confirmed, and raw turns where too few were."""

    def __init__(self, setup: Setup) -> None:
        self.model, self.kept = setup.model, Vectors(setup.encode)

    def add(self, history: Sequence[Note]) -> None:
        parts = [[render(note) for note in batch] for batch in batches(history)]
        texts = ["\n".join(turns) for turns in parts]
        written = ask_all(self.model, [WRITE.format(turns=text) for text in texts], max_tokens=512)
        facts = [read_lines(said) for said in written]
        asked = [VERIFY.format(turns=text, fact=fact) for text, some in zip(texts, facts, strict=True) for fact in some]
        verdicts = iter(ask_all(self.model, asked, max_tokens=2))
        for turns, some in zip(parts, facts, strict=True):
            sure = [fact for fact in some if "yes" in next(verdicts).lower()]
            self.kept.add(sure if 2 * len(sure) >= max(len(some), 1) else turns)

    def context(self, question: str, budget: int) -> Sequence[str]:
        return self.kept.nearest(question)


def read_lines(said: str) -> list[str]:
    """The lines of a list without bullets or numbers."""
    return [text for line in said.splitlines() if (text := _BULLET.sub("", line).strip())]


def parsed(call: Call) -> bool:
    """Whether there is a word in the reply."""
    return bool(call.text.strip())


def open(name: str, setup: Setup) -> TrustMem:  # noqa: A001
    """An empty one."""
    return TrustMem(setup)
