"""Numbers that a text mentions: in digits, in words, or weakly ("a couple")."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from retcon.fidelity.dates import day_month
from retcon.fidelity.measures import FRACTION, UNIT, digit_traits, from_now, measure, with_part
from retcon.fidelity.numerals import GROUPED, decimal, number_values
from retcon.fidelity.text import NUMBER, RAISED, SIGNS, Mention, Text, Token

# Weak words: they support a number, and are none themselves.
_LOOSE_WORDS = {
    "1": "a an one once single another solo daily weekly monthly yearly annual hourly every each last next",
    "2": "twice couple both pair double twin duo fortnight biweekly weekend", "3": "triple trio thrice",
    "0": "no none nothing", "0.5": "half", "30": "half thirties", "50": "half fifties", "0.25": "quarter",
    "15": "quarter", "25": "quarter", "0.75": "quarters fourths", "10": "decade", "14": "fortnight", "100": "century",
    "12": "noon",
    "20": "twenties", "40": "forties", "60": "sixties", "70": "seventies", "80": "eighties", "90": "nineties",
    "some": "few several", "0.33333": "thirds", "0.66667": "thirds",
    "0.2": "fifths", "0.4": "fifths", "0.6": "fifths", "0.8": "fifths",
    "0.125": "eighths", "0.375": "eighths", "0.625": "eighths", "0.875": "eighths",
}  # fmt: skip
LOOSE: dict[str, tuple[str, ...]] = {}
for _value, _words in _LOOSE_WORDS.items():
    for _word in _words.split():
        LOOSE[_word] = (*LOOSE.get(_word, ()), _value)
_PARTS = re.compile(r"[^:/\-–—]+")
_LIST_ITEM = re.compile(r"[.)]\s")
_FEW = {"few": (2, 3, 4, 5), "several": (3, 4, 5, 6), "couple": (2, 3), "a": (1,), "an": (1,), "one": (1,)}


def weak_number(text: Text, i: int) -> Mention:
    """What a loose word such as "a", "couple" or "half" supports; a claim only where it is "one" of a unit."""
    token = text.tokens[i]
    values = LOOSE[token.word]
    after = text.tokens[i + 1] if i + 1 < len(text.tokens) else None
    unit = UNIT.get(after.word, "") if after and token.word in ("a", "an", "one", "another") else ""
    claim = text.claim(NUMBER, values[0], token.start, token.end)
    wider = frozenset(key for n in _FEW.get(token.word, ()) for key in from_now(text, i, i + 1, str(n)))
    if token.word in ("a", "an", "one"):
        wider |= with_part(text, i + 2, "1")  # "an hour and a half"
    firm = token.word == "one" and bool(unit)
    return Mention(claim, frozenset(values), unit=unit, wider=wider, sentence=token.sentence, firm=firm)


def spelled_number(text: Text, i: int, value: int, j: int, ordinal: bool) -> tuple[Mention, int]:
    """A number in words; "one", "first" and "second" alone are too common to be claims."""
    tokens = text.tokens
    if ordinal and value <= 31 and (day := day_month(text, i, value, j)) is not None:
        return day
    alone = j == i + 1
    weak = alone and (tokens[i].word in ("one", "zero") or (ordinal and value < 3))
    mention, after = measure(text, i, j, (str(value),), ordinal=ordinal)
    if ordinal and value > 2:
        mention = replace(mention, wider=mention.wider | {decimal(1 / value)})  # "a third"
    return replace(mention, firm=not weak or (bool(mention.unit) and not ordinal)), after


def digit_numbers(text: Text, i: int, plain: str) -> tuple[list[Mention], int]:
    """The numbers in a run of digits that is no date: "10-15" are two, "1,2,3" three."""
    token = text.tokens[i]
    out: list[Mention] = []
    after = i + 1
    spans = [span for part in _PARTS.finditer(plain) for span in _comma_spans(plain, part.start(), part.end())]
    for n, (low, high) in enumerate(spans):
        if n + 1 < len(spans):
            value = number_values(plain[low:high])
            claim = text.claim(NUMBER, value[0], token.start + low, token.start + high)
            out.append(Mention(claim, frozenset(value), traits=digit_traits(value[0]), sentence=token.sentence))
        else:
            mention, after = measure(text, i, i + 1, number_values(plain[low:high]), low=low)
            out = [*(replace(earlier, unit=mention.unit) for earlier in out), mention]  # both ends of "3-5 miles"
    if len(spans) == 1 and (_is_list_item(text, token, plain) or _is_footnote(token)):
        out = [replace(mention, firm=False) for mention in out]
    if token.text in SIGNS:
        plainly = _sign_in_letters(token)
        out = [replace(mention, keys=mention.keys | plainly, wider=mention.wider | plainly) for mention in out]
    return out, after


def _comma_spans(plain: str, low: int, high: int) -> list[tuple[int, int]]:
    """The parts of a run between commas, unless the commas group digits or one is a decimal comma."""
    part = plain[low:high]
    if "," not in part or GROUPED.fullmatch(part) or (part.count(",") == 1 and "." in part):
        return [(low, high)]
    out, at = [], low
    for piece in part.split(","):
        if piece:
            out.append((at, at + len(piece)))
        at += len(piece) + 1
    return out


def _is_list_item(text: Text, token: Token, plain: str) -> bool:
    marked = (token.text in SIGNS and "." not in plain) or _LIST_ITEM.match(text.text, token.end) is not None
    return token.opens and len(token.text) < 3 and marked


def _is_footnote(token: Token) -> bool:
    """Whether a raised number touches what stands before it, and that is neither a word nor a number it belongs to."""
    return token.text[0] in RAISED and not token.gap[-1:].isspace()


def _sign_in_letters(token: Token) -> frozenset[str]:
    """How a sign may be spelled with plain characters: Ⅳ as "iv", ½ as "1/2"."""
    plain = unicodedata.normalize("NFKC", token.text).replace("⁄", "/").lower()
    return frozenset({plain} if (plain.isalpha() and plain.isascii()) or FRACTION.fullmatch(plain) else ())
