"""What a caller of a server may see. Every protocol keeps callers apart by these rules.

A note outside of a grant does not exist for its caller: the same error, word for word, as for an id that nobody has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, fields

from retcon import validate
from retcon.errors import InputError, NotFoundError
from retcon.note import Note, Scope

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

    def name(self, given: str) -> str:
        """The id under which a note is stored that this caller calls so.

        Ids are unique in a store. If callers shared them, an id that is taken would tell of somebody else's note: so
        each scope has names of its own.
        """
        checked = validate.note_id(given)
        if self.admin:
            return checked
        whole = json.dumps([*astuple(self.scope), checked]).encode()
        return hashlib.blake2b(whole, digest_size=16, person=b"retcon id").hexdigest()

    def find(self, note_id: str, get: Callable[[str], Note]) -> Note:
        """The caller's note of that id, or of that name of its own."""
        for each in dict.fromkeys((note_id, self.name(note_id))):
            with suppress(NotFoundError):
                if self.covers(note := get(each)):
                    return note
        raise NotFoundError(note_id)


EVERYTHING = Grant("", Scope(), admin=True)


def bound_to(scope: Scope) -> Grant:
    """The grant of one scope; of no ids at all, everything."""
    return EVERYTHING if scope == Scope() else Grant("", scope)
