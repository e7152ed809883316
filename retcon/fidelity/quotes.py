"""Quoted strings of a text, looked up as runs of three words, whatever the quotation marks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from retcon.fidelity.text import QUOTE, Mention, Text, Token
from retcon.words import COMMON

_QUOTES = re.compile(
    r"\"([^\"\n]{1,300}+)\"|“([^“”\n]{1,300}+)”|«([^«»\n]{1,300}+)»|「([^「」\n]{1,300}+)」"
    r"|(?<!\w)[‘']([^'’\n]{2,300}+)['’](?!\w)"
)


def quotes_in(text: Text) -> Iterator[Mention]:
    """Quoted strings, looked up as runs of three words within a sentence."""
    for found in _QUOTES.finditer(text.text):
        inner = text.inside(*found.span(found.lastindex or 0))
        if inner:
            claim = text.claim(QUOTE, " ".join(t.word for t in inner), *found.span())
            traits = frozenset({f"name:{t.word}" for t in inner if t.word not in COMMON})
            yield Mention(claim, frozenset(_runs(inner)), traits=traits, sentence=inner[0].sentence)


def _runs(tokens: Sequence[Token]) -> Iterator[str]:
    """Every run of three words within a sentence; of a shorter piece, the piece."""
    start = 0
    for end in range(1, len(tokens) + 1):
        if end == len(tokens) or tokens[end].sentence != tokens[start].sentence:
            piece = [t.word for t in tokens[start:end]]
            yield from (" ".join(piece[k : k + 3]) for k in range(max(1, len(piece) - 2)))
            start = end
