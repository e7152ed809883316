"""What a caller of a server may see. Every protocol keeps callers apart by these rules.

A note outside of a grant does not exist for its caller: the same error, word for word, as for an id that nobody has.

Two grants cross where they share notes and neither holds all of the other's: user ann and agent A9 cross in the notes
of ann with A9, and there each could put words into the other's memory. Grants that cross are not given out together.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields, replace
from itertools import combinations
from typing import TypeVar, Unpack

from retcon import deadline, validate
from retcon.errors import ConflictError, InputError, NotFoundError
from retcon.note import Note, Scope
from retcon.where import Where, WhereWords

T = TypeVar("T")

IDS = tuple(each.name for each in fields(Scope))  # user_id, agent_id, run_id


class OutsideError(InputError):
    """A scope was named that the caller has no part in, whether it exists or not."""

    code = "scope"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may see: the notes of one scope, or with `admin` everything."""

    id: str
    scope: Scope
    admin: bool = False
    names: Scope | None = None  # whose names of notes it goes by, where it is a part of that

    def part(self, asked: Scope) -> Grant:
        """The part of it that was asked for; notes have the same names there."""
        return replace(self, scope=self.narrow(asked), names=self.names or self.scope)

    def covers(self, note: Note) -> bool:
        """Whether the note is one that this caller may know of."""
        return all((bound := getattr(self.scope, name)) is None or getattr(note, name) == bound for name in IDS)

    def narrow(self, asked: Scope) -> Scope:
        """The scope that was asked for, within what is granted; asking for another's is refused, there or not."""
        for name in IDS:
            bound, wanted = getattr(self.scope, name), getattr(asked, name)
            if bound is not None and wanted is not None and wanted != bound:
                raise OutsideError(f"this key is bound to another {name}")
        return Scope(*(getattr(self.scope, name) or getattr(asked, name) for name in IDS))

    def where(self, **words: Unpack[WhereWords]) -> Where:
        """Which notes a request is about: those that its words describe, within what is granted."""
        self.narrow(validate.scope(*(words.get(name) for name in IDS)))  # told before all else that is wrong
        asked = Where.of(**words)
        return replace(asked, scope=self.narrow(asked.scope))  # filters name ids too

    def name(self, given: str) -> str:
        """The id under which a note is stored that this caller calls so.

        Ids are unique in a store. If callers shared them, an id that is taken would tell of somebody else's note: so
        each grant has names of its own, which its parts share.
        """
        checked = validate.note_id(given)
        if self.admin:
            return checked
        whole = json.dumps([*astuple(self.names or self.scope), checked]).encode()
        return hashlib.blake2b(whole, digest_size=16, person=b"retcon id").hexdigest()

    def find(self, note_id: str, get: Callable[[str], Note]) -> Note:
        """The caller's note of that id, or of that name of its own."""
        for each in dict.fromkeys((note_id, self.name(note_id))):
            with suppress(NotFoundError):
                if self.covers(note := get(each)):
                    return note
        raise NotFoundError(note_id)

    def versions(self, note: Note, get: Callable[[str], Note], *, after: str | None = None) -> Iterator[Note]:
        """The caller's versions of the note, oldest first; those after the one with the id `after`, where it is one.

        Corrections form a chain, which is walked link by link: there may be more of them than fit into memory.
        """
        at: str | None = self._next(after, get) if after is not None else _oldest(note, get)
        while at is not None:
            deadline.check()
            version = get(at)
            if self.covers(version):
                yield version
            at = version.superseded_by

    def _next(self, after: str, get: Callable[[str], Note]) -> str | None:
        return self.find(after, get).superseded_by


def _oldest(note: Note, get: Callable[[str], Note]) -> str:
    while note.supersedes is not None:
        deadline.check()
        note = get(note.supersedes)
    return note.id


@contextmanager
def own_names(names: Mapping[str, str]) -> Iterator[None]:
    """A block whose conflicts are told with the caller's names of notes, and never with an id that it did not give."""
    try:
        yield
    except ConflictError as error:
        raise error.under(names.get(error.note_id or "")) from None


EVERYTHING = Grant("", Scope(), admin=True)


def bound_to(scope: Scope) -> Grant:
    """The grant of one scope; of no ids at all, everything."""
    return EVERYTHING if scope == Scope() else Grant("", scope)


def find_crossings(held: Iterable[tuple[Scope, T]]) -> Iterator[tuple[T, T]]:
    """Pairs whose scopes cross, found without comparing each with each.

    Scopes that bind different ids, neither's a part of the other's, cross where they agree on the ids that both bind.
    """
    groups: defaultdict[tuple[str, ...], list[tuple[Scope, T]]] = defaultdict(list)
    for scope, who in held:
        groups[tuple(name for name in IDS if getattr(scope, name) is not None)].append((scope, who))
    for ours, theirs in combinations(groups, 2):
        if set(ours) <= set(theirs) or set(theirs) <= set(ours):
            continue
        shared = [name for name in IDS if name in ours and name in theirs]
        first = {_values(scope, shared): who for scope, who in groups[ours]}
        for scope, who in groups[theirs]:
            if _values(scope, shared) in first:
                yield first[_values(scope, shared)], who


def _values(scope: Scope, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(getattr(scope, name) for name in names)
