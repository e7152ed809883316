"""The sample conversation, played: what a memory recalls of it under small budgets, act by act.

Every act is a name and plain JSON values, so that the command line can tell it to people or print it as it is.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from retcon import sample
from retcon.features import TYPES, query_type
from retcon.memory import Memory
from retcon.note import Recall
from retcon.operate import usable
from retcon.sample import Question
from retcon.store import Progress
from retcon.words import query_terms, spoken_date, stems

USER = "robin"
BUDGETS = (32, 64, 128, 256)
SHOWN = ("q65", "q66", "q35", "q20")  # one question of each type
NARROW, SINCE = "q09", "2026-05-03T12:06"  # a question, and a time range in which everything fits
UNKNOWN = "q76"  # a question that memory cannot answer
CHANGED, OLD = "What does Marek charge for a session?", "s17-03"  # and the note that answers it
CORRECTION = "Marek Nowicki charges £48 a session from May on, not £45."
ROUTER = "router"  # the summary's name for the router's own choice

Bar = Callable[[str, int | None], AbstractContextManager[Progress | None]]
Act = tuple[str, Any]
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def no_bar(what: str, total: int | None) -> AbstractContextManager[Progress | None]:
    """Draws nothing."""
    return nullcontext()


def play(bar: Bar = no_bar) -> Iterator[Act]:
    """The acts in order, on a store that is gone afterwards."""
    asked = {question.id: question for question in sample.questions()}
    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "demo.db") as memory:
        yield "sample", _load(memory, bar)
        yield "questions", [_budgets(memory, asked[name]) for name in SHOWN]
        yield "retain", _narrow(memory, asked[NARROW])
        yield "escalate", _escalate(memory, asked[UNKNOWN])
        yield "supersede", _supersede(memory)
        yield "summary", _summary(memory, list(asked.values()), bar)


def _load(memory: Memory, bar: Bar) -> dict[str, Any]:
    rows = sample.notes()
    started = time.perf_counter()
    with bar("loading the sample", len(rows)) as progress:
        memory.load((json.dumps(row | {"user_id": USER}) for row in rows), progress=progress)
    return {
        "turns": len(rows),
        "sessions": len({row["session"] for row in rows}),
        "first": rows[0]["timestamp"],
        "last": rows[-1]["timestamp"],
        "corrections": sum("supersedes" in row for row in rows),
        "seconds": time.perf_counter() - started,
    }


def _budgets(memory: Memory, question: Question) -> dict[str, Any]:
    recalls = [_judge(memory.recall(question.question, budget, user_id=USER), question) for budget in BUDGETS]
    return _plain(memory, question) | {"recalls": recalls}


def _narrow(memory: Memory, question: Question) -> dict[str, Any]:
    found = (memory.recall(question.question, budget, user_id=USER, since=SINCE) for budget in BUDGETS)
    return _plain(memory, question) | {"since": SINCE, "recalls": [_judge(each, question) for each in found]}


def _escalate(memory: Memory, question: Question) -> dict[str, Any]:
    """Every recall in turn, as a reader would ask for them that finds no answer in any."""
    found: Recall | None = memory.recall(question.question, BUDGETS[0], user_id=USER)
    recalls = []
    while found is not None:
        recalls.append(_judge(found, question))
        found = found.escalate()
    return _plain(memory, question) | {"recalls": recalls}


def _supersede(memory: Memory) -> dict[str, Any]:
    """A correction, what it changes, and its own deletion, after which the memory is as it was."""
    before = memory.recall(CHANGED, BUDGETS[0], user_id=USER)
    memory.supersede(OLD, CORRECTION, new_id="correction", timestamp="2026-05-04", session="after")
    after, versions = memory.recall(CHANGED, BUDGETS[0], user_id=USER), memory.history(OLD)
    memory.delete("correction", versions="one")
    again = memory.recall(CHANGED, BUDGETS[0], user_id=USER)
    return {
        "question": CHANGED,
        "superseded": OLD,
        "correction": CORRECTION,
        "before": before.to_dict(),
        "after": after.to_dict(),
        "history": [note.to_dict() for note in versions],
        "deleted": again.to_dict(),
    }


def _plain(memory: Memory, question: Question) -> dict[str, Any]:
    fields = {name: getattr(question, name) for name in ("id", "type", "question", "answer")}
    guessed = dict(zip(TYPES, query_type(question.question), strict=True))
    return fields | {"stated": is_stated(memory, question), "guessed": guessed}


# -- what survives -----------------------------------------------------------------------------------------------------


def survives(answer: str, text: str) -> bool:
    """Whether every telling word of the answer is in the text; 2026-05-09 says 9, May and 2026 too."""
    dates = " ".join(spoken_date(found) for found in _ISO_DATE.findall(text))
    return set(query_terms(answer)) <= set(stems(f"{text} {dates}"))


def is_stated(memory: Memory, question: Question) -> bool:
    """Whether the gold turns hold the answer word for word; any other answer has to be worked out by the reader."""
    gold = [memory.get(name) for name in question.evidence]
    return bool(gold) and survives(question.answer, "\n".join(f"{note.timestamp} {note.text}" for note in gold))


def _judge(found: Recall, question: Question) -> dict[str, Any]:
    gold = {source.id for source in found.sources} & set(question.evidence)
    kept = {"survives": survives(question.answer, found.text), "evidence": len(gold), "of": len(question.evidence)}
    return found.to_dict() | kept


def _summary(memory: Memory, questions: Sequence[Question], bar: Bar) -> dict[str, Any]:
    """Per budget and action, over all questions: answers that survive, gold turns that do, tokens and time."""
    word_for_word = {question.id for question in questions if is_stated(memory, question)}
    rows: list[dict[str, Any]] = []
    with bar("recalling", len(BUDGETS) * len(questions)) as progress:
        for budget in BUDGETS:
            judged = []
            for question in questions:
                judged.append(_each(memory, question, budget))
                if progress is not None:
                    progress(BUDGETS.index(budget) * len(questions) + len(judged))
            for action in (*usable(None), ROUTER):
                rows.append(
                    {"budget": budget, "action": action} | _means([one[action] for one in judged], word_for_word)
                )
    return {"questions": len(questions), "stated": len(word_for_word), "rows": rows}


def _each(memory: Memory, question: Question, budget: int) -> dict[str, dict[str, Any]]:
    """The recall by every action and the router's own, which is one of those."""
    own = memory.recall(question.question, budget, user_id=USER)
    chosen = own.decision.action
    found = {chosen: own} | {
        action: memory.recall(question.question, budget, user_id=USER, action=action)
        for action in usable(None)
        if action != chosen
    }
    judged = {action: _judge(recall, question) | {"id": question.id} for action, recall in found.items()}
    return judged | {ROUTER: judged[chosen]}


def _means(judged: Sequence[dict[str, Any]], word_for_word: set[str]) -> dict[str, Any]:
    return {
        "survive": sum(one["survives"] for one in judged if one["id"] in word_for_word),
        "evidence": sum(one["evidence"] for one in judged) / sum(one["of"] for one in judged),
        "tokens": sum(one["tokens"] for one in judged) / len(judged),
        "ms": 1000 * sum(one["usage"]["seconds"] for one in judged) / len(judged),
    }
