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
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from retcon import deadline
from retcon.language import Language
from retcon.note import MARK, Cluster, Hit
from retcon.reading import Sentence, read, read_sentence
from retcon.timeline import day, moment

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


class Line(NamedTuple):
    """A sentence: the position of its note, its own there, and its words; those of the speaker's name are its own."""

    hit: int
    place: int
    sentence: Sentence
    voice: Sentence

    @property
    def text(self) -> str:
        return self.sentence.text

    @property
    def asks(self) -> bool:
        """Whether it ends as a question."""
        return self.sentence.text.endswith(_ASKED)


class Piece(NamedTuple):
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


@dataclass(frozen=True)
class Target:
    """What the query is after among some sentences: its terms with their shares of its weight, and kinds."""

    shares: Mapping[str, float]
    held: Sequence[Set[str]]  # of the terms, by each sentence
    lines: Sequence[Line]
    kinds: Sequence[Kind]
    language: Language

    @cached_property
    def terms(self) -> Mapping[str, str]:
        """The term that each word of the sentences stems to; words of no term are left out."""
        telling = (line for line, held in zip(self.lines, self.held, strict=True) if held)
        pairs = (part.stem_of.items() for line in telling for part in (line.sentence, line.voice))
        return {word: stem for word, stem in chain.from_iterable(pairs) if stem in self.shares}

    def overlaps(self, text: str, runs: Sequence[Sequence[str]]) -> list[float]:
        """Share of the query that the words of each run hold; the runs are all of a text that is one of the sentences.

        Of ASCII text, all words of a run are words of the sentence too: then no other sentence has to be read.
        """
        terms = self._stem(runs) if text.isascii() else self.terms
        are_others = terms.keys().isdisjoint
        return [0.0 if are_others(run) else self.share({terms[word] for word in run if word in terms}) for run in runs]

    def _stem(self, runs: Sequence[Sequence[str]]) -> Mapping[str, str]:
        """The term that each word of the runs stems to; words of no term are left out."""
        found = list({*chain.from_iterable(runs)})
        stems = zip(found, self.language.stem_words(found), strict=True)
        return {word: stem for word, stem in stems if stem in self.shares}

    def share(self, found: Iterable[str]) -> float:
        """What these terms are of the query; exact, so that the order of a set does not show."""
        return math.fsum([self.shares[term] for term in found])

    def answers(self, line: Line) -> bool:
        """Whether the sentence holds a kind of thing that is asked for."""
        for kind in self.kinds:
            if not kind.words.isdisjoint(line.sentence.stem_of) or not kind.words.isdisjoint(line.voice.stem_of):
                return True
            if kind.held.search(line.sentence.text):
                return True
        return False


def read_lines(cluster: Cluster) -> list[Line]:
    """Every sentence of the notes that repeat no better one."""
    out: list[Line] = []
    voices: dict[str, Sentence] = {}
    for i in skip_repeats(cluster.hits):
        name = cluster.hits[i].note.speaker or ""
        if name not in voices:  # "Ann: I ran" says that Ann ran
            voices[name] = read_sentence(name, cluster.language)
        deadline.check()
        said = read(cluster.hits[i].text, cluster.language).sentences
        out += [Line(i, j, sentence, voices[name]) for j, sentence in enumerate(said)]
    return out


def skip_repeats(hits: Sequence[Hit]) -> list[int]:
    """Positions of the notes that repeat no better-ranked one."""
    seen: set[str] = set()
    out: list[int] = []
    for i, hit in enumerate(hits):
        if hit.duplicate_of not in seen:
            out.append(i)
        seen.add(hit.id)
    return out


def read_query(query: str, lines: Sequence[Line], language: Language) -> Target:
    """What the query is after among these sentences; a term weighs its BM25 idf, with sentences as documents."""
    wanted = language.query_terms(query)  # each once
    held = _find_held(frozenset(wanted), lines)
    df = Tally(chain.from_iterable(held))
    weight = {term: _weigh(term) * math.log(1 + (len(lines) - df[term] + 0.5) / (df[term] + 0.5)) for term in wanted}
    total = sum(weight.values()) or 1.0
    shares = {term: value / total for term, value in weight.items()}
    kinds = KINDS if language.is_english else ()
    return Target(shares, held, lines, [kind for kind in kinds if kind.asked.search(query)], language)


def _find_held(wanted: frozenset[str], lines: Sequence[Line]) -> list[Set[str]]:
    """Which of the terms each sentence holds, its speaker's name included; few names are a term."""
    named = {line.voice.text: wanted & line.voice.stems for line in lines}
    own = [wanted & line.sentence.stems for line in lines]
    if not any(named.values()):
        return list(own)
    return [said | named[line.voice.text] for said, line in zip(own, lines, strict=True)]


def _weigh(term: str) -> float:
    return NUMBER if term[:1].isdigit() else 1.0


def rank(lines: Sequence[Line], target: Target, hits: Sequence[Hit]) -> list[Piece]:
    """The sentences with what they are worth, best first; those that another holds come last."""
    scores = _score(lines, target, hits)
    best_first = sorted(range(len(lines)), key=lambda i: -scores[i])
    return [
        Piece(lines[i].hit, lines[i].place, lines[i].text, scores[i], bool(target.held[i]))
        for i in _put_repeats_last(best_first, lines, hits)
    ]


def _score(lines: Sequence[Line], target: Target, hits: Sequence[Hit]) -> list[float]:
    """What each sentence is worth."""
    prior = _priors(hits)
    scores: list[float] = []
    asked: dict[str, float] = {}  # id of a note -> what the best question in it would be worth as a statement
    for line, held in zip(lines, target.held, strict=True):
        deadline.check()
        asked_for = (target.share(held) if held else 0.0) + (KIND if target.kinds and target.answers(line) else 0.0)
        score = prior[line.hit] * (BASE + asked_for)
        if line.asks:
            note = hits[line.hit].id
            asked[note] = max(asked.get(note, 0.0), score)
            score = score * ASKS if len(line.text.split()) <= SHORT else score
        scores.append(score)
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


def _put_repeats_last(order: Iterable[int], lines: Sequence[Line], hits: Sequence[Hit]) -> list[int]:
    """The sentences in this order, but last those that say nothing beyond one before them, of the same day and speaker.

    A sentence of function words alone ("Here it is.") says nothing beyond any.
    """
    days = [f"day {day(hit.note)}" for hit in hits]
    holding: dict[str, int] = {}  # word -> the sentences so far that hold it, as bits
    fresh: list[int] = []
    repeats: list[int] = []
    for i in order:
        deadline.check()
        line = lines[i]
        told = (*line.sentence.telling, *line.voice.telling, days[line.hit])
        if _hold_together(told, holding):
            repeats.append(i)
            continue
        own = 1 << len(fresh)
        fresh.append(i)
        for word in told:
            holding[word] = holding.get(word, 0) | own
    return fresh + repeats


def _hold_together(words: Iterable[str], holding: Mapping[str, int]) -> bool:
    """Whether one of the sentences holds all of the words; most sentences have a word of their own."""
    left = -1
    for word in words:
        left &= holding.get(word, 0)
        if not left:
            return False
    return True


def _priors(hits: Sequence[Hit]) -> list[float]:
    """The retriever's opinion of each note, best 1, or its rank where there are no scores to divide; newer gains."""
    top = max((hit.score for hit in hits), default=0.0)
    usable = 0 < top < math.inf and all(hit.score >= 0 for hit in hits)
    when = [moment(hit.note) or timedelta.min for hit in hits]
    times = sorted(set(when))
    gain = {each: 1 + NEWER * at / max(len(times) - 1, 1) for at, each in enumerate(times)}
    return [(hit.score / top if usable else 2 / (2 + i)) * gain[when[i]] for i, hit in enumerate(hits)]
