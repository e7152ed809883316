"""A made-up chat history with the statistics of a real one: the same notes and queries from the same seed.

Word frequencies follow Zipf-Mandelbrot, 1 / (rank + 2.7) ** 1.07, over 200,000 words: English function words, then
invented ones. Notes have log-normal lengths with a median of 20 words and come in sessions of 20 turns; three in ten of
a note's content words come from the 30 words of its session's topic. A query has 8 to 16 words: half are function
words, up to a third come from one note, and the rest is noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from retcon.note import Note
from retcon.passages import is_long
from retcon.words import spoken_date

VOCABULARY = 200_000
SHIFT, SLOPE = 2.7, 1.07
SESSION = 20  # turns
TOPIC, TOPICAL = 30, 0.3  # words of a session's topic, share of content words that come from it
MEDIAN, SPREAD, LONGEST = 20, 0.8, 400  # words of a note
CHUNK = 1_000  # notes drawn at a time: a smaller corpus is the beginning of a larger one

FUNCTION = """
i the to you a and it that of is in my for have was me on so with this be but not just do are like at what we your they
can all if no he out about up as there one get she or how been will would had when her from know them some who more now
an has did then him than here could really his were our don re ve ll too very any also by into why where which these
those their us does should its am may might must shall being having done each whose
""".split()

Words = NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that a seed decides."""

    seed: int
    words: Words  # by rank
    cumulative: NDArray[np.float64]  # of the word probabilities

    def notes(self, size: int, *, user_id: str = "u", part: int = 0) -> Iterator[Note]:
        """`size` notes of one user, turn by turn; another `part` of the same corpus has other notes."""
        rng = np.random.default_rng((self.seed, part))
        texts = (text for _ in range(0, size, CHUNK) for text in self._texts(rng, CHUNK))
        for number, text in enumerate(islice(texts, size)):
            session = number // SESSION
            yield Note(
                id=f"{user_id}-{number}", text=text, user_id=user_id, session=f"{user_id}-s{session}",
                speaker="assistant" if number % 2 else "user", timestamp=_day(session), created_at="2026-01-01",
            )  # fmt: skip

    def queries(self, texts: Sequence[str], count: int) -> list[str]:
        """Questions about notes drawn from the texts."""
        rng = np.random.default_rng((self.seed, 1_000_003))
        return [self._query(rng, texts[i]) for i in rng.integers(0, len(texts), count)]

    def _texts(self, rng: np.random.Generator, count: int) -> Iterator[str]:
        lengths = np.clip(np.rint(np.exp(rng.normal(np.log(MEDIAN), SPREAD, count))), 2, LONGEST).astype(np.int64)
        total = int(lengths.sum())
        ranks = self._ranks(rng, total)
        sessions = np.repeat(np.arange(count) // SESSION, lengths)
        topics = self._content(rng, (count // SESSION + 1) * TOPIC)
        topical = (ranks >= len(FUNCTION)) & (rng.random(total) < TOPICAL)
        ranks[topical] = topics[sessions[topical] * TOPIC + rng.integers(0, TOPIC, int(topical.sum()))]
        tokens = self.words[ranks].tolist()
        ends = np.cumsum(lengths).tolist()
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            yield " ".join(tokens[start:end])

    def _query(self, rng: np.random.Generator, text: str) -> str:
        size = int(rng.integers(8, 17))
        told = [word for word in dict.fromkeys(text.split()) if word not in _FUNCTION_SET]
        rng.shuffle(told)
        told = told[: size // 3]
        noise = self.words[self._content(rng, size - size // 2 - len(told))].tolist()
        limit = self.cumulative[len(FUNCTION) - 1]
        common = self.words[self._at(rng.random(size // 2) * limit)].tolist()
        mixed = told + noise + common
        rng.shuffle(mixed)
        return " ".join(mixed)

    def _ranks(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        return self._at(rng.random(count))

    def _content(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Ranks of words that are no function words."""
        least = self.cumulative[len(FUNCTION) - 1]
        return self._at(least + rng.random(count) * (1 - least))

    def _at(self, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.searchsorted(self.cumulative, shares).astype(np.int64)


_FUNCTION_SET = frozenset(FUNCTION)


def corpus(seed: int = 0) -> Corpus:
    """The corpus of a seed."""
    weights = 1 / (np.arange(VOCABULARY) + SHIFT) ** SLOPE
    cumulative = np.cumsum(weights / weights.sum())
    cumulative[-1] = 1.0
    invented = (_word(i) for i in range(VOCABULARY - len(FUNCTION)))
    return Corpus(seed, np.array([*FUNCTION, *invented], object), cumulative)


def _word(number: int) -> str:
    """An invented word: syllables for digits, so that frequent words are short; no English ending to stem away."""
    out, number = "", number + 18 * 5
    while number:
        number, digit = divmod(number, 90)
        out += "bcdfghjklmnprstvwz"[digit % 18] + "aeiou"[digit // 18]
    return out + "k"


def _day(session: int) -> str:
    return (date(2020, 1, 1) + timedelta(days=session % 1_826)).isoformat()


def indexed_texts(notes: Iterable[Note]) -> Iterator[str]:
    """What our index reads of each note, for rivals to read: its words, speaker and date, and the turn before it."""
    for note, context in with_context(notes):
        yield f"{note.speaker} {note.text} {spoken_date(note.timestamp)} {context}"


def with_context(notes: Iterable[Note]) -> Iterator[tuple[Note, str]]:
    """Each note with the turn that lends it words: the one before it in its session, unless one of the two is long."""
    before: Note | None = None
    for note in notes:
        context = before.text if before is not None and before.session == note.session else ""
        yield note, "" if is_long(context) or is_long(note.text) else context
        before = note
