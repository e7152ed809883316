"""Domains -> a router that steps aside: the action selected per budget, left only where that gained elsewhere.

A ridge response per action on features known before generation, standardised, domains weighing alike. The action with
the highest response is taken only where it beats the selected one by a margin. Fit has the last word, as in serving:
whole notes where all of them fit, another action where none does. Features, penalty and margin are chosen by leaving
out one of the learning domains at a time. Where the best of them gains no more there than its standard error over
domains, the router steps aside: its margin is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from retcon.lab.domains import Array, Domain, Places, Played, fixed_places, leave_out, play_actions, rank_actions
from retcon.lab.fit import Linear, ridge
from retcon.note import RETAIN

Ranked = Sequence[Sequence[str]]  # for each budget the actions, best first

PENALTIES = (0.01, 0.1, 1.0)
MARGINS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08)


@dataclass(frozen=True)
class Form:
    """What the inner loop chooses between."""

    features: tuple[str, ...]
    penalty: float


@dataclass(frozen=True)
class Aside:
    """The selected actions, best first at each budget, and where to leave the first of them; margin None: never."""

    ranked: Ranked
    actions: tuple[str, ...]  # that may be used
    margin: float | None
    form: Form
    response: Linear
    gain: tuple[float, float]  # of the best form and margin in the inner loop, and its standard error

    def places(self, domain: Domain) -> Places:
        """[q, b]: the action taken."""
        return serve(domain.with_features(self.form.features), self.response, self.ranked, self.margin, self.actions)

    def replacing(self, domain: Domain) -> tuple[Places, Array]:
        """[q, b]: the action that would replace whole notes, and how far its response is above theirs."""
        seen, whole = domain.with_features(self.form.features), domain.place(RETAIN)
        best = prefer(seen, self.response, self.ranked, self.margin, _others(self.actions))
        mu = self.response(seen.x)
        return best, np.take_along_axis(mu, best[:, :, None], axis=2)[:, :, 0] - mu[:, :, whole]

    def __call__(self, domain: Domain) -> Played:
        return play_actions(domain, self.places(domain))


def serve(
    domain: Domain, response: Linear, ranked: Ranked, margin: float | None, actions: Sequence[str]
) -> Places:  # fmt: skip
    """What a router with fixed actions and a rule of fit takes."""
    taken = prefer(domain, response, ranked, margin, actions)
    if others := _others(actions):
        taken = np.where(domain.fit <= 0, prefer(domain, response, ranked, margin, others), taken)
    return np.where(domain.fit >= 1, domain.place(RETAIN), taken)


def prefer(
    domain: Domain, response: Linear, ranked: Ranked, margin: float | None, actions: Sequence[str]
) -> Places:  # fmt: skip
    """The first of these actions at each budget; the one of the highest response where that leads by the margin."""
    base = fixed_places(domain, ranked, actions)
    if margin is None:
        return base
    mu = response(domain.x)
    mu[:, :, [place for place, name in enumerate(domain.actions) if name not in actions]] = -np.inf
    lead = mu.max(axis=2) - np.take_along_axis(mu, base[:, :, None], axis=2)[:, :, 0]
    return np.where(lead > margin, mu.argmax(axis=2), base)


def _others(actions: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in actions if name != RETAIN)


def fit_response(domains: Sequence[Domain], penalty: float, judge: str = "llm") -> Linear:
    """Ridge on the answerable questions of all domains, each row by its domain's share."""
    x, u, w = [], [], []
    for domain in domains:
        there = domain.answerable
        x.append(domain.x[there].reshape(-1, domain.x.shape[2]))
        u.append(domain.verdicts[judge][there].reshape(-1, len(domain.actions)))
        w.append(np.full(len(x[-1]), 1 / len(x[-1])))
    return _weighted_ridge(np.concatenate(x), np.concatenate(u), np.concatenate(w), penalty)


def _weighted_ridge(x: Array, u: Array, w: Array, penalty: float) -> Linear:
    """The exact minimiser of the weighted mean of squares plus the penalty, features standardised."""
    w = w / w.sum()
    centre, mean = w @ x, w @ u
    scale = np.sqrt(w @ (x - centre) ** 2)
    scale = np.where(scale > 1e-9, scale, 1.0)
    root = np.sqrt(w * len(w))[:, None]
    model = ridge(np.vstack([root * (x - centre) / scale]), root * (u - mean), penalty=penalty)
    theta = model.theta / scale
    return Linear(theta, mean - theta @ centre, penalty)


def learn_aside(
    domains: Sequence[Domain], features: Sequence[Sequence[str]], *, actions: Sequence[str] | None = None
) -> Aside:
    """The router; `features` are the sets that the inner loop chooses between."""
    allowed = tuple(actions or domains[0].actions)
    forms = [Form(tuple(names), penalty) for names, penalty in product(features, PENALTIES)]
    gains = {(form, margin): values for form in forms for margin, values in _inner_gains(domains, form, allowed)}
    form, margin = max(gains, key=lambda each: float(np.mean(gains[each])))
    found = gains[form, margin]
    gain = float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(len(found)))
    pays = gain[0] > max(gain[1], 0.0)
    response = fit_response([domain.with_features(form.features) for domain in domains], form.penalty)
    return Aside(rank_actions(domains), allowed, margin if pays else None, form, response, gain)


def _inner_gains(domains: Sequence[Domain], form: Form, actions: Sequence[str]) -> list[tuple[float, list[float]]]:
    """For each margin the gain over stepping aside, on each domain left out."""
    used = [domain.with_features(form.features) for domain in domains]
    left = list(leave_out(used, lambda rest: (fit_response(rest, form.penalty), rank_actions(rest))))

    def gain(domain: Domain, response: Linear, ranked: Ranked, margin: float) -> float:
        ends = [serve(domain, response, ranked, each, actions) for each in (margin, None)]
        right = [play_actions(domain, each).right(domain, "llm").mean(axis=1) for each in ends]
        return float(domain.weights(0.0) @ (right[0] - right[1]))

    return [
        (margin, [gain(domain, response, ranked, margin) for domain, (response, ranked) in left]) for margin in MARGINS
    ]
