"""A text -> its stems, sentences and other parts, read once for all who ask.

A recall reads the words of a note to tell repeats, to follow them to other notes and to choose sentences. Notes never
change, and the same ones come back with the next query: so what was read is kept for a while, by text and language.
At most `MOST` characters of text are kept, which takes about 13 MB; a text longer than `LONGEST` never is. The store
forgets all of it when notes are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from retcon import words
from retcon.language import Language
from retcon.note import Span
from retcon.passages import LONG, cut, is_long
from retcon.tokens import line_sums, spans

MOST = 1 << 19  # characters in all: some 3,600 notes of a chat
LONGEST = 4_000  # characters of one text
NEGATIONS = frozenset(("not", "no", "t"))  # among the function words of English, and still telling


class Sentence:
    """A sentence as it stands, with its words. Which word has which stem is told of few sentences only."""

    __slots__ = ("_stem_of", "_telling", "language", "stems", "text")

    def __init__(self, text: str, language: Language, stems: frozenset[str]) -> None:
        self.text, self.language, self.stems = text, language, stems
        self._stem_of: Mapping[str, str] | None = None
        self._telling: tuple[str, ...] | None = None

    @property
    def telling(self) -> tuple[str, ...]:
        """The stems that tell something: all but function words, negations among them."""
        if self._telling is None:
            self._telling = tuple(
                [stem for stem in self.stems if stem in NEGATIONS or stem not in self.language.common]
            )
        return self._telling

    @property
    def stem_of(self) -> Mapping[str, str]:
        """Word -> its stem."""
        if self._stem_of is None:
            found = self.language.words(self.text)
            self._stem_of = dict(zip(found, self.language.stem_words(found), strict=True))
        return self._stem_of


class Spans(NamedTuple):
    """Parts of a text, one after the other: where each stands, and its words."""

    places: tuple[Span, ...]
    words: tuple[tuple[str, ...], ...]


class Reading:
    """What a text says, in one language. What not everybody needs is looked for when it is first asked for.

    All of it is tuples: those that hold no more than texts and numbers cost the garbage collector nothing.
    """

    __slots__ = ("_distinct", "_passages", "_sentences", "_spans", "_stems", "language", "text")

    def __init__(self, text: str, language: Language) -> None:
        self.text, self.language = text, language
        self._stems: tuple[str, ...] | None = None
        self._distinct: frozenset[str] | None = None
        self._passages: tuple[Span, ...] | None = None
        self._sentences: tuple[Sentence, ...] | None = None
        self._spans: Spans | None = None

    @property
    def stems(self) -> tuple[str, ...]:
        """The index terms, in order."""
        if self._stems is None:
            self._stems = tuple(self.language.stems(self.text))
        return self._stems

    @property
    def distinct(self) -> frozenset[str]:
        """The index terms, each once."""
        if self._distinct is None:
            self._distinct = frozenset(self.stems)
        return self._distinct

    @property
    def passages(self) -> tuple[Span, ...]:
        """The passages of a long text; a short one is one."""
        if self._passages is None:
            self._passages = tuple(cut(self.text)) if self._is_long() else ((0, len(self.text)),)
        return self._passages

    def _is_long(self) -> bool:
        """Whether there is more than one passage. Of plain English each word is an index term: they are counted."""
        if self.language.is_english and self.text.isascii():
            return len(self.text) > LONG and len(self.stems) > LONG
        return is_long(self.text)

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """The sentences, in order."""
        if self._sentences is None:
            self._sentences = tuple([self._read_sentence(text) for text in words.sentences(self.text)])
        return self._sentences

    def _read_sentence(self, text: str) -> Sentence:
        """The sentence with its words, which are known where it is the whole text."""
        if text == self.text:
            return Sentence(text, self.language, self.distinct)
        return read_sentence(text, self.language)

    @property
    def spans(self) -> Spans:
        """The parts that a cut never divides, in order."""
        if self._spans is None:
            places = tuple(spans(self.text))
            self._spans = Spans(places, tuple(map(tuple, self._words_of(places))))
        return self._spans

    def _words_of(self, places: tuple[Span, ...]) -> list[list[str]]:
        if self.language.is_english:
            return words.words_of_parts(self.text, places)
        return [self.language.words(self.text[start:end]) for start, end in places]


def read_sentence(text: str, language: Language) -> Sentence:
    """The sentence with its words."""
    return Sentence(text, language, frozenset(language.stems(text)))


class Readings:
    """What was read lately. Once it is full it begins anew."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.kept: dict[tuple[str, str], Reading] = {}  # by language and text
        self.characters = 0

    def read(self, text: str, language: Language) -> Reading:
        """The text as it reads in that language."""
        key = (language.name, text)
        found = self.kept.get(key)
        if found is None:
            found = Reading(text, language)
            if len(text) <= min(LONGEST, self.most):
                self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, str], found: Reading) -> None:
        if self.characters + len(found.text) > self.most:
            self.forget()
        self.kept[key] = found
        self.characters += len(found.text)

    def forget(self) -> None:
        """Keep nothing of what was read so far."""
        self.kept, self.characters = {}, 0


LATELY = Readings()
read = LATELY.read


def forget() -> None:
    """Keep no text of those that were read, or counted line by line, so far."""
    LATELY.forget()
    line_sums.forget()
