"""Hits, candidate cap -> Cluster: the notes that an action works on, a long one as the part of it that matters.

A long note enters as the passage that it was found by, so that a cap of 2,048 tokens holds twenty candidates whatever
their length. What room is left goes to the passages around it, best note first, a ring of neighbours at a time, until
the cap is full or every note is whole. The note itself stays as it is: `Hit.span` says which part of it is shown.

Twenty short notes may leave most of a large budget empty. Where all of them fit, further ones follow in rank order, as
long as they fit too. So they can push nothing out, and a larger budget never shows less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from retcon import deadline
from retcon.language import ENGLISH, Language
from retcon.note import Cluster, Dropped, Evidence, Hit, Span
from retcon.pack import Accounting, costs
from retcon.passages import split
from retcon.tokens import Counter

MOST = 100  # hits that a search orders, and so the most that there can be
SMALL = 10  # tokens of a short note with its date and its speaker


def count_hits(top_k: int, budget: int) -> int:
    """How many hits may be of use for the budget: `top_k`, or as many short notes as it has room for."""
    return max(top_k, min(budget // SMALL, MOST))


def gather(
    query: str,
    hits: Sequence[Hit],
    *,
    count: Counter,
    cap: int = 2048,
    accounting: Accounting = "rendered",
    evidence: Evidence | None = None,
    language: Language = ENGLISH,
) -> Cluster:
    """The hits that fit under the candidate cap, taken greedily in rank order, each as large as there is room.

    A best hit that is larger than the whole cap stays, and leaves half of the cap to the others: Extract can use a part
    of it. A note that only fills up has no such right, unless there is nothing else.
    """
    parts = [_as_found(hit) for hit in hits]
    table = _Table(parts, costs(parts, count=count, accounting=accounting), cap)
    table.widen(count, accounting)
    return Cluster(
        query,
        hits=tuple(table.hits[i] for i in table.kept),
        dropped=tuple(table.drops()),
        costs=tuple(table.costs[i] for i in table.kept),
        over_cap=tuple(hits[i] for i in table.over),
        evidence=evidence,
        language=language,
    )


def top_up(
    cluster: Cluster,
    more: Sequence[Hit],
    budget: int,
    *,
    count: Counter,
    cap: int = 2048,
    accounting: Accounting = "rendered",
) -> Cluster:
    """The cluster with further hits, as long as all of it fits into the budget; what repeats another is left out."""
    gap = count("\n") if accounting == "rendered" else 0
    used = sum(cluster.costs) + gap * len(cluster.hits)
    ids, entered = {hit.id for hit in cluster.hits}, list[tuple[Hit, int]]()
    for hit in () if cluster.over_cap else map(_as_found, more):
        deadline.check()
        if hit.duplicate_of in ids:
            continue
        (cost,) = costs([hit], count=count, accounting=accounting)
        used += cost + gap
        if used > min(budget, cap):
            break
        ids.add(hit.id)
        entered.append((hit, cost))
    if not entered:
        return cluster
    return replace(
        cluster,
        hits=(*cluster.hits, *(hit for hit, _ in entered)),
        costs=(*cluster.costs, *(cost for _, cost in entered)),
    )


def drop_filler(hits: Sequence[Hit], evidence: Evidence) -> tuple[Hit, ...]:
    """The hits that are about the query: none where nothing is, all where it asks for memory as a whole."""
    if not evidence.found:
        return ()
    return tuple(hit for hit in hits if hit.score > 0 or not evidence.words)


class _Table:
    """The candidates with their costs; those that fit are kept."""

    def __init__(self, hits: list[Hit], costs: list[int], cap: int) -> None:
        self.hits, self.costs, self.cap = hits, costs, cap
        self.kept: list[int] = []
        self.over: dict[int, int] = {}  # with what was left when it came
        used = 0
        alone = all(cost > cap for cost in costs)
        for i, (hit, cost) in enumerate(zip(hits, costs, strict=True)):
            deadline.check()
            large = cost > cap and i == 0 and (hit.score > 0 or alone)
            if large or used + cost <= cap:
                self.kept.append(i)
                used += cap // 2 if large else cost
            else:
                self.over[i] = max(cap - used, 0)
        self.left = cap - used

    def widen(self, count: Counter, accounting: Accounting) -> None:
        """Give the room that is left to the passages around those that are shown, a ring at a time."""
        passages = {i: split(self.hits[i].note.text) for i in self.kept if self.hits[i].span is not None}
        while passages:
            for i in list(passages):
                deadline.check()
                wider = replace(self.hits[i], span=_grow(self.hits[i].span, passages[i]))
                (cost,) = costs([wider], count=count, accounting=accounting)
                if cost - self.costs[i] > self.left:
                    del passages[i]
                    continue
                self.left -= cost - self.costs[i]
                self.hits[i], self.costs[i] = wider, cost
                if wider.span is None:
                    del passages[i]

    def drops(self) -> list[Dropped]:
        out: list[Dropped] = []
        for i, left in self.over.items():
            reason = f"needs {self.costs[i]} tokens, {left} left under the candidate cap of {self.cap}"
            out.append(Dropped(self.hits[i].id, "cap", reason, self.costs[i]))
        return out


def _as_found(hit: Hit) -> Hit:
    """The hit as the passage that it was found by; a short note is whole."""
    return hit if hit.span == hit.passage else replace(hit, span=hit.passage)


def _grow(span: Span | None, passages: Sequence[Span]) -> Span | None:
    """The span with the passage before it and the one after; None once that is all of the text."""
    if span is None:
        return None
    start = max((passage[0] for passage in passages if passage[0] < span[0]), default=0)
    stop = min((passage[1] for passage in passages if passage[1] > span[1]), default=passages[-1][1])
    return None if (start, stop) == (0, passages[-1][1]) else (start, stop)
