"""Features -> the decision: when to replace raw notes, and by which action.

A router is one small JSON file: a linear response per action, mu(a) = b + <theta, psi>. The action of the highest
response is taken; ties go to retain. A router that learned on several domains also carries fixed actions: those that
did best there at each budget. The first of them that can be had is taken, and left only where another's response is
ahead by more than a margin. Without a margin the router steps aside: it takes that action always.

A calibrated router has a threshold tau for each budget, which counts only where the caller wants to be safe: the best
replacing action o+ has the advantage s = mu(o+) - mu(retain), and whole notes are replaced iff s >= tau. Serving needs
nothing more: the code that fits and calibrates routers is never imported here.

A learned router may follow fit: where every candidate note fits it retains, where none does it replaces, whatever it
predicts. It may carry a ladder: orders in which to try actions when the reader finds no answer, with a linear response
per order; with a confidence, one ladder more for each price of a wrong answer that it learned. It may carry drafts:
which texts to write for one query, and how to choose between them (`retcon.drafts`). And it may carry a certificate:
what its thresholds promise, and on what configuration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from operator import mul
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.confidence import Confidence
from retcon.drafts import Drafts
from retcon.errors import InputError, RouterError, few, message_of, quote
from retcon.features import BUDGET_UNIT, FEATURES, PLACES
from retcon.ladder import (
    DEFAULT_ORDER,
    DEFAULT_WRONG_COST,
    LARGEST_BUDGET,
    Ladder,
    next_look,
    replace_action,
    take_look,
)
from retcon.note import RETAIN, Cluster, Decision
from retcon.plain import is_label, read_budget, read_flag, read_list, read_number, read_price
from retcon.reason import tell, template

FORMAT = 1
KINDS = ("learned", "rule")
# What a router's predictions depend on. Where the running value differs from the learned one, a warning names both.
CONFIGURATION = (
    "embedder", "counter", "accounting", "retriever", "top_k", "cap", "renderer", "types", "model", "prompts", "focus",
)  # fmt: skip
Features = NDArray[np.float64] | Sequence[float] | Mapping[str, float]  # all in the order of `FEATURES`, or by name
LARGEST_FILE = 1_000_000  # bytes; a router of five actions has about 4,000
_NEEDED = frozenset(("format", "name", "actions", "features", "weights", "intercepts"))
_OPTIONAL = frozenset(
    (
        "kind", "thresholds", "budgets", "embedder", "counter", "reasons", "provenance", "fit_rules", "ladder",
        "certificate", "fixed", "margin", "drafts", "confidence", "prices",
    )
)  # fmt: skip
_ALWAYS = ("budget", "notes", "fit", "sessions")  # what any reason may speak of
_SPEAKABLE = frozenset((*FEATURES, "tokens", "fitting", "percent"))  # the $names a reason may use


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Whether a memory is not what its router learned on, and the warnings about it."""

    differs: bool
    warnings: tuple[str, ...]

    def mark(self, decision: Decision) -> Decision:
        """The decision, not certified and with the warnings where there is a mismatch."""
        if not self.differs:
            return decision
        return replace(decision, certified=False, warnings=decision.warnings + self.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Predicts the utility of every action from features, and says when that is enough to replace raw notes."""

    name: str
    actions: tuple[str, ...]  # retain first; of two replacing actions that tie, the earlier wins
    features: tuple[str, ...]  # the names, out of FEATURES, that the weights belong to
    weights: Mapping[str, tuple[float, ...]]
    intercepts: Mapping[str, float]
    thresholds: Mapping[int, float] = field(default_factory=dict)  # budget -> tau, inf = never; for `safe` alone
    budgets: tuple[int, ...] = ()  # the budgets it was learned at, if it was
    kind: str = "learned"  # or "rule"
    embedder: str | None = None  # what the two embedding features were computed with
    counter: str | None = None  # what tokens were counted with
    reasons: Mapping[str, str] = field(default_factory=dict)  # action -> own sentence with $names
    provenance: Mapping[str, Any] = field(default_factory=dict)  # what it was learned from; CONFIGURATION is compared
    fit_rules: bool = False  # retain where every candidate fits, replace where none does, whatever is predicted
    ladder: Ladder | None = None
    fixed: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # budget -> actions, best first
    margin: float | None = None  # by which a response must exceed that of the fixed action; None: it never is enough
    drafts: Mapping[int, Drafts] = field(default_factory=dict)  # how many texts -> which, and how to choose
    certificate: Mapping[str, Any] | None = None  # alpha, delta, and per budget the bound on harm that was found
    confidence: Confidence | None = None  # how likely a reply is right
    prices: Mapping[float, Ladder] = field(default_factory=dict)  # wrong_cost -> the ladder of asks at that price
    reads: frozenset[str] = field(init=False, repr=False, compare=False)  # features that it decides by or speaks of

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise RouterError(f"router {quote(self.name, 100)}: {fault}")
        ladder = chain.from_iterable(ladder.features for ladder in self._ladders())
        told = chain.from_iterable(template(reason).get_identifiers() for reason in self.reasons.values())
        object.__setattr__(self, "reads", frozenset(FEATURES).intersection((*_ALWAYS, *self.features, *ladder, *told)))

    def decide(
        self,
        x: Features,
        *,
        budget: int,
        available: Iterable[str] | None = None,
        exclude: Collection[str] = (),
        wrong_cost: float | None = None,
        safe: bool = False,
    ) -> Decision:
        """The action for features (by name, or all of `FEATURES` in order), with the numbers and words behind it.

        Weighed are the actions that the router knows, that are in `available` (None: all) and not in `exclude`. With
        `safe` whole notes are replaced only where the advantage reaches the threshold. Where retain is not among the
        weighed, the best of the others is taken whatever the threshold. Features that are not finite are a RouterError,
        and so is one that the router `reads` and that is not there: nothing honest can be predicted. `Decision.order`
        is that of `ladder_at(wrong_cost)`.
        """
        available = None if available is None else tuple(available)
        left = self._left(available, exclude)
        seen, extrapolated = self._clip(self._vector(x), budget)
        mu = self.utilities(seen)
        ruled = False if self.fit_rules and budget <= 0 else self.apply_fit_rule(seen)
        tau = self._threshold_that_counts(budget, safe=safe)
        action, best = self._choose(mu, budget, left, ruled=ruled, tau=tau if safe else None)
        decision = Decision(
            action=action,
            utilities={action: mu[action] for action in left},
            advantage=mu[best] - mu[RETAIN],
            threshold=tau,
            features={name: seen[PLACES[name]] for name in (x if isinstance(x, Mapping) else FEATURES)},
            reason="",
            router=self.name,
            budget=budget,
            extrapolated=extrapolated,
            safe=safe,
            selected=None if safe or ruled is not None else self.select(budget, left),
            certified=safe and self._certifies(budget, left),
            order=self._order(self.ladder_at(wrong_cost), seen, budget, available, whole=ruled is False),
        )
        return replace(decision, reason=tell(self, decision, best))

    def _choose(
        self, mu: Mapping[str, float], budget: int, left: Sequence[str], *, ruled: bool | None, tau: float | None
    ) -> tuple[str, str]:
        """The action, and the replacing one that was weighed against whole notes."""
        others = [action for action in left if action != RETAIN]
        best = self.prefer(mu, budget, others) if others else RETAIN
        if RETAIN not in left or not others:
            return best, best
        if ruled is not None or tau is not None:
            replaces = mu[best] - mu[RETAIN] >= tau if ruled is None and tau is not None else ruled
            return best if replaces else RETAIN, best
        action = self.prefer(mu, budget, left)
        return action, best if action == RETAIN else action

    def prefer(self, mu: Mapping[str, float], budget: int, actions: Sequence[str]) -> str:
        """The one of these actions that the router takes by their utilities; of equals the first.

        Where it carries fixed actions that is the first of them, unless another is ahead by more than the margin.
        """
        best, selected = max(actions, key=mu.__getitem__), self.select(budget, actions)
        leaves = selected is None or (self.margin is not None and mu[best] - mu[selected] > self.margin)
        return best if selected is None or leaves else selected

    def select(self, budget: int, actions: Collection[str]) -> str | None:
        """The first of the fixed actions at this budget that is among these; None where there is none."""
        ranked = self.fixed[self.nearest_fixed(budget)] if self.fixed else ()
        return next((action for action in ranked if action in actions), None)

    def nearest_fixed(self, budget: int) -> int:
        """The budget nearest in log2 for which actions were selected; of two the smaller."""
        return min(self.fixed, key=lambda known: (max(known / max(budget, 1), budget / known), known))

    def find_drafts(self, count: int) -> Drafts | None:
        """How to choose between so many texts; None for one."""
        if count > 1 and count not in self.drafts:
            there = f"drafts of {few(list(map(str, self.drafts)))} texts" if self.drafts else "none"
            raise InputError(f"router {self.name!r} has no drafts of {count} texts; it has {there}")
        return self.drafts.get(count)

    def _threshold_that_counts(self, budget: int, *, safe: bool) -> float | None:
        if safe and not self.thresholds:
            raise InputError(f"safe needs thresholds, and router {self.name!r} has none: retcon calibrate sets them")
        return self.threshold(budget) if safe else None if self.fixed else 0.0

    def decide_next(
        self,
        x: Features,
        *,
        budget: int,
        available: tuple[str, ...],
        exclude: Collection[str] = (),
        climb: bool = True,
        wrong_cost: float | None = None,
        safe: bool = False,
    ) -> Decision:
        """The decision where some actions are spent: by the ladder (`climb`), by the weights, or by the default order.

        The weights say what comes next where they know every action that is available; for an action outside of any
        ladder, and where the router carries fixed actions, it is enough that they know one.
        """
        if exclude and climb and self.ladder_at(wrong_cost) is not None:
            free = self.decide(x, budget=budget, available=available, wrong_cost=wrong_cost, safe=safe)
            if (look := next((name for name in free.order if name not in exclude), None)) is not None:
                return take_look(free, look)
            if (own := next((name for name in self.own_actions(available) if name not in exclude), None)) is not None:
                return replace_action(free, own, f"{own}: not in the ladder of {self.name}, so after its end")
        known = set(self.actions)
        some = known.intersection(available).difference(exclude)
        weighs = known.issuperset(available) if climb and not self.fixed else some
        if weighs or not exclude:
            return self.decide(
                x, budget=budget, available=available, exclude=exclude, wrong_cost=wrong_cost, safe=safe
            )  # fmt: skip
        look = next_look(available, exclude)
        free = self.decide(x, budget=budget, wrong_cost=wrong_cost, safe=safe)
        return replace_action(free, look, f"{look}: the next after {', '.join(exclude)}")

    def _vector(self, x: Features) -> list[float]:
        """The features in the order of `FEATURES`; one that is not there, and that the router does not read, is nan."""
        if isinstance(x, Mapping):
            if missing := sorted(self.reads.difference(x), key=FEATURES.index):
                raise RouterError(f"router {self.name!r} reads features that are not there: {', '.join(missing)}")
            values = [float(x[name]) if name in x else math.nan for name in FEATURES]
            given: Collection[str] = x
        else:
            values, given = [float(value) for value in x], FEATURES
        if len(values) != len(FEATURES):
            raise InputError(f"{len(values)} features, {len(FEATURES)} are needed: {', '.join(FEATURES)}")
        odd = [name for name in FEATURES if name in given and not math.isfinite(values[PLACES[name]])]
        if odd:
            raise RouterError(f"features that are not finite: {', '.join(odd)}")
        return values

    def own_actions(self, available: Iterable[str]) -> tuple[str, ...]:
        """The caller's own actions that the router does not know; they come after the end of its ladder."""
        return tuple(name for name in available if name not in self.actions and name not in DEFAULT_ORDER)

    def apply_fit_rule(self, x: Sequence[float]) -> bool | None:
        """Whether fit alone says to replace (no note fits) or not to (all do); None where it is left to prediction."""
        notes, fit = x[PLACES["notes"]], x[PLACES["fit"]]
        if not self.fit_rules or (notes and 0 < fit < 1):
            return None
        return bool(notes) and fit <= 0

    def choose_price(self, wrong_cost: Any) -> float | None:
        """The learned price nearest to what a wrong answer costs in one ask, of two the higher; None without any.

        `DEFAULT_WRONG_COST` where nothing is said. A cost is an InputError where no price was learned.
        """
        if wrong_cost is not None and not _is_cost(wrong_cost):
            raise InputError(f"wrong_cost is a number from 0 on, not {quote(wrong_cost)}")
        if not self.prices:
            if wrong_cost is not None:
                raise InputError(f"router {self.name!r} has learned no price of a wrong answer: leave wrong_cost out")
            return None
        wanted = DEFAULT_WRONG_COST if wrong_cost is None else wrong_cost
        return min(self.prices, key=lambda price: (abs(price - wanted), -price))

    def ladder_at(self, wrong_cost: float | None) -> Ladder | None:
        """The ladder of a price; without one that of callers who read for themselves, which ends at the first answer.

        Where there is none of the second kind, the one of the default price serves them too.
        """
        if wrong_cost is None and self.ladder is not None:
            return self.ladder
        price = self.choose_price(wrong_cost)
        return None if price is None else self.prices[price]

    def weigh(self, cluster: Cluster) -> Callable[[str, str], float] | None:
        """From a reply and the text that was shown to how likely the reply is right; None if that is not learned."""
        return None if self.confidence is None else self.confidence.weigh(cluster)

    def _ladders(self) -> tuple[Ladder, ...]:
        return (*(() if self.ladder is None else (self.ladder,)), *self.prices.values())

    def _order(
        self,
        ladder: Ladder | None,
        x: Sequence[float],
        budget: int,
        available: tuple[str, ...] | None,
        *,
        whole: bool,
    ) -> tuple[str, ...]:
        """The looks of the ladder, from retain upwards where everything fits; none without a ladder."""
        if ladder is None:
            return ()
        order = ladder.order(x, budget=budget, available=available)
        first = (RETAIN,) if whole and (available is None or RETAIN in available) else ()
        return (*first, *(action for action in order if action not in first))

    def bounds_ladder(self, budget: int) -> bool:
        """Whether the certificate says that the orders of this very ladder harm a share alpha of questions at most.

        Only at the budgets it was made for, and where its calibration questions were independent. It speaks of the
        configuration and the reader of its rows, whole orders, and no failure on the way. An order that begins with
        retention needs none of this: an answer that whole notes give is then the answer. It says nothing of the ladders
        of `prices`, which may refuse an answer.
        """
        found = {} if self.certificate is None else self.certificate.get("ladder", {})
        if self.certificate is None or not self._independent() or found.get("of") != self.ladder_mark():
            return False
        at = found["budgets"].get(str(budget))
        return at is not None and bool(at["bound"] <= self.certificate["alpha"])

    def ladder_mark(self) -> str | None:
        """A short hash of all that the orders of the ladder depend on; None without a ladder."""
        if self.ladder is None:
            return None
        told = json.dumps([self.ladder.to_dict(), self.fit_rules, sorted(self.known_budgets)], sort_keys=True)
        return sha256(told.encode()).hexdigest()[:16]

    def _independent(self) -> bool:
        """Whether no two calibration questions are of one conversation, as an exact bound supposes."""
        certificate = self.certificate or {}
        return bool(certificate.get("conversations", 0) >= certificate.get("questions", 0))

    def utilities(self, x: Sequence[float]) -> dict[str, float]:
        """mu of every action for one finite feature vector in the order of `FEATURES`."""
        used = [x[PLACES[name]] for name in self.features]
        # fsum rounds once, so no order of addition and no processor changes a decision
        mu = {a: math.fsum((self.intercepts[a], *map(mul, self.weights[a], used))) for a in self.actions}
        if not all(map(math.isfinite, mu.values())):
            raise RouterError(f"router {self.name!r} predicts utilities that are not finite")
        return mu

    def threshold(self, budget: int) -> float:
        """tau at a budget: its own; between two calibrated ones the stricter; beyond them the nearest; 0 if direct."""
        if not self.thresholds:
            return 0.0
        below = max((b for b in self.thresholds if b <= budget), default=min(self.thresholds))
        above = min((b for b in self.thresholds if b >= budget), default=max(self.thresholds))
        return max(self.thresholds[below], self.thresholds[above])

    def differences(
        self, running: Mapping[str, Any], names: Iterable[str] = CONFIGURATION
    ) -> dict[str, tuple[Any, Any]]:
        """Where a configuration is not the one it was learned or certified on: name -> (its own, running)."""
        learned = {"embedder": self.embedder, "counter": self.counter, **self.provenance}
        certified = {} if self.certificate is None else self.certificate.get("made", {})
        found = {}
        for name in names:
            known = [part[name] for part in (learned, certified) if part.get(name) is not None]
            odd = [value for value in known if name in running and str(value) != str(running[name])]
            found.update({name: (odd[0], running[name])} if odd else {})
        return found

    def compare(
        self, running: Mapping[str, Any], names: Iterable[str] = CONFIGURATION, *, quiet: Collection[str] = ()
    ) -> Mismatch:
        """In what a running configuration is not the router's own, with a warning for each name that is not `quiet`."""
        found = self.differences(running, names)
        return Mismatch(
            bool(found),
            tuple(
                f"router {self.name!r} was learned with {name} {learned!r}, this memory has {here!r}"
                for name, (learned, here) in found.items()
                if name not in quiet
            ),
        )

    def _certifies(self, budget: int, left: Collection[str]) -> bool:
        """Whether the certificate speaks of this: a certified budget and threshold, and the very actions it knew."""
        if self.certificate is None or budget not in self.thresholds or len(left) < len(self.actions):
            return False
        if self.fit_rules and self.thresholds[budget] == math.inf:
            return False  # nothing qualified, and yet it replaces where no note fits
        if not self._independent():
            return False
        found = self.certificate["budgets"].get(str(budget))
        return found is not None and found["tau"] == _or_null(self.thresholds[budget])

    def _left(self, available: Iterable[str] | None, exclude: Collection[str]) -> tuple[str, ...]:
        usable = set(self.actions if available is None else available).difference(exclude)
        left = tuple(action for action in self.actions if action in usable)
        if not left:
            raise InputError(f"no action is left: router {self.name!r} knows {few(self.actions)}")
        return left

    @property
    def known_budgets(self) -> Collection[int]:
        """The budgets that it was calibrated at, else learned at."""
        return self.thresholds or self.budgets or self.fixed

    def _clip(self, x: list[float], budget: int) -> tuple[list[float], bool]:
        """The vector with its budget moved into the range the router knows, and whether that was needed."""
        known = self.known_budgets
        if not known or min(known) <= budget <= max(known):
            return x, False
        x[PLACES["budget"]] = min(max(budget, min(known)), max(known)) / BUDGET_UNIT
        return x, True

    @classmethod
    def load(cls, source: str | PathLike[str] | Mapping[str, Any]) -> Router:
        """The router in a JSON file, in a dict of the same shape, or that ships under this name (`SHIPPED`)."""
        if isinstance(source, str) and source in SHIPPED:
            return load_shipped(source)
        if not isinstance(source, (str, PathLike, Mapping)):
            raise RouterError(f"a router is a Router, a file, a name or a dict, not {quote(source)}")
        return cls.from_dict(source if isinstance(source, Mapping) else _read(Path(source)))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Router:
        """The router that these plain JSON values describe."""
        _check_keys(plain)
        try:
            return cls(
                name=plain["name"],
                actions=tuple(plain["actions"]),
                features=tuple(plain["features"]),
                weights={action: tuple(map(read_number, row)) for action, row in plain["weights"].items()},
                intercepts={action: read_number(value) for action, value in plain["intercepts"].items()},
                thresholds={
                    read_budget(budget): math.inf if tau is None else read_number(tau)
                    for budget, tau in plain.get("thresholds", {}).items()
                },
                budgets=tuple(map(read_budget, plain.get("budgets", ()))),
                kind=plain.get("kind", "learned"),
                embedder=plain.get("embedder"),
                counter=plain.get("counter"),
                reasons=dict(plain.get("reasons", {})),
                provenance=dict(plain.get("provenance", {})),
                fit_rules=read_flag(plain.get("fit_rules", False)),
                ladder=None if plain.get("ladder") is None else Ladder.from_dict(plain["ladder"]),
                certificate=None if plain.get("certificate") is None else dict(plain["certificate"]),
                confidence=None if plain.get("confidence") is None else Confidence.from_dict(plain["confidence"]),
                prices=_read_prices(plain.get("prices", {})),
                fixed={read_budget(budget): tuple(read_list(row)) for budget, row in plain.get("fixed", {}).items()},
                margin=None if plain.get("margin") is None else read_number(plain["margin"]),
                drafts={read_budget(n): Drafts.from_dict(each) for n, each in plain.get("drafts", {}).items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise RouterError(f"a value of the router has the wrong shape: {message_of(error, 200)}") from None

    def to_dict(self) -> dict[str, Any]:
        """The router as plain JSON values; a threshold that nothing reaches is null."""
        return {
            "format": FORMAT,
            "name": self.name,
            "kind": self.kind,
            "actions": list(self.actions),
            "features": list(self.features),
            "weights": {action: list(row) for action, row in self.weights.items()},
            "intercepts": dict(self.intercepts),
            "thresholds": {str(b): _or_null(tau) for b, tau in self.thresholds.items()},
            "budgets": list(self.budgets),
            "embedder": self.embedder,
            "counter": self.counter,
            "reasons": dict(self.reasons),
            "provenance": dict(self.provenance),
            "fit_rules": self.fit_rules,
            "ladder": None if self.ladder is None else self.ladder.to_dict(),
            "certificate": None if self.certificate is None else dict(self.certificate),
        } | self._plain_extras()

    def _plain_extras(self) -> dict[str, Any]:
        """What few routers have; the others' files are without it."""
        extras = {
            "fixed": {str(budget): list(actions) for budget, actions in self.fixed.items()},
            "margin": self.margin,
            "drafts": {str(count): each.to_dict() for count, each in self.drafts.items()},
            "confidence": None if self.confidence is None else self.confidence.to_dict(),
            "prices": {str(price): ladder.to_dict() for price, ladder in self.prices.items()},
        }
        return {name: value for name, value in extras.items() if value is not None and value != {}}

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the router; the same router gives the same bytes."""
        try:
            text = json.dumps(self.to_dict(), sort_keys=True, indent=2, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise RouterError(f"router {self.name!r} is not plain JSON: {message_of(error, 200)}") from None
        Path(path).write_text(text + "\n", encoding="ascii", newline="\n")


# Those that ship. "domains" is learned on five domains, "domains-nc" on two more; the others each on one, with an
# earlier retriever and renderer. "-free" knows only actions that no model writes. "domains-nc" and the two of LoCoMo
# are learned from data under CC BY-NC 4.0, and say so; the others are free of it.
SHIPPED = ("evidence-fit", "domains", "domains-nc", "longmemeval", "longmemeval-free", "locomo", "locomo-free")


@lru_cache(maxsize=len(SHIPPED))
def load_shipped(name: str) -> Router:
    """A router that comes with retcon."""
    if name not in SHIPPED:
        raise RouterError(f"no router {name!r} ships with retcon; there are {', '.join(SHIPPED)}")
    return Router.from_dict(_parse(Path(__file__).with_name("routers").joinpath(f"{name}.json").read_bytes()))


def default_router(*, writes: bool = False) -> Router:
    """The router of a memory that was given none.

    With a model that writes, the one learned on five domains. Without one, the evidence-fit rule: whole notes where all
    of them fit, else Extract, so that more budget never shows less (`bench.budgets`).
    """
    return load_shipped("domains" if writes else "evidence-fit")


# Reading and checking.


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise RouterError(f"router file {str(path)!r} cannot be read: {message_of(error, 200)}") from None
    return _parse(raw)


def _parse(raw: bytes) -> Any:
    if len(raw) > LARGEST_FILE:
        raise RouterError(f"the router file is longer than {LARGEST_FILE} bytes")
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=read_number)  # NaN and Infinity are no JSON
    except (ValueError, RecursionError, TypeError) as error:
        raise RouterError(f"the router file is not JSON: {message_of(error, 200)}") from None


def _read_prices(plain: Mapping[str, Any]) -> dict[float, Ladder]:
    prices = {read_price(cost): Ladder.from_dict(ladder) for cost, ladder in plain.items()}
    if len(prices) < len(plain):
        raise ValueError("a price stands twice")
    return prices


def _check_keys(plain: Any) -> None:
    if not isinstance(plain, Mapping):
        raise RouterError(f"a router is a JSON object, not a {type(plain).__name__}")
    if missing := sorted(_NEEDED.difference(plain)):
        raise RouterError(f"the router lacks {few(missing)}")
    if type(plain["format"]) is not int or plain["format"] != FORMAT:
        raise RouterError(f"router format {quote(plain['format'], 20)}, this retcon reads {FORMAT}")
    # a misspelt "thresholds" must not pass for a router without any
    if unknown := sorted(map(str, set(plain) - _NEEDED - _OPTIONAL)):
        raise RouterError(f"the router has unknown entries: {few(unknown)}")


def _faults(router: Router) -> Iterator[str]:
    """What is wrong with a router, the most basic first."""
    if not is_label(router.name):
        yield "the name must be 1 to 100 printable characters"
    if router.kind not in KINDS:
        yield f"the kind must be {' or '.join(KINDS)}"
    if not all(map(is_label, router.actions)) or len(set(router.actions)) < len(router.actions):
        yield "actions must be distinct names of 1 to 100 printable characters"
    if router.actions[:1] != (RETAIN,):
        yield "the first action must be retain"
    if unknown := [name for name in router.features if name not in PLACES]:
        yield f"unknown features {few(unknown)}; known are {', '.join(FEATURES)}"
    if len(set(router.features)) < len(router.features):
        yield "a feature is named twice"
    yield from _weight_faults(router)
    yield from _budget_faults(router)
    yield from _fixed_faults(router)
    yield from _draft_faults(router)
    yield from _reason_faults(router)
    yield from _look_faults(router)
    if router.certificate is not None:
        yield from _certificate_faults(router.certificate)
    if not all(label is None or is_label(label) for label in (router.embedder, router.counter)):
        yield "embedder and counter must be names or null"


def _weight_faults(router: Router) -> Iterator[str]:
    for part, keys in (("weights", router.weights), ("intercepts", router.intercepts)):
        if set(keys) != set(router.actions):
            yield f"{part} are for {few(sorted(keys))}, actions are {few(router.actions)}"
    for action, row in router.weights.items():
        if len(row) != len(router.features):
            yield f"{len(row)} weights of {action}, {len(router.features)} features"
        if not all(map(math.isfinite, (*row, router.intercepts[action]))):
            yield f"weights of {action} are not finite"


def _budget_faults(router: Router) -> Iterator[str]:
    if not all(type(b) is int and 0 <= b <= LARGEST_BUDGET for b in (*router.thresholds, *router.budgets)):
        yield "budgets must be whole numbers from 0 on"
    if any(math.isnan(tau) or tau == -math.inf for tau in router.thresholds.values()):
        yield "thresholds must be numbers, or null where nothing is accepted"


def _look_faults(router: Router) -> Iterator[str]:
    if strange := {*chain(*chain(*(ladder.orders for ladder in router._ladders())))}.difference(router.actions):
        yield f"the ladder names {few(sorted(strange))}, which the router does not know"
    if not all(map(_is_cost, router.prices)):
        yield "a price of a wrong answer is a number from 0 on"
    if router.confidence is None and any(ladder.needs_confidence for ladder in router._ladders()):
        yield "a ladder stops or accepts by confidence, and the router has learned none"


def _is_cost(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _fixed_faults(router: Router) -> Iterator[str]:
    for budget, ranked in router.fixed.items():
        if type(budget) is not int or not 1 <= budget <= LARGEST_BUDGET:
            yield "fixed actions must be given at budgets of 1 or more"
        if not ranked or not set(ranked) <= set(router.actions) or len(set(ranked)) < len(ranked):
            yield f"the fixed actions at {budget} tokens must be distinct names out of {few(router.actions)}"
    if router.margin is not None and not (router.fixed and 0 <= router.margin < math.inf):
        yield "a margin is a finite number from 0 on, and needs fixed actions"


def _draft_faults(router: Router) -> Iterator[str]:
    for count, each in router.drafts.items():
        if count != len(each.actions) or count < 2:
            yield f"drafts of {count} texts name {len(each.actions)} actions; there are 2 at least"
        if strange := set(each.actions).difference(router.actions):
            yield f"the drafts name {few(sorted(strange))}, which the router does not know"


def _certificate_faults(certificate: Mapping[str, Any]) -> Iterator[str]:
    levels = [certificate.get(name) for name in ("alpha", "delta")]
    if not all(isinstance(level, float) and 0 < level < 1 for level in levels):
        yield "a certificate needs alpha and delta between 0 and 1"
    budgets = certificate.get("budgets")
    if not isinstance(budgets, Mapping) or not all(isinstance(e, Mapping) and "tau" in e for e in budgets.values()):
        yield "a certificate needs budgets, and the tau that it was found for at each"
    climbs = certificate.get("ladder", {"budgets": {}})
    bounds = climbs.get("budgets") if isinstance(climbs, Mapping) else None
    if not isinstance(bounds, Mapping) or not all(map(_is_bound, bounds.values())):
        yield "what a certificate says of the ladder is a bound from 0 to 1 at each budget"
    if not isinstance(certificate.get("made", {}), Mapping):
        yield "what a certificate was made with must be names and values"


def _is_bound(value: Any) -> bool:
    bound = value.get("bound") if isinstance(value, Mapping) else None
    return isinstance(bound, (int, float)) and not isinstance(bound, bool) and 0 <= bound <= 1


def _reason_faults(router: Router) -> Iterator[str]:
    for action, sentence in router.reasons.items():
        if action not in router.actions:
            yield f"a reason for {action[:100]!r}, which is no action"
        if not isinstance(sentence, str) or not sentence.isprintable():
            yield f"the reason for {action} must be one line of text"
        elif not template(sentence).is_valid() or not _SPEAKABLE.issuperset(template(sentence).get_identifiers()):
            yield f"the reason for {action} may use ${', $'.join(sorted(_SPEAKABLE))} and no other $"


def _or_null(tau: float) -> float | None:
    return tau if math.isfinite(tau) else None
