"""Trains the query-type model on LongMemEval's questions and our own, and tests it; LoCoMo's questions only test it.

Beside it, the two embedders are compared on the features they feed, on LongMemEval's evidence.

    python -m bench.querytype            print the measurements
    python -m bench.querytype --write    also write retcon/querytype.json, docs/querytypes.md and docs/routing.md

The cues (`retcon/lab/querytype.py`) were written while looking at LongMemEval; cross-validation chooses the penalty.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import ROOT, data_file
from retcon.features import TYPES, QueryTypes, spread
from retcon.lab.querytype import CUES, Array, Hits, Places, best_penalty, cue_matrix, deal, probabilities, train
from retcon.model import HashingEmbed, WordLlamaEmbed

OURS = ROOT / "bench" / "questions.jsonl"
MODEL = ROOT / "retcon" / "querytype.json"
FOLDS = 5
REPEATS = 10
LONGMEMEVAL = "longmemeval_gold_evidence_500.json"
LOCOMO = "locomo10.json"
LOCOMO_TYPES = {4: 0, 1: 1, 2: 2}  # single-hop, multi-hop, temporal; 3 and 5 have no counterpart
ROWS = {  # entry of the provenance: what it was tested on, what it was trained on
    "longmemeval": ("LongMemEval, cross-validated", "LongMemEval + ours"),
    "longmemeval_alone": ("LongMemEval, cross-validated", "LongMemEval"),
    "ours": ("ours, cross-validated", "LongMemEval + ours"),
    "ours_alone": ("ours, never trained on", "LongMemEval"),
    "locomo": ("LoCoMo, never trained on", "**LongMemEval + ours (shipped)**"),
    "locomo_alone": ("LoCoMo, never trained on", "LongMemEval"),
}


@dataclass(frozen=True)
class LabelledQuestions:
    """Questions as cues, the place of each one's type in TYPES, and which ones belong together."""

    hits: Hits
    types: Places
    groups: NDArray[np.str_]

    def part(self, mask: NDArray[np.bool_]) -> LabelledQuestions:
        """The questions under the mask."""
        return LabelledQuestions(self.hits[mask], self.types[mask], self.groups[mask])

    def __add__(self, other: LabelledQuestions) -> LabelledQuestions:
        pairs = ((self.hits, other.hits), (self.types, other.types), (self.groups, other.groups))
        return LabelledQuestions(*(np.concatenate(pair) for pair in pairs))  # type: ignore[arg-type]


def main() -> None:
    """Prints the measurements; with --write also writes the model and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the model and the measured parts of the docs")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    path = data_file(LONGMEMEVAL)
    model, report = measure(longmemeval(path), ours(), locomo(data_file(LOCOMO)), seed=args.seed)
    blocks = {name: render(report) for name, render in BLOCKS.items()}
    embedders = embedder_table(path, seed=args.seed)
    print(*blocks.values(), embedders, sep="\n\n")
    if args.write:
        MODEL.write_text(json.dumps(to_json(model, report), indent=2) + "\n", encoding="utf-8")
        write_blocks(ROOT / "docs" / "querytypes.md", blocks)
        write_blocks(ROOT / "docs" / "routing.md", {"embedders": embedders})


def longmemeval(path: Path) -> LabelledQuestions:
    """LongMemEval's questions; its three single-session kinds are one type."""
    place = {"single": 0, "multi": 1, "temporal": 2, "knowledge": 3}
    rows = json.loads(path.read_text("utf-8"))
    types = [place[row["question_type"].split("-")[0]] for row in rows]
    links = [{name.replace("_abs", "") for name in (row["question_id"], *row["answer_session_ids"])} for row in rows]
    return LabelledQuestions(cue_matrix([row["question"] for row in rows]), np.array(types), link_questions(links))


def link_questions(links: Sequence[Iterable[str]]) -> NDArray[np.str_]:
    """One label for all questions that share a link, directly or through others: twins must not be held apart."""
    label = [f"{i:04}" for i in range(len(links))]
    first: dict[str, int] = {}
    for i, names in enumerate(links):
        for name in names:
            old, new = label[i], label[first.setdefault(name, i)]
            label = [new if one == old else one for one in label]
    return np.array(label)


def ours() -> LabelledQuestions:
    """The questions that we wrote."""
    rows = [json.loads(line) for line in OURS.read_text("utf-8").splitlines()]
    types = np.array([TYPES.index(row["type"]) for row in rows])
    return LabelledQuestions(
        cue_matrix([row["question"] for row in rows]), types, np.array([f"ours {i:03}" for i in range(len(rows))])
    )


def locomo(path: Path) -> LabelledQuestions:
    """LoCoMo's questions of the three categories that have a counterpart."""
    talks = json.loads(path.read_text("utf-8"))
    rows = [(row, talk["sample_id"]) for talk in talks for row in talk["qa"] if row["category"] in LOCOMO_TYPES]
    types = np.array([LOCOMO_TYPES[row["category"]] for row, _ in rows])
    return LabelledQuestions(
        cue_matrix([row["question"] for row, _ in rows]), types, np.array([name for _, name in rows])
    )


def fit_model(data: LabelledQuestions, *, folds: int = 3, seed: int) -> QueryTypes:
    """The model of these questions."""
    return train(data.hits, data.types, groups=data.groups, folds=folds, seed=seed)


def cross_validate(data: LabelledQuestions, *, beside: LabelledQuestions | None = None, seed: int) -> Array:
    """Each question's probabilities from a model that saw no question of its group, and all those `beside`."""
    fold, out = deal(data.groups, folds=FOLDS, seed=seed), np.empty((len(data.types), len(TYPES)))
    for f in range(FOLDS):
        seen = data.part(fold != f)
        model = fit_model(seen if beside is None else seen + beside, seed=seed)
        out[fold == f] = probabilities(model, data.hits[fold == f])
    return out


def measure(
    benchmark: LabelledQuestions, own: LabelledQuestions, other: LabelledQuestions, *, seed: int
) -> tuple[QueryTypes, dict[str, Any]]:
    """The model of the benchmark's questions and our own, and how good it is, alone and with ours, on all three."""
    both = benchmark + own
    penalty = best_penalty(both.hits, both.types, groups=both.groups, folds=FOLDS, seed=seed)
    model = round_weights(train(both.hits, both.types, penalty=penalty))
    alone = fit_model(benchmark, folds=FOLDS, seed=seed)
    found = {
        "longmemeval": (cross_validate(benchmark, beside=own, seed=seed), benchmark, both),
        "longmemeval_alone": (cross_validate(benchmark, seed=seed), benchmark, benchmark),
        "ours": (cross_validate(own, beside=benchmark, seed=seed), own, both),
        "ours_alone": (probabilities(alone, own.hits), own, benchmark),
        "locomo": (probabilities(model, other.hits), other, both),
        "locomo_alone": (probabilities(alone, other.hits), other, benchmark),
    }
    report = {name: score(p, test.types, mix(learned.types)) for name, (p, test, learned) in found.items()}
    again = repeat_validation(benchmark, own)
    return model, {"seed": seed, "n": len(both.types), "penalty": penalty, **report, "repeated": again}


def round_weights(model: QueryTypes) -> QueryTypes:
    """The model with the three decimals that its file keeps, so that what ships is what is tested."""
    weights = tuple(tuple(round(w, 3) for w in row) for row in model.weights)
    return QueryTypes(model.patterns, weights, tuple(round(value, 3) for value in model.intercepts))


def repeat_validation(data: LabelledQuestions, own: LabelledQuestions) -> dict[str, Any]:
    """Cross-validation over splits with other seeds, without our questions and with them, and what they gain."""
    rows = np.arange(len(data.types))
    found: dict[str, dict[str, float]] = {}
    logs = []
    for name, beside in (("alone", None), ("with_ours", own)):
        p = np.array(
            [cross_validate(data, beside=beside, seed=seed) for seed in range(1, REPEATS + 1)]
        )  # [split, n, type]
        right = (p.argmax(axis=2) == data.types).mean(axis=1)
        logs.append(np.log(p[:, rows, data.types]).mean(axis=0))
        values = {"accuracy": right.mean(), "spread": right.std(ddof=1), "log_loss": -logs[-1].mean()}
        found[name] = {key: round(float(value), 4) for key, value in values.items()}
    gain = logs[1] - logs[0]
    error = float(gain.std(ddof=1) / np.sqrt(len(gain)))  # over questions
    return {**found, "gain": round(float(gain.mean()), 4), "error": round(error, 4)}


def mix(types: Places) -> Array:
    """The share of each type."""
    return np.bincount(types, minlength=len(TYPES)) / len(types)


def score(p: Array, types: Places, prior: Array) -> dict[str, Any]:
    """How well probabilities match the types, beside two baselines: the commonest true type, and the training mix."""
    guess, rows = p.argmax(axis=1), np.arange(len(types))
    confusion = np.zeros((len(TYPES), len(TYPES)), np.int64)  # [true, guessed]
    np.add.at(confusion, (types, guess), 1)
    hit, truth = np.diag(confusion), confusion.sum(axis=1)
    values = {
        "accuracy": (guess == types).mean(),
        "log_loss": -np.log(np.maximum(p[rows, types], 1e-12)).mean(),
        "confidence": p.max(axis=1).mean(),
        "majority_accuracy": truth.max() / len(types),
        "prior_log_loss": -np.log(prior[types]).mean(),
    }
    return {
        "n": len(types),
        **{name: round(float(value), 3) for name, value in values.items()},
        "recall": {t: round(float(h / n), 3) for t, h, n in zip(TYPES, hit, truth, strict=True) if n},
        "confusion": confusion.tolist(),
    }


def to_json(model: QueryTypes, report: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into querytype.json: cues with their log-odds against single-session, and where they come from."""
    named = [dict(zip(TYPES[1:], row, strict=True)) for row in model.weights]
    return {
        "types": list(TYPES),
        "intercepts": dict(zip(TYPES[1:], model.intercepts, strict=True)),
        "cues": [
            {"name": name, "words": cue, "weights": row} for (name, cue), row in zip(CUES.items(), named, strict=True)
        ],
        "provenance": {
            "model": "multinomial logistic regression on yes/no cues, L2 penalty, single_session as reference",
            "made_by": "bench/querytype.py",
            "data": "the 500 questions of LongMemEval (Wu et al., ICLR 2025) and the 120 that we wrote, in "
            "bench/questions.jsonl; no question text is kept here",
            "licence": "MIT (LongMemEval), Apache-2.0 (ours)",
            **report,
        },
    }


def write_blocks(page: Path, blocks: Mapping[str, str]) -> None:
    """Writes the measured blocks of a docs page."""
    text = page.read_text("utf-8")
    for name, block in blocks.items():
        begin, end = marks(name)
        text = f"{text.split(begin)[0]}{begin}{block}{end}{text.split(end)[1]}"
    page.write_text(text, encoding="utf-8")


def marks(name: str) -> tuple[str, str]:
    """What stands before and after a measured block."""
    return f"<!-- {name}: begin, written by bench/querytype.py -->\n", f"\n<!-- {name}: end -->"


def table(report: Mapping[str, Any]) -> str:
    """All tests as a Markdown table."""
    lines = [
        "| tested on | trained on | n | accuracy | commonest type | mean top probability | log-loss | training mix |",
        "|---|---|---|---|---|---|---|---|",
    ]
    columns = ("accuracy", "majority_accuracy", "confidence", "log_loss", "prior_log_loss")
    for name, (test, learned) in ROWS.items():
        cells = [f"{report[name][column]:.3f}" for column in columns]
        lines.append(f"| {test} | {learned} | {report[name]['n']:,} | {' | '.join(cells)} |")
    with_ours, alone = report["repeated"]["with_ours"], report["repeated"]["alone"]
    return "\n".join(lines) + (
        f"\n\nOver {REPEATS} other splits of LongMemEval: accuracy {with_ours['accuracy']:.4f} with our questions and "
        f"{alone['accuracy']:.4f} without\n(standard deviation between splits {with_ours['spread']:.4f} and "
        f"{alone['spread']:.4f}), log-loss {with_ours['log_loss']:.4f} and {alone['log_loss']:.4f}: a gain of "
        f"{report['repeated']['gain']:.4f} with a standard\nerror of {report['repeated']['error']:.4f} over questions."
    )


def matrix(found: Mapping[str, Any]) -> str:
    """A confusion matrix as a Markdown table: a row a true type, a column a guess."""
    counts, names = np.array(found["confusion"]), [name.replace("_", "-") for name in TYPES]
    right = np.diag(counts)
    lines = [f"| true \\ guessed | {' | '.join(names)} | n | recall |", "|---" * (len(TYPES) + 3) + "|"]
    for i, name in enumerate(names):
        row = [f"**{n}**" if i == j else str(n) for j, n in enumerate(counts[i])]
        n = counts[i].sum()
        lines.append(f"| {name} | {' | '.join(row)} | {n} | {f'{right[i] / n:.3f}' if n else '-'} |")
    guessed = counts.sum(axis=0)
    shares = [f"{h / g:.3f}" if g else "-" for h, g in zip(right, guessed, strict=True)]
    return "\n".join([*lines, f"| precision | {' | '.join(shares)} | {counts.sum()} | |"])


BLOCKS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "scores": table,
    "confusion-longmemeval": lambda report: matrix(report["longmemeval"]),
    "confusion-locomo": lambda report: matrix(report["locomo"]),
}


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
