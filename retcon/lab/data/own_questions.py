"""A user's own questions, one JSON object a line -> questions. The format is in docs/datasets.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retcon import validate
from retcon.errors import InputError
from retcon.features import TYPES
from retcon.lab.data import json_files
from retcon.lab.data.question import NOT_IN_MEMORY, BenchmarkQuestion, Dataset, gather, sort_by_time
from retcon.note import Note

FIELDS = (
    "id", "question", "answer", "type", "conversation", "date", "evidence", "history", "history_file", "abstention",
)  # fmt: skip
_STORED = "1970-01-01T00:00:00"  # a note's time of storage plays no part here; a constant keeps loading repeatable


def load(path: Path) -> Dataset:
    """The questions of a JSONL file; lines that name one history file share its notes."""
    files: dict[str, tuple[Note, ...]] = {}
    questions = []
    for place, value in json_files.rows(path):
        with json_files.locate_errors(place):
            fields = json_files.record(value)
            if fields.get("history_file") is not None:
                name = json_files.text(fields, "history_file")
                files[name] = files[name] if name in files else read_notes(path.parent / name)
            questions.append(_question(fields, path.stem, files))
    return gather(path, questions)


def read_notes(path: Path) -> tuple[Note, ...]:
    """The notes of a JSONL file, oldest first; the lines of `retcon export` are of this form."""
    found: dict[str, Note] = {}
    for place, value in json_files.rows(path):
        with json_files.locate_errors(place):
            _add(found, value, f"n{len(found) + 1}")
    if not found:
        raise InputError(f"{path} holds no note")
    return sort_by_time(found.values())


def _question(fields: Mapping[str, Any], dataset: str, files: Mapping[str, tuple[Note, ...]]) -> BenchmarkQuestion:
    if strangers := [str(name)[:80] for name in fields if name not in FIELDS]:
        raise InputError(f"there is no field {strangers[0]!r}: known are {', '.join(FIELDS)}")
    name = validate.name("id", json_files.text(fields, "id")) or ""
    abstention = _yes(fields, "abstention")
    history = _history(fields, files)
    conversation = next((fields[key] for key in ("conversation", "history_file") if fields.get(key) is not None), name)
    return BenchmarkQuestion(
        id=name,
        dataset=dataset,
        text=json_files.text(fields, "question"),
        answer=NOT_IN_MEMORY if abstention and fields.get("answer") is None else json_files.answer(fields),
        type=_type(fields),
        raw_type=str(fields.get("type") or ""),
        conversation=validate.name("conversation", conversation) or name,
        date=validate.timestamp(fields.get("date")),
        evidence=_evidence(fields, history),
        history=history,
        abstention=abstention,
    )


def _yes(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{name!r} must be true or false")
    return bool(value)


def _type(fields: Mapping[str, Any]) -> str | None:
    if fields.get("type") is None:
        return None
    kind = json_files.text(fields, "type").replace("-", "_")
    if kind not in TYPES:
        raise InputError(f"type {kind[:40]!r} is unknown: known are {', '.join(TYPES)}")
    return kind


def _history(fields: Mapping[str, Any], files: Mapping[str, tuple[Note, ...]]) -> tuple[Note, ...]:
    if fields.get("history_file") is not None:
        if fields.get("history") is not None:
            raise InputError("give 'history' or 'history_file', not both")
        return files[json_files.text(fields, "history_file")]
    return _notes(fields, "history", "n")


def _evidence(fields: Mapping[str, Any], history: tuple[Note, ...]) -> tuple[Note, ...]:
    """The gold notes: ids of the history, or notes written out."""
    given = fields.get("evidence")
    if not isinstance(given, list) or not any(isinstance(each, str) for each in given):
        return _notes(fields, "evidence", "e")
    place = {note.id: number for number, note in enumerate(history)}
    if missing := [each for each in given if not isinstance(each, str) or each not in place]:
        named = repr(missing[0][:80]) if isinstance(missing[0], str) else "a note beside ids"
        raise InputError(f"'evidence' holds {named}, which is no id in the history")
    return tuple(history[number] for number in sorted({place[each] for each in given}))


def _notes(fields: Mapping[str, Any], name: str, prefix: str) -> tuple[Note, ...]:
    """The notes written out under that name, oldest first; those without an id are numbered."""
    found: dict[str, Note] = {}
    for number, value in enumerate(json_files.items(fields, name) if fields.get(name) is not None else (), 1):
        with json_files.locate_errors(f"{name!r}, note {number}"):
            _add(found, value, f"{prefix}{number}")
    return sort_by_time(found.values())


def _add(found: dict[str, Note], value: object, name: str) -> None:
    """Puts the note that the value describes among the others, under its own id or under that name."""
    made = validate.note({"id": name} | validate.draft(value) | {"live": False}, created_at=_STORED)
    if made.id in found:
        raise InputError(f"the id {made.id!r} is there twice")
    found[made.id] = made
