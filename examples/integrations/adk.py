"""An agent of Google's ADK that remembers across sessions within a budget."""

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import preload_memory
from google.genai import types

from retcon import Memory
from retcon.integrations.adk import RetconMemoryService, store_turn


class Reader(BaseLlm):  # type: ignore[misc]
    """Stands in for a model here, so that the example needs no key: it knows only what the request shows it."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        known = "Pixel" in str(llm_request.contents)
        text = "Your cat is called Pixel." if known else "Noted, thanks."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


async def main(memory: Memory) -> None:
    agent = LlmAgent(
        name="helper",
        model=Reader(model="reader"),  # yours: model="gemini-3.5-flash"
        tools=[preload_memory],
        after_agent_callback=store_turn,
    )
    service = RetconMemoryService(memory, budget=128)
    runner = Runner(
        agent=agent,
        app_name="pets",
        session_service=InMemorySessionService(),
        memory_service=service,
        auto_create_session=True,
    )
    for day, words in (("monday", "I adopted a cat, she is Pixel."), ("friday", "What is my cat called?")):
        message = types.Content(role="user", parts=[types.Part(text=words)])
        async for event in runner.run_async(user_id="ann", session_id=day, new_message=message):
            if event.is_final_response() and event.content and event.content.parts:
                print(f"{day}: {words}\n  -> {event.content.parts[0].text}")


with Memory(":memory:") as notes:
    asyncio.run(main(notes))
