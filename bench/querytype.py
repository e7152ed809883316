"""Trains the query-type classifier on LongMemEval's questions and checks it on LoCoMo's, which it never trains on.

Beside it, the two embedders are compared on the features they feed, on LongMemEval's evidence.

    python bench/querytype.py            print the measurements
    python bench/querytype.py --write    also write retcon/querytype.json and the numbers in docs/routing.md

The model is multinomial logistic regression on yes/no cues with an L2 penalty; single-session is the reference type,
so a weight is the change in log-odds against it. Cues and penalty were chosen on LongMemEval alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from retcon.features import TYPES, cue_pattern, cue_text, spread  # noqa: E402
from retcon.model import HashingEmbed, WordLlamaEmbed  # noqa: E402

Array = NDArray[np.float64]

# What a person asking that kind of question tends to write; whole words, "|" between alternatives.
CUES = {
    "how many": "how many",
    "how much": "how much",
    "how long": "how (?:long|old)",
    "how many days": "how many (?:days|weeks|months|years)",
    "unit of time": "days?|weeks?|months?|years?",
    "asks when": "ago|passed|elapsed|between|since|when (?:did|do|does|was|were|is|are|will)|what (?:date|month|year)",
    "around an event": "before|after|when (?:i|my|we|he|she|they)",
    "order": "first|second|order|earlier|later|earliest",
    "recent span": r"(?:last|past) (?:(?:few|two|three|\d+) )?(?:days?|weeks?|months?|years?|weekend|\w+day)",
    "one of two": "(?:which|who) (?:.* )?or",
    "total": "total|altogether|combined|in all|overall|sum|average|across",
    "compare": "difference|compared|than|percentage|most(?! recent)|least|each|both",
    "different": "different|various|types of|kinds of",
    "money": "spend|spent|costs?|saved?|earn(?:ed)?|raised?|worth|price",
    "did": "did",
    "state": "(?:have|has) (?:i|my|we|he|she|they)|(?:do|am) i|(?:is|are) my",
    "latest": "current|currently|now|latest|recent|recently|so far|still|these days|nowadays",
    "changed": "previous|previously|former|formerly|initially|used to|switch(?:ed)?|changed?|new",
    "habit": "how (?:often|frequently)|usually|every|daily|weekly|what (?:time|day) (?:.* )?do i",
    "you": "you|your",
    "earlier talk": "remind me|our (?:previous|last|earlier)|conversation|chat|you (?:told|said|mentioned)",
    "advice": "recommend|suggest|suggestions?|recommendations?|tips?|advice|ideas?|should i",
    "a name": "name|who|where|what (?:colou?r|breed|kind|type|brand)",
    "long": r"(?:\w+ ){20}\w+",
}
PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
FOLDS = 5
LONGMEMEVAL = "longmemeval_gold_evidence_500.json"
LOCOMO = "locomo10.json"
LOCOMO_TYPES = {4: 0, 1: 1, 2: 2}  # single-hop, multi-hop, temporal; 3 and 5 have no counterpart


@dataclass(frozen=True)
class Labelled:
    """Questions and the place of each one's type in TYPES."""

    queries: tuple[str, ...]
    types: NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """How well probabilities match the types: accuracy, log-loss, and the table [true, predicted]."""

    accuracy: float
    log_loss: float
    confusion: NDArray[np.int64]


def main() -> None:
    """Prints the measurements; with --write also writes the model and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write retcon/querytype.json and docs/routing.md")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder = Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / LONGMEMEVAL).is_file():
        sys.exit(f"querytype: no {LONGMEMEVAL} in the folder RETCON_DATA names")
    train = longmemeval(folder / LONGMEMEVAL)
    model, report = measure(train, seed=args.seed)
    if (folder / LOCOMO).is_file():
        report["locomo"] = confirm(model, train, locomo(folder / LOCOMO))
    blocks = {"querytype": table(report), "embedders": embedder_table(folder / LONGMEMEVAL, seed=args.seed)}
    print(*blocks.values(), sep="\n\n")
    if args.write:
        write(stored(model, report, seed=args.seed), blocks)


def longmemeval(path: Path) -> Labelled:
    """LongMemEval's questions; its three single-session kinds are one type."""
    place = {"single": 0, "multi": 1, "temporal": 2, "knowledge": 3}
    rows = json.loads(path.read_text("utf-8"))
    types = [place[row["question_type"].split("-")[0]] for row in rows]
    return Labelled(tuple(row["question"] for row in rows), np.array(types))


def locomo(path: Path) -> Labelled:
    """LoCoMo's questions of the three categories that have a counterpart."""
    rows = [row for talk in json.loads(path.read_text("utf-8")) for row in talk["qa"]]
    rows = [row for row in rows if row["category"] in LOCOMO_TYPES]
    return Labelled(tuple(row["question"] for row in rows), np.array([LOCOMO_TYPES[row["category"]] for row in rows]))


def fit(x: Array, y: NDArray[np.int64], penalty: float) -> Array:
    """Weights [1 + cues, types], the intercepts first, by Newton steps on mean log-loss + penalty/2 |W|^2."""
    a = np.column_stack((np.ones(len(x)), x))
    (n, p), k = a.shape, len(TYPES)
    ridge = np.full(p, penalty)
    ridge[0] = 1e-6  # only so that the solution is unique: adding a constant to all types changes nothing
    truth, w = np.eye(k)[y], np.zeros((p, k))
    for _ in range(50):
        q = softmax(a @ w)
        gradient = a.T @ (q - truth) / n + ridge[:, None] * w
        curvature = q[:, :, None] * (np.eye(k) - q[:, None, :]) / n  # [n, k, k]
        hessian = np.einsum("ni,nab,nj->aibj", a, curvature, a, optimize=True).reshape(p * k, p * k)
        step = np.linalg.solve(hessian + np.diag(np.tile(ridge, k)), gradient.T.ravel()).reshape(k, p).T
        w -= step
        if np.abs(step).max() < 1e-9:
            break
    return w


def softmax(z: Array) -> Array:
    """Rows of probabilities."""
    lifted = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(lifted / lifted.sum(axis=1, keepdims=True), np.float64)


def predict(w: Array, x: Array) -> Array:
    """Type probabilities, one row a question."""
    return softmax(np.column_stack((np.ones(len(x)), x)) @ w)


def cues(queries: tuple[str, ...]) -> Array:
    """1 where the cue is in the question."""
    patterns = [cue_pattern(cue) for cue in CUES.values()]
    texts = [cue_text(query) for query in queries]
    return np.array([[bool(pattern.search(text)) for pattern in patterns] for text in texts], np.float64)


def folds(y: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """A fold for each question, types spread evenly."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(y), np.int64)
    for t in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == t))
        fold[members] = np.arange(len(members)) % FOLDS
    return fold


def cross_validated(x: Array, y: NDArray[np.int64], penalty: float, seed: int) -> Array:
    """Each question's probabilities from a model that never saw it."""
    fold, out = folds(y, seed), np.empty((len(y), len(TYPES)))
    for f in range(FOLDS):
        out[fold == f] = predict(fit(x[fold != f], y[fold != f], penalty), x[fold == f])
    return out


def best_penalty(x: Array, y: NDArray[np.int64], seed: int) -> float:
    """The penalty with the lowest cross-validated log-loss on these questions."""
    return min(PENALTIES, key=lambda penalty: score(cross_validated(x, y, penalty, seed), y).log_loss)


def nested(x: Array, y: NDArray[np.int64], seed: int) -> Array:
    """Cross-validated probabilities with the penalty, too, chosen inside the training folds."""
    fold, out = folds(y, seed), np.empty((len(y), len(TYPES)))
    for f in range(FOLDS):
        inside = fold != f
        penalty = best_penalty(x[inside], y[inside], seed + 1)
        out[~inside] = predict(fit(x[inside], y[inside], penalty), x[~inside])
    return out


def score(probabilities: Array, y: NDArray[np.int64]) -> Score:
    """Accuracy, mean log-loss and the confusion table."""
    guess = probabilities.argmax(axis=1)
    confusion = np.zeros((len(TYPES), len(TYPES)), np.int64)
    np.add.at(confusion, (y, guess), 1)
    sure = np.maximum(probabilities[np.arange(len(y)), y], 1e-12)
    return Score(float((guess == y).mean()), float(-np.log(sure).mean()), confusion)


def measure(train: Labelled, *, seed: int) -> tuple[Array, dict[str, object]]:
    """The model on all training questions, and what cross-validation says of it."""
    x = cues(train.queries)
    penalty = best_penalty(x, train.types, seed)
    prior = np.bincount(train.types, minlength=len(TYPES)) / len(x)
    found = score(nested(x, train.types, seed), train.types)
    report: dict[str, object] = {"n": len(x), "penalty": penalty, "longmemeval": summary(found, prior, train.types)}
    return fit(x, train.types, penalty), report


def confirm(model: Array, train: Labelled, test: Labelled) -> dict[str, object]:
    """The frozen model on the other benchmark, against always guessing the training mix."""
    prior = np.bincount(train.types, minlength=len(TYPES)) / len(train.types)
    return summary(score(predict(model, cues(test.queries)), test.types), prior, test.types)


def summary(found: Score, prior: Array, y: NDArray[np.int64]) -> dict[str, object]:
    """A score beside two baselines: the commonest true type, and the training mix as constant probabilities."""
    hit, truth = np.diag(found.confusion), found.confusion.sum(axis=1)
    return {
        "n": len(y),
        "accuracy": round(found.accuracy, 3),
        "log_loss": round(found.log_loss, 3),
        "majority_accuracy": round(float(truth.max()) / len(y), 3),
        "prior_log_loss": round(float(-np.log(prior[y]).mean()), 3),
        "recall": {t: round(float(h / n), 3) for t, h, n in zip(TYPES, hit, truth, strict=True) if n},
    }


def stored(model: Array, report: dict[str, object], *, seed: int) -> dict[str, object]:
    """What goes into querytype.json: cues with their log-odds against single-session, and where they come from."""
    odds = np.round(model[:, 1:] - model[:, :1], 3).tolist()
    named = [dict(zip(TYPES[1:], row, strict=True)) for row in odds]
    return {
        "types": list(TYPES),
        "intercepts": named[0],
        "cues": [
            {"name": name, "words": cue, "weights": row}
            for (name, cue), row in zip(CUES.items(), named[1:], strict=True)
        ],
        "provenance": {
            "model": "multinomial logistic regression on yes/no cues, L2 penalty, single_session as reference",
            "made_by": "bench/querytype.py",
            "data": "the 500 questions of LongMemEval (Wu et al., ICLR 2025); no question text is kept here",
            "licence": "MIT (LongMemEval)",
            "seed": seed,
            **report,
        },
    }


def write(plain: dict[str, object], blocks: dict[str, str]) -> None:
    """Writes the model file and the measured blocks of the docs page."""
    (ROOT / "retcon" / "querytype.json").write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    page = ROOT / "docs" / "routing.md"
    text = page.read_text("utf-8")
    for name, block in blocks.items():
        begin, end = f"<!-- {name}: begin, written by bench/querytype.py -->", f"<!-- {name}: end -->"
        text = f"{text.split(begin)[0]}{begin}\n{block}\n{end}{text.split(end)[1]}"
    page.write_text(text, encoding="utf-8")


def table(report: dict[str, object]) -> str:
    """The measurements as a Markdown table."""
    names = {"longmemeval": "LongMemEval, five-fold cross-validated", "locomo": "LoCoMo, never trained on"}
    lines = [
        "| questions | n | accuracy | commonest type | log-loss | training mix | recall by type |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, name in names.items():
        if isinstance(s := report.get(key), dict):
            recall = ", ".join(f"{t.replace('_', '-')} {value:.3f}" for t, value in s["recall"].items())
            cells = [f"{s[c]:.3f}" for c in ("accuracy", "majority_accuracy", "log_loss", "prior_log_loss")]
            lines.append(f"| {name} | {s['n']} | {' | '.join(cells)} | {recall} |")
    return "\n".join(lines)


def embedder_table(path: Path, *, seed: int) -> str:
    """Each embedder's similarity on a question's own evidence and on as many turns drawn at random, as Markdown."""
    clusters = [[turn["content"] for turn in row["evidence"]] for row in json.loads(path.read_text("utf-8"))]
    turns = [turn for cluster in clusters for turn in cluster]
    own = [cluster for cluster in clusters if len(cluster) > 1]
    rng = np.random.default_rng(seed)
    drawn = [[turns[i] for i in rng.choice(len(turns), len(cluster), replace=False)] for cluster in own]
    spreads = {}
    for embed in (HashingEmbed(), WordLlamaEmbed()):
        spreads[embed.name] = [np.array([spread(embed(cluster)) for cluster in part]) for part in (own, drawn)]
    lines = [
        f"| embedder | similarity of own evidence ({len(own)} clusters) | of random turns | area under the curve |",
        "|---|---|---|---|",
    ]
    for name, (mine, other) in spreads.items():
        area = (mine[:, 1][:, None] > other[:, 1]).mean() + (mine[:, 1][:, None] == other[:, 1]).mean() / 2
        lines.append(f"| {name} | {mine[:, 1].mean():.2f} | {other[:, 1].mean():.2f} | {area:.2f} |")
    a, b = (own_spread for own_spread, _ in spreads.values())
    r = [np.corrcoef(a[:, i], b[:, i])[0, 1] for i in (0, 1)]
    return "\n".join(lines) + f"\n\nCorrelation between the two: inconsistency {r[0]:.2f}, similarity {r[1]:.2f}."


if __name__ == "__main__":
    main()
