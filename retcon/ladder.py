"""The ladder: one look at memory after another, while the reader finds no answer that is good enough.

    decision -> recall -> the reader's reply -> an answer, or the next look -> ... -> Answer

A look is one action's text, read once. Which looks, and in what order, a router may have learned (`Ladder`); else it is
`DEFAULT_ORDER`. A ladder that was learned for a price of wrong answers goes on while the best reply is not likely
enough to be right, and in the end gives that one, or none. Any other ends at the first answer. `climb`, the loop of
`ask`, is handed what recalls and what reads: it knows no model and no store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import mul
from typing import Any

from retcon.errors import AuthError, InputError, ModelError, RouterError, few
from retcon.features import FEATURES, PLACES
from retcon.note import ABSTRACT, EXTRACT, HYBRID, MERGE, RETAIN, REWRITE, Decision, Recall, Usage
from retcon.plain import is_label, read_budget, read_list, read_number

DEFAULT_ORDER = (EXTRACT, MERGE, ABSTRACT, RETAIN, HYBRID, REWRITE)
DEFAULT_WRONG_COST = 0.5  # of `ask`, where a right answer brings 1; fixed before any outcome was known
LARGEST_BUDGET = 1 << 53
TIED = 12  # decimals of an order's worth that count: orders closer than that are equals


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Orders of actions to try while the reader abstains, and a linear response that says which order to use.

    worth(order) = level(order, B) + <weights(order), psi>. Between two learned budgets the level is interpolated in
    log2 B; beyond them the nearest holds. Of equals the earlier order wins.

    A climb goes on while the best confidence so far is below the stop of its budget, and the reply with the highest
    one is given if that is at or above the accept; between budgets as for levels. Without the two, both are 0: the
    first answer ends the climb and is given.
    """

    orders: tuple[tuple[str, ...], ...]
    features: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]  # [order, feature]
    intercepts: Mapping[int, tuple[float, ...]]  # budget -> level of each order
    call_price: float = 0.0  # utility that one more reader call had to bring
    token_price: float = 0.0
    stops: Mapping[int, float] = field(default_factory=dict)  # budget -> confidence from which no further look pays
    accepts: Mapping[int, float] = field(default_factory=dict)  # budget -> confidence under which no answer pays

    def __post_init__(self) -> None:
        for fault in _ladder_faults(self):
            raise RouterError(f"the ladder: {fault}")

    def order(self, x: Sequence[float], *, budget: int, available: Iterable[str] | None = None) -> tuple[str, ...]:
        """The looks for one feature vector (in the order of `FEATURES`), without actions that are not available.

        Empty where the ladder knows none of the available actions.
        """
        used = [x[PLACES[name]] for name in self.features]
        usable = None if available is None else set(available)
        best: float = -math.inf
        found: tuple[str, ...] = ()
        for looks, row, level in zip(self.orders, self.weights, self.levels(budget), strict=True):
            left = looks if usable is None else tuple(name for name in looks if name in usable)
            worth = round(math.fsum((level, *map(mul, row, used))), TIED)
            if left and worth > best:
                best, found = worth, left
        return found

    def levels(self, budget: int) -> tuple[float, ...]:
        """The level of every order at a budget."""
        below, above, part = _neighbours(self.intercepts, budget)
        low, high = self.intercepts[below], self.intercepts[above]
        return tuple(a + part * (b - a) for a, b in zip(low, high, strict=True)) if part else low

    def stop(self, budget: int) -> float:
        """The confidence from which no further look is taken."""
        return _interpolate(self.stops, budget) if self.stops else 0.0

    def accept(self, budget: int) -> float:
        """The confidence that an answer needs."""
        return _interpolate(self.accepts, budget) if self.accepts else 0.0

    @property
    def needs_confidence(self) -> bool:
        """Whether it stops or accepts by confidence."""
        return bool(self.stops or self.accepts)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Ladder:
        """The ladder that these plain JSON values describe."""
        if unknown := set(plain).difference(cls.__slots__):
            raise RouterError(f"the ladder has unknown entries: {few(sorted(map(str, unknown)))}")
        return cls(
            orders=tuple(tuple(read_list(order)) for order in plain["orders"]),
            features=tuple(plain["features"]),
            weights=tuple(tuple(map(read_number, row)) for row in plain["weights"]),
            intercepts={
                read_budget(budget): tuple(map(read_number, row)) for budget, row in plain["intercepts"].items()
            },
            call_price=read_number(plain.get("call_price", 0.0)),
            token_price=read_number(plain.get("token_price", 0.0)),
            stops=_read_levels(plain.get("stops", {})),
            accepts=_read_levels(plain.get("accepts", {})),
        )

    def to_dict(self) -> dict[str, Any]:
        """The ladder as plain JSON values; without stops and accepts where it has none."""
        levels = {"stops": self.stops, "accepts": self.accepts}
        return {
            "orders": [list(order) for order in self.orders],
            "features": list(self.features),
            "weights": [list(row) for row in self.weights],
            "intercepts": {str(budget): list(row) for budget, row in self.intercepts.items()},
            "call_price": self.call_price,
            "token_price": self.token_price,
            **{name: {str(budget): p for budget, p in by.items()} for name, by in levels.items() if by},
        }


def _neighbours(table: Collection[int], budget: int) -> tuple[int, int, float]:
    """The learned budgets around this one, and how far it is from the lower to the upper, in log2 B."""
    below = max((b for b in table if b <= budget), default=min(table))
    above = min((b for b in table if b >= budget), default=max(table))
    part = math.log2(budget / below) / math.log2(above / below) if below < above else 0.0  # learned, or beyond all
    return below, above, part


def _interpolate(table: Mapping[int, float], budget: int) -> float:
    below, above, part = _neighbours(table, budget)
    return table[below] + part * (table[above] - table[below])


def _read_levels(plain: Mapping[str, Any]) -> dict[int, float]:
    return {read_budget(budget): read_number(p) for budget, p in plain.items()}


def _ladder_faults(ladder: Ladder) -> Iterator[str]:
    size = len(ladder.orders)
    if not size or not all(order and len(set(order)) == len(order) for order in ladder.orders):
        yield "orders must be lists of distinct actions"
    if not all(is_label(name) for order in ladder.orders for name in order):
        yield "actions must be names of 1 to 100 printable characters"
    if not set(ladder.features) <= set(FEATURES) or len(set(ladder.features)) < len(ladder.features):
        yield f"features must be distinct names out of {', '.join(FEATURES)}"
    if not ladder.intercepts or not all(type(b) is int and 1 <= b <= LARGEST_BUDGET for b in ladder.intercepts):
        yield "levels must be given at budgets of 1 or more"
    if len(ladder.weights) != size or any(len(row) != size for row in ladder.intercepts.values()):
        yield f"there are {size} orders, and every one needs weights and a level at each budget"
    if any(len(row) != len(ladder.features) for row in ladder.weights):
        yield f"every order needs {len(ladder.features)} weights, one a feature"
    numbers = chain(*ladder.weights, *ladder.intercepts.values(), (ladder.call_price, ladder.token_price))
    if not all(map(math.isfinite, numbers)):
        yield "every number must be finite"
    for name, by in (("stops", ladder.stops), ("accepts", ladder.accepts)):
        if not all(type(b) is int and 1 <= b <= LARGEST_BUDGET and 0 <= p <= 1 for b, p in by.items()):
            yield f"{name} are confidences from 0 to 1, at budgets of 1 or more"


# -- which look comes next ---------------------------------------------------------------------------------------------


def replace_action(decision: Decision, action: str, why: str, *, forced: bool = False) -> Decision:
    """The decision with another action in place of the router's own, and why."""
    why = f"{why}; the router's own choice is {decision.reason}"
    return replace(decision, action=action, reason=why, forced=forced, certified=False)


def take_look(decision: Decision, look: str) -> Decision:
    """The decision for one look of the router's ladder."""
    place = decision.order.index(look) + 1
    return replace_action(decision, look, f"{look}: look {place} of the ladder {' > '.join(decision.order)}")


def first_look(decision: Decision, *, whole: bool) -> Decision:
    """The decision for the first look: by the ladder, or at whole notes with the ladder after them."""
    order = decision.order
    first = order[0] if order else decision.action
    if whole and first != RETAIN:
        order = (RETAIN, *(action for action in order if action != RETAIN)) if order else ()
        why = f"{RETAIN}: whole notes first, so that no answer of theirs is lost"
        return replace_action(replace(decision, order=order), RETAIN, why)
    return take_look(decision, first) if order else decision


def next_look(available: Iterable[str], exclude: Iterable[str]) -> str:
    """The first action of `DEFAULT_ORDER`, then of the others, that is available and not excluded."""
    left = [name for name in available if name not in set(exclude)]
    if not left:
        raise InputError(f"no action is left after {', '.join(exclude)}")
    return next((name for name in DEFAULT_ORDER if name in left), left[0])


# -- the climb ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """One look: what was recalled, what the reader said to it, and what both cost.

    `abstained`: it gave no answer. A reader that failed has said nothing either, and `error` has the reason.
    `confidence`: how likely the reply is right; None where it is no answer, or the router has learned no confidence.
    """

    recall: Recall
    reply: str
    abstained: bool
    usage: Usage
    error: ModelError | None = None
    confidence: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The look as plain JSON values."""
        return {
            "action": self.recall.action,
            "reply": self.reply,
            "abstained": self.abstained,
            "confidence": self.confidence,
            "error": None if self.error is None else str(self.error),
            "usage": self.usage.to_dict(),
            "recall": self.recall.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What `ask` gives back. `text` is None where memory does not hold the answer.

    It is None too where the answer was `refused`: there was a reply, and not enough speaks for it at the price of a
    wrong answer. The reply stands in `look`.
    """

    question: str
    text: str | None
    looks: tuple[Look, ...]
    usage: Usage
    warnings: tuple[str, ...] = ()
    refused: bool = False

    @property
    def look(self) -> Look:
        """The look whose reply was given or refused; the last one where none gave an answer."""
        return self._best or self.looks[-1]

    @property
    def _best(self) -> Look | None:
        return _find_best(self.looks)

    @property
    def confidence(self) -> float | None:
        """How likely the reply that was given, or refused, is right; None without one, or where nothing is known."""
        return self.look.confidence

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON values; `look` counts from 1."""
        return {
            "question": self.question,
            "answer": self.text,
            "in_memory": self.text is not None,
            "confidence": self.confidence,
            "refused": self.refused,
            "look": next((number for number, look in enumerate(self.looks, 1) if look is self._best), None),
            "looks": [look.to_dict() for look in self.looks],
            "usage": self.usage.to_dict(),
            "warnings": list(self.warnings),
        }


def _find_best(looks: Iterable[Look]) -> Look | None:
    """Of the looks that gave an answer, the one that most speaks for; of equals the first."""
    return max((look for look in looks if not look.abstained), key=_certainty, default=None)


def _certainty(look: Look) -> float:
    """The confidence; where nothing is known of it, the reader's word counts in full."""
    return 1.0 if look.confidence is None else look.confidence


def climb(
    question: str,
    recall: Recall | None,
    *,
    read: Callable[[Recall], Look],
    find_next: Callable[[tuple[str, ...]], Recall | None],
    steps: Collection[str] = (),
    max_looks: int,
    max_tokens: float = math.inf,
    stop: float = 0.0,
    accept: float = 0.0,
    safe: bool = False,
    late: Callable[[], bool] = lambda: False,
) -> Generator[Look, None, Answer]:
    """Each look, from this recall on, then the answer: of the replies, the one with the highest confidence.

    `find_next` recalls by an action not yet tried. `steps` are the looks of a ladder that has an end; without any,
    every action may have its turn. From the confidence `stop` on no further look is taken, and below `accept` no reply
    is given. `safe`: the first look is at whole notes, and comes on top of `max_looks`; an answer that it gives stands,
    whatever its confidence. No look begins once it is `late`. Who takes no further look out of this pays for none.
    """
    looks: list[Look] = []
    while recall is not None:
        looks.append(read(recall))
        yield looks[-1]
        spent = sum((look.usage for look in looks), Usage())
        if len(looks) >= max_looks + safe or spent.tokens >= max_tokens or _is_over(looks, steps, stop, safe=safe):
            break
        if late():
            late_by = "the time for this call was over before every look was taken"
            return conclude(question, looks, late_by, accept=accept, safe=safe)
        recall = find_next(recall.tried)
    return conclude(question, looks, accept=accept, safe=safe)


def finish(climbing: Generator[Look, None, Answer], seen: Callable[[Look], None] | None = None) -> Answer:
    """The answer at the end of a climb; `seen` is called with each look."""
    while True:
        try:
            look = next(climbing)
        except StopIteration as end:
            found: Answer = end.value
            return found
        if seen is not None:
            seen(look)


def _is_over(looks: Sequence[Look], steps: Collection[str], stop: float, *, safe: bool) -> bool:
    """Whether no further look can pay."""
    last, best = looks[-1], _find_best(looks)
    if not last.recall.cluster.hits or (best is not None and _certainty(best) >= stop):
        return True
    if isinstance(last.error, AuthError) or (safe and (looks[0].error is not None or not looks[0].abstained)):
        return (
            True  # a key that was refused is refused at every look; what whole notes answer must be known, and stands
        )
    return bool(steps) and set(steps) <= set(last.recall.tried)  # the ladder learned that no further look pays


def conclude(question: str, looks: Sequence[Look], *more: str, accept: float = 0.0, safe: bool = False) -> Answer:
    """The answer of the best look, with `more` warnings; where the reader failed at every one, its first error."""
    errors = [look.error for look in looks if look.error is not None]
    if errors and not any(look.recall.text and look.error is None for look in looks):
        raise errors[0]
    warnings: list[str] = []
    for look in looks:
        warnings += look.recall.warnings
        if look.error is not None:
            warnings.append(f"the reader failed on what {look.recall.action} gave: {look.error}")
    spent = sum((look.usage for look in looks), Usage())
    best = _find_best(looks)
    stands = best is not None and (_certainty(best) >= accept or (safe and best is looks[0]))
    return Answer(
        question,
        best.reply if best is not None and stands else None,
        tuple(looks),
        spent,
        tuple(dict.fromkeys((*warnings, *more))),
        refused=best is not None and not stands,
    )
