"""The conversation that is shipped with the package -> questions."""

from __future__ import annotations

from collections.abc import Callable

from retcon import sample
from retcon.lab.data.question import BenchmarkQuestion, Dataset
from retcon.note import Note

SAMPLE, MORE = "sample", "sample-more"


def load(*, more: bool = False) -> Dataset:
    """The questions about it, all over one history; with `more`, those that an advice takes besides."""
    given = ("id", "text", "speaker", "session", "timestamp")  # `supersedes` is left out: to a study all turns are raw
    history = tuple(Note(**{name: row[name] for name in given}) for row in sample.notes())
    notes = {note.id: note for note in history}
    asked = [*sample.questions(), *(sample.more_questions() if more else ())]
    return Dataset(tuple(_question(row, history, notes.__getitem__) for row in asked))


def _question(row: sample.Question, history: tuple[Note, ...], note: Callable[[str], Note]) -> BenchmarkQuestion:
    abstention = row.type == "abstention"
    return BenchmarkQuestion(
        id=row.id,
        dataset=SAMPLE,
        text=row.question,
        answer=row.answer,
        type=None if abstention else row.type.replace("-", "_"),
        raw_type=row.type,
        conversation=SAMPLE,
        date=row.date,
        evidence=tuple(note(name) for name in sorted(row.evidence)),
        history=history,
        abstention=abstention,
    )
