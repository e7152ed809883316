"""LongMemEval -> questions, from the publisher's files (oracle, S, M, cleaned or not) or from the gold turns alone.

The publisher's files have one object a question: question_id, question_type, question, answer, question_date,
haystack_session_ids, haystack_dates, haystack_sessions (lists of {role, content, has_answer?}), answer_session_ids.
The gold-evidence form has `evidence` (a list of {session_date, role, content}) and `evidence_turn_ids` instead of the
haystack. Ids that end in `_abs` ask for something that was never said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from retcon.errors import InputError
from retcon.lab.data import json_files
from retcon.lab.data.question import BenchmarkQuestion, Dataset, gather, moment, sort_by_time
from retcon.note import Note

TYPE_OF = {  # the paper's four types: the three single-session kinds are one
    "single-session-user": "single_session",
    "single-session-assistant": "single_session",
    "single-session-preference": "single_session",
    "multi-session": "multi_session",
    "temporal-reasoning": "temporal",
    "knowledge-update": "knowledge_update",
}
ABSTENTION = "_abs"
POOL = "longmemeval-pool"  # the name of `pool`
_DATE = re.compile(r"([0-9]{4})/([0-9]{2})/([0-9]{2})(?: \([A-Za-z]+\))?(?: ([0-9]{2}):([0-9]{2}))?")


def load(path: Path, *, whole_sessions: bool = False, histories: bool = True) -> Dataset:
    """The questions of a LongMemEval file.

    Evidence is the turns flagged `has_answer`; with `whole_sessions`, an answer session without a flagged turn gives
    all its turns. `histories=False` leaves the histories out: much memory saved where only gold evidence is used.
    """
    questions = []
    for place, value in json_files.elements(path):
        with json_files.locate_errors(place):
            questions.append(_question(json_files.record(value), whole_sessions, histories))
    return gather(path, questions)


def pool(gold: Dataset) -> Dataset:
    """The questions over one history: the gold turns of all of them, oldest first.

    A stand-in for full histories where only the gold turns can be had: a retriever has some 900 turns to choose from,
    most of them about something else. The turns are of many people, so now and then two of them contradict each other.
    """
    turns = {note.id: note for question in gold.questions for note in question.evidence}
    history = sort_by_time(turns[name] for name in sorted(turns))
    return replace(gold, questions=tuple(replace(each, dataset=POOL, history=history) for each in gold.questions))


def timestamp(value: str) -> str:
    """The ISO 8601 form of a date such as "2023/05/30 (Tue) 23:40", or of one that is ISO 8601 already."""
    try:
        if found := _DATE.fullmatch(value.strip()):
            year, month, day, hour, minute = (int(part or 0) for part in found.groups())
            return datetime(year, month, day, hour, minute).isoformat(timespec="minutes")
        return datetime.fromisoformat(value.strip()).replace(tzinfo=None).isoformat(timespec="minutes")
    except ValueError:
        raise InputError(f"{value[:40]!r} is no date such as '2023/05/30 (Tue) 23:40'") from None


def _question(fields: Mapping[str, Any], whole_sessions: bool, histories: bool) -> BenchmarkQuestion:
    name, kind = json_files.text(fields, "question_id"), json_files.text(fields, "question_type")
    if kind not in TYPE_OF:
        raise InputError(f"question_type {kind[:40]!r} is unknown: known are {', '.join(TYPE_OF)}")
    if "haystack_sessions" not in fields and "evidence" in fields:
        if whole_sessions:
            raise InputError("the gold-evidence form has no whole sessions: load the publisher's file")
        sessions, evidence = [], _gold(fields)
    else:
        sessions = _sessions(fields)
        evidence = _evidence(sessions, _answers(fields) if whole_sessions else ())
    return BenchmarkQuestion(
        id=name,
        dataset="longmemeval",
        text=json_files.text(fields, "question"),
        answer=json_files.answer(fields),
        type=TYPE_OF[kind],
        raw_type=kind,
        conversation=name,  # every question has a history of its own
        date=_date(fields, "question_date"),
        evidence=evidence,
        history=tuple(note for session in sessions for note in session.notes) if histories else (),
        abstention=name.endswith(ABSTENTION),
    )


def _date(fields: Mapping[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else timestamp(json_files.text(fields, name))


def _gold(fields: Mapping[str, Any]) -> tuple[Note, ...]:
    turns = json_files.items(fields, "evidence")
    ids = _parallel(fields, "evidence_turn_ids", turns) or [f"evidence:{place}" for place in range(len(turns))]
    if len(set(ids)) < len(ids):
        raise InputError("'evidence_turn_ids' holds an id twice")
    return sort_by_time(_gold_turn(name, json_files.record(turn)) for name, turn in zip(ids, turns, strict=True))


def _gold_turn(name: str, turn: Mapping[str, Any]) -> Note:
    session = name.rpartition(":")[0]
    stamp = _date(turn, "session_date")
    return Note(name, json_files.text(turn, "content"), json_files.text(turn, "role"), session or None, stamp)


@dataclass(frozen=True, slots=True)
class _Session:
    """One session of a haystack; `flagged` are those of its turns that hold the answer."""

    id: str
    timestamp: str | None
    notes: tuple[Note, ...]
    flagged: tuple[Note, ...]


def _sessions(fields: Mapping[str, Any]) -> list[_Session]:
    """The sessions, oldest first: the oracle file does not sort them."""
    given = json_files.items(fields, "haystack_sessions")
    ids = _parallel(fields, "haystack_session_ids", given) or [f"session_{place}" for place in range(1, len(given) + 1)]
    dates = _parallel(fields, "haystack_dates", given)
    stamps = [timestamp(date) for date in dates] if dates else [None] * len(given)
    named = zip(ids, _number_copies(ids), stamps, given, strict=True)
    found = [_session(of, name, stamp, turns) for of, name, stamp, turns in named]
    return sorted(found, key=lambda session: moment(session.timestamp or "")) if dates else found


def _session(given: str, name: str, stamp: str | None, turns: object) -> _Session:
    if not isinstance(turns, list):
        raise InputError(f"session {given[:80]!r} is no list of turns")
    notes, flagged = [], []
    for place, turn in enumerate(turns):
        with json_files.locate_errors(f"session {given[:80]!r}, turn {place}"):
            note = _turn(f"{name}:{place}", name, stamp, json_files.record(turn))
        if note is not None:
            notes.append(note)
            flagged += [note] if turn.get("has_answer") is True else []
    return _Session(given, stamp, tuple(notes), tuple(flagged))


def _turn(name: str, session: str, stamp: str | None, turn: Mapping[str, Any]) -> Note | None:
    """The turn as a note; None where nothing was said."""
    content = turn.get("content")
    if isinstance(content, str) and not content.strip():
        return None
    return Note(name, json_files.text(turn, "content"), json_files.text(turn, "role"), session, stamp)


def _number_copies(ids: Sequence[str]) -> list[str]:
    """The ids, a repeated one marked: 13 histories of the cleaned S file hold a filler session twice."""
    out: list[str] = []
    seen: set[str] = set()
    for name in ids:
        copy, unique = 1, name
        while unique in seen:
            copy, unique = copy + 1, f"{name}~{copy + 1}"
        seen.add(unique)
        out.append(unique)
    return out


def _evidence(sessions: Sequence[_Session], answers: Sequence[str]) -> tuple[Note, ...]:
    """Flagged turns; of a session named in `answers` all turns where none is flagged."""
    chosen = (
        session.notes if not session.flagged and session.id in answers else session.flagged for session in sessions
    )
    return tuple(note for notes in chosen for note in notes)


def _answers(fields: Mapping[str, Any]) -> list[str]:
    return [name for name in json_files.items(fields, "answer_session_ids") if isinstance(name, str)]


def _parallel(fields: Mapping[str, Any], name: str, beside: Sequence[object]) -> list[str] | None:
    """The texts under that name, one for each of the other list; None where the file leaves them out."""
    if fields.get(name) is None:
        return None
    given = json_files.items(fields, name)
    if len(given) != len(beside):
        raise InputError(f"{name!r} has {len(given)} entries for {len(beside)}")
    return [json_files.text({name: value}, name) for value in given]
