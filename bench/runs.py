"""Every run of the evaluation as data, and one command that makes them, in order, resumable.

    python -m bench.runs --model qwen.gguf --out rows                     all of them, on any model
    python -m bench.runs --model http://localhost:8000/v1 --model-name m --only locomo-product --out rows
    python -m bench.runs --replies rows/replies.jsonl.gz --out rows       rows again from kept replies, no model asked
    python -m bench.runs --model FOLDER --only wave1 --export --out OUT   of seven domains a first part, replies alone

It calls what `retcon label` calls. Questions are named by the id files in bench/prereg, which were drawn before any
outcome existed (those of the seven domains by `bench.domains`). Replies are kept in OUT/replies.db; with --export they
are also written as JSON lines.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bench import data_file
from bench.domains import DOMAINS, PREREG, WAVES
from bench.domains import load as load_domain
from bench.unanswerable import kind_of, twin_of
from retcon.errors import ModelError, ModelUnavailableError
from retcon.lab.data import BenchmarkQuestion, load
from retcon.lab.gpu.chat import TransformersChat
from retcon.lab.label import cells, label
from retcon.lab.outcomes import write
from retcon.lab.protocols import PROTOCOLS, SHORT, cases
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, Chat, Reply, chat
from retcon.operate import Length
from retcon.store import Kept

MODEL = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M-bf16"
SMALL = "Qwen2.5-Coder-0.5B-Instruct-bf16"
FREE = ("retain", "extract")
FOCUSED = ("merge", "abstract", "hybrid")
PAPER = ("retain", "merge-agnostic", "abstract-agnostic", "rewrite-agnostic")
EVERY = (*FREE, *FOCUSED, "rewrite", *PAPER[1:])
ABLATED = (*FREE, *PAPER[1:])
COMPARED = ("locomo", "friendsqa", "timeqa", "factcon")  # domains that rivals are compared on


@dataclass(frozen=True, slots=True)
class Run:
    """One table of outcomes: which questions, how their clusters are found, what is tried."""

    name: str
    data: str
    protocol: str
    arms: tuple[str, ...]
    ids: tuple[str, ...] = ()  # id files; the last part of each name becomes the rows' fold where there are several
    budgets: tuple[int, ...] | None = None
    realizations: int = 1
    abstentions: bool | None = False  # None: answerable questions and others, as the id files name them
    small: bool = False  # written and read by the small model, judged by the large one
    paired: bool = False  # every operator has a retention of its own, as in the paper
    change: Mapping[str, Any] = field(default_factory=dict)  # what differs from the protocol
    holding: bool = False  # the writer is also asked whether each text holds the answer


LARGE = (512, 1024, 2048, 4096)
FIVE = (32, 64, 128, 256, 512)
MORE: Mapping[str, Any] = {"cap": 6144, "top_k": 200}  # candidates
ABOUT = Length(0.9, "Write about {words} words.")  # names no limit but a length, and a longer one
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": {}, "longer": {"length": ABOUT}, "rendered": {"accounting": "rendered"},
}  # fmt: skip
WIDE = LARGE[:2]  # above the learned budgets, and below 2,048 tokens, where all that `Memory` looks at by default fits
RUNS = (
    Run("locomo-product", "locomo", "product", (*FREE, *FOCUSED), ("fit", "calibration", "gate")),
    Run("pool-product", "longmemeval-pool", "product", (*FREE, *FOCUSED)),
    Run("longmemeval-controlled", "longmemeval-gold", "controlled", EVERY),
    Run("locomo-history", "locomo", "full-history", (*FREE, *FOCUSED, *PAPER[1:3]), ("tables",)),
    Run("locomo-controlled", "locomo", "controlled", EVERY, ("tables",), SHORT),
    Run("locomo-abstention", "locomo", "product", (*FREE, *FOCUSED), ("abstention",), abstentions=True),
    Run("pool-abstention", "longmemeval-pool", "product", (*FREE, *FOCUSED), abstentions=True),
    Run("longmemeval-realizations", "longmemeval-gold", "controlled", PAPER, realizations=3),
    Run("locomo-rewrite", "locomo", "full-history", ("retain", "rewrite", "rewrite-agnostic"), ("rewrite",)),
    Run("longmemeval-small", "longmemeval-gold", "controlled", PAPER, small=True),
    Run("locomo-large", "locomo", "product", (*FREE, "merge"), ("rewrite",), LARGE, change=MORE),
    # the 160 questions, by type, that were drawn for the realizations before all were made
    Run("pool-large", "longmemeval-pool", "product", (*FREE, "merge"), ("realizations",), LARGE, change=MORE),
    Run("pool-wide", "longmemeval-pool", "product", (*FREE, *FOCUSED), budgets=WIDE),
    Run("locomo-wide", "locomo", "product", (*FREE, *FOCUSED), ("fit", "calibration"), WIDE),
    Run("locomo-second", "locomo", "product", (*FREE, *FOCUSED), ("second",)),
    # seven domains: a part of each, then the next part of each; then the small reader on two of them
    *(
        Run(
            f"{name}-{wave}", name, "product", (*FREE, *FOCUSED), (wave,), FIVE, abstentions=None,
            holding=wave == WAVES[-1],
        )
        for wave in WAVES
        for name in DOMAINS
    ),
    *(
        Run(f"{name}-wave1-small", name, "product", (*FREE, *FOCUSED), ("wave1",), FIVE, abstentions=None, small=True)
        for name in ("friendsqa", "longmemeval")
    ),
    # ours beside rivals (bench/prereg/rivals.md)
    *(
        Run(f"{name}-rivals", name, "product", (*FREE, *FOCUSED), ("rivals",), FIVE, abstentions=None)
        for name in COMPARED
    ),
    # what the audit asked for (bench/prereg/audit.md)
    Run(
        "locomo-independent", "locomo", "full-history", PAPER,
        ("independent/fit", "independent/calibration", "independent/gate"),
    ),
    Run("longmemeval-paired", "longmemeval-gold", "controlled", PAPER, ("paired",), realizations=3, paired=True),
    *(
        Run(f"longmemeval-{name}", "longmemeval-gold", "controlled", ABLATED, ("realizations",), change=change)
        for name, change in ABLATIONS.items()
    ),
)  # fmt: skip
AUDIT = ("locomo-independent", "longmemeval-paired", *(f"longmemeval-{name}" for name in ABLATIONS))
GROUPS = {wave: tuple(f"{name}-{wave}" for name in DOMAINS) for wave in WAVES} | {
    "audit": AUDIT,
    "rivals": tuple(f"{name}-rivals" for name in COMPARED),
}  # for --only


class Replay:
    """A model that is not there: only what the cache holds is answered."""

    kind = "hf"

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return [ModelUnavailableError(f"{self.name}: not among the kept replies") for _ in asks]


def questions(run: Run) -> Iterator[tuple[str, BenchmarkQuestion]]:
    """(fold, question) in the dataset's order, which keeps a conversation's questions together."""
    every = _load(run)
    if not run.ids:
        yield from (("", q) for q in every if q.evidence or run.abstentions)
        return
    fold = {name: part.rpartition("/")[2] for part in run.ids for name in read_part(run, part)}
    if missing := set(fold) - {q.id for q in every} if run.abstentions is None else ():
        raise SystemExit(
            f"{run.name}: no question {min(missing)} in the data ({len(missing)} of {len(fold)} are missing)"
        )
    yield from ((fold[q.id] if len(run.ids) > 1 else "", q) for q in every if q.id in fold)


def read_part(run: Run, part: str) -> list[str]:
    """The ids of one of a run's parts."""
    return (PREREG / f"{run.data.split('-')[0]}-{part}.txt").read_text(encoding="utf-8").split()


def _load(run: Run) -> Sequence[BenchmarkQuestion]:
    """All questions that a run may be about; of a domain, those made from others too."""
    if run.abstentions is None:
        return _together(load_domain(run.data))
    folder = data_file("locomo10.json" if run.data == "locomo" else "longmemeval_gold_evidence_500.json").parent
    return [q for q in load(run.data, folder=folder).questions if q.abstention == run.abstentions]


def _together(every: Sequence[BenchmarkQuestion]) -> list[BenchmarkQuestion]:
    """The questions of one history side by side, in the order in which histories first appear."""
    first: dict[int, int] = {}
    for q in every:
        first.setdefault(id(q.history), len(first))
    return sorted(every, key=lambda q: first[id(q.history)])


def make(
    run: Run, large: Chat, small: Chat, cache: ReplyCache, *, limit: int | None, guard: bool, chunk: int
) -> dict[str, Any]:
    """The rows and words of one run."""
    protocol = replace(PROTOCOLS[run.protocol], **run.change)
    picked = list(questions(run))[:limit]
    todo = cells(
        cases((q for _, q in picked), protocol), run.arms, budgets=run.budgets, realizations=run.realizations,
        paired=run.paired,
    )  # fmt: skip
    writer = small if run.small else large
    done = label(todo, writer, cache, grader=large, guard=guard, holding=run.holding, chunk=chunk, progress=_tell)
    about = {q.id: {"fold": fold, "kind": kind_of(q), "twin": twin_of(q)} for fold, q in picked}
    rows = [] if done.outcomes is None else [row | about[row["question_id"]] for row in done.outcomes.rows()]
    return {"rows": rows, "answers": done.answers, "failures": dict(done.failures), "calls": done.calls}


def _tell(stage: str, done: int, total: int) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {stage} {done} of {total}", flush=True)


def main() -> None:
    """Make the runs asked for, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="base URL, .gguf file or transformers folder of the large model")
    parser.add_argument("--model-name", help="its name at an endpoint")
    parser.add_argument("--small", help="the second reader, for the run that needs it")
    parser.add_argument("--replies", type=Path, action="append", default=[], help="kept replies to start from")
    parser.add_argument(
        "--only", action="append", choices=[*GROUPS, *(run.name for run in RUNS)], help="these, in their order"
    )
    parser.add_argument("--skip", action="append", default=[], choices=[run.name for run in RUNS])
    parser.add_argument("--limit", type=int, help="so many questions of each run")
    parser.add_argument("--export", action="store_true", help="write the replies of each run as JSON lines, no rows")
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--batch-tokens", type=int, default=1_000_000, help="of a transformers folder")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cache = ReplyCache(options.out / "replies.db", max_bytes=1 << 36)
    for path in options.replies:
        restore(path, cache)
    large = open_model(options.model, options.model_name, MODEL, options.batch_tokens)
    small = open_model(options.small, None, SMALL, options.batch_tokens)
    only = {name for each in options.only or () for name in GROUPS.get(each, (each,))}
    for run in RUNS:
        if (only and run.name not in only) or run.name in options.skip:
            continue
        if run.small and options.model and not options.small:
            continue
        print(f"{time.strftime('%H:%M:%S')} {run.name}", flush=True)
        noted = RecordingCache(cache) if options.export else cache
        made = make(run, large, small, noted, limit=options.limit, guard=not options.export, chunk=options.chunk)
        print(f"{time.strftime('%H:%M:%S')} {run.name}: {len(made['rows'])} rows, {made['failures']}", flush=True)
        if isinstance(noted, RecordingCache):
            noted.export(options.out / f"{run.name}.replies.jsonl.gz")
        else:
            keep(run, made, options.out)


def open_model(where: str | None, name: str | None, known: str, batch_tokens: int) -> Chat:
    """The model at that place; a stand-in that only the cache can answer for where none is given."""
    if where is None:
        return Replay(known)
    if (Path(where) / "config.json").is_file():
        return TransformersChat(where, name=known, batch_tokens=batch_tokens, batch_rows=2048)
    return chat(where, name=name, timeout=600, concurrency=16)


def keep(run: Run, made: dict[str, Any], out: Path) -> None:
    """The rows as CSV, gate questions in a file of their own; the words beside them."""
    from retcon.lab.outcomes import from_rows

    for part, rows in (
        ("", [row for row in made["rows"] if row["fold"] != "gate"]),
        ("-gate", [row for row in made["rows"] if row["fold"] == "gate"]),
    ):
        if rows:
            write(from_rows(rows), out / f"{run.name}{part}.csv")
    with gzip.open(out / f"{run.name}.answers.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in made["answers"])


class RecordingCache(ReplyCache):
    """A cache that remembers which replies a run used."""

    def __init__(self, cache: ReplyCache) -> None:
        self.cache, self.used = cache, dict[str, Kept]()

    def get_replies(self, keys: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Kept]:
        found = self.cache.get_replies(keys, sources)
        self.used |= found
        return found

    def put_replies(self, given: Sequence[Kept], sources: Sequence[str] = ()) -> int:
        self.used |= {each.key: each for each in given}
        return self.cache.put_replies(given, sources)

    def export(self, path: Path) -> None:
        """Write the replies that were used."""
        with gzip.open(path, "wt", encoding="utf-8", compresslevel=6) as file:
            file.writelines(json.dumps(asdict(each)) + "\n" for each in self.used.values())


def restore(path: Path, cache: ReplyCache) -> None:
    """Put exported replies into the cache."""
    names = [each.name for each in fields(Kept)]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        cache.put_replies([Kept(**{name: row[name] for name in names}) for row in map(json.loads, file)])


if __name__ == "__main__":
    main()
