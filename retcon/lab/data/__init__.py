"""Benchmarks: the datasets that a study runs on, in one form, and how they are split."""

from retcon.lab.data.datasets import NAMES, load
from retcon.lab.data.question import NOT_IN_MEMORY, BenchmarkQuestion, Dataset, answerable, evidence_cost, full_fit
from retcon.lab.data.splits import Split, by_cost, independent, paper_like, sample, stratified

__all__ = [
    "NAMES", "NOT_IN_MEMORY", "BenchmarkQuestion", "Dataset", "Split", "answerable", "by_cost", "evidence_cost",
    "full_fit", "independent", "load", "paper_like", "sample", "stratified",
]  # fmt: skip
