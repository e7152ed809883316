"""Which questions the runs of the audit label: drawn by a seed, before any outcome of them exists.

    python -m bench.audit_ids            count what the files in bench/prereg name
    python -m bench.audit_ids --write    draw and write them

`locomo-independent/`: fit, calibration and gate questions for the paper's independent evaluation, from the
conversations that bench/prereg.md gave to each part, without the questions that have outcomes in the full-history
protocol already. `longmemeval-paired.txt`: the test part of a split with the paper's sizes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from bench import data_file, grid
from bench.domains import PREREG, SEED
from retcon.lab.data import BenchmarkQuestion, answerable, load, paper_like, stratified

CONVERSATIONS = {
    "fit": ("conv-30", "conv-42", "conv-43", "conv-49"), "calibration": ("conv-26", "conv-50"),
    "gate": ("conv-41", "conv-44", "conv-47", "conv-48"),
}  # fmt: skip
SIZES = {"fit": 150, "calibration": 75, "gate": 75}  # the paper's gate has 75, its other parts are not stated
USED = ("tables", "rewrite")  # LoCoMo's questions with outcomes in the full-history protocol


def draw() -> dict[str, tuple[BenchmarkQuestion, ...]]:
    """Id file -> its questions."""
    locomo = load("locomo", folder=data_file("locomo10.json").parent).questions
    gold = load("longmemeval-gold", folder=data_file("longmemeval_gold_evidence_500.json").parent).questions
    used = {name for part in USED for name in (PREREG / f"locomo-{part}.txt").read_text(encoding="utf-8").split()}
    open_ones = [question for question in answerable(locomo) if question.evidence and question.id not in used]
    found = {
        f"locomo-independent/{part}": stratified(
            (q for q in open_ones if q.conversation in talks), SIZES[part], seed=SEED
        )
        for part, talks in CONVERSATIONS.items()
    }
    split = paper_like(gold, seed=SEED, abstentions=False)
    return found | {"longmemeval-paired": split.take("test", gold)}


def table(drawn: dict[str, tuple[BenchmarkQuestion, ...]]) -> str:
    """How many questions of each type the files name."""
    kinds = sorted({str(question.type) for some in drawn.values() for question in some})
    counts = {name: Counter(str(question.type) for question in some) for name, some in drawn.items()}
    rows = [[name, *(str(each[kind] or "") for kind in kinds), str(each.total())] for name, each in counts.items()]
    return grid(["file", *kinds, "all"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Draw, write where asked to, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the ids to bench/prereg")
    drawn = draw()
    if parser.parse_args(argv).write:
        for name, some in drawn.items():
            path = PREREG / f"{name}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{question.id}\n" for question in some), encoding="utf-8")
    print(table(drawn))


if __name__ == "__main__":
    main()
