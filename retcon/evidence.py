"""Query, the notes found for it -> Evidence: whether anything in memory is about the query.

"About" is not "answerable": a question about the cat is about a memory that speaks of the cat, also where the answer
is not there. The rule has two numbers:

    covered     share of the query's words that the best 20 notes by BM25 hold, taken together
    notes       how many notes were searched, as a logarithm: a large memory holds any word somewhere

Function words do not count; everyday words, which nearly any question may hold, count for less than others, names for
more. Some queries need no numbers. One that names the speaker of a note found is about memory. One of everyday words
alone ("What did we talk about last time?") asks for memory itself. One of which no other word is there is not about
memory. The numbers are learned on English questions (`bench/found.py` writes `found.json`): a query in which other
letters prevail, or in a memory of another language, is about memory as soon as one of its words is there.

Embeddings find what shares no word with the query. Where they were searched, a note closer than off-topic queries get
is enough; an embedder of which `found.json` does not know how close that is, is trusted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.language import ENGLISH, Language
from retcon.note import Evidence
from retcon.words import stem_words

NOTHING = "nothing in memory is about this"
FEWEST, LARGEST = 3, 6000  # notes of a memory: the range that the rule was learned on, and is held to
NUMBERS = ("covered", "notes")
_TOKEN = re.compile(r"[^\W_]+")

EVERYDAY = frozenset(
    stem_words(
        """
        know knew known remember recall remind forget forgot tell told talk talked speak spoke spoken say said saying
        mention mentioned discuss discussed chat chatted conversation memory memories note notes message user assistant
        system anything everything something nothing someone anyone everyone somebody anybody everybody thing things
        person people whether last first recent recently lately before ago earlier previous previously today yesterday
        tomorrow now currently day week month year time date moment please give gave given get got make made go went
        gone going come came take took taken use used using want need like many much more most kind type sort name
        named call called one two three new old good best long often ever ask asked think thought show find found list
        happen happened up out while during after since until between over through both other another same help place
        specific mean different
        """.split()
    )
)


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query that may say what it is about: as written, less its case, and as the index has it."""

    text: str
    term: str
    capital: bool = False  # with a capital letter where no sentence has to have one: most likely a name
    first: bool = False  # with a capital letter anywhere
    native: bool = True  # in the letters, and of a memory in the language, that the rule was learned on

    @property
    def everyday(self) -> bool:
        return self.native and self.term in EVERYDAY


@dataclass(frozen=True, slots=True)
class Match:
    """What a search saw of the query."""

    words: tuple[QueryWord, ...]
    held: NDArray[np.bool_]  # [note found, word of the query]
    notes: int  # searched
    score: float = 0.0  # of the best note
    named: bool = False  # the query names the speaker of a note found
    similarity: float | None = None  # of the closest note, where embeddings were searched
    embedder: str = ""


def query_words(query: str, language: Language = ENGLISH) -> tuple[QueryWord, ...]:
    """The distinct words of the query, function words left out."""
    found: dict[str, QueryWord] = {}
    tokens = _TOKEN.findall(query)
    split = [language.words(token) for token in tokens]
    terms = iter(language.stem_words(list(chain.from_iterable(split))))
    for number, (token, texts) in enumerate(zip(tokens, split, strict=True)):
        capital = token[0].isupper()
        for text, term in zip(texts, terms, strict=False):  # the next ones are the next token's
            known = found.get(term)
            if known is None:
                native = language.is_english and text.isascii()
                found[term] = QueryWord(text, term, capital and number > 0, capital, native)
            elif capital and not (known.capital and known.first):
                found[term] = replace(known, capital=known.capital or number > 0, first=True)
    return tuple(word for word in found.values() if word.term not in language.common)


def names_speaker(query: Sequence[QueryWord], speakers: Iterable[str | None], language: Language = ENGLISH) -> bool:
    """Whether a word of the query with a capital letter, other than an everyday one, is of a speaker's name."""
    names = {term for speaker in set(speakers) if speaker for term in language.stems(speaker)}
    return any(word.first and word.term in names and not word.everyday for word in query)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line through the two numbers: about memory are those on its upper side."""

    everyday: float  # what an everyday word counts, where another counts 1
    name: float  # what a name counts
    weights: tuple[float, float]  # of `NUMBERS`
    intercept: float
    close: Mapping[str, float | None] = field(default_factory=dict)  # embedder -> cosine; None: it compares words only

    def count(self, word: QueryWord) -> float:
        """What the word counts."""
        return self.everyday if word.everyday else self.name if word.capital else 1.0

    def measure(self, match: Match) -> tuple[float, float]:
        """The two numbers."""
        counts = np.array([self.count(word) for word in match.words])
        covered = float((match.held.any(axis=0) * counts).sum()) / (float(counts.sum()) or 1.0)
        return covered, math.log(min(max(match.notes, FEWEST), LARGEST))

    def odds(self, numbers: Sequence[float]) -> float:
        """At 0 or above where the query is taken to be about memory."""
        return self.intercept + math.fsum(weight * x for weight, x in zip(self.weights, numbers, strict=True))

    def is_close(self, match: Match) -> bool:
        """Whether embeddings found a note that is close to the query, or may have."""
        if match.similarity is None:
            return False
        least = self.close.get(match.embedder, -1.0)
        return least is not None and match.similarity >= least

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Rule:
        """The rule that these plain JSON values describe."""
        covered, notes = (float(plain["weights"][name]) for name in NUMBERS)
        counts = float(plain["everyday"]), float(plain["name"])
        return cls(*counts, (covered, notes), float(plain["intercept"]), plain["close"])


def weigh(match: Match, rule: Rule | None = None) -> Evidence:
    """The evidence that something in memory is about the query; by the rule that ships unless one is given."""
    rule = rule or shipped_rule()
    numbers, held = rule.measure(match), np.asarray(match.held.any(axis=0))
    settled = settle(match)
    by_words = rule.odds(numbers) >= 0 if settled is None else settled
    return Evidence(
        found=match.notes > 0 and (by_words or rule.is_close(match)),
        notes=match.notes,
        words=sum(not word.everyday for word in match.words),
        covered=round(numbers[0], 4),
        score=match.score,
        similarity=None if match.similarity is None else round(match.similarity, 4),
        named=match.named,
        missing=tuple(word.text for word, there in zip(match.words, held.tolist(), strict=True) if not there),
    )


def settle(match: Match) -> bool | None:
    """Whether the query is about memory where its words need no numbers to say it, else None."""
    telling = np.array([not word.everyday for word in match.words], bool)
    if not match.notes:
        return False
    if match.named or not telling.any():
        return True
    if not match.held[:, telling].any():
        return False
    native = [word.native for word in match.words if not word.everyday]
    return None if 2 * sum(native) >= len(native) else True


@lru_cache(maxsize=1)
def shipped_rule() -> Rule:
    """The rule of `found.json`."""
    return Rule.from_dict(json.loads(Path(__file__).with_name("found.json").read_text("utf-8")))
