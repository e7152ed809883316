"""Memory in CrewAI: its unified memory on a retcon store, without a model to analyse and an embedder to search.

    agent = Agent(role=..., goal=..., backstory=..., llm=..., memory=RetconMemory(memory, budget=256, user_id="ann"))
    crew = Crew(agents=[...], tasks=[...], memory=RetconMemory(memory, budget=256))

CrewAI asks its memory to extract facts from each result and to consolidate them with a model; here the words are kept
as they are. A search gives what fits the budget as CrewAI shows it: a line with score, text, categories and metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Unpack

from retcon import Memory as Notes
from retcon import Note, Recall
from retcon.errors import InputError, NotFoundError
from retcon.grant import bound_to
from retcon.integrations.extra import needs
from retcon.integrations.keeper import Keeper, narrow
from retcon.where import ScopeWords, WhereWords

with needs("crewai", "memory in CrewAI"):
    from crewai.memory.types import MemoryMatch, MemoryRecord, ScopeInfo
    from crewai.memory.unified_memory import Memory
    from crewai.memory.utils import join_scope_paths
    from pydantic import PrivateAttr

OURS = "crewai"  # the key of a note's metadata under which a record's own fields stand
SCOPES, CATEGORIES = "crewai_scopes", "crewai_categories"


class RetconMemory(Memory):
    """CrewAI's memory, kept as raw notes. `scope` and `categories` narrow a search, and cost a look at every note.

    A record is never private: its own user_id keeps it apart.
    """

    _keeper: Keeper = PrivateAttr()
    _words: ScopeWords = PrivateAttr()

    def __init__(self, memory: Notes, *, budget: int = 256, root_scope: str | None = None, **whose: Unpack[ScopeWords]):
        keeper = Keeper(memory, budget, whose)
        super().__init__(storage=Storage(keeper), llm="none", embedder=_embed_nothing, root_scope=root_scope)
        self._keeper, self._words = keeper, whose

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> RetconMemory:
        """Itself: a copy of a crew remembers in the same store."""
        return self

    def extract_memories(self, content: str) -> list[str]:
        """The words as they are: nothing is left out by a model."""
        return [content]

    def remember(self, content: str, *args: Any, **options: Any) -> MemoryRecord | None:
        """The record as stored."""
        stored = self.remember_many([content], *args, **options)
        return stored[0] if stored else None

    def remember_many(
        self,
        contents: list[str],
        scope: str | None = None,
        categories: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        agent_role: str | None = None,
        root_scope: str | None = None,
    ) -> list[MemoryRecord]:
        """The records as stored, in one transaction; they can be found at once."""
        if private:
            raise InputError("records are kept apart by user_id, not as private: give each user a RetconMemory")
        path = join_scope_paths(self.root_scope if root_scope is None else root_scope, scope)
        weight = self.default_importance if importance is None else importance
        about = {"metadata": metadata or {}, "categories": categories or [], "source": source}
        records = [
            MemoryRecord(content=text, scope=path, importance=weight, **about)
            for text in contents
            if text.strip() and not self.read_only
        ]
        return [_record(note) for note in self._storage.keep(records, agent_role)]

    def recall(
        self, query: str, scope: str | None = None, categories: list[str] | None = None, limit: int = 10, **_: Any
    ) -> list[MemoryMatch]:
        """What memory holds on the query, best first: verbatim, at most `limit` records, within the budget."""
        keeper = self._narrowed(join_scope_paths(self.root_scope, scope), categories)
        room = keeper.budget
        while room > 0 and query.strip():
            found = keeper.look(query, room)
            matches = [] if found is None else self._matches(found)[:limit]
            cost = keeper.memory.count("\n".join(match.format() for match in matches))
            if cost <= keeper.budget:
                return matches
            room = narrow(room, keeper.budget, cost)
        return []

    def _narrowed(self, path: str, categories: list[str] | None) -> Keeper:
        """The keeper of what lies under the path, of one of the categories."""
        wanted: list[dict[str, Any]] = [] if path == "/" else [{SCOPES: {"contains": path}}]
        wanted += [{"OR": [{CATEGORIES: {"contains": each}} for each in categories]}] if categories else []
        words: WhereWords = {"filters": {"AND": wanted}} if wanted else {}
        words.update(self._words)  # type: ignore[typeddict-item]
        return Keeper(self._keeper.memory, self._keeper.budget, words)

    def _matches(self, found: Recall) -> list[MemoryMatch]:
        if found.record is not None:  # what a model wrote of several notes
            return [MemoryMatch(record=MemoryRecord(content=found.text), score=1.0, match_reasons=[found.action])]
        scores = {hit.id: hit.score for hit in found.cluster.hits}
        best = max(scores.values(), default=0.0) or 1.0
        texts = {source.id: source.text for source in found.sources}
        return [
            MemoryMatch(
                record=_record(self._keeper.memory.get(name), texts[name]),
                score=score / best,
                match_reasons=[found.action],
            )
            for name, score in scores.items()
            if name in texts
        ]


class Storage:
    """What CrewAI's memory lists, counts and deletes by, in CrewAI's words."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper, self._memory = keeper, keeper.memory

    def keep(self, records: Iterable[MemoryRecord], speaker: str | None = None) -> list[Note]:
        """The records as notes, one transaction for all."""
        turns = [{"content": each.content, "speaker": speaker, "metadata": _about(each)} for each in records]
        return self._keeper.store(turns)

    def save(self, records: list[MemoryRecord]) -> None:
        """Store the records."""
        self.keep(records)

    def update(self, record: MemoryRecord) -> None:
        """Store a newer version of the record; the older one stays in its history."""
        self._memory.supersede(self._newest(record.id).id, record.content, metadata=_about(record))

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """The newest version of the record."""
        try:
            return _record(self._newest(record_id)).model_copy(update={"id": record_id})
        except NotFoundError:
            return None

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Records under the path, newest first."""
        return self._below(scope_prefix)[offset : offset + limit]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """How many records went, each with all its versions: those that meet every condition."""
        gone = [
            record.id
            for record in self._below(scope_prefix)
            if (not categories or set(categories) & set(record.categories))
            and (record_ids is None or record.id in {self._id_of(each) for each in record_ids})
            and (older_than is None or record.created_at < older_than.replace(tzinfo=None))
            and all(record.metadata.get(key) == value for key, value in (metadata_filter or {}).items())
        ]
        self._memory.delete(gone)
        return len(gone)

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """What lies under a path."""
        found = self._below(scope)
        times = [record.created_at for record in found]
        return ScopeInfo(
            path=scope, record_count=len(found), categories=sorted(self.list_categories(scope)),
            oldest_record=min(times, default=None), newest_record=max(times, default=None),
            child_scopes=self.list_scopes(scope),
        )  # fmt: skip

    def list_scopes(self, parent: str = "/") -> list[str]:
        """The paths one level below."""
        depth = len(_parts(parent)) + 1
        below = (_parts(record.scope)[:depth] for record in self._below(parent))
        return sorted({"/" + "/".join(parts) for parts in below if len(parts) == depth})

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Categories under the path, and how many records have each."""
        return dict(Counter(name for record in self._below(scope_prefix) for name in record.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        """How many records lie under the path."""
        return len(self._below(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete what lies under the path."""
        self.delete(scope_prefix)

    def search(self, *_: Any, **__: Any) -> list[tuple[MemoryRecord, float]]:
        """Refused: this memory is searched by words, with `recall`."""
        raise InputError("this memory has no vectors of CrewAI's embedder: search it with recall")

    def _below(self, path: str | None) -> list[MemoryRecord]:
        """The records under a path, newest first."""
        records = [_record(note) for note in self._memory.get_all(order="newest", **self._keeper.ids)]
        inside = _parts(path or "/")
        return [record for record in records if _parts(record.scope)[: len(inside)] == inside]

    def _newest(self, record_id: str) -> Note:
        note = bound_to(self._keeper.where.scope).find(record_id, self._memory.get)
        while note.superseded_by is not None:
            note = self._memory.get(note.superseded_by)
        return note

    def _id_of(self, record_id: str) -> str | None:
        try:
            return self._newest(record_id).id
        except NotFoundError:
            return None


def _embed_nothing(texts: list[str]) -> list[list[float]]:
    """No vectors: notes are found by their words."""
    return [[] for _ in texts]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _about(record: MemoryRecord) -> dict[str, Any]:
    """The metadata of the note: the record's own under their names, and what a search may ask for beside them."""
    parts = _parts(record.scope)
    own = {"scope": record.scope, "importance": record.importance, "source": record.source, "keys": [*record.metadata]}
    paths = ["/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return {**record.metadata, OURS: own, SCOPES: paths, CATEGORIES: record.categories}


def _record(note: Note, text: str | None = None) -> MemoryRecord:
    """The note as CrewAI's record; one that CrewAI did not store lies at the root."""
    own = note.metadata.get(OURS, {})
    made = datetime.fromisoformat(note.timestamp or note.created_at or "1970-01-01")
    made = made.astimezone(UTC).replace(tzinfo=None) if made.tzinfo else made  # CrewAI's times have no zone
    return MemoryRecord(
        id=note.id, content=note.text if text is None else text, scope=own.get("scope", "/"),
        categories=note.metadata.get(CATEGORIES, []), importance=own.get("importance", 0.5), source=own.get("source"),
        metadata={key: note.metadata[key] for key in own.get("keys", ())}, created_at=made, last_accessed=made,
    )  # fmt: skip
