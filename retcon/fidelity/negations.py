"""Negations of a text: "not" and its kin with the word they deny, and the clauses that deny, softly too."""

from __future__ import annotations

from collections.abc import Iterator

from retcon.fidelity.text import NEGATION, Denial, Text, Token
from retcon.words import COMMON_STEMS

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


def denials_in(text: Text) -> Iterator[Denial]:
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


def denying_clauses(text: Text) -> set[int]:
    """The clauses that deny: by "not" and its kin, or softly ("avoid", "stopped")."""
    return {token.clause for token in text.tokens if _is_not(token) or text.stem[token.word] in _SOFT}
