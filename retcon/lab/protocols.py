"""Question -> Case: the cluster that every action works on, and what is known of it before generation.

    controlled     the gold evidence is the cluster; retention packs cheapest-first; the question's type is given
    full-history   the paper's BM25 finds 20 turns of the whole history, capped at 2,048 tokens; rank order
    product        the same with what `Memory` does by default: its retriever, renderer, counter and type classifier

The first two cost a turn its raw text in alphanumeric tokens, as the paper does; `product` counts every character that
is shown. Outside the controlled protocol nothing here looks at a label: type, evidence and answer may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from retcon import pack, retrieve
from retcon.candidates import MOST, gather, top_up
from retcon.embedding import embed_missing
from retcon.errors import InputError
from retcon.features import TYPES, features, query_type
from retcon.lab.data.question import BenchmarkQuestion
from retcon.model import Embed, embedder
from retcon.note import Cluster, Hit, Note, Packed, Scope
from retcon.operate import AT_MOST, Length
from retcon.pack import Accounting, Order
from retcon.store.sqlite import SqliteStore
from retcon.tokens import Counter, counter
from retcon.where import Where

GOLD = "gold"
ACCOUNTINGS = ("text", "rendered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a cluster is found and paid for."""

    name: str
    retriever: str  # "gold", or one of `retrieve.RETRIEVERS`
    order: Order
    counter: str
    accounting: Accounting
    typed: bool  # the type is given, as one of four; else the classifier's probabilities stand in
    top_k: int = 20
    cap: int = 2048
    budgets: tuple[int, ...] = (32, 64, 128, 256)
    embedder: str | None = None
    length: Length = AT_MOST  # what operators are asked for

    @property
    def count(self) -> Counter:
        """The counter in use."""
        return counter(self.counter)

    @property
    def embed(self) -> Embed:
        """The embedder in use."""
        return embedder(self.embedder)


PROTOCOLS: Mapping[str, Protocol] = {
    each.name: each
    for each in (
        Protocol(
            name="controlled", retriever=GOLD, order="cheapest", counter="alphanumeric", accounting="text", typed=True
        ),
        Protocol(
            name="full-history", retriever="bm25-plain", order="rank", counter="alphanumeric", accounting="text",
            typed=False,
        ),
        Protocol(
            name="product", retriever="bm25", order="rank", counter="estimate", accounting="rendered", typed=False
        ),
    )
}  # fmt: skip
SHORT = (16, 32, 64, 128)  # LoCoMo's budgets in the controlled protocol: its evidence is shorter


@dataclass(frozen=True, slots=True)
class Case:
    """A question with the cluster that every action gets."""

    question: BenchmarkQuestion
    cluster: Cluster
    protocol: Protocol
    more: tuple[Hit, ...] = ()  # what follows where a budget has room for all of the cluster and more

    def at(self, budget: int) -> Cluster:
        """The cluster that an action gets for this budget."""
        protocol = self.protocol
        return top_up(
            self.cluster, self.more, budget, count=protocol.count, cap=protocol.cap, accounting=protocol.accounting
        )

    def features(self, budget: int) -> dict[str, float]:
        """What is known before generation, by the names of the outcomes table."""
        cluster, protocol = self.at(budget), self.protocol
        fit = pack.fit_fraction(
            cluster, budget, count=protocol.count, order=protocol.order, accounting=protocol.accounting,
            costs=cluster.costs,
        )  # fmt: skip
        x = features(
            budget=budget, costs=cluster.costs, fit=fit, sessions=[note.session for note in cluster.notes],
            vectors=_vectors(cluster, protocol), types=self.types(),
        )  # fmt: skip
        named = dict(zip(("notes", "pressure", "fit", "sessions", "inconsistency", "similarity"), x[1:7], strict=True))
        del named["pressure"]
        named["cluster_tokens"] = float(sum(cluster.costs))
        return {name: float(value) for name, value in named.items()} | {
            f"p_{name}": float(p) for name, p in zip(TYPES, self.types(), strict=True)
        }

    def types(self) -> tuple[float, ...]:
        """The probabilities of the four types: one of them 1 where the protocol gives the type."""
        if not self.protocol.typed:
            return query_type(self.question.text)
        return tuple(float(self.question.type == name) for name in TYPES)

    def retain(self, budget: int) -> Packed:
        """Whole notes, as this protocol packs them."""
        cluster = self.at(budget)
        return pack.retain(
            cluster, budget, count=self.protocol.count, order=self.protocol.order,
            accounting=self.protocol.accounting, costs=cluster.costs,
        )  # fmt: skip


def cases(questions: Iterable[BenchmarkQuestion], protocol: Protocol) -> Iterator[Case]:
    """The questions with their clusters. A question without what the protocol needs is an InputError."""
    if protocol.retriever == GOLD:
        return (_gold_case(question, protocol) for question in questions)
    return _retrieve_cases(questions, protocol)


def _gold_case(question: BenchmarkQuestion, protocol: Protocol) -> Case:
    if not question.evidence:
        raise InputError(f"question {question.id} has no gold evidence, which the {protocol.name} protocol needs")
    hits = tuple(Hit(note, 1.0, rank, place=rank) for rank, note in enumerate(question.evidence, 1))
    return Case(question, _with_costs(Cluster(question.text, hits), protocol), protocol)


def _retrieve_cases(questions: Iterable[BenchmarkQuestion], protocol: Protocol) -> Iterator[Case]:
    """One store a history: questions that follow one another share it."""
    for _, some in groupby(questions, key=lambda question: id(question.history)):
        group = list(some)
        if not group[0].history:
            raise InputError(f"question {group[0].id} has no history, which the {protocol.name} protocol needs")
        store = SqliteStore(":memory:")
        try:
            store.add(list(chain_turns(group[0].history)))
            for question in group:
                yield _search(store, question, protocol)
        finally:
            store.close()


def chain_turns(history: Iterable[Note]) -> Iterator[Note]:
    """The turns, each after the one before it, as `Memory.add` makes them of a list.

    That is the one it names, if it has been seen; of a session the newest turn, which the store finds by itself; and
    without a session the turn before it.
    """
    newest: dict[Scope, str] = {}
    seen: set[tuple[Scope, str | None]] = set()
    for note in history:
        scope = Scope(note.user_id, note.agent_id, note.run_id)
        before = newest.get(scope) if note.session is None else None
        if (scope, note.follows) in seen:
            before = note.follows
        yield replace(note, follows=before, created_at=note.created_at or "2000-01-01T00:00:00Z")
        newest[scope] = note.id
        seen.add((scope, note.id))


def _search(store: SqliteStore, question: BenchmarkQuestion, protocol: Protocol) -> Case:
    if protocol.retriever in retrieve.NEEDS_VECTORS:
        embed_missing(store, Where(), protocol.embed)
    product = protocol.name == "product"
    hits = retrieve.search(
        store, question.text, Where(), top_k=protocol.top_k, retriever=protocol.retriever, embed=protocol.embed,
        fill=product, more=max(0, MOST - protocol.top_k) if product else 0,
    )  # fmt: skip
    first, more = hits[: protocol.top_k], hits[protocol.top_k :]
    found = gather(question.text, first, count=protocol.count, cap=protocol.cap, accounting=protocol.accounting)
    return Case(question, found, protocol, more)


def _with_costs(cluster: Cluster, protocol: Protocol) -> Cluster:
    return replace(cluster, costs=tuple(pack.costs(cluster.hits, count=protocol.count, accounting=protocol.accounting)))


def _vectors(cluster: Cluster, protocol: Protocol) -> NDArray[np.floating]:
    return protocol.embed([note.text for note in cluster.notes])
