"""Does more budget ever show less? How often the words of a gold answer survive at a budget and not at twice that.

    python -m bench.budgets [--limit N] [--out PATH] [--against PATH]

Seven domains: LoCoMo, the LongMemEval pool, and the five archives of "your own questions" in the folder `domains` of
the data. No model, and `Memory` as it comes: `default` is what `recall` gives, `retain` and `extract` what it gives
where that action is forced. An answer survives where the text holds 60 % of its content words (`bench.extract`).
Questions without an answer in memory, and those whose own evidence does not hold those words, are left out.

`--against` names an earlier result of this script, of older code: differences in survival are then paired by question,
with a 95 % interval from 10,000 draws, and both results are kept side by side.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from bench import data_file, grid, keep, out_parser
from bench.extract import SURVIVES, answer_words, gap, survival
from retcon import Memory
from retcon.lab.data import datasets
from retcon.lab.data.question import BenchmarkQuestion, answerable
from retcon.lab.protocols import chain_turns
from retcon.note import EXTRACT, RETAIN
from retcon.operate import operate
from retcon.pack import render

BUDGETS = (32, 64, 128, 256, 512, 1024)
DEFAULT = "default"
WAYS = (DEFAULT, RETAIN, EXTRACT)
ARCHIVES = ("lifebench", "factcon", "friendsqa", "timelineqa", "timeqa")

_DOUBLED = [f"{small} to {large}" for small, large in pairwise(BUDGETS)]

# way -> budget -> one character a question: 1 where its answer survives
Bits = Mapping[str, Mapping[str, str]]


# - the domains -


def domains() -> Mapping[str, Callable[[], Sequence[BenchmarkQuestion]]]:
    """What loads the questions of each domain."""
    return {
        "locomo": partial(_published, "locomo", "locomo10.json"),
        "longmemeval": partial(_published, "longmemeval-pool", "longmemeval_gold_evidence_500.json"),
    } | {name: partial(_unpack, name) for name in ARCHIVES}


def _published(name: str, file: str) -> Sequence[BenchmarkQuestion]:
    return datasets.load(name, folder=data_file(file).parent).questions


def _unpack(name: str) -> Sequence[BenchmarkQuestion]:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(data_file(f"domains/{name}.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
        return datasets.load(str(next(Path(folder).rglob(f"{name}.jsonl")))).questions


# - what survives -


def measure(questions: Iterable[BenchmarkQuestion], limit: int | None) -> Bits:
    """Whether the answer of each question survives, by way and budget."""
    found: dict[str, dict[str, list[str]]] = {way: {str(b): [] for b in BUDGETS} for way in WAYS}
    for memory, question, gold in _open(_draw(answerable(questions), limit)):
        for budget in BUDGETS:
            for way, text in texts(memory, question.text, budget).items():
                found[way][str(budget)].append("1" if survival(gold, text) >= SURVIVES else "0")
    return {way: {budget: "".join(bits) for budget, bits in each.items()} for way, each in found.items()}


def texts(memory: Memory, query: str, budget: int) -> dict[str, str]:
    """What a recall of the query gives, by default and by each action that needs no model."""
    recall = memory.recall(query, budget)
    forced = {
        action: recall.text
        if action == recall.action
        else operate(action, recall.cluster, budget, count=memory.count).text
        for action in (RETAIN, EXTRACT)
    }
    return {DEFAULT: recall.text} | forced


def _draw(questions: Sequence[BenchmarkQuestion], limit: int | None) -> Sequence[BenchmarkQuestion]:
    """So many of them, spread over all; those of one history stay together."""
    step = max(1, -(-len(questions) // limit)) if limit else 1
    return questions[::step]


def _open(
    questions: Iterable[BenchmarkQuestion],
) -> Iterator[tuple[Memory, BenchmarkQuestion, frozenset[str]]]:
    """The questions that count, each with a memory that holds its history and the words of its answer."""
    for _, group in groupby(questions, key=lambda question: id(question.history)):
        memory: Memory | None = None
        for question in group:
            gold = answer_words(question.text, question.answer)
            if not gold or survival(gold, "\n".join(map(render, question.evidence))) < SURVIVES:
                continue
            if memory is None:
                memory = Memory(":memory:")
                memory.store.add(list(chain_turns(question.history)))
            yield memory, question, gold
        if memory is not None:
            memory.close()


# - what is told -


def lost(bits: Mapping[str, str]) -> dict[str, float]:
    """Budget -> share of the answers that survive there and not at twice the budget."""
    return {
        str(small): sum(a > b for a, b in zip(bits[str(small)], bits[str(large)], strict=True))
        / max(len(bits[str(small)]), 1)
        for small, large in pairwise(BUDGETS)
    }


def share(bits: str) -> float:
    return bits.count("1") / max(len(bits), 1)


def pool(found: Mapping[str, Bits]) -> Bits:
    """All domains as one."""
    return {way: {str(b): "".join(each[way][str(b)] for each in found.values()) for b in BUDGETS} for way in WAYS}


def lost_table(found: Mapping[str, Bits]) -> str:
    """The share of answers lost by doubling the budget, in per cent, by way and domain."""
    rows = []
    for way in WAYS:
        rows.append([f"*{way}*"])
        for name, bits in (*found.items(), ("all", pool(found))):
            rows.append([name, str(len(bits[way]["32"])), *_cells(bits[way])])
    return grid(["", "answers", *_DOUBLED], rows)


def lost_summary(result: Mapping[str, Any]) -> str:
    """The same by default, before and now, and of each action over all domains."""
    rows = []
    for when, found in (("before", result["before"]), ("now", result["found"])):
        rows += [[f"*{when}*"], *([name, *_cells(bits[DEFAULT])] for name, bits in found.items())]
        rows.append(["all domains", *_cells(pool(found)[DEFAULT])])
        rows += [[f"all domains, {way} forced", *_cells(pool(found)[way])] for way in (RETAIN, EXTRACT)]
    return grid(["per cent lost, from one budget to its double", *_DOUBLED], rows)


def _cells(bits: Mapping[str, str]) -> list[str]:
    return [f"{100 * value:.1f}" for value in lost(bits).values()]


def survival_table(result: Mapping[str, Any]) -> str:
    """The share of answers that survive by default, with the difference to the earlier result where there is one."""
    found, before = result["found"], result.get("before")
    rows = []
    for name, bits in (*found.items(), ("all", pool(found))):
        rows.append(
            [f"{name}, {len(bits[DEFAULT]['32']):,} answers", *(f"{share(bits[DEFAULT][str(b)]):.3f}" for b in BUDGETS)]
        )
        if before is not None:
            older = pool(before) if name == "all" else before[name]
            rows.append(["difference", *(_difference(bits, older, b) for b in BUDGETS)])
    return grid(["", *map(str, BUDGETS)], rows)


def _difference(bits: Bits, older: Bits, budget: int) -> str:
    one, other = (list(map(float, each[DEFAULT][str(budget)])) for each in (bits, older))
    return str(gap(one, other))


def main(argv: Sequence[str] | None = None) -> int:
    parser = out_parser(__doc__)
    parser.add_argument("--limit", type=int, help="questions a domain, spread over all of them")
    parser.add_argument("--against", type=Path, help="an earlier result of this script")
    parser.add_argument("--only", choices=list(domains()), nargs="+", help="these domains alone")
    args = parser.parse_args(argv)
    found: dict[str, Bits] = {}
    for name, load in domains().items():
        if not args.only or name in args.only:
            found[name] = measure(load(), args.limit)
            print(name, len(found[name][DEFAULT]["32"]), file=sys.stderr, flush=True)
    before = json.loads(args.against.read_text("utf-8"))["found"] if args.against else None
    result: dict[str, Any] = {"budgets": BUDGETS, "found": found}
    if before:
        result["before"] = {name: before[name] for name in found}
        print("Lost by doubling the budget, per cent, before", lost_table(result["before"]), sep="\n\n", end="\n\n")
    print("Lost by doubling the budget, per cent", lost_table(found), sep="\n\n", end="\n\n")
    print("Answers that survive by default", survival_table(result), sep="\n\n")
    keep(result, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
