"""How much of the gold answer survives packing: Extract against whole notes and plain truncation, at each budget.

    python -m bench.extract [--limit N] [--json PATH]

Survival of an answer: the share of its content words that the packed text holds, where words are stems without function
words and without the words of the question, "seven" is 7, and "7 May 2023" meets the rendered date 2023-05-07 as a day,
a month and a year, so that no digit of a date passes for a number. An answer survives at 60 %. Only questions whose
full evidence reaches 60 % count: the rest must be worked out by the reader, and no packing holds them.

Settings: LongMemEval controlled (the gold evidence is the cluster, ranked by the script's BM25), LongMemEval pooled
(the evidence of all questions is one history, BM25 top 20), LoCoMo full history (BM25 top 20). Every cell is the share
of answers that survive, then in brackets the mean survival; differences come with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from retcon.extract import extract
from retcon.note import Cluster, Hit, Note
from retcon.pack import render, retain
from retcon.tokens import Counter, counter, cut
from retcon.words import COMMON_STEMS, query_terms, stem_words, stems, words

BUDGETS = (32, 64, 128, 256)
SURVIVES = 0.6
TOP, CAP = 20, 2048

MONTHS = "january february march april may june july august september october november december".split()
SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
NUMBERS = {word: str(i) for i, word in enumerate(SMALL)} | {
    "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "once": "1", "twice": "2", "first": "1st",
    "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th",
}  # fmt: skip
_MONTH = "|".join(f"{m[:3]}(?:{m[3:]})?" if m != "may" else "may" for m in MONTHS)
_ISO = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})\b", re.I)
_MONTH_DAY = re.compile(rf"\b({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?\b", re.I)
_MONTH_YEAR = re.compile(rf"\b({_MONTH}),? (\d{{4}})\b", re.I)
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}\b)")


@dataclass(frozen=True, slots=True)
class PackedQuestion:
    """A question with its cluster and the content words that an answer must bring."""

    id: str
    cluster: Cluster
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Setting:
    """Questions whose answer stands in their evidence, and how many were looked at."""

    name: str
    questions: tuple[PackedQuestion, ...]
    seen: int


# - survival -


def content(text: str) -> frozenset[str]:
    """Content words of a text: stems and numbers, days and months apart from other numbers, function words left out."""
    text = _GROUPED.sub("", text)
    text = _ISO.sub(lambda m: f" {m[1]} month{int(m[2])} day{int(m[3])} ", text)
    text = _DAY_MONTH.sub(lambda m: f" day{int(m[1])} month{_month(m[2])} ", text)
    text = _MONTH_DAY.sub(lambda m: f" month{_month(m[1])} day{int(m[2])} ", text)
    text = _MONTH_YEAR.sub(lambda m: f" month{_month(m[1])} {m[2]} ", text)
    plain = [NUMBERS.get(word, str(int(word)) if word.isdecimal() and len(word) < 10 else word) for word in words(text)]
    return frozenset(stem for stem in stem_words(plain) if stem not in COMMON_STEMS)


def _month(name: str) -> int:
    return [month[:3] for month in MONTHS].index(name[:3].lower()) + 1


def answer_words(question: str, answer: str) -> frozenset[str]:
    """What the answer says beyond the question's own words."""
    return content(answer) - content(question)


def survival(gold: frozenset[str], text: str) -> float:
    """Share of the gold content that the text holds."""
    return len(gold & content(text)) / len(gold)


# - retrieval, small and local: the product's own is measured elsewhere -


def bm25(query: str, documents: Sequence[Tally[str]]) -> list[float]:
    """BM25 score of each document for the query's telling terms."""
    n, lengths = len(documents), [sum(d.values()) for d in documents]
    mean = sum(lengths) / max(n, 1) or 1.0
    scores = [0.0] * n
    for term in query_terms(query):
        having = [i for i, d in enumerate(documents) if term in d]
        idf = math.log(1 + (n - len(having) + 0.5) / (len(having) + 0.5))
        for i in having:
            tf = documents[i][term]
            scores[i] += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * lengths[i] / mean))
    return scores


def documents(notes: Sequence[Note], *, context: bool) -> list[Tally[str]]:
    """Index terms of each note: its own words twice, its speaker and date, and the session's turn before it once."""
    out: list[Tally[str]] = []
    before: Note | None = None
    for note in notes:
        own = stems(note.text)
        terms = Tally(own + own + stems(f"{note.speaker} {_spoken(note.timestamp)}"))
        if context and before is not None and before.session == note.session:
            terms.update(stems(before.text))
        out.append(terms)
        before = note
    return out


def _spoken(timestamp: str | None) -> str:
    return datetime.fromisoformat(timestamp).strftime("%d %B %Y") if timestamp else ""


def rank_notes(query: str, notes: Sequence[Note], index: Sequence[Tally[str]], count: Counter) -> Cluster:
    """The best notes for the query, at most TOP of them and CAP tokens in all."""
    scores = bm25(query, index)
    hits: list[Hit] = []
    left = CAP
    for i in sorted(range(len(notes)), key=lambda i: (-scores[i], i))[:TOP]:
        cost = count(render(notes[i]))
        if cost <= left:
            hits.append(Hit(notes[i], scores[i], len(hits) + 1))
            left -= cost
    return Cluster(query, tuple(hits))


# - data -


def longmemeval(data: Path, count: Counter, *, pooled: bool, limit: int | None) -> Setting:
    rows = json.loads((data / "longmemeval_gold_evidence_500.json").read_text())
    rows = [row for row in rows if row["evidence"] and not row["question_id"].endswith("_abs")][:limit]
    notes = [[_lme_note(row, i, turn) for i, turn in enumerate(row["evidence"])] for row in rows]
    pool = list({note.id: note for group in notes for note in group}.values())
    index = documents(pool, context=False)
    out: list[PackedQuestion] = []
    for row, own in zip(rows, notes, strict=True):
        gold = answer_words(row["question"], str(row["answer"]))
        if gold and survival(gold, "\n".join(render(note) for note in own)) >= SURVIVES:
            among, terms = (pool, index) if pooled else (own, documents(own, context=False))
            out.append(PackedQuestion(row["question_id"], rank_notes(row["question"], among, terms, count), gold))
    return Setting(f"LongMemEval {'pooled' if pooled else 'controlled'}", tuple(out), len(rows))


def _lme_note(row: dict[str, Any], i: int, turn: dict[str, Any]) -> Note:
    when = datetime.strptime(re.sub(r" \(\w+\)", "", turn["session_date"]), "%Y/%m/%d %H:%M")
    key = row["evidence_turn_ids"][i]
    return Note(key, turn["content"], turn["role"], key.rsplit(":", 1)[0], when.isoformat(timespec="minutes"))


def locomo(data: Path, count: Counter, *, limit: int | None) -> Setting:
    out: list[PackedQuestion] = []
    seen = 0
    for talk in json.loads((data / "locomo10.json").read_text()):
        notes = _locomo_notes(talk["sample_id"], talk["conversation"])
        by_id = {note.id: note for note in notes}
        index = documents(notes, context=True)
        for row in talk["qa"]:
            ids = [f"{talk['sample_id']}/{key}" for key in re.findall(r"D\d+:\d+", " ".join(row["evidence"]))]
            if row["category"] == 5 or not ids or any(key not in by_id for key in ids) or seen == limit:
                continue
            seen += 1
            gold = answer_words(row["question"], str(row["answer"]).split(";")[0])
            if gold and survival(gold, "\n".join(render(by_id[key]) for key in ids)) >= SURVIVES:
                out.append(PackedQuestion(str(seen), rank_notes(row["question"], notes, index, count), gold))
    return Setting("LoCoMo full history", tuple(out), seen)


def _locomo_notes(sample: str, talk: dict[str, Any]) -> list[Note]:
    out: list[Note] = []
    for n in range(1, 1 + sum(key.endswith("_date_time") for key in talk)):
        when = datetime.strptime(talk[f"session_{n}_date_time"], "%I:%M %p on %d %B, %Y").isoformat(timespec="minutes")
        before: str | None = None
        for turn in talk.get(f"session_{n}", []):
            text = turn["text"] + (f" [photo: {turn['blip_caption']}]" if turn.get("blip_caption") else "")
            out.append(Note(f"{sample}/{turn['dia_id']}", text, turn["speaker"], f"{n}", when, follows=before))
            before = out[-1].id
    return out


# - the comparison -


def truncate(cluster: Cluster, budget: int, count: Counter) -> str:
    """Notes best first, the one that runs over cut at a word."""
    return cut("\n".join(render(note) for note in cluster.notes), budget, count)


METHODS: dict[str, Callable[[Cluster, int, Counter], str]] = {
    "retain, rank order": lambda c, b, count: retain(c, b, count=count).text,
    "retain, cheapest first": lambda c, b, count: retain(c, b, count=count, order="cheapest").text,
    "truncate": truncate,
    "extract": lambda c, b, count: extract(c, b, count=count).text,
}


def measure(setting: Setting, count: Counter) -> dict[str, dict[int, list[float]]]:
    """Method -> budget -> survival of each question's answer; budget 0 stands for the whole cluster."""
    out: dict[str, dict[int, list[float]]] = {
        name: {b: [survival(q.gold, method(q.cluster, b, count)) for q in setting.questions] for b in BUDGETS}
        for name, method in METHODS.items()
    }
    whole = [survival(q.gold, "\n".join(render(note) for note in q.cluster.notes)) for q in setting.questions]
    return out | {"no budget": dict.fromkeys(BUDGETS, whole)}


@dataclass(frozen=True, slots=True)
class Gap:
    """A mean difference with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def gap(a: Sequence[float], b: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> Gap:
    """How much more often answers survive in a than in b, questions resampled in pairs."""
    each = (np.asarray(a) >= SURVIVES).astype(float) - (np.asarray(b) >= SURVIVES)
    values, sizes = np.unique(each, return_counts=True)  # at most -1, 0, 1: a draw is a multinomial
    picks = np.random.default_rng(seed).multinomial(len(each), sizes / len(each), size=draws) @ values / len(each)
    low, high = np.quantile(picks, (0.025, 0.975))
    return Gap(float(each.mean()), float(low), float(high))


def table(setting: Setting, count: Counter, scores: dict[str, dict[int, list[float]]]) -> str:
    """The setting's results as Markdown."""
    head = f"**{setting.name}**, counter `{count.name}`: {len(setting.questions)} of {setting.seen} questions"
    if not setting.questions:
        return head
    lines = [head, "", "| | " + " | ".join(map(str, BUDGETS)) + " |", "|---" * (len(BUDGETS) + 1) + "|"]
    for name, by_budget in scores.items():
        cells = [f"{np.mean(np.asarray(v) >= SURVIVES):.3f} ({np.mean(v):.3f})" for v in by_budget.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for rival in list(METHODS)[:-1]:
        gaps = [str(gap(scores["extract"][b], scores[rival][b])) for b in BUDGETS]
        lines.append(f"| extract - {rival} | " + " | ".join(gaps) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.extract", description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=int, help="questions per dataset")
    parser.add_argument("--json", type=Path, help="write every number there")
    args = parser.parse_args(argv)
    data = Path(os.environ.get("RETCON_DATA") or Path(__file__).parents[1] / "../shared/data").resolve()
    missing = [name for name in ("longmemeval_gold_evidence_500.json", "locomo10.json") if not (data / name).is_file()]
    if missing:
        print(f"bench.extract: no {missing[0]} in {data}; set RETCON_DATA to the folder that holds it", file=sys.stderr)
        return 2
    rows: list[dict[str, Any]] = []
    for spec in ("estimate", "alphanumeric"):
        count = counter(spec)
        for setting in (
            longmemeval(data, count, pooled=False, limit=args.limit),
            longmemeval(data, count, pooled=True, limit=args.limit),
            locomo(data, count, limit=args.limit),
        ):
            scores = measure(setting, count)
            print(table(setting, count, scores), end="\n\n", flush=True)
            rows += _rows(setting, count, scores)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _rows(setting: Setting, count: Counter, scores: dict[str, dict[int, list[float]]]) -> list[dict[str, Any]]:
    base = {"setting": setting.name, "counter": count.name, "questions": len(setting.questions), "seen": setting.seen}
    return [base | {"method": m, "budget": b, **_means(v)} for m, each in scores.items() for b, v in each.items() if v]


def _means(survived: Sequence[float]) -> dict[str, float]:
    return {"survives": float(np.mean(np.asarray(survived) >= SURVIVES)), "coverage": float(np.mean(survived))}


if __name__ == "__main__":
    sys.exit(main())
