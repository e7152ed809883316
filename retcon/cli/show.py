"""Results on standard output: for people, or as one JSON document. Warnings, bars and looks go to standard error.

What notes hold is other people's text: for people its control characters are replaced, so that none reaches a terminal.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from retcon.ladder import Answer, Look
from retcon.note import Claim, Decision, Dropped, Fidelity, Hit, Note, Recall, Record, Source, Usage
from retcon.why import explain_confidence


class Progress(Protocol):
    """Told how many are done, and of how many if that is known only by then."""

    def __call__(self, done: int, total: int | None = None, /) -> None: ...


_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_ESCAPED = {code: f"\\u{code:04x}" for code in range(127, 160)}  # JSON leaves these as they are
WHY = {
    "budget": "no room in the budget",
    "duplicate": "already said by another note",
    "no_match": "no word of the query",
    "cap": "over the candidate cap",
}
FEW = 3  # dropped notes named per reason, missing claims of a record
WIDE, WIDEST = 40, 1000  # columns a table gives to all but the last; characters of a cell that are looked at


def clean(text: str) -> str:
    """The text with control characters replaced, line breaks and tabs kept."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def one_line(text: str) -> str:
    """The text on one line, clean."""
    return " ".join(clean(text).split())


def out(text: str = "") -> None:
    """One or more lines on standard output, clean."""
    print(clean(text))


def warn(text: str) -> None:
    """One line on standard error."""
    print(f"retcon: {one_line(text)}", file=sys.stderr)


def document(value: Any) -> None:
    """One JSON document; plain ASCII, so that any stream carries it and nothing in it moves a terminal."""
    print(json.dumps(value, indent=2, allow_nan=False))


def results(items: Iterable[Note | Hit]) -> None:
    """A list as one JSON document."""
    document({"results": [item.to_dict() for item in items]})


def jsonl(lines: Iterable[str]) -> None:
    """JSONL as it stands in an exported file: UTF-8 whatever the terminal speaks."""
    sys.stdout.flush()
    for line in lines:
        sys.stdout.buffer.write((line.translate(_ESCAPED) if sys.stdout.isatty() else line).encode())
    sys.stdout.buffer.flush()


def width() -> int:
    """Columns of the terminal, 80 where there is none."""
    return max(20, shutil.get_terminal_size((80, 24)).columns)


def block(text: str, *, mark: str = "| ", then: str | None = None) -> None:
    """Text behind a mark, wrapped to the terminal; `then` takes the mark's place from the second line on."""
    from rich.console import Console
    from rich.text import Text

    screen = Console(width=width(), force_terminal=False, color_system=None)
    for line in clean(text).expandtabs(4).split("\n"):
        for piece in Text(line).wrap(screen, width() - len(mark)) or [Text()]:
            out((mark + piece.plain).rstrip())
            mark = mark if then is None else then


def fold(text: str, *, indent: str = "") -> None:
    """A paragraph wrapped to the terminal."""
    block(one_line(text), mark=indent)


def table(rows: Iterable[Sequence[str]], *columns: str) -> None:
    """Rows under their headings; a column named with a leading '>' is flush right. The last is cut to the terminal."""
    from rich.cells import cell_len

    cells = [[name.lstrip(">") for name in columns], *([one_line(cell[:WIDEST]) for cell in row] for row in rows)]
    widths = [min(max(map(cell_len, column)), WIDE) for column in zip(*cells, strict=True)]
    longest, room = max(cell_len(row[-1]) for row in cells), width() - sum(widths[:-1]) - 2 * len(widths[:-1])
    widths[-1] = min(longest, max(4, room))
    cells.insert(1, ["-" * wide for wide in widths])
    for row in cells:
        sides = (_fit(cell, wide, name) for cell, wide, name in zip(row, widths, columns, strict=True))
        print("  ".join(sides).rstrip())


def _fit(cell: str, wide: int, name: str) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(cell) > wide:
        return set_cell_size(cell, wide - 3) + "..."
    gap = " " * (wide - cell_len(cell))
    return gap + cell if name.startswith(">") else cell + gap


@contextlib.contextmanager
def bar(what: str, total: int | None = None, *, every: int = 50) -> Iterator[Progress | None]:
    """A callback for the number done, drawn on standard error now and then; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(what, total=total)

        def step(done: int, of: int | None = total, /) -> None:
            if done % every == 0 or done == of:
                drawn.update(task, completed=done, total=of)

        yield step


# -- notes -------------------------------------------------------------------------------------------------------------


def day(timestamp: str | None) -> str:
    """The date of a timestamp, or a dash."""
    return (timestamp or "-")[:10]


def plural(number: int, what: str) -> str:
    """The number with its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def notes(found: Sequence[Note]) -> None:
    """Notes as a table."""
    if not found:
        return warn("no notes found")
    rows = ((note.id, *_date_and_speaker(note), note.text) for note in found)
    return table(rows, "id", "date", "speaker", "text")


def _date_and_speaker(note: Note) -> tuple[str, str]:
    return _day_of(note), note.speaker or "-"


def _day_of(note: Note) -> str:
    """The day that the note is of; a live one without a timestamp is of the day it was stored."""
    return day(note.timestamp or (note.created_at if note.live else None))


def versions(found: Sequence[Note]) -> None:
    """Versions of a note as a table, oldest first."""
    rows = ((note.id, _day_of(note), _standing(note), note.text) for note in found)
    table(rows, "id", "date", "standing", "text")


def _standing(note: Note) -> str:
    return f"superseded by {note.superseded_by}" if note.superseded_by else "current"


def note(found: Note) -> None:
    """All of one note."""
    fields = {name: value for name, value in found.to_dict().items() if name != "text"}
    for name, value in fields.items():
        out(f"{name:<13} {one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}")
    out()
    block(found.text)


def hits(found: Sequence[Hit]) -> None:
    """Ranked notes as a table; a note that says the same as a better one is marked."""
    if not found:
        return warn("no note matches")
    rows = ((str(hit.rank), f"{hit.score:.2f}", *_date_and_speaker(hit.note), _mark_duplicate(hit)) for hit in found)
    return table(rows, ">#", ">score", "date", "speaker", "text")


def _mark_duplicate(hit: Hit) -> str:
    return f"(= {hit.duplicate_of}) {hit.text}" if hit.duplicate_of else hit.text


# -- recalls -----------------------------------------------------------------------------------------------------------


def recall(found: Recall, *, verbose: bool = False) -> None:
    """Action and tokens, why, the text set off, sources, drops, what a record is worth; warnings aside."""
    out(f"{found.action}, {found.tokens} of {found.budget} tokens")
    fold(found.why)
    if verbose:
        fold(found.decision.reason)
    out()
    if found.text:
        block(found.text)
    else:
        out("(no text)")
    out()
    fold(sources(found.sources))
    drops(found.dropped, verbose=verbose)
    for line in generation_lines(found):
        fold(line)
    if found.record is not None or found.usage.model_calls:
        out(cost(found.usage))
    for warning in found.warnings:
        warn(warning)


def text(found: Recall) -> None:
    """The packed text alone: as it is for a program that reads it, clean for a terminal."""
    print(clean(found.text) if sys.stdout.isatty() else found.text)
    for warning in found.warnings:
        warn(warning)


def sources(found: Sequence[Source]) -> str:
    """The notes behind a text, in one sentence."""
    return f"from {plural(len(found), 'note')}: " + ", ".join(_source(s) for s in found) if found else "from no note"


def _source(source: Source) -> str:
    return source.id if source.whole else f"{source.id} (part)"


def by_reason(found: Sequence[Dropped]) -> dict[str, list[Dropped]]:
    """Dropped notes by the code of their reason, in the order of `WHY`."""
    order = [*WHY]
    ranked = sorted(found, key=lambda d: order.index(d.code) if d.code in order else len(order))
    return {code: list(group) for code, group in groupby(ranked, key=lambda d: d.code)}


def drops(found: Sequence[Dropped], *, verbose: bool = False) -> None:
    """What stayed out: each note with its reason, or a line per reason with the first few."""
    if verbose and found:
        out(f"dropped {plural(len(found), 'note')}:")
        return table(((d.id, d.code, str(d.tokens), d.reason) for d in found), "id", "why", ">tokens", "reason")
    for code, group in by_reason(found).items():
        more = f" and {len(group) - FEW} more" if len(group) > FEW else ""
        ids = ", ".join(d.id for d in group[:FEW])
        fold(f"dropped {len(group)}, {WHY.get(code, code)}: {ids}{more}")
    return None


def decision(found: Decision) -> None:
    """The reason, the score of each action, the advantage beside the threshold, and the features."""
    out(f"{found.action}, by {found.router} at {plural(found.budget, 'token')}")
    fold(found.reason)
    out()
    table(((action, f"{score:.6g}") for action, score in found.utilities.items()), "action", ">utility")
    out()
    threshold = "no threshold" if found.threshold is None else f"threshold {found.threshold:.6g}"
    out(f"advantage {found.advantage:.6g}, {threshold}")
    out()
    table(((name, f"{value:.4f}") for name, value in found.features.items()), "feature", ">value")


# -- what a model wrote and read ---------------------------------------------------------------------------------------


def generation_lines(found: Recall) -> Iterator[str]:
    """Lines about generated text: the record, then each claim that is not its sources' own. None for raw text."""
    if found.record is not None:
        yield _describe_record(found.record)
    if found.fidelity is not None:
        yield from _fidelity_lines(found.fidelity)


def _describe_record(record: Record) -> str:
    origin = "reused" if record.reused else "written now"
    aim = "for this query" if record.focus else "for any query"
    return f"record {record.id[:12]}, {origin}, by {record.model}, {aim}"


def _fidelity_lines(found: Fidelity) -> Iterator[str]:
    for claim in found.unsupported:
        yield f"unsupported {_name_claim(claim)}: no source says it"
    for ours, theirs in found.mutated:
        yield f"changed {_name_claim(ours)}: {theirs.note or 'the source'} says {_quote(theirs)}"
    if found.missing:
        more = f" and {len(found.missing) - FEW} more" if len(found.missing) > FEW else ""
        yield f"left out, though near the query: {', '.join(map(_name_claim, found.missing[:FEW]))}{more}"
    if not found.unsupported and not found.mutated:
        yield f"fidelity: {plural(found.supported, 'checkable claim')}, nothing unsupported or changed"


def _name_claim(claim: Claim) -> str:
    return f"{claim.kind} {_quote(claim)}"


def _quote(claim: Claim) -> str:
    return f'"{one_line(claim.text)}"'


def cost(spent: Usage) -> str:
    """Calls, tokens and seconds, in one line."""
    if not spent.model_calls:
        return f"cost: no model call, {spent.seconds:.2f} s"
    tokens = f"{spent.prompt_tokens:,} tokens read, {spent.completion_tokens:,} written"
    return f"cost: {plural(spent.model_calls, 'model call')}, {tokens}, {spent.seconds:.2f} s"


def look(found: Look, number: int, *, verbose: bool = False) -> None:
    """One look as it happens: what was recalled, what the reader said to it, and the cost of both."""
    recalled, indent = found.recall, "   "
    with contextlib.redirect_stdout(sys.stderr):
        out(f"{number}. {recalled.action}, {recalled.tokens} of {recalled.budget} tokens")
        fold(sources(recalled.sources), indent=indent)
        if verbose and recalled.text:
            block(recalled.text, mark=f"{indent}| ")
        for line in (*generation_lines(recalled), f"reader: {_reader_words(found)}", cost(found.usage)):
            fold(line, indent=indent)
    sys.stderr.flush()


def _reader_words(found: Look) -> str:
    if not found.recall.text:
        return "not asked, there is no text to read"
    if found.error is not None:
        return f"failed, {found.error}"
    return f"no answer here ({found.reply or 'an empty reply'})" if found.abstained else found.reply


def answer(found: Answer, *, looks: bool) -> None:
    """The end of the climb: the answer, or that memory does not hold it; what all looks cost, if they were shown.

    How sure it is goes to standard error, where the looks are shown or a reply was refused.
    """
    sure = explain_confidence(found)
    if looks:
        with contextlib.redirect_stdout(sys.stderr):
            if len(found.looks) > 1:
                out(f"{len(found.looks)} looks, {cost(found.usage)}")
            if sure is not None and not found.refused:
                out(sure)
            out()
    for warning in found.warnings:
        warn(warning)
    if found.refused:
        warn(f'the best reply, "{found.look.reply}", is {sure}; a lower --wrong-cost would give it')
    nothing = "not sure enough to answer" if found.refused else "not in memory"
    block(nothing if found.text is None else found.text, mark="")


def cache_counts(counts: Mapping[str, int]) -> str:
    """How many records and replies."""
    replies = f"{counts['replies']:,} {'reply' if counts['replies'] == 1 else 'replies'}"
    return f"{plural(counts['records'], 'record')} and {replies}"


def cache(counts: Mapping[str, int]) -> None:
    """What is kept of a model's work."""
    out(f"{cache_counts(counts)}, {size(counts['bytes'])}")
    out(f"a reply was found {plural(counts['hits'], 'time')}, not found {plural(counts['misses'], 'time')}")


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"
