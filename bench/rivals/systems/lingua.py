"""LLMLingua and LongLLMLingua: the 20 nearest turns, compressed by a causal model towards the budget.

LLMLingua asks tiktoken for a vocabulary, which it would download, only to report sizes; it gets our counter instead. It
also reads a model's cache as lists of keys and values, which transformers has given up: `_Listed` translates, and keeps
what the model made of short texts, since each budget ranks the same turns anew. One compressor serves all histories
of a process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from typing import Any

from bench.rivals.base import COUNTER, Setup
from bench.rivals.systems.vectors import Vectors
from retcon.note import Note
from retcon.tokens import counter

# as its README has it for questions over documents
LONG = {
    "condition_in_question": "after_condition", "reorder_context": "sort", "dynamic_context_compression_ratio": 0.3,
    "condition_compare": True, "context_budget": "+100", "rank_method": "longllmlingua",
}  # fmt: skip
KEPT, SHORT = 48, 256  # texts whose scores are kept, and the tokens of each at most
_lock = threading.Lock()


class Lingua:
    """Retrieval, then compression."""

    def __init__(self, setup: Setup, *, long: bool) -> None:
        self.long, self.turns, self.folder = long, Vectors(setup.encode), setup.folder

    def add(self, history: Sequence[Note]) -> None:
        self.turns.add_turns(history)

    def context(self, question: str, budget: int) -> Sequence[str]:
        found = self.turns.nearest(question)
        options: dict[str, Any] = {"question": question, **LONG} if self.long else {"question": ""}
        with _lock:
            made = compressor(self.folder).compress_prompt(found, instruction="", target_token=budget, **options)
        text: str = made["compressed_prompt"]
        return [text.removesuffix(question).strip()]


@cache
def compressor(folder: str) -> Any:
    """The compressor with the model in the folder."""
    import tiktoken
    import torch

    tiktoken.encoding_for_model = lambda _: _Sizes()  # type: ignore[assignment, return-value, unused-ignore]
    from llmlingua import PromptCompressor

    made = PromptCompressor(folder, device_map="cuda" if torch.cuda.is_available() else "cpu")
    made.model = _Listed(made.model)
    return made


class _Sizes:
    """Sizes by our counter."""

    def encode(self, text: str) -> list[int]:
        return [0] * counter(COUNTER)(text)


class _Listed:
    """A model whose cache goes in and comes out as lists of keys and values, one pair a layer."""

    def __init__(self, model: Any) -> None:
        self.model, self.kept = model, OrderedDict[tuple[int, ...], Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, ids: Any, *, attention_mask: Any = None, past_key_values: Any = None, **options: Any) -> Any:
        plain = (
            past_key_values is None and ids.numel() <= SHORT and (attention_mask is None or bool(attention_mask.all()))
        )
        name = tuple(ids.flatten().tolist()) if plain else ()
        if plain and name in self.kept:
            self.kept.move_to_end(name)
            return self.kept[name]
        out = self._read(ids, past_key_values or (), attention_mask=attention_mask, **options)
        if plain:
            self.kept[name] = out
            if len(self.kept) > KEPT:
                self.kept.popitem(last=False)
        return out

    def _read(self, ids: Any, past: Any, **options: Any) -> Any:
        from transformers import DynamicCache

        seen = DynamicCache()
        for layer, (keys, values) in enumerate(past):
            seen.update(keys, values, layer)
        out = self.model(ids, past_key_values=seen, **options)
        out.past_key_values = [(layer.keys, layer.values) for layer in out.past_key_values.layers]
        return out


def open(name: str, setup: Setup) -> Lingua:  # noqa: A001
    """An empty one."""
    return Lingua(setup, long=name == "longllmlingua")
