"""`retcon report`: outcomes into a page, Markdown, figures and tables, ours beside the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import option
from retcon.errors import InputError
from retcon.lab.cli import options as lab
from retcon.lab.cli import tell

EXAMPLES = (
    "retcon report outcomes.csv -o report",
    "retcon report outcomes.csv --judge strict --setting controlled --about model=qwen --about date=2026-11-15",
    "retcon report outcomes.parquet --draws 1000 --repeats 20 --title 'Our agents, spring' --json",
)


def report(
    file: lab.File,
    *,
    output: Annotated[Path, option("--output", "DIR", "The folder that it is written to.", short="-o")] = Path(
        "report"
    ),
    judge: lab.Judge = None,
    rows: lab.StudyRows,
    title: Annotated[str | None, option("--title", "TEXT", "What stands at the top.")] = None,
    about: Annotated[
        list[str] | None, option("--about", "KEY=VALUE", "What the rows do not say, as model=qwen. Repeatable.")
    ] = None,
    draws: Annotated[int, option("--draws", "N", "Bootstrap replicates.", min=100)] = 10_000,
    repeats: lab.Repeats = 1,
    as_json: opt.AsJson = False,
) -> None:
    """Write a report of measured outcomes: one page with every table and figure.

    report.html is one file with everything, each number beside the paper's and one click from its rows; report.md,
    figures, tables and rows lie beside it. The same outcomes give the same bytes.
    """
    from retcon.lab.report.build import make_report, write_report

    chosen = rows.read(file)
    with show.bar("report", every=1) as progress:
        made = make_report(
            chosen, judge=judge, title=title, about=_pairs(about), draws=draws, repeats=repeats, progress=progress
        )
        found = write_report(made, output)
    return show.document(tell.report_dict(found)) if as_json else tell.report(found)


def _pairs(pairs: Sequence[str] | None) -> dict[str, str]:
    """KEY=VALUE pairs, word for word."""
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--about takes KEY=VALUE, not {pair[:80]!r}")
        found[key.strip()] = value.strip()
    return found
