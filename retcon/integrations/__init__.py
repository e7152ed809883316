"""Memory inside agent frameworks: a file for each, behind an extra of its own, on the public names of retcon alone.

Nothing is imported here: only `from retcon.integrations.langchain import ...` loads LangChain.

extra.py      a framework that is not installed fails once, with its install line
budget.py     a recall within a budget that someone else counts
keeper.py     one owner's memory: recalled under a heading, turns stored; the newest turns that fit; a text made shorter
langchain/    middleware, retriever, compressor, summarizer, context edit        langgraph.py  a store
tools.py      functions for any tool-calling API        files.py  files of text in a memory, for anthropic.py
openai_agents.py llamaindex.py pydantic_ai.py adk.py crewai.py inspect.py  the framework of that name
"""
