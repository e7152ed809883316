"""What the audit asked for, from its runs (bench/prereg/audit.md): Table 12, nine paired retentions, two ablations.

    python -m bench.audit --out bench/results/audit.json

Rows: locomo-independent and its gate, longmemeval-paired, longmemeval-plain, -longer and -rendered. Policies of the
independent evaluation are learned from the model judge's verdicts, frozen, and scored by both judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import RESULTS, grid, keep, out_parser
from bench.doc_tables import at_budget, format_gain, short, title_row
from bench.evaluation import (
    ALPHA,
    DELTA,
    DRAWS,
    JUDGES,
    SEED,
    Array,
    Ways,
    estimate,
    parts,
    round_numbers,
    rows_of,
    ways_to_draw,
)
from bench.fill import fill
from bench.findings import AGNOSTIC, PRESPECIFIED, crossing, gain_of, gains
from bench.first_gate import CAP, against, harm
from bench.runs import ABLATIONS, PAPER
from retcon.lab.crossfit import REFERENCE, Calibrated, Direct, Policy, Rules, always, best_fixed, holdout
from retcon.lab.learn import summarise
from retcon.lab.outcomes import Panel, panel, run_mean
from retcon.lab.report.cells import number
from retcon.note import EXTRACT, RETAIN

SAFE, CERTIFIED, DIRECT, ORACLE = "frozen safe router", "certified router", "direct ridge", "action oracle"
COMPARED = (DIRECT, SAFE, CERTIFIED, "retention")
WRITES = (EXTRACT, *AGNOSTIC)


# -- the independent evaluation ----------------------------------------------------------------------------------------


def independent(judge: str) -> dict[str, Any]:
    """Every policy of the paper's Table 12 on the gate questions."""
    three = parts(rows_of("locomo-independent"), rows_of("locomo-independent-gate"), judge)
    actions = three[0].actions
    policies: dict[str, Policy] = {
        ("retention" if action == RETAIN else f"always {action}"): always(place) for place, action in enumerate(actions)
    }
    policies |= {
        REFERENCE: best_fixed(0), DIRECT: Direct(), SAFE: Calibrated(), CERTIFIED: Calibrated(certified=True)
    }  # fmt: skip
    scored = holdout(*three, policies=policies, rules=Rules(alpha=ALPHA, delta=DELTA, seed=SEED, cap=CAP))
    found = summarise(scored, reference=REFERENCE, draws=DRAWS)
    named = (*policies, ORACLE)
    return {
        "budgets": found["budgets"],
        "parts": {name: len(each.questions) for name, each in zip(("fit", "calibration", "gate"), three, strict=True)},
        "policies": [row for row in found["policies"] if row["policy"] in named],
        "against": {name: against(scored, name, REFERENCE) for name in COMPARED},
        "harm": {name: harm(scored, name) for name in (DIRECT, SAFE, CERTIFIED)},
        "replaced": {name: scored.results[name].replaced.mean(axis=0).tolist() for name in (DIRECT, SAFE, CERTIFIED)},
    }


# -- nine paired retentions --------------------------------------------------------------------------------------------


def paired(judge: str) -> dict[str, Any]:
    """Gains over each operator's own retention and over the three of one operator; the spread of the nine."""
    made = panel(rows_of("longmemeval-paired"), actions=PAPER, judge=judge)
    ways, fits = ways_to_draw(made), (made.fit >= 1).astype(np.float64)
    kept = made.retained[:, :, 1:]  # [q, b, operator, realization]
    each = np.nanmean(kept, axis=0)  # [b, operator, realization]; one reply of 5,400 is missing
    share = np.nanmean(kept, axis=(2, 3))  # [q, b]
    return {
        "questions": len(made.questions), "budgets": list(made.budgets), "gains": gains(made, ways, AGNOSTIC),
        "crossover": crossing(gain_of(made, PRESPECIFIED), fits, made.budgets, ways["by_question"]),
        "crossover_shared": crossing(_shared_gain(made), fits, made.budgets, ways["by_question"]),
        "retentions": [
            {
                "budget": budget, "mean": float(each[b].mean()), "least": float(each[b].min()),
                "most": float(each[b].max()), "deviation": float(each[b].std(ddof=1)),
                "split": float(np.mean((share[:, b] > 0) & (share[:, b] < 1))),
            }
            for b, budget in enumerate(made.budgets)
        ],
        "less_shared": {
            action: [
                estimate(column, ways)["by_question"]
                for column in (gain_of(made, action) - _shared_gain(made, action)).T
            ]
            for action in AGNOSTIC
        },
    }  # fmt: skip


def _shared_gain(made: Panel, action: str = PRESPECIFIED) -> Array:
    """[question, budget]: the gain over Merge's retentions, as where all operators share three."""
    mine, shared = made.actions.index(action), made.actions.index(AGNOSTIC[0])
    return run_mean(made.runs[:, :, mine] - made.retained[:, :, shared])


# -- length and accounting ---------------------------------------------------------------------------------------------


def ablations(judge: str) -> dict[str, Any]:
    """Accuracy and gains as the protocol is, with longer texts asked for, and with everything shown paid for."""
    made = {name: panel(rows_of(f"longmemeval-{name}"), judge=judge) for name in ABLATIONS}
    plain = made["plain"]
    ways = ways_to_draw(plain)
    if any(each.questions != plain.questions for each in made.values()):
        made = {name: _in_order(each, plain) for name, each in made.items()}
    return {
        "questions": len(plain.questions), "budgets": list(plain.budgets),
        "accuracy": {
            name: {action: _column(each, action).mean(axis=0).tolist() for action in (RETAIN, *WRITES)}
            for name, each in made.items()
        },
        "longer": {
            action: _compare(_column(made["longer"], action) - _column(plain, action), ways) for action in AGNOSTIC
        },
        "rendered": {
            action: _compare(_gain(made["rendered"], action) - _gain(plain, action), ways) for action in WRITES
        },
        "rendered_gain": {action: _compare(_gain(made["rendered"], action), ways) for action in WRITES},
        "crossover": {
            name: crossing(
                _gain(each, PRESPECIFIED), (each.fit >= 1).astype(np.float64), each.budgets, ways["by_question"]
            )
            for name, each in made.items()
        },
    }  # fmt: skip


def _in_order(made: Panel, like: Panel) -> Panel:
    place = {name: at for at, name in enumerate(made.questions)}
    return made.take(np.array([place[name] for name in like.questions]))


def _column(made: Panel, action: str) -> Array:
    """[question, budget]"""
    found: Array = made.utility[:, :, made.actions.index(action)]
    return found


def _gain(made: Panel, action: str) -> Array:
    return _column(made, action) - _column(made, RETAIN)


def _compare(gaps: Array, ways: Ways) -> dict[str, Any]:
    """At each budget, and the mean over them."""
    at = [estimate(column, ways)["by_question"] for column in gaps.T]
    return {"budgets": at, "mean": estimate(gaps.mean(axis=1), ways)["by_question"]}


def run() -> dict[str, Any]:
    """All of it, by both judges."""
    found: dict[str, Any] = {"seed": SEED, "draws": DRAWS, "judges": {}}
    for judge in JUDGES:
        found["judges"][judge] = {
            "independent": independent(judge), "paired": paired(judge), "ablations": ablations(judge)
        }  # fmt: skip
    return found | {"fill": {name: fill(rows_of(f"longmemeval-{name}")) for name in ABLATIONS}}


# -- tables ------------------------------------------------------------------------------------------------------------


def _of(found: Mapping[str, Any], part: str) -> tuple[Any, Any]:
    first, second = (found["judges"][judge][part] for judge in JUDGES)
    return first, second


def independent_table(found: Mapping[str, Any]) -> str:
    """The paper's Table 12 on our gate: accuracy (harmful replacements) at each budget."""
    first, second = _of(found, "independent")
    strict = {row["policy"]: row["macro"] for row in second["policies"]}
    rows = []
    for row in first["policies"]:
        name = row["policy"]
        harms = first["harm"].get(name)
        cells = [
            number(value) + (f" ({harms[str(budget)]['harmed']})" if harms else "")
            for value, budget in zip(row["accuracy"], first["budgets"], strict=True)
        ]
        gaps = [
            format_gain(each["against"][name]["by_question"]) if name in COMPARED else "" for each in (first, second)
        ]
        rows.append(
            [name.replace("-agnostic", ""), *cells, number(row["macro"]), gaps[0], number(strict[name]), gaps[1]]
        )
    head = ["policy", *map(str, first["budgets"]), "macro", "less selected", "macro, strict", "less selected, strict"]
    return grid(head, rows)


def paired_table(found: Mapping[str, Any]) -> str:
    """Gains over nine retentions, and how much these differ among themselves."""
    first, second = _of(found, "paired")
    budgets = first["budgets"]
    rows: list[Sequence[str]] = []
    for action in AGNOSTIC:
        for judge, each in zip(JUDGES, (first, second), strict=True):
            cells = [format_gain(row["by_question"]) for row in each["gains"] if row["action"] == action]
            rows.append([f"{short(action)}, {judge}", *cells])
        rows.append(
            [f"{short(action)}, own pairs less those of Merge", *map(format_gain, first["less_shared"][action])]
        )
    spread = [f"{number(at['least'])} to {number(at['most'])}" for at in first["retentions"]]
    rows.append(["whole notes, least and most of nine", *spread])
    return grid(["", *(f"{budget} tokens" for budget in budgets)], rows)


def ablation_table(found: Mapping[str, Any]) -> str:
    """What a longer text, and an accounting that charges everything, change."""
    first, second = _of(found, "ablations")
    budgets = first["budgets"]
    head = ["", *(f"{budget} tokens" for budget in budgets), "mean", "mean, strict"]
    rows: list[Sequence[str]] = [title_row("accuracy, .9 B words less .7 B words", len(head))]
    rows += [_gap_row(first, second, "longer", action) for action in AGNOSTIC]
    rows.append(title_row("gain over whole notes, everything paid for less as the protocol is", len(head)))
    rows += [_gap_row(first, second, "rendered", action) for action in WRITES]
    rows.append(title_row("gain over whole notes, everything paid for", len(head)))
    rows += [_gap_row(first, second, "rendered_gain", action) for action in WRITES]
    return grid(head, rows)


def _gap_row(first: Mapping[str, Any], second: Mapping[str, Any], part: str, action: str) -> list[str]:
    one, two = first[part][action], second[part][action]
    return [short(action), *map(format_gain, one["budgets"]), format_gain(one["mean"]), format_gain(two["mean"])]


def crossover_table(found: Mapping[str, Any]) -> str:
    """Where Abstract stops gaining in each run."""
    rows = []
    for judge in JUDGES:
        pairs, plain = (found["judges"][judge][part] for part in ("paired", "ablations"))
        turns = {
            "nine retentions": (pairs["crossover"], pairs["budgets"]),
            "the same, over Merge's three": (pairs["crossover_shared"], pairs["budgets"]),
            **{f"`{name}`": (turn, plain["budgets"]) for name, turn in plain["crossover"].items()},
        }
        rows.append([judge, *(at_budget(turn, budgets) for turn, budgets in turns.values())])
        names = list(turns)
    return grid(["", *names], rows)


def fill_rows_table(found: Mapping[str, Any]) -> str:
    """How full texts are in the three runs."""
    rows: list[Sequence[str]] = []
    for name, actions in found["fill"].items():
        rows.append([f"*`{name}`*", "", "", "", ""])
        rows += [
            [short(action), *(number(cell["all"], 2) for cell in at.values())] for action, at in actions.items()
        ]  # fmt: skip
    return grid(["", *next(iter(next(iter(found["fill"].values())).values()))], rows)


TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "audit-independent": independent_table,
    "audit-paired": paired_table,
    "audit-ablations": ablation_table,
    "audit-crossover": crossover_table,
    "audit-fill": fill_rows_table,
}


def main() -> None:
    """Run it, keep it."""
    keep(round_numbers(run()), out_parser(__doc__, RESULTS / "audit.json").parse_args().out)


if __name__ == "__main__":
    main()
