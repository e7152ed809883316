"""Whether a model can be a reader at all: a few questions with their evidence at hand, and a few with none.

    python -m bench.reader_trial --model qwen0.5b.gguf --model tinyllama.gguf --out bench/results/reader_trial.json

LongMemEval's gold evidence, whole notes at 128 tokens, questions spread over its types, and as many questions with the
evidence of another one, which no reader can answer from it. Counted: replies, abstentions, answers that `strict` calls
right, answers where there is none, and replies of 32 words and more (half of the ceiling of 64 tokens: chatter). No
judge is a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import RESULTS, data_file, keep, out_parser
from bench.domains import SEED
from retcon import answer
from retcon.lab.data import BenchmarkQuestion, answerable, load, stratified
from retcon.lab.label import cells, label
from retcon.lab.protocols import PROTOCOLS, cases
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Chat, chat
from retcon.note import RETAIN

BUDGET = 128
LONG = answer.LONGEST // 2  # words of a reply that is no short answer


def pick(n: int) -> tuple[BenchmarkQuestion, ...]:
    """n questions by type, then the same questions with the next one's evidence."""
    gold = load("longmemeval-gold", folder=data_file("longmemeval_gold_evidence_500.json").parent).questions
    asked = stratified((question for question in answerable(gold) if question.evidence), n, seed=SEED)
    swapped = [
        replace(one, id=f"{one.id}-none", evidence=other.evidence, abstention=True)
        for one, other in zip(asked, (*asked[1:], asked[0]), strict=True)
    ]
    return (*asked, *swapped)


def read_all(model: Chat, asked: Sequence[BenchmarkQuestion], cache: ReplyCache) -> dict[str, Any]:
    """What a reader did with them."""
    todo = cells(cases(asked, PROTOCOLS["controlled"]), (RETAIN,), budgets=(BUDGET,))
    done = label(todo, model, cache, judged=False, guard=False)
    rows = [] if done.outcomes is None else list(done.outcomes.rows())
    known, none = ([row for row in rows if (row["abstention"] == "yes") is gone] for gone in (False, True))
    return {
        "model": model.name, "failed": sum(done.failures.values()), "questions": len(known),
        "abstained": sum(row["abstained"] > 0 for row in known), "right": sum(row["judge_strict"] > 0 for row in known),
        "without_an_answer": len(none), "answered_none": sum(row["abstained"] == 0 for row in none),
        "long": sum(len(each["reply"].split()) >= LONG for each in done.answers),
    }  # fmt: skip


def main() -> None:
    """Ask every model, count, keep."""
    parser = out_parser(__doc__, RESULTS / "reader_trial.json")
    parser.add_argument("--model", action="append", required=True, help="base URL or .gguf file; may be given again")
    parser.add_argument("--limit", type=int, default=6, help="questions with an answer, and as many without")
    parser.add_argument("--replies", type=Path, default=Path("reader-replies.db"), help="where replies are kept")
    options = parser.parse_args()
    asked, cache = pick(options.limit), ReplyCache(options.replies)
    readers = [read_all(chat(each, timeout=600), asked, cache) for each in options.model]
    keep({"budget": BUDGET, "readers": readers}, options.out)


if __name__ == "__main__":
    main()
