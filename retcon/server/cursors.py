"""Where a page ended, as a string that only the server can read.

A cursor holds a place in the order of all notes, so it goes on right whatever was deleted meanwhile. In clear, that
number would tell a caller how much others write: it is sealed with the server's secret, for one scope and one list.
In another order, or under other filters, the place would be a wrong one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import astuple, dataclass

from retcon.errors import InputError
from retcon.grant import Grant

_TAG, _PLACE = 16, 8  # bytes


@dataclass(frozen=True, slots=True)
class Cursors:
    """Places as cursors, and back."""

    secret: bytes

    def write(self, grant: Grant, listed: str, place: int) -> str:
        """The cursor of a place in what is `listed`.

        The tag is a keyed hash of it, and what hides the place is a keyed hash of the tag.
        """
        plain = place.to_bytes(_PLACE, "big")
        tag = self._tag(grant, listed, plain)
        return base64.urlsafe_b64encode(tag + _xor(plain, self._mask(tag))).decode()

    def read(self, grant: Grant, listed: str, cursor: str) -> int:
        """The place of a cursor that was written for the same scope and list."""
        try:
            sealed = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:
            sealed = b""
        tag, hidden = sealed[:_TAG], sealed[_TAG:]
        plain = _xor(hidden, self._mask(tag))
        if len(hidden) != _PLACE or not secrets.compare_digest(tag, self._tag(grant, listed, plain)):
            raise InputError("this server gave no such cursor for this list: order, filters and key must be the same")
        return int.from_bytes(plain, "big")

    def _tag(self, grant: Grant, listed: str, plain: bytes) -> bytes:
        whole = plain + json.dumps([*astuple(grant.scope), listed]).encode()
        return hashlib.blake2b(whole, key=self.secret, digest_size=_TAG, person=b"retcon cursor").digest()

    def _mask(self, tag: bytes) -> bytes:
        return hashlib.blake2b(tag, key=self.secret, digest_size=_PLACE, person=b"retcon place").digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))
