"""The verbs of a study: label (questions into outcomes), and what is built on it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.errors import InputError
from retcon.lab.cli.learn import names, numbers

LABEL = (
    "retcon label sample --model model.gguf --protocol product -o outcomes.csv",
    "retcon label longmemeval-gold --folder data --model http://localhost:8000/v1 --model-name qwen",
    "retcon label locomo --protocol full-history --sample 300 --dry-run --model model.gguf",
)

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="longmemeval-gold, -oracle, -s, -m, locomo, sample, or your own questions as a .jsonl file.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", envvar="RETCON_DATA", metavar="DIR", help="Where the publishers' files are."),
]
ProtocolName = Annotated[
    str, typer.Option("--protocol", metavar="NAME", help="controlled, full-history, or product (Memory's defaults).")
]
Arms = Annotated[
    str,
    typer.Option("--actions", metavar="A,B,C", help="Actions; merge-agnostic is merge written without the question."),
]
Cache = Annotated[
    Path, typer.Option("--cache", metavar="FILE", help="Where replies are kept, so that a run can go on later.")
]
Chunk = Annotated[
    int | None, typer.Option("--chunk", metavar="N", min=1, help="Asks sent, then kept, at once: 512, of a GGUF 8.")
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", min=1, help="Asks under way at once at an endpoint.")
]
CACHE_BYTES = 1 << 36  # offline nothing is thrown away


class UnsuitedError(InputError):
    """A dataset has nothing that the protocol could use."""


def chosen_questions(
    data: str, folder: Path | None, *, abstentions: bool, ids: Path | None, sample: int | None, seed: int,
    corrections: bool = False, rules: Any,
) -> Sequence[Any]:  # fmt: skip
    """The questions of a dataset that were asked for and that the protocol can use, in the dataset's order."""
    from retcon.lab import data as study

    gold = rules.retriever == "gold"
    found = study.load(data, folder=folder, corrections=corrections, histories=not gold)
    for reason, gone in found.skipped.items():
        show.warn(f"{show.plural(len(gone), 'question')} left out: {reason}")
    questions = found.questions
    picked = [q for q in questions if q.abstention] if abstentions else [q for q in questions if not q.abstention]
    if ids is not None:
        wanted = _ids(ids)
        picked = [q for q in questions if q.id in wanted]
        if missing := wanted.difference(q.id for q in picked):
            raise InputError(f"{ids}: {len(missing)} ids are not in {data}, the first: {min(missing)}")
    if sample is not None and sample < len(picked):
        kept = {q.id for q in study.sample(picked, sample, seed=seed)}
        picked = [q for q in picked if q.id in kept]
    needed = "gold evidence" if gold else "history"
    usable = [q for q in picked if (q.evidence if gold else q.history)]
    if not usable:
        why = f"no {needed}, which the {rules.name} protocol needs" if picked else "no question of that kind"
        raise UnsuitedError(f"{data} has {why}")
    if len(usable) < len(picked):
        show.warn(f"{show.plural(len(picked) - len(usable), 'question')} left out: no {needed}")
    return usable


def _ids(path: Path) -> set[str]:
    try:
        return set(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def label(
    data: Data,
    *,
    protocol: ProtocolName = "controlled",
    actions: Arms = "retain,extract,merge,abstract,rewrite",
    budgets: Annotated[
        str | None, typer.Option("--budgets", metavar="N,N", help="Tokens; else the protocol's.")
    ] = None,
    realizations: Annotated[
        int, typer.Option("--realizations", metavar="N", min=1, help="The first is greedy, others are sampled.")
    ] = 1,
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", min=1, help="So many questions.")] = None,
    ids: Annotated[Path | None, typer.Option("--ids", metavar="FILE", help="Only the questions it names.")] = None,
    abstentions: Annotated[
        bool, typer.Option("--abstentions", help="The questions to which 'not in memory' is the right answer.")
    ] = False,
    corrections: Annotated[
        bool, typer.Option("--corrections", help="LoCoMo's labels as its audit mends them.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Draws the sample.")] = 20260716,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Outcomes, .csv or .parquet.")] = Path(
        "outcomes.csv"
    ),
    answers: Annotated[
        Path | None, typer.Option("--answers", metavar="FILE", help="Also the replies, as JSONL; they quote the data.")
    ] = None,
    cache: Cache = Path("replies.db"),
    retriever: Annotated[
        str | None,
        typer.Option("--retriever", metavar="NAME", help="In place of the protocol's; gold is the evidence."),
    ] = None,
    top_k: opt.TopK = None,
    cap: Annotated[int | None, typer.Option("--cap", metavar="N", min=1, help="Most tokens of all candidates.")] = None,
    counter: opt.CounterName = None,
    accounting: Annotated[
        str | None,
        typer.Option("--accounting", metavar="NAME", help="What costs: text alone, or all that is rendered."),
    ] = None,
    embedder: opt.EmbedderName = None,
    model: opt.Model = None,
    model_name: opt.ModelName = None,
    timeout: opt.Timeout = None,
    reader_model: Annotated[
        str | None, typer.Option("--reader-model", metavar="URL|FILE", help="Another model as reader.")
    ] = None,
    reader_name: Annotated[
        str | None, typer.Option("--reader-name", metavar="NAME", help="Its name at the URL.")
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option("--judge-model", metavar="URL|FILE", help="Another model as judge.")
    ] = None,
    judge_name: Annotated[str | None, typer.Option("--judge-name", metavar="NAME", help="Its name at the URL.")] = None,
    no_judge: Annotated[bool, typer.Option("--no-judge", help="Only the judges that need no model.")] = False,
    price_in: Annotated[float, typer.Option("--price-in", metavar="P", help="For a million tokens read.")] = 0.0,
    price_out: Annotated[float, typer.Option("--price-out", metavar="P", help="For a million tokens written.")] = 0.0,
    chunk: Chunk = None,
    concurrency: Concurrency = 16,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and stop.")] = False,
    folder: Folder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Measure every action on every question: generate, answer, judge.

    What it will take is said before it starts. Stopped at any point, the same command goes on where it was: replies
    are kept in the cache. The exit code is 1 where some outcomes could not be measured; run it again for those.
    """
    from retcon.lab import label as labels
    from retcon.lab.outcomes import write
    from retcon.lab.reply_cache import ReplyCache

    rules = altered(
        protocol_of(protocol, budgets, data), retriever=retriever, top_k=top_k, cap=cap, counter=counter,
        accounting=accounting, embedder=embedder,
    )  # fmt: skip
    labels.check_arms(arms := names(actions) or [])
    opt.model(model, model_name, needed_by="label")
    writable(output)
    picked = chosen_questions(
        data, folder, abstentions=abstentions, ids=ids, sample=sample, seed=seed, corrections=corrections, rules=rules
    )
    todo = cells_of(picked, rules, arms, realizations)
    with (
        models(
            model,
            model_name,
            timeout,
            judge_model,
            judge_name,
            concurrency,
            reader=reader_model,
            reader_name=reader_name,
        ) as (writer, reader, grader),
        contextlib.closing(ReplyCache(cache, max_bytes=CACHE_BYTES)) as kept,
    ):
        expected = labels.estimate(todo, writer, kept, judged=not no_judge)
        tell_estimate(expected, writer.name, price_in=price_in, price_out=price_out)
        if dry_run:
            if as_json:
                show.document(plain_estimate(expected))
            return
        first = labels.probe(todo, reader or writer, kept)
        tell_probe(first, expected)
        with stages() as progress:
            found = labels.label(
                todo, writer, kept, reader=reader, grader=grader, judged=not no_judge, chunk=chunk, progress=progress
            )  # fmt: skip
    if found.outcomes is not None:
        write(found.outcomes, output)
        if answers is not None:
            answers.write_text("".join(json.dumps(row) + "\n" for row in found.answers), encoding="utf-8")
    result = {
        "outcomes": None if found.outcomes is None else str(output),
        "rows": 0 if found.outcomes is None else len(found.outcomes),
        "failures": dict(found.failures), "calls": found.calls + first.calls, "reused": found.reused - first.calls,
    }  # fmt: skip
    if as_json:
        show.document(result)
    else:
        wrote = "no outcome was measured" if found.outcomes is None else f"wrote {result['rows']} outcomes to {output}"
        show.out(f"{wrote}; {result['calls']} calls paid, {result['reused']} from the cache")
    tell_failures(found.failures)
    if found.failures:
        raise typer.Exit(1)


def cells_of(questions: Sequence[Any], rules: Any, arms: Sequence[str], realizations: int) -> list[Any]:
    """Every cell of these questions; retrieving their candidates is told as it goes."""
    from retcon.lab import label as labels
    from retcon.lab.protocols import cases

    def told(progress: Any) -> Iterator[Any]:
        for done, case in enumerate(cases(questions, rules), 1):
            if rules.retriever != "gold":
                progress("find", done, len(questions))
            yield case

    with stages() as progress:
        return labels.cells(told(progress), arms, budgets=rules.budgets, realizations=realizations)


def writable(output: Path) -> None:
    """An error where outcomes could not be written there, before anything is paid for."""
    if output.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"outcomes are written as .csv or .parquet, not {output.name!r}")
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent}")


def protocol_of(name: str, budgets: str | None, data: str = "") -> Any:
    """The protocol of that name, with other budgets where they are given; LoCoMo's shorter ones on gold evidence."""
    from retcon.lab.protocols import PROTOCOLS, SHORT

    if name not in PROTOCOLS:
        raise InputError(f"no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    asked = SHORT if budgets is None and (data, name) == ("locomo", "controlled") else numbers(budgets)
    return PROTOCOLS[name] if asked is None else replace(PROTOCOLS[name], budgets=tuple(sorted(set(asked))))


def altered(rules: Any, **given: Any) -> Any:
    """The protocol with other parts in the place of its own; None leaves one as it is."""
    from retcon import retrieve, tokens
    from retcon.lab.protocols import ACCOUNTINGS, GOLD
    from retcon.model import embedder

    named = {name: value for name, value in given.items() if value is not None}
    if named.get("retriever", GOLD) != GOLD:
        retrieve.check_retriever(named["retriever"])
    if named.get("accounting", ACCOUNTINGS[0]) not in ACCOUNTINGS:
        raise InputError(f"--accounting is {' or '.join(ACCOUNTINGS)}, not {named['accounting']!r}")
    tokens.counter(named.get("counter"))
    embedder(named.get("embedder"))
    return replace(rules, **named)


@contextlib.contextmanager
def models(
    model: str | None,
    name: str | None,
    timeout: float | None,
    judge: str | None,
    judge_name: str | None,
    concurrency: int,
    *,
    reader: str | None = None,
    reader_name: str | None = None,
) -> Iterator[tuple[Any, Any, Any]]:
    """Who writes, who reads and who judges (None: the one before); closed afterwards."""
    from retcon.model import chat

    given = opt.model(model, name, needed_by="label")
    key = os.environ.get("RETCON_API_KEY") or os.environ.get("OPENAI_API_KEY")
    limit = 600.0 if timeout is None else timeout

    with contextlib.ExitStack() as stack:

        def opened(where: str, called: str | None) -> Any:
            secret = key if opt.is_url(where) else None
            made = chat(where, name=called, key=secret, timeout=limit, concurrency=concurrency)
            stack.callback(getattr(made, "close", lambda: None))  # closing is optional for a model
            return made

        others = ((reader, reader_name), (judge, judge_name))
        yield (
            opened(given["model"], given["model_name"]),
            *(None if where is None else opened(where, called) for where, called in others),
        )


@contextlib.contextmanager
def stages() -> Iterator[Any]:
    """A callback (stage, done, total), drawn on standard error: a bar a stage, or lines where that is no terminal."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:>6}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as drawn:
        tasks: dict[str, Any] = {}

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


def tell_estimate(expected: Any, model: str, *, price_in: float, price_out: float) -> None:
    """What a run will take, on standard error."""
    calls = ", ".join(f"{count} to {stage}" for stage, count in expected.calls.items())
    show.warn(
        f"{show.plural(expected.cells, 'outcome')} with {model}: calls {calls} at most; {expected.kept} kept before"
    )
    cost = expected.cost(price_in=price_in, price_out=price_out)
    money = f", {cost:.2f} at the prices given" if cost else ""
    show.warn(f"about {expected.prompt_tokens} tokens read and at most {expected.completion_tokens} written{money}")


def tell_probe(first: Any, expected: Any) -> None:
    """How long a run will take, by its first asks, on standard error."""
    if first.calls:
        calls = sum(expected.calls.values()) - expected.kept
        show.warn(f"about {duration(first.seconds * calls)} if every call takes {first.seconds:.2f} s as the first did")


def tell_failures(failures: Mapping[str, int]) -> None:
    """What could not be measured, a line a reason, on standard error."""
    for reason, count in failures.items():
        what = "verdict" if reason.startswith("judge") else "outcome"
        show.warn(f"{show.plural(count, what)} missing ({reason}): the same command asks for these alone")


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def plain_estimate(expected: Any) -> dict[str, Any]:
    """An estimate as plain JSON values."""
    return {
        "cells": expected.cells, "calls": dict(expected.calls), "kept": expected.kept,
        "prompt_tokens": expected.prompt_tokens, "completion_tokens": expected.completion_tokens,
    }  # fmt: skip
