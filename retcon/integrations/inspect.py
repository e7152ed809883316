"""Memory in Inspect: a compaction strategy that shows the notes that matter, where others summarise or cut.

    react(model=..., tools=[...], compaction=CompactionRetcon(memory, budget=1024, keep=4096, threshold=0.9))

Messages that leave the input become raw notes. What stands in their place is recalled from these notes for the step
under way, never from an earlier compaction, so nothing decays from one to the next.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Unpack

from retcon import Memory
from retcon.grant import bound_to
from retcon.integrations.extra import needs
from retcon.integrations.keeper import HEADING, Keeper, narrow, shorten
from retcon.tokens import check_budget
from retcon.where import ScopeWords

with needs("inspect", "memory in Inspect"):
    from inspect_ai.model import ChatMessage, ChatMessageUser, CompactionStrategy, ContentText, Model
    from inspect_ai.tool import ToolInfo

END = "(end of what memory holds)"
CUT = "retcon_cut"  # marks a message whose text was shortened
QUERY = 2000  # characters: of the task and the newest messages
_SHOWN = re.compile(rf"{re.escape(HEADING)}\n.*?{re.escape(END)}\s*", re.DOTALL)


class CompactionRetcon(CompactionStrategy):
    """Newest messages as they are, and what memory holds of the older ones within a budget. No model call.

    `budget` is for what is recalled, `keep` for the newest messages, both as the model counts tokens. A sample recalls
    its own notes alone; with `across`, all of the scope's, which earlier samples have stored.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        budget: int = 1024,
        keep: int = 4096,
        threshold: int | float = 0.9,
        across: bool = False,
        **scope: Unpack[ScopeWords],
    ) -> None:
        super().__init__(type="summary", threshold=threshold, memory=False)
        self.notes, self.budget, self.keep = memory, check_budget(budget), check_budget(keep)
        self.across, self._scope = across, scope

    def _repr_params_(self) -> dict[str, Any]:
        return {**super()._repr_params_(), "budget": self.budget, "keep": self.keep, "across": self.across}

    async def compact(
        self, model: Model, messages: list[ChatMessage], tools: list[ToolInfo]
    ) -> tuple[list[ChatMessage], ChatMessageUser | None]:
        """The input to present: system and task, what memory holds, the newest messages. History gets nothing new."""
        clean = [message for each in messages if (message := _clean(each)) is not None]
        head, talk = _split(clean)
        first = await self._find_tail(model, talk)
        run = str(messages[0].id) if messages else None
        await asyncio.to_thread(self._store, talk if self.across else talk[:first], run)
        recalled = await self._recall(model, _query(head, talk), run, talk[first:])
        shown = [ChatMessageUser(content=f"{recalled}\n{END}", metadata={"retcon": True})] if recalled else []
        return [*head, *shown, *(talk[first:] or self._cut(_last_step(talk)))], None

    async def _find_tail(self, model: Model, talk: Sequence[ChatMessage]) -> int:
        """Where the newest whole steps begin that fit together into `keep`; the end where not even one does."""
        first, room = len(talk), self.keep
        for at in reversed(range(len(talk))):
            room -= await model.count_tokens([talk[at]])
            if room < 0:
                break
            first = at if talk[at].role != "tool" else first
        return first

    async def _recall(self, model: Model, query: str, run: str | None, shown: Sequence[ChatMessage]) -> str:
        """What memory holds on the query, without what is shown anyway; it fits as the model counts."""
        keeper = self._keeper(None if self.across else run)
        keeper.where = keeper.where.without(self._names(shown, run))
        room = self.budget
        while room > 0:
            found = await asyncio.to_thread(keeper.recall, query, room)
            cost = await model.count_tokens(f"{found}\n{END}") if found else 0
            if cost <= self.budget:
                return found
            room = narrow(room, self.budget, cost)
        return ""

    def _keeper(self, run: str | None) -> Keeper:
        whose: ScopeWords = {**self._scope} if run is None else {**self._scope, "run_id": run}
        return Keeper(self.notes, self.budget, whose)

    def _names(self, talk: Sequence[ChatMessage], run: str | None) -> list[str]:
        """The ids of the messages' notes: those of a sample have names of their own."""
        name = bound_to(self._keeper(run).where.scope).name
        return [name(each.id or each.text) for each in talk]

    def _store(self, talk: Sequence[ChatMessage], run: str | None) -> None:
        """Keep the messages, each once; of one that was cut, the whole is kept already."""
        talk = [each for each in talk if not (each.metadata or {}).get(CUT)]
        names = self._names(talk, run)
        said = [
            {"id": name, "content": each.text, "speaker": each.role} for name, each in zip(names, talk, strict=True)
        ]
        self._keeper(run).store(said)

    def _cut(self, step: list[ChatMessage]) -> list[ChatMessage]:
        """A step that is too long by itself, with the outputs of its tools cut to the sentences that matter."""
        room = self.keep // max(sum(message.role == "tool" for message in step), 1)
        query = step[0].text if step else ""
        return [
            _replaced(message, shorten(message.text, query, room, self.notes)) if message.role == "tool" else message
            for message in step
        ]


def _replaced(message: ChatMessage, text: str) -> ChatMessage:
    """The message with a shorter text, as one of its own: the note of the first one stays what it is."""
    about = {**(message.metadata or {}), CUT: True}
    return message.model_copy(update={"content": text, "id": f"{message.id}-cut", "metadata": about})


def _clean(message: ChatMessage) -> ChatMessage | None:
    """The message without what an earlier compaction showed; None where it was nothing else."""
    if (message.metadata or {}).get("retcon") and _SHOWN.sub("", message.text).strip() == "":
        return None
    if message.role != "user" or HEADING not in message.text:
        return message
    content: Any = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": _SHOWN.sub("", content)})
    parts = [
        part.model_copy(update={"text": _SHOWN.sub("", part.text)}) if isinstance(part, ContentText) else part
        for part in content
    ]
    return message.model_copy(update={"content": parts})


def _split(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """System prompt and task, which are always shown, and the conversation after them."""
    inputs = any(message.source == "input" for message in messages)
    user = next((message for message in messages if message.role == "user"), None)
    shown = [
        message.role == "system" or (message.source == "input" if inputs else message is user) for message in messages
    ]
    both = list(zip(messages, shown, strict=True))
    return [message for message, always in both if always], [message for message, always in both if not always]


def _last_step(talk: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The newest message that is no tool's, and the outputs after it."""
    starts = [at for at, message in enumerate(talk) if message.role != "tool"]
    return list(talk[starts[-1] if starts else 0 :])


def _query(head: Sequence[ChatMessage], talk: Sequence[ChatMessage]) -> str:
    """What the step under way is about: the newest messages, and the task."""
    task = [message.text for message in head if message.role != "system"][-1:]
    said = [text for message in reversed(talk[-2:]) if (text := message.text.strip())]
    return "\n".join([text[:QUERY] for text in (*said, *task)])[: 2 * QUERY]
