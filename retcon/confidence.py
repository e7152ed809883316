"""Question, reply, the notes behind it -> signals -> how likely the reply is right.

The reply is held against the raw notes, not against the text that was shown: a text that is wrong is not its own
witness. The sentence that holds most of reply and question, with the sentence before it, its speaker and its day, is
the witness:

    held      share of the reply's words there, times the share of the question's
    stated    share of the reply's own words there, those that the question does not have
    said      1 where the question names its speaker, -1 where it names another speaker alone, 0 where it names none
    dated     from -1 to 1: share of the question's numbers and months there; 0 where it has none
    rank      place of its note among the candidates, as a logarithm
    flat      score of the fifth candidate over the best's: high where nothing stands out; 0 without a fifth
    echoed    share of the question's words in the text that was shown: high where a writer repeats the question

Words count by how rare they are among the candidates' sentences; function words do not. A `Confidence` is a logistic
regression on these signals. It needs no log-probabilities, and so it works with any reader.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import mul
from typing import Any, NamedTuple

from retcon import deadline
from retcon.errors import RouterError, few
from retcon.evidence import query_words
from retcon.language import Language
from retcon.note import Cluster
from retcon.plain import read_number
from retcon.reading import read
from retcon.timeline import day

SIGNALS = ("held", "stated", "said", "dated", "rank", "flat", "echoed")
_BASE = 0.2  # worth of a sentence that holds the reply and nothing of the question, where both are worth 1.2
_FIFTH = 4


class Witness(NamedTuple):
    """A sentence of a candidate note, with what it may be asked about."""

    place: int  # of its note among the candidates
    own: frozenset[str]
    words: frozenset[str]  # its own, those of the sentence before it, of its speaker's name and of its day
    voice: frozenset[str]


@dataclass(frozen=True, slots=True)
class Witnesses:
    """What the candidates of one question can testify to: read once, for every reply to it."""

    sentences: tuple[Witness, ...]
    asked: frozenset[str]  # the question's words, less the speakers that it names
    spoken: frozenset[str]  # all of them
    named: frozenset[str]  # words of speakers' names that the question has
    dates: frozenset[str]  # its numbers and months
    seen: Mapping[str, int]  # word -> in how many sentences
    flat: float
    language: Language

    @classmethod
    def of(cls, cluster: Cluster) -> Witnesses:
        """Those of a question and its candidates."""
        language = cluster.language
        sentences = tuple(_testify(cluster))
        speakers = frozenset(chain.from_iterable(each.voice for each in sentences))
        spoken = _content(language.stems(cluster.query), language)
        named = frozenset(w.term for w in query_words(cluster.query, language) if w.capital and w.term in speakers)
        months = frozenset(chain.from_iterable(map(language.stems, language.months)))
        return cls(
            sentences,
            asked=spoken - named,
            spoken=spoken,
            named=named,
            dates=frozenset(word for word in spoken if word.isdigit() or word in months),
            seen=Tally(chain.from_iterable(each.own for each in sentences)),
            flat=_flatness(cluster),
            language=language,
        )

    def signals(self, reply: str, shown: str) -> dict[str, float]:
        """What speaks for a reply to the text that was shown, and what against it, by the names of `SIGNALS`."""
        said = _content(self.language.stems(reply), self.language)
        new = (said - self.spoken) or said
        worth, found = -1.0, Witness(0, frozenset(), frozenset(), frozenset())
        for each in self.sentences:
            holds = self._share(new, each.words)
            if holds * (1 + _BASE) > worth and (value := holds * (_BASE + self.cover(each.words))) > worth:
                worth, found = value, each
        stated = self._share(new, found.words)
        return {
            "held": stated * self.cover(found.words),
            "stated": stated,
            "said": self._spoken_by(found),
            "dated": 2 * len(self.dates & found.words) / len(self.dates) - 1 if self.dates else 0.0,
            "rank": math.log1p(found.place),
            "flat": self.flat,
            "echoed": self.cover(_content(self.language.stems(shown), self.language)),
        }

    def cover(self, words: Set[str]) -> float:
        """The share of the question's words that is among these stems, each by how rare it is."""
        return self._share(self.asked, words)

    def _share(self, wanted: Set[str], there: Set[str]) -> float:
        """The share of some words that is there, each by how rare it is."""
        total = math.fsum(map(self._rarity, wanted))
        return math.fsum(map(self._rarity, wanted & there)) / total if total else 0.0

    def _rarity(self, word: str) -> float:
        return math.log1p((len(self.sentences) + 0.5) / (self.seen.get(word, 0) + 0.5))

    def _spoken_by(self, found: Witness) -> float:
        if not self.named or (self.named & found.words and not self.named & found.voice):
            return 0.0  # it speaks of the one who is named
        return 1.0 if self.named & found.voice else -1.0


def _testify(cluster: Cluster) -> Iterator[Witness]:
    language = cluster.language
    for place, hit in enumerate(cluster.hits):
        deadline.check()
        note = hit.note
        voice = frozenset(language.stems(note.speaker)) if note.speaker else frozenset()
        about = voice | frozenset(language.stems(language.spoken_date(day(note))))
        before: frozenset[str] = frozenset()
        for sentence in read(hit.text, language).sentences:
            own = sentence.stems - language.common
            yield Witness(place, own, own | before | about, voice)
            before = own


def _content(stems: list[str], language: Language) -> frozenset[str]:
    return frozenset(stems) - language.common


def _flatness(cluster: Cluster) -> float:
    scores = [hit.score for hit in cluster.hits]
    best = max(scores, default=0.0)
    if best <= 0 or len(scores) <= _FIFTH:
        return 0.0  # the only note of a small memory has no rival
    return max(scores[_FIFTH] / best, 0.0)  # a reranker's scores, and cosines, may lie below 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """Signals -> the probability that a reply is right: 1 / (1 + exp(-(intercept + <weights, signals>)))."""

    signals: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float

    def __post_init__(self) -> None:
        if unknown := set(self.signals).difference(SIGNALS):
            raise RouterError(f"the confidence reads {few(sorted(unknown))}; known are {', '.join(SIGNALS)}")
        if len(self.weights) != len(self.signals) or len(set(self.signals)) < len(self.signals):
            raise RouterError(f"the confidence needs {len(self.signals)} distinct signals, and a weight for each")
        if not all(map(math.isfinite, (*self.weights, self.intercept))):
            raise RouterError("every number of the confidence must be finite")

    def __call__(self, signals: Mapping[str, float]) -> float:
        used = [signals[name] for name in self.signals]
        odds = math.fsum((self.intercept, *map(mul, self.weights, used)))
        return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0

    def weigh(self, cluster: Cluster) -> Callable[[str, str], float]:
        """From a reply and the text that was shown to how likely the reply is right, by these candidates.

        They are read once, when the first reply comes.
        """
        read_once = cache(lambda: Witnesses.of(cluster))
        return lambda reply, shown: self(read_once().signals(reply, shown))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Confidence:
        """The confidence that these plain JSON values describe."""
        return cls(
            signals=tuple(plain["signals"]),
            weights=tuple(map(read_number, plain["weights"])),
            intercept=read_number(plain["intercept"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The confidence as plain JSON values."""
        return {"signals": list(self.signals), "weights": list(self.weights), "intercept": self.intercept}
