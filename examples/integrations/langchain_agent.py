"""A LangChain agent that remembers conversations, within 64 tokens. The model is LangChain's fake one: no key."""

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langgraph.checkpoint.memory import InMemorySaver

from retcon import Memory, Recall
from retcon.integrations.langchain import BudgetedMemory


def show(recall: Recall) -> None:
    """Print what goes into the model call, and why."""
    print(f"  recalled {recall.tokens} tokens: {recall.text!r}\n  {recall.why}")


with Memory(":memory:") as memory:  # "agent.db" keeps it
    remember = BudgetedMemory(memory, budget=64, window=2000, user_id="ann", seen=show)
    model = GenericFakeChatModel(messages=iter(["Congratulations!", "Your cat is called Pixel."]))
    agent = create_agent(model, middleware=[remember], checkpointer=InMemorySaver())

    said = {"monday": "I adopted a cat. Her name is Pixel.", "tuesday": "What is my cat called?"}
    for thread, text in said.items():
        print(f"{thread}: {text}")
        config = {"configurable": {"thread_id": thread}}
        reply = agent.invoke({"messages": [("user", text)]}, config)["messages"][-1]
        print(f"  {reply.text}")
