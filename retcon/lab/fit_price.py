"""Domains -> Confidence and ladders with a price: which looks, when to stop, which reply may stand.

The confidence is a logistic regression of "right" on the signals of a reply, domains weighing alike. A ladder for one
price is an order of looks, a confidence at which it stops, and one from which a reply may stand. All three are chosen
together for small and for large budgets: the best utility, less a price for each look, on domains that the confidence
was not learned on. Thresholds are chosen by utility and not set to cost / (1 + cost), because a confidence is only as
calibrated as the next domain is like the ones before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np

from retcon.confidence import SIGNALS, Confidence
from retcon.errors import InputError
from retcon.lab.domains import REFUSED, SPENT, Array, Domain, Played, leave_out
from retcon.lab.fit_ladder import CALL_PRICE
from retcon.ladder import Ladder

PRICES = (0.0, 0.25, 0.5, 1.0, 2.0)  # wrong_cost
LOOKS = 3
STOPS = (0.0, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 1.0)  # 0: the first answer; 1: every look is taken
ACCEPTS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55)
LARGE = 256  # tokens from which budgets are large
PENALTY = 10.0  # of squared weights of standardised signals, against a weight of 1 for each reply
STEPS = 50  # of Newton's method, at most


# -- confidence --------------------------------------------------------------------------------------------------------


def fit_confidence(domains: Sequence[Domain], judge: str = "llm") -> Confidence:
    """How likely a reply is right, from its signals."""
    parts = [_replies(domain, judge) for domain in domains]
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    w = np.concatenate([part[2] / part[2].sum() for part in parts])
    weights, intercept = logistic(x, y, w * len(w) / w.sum())
    return Confidence(signals=SIGNALS, weights=tuple(weights.tolist()), intercept=intercept)


def _replies(domain: Domain, judge: str) -> tuple[Array, Array, Array]:
    """Signals, verdict and weight of every reply."""
    given = domain.answered
    weight = np.broadcast_to(domain.weights()[:, None, None], given.shape)
    return domain.signals[given], domain.verdicts[judge][given], weight[given]


def logistic(x: Array, y: Array, w: Array, *, penalty: float = PENALTY) -> tuple[Array, float]:
    """Weights and intercept of a weighted logistic regression, by Newton's method; features are scaled first."""
    centre = np.average(x, axis=0, weights=w)
    spread = np.sqrt(np.average((x - centre) ** 2, axis=0, weights=w))
    scale = np.where(spread > 1e-9, spread, 1.0)
    z = np.column_stack([(x - centre) / scale, np.ones(len(x))])
    held = np.diag([penalty] * x.shape[1] + [1e-9])
    beta = np.zeros(z.shape[1])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(z @ beta, -40, 40)))
        slope = z.T @ (w * (p - y)) + held @ beta
        step = np.linalg.solve((z * (w * p * (1 - p))[:, None]).T @ z + held, slope)
        beta = beta - step
        if np.abs(step).max() < 1e-10:
            break
    weights: Array = beta[:-1] / scale
    return weights, float(beta[-1] - weights @ centre)


def predict(confidence: Confidence, domain: Domain) -> Array:
    """[q, b, a]: the confidence in each reply; -1 where none was given."""
    used = domain.signals[..., [SIGNALS.index(name) for name in confidence.signals]]
    odds = np.nan_to_num(used) @ np.array(confidence.weights) + confidence.intercept
    return np.where(domain.answered, 1 / (1 + np.exp(-np.clip(odds, -700, 700))), -1.0)


# -- climbing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Climb:
    """An order of looks, the confidence that ends it, and the one from which a reply stands."""

    order: tuple[str, ...]
    stop: float
    accept: float


def walk(domain: Domain, sure: Array, climb: Climb) -> Played:
    """What one climb came to at every budget."""
    played = look(domain, sure, climb.order, climb.stop)
    assert played.confidence is not None
    stands = played.confidence >= climb.accept
    return replace(
        played,
        action=np.where(stands, played.action, REFUSED),
        confidence=np.where(stands & (played.action >= 0), played.confidence, np.nan),
    )


def look(domain: Domain, sure: Array, order: Sequence[str], stop: float) -> Played:
    """The looks of an order up to the stop: the reply with the highest confidence, whatever it needs to stand."""
    shape = domain.answered.shape[:2]
    best, chosen = np.full(shape, -1.0), np.full(shape, REFUSED)
    calls, tokens, going = np.zeros(shape), np.zeros(shape), np.ones(shape, bool)
    paid = sum((domain.spent[name] for name in SPENT[1:]), np.zeros(domain.answered.shape))
    for action in order:
        place = domain.place(action)
        calls, tokens = calls + going, tokens + going * paid[:, :, place]
        better = going & (sure[:, :, place] > best)
        best, chosen = np.where(better, sure[:, :, place], best), np.where(better, place, chosen)
        going &= ~((best >= 0) & (best >= stop))
    return Played(chosen, calls, tokens, best)


def choose_climbs(
    domains: Sequence[Domain], wrong_cost: float, *, actions: Sequence[str] | None = None,
    call_price: float = CALL_PRICE,
) -> dict[int, Climb]:  # fmt: skip
    """Budget -> the climb of most utility on domains that its confidence was not learned on; of equals the shorter."""
    if len(domains) < 2:
        raise InputError("leaving one domain out needs two at least")
    tested = [(domain, predict(sure, domain)) for domain, sure in leave_out(domains, fit_confidence)]
    first, accepts = domains[0], ACCEPTS if wrong_cost else (0.0,)  # without a price every reply may stand
    starts = list(_starts(actions or first.actions))
    every = [Climb(order, stop, accept) for order, stop in starts for accept in accepts]
    worth = np.concatenate([_worth(tested, *start, accepts, wrong_cost, call_price) for start in starts])
    found: dict[int, Climb] = {}
    for part in _parts(first.budgets):
        best = every[int(np.argmax(np.round(worth[:, part].mean(axis=1), 12)))]
        found |= {first.budgets[place]: best for place in part}
    return found


def _starts(actions: Sequence[str]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Orders and stops that are tried, the short ones first."""
    for size in range(1, LOOKS + 1):
        yield from product(permutations(actions, size), STOPS if size > 1 else (0.0,))


def _parts(budgets: Sequence[int]) -> list[list[int]]:
    """Places of the small budgets, and of the large ones."""
    parts = [[i for i, b in enumerate(budgets) if (b >= LARGE) == large] for large in (False, True)]
    return [part for part in parts if part]


def _worth(
    tested: Sequence[tuple[Domain, Array]], order: Sequence[str], stop: float, accepts: Sequence[float],
    wrong_cost: float, call_price: float,
) -> Array:  # fmt: skip
    """[accept, b]: utility less the price of looks, domains weighing alike."""
    values = []
    for domain, sure in tested:
        played = look(domain, sure, order, stop)
        assert played.confidence is not None
        stands = played.confidence >= np.array(accepts)[:, None, None]
        value = stands * played.utility(domain, "llm", wrong_cost) - call_price * played.calls
        values.append(np.einsum("q,aqb->ab", domain.weights(), value))
    return np.asarray(np.mean(values, axis=0))


@dataclass(frozen=True, slots=True)
class Priced:
    """A confidence and, for one price, the climb at each budget."""

    confidence: Confidence
    climbs: Mapping[int, Climb]

    def __call__(self, domain: Domain) -> Played:
        sure = predict(self.confidence, domain)
        every = {each: walk(domain, sure, each) for each in set(self.climbs.values())}
        used = [every[self.climbs[budget]] for budget in domain.budgets]

        def join(part: str) -> Array:
            return np.stack([getattr(played, part)[:, place] for place, played in enumerate(used)], axis=1)

        return Played(join("action").astype(np.int64), join("calls"), join("tokens"), join("confidence"))


def learn_price(domains: Sequence[Domain], wrong_cost: float, *, actions: Sequence[str] | None = None) -> Priced:
    """The ladder of one price."""
    return Priced(fit_confidence(domains), choose_climbs(domains, wrong_cost, actions=actions))


def to_ladder(found: Mapping[int, Climb], *, call_price: float = CALL_PRICE) -> Ladder:
    """The climbs as a router's ladder: at each budget its own order has the highest level."""
    orders = tuple(dict.fromkeys(each.order for each in found.values()))
    return Ladder(
        orders=orders,
        features=(),
        weights=((),) * len(orders),
        intercepts={b: tuple(float(each.order == order) for order in orders) for b, each in found.items()},
        call_price=call_price,
        stops={budget: each.stop for budget, each in found.items()},
        accepts={budget: each.accept for budget, each in found.items()},
    )
