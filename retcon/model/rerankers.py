"""A text or a function -> the reranker that it means: (query, texts) -> how well each text answers the query.

| text | what it talks to | extra |
|---|---|---|
| `sentence-transformers:NAME` | a CrossEncoder in this process, with torch | `sentence-transformers` |
| `fastembed:NAME` | a TextCrossEncoder in this process, with ONNX | `fastembed` |
| `together:NAME`, `vllm:NAME`, ... | a provider of `providers` that has `/rerank` | `http` |
| `http://host/v1`, `http://host/v1#NAME` | any endpoint with `/rerank` (Jina, Cohere, vLLM, llama.cpp) | `http` |

NAME of the first is a model's name or the path of its folder. Only the order of the scores counts, not their scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from retcon.errors import InputError, MissingExtraError, quote
from retcon.model import providers
from retcon.model.embedders import load_model, name_of, shorten
from retcon.model.rerank import TIMEOUT, FunctionRerank, Rerank, Score


def reranker(spec: str | Rerank | Score, *, key: str | None = None, timeout: float = TIMEOUT) -> Rerank:
    """The reranker meant by a name, a URL, or a function from a query and texts to scores."""
    if isinstance(spec, str):
        return _open(spec.strip(), key, timeout)
    if not callable(spec) or isinstance(spec, type):
        raise InputError(f"a reranker is a function from a query and texts to scores, not {type(spec).__name__}")
    return FunctionRerank(name_of(spec), spec)


def _open(spec: str, key: str | None, timeout: float) -> Rerank:
    if spec.lower().startswith(("http://", "https://")):
        from retcon.model.http_rerank import HttpRerank

        base, _, name = spec.partition("#")
        return HttpRerank(base, name or None, providers.find_key(base, key), timeout=timeout)
    package, _, model = spec.partition(":")
    if package in PACKAGES and model:
        return PACKAGES[package](model)
    if (named := providers.split(spec)) is not None and named.known:
        from retcon.model.http_rerank import HttpRerank

        return HttpRerank(named.base, named.model, named.find_key(key), timeout=timeout)
    raise InputError(
        f"unknown reranker {quote(spec)}: {', '.join(f'{name}:NAME' for name in PACKAGES)}, a provider and its model,"
        " the base URL of an endpoint with /rerank (http://...), or a function from a query and texts to scores"
    )


def open_sentence_transformers(name: str) -> FunctionRerank:
    """A cross-encoder of the package sentence-transformers, by its name or folder."""
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise MissingExtraError("the sentence-transformers reranker", "sentence-transformers") from None
    model = load_model(f"sentence-transformers:{name}", lambda: CrossEncoder(name))

    def score(query: str, texts: Sequence[str]) -> Any:
        return np.reshape(model.predict([(query, text) for text in texts], show_progress_bar=False), -1)

    return FunctionRerank(f"sentence-transformers:{shorten(name)}", score, alone=True)


def open_fastembed(name: str) -> FunctionRerank:
    """A cross-encoder of the package fastembed, by its name there."""
    try:
        from fastembed.rerank.cross_encoder import TextCrossEncoder
    except ImportError:
        raise MissingExtraError("the fastembed reranker", "fastembed") from None
    model = load_model(f"fastembed:{name}", lambda: TextCrossEncoder(name))
    return FunctionRerank(f"fastembed:{name}", lambda query, texts: list(model.rerank(query, list(texts))), alone=True)


PACKAGES: Mapping[str, Callable[[str], Rerank]] = {
    "sentence-transformers": open_sentence_transformers,
    "fastembed": open_fastembed,
}
