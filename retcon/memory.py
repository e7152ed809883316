"""Memory: the whole path from a query to text within a budget, on one page.

query -> retrieve -> Cluster -> features -> route -> Decision -> operate -> Packed -> Recall
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from retcon import pack, retrieve, validate
from retcon.answer import PROMPTS as ANSWER_PROMPTS
from retcon.answer import Answer, Look, abstains, concluded
from retcon.answer import prompt as reader_prompt
from retcon.cache import CachedChat, owners
from retcon.errors import AuthError, InputError, ModelError, StoreError, shown
from retcon.features import features, query_type
from retcon.model import Chat, Embed, chat, embedder
from retcon.note import RETAIN, Cluster, Decision, Hit, Note, Recall, Scope, Usage
from retcon.operate import LADDER, PROMPTS, check_actions, next_look, usable
from retcon.perform import GUARDS, Guard, Meter, Performer
from retcon.route import Router, default_router
from retcon.store import Deleted, Progress
from retcon.store.backup import backup
from retcon.store.checking import Check
from retcon.store.connections import PRIVATE, Sync
from retcon.store.sqlite import SqliteStore
from retcon.tokens import Counter, check_budget, counter
from retcon.trace import span
from retcon.where import ScopeWords, Where, WhereWords, resolve, resolve_scope

DEFAULT_PATH = "retcon.db"
DEFAULT_BUDGET = 256
MODELS = ("model", "reader")  # of what a router was learned with


def utc_now() -> datetime:
    """The time at which notes are stored, unless a memory is given another clock."""
    return datetime.now(UTC)


def random_id() -> str:
    """An id for a note whose caller gave none."""
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True)
class _Strange:
    """Whether something is not what a router learned on, and what is to be said of it."""

    differs: bool
    warnings: tuple[str, ...]

    def told(self, decision: Decision) -> Decision:
        if not self.differs:
            return decision
        return replace(decision, certified=False, warnings=decision.warnings + self.warnings)


class Memory:
    """Notes in one SQLite file, recalled under a token budget. No key, no network, no download."""

    def __init__(
        self,
        path: str | os.PathLike[str] = DEFAULT_PATH,
        *,
        router: Router | str | os.PathLike[str] | None = None,
        counter: str | Callable[[str], int] | None = None,
        retriever: str = "bm25",
        embedder: str | Embed | None = None,
        top_k: int = 20,
        cap: int = 2048,
        model: str | Chat | None = None,
        model_name: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        focus: bool = True,
        guard: Guard = "warn",
        sync: Sync = "full",
        now: Callable[[], datetime] = utc_now,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Opens the file, or makes it; `:memory:` keeps everything in this process.

        `router` decides: a Router, its JSON file or the name of one that ships; by default one learned on LongMemEval,
        with the actions that a model writes where there is one. `counter` counts tokens: "estimate",
        "alphanumeric", "bpe", or any callable. `retriever` is bm25, bm25-plain, dense or hybrid; `top_k`
        and `cap` bound the candidates (notes, tokens). `now` and `new_id` are the only sources of time and chance.

        `model` writes records and reads answers: the base URL of an OpenAI-compatible endpoint, the path of a .gguf
        file, or a Chat object; without one nothing is generated. `focus=False` writes records for any question, not for
        this query. `guard="strict"` takes the best action without a model in place of a record that states a number,
        date or name which no source supports; "warn" keeps it and says so.

        A write that has returned survives a kill of the process and, with `sync="full"`, a loss of power; "normal" is
        quicker and may lose the last writes with the power, never more.
        """
        self.router = _router(router, writes=model is not None)
        self.count: Counter = _counter(counter)
        self.embed: Embed = _embedder(embedder if embedder is not None else self.router.embedder)
        self.retriever = retrieve.check_retriever(retriever)
        self.top_k = validate.whole("top_k", top_k)
        self.cap = validate.whole("cap", cap, most=10_000_000)
        self.now, self.new_id = now, new_id
        self._owns_chat = isinstance(model, str)
        self.chat = None if model is None else chat(model, name=model_name, key=_key(model, api_key), timeout=timeout)
        # the default was learned with one model and serves with any: no news, but nothing is certified either
        self._strange, self._strange_reader = self._differences(focus, quiet=MODELS if router is None else ())
        self.store = SqliteStore(_path(path), sync=sync)
        self._performer = Performer(
            store=self.store, count=self.count, chat=self.chat, focus=focus, guard=_guard(guard)
        )

    def _differences(self, focus: bool, quiet: Collection[str]) -> tuple[_Strange, _Strange]:
        """In what this memory, and then its reader, is not what its router learned on."""
        running: dict[str, Any] = {
            "embedder": self.embed.name, "counter": self.count.name, "retriever": self.retriever,
            "top_k": self.top_k, "cap": self.cap, "renderer": pack.RENDERER, "accounting": "rendered",
            "types": "guessed",
        }  # fmt: skip
        reads: dict[str, Any] = {}
        if self.chat is not None:
            running |= {"model": self.chat.name, "prompts": PROMPTS, "focus": "focused" if focus else "agnostic"}
            reads = {"reader": self.chat.name, "answer_prompts": ANSWER_PROMPTS}
        mine, reader = self.router.differences(running), self.router.differences(reads, reads)
        # harm is about what a reader makes of the text: not certified where that is another one, or not known here
        return self._strangeness(mine, quiet, certain=bool(reads) and not reader), self._strangeness(reader, quiet)

    def _strangeness(
        self, found: Mapping[str, tuple[Any, Any]], quiet: Collection[str], *, certain: bool = True
    ) -> _Strange:
        told = {name: pair for name, pair in found.items() if name not in quiet}
        return _Strange(
            bool(found) or not certain,
            tuple(
                f"router {self.router.name!r} was learned with {name} {learned!r}, this memory has {here!r}"
                for name, (learned, here) in told.items()
            ),
        )

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
    ) -> list[Note]:
        """The notes as stored: one for a text or a message, one each for a list of them, in one transaction.

        With an `id`, adding the same note again changes nothing. Turns of a list, and turns of one session, are found
        also by the words of the turn before them.
        """
        if id is not None and not isinstance(what, (str, Mapping)):
            raise InputError("an id names one note: give each item of a list its own 'id'")
        shared: dict[str, Any] = {"id": id, "user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        shared |= {"session": session, "speaker": speaker, "timestamp": timestamp, "metadata": metadata}
        notes = list(self._notes(validate.drafts(what, **shared), chained=not isinstance(what, (str, Mapping))))
        return self.store.get_many(self.store.add(notes))

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
    ) -> Note:
        """The correction as stored. Recall finds it in place of the older note, which `history` still shows.

        Where the older note has a timestamp and none is given, the correction is of now.
        """
        old = self.get(id)
        if timestamp is None and old.timestamp is not None:
            timestamp = self._stamp()
        fields = {
            "id": new_id or self.new_id(), "text": text, "timestamp": timestamp, "supersedes": old.id,
            "speaker": speaker or old.speaker, "session": session or old.session,
            "metadata": old.metadata if metadata is None else metadata,
            "user_id": old.user_id, "agent_id": old.agent_id, "run_id": old.run_id,
        }  # fmt: skip
        return self.store.get_many(self.store.add([validate.note(fields, created_at=self._stamp())]))[0]

    def delete(self, id: str | Iterable[str]) -> Deleted:  # noqa: A002
        """What went: the note, or notes, with every record, index entry and vector on them, in one transaction."""
        ids = [id] if isinstance(id, str) or not isinstance(id, Iterable) else id
        return self.store.delete([validate.note_id(each) for each in ids])

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

    def purge(self) -> bool:
        """Whether deleted words are gone from the files, which are rewritten for it; False while others read.

        `close` does it where a delete waits for it, and a server does it in the background. A rewrite takes about a
        second for 100 MB, and writers wait for it. What could not be purged stays due, in the file.
        """
        return self.store.purge(at=self._stamp())

    def unpurged(self) -> int:
        """How many deletes there were whose words may still lie in the files."""
        return self.store.unpurged()

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
        **words: Unpack[WhereWords],
    ) -> list[Note]:
        """Notes in the order they were added; superseded ones only on request.

        With `after`, the id of a note, those that were added after it: so a page goes on where the one before it ended.
        """
        found = resolve(where, words)
        after = None if after is None else validate.note_id(after)
        return list(self.store.all(found.scope, found.only, after=after, limit=limit, superseded=superseded))

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
        return list(self._search(validate.query(query), where, top_k, fill=False))

    # -- the decision and the text -------------------------------------------------------------------------------------

    def decide(
        self,
        query: str,
        budget: int = DEFAULT_BUDGET,
        *,
        where: Where | None = None,
        exclude: Collection[str] = (),
        **words: Unpack[WhereWords],
    ) -> Decision:
        """The decision alone: which action, by what numbers. Writes no text."""
        cluster = self._cluster(validate.query(query), resolve(where, words))
        return self._decide(cluster, check_budget(budget), None, check_actions(exclude))

    def recall(
        self,
        query: str,
        budget: int = DEFAULT_BUDGET,
        *,
        where: Where | None = None,
        action: str | None = None,
        exclude: Collection[str] = (),
        **words: Unpack[WhereWords],
    ) -> Recall:
        """The best text within the budget that memory has for the query, and why it is that text.

        `action` forces one. `exclude` leaves some out, so that a caller who found no answer can ask for the next best;
        `Recall.escalate()` does the same.
        """
        started = time.perf_counter()
        budget, exclude = check_budget(budget), check_actions(exclude)
        cluster = self._cluster(validate.query(query), resolve(where, words))
        decision = self._decide(cluster, budget, action, exclude)
        return self._recall(cluster, decision, exclude, started)

    def _cluster(self, query: str, where: Where) -> Cluster:
        hits = self._search(query, where, self.top_k, fill=True)
        costs = pack.costs(Cluster(query, hits), count=self.count)
        return retrieve.cluster(query, hits, costs, cap=self.cap)

    def _search(self, query: str, where: Where, top_k: int, *, fill: bool) -> tuple[Hit, ...]:
        with span("retcon.retrieve", top_k=top_k):
            if self.retriever in retrieve.NEEDS_VECTORS:
                retrieve.embed_missing(self.store, where.scope, self.embed)
            return retrieve.search(
                self.store, query, where, top_k=top_k, retriever=self.retriever, embed=self.embed, fill=fill
            )

    def _decide(
        self, cluster: Cluster, budget: int, action: str | None, exclude: Collection[str], *, model: bool = True
    ) -> Decision:
        x = self._features(cluster, budget)
        available = usable(self.chat if model else None)
        if action is not None:
            (action,) = check_actions([action])
            free = self.router.decide(x, budget=budget)
            return self._told(_named(free, action, f"{action}: asked for by the caller", forced=True))
        return self._told(self._choose(x, budget, available, exclude, model=model))

    def _features(self, cluster: Cluster, budget: int) -> NDArray[np.float64]:
        with span("retcon.features"):
            return features(
                budget=budget,
                costs=cluster.costs,
                fit=pack.fit_fraction(cluster, budget, count=self.count, costs=cluster.costs),
                sessions=[note.session for note in cluster.notes],
                vectors=self.embed([note.text for note in cluster.notes]),
                types=query_type(cluster.query),
            )

    def _choose(
        self, x: NDArray[np.float64], budget: int, available: tuple[str, ...], exclude: Collection[str], *, model: bool
    ) -> Decision:
        if exclude and model and self.router.ladder is not None:
            free = self.router.decide(x, budget=budget, available=available)
            look = next((name for name in free.order if name not in exclude), None)
            if look is not None:
                return _climbed(free, look)
            if (own := next((name for name in self._strangers(available) if name not in exclude), None)) is not None:
                return _named(free, own, f"{own}: not in the ladder of {self.router.name}, so after its end")
        known = set(self.router.actions)  # a router can put in order what it knows; for the safe action one is enough
        orders = known.issuperset(available) if model else known.intersection(available).difference(exclude)
        if orders or not exclude:
            return self.router.decide(x, budget=budget, available=available, exclude=exclude)
        look = next_look(available, exclude)
        return _named(self.router.decide(x, budget=budget), look, f"{look}: the next after {', '.join(exclude)}")

    def _strangers(self, available: Iterable[str]) -> tuple[str, ...]:
        """The caller's own actions that the router does not know; they come after the end of its ladder."""
        return tuple(name for name in available if name not in self.router.actions and name not in LADDER)

    def _told(self, decision: Decision) -> Decision:
        """The decision, not certified and with a warning where this memory is not what its router learned on."""
        return self._strange.told(decision)

    def _recall(self, cluster: Cluster, decision: Decision, exclude: tuple[str, ...], started: float) -> Recall:
        safe = partial(self._safe_action, cluster, decision.budget, (*exclude, decision.action))
        took = self._performer.perform(cluster, decision, safe)
        packed = took.made.packed
        if took.action != decision.action:
            decision = replace(decision, certified=False)  # the bound is on what the router chose
        spent = replace(took.made.usage, seconds=time.perf_counter() - started)
        return Recall(
            text=packed.text, tokens=packed.tokens, budget=decision.budget, query=cluster.query, action=took.action,
            decision=decision, sources=packed.sources, dropped=packed.dropped + cluster.dropped, usage=spent,
            warnings=decision.warnings + took.warnings,
            tried=tuple(dict.fromkeys((*exclude, decision.action, took.action))), record=took.record,
            fidelity=took.fidelity, again=partial(self._again, cluster, decision.budget),
        )  # fmt: skip

    def _again(self, cluster: Cluster, budget: int, tried: tuple[str, ...]) -> Recall | None:
        """The next best recall whose action was not tried: one that fell back to a text seen before is passed over."""
        found = self._next(cluster, budget, tried)
        while found is not None and found.action in tried:
            after = self._next(cluster, budget, found.tried)
            found = after and replace(after, warnings=found.warnings + after.warnings, usage=found.usage + after.usage)
        return found

    def _next(self, cluster: Cluster, budget: int, tried: tuple[str, ...]) -> Recall | None:
        if not set(usable(self.chat)).difference(tried):
            return None
        started = time.perf_counter()
        return self._recall(cluster, self._decide(cluster, budget, None, tried), tried, started)

    def _safe_action(self, cluster: Cluster, budget: int, tried: tuple[str, ...]) -> str:
        """The router's choice among the actions that need no model: of those not tried yet, while there is one."""
        known = set(usable(None))
        spent = tuple(sorted(known.intersection(tried)))
        return self._decide(cluster, budget, None, spent if len(spent) < len(known) else (), model=False).action

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
        seen: Callable[[Look], None] | None = None,
        **words: Unpack[WhereWords],
    ) -> Answer:
        """The reader's answer from what memory recalls; while it finds none there, from the next best recall.

        The order of looks is that of the router's ladder where it has one. Stops at an answer, at the ladder's end
        (without one, when every action was tried), after `max_looks` looks, or once reading and writing have cost
        `max_tokens`. The text is None where memory does not hold the answer. `seen` is called with each look. A reader
        that fails is a warning; where it failed at every look, its first error is raised.

        With `safe` no right answer that whole notes give is lost: a look at them comes before the others, which are
        what `max_looks` then bounds. Where the reader fails at that look, its error is raised.
        """
        if self.chat is None:
            raise InputError("ask needs a reader: Memory(model=...), or call recall and read the text yourself")
        started = time.perf_counter()
        budget, max_looks = check_budget(budget), validate.whole("max_looks", max_looks, most=100)
        most = math.inf if max_tokens is None else validate.whole("max_tokens", max_tokens, most=10**12)
        cluster = self._cluster(validate.query(question), resolve(where, words))
        decision = self._strange_reader.told(_first_look(self._decide(cluster, budget, None, ()), whole=safe))
        order = decision.order  # empty where the router has no ladder: then every action may have its turn
        recall: Recall | None = self._recall(cluster, decision, (), started)
        looks: list[Look] = []
        while recall is not None:
            looks.append(self._look(recall, cluster))
            if seen is not None:
                seen(looks[-1])
            spent = sum((look.usage for look in looks), Usage())
            if not looks[-1].abstained or len(looks) >= max_looks + safe or spent.tokens >= most or not cluster.hits:
                break
            if isinstance(looks[-1].error, AuthError) or (safe and looks[0].error is not None):
                break  # a key that was refused is refused at every look; what whole notes answer must be known first
            if order and {*order, *self._strangers(usable(self.chat))} <= set(recall.tried):
                break  # the ladder ends here: it learned that no further look pays
            recall = self._next(cluster, budget, recall.tried)
        return concluded(question, looks)

    def _look(self, recall: Recall, cluster: Cluster) -> Look:
        """What the reader says to the recalled text; a text that it has read before is answered from the cache."""
        if not recall.text:
            return Look(recall, "", True, recall.usage)
        assert self.chat is not None
        meter = Meter(self.chat)
        about = [source.id for source in recall.sources]
        owned = owners(note for note in cluster.notes if note.id in about)
        reader = CachedChat(meter, self.store, f"answer-{ANSWER_PROMPTS}", about=about, owned=owned)
        try:
            with span("retcon.read"):
                (reply,) = reader([reader_prompt(recall.query, recall.text, logprobs=False)])
        except ModelError as error:
            reply = error
        if isinstance(reply, ModelError):
            return Look(recall, "", True, recall.usage + meter.usage, reply)
        return Look(recall, reply.text.strip(), abstains(reply.text), recall.usage + meter.usage)

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
        if any(os.path.realpath(target) == os.path.realpath(self.store.path + end) for end in ("", "-wal", "-shm")):
            raise InputError(f"{target} is the store itself: export to another file")
        part = target.with_name(f"{target.name}.{os.urandom(4).hex()}.part")
        try:
            with open(part, "x", encoding="utf-8", newline="\n", opener=_private) as file:
                written = 0
                for written, line in enumerate(self._lines(scope, skip_damaged=skip_damaged), 1):
                    file.write(line)
                    if progress is not None:
                        progress(written)
            os.replace(part, target)
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror or error}") from error
        finally:
            part.unlink(missing_ok=True)
        return written

    def lines(
        self, *, where: Where | None = None, skip_damaged: bool = False, **words: Unpack[ScopeWords]
    ) -> Iterator[str]:
        """The notes of the scope as JSONL lines, in the order they were added."""
        return self._lines(resolve_scope(where, words), skip_damaged=skip_damaged)

    def _lines(self, scope: Scope, *, skip_damaged: bool) -> Iterator[str]:
        written: set[str] = set()
        for note in self.store.all(scope, superseded=True, skip_damaged=skip_damaged):
            plain = {name: value for name, value in note.to_dict().items() if name != "superseded_by"}
            if skip_damaged:  # what was left out cannot be followed or superseded
                written.add(note.id)
                lost = [link for link in ("follows", "supersedes") if plain.get(link, note.id) not in written]
                plain = {name: value for name, value in plain.items() if name not in lost}
            yield json.dumps(plain, ensure_ascii=False, sort_keys=True) + "\n"

    def load(self, source: str | os.PathLike[str] | Iterable[str], *, progress: Progress | None = None) -> int:
        """How many new notes came in from a JSONL file or from lines, in one transaction; known ids are passed over."""
        before = self.store.count(Scope())
        if isinstance(source, (str, os.PathLike)):
            try:
                with Path(source).open(encoding="utf-8-sig") as file:
                    self.store.add(self._parsed(file), progress=progress)
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise InputError(f"cannot read {os.fspath(source)}: {why}") from error
        else:
            self.store.add(self._parsed(source), progress=progress)
        return self.store.count(Scope()) - before

    def _notes(self, drafts: Iterable[dict[str, Any]], *, chained: bool = False) -> Iterator[Note]:
        """The drafts as notes; `chained` ones without a session follow each other within their scope."""
        stamp = self._stamp()
        last: dict[tuple[str | None, ...], str] = {}  # scope -> id of its newest note
        for draft in drafts:
            note = self._note(draft, stamp)
            scope = (note.user_id, note.agent_id, note.run_id)
            if chained and note.session is None and "follows" not in draft:
                note = replace(note, follows=last.get(scope))
            last[scope] = note.id
            yield note

    def _parsed(self, lines: Iterable[str]) -> Iterator[Note]:
        stamp = self._stamp()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                note = self._note(validate.draft(json.loads(line)), stamp)
            except (ValueError, RecursionError) as error:  # InputError is a ValueError too
                raise InputError(f"line {number}: {str(error).splitlines()[0]}") from None
            yield note

    def _note(self, draft: Mapping[str, Any], stamp: str) -> Note:
        named = draft if "id" in draft else {**draft, "id": self.new_id()}
        return validate.note(named, created_at=stamp)

    def _stamp(self) -> str:
        return self.now().isoformat(timespec="seconds")

    def stats(self) -> dict[str, int | str]:
        """Facts about the store: schema, counts of notes, scopes, records and vectors, bytes, a quick check."""
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
        if self.store.in_memory:
            raise InputError("a memory without a file has no backup: export it")
        return backup(self.store.path, path, replace=replace)

    def close(self, *, purge: bool = True) -> None:
        """Close the file, and the model if the memory opened it; the memory cannot be used after.

        Where a delete waits for a purge, that comes first; with `purge=False` it stays due, in the file.
        """
        if purge:
            with contextlib.suppress(StoreError):  # closed before, or not to be written: it stays due
                if self.store.unpurged():
                    self.purge()
        self.store.close()
        close = getattr(self.chat, "close", None)
        if self._owns_chat and close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _named(decision: Decision, action: str, why: str, *, forced: bool = False) -> Decision:
    """The decision with another action in place of the router's own, and why."""
    (action,) = check_actions([action])
    why = f"{why}; the router's own choice is {decision.reason}"
    return replace(decision, action=action, reason=why, forced=forced, certified=False)


def _climbed(decision: Decision, look: str) -> Decision:
    """The decision for one look of the router's ladder."""
    place = decision.order.index(look) + 1
    return _named(decision, look, f"{look}: look {place} of the ladder {' > '.join(decision.order)}")


def _first_look(free: Decision, *, whole: bool) -> Decision:
    """The decision for the first look: by the ladder, or at whole notes with the ladder after them."""
    first = free.order[0] if free.order else free.action
    if whole and first != RETAIN:
        order = (RETAIN, *(action for action in free.order if action != RETAIN)) if free.order else ()
        why = f"{RETAIN}: whole notes first, so that no answer of theirs is lost"
        return _named(replace(free, order=order), RETAIN, why)
    return _climbed(free, first) if free.order else free


def _private(path: str, flags: int) -> int:
    """A new file that only its owner may read."""
    return os.open(path, flags, PRIVATE)


def _guard(given: str) -> Guard:
    if given not in GUARDS:
        raise InputError(f"guard is 'warn' or 'strict', not {shown(given)}")
    return cast(Guard, given)


def _key(model: object, given: str | None) -> str | None:
    """The key for an endpoint: the caller's, RETCON_API_KEY, or OPENAI_API_KEY where the endpoint is OpenAI's own."""
    if given is not None or not isinstance(model, str) or "://" not in model:
        return given
    from urllib.parse import urlsplit  # loaded only where a key is looked for

    theirs = urlsplit(os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").hostname
    fitting = os.environ.get("OPENAI_API_KEY") if urlsplit(model).hostname == theirs else None
    return os.environ.get("RETCON_API_KEY") or fitting


def _router(given: Router | str | os.PathLike[str] | None, *, writes: bool) -> Router:
    if given is None:
        return default_router(writes=writes)
    return given if isinstance(given, Router) else Router.load(given)


def _path(path: str | os.PathLike[str]) -> str:
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path or "\0" in path:
        raise InputError("a memory needs a path, or ':memory:'")
    if "://" in path:
        raise InputError(f"{path.split('://')[0]}:// stores are not part of this version: give a file path")
    return path


_counter, _embedder = counter, embedder  # the constructor's arguments have the same names
