"""Dates and times that a text mentions: "9 May 2026", "May 5-7", "last Saturday", "half past five"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from retcon.fidelity.days import (
    DAY_NAMES,
    MONTHS,
    WEEKDAYS,
    YEAR,
    Triple,
    around,
    is_day,
    key_of,
    nearest_days,
    relative,
    weekday_days,
    wider_keys,
)
from retcon.fidelity.numerals import CARDINAL, SUFFIX, joins, number_word
from retcon.fidelity.text import DATE, Mention, Text, Token

_DOUBTFUL = {"may", "march", "mar", "jan", "dec", "sep", "sun", "sat", "mon", "wed", "august"}  # words or names too
_BEFORE_MONTH = frozenset(
    "in of since until till by last next this early mid late during from to through for and before after around".split()
)
_SINCE = frozenset("in since until last next early late".split())
_DAYS = re.compile(r"\d{1,2}(?:[-–—]\d{1,2})?")
_DIGITS = re.compile(r"\d+")
_PAST = {"half": 30, "quarter": 15, "five": 5, "ten": 10, "twenty": 20}
_HOURS = frozenset(map(str, range(1, 13)))
_DAYS_OFF = {"yesterday": (-1,), "today": (0,), "tonight": (0,), "tomorrow": (1,)}
_CAME = frozenset("last past previous this next coming".split())
_GOING = frozenset("week weekend month year night".split())


def date_mention(
    text: Text, triples: Sequence[Triple], extra: Iterable[Triple], start: int, end: int, sentence: int
) -> Mention:
    """A date: its own readings, what they become with the note's day, and all that is wider."""
    every = [*triples, *extra]
    keys = frozenset(key_of(t) for t in every)
    wider = frozenset(key for t in every for key in wider_keys(t)) | {f"day:{t[2]}" for t in every if t[2]}
    y, m, d = triples[0]
    traits = {"form:" + "".join(letter for letter, part in zip("ymd", (y, m, d), strict=True) if part)}
    traits |= {f"{name}:{part}" for name, part in (("month", m), ("day", d)) if part} | {"form:calendar"}
    return Mention(
        text.claim(DATE, key_of(triples[0]), start, end), keys, traits=frozenset(traits), wider=wider, sentence=sentence
    )


def _year_at(text: Text, j: int) -> tuple[int, int] | None:
    """A year at token j and the place after it, where one follows a month."""
    if j < len(text.tokens) and YEAR.fullmatch(text.tokens[j].text) and text.tokens[j].gap.strip() in ("", ",", "of"):
        return int(text.tokens[j].text), j + 1
    return None


def day_month(text: Text, i: int, day: int, j: int | None = None) -> tuple[Mention, int] | None:
    """ "9 May", "9th of May 2026" from token i on; j is the place after the day where it took several tokens."""
    tokens, same = text.tokens, text.tokens[i].sentence
    j = i + 1 if j is None else j
    if j < len(tokens) and not tokens[j].gap and SUFFIX.fullmatch(tokens[j].text):
        j += 1
    if j < len(tokens) and tokens[j].word == "of":
        j += 1
    if j >= len(tokens) or tokens[j].sentence != same or tokens[j].gap.strip(" .-") or not _is_month(tokens[j]):
        return None
    month = MONTHS[tokens[j].word]
    year = _year_at(text, j + 1)
    y, after = year or (0, j + 1)
    if not is_day(y, month, day):
        return None
    extra = [] if y else nearest_days(text.day, month, day)
    return date_mention(text, [(y, month, day)], extra, tokens[i].start, tokens[after - 1].end, same), after


def _is_month(token: Token) -> bool:
    return token.word in MONTHS and (token.word not in _DOUBTFUL or token.capital)


def date_words(text: Text, i: int) -> tuple[Mention, int] | None:
    """A date that begins with a word: "May 9th", "May 2026", "Saturday", "last week", "two weeks ago", "noon"."""
    token = text.tokens[i]
    if token.word in ("noon", "midnight"):
        key = "T12:00" if token.word == "noon" else "T00:00"
        claim = text.claim(DATE, key, token.start, token.end)
        return Mention(claim, frozenset({key}), traits=frozenset({"form:clock"}), sentence=token.sentence), i + 1
    if token.word in _PAST and (clock := _clock_words(text, i)) is not None:
        return clock
    if _is_month(token) or (
        token.word in _DOUBTFUL & MONTHS.keys() and i and joins(token) and text.tokens[i - 1].word in _SINCE
    ):
        return _month_first(text, i)
    if token.word in WEEKDAYS and (len(token.word) > 5 or token.capital):
        return _weekday_word(text, i)
    return _relative_words(text, i)


def _clock_words(text: Text, i: int) -> tuple[Mention, int] | None:
    """ "half past five", "quarter to six", "ten past four"."""
    tokens = text.tokens[i : i + 3]
    if len(tokens) < 3 or tokens[1].word not in ("past", "to") or tokens[2].sentence != tokens[0].sentence:
        return None
    hour = int(tokens[2].text) if tokens[2].text in _HOURS else CARDINAL.get(tokens[2].word, 0)
    if not 0 < hour < 13:
        return None
    minutes = hour * 60 + _PAST[tokens[0].word] * (1 if tokens[1].word == "past" else -1)
    times = [f"T{m // 60 % 24:02}:{m % 60:02}" for m in (minutes, minutes + 720)]
    claim = text.claim(DATE, times[0], tokens[0].start, tokens[2].end)
    return Mention(claim, frozenset(times), traits=frozenset({"form:clock"}), sentence=tokens[0].sentence), i + 3


def _month_first(text: Text, i: int) -> tuple[Mention, int] | None:
    tokens, token = text.tokens, text.tokens[i]
    month, same = MONTHS[token.word], text.tokens[i].sentence
    j = i + 1
    if j < len(tokens) and tokens[j].sentence == same and tokens[j].gap.strip(" .") in ("", "the"):
        if year := _year_at(text, j):
            return date_mention(text, [(year[0], month, 0)], [], token.start, tokens[j].end, same), year[1]
        if (day := _day_number(tokens, j)) and is_day(0, month, day[0]):
            year = _year_at(text, day[1])
            y, after = year or (0, day[1])
            named = [[(y, month, d)] if y else nearest_days(text.day, month, d) for d in day[2]]
            extra = [t for triples in named for t in triples if is_day(*t)]
            triples = [(y if is_day(y, month, day[0]) else 0, month, day[0])]
            triples += [(0, month, d) for d in day[2][1:] if is_day(0, month, d)]
            return date_mention(text, triples, extra, token.start, tokens[after - 1].end, same), after
    before = tokens[i - 1].word if i and tokens[i - 1].sentence == same else ""
    if (token.word in _DOUBTFUL and before not in _BEFORE_MONTH) or len(token.word) < 3 + (token.word != "may"):
        return None
    years = [text.day.year, text.day.year - 1] if text.day else []
    extra = [(y, month, 0) for y in years if y > 0]
    return date_mention(text, [(0, month, 0)], extra, token.start, token.end, same), i + 1


def _day_number(tokens: Sequence[Token], j: int) -> tuple[int, int, list[int]] | None:
    """The day of a month at token j ("9", "9th", "ninth", "5-7"), the place after it and all days it names."""
    if _DAYS.fullmatch(tokens[j].text):
        parts = _DIGITS.findall(tokens[j].text)
        glued = j + 1 < len(tokens) and not tokens[j + 1].gap and SUFFIX.fullmatch(tokens[j + 1].text)
        return int(parts[0]), j + (2 if glued else 1), [int(p) for p in parts]
    spelled = number_word(tokens, j)
    if spelled and spelled[2] and spelled[0] <= 31:
        return spelled[0], spelled[1], [spelled[0]]
    return None


def _weekday_word(text: Text, i: int) -> tuple[Mention, int]:
    token = text.tokens[i]
    weekday = WEEKDAYS[token.word]
    before = text.tokens[i - 1].word if i else ""
    wider = frozenset(key for t in weekday_days(text.day, weekday, before) for key in wider_keys(t))
    claim = text.claim(DATE, DAY_NAMES[weekday], token.start, token.end)
    traits = frozenset({"form:weekday"})
    keys = frozenset({DAY_NAMES[weekday], *(key for key in wider if key.count("-") == 2 and not key.startswith("-"))})
    return Mention(claim, keys, traits=traits, wider=wider, sentence=token.sentence), i + 1


def _relative_words(text: Text, i: int) -> tuple[Mention, int] | None:
    """A date counted from the day the note was said. Firm: yesterday, tomorrow, last, next."""
    tokens, token = text.tokens, text.tokens[i]
    if token.word in _DAYS_OFF:
        days = around(text.day, _DAYS_OFF[token.word]) if text.day else []
        return _relative_mention(text, token.word, days, i, i + 1, firm=token.word in ("yesterday", "tomorrow"))
    after = tokens[i + 1] if i + 1 < len(tokens) and tokens[i + 1].sentence == token.sentence else None
    if after is not None and token.word in _CAME and after.word in _GOING:
        unit = after.word
        days = relative(text.day, token.word, unit) if unit != "night" else around(text.day, [-1]) if text.day else []
        value = f"{ {'past': 'last', 'previous': 'last', 'coming': 'next'}.get(token.word, token.word) } {unit}"
        firm = token.word in ("last", "next") and unit != "night"
        return _relative_mention(text, value, days, i, i + 2, firm=firm)
    return None


def _relative_mention(
    text: Text, value: str, days: Sequence[Triple], i: int, j: int, *, firm: bool
) -> tuple[Mention, int]:
    keys = frozenset({value, *(key_of(t) for t in days)})
    wider = frozenset(key for t in days for key in wider_keys(t)) | {"1"}
    claim = text.claim(DATE, value, text.tokens[i].start, text.tokens[j - 1].end)
    traits = frozenset({"form:relative"})
    return Mention(claim, keys, traits=traits, wider=wider, sentence=text.tokens[i].sentence, firm=firm), j
