"""Domains -> Drafts: which texts to write for one query, and which of them to keep.

A logistic regression of "right" on the traits of a text, with a level and a slope over budgets for each action, domains
weighing alike. Which actions are written is chosen by leaving out one of the learning domains at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from retcon.drafts import Drafts
from retcon.lab.domains import Array, Domain, Played, fixed_places, leave_out, play_actions, rank_actions
from retcon.lab.fit_price import logistic

MIDDLE = 128  # tokens at which a slope is worth nothing


@dataclass(frozen=True)
class Writing:
    """The drafts, and what choosing between them gained in the inner loop."""

    drafts: Drafts
    gain: tuple[float, float]  # over the selected action, and its standard error over domains

    def __call__(self, domain: Domain) -> Played:
        places = [domain.place(name) for name in self.drafts.actions]
        chosen = np.array(places)[scores(self.drafts, domain).argmax(axis=2)]
        return play_actions(domain, chosen, written=places)


def fit_drafts(domains: Sequence[Domain], actions: Sequence[str], judge: str = "llm") -> Drafts:
    """How to choose between the texts of these actions."""
    parts = [_rows(domain, actions, judge) for domain in domains]
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    w = np.concatenate([np.full(len(part[1]), 1 / len(part[1])) for part in parts])
    weights, intercept = logistic(x, y, w * len(w) / w.sum())
    names, size = domains[0].trait_names, len(actions)
    traits = len(names)
    return Drafts(
        actions=tuple(actions),
        traits=names,
        weights=tuple(weights[:traits].tolist()),
        levels=tuple((weights[traits : traits + size] + intercept).tolist()),
        slopes=tuple(weights[traits + size :].tolist()),
    )


def _rows(domain: Domain, actions: Sequence[str], judge: str) -> tuple[Array, Array]:
    """Traits, level and slope of each action; verdicts of answerable questions."""
    there, size = domain.answerable, len(actions)
    steps = np.log2(np.array(domain.budgets) / MIDDLE)
    x, y = [], []
    for number, action in enumerate(actions):
        place = domain.place(action)
        traits = domain.traits[there][:, :, place]
        level = np.broadcast_to(np.eye(size)[number], (*traits.shape[:2], size))
        x.append(np.concatenate([traits, level, level * steps[None, :, None]], axis=2))
        y.append(domain.verdicts[judge][there][:, :, place])
    rows = np.stack(x)
    return rows.reshape(-1, rows.shape[-1]), np.stack(y).reshape(-1)


def scores(drafts: Drafts, domain: Domain) -> Array:
    """[q, b, draft]"""
    steps = np.log2(np.array(domain.budgets) / MIDDLE)
    places = [domain.place(name) for name in drafts.actions]
    level = np.array(drafts.levels) + steps[:, None] * np.array(drafts.slopes)
    found: Array = domain.traits[:, :, places] @ np.array(drafts.weights) + level
    return found


def learn_drafts(domains: Sequence[Domain], count: int) -> Writing:
    """The drafts that gain most in the inner loop, of so many texts."""
    every = list(combinations(domains[0].actions, count))
    gains = {actions: _inner_gains(domains, actions) for actions in every}
    best = max(every, key=lambda actions: float(np.mean(gains[actions])))
    found = gains[best]
    gain = float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(len(found)))
    return Writing(fit_drafts(domains, best), gain)


def _inner_gains(domains: Sequence[Domain], actions: Sequence[str]) -> list[float]:
    found = []
    for domain, (drafts, ranked) in leave_out(domains, lambda rest: (fit_drafts(rest, actions), rank_actions(rest))):
        chosen = Writing(drafts, (0.0, 0.0))(domain).right(domain, "llm")
        base = play_actions(domain, fixed_places(domain, ranked)).right(domain, "llm")
        found.append(float(domain.weights(0.0) @ (chosen - base).mean(axis=1)))
    return found
