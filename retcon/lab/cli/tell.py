"""The laboratory's results for people, and as plain JSON values; how far a run is, and what it will take."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from retcon.cli import show

if TYPE_CHECKING:
    from retcon.lab.advice_page import AdviceResult, Part
    from retcon.lab.bench import BenchResult, StudyResult
    from retcon.lab.calibrate import Threshold
    from retcon.lab.cli.options import Prices
    from retcon.lab.label import Forecast, Probe
    from retcon.lab.report.build import ReportFiles
    from retcon.route import Router

Progress = Callable[[str, int, int], None]  # stage, done, total


# -- how far a run is --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stages() -> Iterator[Progress]:
    """A callback, drawn on standard error: a bar a stage, or lines where that is no terminal."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:>6}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as drawn:
        tasks: dict[str, TaskID] = {}

        def step(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = drawn.add_task(stage, total=total)
            drawn.update(tasks[stage], completed=done, total=total)

        yield step


class _Lines:
    """Progress as plain lines."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if self.told.get(stage) != tenth:
            self.told[stage] = tenth
            show.warn(f"{stage} {done} of {total}")


# -- what a run takes, on standard error -------------------------------------------------------------------------------


def estimate(expected: Forecast, model: str, prices: Prices) -> None:
    """What a run will take."""
    calls = ", ".join(f"{count} to {stage}" for stage, count in expected.calls.items())
    show.warn(
        f"{show.plural(expected.cells, 'outcome')} with {model}: calls {calls} at most; {expected.kept} kept before"
    )
    cost = expected.cost(price_in=prices.price_in, price_out=prices.price_out)
    money = f", {cost:.2f} at the prices given" if cost else ""
    show.warn(f"about {expected.prompt_tokens} tokens read and at most {expected.completion_tokens} written{money}")


def estimate_dict(expected: Forecast) -> dict[str, Any]:
    """An estimate as plain JSON values."""
    return {
        "cells": expected.cells, "calls": dict(expected.calls), "kept": expected.kept,
        "prompt_tokens": expected.prompt_tokens, "completion_tokens": expected.completion_tokens,
    }  # fmt: skip


def probe(first: Probe, expected: Forecast) -> None:
    """How long a run will take, by its first asks."""
    if first.calls:
        calls = sum(expected.calls.values()) - expected.kept
        show.warn(f"about {duration(first.seconds * calls)} if every call takes {first.seconds:.2f} s as the first did")


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def failures(found: Mapping[str, int]) -> None:
    """What could not be measured, a line a reason; where there is any, the verb ends with exit code 1."""
    for reason, count in found.items():
        what = "verdict" if reason.startswith("judge") else "outcome"
        show.warn(f"{show.plural(count, what)} missing ({reason}): the same command asks for these alone")
    if found:
        raise typer.Exit(1)


# -- routers and policies ----------------------------------------------------------------------------------------------


def router(found: Router, path: Path) -> None:
    """What was learned."""
    known = found.provenance
    show.out(
        f"learned {', '.join(found.actions)} from {known['questions']} questions at"
        f" {', '.join(map(str, found.budgets))} tokens ({known['rows']} rows, lambda {known['lambda']:g})"
    )
    if found.ladder is not None:
        show.out(f"ladder: {len(found.ladder.orders)} orders, a call costs {found.ladder.call_price:g}")
    show.out(f"wrote {path}; it replaces whenever a higher utility is predicted; retcon calibrate lets it be safe")


def thresholds(found: Mapping[int, Threshold]) -> None:
    """What each budget's threshold lets through."""
    columns = (">budget", ">threshold", ">replaced", ">harmed", ">bound", ">accuracy")
    show.table((_threshold_row(budget, each) for budget, each in found.items()), *columns)


def _threshold_row(budget: int, found: Threshold) -> Sequence[str]:
    return (
        str(budget),
        "never" if found.tau == float("inf") else f"{found.tau:+.4f}",
        f"{found.accepted} of {found.questions}",
        str(found.harms),
        "" if found.bound is None else f"{found.bound:.4f}",
        f"{found.accuracy:.3f}",
    )


def crossfit(summary: Mapping[str, Any], policies: Sequence[str] | None = None) -> None:
    """The table of policies, of all or of those named."""
    show.out(
        f"{summary['questions']} questions, {', '.join(summary['actions'])}; {summary['folds']} folds by"
        f" {summary['group']}, {show.plural(summary['repeats'], 'repeat')}; judge {summary['judge']}"
    )
    budgets, against = [f">{budget}" for budget in summary["budgets"]], f">against {summary['reference']}"
    shown = [row for row in summary["policies"] if policies is None or row["policy"] in policies]
    rows = map(_policy_row, shown)
    show.table(rows, "policy", *budgets, ">macro", against, ">harm", ">calls", ">tokens")
    if left := len(summary["policies"]) - len(shown):
        show.out(f"{left} more policies are in crossfit.json and in the report")


def _policy_row(row: Mapping[str, Any]) -> Sequence[str]:
    against = row["against"]
    return (
        row["policy"],
        *("" if value is None else f"{value:.3f}" for value in row["accuracy"]),
        f"{row['macro']:.3f}",
        "" if against is None else f"{against['mean']:+.3f} [{against['low']:+.3f}, {against['high']:+.3f}]",
        f"{row['harm']:.3f}",
        f"{row['calls']:.2f}",
        f"{row['tokens']:.0f}",
    )


# -- studies, advice, reports ------------------------------------------------------------------------------------------


def bench(done: BenchResult, probed: int, *, policies: Sequence[str] | None = None) -> None:
    """What came of a study, and where it is; of its policies all, or those named."""
    for each in done.studies:
        show.out(f"{each.dataset}, {each.setting}:")
        study(each)
        if each.crossfit is not None:
            crossfit(each.crossfit, policies)
        show.out()
    labelled, rows = done.labelled, len(done.labelled.outcomes or ())
    paid, reused = labelled.calls + probed, labelled.reused - probed
    show.out(f"{rows} outcomes, judged by {done.judge}; {paid} calls paid, {reused} from the cache")
    for what, path in done.files.items():
        show.out(f"{what:<12} {path}{'/report.html' if what == 'report' else ''}")


def bench_dict(done: BenchResult, probed: int) -> dict[str, Any]:
    """A study as plain JSON values."""
    labelled = done.labelled
    return {
        "rows": len(labelled.outcomes or ()), "calls": labelled.calls + probed, "reused": labelled.reused - probed,
        "failures": dict(labelled.failures), "judge": done.judge,
        "files": {what: str(path) for what, path in done.files.items()},
        "studies": [_study_dict(each) for each in done.studies],
    }  # fmt: skip


def study(found: StudyResult) -> None:
    """How far what was learned goes."""
    from retcon.lab.bench import FEWEST

    if found.incomplete:
        few = ", ".join(found.incomplete[: show.FEW])
        show.warn(f"{show.plural(len(found.incomplete), 'question')} left out, an outcome is missing: {few}")
    if found.crossfit is None:
        show.warn(f"{show.plural(found.questions, 'complete question')}: nothing is learned below {FEWEST}")
    elif found.crossfit["group"] == "question" and found.crossfit["conversations"] < found.questions:
        talks = show.plural(found.crossfit["conversations"], "conversation")
        show.warn(f"{talks} for {found.questions} questions: too few to draw from, so questions count as independent")
    if (learned := found.learned) is not None:
        never = [str(budget) for budget, each in learned.thresholds.items() if each.tau == float("inf")]
        always = f"; with safe it always retains at {', '.join(never)} tokens" if never else ""
        taught = f"learned on {learned.fitted} questions, calibrated on {learned.calibrated}"
        show.out(f"router {learned.router.name}: {taught}{always}")


def _study_dict(found: StudyResult) -> dict[str, Any]:
    from retcon.lab.learn import threshold_json

    learned = found.learned
    return {
        "dataset": found.dataset, "setting": found.setting, "questions": found.questions,
        "incomplete": list(found.incomplete), "crossfit": found.crossfit,
        "router": None if learned is None else {
            "name": learned.router.name, "group": learned.group, "fitted": learned.fitted,
            "calibrated": learned.calibrated,
            "thresholds": {str(budget): threshold_json(each) for budget, each in learned.thresholds.items()},
        },
    }  # fmt: skip


def advice(found: AdviceResult) -> None:
    """The page, and where everything is."""
    show.fold(found.page.title)
    for part in found.page.parts:
        _part(part)
    if found.incomplete:
        show.warn(f"{show.plural(len(found.incomplete), 'question')} left out: an outcome is missing")
    folder = found.files["page"].parent
    show.fold(f"In {folder}: {', '.join(path.name for path in found.files.values())}")


def _part(part: Part) -> None:
    from retcon.lab.advice_page import Points, Table

    if isinstance(part, Table):
        show.out()
        show.table(part.rows, *part.columns)
    elif isinstance(part, Points):
        show.out(f"{part.heading}:")
        for line in part.lines:
            show.block(line, mark="- ", then="  ")
    else:
        show.fold(part)


def report(found: ReportFiles) -> None:
    """What the report holds, and what it lacks."""
    for key, why in found.missing.items():
        show.warn(f"no {key}: {why}")
    tables, figures = show.plural(len(found.tables), "table"), show.plural(len(found.figures), "figure")
    show.out(f"wrote {tables} and {figures} to {found.folder / 'report.html'}")


def report_dict(found: ReportFiles) -> dict[str, Any]:
    """What the report holds, as plain JSON values."""
    return {
        "folder": str(found.folder), "files": list(found.files), "tables": list(found.tables),
        "figures": list(found.figures), "missing": dict(found.missing),
    }  # fmt: skip
