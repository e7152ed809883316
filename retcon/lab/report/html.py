"""A report -> one HTML file that needs nothing else: no network, no other file, and no script to be read.

Tables and figures are plain HTML and SVG. With a script every number opens the outcomes behind it;
these travel in the page as columns of codes (a dictionary and one to three characters a row). Whatever comes from the
outcomes is escaped, and the page allows no script but its own, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import isnan
from pathlib import Path
from typing import Any

from retcon.lab.outcomes import COSTS, JUDGE, Outcomes
from retcon.lab.report.cells import Cells, Value
from retcon.lab.report.drawing import THEME, use_page_colours
from retcon.lab.report.figures import Figure
from retcon.lab.report.story import TERMS, Finding, Sentence
from retcon.lab.report.tables import Table

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
SHOWN = ("dataset", "setting", "model", "reader", "question_id", "type", "budget", "action", "realization", "pair")
MEASURED = ("fit", "abstained", "unsupported", *COSTS)
SIGNED = re.compile(r"[+−-]")
_SVG_ID = re.compile(r'\bid="')
_SVG_LINK = re.compile(r'(xlink:href="#|url\(#)')
_VIEW_BOX = re.compile(r'viewBox="[^"]*"')
MINUS = re.compile(r"(?<![\w.)])-(?=\.?\d)")  # before a number, no dash between words


@dataclass(frozen=True, slots=True)
class Report:
    """All that stands in a report."""

    title: str
    opening: Sequence[str]
    findings: Sequence[Finding]
    words: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    published: int  # so many of the tables are the paper's, the first ones
    outcomes: Outcomes
    judge: str


def page(report: Report) -> str:
    """The whole page."""
    book = _Book(report.outcomes)
    body = "".join(_body(report, book))
    script, style = _asset("page.js"), _asset("page.css")
    guard = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{guard}'; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{_colours()}{style}</style>\n</head>\n<body>\n{body}"
        f'<script type="application/json" id="data">{_data(report, book)}</script>\n<script>{script}</script>\n'
        "</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _colours() -> str:
    """The colours of figures as variables, for both themes."""
    light, dark = ("".join(f"--c{i}:{colour[side]};" for i, colour in enumerate(THEME)) for side in (0, 1))
    return (
        f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{{dark}}}\n"
    )


# -- what is read ------------------------------------------------------------------------------------------------------


def _body(report: Report, book: _Book) -> Iterator[str]:
    theirs, ours = report.tables[: report.published], report.tables[report.published :]
    sections = (
        ("short", "In short", _short(report, book), ()),
        ("read", "How to read this", _fold("Words, and the actions that were measured", _read(report)), ()),
        ("figures", "Figures", _figures(report.figures, book), [(each.key, each.name) for each in report.figures]),
        ("paper", "The paper's tables", _tables(theirs, book, THEIRS), [(each.key, each.title) for each in theirs]),
        ("more", "What the paper lacks", _tables(ours, book, OURS), [(each.key, each.title) for each in ours]),
        ("made", "How it was made", _fold("Facts and settings", f"<dl>{_definitions(report.facts)}</dl>\n"), ()),
    )
    shown = [section for section in sections if section[2]]
    yield '<a class="skip" href="#short">Skip to the findings</a>\n'
    yield f'<header><h1>{escape(report.title)}</h1><button type="button" id="theme" hidden>Dark</button></header>\n'
    yield f'<div class="layout">\n{_contents([(key, name, inner) for key, name, _, inner in shown])}<main>\n'
    for key, name, content, _ in shown:
        yield f'<section id="{key}"><h2>{name}</h2>\n{content}</section>\n'
    yield "</main>\n</div>\n" + DIALOG


THEIRS = (
    "The tables of the paper, measured again. Tinted rows marked “paper” are as it published them; ours stand above."
)
OURS = "Questions that the paper leaves open."
DIALOG = (
    '<dialog id="rows" aria-labelledby="rows-title"><form method="dialog"><h2 id="rows-title"></h2>'
    '<button aria-label="Close">Close</button></form><div id="rows-body"></div></dialog>\n'
)


def _contents(sections: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]) -> str:
    items = []
    for key, name, inner in sections:
        links = "".join(f'<li><a href="#{_id(k)}">{escape(title)}</a></li>' for k, title in inner)
        items.append(f'<li><a href="#{key}">{name}</a>{f"<ol>{links}</ol>" if links else ""}</li>')
    listed = f"<ul>{''.join(items)}</ul>"
    return f'<nav aria-label="Contents"><details open><summary>Contents</summary>{listed}</details></nav>\n'


def _short(report: Report, book: _Book) -> str:
    told = "".join(f"<p>{escape(text)}</p>\n" for text in report.opening)
    cards = []
    for finding in report.findings:
        answers = "".join(
            f'<h4>{escape(each.study)}</h4><p class="verdict">{escape(each.verdict)}</p>'
            f"<p>{_sentence(each.detail, book)}</p>"
            for each in finding.answers
        )
        cards.append(f'<div class="card"><h3>{escape(finding.question)}</h3>{answers}</div>\n')
    return f'<div class="prose">{told}</div><div class="cards">{"".join(cards)}</div>\n'


def _sentence(said: Sentence, book: _Book) -> str:
    return "".join(escape(piece) if isinstance(piece, str) else book.number(piece) for piece in said)


def _read(report: Report) -> str:
    clicks = (
        '<p class="scripted">Every underlined number is a button: it opens the outcomes that the number comes from,'
        " with their means, so that it can be checked by hand. The same rows are in rows.csv beside this page.</p>"
    )
    return (
        f'<div class="prose">{clicks}</div><dl>{_definitions(TERMS)}</dl>\n'
        f"<h3>The actions that were measured</h3>\n<dl>{_definitions(report.words)}</dl>\n"
    )


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(means)}</dd></div>" for term, means in pairs)


def _figures(figures: Sequence[Figure], book: _Book) -> str:
    """The figures, those that ask the same together; what comes first is open."""
    out: list[str] = []
    for title, some in groupby(figures, key=lambda each: each.title):
        inside = f'<div class="figures">{"".join(_figure(each, book) for each in some)}</div>'
        out.append(f"<article>{_fold_heading(title, inside, open=not out)}</article>\n")
    return "".join(out)


def _figure(figure: Figure, book: _Book) -> str:
    data = f"<h4>{escape(figure.data)}</h4>" if figure.data else ""
    wide = "" if figure.data else ' class="wide"'
    head = f'<figure id="{_id(figure.key)}"{wide}>{data}'
    if figure.missing is not None:
        return f"{head}{_missing(figure.missing)}</figure>\n"
    numbers = _grid(figure.columns, [(row, "") for row in figure.rows], book, f"Numbers: {figure.name}")
    return (
        f"{head}{inline(figure)}<figcaption>{escape(figure.caption)}</figcaption>"
        f"<details><summary>The numbers</summary>{numbers}</details></figure>\n"
    )


def inline(figure: Figure) -> str:
    """The SVG as part of a page: its colours are the page's, its ids its own."""
    svg = figure.svg[figure.svg.index("<svg") :]
    before, _, rest = svg.partition("<metadata>")
    svg = before + rest.partition("</metadata>")[2] if rest else svg
    key = _id(figure.key)
    svg = _SVG_ID.sub(f'id="{key}-', svg)
    svg = _SVG_LINK.sub(rf"\g<1>{key}-", svg)
    box = _VIEW_BOX.search(svg)
    assert box is not None
    label = escape(f"{figure.name}. {figure.caption}", quote=True)
    head = f'<svg role="img" aria-label="{label}" {box.group()} xmlns:xlink="http://www.w3.org/1999/xlink">'
    return use_page_colours(head + svg[svg.index(">") + 1 :].strip())


def _fold(name: str, content: str) -> str:
    """The content, closed until somebody opens it; a link to something inside opens it too."""
    return f'<details class="fold"><summary>{escape(name)}</summary>{content}</details>\n'


def _fold_heading(title: str, content: str, more: str = "", *, open: bool = False) -> str:  # noqa: A002
    state = " open" if open else ""
    return f'<details class="fold"{state}><summary><h3>{escape(title)}</h3>{more}</summary>{content}</details>'


def _missing(reason: str) -> str:
    return f'<p class="missing">Not here: {escape(reason)}.</p>'


# -- tables ------------------------------------------------------------------------------------------------------------


def _tables(tables: Sequence[Table], book: _Book, about: str) -> str:
    told = f'<div class="prose"><p>{about}</p></div>\n'
    return told + "".join(_table(each, book) for each in tables) if tables else ""


def _table(table: Table, book: _Book) -> str:
    article, note = f'<article id="{_id(table.key)}">', f'<p class="note">{escape(table.caption)}</p>'
    if table.missing is not None:
        return f"{article}{_fold_heading(table.title, note + _missing(table.missing), ' (not here)')}</article>\n"
    marks = "".join(f"<li>{escape(mark)}</li>" for mark in table.marks)
    badges = f'<ul class="marks" aria-label="What differs from the paper">{marks}</ul>' if marks else ""
    grid = _grid(table.columns, pair_rows(table), book, table.title)
    return f"{article}{_fold_heading(table.title, f'{note}{grid}{badges}')}</article>\n"


def pair_rows(table: Table) -> list[tuple[Cells, str]]:
    """Rows with who they are by ("" or "paper"): each published row under ours of the same name, the others last.

    Rows are of the same name if the words that they begin with are the same, as many of them as tell rows apart.
    """
    ours, theirs = list(table.rows), list(table.published)
    most = min((count_words(row) for row in ours), default=0)
    for size in range(most, 0, -1):
        names = [_name(row, size) for row in ours]
        found = {_name(row, size): row for row in theirs}
        if len(set(names)) == len(names) and len(found) == len(theirs) and found.keys() & set(names):
            out: list[tuple[Cells, str]] = []
            for name, row in zip(names, ours, strict=True):
                out += [(row, "")] + ([(found.pop(name), "paper")] if name in found else [])
            return out + [(row, "paper") for row in found.values()]
    return [(row, "") for row in ours] + [(row, "paper") for row in theirs]


def count_words(row: Cells) -> int:
    """Cells at the beginning of a row that are words, no numbers."""
    return next((i for i, cell in enumerate(row) if isinstance(cell, Value)), len(row))


def _name(row: Sequence[Value | str], size: int) -> tuple[str, ...]:
    return tuple(cell.casefold() if isinstance(cell, str) else cell.text for cell in row[:size])


def _grid(columns: Sequence[str], rows: Sequence[tuple[Cells, str]], book: _Book, name: str) -> str:
    """The rows in a box that scrolls by itself; where they begin with their data, under a line that names it."""
    words = min((count_words(row) for row, by in rows if not by), default=0)
    first = 1 if columns[:1] == ("Data",) and words > 1 else 0
    side = ["" if i < words else ' class="n"' for i in range(len(columns))][first:]
    heads = zip(columns[first:], side, strict=True)
    head = "".join(f'<th scope="col"{cls}>{escape(column)}</th>' for column, cls in heads)
    body, before = [], None
    for row, by in rows:
        if first and row[0] != before:
            before = row[0]
            body.append(f'<tr class="group"><th scope="rowgroup" colspan="{len(side)}">{escape(str(before))}</th></tr>')
        body.append(_row(row[first:], by, side, book))
    return (
        f'<div class="box" tabindex="0" role="group" aria-label="{escape(name)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _row(row: Cells, by: str, side: Sequence[str], book: _Book) -> str:
    inside = [book.number(cell) if isinstance(cell, Value) else _number(cell) for cell in row]
    tag = f'<span class="tag">{by}</span> ' if by else ""
    first = f'<th scope="row"{side[0]}>{tag}{inside[0]}</th>'
    rest = "".join(f"<td{cls}>{cell}</td>" for cell, cls in zip(inside[1:], side[1:], strict=True))
    begins = f'<tr class="{by}">' if by else "<tr>"
    return f"{begins}{first}{rest}</tr>"


def _id(key: str) -> str:
    return "x-" + "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in key)


# -- rows behind numbers -----------------------------------------------------------------------------------------------


class _Book:
    """The filters that numbers name, each once, and their numbers."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes
        self.filters: dict[str, int] = {}
        self.names: dict[str, None] = {}

    def number(self, value: Value) -> str:
        """A number that leads to its rows (the script makes a button of it); plain where it has none."""
        text = f"<b>{_number(value.text)}</b>" if _is_settled(value) else _number(value.text)
        hint = f' title="95 % interval {value.low:.3f} to {value.high:.3f}"' if _hides_interval(value) else ""
        if not value.rows:
            return f"<span{hint}>{text}</span>" if hint else text
        return f'<span class="v" data-f="{self._place(value.rows)}"{hint}>{text}</span>'

    def _place(self, rows: Mapping[str, Any]) -> int:
        wanted = {name: _as_list(value) for name, value in rows.items()}
        self.names |= dict.fromkeys(wanted)
        return self.filters.setdefault(json.dumps(wanted, default=lambda value: value.item()), len(self.filters))


def _number(text: str) -> str:
    return escape(MINUS.sub("−", text))


def _is_settled(value: Value) -> bool:
    """Whether it is a difference whose interval leaves zero out."""
    ends = (value.low, value.high)
    return bool(SIGNED.match(value.text)) and any(
        all(end is not None and end * sign > 0 for end in ends) for sign in (1, -1)
    )


def _hides_interval(value: Value) -> bool:
    """Whether there is an interval that the text does not show."""
    return "[" not in value.text and value.low is not None and value.high is not None


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def _data(report: Report, book: _Book) -> str:
    """Columns and filters as JSON that no text inside can end."""
    columns = report.outcomes.columns
    judges = [JUDGE + name for name in report.outcomes.judges]
    measured = [name for name in MEASURED if name in columns and not all(map(isnan, columns[name].tolist()))]
    wanted = dict.fromkeys((*SHOWN, *book.names, *judges, *measured))
    packed = {name: _pack(columns[name].tolist()) for name in wanted if name in columns}
    places = {name: {value: code for code, value in enumerate(each["values"])} for name, each in packed.items()}
    filters = [
        {name: [places[name][v] for v in values if v in places[name]] for name, values in json.loads(each).items()}
        for each in book.filters
    ]
    shown = [name for name in SHOWN if name in columns and any(map(str, columns[name].tolist()))]
    found = {
        "rows": len(report.outcomes), "judge": JUDGE + report.judge, "judges": judges, "measured": measured,
        "shown": shown, "columns": packed, "filters": filters,
    }  # fmt: skip
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord("<"): "\\u003c", ord(">"): "\\u003e", 0x2028: "\\u2028", 0x2029: "\\u2029"})


def _pack(values: Sequence[Any]) -> dict[str, Any]:
    """A column as its distinct values, in order, and a code of so many characters for each row."""
    plain = [None if isinstance(value, float) and isnan(value) else value for value in values]
    known: set[Any] = {value for value in plain if value is not None}
    distinct = [*sorted(known), *([None] if None in plain else [])]
    wide = 1 if len(distinct) <= 64 else 2 if len(distinct) <= 4096 else 3
    code = {value: _code(place, wide) for place, value in enumerate(distinct)}
    return {"values": distinct, "wide": wide, "codes": "".join(code[value] for value in plain)}


def _code(place: int, wide: int) -> str:
    return "".join(ALPHABET[(place >> (6 * digit)) & 63] for digit in reversed(range(wide)))
