"""Two months of an invented person's talks with an assistant, and questions about them, shipped with the package.

Nobody in it exists: the people, places, prices and codes were made up so that the demo and the tests have something to
remember. Facts are said once or many times over, corrected, postponed and mixed with others that look like them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

__all__ = ["Question", "more_questions", "notes", "questions"]


@dataclass(frozen=True, slots=True)
class Question:
    """One question that the person asks later, with its answer and the turns that hold it.

    `type` is single-session, multi-session, temporal, knowledge-update or abstention. Where the answer changed, the
    evidence lists the older statements too; for an abstention it is empty and the answer is "not in memory".
    """

    id: str
    question: str
    answer: str
    type: str
    evidence: tuple[str, ...]
    date: str  # the day on which it is asked, ISO 8601


def notes() -> list[dict[str, Any]]:
    """Every turn in order: id, session, timestamp, speaker, text, and `supersedes` where it corrects an earlier one."""
    return _rows("conversation.jsonl")


def questions() -> list[Question]:
    """Every question, the abstentions last."""
    return _questions("questions.jsonl")


def more_questions() -> list[Question]:
    """Further ones, for `retcon advise --sample`: facts said in one place, and things that were never said."""
    return _questions("more_questions.jsonl")


def _questions(name: str) -> list[Question]:
    return [Question(**row | {"evidence": tuple(row["evidence"])}) for row in _rows(name)]


def _rows(name: str) -> list[dict[str, Any]]:
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]  # splitlines would cut at U+2028 too
