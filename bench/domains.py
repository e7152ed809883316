"""Which questions of seven domains are labelled: drawn by a seed, in four waves, with kinds and twins.

    python -m bench.domains              count what the files in bench/prereg name
    python -m bench.domains --write      draw anew and write them (done once, before any outcome existed)

Answerable questions are spread over conversations: each gives one in turn, in a drawn order. Unanswerable ones are of
several kinds (`bench.unanswerable`); one that was made from an answerable question is drawn only where that one is, in
the same wave, and both are resampled together. Every wave is a fair draw by itself: what there is no time for is left
out from the end.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from bench import ROOT, grid
from bench.budgets import domains
from bench.unanswerable import ANSWERABLE, MADE, PUBLISHED, REMOVED, kind_of, make, twin_of
from retcon.lab.data.question import BenchmarkQuestion, answerable

PREREG = ROOT / "bench" / "prereg"
SEED = 20261116
PERMISSIVE = ("longmemeval", "lifebench", "factcon", "friendsqa", "timeqa")  # their licences let a default be learned
OPENED_ONCE = ("locomo", "timelineqa")  # CC BY-NC: they only test, once
DOMAINS = (*PERMISSIVE, *OPENED_ONCE)
WAVES = ("wave1", "wave2", "wave3", "wave4")
KINDS = (ANSWERABLE, PUBLISHED, REMOVED, *MADE)
# At most so many of a wave: answerable, unanswerable, and among these made ones and published ones
ASKED, UNANSWERABLE, FROM_TWINS, FROM_PUBLISHERS = 100, 30, 13, 25


def load(name: str) -> tuple[BenchmarkQuestion, ...]:
    """The questions of a domain as published, and where its licence is permissive those made from them."""
    published = tuple(domains()[name]())
    return (*published, *make(published)) if name in PERMISSIVE else published


def read_ids(name: str, wave: str) -> list[str]:
    """The ids of the questions of a domain that a wave labels."""
    return (PREREG / f"{name}-{wave}.txt").read_text(encoding="utf-8").splitlines()


def draw(questions: Sequence[BenchmarkQuestion], seed: str) -> dict[str, list[BenchmarkQuestion]]:
    """Wave -> its questions, in the order given.

    Made ones come first among the unanswerable, where their twins are drawn; published ones go into all waves alike;
    those whose turns were removed fill up what is left.
    """
    rng = random.Random(seed)
    kinds = {kind: [question for question in questions if kind_of(question) == kind] for kind in (PUBLISHED, REMOVED)}
    asked = spread(answerable(questions), len(WAVES) * ASKED, _conversation, rng)
    published = spread(kinds[PUBLISHED], len(WAVES) * FROM_PUBLISHERS, _conversation, rng)
    removed = spread(kinds[REMOVED], len(questions), _conversation, rng)
    drawn = {}
    for number, wave in enumerate(WAVES):
        some = asked[number * ASKED : (number + 1) * ASKED]
        twins = {question.id for question in some}
        made = [question for question in questions if kind_of(question) in MADE and twin_of(question) in twins]
        others = spread(made, FROM_TWINS, kind_of, rng) + published[number :: len(WAVES)]
        fill = UNANSWERABLE - len(others)
        others, removed = others + removed[:fill], removed[fill:]
        ids = {question.id for question in some + others}
        drawn[wave] = [question for question in questions if question.id in ids]
    return drawn


def _conversation(question: BenchmarkQuestion) -> str:
    return question.conversation


def spread(
    questions: Iterable[BenchmarkQuestion], most: int, group_of: Callable[[BenchmarkQuestion], str], rng: random.Random
) -> list[BenchmarkQuestion]:
    """At most so many questions: each group gives one in turn, groups and questions in a drawn order."""
    groups: dict[str, list[BenchmarkQuestion]] = defaultdict(list)
    for question in questions:
        groups[group_of(question)].append(question)
    names = sorted(groups)
    rng.shuffle(names)
    for some in groups.values():
        rng.shuffle(some)
    rounds = range(max(map(len, groups.values()), default=0))
    return [groups[name][turn] for turn in rounds for name in names if turn < len(groups[name])][:most]


def table() -> str:
    """How many questions of each kind the files name, by domain and wave."""
    rows = []
    for name in DOMAINS:
        known = {question.id: kind_of(question) for question in load(name)}
        for wave in WAVES:
            count = Counter(known[each] for each in read_ids(name, wave))
            rows.append([name, wave[-1], *(str(count[kind] or "") for kind in KINDS), str(count.total())])
    return grid(["domain", "wave", *KINDS, "all"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="draw, and write the ids to bench/prereg")
    if parser.parse_args(argv).write:
        for name in DOMAINS:
            for wave, questions in draw(load(name), f"{SEED}/{name}").items():
                ids = "".join(f"{question.id}\n" for question in questions)
                (PREREG / f"{name}-{wave}.txt").write_text(ids, encoding="utf-8")
    print(table())


if __name__ == "__main__":
    main()
