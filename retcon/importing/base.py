"""What a reader works on and what it gives: values that know where in the file they stand, and what was found there."""

from __future__ import annotations

import codecs
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from retcon.errors import InputError, quote

MOST_BYTES = 2 * 2**30  # of a file inside a zip, unpacked
CONVERSATIONS = re.compile(r"conversations(?:-\d++)?+\.json")  # the chats, in a zip of an export, in any folder
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a file is to be read."""

    name: str = "the file"
    namespace: str | None = None
    all_branches: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing to remember, as the file has it."""

    place: str  # in the file
    text: str
    source_id: str | None = None  # its id there
    fields: Mapping[str, Any] = field(default_factory=dict)  # of the note: speaker, session, timestamp, user_id, ...
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """One thing that is left out, and what it is."""

    what: str


@dataclass(frozen=True, slots=True)
class Json:
    """A value of a file, and where it stands."""

    value: Any
    place: str

    def wrong(self, wanted: str) -> InputError:
        """The error that something else was expected here."""
        kind = _KINDS.get(type(self.value), "a number")
        return InputError(f"{self.place} is {kind}, and should be {wanted}")

    @property
    def none(self) -> bool:
        """Whether nothing is here."""
        return self.value is None

    def get(self, *names: str) -> Json:
        """What an object has under the first of these names that it has, or null."""
        plain = self.object()
        name = next((each for each in names if plain.get(each) is not None), names[0])
        return Json(plain.get(name), f"{self.place}.{name}")

    def object(self) -> dict[str, Any]:
        """The object here."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def mapping(self) -> dict[str, Any]:
        """The object here; of null, an empty one."""
        return {} if self.value is None else self.object()

    def items(self) -> Iterator[Json]:
        """The values of the list here; of null, none."""
        if not isinstance(self.value, list | None):
            raise self.wrong("a list")
        return (Json(each, f"{self.place}.{number}") for number, each in enumerate(self.value or ()))

    def text(self) -> str | None:
        """The text here, or None for null."""
        if not isinstance(self.value, str | None):
            raise self.wrong("text")
        return self.value

    def id(self) -> str | None:
        """An id here, or None for null; a number counts as its digits."""
        number = isinstance(self.value, int) and not isinstance(self.value, bool)
        return str(self.value) if number else self.text() or None

    def words(self) -> str:
        """The text here, which must be some."""
        found = self.text()
        if found is None or not found.strip():
            raise self.wrong("some text") if found is None else InputError(f"{self.place} is empty")
        return found


def read_documents(data: bytes, name: str, *, lines: bool) -> Iterator[Json]:
    """The JSON of a file: of JSONL a document a line, of a zip its chats."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        yield from _read_zip(data, name)
    elif lines:
        for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
            if line.strip():
                yield Json(_parse(line, f"{name}, line {number}"), f"{name}, line {number}")
    else:
        yield Json(_parse(data, name), name)


def _read_zip(data: bytes, name: str) -> Iterator[Json]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            inside = sorted(
                (each for each in opened.infolist() if CONVERSATIONS.fullmatch(each.filename.rpartition("/")[2])),
                key=_order,
            )
            if not inside:
                raise InputError(f"{name} is a zip without a conversations.json")
            for each in inside:
                place = f"{name}:{each.filename}"
                if each.file_size > MOST_BYTES:
                    raise InputError(f"{place} has {each.file_size:,} bytes unpacked, {MOST_BYTES:,} are read at most")
                yield Json(_parse(opened.read(each), place), place)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise InputError(f"{name} is a zip that cannot be read: {str(error).splitlines()[0]}") from None


def _order(each: zipfile.ZipInfo) -> tuple[int, str]:
    return len(each.filename), each.filename


def _parse(data: bytes, place: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{place} is not UTF-8 at byte {error.start:,}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{place} is not JSON at line {error.lineno} column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is JSON that cannot be read: {quote(str(error))}") from None


def joined(parts: Json) -> str:
    """The texts of a content, which is text or a list of parts; parts that are no text are passed over."""
    if not isinstance(parts.value, list):
        return parts.text() or ""
    texts = [each.get("text") if isinstance(each, dict) else each for each in parts.value]
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
