"""LangGraph: a store whose items are notes. They are found by their words, every version of them is kept, and `recall`
packs them into a budget.

    store = MemoryStore(Memory("agent.db"))
    store.put(("memories", "ann"), "cat", {"text": "The cat is called Pixel."})
    store.search(("memories", "ann"), query="cat")
    store.recall(("memories", "ann"), "What is the cat called?", budget=64).text

An item is a note: its searched words are the text, its namespace, key and value the metadata. The first two labels of a
namespace are a scope, so a search under one or two labels reads that part of the store alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from retcon import Hit, Memory, Note, Recall
from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.integrations.extra import needs
from retcon.where import ScopeWords

with needs("langchain", "a LangGraph store"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        SearchItem,
        SearchOp,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )

ROOT = "langgraph"  # the agent of every note of a store
NO_WORDS = "-"  # the text of an item that is not to be searched
PAGE = 500
TRIES = 20  # of a put, where others write the same item
MOST = 10_000  # hits of one search
Namespace = tuple[str, ...]
Value = Mapping[str, Any]


class MemoryStore(BaseStore):
    """A LangGraph store on a memory. It takes no TTL, as `InMemoryStore` does not."""

    def __init__(self, memory: Memory, *, fields: Sequence[str] | None = None) -> None:
        """`fields` are the paths of a value whose words are searched, such as "text" or "facts[*].content".

        If not said, all texts and numbers in a value are. An item's `index` goes before it.
        """
        super().__init__()
        self.memory, self.fields = memory, None if fields is None else list(fields)
        self._writing = threading.Lock()

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """What each operation gives; those that read see the store as it was before the batch, as elsewhere."""
        asked = list(ops)
        for op in asked:
            validate_op_namespace(op)
        results = [self._read(op) for op in asked]
        last = {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}
        with self._writing:
            for op in last.values():
                self._write(op)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        """The same, on a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def recall(self, namespace_prefix: Namespace, /, query: str, budget: int = 256, **options: Any) -> Recall:
        """The best text within the budget that the items under the prefix have for the query, and why it is that."""
        return self.memory.recall(
            query, budget, **_words(namespace_prefix), filters=_below(namespace_prefix), **options
        )

    def history(self, namespace: Namespace, key: str) -> list[Item]:
        """Every version of an item, oldest first."""
        return [_item(note) for note in self._versions(namespace, key)]

    def _read(self, op: Op) -> Any:
        if min(getattr(op, "limit", 0), getattr(op, "offset", 0)) < 0:
            raise InputError(f"limit and offset are 0 or more, not {op.limit} and {op.offset}")
        if isinstance(op, GetOp):
            versions = self._versions(op.namespace, op.key)
            return _item(versions[-1]) if versions else None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._list(op)
        if not isinstance(op, PutOp):
            raise InputError(f"a store has no operation {type(op).__name__}")
        return None

    # -- one item ----------------------------------------------------------------------------------------------------

    def _versions(self, namespace: Namespace, key: str) -> list[Note]:
        try:
            return self.memory.history(_note_id(namespace, key))
        except NotFoundError:
            return []

    def _write(self, op: PutOp) -> None:
        """Adds the item, or a version of it; again, where another process was quicker."""
        for _ in range(TRIES - 1):
            with suppress(ConflictError, NotFoundError):
                return self._put(op, self._versions(op.namespace, op.key))
        return self._put(op, self._versions(op.namespace, op.key))

    def _put(self, op: PutOp, versions: Sequence[Note]) -> None:
        if op.value is None:
            self.memory.delete([note.id for note in versions[-1:]])
        elif versions:
            about = _about(op, created=versions[-1].metadata["created"])
            self.memory.supersede(versions[-1].id, self._words_of(op) or NO_WORDS, metadata=about)
        else:
            self._register(op.namespace)
            name = _note_id(op.namespace, op.key)
            words = self._words_of(op) or NO_WORDS
            self.memory.add(words, id=name, session=name, metadata=_about(op), **_scope(op.namespace))

    def _words_of(self, op: PutOp) -> str:
        """What of the value is searched: the texts at the paths of the item, else of the store, else all of them."""
        if op.index is False or op.value is None:
            return ""
        paths = self.fields if op.index is None else op.index
        if paths is None:
            return "\n".join(_leaves(op.value))
        return "\n".join(text for path in paths for text in get_text_at_path(op.value, tokenize_path(path)))

    # -- many items --------------------------------------------------------------------------------------------------

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found = (pair for pair in self._ranked(op) if _matches(pair[0].metadata["value"], op.filter or {}))
        return [_hit(note, score) for note, score in islice(found, op.offset, op.offset + op.limit)]

    def _ranked(self, op: SearchOp) -> Iterator[tuple[Note, float | None]]:
        """The items under the prefix: by the query, best first, then those without a word of it, the newest first."""
        words, below = _words(op.namespace_prefix), _below(op.namespace_prefix)
        ranked: set[str] = set()
        wanted = max(1, op.offset + op.limit)
        if op.query:
            for hit in self._hits(op.query, wanted, below, words):
                ranked.add(hit.id)
                yield hit.note, hit.score
        after: str | None = None
        size = PAGE if op.filter else wanted + len(ranked)
        while page := self.memory.get_all(filters=below, after=after, limit=size, order="newest", **words):
            yield from ((note, None) for note in page if note.id not in ranked)
            after = page[-1].id

    def _hits(self, query: str, wanted: int, below: dict[str, Any] | None, words: ScopeWords) -> Iterator[Hit]:
        """The hits of a query, as many as are taken: more are asked for only once those are used up."""
        given, wanted = 0, min(MOST, wanted)
        while True:
            hits = self.memory.search(query, top_k=wanted, filters=below, **words)
            yield from hits[given:]
            if len(hits) < wanted or wanted == MOST:
                return
            given, wanted = len(hits), min(MOST, wanted * 8)

    # -- namespaces ----------------------------------------------------------------------------------------------------

    def _register(self, namespace: Namespace) -> None:
        """Notes that the namespace exists: a note of its own, so that listing them does not read the items."""
        path = ".".join(namespace)
        self.memory.add(NO_WORDS, id=_digest("namespace", path), user_id=path, agent_id=f"{ROOT}-namespaces")

    def _list(self, op: ListNamespacesOp) -> list[Namespace]:
        paths = (tuple((note.user_id or "").split(".")) for note in self.memory.get_all(agent_id=f"{ROOT}-namespaces"))
        matched = [path for path in paths if all(_fits(each, path) for each in op.match_conditions or ())]
        held = [path for path in matched if self.memory.get_all(limit=1, filters=_exactly(path), **_scope(path))]
        cut = sorted({path[: op.max_depth] for path in held})  # None cuts nothing
        return cut[op.offset : op.offset + op.limit]


def _note_id(namespace: Namespace, key: str) -> str:
    return _digest("item", *namespace, key)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "replace")).hexdigest()[:32]


def _scope(namespace: Namespace) -> ScopeWords:
    """The ids of a note in the namespace: its first two labels, and the first alone."""
    return {"user_id": ".".join(namespace[:2]), "run_id": namespace[0], "agent_id": ROOT}


def _words(prefix: Namespace) -> ScopeWords:
    """The ids that the notes under a prefix share."""
    if len(prefix) >= 2:
        return _scope(prefix)
    return {"agent_id": ROOT, "run_id": prefix[0] if prefix else None}


def _below(prefix: Namespace) -> dict[str, Any] | None:
    """What the ids do not say of a prefix: its third label and those after it."""
    return {f"metadata.at{depth}": label for depth, label in enumerate(prefix) if depth >= 2} or None


def _exactly(namespace: Namespace) -> dict[str, Any]:
    return (_below(namespace) or {}) | {"metadata.depth": len(namespace)}


def _about(op: PutOp, created: str | None = None) -> dict[str, Any]:
    """What a note says of its item; labels have names of their own, so that filters can ask for them."""
    now = datetime.now(UTC).isoformat()
    item = {"namespace": list(op.namespace), "key": op.key, "value": dict(op.value), "depth": len(op.namespace)}
    return (
        item | {f"at{at}": label for at, label in enumerate(op.namespace)} | {"created": created or now, "updated": now}
    )


def _item(note: Note) -> Item:
    about = note.metadata
    return Item(
        value=about["value"], key=about["key"], namespace=tuple(about["namespace"]), created_at=about["created"],
        updated_at=about["updated"],
    )  # fmt: skip


def _hit(note: Note, score: float | None) -> SearchItem:
    item = _item(note)
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)


def _leaves(value: Any) -> Iterator[str]:
    """Every text and number in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def _fits(condition: MatchCondition, path: Namespace) -> bool:
    """Whether a namespace begins, or ends, like the pattern; `*` stands for any label."""
    wanted = condition.path
    part = path[: len(wanted)] if condition.match_type == "prefix" else path[-len(wanted) :]
    return len(part) == len(wanted) and all(one in ("*", other) for one, other in zip(wanted, part, strict=True))


# -- filters: exact values, or the six operators, on the keys of a value; nested ones too ------------------------------

_EXACT: dict[str, Callable[[Any, Any], bool]] = {"$eq": operator.eq, "$ne": operator.ne}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le,
}  # fmt: skip


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(name.startswith("$") for name in wanted):
            return all(_compare(value, name, bound) for name, bound in wanted.items())
        return isinstance(value, Mapping) and all(_matches(value.get(name), each) for name, each in wanted.items())
    if isinstance(wanted, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(wanted):
            return False
        return all(_matches(one, other) for one, other in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _compare(value: Any, name: str, wanted: Any) -> bool:
    if name in _EXACT:
        return _EXACT[name](value, wanted)
    if name not in _ORDER:
        raise InputError(f"a filter of a store knows {', '.join([*_EXACT, *_ORDER])}, not {name}")
    try:
        return _ORDER[name](float(value), float(wanted))
    except (TypeError, ValueError):  # what is no number is neither above nor below one
        return False
