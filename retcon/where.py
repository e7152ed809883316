"""Whose notes, and which of them: the one value that a question to a memory carries, built once and handed down.

Where.of(user_id="ann", since="2026-05-01")         the caller's words, checked
memory.recall("...", 256, where=where)              or the same words as keywords of the call itself
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Self, TypedDict, Unpack

from retcon import filters, validate
from retcon.errors import InputError
from retcon.habits import KEYWORDS, hint
from retcon.note import Filter, Scope


class ScopeWords(TypedDict, total=False):
    """The keywords that say whose notes."""

    user_id: str | None
    agent_id: str | None
    run_id: str | None


class NoWords(TypedDict):
    """No further keyword: one that comes all the same is named in the error, with what it is called here."""


class WhereWords(ScopeWords, total=False):
    """The keywords that say whose notes, and which of them."""

    session: str | None
    since: str | datetime | None
    until: str | datetime | None
    metadata: Mapping[str, Any] | None
    filters: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Where:
    """Whose notes (`scope`), and which of them (`only`). By default all of everybody's."""

    scope: Scope = field(default_factory=Scope)
    only: Filter = field(default_factory=Filter)

    @classmethod
    def of(cls, **words: Unpack[WhereWords]) -> Self:
        """The value that the keywords describe, each of them checked; one that is None may be anything."""
        _refuse_unknown(words, WhereWords, "Where.of")
        scope = validate.scope(words.get("user_id"), words.get("agent_id"), words.get("run_id"))
        only = validate.only(words.get("session"), words.get("since"), words.get("until"), words.get("metadata"))
        if words.get("filters") is None:
            return cls(scope, only)
        said = filters.read(words["filters"])
        return cls(_narrow(scope, said.scope), replace(only, condition=said.condition))

    def unexpired(self, now: datetime) -> Self:
        """The same notes, without those that have expired by then."""
        return replace(self, only=replace(self.only, now=validate.utc(now)))

    def without(self, ids: Iterable[str]) -> Self:
        """The same notes but those with these ids, which the caller has before it already."""
        listed = tuple(dict.fromkeys(map(validate.note_id, ids)))
        return replace(self, only=replace(self.only, without=listed))


def resolve(where: Where | None, words: WhereWords) -> Where:
    """The caller's `where`, or what the keywords of the same call describe; both at once is an error."""
    _refuse_unknown(words, WhereWords, sys._getframe(1).f_code.co_qualname)
    return _one_of(where, words)


def resolve_scope(where: Where | None, words: ScopeWords) -> Scope:
    """Whose notes, for what works on all notes of a scope: a `where` that also says which of them is refused."""
    _refuse_unknown(words, ScopeWords, sys._getframe(1).f_code.co_qualname)
    found = _one_of(where, words)
    if found.only:
        raise InputError("this is for all notes of a scope: where may not name a session, a time, metadata or filters")
    return found.scope


def _narrow(scope: Scope, asked: Scope) -> Scope:
    """The ids of both, which may not differ."""
    for each in fields(Scope):
        named, filtered = getattr(scope, each.name), getattr(asked, each.name)
        if named is not None and filtered is not None and named != filtered:
            raise InputError(f"{each.name} and filters.{each.name} differ")
    return Scope(*(ours or theirs for ours, theirs in zip(astuple(scope), astuple(asked), strict=True)))


def _one_of(where: Where | None, words: ScopeWords | WhereWords) -> Where:
    if where is None:
        return Where.of(**words)
    if not isinstance(where, Where):
        raise InputError(f"where must be a Where, not {type(where).__name__}: Where.of(user_id=...)")
    if named := [word for word, value in words.items() if value is not None]:
        raise InputError(f"give where or {', '.join(named)}, not both")
    return where


def _refuse_unknown(words: Mapping[str, object], known: type, called: str) -> None:
    refuse_words([word for word in words if word not in known.__annotations__], called)


def refuse_words(unknown: Collection[str], called: str) -> None:
    """Nothing, or the error that Python raises for a keyword which the function does not have."""
    if unknown:
        first = next(iter(unknown))
        told = hint(KEYWORDS, f"{called.rpartition('.')[2]}.{first}")
        raise TypeError(f"{called}() got an unexpected keyword argument {first!r}{told}")
