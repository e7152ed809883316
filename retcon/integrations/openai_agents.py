"""Memory in the OpenAI Agents SDK: a session that also remembers, and a filter that keeps a run within its budget.

    session = RetconSession(SQLiteSession("chat-1", "chats.db"), memory, user_id="ann")
    config = RunConfig(call_model_input_filter=budget_filter(memory, budget=4096, recall=256, user_id="ann"))
    await Runner.run(agent, "When did I get my cat?", session=session, run_config=config)

The session keeps every item in the session that it wraps, and every spoken turn in the memory as well. The filter shows
the model the newest turns that fit and, in front of the last user message, what memory holds on it.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from retcon import Memory
from retcon.errors import InputError
from retcon.integrations.extra import needs
from retcon.integrations.keeper import Keeper, find_tail, shorten
from retcon.tokens import check_budget
from retcon.where import ScopeWords

with needs("openai-agents", "memory in the OpenAI Agents SDK"):
    from agents import Session
    from agents.run import CallModelData, ModelInputData

Item = Any  # of the SDK: a dict with a role, a type, or both
KEPT = 1000  # runs under way whose recalled text is known


def _text(item: Item) -> str:
    """The words of a message."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _is_from(item: Item, *roles: str) -> bool:
    return isinstance(item, Mapping) and item.get("type", "message") == "message" and item.get("role") in roles


def _spoken(items: Iterable[Item]) -> list[dict[str, str]]:
    """The turns of user and assistant among the items."""
    return [{"role": item["role"], "content": _text(item)} for item in items if _is_from(item, "user", "assistant")]


class RetconSession:
    """A session that keeps its items in another one, and what was said also in a memory.

    A question goes into memory when the first reply to it comes, so that a recall for it does not find the question.
    Without a limit of its own the SDK is given the newest `recent` items, from a user's message on: older ones stay in
    the wrapped session, and what they say is recalled from memory.
    """

    def __init__(
        self, session: Session, memory: Memory, *, recent: int | None = 40, **scope: Unpack[ScopeWords]
    ) -> None:
        self.session, self.recent = session, recent
        self._keeper = Keeper(memory, 0, scope)
        self._held: list[dict[str, str]] = []  # questions without a reply so far
        self._checked = False

    def __getattr__(self, name: str) -> Any:
        """Whatever else the wrapped session has: its id, its settings, compaction."""
        if name == "session" or name.startswith("_"):  # not set yet, or between the SDK and that session alone
            raise AttributeError(name)
        return getattr(self.session, name)

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The newest items, oldest first."""
        wanted = self.recent if limit is None else limit
        items: list[Item] = await (self.session.get_items() if wanted is None else self.session.get_items(wanted))
        await self._flush(items)
        return items if limit is not None or wanted is None or len(items) < wanted else _from_turn(items)

    async def add_items(self, items: list[Item]) -> None:
        """Keep the items; what was said in them is in memory from the first reply on."""
        await self.session.add_items(items)
        self._held += _spoken(items)
        if any(not _is_from(item, "user") for item in items):
            await self._store()

    async def pop_item(self) -> Item | None:
        """The newest item, taken back: from the session, and from memory."""
        item = await self.session.pop_item()
        if item is not None and (said := _spoken([item])):
            await asyncio.to_thread(self._forget, said[0])
        return item

    async def clear_session(self) -> None:
        """Remove the session's items, and its notes from memory. To start afresh and remember, use another session."""
        await self.session.clear_session()
        self._held = []
        await asyncio.to_thread(self._forget_all)

    def _notes(self, **options: Any) -> Any:
        memory, ids = self._keeper.memory, self._keeper.ids
        return memory.get_all(session=self.session_id, superseded=True, expired=True, **ids, **options)

    def _forget(self, said: dict[str, str]) -> None:
        if self._held and self._held[-1] == said:
            self._held.pop()
            return
        newest = self._notes(order="newest", limit=1)
        if newest and (newest[0].speaker, newest[0].text) == (said["role"], said["content"]):
            self._keeper.memory.delete(newest[0].id)

    def _forget_all(self) -> None:
        self._keeper.memory.delete([note.id for note in self._notes()])

    async def _store(self) -> None:
        held, self._held = self._held, []
        await asyncio.to_thread(self._keeper.store, held, self.session_id)

    async def _flush(self, items: Sequence[Item]) -> None:
        """Store questions that were never replied to: of this object, or of a process that ended before the reply."""
        if not self._checked and not self._held:
            self._held = await asyncio.to_thread(self._find_unstored, _spoken(items))
        self._checked = True
        await self._store()

    def _find_unstored(self, turns: list[dict[str, str]]) -> list[dict[str, str]]:
        newest = self._notes(order="newest", limit=1)
        trailing: list[dict[str, str]] = []
        while turns and turns[-1]["role"] == "user":
            if newest and newest[0].text == turns[-1]["content"]:
                break
            trailing.insert(0, turns.pop())
        return trailing


def _from_turn(items: list[Item]) -> list[Item]:
    """The items from the first user message on, so that no reply lacks its question and no output its call."""
    starts = (at for at, item in enumerate(items) if _is_from(item, "user"))
    calls = (at for at, item in enumerate(items) if not str(item.get("type", "")).endswith("_output"))
    return items[next(starts, next(calls, len(items))) :]


class BudgetFilter:
    """Model input within a budget: the newest turns that fit, and what memory holds on the last user message.

    Everything counts: instructions, items as JSON, memory. Where the turn under way is too long, its tool outputs are
    cut to the sentences that matter, oldest first; then memory is left out; then there is one clear error. The session
    keeps all of it as it was.
    """

    def __init__(self, keeper: Keeper, budget: int) -> None:
        self.keeper, self.budget = keeper, check_budget(budget)
        self._recalled: OrderedDict[str, str] = OrderedDict()

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """The input that the model is sent."""
        given = data.model_data
        items = await asyncio.to_thread(self._fit, list(given.input), given.instructions or "")
        return ModelInputData(input=items, instructions=given.instructions)

    def _fit(self, items: list[Item], instructions: str) -> list[Item]:
        users = [at for at, item in enumerate(items) if _is_from(item, "user")]
        at = users[-1] if users else 0
        room = self.budget - self.keeper.memory.count(instructions)
        turn = self._fit_turn(items[at:], self._recall(items, at) if users else "", room)
        room -= sum(map(self._cost, turn))
        first = find_tail(items[:at], room, cost=self._cost, starts=lambda item: _is_from(item, "user"))
        return items[first:at] + turn

    def _fit_turn(self, turn: list[Item], memory: str, room: int) -> list[Item]:
        """The turn under way with memory in front, cut where it must be."""
        for text in (memory, "") if memory else ("",):
            shown = self._cut_outputs([_put_before(text, turn[0]), *turn[1:]] if turn else [], room)
            cost = sum(map(self._cost, shown))
            if cost <= room:
                return shown
        spent = self.budget - room
        raise InputError(f"the last turn has {cost} tokens and the instructions {spent}, budget {self.budget}")

    def _cut_outputs(self, turn: list[Item], room: int) -> list[Item]:
        over = sum(map(self._cost, turn)) - room
        query = _text(turn[0]) if turn and _is_from(turn[0], "user") else ""
        for at, item in enumerate(turn):
            if over > 0 and isinstance(item.get("output"), str):
                before = self._cost(item)
                turn[at] = self._cut(item, query, before - over)
                over -= before - self._cost(turn[at])
        return turn

    def _cut(self, item: Item, query: str, budget: int) -> Item:
        """The tool's output, cut to the sentences that matter until the item costs no more than the budget."""
        room = budget - self._cost({**item, "output": ""})
        while True:
            cut = {**item, "output": shorten(item["output"], query, max(room, 1), self.keeper.memory)}
            over = self._cost(cut) - budget
            if over <= 0 or room <= 1:
                return cut
            room -= over

    def _cost(self, item: Item) -> int:
        return self.keeper.memory.count(json.dumps(item, ensure_ascii=False, default=str))

    def _recall(self, items: list[Item], at: int) -> str:
        """What memory holds on the message: the same in all calls of a turn, so that caches keep their prefix."""
        key = f"{at} {json.dumps(items[at], default=str)}"
        if at == len(items) - 1 or key not in self._recalled:
            self._recalled[key] = self.keeper.recall(_text(items[at]))
        if len(self._recalled) > KEPT:
            self._recalled.popitem(last=False)
        return self._recalled[key]


def _put_before(memory: str, item: Item) -> Item:
    """The message with what memory holds in front of its own words."""
    content = item.get("content")
    if not memory:
        return item
    if isinstance(content, list):
        return {**item, "content": [{"type": "input_text", "text": f"{memory}\n\n"}, *content]}
    return {**item, "content": f"{memory}\n\n{content}"}


def budget_filter(
    memory: Memory, *, budget: int = 4096, recall: int = 256, **scope: Unpack[ScopeWords]
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """A `call_model_input_filter`: no call gets more than `budget` tokens, of which memory is `recall` at most."""
    return BudgetFilter(Keeper(memory, recall, scope), budget)
