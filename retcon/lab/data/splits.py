"""Questions -> parts: who is trained on, who calibrates, who is tested. Drawn before any outcome exists.

A draw puts the questions in the order of a hash of seed and id, and takes from the front. So it depends on the seed and
the set of questions, never on their order in a file, on a platform or on a version of Python.
"""

from __future__ import annotations

import hashlib
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from retcon.errors import InputError
from retcon.lab.data.question import BenchmarkQuestion, answerable, evidence_cost

SEED = 20260716  # the seed that the paper states for its LoCoMo sample
PAPER_TEST = MappingProxyType({"single_session": 9, "multi_session": 13, "temporal": 13, "knowledge_update": 40})
PAPER_DEV = 75
PAPER_SAMPLE, STRATA = 75, 4
ORDERS = 32
ALL = "all"
INDEPENDENT = MappingProxyType({"fit": 0.5, "calibration": 0.25, "gate": 0.25})

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Split:
    """Question ids by part, sorted; no id is in two parts."""

    name: str
    seed: int
    parts: Mapping[str, tuple[str, ...]]

    def take(self, part: str, questions: Iterable[BenchmarkQuestion]) -> tuple[BenchmarkQuestion, ...]:
        """The questions of a part, in the order of their ids."""
        if part not in self.parts:
            raise InputError(f"the split {self.name} has no part {part!r}: it has {', '.join(self.parts)}")
        wanted = set(self.parts[part])
        return _by_id(question for question in questions if question.id in wanted)


def paper_like(questions: Sequence[BenchmarkQuestion], *, seed: int = SEED, abstentions: bool = True) -> Split:
    """LongMemEval's train, dev and test: 350/75/75 of its 500, the test with the paper's count of each type.

    The paper publishes no ids, so these are not its own. With `abstentions=False` the questions that memory does not
    answer all go to train; some of them have no evidence to pack.
    """
    pool = [question for question in _distinct(questions) if abstentions or not question.abstention]
    by_type = _group_by_type(pool, seed)
    for kind, needed in PAPER_TEST.items():
        if len(by_type[kind]) < needed:
            raise InputError(f"the test needs {needed} questions of type {kind}, there are {len(by_type[kind])}")
    test = [question.id for kind, needed in PAPER_TEST.items() for question in by_type[kind][:needed]]
    left = {kind: some[PAPER_TEST.get(str(kind), 0) :] for kind, some in by_type.items()}
    dev = _proportional(left, PAPER_DEV)
    train = {question.id for question in questions} - set(test) - set(dev)
    return _split("paper-like", seed, {"train": train, "dev": dev, "test": test})


def independent(
    questions: Sequence[BenchmarkQuestion], *, seed: int = SEED, shares: Mapping[str, float] = INDEPENDENT
) -> Split:
    """Fit, calibration and gate questions, each type in the stated shares, no conversation in two parts.

    Conversations go one by one to the part that lacks most of what they hold. Where they are few and large, the order
    matters much: of several orders, the one with the best balance is taken.
    """
    if not shares or min(shares.values()) <= 0:
        raise InputError("every part of a split needs a share above 0")
    groups: dict[str, list[BenchmarkQuestion]] = defaultdict(list)
    for question in _distinct(questions):
        groups[_conversation(question)].append(question)
    if len(groups) < len(shares):
        raise InputError(f"{len(shares)} parts need as many conversations, there are {len(groups)}")
    dealt = min((_deal(groups, shares, seed, order) for order in range(ORDERS)), key=lambda dealt: dealt.unevenness)
    parts = {part: [question.id for name in names for question in groups[name]] for part, names in dealt.parts.items()}
    return _split("independent", seed, parts)


def by_cost(
    questions: Iterable[BenchmarkQuestion], n: int = PAPER_SAMPLE, *, seed: int = SEED
) -> tuple[BenchmarkQuestion, ...]:
    """The paper's kind of LoCoMo sample: n answerable questions, proportional over four strata of evidence cost."""
    pool = _distinct(answerable(questions))
    costs = {question.id: evidence_cost(question) for question in pool}
    cuts = statistics.quantiles(costs.values(), n=STRATA, method="inclusive") if len(costs) > 1 else []
    layers: dict[int, list[BenchmarkQuestion]] = defaultdict(list)
    for question in sorted(pool, key=lambda question: _draw(seed, question.id)):
        layers[bisect_left(cuts, costs[question.id])].append(question)
    chosen = set(_proportional({layer: layers[layer] for layer in sorted(layers)}, n))
    return _by_id(question for question in pool if question.id in chosen)


def sample(questions: Iterable[BenchmarkQuestion], n: int, *, seed: int = SEED) -> tuple[BenchmarkQuestion, ...]:
    """n questions, each as likely as the next; a larger n with the same seed adds to a smaller one."""
    pool = sorted(_distinct(questions), key=lambda question: _draw(seed, question.id))
    return _by_id(pool[: _enough(n, len(pool))])


def stratified(questions: Iterable[BenchmarkQuestion], n: int, *, seed: int = SEED) -> tuple[BenchmarkQuestion, ...]:
    """n questions, as many of each type as its share of all."""
    pool = _distinct(questions)
    chosen = set(_proportional(_group_by_type(pool, seed), n))
    return _by_id(question for question in pool if question.id in chosen)


@dataclass(frozen=True, slots=True)
class _Deal:
    """Conversations by part, and how far the types are from the shares: the sum of (has - wanted)^2 / wanted."""

    parts: Mapping[str, Sequence[str]]
    unevenness: float


def _deal(
    groups: Mapping[str, Sequence[BenchmarkQuestion]], shares: Mapping[str, float], seed: int, order: int
) -> _Deal:
    """One deal: in the order of a hash, each conversation goes where the unevenness grows least, or falls most."""
    held = {name: Counter(str(question.type) for question in group) for name, group in groups.items()}
    for count in held.values():
        count[ALL] = count.total()  # the sizes of the parts weigh like one more type
    total = sum(held.values(), Counter[str]())
    unit = 1 / sum(shares.values())
    wanted = {part: {kind: n * share * unit for kind, n in sorted(total.items())} for part, share in shares.items()}
    has = {part: Counter[str]() for part in shares}
    parts: dict[str, list[str]] = {part: [] for part in shares}
    for dealt, name in enumerate(sorted(groups, key=lambda name: _draw(seed, f"{order}:{name}"))):
        empty = [part for part, names in parts.items() if not names]
        growth = {
            part: _unevenness(has[part] + held[name], goal) - _unevenness(has[part], goal)
            for part, goal in wanted.items()
        }
        part = min(empty if len(groups) - dealt <= len(empty) else parts, key=growth.__getitem__)
        has[part] += held[name]
        parts[part].append(name)
    return _Deal(parts, sum(_unevenness(has[part], goal) for part, goal in wanted.items()))


def _unevenness(has: Mapping[str, int], wanted: Mapping[str, float]) -> float:
    return sum((has.get(kind, 0) - n) ** 2 / n for kind, n in wanted.items())


def _conversation(question: BenchmarkQuestion) -> str:
    """What is kept together; LongMemEval asks most of its `_abs` questions in an answerable form too."""
    return question.conversation.removesuffix("_abs")


def _distinct(questions: Iterable[BenchmarkQuestion]) -> tuple[BenchmarkQuestion, ...]:
    given = tuple(questions)
    if len({question.id for question in given}) < len(given):
        raise InputError("two questions have one id: draw from one dataset at a time")
    return given


def _draw(seed: int, name: str) -> bytes:
    """Where the name stands in the order of that seed."""
    return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).digest()


def _group_by_type(questions: Iterable[BenchmarkQuestion], seed: int) -> dict[str | None, list[BenchmarkQuestion]]:
    """The questions of each type in the order of the draw, the types by name."""
    groups: dict[str | None, list[BenchmarkQuestion]] = defaultdict(list)
    for question in sorted(questions, key=lambda question: (str(question.type), _draw(seed, question.id))):
        groups[question.type].append(question)
    return groups


def _proportional(groups: Mapping[K, Sequence[BenchmarkQuestion]], n: int) -> list[str]:
    """Ids of n questions, from the front of each group by its size; the largest remainders are rounded up."""
    total = sum(map(len, groups.values()))
    n = _enough(n, total)
    counts = {key: n * len(group) // total for key, group in groups.items()} if total else {}
    by_remainder = sorted(groups, key=lambda key: -(n * len(groups[key]) % total))  # stable: equals in given order
    for key in by_remainder[: n - sum(counts.values())]:
        counts[key] += 1
    return [question.id for key, count in counts.items() for question in groups[key][:count]]


def _enough(n: int, total: int) -> int:
    if not 0 <= n <= total:
        raise InputError(f"a sample of {n} questions cannot be drawn from {total}")
    return n


def _by_id(questions: Iterable[BenchmarkQuestion]) -> tuple[BenchmarkQuestion, ...]:
    return tuple(sorted(questions, key=lambda question: question.id))


def _split(name: str, seed: int, parts: Mapping[str, Iterable[str]]) -> Split:
    return Split(name, seed, {part: tuple(sorted(ids)) for part, ids in parts.items()})
