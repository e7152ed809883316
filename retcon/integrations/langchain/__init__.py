"""LangChain 1.x: memory that an agent recalls and keeps by itself, and the parts of it for those who build their own.

    agent = create_agent(model, tools, middleware=[BudgetedMemory(memory, budget=256, user_id="ann")], checkpointer=...)

middleware.py  BudgetedMemory: recalls into the model call within a budget, keeps what was said
documents.py   MemoryRetriever: query -> notes as documents; BudgetedCompressor: documents -> what matters of them
stock.py       for the stock middleware: summarizer, and ShortenToolUsesEdit in place of clearing tool results
messages.py    what these need to know of messages: who said what, in which thread, and its note
"""

from retcon.integrations.langchain.documents import BudgetedCompressor, MemoryRetriever
from retcon.integrations.langchain.messages import HEADING
from retcon.integrations.langchain.middleware import BudgetedMemory
from retcon.integrations.langchain.stock import ShortenToolUsesEdit, summarizer

__all__ = ["HEADING", "BudgetedCompressor", "BudgetedMemory", "MemoryRetriever", "ShortenToolUsesEdit", "summarizer"]
