"""A reranker behind an endpoint, in the form that Jina, Cohere, vLLM and llama.cpp share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.errors import MalformedReplyError, ModelError
from retcon.model.http import Endpoint, _Client, _LoopThread, _RefusedParameter, find_only_model
from retcon.model.rerank import TIMEOUT, check_scores


class HttpRerank:
    """Scores from an endpoint: POST {base}/rerank with model, query, documents and top_n."""

    def __init__(self, base: str, name: str | None = None, key: str | None = None, **options: Any) -> None:
        """`options` are the fields of `Endpoint`."""
        self._name = name
        self.endpoint = Endpoint(base, key, **{"timeout": TIMEOUT, "retries": 1, **options})
        self._loop_thread = _LoopThread(self.endpoint)

    def __repr__(self) -> str:
        return f"HttpRerank({self.endpoint.base!r}, {self._name!r})"

    @property
    def name(self) -> str:
        """The model: as it was given, or the only one that the endpoint lists."""
        if self._name is None:
            self._name = self._run(find_only_model)
        return self._name

    def __call__(self, query: str, texts: Sequence[str], /) -> NDArray[np.float64]:
        asked = {"model": self.name, "query": query, "documents": list(texts), "top_n": len(texts)}
        found = self._run(partial(_ask, asked))
        try:
            scores = {int(each["index"]): float(each["relevance_score"]) for each in found["results"]}
            given = [scores[place] for place in range(len(texts))]
        except (LookupError, TypeError, ValueError, OverflowError):
            raise MalformedReplyError(f"{self.name}: the reply does not score {len(texts)} texts") from None
        return check_scores(self.name, given, len(texts))

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._loop_thread.close()

    def _run(self, job: Callable[[_Client], Any]) -> Any:
        (found,) = self._loop_thread.run([job])
        if isinstance(found, _RefusedParameter):
            raise found.error
        if isinstance(found, ModelError):
            raise found
        return found


async def _ask(asked: Mapping[str, Any], client: _Client) -> Any:
    return await client.post("/rerank", asked)
