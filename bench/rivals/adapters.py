"""The one encoder in the forms that libraries want."""

from __future__ import annotations

from typing import Any

from bench.rivals.encoder import NAME, Encoder


def langchain_embeddings(encode: Encoder) -> Any:
    """As LangChain's Embeddings."""
    from langchain_core.embeddings import Embeddings

    class MiniLM(Embeddings):  # type: ignore[misc, unused-ignore]
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return encode.floats(texts)

        def embed_query(self, text: str) -> list[float]:
            return encode.floats([text])[0]

    return MiniLM()


def llamaindex_embedding(encode: Encoder) -> Any:
    """As LlamaIndex's BaseEmbedding."""
    from llama_index.core.base.embeddings.base import BaseEmbedding

    class MiniLM(BaseEmbedding):  # type: ignore[misc, unused-ignore]
        def _get_query_embedding(self, query: str) -> list[float]:
            return encode.floats([query])[0]

        def _get_text_embedding(self, text: str) -> list[float]:
            return encode.floats([text])[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    return MiniLM(model_name=NAME)
