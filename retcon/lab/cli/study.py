"""What label, bench and advise share: from data to questions, cells, and the models that label them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from retcon.cli import options as opt
from retcon.cli import show
from retcon.errors import InputError
from retcon.lab.cli import tell
from retcon.lab.cli.options import Labelling, numbers
from retcon.lab.reply_cache import ReplyCache

if TYPE_CHECKING:
    from retcon.lab.data import BenchmarkQuestion
    from retcon.lab.label import Cell, LabelRun
    from retcon.lab.protocols import Case, Protocol
    from retcon.model import Chat

CACHE_BYTES = 1 << 36  # offline nothing is thrown away
TIMEOUT = 600.0  # seconds for one reply, if not said
UNNAMED = "a model to be named"  # of a dry run


class UnsuitedError(InputError):
    """A dataset has nothing that the protocol could use."""


def choose_protocol(name: str, budgets: str | None, data: str = "") -> Protocol:
    """The protocol of that name, with other budgets where they are given; LoCoMo's shorter ones on gold evidence."""
    from retcon.lab.protocols import PROTOCOLS, SHORT

    if name not in PROTOCOLS:
        raise InputError(f"no protocol {name!r}; there are {', '.join(PROTOCOLS)}")
    asked = SHORT if budgets is None and (data, name) == ("locomo", "controlled") else numbers(budgets)
    return PROTOCOLS[name] if asked is None else replace(PROTOCOLS[name], budgets=tuple(sorted(set(asked))))


def choose_questions(
    data: str, protocol: Protocol, *, sample: int | None, seed: int, folder: Path | None = None,
    abstentions: bool | None = False, ids: Path | None = None, corrections: bool = False,
) -> Sequence[BenchmarkQuestion]:  # fmt: skip
    """The questions of a dataset that were asked for and that the protocol can use, in the dataset's order.

    Those with an answer, or with `abstentions` those without one; None is both.
    """
    from retcon.lab import data as datasets

    gold = protocol.retriever == "gold"
    found = datasets.load(data, folder=folder, corrections=corrections, histories=not gold)
    for reason, gone in found.skipped.items():
        show.warn(f"{show.plural(len(gone), 'question')} left out: {reason}")
    questions = found.questions
    kinds = (True, False) if abstentions is None else (abstentions,)
    picked = [q for q in questions if q.abstention in kinds] if ids is None else _pick_named(questions, ids, data)
    picked = picked if sample is None else draw(picked, sample, seed=seed)
    needed = "gold evidence" if gold else "history"
    usable = [q for q in picked if (q.evidence if gold else q.history)]
    if not usable:
        why = f"no {needed}, which the {protocol.name} protocol needs" if picked else "no question of that kind"
        raise UnsuitedError(f"{data} has {why}")
    if len(usable) < len(picked):
        show.warn(f"{show.plural(len(picked) - len(usable), 'question')} left out: no {needed}")
    return usable


def draw(questions: Sequence[BenchmarkQuestion], most: int, *, seed: int) -> list[BenchmarkQuestion]:
    """At most so many of them, in their order."""
    from retcon.lab import data as datasets

    drawn = {q.id for q in datasets.sample(questions, min(most, len(questions)), seed=seed)}
    return [q for q in questions if q.id in drawn]


def _pick_named(questions: Sequence[BenchmarkQuestion], ids: Path, data: str) -> list[BenchmarkQuestion]:
    """The questions whose ids a file names."""
    try:
        wanted = set(ids.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {ids}: {getattr(error, 'strerror', None) or error}") from None
    picked = [q for q in questions if q.id in wanted]
    if missing := wanted.difference(q.id for q in picked):
        raise InputError(f"{ids}: {len(missing)} ids are not in {data}, the first: {min(missing)}")
    return picked


def make_cells(
    questions: Sequence[BenchmarkQuestion], protocol: Protocol, arms: Sequence[str], realizations: int
) -> list[Cell]:
    """Every cell of these questions; retrieving their candidates is told as it goes."""
    from retcon.lab import label as labels
    from retcon.lab.protocols import cases

    def retrieve(progress: tell.Progress) -> Iterator[Case]:
        for done, case in enumerate(cases(questions, protocol), 1):
            if protocol.retriever != "gold":
                progress("find", done, len(questions))
            yield case

    with tell.stages() as progress:
        return labels.cells(retrieve(progress), arms, budgets=protocol.budgets, realizations=realizations)


def check_model(model: opt.ModelChoice, how: Labelling, verb: str) -> None:
    """An error where no model was named, or its engine is not there; a dry run asks none."""
    how.engine.check()
    if not how.dry_run:
        model.keywords(needed_by=verb)


@dataclass(frozen=True, slots=True)
class Labeller:
    """Models that answer, and where their replies are kept."""

    writer: Chat
    reader: Chat | None  # the writer, where it is None
    grader: Chat | None  # the reader, where it is None
    replies: ReplyCache
    probed: int  # calls paid to see how long one takes
    how: Labelling

    def label(self, todo: Sequence[Cell]) -> LabelRun:
        """Measure every cell."""
        from retcon.lab.label import label

        with tell.stages() as progress:
            return label(
                todo, self.writer, self.replies, reader=self.reader, grader=self.grader, judged=self.how.judged,
                chunk=self.how.chunk, progress=progress,
            )  # fmt: skip


@contextlib.contextmanager
def prepare(
    todo: Sequence[Cell], cache: Path | str, model: opt.ModelChoice, how: Labelling, *, as_json: bool,
    reader_model: str | None = None, reader_name: str | None = None,
) -> Iterator[Labeller | None]:  # fmt: skip
    """The models and the cache, after what the run will take has been told; None where that was all."""
    from retcon.lab import label as labels
    from retcon.lab.engine import LocalEngine
    from retcon.model import FakeChat

    given = model.keywords(needed_by=None if how.dry_run else "label")
    others = ((reader_model, reader_name), (how.judge_model, how.judge_name))
    with contextlib.ExitStack() as stack:
        timeout = TIMEOUT if model.timeout is None else model.timeout
        engine = LocalEngine() if how.dry_run else stack.enter_context(how.engine.start())
        writer, reader, grader = (
            None
            if where is None
            else stack.enter_context(engine.open_model(where, name=name, timeout=timeout, concurrency=how.concurrency))
            for where, name in ((given["model"], given["model_name"]), *others)
        )
        writer = writer or FakeChat(name=UNNAMED)  # only a dry run has none
        replies = stack.enter_context(contextlib.closing(ReplyCache(cache, max_bytes=CACHE_BYTES)))
        expected = labels.estimate(todo, writer, replies, judged=how.judged)
        tell.estimate(expected, writer.name, how.prices)
        if how.dry_run:
            if as_json:
                show.document(tell.estimate_dict(expected))
            yield None
            return
        first = labels.probe(todo, reader or writer, replies)
        tell.probe(first, expected)
        yield Labeller(writer, reader, grader, replies, first.calls, how)


@contextlib.contextmanager
def prepare_folder(
    todo: Sequence[Cell], out: Path, model: opt.ModelChoice, how: Labelling, *, as_json: bool
) -> Iterator[Labeller | None]:
    """As `prepare`, with the replies in a folder, which is made; a dry run makes nothing."""
    from retcon.lab.bench import REPLIES

    if not how.dry_run:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make {out}: {error.strerror or error}") from None
    path = out / REPLIES
    with prepare(todo, ":memory:" if how.dry_run and not path.exists() else path, model, how, as_json=as_json) as ready:
        yield ready
