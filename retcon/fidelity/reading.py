"""One pass over a text's tokens: dates first, then numbers, then names; what one of them took is not read again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from retcon.fidelity.dates import date_mention, date_words, day_month
from retcon.fidelity.days import clock_times, nearest_days, numeric_date
from retcon.fidelity.names import name_at
from retcon.fidelity.negations import denials_in
from retcon.fidelity.numbers import LOOSE, digit_numbers, spelled_number, weak_number
from retcon.fidelity.numerals import ascii_digits, number_word, trim_zeros
from retcon.fidelity.quotes import quotes_in
from retcon.fidelity.text import DATE, Denial, Mention, Text

_MERIDIEM = re.compile(r"[ \u00a0\u202f]?([ap])\.?[ \u00a0]?m\b\.?|[ \u00a0]?o['’]clock\b", re.I)


class Reading(Text):
    """One text read once: its tokens, sentences, mentions and negations."""

    @cached_property
    def mentions(self) -> list[Mention]:
        """Numbers, dates, names and quotes, weak ones included."""
        return [*_scan(self), *quotes_in(self)]

    @property
    def firm(self) -> list[Mention]:
        return [mention for mention in self.mentions if mention.firm]

    @cached_property
    def denials(self) -> list[Denial]:
        return list(denials_in(self))


def _scan(text: Text) -> Iterator[Mention]:
    """Dates, numbers and names in order; what one of them took is not read again."""
    i = 0
    while i < len(text.tokens):
        token = text.tokens[i]
        if token.number:
            found, i = _digits(text, i)
            yield from found
        elif (hit := date_words(text, i)) is not None:
            yield hit[0]
            i = hit[1]
        elif (spelled := number_word(text.tokens, i)) is not None:
            mention, i = spelled_number(text, i, *spelled)
            yield mention
        else:
            if token.word in LOOSE:
                yield weak_number(text, i)
            named = name_at(text, i)
            if named is not None:
                yield named[0]
            i = named[1] if named else i + 1


def _digits(text: Text, i: int) -> tuple[list[Mention], int]:
    """What a run of digits says, with the words that belong to it, and the place after them."""
    token = text.tokens[i]
    plain = ascii_digits(token.text)
    half = _MERIDIEM.match(text.text, token.end)
    end = half.end() if half else token.end
    if times := clock_times(plain, half[1] if half else None, bool(half)):
        traits = frozenset({"form:clock", *(f"minute:{t[3:]}" for t in times[:1]), *(f"hour:{t[1:3]}" for t in times)})
        loose = frozenset({f"hour:{trim_zeros(plain[:2].rstrip(':.'))}"} if times[0].endswith(":00") else ())
        claim = text.claim(DATE, times[0], token.start, end)
        mention = Mention(claim, frozenset(times), traits=traits, wider=loose, sentence=token.sentence)
        return [mention], i + 1 + (sum(1 for _ in text.inside(token.end, end)) if half else 0)
    if triples := numeric_date(plain):
        extra = [t for y, m, d in triples if not y for t in nearest_days(text.day, m, d)]
        mention = date_mention(text, triples, extra, token.start, token.end, token.sentence)
        return [replace(mention, keys=mention.keys | {plain})], i + 1  # "1/2" may be ½
    if plain.isdecimal() and len(plain) <= 2 and (day := day_month(text, i, int(plain))) is not None:
        return [day[0]], day[1]
    return digit_numbers(text, i, plain)
