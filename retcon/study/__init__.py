"""Benchmarks: the datasets that a study runs on, in one form, and how they are split."""

from retcon.study.datasets import NAMES, load
from retcon.study.question import NOT_IN_MEMORY, Loaded, Question, answerable, evidence_cost, full_fit
from retcon.study.splits import Split, by_cost, independent, paper_like, sample

__all__ = [
    "NAMES", "NOT_IN_MEMORY", "Loaded", "Question", "Split", "answerable", "by_cost", "evidence_cost", "full_fit",
    "independent", "load", "paper_like", "sample",
]  # fmt: skip
