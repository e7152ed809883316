"""Notes -> vectors in the store: what lacks one is embedded in batches, each of which is kept before the next begins.

A note is embedded as "speaker: text", a long one passage by passage. A kill loses one batch at most; the next call
goes on where the last one stopped. Several processes may embed one store at a time: nothing is kept twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from retcon import deadline
from retcon.errors import RetconError, message_of
from retcon.model import Embed
from retcon.model.embed import embed_texts
from retcon.note import Note
from retcon.passages import split
from retcon.store import Progress, Store
from retcon.where import Where

BATCH = 256  # notes that are embedded, and kept, at once
# By the vector of the first an embedder is known. They have nothing in common: how close they are to each other is what
# a cosine of this embedder begins at.
PROBES = (
    "Anna moved to Lisbon in March, and her cat came by train.", "The invoice for the new printer is due next week.",
    "Add two spoons of sugar and stir until it boils.", "Our team lost the final by a single goal.",
    "He plays the violin in a small orchestra.", "The server needs a restart after the update.",
    "Snow closed the mountain road this morning.", "Which film won the prize last year?",
)  # fmt: skip
RETRY = 30.0  # seconds until the background tries again after an error


@dataclass(frozen=True, slots=True)
class Identity:
    """An embedder as a store knows it."""

    name: str  # under which its vectors are kept
    floor: float = 0.0  # the cosine that texts have which are about different things


def identify(store: Store, embed: Embed) -> Identity:
    """Under which name the store keeps the vectors of this very model, and where its cosines begin."""
    rows = embed_texts(embed, PROBES)
    between = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    return Identity(store.identify_embedder(embed.name, rows[0]), float(np.clip(np.median(between), 0.0, 0.95)))


def texts_of(note: Note) -> list[str]:
    """What is embedded of the note: each of its passages, with who said it."""
    said = f"{note.speaker}: " if note.speaker else ""
    return [said + note.text[start:end].strip() for start, end in split(note.text)]


def embed_missing(
    store: Store,
    whose: Where,
    embed: Embed,
    *,
    name: str | None = None,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> int:
    """How many notes of the scope got the vectors that they lacked; `name` is that of its identity, if known."""
    done = 0
    name = identify(store, embed).name if name is None else name
    while (missing := store.find_unembedded(whose, name, limit=batch)).notes:
        deadline.check()
        parts = [texts_of(note) for note in missing.notes]
        rows = embed_texts(embed, [text for texts in parts for text in texts])
        ends = np.cumsum([len(texts) for texts in parts])[:-1]
        by_note = zip(missing.notes, np.split(rows, ends), strict=True)
        store.put_vectors(name, [(note.id, each) for note, each in by_note], missing.upto)
        done += len(missing.notes)
        if progress is not None:
            progress(done)
    return done


class Background:
    """A thread that embeds what lacks vectors: at the start, and whenever it is woken. `error` is what it met last."""

    def __init__(self, embed_all: Callable[[], object], *, retry: float = RETRY) -> None:
        self._embed_all, self._retry = embed_all, retry
        self.error: str | None = None
        self._woken, self._idle, self._over = threading.Event(), threading.Event(), False
        self._stop = deadline.Stop()
        self._woken.set()
        self._thread = threading.Thread(target=self._run, name="retcon-embed", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There may be something to embed."""
        self._idle.clear()
        self._woken.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether everything that was there has its vectors, or an error stands in the way."""
        return self._idle.wait(timeout)

    def close(self) -> None:
        """End the thread; a batch that is being embedded is given up."""
        self._over = True
        self._stop.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over:
            self._woken.wait(self._retry if self.error else None)
            self._woken.clear()
            if not self._over:
                self._work()
            if not self._woken.is_set():
                self._idle.set()

    def _work(self) -> None:
        self.error = None
        try:
            deadline.context(stop=self._stop).run(self._embed_all)
        except RetconError as error:
            with suppress(Exception):
                self.error = message_of(error)
        except Exception as error:  # an embedder of the caller's may raise anything, and the thread must go on
            self.error = message_of(error)
