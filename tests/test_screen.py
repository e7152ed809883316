"""A hook may redact or refuse a note before it is stored; whatever it does, nothing is stored in half."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import bytes_of, counted_ids, fixed_clock

from retcon import Memory, Note
from retcon.errors import InputError, RefusedError

pytestmark = pytest.mark.both_stores


def redact(note: Note) -> Note:
    return replace(note, text=re.sub(r"\d{4,}", "[number]", note.text))


def open_memory(path: Path, hook: Any) -> Memory:
    return Memory(path, before_store=hook, now=fixed_clock, new_id=counted_ids())


WRITES: dict[str, Callable[[Memory, str], object]] = {
    "add": lambda memory, text: memory.add(text, user_id="ann"),
    "add many": lambda memory, text: memory.add(["harmless", text], user_id="ann"),
    "supersede": lambda memory, text: memory.supersede("old", text),
    "load": lambda memory, text: memory.load(['{"text": "harmless"}', f'{{"text": "{text}"}}']),
}


def with_a_note(path: Path) -> None:
    with open_memory(path, None) as memory:
        memory.add("the old code", id="old")


@pytest.mark.parametrize("write", WRITES)
def test_what_is_redacted_never_reaches_the_file(path: Path, write: str) -> None:
    with_a_note(path)
    with open_memory(path, redact) as memory:
        WRITES[write](memory, "the code is 471147")
        assert memory.get_all()[-1].text == "the code is [number]"
        assert memory.search("471147") == []
        assert b"471147" not in bytes_of(path)
        assert memory.check().problems == ()


def say_why(note: Note) -> Note:
    if "secret" in note.text:
        raise RefusedError("it holds a secret")
    return note


def say_nothing(note: Note) -> Note | None:
    return None if "secret" in note.text else note


def fail(note: Note) -> Note:
    if "secret" in note.text:
        raise LookupError("the hook's own fault")
    return note


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("hook", "kind", "told"), [
    (say_why, RefusedError, "was refused: it holds a secret; nothing was stored"),
    (say_nothing, RefusedError, "was refused: before_store returned None; nothing was stored"),
    (fail, LookupError, "the hook's own fault"),
])  # fmt: skip
def test_what_is_refused_stores_nothing(path: Path, write: str, hook: Any, kind: type[Exception], told: str) -> None:
    with_a_note(path)
    with open_memory(path, hook) as memory:
        before = list(memory.lines())
        with pytest.raises(kind, match=told):
            WRITES[write](memory, "a secret")
        assert list(memory.lines()) == before
        assert memory.check().problems == ()


def test_a_refusal_says_which_note_and_why(path: Path) -> None:
    with open_memory(path, say_why) as memory, pytest.raises(RefusedError) as error:
        memory.add(["fine", "a secret", "fine"])
    assert (error.value.number, error.value.reason, error.value.code) == (2, "it holds a secret", "refused")
    assert str(error.value) == "note 2 was refused: it holds a secret; nothing was stored"


def test_the_hook_gets_the_checked_note_with_its_owner(path: Path) -> None:
    seen: list[Note] = []

    def look(note: Note) -> Note:
        seen.append(note)
        return note

    with open_memory(path, look) as memory:
        (stored,) = memory.add({"role": "user", "content": "a cat"}, user_id="ann", metadata={"k": 1})
        assert seen == [stored]


@pytest.mark.parametrize("name", ["id", "user_id", "agent_id", "run_id", "follows", "supersedes", "created_at"])
def test_the_hook_cannot_give_a_note_to_somebody_else_or_link_it(path: Path, name: str) -> None:
    changes: dict[str, Any] = {name: "2020-01-01" if name == "created_at" else "other"}
    with open_memory(path, lambda note: replace(note, **changes)) as memory:
        with pytest.raises(InputError, match=f"before_store may not change {name} of a note; nothing was stored"):
            memory.add("a cat", user_id="ann")
        assert memory.get_all() == []


@pytest.mark.parametrize(("changes", "told"), [
    ({"text": " "}, "a note needs some text"), ({"text": 3}, "text must be text"),
    ({"metadata": {"k": {1, 2}}}, "metadata must be plain JSON"), ({"timestamp": "May"}, "is not ISO 8601"),
])  # fmt: skip
def test_what_the_hook_returns_is_checked_like_any_note(path: Path, changes: dict[str, Any], told: str) -> None:
    with open_memory(path, lambda note: replace(note, **changes)) as memory:
        with pytest.raises(InputError, match=told):
            memory.add("a cat")
        assert memory.get_all() == []


@pytest.mark.parametrize("returned", ["a text", True, {"text": "x"}])
def test_a_hook_returns_a_note_or_none(path: Path, returned: Any) -> None:
    with (
        open_memory(path, lambda _: returned) as memory,
        pytest.raises(InputError, match="before_store returns a Note or None, not "),
    ):
        memory.add("a cat")


def test_a_hook_may_say_how_long_a_note_is_kept_and_when_it_is_of(path: Path) -> None:
    with open_memory(path, lambda note: replace(note, expires_at="2026-06-01", timestamp="2026-05-01")) as memory:
        (note,) = memory.add("a cat")
        assert (note.expires_at, note.timestamp, note.live) == ("2026-06-01T00:00:00+00:00", "2026-05-01", False)


def test_the_same_note_again_is_no_conflict_with_its_redacted_self(path: Path) -> None:
    with open_memory(path, redact) as memory:
        for _ in range(2):
            memory.add("the code is 4711", id="a")
        assert [note.text for note in memory.get_all()] == ["the code is [number]"]


def test_what_cannot_be_called_is_told_at_once(path: Path) -> None:
    with pytest.raises(InputError, match="before_store is a function from a note to a note or None, not str"):
        open_memory(path, "redact")
