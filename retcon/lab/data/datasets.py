"""A dataset's name, or the path of your own -> its questions. The caller names the folder to look in."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from retcon.errors import InputError
from retcon.lab.data import locomo, longmemeval, own_questions, shipped
from retcon.lab.data.longmemeval import POOL
from retcon.lab.data.question import Dataset
from retcon.lab.data.shipped import MORE, SAMPLE


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """The names under which a file may lie in the folder, the best first, and how to come by it."""

    files: tuple[str, ...]
    advice: str


_GET = "get it from {} and put it there"
_LONGMEMEVAL = "https://huggingface.co/datasets/xiaowu0162/longmemeval-cleaned"
FILES = {
    "longmemeval-gold": DatasetFile(
        ("longmemeval_gold_evidence_500.json",),
        f"it holds no more than the flagged turns of longmemeval-oracle, which is at {_LONGMEMEVAL}",
    ),
    "longmemeval-oracle": DatasetFile(("longmemeval_oracle.json", "longmemeval_oracle"), _GET.format(_LONGMEMEVAL)),
    "longmemeval-s": DatasetFile(
        ("longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_s"), _GET.format(_LONGMEMEVAL)
    ),
    "longmemeval-m": DatasetFile(
        ("longmemeval_m_cleaned.json", "longmemeval_m.json", "longmemeval_m"), _GET.format(_LONGMEMEVAL)
    ),
    "locomo": DatasetFile(("locomo10.json",), _GET.format("https://github.com/snap-research/locomo (in data/)")),
}
AUDIT = DatasetFile(
    ("locomo_audit_errors.json", "errors.json"), _GET.format("https://github.com/dial481/locomo-audit (errors.json)")
)
NAMES = (SAMPLE, MORE, *FILES, POOL)


def load(
    name: str | PathLike[str],
    *,
    folder: str | PathLike[str] | None = None,
    corrections: bool = False,
    partial: bool = False,
    whole_sessions: bool = False,
    histories: bool = True,
) -> Dataset:
    """The questions of a known dataset, or of your own file where the name ends in .jsonl.

    `corrections` and `partial` are LoCoMo's, `whole_sessions` and `histories` LongMemEval's; see their loaders.
    """
    kind = str(name)
    if corrections and kind != "locomo":
        raise InputError(f"label corrections exist for locomo, not for {kind}")
    if kind in (SAMPLE, MORE):
        return shipped.load(more=kind == MORE)
    if kind == "locomo":
        audit = _find(AUDIT, folder) if corrections else None
        return locomo.load(_find(FILES[kind], folder), corrections=audit, partial=partial)
    if kind == POOL:
        return longmemeval.pool(load("longmemeval-gold", folder=folder))
    if kind in FILES:
        path = _find(FILES[kind], folder)
        return longmemeval.load(path, whole_sessions=whole_sessions, histories=histories)
    if kind.endswith(".jsonl"):
        return own_questions.load(Path(name))
    raise InputError(
        f"no dataset is called {kind[:200]!r}: known are {', '.join(NAMES)}, or a path that ends in .jsonl"
    )


def _find(file: DatasetFile, folder: str | PathLike[str] | None) -> Path:
    """The file in the folder, or one line that says where to get it and where to put it."""
    if folder is None:
        raise InputError(f"name the folder for {file.files[0]} (RETCON_DATA): {file.advice}")
    for name in file.files:
        try:
            if (path := Path(folder, name)).is_file():
                return path
        except (OSError, ValueError):  # a folder that may not be looked into, or no name of one
            continue
    raise InputError(f"no {file.files[0]} in {folder}: {file.advice}")
