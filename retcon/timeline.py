"""Notes -> when each was said, and the order in which a text shows them.

By time; ties, and notes whose time is not known, in the order of insertion; and a reply never before its question,
whatever the timestamps say. A note without a time stands after the note that was inserted before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import count

from retcon.note import Hit, Note
from retcon.words import spoken_date

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEADED = re.compile(r"\A(?:\d{4}-\d\d-\d\d[ ,]{1,2})?[^\s:][^:\n]{0,39}:(?=\s)")  # "ann: ", "2026-05-09 ann: "
_OPENS = " \t\"'“‘«([*"  # what may stand before a date at the start of a text


def when(note: Note) -> str:
    """The time of the note as it is written: its timestamp; where a live note has none, when it was stored."""
    return note.timestamp or (note.created_at if note.live else None) or ""


def day(note: Note) -> str:
    """The day of the note as YYYY-MM-DD, or nothing where its time is not known."""
    return _day(when(note))


def moment(note: Note) -> timedelta | None:
    """The point in time of the note, since 1970; UTC where it names no zone, the start of a bare day."""
    return _moment(when(note))


@lru_cache(maxsize=4096)
def _day(text: str) -> str:
    found = _DAY.match(text)
    return found.group() if found else ""


@lru_cache(maxsize=4096)
def _moment(text: str) -> timedelta | None:
    for part in (text, _day(text)):
        try:
            read = datetime.fromisoformat(part)
        except ValueError:
            continue
        return (read if read.tzinfo else read.replace(tzinfo=UTC)) - _EPOCH
    return None


def order(hits: Sequence[Hit]) -> list[int]:
    """Positions of the hits in the order in which they are shown."""
    keys = _keys(hits)
    by_time = sorted(range(len(hits)), key=keys.__getitem__)
    place = {hit.id: i for i, hit in enumerate(hits)}
    asked = [place.get(hit.note.follows or "", i) for i, hit in enumerate(hits)]
    if all(keys[question] <= keys[i] for i, question in enumerate(asked)):
        return by_time
    return _put_replies_after(asked, keys, by_time)


def _put_replies_after(
    asked: Sequence[int], keys: Sequence[tuple[timedelta, int]], by_time: Sequence[int]
) -> list[int]:
    """The hits by their keys, but none before the one that it follows; one that follows none has its own position."""
    replies: dict[int, list[int]] = {}
    free = []
    for i, question in enumerate(asked):
        if question == i:
            free.append((keys[i], i))
        else:
            replies.setdefault(question, []).append(i)
    heapify(free)
    out: dict[int, None] = {}
    left = iter(by_time)
    while len(out) < len(asked):
        if not free:  # the rest follow each other in circles: the earliest begins
            start = next(i for i in left if i not in out)
            free.append((keys[start], start))
        _, i = heappop(free)
        out[i] = None
        for reply in replies.get(i, ()):
            if reply not in out:
                heappush(free, (keys[reply], reply))
    return list(out)


def turns(hits: Sequence[Hit]) -> list[int]:
    """The turn in that order of each hit."""
    found = dict(zip(order(hits), count(), strict=False))
    return [found[i] for i in range(len(hits))]


def in_order(hits: Sequence[Hit]) -> list[Note]:
    """The notes of the hits in the order in which they are shown."""
    return [hits[i].note for i in order(hits)]


def _keys(hits: Sequence[Hit]) -> list[tuple[timedelta, int]]:
    """Time and turn of insertion of each hit; one without a time has that of the one inserted before it."""
    keys: list[tuple[timedelta, int]] = [(timedelta.min, 0)] * len(hits)
    last = timedelta.min
    for turn, i in enumerate(sorted(range(len(hits)), key=lambda i: hits[i].place)):
        found = moment(hits[i].note)
        last = last if found is None else found
        keys[i] = (last, turn)
    return keys


def begins_with_day(text: str, known: str) -> bool:
    """Whether the text itself begins with that day: 2026-05-12, 12 May 2026, May 12, 2026."""
    head, forms = text[:80].lstrip(_OPENS)[:40], _forms(known)
    return head.startswith(forms) and any(
        head.startswith(form) and not head[len(form) : len(form) + 1].isalnum() for form in forms
    )


def begins_like_a_head(text: str) -> bool:
    """Whether the text could be taken for the line of another note: it begins with a name and a colon, or a date."""
    return _HEADED.match(text.lstrip()) is not None


def says_day_itself(text: str, known: str, *, named: bool) -> bool:
    """Whether that day need not stand before the text, which begins with it and cannot be taken for another's line."""
    return begins_with_day(text, known) and (named or not begins_like_a_head(text))


@lru_cache(maxsize=4096)
def _forms(known: str) -> tuple[str, ...]:
    try:
        date.fromisoformat(known)
    except ValueError:
        return ()
    number, month, year = spoken_date(known).split()
    forms = (known, f"{number} {month} {year}", f"{month} {number}, {year}", f"{month} {number} {year}")
    return (*forms, f"{number} {month[:3]} {year}", f"{month[:3]} {number}, {year}")
