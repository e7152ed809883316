"""Documents of LangChain: notes as documents, and documents cut to what matters within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from retcon import Memory, Note, Recall
from retcon.integrations.budget import fit
from retcon.integrations.extra import needs
from retcon.integrations.langchain.messages import clean
from retcon.tokens import check_budget

with needs("langchain", "memory in LangChain"):
    from langchain_core.documents import Document
    from langchain_core.documents.compressor import BaseDocumentCompressor
    from langchain_core.retrievers import BaseRetriever

ABOUT = ("session", "speaker", "timestamp", "created_at")  # a note, in its document's metadata


class MemoryRetriever(BaseRetriever):
    """The best notes for a query as documents, with their score, rank and whatever else is known of them."""

    memory: Memory
    k: int = 10
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    session: str | None = None
    filters: dict[str, Any] | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: Any, k: int | None = None) -> list[Document]:
        words = {name: getattr(self, name) for name in ("user_id", "agent_id", "run_id", "session", "filters")}
        hits = self.memory.search(query, top_k=self.k if k is None else k, **words)
        return [_document(hit.note, score=hit.score, rank=hit.rank) for hit in hits]


class BudgetedCompressor(BaseDocumentCompressor):
    """What matters of the documents for a query, verbatim, within a budget; in the order in which they came.

    With `options={"model": ...}`, or any other options of `Memory`, it may be one text that a model wrote from them.
    """

    budget: int = 1024
    options: dict[str, Any] = {}  # noqa: RUF012  (a field of a pydantic model, which copies it)

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> list[Document]:
        """Documents that cost no more than the budget together; one that was shortened says so in its metadata."""
        given = {str(at): document for at, document in enumerate(documents) if document.page_content.strip()}
        settings = {"stamp": False, "top_k": max(1, min(len(given), 10_000)), "cap": 10_000_000} | self.options
        with Memory(":memory:", **settings) as memory:
            for at, document in reversed(given.items()):  # where words say nothing, the newest notes come first
                memory.add(clean(document.page_content), id=at, session=at)
            made: dict[str, list[Document]] = {"": []}

            def cost(text: str) -> int:
                return sum(memory.count(document.page_content) for document in made[text])

            def recall(budget: int) -> Recall:
                found = memory.recall(query, budget)
                made[found.text] = _documents(found, given)
                return found

            found = fit(recall, check_budget(self.budget), cost)
            return [] if found is None else made[found.text]


def _document(note: Note, **found: Any) -> Document:
    known = {name: value for name in ABOUT if (value := getattr(note, name)) is not None}
    return Document(id=note.id, page_content=note.text, metadata={**note.metadata, **known, **found})


def _documents(found: Recall, given: dict[str, Document]) -> list[Document]:
    """The documents behind a recall, as they came or shortened; one document where a model wrote the text."""
    if not found.text:
        return []
    if found.record is not None:
        about = {"action": found.action, "sources": [given[source.id].metadata for source in found.sources]}
        return [Document(page_content=found.text, metadata=about)]
    return list(_shown(found, given))


def _shown(found: Recall, given: dict[str, Document]) -> Iterator[Document]:
    for source in sorted(found.sources, key=lambda source: int(source.id)):
        document = given[source.id]
        if source.whole:
            yield document
        else:
            yield document.model_copy(
                update={"page_content": source.text, "metadata": {**document.metadata, "shortened": True}}
            )
