"""Notes -> JSONL -> notes: one JSON object a line, in the order in which notes were added."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from retcon import validate
from retcon.errors import InputError, StoreError
from retcon.note import Note
from retcon.store import Progress
from retcon.store.connections import PRIVATE

NOT_JSONL = (
    """this is JSON, not JSONL, which has one note a line, such as {"text": "..."}: """
    "jq -c '.[]' FILE puts each element of an array on a line of its own; of LoCoMo or LongMemEval, say "
    "retcon bench locomo --folder DIR, or longmemeval-s"
)


def dump(notes: Iterable[Note], *, gaps: bool = False) -> Iterator[str]:
    """The notes as lines. With `gaps` some may be missing, and links to those are left out."""
    written: set[str] = set()
    for note in notes:
        plain = {name: value for name, value in note.to_dict().items() if name != "superseded_by"}
        if gaps:
            written.add(note.id)
            lost = [link for link in ("follows", "supersedes") if plain.get(link, note.id) not in written]
            plain = {name: value for name, value in plain.items() if name not in lost}
        yield json.dumps(plain, ensure_ascii=False, sort_keys=True) + "\n"


def is_one_of(target: Path, file: str) -> bool:
    """Whether the target is the store's file, or one beside it that belongs to it."""
    return any(os.path.realpath(target) == os.path.realpath(file + end) for end in ("", "-wal", "-shm"))


def write(path: Path, lines: Iterable[str], *, progress: Progress | None = None) -> int:
    """How many lines went into the file, which only its owner may read. It appears whole or not at all."""
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        with open(part, "x", encoding="utf-8", newline="\n", opener=_open_private) as file:
            written = 0
            for written, line in enumerate(lines, 1):
                file.write(line)
                if progress is not None:
                    progress(written)
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return written


def parse(lines: Iterable[str], make: Callable[[dict[str, Any]], Note], *, path: str | None = None) -> Iterator[Note]:
    """The notes that `make` makes of the lines' fields; an error names its line, and the file where it has a path."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            note = make(validate.draft(json.loads(line)))
        except (ValueError, RecursionError) as error:  # InputError is a ValueError too
            raise InputError(_tell(error, line, number, path)) from None
        yield note


def _tell(error: Exception, line: str, number: int, path: str | None) -> str:
    """What is wrong with a line, in a line."""
    broken = isinstance(error, json.JSONDecodeError)
    goes_on = isinstance(error, json.JSONDecodeError) and number == 1 and error.pos >= len(line.rstrip())
    if _is_document(line.strip(), goes_on=goes_on):
        return f"line {number}: {NOT_JSONL}"
    if broken:
        return f"line {number}{f' of {path}' if path else ''} is not JSON; each line must hold one note"
    return f"line {number}: {str(error).splitlines()[0]}"


def _is_document(line: str, *, goes_on: bool) -> bool:
    """Whether the line is an array, or the beginning of a JSON document that goes on in other lines."""
    return line[:1] == "[" or line == "{" or (line[:1] == "{" and goes_on)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)
