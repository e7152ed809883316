"""The tools as a model reads them: when to use each, what comes back, and whether it changes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp.types import Tool as Listed
from mcp.types import ToolAnnotations
from pydantic import BaseModel, ValidationError

from retcon.errors import InputError
from retcon.grant import IDS
from retcon.mcp import schema
from retcon.mcp.verbs import ToolVerbs
from retcon.serving import complaint

_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_ASKS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
_ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_DELETES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its words, what it takes and gives, and what it does."""

    name: str
    title: str
    about: str
    takes: type[schema.Arguments]
    gives: type[BaseModel]
    call: Callable[[ToolVerbs, Any], BaseModel]
    hints: ToolAnnotations
    model: bool = False  # may wait for a model

    @property
    def writes(self) -> bool:
        """Whether it may change what is stored."""
        return not self.hints.read_only_hint

    def arguments(self, *, bound: bool) -> list[str]:
        """The names of what it takes, whose memories last; a bound server takes no scope."""
        own = [name for name in self.takes.model_fields if name not in IDS]
        return own if bound else [*own, *IDS]

    def to_mcp(self, *, bound: bool) -> Listed:
        """The tool as it is published."""
        published = self.takes.model_json_schema()
        published["properties"] = {name: published["properties"][name] for name in self.arguments(bound=bound)}
        hints = self.hints.model_copy(update={"title": self.title})  # where older clients look for it
        return Listed(
            name=self.name, title=self.title, description=self.about, input_schema=published | {"title": self.title},
            output_schema=self.gives.model_json_schema(), annotations=hints,
        )  # fmt: skip

    def read(self, arguments: dict[str, Any], *, bound: bool) -> schema.Arguments:
        """The arguments, checked; what is wrong with them is told in one line that repeats none of their values."""
        known = self.arguments(bound=bound)
        unknown = [name for name in arguments if name not in known]
        if unknown and bound and unknown[0] in IDS:
            raise InputError(f"this server is bound to one scope, and {self.name} takes no {unknown[0]}")
        if unknown:
            raise InputError(f"{self.name} takes no {unknown[0][:40]!r}; it takes {', '.join(known) or 'nothing'}")
        try:
            return self.takes.model_validate(arguments)
        except ValidationError as error:
            raise InputError(complaint(error.errors(include_input=False, include_url=False))) from None


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "add_memory",
            "Add a memory",
            "Store something worth knowing later: a fact about the user, a preference, a decision, a result, an event. "
            "Use it as soon as you learn it, one fact or turn per memory, in words that can be understood on their own "
            "and with the date it happened. The text is kept exactly as given. To correct an older memory, name it in "
            "`supersedes`. Give an `id` where a call may be repeated. Returns the ids.",
            schema.AddArguments,
            schema.AddResult,
            ToolVerbs.add,
            _ADDS,
        ),
        Tool(
            "search_memories",
            "Search memories",
            "List the memories that match a query, best first, with ids and scores. Use it to find the id of a memory "
            "to correct or delete, or to browse. To answer a question use get_memory_context, which gives ready text "
            "within a token budget.",
            schema.SearchArguments,
            schema.SearchResult,
            ToolVerbs.search,
            _READS,
        ),
        Tool(
            "get_memory_context",
            "Get context from memory",
            "Get the best text that memory has for a query, never longer than `budget`. Use it before answering "
            "anything that may depend on what was said or decided earlier. Returns the text, the ids of its sources "
            "and how it was made. Where the text does not hold the answer and `more` is true, call again with "
            "`exclude` set to the `tried` list: the memories are then packed another way. An empty text with `found` "
            "false means that nothing in memory is about this.",
            schema.ContextArguments,
            schema.ContextResult,
            ToolVerbs.context,
            _READS,
            model=True,
        ),
        Tool(
            "ask_memory",
            "Ask memory",
            "Have the server's own model answer a question from memory alone, looking again by itself where the first "
            "text does not hold the answer. Use it for one plain question where you need no wording of the sources. "
            "Returns the answer, or in_memory false where memory does not hold it. Needs a server that was started "
            "with a model; else use get_memory_context.",
            schema.AskArguments,
            schema.AskResult,
            ToolVerbs.ask,
            _ASKS,
            model=True,
        ),
        Tool(
            "get_memory",
            "Get one memory",
            "Get one memory in full by its id: text, speaker, date, metadata, and whether it was corrected since.",
            schema.OneArguments,
            schema.MemoryItem,
            ToolVerbs.get,
            _READS,
        ),
        Tool(
            "get_memory_sources",
            "Get the sources of a text",
            "Get the original memories behind a text, whole and word for word, with every earlier and later version. "
            "Use it to check or quote what get_memory_context or ask_memory gave you: pass the ids of its `sources`.",
            schema.ManyArguments,
            schema.SourcesResult,
            ToolVerbs.sources,
            _READS,
        ),
        Tool(
            "delete_memory",
            "Delete one memory",
            "Delete one memory and everything made from it, for good. Use it only where the user asks for it; to "
            "correct a memory use add_memory with `supersedes`, which keeps the history.",
            schema.OneArguments,
            schema.DeleteResult,
            ToolVerbs.delete,
            _DELETES,
        ),
        Tool(
            "delete_all_memories",
            "Delete all memories",
            "Delete every memory of a user, agent or run, for good. Use it only where the user asks for exactly that.",
            schema.ScopeArguments,
            schema.DeleteResult,
            ToolVerbs.delete_all,
            _DELETES,
        ),
        Tool(
            "explain_decision",
            "Explain a decision",
            "Say how get_memory_context would make its text for a query and budget, and why: the action, the expected "
            "usefulness of each action and the numbers behind it. Writes no text. Use it where the user asks why.",
            schema.ContextArguments,
            schema.DecisionResult,
            ToolVerbs.explain,
            _READS,
        ),
    )
}
