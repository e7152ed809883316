"""LoCoMo (`locomo10.json`) -> questions: ten long conversations of two friends, and what one could ask about them.

The publisher's file is a list of {sample_id, conversation, qa}. A conversation has `session_<n>` lists of turns
{speaker, dia_id, text, blip_caption?} and `session_<n>_date_time`; a question has question, answer, category and
evidence, the `dia_id`s that hold the answer. The category numbers do not follow the publisher's paper but its code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from retcon.errors import InputError
from retcon.lab.data import json_files
from retcon.lab.data.question import NOT_IN_MEMORY, BenchmarkQuestion, Dataset, gather
from retcon.note import Note

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
# Open-domain questions ask for an inference from what is said here and there, not for a fact that one turn states.
TYPE_OF = {
    "single-hop": "single_session",
    "multi-hop": "multi_session",
    "temporal": "temporal",
    "open-domain": "multi_session",
}
NO_EVIDENCE = "no evidence"
UNRESOLVED = "evidence that is not in the conversation"
CITATION = "WRONG_CITATION"  # the audit's word for a right answer with the wrong turns

Turns = Mapping[tuple[int, int], int]  # (session, turn) -> place in the history

_ID = re.compile(r"D([0-9]{1,9}):([0-9]{1,9})")
_QUESTION_ID = re.compile(r"locomo_([0-9]{1,9})_qa([0-9]{1,9})")
_SESSION = re.compile(r"session_([0-9]{1,9})")
_BETWEEN = re.compile(r"[;,\s]")  # ids in one string
_DATE = re.compile(r"([0-9]{1,2}):([0-9]{2}) ([ap])m on ([0-9]{1,2}) ([A-Z][a-z]+), ([0-9]{4})")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Correction:
    """What an audit says of one question: the turns that hold the answer, and the answer where that is wrong too."""

    question: str
    evidence: tuple[str, ...]
    answer: str | None


def load(path: Path, *, corrections: Path | None = None, partial: bool = False) -> Dataset:
    """The questions of LoCoMo, labels corrected by the audit file where one is given.

    A question of which one evidence id names no turn is skipped and counted; with `partial`, only where none does.
    """
    audit = read_audit(corrections) if corrections is not None else {}
    kept: list[BenchmarkQuestion] = []
    skipped: dict[str, list[str]] = {NO_EVIDENCE: [], UNRESOLVED: []}
    corrected: dict[str, list[str]] = {"answer": [], "evidence": []}
    for number, (place, value) in enumerate(json_files.elements(path)):
        with json_files.locate_errors(place):
            for draft in _drafts(number, json_files.record(value), audit):
                found = _evidence(draft, partial)
                if isinstance(found, str):
                    skipped[found].append(draft.question.id)
                    continue
                kept.append(replace(draft.question, evidence=found))
                for label in draft.changed:
                    corrected[label].append(draft.question.id)
    if audit:
        raise InputError(f"{corrections}: no question locomo_{'_qa'.join(map(str, min(audit)))} in {path}")
    return gather(path, kept, skipped, corrected)


def timestamp(value: str) -> str:
    """The ISO 8601 form of a date such as "1:56 pm on 8 May, 2023"."""
    found = _DATE.fullmatch(value.strip())
    try:
        if found is None or not 1 <= int(found[1]) <= 12:
            raise ValueError
        hour = int(found[1]) % 12 + 12 * (found[3] == "p")
        day = datetime(int(found[6]), _MONTHS.index(found[5]) + 1, int(found[4]), hour, int(found[2]))
    except ValueError:
        raise InputError(f"{value[:40]!r} is no date such as '1:56 pm on 8 May, 2023'") from None
    return day.isoformat(timespec="minutes")


def read_audit(path: Path) -> dict[tuple[int, int], Correction]:
    """Corrections by place of the conversation and of the question in the file, both from 0 (`locomo_0_qa1`)."""
    out = {}
    for place, value in json_files.elements(path):
        with json_files.locate_errors(place):
            fields = json_files.record(value)
            name = json_files.text(fields, "question_id")
            key = _QUESTION_ID.fullmatch(name)
            if key is None:
                raise InputError(f"question_id {name[:40]!r} is not of the form locomo_0_qa1")
            # A citation error keeps the gold answer: what the audit writes there is a remark.
            right = None if fields.get("error_type") == CITATION else json_files.answer(fields, "correct_answer")
            ids = tuple(json_files.text({"id": each}, "id") for each in json_files.items(fields, "correct_evidence"))
            out[int(key[1]), int(key[2])] = Correction(json_files.text(fields, "question"), ids, right)
    return out


@dataclass(frozen=True, slots=True)
class _Draft:
    """One question of the file before its evidence is looked up."""

    question: BenchmarkQuestion
    cited: tuple[str, ...]
    turns: Turns
    changed: tuple[str, ...]  # the labels that the audit changed


def _drafts(number: int, sample: Mapping[str, Any], audit: dict[tuple[int, int], Correction]) -> Iterator[_Draft]:
    """The questions of one conversation; corrections that were applied leave the audit."""
    name = json_files.text(sample, "sample_id")
    history, turns = _history(name, json_files.record(sample.get("conversation"), "a 'conversation' object"))
    for place, value in enumerate(json_files.items(sample, "qa")):
        with json_files.locate_errors(f"qa {place}"):
            fields = json_files.record(value)
            question = _question(f"{name}:qa{place}", name, fields, history)
            draft = _correct(
                _Draft(question, _strings(fields.get("evidence")), turns, ()), audit.pop((number, place), None)
            )
        yield draft


def _question(name: str, conversation: str, fields: Mapping[str, Any], history: tuple[Note, ...]) -> BenchmarkQuestion:
    kind = _kind(fields)
    adversarial = kind == "adversarial"
    return BenchmarkQuestion(
        id=name,
        dataset="locomo",
        text=json_files.text(fields, "question"),
        answer=NOT_IN_MEMORY if adversarial else json_files.answer(fields),
        type=TYPE_OF.get(kind),
        raw_type=kind,
        conversation=conversation,
        history=history,
        abstention=adversarial,
        trap=None if fields.get("adversarial_answer") is None else json_files.answer(fields, "adversarial_answer"),
    )


def _correct(draft: _Draft, by: Correction | None) -> _Draft:
    """The draft with the labels of the audit; an error where that speaks of another question."""
    if by is None:
        return draft
    if by.question != draft.question.text:
        raise InputError(f"the audit has another question here: {by.question[:80]!r}")
    answer = draft.question.answer if by.answer is None else by.answer
    changes = {"answer": answer != draft.question.answer, "evidence": by.evidence != draft.cited}
    changed = tuple(label for label, differs in changes.items() if differs)
    return replace(draft, question=replace(draft.question, answer=answer), cited=by.evidence, changed=changed)


def _kind(fields: Mapping[str, Any]) -> str:
    category = fields.get("category")
    if isinstance(category, bool) or not isinstance(category, int) or category not in CATEGORIES:
        raise InputError("'category' must be a whole number from 1 to 5")
    return CATEGORIES[category]


def _strings(value: object) -> tuple[str, ...]:
    """The evidence field as texts; a lone text counts as a list of one."""
    given = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise InputError("'evidence' must be a list of ids such as 'D1:3'")
    return tuple(given)


def _evidence(draft: _Draft, partial: bool) -> tuple[Note, ...] | str:
    """The gold turns, oldest first, or the reason why there are none to go by. One text may hold several ids."""
    cited = " ".join(draft.cited)
    if not cited.strip():
        return NO_EVIDENCE
    ids = [(int(session), int(turn)) for session, turn in _ID.findall(cited)]  # as numbers: one label says D30:05
    places = sorted({draft.turns[key] for key in ids if key in draft.turns})
    complete = all(key in draft.turns for key in ids) and not _BETWEEN.sub("", _ID.sub("", cited))
    return tuple(draft.question.history[place] for place in places) if places and (partial or complete) else UNRESOLVED


def _history(name: str, conversation: Mapping[str, Any]) -> tuple[tuple[Note, ...], Turns]:
    """Every turn in order, and where the turn of a session and number stands."""
    notes: list[Note] = []
    turns: dict[tuple[int, int], int] = {}
    for session in _sessions(conversation):
        stamp = timestamp(json_files.text(conversation, f"{session}_date_time"))
        for place, value in enumerate(json_files.items(conversation, session)):
            with json_files.locate_errors(f"{session}, turn {place}"):
                turn = json_files.record(value)
                key = _key(json_files.text(turn, "dia_id"))
                if key in turns:
                    raise InputError(f"the dia_id D{key[0]}:{key[1]} is there twice")
                if said := _spoken_text(turn):
                    turns[key] = len(notes)
                    notes.append(
                        Note(f"{name}:D{key[0]}:{key[1]}", said, json_files.text(turn, "speaker"), session, stamp)
                    )
    return tuple(notes), turns


def _sessions(conversation: Mapping[str, Any]) -> Sequence[str]:
    """The names of the sessions in order; dates without a session are passed over."""
    numbers = (_SESSION.fullmatch(name) for name in conversation)
    return [found[0] for found in sorted(filter(None, numbers), key=lambda found: int(found[1]))]


def _key(name: str) -> tuple[int, int]:
    found = _ID.fullmatch(name)
    if found is None:
        raise InputError(f"the dia_id {name[:40]!r} is not of the form D1:3")
    return int(found[1]), int(found[2])


def _spoken_text(turn: Mapping[str, Any]) -> str:
    """The words of a turn, then the caption of its image in brackets; empty where there is neither."""
    words, caption = turn.get("text"), turn.get("blip_caption") or ""
    if not isinstance(words, str) or not isinstance(caption, str):
        raise InputError("'text' and 'blip_caption' must be text")
    shown = f"[{caption.strip()}]" if caption.strip() else ""
    return json_files.mend_surrogates(" ".join(part for part in (words.strip() and words, shown) if part))
