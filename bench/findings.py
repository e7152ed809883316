"""What the rows of the evaluation say beside the gate: crossover, operators, routing, realizations, a second reader.

    python -m bench.findings --out bench/results/findings.json

Rows: bench/results/rows, as `bench.outcome_rows` made them; the gate's are not read. Everything is computed under the
primary judge, a model, and under `strict`, which is none. Intervals are 10,000 paired bootstraps over questions; where
questions share conversations (LoCoMo) also over whole conversations, and six of those are few. In the controlled runs
query types are the benchmark's own, as in the paper; elsewhere they are guessed from the question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench import RESULTS, keep, out_parser
from bench.evaluation import (
    ALPHA,
    DELTA,
    DRAWS,
    JUDGES,
    LEARNS,
    ROWS,
    SEED,
    Array,
    Ways,
    estimate,
    halves,
    round_numbers,
    rows_of,
    ways_to_draw,
)
from bench.first_gate import false_answers
from bench.runs import EVERY, PAPER, RUNS
from retcon.lab.crossfit import REFERENCE, CrossFit, Rules, crossfit, default_policies
from retcon.lab.learn import summarise
from retcon.lab.outcomes import Outcomes, Panel, panel, run_mean
from retcon.lab.stats import (
    Crossover,
    Estimate,
    Resamples,
    crossover,
    interval,
    intervals,
    operator_gains,
    operator_pairs,
    replicates,
    resample,
)
from retcon.note import RETAIN

PRESPECIFIED = "abstract-agnostic"  # the operator whose crossover was asked for before any row existed
AGNOSTIC = PAPER[1:]
MERGED, ABSTRACTED, REWRITTEN = AGNOSTIC
ORDER = ((ABSTRACTED, REWRITTEN), (MERGED, REWRITTEN), (ABSTRACTED, MERGED))  # the paper's: the first is better
ORDERED = ("longmemeval-realizations", "locomo-controlled", "longmemeval-small")
FOCUS = tuple((name.removesuffix("-agnostic"), name) for name in AGNOSTIC)
CONTROLLED = ("longmemeval-controlled", "locomo-controlled", "longmemeval-small")
WRITTEN = (
    "longmemeval-controlled", "locomo-controlled", "locomo-history", "locomo-rewrite", "locomo-product", "pool-product",
    "longmemeval-small",
)  # fmt: skip
SLOW = ("MLP", "best fixed, asked again")  # the first takes minutes; the second is one greedy reply given twice
LOOKED = ("direct", "calibrated", "certified", "ladder")


@dataclass(frozen=True, slots=True)
class Routing:
    """A choice between actions, cross-fitted on one run."""

    key: str
    run: str
    actions: tuple[str, ...]
    group: str = "question"
    repeats: int = 20


ROUTINGS = (
    Routing("longmemeval-paper", "longmemeval-controlled", PAPER),
    Routing("longmemeval-all", "longmemeval-controlled", EVERY, repeats=5),  # 3,609 orders of four looks
    Routing("history-paper", "locomo-history", PAPER[:3], "conversation"),
    Routing("history-all", "locomo-history", tuple(a for a in EVERY if "rewrite" not in a), "conversation", repeats=5),
)


# -- operators against retention ---------------------------------------------------------------------------------------


def gains(made: Panel, ways: Ways, actions: Sequence[str]) -> list[dict[str, Any]]:
    """Every action against its paired retention at every budget."""
    index = [made.actions.index(name) for name in actions]
    arrays = made.runs[:, :, index], made.retained[:, :, index]
    found = [
        operator_gains(*arrays, budgets=made.budgets, actions=actions, resamples=each) for each in ways.values()
    ]  # fmt: skip
    return [
        {
            "action": some[0].action, "budget": some[0].budget, "accuracy": some[0].accuracy,
            "retention": some[0].retention, **_ways(ways, [each.gain for each in some]), "p": some[0].p,
            "helped": some[0].changes.questions.helped, "harmed": some[0].changes.questions.harmed,
        }
        for some in zip(*found, strict=True)
    ]  # fmt: skip


def crossing(paired: Array, fits: Array, budgets: Sequence[int], resamples: Resamples) -> dict[str, Any]:
    """Where the mean of paired gains [question, budget] falls to zero: on the budget's axis, and on that of full fit.

    `fits` says which questions' notes fit whole. A zero outside the budgets has no number; `no_zero` is the share of
    resamples that have none inside.
    """
    turn, size = crossover(paired, budgets, resamples), len(budgets)
    means = replicates(np.hstack([paired, fits]), resamples)
    at = first_fall(means[:, size:], means[:, :size])
    there = at[~np.isnan(at)]
    low, high = np.percentile(there, [2.5, 97.5]) if len(there) else (np.nan, np.nan)
    point = first_fall(fits.mean(axis=0)[None], paired.mean(axis=0)[None])[0]
    return {
        "budget": _within(turn.budget), "low": _within(turn.low), "high": _within(turn.high),
        "side": _side(turn), "no_zero": 1 - turn.share,
        "full_fit": {"share": point, "low": low, "high": high, "no_zero": float(np.isnan(at).mean())},
    }  # fmt: skip


def first_fall(xs: Array, ys: Array) -> Array:
    """The x at which each row of ys first falls from above zero to it, linear between points; NaN where none does."""
    falling = (ys[:, :-1] > 0) & (ys[:, 1:] <= 0)
    at, rows = falling.argmax(axis=1), np.arange(len(ys))
    above, below, left, right = ys[rows, at], ys[rows, at + 1], xs[rows, at], xs[rows, at + 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = left + (right - left) * above / (above - below)
    return np.where(falling.any(axis=1), found, np.nan)


def _within(budget: float) -> float | None:
    return budget if 0 < budget < math.inf else None


def _side(turn: Crossover) -> str:
    """Where the zero lies."""
    return "inside" if _within(turn.budget) else "above" if turn.budget > 0 else "below"


def crossovers(judge: str) -> dict[str, Any]:
    """For every controlled run: gains of the paper's operators at each budget, and where each stops gaining."""
    found = {}
    for name in CONTROLLED:
        made = panel(rows_of(name), actions=PAPER, judge=judge)
        ways, fits = ways_to_draw(made), (made.fit >= 1).astype(np.float64)
        found[name] = {
            "questions": len(made.questions), "conversations": len(set(made.conversations)),
            "budgets": list(made.budgets), "full_fit": fits.mean(axis=0).tolist(),
            "fit": made.fit.mean(axis=0).tolist(), "gains": gains(made, ways, AGNOSTIC),
            "crossover": {
                action: {how: crossing(gain_of(made, action), fits, made.budgets, each) for how, each in ways.items()}
                for action in AGNOSTIC
            },
        }  # fmt: skip
    return found


def gain_of(made: Panel, action: str) -> Array:
    """[question, budget]: the gain of an action over its retention, averaged over realizations."""
    a = made.actions.index(action)
    return run_mean(made.runs[:, :, a] - made.retained[:, :, a])


# -- operators against operators ---------------------------------------------------------------------------------------


def pairs(made: Panel, ways: Ways, wanted: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The first action of each pair against the second, at every budget and over all of them."""
    found = []
    for first, second in wanted:
        utility = made.utility[:, :, [made.actions.index(name) for name in (first, second)]]
        each = [
            operator_pairs(utility, budgets=made.budgets, actions=(first, second), resamples=some)
            for some in ways.values()
        ]
        at = {
            str(rows[0].budget): {**_ways(ways, [row.difference for row in rows]), "p": rows[0].p}
            for rows in zip(*each, strict=True)
        }
        over = estimate((utility[:, :, 0] - utility[:, :, 1]).mean(axis=1), ways)
        found.append({"first": first, "second": second, "budgets": at, "mean": over})
    return found


def operators(judge: str) -> dict[str, Any]:
    """Extract against the agnostic operators, and focused ones against agnostic ones, in every run that has both."""
    found = {}
    for name in ("longmemeval-controlled", "locomo-controlled", "locomo-history"):
        made = panel(rows_of(name), judge=judge)
        ways, here = ways_to_draw(made), made.actions
        found[name] = {
            "extract": pairs(made, ways, [("extract", a) for a in (RETAIN, *AGNOSTIC) if a in here]),
            "focused": pairs(made, ways, [pair for pair in FOCUS if set(pair) <= set(here)]),
        }
    return found


def operator_order(judge: str) -> dict[str, Any]:
    """The paper's operators against one another where the evidence is given; LongMemEval with three realizations."""
    found = {}
    for name in ORDERED:
        made = panel(rows_of(name), actions=PAPER, judge=judge)
        found[name] = pairs(made, ways_to_draw(made), ORDER)
    return found


# -- choosing ----------------------------------------------------------------------------------------------------------


def routing(which: Routing, judge: str) -> dict[str, Any]:
    """Every policy cross-fitted on `LEARNS`'s verdicts and scored by this judge, beside the action selected per budget
    on training questions."""
    learned, made = (panel(rows_of(which.run), actions=which.actions, judge=each) for each in (LEARNS, judge))
    policies = {name: policy for name, policy in default_policies(learned).items() if name not in SLOW}
    rules = Rules(alpha=ALPHA, delta=DELTA, group=which.group, seed=SEED)
    scored = crossfit(learned, policies=policies, rules=rules, repeats=which.repeats, scored=made)
    ways = ways_to_draw(scored.panel)
    return {
        "run": which.run, **summarise(scored, reference=REFERENCE, draws=DRAWS),
        "against_selected": {name: against(scored, name, REFERENCE, ways) for name in LOOKED},
        "against_retention": {name: against(scored, name, "retention", ways) for name in LOOKED},
        "direct_less_evidence_fit": against(scored, "direct", "evidence-fit rule", ways),
    }  # fmt: skip


def against(scored: CrossFit, name: str, other: str, ways: Ways) -> dict[str, Any]:
    """One policy less another, at every budget and over all of them."""
    gap = scored.results[name].utility - scored.results[other].utility
    columns = {how: intervals(gap, each) for how, each in ways.items()}
    at = {
        str(budget): {how: asdict(each[b]) for how, each in columns.items()}
        for b, budget in enumerate(scored.panel.budgets)
    }
    return {"budgets": at, "mean": estimate(gap.mean(axis=1), ways)}


# -- realizations, history, what memory does not hold, claims without a source -----------------------------------------


def realizations(judge: str) -> dict[str, Any]:
    """The paper's operators with three realizations: averaged gains, each alone, and how often they disagree."""
    made = panel(rows_of("longmemeval-realizations"), actions=PAPER, judge=judge)
    ways, fits = ways_to_draw(made), (made.fit >= 1).astype(np.float64)
    single = (made.runs - made.retained).mean(axis=0)  # [budget, action, realization]
    mean = made.runs.mean(axis=3)
    split = ((mean > 0) & (mean < 1)).mean(axis=0)
    rows = gains(made, ways, AGNOSTIC)
    for row in rows:
        b, a = made.budgets.index(row["budget"]), made.actions.index(row["action"])
        row |= {"single": single[b, a].tolist(), "disagree": split[b, a]}
    spread = np.ptp(single[:, 1:], axis=2)
    return {
        "questions": len(made.questions), "budgets": list(made.budgets), "gains": rows,
        "spread": {"mean": spread.mean(), "largest": spread.max()}, "disagree": split.mean(axis=0).tolist(),
        "actions": list(made.actions),
        "crossover": {
            action: crossing(gain_of(made, action), fits, made.budgets, ways["by_question"]) for action in AGNOSTIC
        },
    }  # fmt: skip


def history(judge: str) -> dict[str, Any]:
    """LoCoMo with a retriever: every action against retention."""
    found = {}
    for name in ("locomo-history", "locomo-rewrite"):
        made = panel(rows_of(name), judge=judge)
        found[name] = {
            "questions": len(made.questions), "budgets": list(made.budgets),
            "gains": gains(made, ways_to_draw(made), made.actions[1:]),
        }  # fmt: skip
    return found


def silence() -> dict[str, Any]:
    """How often LongMemEval's questions without an answer get one, by policies learned on its other questions."""
    fit, calibration = halves(panel(rows_of("pool-product"), judge=LEARNS))
    asked = panel(rows_of("pool-abstention"), judge=LEARNS)
    return false_answers(fit, calibration, asked, Rules(alpha=ALPHA, delta=DELTA, seed=SEED))


def unsupported_claims(rows: Outcomes) -> dict[str, Any]:
    """For every action that writes: the share of its records in which the guard finds a claim without a source."""
    found = {}
    for action in rows.actions:
        part = rows.where(action=action)
        there = ~np.isnan(part.columns["unsupported"])
        if not there.any():
            continue
        values, budgets = part.columns["unsupported"][there], part.columns["budget"][there]
        at = {str(budget): float(values[budgets == budget].mean()) for budget in np.unique(budgets).tolist()}
        names, unit = np.unique(part.columns["question_id"][there].astype(str), return_inverse=True)
        share = np.bincount(unit, values) / np.bincount(unit)
        found[action] = {
            "records": len(values),
            "budgets": at,
            **asdict(interval(share, resample(len(names), seed=SEED, draws=DRAWS))),
        }
    return found


def count_runs() -> list[dict[str, Any]]:
    """What every run is but those of the seven domains, and how many outcomes of it there are; none where it was not
    made. Of a gate the questions are counted, and nothing else is read."""
    found = []
    for each in RUNS:
        if "-wave" in each.name:
            continue
        there = (ROWS / f"{each.name}.parquet").is_file()
        columns = rows_of(each.name).columns if there else {}
        found.append({
            "run": each.name, "data": each.data, "protocol": each.protocol, "actions": len(each.arms),
            "realizations": each.realizations, "questions": len(set(columns["question_id"].tolist())) if there else 0,
            "budgets": np.unique(columns["budget"]).tolist() if there else list(each.budgets or ()),
            "outcomes": len(columns["question_id"]) if there else 0, "gate": count_gate(each.name),
        })  # fmt: skip
    return found


def count_gate(name: str) -> int:
    """Questions of a run's gate."""
    path = ROWS / f"{name}-gate.parquet"
    return len(set(rows_of(path.stem).columns["question_id"].tolist())) if path.is_file() else 0


# -- all of it ---------------------------------------------------------------------------------------------------------


def run() -> dict[str, Any]:
    """Every finding, plain and rounded."""
    judged = {
        judge: {
            "crossovers": crossovers(judge), "operators": operators(judge),
            "routing": {which.key: routing(which, judge) for which in ROUTINGS},
            "realizations": realizations(judge), "history": history(judge), "order": operator_order(judge),
        }
        for judge in JUDGES
    }  # fmt: skip
    claims = {name: unsupported_claims(rows_of(name)) for name in WRITTEN}
    found: dict[str, Any] = round_numbers({
        "seed": SEED, "draws": DRAWS, "runs": count_runs(), "judges": judged, "unsupported": claims,
        "false_answers": silence(), "learned": LEARNS,
    })  # fmt: skip
    return found


def _ways(ways: Ways, found: Sequence[Estimate]) -> dict[str, Any]:
    return {how: asdict(each) for how, each in zip(ways, found, strict=True)}


def main() -> None:
    """Compute, keep."""
    keep(run(), out_parser(__doc__, RESULTS / "findings.json").parse_args().out)


if __name__ == "__main__":
    main()
