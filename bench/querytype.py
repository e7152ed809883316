"""Trains the query-type model on the questions of six sets, and tests it on each set left out and on three others.

Beside it, the two embedders are compared on the features they feed, on LongMemEval's evidence.

    python -m bench.querytype            print what comes of leaving each set out
    python -m bench.querytype --write    also test on the sets that are only for testing, and write
                                         retcon/querytype.json, docs/querytypes.md and docs/routing.md

LongMemEval's questions and our own are the everyday questions that the model is for. The other four sets are of other
kinds and mix the types in their own way, so each has intercepts of its own and counts less; how much less, and how
strong the penalty is, is chosen by leaving sets out. The sample's questions, LoCoMo's and timelineqa's (both CC BY-NC)
only test the model. The cues (`retcon/lab/querytype.py`) were written while looking at LongMemEval and at our own.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import ROOT, data_file
from retcon import sample
from retcon.features import TYPES, QueryTypes, spread
from retcon.lab.querytype import CUES, PENALTIES, Array, Hits, Places, cue_matrix, deal, fit_path, probabilities, train
from retcon.model import HashingEmbed, WordLlamaEmbed

OURS = ROOT / "bench" / "questions.jsonl"
MODEL = ROOT / "retcon" / "querytype.json"
LONGMEMEVAL = "longmemeval_gold_evidence_500.json"
LOCOMO = "locomo10.json"
LOCOMO_TYPES = {4: 0, 1: 1, 2: 2}  # single-hop, multi-hop, temporal; 3 and 5 have no counterpart
EVERYDAY = ("longmemeval", "ours")  # the questions the model is for: their mix of types is its prior
OTHERS = ("lifebench", "factcon", "friendsqa", "timeqa")  # learned from with intercepts of their own
FOLDS = 5
COUNTS = (0.1, 0.3, 1.0)  # how much one of the others may count beside an everyday set
UNSAID = {"factcon": "knowledge_update"}  # the same words ask for facts that changed and for facts that did not
ASKED = (
    "What dose at the moment?",
    "Where do I live now?",
    "When did we last meet?",
    "How many books have I read this year?",
    "What's my cat's name?",
    "What is the capital of France?",
    "capital of France?",
    "asdkjhaskjdh",
)


@dataclass(frozen=True)
class LabelledQuestions:
    """Questions as cues, the place of each one's type in TYPES, and which ones belong together."""

    hits: Hits
    types: Places
    groups: NDArray[np.str_]

    def part(self, mask: NDArray[np.bool_] | Places) -> LabelledQuestions:
        """The questions under the mask, or at these places."""
        return LabelledQuestions(self.hits[mask], self.types[mask], self.groups[mask])


@dataclass(frozen=True)
class Settings:
    """What leaving sets out chooses: how much one of the others counts, and the penalty."""

    count: float
    penalty: float


Sets = Mapping[str, LabelledQuestions]
GRID = tuple(Settings(count, penalty) for count in COUNTS for penalty in PENALTIES)


def main() -> None:
    """Prints the measurements; with --write also tests the model, and writes it and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="test it too, and write the model and its numbers")
    parser.add_argument("--seed", type=int, default=0, help="of the folds, and of turns for the embedders")
    args = parser.parse_args()
    sets = learned_sets()
    chosen, report = measure(sets, seed=args.seed)
    model = round_weights(fit_model(sets, chosen))
    if args.write:
        report["tests"] = {
            name: score(probabilities(model, test.hits), test.types) for name, test in test_sets().items()
        }
    report["asked"] = {text: [round(p, 2) for p in model(text)] for text in ASKED}
    blocks = {name: render(report) for name, render in BLOCKS.items()}
    print(*blocks.values(), sep="\n\n")
    if args.write:
        MODEL.write_text(json.dumps(to_json(model, report), indent=2) + "\n", encoding="utf-8")
        write_blocks(ROOT / "docs" / "querytypes.md", blocks)
        embedders = embedder_table(data_file(LONGMEMEVAL), seed=args.seed)
        write_blocks(ROOT / "docs" / "routing.md", {"embedders": embedders})


# -- the questions -----------------------------------------------------------------------------------------------------


def learned_sets() -> dict[str, LabelledQuestions]:
    """The six sets, by name."""
    return {"longmemeval": longmemeval(data_file(LONGMEMEVAL)), "ours": ours()} | {
        name: domain(data_file(f"domains/{name}.tar.xz")) for name in OTHERS
    }


def test_sets() -> dict[str, LabelledQuestions]:
    """The three that only test."""
    return {
        "sample": read_sample(),
        "locomo": locomo(data_file(LOCOMO)),
        "timelineqa": domain(data_file("domains/timelineqa.tar.xz")),
    }


def longmemeval(path: Path) -> LabelledQuestions:
    """LongMemEval's questions; its three single-session kinds are one type."""
    place = {"single": 0, "multi": 1, "temporal": 2, "knowledge": 3}
    rows = json.loads(path.read_text("utf-8"))
    links = [{name.replace("_abs", "") for name in (row["question_id"], *row["answer_session_ids"])} for row in rows]
    found = label((row["question"], place[row["question_type"].split("-")[0]]) for row in rows)
    return replace(found, groups=link_questions(links))


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
    """The questions that we wrote to learn from."""
    rows = [json.loads(line) for line in OURS.read_text("utf-8").splitlines()]
    return label((row["question"], TYPES.index(row["type"])) for row in rows)


def read_sample() -> LabelledQuestions:
    """The questions of the shipped sample that have an answer."""
    asked = [each for each in sample.questions() if each.type.replace("-", "_") in TYPES]
    return label((each.question, TYPES.index(each.type.replace("-", "_"))) for each in asked)


def locomo(path: Path) -> LabelledQuestions:
    """LoCoMo's questions of the three categories that have a counterpart."""
    rows = [row for talk in json.loads(path.read_text("utf-8")) for row in talk["qa"]]
    return label((row["question"], LOCOMO_TYPES[row["category"]]) for row in rows if row["category"] in LOCOMO_TYPES)


def domain(path: Path) -> LabelledQuestions:
    """The questions with a type in an archive of questions of one's own, which is read where it lies."""
    name = path.name.removesuffix(".tar.xz")
    with tarfile.open(path) as archive:
        file = archive.extractfile(f"{name}.jsonl")
        assert file is not None
        rows = [json.loads(line) for line in file]
    kept = [row for row in rows if row.get("type") and row["type"] != UNSAID.get(name)]
    return label((row["question"], TYPES.index(row["type"])) for row in kept)


def label(pairs: Iterable[tuple[str, int]]) -> LabelledQuestions:
    """Questions and the places of their types, as cues and types; each a group of its own."""
    texts, types = zip(*pairs, strict=True)
    return LabelledQuestions(cue_matrix(texts), np.array(types), np.array([f"{i:04}" for i in range(len(texts))]))


# -- learning, and leaving out -----------------------------------------------------------------------------------------


def join(sets: Sets, count: float) -> dict[str, Any]:
    """What `train` takes: each set counts as one, one of the others as `count`, whatever its size."""
    share = {name: (1.0 if name in EVERYDAY else count) / len(each.types) for name, each in sets.items()}
    return {
        "hits": np.concatenate([each.hits for each in sets.values()]),
        "types": np.concatenate([each.types for each in sets.values()]),
        "weights": np.concatenate([np.full(len(each.types), share[name]) for name, each in sets.items()]),
        "sources": np.concatenate(
            [np.full(len(each.types), "" if name in EVERYDAY else name) for name, each in sets.items()]
        ),
    }


def fit_model(sets: Sets, chosen: Settings) -> QueryTypes:
    """The model of these sets."""
    given = join(sets, chosen.count)
    return train(given.pop("hits"), given.pop("types"), penalty=chosen.penalty, **given)


def losses(sets: Sets, test: LabelledQuestions) -> dict[Settings, float]:
    """The log-loss on the test of models of the sets, by settings."""
    out = {}
    for count in COUNTS:
        given = join(sets, count)
        x = np.column_stack((np.ones(len(test.types)), test.hits.astype(np.float64)))
        for penalty, w in zip(PENALTIES, fit_path(**given, penalties=PENALTIES), strict=True):
            odds = x @ w
            log = odds - np.log(np.exp(odds).sum(axis=1, keepdims=True))
            out[Settings(count, penalty)] = -float(log[np.arange(len(log)), test.types].mean())
    return out


def without(sets: Sets, *names: str) -> dict[str, LabelledQuestions]:
    """The sets but those."""
    return {name: each for name, each in sets.items() if name not in names}


def choose(sets: Sets) -> Settings:
    """The settings with the lowest log-loss on sets left out, everyday sets and the others counting alike."""
    found = {name: losses(without(sets, name), test) for name, test in sets.items()}

    def loss(one: Settings) -> float:
        return float(sum(np.mean([found[name][one] for name in kind]) for kind in (EVERYDAY, OTHERS)))

    return min(GRID, key=loss)


def cross_validate(sets: Sets, name: str, chosen: Settings, *, seed: int) -> Array:
    """Probabilities of a set's questions from models that saw no question of their group, and all other sets."""
    test = sets[name]
    fold, out = deal(test.groups, folds=FOLDS, seed=seed), np.empty((len(test.types), len(TYPES)))
    for f in range(FOLDS):
        model = fit_model({**sets, name: test.part(fold != f)}, chosen)
        out[fold == f] = probabilities(model, test.hits[fold == f])
    return out


def measure(sets: Sets, *, seed: int) -> tuple[Settings, dict[str, Any]]:
    """The settings, and each set's scores by a model of the other five; of the everyday sets also cross-validated."""
    chosen = choose(sets)
    left_out = {name: probabilities(fit_model(without(sets, name), chosen), test.hits) for name, test in sets.items()}
    inside = {name: cross_validate(sets, name, chosen, seed=seed) for name in EVERYDAY}
    scores = {
        kind: {name: score(p, sets[name].types) for name, p in found.items()}
        for kind, found in (("left_out", left_out), ("cross_validated", inside))
    }
    n = sum(len(each.types) for each in sets.values())
    return chosen, {"seed": seed, "n": n, "count": chosen.count, "penalty": chosen.penalty, **scores}


def round_weights(model: QueryTypes) -> QueryTypes:
    """The model with the three decimals that its file keeps, so that what ships is what is tested."""
    weights = tuple(tuple(round(w, 3) for w in row) for row in model.weights)
    intercepts = tuple(round(value, 3) for value in model.intercepts)
    return QueryTypes(model.patterns, weights, intercepts, tuple(round(p, 3) for p in model.prior))


def score(p: Array, types: Places) -> dict[str, Any]:
    """How well probabilities match the types, beside guessing the commonest true type."""
    guess, rows = p.argmax(axis=1), np.arange(len(types))
    confusion = np.zeros((len(TYPES), len(TYPES)), np.int64)  # [true, guessed]
    np.add.at(confusion, (types, guess), 1)
    values = {
        "accuracy": (guess == types).mean(),
        "log_loss": -np.log(np.maximum(p[rows, types], 1e-12)).mean(),
        "brier": ((p - np.eye(len(TYPES))[types]) ** 2).sum(axis=1).mean(),
        "calibration_error": calibration_error(p.max(axis=1), guess == types),
        "confidence": p.max(axis=1).mean(),
        "majority_accuracy": confusion.sum(axis=1).max() / len(types),
    }
    return {
        "n": len(types),
        **{name: round(float(value), 3) for name, value in values.items()},
        "confusion": confusion.tolist(),
    }


def calibration_error(confidence: Array, right: NDArray[np.bool_], bins: int = 10) -> float:
    """Mean distance between the top probability and how often it is right, over bins of the top probability."""
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(right))


def to_json(model: QueryTypes, report: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into querytype.json: cues with their log-odds against single-session, and where they come from."""
    named = [dict(zip(TYPES[1:], row, strict=True)) for row in model.weights]
    return {
        "types": list(TYPES),
        "prior": dict(zip(TYPES, model.prior, strict=True)),
        "intercepts": dict(zip(TYPES[1:], model.intercepts, strict=True)),
        "cues": [
            {"name": name, "words": cue, "weights": row} for (name, cue), row in zip(CUES.items(), named, strict=True)
        ],
        "provenance": {
            "model": "multinomial logistic regression on yes/no cues, L2 penalty, single_session as reference; a text "
            "without a cue gets the prior",
            "made_by": "bench/querytype.py",
            "data": "the questions of LongMemEval, LifeBench, MemoryAgentBench's Conflict_Resolution, FriendsQA and "
            "Time-Sensitive-QA, and those that we wrote, in bench/questions.jsonl; no question text is kept here",
            "licence": "MIT (LongMemEval, MemoryAgentBench), Apache-2.0 (LifeBench, FriendsQA, ours), BSD-3-Clause "
            "(Time-Sensitive-QA)",
            **report,
        },
    }


# -- the pages ---------------------------------------------------------------------------------------------------------


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


NAMES = {
    "longmemeval": "LongMemEval: chats with an assistant",
    "ours": "ours: everyday questions",
    "lifebench": "LifeBench: a phone's messages and notes",
    "factcon": "MemoryAgentBench: chains of facts",
    "friendsqa": "FriendsQA: scenes of a series",
    "timeqa": "Time-Sensitive-QA: who held what when",
    "sample": "the shipped sample: everyday questions",
    "locomo": "LoCoMo: chats of two friends",
    "timelineqa": "TimelineQA: life logs",
}
KINDS = {"left_out": "left out", "cross_validated": "cross-validated", "tests": "never learned from"}
COLUMNS = ("accuracy", "majority_accuracy", "log_loss", "brier", "confidence", "calibration_error")


def table(report: Mapping[str, Any]) -> str:
    """Every set's scores as a Markdown table."""
    lines = [
        "| set | n | accuracy | commonest type | log-loss | Brier | mean top probability | calibration error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, title in KINDS.items():
        if kind in report:
            lines += [f"| *{title}* | | | | | | | |", *(_row(*item) for item in report[kind].items())]
    return "\n".join(lines) + (
        f"\n\nThe shipped model: the others count {report['count']:g} beside an everyday set, penalty "
        f"{report['penalty']:g}, {report['n']:,} questions."
    )


def _row(name: str, found: Mapping[str, Any]) -> str:
    cells = [f"{found[column]:.3f}" for column in COLUMNS]
    return f"| {NAMES[name]} | {found['n']:,} | {' | '.join(cells)} |"


def asked_table(report: Mapping[str, Any]) -> str:
    """What the shipped model says of a few texts, as a Markdown table."""
    lines = [f"| text | {' | '.join(name.replace('_', '-') for name in TYPES)} |", "|---|---|---|---|---|"]
    for text, values in report["asked"].items():
        cells = [f"**{p:.2f}**" if p == max(values) and p >= 0.5 else f"{p:.2f}" for p in values]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
    "asked": asked_table,
    "scores": table,
    "confusion-longmemeval": lambda report: matrix(report["cross_validated"]["longmemeval"]),
    "confusion-locomo": lambda report: matrix(report["tests"]["locomo"]) if "tests" in report else "",
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
