"""The tables that sum the evaluation up: both gates, unanswerable questions in their own share, spend, order, fill.

`bench.tables` puts them into the pages, as it does those of `doc_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench import grid
from bench.both_gates import LADDER, SAFE, WHOLE
from bench.doc_tables import FIRST, RUNS, SELECTED, at_budget, format_gain, load, policy_name, short, title_row
from bench.evaluation import JUDGES
from bench.findings import CONTROLLED, PRESPECIFIED
from retcon.lab.crossfit import REFERENCE, VOTE
from retcon.lab.report.cells import number
from retcon.lab.report.published import TABLES

LOCOMO, LONGMEMEVAL = "LoCoMo", "LongMemEval"
NAMES = {REFERENCE: SELECTED, LADDER: "ladder", SAFE: "ladder, whole notes first (`safe=True`)"}
ASKED = {LOCOMO: "both gates", LONGMEMEVAL: "its pool, questions that the router did not learn from"}


def measured_table(gates: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """A handful of lines: policies with and without unanswerable questions, then texts, then the crossover."""
    head = (
        "", "right, model judge", "difference", "right, strict judge", "difference", "answers where there is none",
        "difference at the benchmark's own share", "the same, strict judge", "reader calls",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for name, study in _studies(gates).items():
        asked = f"{study['questions']} questions, {study['unanswerable']} others without an answer"
        rows.append(title_row(f"{name}, {ASKED[name]}: {asked}; own share {number(study['share'])}", len(head)))
        strict = _by_name(gates["judges"]["strict"]["studies"][name])
        rows += [_policy(one, strict[one["policy"]]) for one in study["policies"]]
    rows += _texts(found, len(head))
    return grid(head, rows)


def _studies(gates: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = gates["judges"][FIRST]["studies"]
    return found


def _by_name(study: Mapping[str, Any]) -> dict[str, Any]:
    return {row["policy"]: row for row in study["policies"]}


def _policy(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    def less(row: Mapping[str, Any], what: str) -> str:
        return "" if row["policy"] == REFERENCE else format_gain(row["less_selected"][what]["by_question"])

    return [
        NAMES.get(one["policy"], policy_name(one["policy"])), number(one["right"]), less(one, "right"),
        number(two["right"]), less(two, "right"), number(one["false"]), less(one, "own_share"), less(two, "own_share"),
        f"{one['calls_answerable']:.2f}",
    ]  # fmt: skip


def _texts(found: Mapping[str, Any], width: int) -> Iterator[Sequence[str]]:
    """Extract against the paper's operators, and where Abstract stops gaining, over all realizations there are."""
    judged = [found["judges"][judge] for judge in JUDGES]
    for run in CONTROLLED[:2]:
        one, two = (each["operators"][run]["extract"] for each in judged)
        studies = [each["crossovers"][run] for each in judged]
        yield title_row(f"{RUNS[run]}, {studies[0]['questions']} questions", width)
        for a, b in zip(one[1:], two[1:], strict=True):
            gains = [format_gain(each["mean"]["by_question"]) for each in (a, b)]
            yield _line(f"Extract less {short(a['second'])}", gains, width)
        turns, how = [each["crossover"][PRESPECIFIED]["by_question"] for each in studies], "one greedy run"
        if run == CONTROLLED[0]:
            turns, how = [each["realizations"]["crossover"][PRESPECIFIED] for each in judged], "three realizations"
        at = [f"{at_budget(turn, studies[0]['budgets'])} tokens" for turn in turns]
        yield _line(f"Abstract, agnostic, stops gaining over whole notes at ({how})", at, width)


def _line(name: str, pair: Sequence[str], width: int) -> list[str]:
    return [name, "", pair[0], "", pair[1], *[""] * (width - 5)]


def less_vote_table(gates: Mapping[str, Any]) -> str:
    """Ladders less a vote of two, with and without unanswerable questions."""
    head = (
        "less a vote of two", "right", "right, strict judge", "answers where there is none", "at the own share",
        "at the own share, strict judge", "calls: ladder, vote",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for name, study in _studies(gates).items():
        rows.append(title_row(f"{name}, {ASKED[name]}", len(head)))
        strict, calls = gates["judges"]["strict"]["studies"][name], _by_name(study)
        for ladder in (LADDER, SAFE):
            one, two = (each["less_vote"][ladder] for each in (study, strict))
            spent = ", ".join(f"{calls[each]['calls_answerable']:.2f}" for each in (ladder, VOTE))
            gains = [one["right"], two["right"], one["false"], one["own_share"], two["own_share"]]
            rows.append((NAMES[ladder], *(format_gain(gain["by_question"]) for gain in gains), spent))
    return grid(head, rows)


def more_false_table(gates: Mapping[str, Any]) -> str:
    """Where memory holds no answer: how often each policy gives one, less whole notes, and less the selected action."""
    head = ("policy", *(f"{name}{what}" for name in ASKED for what in ("", ", less whole notes", ", less selected")))
    found = [_by_name(study) for study in _studies(gates).values()]
    rows = []
    for name in found[0]:
        cells = [NAMES.get(name, policy_name(name))]
        for lines in found:
            row = lines[name]
            whole = "" if name == WHOLE else format_gain(row["false_less_whole"]["by_question"])
            chosen = "" if name == REFERENCE else format_gain(row["less_selected"]["false"]["by_question"])
            cells += [number(row["false"]), whole, chosen]
        rows.append(cells)
    return grid(head, rows)


def twice_table(gates: Mapping[str, Any]) -> str:
    """The ladder at 256 tokens beside one call at 512."""
    head = (
        "one call at 512 tokens", "right", "tokens", "ladder at 256 less this", "by conversation",
        "right, strict judge", "ladder at 256 less this, strict judge",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    first, second = (gates["judges"][judge]["twice"] for judge in JUDGES)
    for name, study in first.items():
        other = second[name]
        said = f"ladder {number(study['right'])}, strict {number(other['right'])}"
        said += f", {study['calls']:.2f} calls, {study['tokens']:.0f} tokens"
        rows.append(title_row(f"{name}, {study['questions']} questions: {said}", len(head)))
        for action, one in study["one_call"].items():
            two = other["one_call"][action]
            rows.append((
                short(action), number(one["right"]), f"{one['tokens']:.0f}",
                format_gain(one["ladder_less"]["by_question"]), format_gain(one["ladder_less"].get("by_conversation")),
                number(two["right"]), format_gain(two["ladder_less"]["by_question"]),
            ))  # fmt: skip
    return grid(head, rows)


# -- operators ---------------------------------------------------------------------------------------------------------


def order_table(found: Mapping[str, Any]) -> str:
    """The paper's operators against one another: does its order hold with this model?"""
    head = ("pair", "smallest budget", "2nd", "3rd", "largest", "mean", "mean, strict judge", "in the paper, by budget")
    titles = {"longmemeval-realizations": "LongMemEval, evidence given, three realizations", **RUNS}
    rows: list[Sequence[str]] = []
    for run, pairs in found["judges"][FIRST]["order"].items():
        budgets = list(pairs[0]["budgets"])
        rows.append(title_row(f"{titles[run]}: {', '.join(budgets)} tokens", len(head)))
        for one, two in zip(pairs, found["judges"]["strict"]["order"][run], strict=True):
            rows.append((
                f"{_plain(one['first'])} - {_plain(one['second'])}",
                *(format_gain(one["budgets"][budget]["by_question"]) for budget in budgets),
                *(format_gain(each["mean"]["by_question"]) for each in (one, two)),
                _published(run, _plain(one["first"]), _plain(one["second"])),
            ))  # fmt: skip
    return grid(head, rows)


def _plain(action: str) -> str:
    return action.removesuffix("-agnostic")


def _published(run: str, first: str, second: str) -> str:
    """The paper's differences; on LoCoMo, where it prints none, those of its gains."""
    if run == "locomo-controlled":
        gains = {(row["operator"], row["budget"]): row["gain"] for row in TABLES["locomostats"].rows}
        budgets = sorted({budget for _, budget in gains})
        return ", ".join(number(gains[first, b] - gains[second, b], signed=True) for b in budgets)
    if run != "longmemeval-realizations":
        return ""
    known: dict[tuple[str, str], list[float]] = {}
    for row in TABLES["operatorpairwise"].rows:
        known.setdefault((row["first"], row["second"]), []).append(row["difference"])
    values = known.get((first, second)) or [-value for value in known[second, first]]
    return ", ".join(number(value, signed=True) for value in values)


def fill_table(found: Mapping[str, Any], part: str) -> str:
    """How much of its budget each action's text fills."""
    studies = found[part]
    rows: list[Sequence[str]] = []
    width = max(len(next(iter(actions.values()))) for actions in studies.values())
    head = ("action", *("smallest budget", "2nd", "3rd", "4th", "5th")[:width])
    for name, actions in studies.items():
        budgets = list(next(iter(actions.values())))
        rows.append(title_row(f"{RUNS.get(name, name)}: {', '.join(budgets)} tokens", len(head)))
        rows += [(short(action), *map(_filled, at.values())) for action, at in actions.items()]
    return grid(head, rows)


def _filled(cell: Mapping[str, Any]) -> str:
    whole, pressed = (None if value is None else number(value, 2) for value in (cell["all"], cell["pressed"]))
    return f"{whole}" if pressed in (None, whole) else f"{whole} ({pressed})"


def reader_trial_table(found: Mapping[str, Any]) -> str:
    """What each model does as a reader."""
    head = (
        "reader", "questions", "abstains", "right, strict", "questions without an answer", "answers all the same",
        "replies of 32 words and more", "failed",
    )  # fmt: skip
    names = ("model", "questions", "abstained", "right", "without_an_answer", "answered_none", "long", "failed")
    return grid(head, [[str(reader[name]) for name in names] for reader in found["readers"]])


# -- by name -----------------------------------------------------------------------------------------------------------


def tables() -> dict[str, Callable[[], str]]:
    """The tables by name, each made when it is asked for."""
    return {
        "measured": lambda: measured_table(load("both_gates"), load("findings")),
        "less-vote": lambda: less_vote_table(load("both_gates")),
        "more-false": lambda: more_false_table(load("both_gates")),
        "twice": lambda: twice_table(load("both_gates")),
        "operator-order": lambda: order_table(load("findings")),
        "fill-domains": lambda: fill_table(load("fill"), "domains"),
        "fill-controlled": lambda: fill_table(load("fill"), "controlled"),
        "reader-trial": lambda: reader_trial_table(load("reader_trial")),
    }
