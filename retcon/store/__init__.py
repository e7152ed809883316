"""Where notes live: `Store` is what the stages may ask of a store; `places` opens a file, or one on a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from retcon.language import Language
from retcon.note import Filter, Note, Scope
from retcon.where import Where

Order = Literal["oldest", "newest"]  # which note of a list comes first
Progress = Callable[[int], None]  # called with the number of notes written so far


class TermStats(NamedTuple):
    """What bounds a term's BM25 score within the snapshot's scopes."""

    df: int  # notes that hold it
    peak: int  # no note holds it more often
    low: int  # no note that holds it is shorter


class Postings(NamedTuple):
    """Notes that hold one term, as parallel arrays."""

    slots: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    lengths: NDArray[np.uint16]


class Lists(NamedTuple):
    """Notes that hold each of several terms, one term after the other."""

    entries: Postings
    sizes: list[int]  # entries of each term


class Facts(NamedTuple):
    """What a ranking may know of some notes beside their words, as parallel lists."""

    speakers: list[str | None]
    sessions: list[tuple[int, str] | None]  # with the scope


@dataclass(frozen=True, slots=True)
class Forward:
    """Counts of the asked-for terms in the asked-for notes: `counts[i, j]` is term j in note i."""

    counts: NDArray[np.uint16]
    lengths: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Passages:
    """Counts of the asked-for terms in the passages of the long ones among the asked-for notes."""

    rows: NDArray[np.int64]  # of each passage: which of the notes it is of
    counts: NDArray[np.uint16]  # [passage, term]
    lengths: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Nearest:
    """Notes by the cosine of their best passage, as parallel arrays in no order."""

    slots: NDArray[np.int64]
    scores: NDArray[np.float64]
    parts: NDArray[np.int64]  # which passage that is


@dataclass(frozen=True, slots=True)
class Unembedded:
    """Notes without a vector, and by scope the slot up to which there are no others."""

    notes: list[Note]
    upto: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete removed. No call gives its words any more; `purged` says whether they have left the files too."""

    notes: int
    records: int
    purged: bool

    @property
    def warning(self) -> str | None:
        """A sentence for the caller where deleted words may still lie in the files; None where they do not."""
        return None if self.purged else "the deleted words leave the files with the next purge"


@dataclass(frozen=True, slots=True)
class Kept:
    """One reply as it is kept."""

    key: str
    model: str
    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    finish: str
    logprob: float | None


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """What a cache of replies holds, and how often it was asked with and without success."""

    entries: int
    bytes: int
    hits: int
    misses: int


class Snapshot(Protocol):
    """One consistent view of the notes that a scope covers. A slot numbers a note within the view."""

    language: Language  # that the notes are indexed in
    notes: int  # indexed notes, BM25's N
    mean_length: float
    slots: int  # every slot is below this

    def terms(self, keys: Sequence[int]) -> Mapping[int, TermStats]: ...
    def postings(self, key: int) -> Postings: ...
    def lists(self, keys: Sequence[int]) -> Lists: ...
    def forward(self, slots: NDArray[np.int64], keys: Sequence[int]) -> Forward: ...
    def passages(self, slots: NDArray[np.int64], keys: Sequence[int]) -> Passages: ...
    def mask(self, only: Filter) -> NDArray[np.bool_] | None: ...
    def fetch(self, slots: Sequence[int]) -> list[Note]: ...
    def places(self, slots: Sequence[int]) -> list[int]: ...
    def facts(self, slots: Sequence[int]) -> Facts: ...
    def texts(self) -> Iterator[tuple[int, Note]]: ...
    def recent(self, limit: int, only: Filter) -> list[int]: ...
    def nearest(self, embedder: str, vector: NDArray[np.float32], k: int, only: Filter) -> Nearest: ...
    def cosines(self, embedder: str, vector: NDArray[np.float32], slots: Sequence[int]) -> Nearest: ...


class Store(Protocol):
    """Notes with an index that changes in the same transaction."""

    def add(self, notes: Iterable[Note], *, progress: Progress | None = None) -> list[str]: ...
    def get(self, note_id: str) -> Note: ...
    def get_many(self, note_ids: Sequence[str]) -> list[Note]: ...
    def all(
        self,
        scope: Scope,
        only: Filter | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        superseded: bool = False,
        skip_damaged: bool = False,
        order: Order = "oldest",
    ) -> Iterator[Note]: ...
    def count(self, scope: Scope, *, superseded: bool = True, now: str | None = None) -> int: ...
    def history(self, note_id: str) -> list[Note]: ...
    def delete(self, note_ids: Sequence[str], *, versions: bool = False) -> Deleted: ...
    def delete_all(self, scope: Scope) -> Deleted: ...
    def count_unpurged(self, *, now: str | None = None) -> int: ...
    def purge(self, *, at: str = "", now: str | None = None) -> bool: ...
    def snapshot(self, scope: Scope) -> AbstractContextManager[Snapshot]: ...
    def identify_embedder(self, name: str, probe: NDArray[np.float32]) -> str: ...
    def find_unembedded(self, whose: Where, embedder: str, *, limit: int) -> Unembedded: ...
    def put_vectors(
        self,
        embedder: str,
        vectors: Iterable[tuple[str, NDArray[np.float32]]],
        upto: Mapping[int, int] | None = None,
    ) -> None: ...
    def refresh_indexes(self, scope: Scope, embedder: str) -> None: ...
    def get_record(self, record_id: str) -> tuple[str, str] | None: ...
    def put_record(
        self, record_id: str, *, action: str, budget: int, text: str, about: str, sources: Sequence[str]
    ) -> None: ...
    def get_replies(self, keys: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Kept]: ...
    def put_replies(self, given: Sequence[Kept], sources: Sequence[str] | None) -> int: ...
    def close(self) -> None: ...


__all__ = [
    "Deleted",
    "Forward",
    "Kept",
    "Lists",
    "Nearest",
    "Order",
    "Passages",
    "Postings",
    "Progress",
    "ReplyStats",
    "Snapshot",
    "Store",
    "TermStats",
    "Unembedded",
]
