"""Memory in pydantic-ai: a capability that recalls before the first request of a run, and keeps what was said after it.

    agent = Agent("openai:gpt-5-mini", capabilities=[RetconMemory(memory, budget=256, user_id="ann")])
    agent.run_sync("When did I get my cat?", conversation_id="chat-1")

What is recalled stands in the request alone: the messages of the run stay as they are. Agents that are to decide for
themselves what to store take the functions of `retcon.tools()` as their tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from retcon import Memory
from retcon.integrations.extra import needs
from retcon.integrations.keeper import Keeper, find_tail
from retcon.tokens import check_budget

with needs("pydantic-ai", "memory in pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext


@dataclass
class RetconMemory(AbstractCapability[Any]):
    """Recalls for the prompt of each run within `budget` tokens, and keeps prompts and text replies as raw notes.

    With a `window`, whole turns of the history leave the request, oldest first, so that the rest and what is recalled
    have no more tokens than that; system prompts and the turn under way are always sent.
    """

    memory: Memory
    _: KW_ONLY
    budget: int = 256
    window: int | None = None
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    recalled: str | None = field(default=None, init=False, repr=False)  # of a run: for its prompt

    def __post_init__(self) -> None:
        scope = {"user_id": self.user_id, "agent_id": self.agent_id, "run_id": self.run_id}
        self._keeper = Keeper(self.memory, self.budget, scope)  # type: ignore[arg-type]
        self.window = None if self.window is None else check_budget(self.window)

    async def for_run(self, ctx: RunContext[Any]) -> RetconMemory:
        """The capability of one run, which recalls once."""
        return replace(self)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """The request with the newest turns that fit and, in front of the prompt, what memory holds on it."""
        messages = await asyncio.to_thread(self._prepare, list(request_context.messages))
        return replace(request_context, messages=messages)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """The result of the run. What was said in it is kept; of one that fails, the prompt."""
        try:
            result = await handler()
        except BaseException:
            self._keeper.store([{"role": "user", "content": _words(ctx.prompt)}], ctx.conversation_id)
            raise
        turns = list(_spoken(result.new_messages()))
        await asyncio.to_thread(self._keeper.store, turns, ctx.conversation_id)
        return result

    def _prepare(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        at = next((at for at in reversed(range(len(messages))) if _is_prompt(messages[at])), None)
        if at is None:
            return messages
        if self.recalled is None:
            self.recalled = self._keeper.recall(_prompt(messages[at]))
        turn = [_put_before(self.recalled, messages[at]), *messages[at + 1 :]]
        return [*self._fit(messages[:at], turn), *turn]

    def _fit(self, older: list[ModelMessage], turn: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The newest of the older turns that fit beside the one under way, and every system prompt."""
        if self.window is None:
            return older
        first = find_tail(older, self.window - sum(map(self._cost, turn)), cost=self._cost, starts=_is_prompt)
        system = [part for part in _parts(older[:first]) if isinstance(part, SystemPromptPart)]
        return [*([ModelRequest(parts=system)] if system else []), *older[first:]]

    def _cost(self, message: ModelMessage) -> int:
        return self.memory.count("\n".join(_text(part) for part in message.parts))


def _parts(messages: Iterable[ModelMessage]) -> list[Any]:
    return [part for message in messages for part in message.parts]


def _is_prompt(message: ModelMessage) -> bool:
    return any(isinstance(part, UserPromptPart) for part in message.parts)


def _prompt(message: ModelMessage) -> str:
    return "\n".join(_words(part.content) for part in message.parts if isinstance(part, UserPromptPart))


def _words(content: Any) -> str:
    """The words of what a user sent; pictures and files have none."""
    parts = [content] if isinstance(content, str) else content or ()
    texts = (part if isinstance(part, str) else getattr(part, "content", None) for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _text(part: Any) -> str:
    """What a model is sent of a part: words, the call of a tool, what the tool returned."""
    if hasattr(part, "args_as_json_str"):
        return f"{part.tool_name} {part.args_as_json_str()}"
    if hasattr(part, "model_response_str"):
        return str(part.model_response_str())
    return _words(getattr(part, "content", None))


def _spoken(messages: Iterable[ModelMessage]) -> Iterable[dict[str, str]]:
    """The turns: each prompt, and the text of each reply."""
    for message in messages:
        if isinstance(message, ModelResponse):
            said = "\n".join(part.content for part in message.parts if isinstance(part, TextPart))
            yield {"role": "assistant", "content": said}
        else:
            yield {"role": "user", "content": _prompt(message)}


def _put_before(memory: str, message: ModelMessage) -> ModelMessage:
    """The message with what memory holds in front of the prompt; the message itself stays as it is."""
    if not memory:
        return message
    parts = list(message.parts)
    at = next(at for at, part in enumerate(parts) if isinstance(part, UserPromptPart))
    content = parts[at].content
    words = f"{memory}\n\n{content}" if isinstance(content, str) else [f"{memory}\n\n", *content]
    parts[at] = replace(parts[at], content=words)
    return replace(message, parts=parts)
