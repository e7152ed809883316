"""Action, cluster, budget -> packed text. The actions are a registry: what it lists is routed and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from retcon.errors import InputError
from retcon.extract import extract
from retcon.note import EXTRACT, RETAIN, Cluster, Packed
from retcon.pack import retain
from retcon.tokens import Counter


@dataclass(frozen=True, slots=True)
class Action:
    """One way to turn a cluster into text that fits a budget."""

    name: str
    about: str  # what it does, in a line
    run: Callable[[Cluster, int, Counter], Packed]


def _retain(cluster: Cluster, budget: int, count: Counter) -> Packed:
    return retain(cluster, budget, count=count)


def _extract(cluster: Cluster, budget: int, count: Counter) -> Packed:
    return extract(cluster, budget, count=count)


ACTIONS: Mapping[str, Action] = {
    RETAIN: Action(RETAIN, "whole notes, best first", _retain),
    EXTRACT: Action(EXTRACT, "the sentences that matter for the query, verbatim", _extract),
}


def check_actions(names: Iterable[str]) -> tuple[str, ...]:
    """The names, if each is an action."""
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name not in ACTIONS:
            raise InputError(f"unknown action {name!r}: choose one of {', '.join(ACTIONS)}")
    return names


def operate(action: str, cluster: Cluster, budget: int, *, count: Counter) -> Packed:
    """What the action makes of the cluster within the budget."""
    return ACTIONS[action].run(cluster, budget, count)
