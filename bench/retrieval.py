"""Share of LoCoMo's gold evidence among the top 20, by retriever and by what the index reads. No model is used.

    python -m bench.retrieval                                       prints the table of docs/retrieval.md
    python -m bench.retrieval --out bench/results/retrieval.json    keeps the numbers too

Every conversation is one scope of a store. The first rows run the shipped retrievers through `Memory.search`; the
ablations score every note with the formulas of the default index, one ingredient taken away at a time.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench import data_file, grid, keep, out_parser
from retcon import Memory
from retcon.retrieve import plain_scores
from retcon.words import query_terms, spoken_date, stems, words

CATEGORIES = {4: "single-session", 1: "multi-session", 2: "temporal", 3: "open-domain"}


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One turn of a LoCoMo conversation, its image caption beside its text."""

    id: str
    session: str
    speaker: str
    text: str
    timestamp: str


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """One question with the turns that answer it."""

    question: str
    category: int
    evidence: frozenset[str]


def conversations(path: Path) -> Iterator[tuple[str, list[ConversationTurn], list[AskedQuestion]]]:
    """Each conversation: its name, its turns and its answerable questions whose evidence can be found."""
    for sample in json.loads(path.read_text(encoding="utf-8")):
        turns = list(_turns(sample["conversation"]))
        known = {turn.id for turn in turns}
        scored = (qa for qa in sample["qa"] if qa["category"] in CATEGORIES)
        asked = (AskedQuestion(qa["question"], qa["category"], _evidence(qa, known)) for qa in scored)
        yield sample["sample_id"], turns, [question for question in asked if question.evidence]


def _turns(conversation: dict[str, Any]) -> Iterator[ConversationTurn]:
    numbers = sorted(int(name.split("_")[1]) for name in conversation if re.fullmatch(r"session_\d+", name))
    for number in numbers:
        said = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in conversation[f"session_{number}"]:
            text = " ".join(filter(None, (turn["text"], turn.get("blip_caption"))))
            yield ConversationTurn(
                turn["dia_id"], f"session {number}", turn["speaker"], text, said.isoformat(timespec="minutes")
            )


def _evidence(qa: dict[str, Any], known: set[str]) -> frozenset[str]:
    """Evidence ids that exist; some fields hold several ids in one string, a few do not resolve."""
    return frozenset(found for field in qa["evidence"] for found in re.findall(r"D\d+:\d+", field) if found in known)


def recall_by_memory(turns: Sequence[ConversationTurn], asked: Sequence[AskedQuestion], **options: Any) -> list[float]:
    """Evidence found in the top 20 of `Memory.search`, per question."""
    with Memory(":memory:", **options) as memory:
        memory.add([asdict(turn) for turn in turns])
        return [_share({hit.id for hit in memory.search(q.question, top_k=20)}, q) for q in asked]


def _share(found: set[str], question: AskedQuestion) -> float:
    return len(found & question.evidence) / len(question.evidence)


@dataclass(frozen=True, slots=True)
class IndexReading:
    """What an ablation lets the index read."""

    stem: bool = True
    speaker: bool = True
    date: bool = True
    context: bool = True
    own: int = 2
    drop_common: bool = True


def recall_by_reading(
    turns: Sequence[ConversationTurn], asked: Sequence[AskedQuestion], reading: IndexReading
) -> list[float]:
    """Evidence found in the top 20 when every note is scored on what the reading lets through, per question."""
    split: Callable[[str], list[str]] = stems if reading.stem else words
    counted = []
    for before, turn in zip([None, *turns], turns, strict=False):
        own = " ".join((turn.speaker * reading.speaker, turn.text, spoken_date(turn.timestamp) * reading.date))
        count = Counter({word: reading.own * n for word, n in Counter(split(own)).items()})
        if reading.context and before is not None and before.session == turn.session:
            count.update(split(before.text))
        counted.append(count)
    shares = []
    for question in asked:
        terms = list(dict.fromkeys(split(question.question)))
        if reading.drop_common:
            terms = query_terms(question.question)
        top = np.argsort(-plain_scores(counted, terms), kind="stable")[:20]
        shares.append(_share({turns[i].id for i in top}, question))
    return shares


ROWS: dict[str, Callable[[Sequence[ConversationTurn], Sequence[AskedQuestion]], list[float]]] = {
    "bm25 (the default)": lambda t, q: recall_by_memory(t, q),
    "bm25-plain (the paper's)": lambda t, q: recall_by_memory(t, q, retriever="bm25-plain"),
    "dense, hashing": lambda t, q: recall_by_memory(t, q, retriever="dense"),
    "hybrid, hashing": lambda t, q: recall_by_memory(t, q, retriever="hybrid"),
    "dense, wordllama": lambda t, q: recall_by_memory(t, q, retriever="dense", embedder="wordllama"),
    "hybrid, wordllama": lambda t, q: recall_by_memory(t, q, retriever="hybrid", embedder="wordllama"),
    "default less dates": lambda t, q: recall_by_reading(t, q, IndexReading(date=False)),
    "default less speaker": lambda t, q: recall_by_reading(t, q, IndexReading(speaker=False)),
    "default less the turn before": lambda t, q: recall_by_reading(t, q, IndexReading(context=False)),
    "default, own words not doubled": lambda t, q: recall_by_reading(t, q, IndexReading(own=1)),
    "default, function words kept": lambda t, q: recall_by_reading(t, q, IndexReading(drop_common=False)),
    "stems and the turn before only": lambda t, q: recall_by_reading(
        t, q, IndexReading(date=False, own=1, drop_common=False)
    ),
    "words alone, no stems": lambda t, q: recall_by_reading(t, q, IndexReading(False, True, False, False, 1, False)),
}


def measure(path: Path) -> list[dict[str, Any]]:
    """One row per retriever: overall share and share per question category."""
    data = list(conversations(path))
    categories = np.array([question.category for _, _, asked in data for question in asked])
    rows = []
    for name, run in ROWS.items():
        shares = np.concatenate([run(turns, asked) for _, turns, asked in data])
        row = {"retriever": name, "questions": len(shares), "all": float(shares.mean())}
        rows.append(row | {label: float(shares[categories == c].mean()) for c, label in CATEGORIES.items()})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    columns = ["all", *CATEGORIES.values()]
    return grid(["retriever", *columns], [[row["retriever"], *(f"{row[c]:.3f}" for c in columns)] for row in rows])


def main() -> None:
    """Print the table."""
    options = out_parser(__doc__).parse_args()
    rows = measure(data_file("locomo10.json"))
    print(f"{rows[0]['questions']} questions\n\n{table(rows)}")
    keep(rows, options.out)


if __name__ == "__main__":
    main()
