"""Memory as tools of any tool-calling API: the model decides what to store and when to recall."""

import json
from typing import Any

import retcon


def model(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Stands in for `client.chat.completions.create(...)` here, so that the example needs no key."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"Memory says: {last['content']}"}
    wanted, key = ("recall_memories", "query") if last["content"].endswith("?") else ("add_memory", "text")
    assert wanted in [tool["function"]["name"] for tool in tools]
    function = {"name": wanted, "arguments": json.dumps({key: last["content"]})}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


with retcon.Memory(":memory:") as memory:
    kit = retcon.tools(memory, user_id="ann", budget=64)
    for words in ("I adopted a cat named Pixel.", "What is my cat called?"):
        messages: list[dict[str, Any]] = [{"role": "user", "content": words}]  # a new conversation each time
        while calls := (reply := model(messages, kit.openai)).get("tool_calls"):
            messages += [reply, *(kit.answer(call) for call in calls)]
        print(f"{words}\n  -> {reply['content']}")
assert "Pixel" in reply["content"]
