"""`retcon label`: questions into outcomes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError
from retcon.lab.cli import options as lab
from retcon.lab.cli import study, tell

if TYPE_CHECKING:
    from retcon.lab.protocols import Protocol

EXAMPLES = (
    "retcon label sample --model model.gguf --protocol product -o outcomes.csv",
    "retcon label longmemeval-gold --folder data --model http://localhost:8000/v1 --model-name qwen",
    "retcon label locomo --protocol full-history --sample 300 --dry-run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolChanges:
    """Other parts in the place of a protocol's own."""

    retriever: Annotated[
        str | None, option("--retriever", "NAME", "In place of the protocol's; gold is the evidence.")
    ] = None
    top_k: opt.TopK = None
    cap: Annotated[int | None, option("--cap", "N", "Most tokens of all candidates.", min=1)] = None
    counter: opt.CounterName = None
    accounting: Annotated[
        str | None, option("--accounting", "NAME", "What costs: text alone, or all that is rendered.")
    ] = None
    embedder: opt.EmbedderName = None

    def apply(self, protocol: Protocol) -> Protocol:
        """The protocol with these parts; None leaves one as it is."""
        from retcon import retrieve, tokens
        from retcon.lab.protocols import ACCOUNTINGS, GOLD
        from retcon.model import embedder

        if self.retriever not in (None, GOLD):
            retrieve.check_retriever(self.retriever)
        if self.accounting not in (None, *ACCOUNTINGS):
            raise InputError(f"--accounting is {' or '.join(ACCOUNTINGS)}, not {self.accounting!r}")
        tokens.counter(self.counter)
        embedder(self.embedder)
        return replace(protocol, **{name: value for name, value in asdict(self).items() if value is not None})


def label(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="longmemeval-gold, -oracle, -s, -m, locomo, sample, or your own questions as a .jsonl file.",
        ),
    ],
    *,
    protocol: Annotated[
        str, option("--protocol", "NAME", "controlled, full-history, or product (Memory's defaults).")
    ] = "controlled",
    actions: lab.Arms = "retain,extract,merge,abstract,rewrite",
    budgets: lab.Budgets = None,
    realizations: lab.Realizations = 1,
    sample: Annotated[int | None, option("--sample", "N", "So many questions.", min=1)] = None,
    ids: Annotated[Path | None, option("--ids", "FILE", "Only the questions it names.")] = None,
    abstentions: Annotated[
        bool, flag("--abstentions", "The questions to which 'not in memory' is the right answer.")
    ] = False,
    corrections: lab.Corrections = False,
    seed: lab.SampleSeed = lab.SEED,
    output: Annotated[Path, option("--output", "FILE", "Outcomes, .csv or .parquet.", short="-o")] = Path(
        "outcomes.csv"
    ),
    answers: Annotated[
        Path | None, option("--answers", "FILE", "Also the replies, as JSONL; they quote the data.")
    ] = None,
    cache: Annotated[Path, option("--cache", "FILE", "Where replies are kept, so that a run can go on later.")] = Path(
        "replies.db"
    ),
    changes: ProtocolChanges,
    model: opt.ModelChoice,
    reader_model: Annotated[str | None, option("--reader-model", "URL|FILE", "Another model as reader.")] = None,
    reader_name: Annotated[str | None, option("--reader-name", "NAME", "Its name at the URL.")] = None,
    how: lab.Labelling,
    folder: lab.Folder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Measure every action on every question: generate, answer, judge.

    What it will take is said before it starts. Stopped at any point, the same command goes on where it was: replies
    are kept in the cache. The exit code is 1 where some outcomes could not be measured; run it again for those.
    """
    from retcon.lab.label import check_arms
    from retcon.lab.outcomes import write

    rules = changes.apply(study.choose_protocol(protocol, budgets, data))
    check_arms(arms := lab.names(actions) or [])
    study.check_model(model, how, "label")
    check_writable(output)
    picked = study.choose_questions(
        data, rules, sample=sample, seed=seed, folder=folder, abstentions=abstentions, ids=ids, corrections=corrections
    )
    todo = study.make_cells(picked, rules, arms, realizations)
    with study.prepare(
        todo, cache, model, how, as_json=as_json, reader_model=reader_model, reader_name=reader_name
    ) as ready:
        if ready is None:
            return
        found = ready.label(todo)
    if found.outcomes is not None:
        write(found.outcomes, output)
        if answers is not None:
            answers.write_text("".join(json.dumps(row) + "\n" for row in found.answers), encoding="utf-8")
    where, rows = (None, 0) if found.outcomes is None else (str(output), len(found.outcomes))
    calls, reused = found.calls + ready.probed, found.reused - ready.probed
    if as_json:
        failures = dict(found.failures)
        show.document({"outcomes": where, "rows": rows, "failures": failures, "calls": calls, "reused": reused})
    else:
        wrote = "no outcome was measured" if where is None else f"wrote {rows} outcomes to {output}"
        show.out(f"{wrote}; {calls} calls paid, {reused} from the cache")
    tell.failures(found.failures)


def check_writable(output: Path) -> None:
    """An error where outcomes could not be written there, before anything is paid for."""
    if output.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"outcomes are written as .csv or .parquet, not {output.name!r}")
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent}")
