"""A text read once: its tokens, sentences and clauses, and the mentions that the other files find among them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import NamedTuple

from retcon import deadline
from retcon.note import Claim, Note
from retcon.timeline import when
from retcon.words import COMMON, COMMON_STEMS, fold, sentences, stem_words

NUMBER, DATE, NAME, QUOTE, NEGATION = "number", "date", "name", "quote", "negation"
NEAR = 5  # words on each side that make up a claim's neighbourhood
RAISED = frozenset("²³¹⁰⁴⁵⁶⁷⁸⁹⁻₀₁₂₃₄₅₆₇₈₉₋")  # and lowered: part of the word or number they touch
# Single signs that stand for a number (½ Ⅳ ⑫ ❹): numeric, and neither digit nor letter. 〇 is written among letters.
_WORDLIKE = re.compile(r"[^\W\d_]").findall("".join(map(chr, range(0xB2, 0x1F10D))))
SIGNS = frozenset(sign for sign in _WORDLIKE if not sign.isalpha()) - RAISED - {"〇"}
_PLAIN = rf"[^\W\d_{''.join(sorted(SIGNS | RAISED))}]"
_RAISED = "".join(sorted(RAISED))
_LETTER = rf"(?:[A-Za-z]++|{_PLAIN}|[{_RAISED}\u0300-\u036f])"
TOKEN = re.compile(
    r"(?=[\w%$£€¥₹⁻₋])(?:"  # what no token begins with is passed over at once: the sets of signs are long
    rf"\d+(?:[.,:/\-–—]\d+)*|(?:[A-Za-z]|{_PLAIN}){_LETTER}*+(?:['’]{_LETTER}++)*+|[%$£€¥₹]|[{''.join(sorted(SIGNS))}]"
    rf"|[⁻₋]?(?:(?![⁻₋])[{_RAISED}])+)"
)
_OPENERS = frozenset(':"“”«»‘*#•·|\n\r\t>')
_DASH = re.compile(r"\s[-–—]\s?|[-–—]\s|[—]")
_BREAK = re.compile(r"[,;:()—–?!]|\.\s|\s-\s")
_TURNS = frozenset("but although though because since while whereas however so".split())


class Token(NamedTuple):
    """A word, a run of digits or a sign, and where it stands."""

    text: str
    word: str  # folded, without a possessive ending
    start: int
    end: int
    sentence: int
    clause: int
    gap: str  # what stands between it and the token before it; begins with NUL where it opens a sentence
    opens: bool  # a capital here says nothing: it opens a sentence, a line, a quotation
    number: bool

    @property
    def capital(self) -> bool:
        return not self.text.islower() and self.text != self.text.lower()


@dataclass(frozen=True, slots=True)
class Mention:
    """A claim with what is needed to look it up."""

    claim: Claim
    keys: frozenset[str]  # any one of them supports it
    traits: frozenset[str] = frozenset()  # form, unit, title: what a changed claim keeps
    unit: str = ""
    wider: frozenset[str] = frozenset()  # what it supports besides
    sentence: int = 0
    firm: bool = True
    cut: bool = False  # it is the last thing in its text


@dataclass(frozen=True, slots=True)
class Denial:
    """A negation: the claim, the stem it denies and the other stems of its sentence."""

    claim: Claim
    stem: str
    sentence: int


class Text:
    """One text: its tokens and sentences, and the day from which its dates count."""

    def __init__(self, text: str, *, note: Note | None = None) -> None:
        self.text = text
        self.note = note
        self.day = _day(when(note)) if note else None
        self.tokens, self.ends = _tokens(text)
        self.headings = _headings(text, self.tokens)
        distinct = sorted({token.word for token in self.tokens})
        self.stem = dict(zip(distinct, stem_words(distinct), strict=True))

    @property
    def id(self) -> str | None:
        return self.note.id if self.note else None

    @cached_property
    def stems(self) -> list[set[str]]:
        """The telling stems of each sentence."""
        out: list[set[str]] = [set() for _ in self.ends]
        for token in self.tokens:
            if (stem := self.stem[token.word]) not in COMMON_STEMS:
                out[token.sentence].add(stem)
        return out

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    def inside(self, start: int, end: int) -> list[Token]:
        """The tokens that begin within the span."""
        return self.tokens[bisect_left(self._starts, start) : bisect_left(self._starts, end)]

    def near(self, mention: Mention) -> set[str]:
        """The telling stems around a mention."""
        low = bisect_left(self._starts, mention.claim.start)
        high = bisect_left(self._starts, mention.claim.end)
        around = self.tokens[max(0, low - NEAR) : low] + self.tokens[high : high + NEAR]
        stems = {self.stem[t.word] for t in around if t.sentence == mention.sentence and not t.number}
        return stems - COMMON_STEMS

    def claim(self, kind: str, value: str, start: int, end: int) -> Claim:
        return Claim(kind, self.text[start:end], value, start, end, self.id)


def _tokens(text: str) -> tuple[list[Token], list[int]]:
    """The tokens of the text and the end of each sentence; no token crosses one."""
    out: list[Token] = []
    ends: list[int] = []
    at = clause = 0
    for place, sentence in enumerate(sentences(text)):
        deadline.check()
        begin = text.find(sentence, at)
        last = begin
        for found in TOKEN.finditer(text, begin, begin + len(sentence)):
            written, start = found.group(), found.start()
            gap = text[max(last, start - 8) : start] if last > begin else "\0" + text[begin : min(start, begin + 8)]
            opens = last == begin or not _OPENERS.isdisjoint(gap) or _DASH.search(gap) is not None
            word = bare(written)
            clause += last == begin or word in _TURNS or _BREAK.search(gap) is not None
            number = written[0].isdecimal() or written[0] in SIGNS or written[0] in RAISED
            out.append(Token(written, word, start, found.end(), place, clause, gap, opens, number))
            last = found.end()
        at = begin + len(sentence)
        ends.append(at)
    return out, ends


def bare(word: str) -> str:
    """The word folded, typewriter apostrophes, no possessive ending."""
    low = (word.lower() if word.isascii() else fold(word)).replace("’", "'")
    return low.removesuffix("'s")


def _headings(text: str, tokens: Sequence[Token]) -> set[int]:
    """Sentences in which capitals say nothing: a marked heading, or a label before a colon, in title case."""
    out = set()
    last: dict[int, list[Token]] = {}
    for token in tokens:
        last.setdefault(token.sentence, []).append(token)
    for place, inner in last.items():
        words = [t for t in inner if not t.number and t.word not in COMMON and len(t.text) > 1]
        tail = text[inner[-1].end : inner[-1].end + 3]
        marked = "#" in inner[0].gap or "*" in tail or ":" in tail
        if marked and len(words) > 1 and all(t.capital for t in words):
            out.add(place)
    return out


def _day(timestamp: str) -> date | None:
    try:
        return date.fromisoformat(timestamp[:10])
    except ValueError:
        return None
