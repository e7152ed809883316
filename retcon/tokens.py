"""Text -> tokens: the only place a token is counted or cut.

A budget is a promise in tokens of the caller's model, and that tokenizer is rarely at hand. The default is an estimate
that errs high on the common BPE tokenizers: the text falls into the pieces their pretokenizers make (a word with the
space or sign before it, a run of digits, signs or white space, a character of another script), and each piece has a
price. A word costs one token, and more for what makes BPE split it: letter pairs foreign to English, capitals inside,
accents, length. The prices were fitted on one benchmark and checked on another (`bench/tokens.py`, `docs/tokens.md`).

What holds for the estimate: it is never 0 on text that is not empty; a prefix that ends where a word ends never costs
more than the whole; estimate(a + b) <= estimate(a) + estimate(b) wherever white space stands at the joint.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
import unicodedata
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

from retcon import deadline
from retcon.errors import InputError, MissingExtraError, RetconError, message_of, quote
from retcon.memo import Memo
from retcon.note import MARK
from retcon.words import CAPITALS, MONTHS, QUOTE, sentence_ends

MOST = 10_000_000  # tokens; a larger budget is a mistake
_MOST_COUNTED = (1 << 63) - 1  # tokens of one text that a counter may report: what a store can hold
KNOWN = ("estimate", "alphanumeric", "bpe:o200k", "bpe:cl100k")


class Counter(Protocol):
    """Counts the tokens of a text. The name is stable: reports and router files carry it."""

    @property
    def name(self) -> str: ...

    def __call__(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True)
class _Named:
    """A counter of our own."""

    name: str
    function: Callable[[str], int]

    def __call__(self, text: str) -> int:
        return self.function(text)


@dataclass(frozen=True, slots=True)
class _Checked(_Named):
    """A counter from outside: it must return a whole number of 0 or more, and nothing else is assumed of it."""

    def __call__(self, text: str) -> int:
        where = f"token counter {self.name!r} on a text of {len(text)} characters"
        try:
            found = self.function(text)
        except RetconError:  # a counter around another one
            raise
        except Exception as error:
            raise InputError(f"{where} failed: {_describe(error)}") from error
        try:
            tokens = -1 if isinstance(found, bool) else operator.index(found)
        except TypeError:
            tokens = -1
        if tokens < 0:
            raise InputError(f"{where} returned {quote(found)}, not a whole number of 0 or more")
        if tokens > _MOST_COUNTED:
            raise InputError(f"{where} returned {quote(tokens)}, more tokens than any text has")
        return tokens


def counter(spec: str | Callable[[str], int] | Counter | None = None) -> Counter:
    """The counter of that name, a callable as a checked counter, the estimate for None."""
    if isinstance(spec, _Named):
        return spec
    if spec is None:
        return _ESTIMATE
    if isinstance(spec, str) and spec in _BUILT_IN:
        return _BUILT_IN[spec]()
    if callable(spec):
        name = getattr(spec, "name", None) or getattr(spec, "__name__", None)
        return _Checked(name if isinstance(name, str) and name != "<lambda>" else "custom", spec)
    raise InputError(f"unknown token counter {quote(spec)}: known are {', '.join(KNOWN)}, or any callable")


class _Counts(dict[str, int]):
    """Text -> its tokens, each counted when it is first asked for."""

    def __init__(self, count: Counter) -> None:
        self.count = count

    def __missing__(self, text: str) -> int:
        tokens = self[text] = self.count(text)
        return tokens


def remember(count: Counter) -> Counter:
    """The counter, with a memory of its own, for one recall: it counts no text twice, and the estimate no line."""
    return _Named(count.name, (_Estimates() if count is _ESTIMATE else _Counts(count)).__getitem__)


def _describe(error: Exception) -> str:
    kind, said = type(error).__name__, message_of(error)
    return kind if said == kind else f"{kind}: {said}"


def check_budget(budget: object) -> int:
    """The budget as an int; an error for anything but a whole number from 0 to `MOST`."""
    if isinstance(budget, numbers.Real) and not isinstance(budget, bool) and budget <= MOST and not budget < 0:
        whole = math.floor(budget)
        if whole == budget:
            return int(whole)
    raise InputError(f"budget must be a whole number of tokens from 0 to {MOST:,}, not {quote(budget)}")


# ---- the estimate, in hundredths of a token

# A first letter with all that follow it: together 97 % of the letter pairs of English chat.
_PAIRS = frozenset(
    group[0] + second
    for group in (
        "abcdfgiklmnprstuvwy baeilorsu cacehiklortu dadeiorsuy eabcdefgiklmnoprstvwxy faefilortu gaeghinorsu haeiortuy "
        "iabcdefgklmnoprstvxz jaeou keis ladeilopstuy mabeimopsu nacdefgiklnostuvy oabcdfgiklmnoprstuvwy paehiloprstu "
        "qu racdegiklmnorstuvy sacehikmopstuy tacehilorstuwy uabcdegilmnprst vaeio waehinos xp yeilos ze"
    ).split()
    for second in group[1:]
)
# Characters outside Latin words, by the start of their range: what cl100k, the dearest for most of them, takes at most
# on nearly all real text. Cyrillic and Arabic have a cheap core inside a dear range.
_RANGES = (
    (0x00, 100), (0x80, 200), (0xA0, 150), (0x250, 200), (0x370, 105), (0x400, 180), (0x410, 58), (0x450, 180),
    (0x530, 215), (0x590, 120), (0x621, 80), (0x64B, 130), (0x700, 200), (0x900, 125), (0x980, 155), (0xA00, 200),
    (0xE00, 105), (0xE80, 260), (0x10A0, 215), (0x1100, 300), (0x1780, 200), (0x1800, 300), (0x2000, 200),
    (0x2010, 120), (0x2027, 200), (0x2300, 300), (0x2500, 200), (0x2600, 300), (0x3000, 130), (0x3040, 100),
    (0x3100, 300), (0x4E00, 145), (0xA000, 300), (0xAC00, 120), (0xD7B0, 300), (0xFE00, 200), (0xFE10, 300),
    (0xFF00, 150), (0xFF10, 250), (0x10000, 400), (0x1F000, 300), (0x20000, 400),
)  # fmt: skip
_STARTS = tuple(start for start, _ in _RANGES)
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_SIGN = r"!-/:-@\[-`{-~"
_KINDS = {
    "ending": rf"'(?:[stmd]|re|ve|ll)(?![{_LATIN}])",  # of a contraction
    "word": rf"[ {_SIGN}]?[{_LATIN}]{{1,32}}",  # with the one space or sign that BPE glues to it
    "digits": r"[0-9]{1,32}",
    "signs": rf" ?[{_SIGN}]{{1,16}}",
    "spaces": r" {1,64}(?= )| ",  # the last space of a run goes with what follows it
    "breaks": r"[\r\n]{1,16}|\t{1,16}",
    "other": r" ?[^\x00-\x7f]|.",
}
_PIECE = re.compile("|".join(f"(?:{pattern})" for pattern in _KINDS.values()), re.DOTALL)
_KIND = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.DOTALL)
_SLACK = 45  # once per text
_START, _END = 45, 90  # a word with nothing before it; a long word that ends in a vowel, as few English ones do
_LETTER, _CAPITAL, _SIGNED, _BARE = 3, 13, 20, 40  # a letter past the fourth: any, in a name, after a sign, at a start
_RARE, _UPPER, _ACCENT = 80, 50, 100  # a letter pair foreign to English, with a capital inside, with an accent


def _estimate(text: str) -> int:
    return _round_up(_sum_pieces(text)) if text else 0


def _round_up(pieces: int) -> int:
    return -(-(_SLACK + pieces) // 100)


def _sum_pieces(text: str) -> int:
    return sum(_price.each(_PIECE.findall(text)))


line_sums = Memo(_sum_pieces, 1 << 12, longest=1_000)  # of lines met lately: notes come back with the next query


class _Estimates(dict[str, int]):
    """Text -> its estimate. No piece reaches past a line break, so that a text is the sum of its lines.

    A recall counts the same lines again and again, each time among others.
    """

    def __missing__(self, text: str) -> int:
        lines = text.split("\n")
        if "\r" in text or "\n\n" in text or not text:  # a run of breaks is one piece
            tokens = _estimate(text)
        else:
            tokens = _round_up(sum(line_sums.each(lines)) + _price("\n") * (len(lines) - 1))
        self[text] = tokens
        return tokens


def _piece_price(piece: str) -> int:
    kind = _KIND.match(piece).lastgroup  # type: ignore[union-attr]  # the last kind takes anything
    return _PRICES[kind](piece)  # type: ignore[index]


_price = Memo(_piece_price, 1 << 16)


def _word_price(piece: str) -> int:
    word = piece if piece[0].isalpha() else piece[1:]
    before = _BARE if word is piece else 0 if piece[0] == " " else _SIGNED
    letters = (_LETTER + before + _CAPITAL * word[0].isupper()) * max(0, len(word) - 4)
    ends = _START * (word is piece and len(word) > 2) + _END * (len(word) > 4 and word[-1] in "aiou")
    return 100 + letters + ends + sum(map(_pair_price, word[0].lower() + word[1:], word[1:]))


def _pair_price(first: str, second: str) -> int:
    if first + second in _PAIRS:
        return 0
    if not (first.isascii() and second.isascii()):
        return _ACCENT
    return _UPPER if first.isupper() or second.isupper() else _RARE


def _signs_price(piece: str) -> int:
    return 100 + sum(20 if first == second else 70 for first, second in pairwise(piece.lstrip(" ")))


def _other_price(piece: str) -> int:
    price = _RANGES[bisect_right(_STARTS, ord(piece[-1])) - 1][1]
    return price if len(piece) == 1 else max(price, 100)


_PRICES: dict[str, Callable[[str], int]] = {
    "ending": lambda piece: 100,
    "word": _word_price,
    "digits": lambda piece: 50 + 50 * len(piece),  # BPE takes digits in threes or one by one: between the two
    "signs": _signs_price,
    "spaces": lambda piece: 100 + 100 * (len(piece) // 16),
    "breaks": lambda piece: 70 + 30 * len(piece),
    "other": _other_price,
}

# ---- the paper's count, and exact BPE

# Thai, Lao, Burmese, Khmer, kana, Han, Hangul: counted one by one, for a run of them is no word.
_EACH = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Marks inside words that Python does not call alphanumeric.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0980-\u0dff"
)
_RUN = rf"[{_EACH}](?<=\w)|[^\W_{_EACH}](?:[{_MARKS}]|[^\W_{_EACH}])*"
# The encoder refuses long inputs. No pretokenizer joins a space to the word or sign before it, so that splits exactly.
_CHUNK = re.compile(r".{1,40000}\Z|.{1,40000}(?<=\S)(?= )|.{1,40000}", re.DOTALL)


@lru_cache
def _compile(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled at first use: large character classes take tens of milliseconds."""
    return re.compile(pattern)


@lru_cache(maxsize=2)
def _bpe(vocabulary: str) -> Counter:
    with warnings.catch_warnings(action="ignore"):  # the package opens its files in a way that Python frowns upon
        try:
            import bpe_openai
        except ImportError as error:
            raise MissingExtraError("counting exact BPE tokens", "bpe") from error
        encode = bpe_openai.get_encoding(f"{vocabulary}_base").encode_ordinary
    return _Named(f"bpe:{vocabulary}", lambda text: sum(len(encode(chunk)) for chunk in _CHUNK.findall(text)))


_ESTIMATE = _Named("estimate", _estimate)
_ALPHANUMERIC = _Named("alphanumeric", lambda text: len(_compile(_RUN).findall(text)))
_BUILT_IN: dict[str, Callable[[], Counter]] = {
    "estimate": lambda: _ESTIMATE,
    "alphanumeric": lambda: _ALPHANUMERIC,
    "bpe": lambda: _bpe("o200k"),
    "bpe:o200k": lambda: _bpe("o200k"),
    "bpe:cl100k": lambda: _bpe("cl100k"),
}

# ---- cutting

# A unit is what a cut never divides: a word with what is glued to it (don't, 3,200, 2023-05-20, $5, 50%), or one
# character of any other kind. Letters, digits and marks of the scripts that write spaces make words.
_WORD = (
    "0-9A-Z_a-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u0dff\u0f00-\u0fff\u10a0-\u167f\u1681-\u177f"
    "\u1800-\u1fff\u2c00-\u2dff\ua000-\ud7ff\ufb00-\ufdff\ufe70-\ufefe\uff10-\uff19\uff21-\uff3a\uff41-\uff5a"
    "\U00010000-\U00016fff\U0001d400-\U0001d7ff\U0001e000-\U0001efff"
)
_EXTEND = "\u0e33\u0eb3\u200c\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"  # marks by use, not by category
_JOINER = "\u200d\u1039\u17d2"  # ties the next character to this one: zero-width joiner, Burmese and Khmer stacking
_OPENER = r"!-/:-@\[-`{-~\u00a1\u00a3\u00ab\u00bf\u2018\u201c\u20ac"  # after white space: goes with the next word
_GLUE = rf"[-.:/@&+'\u00ad\u2010\u2011\u2019\u200c{_JOINER}]|(?<=[0-9]),(?=[0-9])"  # two words become one
_SUFFIX = r"%+#$\u00a3\u00a5\u00b0\u2030\u20ac"
_ONE = (
    rf"(?:[\U0001f1e6-\U0001f1ff]{{2}}|[\ud800-\udbff][\udc00-\udfff]|[^\s{_JOINER}])"  # a flag, a pair of halves, any
)
_UNIT = (
    rf"(?:(?:(?<!\S)[{_OPENER}])?[{_WORD}]+(?:(?:{_GLUE})[{_WORD}]+)*[{_SUFFIX}]*|{_ONE}|(?=[{_JOINER}]))"
    rf"(?:[{_EXTEND}]|[{_JOINER}](?:(?![{_WORD}]){_ONE})?)*"
)


# What a cut does not divide either, though it is several units: a quote, an address, a date in words, an amount with
# its unit, a number in groups or in words, a name. A name is a run of two to six words with capitals; after six of them
# it is a heading, or shouting. At most ten groups of digits are one number.
_GAP = r"[ \u00a0\u202f]"
_PATH = r"[^\s<>\"'“”«»().,;:!?\]…。，]"
_URL = rf"(?:(?i:https?|ftp)://|www\.)(?:{_PATH}++|\([^\s()<>\"]{{0,99}}+\)|[.,;:!?\]'…]++(?={_PATH}))++"
_MONTH = (
    "(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_NTH = r"[0-9]{1,2}(?:st|nd|rd|th)?"
_DAY = (  # with any word before the year, with a known month also without one
    rf"[0-9]{{1,2}}(?:[-–][0-9]{{1,2}})?(?:st|nd|rd|th|er|º|\.)?(?:{_GAP}(?:of|de|di))?{_GAP}"
    rf"(?:(?:{_MONTH}|(?i:{MONTHS.replace(' ', '|')}))\b\.?(?:,?(?:{_GAP}de)?{_GAP}[0-9]{{4}}\b)?"
    rf"|[^\W\d_]{{3,12}}+\.?(?:{_GAP}de)?{_GAP}[0-9]{{4}}\b)"
)
_HAN = "0-9０-９〇零一二三四五六七八九十"
_DATE = (
    rf"{_DAY}|{_MONTH}\.?(?:{_GAP}{_NTH}\b(?:,?{_GAP}[0-9]{{4}}\b)?|,?{_GAP}[0-9]{{4}}\b)"
    rf"|[0-9]{{4}}년(?:{_GAP}?[0-9]{{1,2}}월)?(?:{_GAP}?[0-9]{{1,2}}일)?|[0-9]{{1,2}}월{_GAP}?[0-9]{{1,2}}일"
)
_HAN_DATE = (
    rf"(?<![{_HAN}])[{_HAN}]{{1,4}}(?:年(?:[{_HAN}]{{1,3}}月(?:[{_HAN}]{{1,3}}[日号號])?)?|月[{_HAN}]{{1,3}}[日号號])"
    rf"|(?<![{_HAN}.,])[{_HAN}][{_HAN}.,]{{0,20}}+[百千万萬億亿]{{0,3}}[円元圆圓]"
)
_CODE = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|RUB|TRY|KRW|BTC"
_BEFORE = r"(?:[A-Z]{0,2}[$\u00a3\u00a5\u20a0-\u20bf\u0e3f]|(?:[A-Z]{2,5}|Rs)\b\.?)"  # a currency, a line, a carrier
_UNIT_NAME = (  # what follows a number and belongs to it
    rf"[%‰°€$£¥₹][CFK]?|(?:{_CODE})\b|(?i:k|m|bn|mn|mio|mrd|mld|hundred|thousand|(?:m|b|tr)illi(?:on|ard)(?:e[ns]?|s)?"
    r"|lakh|crore|dozen|dollars?|euros?|pounds?|cents?|pence|yen|rupees?|francs?|pesos?|złotych|zł|bucks|quid|percent"
    r"|per cent|prozent|degrees?|celsius|fahrenheit|km|cm|mm|miles?|mi|met(?:er|re)s?|feet|foot|ft|inch(?:es)?|yards?"
    r"|k?m²|kg|mg|g|kilos?|lbs?|oz|ounces?|tons?|tonnes?|l|ml|lit(?:er|re)s?|gallons?|mph|km/h|kwh|kw|mb|gb|tb|hz|ghz|hours?"
    r"|hrs?|h|min(?:ute)?s?|sec(?:ond)?s?|s|days?|weeks?|months?|years?|yrs?|uhr|o['’]clock|[ap]\.m\.?|[ap]m)(?!\w)"
)
_UNITS = rf"(?:{_GAP}?(?:{_UNIT_NAME})){{0,3}}"
_DIGITS = r"[0-9]++(?:[.,:/'’−–-][0-9]++)*+%?"
_GROUP = rf"(?!{_DAY})(?:\([0-9+]{{1,5}}\)(?:{_GAP}|-)?)?+{_DIGITS}"
_NUMBER = rf"(?:{_BEFORE}{_GAP}?)?+[-+−±]?{_GROUP}(?:{_GAP}{_GROUP}(?!\w)){{0,9}}+{_UNITS}"
_FIGURE = (
    r"(?:(?:[Oo]ne|[Tt](?:w(?:o|elve|enty)|h(?:ree|irt(?:een|y)|ousand)|en)|[Ff](?:our(?:teen)?|orty|i(?:ve|ft(?:een|y)))"
    r"|[Ss](?:ix|even)(?:t(?:een|y))?|[Ee](?:ight(?:een|y)?|leven)|[Nn]ine(?:t(?:een|y))?|[Hh](?:undred|alf)"
    r"|[MmBb]illions?|[Dd]ozen)(?!\w))"
)
_FIGURES = rf"{_FIGURE}(?:[ -](?:and (?:a )?)?{_FIGURE}){{0,6}}+{_UNITS}"
_KEYED = (  # a bank account, a postcode
    rf"[A-Z]{{2}}[0-9]{{2}}(?:{_GAP}[0-9A-Z]{{2,4}}\b){{2,8}}+|[A-Z]{{1,2}}[0-9][0-9A-Z]?{_GAP}[0-9][A-Z]{{2}}\b"
)
_TITLE = rf"(?:(?:[{CAPITALS}]\.){{1,5}}|(?:Dr|Mr|Mrs|Ms|St|Prof|Jr|Sr)\.)"
_NAME = rf"(?!I\b|{_MONTH}\.?{_GAP}[0-9]|{_BEFORE}{_GAP}?[0-9]|{_KEYED})(?:{_TITLE}|[{CAPITALS}][\w'’\u0300-\u036f-]*+)"
_NEXT_NAME = rf"{_GAP}(?!(?<!\.\s)(?:Dr|Mr|Mrs|Ms|Prof)\.){_NAME}"  # a courtesy title begins another name
_LINK = (
    rf"(?:{_GAP}(?:of|the|&|del?|la|le|las|los|van|von|de[rn]|te[rn]|zu|da|das|dos|di|du|bin|ibn|ben|al|el|y)(?!\w))"
)
_WHOLE = (
    rf"(?<!\w)(?:(?=[{CAPITALS}])(?<!['’-]){_NAME}(?:{_LINK}{{0,2}}{_NEXT_NAME}){{1,5}}|(?=[hHfFw]){_URL}"
    rf"|(?![e-ik-lp-rt-z])(?:{_DATE})|(?![a-z])(?:{_HAN_DATE}|{_KEYED}|{_NUMBER})|{_FIGURES})|{QUOTE.pattern}|{_HAN_DATE}"
)
LOOSE = ",;:(-–— "  # signs that never stand beside a mark
BULLETS = "*•\n\r\t"  # nor these, at the end


def cut(text: str, budget: int, count: Counter) -> str:
    """The longest prefix within the budget that divides no word, number, date, name or quote; "" where none fits.

    No white space ends it. Budget 0 gives "" whatever the counter says. With a counter whose count can fall as the text
    grows, the prefix still fits, but a longer one might too. What is counted grows with the prefix, not with the text:
    prefixes of doubling length are counted until one is too long, and only the ends inside the last doubling are
    searched.
    """
    return _cut_at(text, _span_ends(text), budget, count)


def cut_sentences(text: str, budget: int, count: Counter) -> str:
    """The longest run of its first sentences within the budget, no quote left open; "" where not one fits.

    A line that ends without a full stop is no sentence: what is left after it would look complete.
    """
    return _cut_at(text, _trim(text, sentence_ends(text, lines=False)), budget, count)


def cut_marked(text: str, budget: int, count: Counter) -> str:
    """The longest prefix that leaves room for the mark of a cut, with the mark; "" where none does."""
    count = counter(count)
    kept = cut(text, budget, counter(lambda prefix: count(prefix + MARK))).rstrip(LOOSE + BULLETS)
    return kept + MARK if kept and count(kept + MARK) <= budget else ""


def spans(text: str) -> list[tuple[int, int]]:
    """Where each part that a cut never divides begins and ends, in order; white space stands between them."""
    if text.isascii():
        return _ascii_spans(text)
    out: list[tuple[int, int]] = []
    at = 0
    for end in _span_ends(text):
        while text[at].isspace():
            at += 1
        out.append((at, end))
        at = end
    return out


def _ascii_spans(text: str) -> list[tuple[int, int]]:
    """The same of ASCII text, where units are all but white space and no mark belongs to another character."""
    units = [unit.span() for unit in _compile(_UNIT).finditer(text)]
    wholes = _compile(_WHOLE).finditer(text)
    start, stop = _next_span(wholes)
    if start == math.inf:
        return units
    out: list[tuple[int, int]] = []
    begin = -1  # of the units since the last span
    for at, end in units:
        begin = at if begin < 0 else begin
        while stop <= end:
            start, stop = _next_span(wholes)
        if end <= start:
            out.append((begin, end))
            begin = -1
    return out


def _cut_at(text: str, ends: Iterator[int], budget: int, count: Counter) -> str:
    """The longest prefix within the budget that ends at one of those places."""
    budget, count = check_budget(budget), counter(count)
    fits, tokens, reach = 0, 0, 6 * budget + 64
    while some := _until(ends if budget else iter(()), reach):
        deadline.check()
        total = count(text[: some[-1]])
        if total > budget:
            return text[: _last_fit(lambda end: count(text[:end]), [fits, *some], tokens, total, budget)]
        fits, tokens, reach = some[-1], total, 2 * some[-1]
    return text[:fits]


def _until(ends: Iterator[int], reach: int) -> list[int]:
    """The next ends, up to the first at or past `reach`."""
    out: list[int] = []
    for end in ends:
        out.append(end)
        if end >= reach:
            break
    return out


def _span_ends(text: str) -> Iterator[int]:
    """Where units end that stand inside of no whole; a mark belongs to what stands before it."""
    wholes = _compile(_WHOLE).finditer(text)
    start, stop = _next_span(wholes)
    for unit in _compile(_UNIT).finditer(text):
        end = unit.end()
        following = text[end : end + 1]
        if following >= "\u0300" and unicodedata.category(following)[0] == "M":
            continue
        while stop <= end:
            start, stop = _next_span(wholes)
        if end <= start:
            yield end


def _next_span(found: Iterator[re.Match[str]]) -> tuple[float, float]:
    """Where the next match begins and ends: infinitely far where there is none."""
    match = next(found, None)
    return (math.inf, math.inf) if match is None else match.span()


def _trim(text: str, ends: Iterator[int]) -> Iterator[int]:
    """The ends, each before the white space that leads to it."""
    before = 0
    for end in ends:
        at = end
        while at > before and text[at - 1].isspace():
            at -= 1
        if at > before:
            yield at
        before = end


def _last_fit(cost: Callable[[int], int], ends: list[int], below: int, above: int, budget: int) -> int:
    """An end that fits whose successor does not; the first of `ends` costs `below` and fits, the last costs `above`."""
    low, high, turn = 0, len(ends) - 1, 0
    while high - low > 1:
        deadline.check()
        gap, turn = high - low, turn + 1
        # Counts grow almost evenly: look on both sides of the straight line, and halve now and then.
        line = low + gap * (budget - below) // (above - below)
        guess = line + (-1) ** turn * math.isqrt(gap) // 2 if turn % 3 else (low + high) // 2
        guess = min(max(guess, low + 1), high - 1)
        tokens = cost(ends[guess])
        if tokens > budget:
            high, above = guess, tokens
        else:
            low, below = guess, tokens
    return ends[low]
