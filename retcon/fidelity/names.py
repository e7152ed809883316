"""Names that a text mentions: runs of capitalised words that are not capitalised for another reason.

A capital that only opens a sentence, or stands in a heading, makes a weak mention.
"""

from __future__ import annotations

from collections.abc import Sequence

from retcon.fidelity.days import MONTHS, WEEKDAYS
from retcon.fidelity.measures import UNIT
from retcon.fidelity.numerals import CARDINAL, ORDINAL, SCALE
from retcon.fidelity.text import NAME, Mention, Text, Token
from retcon.words import COMMON

_LONGEST = 60  # characters of a word that are read: longer ones are no words
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


def name_at(text: Text, i: int) -> tuple[Mention, int] | None:
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
        word in COMMON or word in _NOT_NAMES or word in _TITLES or word in MONTHS or word in WEEKDAYS
        or word in UNIT or word in CARDINAL or word in ORDINAL or word in SCALE or "'" in word
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
