"""Files of text in a memory: each is a note, an edit is a newer version of it, and recall finds what they say.

Paths begin with /memories and stand in the note's session. What is shown of a file or a folder has a budget; lines that
are left out are named, so that they can be asked for.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any

from retcon import Note
from retcon.errors import InputError
from retcon.integrations.keeper import Keeper, shorten

ROOT = "/memories"
DEPTH = 2  # levels of a folder that are listed
WIDTH = 6  # of a line number
_FILE = {"file": True}


class Files:
    """The files of one scope, under the budget of its keeper."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper, self._memory = keeper, keeper.memory

    def view(self, path: str, lines: tuple[int, int] | None = None) -> str:
        """The numbered lines of a file, or of these lines of it; the paths in a folder."""
        path = _check(path)
        note = self._find(path)
        return self._list(path) if note is None else self._show(path, _text(note), lines)

    def create(self, path: str, text: str) -> str:
        """A new file; one that is there is not overwritten."""
        path = self._check_free(path)
        self._memory.add(text if _spoken(text) else path, session=path, metadata=_about(text), **self._keeper.ids)
        return f"File created successfully at: {path}"

    def replace(self, path: str, old: str, new: str) -> str:
        """The file with one text in place of another, which must be in there once."""
        path, note = self._get(path)
        text = _text(note)
        places = [at for at in range(len(text)) if text.startswith(old, at)] if old else []
        if len(places) != 1:
            where = (
                f" in lines {', '.join(str(text.count(chr(10), 0, at) + 1) for at in places[:20])}" if places else ""
            )
            raise InputError(f"nothing was replaced: old_str stands in {path} {len(places)} times{where}, not once")
        self._write(note, text.replace(old, new))
        line = text.count("\n", 0, places[0]) + 1
        return f"The memory file has been edited.\n{self._show(path, text.replace(old, new), (line - 2, line + 2))}"

    def insert(self, path: str, line: int, added: str) -> str:
        """The file with a text after that line; 0 is its beginning."""
        path, note = self._get(path)
        lines = _text(note).removesuffix("\n").split("\n") if _text(note) else []
        if not 0 <= line <= len(lines):
            raise InputError(f"insert_line is {line}, and {path} has lines 0 to {len(lines)}")
        lines.insert(line, added.rstrip("\n"))
        self._write(note, "\n".join(lines) + "\n")
        return f"The file {path} has been edited."

    def delete(self, path: str) -> str:
        """The file, or every file of the folder, gone with all its versions."""
        path = _check(path)
        found = self._below(path)
        if path == ROOT:
            raise InputError(f"{ROOT} itself stays: delete what is in it")
        if not found:
            raise InputError(f"the path {path} does not exist")
        self._memory.delete([note.id for note in found])
        return f"Successfully deleted {path}"

    def rename(self, old: str, new: str) -> str:
        """The file, or the folder with its files, under another path."""
        old = _check(old)
        found = self._below(old)
        if not found:
            raise InputError(f"the path {old} does not exist")
        new = self._check_free(new)
        if old == ROOT or new.startswith(f"{old}/"):
            raise InputError(f"{old} cannot be moved to {new}")
        for note in found:
            self._write(note, _text(note), session=new + (note.session or "").removeprefix(old))
        return f"Successfully renamed {old} to {new}"

    def clear(self) -> str:
        """All files of the scope, gone."""
        self._memory.delete([note.id for note in self._all()])
        return "All memory cleared"

    def _find(self, path: str) -> Note | None:
        found = self._memory.get_all(session=path, metadata=_FILE, limit=1, **self._keeper.ids)
        return found[0] if found else None

    def _get(self, path: str) -> tuple[str, Note]:
        path = _check(path)
        note = self._find(path)
        if note is None:
            why = "is not a file" if self._below(path) or path == ROOT else "does not exist"
            raise InputError(f"the path {path} {why}")
        return path, note

    def _all(self) -> list[Note]:
        return self._memory.get_all(metadata=_FILE, **self._keeper.ids)

    def _below(self, path: str) -> list[Note]:
        """The file of that path, or the files in the folder."""
        return [note for note in self._all() if f"{note.session}/".startswith(f"{path}/")]

    def _check_free(self, path: str) -> str:
        """The path, where neither it nor a folder of it is a file."""
        path = _check(path)
        if path == ROOT:
            raise InputError(f"{path} is a folder")
        for note in self._all():
            if f"{note.session}/".startswith(f"{path}/"):
                raise InputError(f"{path} already exists")
            if path.startswith(f"{note.session}/"):
                raise InputError(f"{note.session} is a file, and holds no other files")
        return path

    def _write(self, note: Note, text: str, session: str | None = None) -> None:
        shown = text if _spoken(text) else session or note.session or ROOT
        self._memory.supersede(note.id, shown, session=session, metadata=_about(text))

    def _list(self, path: str) -> str:
        found = sorted(self._below(path), key=lambda note: note.session or "")
        if not found and path != ROOT:
            raise InputError(f"the path {path} does not exist")
        head = f"Here're the files and directories up to {DEPTH} levels deep in {path}, excluding hidden items:\n{path}"
        rows = _entries(path, [note.session or "" for note in found])
        return self._fit(head, rows, lambda number: f"({len(rows) - number + 1} more: view a folder of it)")

    def _show(self, path: str, text: str, lines: tuple[int, int] | None) -> str:
        every = text.split("\n")
        first, last = (1, -1) if lines is None else lines
        first, last = max(first, 1), len(every) if last == -1 else min(last, len(every))
        rows = [f"{number:>{WIDTH}}\t{every[number - 1]}" for number in range(first, last + 1)]
        head = f"Here's the content of {path} with line numbers:"
        return self._fit(head, rows, lambda number: f"(more: view_range [{number}, {last}])", first)

    def _fit(self, head: str, rows: list[str], more: Callable[[int], str], first: int = 1) -> str:
        """Head and rows within the budget, and what to ask for where some were left out; one long row is cut."""
        count, shown = self._memory.count, [head]
        room = self._keeper.budget - count(head) - count(f"\n{more(10**WIDTH)}")
        for number, row in enumerate(rows, first):
            cost = count(f"\n{row}")
            if cost > room:
                cut = shorten(row, "", room, self._memory) if number == first and room > 0 else ""
                shown += [cut, more(number + 1)] if cut else [more(number)]
                break
            room -= cost
            shown.append(row)
        text = "\n".join(shown)
        return text if count(text) <= self._keeper.budget else ""


def _check(path: str) -> str:
    """The path, written in one way only; one that leads out of the root is refused."""
    clean = posixpath.normpath(path)
    if clean != ROOT and not clean.startswith(f"{ROOT}/"):
        raise InputError(f"a path begins with {ROOT}, and {path[:100]!r} does not")
    return clean


def _spoken(text: str) -> bool:
    return bool(text) and not text.isspace()


def _about(text: str) -> dict[str, Any]:
    """The metadata of a file; a note cannot be blank, so blank text stands there."""
    return _FILE if _spoken(text) else {**_FILE, "blank": text}


def _text(note: Note) -> str:
    return str(note.metadata.get("blank", note.text))


def _entries(folder: str, paths: list[str]) -> list[str]:
    """Files and folders below the folder, as deep as they are listed, hidden ones left out."""
    found: set[str] = set()
    for path in paths:
        parts = path.removeprefix(f"{folder}/").split("/")
        shown = next((at for at, part in enumerate(parts) if part.startswith(".")), len(parts))
        found |= {"/".join(parts[:end]) + ("/" if end < len(parts) else "") for end in range(1, min(shown, DEPTH) + 1)}
    return [f"{folder}/{each}" for each in sorted(found)]
