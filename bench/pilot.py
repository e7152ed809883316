"""What routers and ladders come to on measured outcomes: every policy cross-fitted, under two judges.

    python -m bench.pilot --out bench/results/pilot.json

The outcomes are of a 1.5B model (RETCON_PILOT names the file): LongMemEval with gold evidence, 300 questions, and
LoCoMo after BM25, 120 questions of ten conversations; 32 to 256 tokens, one greedy realization. Each policy is learned
on three folds, calibrated on one and tested on one, in rotation, and this for twenty ways to deal the folds; k-NN and
the MLP, which cost more, for one. Folds are dealt by question, or by conversation on LoCoMo. Intervals are paired
bootstraps over the same unit. The last part times a decision. The result holds numbers, no text of any benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from bench import data_file, grid, keep, out_parser, pilot_file
from retcon.features import FEATURES, spread
from retcon.lab import fit
from retcon.lab import fit_ladder as ladder
from retcon.lab.crossfit import (
    LEARNERS,
    REFERENCE,
    TWICE,
    VOTE,
    CrossFit,
    Direct,
    Policy,
    Rules,
    crossfit,
    default_policies,
)
from retcon.lab.data import datasets
from retcon.lab.learn import summarise
from retcon.lab.outcomes import Outcomes, Panel, panel, read
from retcon.model import embedder
from retcon.route import Router

JUDGES = ("llm", "overlap")
REPEATS, DRAWS, SEED = 20, 10_000, 0
ONCE = ("k-NN", "MLP")
AGAIN = "best fixed, asked again"  # one greedy realization: the same reply once more
LINEAR = {"direct": "ridge", "standardised": "ridge-standardised", "gain": "gain"}
FOCUSED = ("retain", "extract", "qabstract", "qmerge", "hybrid")


@dataclass(frozen=True, slots=True)
class PilotStudy:
    """One set of actions on one benchmark."""

    key: str
    title: str
    dataset: str
    setting: str
    actions: tuple[str, ...]
    group: str


STUDIES = (
    PilotStudy(
        "controlled", "LongMemEval controlled", "longmemeval", "controlled",
        ("retain", "abstract", "merge", "rewrite"), "question",
    ),
    PilotStudy(
        "history", "LoCoMo full history", "locomo", "full-history", ("retain", "abstract", "merge"), "conversation",
    ),
    PilotStudy("ladders-controlled", "LongMemEval controlled", "longmemeval", "controlled", FOCUSED, "question"),
    PilotStudy("ladders-history", "LoCoMo full history", "locomo", "full-history", FOCUSED, "conversation"),
    PilotStudy(
        "no-model", "LoCoMo full history, no model writes", "locomo", "full-history", ("retain", "extract", "trunc"),
        "conversation",
    ),
)  # fmt: skip


# -- policies ----------------------------------------------------------------------------------------------------------


def run(
    outcomes: Outcomes, *, repeats: int = REPEATS, draws: int = DRAWS, studies: Sequence[PilotStudy] = STUDIES
) -> list[dict[str, Any]]:
    """The summaries of every study under both judges."""
    found = []
    total = len(studies) * len(JUDGES) * (repeats + 1) * 5
    with Progress(console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("cross-fitting", total=total)
        for study in studies:
            for judge in JUDGES:
                found.append(_study(outcomes, study, judge, repeats, draws, lambda *_: drawn.advance(task)))
    return found


def _study(
    outcomes: Outcomes, study: PilotStudy, judge: str, repeats: int, draws: int, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    rows = outcomes.where(dataset=study.dataset, setting=study.setting)
    made, rules = panel(rows, actions=study.actions, judge=judge), Rules(group=study.group, seed=SEED)
    every = default_policies(made)
    many = {name: policy for name, policy in every.items() if name not in (*ONCE, AGAIN)}
    few = {name: policy for name, policy in every.items() if name in (*ONCE, REFERENCE)}
    fitted = crossfit(made, policies=many, rules=rules, repeats=repeats, progress=progress)
    once = crossfit(made, policies=few, rules=rules, progress=progress)
    summary = summarise(fitted, reference=REFERENCE, draws=draws)
    more = [row for row in summarise(once, reference=REFERENCE, draws=draws)["policies"] if row["policy"] in ONCE]
    return {
        "study": study.key,
        "title": study.title,
        **summary,
        "once": more,
        "rivals": [_rival(fitted, rival, draws) for rival in (TWICE, VOTE)],
    }


def _rival(fitted: CrossFit, rival: str, draws: int) -> dict[str, Any]:
    """The ladders against another way to spend as much, over the budgets that both have."""
    against = {row["policy"]: row["against"] for row in summarise(fitted, reference=rival, draws=draws)["policies"]}
    there = fitted.results[rival].seen
    names = ("ladder", "ladder, one order a budget")

    def part(name: str) -> dict[str, float]:
        each = fitted.results[name]
        return {
            "accuracy": float(each.utility[there].mean()),
            "calls": float(each.calls[there].mean()),
            "tokens": float((each.read + each.generated)[there].mean()),
        }

    return {"rival": rival, **part(rival), "ladders": [{"policy": n, **part(n), "against": against[n]} for n in names]}


# -- features ----------------------------------------------------------------------------------------------------------


def features(outcomes: Outcomes, *, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """The direct router of the controlled study with more features and with guessed types, on the same folds."""
    study = STUDIES[0]
    rows = outcomes.where(dataset=study.dataset, setting=study.setting)
    found = datasets.load("longmemeval-gold", folder=data_file("longmemeval_gold_evidence_500.json").parent)
    asked = {question.id: question for question in found.questions}
    plain = panel(rows, actions=study.actions)
    texts = {name: asked[name].text for name in plain.questions}
    made: dict[str, tuple[Panel, Mapping[str, str] | None]] = {
        "the nine of the rows": (plain, None),
        "and two of embeddings (hashing)": (panel(_embed(rows, asked, "hashing"), actions=study.actions), None),
        "and two of embeddings (wordllama)": (panel(_embed(rows, asked, "wordllama"), actions=study.actions), None),
        "the nine, types guessed": (plain, texts),
        "the nine less the types": (replace(plain, x=plain.x[:, :, :5], features=plain.features[:5]), None),
    }
    dealt = [fit.folds(np.arange(len(plain.questions)), 5, seed=SEED + repeat) for repeat in range(repeats)]
    by_name = [dict(zip(plain.questions, folds.tolist(), strict=True)) for folds in dealt]
    return [{"features": name, **_direct(*each, by_name)} for name, each in made.items()]


def _embed(rows: Outcomes, asked: Mapping[str, Any], name: str) -> Outcomes:
    embed, ids = embedder(name), rows.columns["question_id"].tolist()
    seen = {each: spread(embed([note.text for note in asked[each].evidence])) for each in set(ids)}
    new = {part: np.array([seen[each][i] for each in ids]) for i, part in enumerate(("inconsistency", "similarity"))}
    return Outcomes({**rows.columns, **new})


def _direct(
    made: Panel, texts: Mapping[str, str] | None, by_name: Iterable[Mapping[str, int]]
) -> dict[str, float]:  # fmt: skip
    policies: dict[str, Policy] = {name: Direct(estimator) for name, estimator in LINEAR.items()}
    policies[REFERENCE] = LEARNERS[REFERENCE]
    found: dict[str, list[float]] = {name: [] for name in policies}
    for folds in by_name:
        fold_of = np.array([folds[name] for name in made.questions])
        results = crossfit(made, policies=policies, fold_of=fold_of, queries=texts).results
        for name, values in found.items():
            values.append(results[name].macro)
    return {name: float(np.mean(values)) for name, values in found.items()}


# -- how long a decision takes -----------------------------------------------------------------------------------------


def decide_time(outcomes: Outcomes) -> dict[str, float]:
    """Microseconds of a decision with and without a ladder, and how many dict lookups in a loop take as long."""
    made = panel(outcomes.where(dataset="longmemeval", setting="controlled"), actions=FOCUSED)
    plain, learned = fit.fit(made, name="timed"), ladder.fit_ladder(made)
    seen = dict(zip(made.features, made.x[7, 1].tolist(), strict=True))
    x = [seen.get(name, 0.0) for name in FEATURES]
    table = {str(number): number for number in range(1000)}
    keys = list(table)

    def lookups() -> None:
        for key in keys:
            table[key]

    def decides(router: Router) -> Callable[[], object]:
        return lambda: [router.decide(x, budget=64) for _ in range(200)]

    lookup = _best(lookups) / 1000
    one, two = (_best(decides(router)) / 200 for router in (plain, replace(plain, ladder=learned)))
    return {
        "router_us": 1e6 * one, "ladder_us": 1e6 * two, "orders": len(learned.orders),
        "router_lookups": one / lookup, "ladder_lookups": two / lookup,
    }  # fmt: skip


def _best(call: Callable[[], object], repeats: int = 25) -> float:
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


# -- showing -----------------------------------------------------------------------------------------------------------


def tables(result: Mapping[str, Any]) -> dict[str, str]:
    """The tables of docs/learning.md and docs/ladder.md by name."""
    by = {(each["study"], each["judge"]): each for each in result["studies"]}
    return {
        "pilot-controlled": _table(by, ("controlled",)),
        "pilot-history": _table(by, ("history",)),
        "pilot-ladders": _table(by, ("ladders-controlled", "ladders-history"), short=True),
        "pilot-rivals": _rivals(by),
        "pilot-no-model": _table(by, ("no-model",), short=True),
        "pilot-features": _features(result["features"]),
        "pilot-decide": _decide(result["decide"]),
    }


_SHORT = (
    "retention", "best fixed action", "direct", "calibrated", "ladder", "ladder, one order a budget", TWICE, VOTE,
    "action oracle",
)  # fmt: skip
_LAST = ("binary oracle", "action oracle")
_BOLD = ("direct", "ladder")


def _table(by: Mapping[tuple[str, str], Any], keys: Sequence[str], *, short: bool = False) -> str:
    budgets = by[keys[0], "llm"]["budgets"]
    tail = ("mean", "against best fixed", "harmed", "calls", "overlap: mean", "against best fixed")
    head, lines = ["policy", *map(str, budgets), *tail], []
    for key in keys:
        first, second = by[key, "llm"], by[key, "overlap"]
        unit = f"{first['questions']} questions" + (
            f" of {first['conversations']} conversations" if first["group"] == "conversation" else ""
        )
        lines.append([f"*{first['title']}: {', '.join(first['actions'])}; {unit}*"])
        other = {row["policy"]: row for row in _rows(second)}
        for row in _rows(first):
            if not short or row["policy"] in _SHORT:
                lines.append(_line(row, other[row["policy"]], first))
    return grid(head, lines)


def _rows(study: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The policies as they are shown: those run once after those run often, oracles last."""
    often = [row for row in study["policies"] if row["policy"] not in _LAST]
    return [*often, *study["once"], *(row for row in study["policies"] if row["policy"] in _LAST)]


def _line(row: Mapping[str, Any], other: Mapping[str, Any], study: Mapping[str, Any]) -> list[str]:
    name = f"**{row['policy']}**" if row["policy"] in _BOLD else row["policy"]
    harms = [value for value in row["harms"] if value is not None]
    return [
        name + (" (1 repeat)" if row["policy"] in ONCE else ""),
        *("" if value is None else _share(value) for value in row["accuracy"]), _share(row["macro"]),
        _against(row["against"]), f"{sum(harms):.1f} of {len(harms) * study['questions']:,}", f"{row['calls']:.2f}",
        _share(other["macro"]), _against(other["against"]),
    ]  # fmt: skip


def _rivals(by: Mapping[tuple[str, str], Any]) -> str:
    head = (
        "actions",
        "judge",
        "rival",
        "its accuracy, calls, tokens",
        "the ladder's, same budgets",
        "ladder less rival",
    )
    lines: list[Sequence[str]] = []
    for (_, judge), study in by.items():
        if judge == JUDGES[0]:
            lines.append([f"*{study['title']}: {', '.join(study['actions'])}*"])
        for rival in study["rivals"]:
            ours = rival["ladders"][0]
            lines.append(("", judge, rival["rival"], _spend_cell(rival), _spend_cell(ours), _against(ours["against"])))
    return grid(head, lines)


def _spend_cell(part: Mapping[str, Any]) -> str:
    return f"{_share(part['accuracy'])}, {part['calls']:.2f}, {part['tokens']:.0f}"


def _features(rows: Sequence[Mapping[str, Any]]) -> str:
    names = (*LINEAR, REFERENCE)
    return grid(["features", *names], [[row["features"], *(_share(row[n]) for n in names)] for row in rows])


def _decide(found: Mapping[str, float]) -> str:
    return (
        f"One decision took {found['router_us']:.0f} µs ({found['router_lookups']:.0f} dict lookups in a loop take as"
        f" long), with a ladder of {found['orders']:.0f} orders {found['ladder_us']:.0f} µs"
        f" ({found['ladder_lookups']:.0f})."
    )


def _against(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{_format_gain(found['mean'])} [{_format_gain(found['low'])}, {_format_gain(found['high'])}]"


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _format_gain(value: float) -> str:
    return f"{value:+.3f}".replace("0.", ".", 1)


def main() -> None:
    """Measure, print, keep."""
    parser = out_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    outcomes = read(pilot_file())
    result = {
        "rows": len(outcomes), "repeats": options.repeats, "draws": DRAWS, "seed": SEED,
        "sets": [asdict(study) for study in STUDIES],
        "studies": run(outcomes, repeats=options.repeats),
        "features": features(outcomes, repeats=options.repeats),
        "decide": decide_time(outcomes),
    }  # fmt: skip
    for name, text in tables(result).items():
        print(f"{name}\n\n{text}\n")
    keep(result, options.out)


if __name__ == "__main__":
    main()
