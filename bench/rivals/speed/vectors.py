"""Vectors at hand: a text's vector is a function of the text alone, and costs a few microseconds.

Two pools of rows are made once, with the clustering of MiniLM's (`bench.speed.hybrid.Made`). A text's checksums choose
a row of each; their weighted sum, at length 1, is its vector. So every system gets the same vectors for the same texts,
and none of them waits for an encoder. Imports nothing of retcon: it is part of every rival's process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOPICS, NOISE = 8_192, 4_096
SHARE = 0.9
FILE = "vectors.npz"

Rows = NDArray[np.float32]


class Pooled:
    """Texts in, rows of length 1 out."""

    name = "pooled"

    def __init__(self, topics: Rows, noise: Rows) -> None:
        self.topics, self.noise, self.dim = topics * SHARE, noise * (1 - SHARE**2) ** 0.5, topics.shape[1]

    def __call__(self, texts: Sequence[str], /) -> Rows:
        """(texts, dim)"""
        known = [text.encode() for text in texts]
        first = np.array([zlib.crc32(each) for each in known], np.int64) % len(self.topics)
        second = np.array([zlib.adler32(each) for each in known], np.int64) % len(self.noise)
        rows: Rows = self.topics[first] + self.noise[second]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def floats(self, texts: Sequence[str]) -> list[list[float]]:
        """The rows as plain lists, for libraries that want them so."""
        rows: list[list[float]] = self(texts).tolist()
        return rows


class MiniLM:
    """The real encoder, under the same face."""

    name, dim = "all-MiniLM-L6-v2", 384

    def __init__(self) -> None:
        from bench.rivals.encoder import Encoder

        self._encoder = Encoder()

    def __call__(self, texts: Sequence[str], /) -> Rows:
        return self._encoder(texts)

    def floats(self, texts: Sequence[str]) -> list[list[float]]:
        return self._encoder.floats(texts)


def make_pools(folder: Path, make: Callable[[Sequence[str]], Rows]) -> None:
    """Keep both pools in the folder; `make` gives a row for each text."""
    topics = make([f"topic {number}" for number in range(TOPICS)])
    np.savez(folder / FILE, topics=topics, noise=make([f"noise {number}" for number in range(NOISE)]))


def open_pools(folder: Path) -> Pooled:
    """The vectors whose pools are in the folder."""
    with np.load(folder / FILE) as kept:
        return Pooled(kept["topics"], kept["noise"])


def open_vectors(folder: Path, kind: str) -> Any:
    """Those at hand, or the real encoder."""
    return MiniLM() if kind == "minilm" else open_pools(folder)
