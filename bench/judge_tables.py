"""What readers said of replies, judges and prompts, as the tables of docs/results/judges.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import grid
from bench.doc_tables import format_gain, load, title_row
from bench.judge_labels import NAMES, RULES
from bench.judge_prompts import CHOOSES, SCORES
from bench.judge_sample import DOMAINS
from retcon.lab.report.cells import bracket, number

TRUST = ("agrees", "precision", "recall", "let_pass", "says_right", "is_right")


def agreement_table(found: Mapping[str, Any]) -> str:
    """The two readers against each other."""
    head = (
        "replies",
        "read",
        "both say the same",
        "Cohen's kappa",
        "A says right",
        "B says right",
        "A unsure",
        "B unsure",
    )
    rows = []
    for name, part in found["agreement"].items():
        shares = [part["right"]["A"], part["right"]["B"], part["unsure"]["A"], part["unsure"]["B"]]
        kappa = "" if part["kappa"] is None else number(part["kappa"])
        rows.append([name, str(part["replies"]), number(part["same"]), kappa, *map(number, shares)])
    return grid(head, rows)


def trust_table(found: Mapping[str, Any]) -> str:
    """Every judge against the readers; intervals over all domains, the model judge and strict in each."""
    head = (
        "judge", "labels", "agrees with the readers", "precision", "recall", "wrong replies let pass", "says right",
        "readers say right",
    )  # fmt: skip
    rows: list[Sequence[str]] = []
    for rule in RULES:
        part = found["judges"][rule]["answerable, answered"]
        rows.append(title_row(rule, len(head)))
        rows += [[name, str(part[name]["labels"]), *(_share(part[name][what]) for what in TRUST)] for name in NAMES]
    for name in NAMES[:2]:
        rows.append(title_row(f"{name}, by domain; {next(iter(RULES))}", len(head)))
        parts = found["judges"][next(iter(RULES))]
        rows += [
            [domain, str(part["labels"]), *(_share(part[what], bounds=False) for what in TRUST)]
            for domain in DOMAINS
            for part in [parts[f"{domain}, answerable, answered"][name]]
        ]
    return grid(head, rows)


def _share(found: Mapping[str, Any], bounds: bool = True) -> str:
    if found["share"] is None:
        return ""
    known = not bounds or found["low"] == found["high"]
    return number(found["share"]) + ("" if known else f" {bracket(found['low'], found['high'], signed=False)}")


def verdicts_table(found: Mapping[str, Any]) -> str:
    """Share of right replies by what both judges say, and how many replies that is."""
    kinds = list(found["verdicts"]["all"])
    head = ("", *(f"{kind}: replies" for kind in kinds), *(f"{kind}: right" for kind in kinds))
    rows = [
        [
            name,
            *(number(part[kind]["replies"]) for kind in kinds),
            *(_share(part[kind], bounds=name == "all") for kind in kinds),
        ]
        for name, part in found["verdicts"].items()
    ]
    return grid(head, rows)


def favours_table(found: Mapping[str, Any]) -> str:
    """What each judge adds to the share of right replies."""
    head = ("judge", "read from whole notes or an extract", "read from a text that a model wrote", "difference")
    rows = [
        [name, *(format_gain(found["favours"][name][what]) for what in ("copied", "written", "difference"))]
        for name in NAMES
    ]
    return grid(head, rows)


def shift_table(found: Mapping[str, Any]) -> str:
    """Differences between two parts of the replies, each way."""
    head = (
        "what parts the replies", "model judge", "strict", "corrected", "Rogan and Gladen", "by the labels themselves",
        "labels less corrected",
    )  # fmt: skip
    ways = ("llm", "strict", "post", "rogan_gladen", "direct")
    rows = [
        [name, *(number(part[way], signed=True) for way in ways), format_gain(part["off"])]
        for name, part in found.items()
    ]
    return grid(head, rows)


def corrected_table(found: Mapping[str, Any]) -> str:
    """Fixed actions as judged and as corrected."""
    ways = ("corrected", "from llm alone", "from strict alone", "checked")
    head = ("action", "model judge", "strict", *ways, "corrected, less abstract")
    titles = {
        "right": "right, answerable questions",
        "utility": "right - .5 x wrong, one question in five unanswerable",
    }
    rows: list[Sequence[str]] = []
    for title, actions in found.items():
        rows.append(title_row(titles[title], len(head)))
        rows += [
            [
                name, *(number(part[judge]) for judge in NAMES[:2]), *(_estimate(part[way]) for way in ways),
                "" if name == "abstract" else format_gain(part["less abstract"]),
            ]
            for name, part in actions.items()
        ]  # fmt: skip
    return grid(head, rows)


def _estimate(found: Mapping[str, Any]) -> str:
    return f"{number(found['mean'])} {bracket(found['low'], found['high'], signed=False)}"


def prompts_table(found: Mapping[str, Any]) -> str:
    """Prompts of the model judge on the half that chose and the half that scores."""
    head = (
        "prompt", "labels", "agrees with the readers", "precision", "recall", "wrong replies let pass",
        "agrees more often than the rows' verdicts",
    )  # fmt: skip
    titles = {CHOOSES: "the half that prompts were written and chosen on", SCORES: "the other half"}
    rows: list[Sequence[str]] = []
    for half, parts in found["halves"].items():
        rows.append(title_row(titles[half], len(head)))
        rows += [
            [
                PROMPT_NAMES.get(name, name),
                str(part["labels"]),
                *(_share(part[what]) for what in TRUST[:4]),
                "" if name == "kept" else format_gain(part["gain"]),
            ]
            for name, part in parts.items()
        ]
    return grid(head, rows)


PROMPT_NAMES = {"kept": "ships: verdicts of the rows (bf16)", "ships": "ships, asked again (Q4_K_M on a CPU)"}


def tables() -> dict[str, Callable[[], str]]:
    """The tables by name, each made when it is asked for."""
    return {
        "readers-agreement": lambda: agreement_table(load("judge_labels")),
        "readers-trust": lambda: trust_table(load("judge_labels")),
        "readers-verdicts": lambda: verdicts_table(load("judge_labels")),
        "readers-favours": lambda: favours_table(load("judge_labels")),
        "readers-shift": lambda: shift_table(load("judge_shift")),
        "readers-corrected": lambda: corrected_table(load("judge_correction")),
        "readers-prompts": lambda: prompts_table(load("judge_prompts")),
    }
