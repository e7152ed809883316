"""Numbers as they are written, in the digits of any script or in English words -> plain decimals.

A value is a string without needless zeros, so that two of them are equal where the numbers are; digits that may mean
two numbers ("3.200") have both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from retcon.fidelity.text import RAISED, SIGNS, Token

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
CARDINAL = {word: i for i, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, 2)}
ORDINAL = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12, "thirteenth": 13, "fourteenth": 14, "fifteenth": 15, "sixteenth": 16,
    "seventeenth": 17, "eighteenth": 18, "nineteenth": 19, "twentieth": 20, "thirtieth": 30,
}  # fmt: skip
SCALE = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "dozen": 0}
SUFFIX = re.compile(r"(?:st|nd|rd|th)\b", re.I)
GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_PLAIN = re.compile(r"\d+(?:\.\d+)*")


def ascii_digits(digits: str) -> str:
    """The digits of every script as 0 to 9, and a sign such as ⑫, Ⅳ or ½ as the number it is."""
    if digits.isascii():
        return digits
    if digits in SIGNS:
        return decimal(unicodedata.numeric(digits))
    if digits[0] in RAISED:
        return "".join(str(unicodedata.digit(c)) for c in digits if c not in "⁻₋")
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in digits)


def decimal(value: float) -> str:
    """A number as a plain decimal, thirds and their like to five places."""
    return trim_zeros(f"{abs(value):.5f}")


def trim_zeros(digits: str) -> str:
    """The number without leading and trailing zeros."""
    digits = ascii_digits(digits)
    whole, dot, rest = digits.partition(".")
    if "." in rest:  # a version
        return digits
    rest = rest.rstrip("0")
    return (whole.lstrip("0") or "0") + (dot + rest if rest else "")


def shift(value: str, power: int) -> str:
    """The number times ten to the power."""
    whole, _, rest = value.partition(".")
    return trim_zeros(whole + rest[:power].ljust(power, "0") + "." + rest[power:])


def number_values(part: str) -> tuple[str, ...]:
    """What the digits may mean: "3,200" is 3200, "3.200" is 3.2 or 3200, "1.234,56" is 1234.56, "1,2" is 1.2."""
    if GROUPED.fullmatch(part):
        return (trim_zeros(part.replace(",", "")),)
    if _PLAIN.fullmatch(part):
        whole, _, rest = part.partition(".")
        return (
            (trim_zeros(part), trim_zeros(whole + rest)) if len(rest) == 3 and len(whole) < 4 else (trim_zeros(part),)
        )
    return (trim_zeros(part.replace(".", "").replace(",", ".", 1)),)


def number_word(tokens: Sequence[Token], i: int) -> tuple[int, int, bool] | None:
    """Value, end and whether it is an ordinal, of the number words from token i on: "two hundred and five"."""
    total, group, j = 0, 0, i
    room, scale = 100, 15  # what may still be added to the group: below 100, 10, 1; and the next scale word's limit
    while j < len(tokens) and (j == i or joins(tokens[j])):
        word = tokens[j].word
        small = CARDINAL.get(word, ORDINAL.get(word, 100))
        if small < room and (small or j == i):
            group, room, j = group + small, 10 if small >= 20 else 1, j + 1
            if word in ORDINAL:
                return total + group, j, True
        elif word in ("hundred", "dozen") and (0 < group < 100 or _counts_alone(tokens, i, j)):
            group, room, j = (group or 1) * (100 if word == "hundred" else 12), 100 if word == "hundred" else 1, j + 1
        elif 2 < SCALE.get(word, 0) < scale and (group or _counts_alone(tokens, i, j)):
            total, group, room, scale, j = total + (group or 1) * 10 ** SCALE[word], 0, 100, SCALE[word], j + 1
        elif word == "and" and j > i and room == 100 and [t for t in tokens[j + 1 : j + 2] if t.word in CARDINAL]:
            j += 1
        else:
            break
    return (total + group, j, False) if j > i else None


def _counts_alone(tokens: Sequence[Token], i: int, j: int) -> bool:
    """Whether a scale word counts by itself: "a hundred", "dozen"."""
    return i == j and (tokens[i].word == "dozen" or (i > 0 and tokens[i - 1].word == "a" and joins(tokens[i])))


def joins(token: Token) -> bool:
    """Whether nothing but blanks or a hyphen stands between the token and the one before it."""
    return token.gap.strip(" \t") in ("", "-", "‑")
