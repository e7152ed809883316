"""Memory: the whole path from a query to text within a budget, on one page.

query -> retrieve -> Cluster -> features -> route -> Decision -> operate -> Packed -> Recall
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from retcon import answer, jsonl, pack, retrieve, validate
from retcon.candidates import count_hits, drop_filler, gather, top_up
from retcon.deadline import UNLIMITED, TimeLimit, check_timeout
from retcon.drafts import Drafts
from retcon.embedding import Background, Identity, embed_missing, identify
from retcon.errors import InputError, StoreError, quote
from retcon.evidence import weigh
from retcon.features import SPREAD, TYPES, measure, query_type
from retcon.habits import Hints
from retcon.ladder import Answer, Look, climb, finish, first_look, replace_action
from retcon.language import language
from retcon.model import Chat, Embed, HashingEmbed, chat, embedder
from retcon.model.embed import within
from retcon.model.embedders import Encode
from retcon.model.rerank import Rerank, Score
from retcon.model.rerankers import reranker
from retcon.note import Cluster, Decision, Hit, Note, Recall, Scope
from retcon.opening import check_guard, check_path, choose_feature_embed, find_quiet, open_router
from retcon.operate import PROMPTS, check_actions, usable
from retcon.perform import Guard, Performer
from retcon.route import Mismatch, Router
from retcon.screen import Hook, check_hook, screen
from retcon.store import Deleted, Order, Progress
from retcon.store.connections import Sync
from retcon.store.places import open_store
from retcon.tokens import Counter, check_budget, counter, remember
from retcon.trace import span
from retcon.where import NoWords, ScopeWords, Where, WhereWords, refuse_words, resolve, resolve_scope
from retcon.why import explain

if TYPE_CHECKING:
    from retcon.store.checking import Check

DEFAULT_PATH = "retcon.db"
DEFAULT_BUDGET = 256
TOP_K = 20  # candidates
TIMEOUT = 60.0  # seconds of one recall or ask for a model that the memory opens; another kind has its own
Expiry = str | date | timedelta  # a datetime is a date
Versions = Literal["all", "one"]  # of a note that is deleted


def utc_now() -> datetime:
    """The time at which notes are stored, unless a memory is given another clock."""
    return datetime.now(UTC)


def random_id() -> str:
    """An id for a note whose caller gave none."""
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True)
class _Case:
    """One query's candidates and what is known of them before any action is tried."""

    cluster: Cluster
    budget: int
    count: Counter  # no text twice
    features: Mapping[str, float]  # those that the router reads
    wrong_cost: float | None = None
    safe: bool = False  # the router's thresholds count


class Memory(Hints):
    """Notes in a SQLite file, or on a PostgreSQL server, recalled under a token budget. No key, no download.

    What reads takes a `where`, or its words as keywords: whose notes (user_id, agent_id, run_id), and which of them
    (session, since, until, metadata; `filters` with operators, see `retcon.filters`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = DEFAULT_PATH,
        *,
        router: Router | str | os.PathLike[str] | None = None,
        counter: str | Callable[[str], int] | None = None,
        retriever: str | None = None,
        embedder: str | Embed | Encode | None = None,
        embed_in_background: bool = False,
        reranker: str | Rerank | Score | None = None,
        top_k: int | None = None,
        cap: int = 2048,
        model: str | Chat | None = None,
        model_name: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        focus: bool = True,
        guard: Guard = "warn",
        sync: Sync = "full",
        language: str | None = None,
        stamp: bool = True,
        before_store: Hook | None = None,
        now: Callable[[], datetime] = utc_now,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Opens the file, or makes it; `:memory:` keeps everything in this process, and postgresql://... on a server.

        `router` decides: a Router, its JSON file or the name of one that ships; by default one learned on five domains
        where there is a model, else the evidence-fit rule. `counter` counts tokens: "estimate",
        "alphanumeric", "bpe", or any callable. `top_k` and `cap` bound the candidates (notes, tokens); by default
        20 notes, and more where a budget has room for all of them. `now` and
        `new_id` are the only sources of time and chance.

        `embedder` turns text into vectors: a provider and its model ("openai:text-embedding-3-small",
        "ollama:nomic-embed-text"), the base URL of an OpenAI-compatible endpoint, "sentence-transformers:NAME",
        "fastembed:NAME", "model2vec:NAME", "wordllama", "hashing", a function from texts to rows, or an Embed object.
        `retriever` is bm25, bm25-plain, dense or hybrid; if not said, hybrid where an embedder other than hashing is
        named, else bm25. A search embeds the notes that lack vectors first; with `embed_in_background` a thread does
        that after every add, and a search uses what there is.

        `reranker` orders the best 50 notes of every search anew, by reading each together with the query:
        "sentence-transformers:NAME", "fastembed:NAME", the base URL of an endpoint with /rerank, or a function from a
        query and texts to scores. Where it fails the order stays, with a warning.

        `model` writes records and reads answers: a provider and its model ("openai:gpt-4o-mini", "ollama:llama3.2"),
        the base URL of an OpenAI-compatible endpoint, the path of a .gguf file, or a Chat object; without one nothing
        is generated. `timeout` is how many seconds one recall or ask may wait for it in all, every retry and look
        included, 60 if not said, and none for a Chat object, which has its own; past them a recall falls back to an
        action without a model. `focus=False` writes records for any question, not for
        this query. `guard="strict"` takes the best action without a model in place of a record that states a number,
        date or name which no source supports; "warn" keeps it and says so.

        `language` is that of the notes, for a new file: by name ("german") or code ("de"), English if not said; "none"
        takes words as they are. A file keeps its language; `reindex` changes it.

        A note that is added without a timestamp is of the day on which it was stored; with `stamp=False` of none.

        `before_store` may redact or refuse notes: it gets each before it is stored, and returns it, a changed copy, or
        None (see `retcon.screen`).

        A write that has returned survives a kill of the process and, with `sync="full"`, a loss of power; "normal" is
        quicker and may lose the last writes with the power, never more.
        """
        self.router = open_router(router, writes=model is not None)
        self.count: Counter = _counter(counter)
        self.embedder: Embed = _embedder(embedder if embedder is not None else self.router.embedder)
        self.reranker = None if reranker is None else _reranker(reranker)
        self._feature_embed = choose_feature_embed(self.router, self.embedder)
        named = embedder is not None and embedder != "hashing" and not isinstance(self.embedder, HashingEmbed)
        self.retriever = retrieve.check_retriever(retriever or ("hybrid" if named else "bm25"))
        self.top_k = TOP_K if top_k is None else validate.whole("top_k", top_k)
        self._tops_up = top_k is None
        self.cap = validate.whole("cap", cap, most=10_000_000)
        self.stamp, self.now, self.new_id = stamp, now, new_id
        self.before_store = check_hook(before_store)
        given = None if timeout is None else check_timeout(timeout)
        self.timeout = TIMEOUT if given is None and isinstance(model, str) else given
        self.chat = None if model is None else chat(model, name=model_name, key=api_key, timeout=given or TIMEOUT)
        parts = ((model, self.chat), (embedder, self.embedder), (reranker, self.reranker))
        self._opened = [part for given, part in parts if isinstance(given, str)]
        self._mismatch, self._reader_mismatch = self._compare_router(focus, quiet=find_quiet(router))
        spoken = None if language is None else _language(language)
        self.store = open_store(check_path(path), sync=sync, language=spoken)
        self._identity: Identity | None = None
        self._background = Background(self.embed) if embed_in_background else None
        self._performer = Performer(
            store=self.store, count=self.count, chat=self.chat, focus=focus, guard=check_guard(guard)
        )

    def _compare_router(self, focus: bool, quiet: Collection[str]) -> tuple[Mismatch, Mismatch]:
        """In what this memory, and then its reader, is not what its router learned on."""
        running: dict[str, Any] = {
            "embedder": self._feature_embed.name, "counter": self.count.name, "retriever": self.retriever,
            "top_k": self.top_k, "cap": self.cap, "renderer": pack.RENDERER, "accounting": "rendered",
            "types": "guessed",
        }  # fmt: skip
        reads: dict[str, Any] = {}
        if self.chat is not None:
            running |= {"model": self.chat.name, "prompts": PROMPTS, "focus": "focused" if focus else "agnostic"}
            reads = {"reader": self.chat.name, "answer_prompts": answer.PROMPTS}
        mine, reader = self.router.compare(running, quiet=quiet), self.router.compare(reads, reads, quiet=quiet)
        # harm is about what a reader makes of the text: not certified where that is another one, or not known here
        return replace(mine, differs=mine.differs or reader.differs or not reads), reader

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(
        self,
        what: validate.What,
        *,
        id: str | None = None,  # noqa: A002
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        session: str | None = None,
        speaker: str | None = None,
        timestamp: str | datetime | float | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: Expiry | None = None,
        **unknown: Unpack[NoWords],
    ) -> list[Note]:
        """The notes as stored: one for a text or a message, one each for a list of them, in one transaction.

        With an `id`, adding the same note again changes nothing. From `expires_at` on (ISO 8601, a datetime, or a
        timedelta from now) a note is not recalled; the next purge removes it.

        Turns of a list, and turns of one session, are found also by the words of the turn before them.
        """
        refuse_words(unknown, "Memory.add")
        if id is not None and not isinstance(what, (str, Mapping)):
            raise InputError("an id names one note: give each item of a list its own 'id'")
        shared: dict[str, Any] = {"id": id, "user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        shared |= {"session": session, "speaker": speaker, "timestamp": timestamp, "metadata": metadata}
        shared |= {"expires_at": expires_at}
        notes = self._notes(validate.drafts(what, **shared), chained=not isinstance(what, (str, Mapping)))
        return self._store(notes)

    def supersede(
        self,
        id: str,  # noqa: A002
        text: str,
        *,
        new_id: str | None = None,
        timestamp: str | datetime | float | None = None,
        speaker: str | None = None,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: Expiry | None = None,
    ) -> Note:
        """The correction as stored. Recall finds it in place of the older note, which `history` still shows.

        A correction without a timestamp is of now, unless the older note has none and `stamp=False`: then it has none
        either. It expires when the older note would have; `expires_at` says
        otherwise, "never" too.
        """
        old = self.get(id)
        if expires_at is None and old.expires_at is not None and old.expires_at <= self._utc():
            raise InputError(f"note {old.id!r} expired at {old.expires_at}: say when its correction does, or 'never'")
        if timestamp is None and old.timestamp is not None:
            timestamp = self._stamp()
        fields = {
            "id": new_id or self.new_id(), "text": text, "timestamp": timestamp, "supersedes": old.id,
            "speaker": speaker or old.speaker, "session": session or old.session,
            "metadata": old.metadata if metadata is None else metadata, "live": self.stamp,
            "expires_at": old.expires_at if expires_at is None else expires_at, "user_id": old.user_id,
            "agent_id": old.agent_id, "run_id": old.run_id,
        }  # fmt: skip
        return self._store([validate.note(fields, created_at=self._stamp())])[0]

    def _store(self, notes: Iterable[Note]) -> list[Note]:
        stored = self.store.put(list(screen(notes, self.before_store)))
        self._wake()
        return stored

    def embed(
        self,
        *,
        where: Where | None = None,
        drop_others: bool = False,
        progress: Progress | None = None,
        **words: Unpack[ScopeWords],
    ) -> int:
        """How many notes got the vectors that they lacked, of the scope or of everyone.

        Works in batches that are kept one by one: after a kill, or an error of the embedder, the next call goes on from
        there. `progress` is called with the number of notes so far. `drop_others` removes the vectors of every other
        embedder in the end.
        """
        scope = Where(resolve_scope(where, words)).unexpired(self.now())
        name = self._identify(self.embedder).name
        done = embed_missing(self.store, scope, self.embedder, name=name, progress=progress)
        if drop_others:
            self.store.drop_vectors(keep=name)
        return done

    def _wake(self) -> None:
        if self._background is not None:
            self._background.wake()

    def delete(self, id: str | Iterable[str], *, versions: Versions = "all") -> Deleted:  # noqa: A002
        """What went: the note, or notes, with every record, index entry and vector on them, in one transaction.

        Every version of a note goes with it, older and newer ones. With `versions="one"` the very note of that id
        alone goes; a note that it had corrected becomes current again.
        """
        if versions not in ("all", "one"):
            raise InputError(f"versions is 'all' or 'one', not {quote(versions)}")
        ids = [id] if isinstance(id, str) or not isinstance(id, Iterable) else id
        return self.store.delete([validate.note_id(each) for each in ids], versions=versions == "all")

    def delete_all(
        self,
        *,
        where: Where | None = None,
        everything: bool = False,
        **words: Unpack[ScopeWords],
    ) -> Deleted:
        """What went: all notes of the scope. Naming no id is refused unless `everything` is set."""
        scope = resolve_scope(where, words)
        if scope == Scope() and not everything:
            raise InputError("name a user_id, agent_id or run_id to delete; everything=True empties the store")
        return self.store.delete_all(scope)

    def purge(self, *, expired: bool = True) -> bool:
        """Whether deleted words are gone from the files, which are rewritten for it; False while others read.

        Notes that have expired are deleted first, with all that stands on them and the versions that they corrected;
        with `expired=False` they stay. `close` purges without them where a delete waits for it; a server purges with
        them, in the background. A rewrite takes about a second for 100 MB, and writers wait for it. What could not be
        purged stays due, in the file.

        On PostgreSQL a rewrite (VACUUM FULL) keeps readers out too, so that only this call does it.
        """
        return self.store.purge(at=self._stamp(), now=self._utc() if expired else None)

    def purge_due(self) -> bool:
        """Whether what a server purges in the background is done: on PostgreSQL expired notes, without a rewrite."""
        return self.store.purge_due(at=self._stamp(), now=self._utc())

    def count_due(self) -> int:
        """How much of what waits for a purge a server does in the background."""
        return self.store.count_due(now=self._utc())

    def count_unpurged(self) -> int:
        """How much waits for a purge: deletes whose words may still lie in the files, and notes that have expired."""
        return self.store.count_unpurged(now=self._utc())

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, id: str) -> Note:  # noqa: A002
        """The note with this id."""
        return self.store.get(validate.note_id(id))

    def get_all(
        self,
        *,
        where: Where | None = None,
        after: str | None = None,
        limit: int | None = None,
        superseded: bool = False,
        expired: bool = False,
        order: Order = "oldest",
        **words: Unpack[WhereWords],
    ) -> list[Note]:
        """Notes in the order they were added, or the newest first; superseded and expired ones only on request.

        With `after`, the id of a note, those that come after it: so a page goes on where the one before it ended.
        """
        found = resolve(where, words)
        found = found if expired else found.unexpired(self.now())
        after = None if after is None else validate.note_id(after)
        if order not in ("oldest", "newest"):
            raise InputError(f"the order is oldest or newest, not {quote(order)}")
        listed = self.store.all(found.scope, found.only, after=after, limit=limit, superseded=superseded, order=order)
        return list(listed)

    def history(self, id: str) -> list[Note]:  # noqa: A002
        """Every version of the note, oldest first."""
        return self.store.history(validate.note_id(id))

    def search(
        self,
        query: str,
        *,
        where: Where | None = None,
        top_k: int | None = None,
        **words: Unpack[WhereWords],
    ) -> list[Hit]:
        """The best notes for the query, each with its score."""
        where = resolve(where, words)
        top_k = self.top_k if top_k is None else validate.whole("top_k", top_k)
        found = self._search(validate.query(query), where, top_k, fill=False)
        for warning in found.warnings:
            warnings.warn(warning, stacklevel=2)
        return list(found.hits)

    # -- the decision and the text -------------------------------------------------------------------------------------

    def decide(
        self,
        query: str,
        budget: int = DEFAULT_BUDGET,
        *,
        where: Where | None = None,
        exclude: Collection[str] = (),
        safe: bool = False,
        fill: bool = True,
        **words: Unpack[WhereWords],
    ) -> Decision:
        """The decision alone: which action, by what numbers. Writes no text. `safe` means what it means to `recall`."""
        where = resolve(where, words)
        case = self._case(validate.query(query), check_budget(budget), where, fill=fill, embed=self.embedder)
        return self._decide(replace(case, safe=safe), None, check_actions(exclude))

    def recall(
        self,
        query: str,
        budget: int = DEFAULT_BUDGET,
        *,
        where: Where | None = None,
        action: str | None = None,
        exclude: Collection[str] = (),
        safe: bool = False,
        drafts: int = 1,
        fill: bool = True,
        timeout: float | None = None,
        **words: Unpack[WhereWords],
    ) -> Recall:
        """The best text within the budget that memory has for the query, and why it is that text.

        `action` forces one. `exclude` leaves some out, so that a caller who found no answer can ask for the next best;
        `Recall.escalate()` does the same. A model that writes has `timeout` seconds, else those of this memory; where
        they do not suffice, an action without a model takes over, with a warning. An embedder has no more than them
        either, and nothing takes its place: `ModelTimeoutError`.

        With `safe`, whole notes are replaced only where the router's threshold is reached; its certificate says what
        that promises. With `drafts=2` two texts are written, those that the router names, and the better one is kept.

        `Recall.found` is False where nothing in memory is about the query. Then, and where too few notes share a word
        with it, the newest notes fill up; with `fill=False` they do not, and no text means that nothing was found.
        """
        started, limit = time.perf_counter(), self._limit(timeout)
        budget, exclude = check_budget(budget), check_actions(exclude)
        texts = self.router.find_drafts(validate.whole("drafts", drafts, most=10))
        if texts is not None and (safe or action is not None):
            raise InputError("drafts are several texts to choose from: leave out safe and action, or drafts")
        where = resolve(where, words)
        embed = within(self.embedder, limit)
        case = replace(self._case(validate.query(query), budget, where, fill=fill, embed=embed), safe=safe)
        return self._recall(case, self._decide(case, action, exclude), exclude, started, limit, texts)

    def _limit(self, timeout: float | None) -> TimeLimit:
        """The time that the model has for a call which begins now."""
        seconds = self.timeout if timeout is None else timeout
        return UNLIMITED if seconds is None else TimeLimit.of(seconds)

    def _case(self, query: str, budget: int, where: Where, *, fill: bool, embed: Embed) -> _Case:
        """The query's candidates with all that is measured of them once, whatever is then tried."""
        count = remember(self.count)
        cluster = self._cluster(query, where, budget, count, fill=fill, embed=embed)
        return _Case(cluster, budget, count, self._features(cluster, budget, count))

    def _cluster(self, query: str, where: Where, budget: int, count: Counter, *, fill: bool, embed: Embed) -> Cluster:
        more = count_hits(self.top_k, budget) - self.top_k if self._tops_up else 0
        found = self._search(query, where, self.top_k, more=more, fill=True, embed=embed)
        evidence = weigh(found.match)
        hits = found.hits if fill else drop_filler(found.hits, evidence)
        first = gather(query, hits[: self.top_k], count=count, cap=self.cap, evidence=evidence, language=found.language)
        cluster = top_up(first, hits[self.top_k :], budget, count=count, cap=self.cap)
        return replace(cluster, warnings=found.warnings)

    def _search(
        self, query: str, where: Where, top_k: int, *, fill: bool, more: int = 0, embed: Embed | None = None
    ) -> retrieve.Search:
        where, embed = where.unexpired(self.now()), embed or self.embedder
        with span("retcon.retrieve", top_k=top_k):
            known = self._identify(embed) if self.retriever in retrieve.NEEDS_VECTORS else None
            if known is not None and self._background is None:
                embed_missing(self.store, where, embed, name=known.name)
            if known is not None:
                self.store.refresh_indexes(where.scope, known.name)
            return retrieve.find(
                self.store, query, where, top_k=top_k, retriever=self.retriever, embed=embed, known=known, fill=fill,
                more=more, reranker=self.reranker,
            )  # fmt: skip

    def _identify(self, embed: Embed) -> Identity:
        """The embedder as the store knows it; it is asked for a few vectors to tell, once."""
        if self._identity is None:
            self._identity = identify(self.store, embed)
        return self._identity

    def _decide(self, case: _Case, action: str | None, exclude: Collection[str], *, model: bool = True) -> Decision:
        x, budget = case.features, case.budget
        if action is not None:
            (action,) = check_actions([action])
            free = self.router.decide(x, budget=budget, safe=case.safe)
            decision = replace_action(free, action, f"{action}: asked for by the caller", forced=True)
        else:
            decision = self.router.decide_next(
                x, budget=budget, available=usable(self.chat if model else None), exclude=exclude, climb=model,
                wrong_cost=case.wrong_cost, safe=case.safe,
            )  # fmt: skip
        return self._mismatch.mark(decision)

    def _features(self, cluster: Cluster, budget: int, count: Counter) -> dict[str, float]:
        """What the router reads, and what costs nothing besides."""
        reads, notes = self.router.reads, cluster.notes
        with span("retcon.features"):
            return measure(
                budget=budget,
                costs=cluster.costs,
                fit=pack.fit_fraction(cluster, budget, count=count, costs=cluster.costs),
                sessions=[note.session for note in notes],
                vectors=None if reads.isdisjoint(SPREAD) else self._feature_embed([note.text for note in notes]),
                types=None if reads.isdisjoint(TYPES) else query_type(cluster.query),
            )

    def _recall(
        self, case: _Case, decision: Decision, exclude: tuple[str, ...], started: float, limit: TimeLimit,
        drafts: Drafts | None = None,
    ) -> Recall:  # fmt: skip
        performer = replace(self._performer, count=case.count)
        safe = partial(self._safe_action, case, (*exclude, decision.action))
        if drafts is None:
            found = performer.perform(case.cluster, decision, safe, limit)
        else:
            found = performer.choose(case.cluster, decision, drafts, exclude, safe, limit)
        found = replace(
            found,
            tried=tuple(dict.fromkeys((*exclude, found.decision.action, found.action))),
            usage=replace(found.usage, seconds=time.perf_counter() - started),
            again=partial(self._escalate, case),
        )
        return replace(found, why=explain(found))

    def _safe_action(self, case: _Case, tried: tuple[str, ...]) -> str:
        """The router's choice among the actions that need no model: of those not tried yet, while there is one."""
        known = set(usable(None))
        spent = tuple(sorted(known.intersection(tried)))
        return self._decide(case, None, spent if len(spent) < len(known) else (), model=False).action

    def _next(self, case: _Case, limit: TimeLimit, tried: tuple[str, ...]) -> Recall | None:
        """The recall by the best action not tried yet; None when every action has been."""
        if not set(usable(self.chat)).difference(tried):
            return None
        started = time.perf_counter()
        return self._recall(case, self._decide(case, None, tried), tried, started, limit)

    def _escalate(self, case: _Case, tried: tuple[str, ...]) -> Recall | None:
        """The next best recall whose action was not tried: one that fell back to a text seen before is passed over."""
        limit = self._limit(None)
        found = self._next(case, limit, tried)
        while found is not None and found.action in tried:
            after = self._next(case, limit, found.tried)
            found = after and replace(after, warnings=found.warnings + after.warnings, usage=found.usage + after.usage)
        return found

    # -- the reader ----------------------------------------------------------------------------------------------------

    def ask(
        self,
        question: str,
        budget: int = DEFAULT_BUDGET,
        *,
        where: Where | None = None,
        max_looks: int = 4,
        max_tokens: int | None = None,
        safe: bool = False,
        wrong_cost: float | None = None,
        fill: bool = True,
        timeout: float | None = None,
        seen: Callable[[Look], None] | None = None,
        **words: Unpack[WhereWords],
    ) -> Answer:
        """The reader's answer from what memory recalls; while it finds none there, from the next best recall.

        The order of looks is that of the router's ladder where it has one. Stops at an answer, at the ladder's end
        (without one, when every action was tried), after `max_looks` looks, or once reading and writing have cost
        `max_tokens`. The text is None where memory does not hold the answer. `seen` is called with each look. A reader
        that fails is a warning; where it failed at every look, its first error is raised. No look begins once the model
        has had its `timeout` seconds, else those of this memory.

        With `safe` no right answer that whole notes give is lost: a look at them comes before the others, which are
        what `max_looks` then bounds. Where the reader fails at that look, its error is raised.

        `wrong_cost` is what a wrong answer costs where a right one brings 1, .5 if not said, for a router that has
        learned prices. Looks then go on until a reply is likely enough to be right, and the best one is given only
        where that pays (`Answer.confidence`, `Answer.refused`); with `safe`, what whole notes answer always is.

        With `fill=False` a question that nothing in memory is about costs no call.
        """
        where = resolve(where, words)
        looks = self._climb(question, budget, where, max_looks, max_tokens, safe, wrong_cost, fill, timeout)
        return finish(looks, seen)

    def ask_stream(
        self,
        question: str,
        budget: int = DEFAULT_BUDGET,
        *,
        where: Where | None = None,
        max_looks: int = 4,
        max_tokens: int | None = None,
        safe: bool = False,
        wrong_cost: float | None = None,
        fill: bool = True,
        timeout: float | None = None,
        **words: Unpack[WhereWords],
    ) -> Generator[Look | Answer, None, None]:
        """What `ask` does, as it happens: each `Look` once it is read, and at the end the `Answer`.

        Takes what `ask` takes. Whoever stops iterating, or calls `close()`, pays for no further look. There are no
        parts of an answer: whether a reply is one shows only at its end.
        """
        where = resolve(where, words)
        return _answer_last(
            self._climb(question, budget, where, max_looks, max_tokens, safe, wrong_cost, fill, timeout)
        )

    def _climb(
        self, question: str, budget: int, where: Where, max_looks: int, max_tokens: int | None, safe: bool,
        wrong_cost: float | None, fill: bool, timeout: float | None,
    ) -> Generator[Look, None, Answer]:  # fmt: skip
        """The looks of one ask, not begun yet; what is wrong with its words is told at once."""
        if self.chat is None:
            raise InputError("ask needs a reader: Memory(model=...), or call recall and read the text yourself")
        timeout = None if timeout is None else check_timeout(timeout)
        return self._take_looks(
            self.chat, validate.query(question), check_budget(budget), where, safe=safe, timeout=timeout, fill=fill,
            wrong_cost=self.router.choose_price(wrong_cost),
            max_looks=validate.whole("max_looks", max_looks, most=100),
            max_tokens=math.inf if max_tokens is None else validate.whole("max_tokens", max_tokens, most=10**12),
        )  # fmt: skip

    def _take_looks(
        self, reader: Chat, question: str, budget: int, where: Where, *, safe: bool, wrong_cost: float | None,
        timeout: float | None, fill: bool, **bounds: Any,
    ) -> Generator[Look, None, Answer]:  # fmt: skip
        started, limit = time.perf_counter(), self._limit(timeout)
        embed = within(self.embedder, limit)
        case = replace(self._case(question, budget, where, fill=fill, embed=embed), wrong_cost=wrong_cost)
        ladder = self.router.ladder_at(wrong_cost)
        decision = first_look(self._decide(case, None, ()), whole=safe)
        decision = self._reader_mismatch.mark(decision)
        order = decision.order  # empty where the router has no ladder: then every action may have its turn
        weighed = self.router.weigh(case.cluster)
        return (
            yield from climb(
                question,
                self._recall(case, decision, (), started, limit),
                read=partial(answer.read, chat=reader, cache=self.store, limit=limit, weigh=weighed),
                find_next=partial(self._next, case, limit),
                steps={*order, *self.router.own_actions(usable(self.chat))} if order else (),
                stop=0.0 if ladder is None else ladder.stop(budget),
                accept=0.0 if ladder is None else ladder.accept(budget),
                safe=safe,
                late=lambda: limit.over,
                **bounds,
            )
        )

    # -- files ---------------------------------------------------------------------------------------------------------

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        where: Where | None = None,
        skip_damaged: bool = False,
        progress: Progress | None = None,
        **words: Unpack[ScopeWords],
    ) -> int:
        """How many notes went into the JSONL file, superseded ones included. It appears whole or not at all.

        `skip_damaged` leaves out notes that do not match their checksum, and links to them.
        """
        scope, target = resolve_scope(where, words), Path(path)
        if self.store.file is not None and jsonl.is_one_of(target, self.store.file):
            raise InputError(f"{target} is the store itself: export to another file")
        return jsonl.write(target, self._lines(scope, skip_damaged=skip_damaged), progress=progress)

    def lines(
        self, *, where: Where | None = None, skip_damaged: bool = False, **words: Unpack[ScopeWords]
    ) -> Iterator[str]:
        """The notes of the scope as JSONL lines, in the order they were added."""
        return self._lines(resolve_scope(where, words), skip_damaged=skip_damaged)

    def _lines(self, scope: Scope, *, skip_damaged: bool) -> Iterator[str]:
        notes = self.store.all(scope, superseded=True, skip_damaged=skip_damaged)
        return jsonl.dump(notes, gaps=skip_damaged)

    def load(self, source: str | os.PathLike[str] | Iterable[str], *, progress: Progress | None = None) -> int:
        """How many new notes came in from a JSONL file or from lines, in one transaction; known ids are passed over."""
        before = self.store.count(Scope())
        if isinstance(source, (str, os.PathLike)):
            try:
                with Path(source).open(encoding="utf-8-sig") as file:
                    self.store.add(self._parse(file, os.fspath(source)), progress=progress)
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise InputError(f"cannot read {os.fspath(source)}: {why}") from error
        else:
            self.store.add(self._parse(source), progress=progress)
        self._wake()
        return self.store.count(Scope()) - before

    def _notes(self, drafts: Iterable[dict[str, Any]], *, chained: bool = False) -> Iterator[Note]:
        """The drafts as notes; `chained` ones without a session follow each other within their scope."""
        stamp = self._stamp()
        last: dict[tuple[str | None, ...], str] = {}  # scope -> id of its newest note
        for draft in drafts:
            if "created_at" in draft or draft.get("live") is True:  # only a load of an export may say so
                raise InputError("created_at and live are the memory's to say: timestamp is when something happened")
            note = self._note({"live": self.stamp} | draft, stamp)
            scope = (note.user_id, note.agent_id, note.run_id)
            if chained and note.session is None and "follows" not in draft:
                note = replace(note, follows=last.get(scope))
            last[scope] = note.id
            yield note

    def _parse(self, lines: Iterable[str], path: str | None = None) -> Iterator[Note]:
        return screen(jsonl.parse(lines, partial(self._loaded, stamp=self._stamp()), path=path), self.before_store)

    def _loaded(self, draft: dict[str, Any], stamp: str) -> Note:
        """The note of a line; only one that says when it was stored can have been added live."""
        return self._note(draft if "created_at" in draft else draft | {"live": False}, stamp)

    def _note(self, draft: Mapping[str, Any], stamp: str) -> Note:
        named = draft if "id" in draft else {**draft, "id": self.new_id()}
        return validate.note(named, created_at=stamp)

    def _stamp(self) -> str:
        return self.now().isoformat(timespec="seconds")

    def _utc(self) -> str:
        """Now, as expiries are kept."""
        return validate.utc(self.now())

    @property
    def language(self) -> str:
        """The language that the notes are indexed in, by name."""
        return self.store.language.name

    def reindex(self, language: str | None = None, *, progress: Progress | None = None) -> int:
        """How many notes were indexed anew, in this language or, where none is named, in the one they have.

        It is one transaction: whoever reads meanwhile finds what was there before, and a kill leaves that.
        """
        return self.store.reindex(None if language is None else _language(language), progress=progress)

    def stats(self) -> dict[str, int | str]:
        """Facts about the store: schema, language, counts of notes, scopes, records, vectors, bytes, a quick check."""
        return self.store.stats()

    def cache_stats(self) -> dict[str, int]:
        """What is kept of a model's work: records; replies, their bytes, and how often one was found or not."""
        kept = self.store.reply_stats()
        counts = {"replies": kept.entries, "bytes": kept.bytes, "hits": kept.hits, "misses": kept.misses}
        return {"records": self.store.count_records()} | counts

    def clear_cache(self) -> dict[str, int]:
        """How many records and replies went: all of them. Notes stay; what is asked again is written again."""
        return {"records": self.store.clear_records(), "replies": self.store.clear_replies()}

    # -- lifetime ------------------------------------------------------------------------------------------------------

    def check(self) -> Check:
        """Whether the file holds what was written to it; everything in it is read once."""
        return self.store.check()

    def backup(self, path: str | os.PathLike[str], *, replace: bool = False) -> Check:
        """The check of a copy of the store, which is now at that path: one file, that can be opened like any store."""
        if self.store.file is None:
            raise InputError(self.store.no_backup)
        from retcon.store.backup import backup  # loaded where one is made

        return backup(self.store.file, path, replace=replace)

    def close(self, *, purge: bool = True) -> None:
        """Close the file, and model and embedder if the memory opened them; the memory cannot be used after.

        Where a delete waits for a purge, that comes first; with `purge=False`, and on PostgreSQL, it stays due. Expired
        notes stay.
        """
        if self._background is not None:
            self._background.close()
        if purge and self.store.rewrites_by_itself:
            with contextlib.suppress(StoreError):  # closed before, or not to be written: it stays due
                if self.store.count_unpurged():
                    self.purge(expired=False)
        self.store.close()
        for part in self._opened:
            getattr(part, "close", lambda: None)()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answer_last(looks: Generator[Look, None, Answer]) -> Generator[Look | Answer, None, None]:
    found = yield from looks
    yield found


_counter, _embedder, _language, _reranker = counter, embedder, language, reranker  # the constructor's have these names
