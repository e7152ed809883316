"""Outcomes -> a report on disk: a page, Markdown, figures, tables as CSV, and the rows that all of it comes from.

    report.html          everything, in one file
    report.md            the same without the buttons
    summary.json         title and findings, for the page of the server
    figures/KEY.svg      also KEY-dark.svg and KEY.png
    tables/KEY.csv       a line for each number: text, mean, interval, and the filter that finds its rows
    rows.csv             the outcomes

Nothing depends on the clock: the same outcomes give the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retcon.errors import InputError, MissingExtraError
from retcon.lab.outcomes import Outcomes, write
from retcon.lab.report import story
from retcon.lab.report.cells import Value, text_of
from retcon.lab.report.figures import Figure, figures
from retcon.lab.report.html import Report, count_words, page, pair_rows
from retcon.lab.report.more_tables import MORE
from retcon.lab.report.paper_tables import PAPER
from retcon.lab.report.story import TERMS
from retcon.lab.report.studies import SEED, Readings
from retcon.lab.report.tables import Table

Progress = Callable[[int, int], None]

SPECS = (*PAPER, *MORE)
TITLE = "Retain or consolidate? Memory under a token budget, measured"
# Angle brackets as entities: not every reader of Markdown knows "\<", and one that does not would see a tag.
_MARKDOWN = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_[]|#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " "}
)


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """What a report came to on disk."""

    folder: Path
    files: tuple[str, ...]  # relative to the folder
    tables: tuple[str, ...]  # keys of those that could be filled
    figures: tuple[str, ...]
    missing: Mapping[str, str] = field(default_factory=dict)  # key of a table or figure -> why it is not there


def make_report(
    outcomes: Outcomes, *, judge: str | None = None, title: str | None = None, about: Mapping[str, str] | None = None,
    draws: int = 10_000, repeats: int = 1, seed: int = SEED, progress: Progress | None = None,
) -> Report:  # fmt: skip
    """All that stands in the report of these outcomes: the same outcomes give the same report.

    `judge` decides what is right (the model judge where there is one), `repeats` is the ways to deal the folds of
    everything cross-fitted, and `about["model"]` names the model where the rows do not. Of several models on the same
    questions, the one with most rows stands in all tables but the cross-model one.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError("a report", "lab")
    said = dict(about or {})
    readings = Readings(outcomes, judge=judge, draws=draws, seed=seed, repeats=repeats, model=said.get("model", ""))
    studies = [*readings.studies, *readings.silent]
    if not studies:
        raise InputError(f"no row has a verdict of {judge or 'any judge'}")
    total = len(SPECS) + 2
    tell = progress or (lambda done, of: None)
    tables = []
    for done, spec in enumerate(SPECS, 1):
        tables.append(spec.table(readings))
        tell(done, total)
    shown, judge = readings.shown, studies[0].judge
    findings = story.findings(shown)
    tell(total - 1, total)
    pictures = figures(shown)
    tell(total, total)
    return Report(
        title=title or TITLE, opening=story.opening(shown, outcomes, judge, said), findings=findings,
        words=story.words(shown), facts=story.facts(outcomes, said, draws=draws, seed=seed, repeats=repeats),
        figures=pictures, tables=tables, published=len(PAPER), outcomes=outcomes, judge=judge,
    )  # fmt: skip


def write_report(report: Report, folder: Path) -> ReportFiles:
    """Write the report into a folder, which is made where it is not there."""
    files = dict(_files(report))
    for name, content in files.items():
        _put(folder / name, content)
    write(report.outcomes, folder / "rows.csv")
    everything: list[Table | Figure] = [*report.tables, *report.figures]
    return ReportFiles(
        folder=folder,
        files=tuple(sorted([*files, "rows.csv"])),
        tables=tuple(each.key for each in report.tables if each.missing is None),
        figures=tuple(each.key for each in report.figures if each.missing is None),
        missing={each.key: each.missing for each in everything if each.missing is not None},
    )


def _put(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def to_summary(report: Report) -> str:
    """The title and the findings, each a question with the verdict of every study, as JSON."""
    findings = [
        {"question": finding.question, "answers": [{"study": a.study, "verdict": a.verdict} for a in finding.answers]}
        for finding in report.findings
    ]
    return json.dumps({"title": report.title, "findings": findings}, indent=1) + "\n"


def _files(report: Report) -> Iterator[tuple[str, bytes]]:
    yield "report.html", page(report).encode()
    yield "report.md", to_markdown(report).encode()
    yield "summary.json", to_summary(report).encode()
    for figure in report.figures:
        if figure.missing is None:
            yield f"figures/{figure.key}.svg", figure.svg.encode()
            yield f"figures/{figure.key}-dark.svg", figure.svg_dark.encode()
            yield f"figures/{figure.key}.png", figure.png
    for table in report.tables:
        if table.missing is None:
            yield f"tables/{table.key}.csv", to_csv(table).encode()


# -- tables as CSV -----------------------------------------------------------------------------------------------------


def to_csv(table: Table) -> str:
    """A line for each cell of the table, under the words that its row begins with."""
    out = io.StringIO()
    sheet = csv.writer(out, lineterminator="\n")
    sheet.writerow(("by", "row", "column", "text", "mean", "low", "high", "rows"))
    words = min(map(count_words, table.rows), default=0)
    for cells, by in pair_rows(table):
        row = " / ".join(map(text_of, cells[:words]))
        for column, cell in zip(table.columns[words:], cells[words:], strict=True):
            number = cell if isinstance(cell, Value) else Value(cell)
            ends = ("" if end is None else repr(end) for end in (number.mean, number.low, number.high))
            sheet.writerow((by or "ours", row, column, number.text, *ends, _filter(number)))
    return out.getvalue()


def _filter(cell: Value) -> str:
    return "" if cell.rows is None else json.dumps(dict(cell.rows), default=lambda value: value.item())


# -- Markdown ----------------------------------------------------------------------------------------------------------


def to_markdown(report: Report) -> str:
    """The report as Markdown, with links to the figures and to the CSV file of each table."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {_md(report.title)}"
    yield ""
    for text in report.opening:
        yield f"{_md(text)}\n"
    yield "Numbers lead to their rows: the CSV file under each table has a line for each number, with the filter"
    yield "(columns and values) that finds its outcomes in [rows.csv](rows.csv). In [report.html](report.html) a click"
    yield "shows them.\n"
    for finding in report.findings:
        yield f"**{_md(finding.question)}**\n"
        for each in finding.answers:
            detail = "".join(_md(text_of(piece)) for piece in each.detail)
            yield f"- {_md(each.study)}: **{_md(each.verdict)}** {detail}"
        yield ""
    yield from _glossary(report)
    yield "## Figures\n"
    for figure in report.figures:
        yield from _picture(figure)
    theirs, ours = report.tables[: report.published], report.tables[report.published :]
    for head, tables in (("The paper's tables", theirs), ("What the paper lacks", ours)):
        yield f"## {head}\n"
        for table in tables:
            yield from _table(table)
    yield "## How it was made\n"
    for name, value in report.facts:
        yield f"- {_md(name)}: {_md(value)}"


def _glossary(report: Report) -> Iterator[str]:
    yield "## How to read this\n"
    for term, means in (*TERMS, *report.words):
        yield f"- **{_md(term)}**: {_md(means)}"
    yield ""


def _picture(figure: Figure) -> Iterator[str]:
    yield f"### {_md(figure.name)}\n"
    if figure.missing is not None:
        yield f"Not here: {_md(figure.missing)}.\n"
        return
    at = f"figures/{figure.key}"
    yield f'<picture><source media="(prefers-color-scheme: dark)" srcset="{at}-dark.svg">'
    yield f'<img src="{at}.svg" width="480" alt="{_attribute(figure.name)}"></picture>\n'
    yield f"{_md(figure.caption)} ([PNG]({at}.png))\n"


def _table(table: Table) -> Iterator[str]:
    yield f"### {_md(table.title)}\n"
    yield f"{_md(table.caption)}\n"
    if table.missing is not None:
        yield f"Not here: {_md(table.missing)}.\n"
        return
    marks = "".join(f" · {_md(mark)}" for mark in table.marks)
    by = ("",) if table.published else ()
    yield _line((*by, *map(_md, table.columns)))
    yield _line(["---"] * (len(by) + len(table.columns)))
    for cells, who in pair_rows(table):
        yield _line((*((who or "ours",) if by else ()), *(_md(text_of(cell)) for cell in cells)))
    yield f"\n[Numbers and their rows](tables/{table.key}.csv){marks}\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _md(text: str) -> str:
    """Text that Markdown takes as it is."""
    return text.translate(_MARKDOWN)


def _attribute(text: Any) -> str:
    return escape(str(text)).replace("`", "&#96;").replace("\n", " ").replace("\r", " ")
