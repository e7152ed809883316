"""A view of the notes that reads ahead: a question to a server takes time, so it asks few, for all that comes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.language import Language
from retcon.note import Filter, Scope
from retcon.store import Facts, Postings, TermStats, postings, seal
from retcon.store.database import IN, Database, Many
from retcon.store.rows import conditions
from retcon.store.snapshot import SqlSnapshot

AHEAD = 120_000  # entries of posting lists that are read at once; a search reads as many in any case
LATER = 20_000  # the same of terms that were looked up later, most of which nobody asks for

_SCOPES = """
SELECT setting.language, scope.id, scope.notes, scope.length, scope.slots, {more}
FROM setting LEFT JOIN scope ON {named} ORDER BY scope.user_id, scope.agent_id, scope.run_id
"""
# Of few scopes: whether a note may expire, and plans that are kept, as to plan over the index's parts takes longer than
# to read it. Both last for this view.
_OF_FEW = """
EXISTS (SELECT 1 FROM note WHERE note.scope = scope.id AND note.expires_at IS NOT NULL),
set_config('plan_cache_mode', 'force_generic_plan', true)
"""
_CANDIDATES = """
SELECT doc.slot, doc.length, doc.terms, doc.passages, note.speaker, note.session
FROM doc JOIN note ON note.seq = doc.note WHERE doc.scope = ? AND doc.slot
"""


def open_view(connection: Database, scope: Scope) -> tuple[Language, list[tuple[int, int, int, int]], bool]:
    """The store's language, the rows of the scopes, and whether a note of them may expire, in one statement."""
    where, values = conditions(scope, Filter())
    query = _SCOPES.format(more="true" if scope.user_id is None else _OF_FEW, named=" AND ".join(where))
    rows = connection.execute(query, values).fetchall()
    held = [row for row in rows if row[1] is not None]
    return seal.find_language(rows[0][0]), [row[1:5] for row in held], any(row[5] for row in held)


class AheadSnapshot(SqlSnapshot):
    """The same view, read in few statements."""

    def __init__(self, *given: Any, expiring: bool = True, **options: Any) -> None:
        super().__init__(*given, **options)
        self._expiring = expiring
        self._facts: dict[int, tuple[str | None, tuple[int, str] | None]] = {}  # slot -> speaker and session, as read
        self._long: dict[int, bytes] = {}  # slot -> passages of a long note, as read
        self._blocks: dict[tuple[int, int], list[bytes]] = {}  # scope and term -> its blocks, as read
        self._asked: list[Sequence[int]] = []  # terms, as they were asked for together

    # -- candidates --------------------------------------------------------------------------------------------------

    def facts(self, slots: Sequence[int]) -> Facts:
        """Who said each note, and in which session."""
        self._read_candidates(slots)
        if any(slot not in self._facts for slot in slots):  # corrected notes are in no index
            return super().facts(slots)
        found = [self._facts[slot] for slot in slots]
        return Facts([each[0] for each in found], [each[1] for each in found])

    def _passage_rows(self, slots: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
        self._read_candidates(slots.tolist())
        return ((slot, self._long[slot]) for slot in slots.tolist() if slot in self._long)

    def _read_candidates(self, slots: Sequence[int]) -> None:
        """Read all that will be asked of candidates: what the index has of them, and who said them."""
        for scope, local in self._by_scope([slot for slot in slots if slot not in self._facts]):
            start = self._start[scope]
            for slot, length, terms, passages, speaker, session in self._rows_of(_CANDIDATES, scope, local):
                self._docs[start + slot] = length, terms
                self._facts[start + slot] = speaker, None if session is None else (scope, session)
                if passages is not None:
                    self._long[start + slot] = passages

    def _unexpired(self, now: str | None) -> NDArray[np.bool_] | None:
        return super()._unexpired(now) if self._expiring else None

    # -- posting lists -----------------------------------------------------------------------------------------------

    def terms(self, keys: Sequence[int]) -> Mapping[int, TermStats]:
        """Frequency and bounds of those terms that occur."""
        found = super().terms(keys)
        self._asked.append(list(found))
        return found

    def _list(self, scope: int, key: int, tail: bytes, df: int) -> Iterator[Postings]:
        if not postings.is_whole(tail, df):
            self._read_blocks(key)
            yield from map(postings.decode, self._blocks.get((scope, key), ()))
        if tail:
            yield postings.decode_tail(tail)

    def _read_blocks(self, key: int) -> None:
        """Read the blocks of the term, unless they were, and of those that a search asks for after it."""
        if all((scope, key) in self._blocks for scope, _, _ in self._rows[key]):
            return
        keys = self._next_keys(key)
        self._blocks |= {(scope, each): [] for each in keys for scope, _, _ in self._rows[each]}
        one = len(self._ids) == 1
        where, whose = ("scope = ?", self._ids[0]) if one else (f"scope {IN}", Many(self._ids))
        query = f"SELECT scope, term, data FROM block WHERE {where} AND term {IN} ORDER BY scope, term, first"
        for scope, term, data in self._connection.execute(query, (whose, Many(keys))):
            self._blocks[scope, term].append(data)

    def _next_keys(self, key: int) -> list[int]:
        """The term, and from rare to common those that were looked up with it, up to so many entries in all."""
        at = next(number for number, keys in enumerate(self._asked) if key in keys)
        stats = {each: known for each in self._asked[at] if (known := self._terms[each]) is not None}
        left, keys = (AHEAD if at == 0 else LATER) - stats[key].df, [key]
        for each in sorted(stats, key=lambda each: _rank(stats, each)):
            if _rank(stats, each) > _rank(stats, key):
                left -= stats[each].df
                if left < 0:
                    break
                keys.append(each)
        return keys

    def _rows_of(self, query: str, scope: int, values: Sequence[int]) -> Iterable[Any]:
        return self._connection.execute(f"{query} {IN}", (scope, Many(values))).fetchall()  # quicker than one by one


def _rank(stats: dict[int, TermStats], key: int) -> tuple[int, int]:
    """The order in which a search reads terms."""
    return stats[key].df, key
