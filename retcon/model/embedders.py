"""A text, a function or an object -> the embedder that it means.

| text | what it talks to | extra |
|---|---|---|
| `hashing` | nothing: words hashed, with numpy | |
| `wordllama` | static word vectors inside an installed package | `embed` |
| `openai:NAME`, `ollama:NAME`, ... | a provider of `providers` | `http` |
| `http://host/v1`, `http://host/v1#NAME` | any OpenAI-compatible endpoint | `http` |
| `sentence-transformers:NAME` | a model in this process, with torch | `sentence-transformers` |
| `fastembed:NAME` | a model in this process, with ONNX | `fastembed` |
| `model2vec:NAME` | static vectors in this process | `model2vec` |

NAME of the last three is a model's name or the path of its folder. A function from texts to rows is an embedder too.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.errors import InputError, MissingExtraError, message_of, quote
from retcon.model import providers
from retcon.model.embed import Embed, HashingEmbed, WordLlamaEmbed, check_rows
from retcon.words import words

Encode = Callable[[Sequence[str]], Any]  # texts -> rows


class FunctionEmbed:
    """A function from texts to rows as an embedder: what it gives is checked and scaled to length 1.

    With `alone` one call at a time goes through; with `sort` texts of like length come together, which saves padding.
    """

    def __init__(
        self,
        name: str,
        encode: Encode,
        *,
        encode_query: Encode | None = None,
        dim: int | None = None,
        alone: bool = False,
        sort: bool = False,
    ) -> None:
        self.name, self._dim, self._sort = name, dim, sort
        self._encode, self._encode_query = encode, encode_query or encode
        self._turn: AbstractContextManager[Any] = threading.Lock() if alone else nullcontext()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def dim(self) -> int:
        """The length of a vector; found out by the first one, unless it was given."""
        if self._dim is None:
            self._rows(["dimension"], self._encode)
        assert self._dim is not None
        return self._dim

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        return self._embed(texts, self._encode)

    def embed_query(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """The vectors of questions, where the model has a way of its own for them."""
        return self._embed(texts, self._encode_query)

    def _embed(self, texts: Sequence[str], encode: Encode) -> NDArray[np.float32]:
        full = [i for i, text in enumerate(texts) if words(text)]
        if self._sort:
            full.sort(key=lambda i: len(texts[i]))
        rows = self._rows([texts[i] for i in full], encode) if full else None
        out = np.zeros((len(texts), self.dim), np.float32)
        if rows is not None:
            out[full] = rows
        return out

    def _rows(self, texts: list[str], encode: Encode) -> NDArray[np.float32]:
        with self._turn:
            found = encode(texts)
        rows = check_rows(self.name, found, len(texts), self._dim)
        self._dim = rows.shape[1]
        return rows


def embedder(spec: str | Embed | Encode | None = None, *, key: str | None = None, timeout: float = 60.0) -> Embed:
    """The embedder meant by a name, a URL, a function from texts to rows, an object that is one, or None (hashing)."""
    if spec is None:
        return HashingEmbed()
    if isinstance(spec, str):
        return _open(spec.strip(), key, timeout)
    if _is_embed(spec):
        return spec  # type: ignore[return-value]
    if not callable(spec) or isinstance(spec, type):
        raise InputError(f"an embedder needs name, dim and a call, {type(spec).__name__} lacks one of them")
    return FunctionEmbed(name_of(spec), spec)


def _open(spec: str, key: str | None, timeout: float) -> Embed:
    if spec in OFFLINE:
        return OFFLINE[spec]()
    if spec.lower().startswith(("http://", "https://")):
        from retcon.model.http import HttpEmbed

        base, _, name = spec.partition("#")
        return HttpEmbed(base, name or None, providers.find_key(base, key), timeout=timeout)
    package, _, model = spec.partition(":")
    if package in PACKAGES:
        if not model:
            raise InputError(f"name the model too: {package}:NAME")
        return PACKAGES[package](model)
    if (named := providers.split(spec)) is not None and named.known:
        from retcon.model.http import HttpEmbed

        return HttpEmbed(named.base, named.model, named.find_key(key), timeout=timeout)
    raise unknown_embedder(spec)


def unknown_embedder(spec: str) -> InputError:
    """The error where a text means no embedder: it says what there is."""
    known = f"{', '.join(map(str, OFFLINE))}, {', '.join(f'{name}:NAME' for name in PACKAGES)}"
    return InputError(
        f"unknown embedder {quote(spec)}: {known}, a provider and its model (openai:text-embedding-3-small; one of"
        f" {providers.list_known()}), a base URL (http://...), a function, or an object with name, dim and a call"
    )


def _is_embed(spec: object) -> bool:
    """Whether the object has what `Embed` asks for; a property is not called for it, as it may ask an endpoint."""
    nothing = object()
    return callable(spec) and all(
        inspect.getattr_static(spec, each, nothing) is not nothing for each in ("name", "dim")
    )  # fmt: skip


def name_of(function: object) -> str:
    """What a function that embeds or scores is called."""
    inner = getattr(function, "func", function)  # of a partial
    name = getattr(function, "name", None) or getattr(inner, "__name__", None) or type(function).__name__
    if not isinstance(name, str):
        raise InputError(f"its name is a text, not {type(name).__name__}")
    return name


# -- models in this process --------------------------------------------------------------------------------------------


def open_sentence_transformers(name: str) -> FunctionEmbed:
    """A model of the package sentence-transformers, by its name or folder; questions get its prompt for them."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise _missing("sentence-transformers") from None
    model = load_model(f"sentence-transformers:{name}", lambda: SentenceTransformer(name))
    encode, encode_query = (getattr(model, each, model.encode) for each in ("encode_document", "encode_query"))
    return FunctionEmbed(
        f"sentence-transformers:{shorten(name)}",
        lambda texts: encode(texts, show_progress_bar=False),
        encode_query=lambda texts: encode_query(texts, show_progress_bar=False),
        alone=True,
    )


def open_fastembed(name: str, *, folder: str | None = None) -> FunctionEmbed:
    """A model of the package fastembed, by its name there; `folder` is where its files already lie."""
    try:
        from fastembed import TextEmbedding
    except ImportError:
        raise _missing("fastembed") from None
    options = {} if folder is None else {"specific_model_path": folder}
    model = load_model(f"fastembed:{name}", lambda: TextEmbedding(name, **options))
    return FunctionEmbed(
        f"fastembed:{name}",
        lambda texts: np.stack(list(model.passage_embed(texts, batch_size=32))),
        encode_query=lambda texts: np.stack(list(model.query_embed(texts))),
        alone=True,
        sort=True,
    )


def open_model2vec(name: str) -> FunctionEmbed:
    """A model of the package model2vec, by its name or folder."""
    try:
        from model2vec import StaticModel
    except ImportError:
        raise _missing("model2vec") from None
    where = Path(name) if Path(name).is_dir() else name
    model = load_model(f"model2vec:{name}", lambda: StaticModel.from_pretrained(where, force_download=False))
    return FunctionEmbed(f"model2vec:{shorten(name)}", lambda texts: model.encode(texts, use_multiprocessing=False))


OFFLINE: Mapping[str | None, type[HashingEmbed] | type[WordLlamaEmbed]] = {
    "hashing": HashingEmbed,
    "wordllama": WordLlamaEmbed,
}
PACKAGES: Mapping[str, Callable[[str], Embed]] = {
    "sentence-transformers": open_sentence_transformers,
    "fastembed": open_fastembed,
    "model2vec": open_model2vec,
}


def _missing(package: str) -> MissingExtraError:
    return MissingExtraError(f"the {package} embedder", package)


def load_model(spec: str, load: Callable[[], Any]) -> Any:
    """The model, or one line on why it cannot be had."""
    try:
        return load()
    except Exception as error:
        raise InputError(f"{quote(spec)} cannot be loaded: {message_of(error)}") from error


def shorten(name: str) -> str:
    """The model's name; of a folder its own name: where it lies is no part of what it is."""
    return Path(name).resolve().name if Path(name).is_dir() else name
