"""Extract: the words that matter for the query, verbatim, with their dates. Needs no model and can invent nothing.

    notes -> sentences -> a score each -> the best that fit -> shown in order of time -> counted again

A sentence is worth

    prior * (BASE + overlap + KIND [it holds the kind of thing the query asks for]) * (ASKS if it is a question)

where the prior is the retriever's score of its note, best note 1, raised a little for newer notes, and the overlap is
the share of the query's words that the sentence holds, each weighed by how rare it is among the candidate sentences.
The retriever says which note, the overlap which sentence of it; neither alone is enough. Sentences enter best first.
The first one that is too long enters as the run of its words that is worth most, begun at a clause; after it, only
whole sentences.
"""

from __future__ import annotations

import math
import re
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from retcon import deadline
from retcon.note import Cluster, Dropped, Hit, Packed, Source
from retcon.pack import check, date, one_line, retain
from retcon.tokens import Counter, counter, cut
from retcon.words import query_terms, sentences, stem_words, stems, words

BASE = 0.4  # tuned on LongMemEval; docs/extract.md has the neighbours of these values
KIND = 0.4
ASKS = 0.5
NEWER = 0.1  # the newest note's gain over the oldest: what was said last is what holds now
ROOM = 6  # tokens: a date must leave the best piece as many, and a sentence is not cut to fewer
LEAST = 3  # words or tokens below which nothing more is added
MARK = " ..."  # stands between a part of a sentence and what follows it on the line


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
# A clause starts after punctuation inside the sentence; a run of it is read once, from its start.
_CLAUSE = re.compile(r"(?<![,;:)])[,;:)]++\s+|[，、；：]|\s[-–—]++\s|—")
_MOST_CLAUSES = 16
_ASKED = ("?", "？")
_STOPS = (*_ASKED, ".", "!", "…", "。", "！", "｡")


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence: the position of its note, its own there, its text, its words with those of the speaker's name."""

    hit: int
    place: int
    text: str
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Piece:
    """A verbatim part of a note: where it stands, what it is worth for the query, whether it shares a word with it."""

    hit: int
    place: int
    text: str
    score: float
    matches: bool
    whole: bool = True  # not a part of a sentence


@dataclass(frozen=True, slots=True)
class Target:
    """What the query is after: its terms, by each word that stems to one, their shares of its weight, and kinds."""

    terms: Mapping[str, str]
    shares: Mapping[str, float]
    kinds: Sequence[Kind]

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


def extract(cluster: Cluster, budget: int, *, count: Counter) -> Packed:
    """The sentences worth most for the query, within the budget; never empty where a whole note would fit."""
    lines = _lines(cluster)
    target = _read_query(cluster.query, lines)
    pieces = _rank(lines, target, cluster.hits)
    page = _page(cluster, pieces, check(budget), count)
    purse = Purse(budget, page, count)
    taken = _choose(pieces, target, purse) if budget else []
    text = page.show(taken)
    while text and count(text) > budget:  # the counter charges more for the whole than for its parts
        deadline.check()
        taken.pop()
        text = page.show(taken)
    if not text:  # budget 0, or only whole notes fit: a counter may charge less for them
        return retain(cluster, budget, count=count)
    purse.left = budget - count(text)
    return Packed(
        text, budget - purse.left, _sources(cluster.hits, pieces, taken), _explain_drops(cluster.hits, pieces, purse)
    )


# - what a sentence is worth -


def _lines(cluster: Cluster) -> list[Line]:
    """Every sentence of the notes that repeat no better one."""
    out: list[Line] = []
    for i in _skip_repeats(cluster.hits):
        voice = words(cluster.hits[i].note.speaker or "")  # "Ann: I ran" says that Ann ran
        for j, text in enumerate(sentences(cluster.hits[i].text)):
            deadline.check()
            out.append(Line(i, j, text, voice + words(text)))
    return out


def _rank(lines: Sequence[Line], target: Target, hits: Sequence[Hit]) -> list[Piece]:
    """The sentences with what they are worth, best first."""
    prior = _priors(hits)
    pieces: list[Piece] = []
    for line in lines:
        deadline.check()
        asks = ASKS if line.text.endswith(_ASKED) else 1.0
        score = prior[line.hit] * (BASE + target.worth(line.text, line.words)) * asks
        pieces.append(Piece(line.hit, line.place, line.text, score, not target.terms.keys().isdisjoint(line.words)))
    return sorted(pieces, key=lambda piece: -piece.score)


def _read_query(query: str, lines: Sequence[Line]) -> Target:
    """What the query is after among these sentences; a term weighs its BM25 idf, with sentences as documents."""
    runs = [line.words for line in lines]
    distinct = sorted(set().union(*runs))
    wanted = dict.fromkeys(query_terms(query))
    terms = {word: stem for word, stem in zip(distinct, stem_words(distinct), strict=True) if stem in wanted}
    df = Tally(chain.from_iterable({terms[word] for word in run if word in terms} for run in runs))
    weight = {term: math.log(1 + (len(runs) - df[term] + 0.5) / (df[term] + 0.5)) for term in wanted}
    total = sum(weight.values()) or 1.0
    shares = {term: value / total for term, value in weight.items()}
    return Target(terms, shares, [kind for kind in KINDS if kind.asked.search(query)])


def _skip_repeats(hits: Sequence[Hit]) -> list[int]:
    """Positions of the notes that repeat no better-ranked one."""
    seen: set[str] = set()
    out: list[int] = []
    for i, hit in enumerate(hits):
        if hit.duplicate_of not in seen:
            out.append(i)
        seen.add(hit.id)
    return out


def _priors(hits: Sequence[Hit]) -> list[float]:
    """The retriever's opinion of each note, best 1, or its rank where there are no scores to divide; newer gains."""
    top = max((hit.score for hit in hits), default=0.0)
    usable = 0 < top < math.inf and all(hit.score >= 0 for hit in hits)
    times = sorted({hit.note.timestamp or "" for hit in hits})
    gain = {moment: 1 + NEWER * at / max(len(times) - 1, 1) for at, moment in enumerate(times)}
    return [(hit.score / top if usable else 2 / (2 + i)) * gain[hit.note.timestamp or ""] for i, hit in enumerate(hits)]


# - how it is shown -


@dataclass(frozen=True, slots=True)
class Page:
    """How pieces are shown: by time, a day's date once, the speaker where it differs or the query names one."""

    days: Sequence[str]
    names: Sequence[str]
    turns: Sequence[int]  # position in time of each candidate

    def head(self, hit: int, *, dated: bool) -> str:
        """What stands before the words of a note: "2026-05-09 ann: "."""
        return "".join(f"{part} " for part in (self.days[hit] if dated else "", self.names[hit]) if part)

    def show(self, taken: Sequence[Piece]) -> str:
        """The pieces as text; those of one day and speaker that follow each other share a line."""
        out: list[str] = []
        before: Piece | None = None
        for piece in sorted(taken, key=lambda p: (self.turns[p.hit], p.place)):
            new_day = before is None or self.days[before.hit] != self.days[piece.hit]
            if before is None or new_day or self.names[before.hit] != self.names[piece.hit]:
                out += ["\n" if before else "", self.head(piece.hit, dated=new_day)]
            else:
                out.append(" " if before.whole or before.text.endswith(_STOPS) else f"{MARK} ")
            out.append(piece.text)
            before = piece
        return "".join(out)


def _page(cluster: Cluster, pieces: Sequence[Piece], budget: int, count: Counter) -> Page:
    """The page for this cluster; bare of dates and speakers where they would leave the best piece no room."""
    notes = cluster.notes
    days = [date(note) for note in notes]
    names = [one_line(note.speaker or "") for note in notes]
    if len(set(names)) == 1 and not set(stems(names[0])) & set(stems(cluster.query)):
        names = [""] * len(notes)  # one voice throughout, which the query does not name
    turns = [0] * len(notes)
    for turn, i in enumerate(sorted(range(len(notes)), key=lambda i: (days[i], notes[i].timestamp or "", i))):
        turns[i] = turn
    page = Page(days, [f"{name}:" if name else "" for name in names], turns)
    if pieces and count(page.head(pieces[0].hit, dated=True)) + min(count(pieces[0].text), ROOM) > budget:
        return Page([""] * len(notes), [""] * len(notes), turns)
    return page


# - what fits -


class Purse:
    """What is left of the budget. A piece pays its words, a day its date once, a note its speaker once.

    Costs are summed, which is quick and for the usual counters a little too much; `settle` puts the text's own count in
    place of the sum.
    """

    def __init__(self, budget: int, page: Page, count: Counter) -> None:
        self.budget, self.left = budget, budget
        self.page, self.count = page, count
        self.taken: list[Piece] = []
        self.days: set[str] = set()
        self.hits: set[int] = set()
        self.settled = True

    def lead(self, hit: int) -> str:
        """What a piece of this note would bring in before its words."""
        head = self.page.head(hit, dated=self.page.days[hit] not in self.days)
        return " " if hit in self.hits else f"\n{head}" if self.taken else head

    def fits(self, piece: Piece) -> bool:
        """Whether there is room for the piece; the sum is settled before the answer is no."""
        cost = self.count(self.lead(piece.hit) + piece.text)
        if cost > self.left and not self.settled:
            self.settle()
        return cost <= self.left

    def settle(self) -> None:
        self.left = self.budget - self.count(self.page.show(self.taken))
        self.settled = True

    def pay(self, piece: Piece) -> None:
        """Take the piece in, with the mark that may have to follow it."""
        self.left -= self.count(self.lead(piece.hit) + piece.text + ("" if piece.whole else MARK))
        self.taken.append(piece)
        self.hits.add(piece.hit)
        self.days.add(self.page.days[piece.hit])
        self.settled = False


def _choose(pieces: Sequence[Piece], target: Target, purse: Purse) -> list[Piece]:
    """The pieces that fit, best first. One of them may be a part of a sentence."""
    said: set[str] = set()
    cutting = True
    for piece in pieces:
        deadline.check()
        if purse.taken and purse.left < LEAST:
            if purse.settled:
                break
            purse.settle()
        if piece.text in said:
            continue
        entry = piece if purse.fits(piece) else None
        if entry is None and cutting and (purse.left >= ROOM or not purse.taken):
            entry = _part(piece, target, purse)
            cutting = entry is None and not purse.taken
        if entry is not None:
            purse.pay(entry)
            said.add(entry.text)
    return purse.taken


def _part(piece: Piece, target: Target, purse: Purse) -> Piece | None:
    """The run of the sentence's words that fits and is worth most: from a clause's start to a word's end."""
    lead, mark = purse.lead(piece.hit), MARK if purse.taken else ""
    starts = [0, *(end.end() for end in _CLAUSE.finditer(piece.text))][:_MOST_CLAUSES]
    whole = counter(lambda text: purse.count(lead + text + mark) if text else 0)
    runs = [cut(piece.text[start:], purse.left, whole).strip().rstrip(",;:(-–— ") for start in starts]
    best = max(runs, key=lambda run: (target.worth(run, words(run)), len(run)))
    enough = len(words(best)) >= LEAST if purse.taken else bool(best)
    return replace(piece, text=best, whole=False) if enough and whole(best) <= purse.left else None


# - what is said about it -


def _sources(hits: Sequence[Hit], pieces: Sequence[Piece], taken: Sequence[Piece]) -> tuple[Source, ...]:
    """The notes behind the text, best first: all of a note's text, or the pieces of it, one a line."""
    used, there = _by_hit(taken), _by_hit(pieces)
    out: list[Source] = []
    for i in sorted(used):
        whole = len(used[i]) == len(there[i]) and all(piece.whole for piece in used[i])
        text = hits[i].text if whole else "\n".join(piece.text for piece in sorted(used[i], key=lambda p: p.place))
        out.append(Source(hits[i].id, text, whole, hits[i].note.timestamp))
    return tuple(out)


def _explain_drops(hits: Sequence[Hit], pieces: Sequence[Piece], purse: Purse) -> tuple[Dropped, ...]:
    """Each note that has nothing in the text, and why."""
    used, there = _by_hit(purse.taken), _by_hit(pieces)
    fresh, said = set(_skip_repeats(hits)), {piece.text for piece in purse.taken}
    out: list[Dropped] = []
    for i, hit in enumerate(hits):
        deadline.check()
        if i in used:
            continue
        own = [piece for piece in there.get(i, ()) if piece.text not in said]
        need = purse.count(purse.lead(i) + own[0].text) if own else 0
        numbers = f"needs {need} tokens, {purse.left} left"
        if i not in fresh:
            out.append(Dropped(hit.id, "duplicate", f"says the same as {hit.duplicate_of}"))
        elif i in there and not own:
            out.append(Dropped(hit.id, "duplicate", "all it says is there from another note"))
        elif not any(piece.matches for piece in own):
            out.append(Dropped(hit.id, "no_match", f"shares no word with the query; {numbers}", need))
        else:
            out.append(Dropped(hit.id, "budget", f"its best sentence {numbers}", need))
    return tuple(out)


def _by_hit(pieces: Iterable[Piece]) -> dict[int, list[Piece]]:
    out: dict[int, list[Piece]] = {}
    for piece in pieces:
        out.setdefault(piece.hit, []).append(piece)
    return out
