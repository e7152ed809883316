"""Query, store -> Cluster: the candidate notes that one query works on.

Four retrievers, by name:

    bm25         the default: stemmed words, each note found also by its date, its speaker and the turn before it
    bm25-plain   the paper's: bare words of the note alone, every note of the scope scored
    dense        cosine of embeddings
    hybrid       bm25 and dense, joined by normalised scores

BM25 has k1 = 1.2, b = 0.75, idf = ln(1 + (N - df + .5) / (df + .5)), a repeated query word counts once, and N, df and
the mean length are those of the query's scope alone. The default reads as little of the index as it can (MaxScore):
terms from rare to common; once the common ones left over could not lift a new note into the top k, they are looked up
for the few notes that still can get there. What it returns is what scoring every note would.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from retcon import deadline, rerank
from retcon.embedding import Identity, identify
from retcon.errors import InputError, quote
from retcon.evidence import Match, names_speaker, query_words
from retcon.language import Language
from retcon.model import Embed
from retcon.model.embed import embed_query
from retcon.model.rerank import Rerank
from retcon.note import Filter, Hit, Note, Span
from retcon.reading import Reading, read
from retcon.repeats import mark_duplicates
from retcon.reranker import DEPTH as RERANKED
from retcon.reranker import Reranked, rerank_hits
from retcon.store import Lists, Nearest, Postings, Snapshot, Store, TermStats
from retcon.where import Where
from retcon.words import OWN, term_key

K1, B = 1.2, 0.75
DEPTH = 100  # candidates that are ordered anew
LOOKUP = 300  # looking up one candidate costs about as much as reading this many entries of a posting list (measured)
PROBE = 4  # times k candidates are scored exactly first
SLACK = 1e-9  # below any difference between scores that matters, above rounding errors

_PLAIN = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Ranked:
    """Slots of a snapshot with their scores, best first; equal scores keep the older note first."""

    slots: list[int]
    scores: list[float]
    closest: float | None = None  # cosine of the closest note, where embeddings were searched
    passages: Mapping[int, int] = field(default_factory=dict)  # slot of a long note -> number of its best passage
    worded: Sequence[int] | None = None  # slots of the best by words alone, where that is another ranking


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found: notes, best first, and how the query's words match them."""

    hits: tuple[Hit, ...]
    match: Match
    language: Language  # of the index that was searched
    warnings: tuple[str, ...] = ()


def search(
    store: Store,
    query: str,
    where: Where,
    *,
    top_k: int = 20,
    retriever: str = "bm25",
    embed: Embed | None = None,
    known: Identity | None = None,
    fill: bool = False,
    more: int = 0,
) -> tuple[Hit, ...]:
    """The best of those notes for the query, near-duplicates marked; up to `more` after the `top_k`.

    `known` is what `identify` says of the embedder, if it was asked before. `fill` tops up with the newest notes, at
    score 0, where fewer than `top_k` share a word with the query.
    """
    found = find(store, query, where, top_k=top_k, more=more, retriever=retriever, embed=embed, known=known, fill=fill)
    return found.hits


def find(
    store: Store,
    query: str,
    where: Where,
    *,
    top_k: int,
    retriever: str,
    embed: Embed | None,
    fill: bool,
    more: int = 0,
    known: Identity | None = None,
    reranker: Rerank | None = None,
) -> Search:
    """What `search` gives, with how the query's words match it; a reranker orders the best of it in the end.

    Up to `more` hits follow the `top_k`; none of them only fills up.
    """
    wanted = top_k + more
    asking: Asking | None = None
    if embed is not None and check_retriever(retriever) in NEEDS_VECTORS:  # outside of the store: its errors are others
        asking = Asking(known or identify(store, embed), embed_query(embed, query))
    with store.snapshot(where.scope) as snapshot:
        ranked = RETRIEVERS[check_retriever(retriever)](
            snapshot, query, wanted if reranker is None else max(wanted, RERANKED), where.only, asking
        )  # fmt: skip
        by_words = _find_worded(snapshot, query, top_k, where.only, retriever, ranked)[:top_k]
        language = snapshot.language
        asked = query_words(query, language)
        held = _hold(snapshot, np.asarray(by_words, np.int64), [term_key(word.term) for word in asked])
        if fill and len(ranked.slots) < top_k:
            ranked = _fill_up(ranked, snapshot.recent(top_k + len(ranked.slots), where.only), top_k)
        notes, places = snapshot.fetch(ranked.slots), snapshot.places(ranked.slots)
        numbers = [ranked.passages.get(slot, 0) for slot in ranked.slots]
        parts = [_passage(note, number, language) for note, number in zip(notes, numbers, strict=True)]
        heard = notes[: len(held)] if retriever == "bm25" else snapshot.fetch(by_words)
        searched = snapshot.notes if notes else 0
    if retriever == "bm25-plain":  # the paper's notes are whole
        parts = [None] * len(notes)
    found = zip(notes, ranked.scores, places, parts, strict=True)
    hits = (
        Hit(note, score, rank, place=place, passage=part) for rank, (note, score, place, part) in enumerate(found, 1)
    )
    match = Match(
        asked, held, searched, max(ranked.scores, default=0.0),
        named=names_speaker(asked, (note.speaker for note in heard), language),
        similarity=ranked.closest, embedder=embed.name if embed is not None else "",
    )  # fmt: skip
    done = Reranked(tuple(hits)) if reranker is None else rerank_hits(reranker, query, tuple(hits))
    return Search(mark_duplicates(done.hits[:wanted], language), match, language, done.warnings)


def _find_worded(
    snapshot: Snapshot, query: str, top_k: int, only: Filter, retriever: str, ranked: Ranked
) -> Sequence[int]:
    """Slots of the best notes by words alone: whether they hold the query's words tells if anything is about it."""
    if ranked.worded is not None:
        return ranked.worded
    return ranked.slots if retriever == "bm25" else bm25(snapshot, query, top_k, only).slots


def _hold(snapshot: Snapshot, slots: NDArray[np.int64], keys: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each of the notes holds each of the terms: by the terms' lists where these are short."""
    stats = snapshot.terms(keys)
    known = [column for column, key in enumerate(keys) if key in stats]
    if sum(stats[keys[column]].df for column in known) > LOOKUP * len(slots):
        return snapshot.forward(slots, keys).counts > 0
    held = np.zeros((len(slots), len(keys)), bool)
    if known:
        listed = snapshot.lists([keys[column] for column in known])
        at = _find_places(snapshot, slots, listed)
        held[at[at >= 0], np.repeat(known, listed.sizes)[at >= 0]] = True
    return held


def _passage(note: Note, number: int, language: Language) -> Span | None:
    """That passage of a long note; None where the note is short."""
    spans = read(note.text, language).passages
    return spans[number] if len(spans) > 1 else None


def _read_passage(note: Note, number: int, language: Language) -> Reading:
    """What that passage of the note says."""
    part = _passage(note, number, language)
    return read(note.text if part is None else note.text[slice(*part)].strip(), language)


# -- bm25 ------------------------------------------------------------------------------------------------------------


def idf(notes: int, df: int) -> float:
    """ln(1 + (N - df + .5) / (df + .5)), never negative."""
    return math.log(1 + (notes - df + 0.5) / (df + 0.5))


def bm25(
    snapshot: Snapshot,
    query: str,
    top_k: int,
    only: Filter,
    _: Asking | None = None,
    settings: rerank.Settings = rerank.SHIPPED,
) -> Ranked:
    """The top k by BM25 over the store's index, long notes by their best passage, the best of them ordered anew."""
    language = snapshot.language
    weights = rerank.weigh_terms(language.query_terms(query), settings, language)
    found = score_passages(snapshot, weights, best(snapshot, weights, max(top_k, DEPTH), only))
    return reorder(snapshot, query, weights, found, top_k, settings)


def score_passages(snapshot: Snapshot, weights: Mapping[str, float], found: Ranked) -> Ranked:
    """What was found with each long note's score that of its best passage."""
    keys = {term_key(term): weight for term, weight in weights.items()}
    held = snapshot.passages(np.asarray(found.slots, np.int64), list(keys))
    if not len(held.rows):
        return found
    stats = snapshot.terms(list(keys))
    scorer, each = _Scorer(snapshot, stats, keys), np.zeros(len(held.rows))
    for column, key in enumerate(keys):
        if key in stats:
            each += scorer.gain(key, OWN * held.counts[:, column], OWN * held.lengths)
    gains: dict[int, list[float]] = {}  # row of a long note -> what each of its passages gets
    for row, gain in zip(held.rows.tolist(), each.tolist(), strict=True):
        gains.setdefault(row, []).append(gain)
    scores, chosen = list(found.scores), {}
    for row, of_note in gains.items():
        most = max(of_note)
        chosen[found.slots[row]] = of_note.index(most)
        scores[row] = max(most, SLACK)  # what was found stays found
    return replace(found, scores=scores, passages=chosen)


def score_notes(snapshot: Snapshot, weights: Mapping[str, float], slots: NDArray[np.int64]) -> Ranked:
    """The notes in these slots with their BM25 scores, long notes by their best passage."""
    keys = {term_key(term): weight for term, weight in weights.items()}
    stats = snapshot.terms(list(keys))
    order = sorted(stats, key=lambda key: (stats[key].df, key))
    scores = _look_up(snapshot, _Scorer(snapshot, stats, keys), np.zeros(snapshot.slots), slots, order)
    return score_passages(snapshot, weights, Ranked(slots.tolist(), scores.tolist()))


def reorder(
    snapshot: Snapshot,
    query: str,
    weights: Mapping[str, float],
    found: Ranked,
    top_k: int,
    settings: rerank.Settings = rerank.SHIPPED,
) -> Ranked:
    """The top k of what was found, by what stands around a note too (`rerank`)."""
    slots, scores = np.asarray(found.slots, np.int64), np.asarray(found.scores)
    if len(slots) > 1:
        speakers, sessions = snapshot.facts(found.slots)
        rerank.lift_speaker(scores, query, speakers, settings, snapshot.language)
        rerank.lift_hop(scores, _hop_gains(snapshot, weights, slots, scores, found.passages), settings)
        rerank.lift_sessions(scores, sessions, settings)
    return replace(_top(slots, scores, top_k), closest=found.closest, passages=found.passages)


def _hop_gains(
    snapshot: Snapshot,
    weights: Mapping[str, float],
    slots: NDArray[np.int64],
    scores: NDArray[np.float64],
    passages: Mapping[int, int],
) -> NDArray[np.float64]:
    """What the words that the best notes add to the query give each candidate."""
    first = np.argsort(-scores, kind="stable")[: rerank.HOP_NOTES]
    best = slots[first].tolist()
    language = snapshot.language
    texts = [
        _read_passage(note, passages.get(slot, 0), language).stems
        for slot, note in zip(best, snapshot.fetch(best), strict=True)
    ]
    new = [*{term for terms in texts for term in terms if term not in weights and term not in language.common}]
    keys = dict(zip(new, term_key.each(new), strict=True))
    stats = snapshot.terms(list(keys.values()))
    idfs = {term: idf(snapshot.notes, stats[key].df) for term, key in keys.items() if key in stats}
    chosen = [keys[term] for term in rerank.rank_hop_terms(texts, scores[first].tolist(), weights, idfs, language)]
    scorer = _Scorer(snapshot, {key: stats[key] for key in chosen})
    if sum(stats[key].df for key in chosen) > LOOKUP * len(slots):
        return _look_up(snapshot, scorer, np.zeros(snapshot.slots), slots, chosen)
    return _read_lists(snapshot, scorer, slots, chosen)


def _read_lists(
    snapshot: Snapshot, scorer: _Scorer, slots: NDArray[np.int64], keys: Sequence[int]
) -> NDArray[np.float64]:
    """What these terms, of short posting lists, add to the score of the notes in the slots."""
    if not keys:
        return np.zeros(len(slots))
    listed = snapshot.lists(keys)
    at = _find_places(snapshot, slots, listed)
    held = at >= 0
    return _add_up(at[held], scorer.gains(keys, listed)[held], len(slots))


def _find_places(snapshot: Snapshot, slots: NDArray[np.int64], listed: Lists) -> NDArray[np.int32]:
    """Where each listed note stands among those in the slots; -1 where it does not."""
    place = np.full(snapshot.slots, -1, np.int32)
    place[slots] = np.arange(len(slots))
    found: NDArray[np.int32] = place[listed.entries.slots]
    return found


def best(snapshot: Snapshot, weights: Mapping[str, float], top_k: int, only: Filter | None = None) -> Ranked:
    """The top k notes for the given index terms with their weights, exact."""
    keys = {term_key(term): weight for term, weight in weights.items()}
    stats = snapshot.terms(list(keys))
    scorer = _Scorer(snapshot, stats, keys)
    allowed = None if only is None else snapshot.mask(only)
    # Rare terms first. The order depends on frequencies alone, so that a score is always the same sum.
    order = sorted(stats, key=lambda key: (stats[key].df, key))
    ahead = [*_sum_from_end([scorer.bound(key) for key in order]), 0.0]
    left = _sum_from_end([stats[key].df for key in order])  # entries from this term on
    # Of terms that fewer than k notes hold, no list alone can raise the bar: all of them are read at once.
    at = sum(stats[key].df < top_k for key in order)
    scores = _score_rare(snapshot, scorer, order[:at], allowed)
    threshold = 0.0
    # A note that holds only what is ahead may still get in, or reading all of that is cheaper than to look up a few.
    while at < len(order) and (threshold <= ahead[at] or left[at] < PROBE * top_k * LOOKUP):
        deadline.check()
        listed = snapshot.postings(order[at])
        slots, gains = _keep_allowed(listed, scorer.gain(order[at], listed.counts, listed.lengths), allowed)
        gains += scores[slots]
        scores[slots] = gains
        threshold = max(threshold, _kth(gains, top_k))
        at += 1
    candidates = np.flatnonzero(scores >= max(threshold - ahead[at] - SLACK, SLACK))
    # Exact scores of the most promising few raise the bar for all others.
    few, others = _split(candidates, scores[candidates], PROBE * top_k)
    exact = _look_up(snapshot, scorer, scores, few, order[at:])
    threshold = max(threshold, _kth(exact, top_k))
    others = others[scores[others] >= threshold - ahead[at] - SLACK]
    while at < len(order) and len(others) * LOOKUP > stats[order[at]].df:
        deadline.check()
        listed = _keep_slots(snapshot.postings(order[at]), others, snapshot.slots)
        scores[listed.slots] += scorer.gain(order[at], listed.counts, listed.lengths)
        at += 1
        others = others[scores[others] >= threshold - ahead[at] - SLACK]
    rest = _look_up(snapshot, scorer, scores, others, order[at:])
    return _top(np.concatenate((few, others)), np.concatenate((exact, rest)), top_k)


def _score_rare(
    snapshot: Snapshot, scorer: _Scorer, keys: Sequence[int], allowed: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """The score of every note by these terms alone."""
    if not keys:
        return np.zeros(snapshot.slots)
    listed = snapshot.lists(keys)
    slots, gains = _keep_allowed(listed.entries, scorer.gains(keys, listed), allowed)
    return _add_up(slots, gains, snapshot.slots)


def _add_up(places: NDArray[np.integer], gains: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The sum of the gains at each of `size` places, added in the order in which they come: so term by term."""
    if len(places) and places.max() >= size:
        raise IndexError(f"a list names note {places.max():,} of {size:,}")  # it is damaged
    return np.bincount(places, gains, size).astype(np.float64, copy=False)  # of nothing it makes whole numbers


def _sum_from_end(values: Sequence[float]) -> list[float]:
    """Of each value, the sum of it and all after it."""
    return list(accumulate(reversed(values)))[::-1]


class _Scorer:
    """BM25's formula with the snapshot's N, df and mean length."""

    def __init__(
        self, snapshot: Snapshot, stats: Mapping[int, TermStats], weights: Mapping[int, float] | None = None
    ) -> None:
        self.stats, weigh = stats, weights or {}
        self.idf = {key: weigh.get(key, 1.0) * idf(snapshot.notes, found.df) for key, found in stats.items()}
        self.flat = K1 * (1 - B)
        self.slope = K1 * B / snapshot.mean_length if snapshot.mean_length else 0.0

    def gain(self, key: int, counts: NDArray[np.uint16], lengths: NDArray[np.uint16]) -> NDArray[np.float64]:
        """What the term adds to the score of each note."""
        return self._gain(self.idf[key] * (K1 + 1), counts, lengths)

    def gains(self, keys: Sequence[int], listed: Lists) -> NDArray[np.float64]:
        """What each of the terms adds to the score of the notes in its list."""
        weights = np.repeat([self.idf[key] * (K1 + 1) for key in keys], listed.sizes)
        return self._gain(weights, listed.entries.counts, listed.entries.lengths)

    def _gain(
        self, weight: float | NDArray[np.float64], counts: NDArray[np.uint16], lengths: NDArray[np.uint16]
    ) -> NDArray[np.float64]:
        tf = counts.astype(np.float64)
        norm = lengths * self.slope
        norm += self.flat
        norm += tf
        tf *= weight
        tf /= norm
        return tf

    def bound(self, key: int) -> float:
        """No note gets more from the term than this."""
        found = self.stats[key]
        norm = found.peak + self.flat + self.slope * found.low
        return self.idf[key] * found.peak * (K1 + 1) / norm


def _keep_allowed(
    listed: Postings, gains: NDArray[np.float64], allowed: NDArray[np.bool_] | None
) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    if allowed is None:
        return listed.slots, gains
    keep = allowed[listed.slots]
    return listed.slots[keep], gains[keep]


def _keep_slots(listed: Postings, slots: NDArray[np.int64], size: int) -> Postings:
    """The entries of notes in the given slots."""
    wanted = np.zeros(size, bool)
    wanted[slots] = True
    at = np.flatnonzero(wanted[listed.slots])
    return Postings(listed.slots[at], listed.counts[at], listed.lengths[at])


def _kth(values: NDArray[np.float64], k: int) -> float:
    """The k-th largest value; 0 where there are fewer."""
    return float(np.partition(values, len(values) - k)[len(values) - k]) if len(values) >= k else 0.0


def _split(
    slots: NDArray[np.int64], scores: NDArray[np.float64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The slots with the highest scores, `size` of them, and the others."""
    if len(slots) <= size:
        return slots, slots[:0]
    order = np.argpartition(-scores, size)
    return slots[order[:size]], slots[order[size:]]


def _look_up(
    snapshot: Snapshot, scorer: _Scorer, scores: NDArray[np.float64], slots: NDArray[np.int64], keys: Sequence[int]
) -> NDArray[np.float64]:
    """Scores of the slots with what the remaining terms add, from the notes' own term lists."""
    total = scores[slots]
    if len(slots) and keys:
        found = snapshot.forward(slots, keys)
        for column, key in enumerate(keys):  # one term after the other: the same sum as by posting lists
            total += scorer.gain(key, found.counts[:, column], found.lengths)
    return total


def _top(slots: NDArray[np.int64], scores: NDArray[np.float64], k: int) -> Ranked:
    scores = np.round(scores, 9)
    order = np.lexsort((slots, -scores))[:k]
    return Ranked(slots[order].tolist(), scores[order].tolist())


def plain(snapshot: Snapshot, query: str, top_k: int, only: Filter, _: Asking | None = None) -> Ranked:
    """The paper's BM25: every current note scored on its bare lower-case words, no stemming, no context."""
    slots, counted = [], []
    for slot, note in snapshot.texts():
        deadline.check()
        slots.append(slot)
        counted.append(Counter(_PLAIN.findall(note.text.lower())))
    scores = plain_scores(counted, list(dict.fromkeys(_PLAIN.findall(query.lower()))))
    found = np.asarray(slots, np.int64)
    keep = scores > 0
    if (allowed := snapshot.mask(only)) is not None:
        keep &= allowed[found]
    return _top(found[keep], scores[keep], top_k)


def plain_scores(counted: Sequence[Counter[str]], terms: Sequence[str]) -> NDArray[np.float64]:
    """BM25 of every counted text for the terms."""
    lengths = np.array([text.total() for text in counted], float)
    scores = np.zeros(len(counted))
    if not len(counted) or not lengths.sum():
        return scores
    norm = K1 * (1 - B + B * lengths / lengths.mean())
    for term in terms:
        deadline.check()
        tf = np.array([text[term] for text in counted], float)
        scores += idf(len(counted), int((tf > 0).sum())) * tf * (K1 + 1) / (tf + norm)
    return scores


# -- dense and hybrid ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asking:
    """The query's vector, and the embedder that made it."""

    by: Identity
    vector: NDArray[np.float32]


def dense(snapshot: Snapshot, query: str, top_k: int, only: Filter, asking: Asking | None) -> Ranked:
    """The top k by cosine among the notes that have a vector, long ones by their best passage."""
    near = _find_near(snapshot, top_k, only, asking)
    passages = dict(zip(near.slots.tolist(), near.parts.tolist(), strict=True))
    closest = max(near.scores.tolist(), default=0.0)
    return replace(_top(near.slots, near.scores, top_k), closest=closest, passages=passages)


def hybrid(
    snapshot: Snapshot,
    query: str,
    top_k: int,
    only: Filter,
    asking: Asking | None,
    settings: rerank.Settings = rerank.SHIPPED,
) -> Ranked:
    """The best by words and the best by meaning, joined by scores that are divided by their best, and ordered anew."""
    near = _find_near(snapshot, max(top_k, DEPTH), only, asking)
    weights = rerank.weigh_terms(snapshot.language.query_terms(query), settings, snapshot.language)
    worded = score_passages(snapshot, weights, best(snapshot, weights, max(top_k, DEPTH), only))
    assert asking is not None
    also = np.setdiff1d(near.slots, worded.slots)
    others = np.setdiff1d(worded.slots, near.slots)
    by_words = (worded, score_notes(snapshot, weights, also))
    by_meaning = (near, snapshot.cosines(asking.by.name, asking.vector, others.tolist()))
    joined = join(by_words, by_meaning, asking.by.floor, settings.meaning)
    found = reorder(snapshot, query, weights, joined, top_k, settings)
    return replace(found, closest=max(near.scores.tolist(), default=0.0), worded=worded.slots[:top_k])


def join(
    by_words: Sequence[Ranked],
    by_meaning: Sequence[Nearest],
    floor: float = 0.0,
    weight: float = rerank.SHIPPED.meaning,
) -> Ranked:
    """lexical / best lexical + weight * cosine / best cosine, of every note that is in one of them.

    A cosine counts from the floor on: with some embedders texts that have nothing in common are at .4, or at .7.
    """
    lexical = {slot: score for part in by_words for slot, score in zip(part.slots, part.scores, strict=True)}
    cosine = {
        slot: max(score - floor, 0.0)
        for part in by_meaning
        for slot, score in zip(part.slots.tolist(), part.scores.tolist(), strict=True)
    }
    most, closest = max(lexical.values(), default=0.0) or 1.0, max(cosine.values(), default=0.0) or 1.0
    parts = {slot: part for near in by_meaning for slot, part in zip(near.slots.tolist(), near.parts, strict=True)}
    passages: dict[int, int] = {}
    slots = sorted(lexical.keys() | cosine.keys())
    words = {slot: lexical.get(slot, 0.0) / most for slot in slots}
    means = {slot: weight * cosine.get(slot, 0.0) / closest for slot in slots}
    chosen = {slot: part for found in by_words for slot, part in found.passages.items()}
    for slot in slots:  # shown is the passage that says more
        passages[slot] = chosen.get(slot, 0) if words[slot] >= means[slot] else int(parts.get(slot, 0))
    joined = np.array([words[slot] + means[slot] for slot in slots])
    return replace(_top(np.array(slots, np.int64), joined, len(slots)), passages=passages)


def _find_near(snapshot: Snapshot, k: int, only: Filter, asking: Asking | None) -> Nearest:
    if asking is None:
        raise InputError("this retriever needs an embedder: Memory(embedder='wordllama') or another")
    return snapshot.nearest(asking.by.name, asking.vector, k, only)


RETRIEVERS: Mapping[str, Callable[[Snapshot, str, int, Filter, Asking | None], Ranked]] = {
    "bm25": bm25,
    "bm25-plain": plain,
    "dense": dense,
    "hybrid": hybrid,
}
NEEDS_VECTORS = frozenset(("dense", "hybrid"))


def check_retriever(name: str) -> str:
    """The name, if a retriever has it."""
    if not isinstance(name, str) or name not in RETRIEVERS:
        raise InputError(f"unknown retriever {quote(name)}: choose one of {', '.join(RETRIEVERS)}")
    return name


# -- what every retriever shares ---------------------------------------------------------------------------------------


def _fill_up(ranked: Ranked, newest: Sequence[int], top_k: int) -> Ranked:
    have = set(ranked.slots)
    more = [slot for slot in newest if slot not in have][: top_k - len(ranked.slots)]
    return replace(ranked, slots=ranked.slots + more, scores=ranked.scores + [0.0] * len(more))
