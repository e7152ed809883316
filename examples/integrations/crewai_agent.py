"""A CrewAI agent that remembers across kickoffs within a budget, without a model or an embedder for its memory."""

import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}  # nothing leaves this machine

from crewai import Agent
from crewai.llms.base_llm import BaseLLM

from retcon import Memory
from retcon.integrations.crewai import RetconMemory


class Reader(BaseLLM):  # type: ignore[misc]
    """Stands in for a model here, so that the example needs no key: it knows only what the call shows it."""

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        known = "Pixel" in str(messages)
        return f"Thought: done.\nFinal Answer: {'Your cat is called Pixel.' if known else 'Noted, thanks.'}"


with Memory(":memory:") as memory:
    for words in ("I adopted a cat, she is Pixel.", "What is my cat called?"):
        agent = Agent(
            role="helper",
            goal="help Ann",
            backstory="You know Ann well.",
            llm=Reader(model="reader"),  # yours: llm="gpt-5-mini"
            memory=RetconMemory(memory, budget=128, user_id="ann"),
        )
        print(f"{words}\n  -> {agent.kickoff(words).raw}")
