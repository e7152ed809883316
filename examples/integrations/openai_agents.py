"""An agent of the OpenAI Agents SDK that remembers across sessions, and never gets more than its budget."""

import asyncio
from typing import Any

from agents import Agent, RunConfig, Runner, SQLiteSession
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message

from retcon import Memory
from retcon.integrations.openai_agents import RetconSession, budget_filter


def answer(call: ModelCall) -> Any:
    """Stands in for a model here, so that the example needs no key: it knows only what the call shows it."""
    return [assistant_message("Your cat is called Pixel." if "Pixel" in str(call.input) else "Noted, thanks.")]


async def main() -> None:
    model = ScriptedModel([ModelStep.respond(answer)] * 2)  # yours: model="gpt-5-mini"
    agent = Agent(name="helper", instructions="Answer from what you know.", model=model)
    with Memory(":memory:") as memory:
        shown = budget_filter(memory, budget=2048, recall=128, user_id="ann")
        config = RunConfig(call_model_input_filter=shown, tracing_disabled=True)
        for day, words in (("monday", "I adopted a cat, she is called Pixel."), ("friday", "What is my cat called?")):
            session = RetconSession(SQLiteSession(day), memory, user_id="ann")
            result = await Runner.run(agent, words, session=session, run_config=config)
            print(f"{day}: {words}\n  -> {result.final_output}")
    assert model.last_call is not None
    print(f"what the model was shown on friday:\n{model.last_call.input[-1]['content']}")


asyncio.run(main())
