"""Asks -> replies, by a transformers model in this process (extra `gpu`): thousands at once, for labelling.

What flows through the model, and how it is kept busy, is in flow.py; here asks become tokens, and tokens replies. The
model's own `generate`, with its repetition penalties and cut distributions, is not used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retcon.errors import ContextTooLongError, InputError, MissingExtraError, ModelError
from retcon.lab.gpu.flow import Flow, Row
from retcon.lab.gpu.step import attention
from retcon.model.base import Ask, Reply, clean, clean_messages


class TransformersChat:
    """A causal language model with a chat template, from a folder."""

    kind = "hf"

    def __init__(
        self,
        path: str,
        *,
        name: str | None = None,
        batch_tokens: int = 65_536,
        batch_rows: int = 1024,
        dtype: str = "bfloat16",
        device: str | None = None,
    ) -> None:
        """`batch_tokens` bounds prompts and answers under way at once, padding included; a large GPU takes a million.
        `device` is a GPU where there is one."""
        if not Path(path).is_dir():
            raise InputError(f"there is no model folder {path!r}")
        torch, transformers = _libraries()
        self.path, self.name = path, name or Path(path).resolve().name
        self.batch_tokens, self.batch_rows = batch_tokens, batch_rows
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype=getattr(torch, dtype), attn_implementation=attention(transformers)
        )
        self._model.to(self.device).eval()
        self._ends = _ends(self._model, self._tokenizer)
        pad = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else min(self._ends)
        self._window = int(getattr(self._model.config, "max_position_embeddings", 0) or 0)
        self._flow = Flow(torch, transformers, self._model, ends=self._ends, pad=pad)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"TransformersChat({self.path!r}, device={self.device!r})"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        with self._lock:
            started = time.monotonic()
            rows = [Row(i, ask, ids) for i, (ask, ids) in enumerate(zip(asks, self._ids(asks), strict=True))]
            self._flow.run([row for row in rows if self._fits(row)], tokens=self.batch_tokens, most=self.batch_rows)
            seconds = (time.monotonic() - started) / max(1, len(rows))
            return [self._reply(row, seconds) for row in rows]

    def _fits(self, row: Row) -> bool:
        return not self._window or len(row.ids) + row.ask.max_tokens <= self._window

    def _ids(self, asks: Sequence[Ask]) -> list[list[int]]:
        """The tokens of every ask; the tokenizer takes them all at once, which it does in parallel."""
        template = self._tokenizer.apply_chat_template
        texts = [template(clean_messages(ask), tokenize=False, add_generation_prompt=True) for ask in asks]
        return list(self._tokenizer(texts, add_special_tokens=False)["input_ids"]) if texts else []

    def _reply(self, row: Row, seconds: float) -> Reply | ModelError:
        needed = f"{len(row.ids)} tokens and {row.ask.max_tokens} for the answer"
        if not self._fits(row):
            return ContextTooLongError(f"{self.name}: {needed}, context {self._window}")
        if row.too_large:
            return ContextTooLongError(f"{self.name}: {needed} do not fit the memory")
        stopped = bool(row.said) and row.said[-1] in self._ends
        return Reply(
            text=clean(self._tokenizer.decode(row.said[:-1] if stopped else row.said, skip_special_tokens=True)),
            prompt_tokens=len(row.ids),
            completion_tokens=len(row.said),
            seconds=seconds,
            finish="stop" if stopped else "length",
            logprob=sum(row.logprobs) / len(row.said) if row.ask.logprobs and row.said else None,
        )


def open_folder(spec: str, *, name: str | None = None) -> TransformersChat | None:
    """The model in that folder; None where there is none."""
    return TransformersChat(spec, name=name) if (Path(spec) / "config.json").is_file() else None


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer."""
    given = getattr(model.generation_config, "eos_token_id", None)
    listed = given if isinstance(given, list) else [given]
    ends = frozenset(int(token) for token in (*listed, tokenizer.eos_token_id) if token is not None)
    if not ends:
        raise InputError("this model has no token that ends an answer")
    return ends


def _libraries() -> tuple[Any, Any]:
    try:
        import torch  # seconds, so only where a model is loaded
        import transformers
    except ImportError:
        raise MissingExtraError("a transformers model", "gpu") from None
    return torch, transformers
