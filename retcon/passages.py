"""A long text -> passages: parts of a few sentences, as character spans that cover it without a gap.

A long note is about many things. It is found by the passage that fits the query best, not by all of it at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from retcon.note import Span
from retcon.words import UNSPACED, ascii_words, sentence_ends

LONG = 120  # words up to which a note is one passage
SIZE = 60  # words from which a passage ends with its sentence

# Two characters stand for a word where a script writes no blanks.
_WORD = re.compile(f"[{UNSPACED}]{{1,2}}|[^\\W_{UNSPACED}]+")
_FEWEST_CHARACTERS = 2 * LONG  # a text of fewer cannot be long: a word and what parts it from the next take two


def split(text: str) -> list[Span]:
    """The passages of the text, in order; a short text is one."""
    return cut(text) if is_long(text) else [(0, len(text))]


def cut(text: str) -> list[Span]:
    """The passages of a long text, in order."""
    spans: list[Span] = []
    start = held = 0
    for begin, end in _units(text):
        size = _count(text, begin, end)
        if held and held + size > 2 * SIZE:  # this unit alone is most of a passage
            spans.append((start, begin))
            start, held = begin, 0
        held += size
        if held >= SIZE:
            spans.append((start, end))
            start, held = end, 0
    return _join_rest(spans, start, len(text), held)


def is_long(text: str) -> bool:
    """Whether the text has more than one passage."""
    return len(text) >= _FEWEST_CHARACTERS and _count(text, 0, len(text)) > LONG


def _units(text: str) -> Iterator[Span]:
    """Sentences of the text; one longer than a passage comes in parts of a passage's size."""
    start = 0
    for end in sentence_ends(text):
        yield from _part(text, start, end)
        start = end


def _part(text: str, start: int, end: int) -> Iterator[Span]:
    at = [found.start() for found in _WORD.finditer(text, start, end)]
    edges = at[SIZE::SIZE] if len(at) > 2 * SIZE else []
    for edge in edges:
        yield start, edge
        start = edge
    yield start, end


def _join_rest(spans: list[Span], start: int, end: int, held: int) -> list[Span]:
    """The spans with what is left after the last: a passage of its own, or, where it is short, the end of the last."""
    if start == end:
        return spans
    if held >= SIZE // 2 or not spans:
        return [*spans, (start, end)]
    return [*spans[:-1], (spans[-1][0], end)]


def _count(text: str, start: int, end: int) -> int:
    return len(ascii_words(text[start:end]) if text.isascii() else _WORD.findall(text, start, end))
