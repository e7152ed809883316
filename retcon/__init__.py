"""retcon (RETain or CONsolidate): memory for language agents under a token budget."""

from retcon.aio import AsyncMemory
from retcon.errors import RetconError
from retcon.memory import Memory
from retcon.note import Cluster, Decision, Dropped, Filter, Hit, Note, Packed, Recall, Scope, Source, Usage
from retcon.route import Router
from retcon.store import Deleted

__version__ = "0.1.0"
__all__ = [
    "AsyncMemory", "Cluster", "Decision", "Deleted", "Dropped", "Filter", "Hit", "Memory", "Note", "Packed", "Recall",
    "RetconError", "Router", "Scope", "Source", "Usage", "__version__",
]  # fmt: skip
