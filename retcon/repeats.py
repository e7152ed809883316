"""Hits -> the same hits, each that says no more than a better one marked with that one's id.

Two notes of one speaker say the same where they share nearly all words, and what the second has of its own are words
that tell nothing. Numbers and negations must be the same in both. Few hits are compared one by one; of many, most are
told apart without a comparison (`_Distinct`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from retcon import deadline
from retcon.language import ENGLISH, Language
from retcon.note import Hit
from retcon.reading import Reading, read
from retcon.words import COMMON_STEMS, stem_words

FEW = 50  # hits up to which each is simply compared with all before it
FEW_WORDS = 4_000  # of all hits together, up to which the same holds
NEAR = 0.8  # share of words two notes have in common from which they may say the same
SLACK = 1e-9  # above rounding errors


def mark_duplicates(hits: Sequence[Hit], language: Language = ENGLISH) -> tuple[Hit, ...]:
    """The hits, each later one that says the same as a better-ranked one marked with that one's id."""
    said = [_read_hit(hit, language) for hit in hits]
    many = len(hits) > FEW or sum(each.size for each in said) > FEW_WORDS
    seen = _Distinct(said) if many else None
    firsts: dict[str | None, list[int]] = {}  # of each speaker
    out: list[Hit] = []
    for i, hit in enumerate(hits):
        deadline.check()
        mine, twin = said[i], None
        before = firsts.setdefault(mine.speaker, [])
        low, high = NEAR * mine.size, mine.size / NEAR
        for j in seen.near(i) if seen else before:
            if low <= said[j].size <= high and _same(said[j], mine):
                twin = j
                break
        out.append(hit if twin is None else replace(hit, duplicate_of=hits[twin].id))
        if twin is None:
            before.append(i)
            if seen:
                seen.add(i)
    return tuple(out)


class _Content:
    """What a note says. Most notes differ from all others at once: their words are counted only where that is asked."""

    def __init__(self, speaker: str | None, said: Reading) -> None:
        self.speaker, self.language = speaker, said.language
        self.said, self.size = said, len(said.stems)

    @property
    def distinct(self) -> frozenset[str]:
        return self.said.distinct

    @cached_property
    def bag(self) -> Counter[str]:
        return Counter(self.said.stems)


def _read_hit(hit: Hit, language: Language = ENGLISH) -> _Content:
    deadline.check()
    return _Content(hit.note.speaker, read(hit.text, language))


class _Distinct:
    """The notes so far that repeat none, as bits: a few and-operations over all of them leave those that may be a twin.

    A note's twin before it has the same speaker, the same numbers and negations, about its size, every word of it that
    tells, and all but a fifth of its words. The n-th time that a word stands in a note is a word of its own here. What
    is left over still has to be compared: nearly all of it is a twin.
    """

    def __init__(self, every: Sequence[_Content]) -> None:
        kin = [_kin(said) for said in every]
        known = Counter(kin)
        self.every, self.kin = every, [each if known[each] > 1 else None for each in kin]  # None: alone, so no twin
        related = (said for said, each in zip(every, self.kin, strict=True) if each is not None)
        notes = Counter(word for said in related for word in _number_repeats(said.bag))
        self.shared = {word for word, n in notes.items() if n > 1}  # no other matters
        self.holding: dict[tuple[str, int], int] = {}
        self.alike: dict[tuple[object, ...], int] = {}

    def add(self, place: int) -> None:
        """Count the note at that place among those so far."""
        said, kin = self.every[place], self.kin[place]
        if kin is None or not said.size:
            return
        for word in _number_repeats(said.bag):
            if word in self.shared:
                self.holding[word] = self.holding.get(word, 0) | 1 << place
        alike = (*kin, _size_class(said.size))
        self.alike[alike] = self.alike.get(alike, 0) | 1 << place

    def near(self, place: int) -> Iterator[int]:
        """Places of the notes so far that may be a twin of the one at that place, in order."""
        said, kin = self.every[place], self.kin[place]
        if kin is None or not said.size:
            return
        size = _size_class(said.size)
        left = 0
        for near in (size - 1, size, size + 1):
            left |= self.alike.get((*kin, near), 0)
        empty: list[int] = []
        for word in _number_repeats(said.bag):
            if not left:
                return
            if word[0] in _empty_words(said.language):
                empty.append(self.holding.get(word, 0))
            else:
                left &= self.holding.get(word, 0)
        left = _few_missing(left, empty, int(said.size * (1 - NEAR) + SLACK))
        while left:
            lowest = left & -left
            yield lowest.bit_length() - 1
            left ^= lowest


def _number_repeats(bag: Counter[str]) -> Iterator[tuple[str, int]]:
    """The words of the bag, each with its number: the first "the", the second "the"."""
    return ((word, n) for word, times in bag.items() for n in range(times))


def _kin(said: _Content) -> tuple[object, ...]:
    """What two notes that say the same have in common to the letter."""
    turning = ((word, times) for word, times in said.bag.items() if _turns_meaning(word, said.language))
    return said.speaker, frozenset(turning)


def _size_class(size: int) -> int:
    """Two sizes of which one is `NEAR` of the other, or more, are in one class or in two beside each other."""
    return math.floor(math.log(size) / -math.log(NEAR) + SLACK)


def _few_missing(notes: int, words: Sequence[int], most: int) -> int:
    """Those of the notes that hold all of the words but `most`; each word comes as the notes that hold it.

    Every note has a counter of words that it lacks. Counters stand upright, so to say: the first number has the lowest
    binary digit of all of them, and so on.
    """
    digits: list[int] = []
    for word in words:
        carry = notes & ~word
        for place, digit in enumerate(digits):
            digits[place], carry = digit ^ carry, digit & carry
        if carry:
            digits.append(carry)
    fewer, equal = 0, notes
    for place in reversed(range(max(len(digits), most.bit_length()))):
        digit = digits[place] if place < len(digits) else 0
        if most >> place & 1:
            fewer |= equal & ~digit
            equal &= digit
        else:
            equal &= ~digit
    return fewer | equal


def _same(one: _Content, other: _Content) -> bool:
    """Whether the second note of the same speaker adds nothing: nearly all words shared, none of its own that tells.

    Numbers and negations must be the same on both sides. What the first says beyond the second may stay: it is kept.
    """
    size = one.size + other.size
    if min(one.size, other.size) < NEAR * max(one.size, other.size) or one.speaker != other.speaker or not size:
        return False
    most = one.size - len(one.distinct) + len(one.distinct & other.distinct)  # no more can be shared; cheaper to tell
    if most < NEAR * (size - most):
        return False
    shared = (one.bag & other.bag).total()
    if shared < NEAR * (size - shared):
        return False
    gone, added = one.bag - other.bag, other.bag - one.bag
    if any(_turns_meaning(term, one.language) for term in gone + added):
        return False
    return _empty_words(one.language).issuperset(added)


def _turns_meaning(term: str, language: Language) -> bool:
    """Whether a single word turns a statement: numbers and negations do; which words negate is known of English alone,
    so that in another language all but function words may."""
    if not language.is_english:
        return term not in language.common
    return term in _NEGATIONS or (not term.isalpha() and any(map(str.isdigit, term)))


def _empty_words(language: Language) -> frozenset[str]:
    """The words that a note may have beyond another and still say the same."""
    return _EMPTY_WORDS if language.is_english else language.common


_NEGATIONS = frozenset(stem_words("t not no never none nothing nobody nowhere neither nor cannot without".split()))
_EMPTY_WORDS = (COMMON_STEMS - _NEGATIONS) | frozenset(  # words by which a speaker repeats something
    stem_words("said say saying told tell again mentioned mention remind reminder yes yeah well ok okay still".split())
)
