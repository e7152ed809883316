"""Operators asked for a longer text, on a processor: the small model, a few questions, before a GPU runs the ablation.

    python -m bench.length_trial --model qwen0.5b.gguf --out bench/results/length_trial.json

The first questions of the runs `longmemeval-plain` and `longmemeval-longer` (bench/prereg/audit.md), two operators and
two budgets. The same model writes and reads; `strict` judges, which needs no model. A trial of whether the prompt moves
the length at all: with so few questions its accuracies settle nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import RESULTS, keep, out_parser
from bench.evaluation import DRAWS, SEED, Array, estimate, round_numbers
from bench.runs import RUNS, Run, questions
from retcon.lab.label import cells, label
from retcon.lab.outcomes import Outcomes
from retcon.lab.protocols import PROTOCOLS, cases
from retcon.lab.reply_cache import ReplyCache
from retcon.lab.stats import resample
from retcon.model import Chat, chat

PLAIN, LONGER = (next(run for run in RUNS if run.name == f"longmemeval-{name}") for name in ("plain", "longer"))
ARMS = ("retain", "abstract-agnostic", "merge-agnostic")
BUDGETS = (64, 256)


def measure(run: Run, model: Chat, cache: ReplyCache, limit: int) -> Outcomes:
    """The outcomes of a run's first questions."""
    protocol = replace(PROTOCOLS[run.protocol], **run.change)
    picked = [question for _, question in questions(run)][:limit]
    done = label(cells(cases(picked, protocol), ARMS, budgets=BUDGETS), model, cache, judged=False, guard=False)
    if done.outcomes is None or done.failures:
        raise SystemExit(f"{run.name}: {dict(done.failures)} of {limit} questions could not be measured")
    return done.outcomes


def compare(plain: Outcomes, longer: Outcomes) -> list[dict[str, Any]]:
    """A line an operator and budget: how full its text is and how often right, then what the longer one adds."""
    lines = []
    for arm in ARMS[1:]:
        for budget in BUDGETS:
            (full, right), (fuller, other) = (_by_question(rows, arm, budget) for rows in (plain, longer))
            ways = {"by_question": resample(len(full), seed=SEED, draws=DRAWS)}
            lines.append({
                "action": arm, "budget": budget, "questions": len(full), "fill": float(full.mean()),
                "fill_longer": float(fuller.mean()), "more": estimate(fuller - full, ways),
                "right": float(right.mean()), "right_longer": float(other.mean()),
                "gain": estimate(other - right, ways),
            })  # fmt: skip
    return lines


def _by_question(rows: Outcomes, arm: str, budget: int) -> tuple[Array, Array]:
    """[question] the share of the budget that is filled, and whether `strict` calls the answer right."""
    column = rows.where(action=arm, budget=budget).columns
    order = np.argsort(column["question_id"].astype(str))
    return column["context_tokens"][order] / budget, column["judge_strict"][order]


def main() -> None:
    """Ask, compare, keep."""
    parser = out_parser(__doc__, RESULTS / "length_trial.json")
    parser.add_argument("--model", required=True, help="base URL or .gguf file")
    parser.add_argument("--model-name")
    parser.add_argument("--limit", type=int, default=24, help="questions")
    parser.add_argument("--replies", type=Path, default=Path("length-replies.db"), help="where replies are kept")
    options = parser.parse_args()
    model, cache = chat(options.model, name=options.model_name, timeout=600), ReplyCache(options.replies)
    plain, longer = (measure(run, model, cache, options.limit) for run in (PLAIN, LONGER))
    result = {"model": model.name, "questions": options.limit, "lines": compare(plain, longer)}
    keep(round_numbers(result), options.out)


if __name__ == "__main__":
    main()
