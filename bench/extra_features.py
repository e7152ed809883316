"""Do more things known before generation, or other estimators, make a better choice? LoCoMo and LongMemEval's pool.

    python -m bench.extra_features --out bench/results/extra_features.json

Needs the benchmarks' own files (RETCON_DATA): the eleven features are in the rows, these are counted from the texts.
Fit and calibration questions alone; five folds over whole conversations (LoCoMo) or questions (the pool), dealt once;
every difference is paired with the action selected on the same training questions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from bench import keep, out_parser
from bench.evaluation import DRAWS, SEED, rows_of
from bench.runs import RUNS, questions
from retcon.lab.crossfit import REFERENCE, Direct, Policy, Rules, best_fixed, crossfit
from retcon.lab.outcomes import Panel, panel
from retcon.lab.protocols import PROTOCOLS, cases
from retcon.lab.stats import interval, resample
from retcon.note import Cluster
from retcon.words import query_terms, stems

FORMS = ("who", "when", "where", "what", "which", "how many", "how", "why")
RICH = (
    "top_score", "gap", "gap_5", "entropy", "overlap_1", "overlap_5", "redundancy", "numbers", "dates",
    "query_words", *(f"form_{form.replace(' ', '_')}" for form in FORMS),
)  # fmt: skip
POLICIES: dict[str, Policy] = {
    REFERENCE: best_fixed(0),
    **{name: Direct(name) for name in ("ridge", "ridge-standardised", "gain", "knn", "trees")},
}
REPEATS = 1


def describe_cluster(cluster: Cluster) -> list[float]:
    """Shape of the scores, overlap with the query, redundancy, number and date density, form of the question."""
    scores = [max(hit.score, 0.0) for hit in cluster.hits] or [0.0]
    shares = np.array(scores) / (sum(scores) or 1.0)
    fifth = scores[min(4, len(scores) - 1)]
    wanted = set(query_terms(cluster.query)) or {""}
    told = [set(stems(note.text)) for note in cluster.notes] or [set[str]()]
    words = [word for note in cluster.notes for word in note.text.split()] or [""]
    query = cluster.query.lower()
    return [
        scores[0],
        (scores[0] - scores[min(1, len(scores) - 1)]) / (scores[0] or 1.0),
        (scores[0] - fifth) / (scores[0] or 1.0),
        -sum(share * math.log(share) for share in shares.tolist() if share > 0),
        len(wanted & told[0]) / len(wanted),
        len(wanted & set().union(*told[:5])) / len(wanted),
        _redundancy(told[:10]),
        sum(any(sign.isdigit() for sign in word) for word in words) / len(words),
        sum(bool(re.fullmatch(DATES, word.strip(".,;:!?").lower())) for word in words) / len(words),
        len(query.split()),
        *(float(bool(re.search(rf"\b{form}\b", query))) for form in FORMS),
    ]


DATES = r"\d{4}-\d\d-\d\d|(mon|tues|wednes|thurs|fri|satur|sun)day|yesterday|tomorrow|today|last|next|ago|" + "|".join(
    "january february march april may june july august september october november december".split()
)


def _redundancy(told: Sequence[set[str]]) -> float:
    pairs = [(a, b) for i, a in enumerate(told) for b in told[:i] if a | b]
    return sum(len(a & b) / len(a | b) for a, b in pairs) / len(pairs) if pairs else 1.0


def add_features(made: Panel, run: str) -> Panel:
    """The panel with the further features behind its own."""
    asked = [question for _, question in questions(next(each for each in RUNS if each.name == run))]
    known = set(made.questions)
    of = {
        case.question.id: describe_cluster(case.cluster)
        for case in cases((each for each in asked if each.id in known), PROTOCOLS["product"])
    }
    extra = np.array([of[name] for name in made.questions])[:, None, :]
    wide = np.broadcast_to(extra, (*made.x.shape[:2], extra.shape[2]))
    return replace(made, features=(*made.features, *RICH), x=np.concatenate([made.x, wide], axis=2))


def compare(made: Panel, group: str) -> dict[str, Any]:
    """Every policy on questions that it has not seen."""
    rules = Rules(group=group, seed=SEED)
    scored = crossfit(made, policies=POLICIES, rules=rules, repeats=REPEATS)
    base = scored.results[REFERENCE].utility.mean(axis=1)
    draws = resample(len(base), seed=SEED, draws=DRAWS)
    return {
        name: {
            "accuracy": scored.results[name].macro,
            "calls": float(scored.results[name].calls.mean()),
            "against": asdict(interval(scored.results[name].utility.mean(axis=1) - base, draws)),
        }
        for name in (*POLICIES, "action oracle")
    }


def table(found: dict[str, Any]) -> str:
    """Accuracy and difference with the eleven features, and with the further ones."""
    lines = [
        "| | eleven features | against the selected action | and 18 more | against the selected action |",
        "|---" * 5 + "|",
    ]
    for run, parts in found.items():
        lines.append(f"| *{run}* |" + " |" * 4)
        for name in parts["eleven"]:
            cells = []
            for part in ("eleven", "more"):
                one = parts[part][name]
                gain = one["against"]
                shown = f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]" if name != REFERENCE else ""
                cells += [f"{one['accuracy']:.3f}", shown]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Both benchmarks, with and without the further features."""
    options = out_parser(__doc__).parse_args()
    found = {}
    for run, group in (("locomo-product", "conversation"), ("pool-product", "question")):
        made = panel(rows_of(run), judge="llm")
        found[run] = {"eleven": compare(made, group), "more": compare(add_features(made, run), group)}
    print(table(found))
    keep(found, options.out)


if __name__ == "__main__":
    main()
