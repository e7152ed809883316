"""Outcomes -> Router, thresholds, honest estimates: the way into learning, which the command line and reports call.

    fit_router         panel             -> Router with its ladder
    calibrate_router   router, panel     -> Router with thresholds, and a certificate where the rule gives one
    summarise          CrossFit          -> each policy's accuracy, gain, harm and spend, with intervals

Where to change what:
    a column of the table, or what a panel holds    outcomes.py
    an estimator                                    fit.py, `ESTIMATORS`
    orders of looks and their price                 fit_ladder.py
    how a threshold is chosen, and why it is safe   calibrate.py
    a policy to compare with, folds, oracles        crossfit.py, `LEARNERS` and `LADDERS`
    an interval or a test                           stats.py
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError
from retcon.features import FEATURES, TYPES
from retcon.lab import fit, fit_ladder
from retcon.lab.calibrate import Threshold, thresholds, upper_bound
from retcon.lab.crossfit import CrossFit, Result, columns_by_budget
from retcon.lab.fit_ladder import CALL_PRICE, TOKEN_PRICE
from retcon.lab.outcomes import Outcomes, Panel, run_mean
from retcon.lab.stats import Resamples, interval, resample
from retcon.route import CONFIGURATION, Router

DECIMALS = 9  # of a learned number that are kept: a fit's last bits, four or more decimals below, are the processor's
DATA = ("dataset", "setting", "reader", "grader", "protocol", "license", "answer_prompts", "grader_prompts")


def fit_router(
    outcomes: Outcomes, panel: Panel, *, name: str, estimator: str = "ridge", group: str = "question", seed: int = 0,
    ladder: bool = True, call_price: float = CALL_PRICE, token_price: float = TOKEN_PRICE, fit_rules: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Router:  # fmt: skip
    """A direct router, with a ladder where the outcomes have abstentions. What the rows say of themselves is kept."""
    known = read_provenance(outcomes.where(action=panel.actions)) | dict(about or {})
    known |= {"judge": panel.judge, "group": group, "seen": " ".join(sorted(_question_hashes(panel)))}
    known |= _type_source(panel)
    router = fit.fit(
        panel, name=name, estimator=estimator, group=group, seed=seed, embedder=known.pop("embedder", None),
        counter=known.pop("counter", None), provenance=known,
    )  # fmt: skip
    steps = None
    if ladder and panel.abstained is not None:
        steps = fit_ladder.fit_ladder(panel, call_price=call_price, token_price=token_price)
    return _round_router(replace(router, fit_rules=fit_rules, ladder=steps))


def _round_router(router: Router) -> Router:
    """The router with its learned numbers to `DECIMALS`: the same rows give the same file on every processor."""
    steps = router.ladder
    return replace(
        router,
        weights={action: _round(row) for action, row in router.weights.items()},
        intercepts=dict(zip(router.intercepts, _round(router.intercepts.values()), strict=True)),
        ladder=steps
        and replace(
            steps,
            weights=tuple(map(_round, steps.weights)),
            intercepts={budget: _round(levels) for budget, levels in steps.intercepts.items()},
        ),
    )


def _round(numbers: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(number, DECIMALS) + 0.0 for number in numbers)  # -0.0 and 0.0 are one


def read_provenance(outcomes: Outcomes) -> dict[str, Any]:
    """What the rows say of their making: columns such as model or counter that name one thing, or in places nothing."""
    found = {}
    for name in (*DATA, *CONFIGURATION):
        values = set(outcomes.columns[name].tolist()) - {""} if name in outcomes.columns else set()
        if len(values) == 1:
            found[name] = values.pop()
    return found


def _type_source(panel: Panel) -> dict[str, str]:
    """Whether query types were given, one of them 1, or guessed as they are when serving; nothing where none is."""
    types = panel.x[:, :, [panel.features.index(name) for name in TYPES if name in panel.features]]
    return {} if not types.any() else {"types": "given" if np.isin(types, (0, 1)).all() else "guessed"}


def _question_hashes(panel: Panel) -> dict[str, str]:
    """A short hash of each question -> its id: a router keeps the hashes, to know the questions it was learned from."""
    return {sha256(f"{panel.dataset}\0{name}".encode()).hexdigest()[:8]: name for name in panel.questions}


def calibrate_router(
    router: Router, panel: Panel, *, rule: str = "paper", cap: float = 0.0, alpha: float = 0.05, delta: float = 0.10,
    joint: str = "split", provenance: Mapping[str, Any] | None = None,
) -> tuple[Router, dict[int, Threshold]]:  # fmt: skip
    """The router with a threshold per budget, and what each did on these questions, which it must not have seen.

    `provenance` is what these rows say of their making (`read_provenance`): a certificate speaks of that configuration,
    which need not be the one that the router was learned on.
    """
    marks = _question_hashes(panel)
    if seen := sorted(marks[mark] for mark in str(router.provenance.get("seen", "")).split() if mark in marks):
        raise InputError(
            f"{len(seen)} of {len(marks)} questions are among those that the router was learned from, {seen[0]} for one"
        )
    if router.fit_rules and rule == "certified" and joint == "any":
        raise InputError("where fit rules, budgets are joined by split or each, not by any")
    rows = calibration_rows(router, panel)
    found = thresholds(rows, rule=rule, cap=cap, alpha=alpha, delta=delta, joint=joint)
    if router.fit_rules:
        found = {b: _let_fit_rule(each, rows[b], panel.fit[:, i]) for i, (b, each) in enumerate(found.items())}
    did = {str(budget): threshold_json(each) for budget, each in found.items()}
    known = dict(provenance or {}) | _type_source(panel)
    size = {"questions": len(panel.questions), "conversations": len(set(panel.conversations))}
    certificate = None
    if rule == "certified":
        certificate = {"alpha": alpha, "delta": delta, "joint": joint, "budgets": did, "made": known} | size
    calibrated = {
        "rule": rule, "cap": cap, **size, "judge": panel.judge, "made": known, "thresholds": did,
    }  # fmt: skip
    router = replace(
        router,
        thresholds={budget: each.tau for budget, each in found.items()},
        certificate=certificate,
        provenance={**router.provenance, "calibration": calibrated},
    )
    if certificate is not None and router.ladder is not None and _can_walk(panel):
        level = delta if joint == "each" else delta / len(panel.budgets)
        router = replace(router, certificate=certificate | {"ladder": _ladder_harm(router, panel, level)})
    return router, found


def calibration_rows(router: Router, panel: Panel) -> dict[int, tuple[Any, Any, Any]]:
    """Budget -> (advantage, utility of the chosen replacing action, utility of retention), a row a question."""
    if panel.actions[0] != router.actions[0] or set(panel.actions) != set(router.actions):
        raise InputError(f"the router knows {', '.join(router.actions)}, the outcomes {', '.join(panel.actions)}")
    if len(router.actions) < 2:
        raise InputError(f"router {router.name!r} knows retain alone: there is nothing to calibrate")
    if missing := [name for name in router.features if name not in panel.features]:
        raise InputError(f"the outcomes lack what the router looks at: {', '.join(missing)}")
    return columns_by_budget(panel, *_advantages(router, panel))


def _advantages(router: Router, panel: Panel) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[q, b] each: the best replacing action and its advantage, by the router's own arithmetic, as when it serves."""
    known = {name: panel.features.index(name) for name in router.features}
    shape = panel.x.shape[:2]
    best, advantage = np.zeros(shape, np.int64), np.zeros(shape)
    for cell in np.ndindex(*shape):
        row = panel.x[cell]
        mu = router.utilities([float(row[known[name]]) if name in known else 0.0 for name in FEATURES])
        action = router.prefer(mu, panel.budgets[cell[1]], router.actions[1:])
        best[cell], advantage[cell] = panel.actions.index(action), mu[action] - mu[router.actions[0]]
    return best, advantage


def _let_fit_rule(threshold: Threshold, rows: tuple[Any, Any, Any], fit: NDArray[np.float64]) -> Threshold:
    """What a threshold did where fit has the last word; inf, if harm is then no longer within its bound."""
    advantage, chosen, retained = map(np.asarray, rows)
    replaces = (fit <= 0) | ((fit < 1) & (advantage >= threshold.tau))
    harms, n = int(np.count_nonzero(replaces & (chosen < retained))), len(fit)
    bound = None if threshold.delta is None else upper_bound(harms, n, threshold.delta)
    if bound is not None and threshold.alpha is not None and bound > threshold.alpha and threshold.tau != math.inf:
        return _let_fit_rule(replace(threshold, tau=math.inf), rows, fit)
    return replace(
        threshold,
        accepted=int(np.count_nonzero(replaces)),
        harms=harms,
        accuracy=float(np.where(replaces, chosen, retained).mean()) if n else 0.0,
        bound=bound,
    )


def _can_walk(panel: Panel) -> bool:
    """Whether a ladder can be walked on these outcomes: abstentions are known, in a realization that has everything."""
    return panel.abstained is not None and bool((~np.isnan(panel.runs)).all(axis=(0, 1, 2)).any())


def _ladder_harm(router: Router, panel: Panel, delta: float) -> dict[str, Any]:
    """How many questions the ladder's own orders harmed at each budget, and an exact upper bound on their share."""
    went = fit_ladder.walk(panel, fit_ladder.serving_plan(router, panel)).utility
    harms = np.count_nonzero(went < panel.utility[:, :, 0], axis=0).tolist()
    n = len(panel.questions)
    found = {
        str(budget): {"harms": each, "questions": n, "bound": upper_bound(each, n, delta), "delta": delta}
        for budget, each in zip(panel.budgets, harms, strict=True)
    }
    return {"of": router.ladder_mark(), "budgets": found}


def threshold_json(threshold: Threshold) -> dict[str, Any]:
    """A threshold as plain JSON values; one that nothing reaches is null."""
    found = asdict(threshold)
    return found | {"tau": threshold.tau if math.isfinite(threshold.tau) else None}


# -- the table of policies ---------------------------------------------------------------------------------------------


def summarise(fitted: CrossFit, *, reference: str, draws: int = 10_000, judge: str | None = None) -> dict[str, Any]:
    """Accuracy per budget and macro, paired difference from a reference, harm and spend of every policy."""
    if reference not in fitted.results:
        raise InputError(f"no policy {reference!r}; there are {', '.join(fitted.results)}")
    panel = fitted.panel
    clusters = panel.conversations if fitted.rules.group == "conversation" else None
    resamples = resample(len(panel.questions), seed=fitted.rules.seed, draws=draws, clusters=clusters)
    base = fitted.results[reference]
    return {
        "questions": len(panel.questions), "conversations": len(set(panel.conversations)),
        "budgets": list(panel.budgets), "actions": list(panel.actions), "features": list(panel.features),
        "judge": judge or panel.judge, "group": fitted.rules.group, "folds": fitted.folds, "repeats": fitted.repeats,
        "draws": draws, "seed": fitted.rules.seed, "alpha": fitted.rules.alpha, "delta": fitted.rules.delta,
        "call_price": fitted.rules.call_price, "reference": reference,
        "policies": [_policy_row(result, base, resamples) for result in fitted.results.values()],
    }  # fmt: skip


def _policy_row(result: Result, base: Result, resamples: Resamples) -> dict[str, Any]:
    both = result.seen & base.seen
    differences = run_mean(np.where(both, result.utility - base.utility, np.nan))  # over the budgets that both have
    against = None
    if result.name != base.name and not np.isnan(differences).all():
        against = asdict(interval(differences, resamples))
    accuracy = [float(result.utility[:, b].mean()) for b in range(result.utility.shape[1])]
    return {
        "policy": result.name,
        "accuracy": [None if math.isnan(value) else value for value in accuracy],
        "macro": result.macro,
        "against": against,
        "harm": float(np.nanmean(np.where(result.seen, result.harmed, np.nan))),
        "harms": [None if math.isnan(value) else float(value) for value in result.harmed.sum(axis=0)],
        "replaced": float(np.nanmean(result.replaced)),
        "calls": float(np.nanmean(result.calls)),
        "tokens": float(np.nanmean(result.read + result.generated)),
        "generated": float(np.nanmean(result.generated)),
    }
