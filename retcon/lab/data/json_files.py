"""Files that others wrote -> plain JSON values, or one line that says what is wrong and where."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

from retcon.errors import InputError

_STEP = 1 << 16  # characters read at once, doubled while an element goes on


def elements(path: Path) -> Iterator[tuple[str, Any]]:
    """Each element of the file's JSON array and the place where it stands.

    One at a time: LongMemEval's larger file has 2.7 GB.
    """
    with _open(path) as file:
        for number, value in enumerate(_array(file.read), 1):
            yield f"{path}, element {number}", value


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The JSON value of each line that is not blank, and the place where it stands."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                place = f"{path}, line {number}"
                with locate_errors(place):
                    value = _decode(line)
                yield place, value


@contextmanager
def locate_errors(place: str) -> Iterator[None]:
    """Puts the place in front of an input error that is raised within."""
    try:
        yield
    except InputError as error:
        raise InputError(_line(f"{place}: {error}")) from None


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:  # "\n" alone ends a line: JSON text may hold others
            yield file
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(str(path)) else _line(f"{path}: {message}")) from None
    except UnicodeDecodeError as error:
        raise InputError(_line(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}")) from None
    except OSError as error:
        raise InputError(_line(f"cannot read {path}: {error.strerror or error}")) from None
    except ValueError as error:  # a path with a NUL
        raise InputError(_line(f"cannot read {path}: {error}")) from None


def _array(read: Callable[[int], str]) -> Iterator[Any]:
    rest = _ahead(read, "")
    if not rest.startswith("["):
        raise InputError("not a JSON array")
    rest = _ahead(read, rest[1:])
    first = True
    while not rest.startswith("]"):
        if not first:
            if not rest.startswith(","):
                raise InputError("the JSON array is cut off" if not rest else "not a JSON array: a comma is missing")
            rest = _ahead(read, rest[1:])
        value, rest = _element(read, rest)
        yield value
        rest, first = _ahead(read, rest), False
    if _ahead(read, rest[1:]):
        raise InputError("text stands after the end of the JSON array")


def _ahead(read: Callable[[int], str], rest: str) -> str:
    """The text from its first visible character on; empty only at the end of the file."""
    while not (rest := rest.lstrip(" \t\r\n")) and (more := read(_STEP)):
        rest = more
    return rest


def _element(read: Callable[[int], str], rest: str) -> tuple[Any, str]:
    """The value at the start of the text, and the text after it."""
    step = _STEP
    while True:
        try:
            with _decoding():
                value, end = _DECODER.raw_decode(rest)
            return value, rest[end:]
        except json.JSONDecodeError as error:
            more = read(step)
            if not more:
                raise InputError(f"not JSON, or cut off: {error.msg}") from None
            rest, step = rest + more, 2 * step


def _decode(line: str) -> Any:
    try:
        with _decoding():
            return _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} at character {error.pos + 1}") from None


@contextmanager
def _decoding() -> Iterator[None]:
    """Makes input errors of what JSON allows and Python does not read."""
    try:
        yield
    except (json.JSONDecodeError, InputError):
        raise
    except RecursionError:
        raise InputError("nested too deeply to be read") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"not readable: {error}") from None


def _refuse(constant: str) -> NoReturn:
    raise InputError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def record(value: object, what: str = "a JSON object") -> Mapping[str, Any]:
    """The value, where it is a JSON object."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} is needed here, not {_kind(value)}")
    return value


def text(fields: Mapping[str, Any], name: str) -> str:
    """The text under that name, not blank; a lone half of a surrogate pair, which no note may hold, becomes "?"."""
    value = _require(fields, name)
    if not isinstance(value, str):
        raise InputError(f"{name!r} must be text, not {_kind(value)}")
    if not value.strip():
        raise InputError(f"{name!r} is empty")
    return mend_surrogates(value)


def answer(fields: Mapping[str, Any], name: str = "answer") -> str:
    """The text or number under that name, as text."""
    value = _require(fields, name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return text(fields, name)


def items(fields: Mapping[str, Any], name: str) -> list[Any]:
    """The list under that name."""
    value = _require(fields, name)
    if not isinstance(value, list):
        raise InputError(f"{name!r} must be a list, not {_kind(value)}")
    return value


def mend_surrogates(value: str) -> str:
    """The text with every lone half of a surrogate pair replaced."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _require(fields: Mapping[str, Any], name: str) -> Any:
    if fields.get(name) is None:
        raise InputError(f"{name!r} is missing")
    return fields[name]


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null" if value is None else type(value).__name__)


def _line(message: str) -> str:
    return " ".join(message.split())
