"""A pydantic-ai agent that remembers across conversations within a budget."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from retcon import Memory
from retcon.integrations.pydantic_ai import RetconMemory


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Stands in for a model here, so that the example needs no key: it knows only what the request shows it."""
    text = "Your cat is called Pixel." if "Pixel" in str(messages) else "Noted, thanks."
    return ModelResponse(parts=[TextPart(text)])


with Memory(":memory:") as memory:
    remembers = RetconMemory(memory, budget=128, window=2000, user_id="ann")
    agent = Agent(FunctionModel(answer), capabilities=[remembers])  # yours: Agent("openai:gpt-5-mini", ...)
    for day, words in (("monday", "I adopted a cat, she is Pixel."), ("friday", "What is my cat called?")):
        result = agent.run_sync(words, conversation_id=day)
        print(f"{day}: {words}\n  -> {result.output}  ({result.usage.input_tokens} tokens in)")
assert result.output == "Your cat is called Pixel."
