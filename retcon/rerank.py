"""Candidates of a search -> the same, better ordered. What BM25 cannot see of a chat, in a few small steps.

    weights      words of the question's own frame ("how many", "mention") say little; numbers say more
    speaker      where the query names one speaker, what that one said counts more
    role         in a chat with an assistant the user's words count more, unless the query asks what "you" said
    second hop   words that the best notes add to the query ("Marek" -> "physio") lift other notes that hold them
    session      a note gains from the best note of its session: what was talked about around it

All values in, values out. The settings were chosen on chats, logs and texts of several domains (`bench.finding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retcon.language import ENGLISH, Language
from retcon.words import stem_words


@dataclass(frozen=True, slots=True)
class Settings:
    """How much each step counts."""

    frame: float = 0.5  # weight of a frame word in the query, others have 1
    number: float = 1.3  # weight of a number
    speaker: float = 1.5  # times the score of what the one named speaker has said
    role: float = 1.5  # times the score of what the user has said
    hop: float = 0.2  # share of the best score that the best notes' own words may give
    session: float = 0.5  # share of its session's best score that a note gains
    meaning: float = 0.7  # what the closest note's cosine counts in hybrid, where the best words count 1


SHIPPED = Settings()
HOP_NOTES, HOP_TERMS = 3, 8  # the best notes, and how many of their words count
USERS = frozenset(("user", "human"))
ASSISTANTS = frozenset(("assistant", "ai", "bot"))
_TO_ASSISTANT = frozenset(("you", "your", "yours"))

FRAME_STEMS = frozenset(
    stem_words(
        """
        many much total time times first last day days week weeks month months year years long ago kind type sort name
        named call called thing things happen happened go going went get got use used way mention mentioned tell told
        say said talk talked talking discuss discussed remember remind recommend suggest ask asked answer know think
        thought recent recently current currently ever still previous previously different people person someone
        something anything everything other both between during before after while most more least number amount
        average order
        """.split()
    )
)


def weigh_terms(terms: Iterable[str], settings: Settings = SHIPPED, language: Language = ENGLISH) -> dict[str, float]:
    """Each term of a query with its weight; which words are frame is known of English alone."""
    frame = FRAME_STEMS if language.is_english else ()
    return {term: settings.number if term[:1].isdigit() else settings.frame if term in frame else 1.0 for term in terms}


def lift_speaker(
    scores: NDArray[np.float64],
    query: str,
    speakers: Sequence[str | None],
    settings: Settings = SHIPPED,
    language: Language = ENGLISH,
) -> None:
    """Raise what the one speaker has said whom the query names, in place; and what the user has, of an assistant's.

    Whether a query speaks to the assistant is known of English alone.
    """
    named = _find_named(query, speakers, language)
    if named is not None:
        scores[[speaker == named for speaker in speakers]] *= settings.speaker
        return
    role_of = {speaker: (speaker or "").lower() for speaker in set(speakers)}
    asks_user = language.is_english and _TO_ASSISTANT.isdisjoint(language.words(query))
    if asks_user and not ASSISTANTS.isdisjoint(role_of.values()):
        scores[[role_of[speaker] in USERS for speaker in speakers]] *= settings.role


def _find_named(query: str, speakers: Iterable[str | None], language: Language) -> str | None:
    """The one speaker whom the query names; None where it names none, or more than one."""
    asked = set(language.stems(query)) - language.common
    named = {speaker for speaker in set(speakers) if speaker and not asked.isdisjoint(language.stems(speaker))}
    return named.pop() if len(named) == 1 else None


def rank_hop_terms(
    texts: Sequence[Sequence[str]],
    scores: Sequence[float],
    asked: Iterable[str],
    idf: Mapping[str, float],
    language: Language = ENGLISH,
) -> list[str]:
    """The words of the best notes that say most beyond the query: rare ones, of well matching notes."""
    known = {*asked, *language.common}
    worth: dict[str, float] = {}
    for terms, score in zip(texts, scores, strict=True):
        for term in dict.fromkeys(terms):
            if term not in known:
                worth[term] = worth.get(term, 0.0) + score * idf.get(term, 0.0)
    return sorted(worth, key=lambda term: (-worth[term], term))[:HOP_TERMS]


def lift_hop(scores: NDArray[np.float64], gains: NDArray[np.float64], settings: Settings = SHIPPED) -> None:
    """Raise the notes that hold words of the best ones, in place."""
    most = gains.max(initial=0.0)
    if most > 0:
        scores += settings.hop * scores.max() * gains / most


def lift_sessions(scores: NDArray[np.float64], sessions: Sequence[object], settings: Settings = SHIPPED) -> None:
    """Raise each note by the best of its session, in place; one without a session is a session of its own."""
    each = scores.tolist()
    best: dict[object, float] = {}
    for session, score in zip(sessions, each, strict=True):
        if score > best.get(session, 0.0):
            best[session] = score
    around = [
        score if session is None else best.get(session, 0.0) for session, score in zip(sessions, each, strict=True)
    ]
    scores += settings.session * np.asarray(around)
