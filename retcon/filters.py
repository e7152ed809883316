"""The caller's `filters` -> one checked condition, and which notes pass it. The words are Mem0's.

    {"topic": "cats", "created_at": {"gte": "2026-05-01"}}                         every one of them must hold
    {"AND": [{"user_id": "ann"}, {"OR": [{"speaker": "Ann"}, {"pages": {"gt": 3}}]}, {"NOT": [{"topic": "rent"}]}]}

A name is session, speaker, timestamp or created_at; another field of a note is refused, and any other name is a key of
the metadata, which `metadata.KEY` says for certain. A note without the value passes `ne`, `nin` and `{"eq": null}`
alone. Numbers compare with numbers and texts with texts; a bare date is all of that day. user_id, agent_id and run_id
say whose notes: they narrow the scope of the call, so they stand at the top or under AND, where nothing can take them
back.

What is read is bounded, and a note is tested in time that grows with the conditions, not with their values.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from retcon import validate
from retcon.errors import InputError, quote
from retcon.note import Condition, Junction, Scope

MOST = 100  # conditions
DEEPEST = 8  # levels of AND, OR and NOT
MOST_VALUES = 1000  # of all lists together
METADATA = "metadata."

_IDS = ("user_id", "agent_id", "run_id")
_TEXTS = ("session", "speaker")
_TIMES = ("timestamp", "created_at")
_OTHERS = ("id", "text", "follows", "supersedes", "superseded_by", "live", "expires_at")  # fields that are no condition
_EDGES = {"since": "gte", "until": "lte"}  # of the timestamp
JOINS = {f"{sign}{word}": word.lower() for word in ("AND", "OR", "NOT", "and", "or", "not") for sign in ("", "$")}

Check = Callable[["Facts"], bool]


class Facts(NamedTuple):
    """What conditions may ask about a note; times are seconds since 1970."""

    session: str | None
    speaker: str | None
    timestamp: float | None
    created_at: float | None
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """What filters say: whose notes, and which of them."""

    scope: Scope
    condition: Condition | Junction | None


# -- reading -----------------------------------------------------------------------------------------------------------


def read(filters: object) -> Read:
    """What the caller's filters say, every part of them checked; None says nothing."""
    reader = _Reader()
    condition = None if filters is None else reader.read(filters, 1, narrows=True)
    return Read(validate.scope(**reader.ids), condition)


class _Reader:
    """Reads one tree of filters; counts what it has read."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.conditions = self.values = 0

    def read(self, given: object, depth: int, *, narrows: bool) -> Condition | Junction | None:
        """All that one mapping asks for; None where it names ids alone."""
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise InputError(f"filters are a mapping of names to values, not {type(given).__name__}")
        if depth > DEEPEST:
            raise InputError(f"filters may be nested {DEEPEST} levels deep, and these are deeper")
        parts = [part for name, value in given.items() for part in self._entry(name, value, depth, narrows=narrows)]
        return _join("and", parts)

    def _entry(self, name: str, value: object, depth: int, *, narrows: bool) -> Sequence[Condition | Junction]:
        if name in JOINS:
            joined = self._joined(JOINS[name], value, depth, narrows=narrows)
            return [] if joined is None else [joined]
        if name in _IDS:
            self._narrow(name, value, narrows=narrows)
            return []
        if name in _EDGES:
            return [self._condition("timestamp", _EDGES[name], value)]
        if name == "metadata":
            if not isinstance(value, Mapping):
                raise InputError("filters.metadata is an object")
            return [each for key, wanted in value.items() for each in self._named(f"{METADATA}{key}", wanted)]
        if name in _OTHERS or not name:
            what = f"{quote(name)} of a note is no condition" if name else "a name is empty"
            raise InputError(f"filters: {what}; 'metadata.KEY' names a key of the metadata")
        known = name in (*_TEXTS, *_TIMES) or name.startswith(METADATA)
        return self._named(name if known else METADATA + name, value)

    def _joined(self, join: str, value: object, depth: int, *, narrows: bool) -> Junction | Condition | None:
        parts = [value] if isinstance(value, Mapping) and join != "or" else value
        if not isinstance(parts, (list, tuple)) or not parts:
            raise InputError(f"{join.upper()} in filters takes a list of conditions, not {quote(value, 40)}")
        found = [self.read(part, depth + 1, narrows=narrows and join == "and") for part in parts]
        if join != "and" and None in found:
            raise InputError(f"{join.upper()} in filters holds a condition that says nothing")
        return _join(join, [part for part in found if part is not None])

    def _narrow(self, name: str, value: object, *, narrows: bool) -> None:
        """Notes one of the scope's ids, which must be the same wherever it is named."""
        self._count()
        wanted = value.get("eq", value.get("$eq")) if isinstance(value, Mapping) and len(value) == 1 else value
        if not narrows:
            raise InputError(f"{name} in filters stands at the top or under AND: it says whose notes")
        checked = validate.name(f"filters.{name}", wanted)
        if checked is None:
            raise InputError(f"{name} in filters is one id: leave it out to mean any")
        if self.ids.setdefault(name, checked) != checked:
            raise InputError(f"filters name two values of {name}")

    def _named(self, name: str, value: object) -> list[Condition | Junction]:
        """The conditions on one name: a plain value, or operators with theirs."""
        shown = name.removeprefix(METADATA)
        if isinstance(value, (list, tuple)):
            raise InputError(f"filters: say {quote(shown)}: {{'in': [...]}} for one of a list, or {{'eq': [...]}}")
        if not isinstance(value, Mapping):
            return [self._condition(name, "eq", value)]
        if not value:
            raise InputError(f"filters: {quote(shown)} has no condition")
        return [self._condition(name, str(operator).removeprefix("$"), wanted) for operator, wanted in value.items()]

    def _condition(self, name: str, operator: str, value: object) -> Condition:
        self._count()
        shown = quote(name.removeprefix(METADATA))
        if operator not in OPERATORS:
            raise InputError(f"filters: {shown} has no operator {quote(operator, 40)}: {' '.join(OPERATORS)}")
        if operator not in ("in", "nin"):
            return Condition(name, operator, _operand(name, operator, value))
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise InputError(f"filters: {shown} {operator} takes a list, not {quote(value, 40)}")
        self.values += len(value)
        if self.values > MOST_VALUES:
            raise InputError(f"filters may list {MOST_VALUES:,} values, and these list more")
        return Condition(name, operator, tuple(_operand(name, operator, each) for each in value))

    def _count(self) -> None:
        self.conditions += 1
        if self.conditions > MOST:
            raise InputError(f"filters may hold {MOST} conditions, and these hold more")


def _join(join: str, parts: Sequence[Condition | Junction]) -> Condition | Junction | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 and join != "not" else Junction(join, tuple(parts))


def _operand(name: str, operator: str, value: object) -> Any:
    """The value as this name and operator compare it, or one clear error."""
    shown = f"filters: {quote(name.removeprefix(METADATA))} {operator}"
    if value is None:
        if operator in ("eq", "ne", "in", "nin"):
            return None
        raise InputError(f"{shown} needs a value")
    if name in _TIMES:
        if operator in ("contains", "icontains"):
            raise InputError(f"{shown} is for texts and lists, and this is a time")
        return validate.timestamp(value)
    if name in _TEXTS and not isinstance(value, str):
        raise InputError(f"{shown} takes text, not {quote(value, 40)}")
    plain = validate.metadata({"value": value})["value"]
    if operator == "icontains" and not isinstance(plain, str):
        raise InputError(f"{shown} takes text, not {quote(value, 40)}")
    if operator in ("gt", "gte", "lt", "lte") and (isinstance(plain, bool) or not isinstance(plain, (str, int, float))):
        raise InputError(f"{shown} takes a number or text, not {quote(value, 40)}")
    if operator in ("in", "nin", "contains") and isinstance(plain, (list, dict)):
        raise InputError(f"{shown} takes texts, numbers, true, false or null, not {quote(value, 40)}")
    return plain


# -- testing -----------------------------------------------------------------------------------------------------------


def compile_check(condition: Condition | Junction) -> Check:
    """The condition as a test of one note's facts."""
    if isinstance(condition, Junction):
        return _JUNCTIONS[condition.join]([compile_check(part) for part in condition.parts])
    get = _getter(condition.name)
    if condition.name in _TIMES:
        return _time_check(get, condition)
    wanted = condition.value
    if condition.operator in ("in", "nin"):
        wanted = frozenset(map(_tagged, wanted))
    elif condition.operator == "icontains":
        wanted = wanted.casefold()
    holds = OPERATORS[condition.operator]
    return lambda facts: holds(get(facts), wanted)


def facts_asked(condition: Condition | Junction | None) -> frozenset[str]:
    """Names of the facts that the condition asks about."""
    if condition is None:
        return frozenset()
    if isinstance(condition, Junction):
        return frozenset().union(*(facts_asked(part) for part in condition.parts))
    return frozenset([condition.name if condition.name in Facts._fields else "metadata"])


_JUNCTIONS: Mapping[str, Callable[[list[Check]], Check]] = {
    "and": lambda parts: lambda facts: all(part(facts) for part in parts),
    "or": lambda parts: lambda facts: any(part(facts) for part in parts),
    "not": lambda parts: lambda facts: not any(part(facts) for part in parts),
}


def _getter(name: str) -> Callable[[Facts], Any]:
    if name.startswith(METADATA):
        key = name.removeprefix(METADATA)
        return lambda facts: facts.metadata.get(key)
    place = Facts._fields.index(name)
    return lambda facts: facts[place]


def _ordered(have: Any, wanted: Any) -> bool:
    """Whether two values can be compared: numbers with numbers, texts with texts."""
    if isinstance(wanted, str):
        return isinstance(have, str)
    return isinstance(have, (int, float)) and not isinstance(have, bool)


def same(have: Any, wanted: Any) -> bool:
    """Whether two plain values are equal as JSON has it: true is not 1, on any level."""
    if isinstance(have, list) and isinstance(wanted, list):
        return len(have) == len(wanted) and all(map(same, have, wanted))
    if isinstance(have, dict) and isinstance(wanted, dict):
        return have.keys() == wanted.keys() and all(same(have[key], wanted[key]) for key in have)
    return isinstance(have, bool) == isinstance(wanted, bool) and bool(have == wanted)


def _tagged(value: Any) -> tuple[bool, Any]:
    """A value that equals another's only where the two are the same."""
    return isinstance(value, bool), value


def _holds(have: Any, wanted: Any) -> bool:
    if isinstance(have, list):
        return any(same(each, wanted) for each in have)
    return isinstance(have, str) and isinstance(wanted, str) and wanted in have


def _holds_folded(have: Any, wanted: str) -> bool:
    texts = have if isinstance(have, list) else [have]
    return any(wanted in each.casefold() for each in texts if isinstance(each, str))


def _is_in(have: Any, wanted: frozenset[Any]) -> bool:
    return not isinstance(have, (list, dict)) and _tagged(have) in wanted


OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda have, wanted: same(have, wanted),
    "ne": lambda have, wanted: not same(have, wanted),
    "gt": lambda have, wanted: _ordered(have, wanted) and have > wanted,
    "gte": lambda have, wanted: _ordered(have, wanted) and have >= wanted,
    "lt": lambda have, wanted: _ordered(have, wanted) and have < wanted,
    "lte": lambda have, wanted: _ordered(have, wanted) and have <= wanted,
    "in": _is_in,
    "nin": lambda have, wanted: not _is_in(have, wanted),
    "contains": _holds,
    "icontains": _holds_folded,
}


class _Stretch(NamedTuple):
    """A moment, or all of a day, in seconds since 1970."""

    first: float
    last: float


def _stretch(value: str) -> _Stretch:
    moment = datetime.fromisoformat(value)
    first = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return _Stretch(first, last_moment(first) if len(value) == 10 else first)


def last_moment(first: float) -> float:
    """The last moment of the day that begins at `first`: the next number below the first of the day after."""
    return math.nextafter(first + 86_400.0, -math.inf)


_TIME_OPERATORS: Mapping[str, Callable[[float, _Stretch], bool]] = {
    "gt": lambda have, wanted: have > wanted.last,
    "gte": lambda have, wanted: have >= wanted.first,
    "lt": lambda have, wanted: have < wanted.first,
    "lte": lambda have, wanted: have <= wanted.last,
}


def _time_check(get: Callable[[Facts], Any], condition: Condition) -> Check:
    if condition.operator in ("ne", "nin"):
        same = _time_check(get, Condition(condition.name, "in", _listed(condition)))
        return lambda facts: not same(facts)
    if condition.operator in ("eq", "in"):
        listed = _listed(condition)
        stretches, none = _merge([_stretch(each) for each in listed if each is not None]), None in listed
        return lambda facts: _is_within(get(facts), stretches, none=none)
    wanted, holds = _stretch(condition.value), _TIME_OPERATORS[condition.operator]
    return lambda facts: (have := get(facts)) is not None and holds(have, wanted)


def _listed(condition: Condition) -> tuple[Any, ...]:
    return tuple(condition.value) if condition.operator in ("in", "nin") else (condition.value,)


def _merge(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """The same moments as stretches that do not overlap, in order."""
    merged: list[_Stretch] = []
    for each in sorted(stretches):
        if merged and each.first <= merged[-1].last:
            merged[-1] = _Stretch(merged[-1].first, max(each.last, merged[-1].last))
        else:
            merged.append(each)
    return merged


def _is_within(have: float | None, stretches: Sequence[_Stretch], *, none: bool) -> bool:
    if have is None:
        return none
    at = bisect_right(stretches, have, key=lambda each: each.first) - 1
    return at >= 0 and have <= stretches[at].last
