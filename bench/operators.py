"""Every action beside Retain and Extract, with a real model, on a few LongMemEval questions (gold evidence).

    python -m bench.operators --model qwen.gguf --out bench/results/operators.json
    python -m bench.operators --model http://localhost:8000/v1 --model-name qwen --questions 100 --budget 128

The same model writes the records and reads the answers; an answer is right when it holds at least 60 % of the gold
answer's words (no model judges). Replies are kept in `--cache`, so a run that was cut off goes on where it stopped. The
result holds ids and numbers, no text of the benchmark.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from bench import data_file, grid, keep, out_parser
from bench.extract import content, survival
from retcon import answer
from retcon.cache import CachedChat
from retcon.errors import ModelError
from retcon.fidelity import check
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Chat, chat
from retcon.note import Cluster, Hit, Note
from retcon.operate import ACTIONS, operate
from retcon.pack import costs
from retcon.tokens import counter

SEED = 20261115
COUNT = counter("estimate")
ARMS = [(name, True) for name in ("retain", "extract", "hybrid", "merge", "abstract", "rewrite")] + [
    (name, False) for name in ("merge", "abstract", "rewrite")
]


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One question under one action."""

    question: str
    type: str
    action: str
    focus: bool
    budget: int
    tokens: int
    right: bool
    abstained: bool
    unsupported: bool | None  # the guard found a number, date or name without a source; None for verbatim text
    calls: int
    failed: str | None = None


def clusters(limit: int, seed: int) -> Iterator[tuple[dict[str, Any], Cluster]]:
    """A random sample of the answerable questions that have evidence, each with its gold evidence as the cluster."""
    items = json.loads(data_file("longmemeval_gold_evidence_500.json").read_text(encoding="utf-8"))
    usable = [item for item in items if item["evidence"] and not item["question_id"].endswith("_abs")]
    for item in random.Random(seed).sample(usable, min(limit, len(usable))):
        notes = [_note(item, i, turn) for i, turn in enumerate(item["evidence"])]
        hits = tuple(Hit(note, 1.0, rank) for rank, note in enumerate(notes, 1))
        yield item, Cluster(item["question"], hits, (), tuple(costs(hits, count=COUNT)))


def _note(item: dict[str, Any], i: int, turn: dict[str, Any]) -> Note:
    day = turn["session_date"][:10].replace("/", "-")
    return Note(id=f"{item['question_id']}:{i}", text=turn["content"], speaker=turn["role"], timestamp=day)


def measure(item: dict[str, Any], cluster: Cluster, action: str, focus: bool, budget: int, model: Chat) -> OperatorRow:
    """What one action makes of one question, and whether the reader then gets it right."""
    known = (item["question_id"], item["question_type"], action, focus, budget)
    try:
        packed = operate(action, cluster, budget, count=COUNT, chat=model, focus=focus)
        (reply,) = model([answer.prompt(cluster.query, packed.text)])
        if isinstance(reply, ModelError):
            raise reply
    except ModelError as error:
        return OperatorRow(*known, 0, False, False, None, 0, failed=error.code)
    doubtful = None
    if ACTIONS[action].needs_model:
        doubtful = not check(packed.text, cluster.notes, query=cluster.query).ok
    gold = content(str(item["answer"]))
    right = bool(gold) and survival(gold, reply.text) >= 0.6
    return OperatorRow(*known, packed.tokens, right, answer.abstains(reply.text), doubtful, packed.usage.model_calls)


def summary(rows: Sequence[OperatorRow]) -> list[dict[str, Any]]:
    """Accuracy of each action with a bootstrap interval over questions, and its paired gain over Retain."""
    questions = sorted({row.question for row in rows})
    draws = np.random.default_rng(SEED).integers(0, len(questions), (10_000, len(questions)))
    right = {(row.action, row.focus, row.question): float(row.right) for row in rows}
    out = []
    for action, focus in ARMS:
        scores = np.array([right[action, focus, question] for question in questions])
        gains = scores - np.array([right["retain", True, question] for question in questions])
        mine = [row for row in rows if (row.action, row.focus) == (action, focus)]
        flagged = [row.unsupported for row in mine if row.unsupported is not None]
        out.append(
            {
                "action": action if focus or action in ("retain", "extract") else f"{action}, agnostic",
                "questions": len(questions),
                "accuracy": float(scores.mean()),
                "interval": np.percentile(scores[draws].mean(axis=1), [2.5, 97.5]).tolist(),
                "gain": float(gains.mean()),
                "gain_interval": np.percentile(gains[draws].mean(axis=1), [2.5, 97.5]).tolist(),
                "abstained": float(np.mean([row.abstained for row in mine])),
                "unsupported": float(np.mean(flagged)) if flagged else None,
                "tokens": float(np.mean([row.tokens for row in mine])),
                "calls": float(np.mean([row.calls for row in mine])),
                "failed": dict(Counter(row.failed for row in mine if row.failed)),
            }
        )
    return out


def table(result: dict[str, Any]) -> str:
    """The summary as Markdown."""
    head = ("action", "accuracy", "gain over retain", "abstained", "unsupported", "tokens", "calls")
    lines = []
    for row in result["summary"]:
        accuracy = f"{row['accuracy']:.2f} [{row['interval'][0]:.2f}, {row['interval'][1]:.2f}]"
        gain = f"{row['gain']:+.2f} [{row['gain_interval'][0]:+.2f}, {row['gain_interval'][1]:+.2f}]"
        doubt = "" if row["unsupported"] is None else f"{row['unsupported']:.2f}"
        spent = (f"{row['tokens']:.0f}", f"{row['calls']:.1f}")
        lines.append((row["action"], accuracy, gain, f"{row['abstained']:.2f}", doubt, *spent))
    return grid(head, lines)


def main() -> None:
    """Run, print, keep."""
    parser = out_parser(__doc__)
    parser.add_argument("--model", required=True, help="base URL of an endpoint, or the path of a .gguf file")
    parser.add_argument("--model-name", help="the model's name at the endpoint")
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--cache", type=Path, default=Path("operators-cache.db"), help="where replies are kept")
    options = parser.parse_args()
    model = CachedChat(
        chat(options.model, name=options.model_name, timeout=600), ReplyCache(options.cache), f"bench-{answer.PROMPTS}"
    )
    jobs = [(item, cluster, *arm) for item, cluster in clusters(options.questions, SEED) for arm in ARMS]
    rows = [measure(*job, options.budget, model) for job in track(jobs, description=f"{len(jobs)} cells")]
    result = {
        "model": model.name, "budget": options.budget, "counter": COUNT.name, "seed": SEED,
        "judge": "at least 60 % of the gold answer's words in the reply", "summary": summary(rows),
        "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    print(table(result))
    keep(result, options.out)


if __name__ == "__main__":
    main()
