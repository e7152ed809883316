"""Whether a verdict is worth as much where replies are more often right: the assumption behind corrected figures.

    python -m bench.judge_shift --out bench/results/judge_shift.json

The replies of each domain are split in two by something that goes with being right: how easy the question is, how
likely the reply was to the model, the budget, how the text was made, whether other actions abstained. The difference
between the two parts is then given five ways: by each judge; by `post`, what `bench.judge_correction` does (a verdict
is worth the same on both sides); by `rogan_gladen` (a right reply is as likely to get each verdict on both sides, and
so is a wrong one: Rogan and Gladen 1978, for two judges at once by the iteration of Saerens, Latinne and Decaestecker
2002); and by `direct`, which assumes neither: `post` with what the labelled replies of each part add to it. `off` is
direct less post, with an interval over labels: clear of 0 where the estimator's assumption fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import RESULTS, keep, out_parser
from bench.evaluation import Array, round_numbers, rows_of
from bench.judge_correction import JUDGES, Shares, classes, shares
from bench.judge_labels import Labels, Mask, draw_weights, read_labels
from bench.judge_sample import COPIED, DOMAINS, SEED, WAVES

Row = dict[str, Any]
DRAWS = 2_000
ROUNDS = 300  # of the iteration


def answered() -> list[Row]:
    """Replies to answerable questions, with what they are split by."""
    out = []
    for domain in DOMAINS:
        rows = [row | {"domain": domain} for wave in WAVES for row in rows_of(f"{domain}-wave{wave}").rows()]
        said: dict[str, list[float]] = defaultdict(list)
        silent: dict[tuple[str, int], int] = defaultdict(int)
        for row in rows:
            said[row["question_id"]].append(row["judge_llm"])
            silent[row["question_id"], row["budget"]] += int(row["abstained"] > 0.5)
        for row in rows:
            if row["kind"] == "answerable" and row["abstained"] < 0.5:
                others = said[row["question_id"]]
                row["ease"] = (sum(others) - row["judge_llm"]) / (len(others) - 1)
                row["heard"] = silent[row["question_id"], row["budget"]] == 0
                out.append(row)
    return out


def above_median(name: str) -> Callable[[Sequence[Row]], Mask]:
    """Splits by a number, at the median."""

    def split(rows: Sequence[Row]) -> Mask:
        values = np.array([row[name] for row in rows], np.float64)
        return np.asarray(values > np.median(values))

    return split


SPLITS: dict[str, Callable[[Sequence[Row]], Mask]] = {
    "the question: easy, hard": above_median("ease"),
    "the reply: likely to the model, unlikely": above_median("logprob"),
    "the budget: 256 and 512, 32 to 128": lambda rows: np.array([row["budget"] > 128 for row in rows]),
    "the text: written, copied": lambda rows: np.array([row["action"] not in COPIED for row in rows]),
    "other actions: all answered, some abstained": lambda rows: np.array([row["heard"] for row in rows]),
}


def shift_prevalence(counts: Array, share: Array, whole: Array) -> float:
    """The share of right replies that makes these counts of classes likeliest, given how right and wrong are judged."""
    right, wrong = (whole * part / (whole * part).sum() for part in (share, 1 - share))
    seen, found = counts / counts.sum(), 0.5
    for _ in range(ROUNDS):
        both = found * right + (1 - found) * wrong
        found = float((seen * np.divide(found * right, both, out=np.zeros_like(both), where=both > 0)).sum())
    return found


def compare(rows: Sequence[Row], labels: Labels, side: Mask, worth: Shares, weights: Array) -> dict[str, Any]:
    """The difference between the two sides, each way, mean over domains."""
    domain = np.array([row["domain"] for row in rows])
    said = {name: np.array([row[f"judge_{name}"] > 0.5 for row in rows]) for name in JUDGES}
    kind = classes(said, np.ones(len(rows), bool), JUDGES)
    size = worth.by_label.shape[2]
    place = {(row["question_id"], row["budget"], row["action"]): at for at, row in enumerate(rows)}
    where = np.array([place.get(reply, -1) for reply in labels.reply.tolist()])
    label_kind = classes(labels.verdicts, labels.answerable, JUDGES)
    names = (*JUDGES, "post", "rogan_gladen")
    means, off = np.zeros((2, len(names))), np.zeros(len(weights))
    for at, name in enumerate(DOMAINS):
        whole = np.bincount(kind[domain == name], minlength=size).astype(np.float64)
        share = worth.by_label[:, at]
        for high in (0, 1):
            here = (domain == name) & (side == bool(high))
            counts = np.bincount(kind[here], minlength=size).astype(np.float64)
            right = [float(said[judge][here].mean()) for judge in JUDGES]
            post = float(counts @ share[0] / counts.sum())
            means[high] += [*right, post, shift_prevalence(counts, share[0], whole)]
            mine = (where >= 0) & here[where]
            missed = weights[:, mine] * (labels.truth[mine] - share[:, label_kind[mine]])
            off += (1 if high else -1) * missed.sum(axis=1) / counts.sum()
    means, off = means / len(DOMAINS), off / len(DOMAINS)
    gap = dict(zip(names, (means[1] - means[0]).tolist(), strict=True))
    low, high_end = np.percentile(off[1:], [2.5, 97.5])
    bounds = {"mean": float(off[0]), "low": float(low), "high": float(high_end)}
    return {**gap, "direct": gap["post"] + float(off[0]), "off": bounds}


def run(rows: Sequence[Row], labels: Labels) -> Mapping[str, Any]:
    """Every split, made within domains."""
    weights = np.vstack([labels.weight, draw_weights(labels, DRAWS)])
    worth = shares(labels, list(DOMAINS), weights, JUDGES, SEED)
    domain = np.array([row["domain"] for row in rows])
    found = {}
    for name, split in SPLITS.items():
        side = np.zeros(len(rows), bool)
        for each in DOMAINS:
            (at,) = np.nonzero(domain == each)
            side[at] = split([rows[i] for i in at.tolist()])
        found[name] = compare(rows, labels, side, worth, weights)
    out: Mapping[str, Any] = round_numbers(found)
    return out


def main() -> None:
    """Compute, keep."""
    keep(run(answered(), read_labels()), out_parser(__doc__, RESULTS / "judge_shift.json").parse_args().out)


if __name__ == "__main__":
    main()
