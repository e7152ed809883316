"""Memory in Google's ADK: a memory service whose searches hold a token budget, and a callback that keeps each turn.

    agent = Agent(model=..., tools=[PreloadMemoryTool()], after_agent_callback=store_turn)
    runner = Runner(agent=agent, app_name="app", memory_service=RetconMemoryService(memory, budget=256), ...)

The app is the notes' agent_id, the user their user_id. An event is stored once, under its own id and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from retcon import Memory, Recall
from retcon.grant import bound_to
from retcon.integrations.extra import needs
from retcon.integrations.keeper import Keeper, narrow
from retcon.tokens import check_budget

with needs("adk", "memory in Google's ADK"):
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.genai import types


MINUTES = 16  # characters of a time that a model is shown: 2026-05-09T10:00


async def store_turn(callback_context: Any) -> None:
    """An `after_agent_callback`: what was said in this turn goes into memory, and nothing older is read again."""
    mine = callback_context.invocation_id
    newest_first = takewhile(lambda event: event.invocation_id == mine, reversed(callback_context.session.events))
    await callback_context.add_events_to_memory(events=list(newest_first)[::-1])


class RetconMemoryService(BaseMemoryService):
    """A memory service on a retcon memory: events as raw notes, searches within a budget.

    What a search gives costs no more than `budget` tokens as ADK shows it to a model: time, author and text.
    """

    def __init__(self, memory: Memory, *, budget: int = 256) -> None:
        self.memory, self.budget = memory, check_budget(budget)
        self._deleted: set[str] = set()  # a session that is added once more must not bring them back

    async def add_session_to_memory(self, session: Any) -> None:
        """Store the events of the session that are not stored yet."""
        await asyncio.to_thread(self._add, session.app_name, session.user_id, session.events, session.id)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store these events; one that is stored stays as it is."""
        await asyncio.to_thread(self._add, app_name, user_id, events, session_id, dict(custom_metadata or {}))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store these entries, each with its own author and time."""
        await asyncio.to_thread(self._add, app_name, user_id, memories, None, dict(custom_metadata or {}))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """What memory holds on the query, within the budget."""
        found = await asyncio.to_thread(self._search, self._keeper(app_name, user_id), query)
        return SearchMemoryResponse(memories=found)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete the entry of that id with all its versions."""
        grant = bound_to(self._keeper(app_name, user_id).where.scope)
        note = await asyncio.to_thread(grant.find, memory_id or "", self.memory.get)
        await asyncio.to_thread(self.memory.delete, note.id)
        self._deleted.add(note.id)

    def _keeper(self, app_name: str, user_id: str) -> Keeper:
        return Keeper(self.memory, self.budget, {"user_id": user_id, "agent_id": app_name})

    def _add(
        self, app: str, user: str, items: Iterable[Any], session: str | None, metadata: dict[str, object] | None = None
    ) -> None:
        keeper = self._keeper(app, user)
        name = bound_to(keeper.where.scope).name  # ids are unique in a store: each app and user has names of its own
        turns = [
            {
                "content": text, "name": item.author, "timestamp": item.timestamp, "metadata": metadata,
                **({"id": name(item.id)} if item.id else {}),
            }
            for item in items
            if (text := _text(item)).strip()
        ]  # fmt: skip
        keeper.store([turn for turn in turns if turn.get("id") not in self._deleted], session)

    def _search(self, keeper: Keeper, query: str) -> list[MemoryEntry]:
        room = self.budget
        while room > 0 and query.strip():
            found = keeper.look(query, room)
            entries = [] if found is None else self._entries(found)
            cost = self.memory.count("\n".join(map(_shown, entries)))
            if cost <= self.budget:
                return entries
            room = narrow(room, self.budget, cost)
        return []

    def _entries(self, found: Recall) -> list[MemoryEntry]:
        """The notes, or the parts of them that were packed; what a model wrote of them is one entry."""
        if found.record is not None:
            return [_entry(found.text)]
        return [self._of(source.id, source.text) for source in found.sources]

    def _of(self, note_id: str, text: str) -> MemoryEntry:
        note = self.memory.get(note_id)
        entry = _entry(text)
        entry.id, entry.author, entry.timestamp = note.id, note.speaker, (note.timestamp or "")[:MINUTES] or None
        return entry


def _entry(text: str) -> MemoryEntry:
    return MemoryEntry(content=types.Content(role="user", parts=[types.Part(text=text)]))


def _text(item: Any) -> str:
    """The words of an event or an entry, without a model's thoughts."""
    parts = (item.content.parts or []) if item.content else []
    return "\n".join(part.text for part in parts if part.text and not part.thought)


def _shown(entry: MemoryEntry) -> str:
    """The entry as ADK's tools show it to a model."""
    text = f"{entry.author}: {_text(entry)}" if entry.author else _text(entry)
    return f"Time: {entry.timestamp}\n{text}" if entry.timestamp else text
