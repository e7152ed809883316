"""A memory with Mem0's words and shapes of answers, on a retcon store: for code that was written for Mem0.

    from retcon.mem0 import Memory

    memory = Memory("agent.db")                                     # what retcon.Memory takes
    memory.add([{"role": "user", "content": "I adopted a cat."}], user_id="ann")
    memory.search("cat", user_id="ann", limit=5)["results"][0]["memory"]
    memory.memory.recall("cat", budget=64, user_id="ann").text      # the retcon memory beneath

Like there, `add`, `search`, `get_all` and `delete_all` want a user_id, agent_id or run_id; in filters,
`{"user_id": "*"}` is everybody's.

What differs: messages are stored as they are, no facts are extracted (`infer=True` warns); recall shortens at query
time. A memory keeps its first id for good: an update is another version of it, which `history` shows. Scores are those
of BM25, not from 0 to 1. The words are those of mem0ai 2.2.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from retcon import memory as core
from retcon.errors import InputError, NotFoundError, quote
from retcon.filters import DEEPEST, JOINS
from retcon.habits import hint
from retcon.note import Note

Plain = dict[str, Any]
DEFAULT_LIMIT = 20
ROLES = ("user", "assistant", "system", "tool", "function", "developer")
_NAMES = {"updated_at": "created_at", "actor_id": "speaker", "role": "speaker"}  # of filters, where ours differ
_IDS = ("user_id", "agent_id", "run_id")
_KEEP = object()  # an argument that says: as it is


_CONFIG = "a Mem0 configuration says nothing to retcon: Memory('agent.db', model=..., embedder=...)"
_UNASKED = "it steers a model or a service that is not asked here"
_KEYWORDS = {  # Mem0's own, of this version or an older one, that have nothing to act on here
    "memory_type": _UNASKED, "prompt": _UNASKED, "rerank": _UNASKED, "explain": _UNASKED, "reference_date": _UNASKED,
    "output_format": "answers are {'results': [...]}", "version": "answers are {'results': [...]}",
    "page": "get_all(top_k=) says how many; memory.memory.get_all(limit=, after=) lists in pages",
    "page_size": "get_all(top_k=) says how many; memory.memory.get_all(limit=, after=) lists in pages",
}  # fmt: skip
_METHODS = {
    "chat": "it is no verb of a memory here: memory.memory.ask(question, budget) answers from memory",
    "recall": "it is the retcon memory's: memory.memory.recall(query, budget)",
    "ask": "it is the retcon memory's: memory.memory.ask(question, budget)",
}


class Memory:
    """Mem0's `Memory`: the same verbs, arguments and answers."""

    def __init__(self, path: str | os.PathLike[str] = core.DEFAULT_PATH, **options: Any) -> None:
        """Opens the file like `retcon.Memory(path, **options)`, which is then `self.memory`."""
        if "config" in options or not isinstance(path, (str, os.PathLike)):
            raise InputError(_CONFIG)
        self.memory = core.Memory(path, **options)

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name: str) -> Never:
            """Raises the error, with what the name is called here."""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint(_METHODS, name)}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Never:
        """Refused: what Mem0 configures is not what retcon needs."""
        raise InputError(_CONFIG)

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: str | datetime | float | None = None,
        expiration_date: str | date | None = None,
        infer: bool = False,
        **unknown: Any,
    ) -> Plain:
        """`{"results": [{"id", "memory", "event": "ADD", ...}]}`: each message as it is, but for system messages."""
        _refuse("add", unknown)
        _want_id(user_id, agent_id, run_id)
        if infer:
            message = "infer=True: messages are stored as they are, no facts are extracted; recall shortens them"
            warnings.warn(message, UserWarning, stacklevel=2)
        stored = self.memory.add(
            _turns(messages), user_id=user_id, agent_id=agent_id, run_id=run_id, metadata=metadata, timestamp=timestamp,
            expires_at=_expiry(expiration_date),
        )  # fmt: skip
        return {"results": [{"id": note.id, "memory": note.text, "event": "ADD"} | _speaker(note) for note in stored]}

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        top_k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        **unknown: Any,
    ) -> Plain:
        """`{"results": [...]}`, the best first; `limit` and `top_k` are the same, `threshold` is the least score."""
        _refuse("search", unknown)
        _want_id(user_id, agent_id, run_id, filters)
        hits = self.memory.search(
            query, top_k=_one("limit", limit, "top_k", top_k, DEFAULT_LIMIT), user_id=user_id, agent_id=agent_id,
            run_id=run_id, filters=_translate(filters),
        )  # fmt: skip
        kept = (hit for hit in hits if threshold is None or hit.score >= threshold)
        return {"results": [self._item(hit.note, score=hit.score) for hit in kept]}

    def get(self, memory_id: str) -> Plain | None:
        """The newest version of a memory; None where there is none of that id."""
        versions = self._versions(memory_id)
        return _item(versions) if versions else None

    def get_all(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        top_k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        show_expired: bool = False,
        **unknown: Any,
    ) -> Plain:
        """`{"results": [...]}`, in the order in which memories were added or last changed."""
        _refuse("get_all", unknown)
        _want_id(user_id, agent_id, run_id, filters)
        notes = self.memory.get_all(
            limit=_one("limit", limit, "top_k", top_k, DEFAULT_LIMIT), user_id=user_id, agent_id=agent_id,
            run_id=run_id, filters=_translate(filters), expired=show_expired,
        )  # fmt: skip
        return {"results": [self._item(note) for note in notes]}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: Any = _KEEP,
        data: str | None = None,
    ) -> Plain:
        """Correct a memory: what was there before stays in its history. `data` is the same as `text`."""
        versions = self._versions(memory_id)
        if not versions:
            raise NotFoundError(memory_id)
        new = _one("text", text, "data", data, None)
        if new is None and metadata is None and expiration_date is _KEEP:
            raise InputError("give text, metadata or expiration_date")
        old = versions[-1]
        self.memory.supersede(
            old.id, old.text if new is None else new,
            metadata=None if metadata is None else {**old.metadata, **metadata},
            expires_at=None if expiration_date is _KEEP else _expiry(expiration_date) or "never",
        )  # fmt: skip
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> Plain:
        """Delete a memory with all of its versions."""
        self.memory.delete(memory_id)
        return {"message": "Memory deleted successfully!"}

    def delete_all(self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None) -> Plain:
        """Delete all memories of a user, agent or run."""
        if user_id is agent_id is run_id is None:
            raise InputError("name a user_id, agent_id or run_id to delete; reset() deletes everything")
        self.memory.delete_all(user_id=user_id, agent_id=agent_id, run_id=run_id)
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[Plain]:
        """What was done to a memory, oldest first; empty where there is none of that id."""
        versions = self._versions(memory_id)
        return [_event(versions, number) for number in range(len(versions))]

    def reset(self) -> None:
        """Delete everything."""
        self.memory.delete_all(everything=True)

    def close(self) -> None:
        """Close the file."""
        self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _versions(self, memory_id: str) -> list[Note]:
        try:
            return self.memory.history(memory_id)
        except NotFoundError:
            return []

    def _item(self, note: Note, **more: Any) -> Plain:
        return _item([note] if note.supersedes is None else self.memory.history(note.id)) | more


# -- what comes in -----------------------------------------------------------------------------------------------------


def _refuse(verb: str, unknown: Mapping[str, Any]) -> None:
    """Nothing, or the error that Python raises for a keyword, with why there is none."""
    for word in unknown:
        raise TypeError(f"Memory.{verb}() got an unexpected keyword argument {word!r}{hint(_KEYWORDS, word)}")


def _want_id(user_id: object, agent_id: object, run_id: object, filters: object = None) -> None:
    """Nothing, or an error where the call says nobody's: as in Mem0, it would be everybody's."""
    if user_id is agent_id is run_id is None and not _names_id(filters):
        raise InputError("name a user_id, agent_id or run_id; in filters {'user_id': '*'} is everybody's")


def _names_id(filters: object, depth: int = 1) -> bool:
    """Whether every note that the filters let through has been asked for by an id, or by "*" in the place of one."""
    if not isinstance(filters, Mapping) or depth > DEEPEST:
        return False
    if any(filters.get(name) is not None for name in _IDS):
        return True
    under = [value for name, value in filters.items() if JOINS.get(str(name)) == "and"]
    parts = [part for value in under for part in (value if isinstance(value, (list, tuple)) else [value])]
    return any(_names_id(part, depth + 1) for part in parts)


def _turns(messages: object) -> list[Mapping[str, Any]]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    given = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, Mapping) for each in given):
        raise InputError(f"messages are a text, a message or a list of messages, not {quote(messages, 40)}")
    return [each for each in given if each.get("role") != "system"]


def _expiry(given: object) -> str | None:
    """The first moment after Mem0's `expiration_date`, which is the last day of a memory."""
    if given is None:
        return None
    try:
        day = given if isinstance(given, date) else date.fromisoformat(str(given))
        after = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        raise InputError(f"expiration_date is a date such as 2026-12-31, not {quote(given)}") from None
    return after.isoformat()


def _one(name: str, given: Any, other: str, also: Any, default: Any) -> Any:
    if given is not None and also is not None:
        raise InputError(f"{name} and {other} are the same: give one of them")
    return next((value for value in (given, also) if value is not None), default)


def _translate(filters: object, depth: int = 1) -> Any:
    """Mem0's filters in our words; what is wrong with them is told where ours are read."""
    if not isinstance(filters, Mapping) or depth > DEEPEST:
        return filters
    found: Plain = {}
    for name, value in ((str(name), value) for name, value in filters.items()):
        if name in JOINS:
            listed = isinstance(value, (list, tuple))
            found[name] = [_translate(each, depth + 1) for each in value] if listed else _translate(value, depth + 1)
        elif value != "*":
            found[_NAMES.get(name, name)] = str(value) if name in _IDS and isinstance(value, int) else value
        elif name not in _IDS:  # any value; of an id, that is no condition
            found[_NAMES.get(name, name)] = {"ne": None}
    return found


# -- what goes out -----------------------------------------------------------------------------------------------------


def _item(versions: Sequence[Note]) -> Plain:
    """A memory as Mem0 gives it: the id of its first version, the words of its newest."""
    first, last = versions[0], versions[-1]
    plain: Plain = {
        "id": first.id, "memory": last.text, "hash": _hash(last.text),
        "metadata": dict(last.metadata) or None, "created_at": first.created_at, "updated_at": last.created_at,
    }  # fmt: skip
    plain |= {name: value for name in _IDS if (value := getattr(last, name)) is not None}
    plain |= {name: value for name, value in _speaker(last).items() if value is not None}
    if last.expires_at is not None:
        day = datetime.fromisoformat(last.expires_at) - timedelta(seconds=1)
        plain["expiration_date"] = day.date().isoformat()
    return plain


def _hash(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _speaker(note: Note) -> Plain:
    role = note.speaker if note.speaker in ROLES else None
    return {"actor_id": None if role else note.speaker, "role": role}


def _event(versions: Sequence[Note], number: int) -> Plain:
    note = versions[number]
    return {
        "id": note.id, "memory_id": versions[0].id, "old_memory": versions[number - 1].text if number else None,
        "new_memory": note.text, "event": "UPDATE" if number else "ADD", "created_at": versions[0].created_at,
        "updated_at": note.created_at, "is_deleted": False, **_speaker(note),
    }  # fmt: skip
