"""`retcon bench`: a whole study, from data to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError, MissingExtraError
from retcon.lab.cli import options as lab
from retcon.lab.cli import study, tell

if TYPE_CHECKING:
    from retcon.lab.data import BenchmarkQuestion
    from retcon.lab.label import Cell
    from retcon.lab.protocols import Case, Protocol

EXAMPLES = (
    "retcon bench --smoke",
    "retcon bench locomo --protocol full-history --model http://localhost:8000/v1 --model-name qwen --out run",
    "retcon bench longmemeval-gold locomo --protocol controlled --model model.gguf --out run",
)
DATA, PROTOCOL, ACTIONS = ("sample",), "controlled", "retain,extract,merge,abstract,rewrite"
SMOKE_POLICIES = ("retention", "best fixed action", "direct", "ladder", "action oracle")  # shown; files have all
SMOKE_ACTIONS, SMOKE_BUDGETS, SMOKE_SAMPLE, SMOKE_DRAWS = "retain,extract,merge", "32,64", 5, 1000
DRAWS = 10_000
OUT, SMOKE_OUT = "retcon-bench", "retcon-smoke"


def bench(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="As for label, several if you like; the sample if not said."),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        option("--out", "DIR", f"Where everything goes; a run there is resumed. {OUT}, or {SMOKE_OUT}, if not said."),
    ] = None,
    protocol: Annotated[
        str, option("--protocol", "A,B", "controlled, full-history or product; several with commas.")
    ] = PROTOCOL,
    actions: Annotated[str | None, option("--actions", "A,B,C", f"Actions; {ACTIONS} if not said.")] = None,
    budgets: lab.Budgets = None,
    realizations: lab.Realizations = 1,
    sample: Annotated[int | None, option("--sample", "N", "Questions of each DATA.", min=1)] = None,
    abstentions: Annotated[
        bool, flag("--abstentions", "Also the questions to which 'not in memory' is the right answer.")
    ] = False,
    corrections: lab.Corrections = False,
    independent: Annotated[bool, flag("--independent", "Keep fit, calibration and gate questions apart.")] = False,
    judge: lab.DecidingJudge = None,
    smoke: Annotated[
        bool, flag("--smoke", "Minutes: a few questions, two budgets, a model that is here already.")
    ] = False,
    repeats: lab.Repeats = 1,
    draws: Annotated[int | None, option("--draws", "N", "Bootstrap replicates.", min=100)] = None,
    title: Annotated[str | None, option("--title", "TEXT", "The report's.")] = None,
    seed: lab.SampleSeed = lab.SEED,
    model: opt.ModelChoice,
    how: lab.Labelling,
    folder: lab.Folder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Run a whole study: label, learn, compare, report.

    Outcomes, a calibrated router, cross-fitted policies and a report with every table go to the folder. Stopped at
    any point, the same command goes on where it was. The exit code is 1 where some outcomes could not be measured.
    """
    from retcon.lab import bench as benches
    from retcon.lab import label as labels

    if out is None:
        out = Path(SMOKE_OUT if smoke else OUT)
        show.warn(f"everything goes to the folder {out}; --out names another")
    if smoke:
        if not how.dry_run:
            model = replace(model, model=model.model or benches.small_model())
        actions, budgets = actions or SMOKE_ACTIONS, budgets or SMOKE_BUDGETS
        sample, draws = sample or SMOKE_SAMPLE, draws or SMOKE_DRAWS
        judge = judge or "strict"  # a model this small is no judge
        how = replace(how, no_judge=how.no_judge or judge != "llm")
    judge = judge or ("llm" if how.judged else "strict")
    labels.check_arms(arms := lab.names(actions or ACTIONS) or [])
    benches.check_judge(judge, judged=how.judged)
    study.check_model(model, how, "bench")
    if find_spec("matplotlib") is None:
        raise MissingExtraError("a report", "lab")
    jobs = _jobs(data or DATA, lab.names(protocol) or [], budgets)
    todo, parts = [], dict[tuple[str, str], str]()
    for source, rules in jobs:
        try:
            picked = _choose_questions(
                source, rules, folder, sample=sample, seed=seed, corrections=corrections, abstentions=abstentions
            )
        except study.UnsuitedError as error:
            if len(jobs) == 1:
                raise
            show.warn(f"left out: {error}")
            continue
        todo += study.make_cells(picked, rules, arms, realizations)
        parts |= _divide(picked) if independent else {}
    if not todo:
        raise InputError("no dataset suits a protocol of those named")
    _check_once(todo)
    with study.prepare_folder(todo, out, model, how, as_json=as_json) as ready:
        if ready is None:
            return
        with tell.stages() as progress:
            done = benches.bench(
                todo, ready.writer, ready.replies, out, grader=ready.grader, judge=judge, judged=how.judged,
                chunk=how.chunk, draws=draws or DRAWS, repeats=repeats, title=title, parts=parts or None,
                progress=progress,
            )  # fmt: skip
    if as_json:
        show.document(tell.bench_dict(done, ready.probed))
    else:
        tell.bench(done, ready.probed, policies=SMOKE_POLICIES if smoke else None)
    tell.failures(done.labelled.failures)


def _jobs(data: Sequence[str], protocols: Sequence[str], budgets: str | None) -> list[tuple[str, Protocol]]:
    """Every dataset under every protocol, with its budgets."""
    if not protocols:
        raise InputError("--protocol names none")
    return [(source, study.choose_protocol(name, budgets, source)) for source in data for name in protocols]


def _choose_questions(
    source: str, rules: Protocol, folder: Path | None, *, sample: int | None, seed: int, corrections: bool,
    abstentions: bool,
) -> list[BenchmarkQuestion]:  # fmt: skip
    """The questions to be labelled: those with an answer and, if asked for, those without."""

    def choose(abstentions: bool) -> Sequence[BenchmarkQuestion]:
        mended = corrections and source == "locomo"
        return study.choose_questions(
            source, rules, sample=sample, seed=seed, folder=folder, abstentions=abstentions, corrections=mended
        )

    picked = list(choose(abstentions=False))
    if abstentions:
        try:
            picked += choose(abstentions=True)
        except study.UnsuitedError as error:  # the others go on without them
            show.warn(f"no questions without an answer: {error}")
    return picked


def _divide(questions: Sequence[BenchmarkQuestion]) -> dict[tuple[str, str], str]:
    """Dataset and id of every question with an answer -> fit, calibration or gate."""
    from retcon.lab.data import independent

    answered = [question for question in questions if not question.abstention]
    parts = independent(answered).parts
    return {(answered[0].dataset, name): part for part, names in parts.items() for name in names}


def _check_once(todo: Sequence[Cell]) -> None:
    """An error where two sources hold one question: their rows could not be told apart."""
    seen: dict[tuple[str, str, str], Case] = {}
    for cell in todo:
        asked = cell.case.question
        key = (asked.dataset, cell.case.protocol.name, asked.id)
        if seen.setdefault(key, cell.case) is not cell.case:
            raise InputError(f"question {asked.id} of {asked.dataset} is in two of the sources: name one of them")
