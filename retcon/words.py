"""Text -> words, index terms and sentences. Retrieval, Extract and the hashing embedder read text the same way.

Words are runs of letters or digits after case folding and the removal of accents ("Café" and "cafe" meet). Scripts that
write no spaces (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) give overlapping pairs of characters instead.
English endings are stemmed away. `retcon.language` reads other languages.
"""

from __future__ import annotations

import hashlib
import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence

import Stemmer

from retcon.memo import Memo

# Function words of English questions and statements: they say nothing about which note is meant.
COMMON = frozenset(
    """
    a an the of to in on at for and or but if so is am are was were be been being do does did done has have had having
    what which who whom whose when where why how it its this that these those i you he she they we my your his her
    their our me him them us with from by as about into than then there here will would can could should might
    must shall not no any some all each just very too also s t d ll m o re ve
    """.split()
)
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(f"([{UNSPACED}]+)|[^\\W_{UNSPACED}]+")
# Of ASCII text, by code: letters in lower case, digits, and a blank for all else.
_PLAIN = bytes(ord(sign) if sign.isalnum() else 32 for sign in map(str.lower, map(chr, range(128)))).ljust(256)
_STRETCH = 512  # characters
_thread = threading.local()


def words(text: str) -> list[str]:
    """Words of the text in order, folded; pairs of characters where a script writes no spaces."""
    if text.isascii():
        return ascii_words(text)
    out: list[str] = []
    for found in _RUN.finditer(fold(text)):
        run = found.group()
        if found.lastindex is None or len(run) == 1:
            out.append(run)
        else:
            out.extend(run[i : i + 2] for i in range(len(run) - 1))
    return out


def ascii_words(text: str) -> list[str]:
    """The runs of letters or digits of an ASCII text, in lower case; several times as fast as a pattern."""
    return _blank_signs(text).split()


def words_of_parts(text: str, parts: Sequence[tuple[int, int]]) -> list[list[str]]:
    """The words of each part of the text, each given by where it begins and ends."""
    if not text.isascii():
        return [words(text[start:end]) for start, end in parts]
    plain = _blank_signs(text)
    return [plain[start:end].split() for start, end in parts]


def _blank_signs(text: str) -> str:
    """ASCII text in lower case with a blank for each sign."""
    return text.encode().translate(_PLAIN).decode()


def fold(text: str) -> str:
    """Text in one case, without accents and width variants."""
    decomposed = "".join(_decompose(text)).casefold()
    return unicodedata.normalize("NFC", decomposed.translate(_BARE))  # NFC puts Hangul syllables back together


def _decompose(text: str) -> Iterator[str]:
    """The text in decomposed form, a stretch at a time: marks that pile up are sorted, in time of their square.

    Only their order depends on where a stretch ends, and marks are dropped.
    """
    for start in range(0, len(text), _STRETCH):
        yield unicodedata.normalize("NFKD", text[start : start + _STRETCH])


class _Bare(dict[int, int | None]):
    """A table for `str.translate` that drops combining marks, filled as characters are met."""

    def __missing__(self, code: int) -> int | None:
        self[code] = None if unicodedata.combining(chr(code)) else code
        return self[code]


_BARE = _Bare()


def stems(text: str) -> list[str]:
    """Index terms of the text, in order: its words with English endings removed."""
    return stem_words(words(text))


def stem_words(found: list[str]) -> list[str]:
    """The words with English endings removed; words in other scripts pass unchanged."""
    return _stem_of.each(found)


def stem_word(word: str) -> str:
    """The word with its English ending removed; it is not remembered."""
    stemmer = getattr(_thread, "stemmer", None)
    if stemmer is None:  # a Snowball stemmer must not be shared between threads
        stemmer = _thread.stemmer = Stemmer.Stemmer("english", 0)  # it needs no cache of its own
    stem: str = stemmer.stemWord(word)
    return stem


_stem_of = Memo(stem_word, 1 << 17)
COMMON_STEMS = frozenset(stem_words(sorted(COMMON)))


def query_terms(query: str, *, common: bool = False) -> list[str]:
    """Distinct terms of a query in order of appearance, function words left out unless nothing else remains."""
    distinct = list(dict.fromkeys(stems(query)))
    telling = [term for term in distinct if term not in COMMON_STEMS]
    return distinct if common or not telling else telling


def hash_term(term: str) -> int:
    """A signed 64-bit number that stands for the term in the index (no word is stored there)."""
    return int.from_bytes(
        hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True
    )


term_key = Memo(hash_term, 1 << 18)  # the same, remembered


_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
# A quote stands on one line and has at most 300 characters: one that nobody closes swallows no more. It may hold one
# more of its kind. An apostrophe opens none: what follows a blank and is no clipped word ('em, 'til, '90s) does.
_CLIPPED = r"(?:\d|(?:bout|cause|cos|cuz|em|im|n|neath|nother|nuff|round|s|til|till|tis|twas|twere|ya|all)\b)"
QUOTE = re.compile(
    rf"[\"'‘“«「『](?:"
    rf"(?<=\")(?<![\w\"]\")(?=[^\s\"])(?:[^\"{_BREAK}]|(?<=[\s(])\"(?=\w)[^\"{_BREAK}]{{1,300}}+\"(?!\w)){{1,300}}+\"(?!\w)"
    rf"|(?<=“)(?:[^“”{_BREAK}]|“[^“”{_BREAK}]{{0,300}}+”){{0,300}}+”"
    rf"|(?<=«)(?:[^«»{_BREAK}]|«[^«»{_BREAK}]{{0,300}}+»){{0,300}}+»"
    rf"|(?<=「)[^「」{_BREAK}]{{0,300}}+」|(?<=『)[^『』{_BREAK}]{{0,300}}+』"
    rf"|(?<=')(?<![^\s(—–]')(?!{_CLIPPED})(?=\w)(?:[^'{_BREAK}]|(?<=\w)'(?=\w)){{1,300}}+(?<!\s)'(?!\w)"
    rf"|(?<=‘)(?<!\w‘)(?:[^‘’{_BREAK}]|(?<=\w)’(?=\w)){{1,300}}+’(?!\w))"
)
# A sentence ends at . ! ? (and their CJK forms) with what closes it, or at a line break; not inside a quote, not after
# a short title, initials, the day of a date (12. Mai) or the number of a list item. A run of marks is read once: never
# from within, never shorter than it is.
_END = re.compile(
    rf"[.!?…。！？｡{_BREAK}](?:(?<=[.!?…])(?<![.!?…]{{2}})[.!?…]*+[\"'”’»)\]]*+(?=\s|$)"
    rf"|(?<=[。！？｡])[。！？｡]*+[」』”’）]*+|(?<=[{_BREAK}])[{_BREAK}]*+)"
)
# Capitals of the alphabets that have them, as the inside of a class.
CAPITALS = "A-Z" + "".join(chr(c) for c in (*range(0xC0, 0x590), *range(0x1E00, 0x2000)) if chr(c).isupper())
# Months as they are written after a day, in some languages besides English.
MONTHS_IN = {
    "dutch": "januari februari maart april mei juni juli augustus september oktober november december",
    "french": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "german": "januar februar märz april mai juni juli august september oktober november dezember",
    "italian": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "polish": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
    "portuguese": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "russian": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "spanish": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "swedish": "januari februari mars april maj juni juli augusti september oktober november december",
}
MONTHS = " ".join([*MONTHS_IN.values(), "jänner", "setiembre"])
_ABBREVIATION = re.compile(
    rf"(?:^|[\s(\"'“‘«])(?:(?:[{CAPITALS}]\.){{0,4}}[{CAPITALS}]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|approx|No|Inc"
    r"|Ltd|Co|a\.m|p\.m)\.$|^\s*\d{1,3}\.$"
)
_OPEN_DATE = re.compile(  # what follows the point of a day or a short month
    r"(?:(?<=\b\d\.)|(?<=\b\d\d\.))"
    rf" (?:(?i:{MONTHS.replace(' ', '|')})\b|(?![{CAPITALS}])[^\W\d_]{{3,12}}+\.? \d{{4}}\b)"
    r"|(?:(?<=\b(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\.)|(?<=\bSept\.)) \d"
)
_LONGEST_ABBREVIATION = (
    10  # characters, with what stands around it: a longer look back would be quadratic in "A. A. A."
)


def sentences(text: str) -> list[str]:
    """The text cut into sentences, verbatim and in order, outer white space removed, none empty."""
    out: list[str] = []
    start = 0
    for end in sentence_ends(text):
        out.append(text[start:end].strip())
        start = end
    return [piece for piece in out if piece]


def sentence_ends(text: str, *, lines: bool = True) -> Iterator[int]:
    """Where the sentences of the text end, one after the other; the end of the text is the last.

    Without `lines`, a line break alone ends none: an item of a list is no sentence.
    """
    start, quotes = 0, _quotes(text)
    quote = next(quotes, None)
    for found in _END.finditer(text):
        at, end = found.span()
        while quote is not None and quote.end() <= at:
            quote = next(quotes, None)
        if quote is not None and quote.start() < at and (end < quote.end() or text[end + 1 : end + 2].islower()):
            continue  # inside of the quote, or its end in the midst of a sentence ("Why?" she asked)
        if text[at] == "." and _is_abbreviation(text, max(start, end - _LONGEST_ABBREVIATION), end):
            continue
        if lines or not found.group().isspace():
            start = end
            yield end
    yield len(text)


def _quotes(text: str) -> Iterator[re.Match[str]]:
    if text.isascii() and '"' not in text and "'" not in text:
        return iter(())
    return QUOTE.finditer(text)


def _is_abbreviation(text: str, start: int, end: int) -> bool:
    """Whether the point before `end` belongs to a short form or to a date that goes on."""
    return bool(_ABBREVIATION.search(text[start:end]) or _OPEN_DATE.match(text, end))


OWN, CONTEXT = 2, 1  # weight of a note's own words and of the turn before it; measured in docs/log-foundations.md


def index_counts(own: str, context: str) -> dict[str, int]:
    """Weighted term counts under which a note is found: its own words, and those of the turn it answers."""
    counts: dict[str, int] = {}
    for text, weight in ((own, OWN), (context, CONTEXT)):
        for term in stems(text):
            counts[term] = counts.get(term, 0) + weight
    return counts


MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def spoken_date(timestamp: str | None) -> str:
    """The date of an ISO timestamp in words that people ask with ("9 May 2026"); empty where there is none."""
    if not timestamp:
        return ""
    year, month, day = timestamp[:10].split("-")
    return f"{int(day)} {MONTH_NAMES[int(month) - 1]} {int(year)}"
