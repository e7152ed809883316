"""retcon (RETain or CONsolidate): memory for language agents under a token budget."""

from typing import TYPE_CHECKING, Any

from retcon.errors import RefusedError, RetconError
from retcon.ladder import Answer, Look
from retcon.memory import Memory
from retcon.note import (
    Claim,
    Cluster,
    Decision,
    Dropped,
    Evidence,
    Fidelity,
    Filter,
    Hit,
    Note,
    Packed,
    Recall,
    Record,
    Scope,
    Source,
    Usage,
)
from retcon.route import Router
from retcon.store import Deleted
from retcon.where import Where

if TYPE_CHECKING:
    from retcon.aio import AsyncMemory

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "AsyncMemory",
    "Claim",
    "Cluster",
    "Decision",
    "Deleted",
    "Dropped",
    "Evidence",
    "Fidelity",
    "Filter",
    "Hit",
    "Look",
    "Memory",
    "Note",
    "Packed",
    "Recall",
    "Record",
    "RefusedError",
    "RetconError",
    "Router",
    "Scope",
    "Source",
    "Usage",
    "Where",
    "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "AsyncMemory":  # loaded at first use: it brings asyncio
        raise AttributeError(f"module 'retcon' has no attribute {name!r}")
    from retcon.aio import AsyncMemory

    return AsyncMemory
