"""Texts written for one query -> the one to keep, by what they show.

Which text serves a question best is easier to tell once the texts are there than before. A draft is one of several
texts that were written for a query; its traits cost no model:

    best       share of the question's words in its best sentence
    covered    share of the question's words in all of it
    length     logarithm of the number of its words
    hedged     1 where it says that something is not mentioned, not specified, unknown and the like

The question's words count as in `retcon.confidence`: by how rare they are among the candidates' sentences.
"""

from __future__ import annotations

import math
import re

from retcon.confidence import Witnesses
from retcon.reading import Reading

TRAITS = ("best", "covered", "length", "hedged")
_HEDGE = re.compile(
    r"(?:\bnot|n['’]t|\bnever)(?: been)?(?: \w+ly)?"
    r" (?:mention|specif(?:y|ied)\b|state[ds]?\b|disclose|indicate|provide|record|given\b|known\b|clear\b|available\b)"
    r"|(?:\bnot|n['’]t) say (?:what|when|where|which|who|why|how|if|whether)\b"
    r"|\bno (?:\w+ )?(?:information|mention|record|detail)s?\b"
    r"|\b(?:unknown|unspecified|unstated|unclear)\b",
    re.IGNORECASE,
)


def traits(text: str, witnesses: Witnesses) -> dict[str, float]:
    """What a text shows of a question, by the names of `TRAITS`; `witnesses` are the question's."""
    found = Reading(text, witnesses.language)
    return {
        "best": max((witnesses.cover(sentence.stems) for sentence in found.sentences), default=0.0),
        "covered": witnesses.cover(found.distinct),
        "length": math.log1p(len(found.stems)),
        "hedged": float(_HEDGE.search(text) is not None),
    }
