"""A router and its decision -> one plain sentence with the numbers behind it, in which a rule is called a rule."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol

from retcon.features import FEATURES
from retcon.note import RETAIN, Decision

if TYPE_CHECKING:
    from string import Template


class Decider(Protocol):
    """What a reason may say of a router."""

    @property
    def kind(self) -> str: ...
    @property
    def reasons(self) -> Mapping[str, str]: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...
    @property
    def fit_rules(self) -> bool: ...
    @property
    def fixed(self) -> Mapping[int, tuple[str, ...]]: ...
    @property
    def margin(self) -> float | None: ...
    @property
    def known_budgets(self) -> Collection[int]: ...
    def nearest_fixed(self, budget: int) -> int: ...
    def apply_fit_rule(self, x: Sequence[float]) -> bool | None: ...


def tell(router: Decider, decision: Decision, best: str) -> str:
    """The sentence; `best` is the replacing action that was weighed against whole notes."""
    rule = " (by rule, not learned)" if router.kind == "rule" else ""
    return f"{decision.action}: {_because(router, decision, best)}{_beyond(router, decision)}{rule}"


def _because(router: Decider, decision: Decision, best: str) -> str:
    left = decision.utilities
    if not decision.features["notes"]:
        return "there are no candidate notes"
    if router.fit_rules and decision.budget <= 0:
        return "0 tokens hold no text"
    if len(left) == 1:
        return "the only action left"
    if decision.selected is not None:
        return _by_selection(router, decision, decision.selected)
    if RETAIN not in left:
        return _best_of_rest(router, decision)
    if (ruled := router.apply_fit_rule([decision.features.get(name, math.nan) for name in FEATURES])) is not None:
        return _by_fit(decision, best, ruled)
    if decision.action in router.reasons:
        return template(router.reasons[decision.action]).substitute(_reason_values(decision))
    return _compare_scores(router, decision, best)


def _best_of_rest(router: Decider, decision: Decision) -> str:
    ranked = sorted(decision.utilities, key=decision.utilities.__getitem__, reverse=True)
    second = next(action for action in ranked if action != decision.action)
    chosen, other = _show(decision.utilities[decision.action], decision.utilities[second])
    return f"retain is out, and it is {_verb(router)} {chosen} against {other} for {second}, the next"


def _compare_scores(router: Decider, decision: Decision, best: str) -> str:
    if decision.threshold == math.inf:
        return f"calibration accepted no replacing action at {decision.budget} tokens"
    keeps = decision.action == RETAIN
    mine, other = _show(*(decision.utilities[a] for a in ((RETAIN, best) if keeps else (best, RETAIN))))
    scores = f"{_verb(router)} {mine} against {other} for {best if keeps else RETAIN}"
    if not decision.safe or decision.threshold is None:
        rule = "ties go to retain" if decision.advantage == 0 else "the higher wins"
        return f"{scores} at {decision.budget} tokens, and {rule}"
    advantage, tau = _show(decision.advantage, decision.threshold)
    side = "below" if keeps else "at least"
    return f"{scores}, advantage {advantage} is {side} the threshold {tau} at {decision.budget} tokens"


def _by_selection(router: Decider, decision: Decision, selected: str) -> str:
    """Whether the router took the action that was selected for such budgets, or left it, and by how much."""
    mu, at = decision.utilities, router.nearest_fixed(decision.budget)
    first = router.fixed[at][0]
    place = "selected" if selected == first else f"selected, next after {first},"
    where = f"at {at} tokens{'' if at == decision.budget else ' (the nearest learned)'}{_learned_on(router)}"
    if router.margin is None:
        return f"{place} {where}; the router steps aside"
    best = max(mu, key=mu.__getitem__)
    if best == selected:
        return f"{place} {where}, and {_verb(router)} the highest too"
    high, low = _show(mu[best], mu[selected])
    lead, margin = _show(mu[best] - mu[selected], router.margin)
    if decision.action == selected:
        return (
            f"{place} {where}; {best} is {_verb(router)} {high} against {low}, and a lead of {lead} does not exceed the"
            f" margin {margin}"
        )
    return (
        f"{_verb(router)} {high} against {low} for {selected}, {place} {where}; the lead of {lead} exceeds the margin"
        f" {margin}"
    )


def _learned_on(router: Decider) -> str:
    """On how many domains, and with which reader, where the router says so."""
    domains, reader = router.provenance.get("domains"), router.provenance.get("reader")
    names = domains.split() if isinstance(domains, str) else domains
    many = len(names) if isinstance(names, Sized) else names
    counted = f" on {many} domain{'' if many == 1 else 's'}" if many is not None else ""
    return counted + (f" with the reader {reader}" if reader else "")


def _by_fit(decision: Decision, best: str, replaces: bool) -> str:
    notes, tokens = round(decision.features["notes"]), decision.budget
    room = f"in {tokens} token{'s' if tokens != 1 else ''}"
    if replaces:
        none = "the one candidate note does not fit" if notes == 1 else f"none of {notes} candidate notes fits"
        return f"{none} {room}, and {best} is the best of the others"
    every = "the one candidate note fits" if notes == 1 else f"all {notes} candidate notes fit"
    return f"{every} {room}, so nothing needs to be replaced"


def _beyond(router: Decider, decision: Decision) -> str:
    if not decision.extrapolated:
        return ""
    known = router.known_budgets
    return f"; {decision.budget} tokens is outside the {min(known)} to {max(known)} this router knows"


def template(sentence: str) -> Template:
    """The sentence with its $names."""
    from string import Template  # loaded only for a router that has reasons of its own

    return Template(sentence)


def _verb(router: Decider) -> str:
    return "scored" if router.kind == "rule" else "predicted"


def _reason_values(decision: Decision) -> dict[str, str]:
    """What the $names of a reason stand for."""
    seen = decision.features
    return {name: f"{value:.4g}" for name, value in seen.items()} | {
        "tokens": str(decision.budget),
        "notes": str(round(seen["notes"])),
        "sessions": str(round(seen["sessions"])),
        "fitting": str(round(seen["fit"] * seen["notes"])),
        "percent": str(math.floor(100 * seen["fit"] + 1e-9)),  # 199 of 200 must not read as 100 %
    }


def _show(a: float, b: float) -> tuple[str, str]:
    """Both numbers with two decimals, or as many up to nine as it takes to tell them apart."""
    digits = next((d for d in range(2, 9) if a == b or f"{a:.{d}f}" != f"{b:.{d}f}"), 9)
    return f"{a:.{digits}f}", f"{b:.{digits}f}"
