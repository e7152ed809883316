"""What a generated record says that its notes do not: numbers, dates, names, quotes and negations. No model is asked.

    record -> claims -> each looked up among the claims of the sources -> supported | mutated | unsupported
    sources -> claims in sentences that share a telling word with the query -> looked up in the record -> missing

Both sides are read by the same reader, so a text always supports itself. A claim means one or more keys ("5 pm" is
T17:00, "5/9/2026" is the ninth of May or the fifth of September); a source claim supports its own keys and everything
wider ("9 May 2026" supports "May 2026", "2026" and "Saturday"), and words like "yesterday" count from the note's date.
The query lends its names and words, not its numbers and dates. Nothing is calculated: a sum, a difference or a count
that no note states is unsupported.

A mention is firm or weak. Weak ones ("one of them", a capital that only opens a sentence) support but are not claims.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from retcon.note import Claim, Fidelity, Note
from retcon.words import COMMON, COMMON_STEMS, fold, query_terms, sentences, stem_words

NUMBER, DATE, NAME, QUOTE, NEGATION = "number", "date", "name", "quote", "negation"
NEAR = 5  # words on each side that make up a claim's neighbourhood
SIMILAR = 2  # what a counterpart must share with a claim to be what it was made from
_MOST = 40  # claims kept under one index key, so that a word repeated a million times costs no square


def check(record: str, sources: Sequence[Note], *, query: str = "") -> Fidelity:
    """What the record claims that no source supports, what it changed and, given a query, what it left out."""
    ours = Text(record)
    theirs = [Text(note.text, note=note) for note in sources]
    support, index = Support(theirs, asked=query), Index(theirs)
    supported, unsupported = 0, []
    mutated: list[tuple[Claim, Claim]] = []
    for mention in ours.firm:
        if support.holds(mention):
            supported += 1
        elif (counterpart := index.nearest(mention, ours)) is not None:
            mutated.append((mention.claim, counterpart.claim))
        else:
            unsupported.append(mention.claim)
    for denial in ours.denials:
        if support.denies(denial):
            supported += 1
        elif (affirmed := index.affirmed(denial, ours)) is not None:
            mutated.append((denial.claim, affirmed))
        else:
            unsupported.append(denial.claim)
    mutated += index.dropped(ours)
    missing = _missing(theirs, Support([ours]), query, {theirs for _, theirs in mutated}) if query else ()
    order = sorted(unsupported, key=lambda claim: claim.start)
    return Fidelity(tuple(order), missing, tuple(sorted(mutated, key=lambda pair: pair[0].start)), supported)


def _missing(theirs: Sequence[Text], record: Support, query: str, changed: set[Claim]) -> tuple[Claim, ...]:
    """Claims of the sentences that share a telling word with the query, which the record does not hold; each once."""
    terms = set(query_terms(query))
    out: dict[tuple[str, str], Claim] = {}
    for text in theirs:
        bears = [not terms.isdisjoint(stems) for stems in text.stems]
        lost = [m.claim for m in text.firm if bears[m.sentence] and not record.holds(m)]
        lost += [d.claim for d in text.denials if bears[d.sentence] and not record.denies(d)]
        for claim in sorted(lost, key=lambda claim: claim.start):
            if claim not in changed:
                out.setdefault((claim.kind, claim.value), claim)
    return tuple(out.values())


# - reading a text -


class Token(NamedTuple):
    """A word, a run of digits or a sign, and where it stands."""

    text: str
    word: str  # folded, without a possessive ending
    start: int
    end: int
    sentence: int
    clause: int
    gap: str  # what stands between it and the token before it; begins with NUL where it opens a sentence
    opens: bool  # a capital here says nothing: it opens a sentence, a line, a quotation
    number: bool

    @property
    def capital(self) -> bool:
        return not self.text.islower() and self.text != self.text.lower()


@dataclass(frozen=True, slots=True)
class Mention:
    """A claim with what is needed to look it up."""

    claim: Claim
    keys: frozenset[str]  # any one of them supports it
    traits: frozenset[str] = frozenset()  # form, unit, title: what a changed claim keeps
    unit: str = ""
    wider: frozenset[str] = frozenset()  # what it supports besides
    sentence: int = 0
    firm: bool = True
    cut: bool = False  # it is the last thing in its text


@dataclass(frozen=True, slots=True)
class Denial:
    """A negation: the claim, the stem it denies and the other stems of its sentence."""

    claim: Claim
    stem: str
    sentence: int


_LETTER = r"(?:[^\W\d_]|[\u0300-\u036f])"
_TOKEN = re.compile(rf"\d+(?:[.,:/\-–—]\d+)*|[^\W\d_]{_LETTER}*(?:['’]{_LETTER}+)*|[%$£€¥₹½¼¾]")
_OPENERS = frozenset(':"“”«»‘*#•·|\n\r\t>')
_DASH = re.compile(r"\s[-–—]\s?|[-–—]\s|[—]")
_QUOTES = re.compile(
    r"\"([^\"\n]{1,300})\"|“([^“”\n]{1,300})”|«([^«»\n]{1,300})»|「([^「」\n]{1,300})」|(?<!\w)[‘']([^'’\n]{2,300})['’](?!\w)"
)
_BREAK = re.compile(r"[,;:()—–?!]|\.\s|\s-\s")
_TURNS = frozenset("but although though because since while whereas however so".split())
_LONGEST = 60  # characters of a word that are read: longer ones are no words


class Text:
    """One text read once: its tokens, sentences, mentions and negations."""

    def __init__(self, text: str, *, note: Note | None = None) -> None:
        self.text = text
        self.note = note
        self.day = _day(note.timestamp) if note else None
        self.tokens, self.ends = _tokens(text)
        self.headings = _headings(text, self.tokens)
        distinct = sorted({token.word for token in self.tokens})
        self.stem = dict(zip(distinct, stem_words(distinct), strict=True))

    @property
    def id(self) -> str | None:
        return self.note.id if self.note else None

    @cached_property
    def stems(self) -> list[set[str]]:
        """The telling stems of each sentence."""
        out: list[set[str]] = [set() for _ in self.ends]
        for token in self.tokens:
            if (stem := self.stem[token.word]) not in COMMON_STEMS:
                out[token.sentence].add(stem)
        return out

    @cached_property
    def mentions(self) -> list[Mention]:
        """Numbers, dates, names and quotes, weak ones included."""
        return [*_scan(self), *_quotes(self)]

    @property
    def firm(self) -> list[Mention]:
        return [mention for mention in self.mentions if mention.firm]

    @cached_property
    def denials(self) -> list[Denial]:
        return list(_denials(self))

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    def inside(self, start: int, end: int) -> list[Token]:
        """The tokens that begin within the span."""
        return self.tokens[bisect_left(self._starts, start) : bisect_left(self._starts, end)]

    def near(self, mention: Mention) -> set[str]:
        """The telling stems around a mention."""
        low = bisect_left(self._starts, mention.claim.start)
        high = bisect_left(self._starts, mention.claim.end)
        around = self.tokens[max(0, low - NEAR) : low] + self.tokens[high : high + NEAR]
        stems = {self.stem[t.word] for t in around if t.sentence == mention.sentence and not t.number}
        return stems - COMMON_STEMS

    def claim(self, kind: str, value: str, start: int, end: int) -> Claim:
        return Claim(kind, self.text[start:end], value, start, end, self.id)


def _tokens(text: str) -> tuple[list[Token], list[int]]:
    """The tokens of the text and the end of each sentence; no token crosses one."""
    out: list[Token] = []
    ends: list[int] = []
    at = clause = 0
    for place, sentence in enumerate(sentences(text)):
        begin = text.find(sentence, at)
        last = begin
        for found in _TOKEN.finditer(text, begin, begin + len(sentence)):
            written, start = found.group(), found.start()
            gap = text[max(last, start - 8) : start] if last > begin else "\0" + text[begin : min(start, begin + 8)]
            opens = last == begin or not _OPENERS.isdisjoint(gap) or _DASH.search(gap) is not None
            word = _bare(written)
            clause += last == begin or word in _TURNS or _BREAK.search(gap) is not None
            number = written[0].isdecimal()
            out.append(Token(written, word, start, found.end(), place, clause, gap, opens, number))
            last = found.end()
        at = begin + len(sentence)
        ends.append(at)
    return out, ends


def _bare(word: str) -> str:
    """The word folded, typewriter apostrophes, no possessive ending."""
    low = (word.lower() if word.isascii() else fold(word)).replace("’", "'")
    return low.removesuffix("'s")


def _headings(text: str, tokens: Sequence[Token]) -> set[int]:
    """Sentences in which capitals say nothing: a marked heading, or a label before a colon, in title case."""
    out = set()
    last: dict[int, list[Token]] = {}
    for token in tokens:
        last.setdefault(token.sentence, []).append(token)
    for place, inner in last.items():
        words = [t for t in inner if not t.number and t.word not in COMMON and len(t.text) > 1]
        tail = text[inner[-1].end : inner[-1].end + 3]
        marked = "#" in inner[0].gap or "*" in tail or ":" in tail
        if marked and len(words) > 1 and all(t.capital for t in words):
            out.add(place)
    return out


def _day(timestamp: str | None) -> date | None:
    try:
        return date.fromisoformat((timestamp or "")[:10])
    except ValueError:
        return None


# - numbers -

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_CARDINAL = {word: i for i, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, 2)}
_ORDINAL = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12, "thirteenth": 13, "fourteenth": 14, "fifteenth": 15, "sixteenth": 16,
    "seventeenth": 17, "eighteenth": 18, "nineteenth": 19, "twentieth": 20, "thirtieth": 30,
}  # fmt: skip
_SCALE = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "dozen": 0}
_GLUED_SCALE = {"k": 3, "m": 6, "mm": 6, "mn": 6, "mil": 6, "b": 9, "bn": 9}
# Weak words: they support a number, and are none themselves.
_LOOSE_WORDS = {
    "1": "a an one once single another solo daily weekly monthly yearly annual hourly every each last next",
    "2": "twice couple both pair double twin duo fortnight biweekly weekend", "3": "triple trio thrice",
    "0": "no none nothing", "0.5": "half ½", "30": "half thirties", "50": "half fifties", "0.25": "quarter ¼",
    "15": "quarter", "25": "quarter", "0.75": "¾", "10": "decade", "14": "fortnight", "100": "century", "12": "noon",
    "20": "twenties", "40": "forties", "60": "sixties", "70": "seventies", "80": "eighties", "90": "nineties",
    "some": "few several",
}  # fmt: skip
_LOOSE: dict[str, tuple[str, ...]] = {}
for _value, _words in _LOOSE_WORDS.items():
    for _word in _words.split():
        _LOOSE[_word] = (*_LOOSE.get(_word, ()), _value)
_UNIT_WORDS = {
    "second": "second seconds sec secs", "minute": "minute minutes min mins", "hour": "hour hours hr hrs h",
    "day": "day days", "week": "week weeks wk wks", "month": "month months", "year": "year years yr yrs",
    "mile": "mile miles mi", "km": "km kms kilometer kilometers kilometre kilometres k",
    "metre": "meter meters metre metres", "cm": "cm centimeter centimeters centimetre centimetres",
    "foot": "foot feet ft", "inch": "inch inches", "yard": "yard yards",
    "kg": "kg kgs kilo kilos kilogram kilograms", "gram": "gram grams g",
    "pound": "pound pounds lb lbs £ gbp quid", "ounce": "ounce ounces oz", "litre": "liter liters litre litres l",
    "ml": "ml milliliter milliliters", "gallon": "gallon gallons gal", "cup": "cup cups",
    "dollar": "$ dollar dollars usd buck bucks", "euro": "€ euro euros eur", "yen": "¥ yen jpy yuan rmb cny",
    "rupee": "₹ rupee rupees inr", "percent": "% percent pct percentage",
}  # fmt: skip
_UNIT = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
_NO_PLURALS = COMMON | {"plus", "less", "minus", "plays", "versus", "across", "s"}
_SIGNS = frozenset("$£€¥₹")
_SUFFIX = re.compile(r"(?:st|nd|rd|th)\b", re.I)
_YEAR = re.compile(r"(?:19|20)\d\d")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_PLAIN = re.compile(r"\d+(?:\.\d+)*")
_PARTS = re.compile(r"[^:/\-–—]+")
_LIST_ITEM = re.compile(r"[.)]\s")


def _ascii(digits: str) -> str:
    """The digits of every script as 0 to 9."""
    if digits.isascii():
        return digits
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in digits)


def _plain(digits: str) -> str:
    """The number without leading and trailing zeros."""
    digits = _ascii(digits)
    whole, dot, rest = digits.partition(".")
    if "." in rest:  # a version
        return digits
    rest = rest.rstrip("0")
    return (whole.lstrip("0") or "0") + (dot + rest if rest else "")


def _shift(value: str, power: int) -> str:
    """The number times ten to the power."""
    whole, _, rest = value.partition(".")
    return _plain(whole + rest[:power].ljust(power, "0") + "." + rest[power:])


def _number_values(part: str) -> tuple[str, ...]:
    """What the digits may mean: "3,200" is 3200, "3.200" is 3.2 or 3200, "1.234,56" is 1234.56, "1,2" is 1.2."""
    if _GROUPED.fullmatch(part):
        return (_plain(part.replace(",", "")),)
    if _PLAIN.fullmatch(part):
        whole, _, rest = part.partition(".")
        return (_plain(part), _plain(whole + rest)) if len(rest) == 3 and len(whole) < 4 else (_plain(part),)
    return (_plain(part.replace(".", "").replace(",", ".", 1)),)


def _number_word(tokens: Sequence[Token], i: int) -> tuple[int, int, bool] | None:
    """Value, end and whether it is an ordinal, of the number words from token i on: "two hundred and five"."""
    total, group, j = 0, 0, i
    room, scale = 100, 15  # what may still be added to the group: below 100, 10, 1; and the next scale word's limit
    while j < len(tokens) and (j == i or _joins(tokens[j])):
        word = tokens[j].word
        small = _CARDINAL.get(word, _ORDINAL.get(word, 100))
        if small < room and (small or j == i):
            group, room, j = group + small, 10 if small >= 20 else 1, j + 1
            if word in _ORDINAL:
                return total + group, j, True
        elif word in ("hundred", "dozen") and (0 < group < 100 or _alone(tokens, i, j)):
            group, room, j = (group or 1) * (100 if word == "hundred" else 12), 100 if word == "hundred" else 1, j + 1
        elif 2 < _SCALE.get(word, 0) < scale and (group or _alone(tokens, i, j)):
            total, group, room, scale, j = total + (group or 1) * 10 ** _SCALE[word], 0, 100, _SCALE[word], j + 1
        elif word == "and" and j > i and room == 100 and [t for t in tokens[j + 1 : j + 2] if t.word in _CARDINAL]:
            j += 1
        else:
            break
    return (total + group, j, False) if j > i else None


def _alone(tokens: Sequence[Token], i: int, j: int) -> bool:
    """Whether a scale word counts by itself: "a hundred", "dozen"."""
    return i == j and (tokens[i].word == "dozen" or (i > 0 and tokens[i - 1].word == "a" and _joins(tokens[i])))


def _joins(token: Token) -> bool:
    return token.gap.strip(" \t") in ("", "-", "‑")


# - dates -

_MONTH_NAMES = "january february march april may june july august september october november december".split()
_MONTHS = {name: i for i, name in enumerate(_MONTH_NAMES, 1)}
_MONTHS |= {name[:3]: i for name, i in _MONTHS.items()} | {"sept": 9}
_DOUBTFUL = {"may", "march", "mar", "jan", "dec", "sep", "sun", "sat", "mon", "wed", "august"}  # words or names too
_DAY_NAMES = "monday tuesday wednesday thursday friday saturday sunday".split()
_WEEKDAYS = {name: i for i, name in enumerate(_DAY_NAMES)} | {name + "s": i for i, name in enumerate(_DAY_NAMES)}
_WEEKDAYS |= {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5, "sun": 6}
_BEFORE_MONTH = frozenset(
    "in of since until till by last next this early mid late during from to through for and before after around".split()
)
_SINCE = frozenset("in since until last next early late".split())
_YMD = re.compile(r"(\d{4})[-/.–](\d{1,2})[-/.–](\d{1,2})")
_DMY = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})")
_MD = re.compile(r"(\d{1,2})/(\d{1,2})")
_YM = re.compile(r"(\d{4})[-/](\d{1,2})")
_CLOCK = re.compile(r"(\d{1,2})[:.](\d{2})(?::(\d{2}))?")
_MERIDIEM = re.compile(r"[ \u00a0\u202f]?([ap])\.?[ \u00a0]?m\b\.?|[ \u00a0]?o['’]clock\b", re.I)
_SPANS = {"day": 1, "week": 7, "month": 30, "year": 365}
_FEW = {"few": (2, 3, 4, 5), "several": (3, 4, 5, 6), "couple": (2, 3), "a": (1,), "an": (1,), "one": (1,)}
_BACK = frozenset("ago before earlier back prior".split())
_ONWARD = frozenset("later after from hence".split())
_AT = frozenset("at around by from to until till before after about between and".split())

_DAYS = re.compile(r"\d{1,2}(?:[-–—]\d{1,2})?")
_PAST = {"half": 30, "quarter": 15, "five": 5, "ten": 10, "twenty": 20}
_HOURS = frozenset(map(str, range(1, 13)))

Triple = tuple[int, int, int]  # year, month, day; 0 where it is not said


def _key(triple: Triple) -> str:
    year, month, day = triple
    if month == day == 0:
        return str(year)
    return f"{year or '-'}-{month:02}" + (f"-{day:02}" if day else "")


def _wider(triple: Triple) -> Iterator[str]:
    """The triple's key and those of all it implies."""
    year, month, day = triple
    for y in {year, 0}:
        for m in {month, 0}:
            for d in {day, 0}:
                if (y or m) and (m or not d):
                    yield _key((y, m, d))
    if year and month and day:
        yield _DAY_NAMES[date(year, month, day).weekday()]


def _valid(year: int, month: int, day: int) -> bool:
    try:
        date(year or 2024, month, day)  # a leap year: 29 February is a date
    except ValueError:
        return False
    return True


def _dated(day: date | None, month: int, number: int) -> list[Triple]:
    """The days that a day and month without a year may mean, seen from the note's day: that year's or the nearest."""
    if day is None:
        return []
    out = [
        (y, month, number) for y in (day.year - 1, day.year, day.year + 1) if 0 < y < 10000 and _valid(y, month, number)
    ]
    nearest = sorted(out, key=lambda t: abs((date(*t) - day).days))[:1]
    return nearest + [t for t in out if t[0] == day.year]


def _numeric_date(text: str) -> list[Triple]:
    """The dates that a run of digits and separators may be; both orders of day and month."""
    if found := _YMD.fullmatch(text):
        y, m, d = map(int, found.groups())
        return [(y, m, d)] if y and _valid(y, m, d) else []
    if found := _DMY.fullmatch(text):
        a, b, y = map(int, found.groups())
        y += 2000 if len(found[3]) == 2 else 0
        return [t for t in dict.fromkeys(((y, a, b), (y, b, a))) if y and _valid(*t)]
    if found := _MD.fullmatch(text):
        a, b = map(int, found.groups())
        return [t for t in dict.fromkeys(((0, a, b), (0, b, a))) if _valid(*t)]
    if (found := _YM.fullmatch(text)) and _YEAR.fullmatch(found[1]) and 0 < int(found[2]) < 13:
        return [(int(found[1]), int(found[2]), 0)]
    return []


def _clock(text: str, half: str | None, oclock: bool) -> list[str]:
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


def _ago(day: date | None, count: int, unit: str, sign: int) -> list[Triple]:
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
        return [_triple(then)]
    except OverflowError:
        return []


def _triple(day: date) -> Triple:
    return (day.year, day.month, day.day)


def _around(day: date, offsets: Iterable[int]) -> list[Triple]:
    out = []
    for offset in offsets:
        try:
            out.append(_triple(day + timedelta(days=offset)))
        except OverflowError:
            continue
    return out


def _weekday(day: date | None, weekday: int, modifier: str) -> list[Triple]:
    """The days a weekday may mean, seen from the note's day: the ones around it, further ones for last and next."""
    if day is None:
        return []
    behind = (day.weekday() - weekday) % 7
    back, ahead = [-behind, -behind - 7], [7 - behind, 14 - behind]
    offsets = {"last": back, "past": back, "next": ahead, "coming": ahead}.get(modifier, [-behind, 7 - behind])
    return _around(day, [*offsets, *([-7] if behind == 0 else [])])


def _relative(day: date | None, modifier: str, unit: str) -> list[Triple]:
    """The days, month or year of "last week", "this weekend", "next month" seen from the note's day."""
    if day is None:
        return []
    sign = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1}[modifier]
    if unit in ("month", "year"):
        found = _ago(day, abs(sign), unit, sign)
        return [(y, 0, 0) for y, _, _ in found] if unit == "year" else found
    monday = -day.weekday() + 7 * sign
    if unit == "weekend":
        return _around(day, [monday + 5, monday + 6, *((-day.weekday() - 2, -day.weekday() - 1) if sign < 0 else ())])
    return _around(day, [*range(monday, monday + 7), 7 * sign])


# - names -

_TITLES = frozenset(
    "mr mrs ms miss dr prof professor sir lady lord madam captain judge rev st aunt uncle coach".split()
)
_NOT_NAMES = frozenset(
    """
    i i'm i've i'd i'll user assistant ai human system bot note notes am pm ok okay yes hi hello hey thanks dear
    english french spanish german italian portuguese dutch russian chinese mandarin cantonese japanese korean arabic
    hindi turkish greek latin hebrew polish swedish danish norwegian finnish czech hungarian thai vietnamese indian
    american british european asian african mexican canadian australian irish scottish welsh brazilian indonesian
    christian muslim jewish buddhist catholic islamic hindu western eastern northern southern north south east west
    spring summer autumn fall winter christmas easter
    ultimately overall additionally however therefore moreover furthermore finally also later earlier recently currently
    previously originally initially eventually meanwhile afterwards instead otherwise today yesterday tomorrow tonight
    """.split()
)
_CONNECT = frozenset("of the de la le van von der del da di du al el bin ibn & y".split())
# A single capitalised word that opens a sentence is a name only where one of these says what it did.
_PERSON_VERBS = frozenset(
    """
    said says told asked lives works likes loves hates went bought gave recommended recommends suggested suggests
    mentioned called moved met visited adopted married owns wants prefers plays studied attended started joined agreed
    promised wrote sent paid met taught sold invited helped left arrived thinks believes knows wanted liked loved lived
    """.split()
)

# Endings of words that are no names, for one that opens a sentence before "is", "was" or "has".
_ENDINGS = tuple("ing ly ed tion sion ment ness ity ism ance ence ship age thing body one where ths ers ies".split())


def _name(text: Text, i: int) -> tuple[Mention, int] | None:
    """The name that begins at token i and the place after it: capitalised words, with "of" or "de" between them."""
    tokens, j, last = text.tokens, i, i
    kept: list[Token] = []
    while j < len(tokens) and tokens[j].sentence == tokens[i].sentence and (j == i or _touches(tokens[j])):
        if _is_name(tokens[j]):
            kept.append(tokens[j])
            last = j
        elif not (kept and tokens[j].word in _CONNECT and tokens[j].text.islower() and j - last < 3):
            break
        j += 1
    if not kept:
        return None
    before = tokens[i - 1] if i else None
    title = before.word if before and before.word in _TITLES and before.sentence == kept[0].sentence else ""
    if len(kept) > 1 and kept[0].opens and kept[0].word.endswith(_ENDINGS):
        kept = kept[1:]  # "Attending Yoga"
    firm = _firm(text, kept, title, last)
    claim = text.claim(NAME, " ".join(t.word for t in kept), kept[0].start, kept[-1].end)
    traits = {f"name:{t.word}" for t in kept} | ({f"title:{title}"} if title else set())
    keys = frozenset(t.word for t in kept)
    cut = kept[-1].end == len(text.text)
    return Mention(claim, keys, traits=frozenset(traits), sentence=kept[0].sentence, firm=firm, cut=cut), last + 1


def _touches(token: Token) -> bool:
    return token.gap.strip(" ") in ("", "-", ".", "&", "'", "’") and "\n" not in token.gap and not token.opens


def _is_name(token: Token) -> bool:
    if token.number or not token.capital or len(token.word) < 2 or len(token.word) > _LONGEST:
        return False
    word = token.word
    return not (
        word in COMMON or word in _NOT_NAMES or word in _TITLES or word in _MONTHS or word in _WEEKDAYS
        or word in _UNIT or word in _CARDINAL or word in _ORDINAL or word in _SCALE or "'" in word
    )  # fmt: skip


def _firm(text: Text, kept: Sequence[Token], title: str, last: int) -> bool:
    """Whether the capitals make it a name: not if they only open a sentence or stand in a heading."""
    if kept[0].sentence in text.headings:
        return False
    if title or not kept[0].opens or len(kept) > 1:
        return True
    if kept[0].text[1:] != kept[0].text[1:].lower():  # NASA, iPhone
        return True
    after = text.tokens[last + 1].word if last + 1 < len(text.tokens) else ""
    if after in ("is", "was", "has", "had", "will"):
        return not kept[0].word.endswith(_ENDINGS)
    return after in _PERSON_VERBS or kept[0].text.endswith(("'s", "’s"))


# - one pass over the tokens -


def _scan(text: Text) -> Iterator[Mention]:
    """Dates, numbers and names in order; what one of them took is not read again."""
    i = 0
    while i < len(text.tokens):
        token = text.tokens[i]
        if token.number:
            found, i = _digits(text, i)
            yield from found
        elif (hit := _date_words(text, i)) is not None:
            yield hit[0]
            i = hit[1]
        elif (spelled := _number_word(text.tokens, i)) is not None:
            mention, i = _spelled(text, i, *spelled)
            yield mention
        else:
            if token.word in _LOOSE:
                yield _weak(text, i)
            named = _name(text, i)
            if named is not None:
                yield named[0]
            i = named[1] if named else i + 1


def _weak(text: Text, i: int) -> Mention:
    token = text.tokens[i]
    values = _LOOSE[token.word]
    after = text.tokens[i + 1] if i + 1 < len(text.tokens) else None
    unit = _UNIT.get(after.word, "") if after and token.word in ("a", "an", "one", "another") else ""
    claim = text.claim(NUMBER, values[0], token.start, token.end)
    wider = frozenset(key for n in _FEW.get(token.word, ()) for key in _from_now(text, i, i + 1, str(n)))
    firm = token.word == "one" and bool(unit)
    return Mention(claim, frozenset(values), unit=unit, wider=wider, sentence=token.sentence, firm=firm)


def _digits(text: Text, i: int) -> tuple[list[Mention], int]:
    """What a run of digits says, with the words that belong to it, and the place after them."""
    token = text.tokens[i]
    plain = _ascii(token.text)
    half = _MERIDIEM.match(text.text, token.end)
    end = half.end() if half else token.end
    if times := _clock(plain, half[1] if half else None, bool(half)):
        traits = frozenset({"form:clock", *(f"minute:{t[3:]}" for t in times[:1]), *(f"hour:{t[1:3]}" for t in times)})
        loose = frozenset({f"hour:{_plain(plain[:2].rstrip(':.'))}"} if times[0].endswith(":00") else ())
        claim = text.claim(DATE, times[0], token.start, end)
        mention = Mention(claim, frozenset(times), traits=traits, wider=loose, sentence=token.sentence)
        return [mention], i + 1 + (sum(1 for _ in text.inside(token.end, end)) if half else 0)
    if triples := _numeric_date(plain):
        extra = [t for y, m, d in triples if not y for t in _dated(text.day, m, d)]
        return [_date(text, triples, extra, token.start, token.end, token.sentence)], i + 1
    if plain.isdecimal() and len(plain) <= 2 and (day := _day_month(text, i, int(plain))) is not None:
        return [day[0]], day[1]
    return _numbers(text, i, plain)


def _date(
    text: Text, triples: Sequence[Triple], extra: Iterable[Triple], start: int, end: int, sentence: int
) -> Mention:
    """A date: its own readings, what they become with the note's day, and all that is wider."""
    every = [*triples, *extra]
    keys = frozenset(_key(t) for t in every)
    wider = frozenset(key for t in every for key in _wider(t)) | {f"day:{t[2]}" for t in every if t[2]}
    y, m, d = triples[0]
    traits = {"form:" + "".join(letter for letter, part in zip("ymd", (y, m, d), strict=True) if part)}
    traits |= {f"{name}:{part}" for name, part in (("month", m), ("day", d)) if part} | {"form:calendar"}
    return Mention(
        text.claim(DATE, _key(triples[0]), start, end), keys, traits=frozenset(traits), wider=wider, sentence=sentence
    )


def _year_at(text: Text, j: int) -> tuple[int, int] | None:
    """A year at token j and the place after it, where one follows a month."""
    if j < len(text.tokens) and _YEAR.fullmatch(text.tokens[j].text) and text.tokens[j].gap.strip() in ("", ",", "of"):
        return int(text.tokens[j].text), j + 1
    return None


def _day_month(text: Text, i: int, day: int, j: int | None = None) -> tuple[Mention, int] | None:
    """ "9 May", "9th of May 2026" from token i on; j is the place after the day where it took several tokens."""
    tokens, same = text.tokens, text.tokens[i].sentence
    j = i + 1 if j is None else j
    if j < len(tokens) and not tokens[j].gap and _SUFFIX.fullmatch(tokens[j].text):
        j += 1
    if j < len(tokens) and tokens[j].word == "of":
        j += 1
    if j >= len(tokens) or tokens[j].sentence != same or tokens[j].gap.strip(" .-") or not _is_month(tokens[j]):
        return None
    month = _MONTHS[tokens[j].word]
    year = _year_at(text, j + 1)
    y, after = year or (0, j + 1)
    if not _valid(y, month, day):
        return None
    extra = [] if y else _dated(text.day, month, day)
    return _date(text, [(y, month, day)], extra, tokens[i].start, tokens[after - 1].end, same), after


def _is_month(token: Token) -> bool:
    return token.word in _MONTHS and (token.word not in _DOUBTFUL or token.capital)


def _date_words(text: Text, i: int) -> tuple[Mention, int] | None:
    """A date that begins with a word: "May 9th", "May 2026", "Saturday", "last week", "two weeks ago", "noon"."""
    token = text.tokens[i]
    if token.word in ("noon", "midnight"):
        key = "T12:00" if token.word == "noon" else "T00:00"
        claim = text.claim(DATE, key, token.start, token.end)
        return Mention(claim, frozenset({key}), traits=frozenset({"form:clock"}), sentence=token.sentence), i + 1
    if token.word in _PAST and (clock := _past(text, i)) is not None:
        return clock
    if _is_month(token) or (
        token.word in _DOUBTFUL & _MONTHS.keys() and i and _joins(token) and text.tokens[i - 1].word in _SINCE
    ):
        return _month_first(text, i)
    if token.word in _WEEKDAYS and (len(token.word) > 5 or token.capital):
        return _weekday_word(text, i)
    return _relative_words(text, i)


def _past(text: Text, i: int) -> tuple[Mention, int] | None:
    """ "half past five", "quarter to six", "ten past four"."""
    tokens = text.tokens[i : i + 3]
    if len(tokens) < 3 or tokens[1].word not in ("past", "to") or tokens[2].sentence != tokens[0].sentence:
        return None
    hour = int(tokens[2].text) if tokens[2].text in _HOURS else _CARDINAL.get(tokens[2].word, 0)
    if not 0 < hour < 13:
        return None
    minutes = hour * 60 + _PAST[tokens[0].word] * (1 if tokens[1].word == "past" else -1)
    times = [f"T{m // 60 % 24:02}:{m % 60:02}" for m in (minutes, minutes + 720)]
    claim = text.claim(DATE, times[0], tokens[0].start, tokens[2].end)
    return Mention(claim, frozenset(times), traits=frozenset({"form:clock"}), sentence=tokens[0].sentence), i + 3


def _month_first(text: Text, i: int) -> tuple[Mention, int] | None:
    tokens, token = text.tokens, text.tokens[i]
    month, same = _MONTHS[token.word], text.tokens[i].sentence
    j = i + 1
    if j < len(tokens) and tokens[j].sentence == same and tokens[j].gap.strip(" .") in ("", "the"):
        if year := _year_at(text, j):
            return _date(text, [(year[0], month, 0)], [], token.start, tokens[j].end, same), year[1]
        if (day := _day_number(tokens, j)) and _valid(0, month, day[0]):
            year = _year_at(text, day[1])
            y, after = year or (0, day[1])
            extra = [t for d in day[2] for t in ([(y, month, d)] if y else _dated(text.day, month, d)) if _valid(*t)]
            triples = [(y if _valid(y, month, day[0]) else 0, month, day[0])]
            triples += [(0, month, d) for d in day[2][1:] if _valid(0, month, d)]
            return _date(text, triples, extra, token.start, tokens[after - 1].end, same), after
    before = tokens[i - 1].word if i and tokens[i - 1].sentence == same else ""
    if (token.word in _DOUBTFUL and before not in _BEFORE_MONTH) or len(token.word) < 3 + (token.word != "may"):
        return None
    years = [text.day.year, text.day.year - 1] if text.day else []
    extra = [(y, month, 0) for y in years if y > 0]
    return _date(text, [(0, month, 0)], extra, token.start, token.end, same), i + 1


def _day_number(tokens: Sequence[Token], j: int) -> tuple[int, int, list[int]] | None:
    """The day of a month at token j ("9", "9th", "ninth", "5-7"), the place after it and all days it names."""
    if _DAYS.fullmatch(tokens[j].text):
        parts = re.findall(r"\d+", tokens[j].text)
        glued = j + 1 < len(tokens) and not tokens[j + 1].gap and _SUFFIX.fullmatch(tokens[j + 1].text)
        return int(parts[0]), j + (2 if glued else 1), [int(p) for p in parts]
    spelled = _number_word(tokens, j)
    if spelled and spelled[2] and spelled[0] <= 31:
        return spelled[0], spelled[1], [spelled[0]]
    return None


def _weekday_word(text: Text, i: int) -> tuple[Mention, int]:
    token = text.tokens[i]
    weekday = _WEEKDAYS[token.word]
    before = text.tokens[i - 1].word if i else ""
    wider = frozenset(key for t in _weekday(text.day, weekday, before) for key in _wider(t))
    claim = text.claim(DATE, _DAY_NAMES[weekday], token.start, token.end)
    traits = frozenset({"form:weekday"})
    keys = frozenset({_DAY_NAMES[weekday], *(key for key in wider if key.count("-") == 2 and not key.startswith("-"))})
    return Mention(claim, keys, traits=traits, wider=wider, sentence=token.sentence), i + 1


_DAYS_OFF = {"yesterday": (-1,), "today": (0,), "tonight": (0,), "tomorrow": (1,)}
_CAME = frozenset("last past previous this next coming".split())
_GOING = frozenset("week weekend month year night".split())


def _relative_words(text: Text, i: int) -> tuple[Mention, int] | None:
    """A date counted from the day the note was said. Firm: yesterday, tomorrow, last, next."""
    tokens, token = text.tokens, text.tokens[i]
    if token.word in _DAYS_OFF:
        days = _around(text.day, _DAYS_OFF[token.word]) if text.day else []
        return _counted(text, token.word, days, i, i + 1, firm=token.word in ("yesterday", "tomorrow"))
    after = tokens[i + 1] if i + 1 < len(tokens) and tokens[i + 1].sentence == token.sentence else None
    if after is not None and token.word in _CAME and after.word in _GOING:
        unit = after.word
        days = _relative(text.day, token.word, unit) if unit != "night" else _around(text.day, [-1]) if text.day else []
        value = f"{ {'past': 'last', 'previous': 'last', 'coming': 'next'}.get(token.word, token.word) } {unit}"
        firm = token.word in ("last", "next") and unit != "night"
        return _counted(text, value, days, i, i + 2, firm=firm)
    return None


def _counted(text: Text, value: str, days: Sequence[Triple], i: int, j: int, *, firm: bool) -> tuple[Mention, int]:
    keys = frozenset({value, *(_key(t) for t in days)})
    wider = frozenset(key for t in days for key in _wider(t)) | {"1"}
    claim = text.claim(DATE, value, text.tokens[i].start, text.tokens[j - 1].end)
    traits = frozenset({"form:relative"})
    return Mention(claim, keys, traits=traits, wider=wider, sentence=text.tokens[i].sentence, firm=firm), j


def _spelled(text: Text, i: int, value: int, j: int, ordinal: bool) -> tuple[Mention, int]:
    """A number in words; "one", "first" and "second" alone are too common to be claims."""
    tokens = text.tokens
    if ordinal and value <= 31 and (day := _day_month(text, i, value, j)) is not None:
        return day
    alone = j == i + 1
    weak = alone and (tokens[i].word in ("one", "zero") or (ordinal and value < 3))
    mention, after = _measured(text, i, j, (str(value),), ordinal=ordinal)
    return replace(mention, firm=not weak or (bool(mention.unit) and not ordinal)), after


def _numbers(text: Text, i: int, plain: str) -> tuple[list[Mention], int]:
    """The numbers in a run of digits that is no date: "10-15" are two, "1,2,3" three."""
    token = text.tokens[i]
    out: list[Mention] = []
    after = i + 1
    spans = [span for part in _PARTS.finditer(plain) for span in _comma_spans(plain, part.start(), part.end())]
    for n, (low, high) in enumerate(spans):
        if n + 1 < len(spans):
            value = _number_values(plain[low:high])
            claim = text.claim(NUMBER, value[0], token.start + low, token.start + high)
            out.append(Mention(claim, frozenset(value), traits=_digit_traits(value[0]), sentence=token.sentence))
        else:
            mention, after = _measured(text, i, i + 1, _number_values(plain[low:high]), low=low)
            out = [*(replace(earlier, unit=mention.unit) for earlier in out), mention]  # both ends of "3-5 miles"
    if len(spans) == 1 and _is_list_item(text, token):
        out = [replace(mention, firm=False) for mention in out]
    return out, after


def _comma_spans(plain: str, low: int, high: int) -> list[tuple[int, int]]:
    """The parts of a run between commas, unless the commas group digits or one is a decimal comma."""
    part = plain[low:high]
    if "," not in part or _GROUPED.fullmatch(part) or (part.count(",") == 1 and "." in part):
        return [(low, high)]
    out, at = [], low
    for piece in part.split(","):
        if piece:
            out.append((at, at + len(piece)))
        at += len(piece) + 1
    return out


def _is_list_item(text: Text, token: Token) -> bool:
    return token.opens and len(token.text) < 3 and _LIST_ITEM.match(text.text, token.end) is not None


def _measured(
    text: Text, i: int, j: int, values: tuple[str, ...], *, ordinal: bool = False, low: int = 0
) -> tuple[Mention, int]:
    """The number of tokens i to j with the scale and unit that follow it, and the currency before it."""
    tokens, token = text.tokens, text.tokens[i]
    money = _UNIT.get(tokens[i - 1].word, "") if i and _touching_money(tokens[i - 1], token) else ""
    following = [t for t in tokens[j : j + 3] if t.sentence == token.sentence and t.gap.strip(" -") == ""]
    end = tokens[j - 1].end
    first = following[0] if following else None
    if first and not first.gap and _SUFFIX.fullmatch(first.text):
        ordinal, j, end, following = True, j + 1, first.end, following[1:]
    elif first and (first.word in _SCALE or (not first.gap and first.word in _GLUED_SCALE)) and first.word != "dozen":
        power = _SCALE.get(first.word) or _GLUED_SCALE[first.word]
        scaled = tuple(_shift(value, power) for value in values if value.count(".") < 2)  # two dots: a version
        values = (scaled or values) + (values if not money and first.word in _GLUED_SCALE else ())
        j, end, following = j + 1, first.end, following[1:]
    measure = next((t for t in following[:2] if t.word in _UNIT), None)
    unit = money or (_UNIT[measure.word] if measure else "" if ordinal else _counted_things(following))
    year = len(values) == 1 and unit not in _UNIT_WORDS and _YEAR.fullmatch(token.text) and j == i + 1
    if year:
        return _date(text, [(int(values[0]), 0, 0)], [], token.start, token.end, token.sentence), j
    wider = frozenset({f"day:{values[0]}"} if ordinal else ())
    before = tokens[i - 1].word if i else ""
    keys = frozenset(values) | (wider if ordinal else frozenset())
    if before in _AT and unit not in _UNIT_WORDS and len(values[0]) < 3:
        keys |= {f"hour:{values[0]}"}
    extra = _from_now(text, i, j, values[0]) | (_that_day(text.day, values[0]) if ordinal else frozenset())
    traits = _digit_traits(values[0]) | ({f"unit:{unit}", f"value:{values[0]}"} if unit else set())
    traits |= {
        f"of:{text.stem[t.word]}" for t in tokens[j : j + 1] if t.sentence == token.sentence and t.word not in COMMON
    }
    start = tokens[i - 1].start if money and not low else token.start + low
    claim = text.claim(
        NUMBER, values[0], start, measure.end if measure and measure is following[0] and not money else end
    )
    return Mention(claim, keys, traits=traits, unit=unit, wider=wider | extra, sentence=token.sentence), j


def _counted_things(following: Sequence[Token]) -> str:
    """ "+s" where a plural follows the number: it counts things, and measures nothing."""
    return "+s" if following and following[0].word.endswith("s") and following[0].word not in _NO_PLURALS else ""


def _touching_money(token: Token, number: Token) -> bool:
    return token.sentence == number.sentence and (
        token.text in _SIGNS or token.word in ("usd", "eur", "gbp", "inr", "jpy")
    )


def _digit_traits(value: str) -> frozenset[str]:
    """The digits in order of size: a number with two of them swapped keeps it."""
    return frozenset({"digits:" + "".join(sorted(value[:20]))} if len(value) > 2 else ())


def _from_now(text: Text, i: int, j: int, value: str) -> frozenset[str]:
    """The day that "two weeks ago", "in 3 days" or "5 years later" means in a note with a date; the unit is at j."""
    tokens = [t.word for t in text.tokens[j : j + 3] if t.word != "of"]
    if text.day is None or not tokens or not value.isdecimal() or len(value) > 4:
        return frozenset()
    after = tokens[1] if len(tokens) > 1 else ""
    ahead = after in _ONWARD or (i > 0 and text.tokens[i - 1].word in ("in", "within"))
    sign = -1 if after in _BACK else 1 if ahead else 0
    triples = _ago(text.day, int(value), _UNIT.get(tokens[0], ""), sign) if sign else []
    return frozenset(key for t in triples for key in _wider(t))


def _that_day(day: date | None, value: str) -> frozenset[str]:
    """The days that "the 9th" may mean, in the note's month or one beside it."""
    if day is None or len(value) > 2 or not 0 < int(value) < 32:
        return frozenset()
    months = {(day.year * 12 + day.month - 1 + step) for step in (-1, 0, 1)}
    triples = [(m // 12, m % 12 + 1, int(value)) for m in months]
    return frozenset(key for t in triples if 0 < t[0] < 10000 and _valid(*t) for key in _wider(t))


def _quotes(text: Text) -> Iterator[Mention]:
    """Quoted strings, looked up as runs of three words within a sentence."""
    for found in _QUOTES.finditer(text.text):
        inner = text.inside(*found.span(found.lastindex or 0))
        if inner:
            claim = text.claim(QUOTE, " ".join(t.word for t in inner), *found.span())
            traits = frozenset({f"name:{t.word}" for t in inner if t.word not in COMMON})
            yield Mention(claim, frozenset(_runs(inner)), traits=traits, sentence=inner[0].sentence)


def _runs(tokens: Sequence[Token]) -> Iterator[str]:
    """Every run of three words within a sentence; of a shorter piece, the piece."""
    start = 0
    for end in range(1, len(tokens) + 1):
        if end == len(tokens) or tokens[end].sentence != tokens[start].sentence:
            piece = [t.word for t in tokens[start:end]]
            yield from (" ".join(piece[k : k + 3]) for k in range(max(1, len(piece) - 2)))
            start = end


# - negations -

_NOT = frozenset("not never no none nobody nothing nowhere neither nor cannot without".split())
_SOFT = frozenset(
    """
    hate avoid stop quit refus fail unabl lack cancel skip instead rather hard hardli rare bare except unlik
    forget forgot miss declin against few unless unfortun prevent dislik wrong fals gone lost free reject deni end
    """.split()
)
_LIGHT = frozenset(
    """
    realli yet actual even ever onli just quit much mani more most go get got want need sure know think seem feel like
    thing longer abl still alway particular specif necessarili mean say said tell provid mention user assist use make
    let tri anyth anyon currentli explicit direct
    """.split()
)
_LIMITS = frozenset("until till unless".split())  # "not before two" says that it was
_IDIOM = frozenset("only just doubt problem worries matter wonder necessarily least mention".split())


def _is_not(token: Token) -> bool:
    return token.word in _NOT or token.word.endswith("n't")


def _denials(text: Text) -> Iterator[Denial]:
    """Each negation with the word that it denies: the first telling one after it in its clause."""
    for i, token in enumerate(text.tokens):
        if not _is_not(token) or any(t.word in _LIMITS and t.clause == token.clause for t in text.tokens[i : i + 9]):
            continue
        for after in text.tokens[i + 1 : i + 7]:
            if after.clause != token.clause or after.word in _IDIOM or _is_not(after):
                break
            stem = text.stem[after.word]
            if stem not in COMMON_STEMS and stem not in _LIGHT and not after.number:
                claim = text.claim(NEGATION, f"not {stem}", token.start, after.end)
                yield Denial(claim, stem, token.sentence)
                break


# - looking up -


class Support:
    """All that a set of texts supports."""

    def __init__(self, texts: Sequence[Text], *, asked: str = "") -> None:
        self.words: set[str] = set()
        self.joined: set[str] = set()
        self.initials: set[str] = set()
        self.acronyms: set[str] = set()
        self.runs: set[str] = set()
        self.units: dict[str, set[str]] = {}
        self.keys: set[str] = set()
        self.stems: set[str] = set()
        self.denied: set[str] = set()
        self._add_words(Text(asked))  # a name or quotation of the question's own is no invention
        for text in texts:
            self._add(text)

    def _add_words(self, text: Text) -> None:
        words = [token.word for token in text.tokens]
        self.words.update(words)
        self.joined.update(a + b for a, b in pairwise(words))
        self.runs.update(words, map(" ".join, pairwise(words)))
        self.runs.update(map(" ".join, zip(words, words[1:], words[2:], strict=False)))

    def _add(self, text: Text) -> None:
        self._add_words(text)
        self.stems.update(text.stem.values())
        self.acronyms.update(token.word for token in text.tokens if len(token.text) > 1 and token.text.isupper())
        for mention in text.mentions:
            if mention.claim.kind == NUMBER:
                for key in mention.keys:
                    self.units.setdefault(key, set()).add(mention.unit)
            if mention.claim.kind == NAME:
                self.initials.add("".join(word[0] for word in mention.claim.value.split()))
            self.keys |= mention.wider
            if mention.claim.kind == DATE:
                self.keys |= mention.keys
        cues = _cues(text)
        self.denied.update(text.stem[token.word] for token in text.tokens if token.clause in cues)
        self._add_note(text.note, text.day)

    def _add_note(self, note: Note | None, day: date | None) -> None:
        """What a note says beside its words: who spoke, and when."""
        if note is None:
            return
        for found in _TOKEN.finditer(note.speaker or ""):
            self.words.add(_bare(found.group()))
        if day is not None:
            self.keys |= {*_wider(_triple(day)), f"day:{day.day}"}
            self.keys |= {f"T{clock}" for clock in re.findall(r"[T ](\d\d:\d\d)", (note.timestamp or "")[10:16])}

    def holds(self, mention: Mention) -> bool:
        """Whether a claim of another text is supported here."""
        kind = mention.claim.kind
        if kind == NUMBER:
            return any(self._number(key, mention.unit) for key in mention.keys)
        if kind == DATE:
            return not self.keys.isdisjoint(mention.keys) or self._bare_date(mention)
        if kind == NAME:
            return self._name(mention.claim.value.split()) or (mention.cut and self._begun(mention.claim.value))
        return mention.keys <= self.runs

    def _number(self, key: str, unit: str) -> bool:
        """The number stands here, bare or of the same unit: 20 gallons support neither 20 miles nor 20 tanks."""
        units = self.units.get(key, ())
        return key in self.keys or unit in units or "" in units or (unit == "" and bool(units))

    def _bare_date(self, mention: Mention) -> bool:
        """A year said as a number, or an hour without its half of the day."""
        if mention.claim.value in self.units:
            return True
        return any(key[5:] in self.units for key in mention.wider if key.startswith("hour:"))

    def _begun(self, value: str) -> bool:
        """The name's last word is the beginning of one that stands here: the record was cut off in it."""
        *words, last = value.split()
        return len(last) > 1 and self._name(words) and any(word.startswith(last) for word in self.words)

    def _name(self, words: Sequence[str]) -> bool:
        unknown = [word for word in words if word not in self.words and not self._variant(word)]
        return not unknown or "".join(words) in self.words or "".join(word[0] for word in words) in self.acronyms

    def _variant(self, word: str) -> bool:
        """Another form of a word that stands here: joined, a plural, initials, the same stem."""
        if word in self.joined or word in self.initials or word.rstrip("s") in self.words or word + "s" in self.words:
            return True
        return stem_words([word])[0] in self.stems

    def denies(self, denial: Denial) -> bool:
        """Whether a sentence here that holds the same word denies something."""
        return denial.stem in self.denied


def _cues(text: Text) -> set[int]:
    """The clauses that deny: by "not" and its kin, or softly ("avoid", "stopped")."""
    return {token.clause for token in text.tokens if _is_not(token) or text.stem[token.word] in _SOFT}


class Index:
    """The claims of the sources by what stands around them, to find what a changed claim was made from."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = texts

    @cached_property
    def _by_trait(self) -> dict[tuple[str, str], list[Mention]]:
        out: dict[tuple[str, str], list[Mention]] = {}
        for text in self.texts:
            for mention in text.firm:
                for key in (*text.near(mention), *mention.traits):
                    held = out.setdefault((mention.claim.kind, key), [])
                    if len(held) < _MOST:
                        held.append(mention)
        return out

    def nearest(self, mention: Mention, record: Text) -> Mention | None:
        """The source claim of the same kind that shares most with this one; None where none shares enough."""
        scores: dict[int, tuple[int, Mention]] = {}
        for key in (*record.near(mention), *mention.traits):
            for other in self._by_trait.get((mention.claim.kind, key), ()):
                scores[id(other)] = (scores.get(id(other), (0, other))[0] + _WORTH.get(key.partition(":")[0], 1), other)
        best = max(scores.values(), key=lambda pair: pair[0], default=None)
        return best[1] if best and best[0] >= SIMILAR else None

    @cached_property
    def _said(self) -> dict[str, list[tuple[Text, Token]]]:
        """Where a telling stem stands in a sentence that denies nothing."""
        out: dict[str, list[tuple[Text, Token]]] = {}
        for text in self.texts:
            cues = _cues(text)
            for token in text.tokens:
                held = out.setdefault(text.stem[token.word], [])
                if token.clause not in cues and len(held) < _MOST:
                    held.append((text, token))
        return out

    def affirmed(self, denial: Denial, record: Text) -> Claim | None:
        """The source's own statement of what the record denies."""
        for text, token in self._said.get(denial.stem, ()):
            if len(record.stems[denial.sentence] & text.stems[token.sentence]) >= SIMILAR:
                return text.claim(NEGATION, denial.stem, token.start, token.end)
        return None

    def dropped(self, record: Text) -> list[tuple[Claim, Claim]]:
        """Statements of the record that every source sentence with the same word denies."""
        cues = _cues(record)
        denied: dict[str, list[tuple[Text, Denial]]] = {}
        for text in self.texts:
            for denial in text.denials:
                denied.setdefault(denial.stem, []).append((text, denial))
        out = []
        for token in record.tokens:
            stem = record.stem[token.word]
            if token.clause in cues or stem not in denied or self._said.get(stem):
                continue
            for text, denial in denied[stem][:_MOST]:
                if len(record.stems[token.sentence] & text.stems[denial.sentence]) > SIMILAR:
                    out.append((record.claim(NEGATION, stem, token.start, token.end), denial.claim))
                    break
        return out


_WORTH = {"title": 2, "name": 2, "digits": 2, "value": 2, "of": 2}  # other traits and words around: 1 each
