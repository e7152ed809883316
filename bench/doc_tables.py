"""The results of the gates, findings, large_budgets, ladder_depth, transfer and judges as the tables of the docs.

`bench.tables` puts them into the pages. Every line stands under both judges; a line of the paper is marked so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import RESULTS, grid
from bench.evaluation import ALPHA, JUDGES
from bench.findings import AGNOSTIC, CONTROLLED, PRESPECIFIED, first_fall
from bench.first_gate import CAPPED, RIVALS, SHIPPED
from bench.judges import ACTIONS, HOW, NAMES
from bench.second_gate import PRIMARY
from bench.transfer import LINES
from retcon.lab.crossfit import REFERENCE, TWICE, VOTE
from retcon.lab.report.cells import bracket, change, number
from retcon.lab.report.published import TABLES

FIRST, SECOND = JUDGES
RUNS = {
    "longmemeval-controlled": "LongMemEval, evidence given", "locomo-controlled": "LoCoMo, evidence given",
    "longmemeval-small": "LongMemEval, evidence given, 0.5B reader", "locomo-history": "LoCoMo, full history",
    "locomo-rewrite": "LoCoMo, full history, Rewrite", "locomo-product": "LoCoMo, as `Memory` does",
    "pool-product": "LongMemEval's pool, as `Memory` does", "locomo-large": "LoCoMo, up to 200 candidates",
    "pool-large": "LongMemEval's pool, up to 200 candidates", "locomo-wide": "LoCoMo, as `Memory` does",
    "pool-wide": "LongMemEval's pool, as `Memory` does",
}  # fmt: skip
PAPER_GAINS = {"longmemeval-controlled": TABLES["operatorstats"], "locomo-controlled": TABLES["locomostats"]}
PAPER_POLICIES = {
    "retention": "Retention", "training-selected operator": "Training-selected fixed operator",
    "evidence-fit rule": "Evidence-fit rule", "k-NN": "k-NN utility router", "direct": "Direct utility",
    "calibrated": "Calibrated-safe",
}  # fmt: skip
SELECTED = "selected action"  # "best fixed action", as the pages call it


def load(name: str) -> Any:
    """A committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def under_both(found: Mapping[str, Any], part: str) -> tuple[Any, Any]:
    """A part of a result by the primary judge, and by the strict one."""
    first, second = (found["judges"][judge][part] for judge in JUDGES)
    return first, second


def title_row(title: str, width: int) -> list[str]:
    """A line that names what follows."""
    return [f"*{title}*", *[""] * (width - 1)]


def format_gain(found: Mapping[str, Any] | None) -> str:
    """A difference with its interval."""
    return "" if found is None else change(found["mean"], found["low"], found["high"])


def format_share(found: Mapping[str, Any]) -> str:
    """A share with its interval."""
    return f"{number(found['rate'])} {bracket(found['low'], found['high'], signed=False)}"


def policy_name(policy: str) -> str:
    """A policy as the pages call it."""
    return policy.replace("best fixed action", SELECTED).replace("best fixed", SELECTED)


def short(action: str) -> str:
    """An action as the pages call it."""
    return action.replace("-agnostic", ", agnostic")


def runs_table(found: Mapping[str, Any]) -> str:
    """What was asked: a line a run, the gate's questions beside those that it was prepared on."""
    head = ("run", "data", "protocol", "questions", "budgets", "actions", "realizations", "outcomes")
    rows, total = [], 0
    for run in found["runs"]:
        cells = len(run["budgets"]) * run["actions"] * run["realizations"]
        apart = run["gate"]
        total += run["outcomes"] + apart * cells
        asked = f"{run['questions']} + {apart} of the gate" if apart else str(run["questions"] or "not made")
        rows.append((
            f"`{run['run']}`", run["data"], run["protocol"], asked, ", ".join(map(str, run["budgets"])),
            str(run["actions"]), str(run["realizations"]), f"{run['outcomes'] + apart * cells:,}",
        ))  # fmt: skip
    return grid(head, [*rows, ("all", *[""] * 6, f"{total:,}")])


# -- crossover ---------------------------------------------------------------------------------------------------------


def crossover_table(found: Mapping[str, Any]) -> str:
    """The prespecified operator against retention at every budget, the paper's gain beside it."""
    head = (
        "budget", "all evidence fits", "retention", "Abstract", "gain", "by conversation", "helped/harmed",
        "gain, strict judge", "by conversation", "gain in the paper",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for run in CONTROLLED:
        first, second = (found["judges"][judge]["crossovers"][run] for judge in JUDGES)
        rows.append(title_row(f"{RUNS[run]}, {first['questions']} questions", len(head)))
        theirs = {row["budget"]: row for row in _published_rows(run, PRESPECIFIED)}
        for one, two, fits in zip(
            of_action(first, PRESPECIFIED), of_action(second, PRESPECIFIED), first["full_fit"], strict=True
        ):
            paper = format_gain(_mean(theirs.get(one["budget"])))
            rows.append((
                str(one["budget"]), number(fits), number(one["retention"]), number(one["accuracy"]),
                format_gain(one["by_question"]), format_gain(one.get("by_conversation")),
                f"{one['helped']}/{one['harmed']}", format_gain(two["by_question"]),
                format_gain(two.get("by_conversation")), paper,
            ))  # fmt: skip
    return grid(head, rows)


def of_action(study: Mapping[str, Any], action: str) -> list[Mapping[str, Any]]:
    return [row for row in study["gains"] if row["action"] == action]


def _published_rows(run: str, action: str) -> list[Mapping[str, Any]]:
    rows = PAPER_GAINS[run].rows if run in PAPER_GAINS else ()
    return [row for row in rows if row["operator"] == action.removesuffix("-agnostic")]


def _mean(row: Mapping[str, Any] | None) -> dict[str, float] | None:
    return None if row is None else {"mean": row["gain"], "low": row["low"], "high": row["high"]}


def zero_table(found: Mapping[str, Any]) -> str:
    """Where each of the paper's operators stops gaining over retention."""
    head = (
        "operator", "tokens", "by conversation", "resamples without a zero", "share that fits whole there",
        "tokens, strict judge", "in the paper",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for run in CONTROLLED:
        first, second = (found["judges"][judge]["crossovers"][run] for judge in JUDGES)
        rows.append(title_row(RUNS[run], len(head)))
        for action in AGNOSTIC:
            one, two = first["crossover"][action], second["crossover"][action]
            fits = one["by_question"]["full_fit"]
            rows.append((
                short(action), at_budget(one["by_question"], first["budgets"]),
                at_budget(one.get("by_conversation"), first["budgets"]), _percent(one["by_question"]["no_zero"]),
                "" if fits["share"] is None else format_share({**fits, "rate": fits["share"]}),
                at_budget(two["by_question"], second["budgets"]), _zero(_published_rows(run, action)),
            ))  # fmt: skip
    return grid(head, rows)


def at_budget(turn: Mapping[str, Any] | None, budgets: Sequence[int]) -> str:
    """A budget with its interval; an end that lies outside the budgets is called so."""
    if turn is None:
        return ""
    if turn["side"] != "inside":
        return f"above {budgets[-1]}" if turn["side"] == "above" else f"below {budgets[0]}"
    low = f"under {budgets[0]}" if turn["low"] is None else f"{turn['low']:.0f}"
    high = f"over {budgets[-1]}" if turn["high"] is None else f"{turn['high']:.0f}"
    return f"{turn['budget']:.0f} [{low}, {high}]"


def _zero(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    places = np.log2([[row["budget"] for row in rows]])
    place = first_fall(places, np.array([[row["gain"] for row in rows]]))[0]
    return "" if np.isnan(place) else f"{2**place:.0f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


# -- operators against operators ---------------------------------------------------------------------------------------


def pairs_table(found: Mapping[str, Any], which: str) -> str:
    """Differences at the first and last budget and over all, under both judges."""
    runs = found["judges"][FIRST]["operators"]
    head = ("pair", "smallest budget", "2nd", "3rd", "largest", "mean", "by conversation", "mean, strict judge")
    rows: list[Sequence[str]] = []
    for run, parts in runs.items():
        budgets = list(parts[which][0]["budgets"])
        rows.append(title_row(f"{RUNS[run]}: {', '.join(budgets)} tokens", len(head)))
        others = found["judges"][SECOND]["operators"][run][which]
        for one, two in zip(parts[which], others, strict=True):
            rows.append((
                f"{short(one['first'])} - {short(one['second'])}",
                *(format_gain(one["budgets"][budget]["by_question"]) for budget in budgets),
                format_gain(one["mean"]["by_question"]), format_gain(one["mean"].get("by_conversation")),
                format_gain(two["mean"]["by_question"]),
            ))  # fmt: skip
    return grid(head, rows)


def gains_table(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Every action of some runs against retention at every budget: accuracy and gain, and the gain by `strict`."""
    budgets = next(iter(first.values()))["budgets"]
    head = ("action", *(f"{b:,} tokens: accuracy, gain" for b in budgets), *(f"gain at {b:,}, strict" for b in budgets))
    rows: list[Sequence[str]] = []
    for run, study in first.items():
        retained = {row["budget"]: number(row["retention"]) for row in study["gains"]}
        rows.append(title_row(f"{RUNS[run]}, {study['questions']} questions", len(head)))
        rows.append(["retain", *retained.values(), *[""] * len(budgets)])
        for action in dict.fromkeys(row["action"] for row in study["gains"]):
            one, two = of_action(study, action), of_action(second[run], action)
            rows.append((
                short(action), *(f"{number(row['accuracy'])}, {format_gain(row['by_question'])}" for row in one),
                *(format_gain(row["by_question"]) for row in two),
            ))  # fmt: skip
    return grid(head, rows)


def realizations_table(found: Mapping[str, Any]) -> str:
    """Gains averaged over three realizations, and of each alone."""
    head = (
        "operator",
        "budget",
        "gain, averaged",
        "each alone",
        "verdicts that differ",
        "gain, strict judge",
        "in the paper",
    )
    first, second = under_both(found, "realizations")
    rows = []
    for one, two in zip(first["gains"], second["gains"], strict=True):
        theirs = {row["budget"]: row for row in _published_rows("longmemeval-controlled", one["action"])}
        rows.append((
            short(one["action"]), str(one["budget"]), format_gain(one["by_question"]),
            ", ".join(number(value, signed=True) for value in one["single"]), _percent(one["disagree"]),
            format_gain(two["by_question"]), format_gain(_mean(theirs.get(one["budget"]))),
        ))  # fmt: skip
    return grid(head, rows)


def unsupported_table(found: Mapping[str, Any]) -> str:
    """Records with a claim that the guard finds in no source."""
    runs = found["unsupported"]
    actions = list(dict.fromkeys(action for parts in runs.values() for action in parts))
    rows = [
        [RUNS[run], *(format_share({**parts[a], "rate": parts[a]["mean"]}) if a in parts else "" for a in actions)]
        for run, parts in runs.items()
    ]
    return grid(["run", *map(short, actions)], rows)


# -- budgets above the learned ones ------------------------------------------------------------------------------------


def context_tokens_table(found: Mapping[str, Any]) -> str:
    """How many tokens each action fills, where there are candidates for all of them."""
    studies = found["judges"][FIRST]["large"]
    head = ["run", *(f"{budget:,}" for budget in next(iter(studies.values()))["budgets"])]
    return grid(head, [
        [f"{RUNS[run]}: {action}", *(f"{round(tokens):,}" for tokens in used)]
        for run, study in studies.items() for action, used in study["context_tokens"].items()
    ])  # fmt: skip


def large_budgets_table(found: Mapping[str, Any]) -> str:
    """The routers that ship, above the budgets that they were learned at."""
    first, second = under_both(found, "wide")
    head = (
        "policy",
        "tokens",
        "right",
        "against whole notes",
        "notes replaced",
        "calls",
        "against whole notes, strict",
    )
    rows: list[Sequence[str]] = []
    for run, study in first.items():
        rows.append(title_row(f"{RUNS[run]}, {study['fresh']} questions that these did not learn from", len(head)))
        for b, budget in enumerate(study["budgets"]):
            rows.append(("whole notes", f"{budget:,}", number(study["retention"][b]), "", "", "1.00", ""))
            for router, looks in study["routers"].items():
                for look, one in looks.items():
                    two = second[run]["routers"][router][look]
                    rows.append((
                        f"`{router}`, {look}", f"{budget:,}", number(one["accuracy"][b]),
                        format_gain(one["gain"][b]["by_question"]), _percent(one["replaced"][b]),
                        f"{one['calls'][b]:.2f}", format_gain(two["gain"][b]["by_question"]),
                    ))  # fmt: skip
    return grid(head, rows)


def ladder_depth_table(found: Mapping[str, Any]) -> str:
    """Right answers and false ones by how many looks a shipped ladder may take."""
    first, second = (found["judges"][judge] for judge in JUDGES)
    head = (
        "ladder", "looks at most", "right", "less the line above", "right, strict judge", "less the line above",
        "calls", "false answers", "less the line above",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for run, study in first.items():
        told = f"{study['questions']} questions, {study['unanswerable']} others without an answer"
        rows.append(title_row(f"{RUNS[run]}: {told}", len(head)))
        for router, looks in study["routers"].items():
            for one, two in zip(looks, second[run]["routers"][router], strict=True):
                more = (
                    format_gain((part or {}).get("by_question"))
                    for part in (one["gain"], two["gain"], one["more_false"])
                )
                rows.append((
                    f"`{router}`", one["looks"], number(one["right"]), next(more), number(two["right"]),
                    next(more), f"{one['calls']:.2f}", number(one["false"]), next(more),
                ))  # fmt: skip
    return grid(head, rows)


# -- policies ----------------------------------------------------------------------------------------------------------


def routing_table(found: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Every policy of some cross-fits, against the action selected on training questions."""
    first, second = under_both(found, "routing")
    budgets = first[keys[0]]["budgets"]
    head = (
        "policy", *map(str, budgets), "mean", "against the selected action", "harmed", "calls", "mean, strict",
        "against the selected action, strict", "in the paper",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for key in keys:
        study = first[key]
        actions = ", ".join(map(short, study["actions"]))
        rows.append(title_row(f"{RUNS[study['run']]}: {actions}; {study['repeats']} ways to deal the folds", len(head)))
        others = {row["policy"]: row for row in second[key]["policies"]}
        for row in study["policies"]:
            theirs = _paper_policy(row["policy"]) if key == "longmemeval-paper" else ""
            rows.append(_policy(row, others[row["policy"]], theirs))
    return grid(head, rows)


def _policy(row: Mapping[str, Any], other: Mapping[str, Any], theirs: str) -> list[str]:
    return [
        _bold(policy_name(row["policy"])), *("" if value is None else number(value) for value in row["accuracy"]),
        number(row["macro"]), format_gain(row["against"]), number(row["harm"]), f"{row['calls']:.2f}",
        number(other["macro"]), format_gain(other["against"]), theirs,
    ]  # fmt: skip


def _paper_policy(policy: str) -> str:
    name = PAPER_POLICIES.get(policy)
    rows = [row for row in TABLES["routerbaselines"].rows if row["policy"] == name]
    return ", ".join(number(row["accuracy"]) for row in rows)


def _bold(policy: str) -> str:
    return f"**{policy}**" if policy == SHIPPED else policy


def transfer_table(found: Mapping[str, Any], choice: str) -> str:
    """Policies learned on one benchmark and scored on the other."""
    head = (
        "policy", "eleven features", "against the selected action", "six features", "against the selected action",
        "by conversation", "harmed", "calls", "six, strict judge", "against the selected action", "at home",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for way, parts in found["judges"][FIRST].items():
        eleven, six = (_by_policy(parts[choice][size]) for size in ("eleven", "six"))
        strict = _by_policy(found["judges"][SECOND][way][choice]["six"])
        counts = parts[choice]["six"]
        said = f"{way}: {counts['learned']} learned from, {counts['calibrated']} calibrate, {counts['scored']} scored"
        rows.append(title_row(said, len(head)))
        for name in LINES:
            if name not in (VOTE, "action oracle") or name in eleven:
                rows.append(_transfer_row(name, eleven[name], six[name], strict[name]))
    return grid(head, rows)


def _by_policy(part: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["policy"]: row for row in part["policies"]}


def _transfer_row(name: str, eleven: Mapping[str, Any], six: Mapping[str, Any], strict: Mapping[str, Any]) -> list[str]:
    def against(row: Mapping[str, Any], how: str = "by_question") -> str:
        return "" if row["against"] is None else format_gain(row["against"].get(how))

    return [
        _bold(policy_name(name)), number(eleven["macro"]), against(eleven), number(six["macro"]), against(six),
        against(six, "by_conversation"), number(six["harm"]), f"{six['calls']:.2f}", number(strict["macro"]),
        against(strict), number(six["home"]),
    ]  # fmt: skip


def deals_table(found: Mapping[str, Any]) -> str:
    """How much the luck of the split moves each policy."""
    head = ("policy", "eleven features", "six features", "eleven, strict judge", "six, strict judge")
    parts = [found["dealt_again"][judge][size] for judge in JUDGES for size in ("eleven", "six")]
    return grid(head, [[policy_name(name), *(_deal(part[name]) for part in parts)] for name in parts[0]])


def _deal(part: Mapping[str, Any]) -> str:
    return f"{number(part['mean'])} ({number(part['least'])} to {number(part['most'])})"


# -- the gate ----------------------------------------------------------------------------------------------------------


def harm_table(gate: Mapping[str, Any]) -> str:
    """Harmed questions at each budget with exact intervals."""
    budgets = gate["judges"][FIRST]["budgets"]
    head = ("policy, judge", *(f"{budget} tokens" for budget in budgets))
    rows = [
        [f"{name}, {judge}", *(_harm(gate["judges"][judge]["harm"][name][str(budget)]) for budget in budgets)]
        for judge in JUDGES
        for name in (SHIPPED, "direct", "calibrated", CAPPED, "certified")
    ]
    return grid(head, rows)


def _harm(part: Mapping[str, Any]) -> str:
    text = f"{part['harmed']} of {part['n']}: {format_share(part)}"
    return f"**{text}**" if part["high"] <= ALPHA else text


def rivals_table(gate: Mapping[str, Any]) -> str:
    """The ladder against other ways to spend as much."""
    head = (
        "ladder less",
        "difference",
        "by conversation",
        "calls: ladder, rival",
        "difference, strict judge",
        "by conversation",
    )
    rows = []
    for name in (REFERENCE, *RIVALS):
        one, two = (
            gate["judges"][j]["primary"] if name == REFERENCE else gate["judges"][j]["rivals"][name] for j in JUDGES
        )
        spent = ", ".join(f"{calls:.2f}" for calls in one["calls"])
        only = "" if name != TWICE else " (32 to 128)"
        rows.append((
            policy_name(name) + only, format_gain(one["by_question"]), format_gain(one["by_conversation"]), spent,
            format_gain(two["by_question"]), format_gain(two["by_conversation"]),
        ))  # fmt: skip
    return grid(head, rows)


BESIDE = {
    "six_features": "six features (what ships)", "no_model": "no model writes: retain, extract",
    "across": "learned on LongMemEval's pool", "across_no_model": "learned on LongMemEval's pool, no model writes",
}  # fmt: skip


def addendum_table(gate: Mapping[str, Any]) -> str:
    """What the addendum asked for beside the primary comparison."""
    head = (
        "policy", "mean", "against the selected action", "harmed", "calls", "mean, strict judge",
        "against the selected action",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for key, title in BESIDE.items():
        first, second = (gate["judges"][judge][key] for judge in JUDGES)
        gap = first["gap_closed"]
        closed = f"{number(gap['share'])} {bracket(gap['low'], gap['high'], signed=False)}"
        said = f"{title}; of the oracle's gap the ladder closes {closed}"
        rows.append(title_row(said, len(head)))
        others = _by_policy(second)
        for row in first["policies"]:
            two = others[row["policy"]]
            rows.append((
                _bold(policy_name(row["policy"])), number(row["macro"]), format_gain(row["against"]),
                number(row["harm"]), f"{row['calls']:.2f}", number(two["macro"]), format_gain(two["against"]),
            ))  # fmt: skip
    return grid(head, rows)


PAPER_GATE = {
    "retention": "Retention", "always abstract": "Fixed abstract", "always merge": "Fixed merge",
    REFERENCE: "Per-budget policy selected on fit data", "direct": "Direct ridge", CAPPED: "Frozen safe router",
    "action oracle": "Action oracle",
}  # fmt: skip


def paper_gate_table(gate: Mapping[str, Any]) -> str:
    """The paper's independent evaluation beside ours: other data, another model, fewer actions."""
    theirs = {row["policy"]: row["macro"] for row in TABLES["routeAgate"].rows}
    ours = _by_policy(gate["judges"][FIRST])
    base = ours[REFERENCE]["macro"], theirs[PAPER_GATE[REFERENCE]]
    head = ("policy", "ours", "less the selected action", "the paper's", "less the selected action")
    rows = []
    for name, known in PAPER_GATE.items():
        pair = ours[name]["macro"], theirs[known]
        gaps = [number(value - level, signed=True) for value, level in zip(pair, base, strict=True)]
        rows.append((policy_name(name), number(pair[0]), gaps[0], number(pair[1]), gaps[1]))
    return grid(head, rows)


def spend_table(gate: Mapping[str, Any]) -> str:
    """The ladder at several prices of a call."""
    head = ("price of a call", "accuracy", "calls", "tokens read", "tokens written", "accuracy, strict judge", "calls")
    first, second = (gate["judges"][judge]["spend"] for judge in JUDGES)
    rows = [
        (
            number(one["price"], 2), number(one["utility"]), f"{one['calls']:.2f}", f"{one['read']:.0f}",
            f"{one['generated']:.0f}", number(two["utility"]), f"{two['calls']:.2f}",
        )
        for one, two in zip(first, second, strict=True)
    ]  # fmt: skip
    return grid(head, rows)


def false_answers_table(gate: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """How often a question gets an answer that memory does not hold."""
    locomo, pool = (each["false_answers"] for each in (gate, found))
    head = (
        "policy", f"LoCoMo, {locomo['questions']} questions", "less retention", "32, 64, 128, 256 tokens", "calls",
        f"LongMemEval, {pool['questions']} questions", "less retention", "32, 64, 128, 256 tokens",
    )  # fmt: skip
    rows = []
    for name, one in locomo["policies"].items():
        first, second = _false(name, one), _false(name, pool["policies"][name])
        rows.append((_bold(policy_name(name)), *first, f"{one['calls']:.2f}", *second))
    return grid(head, rows)


def _false(name: str, part: Mapping[str, Any]) -> list[str]:
    more = "" if name == "retention" else format_gain(part["less_retention"])
    return [format_share({**part, "rate": part["mean"]}), more, ", ".join(map(number, part["rate"]))]


def second_table(found: Mapping[str, Any]) -> str:
    """Every policy of the second gate, with the questions it harmed at each budget."""
    first, second = (found["judges"][judge] for judge in JUDGES)
    budgets = first["budgets"]
    head = (
        "policy", *map(str, budgets), "mean", "against the selected action", f"harmed, of {first['questions']}",
        "calls", "tokens", "mean, strict", "against the selected action, strict", "harmed, strict",
    )  # fmt: skip
    rows = []
    for one, two in zip(first["policies"], second["policies"], strict=True):
        name = policy_name(one["policy"])
        rows.append((
            f"**{name}**" if one["policy"] == PRIMARY else name, *map(number, one["accuracy"]), number(one["macro"]),
            _by_question(one["against"]), ", ".join(map(str, one["harms"])), f"{one['calls']:.2f}",
            f"{one['tokens']:.0f}", number(two["macro"]), _by_question(two["against"]),
            ", ".join(map(str, two["harms"])),
        ))  # fmt: skip
    return grid(head, rows)


def _by_question(found: Mapping[str, Any] | None) -> str:
    return format_gain(None if found is None else found["by_question"])


# -- judges ------------------------------------------------------------------------------------------------------------


def trust_table(found: Mapping[str, Any]) -> str:
    """Each judge against the labels."""
    head = (
        "judge",
        "agrees with the label",
        "precision",
        "recall",
        "wrong answers let pass",
        "says right",
        "labelled right",
    )
    rows: list[Sequence[str]] = []
    for which, judges in found["judges"].items():
        rows.append(title_row(f"{which}, {judges[FIRST]['all']['accuracy']['n']} answers", len(head)))
        rows += [[name, *_trust(judges[name]["all"])] for name in NAMES]
    return grid(head, rows)


def _trust(part: Mapping[str, Any]) -> list[str]:
    cells = [
        f"{part[name]['k']} of {part[name]['n']}: {format_share(part[name])}"
        for name in ("accuracy", "precision", "recall", "let_pass")
    ]
    return [*cells, number(part["says_right"]), number(part["is_right"])]


def actions_table(found: Mapping[str, Any]) -> str:
    """What each judge adds to the share of right answers, action by action."""
    head = ("judge, labels", *ACTIONS, "largest difference", "p")
    rows = []
    for which, judges in found["judges"].items():
        for name in NAMES:
            part = judges[name]["favours"]
            added = [number(part["added"][action], signed=True) for action in ACTIONS]
            rows.append((f"{name}, {which}", *added, number(part["largest_difference"]), number(part["p"])))
    return grid(head, rows)


CORRECTED = (REFERENCE, "direct", SHIPPED)


def corrected_table(found: Mapping[str, Any]) -> str:
    """Policies as judged, and with what the judge lets pass taken back."""
    head = (
        "policy", "answers", "judged right", "right, corrected", "less the selected action, as judged",
        *(f"corrected: {how}" for how in HOW),
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for judge, parts in found["gains"].items():
        for which, policies in parts.items():
            rows.append(title_row(f"judge {judge}, {which}", len(head)))
            few = which != next(iter(parts))  # fixed actions once are enough
            rows += [_corrected_row(name, part) for name, part in policies.items() if not few or name in CORRECTED]
    return grid(head, rows)


def _corrected_row(name: str, part: Mapping[str, Any]) -> list[str]:
    cells = [_bold(policy_name(name)), number(part["answered"]), number(part["judged"]), number(part["corrected"])]
    if "best fixed" in name:
        return [*cells, *[""] * (1 + len(HOW))]
    return [*cells, format_gain(part["against"]), *(format_gain(part["corrections"][how]) for how in HOW)]


# -- by name -----------------------------------------------------------------------------------------------------------


def tables() -> dict[str, Callable[[], str]]:
    """The tables of the pages by name, each made when it is asked for."""
    return {
        "gate-harm": lambda: harm_table(load("first_gate")),
        "gate-rivals": lambda: rivals_table(load("first_gate")),
        "gate-beside": lambda: addendum_table(load("first_gate")),
        "gate-paper": lambda: paper_gate_table(load("first_gate")),
        "runs": lambda: runs_table(load("findings")),
        "second": lambda: second_table(load("second_gate")),
        "gate-spend": lambda: spend_table(load("first_gate")),
        "false-answers": lambda: false_answers_table(load("first_gate"), load("findings")),
        "crossover": lambda: crossover_table(load("findings")),
        "crossover-zero": lambda: zero_table(load("findings")),
        "extract-pairs": lambda: pairs_table(load("findings"), "extract"),
        "focused-pairs": lambda: pairs_table(load("findings"), "focused"),
        "history": lambda: gains_table(*under_both(load("findings"), "history")),
        "realizations": lambda: realizations_table(load("findings")),
        "unsupported": lambda: unsupported_table(load("findings")),
        "large": lambda: gains_table(*under_both(load("large_budgets"), "large")),
        "large-used": lambda: context_tokens_table(load("large_budgets")),
        "wide": lambda: gains_table(*under_both(load("large_budgets"), "wide")),
        "climb": lambda: ladder_depth_table(load("ladder_depth")),
        "beyond": lambda: large_budgets_table(load("large_budgets")),
        "routing": lambda: routing_table(load("findings"), ("longmemeval-paper", "longmemeval-all")),
        "routing-history": lambda: routing_table(load("findings"), ("history-paper", "history-all")),
        "across": lambda: transfer_table(load("transfer"), "five"),
        "across-no-model": lambda: transfer_table(load("transfer"), "no model"),
        "across-deals": lambda: deals_table(load("transfer")),
        "judges-trust": lambda: trust_table(load("judges")),
        "judges-actions": lambda: actions_table(load("judges")),
        "judges-corrected": lambda: corrected_table(load("judges")),
    }
