"""Text -> vectors (`Embed`), with two embedders that need no network.

`HashingEmbed` needs nothing but numpy. `WordLlamaEmbed` (extra `embed`) reads static word vectors that lie inside an
installed package. These two also serve the embedding features of the router; `embedders` has all others.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from retcon import deadline
from retcon.deadline import TimeLimit
from retcon.errors import DeadlineError, InputError, MalformedReplyError, MissingExtraError, ModelTimeoutError
from retcon.memo import Memo
from retcon.words import COMMON_STEMS, stem_words, term_key, words

COMMON_WEIGHT = 0.2  # of a function word against 1 for any other
_BATCH = 1024  # texts hashed at once: 8 MB of counts at 256 dimensions


@runtime_checkable
class Embed(Protocol):
    """Texts -> one row each: length 1, or all zeros for a text without words.

    Where questions are embedded in another way than notes, a method `embed_query` with the same call does it.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]: ...


class HashingEmbed:
    """Vectors by signed feature hashing of stems: alike where words are shared, the same bytes on every machine.

    A stem falls into one of `dim` places with a sign; a place holds the square root of how often, function words count
    a fifth. Only sums, products and square roots are used, which every processor rounds alike. Once in a while two
    stems of a very short text meet in one place with opposite signs and leave a zero row.
    """

    def __init__(self, dim: int = 256) -> None:
        if dim < 1:
            raise InputError(f"an embedding needs at least 1 dimension, not {dim}")
        self.dim = dim
        self.name = "hashing" if dim == 256 else f"hashing-{dim}"

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        out = np.empty((len(texts), self.dim), np.float32)
        for start in range(0, len(texts), _BATCH):
            out[start : start + _BATCH] = unit_rows(self._sums(texts[start : start + _BATCH]))
        return out

    def _sums(self, texts: Sequence[str]) -> NDArray[np.float64]:
        found = [words(text) for text in texts]
        codes = np.array(_code.each([word for row in found for word in row]), np.int64)
        place, kind = (codes >> 2) % self.dim, codes & 3
        row = np.repeat(np.arange(len(texts)), [len(row) for row in found])
        cell = (kind * len(texts) + row) * self.dim + place
        counts = np.bincount(cell, minlength=4 * len(texts) * self.dim).reshape(4, len(texts), self.dim)
        plus, minus, common_plus, common_minus = np.sqrt(counts)
        sums: NDArray[np.float64] = (plus - minus) + COMMON_WEIGHT * (common_plus - common_minus)
        return sums


def _hash(word: str) -> int:
    """What a word is hashed by: 61 bits of its stem's key, then whether it is a function word, then the sign."""
    (stem,) = stem_words([word])
    return (term_key(stem) >> 3 << 2) | (stem in COMMON_STEMS) << 1 | (term_key(stem) & 1)


_code = Memo(_hash, 1 << 16)


class WordLlamaEmbed:
    """Vectors averaged from wordllama's static word vectors, read from that package's own folder: no network."""

    name = "wordllama"
    dim = 256

    def __init__(self) -> None:
        self._model = _load_wordllama()

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        out = np.zeros((len(texts), self.dim), np.float64)
        full = [i for i, text in enumerate(texts) if words(text)]
        if full:
            out[full] = self._model.embed([texts[i] for i in full])
        return unit_rows(out)


class _Within:
    """An embedder that gives up when a caller's time is over."""

    def __init__(self, embed: Embed, limit: TimeLimit) -> None:
        self._embed, self._limit = embed, limit

    @property
    def name(self) -> str:
        return self._embed.name

    @property
    def dim(self) -> int:
        return self._embed.dim

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        return self._in_time(self._embed, texts)

    def embed_query(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        return self._in_time(getattr(self._embed, "embed_query", self._embed), texts)

    def _in_time(
        self, call: Callable[[Sequence[str]], NDArray[np.float32]], texts: Sequence[str]
    ) -> NDArray[np.float32]:
        try:
            with deadline.until(self._limit.end):
                return call(texts)
        except DeadlineError:
            if not self._limit.over:  # an earlier deadline, of somebody else
                raise
            raise ModelTimeoutError(f"{self.name}: no vectors within {self._limit.seconds:g} s") from None


def within(embed: Embed, limit: TimeLimit) -> Embed:
    """The embedder, in no more than the caller's time."""
    return embed if limit.end == math.inf else _Within(embed, limit)


def embed_texts(embed: Embed, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of notes, checked."""
    return check_rows(embed.name, embed(texts), len(texts))


def embed_query(embed: Embed, query: str) -> NDArray[np.float32]:
    """The vector of a question, checked."""
    row: NDArray[np.float32] = check_rows(embed.name, getattr(embed, "embed_query", embed)([query]), 1)[0]
    return row


def check_rows(name: str, found: object, count: int, dim: int | None = None) -> NDArray[np.float32]:
    """What an embedder gave as rows of length 1; an error where that are not so many vectors of so many numbers."""
    try:
        rows = np.asarray(found, np.float64)
    except (TypeError, ValueError):
        raise MalformedReplyError(f"{name}: gave {type(found).__name__}, which is no table of numbers") from None
    if rows.shape == (0,) and count == 0:
        rows = rows.reshape(0, dim or 0)
    if rows.ndim != 2 or len(rows) != count:
        raise MalformedReplyError(f"{name}: gave an array of shape {rows.shape} for {count} texts")
    if dim is not None and count and rows.shape[1] != dim:
        raise MalformedReplyError(f"{name}: gave vectors of {rows.shape[1]} numbers, and of {dim} before")
    if not np.isfinite(rows).all():
        raise MalformedReplyError(f"{name}: gave numbers that are not finite")
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return unit_rows(rows / np.where(largest > 0, largest, 1.0))  # squares of what is huge or tiny are no numbers


def unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """The rows at length 1; a row of zeros stays one."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return (rows / np.where(norms > 0, norms, 1.0)).astype(np.float32)


def _load_wordllama() -> Any:
    found = importlib.util.find_spec("wordllama")
    try:
        from wordllama import WordLlama  # 0.15 s, so only where it is asked for

        # with its own folder as the cache it finds the tokenizer it ships; a plain load() would go to the network
        folder = Path(found.origin).parent if found and found.origin else None
        return WordLlama.load(cache_dir=folder, disable_download=True)
    except (ImportError, FileNotFoundError):
        raise MissingExtraError("the wordllama embedder", "embed") from None
