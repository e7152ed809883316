"""A number with what stands around it: its scale, its unit, the currency before it, the letters glued to it.

A number that counts from the note's day ("two weeks ago") means that day too, a bare year is a date, and the ninth may
be a day of the month.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from retcon.fidelity.dates import date_mention
from retcon.fidelity.days import YEAR, ago, days_of_month, wider_keys
from retcon.fidelity.numerals import SCALE, SUFFIX, ascii_digits, decimal, shift, trim_zeros
from retcon.fidelity.text import NUMBER, RAISED, SIGNS, Mention, Text, Token
from retcon.note import Claim
from retcon.words import COMMON

_GLUED_SCALE = {"k": 3, "m": 6, "mm": 6, "mn": 6, "mil": 6, "b": 9, "bn": 9, "tn": 12}
# What letters glued to a number stand for in words; "5m" is five million, metres or minutes.
_WRITTEN_OUT = {
    "k": "km kms kilometer kilometers kilometre kilometres", "m": "meter meters metre metres minute minutes min mins",
    "mm": "millimeter millimeters millimetre millimetres", "d": "dimension dimensions dimensional", "v": "volt volts",
    "w": "watt watts", "t": "ton tons tonne tonnes", "c": "celsius", "f": "fahrenheit", "y": "year years yr yrs",
}  # fmt: skip
_GLUED_FOR = {
    word: [letters for letters, out in _WRITTEN_OUT.items() if word in out.split()]
    for words in _WRITTEN_OUT.values()
    for word in words.split()
}
_NO_CODES = frozenset("sx")  # "the 90s", "5x" say the bare number
_UNIT_WORDS = {
    "second": "second seconds sec secs", "minute": "minute minutes min mins", "hour": "hour hours hr hrs h",
    "day": "day days", "week": "week weeks wk wks", "month": "month months", "year": "year years yr yrs",
    "mile": "mile miles mi", "km": "km kms kilometer kilometers kilometre kilometres k",
    "metre": "meter meters metre metres m",
    "mm": "mm millimeter millimeters millimetre millimetres", "cm": "cm centimeter centimeters centimetre centimetres",
    "foot": "foot feet ft", "inch": "inch inches", "yard": "yard yards",
    "kg": "kg kgs kilo kilos kilogram kilograms", "gram": "gram grams g",
    "pound": "pound pounds lb lbs £ gbp quid", "ounce": "ounce ounces oz", "litre": "liter liters litre litres l",
    "ml": "ml milliliter milliliters", "gallon": "gallon gallons gal", "cup": "cup cups",
    "dollar": "$ dollar dollars usd buck bucks", "euro": "€ euro euros eur", "yen": "¥ yen jpy yuan rmb cny",
    "rupee": "₹ rupee rupees inr", "percent": "% percent pct percentage",
}  # fmt: skip
UNIT = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
_NO_PLURALS = COMMON | {"plus", "less", "minus", "plays", "versus", "across", "s"}
_SIGNS = frozenset("$£€¥₹")
_SCALE_SIGNS = str.maketrans("℃℉", "CF")
_DEGREES = re.compile(
    r"[ \u00a0-]?(?:(?:°|degrees?\b)(?:[ \u00a0]?(c|f|celsius|centigrade|fahrenheit)\b)?"
    r"|([℃℉]|(?:celsius|centigrade|fahrenheit)\b))",
    re.I,
)
_SCALES_APART = frozenset("k mn bn tn".split())  # letters that scale a number across a space; after money all do
FRACTION = re.compile(r"([1-9])/([1-9]\d?)")
_PART_WORDS: dict[tuple[str, ...], str] = {
    ("and", "a", "half"): "5",
    ("and", "a", "quarter"): "25",
    ("and", "three", "quarters"): "75",
}
_BACK = frozenset("ago before earlier back prior".split())
_ONWARD = frozenset("later after from hence".split())
_AT = frozenset("at around by from to until till before after about between and".split())


def measure(
    text: Text, i: int, j: int, values: tuple[str, ...], *, ordinal: bool = False, low: int = 0
) -> tuple[Mention, int]:
    """The number of tokens i to j with the scale and unit that follow it, and the currency before it."""
    number = _Number(text, i, j, values, ordinal, low)
    number.take_next()
    number.take_letters()
    number.take_unit()
    return (number.as_year() if number.is_year() else number.as_mention()), number.after


class _Number:
    """A number while it is read: its tokens from `at` up to `after`, what they mean, and how else that may be said."""

    def __init__(self, text: Text, at: int, after: int, values: tuple[str, ...], ordinal: bool, low: int) -> None:
        self.text, self.at, self.after, self.values, self.ordinal = text, at, after, values, ordinal
        self.low = low  # where it begins in a run of digits that holds several
        self.token = text.tokens[at]
        self.before = text.tokens[at - 1] if at else None
        self.end = text.tokens[after - 1].end
        touching = (t for t in text.tokens[after : after + 3] if t.sentence == self.token.sentence)
        self.following = [t for t in touching if t.gap.strip(" -") == ""]
        self.money = UNIT.get(self.before.word, "") if self.before and _is_money(self.before, self.token) else ""
        self.bare: tuple[str, ...] = ()  # the number without the letters glued to it: said too, but not the claim
        self.also: frozenset[str] = frozenset()  # other ways to write it
        self.said: frozenset[str] = frozenset()  # what else the number and the words after it may be said as
        self.letter: Token | None = None  # glued to its front: "B12"
        self.measure: Token | None = None  # the word that names the unit
        self.unit = ""

    # -- the token after it: the first reading that fits takes it ------------------------------------------------------

    def take_next(self) -> None:
        """Take in the power, fraction, ordinal suffix, scale or code that follows, or else note a fraction in words."""
        readings = (self._take_power, self._take_fraction, self._take_suffix, self._take_scale, self._take_code)
        if not any(take() for take in readings):
            self.said = with_part(self.text, self.after, self.values[0])

    def _advance(self, end: int) -> bool:
        self.after, self.end, self.following = self.after + 1, end, self.following[1:]
        return True

    def _take_power(self) -> bool:
        power = _power(self.text, self.at, self.after) if self.token.number else ""
        if not power:
            return False
        self.values = tuple(f"{value}^{power}" for value in self.values)
        return self._advance(self.text.tokens[self.after].end)

    def _take_fraction(self) -> bool:
        """Take a sign such as ½ that follows digits."""
        part = _part(self.following[0]) if self.following and self.token.number else ""
        if not part or not self.values[0].isdecimal():
            return False
        if self.following[0].gap:
            self.said = frozenset({self.values[0], part})  # "2 ½-inch screws"
        self.values = (trim_zeros(self.values[0] + part[1:]),)
        return self._advance(self.following[0].end)

    def _take_suffix(self) -> bool:
        if not self.following or self.following[0].gap or not SUFFIX.fullmatch(self.following[0].text):
            return False
        self.ordinal = True
        return self._advance(self.following[0].end)

    def _take_scale(self) -> bool:
        if not self.following or not _is_scale(self.text, self.following[0], self.money):
            return False
        values, scale = self.values, self.following[0]
        power = SCALE.get(scale.word) or _GLUED_SCALE[scale.word]
        scaled = tuple(shift(value, power) for value in values if value.count(".") < 2)  # two dots: a version
        glued = scale.word in _GLUED_SCALE and not self.money
        letters = tuple(value + scale.word for value in values) if glued else ()
        if scale.word == "million":
            self.said = frozenset(value + "m" for value in values)
        self.values = letters if scale.text == "mm" and not self.money else (scaled or values) + letters
        return self._advance(scale.end)

    def _take_code(self) -> bool:
        if not self.following:
            return False
        code = self.following[0]
        if not (_is_code_apart(self.text, code) if code.gap else _is_code(code)):
            return False
        self.bare, self.values = self.values, tuple(value + code.word for value in self.values)
        return self._advance(code.end)

    # -- what stands around it -----------------------------------------------------------------------------------------

    def take_letters(self) -> None:
        """Note how it may be written with letters glued to it, and take in a letter that is: "B12"."""
        value = self.values[0]
        if self.following:
            self.also = _as_glued(value, self.following[0])
        self.said |= self.also
        if value + "m" in self.also and value.count(".") < 2:
            self.said |= {shift(value, 6)}
        if self.before is None or not _is_letter(self.before):
            return
        if self.token.gap == "-":
            self.also |= {self.before.word + value}  # "B-12" is B12 too
        if self.token.number and not self.token.gap and not self.low:
            self.letter = letter = self.before
            self.bare, self.values = (*self.bare, *self.values), tuple(letter.word + each for each in self.values)

    def take_unit(self) -> None:
        """Take in the unit: the currency before it, a word close after it, degrees; or that it counts things."""
        self.measure = next((t for t in self.following[:2] if t.word in UNIT), None)
        if self.measure:
            self.unit = self.money or UNIT[self.measure.word]
        else:
            self.unit = self.money or ("" if self.ordinal else _counted_things(self.following))
        if not self.ordinal and not self.money:
            self._take_degrees()

    def _take_degrees(self) -> None:
        found = _DEGREES.match(self.text.text, self.end, self.text.ends[self.token.sentence])
        if found is None:
            return
        value, scale = self.values[0], (found[1] or found[2] or "").translate(_SCALE_SIGNS).lower()[:1]
        self.unit = {"c": "celsius", "f": "fahrenheit"}.get(scale, "degree")
        self.also |= {value + (scale or "°")}
        self.said |= self.also | {value + sign for sign in ("°" if scale else "°cf")}
        self.after += len(self.text.inside(self.end, found.end()))  # "Celsius" is no name
        self.end, self.measure = found.end(), None

    # -- what comes of it ----------------------------------------------------------------------------------------------

    def is_year(self) -> bool:
        """Whether it is a bare year, and so a date."""
        alone = len(self.values) == 1 and self.values[0].isdecimal() and self.after == self.at + 1
        return alone and self.unit not in _UNIT_WORDS and YEAR.fullmatch(self.token.text) is not None

    def as_year(self) -> Mention:
        """The year as a date."""
        token, triple = self.token, (int(self.values[0]), 0, 0)
        return date_mention(self.text, [triple], [], token.start, token.end, token.sentence)

    def as_mention(self) -> Mention:
        """The number as a claim."""
        return Mention(
            self._claim(), self._keys(), traits=self._traits(), unit=self.unit, wider=self._wider(),
            sentence=self.token.sentence,
        )  # fmt: skip

    def _claim(self) -> Claim:
        start, end = self.token.start + self.low, self.end
        if self.before and ((self.money and not self.low) or self.letter):
            start = self.before.start
        if self.measure and self.measure is self.following[0] and not self.money:
            end = self.measure.end
        return self.text.claim(NUMBER, self.values[0], start, end)

    def _keys(self) -> frozenset[str]:
        keys = frozenset(self.values) | self.also | self._day_of_month()
        at_hour = self.before is not None and self.before.word in _AT and self.unit not in _UNIT_WORDS
        return keys | {f"hour:{self.values[0]}"} if at_hour and len(self.values[0]) < 3 else keys

    def _wider(self) -> frozenset[str]:
        value = self.values[0]
        days = days_of_month(self.text.day, value) if self.ordinal else frozenset()
        wider = self._day_of_month() | days | from_now(self.text, self.at, self.after, value)
        return wider | self.said | frozenset(self.bare)

    def _day_of_month(self) -> frozenset[str]:
        return frozenset({f"day:{self.values[0]}"} if self.ordinal else ())

    def _traits(self) -> frozenset[str]:
        traits = digit_traits(self.values[0])
        if self.unit:
            traits |= {f"unit:{self.unit}", f"value:{self.values[0]}"}
        after = [t for t in self.text.tokens[self.after : self.after + 1] if t.sentence == self.token.sentence]
        return traits | {f"of:{self.text.stem[t.word]}" for t in after if t.word not in COMMON}


def _power(text: Text, i: int, j: int) -> str:
    """The raised number that touches a number ("10²", "10^2"), not after a year; the first power is a footnote."""
    if (
        j >= len(text.tokens)
        or text.tokens[j].sentence != text.tokens[i].sentence
        or YEAR.fullmatch(text.tokens[i].text)
    ):
        return ""
    after = text.tokens[j]
    raised = after.text[0] in RAISED and not after.gap
    if not raised and not (after.gap in ("^", "^-") and after.text.isdecimal()):
        return ""
    minus = "-" if after.gap == "^-" or after.text[0] in "⁻₋" else ""
    power = minus + ascii_digits(after.text)
    return "" if power == "1" else power


def _part(token: Token) -> str:
    """The value of a fraction sign below one, otherwise nothing."""
    value = ascii_digits(token.text) if token.text in SIGNS else ""
    return value if value.startswith("0.") and token.gap != "-" else ""


def with_part(text: Text, j: int, value: str) -> frozenset[str]:
    """The number with the fraction after it: "2 1/2", "two and a half"."""
    tokens = text.tokens[j : j + 3]
    part = _PART_WORDS.get(tuple(t.word for t in tokens), "")
    if (
        tokens
        and tokens[0].gap == " "
        and (found := FRACTION.fullmatch(tokens[0].text))
        and int(found[1]) < int(found[2])
    ):
        part = decimal(int(found[1]) / int(found[2]))[2:]
    return frozenset({f"{value}.{part}"} if part and value.isdecimal() else ())


def _is_scale(text: Text, token: Token, money: str) -> bool:
    """Whether the token scales the number before it: a word, letters glued to it, or letters after a space ("84 k")."""
    if token.word in SCALE or token.word not in _GLUED_SCALE or not token.gap:
        return token.word != "dozen" and (token.word in SCALE or token.word in _GLUED_SCALE)
    apart = token.gap.isspace() and text.text[token.end : token.end + 1] not in ("-", "'", "’")
    return apart and (bool(money) or token.word in _SCALES_APART)


def _is_code_apart(text: Text, token: Token) -> bool:
    """Whether a capital after a hyphen makes another thing of a number: "12-B"; not "5-A-side"."""
    alone = text.text[token.end : token.end + 1] not in ("-", "'", "’")
    return token.gap == "-" and _is_letter(token) and token.text.isupper() and alone


def _is_letter(token: Token) -> bool:
    return len(token.text) == 1 and token.text.isalpha()


def _is_code(token: Token) -> bool:
    """Whether a token glued to a number makes another thing of it: "12B" is not 12, nor 12C."""
    return _is_letter(token) and token.word not in UNIT and token.word not in _NO_CODES


def _as_glued(value: str, after: Token) -> frozenset[str]:
    """How the number may be written with the word after it glued on: "12 B" as "12b", "5 metres" as "5m"."""
    glued = [after.word] if _is_letter(after) or after.word in _GLUED_SCALE else _GLUED_FOR.get(after.word, [])
    return frozenset(value + letters for letters in glued)


def _counted_things(following: Sequence[Token]) -> str:
    """ "+s" where a plural follows the number: it counts things, and measures nothing."""
    return "+s" if following and following[0].word.endswith("s") and following[0].word not in _NO_PLURALS else ""


def _is_money(token: Token, number: Token) -> bool:
    return token.sentence == number.sentence and (
        token.text in _SIGNS or token.word in ("usd", "eur", "gbp", "inr", "jpy")
    )


def digit_traits(value: str) -> frozenset[str]:
    """The digits in order of size: a number with two of them swapped keeps it."""
    return frozenset({"digits:" + "".join(sorted(value[:20]))} if len(value) > 2 else ())


def from_now(text: Text, i: int, j: int, value: str) -> frozenset[str]:
    """The day that "two weeks ago", "in 3 days" or "5 years later" means in a note with a date; the unit is at j."""
    tokens = [t.word for t in text.tokens[j : j + 3] if t.word != "of"]
    if text.day is None or not tokens or not value.isdecimal() or len(value) > 4:
        return frozenset()
    after = tokens[1] if len(tokens) > 1 else ""
    ahead = after in _ONWARD or (i > 0 and text.tokens[i - 1].word in ("in", "within"))
    sign = -1 if after in _BACK else 1 if ahead else 0
    triples = ago(text.day, int(value), UNIT.get(tokens[0], ""), sign) if sign else []
    return frozenset(key for t in triples for key in wider_keys(t))
