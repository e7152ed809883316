"""Texts written for one query -> the one to keep, by what they show.

Which text serves a question best is easier to tell once the texts are there than before. A draft is one of several
texts that were written for a query; its traits cost no model:

    best       share of the question's words in its best sentence
    covered    share of the question's words in all of it
    length     logarithm of the number of its words
    hedged     1 where it says that something is not mentioned, not specified, unknown and the like

One more costs a token of the model, which says whether the text holds the answer (`retcon.holds`); nothing that ships
uses it:

    holds      how likely the model finds that it does; .5 where it does not tell

A `Drafts` scores them, and the highest wins:

    score(action, text) = level(action) + slope(action) * log2(B / 128) + <weights, traits(text)>

The question's words count as in `retcon.confidence`: by how rare they are among the candidates' sentences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import mul
from typing import Any

from retcon.confidence import Witnesses
from retcon.errors import RouterError, few
from retcon.plain import is_label, read_list, read_number
from retcon.reading import Reading

MIDDLE = 128  # tokens at which a slope is worth nothing
TRAITS = ("best", "covered", "length", "hedged")
HOLDS = "holds"  # a trait that a model is asked for
UNTOLD = 0.5  # its value where the model does not tell
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Which texts to write for one query, and how good each is by its traits."""

    actions: tuple[str, ...]  # of two texts that tie, that of the earlier wins
    traits: tuple[str, ...]  # the names, out of TRAITS and HOLDS, that the weights belong to
    weights: tuple[float, ...]
    levels: tuple[float, ...]  # of each action
    slopes: tuple[float, ...]  # of each action, over log2 of the budget

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise RouterError(f"the drafts: {fault}")

    def score(self, action: str, found: Mapping[str, float], *, budget: int) -> float:
        """How good a text of this action is, by its traits."""
        place = self.actions.index(action)
        slope = self.slopes[place] * math.log2(max(budget, 1) / MIDDLE)
        return math.fsum((self.levels[place], slope, *map(mul, self.weights, (found[name] for name in self.traits))))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Drafts:
        """The drafts that these plain JSON values describe."""
        if unknown := set(plain).difference(cls.__slots__):
            raise RouterError(f"the drafts have unknown entries: {few(sorted(map(str, unknown)))}")
        numbers = {name: tuple(map(read_number, read_list(plain[name]))) for name in ("weights", "levels", "slopes")}
        return cls(actions=tuple(read_list(plain["actions"])), traits=tuple(read_list(plain["traits"])), **numbers)

    def to_dict(self) -> dict[str, Any]:
        """The drafts as plain JSON values."""
        return {name: list(getattr(self, name)) for name in self.__slots__}


def _faults(drafts: Drafts) -> Iterator[str]:
    if not all(map(is_label, drafts.actions)) or len(set(drafts.actions)) < len(drafts.actions):
        yield "actions must be distinct names of 1 to 100 printable characters"
    if not all(name in (*TRAITS, HOLDS) for name in drafts.traits) or len(set(drafts.traits)) < len(drafts.traits):
        yield f"traits must be distinct names out of {', '.join((*TRAITS, HOLDS))}"
    if len(drafts.weights) != len(drafts.traits):
        yield f"{len(drafts.weights)} weights, {len(drafts.traits)} traits"
    if not len(drafts.levels) == len(drafts.slopes) == len(drafts.actions):
        yield f"every one of {len(drafts.actions)} actions needs a level and a slope"
    if not all(map(math.isfinite, (*drafts.weights, *drafts.levels, *drafts.slopes))):
        yield "every number must be finite"
