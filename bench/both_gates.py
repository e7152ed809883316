"""Both gates together, and questions that memory cannot answer in the share that the benchmark has them.

    python -m bench.both_gates --out bench/results/both_gates.json

LoCoMo: the 575 questions of both gates, and 150 adversarial ones of the same conversations. LongMemEval's pool: the
questions that its router did not learn from, and its 30 unanswerable ones. Policies are learned from the model judge's
verdicts on fit questions, or are the routers of the second gate; nothing is learned here, and both judges score the
same ones. Where memory holds no answer, right is to abstain: no judge is needed to tell.

`own_share` weighs answerable and unanswerable questions as the benchmark has them; an abstention counts as right where
there is no answer. `twice` is the ladder at 256 tokens beside one call at 512, on LoCoMo's fit and calibration
questions and on LongMemEval's: the gates have no outcomes at 512.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import RESULTS, keep, out_parser
from bench.evaluation import (
    ALPHA,
    DELTA,
    DRAWS,
    JUDGES,
    LEARNS,
    SEED,
    Array,
    estimate,
    expect_silence,
    halves,
    round_numbers,
    rows_of,
    unlearned,
    ways_to_draw,
)
from bench.second_gate import frozen_router
from retcon.lab.crossfit import REFERENCE, VOTE, Rules, always, best_fixed, crossfit, learned_ladder, vote_of_two
from retcon.lab.fit_ladder import Plan, Walk, serving_plan, walk, whole_first
from retcon.lab.outcomes import Outcomes, Panel, from_rows, panel
from retcon.lab.stats import Resamples, replicates, resample
from retcon.note import ABSTRACT, RETAIN

WHOLE, LADDER, SAFE = "whole notes", "ladder", "ladder, whole notes first"
ALWAYS = f"always {ABSTRACT}"
RULES = Rules(alpha=ALPHA, delta=DELTA, seed=SEED, group="conversation")
# Questions of the published files, all and those that memory cannot answer (LoCoMo's adversarial, LongMemEval's _abs)
PUBLISHED = {"LoCoMo": (1986, 446), "LongMemEval": (500, 30)}
TWICE = 512  # of what a ladder has at each look


@dataclass(frozen=True, slots=True)
class Study:
    """A benchmark: what was learned from, what is asked, what has no answer, and whose ladder climbs."""

    fit: Panel
    asked: Panel
    unanswerable: Panel
    router: str


def studies(judge: str) -> dict[str, Study]:
    """Both benchmarks: learned as `LEARNS` saw them, asked as this judge did."""
    gates = join_rows(rows_of("locomo-product-gate"), rows_of("locomo-second"))
    pool = rows_of("pool-product")
    return {
        "LoCoMo": Study(
            panel(rows_of("locomo-product").where(fold="fit"), judge=LEARNS), panel(gates, judge=judge),
            expect_silence(panel(rows_of("locomo-abstention"), judge=LEARNS)), "locomo",
        ),
        "LongMemEval": Study(
            halves(panel(pool, judge=LEARNS))[0], unlearned(panel(pool, judge=judge)),
            expect_silence(panel(rows_of("pool-abstention"), judge=LEARNS)), "longmemeval",
        ),
    }  # fmt: skip


def join_rows(*tables: Outcomes) -> Outcomes:
    """The rows of several tables as one."""
    return from_rows(row for table in tables for row in table.rows())


def follow(fit: Panel, opened: Panel, router: str) -> dict[str, Walk]:
    """What every policy comes to on these questions."""
    own = serving_plan(frozen_router(router), opened)
    plans = {
        WHOLE: _always(opened, RETAIN), REFERENCE: best_fixed(0)(fit, fit, RULES)(opened.without_outcomes()),
        ALWAYS: _always(opened, ABSTRACT), LADDER: own, SAFE: whole_first(own),
    }  # fmt: skip
    return {name: walk(opened, plan) for name, plan in plans.items()} | {VOTE: vote_of_two(fit, opened)}


def _always(opened: Panel, action: str) -> Plan:
    return np.full((*opened.x.shape[:2], 1), opened.actions.index(action))


# -- with and without unanswerable questions ---------------------------------------------------------------------------


def compare(study: Study, share: float) -> dict[str, Any]:
    """Every policy: right, false answers, both at the benchmark's own share, each less the selected action's."""
    right = follow(study.fit, study.asked, study.router)
    silent = follow(study.fit, study.unanswerable, study.router)
    base = {name: _means(found[REFERENCE]) for name, found in (("right", right), ("silent", silent))}
    whole = _means(silent[WHOLE])
    lines = []
    for name in right:
        mine, quiet = _means(right[name]), _means(silent[name])
        lines.append({
            "policy": name, "right": float(mine.mean()), "false": float(1 - quiet.mean()),
            "own_share": float((1 - share) * mine.mean() + share * quiet.mean()),
            "calls": float((1 - share) * right[name].calls.mean() + share * silent[name].calls.mean()),
            "calls_answerable": float(right[name].calls.mean()),
            "less_selected": {
                "right": estimate(mine - base["right"], ways_to_draw(study.asked)),
                "false": estimate(base["silent"] - quiet, ways_to_draw(study.unanswerable)),
                "own_share": mix(study, mine - base["right"], quiet - base["silent"], share),
            },
            "false_less_whole": estimate(whole - quiet, ways_to_draw(study.unanswerable)),
        })  # fmt: skip
    return {
        "questions": len(study.asked.questions), "unanswerable": len(study.unanswerable.questions), "share": share,
        "policies": lines, "less_vote": {
            name: less_vote(study, right, silent, name, share) for name in (LADDER, SAFE)
        },
    }  # fmt: skip


def less_vote(
    study: Study, right: Mapping[str, Walk], silent: Mapping[str, Walk], name: str, share: float
) -> dict[str, Any]:
    """A ladder less a vote of two: right answers, false ones, and both at the benchmark's own share."""
    gap, quiet = (_means(found[name]) - _means(found[VOTE]) for found in (right, silent))
    return {
        "right": estimate(gap, ways_to_draw(study.asked)),
        "false": estimate(-quiet, ways_to_draw(study.unanswerable)),
        "own_share": mix(study, gap, quiet, share),
    }


def mix(study: Study, asked: Array, unanswerable: Array, share: float) -> dict[str, Any]:
    """A difference over both kinds of questions, weighted by share; each kind is drawn from its own.

    By conversation, those are drawn that the answerable questions come from, with all questions of either kind.
    """
    found = {"by_question": _mixed(asked, unanswerable, share, (None, None))}
    talks = [each.conversations for each in (study.asked, study.unanswerable)]
    if set(talks[0]) == set(talks[1]) and len(set(talks[0])) < len(talks[0]):
        found["by_conversation"] = _mixed(asked, unanswerable, share, talks)
    return found


def _mixed(asked: Array, unanswerable: Array, share: float, talks: Sequence[Sequence[str] | None]) -> dict[str, Any]:
    seeds = (SEED, SEED if talks[0] else SEED + 1)  # whole conversations are drawn for both kinds at once
    drawn = [
        replicates(values[:, None], _draw(len(values), seed, some))[:, 0]
        for values, seed, some in zip((asked, unanswerable), seeds, talks, strict=True)
    ]
    low, high = np.percentile((1 - share) * drawn[0] + share * drawn[1], [2.5, 97.5])
    mean = (1 - share) * asked.mean() + share * unanswerable.mean()
    return {"mean": float(mean), "low": float(low), "high": float(high), "n": len(asked) + len(unanswerable)}


def _draw(size: int, seed: int, talks: Sequence[str] | None) -> Resamples:
    """Draws of questions, or of conversations by name, so that two kinds of questions get the same ones."""
    if talks is None:
        return resample(size, seed=seed, draws=DRAWS)
    names = sorted(set(talks))
    drawn = resample(len(names), seed=seed, draws=DRAWS)
    return replace(drawn, unit=np.array([names.index(name) for name in talks]))


def _means(went: Walk) -> Array:
    return np.asarray(went.utility.mean(axis=1))


# -- the ladder beside one call with twice the room --------------------------------------------------------------------


def twice(judge: str) -> dict[str, Any]:
    """The ladder at 256 tokens against one call at 512, on questions that no part of it was learned from."""
    small, large = (
        {run: panel(rows_of(f"{run}-{kind}"), judge=judge, budgets=[budget]) for run in ("locomo", "pool")}
        for kind, budget in (("product", TWICE // 2), ("wide", TWICE))
    )
    pool = unlearned(small["pool"]), unlearned(large["pool"])
    return {
        "LoCoMo, ladder learned on LongMemEval": beside(_climb(small["locomo"]), large["locomo"]),
        "LoCoMo, ladder cross-fitted by conversation": beside(_crossfit(judge), large["locomo"]),
        "LongMemEval, ladder learned on its other questions": beside(_climb(pool[0]), pool[1]),
    }


def _climb(small: Panel) -> dict[str, Array]:
    """The ladder of the default router, question -> right, calls, tokens."""
    return _columns(small, walk(small, serving_plan(frozen_router("longmemeval"), small)))


def _crossfit(judge: str) -> dict[str, Array]:
    learned, scored = (panel(rows_of("locomo-product"), judge=name) for name in (LEARNS, judge))
    found = crossfit(learned, policies={LADDER: learned_ladder, WHOLE: always(0)}, rules=RULES, scored=scored)
    went, at = found.results[LADDER], scored.budgets.index(TWICE // 2)
    values = np.stack([went.utility, went.calls, went.read + went.generated], axis=2)[:, at]
    return dict(zip(found.panel.questions, values, strict=True))


def _columns(made: Panel, went: Walk) -> dict[str, Array]:
    values = np.stack([went.utility, went.calls, went.tokens], axis=2)[:, 0]
    return dict(zip(made.questions, values, strict=True))


def beside(ladder: Mapping[str, Array], large: Panel) -> dict[str, Any]:
    """A ladder's values at 256 tokens beside every action's at 512, with the difference in right answers."""
    mine = np.stack([ladder[name] for name in large.questions])
    ways, spent = ways_to_draw(large), (large.tokens["context_tokens"] + large.tokens["generated_tokens"])[:, 0]
    one = {
        action: {
            "right": float(large.utility[:, 0, a].mean()), "tokens": float(spent[:, a].mean()),
            "ladder_less": estimate(mine[:, 0] - large.utility[:, 0, a], ways),
        }
        for a, action in enumerate(large.actions)
    }  # fmt: skip
    right, calls, tokens = mine.mean(axis=0).tolist()
    return {"questions": len(large.questions), "right": right, "calls": calls, "tokens": tokens, "one_call": one}


def run() -> dict[str, Any]:
    """Both benchmarks under both judges."""
    shares = {name: unanswerable / every for name, (every, unanswerable) in PUBLISHED.items()}
    judged = {
        judge: {
            "studies": {name: compare(study, shares[name]) for name, study in studies(judge).items()},
            "twice": twice(judge),
        }
        for judge in JUDGES
    }
    found: dict[str, Any] = round_numbers({"seed": SEED, "draws": DRAWS, "learned": LEARNS, "judges": judged})
    return found


def main() -> None:
    """Compute, keep."""
    keep(run(), out_parser(__doc__, RESULTS / "both_gates.json").parse_args().out)


if __name__ == "__main__":
    main()
