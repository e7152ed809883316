"""What was found in a file -> notes, each once, in one transaction.

The id of a note follows from where it came from, whose it is, and its id there; where it has none, from its words, who
said them, when and where. So a file that is imported again stores nothing, and one that has grown stores what is new.
Where a text has changed under the same id, the new one is a correction: the older version stays in its history.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from retcon import validate
from retcon.errors import InputError, NotFoundError, RefusedError
from retcon.grant import IDS
from retcon.importing.base import Found, Skipped
from retcon.memory import Memory
from retcon.note import Note
from retcon.screen import screen
from retcon.store import Progress

HALF = re.compile("[\ud800-\udfff]")  # half characters, of which exports have some


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import, or would."""

    source: str
    added: int
    updated: int  # of them, corrections of notes that an earlier import stored
    known: int  # there already
    skipped: Mapping[str, int] = field(default_factory=dict)  # what was left out, and how often
    scopes: Sequence[Mapping[str, Any]] = ()  # whose the new notes are: user_id, agent_id, run_id, notes
    sessions: int = 0  # of the new notes
    first: str | None = None  # when the oldest of them is of
    last: str | None = None
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"skipped": dict(self.skipped), "scopes": [dict(each) for each in self.scopes]}


def store(
    memory: Memory,
    found: Sequence[Found | Skipped],
    source: str,
    *,
    whose: Mapping[str, str | None],
    dry_run: bool,
    progress: Progress | None = None,
) -> Imported:
    """What was stored of what was found, or with `dry_run` what would be."""
    items = [each for each in found if isinstance(each, Found)]
    notes = list(_notes(memory, items, source, whose))
    new, known = _compare(memory, source, notes)
    if new and not dry_run:
        memory.load((json.dumps(_line(note), ensure_ascii=False) for note in new), progress=progress)
    skipped = Counter(each.what for each in found if isinstance(each, Skipped))
    times = sorted(note.timestamp for note in new if note.timestamp is not None)
    return Imported(
        source, len(new), sum(note.supersedes is not None for note in new), known, dict(skipped.most_common()),
        _scopes(new), len({note.session for note in new} - {None}),
        times[0] if times else None, times[-1] if times else None, dry_run,
    )  # fmt: skip


def _notes(memory: Memory, items: Sequence[Found], source: str, whose: Mapping[str, str | None]) -> Iterator[Note]:
    """The notes as they would be stored, every field checked; the memory's hook has its say here as well."""
    seen: Counter[str] = Counter()
    shared = {name: value for name, value in whose.items() if value is not None}
    for each in items:
        metadata = {**each.metadata, "source": source} | ({"source_id": each.source_id} if each.source_id else {})
        draft = {"id": "new", "text": HALF.sub("\ufffd", each.text), **shared, **each.fields, "metadata": metadata}
        try:
            (note,) = screen([validate.note(draft, created_at=validate.utc(memory.now()))], memory.before_store)
        except RefusedError as error:
            raise RefusedError(f"{each.place}: {error.reason}") from error
        except InputError as error:
            raise InputError(f"{each.place}: {error}") from None
        said = [note.session, note.speaker, note.timestamp, note.text]
        where = [source, *(getattr(note, name) for name in IDS)]
        name = _hash(where + ([each.source_id] if each.source_id else said))
        seen[name] += 1
        again = [] if each.source_id or seen[name] == 1 else [seen[name]]  # word for word the same, said once more
        yield _renamed(note, _hash([*where, *said, *again]) if again else name)


def _compare(memory: Memory, source: str, notes: Sequence[Note]) -> tuple[list[Note], int]:
    """Those that are new, with the corrections among them, and how many are there already."""
    new: list[Note] = []
    versions: dict[str, dict[str, str]] = {}  # of each note, text -> id, the newest last
    for note in notes:
        if note.id not in versions:
            versions[note.id] = _versions(memory, note.id)
        known = versions[note.id]
        if note.text in known:
            continue
        newest = list(known.values())[-1] if known else None
        made = _renamed(note, note.id if newest is None else _hash([source, note.id, note.text]), newest)
        known[note.text] = made.id
        new.append(made)
    return new, len(notes) - len(new)


def _versions(memory: Memory, note_id: str) -> dict[str, str]:
    with suppress(NotFoundError):
        return {note.text: note.id for note in memory.history(note_id)}
    return {}


def _renamed(note: Note, note_id: str, supersedes: str | None = None) -> Note:
    fields = {name: getattr(note, name) for name in Note.__slots__ if name != "superseded_by"}
    return Note(**{**fields, "id": note_id, "supersedes": supersedes})


def _line(note: Note) -> dict[str, Any]:
    """The note as `Memory.load` reads it; when it was stored is for the store to say."""
    return {name: value for name, value in note.to_dict().items() if name not in ("created_at", "live")}


def _scopes(notes: Sequence[Note]) -> list[dict[str, Any]]:
    counts = Counter(tuple(getattr(note, name) for name in IDS) for note in notes)
    return [
        {name: value for name, value in zip(IDS, ids, strict=True) if value is not None} | {"notes": number}
        for ids, number in counts.most_common()
    ]


def _hash(parts: Sequence[Any]) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16, person=b"retcon import").hexdigest()
