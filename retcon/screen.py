"""What the owner of a memory says about a note before it is stored: as it is, changed, or refused.

    def hide_numbers(note):
        return replace(note, text=re.sub(r"\\d{4,}", "[number]", note.text))

    Memory("agent.db", before_store=hide_numbers)

The hook gets every note of an add, a correction or a load, before anything is written. It returns the note, or a
changed copy; None refuses it, and so does a RefusedError, which can say why. Whatever it raises, nothing is stored.
Whose note it is and what it is linked to are not the hook's to change: other callers are kept apart by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from retcon import validate
from retcon.errors import InputError, RefusedError
from retcon.note import Note

Hook = Callable[[Note], Note | None]
FIXED = ("id", "user_id", "agent_id", "run_id", "follows", "supersedes", "superseded_by", "created_at")


def screen(notes: Iterable[Note], hook: Hook | None) -> Iterator[Note]:
    """The notes as the hook lets them pass; without one as they are."""
    if hook is None:
        yield from notes
    else:
        for number, note in enumerate(notes, 1):
            yield _pass(note, hook, number)


def _pass(note: Note, hook: Hook, number: int) -> Note:
    try:
        passed = hook(note)
    except RefusedError as error:
        raise RefusedError(error.reason, number) from error
    if passed is None:
        raise RefusedError("before_store returned None", number)
    if not isinstance(passed, Note):
        raise InputError(f"before_store returns a Note or None, not {type(passed).__name__}; nothing was stored")
    if changed := [name for name in FIXED if getattr(passed, name) != getattr(note, name)]:
        raise InputError(f"before_store may not change {changed[0]} of a note; nothing was stored")
    fields = {name: getattr(passed, name) for name in Note.__slots__}
    return validate.note(fields, created_at=note.created_at or "")


def check_hook(given: Hook | None) -> Hook | None:
    """The hook, if it can be called."""
    if given is not None and not callable(given):
        raise InputError(f"before_store is a function from a note to a note or None, not {type(given).__name__}")
    return given
