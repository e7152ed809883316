"""pydantic-ai: the capability and the tools in real runs with its own function and test models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import UsageLimits
from test_examples import run_example

import retcon
from integrations.talk import ROOT, TURNS, UNKNOWN, Counted, check_flat, check_kept, fact, read
from retcon import Memory
from retcon.integrations.keeper import HEADING
from retcon.integrations.pydantic_ai import RetconMemory

BUDGET, WINDOW = 128, 500
OVERHEAD = 50  # that the framework's models count for every request


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "m.db") as opened:
        yield opened


class Reader:
    """The framework's function model, answering from what each request shows it; every request is kept."""

    def __init__(self) -> None:
        self.seen: list[list[ModelMessage]] = []
        self.model = FunctionModel(self._reply)

    def _reply(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.seen.append(messages)
        return ModelResponse(parts=[TextPart(read(shown(messages)))])


def shown(messages: list[ModelMessage]) -> str:
    return "\n".join(str(getattr(part, "content", "")) for message in messages for part in message.parts)


def agent_of(model: Any, memory: Memory, user: str = "ann", **options: Any) -> Agent[None, str]:
    capability = RetconMemory(memory, budget=BUDGET, user_id=user, **options)
    return Agent(model, system_prompt="Be brief.", capabilities=[capability])


def test_fact_of_one_conversation_is_recalled_in_the_next_within_the_budget(memory: Memory) -> None:
    reader = Reader()
    agent = agent_of(reader.model, memory)
    agent.run_sync(fact(7).told, conversation_id="one")
    result = agent.run_sync(fact(7).question, conversation_id="two")
    assert result.output == fact(7).answer
    recalled = shown(reader.seen[-1]).split("Be brief.\n")[1].removesuffix(fact(7).question).strip()
    assert recalled.startswith(HEADING)
    assert memory.count(recalled) <= BUDGET
    assert [note.session for note in memory.get_all()] == ["one", "one", "two", "two"]


def test_budget_holds_as_the_framework_counts_it(memory: Memory) -> None:
    memory.add([fact(number).told for number in range(40)], user_id="ann")
    plain = Agent(Reader().model, system_prompt="Be brief.").run_sync(fact(7).question).usage.input_tokens
    result = agent_of(Reader().model, memory).run_sync(
        fact(7).question, usage_limits=UsageLimits(input_tokens_limit=plain + BUDGET)
    )
    assert result.output == fact(7).answer
    assert plain < result.usage.input_tokens <= plain + BUDGET


def test_300_turns_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(memory: Counted) -> None:
    reader, work = Reader(), []
    agent = agent_of(reader.model, memory, window=WINDOW)
    history: list[ModelMessage] = []
    for number in range(TURNS):
        result = agent.run_sync(fact(number).told, message_history=history)
        assert result.usage.input_tokens <= WINDOW + OVERHEAD
        history = result.all_messages()
        work.append(memory.work())
    assert len(history) == 2 * TURNS
    assert HEADING not in shown(history)
    check_flat(work)
    check_kept(memory, user_id="ann")
    assert len(memory.get_all(user_id="ann")) == 2 * TURNS
    for number in (0, 41, 150, 299):
        assert agent.run_sync(fact(number).question, message_history=history).output == fact(number).answer
    assert all("Be brief." in shown(messages) for messages in reader.seen)


def test_memory_is_recalled_once_a_run_and_history_is_left_alone(memory: Counted) -> None:
    memory.add(fact(3).told, user_id="ann")
    memory.work()
    steps: list[list[ModelMessage]] = []

    def reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        steps.append(messages)
        return ModelResponse(parts=[ToolCallPart("look_up", {}) if len(steps) == 1 else TextPart("Done.")])

    agent = agent_of(FunctionModel(reply), memory)

    @agent.tool_plain
    def look_up() -> str:
        """Look it up."""
        return "nothing"

    result = agent.run_sync(fact(3).question)
    assert memory.work()[1] == 2  # one recall, one add
    assert fact(3).answer in shown(steps[0])
    assert shown(steps[1]).startswith(shown(steps[0]))
    assert HEADING not in shown(result.all_messages())


def test_prompt_of_a_run_that_fails_is_kept(memory: Memory) -> None:
    def fail(*_: Any) -> ModelResponse:
        raise RuntimeError("no model")

    with pytest.raises(RuntimeError, match="no model"):
        agent_of(FunctionModel(fail), memory).run_sync(fact(5).told)
    assert [note.text for note in memory.get_all(user_id="ann")] == [fact(5).told]


def test_another_user_learns_nothing(memory: Memory) -> None:
    memory.add(fact(7).told, user_id="ann")
    assert agent_of(Reader().model, memory, user="bob").run_sync(fact(7).question).output == UNKNOWN


def test_agent_takes_the_functions_of_retcon_tools_with_their_words(memory: Memory) -> None:
    kit, model = retcon.tools(memory, user_id="ann", budget=64), TestModel(call_tools=["add_memory"])
    agent = Agent(model, tools=kit.functions)
    agent.run_sync("Remember this.")
    assert len(memory.get_all(user_id="ann")) == 1
    assert model.last_model_request_parameters is not None
    for tool, ours in zip(model.last_model_request_parameters.function_tools, kit.anthropic, strict=True):
        assert tool.name == ours["name"]
        assert " ".join((tool.description or "").split()) == ours["description"]
        theirs = tool.parameters_json_schema["properties"]
        assert {name: each["description"] for name, each in theirs.items()} == {
            name: each["description"] for name, each in ours["input_schema"]["properties"].items()
        }


def test_example_runs(tmp_path: Path) -> None:
    assert "Pixel" in run_example(ROOT / "examples" / "integrations" / "pydantic_ai_agent.py", tmp_path, "-W", "error")
