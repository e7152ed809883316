"""Days of the calendar and times of day as keys, and what a date means seen from another day.

A day is a triple with zeros where nothing is said. Its key supports the keys of all that is wider: the ninth of May
2026 is a May, a 2026 and a Saturday.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta

YEAR = re.compile(r"(?:19|20)\d\d")
_MONTH_NAMES = "january february march april may june july august september october november december".split()
MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)}
MONTHS |= {name[:3]: i for name, i in MONTHS.items()} | {"sept": 9}
DAY_NAMES = "monday tuesday wednesday thursday friday saturday sunday".split()
WEEKDAYS = {name: i for i, name in enumerate(DAY_NAMES)} | {name + "s": i for i, name in enumerate(DAY_NAMES)}
WEEKDAYS |= {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5, "sun": 6}
_YMD = re.compile(r"(\d{4})[-/.–](\d{1,2})[-/.–](\d{1,2})")
_DMY = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})")
_MD = re.compile(r"(\d{1,2})/(\d{1,2})")
_YM = re.compile(r"(\d{4})[-/](\d{1,2})")
_CLOCK = re.compile(r"(\d{1,2})[:.](\d{2})(?::(\d{2}))?")
_SPANS = {"day": 1, "week": 7, "month": 30, "year": 365}
Triple = tuple[int, int, int]  # year, month, day; 0 where it is not said


def key_of(triple: Triple) -> str:
    """The key of exactly what is said: "2026-05-09", "--05-09", "2026-05", "2026"."""
    year, month, day = triple
    if month == day == 0:
        return str(year)
    return f"{year or '-'}-{month:02}" + (f"-{day:02}" if day else "")


def wider_keys(triple: Triple) -> Iterator[str]:
    """The triple's key and those of all it implies."""
    year, month, day = triple
    for y in {year, 0}:
        for m in {month, 0}:
            for d in {day, 0}:
                if (y or m) and (m or not d):
                    yield key_of((y, m, d))
    if year and month and day:
        yield DAY_NAMES[date(year, month, day).weekday()]


def is_day(year: int, month: int, day: int) -> bool:
    """Whether the calendar has such a day, in some year where none is said."""
    try:
        date(year or 2024, month, day)  # a leap year: 29 February is a date
    except ValueError:
        return False
    return True


def nearest_days(day: date | None, month: int, number: int) -> list[Triple]:
    """The days that a day and month without a year may mean, seen from the note's day: that year's or the nearest."""
    if day is None:
        return []
    out = [
        (y, month, number) for y in (day.year - 1, day.year, day.year + 1) if 0 < y < 10000 and is_day(y, month, number)
    ]
    nearest = sorted(out, key=lambda t: abs((date(*t) - day).days))[:1]
    return nearest + [t for t in out if t[0] == day.year]


def numeric_date(text: str) -> list[Triple]:
    """The dates that a run of digits and separators may be; both orders of day and month."""
    if found := _YMD.fullmatch(text):
        y, m, d = map(int, found.groups())
        return [(y, m, d)] if y and is_day(y, m, d) else []
    if found := _DMY.fullmatch(text):
        a, b, y = map(int, found.groups())
        y += 2000 if len(found[3]) == 2 else 0
        return [t for t in dict.fromkeys(((y, a, b), (y, b, a))) if y and is_day(*t)]
    if found := _MD.fullmatch(text):
        a, b = map(int, found.groups())
        return [t for t in dict.fromkeys(((0, a, b), (0, b, a))) if is_day(*t)]
    if (found := _YM.fullmatch(text)) and YEAR.fullmatch(found[1]) and 0 < int(found[2]) < 13:
        return [(int(found[1]), int(found[2]), 0)]
    return []


def clock_times(text: str, half: str | None, oclock: bool) -> list[str]:
    """The times of day that the digits may mean: "5" pm, "5:00", "17.00"."""
    found = _CLOCK.fullmatch(text)
    if found is None and not (text.isdecimal() and len(text) < 3 and (half or oclock)):
        return []
    if found and "." in text and not half:
        return []
    hour, minute = (int(found[1]), int(found[2])) if found else (int(text), 0)
    if hour > 24 or minute > 59 or (half and hour > 12):
        return []
    if half:
        hours = [hour % 12 + (12 if half in "pP" else 0)]
    elif 0 < hour < 13 and not text.startswith("0"):
        hours = [hour % 24, (hour + 12) % 24] if hour < 12 else [12, 0]
    else:
        hours = [hour % 24]
    return [f"T{h:02}:{minute:02}" for h in hours]


def ago(day: date | None, count: int, unit: str, sign: int) -> list[Triple]:
    """The day so many units before or after; for months and years the month or year, and for weeks the days around."""
    if day is None or unit not in _SPANS:
        return []
    try:
        if unit == "year":
            return [(day.year + sign * count, day.month, 0)] if 0 < day.year + sign * count < 10000 else []
        if unit == "month":
            months = day.year * 12 + day.month - 1 + sign * count
            return [(months // 12, months % 12 + 1, 0)] if 12 <= months < 120000 else []
        then = day + timedelta(days=sign * count * _SPANS[unit])
        return [triple_of(then)]
    except OverflowError:
        return []


def triple_of(day: date) -> Triple:
    """The day as year, month and day."""
    return (day.year, day.month, day.day)


def around(day: date, offsets: Iterable[int]) -> list[Triple]:
    """The days so many days after this one, as far as the calendar goes."""
    out = []
    for offset in offsets:
        try:
            out.append(triple_of(day + timedelta(days=offset)))
        except OverflowError:
            continue
    return out


def weekday_days(day: date | None, weekday: int, modifier: str) -> list[Triple]:
    """The days a weekday may mean, seen from the note's day: the ones around it, further ones for last and next."""
    if day is None:
        return []
    behind = (day.weekday() - weekday) % 7
    back, ahead = [-behind, -behind - 7], [7 - behind, 14 - behind]
    offsets = {"last": back, "past": back, "next": ahead, "coming": ahead}.get(modifier, [-behind, 7 - behind])
    return around(day, [*offsets, *([-7] if behind == 0 else [])])


def relative(day: date | None, modifier: str, unit: str) -> list[Triple]:
    """The days, month or year of "last week", "this weekend", "next month" seen from the note's day."""
    if day is None:
        return []
    sign = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}[modifier]
    if unit in ("month", "year"):
        found = ago(day, abs(sign), unit, sign)
        return [(y, 0, 0) for y, _, _ in found] if unit == "year" else found
    monday = -day.weekday() + 7 * sign
    if unit == "weekend":
        return around(day, [monday + 5, monday + 6, *((-day.weekday() - 2, -day.weekday() - 1) if sign < 0 else ())])
    return around(day, [*range(monday, monday + 7), 7 * sign])


def days_of_month(day: date | None, value: str) -> frozenset[str]:
    """Keys of the days that "the 9th" may mean, in the note's month or one beside it."""
    if day is None or not value.isdecimal() or len(value) > 2 or not 0 < int(value) < 32:
        return frozenset()
    months = {(day.year * 12 + day.month - 1 + step) for step in (-1, 0, 1)}
    triples = [(m // 12, m % 12 + 1, int(value)) for m in months]
    return frozenset(key for t in triples if 0 < t[0] < 10000 and is_day(*t) for key in wider_keys(t))
