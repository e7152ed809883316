"""After RECOMP: of the nearest documents the sentences nearest to the question, or a summary written for it.

Its compressors are trained; ours are MiniLM and the model as they come. Five documents, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.rivals.base import Setup
from bench.rivals.systems.vectors import Vectors
from retcon.note import Note
from retcon.pack import label, one_line
from retcon.words import sentences

DOCUMENTS = 5
PROMPT = (
    "Compress the information in the documents into a summary that helps to answer the question. Use only what they"
    " say. If nothing in them helps, reply with an empty line.\n\nDocuments:\n{documents}\n\nQuestion: {question}\n\n"
    "Summary:"
)


class Extractive:
    """Sentences, the nearest first, each with the date and speaker of its turn."""

    def __init__(self, setup: Setup) -> None:
        self.encode, self.turns, self.notes = setup.encode, Vectors(setup.encode), dict[str, Note]()

    def add(self, history: Sequence[Note]) -> None:
        self.turns.add_turns(history)
        self.notes = dict(zip(self.turns.texts, history, strict=False))

    def context(self, question: str, budget: int) -> Sequence[str]:
        parts = Vectors(self.encode)
        for turn in self.turns.nearest(question, DOCUMENTS):
            note = self.notes[turn]
            parts.add(f"{label(note)}{part}" for part in sentences(one_line(note.text)))
        return parts.nearest(question)


class Abstractive:
    """A summary of the nearest turns, written for the question, as long as the budget."""

    def __init__(self, setup: Setup) -> None:
        self.model, self.turns = setup.model, Vectors(setup.encode)

    def add(self, history: Sequence[Note]) -> None:
        self.turns.add_turns(history)

    def context(self, question: str, budget: int) -> Sequence[str]:
        documents = "\n".join(self.turns.nearest(question, DOCUMENTS))
        return [self.model.ask(PROMPT.format(documents=documents, question=question), max_tokens=budget)]


def open(name: str, setup: Setup) -> Extractive | Abstractive:  # noqa: A001
    """An empty one."""
    return Abstractive(setup) if name.endswith("abstractive") else Extractive(setup)
