"""Settings of the retriever, tried one by one; and the honest estimate: settings chosen without the domain reported.

A setting has a score on each domain, the mean of evidence@20. For a domain that is reported, the others choose, each
with equal weight: of the settings whose mean lies within a margin of the best one, that with the fewest steps on. The
margin is chosen by leaving out among those others: each of them in turn is scored with the setting that the rest would
choose by that margin, and the margin with the best mean wins, the smaller one of two that are equal. timelineqa never
chooses. Nothing else is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from retcon.rerank import SHIPPED, Settings

MARGINS = (0.0, 0.0025, 0.005, 0.01)
NEVER_CHOOSES = "timelineqa"

OFF: Mapping[str, float] = {"frame": 1.0, "number": 1.0, "speaker": 1.0, "role": 1.0, "hop": 0.0, "session": 0.0}
OTHERS: Mapping[str, Sequence[float]] = {
    "frame": (0.3, 0.7), "number": (1.15, 1.6), "speaker": (1.25, 2.0), "role": (1.25, 2.0), "hop": (0.1, 0.4),
    "session": (0.25, 1.0),
}  # fmt: skip
MEANINGS = (0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """How much each step counts, and what the cosine counts beside the words; the name says what is not as shipped."""

    name: str
    steps: Settings

    def count_steps(self) -> int:
        """How many steps are on."""
        return sum(getattr(self.steps, step) != off for step, off in OFF.items())


def lexical_grid() -> list[Setting]:
    """As shipped; all off; one step off, or with another value; one step alone."""
    none = Settings(**OFF)
    grid = [Setting("shipped", SHIPPED), Setting("all off", none)]
    grid += [Setting(f"no {step}", replace(SHIPPED, **{step: off})) for step, off in OFF.items()]
    grid += [Setting(f"{step} {v:g}", replace(SHIPPED, **{step: v})) for step in OTHERS for v in OTHERS[step]]
    return grid + [Setting(f"{step} alone", replace(none, **{step: getattr(SHIPPED, step)})) for step in OFF]


def joined_grid() -> list[Setting]:
    """With an embedder: other weights of the cosine; a step off; all off, with every weight."""
    none = Settings(**OFF)
    others = [weight for weight in MEANINGS if weight != SHIPPED.meaning]
    grid = [Setting("shipped", SHIPPED), Setting("all off", none)]
    grid += [Setting(f"no {step}", replace(SHIPPED, **{step: OFF[step]})) for step in ("hop", "session")]
    grid += [Setting(f"meaning {weight:g}", replace(SHIPPED, meaning=weight)) for weight in others]
    return grid + [Setting(f"all off, meaning {weight:g}", replace(none, meaning=weight)) for weight in others]


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting, by its place in the grid, that a domain is reported with."""

    setting: int
    margin: float


def choose(scores: Mapping[str, Sequence[float]], steps: Sequence[int], left_out: str) -> Choice:
    """What the other domains choose for the one that is left out.

    `scores` has a mean for each setting by domain, `steps` how many steps a setting has on.
    """
    voters = [domain for domain in scores if domain not in (left_out, NEVER_CHOOSES)]
    if len(voters) < 2:
        raise ValueError(f"two other domains must choose for {left_out}, there are {len(voters)}")

    def try_margin(margin: float) -> float:
        """The mean over the voters, each scored with what the rest of them choose."""
        return float(np.mean([scores[one][_pick(scores, steps, set(voters) - {one}, margin)] for one in voters]))

    margin = max(MARGINS, key=lambda each: (round(try_margin(each), 9), -each))
    return Choice(_pick(scores, steps, voters, margin), margin)


def _pick(
    scores: Mapping[str, Sequence[float]], steps: Sequence[int], voters: Sequence[str] | set[str], margin: float
) -> int:
    """Of the settings within the margin of the best mean, the one with the fewest steps; of equal ones the better."""
    means = np.mean([scores[domain] for domain in scores if domain in voters], axis=0)
    near = np.flatnonzero(means >= means.max() - margin - 1e-12).tolist()
    return min(near, key=lambda setting: (steps[setting], -means[setting], setting))
