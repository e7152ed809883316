"""`retcon report`: outcomes into a page, Markdown, figures and tables, ours beside the published numbers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.errors import InputError
from retcon.lab.cli import label as study
from retcon.lab.cli.learn import Dataset, File, Judge, Setting

EXAMPLES = (
    "retcon report outcomes.csv -o report",
    "retcon report outcomes.csv --judge strict --setting controlled --about model=qwen --about date=2026-11-15",
    "retcon report outcomes.parquet --draws 1000 --repeats 20 --title 'Our agents, spring' --json",
)


def report(
    file: File,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder that it is written to.")
    ] = Path("report"),
    judge: Judge = None,
    dataset: Dataset = None,
    setting: Setting = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="What stands at the top.")] = None,
    about: Annotated[
        list[str] | None,
        typer.Option("--about", metavar="KEY=VALUE", help="What the rows do not say, as model=qwen. Repeatable."),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", metavar="N", min=100, help="Bootstrap replicates.")] = 10_000,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Ways to deal the folds.")] = 1,
    as_json: opt.AsJson = False,
) -> None:
    """Write a report of measured outcomes: one page with every table and figure.

    report.html is one file with everything, each number beside the paper's and one click from its rows; report.md,
    figures, tables and rows lie beside it. The same outcomes give the same bytes.
    """
    from retcon.lab.report.build import make_report, write_report

    chosen = rows_of(file, dataset=dataset, setting=setting)
    with bar() as progress:
        made = make_report(
            chosen, judge=judge, title=title, about=said(about), draws=draws, repeats=repeats, progress=progress
        )
        written = write_report(made, output)
    if as_json:
        return show.document(
            {
                "folder": str(output),
                "files": list(written.files),
                "tables": list(written.tables),
                "figures": list(written.figures),
                "missing": dict(written.missing),
            }
        )
    for key, why in written.missing.items():
        show.warn(f"no {key}: {why}")
    return show.out(
        f"wrote {show.plural(len(written.tables), 'table')} and {show.plural(len(written.figures), 'figure')} to"
        f" {output / 'report.html'}"
    )


@contextlib.contextmanager
def bar() -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, total), drawn on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with study.stages() as step:
        yield lambda done, total: step("report", done, total)


def said(pairs: Sequence[str] | None) -> dict[str, str]:
    """KEY=VALUE pairs, word for word."""
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--about takes KEY=VALUE, not {pair[:80]!r}")
        found[key.strip()] = value.strip()
    return found


def rows_of(file: str, *, dataset: str | None, setting: str | None) -> Any:
    """The outcomes of a file that were asked for."""
    from retcon.lab import outcomes

    chosen = outcomes.read(file)
    for name, wanted in (("dataset", dataset), ("setting", setting)):
        there = sorted(set(chosen.columns[name].tolist()))
        if wanted is not None and wanted not in there:
            raise InputError(f"no {name} {wanted!r} among these rows of {file}; there are {', '.join(there)}")
        chosen = chosen.where(**{name: wanted})
    return chosen
