"""Cluster -> its sentences, best first: what each is worth for the query.

A sentence is worth

    prior * (BASE + overlap + KIND [it holds the kind of thing the query asks for]) * (ASKS if it is a short question)

where the prior is the retriever's score of its note, best note 1, raised a little for newer notes, and the overlap is
the share of the query's words that the sentence holds, each weighed by how rare it is among the candidate sentences.
The retriever says which note, the overlap which sentence of it; neither alone is enough.

Two things are not seen in a sentence alone. A reply ("Yes, in May.") shares no word with the query where the question
before it shares them all: the best sentence of a reply gains from that question. And a list ("Which cities have we
been to?") is not told by saying one thing twice: a sentence that another before it holds goes to the end.
"""

from __future__ import annotations

import math
import re
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from retcon import deadline
from retcon.language import ENGLISH, Language
from retcon.note import MARK, Cluster, Hit
from retcon.timeline import day, moment
from retcon.words import sentences

BASE = 0.4  # docs/extract.md has the neighbours of these values
KIND = 0.4
ASKS = 0.5
SHORT = 15  # words up to which a question only asks; a longer one tells something too
NUMBER = 1.3  # weight of a number in the query, other words have 1
NEWER = 0.1  # the newest note's gain over the oldest: what was said last is what holds now
REPLY = 0.5  # share of a question's worth that goes to the best sentence of the turn after it


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question, and how to know a sentence that can answer it: by one of its words, or by a pattern."""

    asked: re.Pattern[str]
    words: frozenset[str]
    held: re.Pattern[str]


def _kind(asked: str, words: str, held: str) -> Kind:
    return Kind(re.compile(asked, re.IGNORECASE), frozenset(words.split()), re.compile(held))


# English; other languages go without.
KINDS = (
    _kind(
        r"\bwhen\b|\b(?:what|which) (?:day|date|month|year|time)\b|\bhow (?:long|old|recent)",
        "today yesterday tomorrow tonight ago last next since until second minute hour day week weekend month year "
        "decade seconds minutes hours days weeks weekends months years decades morning afternoon evening night monday "
        "tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays saturdays "
        "sundays january february march april may june july august september october november december",
        r"\d",
    ),
    _kind(
        r"\bhow (?:many|much|often|far|big|tall|large)\b",
        "one two three four five six seven eight nine ten eleven twelve dozen twenty thirty forty fifty hundred "
        "thousand million half once twice couple several every daily weekly monthly",
        r"\d",
    ),
    _kind(r"\bwho(?:m|se)?\b|\bnamed?\b", "", r"(?<=\w )[A-Z]\w|(?<=\w, )[A-Z]\w"),  # a capital inside the sentence
    _kind(r"\bwhere\b", "", r"\b(?:in|at|from|to|near|around|on) (?:the |a |my )?[A-Z]"),
)
_FRONT = f"{MARK.strip()} "
_ASKED = ("?", "？")


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence: the position of its note, its own there, its text, its words with those of the speaker's name."""

    hit: int
    place: int
    text: str
    words: Sequence[str]
    stems: Sequence[str]  # of the words, one each

    @property
    def asks(self) -> bool:
        """Whether it ends as a question."""
        return self.text.endswith(_ASKED)


@dataclass(frozen=True, slots=True)
class Piece:
    """A verbatim part of a note: where it stands, what it is worth for the query, whether it shares a word with it."""

    hit: int
    place: int
    text: str
    score: float
    matches: bool
    begun: bool = True  # from the sentence's start
    ended: bool = True  # to its end

    @property
    def whole(self) -> bool:
        return self.begun and self.ended

    @property
    def shown(self) -> str:
        """The text, marked where the sentence was cut."""
        return f"{'' if self.begun else _FRONT}{self.text}{'' if self.ended else MARK}"


@dataclass(frozen=True, slots=True)
class Target:
    """What the query is after: its terms, by each word that stems to one, their shares of its weight, and kinds."""

    terms: Mapping[str, str]
    shares: Mapping[str, float]
    kinds: Sequence[Kind]
    language: Language

    def worth(self, text: str, run: Sequence[str]) -> float:
        """Overlap, plus KIND for a kind of thing that is asked for."""
        return self.overlap(run) + KIND * self.answers(text, run)

    def overlap(self, run: Sequence[str]) -> float:
        """Share of the query that these words hold."""
        found = {self.terms[word] for word in run if word in self.terms}
        return math.fsum(self.shares[term] for term in found)  # exact: the order of a set must not show

    def answers(self, text: str, run: Sequence[str]) -> bool:
        """Whether the text holds a kind of thing that is asked for."""
        return any(not kind.words.isdisjoint(run) or kind.held.search(text) for kind in self.kinds)


def read_lines(cluster: Cluster) -> list[Line]:
    """Every sentence of the notes that repeat no better one."""
    found: list[tuple[int, int, str, list[str]]] = []
    words = cluster.language.words
    for i in skip_repeats(cluster.hits):
        voice = words(cluster.hits[i].note.speaker or "")  # "Ann: I ran" says that Ann ran
        for j, text in enumerate(sentences(cluster.hits[i].text)):
            deadline.check()
            found.append((i, j, text, voice + words(text)))
    distinct = sorted(set().union(*(run for *_, run in found)))
    stem = dict(zip(distinct, cluster.language.stem_words(distinct), strict=True))  # each word is stemmed once
    return [Line(i, j, text, run, [stem[word] for word in run]) for i, j, text, run in found]


def skip_repeats(hits: Sequence[Hit]) -> list[int]:
    """Positions of the notes that repeat no better-ranked one."""
    seen: set[str] = set()
    out: list[int] = []
    for i, hit in enumerate(hits):
        if hit.duplicate_of not in seen:
            out.append(i)
        seen.add(hit.id)
    return out


def read_query(query: str, lines: Sequence[Line], language: Language = ENGLISH) -> Target:
    """What the query is after among these sentences; a term weighs its BM25 idf, with sentences as documents."""
    wanted = dict.fromkeys(language.query_terms(query))
    terms = {word: stem for line in lines for word, stem in zip(line.words, line.stems, strict=True) if stem in wanted}
    df = Tally(chain.from_iterable(wanted.keys() & set(line.stems) for line in lines))
    weight = {term: _weigh(term) * math.log(1 + (len(lines) - df[term] + 0.5) / (df[term] + 0.5)) for term in wanted}
    total = sum(weight.values()) or 1.0
    shares = {term: value / total for term, value in weight.items()}
    kinds = KINDS if language.is_english else ()
    return Target(terms, shares, [kind for kind in kinds if kind.asked.search(query)], language)


def _weigh(term: str) -> float:
    return NUMBER if term[:1].isdigit() else 1.0


def rank(lines: Sequence[Line], target: Target, hits: Sequence[Hit]) -> list[Piece]:
    """The sentences with what they are worth, best first; those that another holds come last."""
    scores = _score(lines, target, hits)
    best_first = sorted(range(len(lines)), key=lambda i: -scores[i])
    return [
        Piece(line.hit, line.place, line.text, scores[i], not target.terms.keys().isdisjoint(line.words))
        for i in _put_repeats_last(best_first, lines, hits, target.language)
        for line in (lines[i],)
    ]


def _score(lines: Sequence[Line], target: Target, hits: Sequence[Hit]) -> list[float]:
    """What each sentence is worth."""
    prior = _priors(hits)
    scores: list[float] = []
    asked: dict[str, float] = {}  # id of a note -> what the best question in it would be worth as a statement
    for line in lines:
        deadline.check()
        score = prior[line.hit] * (BASE + target.worth(line.text, line.words))
        if line.asks:
            note = hits[line.hit].id
            asked[note] = max(asked.get(note, 0.0), score)
        scores.append(score * ASKS if line.asks and len(line.text.split()) <= SHORT else score)
    for i in _find_best(lines, scores):
        scores[i] += REPLY * asked.get(hits[lines[i].hit].note.follows or "", 0.0)
    return scores


def _find_best(lines: Sequence[Line], scores: Sequence[float]) -> Iterable[int]:
    """The place of each note's best sentence."""
    best: dict[int, int] = {}
    for i, line in enumerate(lines):
        if line.hit not in best or scores[i] > scores[best[line.hit]]:
            best[line.hit] = i
    return best.values()


def _put_repeats_last(
    order: Iterable[int], lines: Sequence[Line], hits: Sequence[Hit], language: Language
) -> list[int]:
    """The sentences in this order, but last those that say nothing beyond one before them, of the same day and speaker.

    A sentence without a telling word ("Oh, I see.") says nothing beyond any.
    """
    empty = language.common - _NEGATIONS
    days = [f"day {day(hit.note)}" for hit in hits]
    holding: dict[str, set[int]] = {}  # word -> the sentences so far that hold it
    fresh: list[int] = []
    repeats: list[int] = []
    for i in order:
        deadline.check()
        told = {days[lines[i].hit], *lines[i].stems} - empty
        if _have_in_common([holding.get(word, set()) for word in told]):
            repeats.append(i)
            continue
        fresh.append(i)
        for word in told:
            holding.setdefault(word, set()).add(i)
    return fresh + repeats


def _have_in_common(sets: list[set[int]]) -> bool:
    """Whether something is in all of the sets."""
    first, *others = sorted(sets, key=len)
    return any(all(each in other for other in others) for each in first)


_NEGATIONS = {"not", "no", "t"}  # of English; in other languages none is among the common words


def _priors(hits: Sequence[Hit]) -> list[float]:
    """The retriever's opinion of each note, best 1, or its rank where there are no scores to divide; newer gains."""
    top = max((hit.score for hit in hits), default=0.0)
    usable = 0 < top < math.inf and all(hit.score >= 0 for hit in hits)
    when = [moment(hit.note) or timedelta.min for hit in hits]
    times = sorted(set(when))
    gain = {each: 1 + NEWER * at / max(len(times) - 1, 1) for at, each in enumerate(times)}
    return [(hit.score / top if usable else 2 / (2 + i)) * gain[when[i]] for i, hit in enumerate(hits)]
