"""The verbs of a whole study: bench (from data to a report) and advise (the same, small, on your own questions)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.errors import InputError, MissingExtraError
from retcon.lab.cli import label as study
from retcon.lab.cli.learn import names, numbers

DATA, PROTOCOL, ACTIONS = ("sample",), "controlled", "retain,extract,merge,abstract,rewrite"
SMOKE_ACTIONS, SMOKE_BUDGETS, SMOKE_SAMPLE, SMOKE_DRAWS = "retain,extract,merge", "32,64", 6, 1000
DRAWS = 10_000

Judge = Annotated[
    str | None,
    typer.Option("--judge", metavar="NAME", help="Whose verdicts decide: llm, or strict, overlap or f1 without one."),
]
Budgets = Annotated[str | None, typer.Option("--budgets", metavar="N,N", help="Tokens; else the protocol's.")]
Realizations = Annotated[
    int, typer.Option("--realizations", metavar="N", min=1, help="The first is greedy, others are sampled.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Draws the sample.")]
JudgeModel = Annotated[str | None, typer.Option("--judge-model", metavar="URL|FILE", help="Another model as judge.")]
JudgeName = Annotated[str | None, typer.Option("--judge-name", metavar="NAME", help="Its name at the URL.")]
NoJudge = Annotated[bool, typer.Option("--no-judge", help="Only the judges that need no model.")]
PriceIn = Annotated[float, typer.Option("--price-in", metavar="P", help="For a million tokens read.")]
PriceOut = Annotated[float, typer.Option("--price-out", metavar="P", help="For a million tokens written.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and stop.")]


BENCH = (
    "retcon bench --smoke --out smoke",
    "retcon bench locomo --protocol full-history --model http://localhost:8000/v1 --model-name qwen --out run",
    "retcon bench longmemeval-gold locomo --protocol controlled --model model.gguf --out run",
)
ADVISE = (
    "retcon advise --questions mine.jsonl --model model.gguf",
    "retcon advise --questions mine.jsonl --sample 100 --model http://localhost:8000/v1 --model-name qwen -o advice",
)


def bench(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="As for label, several if you like; the sample if not said."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where everything goes; a run there is resumed.")],
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="A,B", help="controlled, full-history or product; several with commas.")
    ] = PROTOCOL,
    actions: Annotated[
        str | None, typer.Option("--actions", metavar="A,B,C", help=f"Actions; {ACTIONS} if not said.")
    ] = None,
    budgets: Budgets = None,
    realizations: Realizations = 1,
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", min=1, help="Questions of each DATA.")] = None,
    abstentions: Annotated[
        bool, typer.Option("--abstentions", help="Also the questions to which 'not in memory' is the right answer.")
    ] = False,
    corrections: Annotated[
        bool, typer.Option("--corrections", help="LoCoMo's labels as its audit mends them.")
    ] = False,
    independent: Annotated[
        bool,
        typer.Option("--independent", help="Keep fit, calibration and gate questions apart."),
    ] = False,
    judge: Judge = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Minutes: a few questions, two budgets, a model that is here already.")
    ] = False,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Ways to deal the folds.")] = 1,
    draws: Annotated[int | None, typer.Option("--draws", metavar="N", min=100, help="Bootstrap replicates.")] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="The report's.")] = None,
    seed: Seed = 20260716,
    model: opt.Model = None,
    model_name: opt.ModelName = None,
    timeout: opt.Timeout = None,
    judge_model: JudgeModel = None,
    judge_name: JudgeName = None,
    no_judge: NoJudge = False,
    price_in: PriceIn = 0.0,
    price_out: PriceOut = 0.0,
    chunk: study.Chunk = None,
    concurrency: study.Concurrency = 16,
    dry_run: DryRun = False,
    folder: study.Folder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Run a whole study: label, learn, compare, report.

    Outcomes, a calibrated router, cross-fitted policies and a report with every table go to the folder. Stopped at
    any point, the same command goes on where it was. The exit code is 1 where some outcomes could not be measured.
    """
    from retcon.lab import bench as benches
    from retcon.lab import label as labels

    if smoke:
        model = model or benches.small_model()
        actions, budgets = actions or SMOKE_ACTIONS, budgets or SMOKE_BUDGETS
        sample, draws = sample or SMOKE_SAMPLE, draws or SMOKE_DRAWS
        judge = judge or "strict"  # a model this small is no judge
        no_judge = no_judge or judge != "llm"
    judge = judge or ("strict" if no_judge else "llm")
    labels.check_arms(arms := names(actions or ACTIONS) or [])
    benches.check_judge(judge, judged=not no_judge)
    opt.model(model, model_name, needed_by="bench")
    _drawable("a report")
    jobs = _jobs(data or DATA, names(protocol) or [], budgets)
    todo, parts = [], dict[tuple[str, str], str]()
    for source, rules in jobs:
        try:
            picked = _questions(
                source, folder, rules, sample=sample, seed=seed, corrections=corrections, abstentions=abstentions
            )
        except study.UnsuitedError as error:
            if len(jobs) == 1:
                raise
            show.warn(f"left out: {error}")
            continue
        todo += study.cells_of(picked, rules, arms, realizations)
        parts |= _parts(picked) if independent else {}
    if not todo:
        raise InputError("no dataset suits a protocol of those named")
    _apart(todo)
    given = Given(
        model, model_name, timeout, judge_model, judge_name, concurrency, price_in, price_out, dry_run, as_json
    )
    with started(todo, out, given, judged=not no_judge) as ready:
        if ready is None:
            return
        with study.stages() as progress:
            done = benches.bench(
                todo, ready.writer, ready.kept, out, grader=ready.grader, judge=judge, judged=not no_judge, chunk=chunk,
                draws=draws or DRAWS, repeats=repeats, title=title, parts=parts or None, progress=progress,
            )  # fmt: skip
    if as_json:
        show.document(_plain(done, ready.probed))
    else:
        tell_bench(done, ready.probed)
    study.tell_failures(done.labelled.failures)
    if done.labelled.failures:
        raise typer.Exit(1)


def _jobs(data: Sequence[str], protocols: Sequence[str], budgets: str | None) -> list[tuple[str, Any]]:
    """Every dataset under every protocol, with its budgets."""
    if not protocols:
        raise InputError("--protocol names none")
    return [(source, study.protocol_of(name, budgets, source)) for source in data for name in protocols]


def _questions(
    source: str, folder: Path | None, rules: Any, *, sample: int | None, seed: int, corrections: bool,
    abstentions: bool,
) -> list[Any]:  # fmt: skip
    """The questions to be labelled: those with an answer and, if asked for, those without."""
    given: dict[str, Any] = {
        "ids": None, "sample": sample, "seed": seed, "corrections": corrections and source == "locomo", "rules": rules,
    }  # fmt: skip
    picked = list(study.chosen_questions(source, folder, abstentions=False, **given))
    if abstentions:
        try:
            picked += study.chosen_questions(source, folder, abstentions=True, **given)
        except study.UnsuitedError as error:  # the others go on without them
            show.warn(f"no questions without an answer: {error}")
    return picked


def _parts(questions: Sequence[Any]) -> dict[tuple[str, str], str]:
    """Dataset and id of every question with an answer -> fit, calibration or gate."""
    from retcon.lab.data import independent

    answered = [question for question in questions if not question.abstention]
    parted = independent(answered).parts
    return {(answered[0].dataset, name): part for part, names in parted.items() for name in names}


def _apart(todo: Sequence[Any]) -> None:
    """An error where two sources hold one question: their rows could not be told apart."""
    seen: dict[tuple[Any, ...], Any] = {}
    for cell in todo:
        asked = cell.case.question
        key = (asked.dataset, cell.case.protocol.name, asked.id)
        if seen.setdefault(key, cell.case) is not cell.case:
            raise InputError(f"question {asked.id} of {asked.dataset} is in two of the sources: name one of them")


@dataclass(frozen=True, slots=True)
class Given:
    """What a verb was told of its models and its manner."""

    model: str | None
    model_name: str | None
    timeout: float | None
    judge_model: str | None
    judge_name: str | None
    concurrency: int
    price_in: float
    price_out: float
    dry_run: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """A model that answers, and where its replies are kept."""

    writer: Any
    grader: Any
    kept: Any
    probed: int  # calls paid to see how long one takes


@contextlib.contextmanager
def started(todo: Sequence[Any], out: Path, given: Given, *, judged: bool) -> Iterator[Ready | None]:
    """The models and the cache of a folder, after what the run will take has been said; None where that was all."""
    from retcon.lab import label as labels
    from retcon.lab.bench import REPLIES
    from retcon.lab.reply_cache import ReplyCache

    path = out / REPLIES
    if not given.dry_run:
        _make(out)
    where = ":memory:" if given.dry_run and not path.exists() else path
    with (
        study.models(
            given.model, given.model_name, given.timeout, given.judge_model, given.judge_name, given.concurrency
        ) as (writer, _, grader),
        contextlib.closing(ReplyCache(where, max_bytes=study.CACHE_BYTES)) as kept,
    ):  # fmt: skip
        expected = labels.estimate(todo, writer, kept, judged=judged)
        study.tell_estimate(expected, writer.name, price_in=given.price_in, price_out=given.price_out)
        if given.dry_run:
            if given.as_json:
                show.document(study.plain_estimate(expected))
            yield None
            return
        first = labels.probe(todo, writer, kept)
        study.tell_probe(first, expected)
        yield Ready(writer, grader, kept, first.calls)


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {out}: {error.strerror or error}") from None


def _drawable(what: str) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise MissingExtraError(what, "lab")


def _plain(done: Any, probed: int) -> dict[str, Any]:
    labelled = done.labelled
    return {
        "rows": len(labelled.outcomes), "calls": labelled.calls + probed, "reused": labelled.reused - probed,
        "failures": dict(labelled.failures), "judge": done.judge,
        "files": {what: str(path) for what, path in done.files.items()},
        "studies": [_plain_study(each) for each in done.studies],
    }  # fmt: skip


def _plain_study(each: Any) -> dict[str, Any]:
    from retcon.lab.learn import plain

    learned = each.learned
    return {
        "dataset": each.dataset, "setting": each.setting, "questions": each.questions,
        "incomplete": list(each.incomplete), "crossfit": each.crossfit,
        "router": None if learned is None else {
            "name": learned.router.name, "group": learned.group, "fitted": learned.fitted,
            "calibrated": learned.calibrated,
            "thresholds": {str(budget): plain(found) for budget, found in learned.thresholds.items()},
        },
    }  # fmt: skip


def tell_bench(done: Any, probed: int) -> None:
    """What came of a study, and where it is, for people."""
    from retcon.lab.cli.learn import tell_crossfit

    for each in done.studies:
        show.out(f"{each.dataset}, {each.setting}:")
        tell_study(each)
        if each.crossfit is not None:
            tell_crossfit(each.crossfit)
        show.out()
    labelled = done.labelled
    show.out(
        f"{len(labelled.outcomes)} outcomes, judged by {done.judge}; {labelled.calls + probed} calls paid,"
        f" {labelled.reused - probed} from the cache"
    )
    for what, path in done.files.items():
        show.out(f"{what:<12} {path}{'/report.html' if what == 'report' else ''}")


def tell_study(each: Any) -> None:
    """How far what was learned goes, for people."""
    from retcon.lab.bench import FEWEST

    if each.incomplete:
        few = ", ".join(each.incomplete[: show.FEW])
        show.warn(f"{show.plural(len(each.incomplete), 'question')} left out, an outcome is missing: {few}")
    if each.crossfit is None:
        show.warn(f"{show.plural(each.questions, 'complete question')}: nothing is learned below {FEWEST}")
    elif each.crossfit["group"] == "question" and each.crossfit["conversations"] < each.questions:
        talks = show.plural(each.crossfit["conversations"], "conversation")
        show.warn(f"{talks} for {each.questions} questions: too few to draw from, so questions count as independent")
    if each.learned is not None:
        found = each.learned
        never = [str(budget) for budget, each in found.thresholds.items() if each.tau == float("inf")]
        always = f"; at {', '.join(never)} tokens it always retains" if never else ""
        show.out(
            f"router {found.router.name}: learned on {found.fitted} questions, calibrated on {found.calibrated}{always}"
        )


# -- advise ------------------------------------------------------------------------------------------------------------


def advise(
    *,
    questions: Annotated[
        str, typer.Option("--questions", "-q", metavar="JSONL", help="Your questions, answers and notes.")
    ],
    sample: Annotated[int, typer.Option("--sample", metavar="N", min=1, help="At most so many questions.")] = 50,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where everything goes; a run there is resumed.")
    ] = Path("advice"),
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="NAME", help="product if the questions have notes, else controlled."),
    ] = None,
    actions: study.Arms = "retain,extract,merge,abstract",
    budgets: Budgets = None,
    realizations: Realizations = 1,
    judge: Judge = None,
    seed: Seed = 20260716,
    model: opt.Model = None,
    model_name: opt.ModelName = None,
    timeout: opt.Timeout = None,
    judge_model: JudgeModel = None,
    judge_name: JudgeName = None,
    no_judge: NoJudge = False,
    price_in: PriceIn = 0.0,
    price_out: PriceOut = 0.0,
    chunk: study.Chunk = None,
    concurrency: study.Concurrency = 16,
    dry_run: DryRun = False,
    as_json: opt.AsJson = False,
) -> None:
    """Say which action and budget suit your own questions.

    A sample of them is measured with your model. The advice says how sure it is; a router learned from the same
    outcomes and a figure go to the folder. Stopped at any point, the same command goes on where it was.
    """
    from retcon.lab import advise as advices
    from retcon.lab import bench as benches
    from retcon.lab import label as labels
    from retcon.lab import outcomes

    judge = judge or ("strict" if no_judge else "llm")
    labels.check_arms(arms := names(actions) or [])
    if len(arms) < 2:
        raise InputError("advice is a choice: name another action beside retain")
    benches.check_judge(judge, judged=not no_judge)
    numbers(budgets)
    opt.model(model, model_name, needed_by="advise")
    picked, rules = _own(questions, protocol, budgets, sample=sample, seed=seed)
    todo = study.cells_of(picked, rules, arms, realizations)
    given = Given(
        model, model_name, timeout, judge_model, judge_name, concurrency, price_in, price_out, dry_run, as_json
    )
    with started(todo, output, given, judged=not no_judge) as ready:
        if ready is None:
            return
        with study.stages() as progress:
            found = labels.label(
                todo, ready.writer, ready.kept, grader=ready.grader, judged=not no_judge, chunk=chunk, progress=progress
            )  # fmt: skip
    if found.outcomes is None:
        raise InputError(f"not one of {len(todo)} outcomes could be measured: {benches.counted(found.failures)}")
    outcomes.write(found.outcomes, output / benches.OUTCOMES)
    result = advices.advised(found.outcomes, output, judge=judge)
    if as_json:
        show.document(result.to_dict() | {"failures": dict(found.failures)})
    else:
        tell_advice(result)
    study.tell_failures(found.failures)
    if found.failures:
        raise typer.Exit(1)


def _own(path: str, protocol: str | None, budgets: str | None, *, sample: int, seed: int) -> tuple[Sequence[Any], Any]:
    """A sample of the user's own answerable questions, and the protocol that suits what they come with."""
    from retcon.lab.bench import FEWEST
    from retcon.lab.data import load

    if not path.endswith(".jsonl"):
        raise InputError(f"--questions takes a .jsonl file, not {path[:200]!r}; docs/datasets.md has its form")
    every = [question for question in load(path).questions if not question.abstention]
    if protocol is None:
        protocol = "product" if every and all(question.history for question in every) else "controlled"
        show.warn(f"protocol {protocol}: " + _WHY[protocol])
    rules = study.protocol_of(protocol, budgets)
    picked = study.chosen_questions(path, None, abstentions=False, ids=None, sample=sample, seed=seed, rules=rules)
    if len(picked) < FEWEST:
        raise InputError(f"{show.plural(len(picked), 'question')} can tell nothing: advice needs {FEWEST}, better 50")
    return picked, rules


_WHY = {
    "product": "every question has its notes, so they are retrieved as a memory would",
    "controlled": "not every question has all its notes, so the gold evidence stands for what a retriever finds",
}


def tell_advice(result: Any) -> None:
    """The advice, for people."""
    for line in result.lines:
        show.fold(line)
    show.out()
    for what, path in result.files.items():
        show.out(f"{what:<12} {path}")
    if "router" in result.files:
        show.out(f"to use it: Memory(..., router={str(result.files['router'])!r}), or retcon recall --router")
