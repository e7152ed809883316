"""retcon (RETain or CONsolidate): memory for language agents under a token budget."""

from importlib import import_module
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
    from retcon.integrations.tools import tools

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
    "tools",
]  # fmt: skip

_LATE = {"AsyncMemory": "retcon.aio", "tools": "retcon.integrations.tools"}  # loaded at first use: one brings asyncio


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'retcon' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
