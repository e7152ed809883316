"""Which questions rivals are compared on: drawn by a seed from four domains, fixed before any outcome existed.

    python -m bench.rivals.questions              count what the files in bench/prereg name
    python -m bench.rivals.questions --write      draw anew and write them (done once, before any outcome existed)

A memory that writes at ingest pays for every history, so few histories are drawn, and of these many questions. They
are taken in a drawn order until the answerable questions suffice; of LoCoMo the two shortest are taken. No question is
in a wave that any policy of ours was learned on. One that was made from another is drawn only where that one is.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache

from bench import grid
from bench.domains import KINDS, PREREG, WAVES, read_ids, spread
from bench.domains import load as load_domain
from bench.runs import COMPARED
from bench.unanswerable import MADE, kind_of, twin_of
from retcon.lab.data.question import BenchmarkQuestion, answerable

DOMAINS = COMPARED
BUDGETS = (64, 128, 256, 512)
PART = "rivals"
SEED = 20261117
ASKED, UNANSWERABLE = 60, 15
SHORTEST = {"locomo": 2}  # so many of the shortest histories; of other domains as many as it takes


def draw(questions: Sequence[BenchmarkQuestion], name: str, seen: set[str]) -> list[BenchmarkQuestion]:
    """The questions of a domain, in the order given; those of one history stay together."""
    rng = random.Random(f"{SEED}/{name}")
    fresh = [question for question in questions if question.id not in seen]
    chosen = set(_histories(fresh, name, rng))
    here = [question for question in fresh if question.conversation in chosen]
    asked = spread(answerable(here), ASKED, lambda q: q.conversation, rng)
    twins = {question.id for question in asked}
    others = [q for q in here if q.abstention and (kind_of(q) not in MADE or twin_of(q) in twins)]
    ids = twins | {question.id for question in spread(others, UNANSWERABLE, lambda q: q.conversation, rng)}
    return [question for question in questions if question.id in ids]


def _histories(fresh: Sequence[BenchmarkQuestion], name: str, rng: random.Random) -> list[str]:
    """Names of conversations: the shortest, or in a drawn order until there are enough answerable questions."""
    sizes = {question.conversation: len(question.history) for question in fresh}
    if name in SHORTEST:
        return sorted(sizes, key=lambda each: (sizes[each], each))[: SHORTEST[name]]
    counts = Counter(question.conversation for question in answerable(fresh))
    order, taken = sorted(counts), list[str]()
    rng.shuffle(order)
    while order and sum(counts[each] for each in taken) < ASKED:
        taken.append(order.pop())
    return taken


@cache
def questions_of(name: str) -> tuple[BenchmarkQuestion, ...]:
    """The questions of a domain that rivals are compared on, those of one history side by side."""
    wanted = set(read_ids(name, PART))
    found = [question for question in load_domain(name) if question.id in wanted]
    if len(found) < len(wanted):
        raise SystemExit(f"{name}: {len(wanted) - len(found)} of {len(wanted)} questions are not in the data")
    first = {question.conversation: place for place, question in reversed(list(enumerate(found)))}
    return tuple(sorted(found, key=lambda question: first[question.conversation]))


def table() -> str:
    """How many questions of each kind, histories and turns the files name."""
    rows = []
    for name in DOMAINS:
        found = questions_of(name)
        kinds = Counter(map(kind_of, found))
        turns = {question.conversation: len(question.history) for question in found}
        rows.append([name, *(str(kinds[kind] or "") for kind in KINDS), str(len(turns)), f"{sum(turns.values()):,}"])
    return grid(["domain", *KINDS, "histories", "turns"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="draw, and write the ids to bench/prereg")
    if parser.parse_args(argv).write:
        for name in DOMAINS:
            seen = {each for wave in WAVES for each in read_ids(name, wave)}
            ids = "".join(f"{question.id}\n" for question in draw(load_domain(name), name, seen))
            (PREREG / f"{name}-{PART}.txt").write_text(ids, encoding="utf-8")
    print(table())


if __name__ == "__main__":
    main()
