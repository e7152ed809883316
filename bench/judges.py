"""How far the judges can be trusted: verdicts against 200 answers labelled by reading, and what that does to gains.

    python -m bench.judges --out bench/results/judges.json

bench/results/hand-labels.json holds, for ten answers of each action and budget (LoCoMo's fit and calibration questions,
replies that are no abstention), whether the answer is right and whether the reader of them doubted it. One reader, one
pass, blind to the action. Verdicts are joined by question, budget and action.

An abstention is wrong for every judge, so a policy that answers more is credited with every wrong answer that a judge
lets pass. `corrected` takes that credit back: an answer counts with the share of labelled answers of the same verdict
that are right, an abstention with nothing. That share is taken over all labels; over those of the same action; and over
those where as many of the five actions abstained, since second looks happen where some did.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import RESULTS, keep, out_parser
from bench.evaluation import DRAWS, JUDGES, LEARNS, SEED, Array, round_numbers, rows_of
from retcon.lab.calibrate import upper_bound
from retcon.lab.crossfit import LADDERS, LEARNERS, REFERENCE, Policy, Rules, always
from retcon.lab.fit import folds, question_groups
from retcon.lab.fit_ladder import walk
from retcon.lab.outcomes import Outcomes, Panel, panel
from retcon.lab.stats import interval, resample

Mask = NDArray[np.bool_]

LABELS = RESULTS / "hand-labels.json"
RUN = "locomo-product"
NAMES = ("llm", "strict", "f1", "overlap")
RIGHT = 0.5  # F1 counts as right above it
ACTIONS = ("retain", "extract", "merge", "abstract", "hybrid")
FOLDS, REPEATS = 5, 5
SEVERAL = 2  # actions that abstained: none, one, or this many and more
HOW = ("all labels", "of the same action", "where as many abstained")


@dataclass(frozen=True, slots=True)
class LabelledAnswers:
    """Answers with what their reader said, and what the judges did."""

    action: NDArray[np.str_]
    right: Mask
    doubtful: Mask
    silent: NDArray[np.int64]  # how many actions abstained at the same question and budget
    verdicts: Mapping[str, Mask]

    def where(self, keep: Mask) -> LabelledAnswers:
        """These answers alone."""
        said = {name: each[keep] for name, each in self.verdicts.items()}
        return LabelledAnswers(self.action[keep], self.right[keep], self.doubtful[keep], self.silent[keep], said)


def join_labels(labels: Sequence[Mapping[str, Any]], rows: Outcomes) -> LabelledAnswers:
    """The labels with the verdicts of the rows that they are of; a label without a row is an error."""
    known = {(row["question_id"], row["budget"], row["action"]): row for row in rows.rows()}
    found = [known[each["question_id"], each["budget"], each["action"]] for each in labels]
    silent = Counter((row["question_id"], row["budget"]) for row in known.values() if row["abstained"] > RIGHT)
    return LabelledAnswers(
        action=np.array([each["action"] for each in labels]),
        right=np.array([each["right"] == 1 for each in labels]),
        doubtful=np.array([each["doubtful"] == 1 for each in labels]),
        silent=np.array([silent[each["question_id"], each["budget"]] for each in labels]),
        verdicts={name: np.array([row[f"judge_{name}"] > RIGHT for row in found]) for name in NAMES},
    )


# -- judges against labels ---------------------------------------------------------------------------------------------


def share(k: int, n: int) -> dict[str, float | int | None]:
    """k of n with the exact two-sided 95 % interval."""
    if not n:
        return {"k": k, "n": n, "rate": None, "low": None, "high": None}
    return {"k": k, "n": n, "rate": k / n, "low": 1 - upper_bound(n - k, n, 0.025), "high": upper_bound(k, n, 0.025)}


def trust(said: Mask, right: Mask) -> dict[str, Any]:
    """What a judge's verdicts are worth; `let_pass` is the share of wrong answers that it calls right."""
    both = int((said & right).sum())
    return {
        "accuracy": share(int((said == right).sum()), len(right)), "precision": share(both, int(said.sum())),
        "recall": share(both, int(right.sum())),
        "let_pass": share(int((said & ~right).sum()), int((~right).sum())),
        "says_right": float(said.mean()), "is_right": float(right.mean()),
    }  # fmt: skip


def per_judge(labels: LabelledAnswers) -> dict[str, Any]:
    """Every judge over all answers and over those of each action."""
    return {
        name: {
            "all": trust(said, labels.right),
            "actions": {
                action: trust(said[labels.action == action], labels.right[labels.action == action])
                for action in ACTIONS
            },
            "favours": favours(said, labels),
        }
        for name, said in labels.verdicts.items()
    }


def favours(said: Mask, labels: LabelledAnswers) -> dict[str, Any]:
    """Whether what a judge adds to the share of right answers differs between actions by more than chance.

    The statistic is the largest difference between two actions in (says right - is right); p is by permuting actions.
    """
    error = said.astype(np.float64) - labels.right
    place = np.array([ACTIONS.index(name) for name in labels.action])

    def by_action(places: NDArray[np.int64]) -> Array:
        return np.bincount(places, error, len(ACTIONS)) / np.bincount(places, minlength=len(ACTIONS))

    seen, rng = by_action(place), np.random.default_rng(SEED)
    drawn = np.array([np.ptp(by_action(rng.permutation(place))) for _ in range(DRAWS)])
    p = (1 + int((drawn >= np.ptp(seen) - 1e-12).sum())) / (1 + DRAWS)
    return {"added": dict(zip(ACTIONS, seen.tolist(), strict=True)), "largest_difference": float(np.ptp(seen)), "p": p}


# -- what that does to a policy's gain ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyEnd:
    """How a policy ended, [repeat, question, budget] each."""

    right: Mask  # by the judge
    answered: Mask
    action: NDArray[np.int64]
    silent: NDArray[np.int64]  # how many actions abstained there

    def stratum(self, how: str) -> NDArray[np.int64]:
        """Which labels speak for each answer."""
        same = {HOW[1]: self.action, HOW[2]: np.minimum(self.silent, SEVERAL)}
        return same.get(how, np.zeros_like(self.action))


def follow_policy(learned: Panel, made: Panel, policy: Policy) -> PolicyEnd:
    """How a policy ended that was learned on three folds and calibrated on one, in rotation, dealt several times.

    Both panels hold the same questions in the same order: the first as the judge saw them that it is learned from, the
    second as the one that scores it.
    """
    assert learned.questions == made.questions
    shape = (REPEATS, len(made.questions), len(made.budgets))
    right, answered, action = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, np.int64)
    rules = Rules(seed=SEED)
    assert made.abstained is not None
    quiet = made.abstained[..., 0] > RIGHT  # [question, budget, action]
    for repeat in range(REPEATS):
        dealt = folds(question_groups(made, rules.group), FOLDS, seed=SEED + repeat)
        for fold in range(FOLDS):
            tests, calibrates = dealt == fold, dealt == (fold + 1) % FOLDS
            train, calibration = (learned.take(np.flatnonzero(mask)) for mask in (~tests & ~calibrates, calibrates))
            scored = made.take(np.flatnonzero(tests))
            went = walk(scored, policy(train, calibration, rules)(scored.without_outcomes()))
            right[repeat, tests], action[repeat, tests] = went.utility > RIGHT, went.last
            answered[repeat, tests] = ~np.take_along_axis(quiet[tests], went.last[:, :, None], axis=2)[:, :, 0]
    return PolicyEnd(right, answered, action, np.broadcast_to(quiet.sum(axis=2), shape))


def spread(found: PolicyEnd, how: str, size: int) -> Array:
    """[question, stratum, 2]: how often an answer was called right, and wrong, over repeats and budgets."""
    strata = found.stratum(how)[..., None] == np.arange(size)  # [repeat, question, budget, stratum]
    said = np.stack([found.answered & found.right, found.answered & ~found.right], axis=3)
    return np.asarray((strata[..., None] & said[..., None, :]).mean(axis=(0, 2)))


def strata_of(labels: LabelledAnswers, actions: Sequence[str], how: str) -> NDArray[np.int64]:
    """The stratum of each label, as `Ended.stratum` numbers them."""
    if how == HOW[1]:
        return np.array([actions.index(name) for name in labels.action])
    return np.minimum(labels.silent, SEVERAL) if how == HOW[2] else np.zeros_like(labels.silent)


def worth(labels: LabelledAnswers, judge: str, strata: NDArray[np.int64], counts: NDArray[np.int64]) -> Array:
    """[draw, stratum, 2]: share of right answers among those called right, and wrong; weights of labels [draw, label].

    Where a draw has none of a kind the share is taken over all of them.
    """
    said = labels.verdicts[judge]
    kinds = np.stack([said, ~said], axis=1)[:, None, :] & (strata[:, None] == np.arange(strata.max() + 1))[:, :, None]
    good = np.einsum("dl,lsk->dsk", counts, kinds & labels.right[:, None, None])
    size = np.einsum("dl,lsk->dsk", counts, kinds)
    whole = good.sum(axis=1, keepdims=True) / np.maximum(size.sum(axis=1, keepdims=True), 1)
    return np.asarray(np.where(size > 0, good / np.maximum(size, 1), whole))


def correct_gain(
    mine: PolicyEnd, base: PolicyEnd, labels: LabelledAnswers, judge: str, actions: Sequence[str], how: str
) -> dict[str, Any]:
    """A policy less another as corrected; the interval draws questions and labels, each from their own."""
    strata = strata_of(labels, actions, how)
    size = int(strata.max()) + 1
    gap = spread(mine, how, size) - spread(base, how, size)
    rng, n, known = np.random.default_rng(SEED), len(gap), len(labels.right)
    asked = np.stack([gap[rng.integers(0, n, n)].mean(axis=0) for _ in range(DRAWS)])
    counts = np.stack([np.bincount(rng.integers(0, known, known), minlength=known) for _ in range(DRAWS)])
    drawn = (asked * worth(labels, judge, strata, counts)).sum(axis=(1, 2))
    value = (gap.mean(axis=0) * worth(labels, judge, strata, np.ones((1, known), np.int64))[0]).sum()
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {"mean": float(value), "low": float(low), "high": float(high)}


def level(found: PolicyEnd, labels: LabelledAnswers, judge: str, actions: Sequence[str]) -> dict[str, float]:
    """How often a policy answers, and its accuracy as judged and as corrected by the labels of the same difficulty."""
    strata = strata_of(labels, actions, HOW[2])
    shares = spread(found, HOW[2], int(strata.max()) + 1).mean(axis=0)
    one = worth(labels, judge, strata, np.ones((1, len(labels.right)), np.int64))[0]
    return {
        "answered": float(shares.sum()), "judged": float(shares[:, 0].sum()), "corrected": float((shares * one).sum()),
    }  # fmt: skip


def gains(labels: LabelledAnswers, judge: str) -> dict[str, Any]:
    """Fixed actions, the direct router and the ladder: as judged, as corrected, and less the selected action."""
    learned, made = (panel(rows_of(RUN), judge=name) for name in (LEARNS, judge))
    policies: dict[str, Policy] = {
        **{("retention" if a == 0 else f"always {name}"): always(a) for a, name in enumerate(made.actions)},
        REFERENCE: LEARNERS[REFERENCE], "direct": LEARNERS["direct"], "ladder": LADDERS["ladder"],
    }  # fmt: skip
    went = {name: follow_policy(learned, made, policy) for name, policy in policies.items()}
    draws = resample(len(made.questions), seed=SEED, draws=DRAWS)
    base = went[REFERENCE]
    return {
        name: {
            **level(each, labels, judge, made.actions),
            "against": asdict(interval((each.right * 1.0 - base.right).mean(axis=(0, 2)), draws)),
            "corrections": {how: correct_gain(each, base, labels, judge, made.actions, how) for how in HOW},
        }
        for name, each in went.items()
    }


def run() -> dict[str, Any]:
    """All of it, with all labels and without the doubtful ones."""
    labels = join_labels(json.loads(LABELS.read_text(encoding="utf-8")), rows_of(RUN))
    some = {"every label": labels, "without doubtful ones": labels.where(~labels.doubtful)}
    found: dict[str, Any] = round_numbers({
        "labels": len(labels.right), "doubtful": int(labels.doubtful.sum()), "seed": SEED, "draws": DRAWS,
        "judges": {name: per_judge(each) for name, each in some.items()},
        "gains": {judge: {name: gains(each, judge) for name, each in some.items()} for judge in JUDGES},
    })  # fmt: skip
    return found


def main() -> None:
    """Compute, keep."""
    keep(run(), out_parser(__doc__, RESULTS / "judges.json").parse_args().out)


if __name__ == "__main__":
    main()
