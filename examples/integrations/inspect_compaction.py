"""Inspect's compaction with a retcon memory: long conversations stay small, and nothing that was said is lost."""

import asyncio
from typing import Any

from inspect_ai.model import ChatMessage, ChatMessageUser, ModelOutput, compaction, get_model, modelapi
from inspect_ai.model._providers.mockllm import MockLLM

from retcon import Memory
from retcon.integrations.inspect import CompactionRetcon


class Reader(MockLLM):  # type: ignore[misc]
    """Stands in for a model here, so that the example needs no key and no tokenizer from the network."""

    async def count_text_tokens(self, text: str) -> int:
        return len(text) // 4 + 1


@modelapi(name="reader")  # type: ignore[untyped-decorator, unused-ignore]
def reader() -> type[Reader]:
    return Reader


def answer(messages: list[ChatMessage], *_: Any) -> ModelOutput:
    """It knows only what the call shows it."""
    asked = messages[-1].text.endswith("called?")
    known = any("Pixel" in message.text for message in messages)
    return ModelOutput.from_content("reader", "Your cat is called Pixel." if asked and known else "I see.")


async def main(memory: Memory) -> None:
    model = get_model("reader/model", custom_outputs=answer)
    history: list[ChatMessage] = [ChatMessageUser(content="Let us talk.")]
    strategy = CompactionRetcon(memory, budget=150, keep=200, threshold=500)  # in an agent: react(compaction=strategy)
    handler = compaction(strategy, prefix=list(history), model=model)
    said = ["I adopted a cat, she is called Pixel."]
    said += [f"On day {day} it rained, and I read chapter {day} of a long book about the sea." for day in range(60)]
    for words in [*said, "What is my cat called?"]:
        history.append(ChatMessageUser(content=words))
        shown, _ = await handler.compact_input(history, force=words.endswith("?"))
        output = await model.generate(shown)
        history.append(output.message)
    tokens = [await model.count_tokens(messages) for messages in (history, shown)]
    print(f"{len(history)} messages, {tokens[0]} tokens; the model was shown {len(shown)}, {tokens[1]} tokens")
    print(output.completion)
    assert "Pixel" in output.completion


with Memory(":memory:") as notes:
    asyncio.run(main(notes))
