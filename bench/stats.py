"""The time for all intervals of the paper's tables, ours against SciPy's bootstrap, on the same columns.

    python -m bench.stats --out bench/results/stats.json

100 columns of paired differences over 300 questions, about what one run of all tables needs: 60 over all questions
(gains, pairs, policies) and 40 over a stratum of them (fit, type). SciPy is run in two ways: a call for each column, or
one call for the 60 that share their questions with a call for each of the others. Best of a few runs each; every run
does all the work, drawing included. The data are random. Give it an idle machine: our product runs on all cores.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # type: ignore[import-untyped, unused-ignore]
import scipy.stats  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from bench import grid, keep, out_parser
from retcon.lab.stats import intervals, resample

Array = NDArray[np.float64]
QUESTIONS, WHOLE, STRATA, DRAWS, SEED = 300, 60, 40, 10_000, 1
BATCH = 10  # resamples that SciPy holds at a time: the fastest of 10, 100 and 1000


def columns() -> Array:
    """Differences of accuracies over three realizations, [question, column]; NaN outside a column's stratum."""
    rng = np.random.default_rng(SEED)
    values = rng.integers(-3, 4, (QUESTIONS, WHOLE + STRATA)) / 3 + 0.0
    values[:, WHOLE:][rng.random((QUESTIONS, STRATA)) < 0.5] = np.nan
    return np.asarray(values)


def ours(values: Array) -> Array:
    """Low and high of each column."""
    return np.array([(row.low, row.high) for row in intervals(values, resample(QUESTIONS, draws=DRAWS, seed=SEED))])


def _scipy(values: Array, batch: int | None = None) -> Array:
    """Low and high by SciPy of [column, question]."""
    found = scipy.stats.bootstrap(
        (values,),
        np.mean,
        axis=-1,
        n_resamples=DRAWS,
        batch=batch,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return np.stack([found.low, found.high], axis=-1)


def by_column(values: Array) -> Array:
    """SciPy, a call for each column."""
    return np.array([_scipy(column[~np.isnan(column)]) for column in values.T])


def in_batches(values: Array) -> Array:
    """SciPy, one call for the columns over all questions."""
    return np.concatenate([_scipy(values[:, :WHOLE].T, BATCH), by_column(values[:, WHOLE:])])


def best(call: Callable[[Array], Array], values: Array, repeats: int) -> tuple[float, Array]:
    """Seconds of the fastest run, and the result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call(values)
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


WAYS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "retcon.lab.stats": (ours, 15),
    "SciPy, one call": (in_batches, 3),
    "SciPy, a call for each column": (by_column, 3),
}


def measure() -> dict[str, Any]:
    """Seconds of each way, and how far its ends lie from ours (Monte Carlo error of both)."""
    values, reference = columns(), ours(columns())
    rows: list[dict[str, Any]] = []
    for way, (call, repeats) in WAYS.items():
        seconds, found = best(call, values, repeats)
        ratio = seconds / rows[0]["seconds"] if rows else 1.0
        farthest = float(np.abs(found - reference).max())
        rows.append({"way": way, "seconds": seconds, "ratio": ratio, "farthest_end": farthest})
    sizes = {"questions": QUESTIONS, "columns": WHOLE + STRATA, "in_strata": STRATA, "draws": DRAWS}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    return sizes | versions | {"rows": rows}


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    what = f"{result['columns']} intervals, {result['questions']} questions, {result['draws']:,} resamples"
    rows = [
        (row["way"], f"{row['seconds']:.3f}", f"{row['ratio']:.1f}", f"{row['farthest_end']:.4f}")
        for row in result["rows"]
    ]
    return grid((what, "seconds", "times ours", "farthest end"), rows)


def main() -> None:
    """Measure, print, keep."""
    options = out_parser(__doc__).parse_args()
    result = measure()
    print(table(result))
    keep(result, options.out)


if __name__ == "__main__":
    main()
