"""Memory inside agent frameworks: a file for each, behind an extra of its own, on the public names of retcon alone.

Nothing is imported here: only `from retcon.integrations.langchain import ...` loads LangChain.

extra.py      a framework that is not installed fails once, with its install line
budget.py     a recall within a budget that someone else counts
langchain/    middleware, retriever, compressor, summarizer, context edit        langgraph.py  a store
"""
