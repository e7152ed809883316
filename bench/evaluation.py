"""What the analyses of the evaluation share: its rows, its settings, how intervals are drawn and numbers are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import RESULTS
from retcon.features import TYPES
from retcon.lab.outcomes import Outcomes, Panel, panel, read
from retcon.lab.stats import Resamples, interval, resample

Array = NDArray[np.float64]
Ways = Mapping[str, Resamples]  # what is drawn -> the draws

ROWS = RESULTS / "rows"
SEED, DRAWS, ALPHA, DELTA = 20261115, 10_000, 0.05, 0.10
JUDGES = ("llm", "strict")
LEARNS = JUDGES[0]  # whose verdicts policies are learned from; every judge then scores the same frozen policy
SIX = ("budget", "fit", *TYPES)  # what the shipped routers look at
FREE = ("retain", "extract")  # what needs no model to write
DIGITS = 6


@cache
def rows_of(name: str, folder: Path = ROWS) -> Outcomes:
    """The rows of one run."""
    return read(folder / f"{name}.parquet")


def parts(rows: Outcomes, gate: Outcomes | None, judge: str) -> tuple[Panel, Panel, Panel]:
    """Fit and calibration questions as `LEARNS` saw them, and the gate's as this judge did.

    Without gate rows, calibration stands in for it (a rehearsal).
    """
    fit, calibration = (panel(rows.where(fold=name), judge=LEARNS) for name in ("fit", "calibration"))
    if gate is not None:
        return fit, calibration, panel(gate, judge=judge)
    half = np.arange(len(fit.questions)) % 3 == 0
    opened = panel(rows.where(fold="calibration"), judge=judge)
    return fit.take(np.flatnonzero(~half)), fit.take(np.flatnonzero(half)), opened


def halves(pool: Panel, seed: int = SEED) -> tuple[Panel, Panel]:
    """Questions to learn from (60 %) and to calibrate on."""
    order = np.random.default_rng(seed).permutation(len(pool.questions))
    cut = round(0.6 * len(order))
    return pool.take(np.sort(order[:cut])), pool.take(np.sort(order[cut:]))


def unlearned(made: Panel) -> Panel:
    """The questions of LongMemEval's pool that the routers did not learn from, whatever was measured of them here.

    They are told by name: the order of a panel, and so a draw by place, goes by what was measured.
    """
    names = set(halves(panel(rows_of("pool-product"), judge=LEARNS))[1].questions)
    return made.take(np.array([place for place, name in enumerate(made.questions) if name in names]))


def panel_of(found: Panel, actions: Sequence[str]) -> Panel:
    """The panel with these actions alone."""
    index = [found.actions.index(name) for name in actions]
    part = {name: getattr(found, name)[:, :, index] for name in ("runs", "retained")}
    return replace(
        found, actions=tuple(actions), **part,
        abstained=None if found.abstained is None else found.abstained[:, :, index],
        logprob=None if found.logprob is None else found.logprob[:, :, index],
        tokens={name: values[:, :, index] for name, values in found.tokens.items()},
    )  # fmt: skip


def expect_silence(asked: Panel) -> Panel:
    """The same questions where the only right thing is to abstain."""
    assert asked.abstained is not None
    kept = asked.abstained
    return replace(
        asked,
        runs=kept,
        retained=np.broadcast_to(kept[:, :, :1], kept.shape).copy(),
        retentions=kept[:, :, 0].mean(axis=2),
    )


def ways_to_draw(made: Panel, *, draws: int = DRAWS) -> dict[str, Resamples]:
    """Draws of questions, and of conversations where several questions share one."""
    size = len(made.questions)
    found = {"by_question": resample(size, seed=SEED, draws=draws)}
    if len(set(made.conversations)) < size:
        found["by_conversation"] = resample(size, seed=SEED, draws=draws, clusters=made.conversations)
    return found


def estimate(values: Array, ways: Ways) -> dict[str, Any]:
    """The mean of values [question] with an interval for each way to draw."""
    return {how: asdict(interval(values, each)) for how, each in ways.items()}


def round_numbers(value: Any) -> Any:
    """The same as plain JSON values with six digits; what is no number is null."""
    if isinstance(value, Mapping):
        return {str(name): round_numbers(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_numbers(each) for each in value]
    if isinstance(value, (float, np.floating)):
        return round(float(value), DIGITS) + 0.0 if math.isfinite(value) else None
    return value
