"""A dataset's name, or the path of your own -> its questions. The caller names the folder to look in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from retcon import sample
from retcon.errors import InputError
from retcon.lab.data import locomo, longmemeval, own
from retcon.lab.data.question import Loaded, Question, chronological
from retcon.note import Note

SAMPLE = "sample"
POOL = "longmemeval-pool"


@dataclass(frozen=True, slots=True)
class Source:
    """The names under which a file may lie in the folder, the best first, and how to come by it."""

    files: tuple[str, ...]
    advice: str


_GET = "get it from {} and put it there"
_LONGMEMEVAL = "https://huggingface.co/datasets/xiaowu0162/longmemeval-cleaned"
SOURCES = {
    "longmemeval-gold": Source(
        ("longmemeval_gold_evidence_500.json",),
        f"it holds no more than the flagged turns of longmemeval-oracle, which is at {_LONGMEMEVAL}",
    ),
    "longmemeval-oracle": Source(("longmemeval_oracle.json", "longmemeval_oracle"), _GET.format(_LONGMEMEVAL)),
    "longmemeval-s": Source(
        ("longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_s"), _GET.format(_LONGMEMEVAL)
    ),
    "longmemeval-m": Source(
        ("longmemeval_m_cleaned.json", "longmemeval_m.json", "longmemeval_m"), _GET.format(_LONGMEMEVAL)
    ),
    "locomo": Source(("locomo10.json",), _GET.format("https://github.com/snap-research/locomo (in data/)")),
}
AUDIT = Source(
    ("locomo_audit_errors.json", "errors.json"), _GET.format("https://github.com/dial481/locomo-audit (errors.json)")
)
NAMES = (SAMPLE, *SOURCES, POOL)


def load(
    name: str | PathLike[str],
    *,
    folder: str | PathLike[str] | None = None,
    corrections: bool = False,
    partial: bool = False,
    whole_sessions: bool = False,
    histories: bool = True,
) -> Loaded:
    """The questions of a known dataset, or of your own file where the name ends in .jsonl.

    `corrections` and `partial` are LoCoMo's, `whole_sessions` and `histories` LongMemEval's; see their loaders.
    """
    kind = str(name)
    if corrections and kind != "locomo":
        raise InputError(f"label corrections exist for locomo, not for {kind}")
    if kind == SAMPLE:
        return _sample()
    if kind == "locomo":
        audit = _found(AUDIT, folder) if corrections else None
        return locomo.load(_found(SOURCES[kind], folder), corrections=audit, partial=partial)
    if kind == POOL:
        return _pooled(load("longmemeval-gold", folder=folder))
    if kind in SOURCES:
        path = _found(SOURCES[kind], folder)
        return longmemeval.load(path, whole_sessions=whole_sessions, histories=histories)
    if kind.endswith(".jsonl"):
        return own.load(Path(name))
    raise InputError(
        f"no dataset is called {kind[:200]!r}: known are {', '.join(NAMES)}, or a path that ends in .jsonl"
    )


def _pooled(gold: Loaded) -> Loaded:
    """The questions over one history: the gold turns of all of them, oldest first.

    A stand-in for full histories where only the gold turns can be had: a retriever has some 900 turns to choose from,
    most of them about something else. The turns are of many people, so now and then two of them contradict each other.
    """
    turns = {note.id: note for question in gold.questions for note in question.evidence}
    history = chronological(turns[name] for name in sorted(turns))
    return replace(gold, questions=tuple(replace(each, dataset=POOL, history=history) for each in gold.questions))


def _found(source: Source, folder: str | PathLike[str] | None) -> Path:
    """The file in the folder, or one line that says where to get it and where to put it."""
    if folder is None:
        raise InputError(f"name the folder for {source.files[0]} (RETCON_DATA): {source.advice}")
    for name in source.files:
        try:
            if (path := Path(folder, name)).is_file():
                return path
        except (OSError, ValueError):  # a folder that may not be looked into, or no name of one
            continue
    raise InputError(f"no {source.files[0]} in {folder}: {source.advice}")


def _sample() -> Loaded:
    """The conversation that is shipped with the package."""
    given = ("id", "text", "speaker", "session", "timestamp")  # `supersedes` is left out: to a study all turns are raw
    history = tuple(Note(**{name: row[name] for name in given}) for row in sample.notes())
    notes = {note.id: note for note in history}
    return Loaded(tuple(_shipped(row, history, notes.__getitem__) for row in sample.questions()))


def _shipped(row: sample.Question, history: tuple[Note, ...], note: Callable[[str], Note]) -> Question:
    abstention = row.type == "abstention"
    return Question(
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
