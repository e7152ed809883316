"""Memory in LlamaIndex: a memory block that packs again in place of dropping, and a postprocessor that packs nodes.

    block = RetconMemoryBlock(memory=notes, budget=256, user_id="ann")
    memory = Memory.from_defaults(session_id="chat-1", token_limit=4000, memory_blocks=[block])
    engine = index.as_query_engine(node_postprocessors=[RetconPostprocessor(budget=512)])

A stock block learns of a message when it leaves the chat history, so a short conversation teaches it nothing. This one
keeps what it sees at every read, once. Tokens are counted by LlamaIndex's own tokenizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from retcon import Memory, Source
from retcon.integrations.extra import needs
from retcon.integrations.keeper import Keeper, narrow, shorten

with needs("llamaindex", "memory in LlamaIndex"):
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.memory import BaseMemoryBlock
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
    from llama_index.core.storage.chat_store.sql import MessageStatus
    from llama_index.core.utils import get_tokenizer

Turn = dict[str, str]
Tokenizer = Callable[[str], list[Any]]


def _spoken(messages: Sequence[ChatMessage]) -> list[Turn]:
    """The turns of user and assistant that have words."""
    said = [(message.role.value, message.content or "") for message in messages]
    turns = [{"role": role, "content": text} for role, text in said if role in ("user", "assistant") and text.strip()]
    repeats = len(turns) > 1 and turns[-1]["role"] == "user" and turns[-1] == turns[-2]
    return turns[:-1] if repeats else turns  # a chat engine may hand over its input twice: as such, and as history


class RetconMemoryBlock(BaseMemoryBlock[str]):
    """A block that recalls what memory holds on the last user message, and packs it again where it must be shorter."""

    name: str = "memory"
    priority: int = 1  # 0 would mean: never truncated, whatever the limit
    memory: Memory
    budget: int = 256
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    tokenizer_fn: Tokenizer = Field(default_factory=get_tokenizer, exclude=True)

    _keeper: Keeper = PrivateAttr()
    _known: dict[str | None, list[Turn]] = PrivateAttr(default_factory=dict)  # of a session: stored, in its history
    _shown: dict[str | None, tuple[str, str]] = PrivateAttr(default_factory=dict)  # of a session: query, text

    def model_post_init(self, _: Any, /) -> None:
        """Check whose notes these are, and the budget."""
        scope = {"user_id": self.user_id, "agent_id": self.agent_id, "run_id": self.run_id}
        self._keeper = Keeper(self.memory, self.budget, scope)  # type: ignore[arg-type]

    def _count(self, text: str) -> int:
        return len(self.tokenizer_fn(text))

    async def _aget(self, messages: list[ChatMessage] | None = None, session_id: str | None = None, **_: Any) -> str:
        return await asyncio.to_thread(self._look, _spoken(messages or []), session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        if messages:
            session = messages[0].additional_kwargs.get("session_id")
            await asyncio.to_thread(self._leave, _spoken(messages), session)

    async def asave(self, memory: Any) -> None:
        """Keep what LlamaIndex's `memory` holds and no read has shown yet: the last reply of a conversation."""
        turns = _spoken(await memory.aget_all(status=MessageStatus.ACTIVE))
        await asyncio.to_thread(self._keep, turns, memory.session_id)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """The text recalled anew with so many tokens less; None where nothing fits into what is left."""
        room = self._count(content) - tokens_to_truncate
        if not content or room <= 0:
            return None
        query = next((query for query, text in self._shown.values() if text == content), None)
        if query is None:
            return shorten(content, "", room, self.memory) or None
        return await asyncio.to_thread(self._keeper.recall, query, room, self._count) or None

    def _look(self, turns: list[Turn], session: str | None) -> str:
        """What memory holds on the last user message: recalled when that is new, before it is stored itself."""
        asked = [turn["content"] for turn in turns if turn["role"] == "user"]
        fresh = any(turn["role"] == "user" for turn in self._find_new(turns, session))
        if asked and (fresh or session not in self._shown):
            self._shown[session] = asked[-1], self._keeper.recall(asked[-1], self.budget, self._count)
        self._keep(turns, session)
        return self._shown.get(session, ("", ""))[1]

    def _keep(self, turns: list[Turn], session: str | None) -> None:
        self._keeper.store(self._find_new(turns, session), session)
        self._known[session] = turns

    def _leave(self, gone: list[Turn], session: str | None) -> None:
        """Store what leaves the history without having been read."""
        known = self._known.get(session, [])
        same = next((at for at, turn in enumerate(gone) if known[at : at + 1] != [turn]), len(gone))
        self._keeper.store(gone[same:], session)
        self._known[session] = known[same:]

    def _find_new(self, turns: list[Turn], session: str | None) -> list[Turn]:
        """The turns after those that are stored: history begins somewhere among these, and goes on after them."""
        if session not in self._known:
            self._known[session] = self._load(len(turns), session)
        known = self._known[session]
        start = next(at for at in range(len(known) + 1) if known[at:] == turns[: len(known) - at])
        return turns[len(known) - start :]

    def _load(self, count: int, session: str | None) -> list[Turn]:
        """The newest turns that another process has stored of the session."""
        if session is None or not count:
            return []
        notes = self.memory.get_all(session=session, order="newest", limit=count, **self._keeper.ids)
        return [{"role": note.speaker or "", "content": note.text} for note in reversed(notes)]


class RetconPostprocessor(BaseNodePostprocessor):
    """Nodes packed into a budget: whole where all fit, else the sentences that matter for the query, verbatim.

    What counts is what the model is shown of a node, its metadata included.
    """

    budget: int = 512
    tokenizer_fn: Tokenizer = Field(default_factory=get_tokenizer, exclude=True)

    @classmethod
    def class_name(cls) -> str:
        return "RetconPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if self._cost(nodes) <= self.budget or not nodes:
            return nodes
        texts = {node.node.node_id: node for node in nodes if node.node.get_content().strip()}
        query = "" if query_bundle is None else query_bundle.query_str
        with Memory(":memory:", counter=self._count, stamp=False, top_k=len(nodes)) as desk:
            desk.add([{"id": name, "text": node.node.get_content()} for name, node in texts.items()])
            return self._pack(desk, query, texts)

    def _pack(self, desk: Memory, query: str, nodes: dict[str, NodeWithScore]) -> list[NodeWithScore]:
        room = self.budget
        while room > 0:
            found = desk.recall(query, room)
            packed = [_part(nodes[source.id], source) for source in found.sources]
            cost = self._cost(packed)
            if cost <= self.budget:
                return sorted(packed, key=lambda node: list(nodes).index(node.node.node_id))
            room = narrow(room, self.budget, cost)
        return []

    def _count(self, text: str) -> int:
        return len(self.tokenizer_fn(text))

    def _cost(self, nodes: Sequence[NodeWithScore]) -> int:
        return sum(self._count(node.node.get_content(metadata_mode=MetadataMode.LLM)) for node in nodes)


def _part(node: NodeWithScore, source: Source) -> NodeWithScore:
    """The node with the part of its text that was packed."""
    if source.whole:
        return node
    part = node.node.model_copy()
    part.set_content(source.text)
    return NodeWithScore(node=part, score=node.score)
