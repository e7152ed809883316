"""Why a rival may be ahead: the order of the lines, the unit that is shown, or the retriever. One at a time.

    python -m bench.rivals.order --model FOLDER --replies OUT            read and judge, replies kept, resumable
    python -m bench.rivals.order --replies OUT --rows                    rows from kept replies, no model asked
    python -m bench.rivals.order --out bench/results/order.json          the analysis of the committed rows

What bench/prereg/order.md fixes. The questions are of the learning domains; rivals are compared on others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from bench import RESULTS, keep, out_parser
from bench.domains import PERMISSIVE, read_ids, spread
from bench.domains import load as load_domain
from bench.evaluation import ROWS, round_numbers
from bench.rivals.answers import SPENT, Shown, measure, read_rows, write
from bench.rivals.base import COUNTER, fit
from bench.rivals.questions import BUDGETS
from bench.rivals.systems.bm25s_rag import Bm25sRag
from bench.runs import MODEL, RecordingCache, open_model, restore
from retcon.extract import extract
from retcon.lab.data.question import BenchmarkQuestion, answerable
from retcon.lab.protocols import PROTOCOLS, Case, cases
from retcon.lab.reply_cache import ReplyCache
from retcon.lab.stats import replicates, resample
from retcon.note import Note
from retcon.pack import render
from retcon.tokens import Counter, counter

Array = NDArray[np.float64]
Row = Mapping[str, Any]
SEED, ASKED, DRAWS = 20261118, 60, 10_000
KEPT = "order.replies.jsonl.gz"
FILE = "rivals-order.parquet"
SYSTEMS = ("extract", "extract-ranked", "turns", "turns-by-time", "bm25s", "bm25s-by-time")
PAIRS = (
    ("extract", "extract-ranked"), ("turns-by-time", "turns"), ("bm25s-by-time", "bm25s"),  # order
    ("extract-ranked", "turns"),  # unit
    ("turns", "bm25s"),  # retriever
)  # fmt: skip


def questions_of(name: str) -> list[BenchmarkQuestion]:
    """The questions of a domain, those of one history side by side."""
    wanted = set(read_ids(name, "wave4"))
    here = [question for question in answerable(load_domain(name)) if question.id in wanted]
    drawn = spread(here, ASKED, lambda each: each.conversation, random.Random(f"{SEED}/{name}"))
    first = {question.conversation: place for place, question in reversed(list(enumerate(drawn)))}
    return sorted(drawn, key=lambda question: first[question.conversation])


# -- what is shown -----------------------------------------------------------------------------------------------------


def texts(case: Case, ranked: Sequence[Note], budget: int) -> dict[str, str]:
    """Each way to show the question's candidates; `ranked` are those of bm25s."""
    count, cluster = counter(COUNTER), case.at(budget)
    place = {note.id: at for at, note in enumerate(case.question.history)}
    with patch("retcon.extract.turns", lambda hits: list(range(len(hits)))):
        by_rank = extract(cluster, budget, count=count).text
    found = {"extract": extract(cluster, budget, count=count).text, "extract-ranked": by_rank}
    for name, notes in (("turns", [hit.note for hit in cluster.hits]), ("bm25s", ranked)):
        taken = take(notes, budget, count)
        found[name] = "\n".join(text for _, text in taken)
        in_order = [text for _, text in sorted(taken, key=lambda each: place[each[0].id])]
        found[f"{name}-by-time"] = fit(in_order, budget, count)
    return found


def take(notes: Sequence[Note], budget: int, count: Counter) -> list[tuple[Note, str]]:
    """The turns that fit in their order, each as it is shown; the last may be cut."""
    taken: list[tuple[Note, str]] = []
    shown = ""
    for note in notes:
        longer = fit([shown, render(note)], budget, count)
        if text := longer[len(shown) :].strip("\n"):
            taken.append((note, text))
        if text != render(note):
            break
        shown = longer
    return taken


def shown(name: str) -> Iterator[Shown]:
    """Every text for the questions of a domain."""
    count, rival, taken = counter(COUNTER), Bm25sRag(), ""
    for case in cases(questions_of(name), PROTOCOLS["product"]):
        asked = case.question
        if asked.conversation != taken:
            rival.add(asked.history)
            taken = asked.conversation
        known = {render(note): note for note in asked.history}
        ranked = [known[each] for each in rival.context(asked.text, max(BUDGETS))]
        for budget in BUDGETS:
            for system, text in texts(case, ranked, budget).items():
                row = {"system": system, "domain": name, "question_id": asked.id, "budget": budget, "text": text}
                yield Shown(row | {"tokens": count(text)} | dict.fromkeys(SPENT, 0), asked)


def holds(cell: Shown) -> dict[str, float]:
    """Whether the text has the words of all gold turns, at least half of each, and those of the answer."""
    words = set(cell.row["text"].lower().split())
    gold = [set(note.text.lower().split()) for note in cell.question.evidence]
    answer = set(cell.question.answer.lower().split())
    return {
        "evidence": float(bool(gold) and all(len(each & words) * 2 >= len(each) for each in gold)),
        "answer": float(bool(answer) and answer <= words),
    }


# -- what came of it ---------------------------------------------------------------------------------------------------


def table(
    rows: Iterable[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float]
) -> dict[str, dict[str, Array]]:
    """Domain -> system -> [question, budget]."""
    found: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    for row in rows:
        one = found.setdefault(row["domain"], {}).setdefault(row["system"], {})
        one.setdefault(row["question_id"], {})[row["budget"]] = value(row)
    return {
        domain: {
            system: np.array([[by[budget] for budget in BUDGETS] for _, by in sorted(each.items())])
            for system, each in systems.items()
        }
        for domain, systems in found.items()
    }


def is_right(row: Row) -> float:
    """Whether both judges say so; a verdict that could not be read counts as no."""
    return min(float(row["judge_llm"] or 0.0), float(row["judge_strict"]))


def analyse(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures that the preregistration names."""
    right = table(rows, is_right)
    evidence, answer = table(rows, lambda row: row["evidence"]), table(rows, lambda row: row["answer"])
    out: dict[str, Any] = {"questions": {name: len(next(iter(each.values()))) for name, each in right.items()}}
    for name, by in (("right", right), ("evidence", evidence), ("answer", answer)):
        out[name] = {
            domain: {system: values.mean(axis=0).tolist() for system, values in each.items()}
            for domain, each in by.items()
        }
    out["pairs"] = {f"{one} less {other}": _compare(right, one, other) for one, other in PAIRS}
    done: dict[str, Any] = round_numbers(out)
    return done


def _compare(right: Mapping[str, Mapping[str, Array]], one: str, other: str) -> dict[str, Any]:
    gains = {domain: (each[one] - each[other]).mean(axis=1) for domain, each in right.items()}
    draws = {
        domain: replicates(gain[:, None], resample(len(gain), draws=DRAWS, seed=SEED)) for domain, gain in gains.items()
    }
    found = {domain: _interval(float(gain.mean()), draws[domain]) for domain, gain in gains.items()}
    every = np.mean([draws[domain] for domain in gains], axis=0)
    return found | {"mean": _interval(float(np.mean([gain.mean() for gain in gains.values()])), every)}


def _interval(mean: float, draws: Array) -> dict[str, float]:
    low, high = (float(each) for each in np.quantile(draws, (0.025, 0.975)))
    return {"mean": mean, "low": low, "high": high}


def main() -> None:
    """Read, or make rows, or analyse them."""
    parser = out_parser(__doc__, RESULTS / "order.json")
    parser.add_argument("--model", help="base URL, .gguf file or transformers folder of the reader")
    parser.add_argument("--replies", type=Path, help="folder of kept replies")
    parser.add_argument("--rows", action="store_true", help="write rows from kept replies")
    parser.add_argument("--limit", type=int, help="so many questions of a domain")
    parser.add_argument("--batch-tokens", type=int, default=1_000_000, help="of a transformers folder")
    options = parser.parse_args()
    if options.replies is None:
        keep(analyse(read_rows(ROWS / FILE)), options.out)
        return
    options.replies.mkdir(parents=True, exist_ok=True)
    cells = [cell for name in PERMISSIVE for cell in list(shown(name))[: (options.limit or ASKED) * 24]]
    cache = RecordingCache(ReplyCache(":memory:", max_bytes=1 << 36))
    if (options.replies / KEPT).is_file():
        restore(options.replies / KEPT, cache)
    chat = open_model(options.model, None, MODEL, options.batch_tokens)
    rows = [row | holds(cell) for cell, row in zip(cells, measure(cells, chat, cache, chunk=2048), strict=True)]
    if options.rows:
        write(rows, ROWS / FILE)
    else:
        cache.export(options.replies / KEPT)


if __name__ == "__main__":
    main()
