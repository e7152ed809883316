"""Calibrates `Recall.found`: is anything in memory about the query? Learns the rule of `retcon/evidence.py`.

    python -m bench.found            print what was measured
    python -m bench.found --write    also write retcon/found.json, bench/results/found.json and docs/memory.md

Two classes: answerable questions put to their own conversation, and 200 everyday queries that have nothing to do with
it (`offtopic.txt`). Half of the weight is on whole histories, half on small memories of 3 to 30 notes. What is reported
for a domain was learned on the others, settings included; the rule that ships is learned on all of `LEARN`. Questions
put to another conversation and unanswerable ones are counted, never learned from. The list of everyday words in
`retcon/evidence.py` was written by hand, while looking at questions of `LEARN`.
"""

from __future__ import annotations

import json
import math
import random
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bench import RESULTS, ROOT, data_file, grid, keep, out_parser
from retcon.evidence import NUMBERS, Match, Rule, settle
from retcon.lab.data import BenchmarkQuestion, load
from retcon.lab.protocols import chain_turns
from retcon.model import embedder
from retcon.note import Note
from retcon.retrieve import find
from retcon.store.sqlite import SqliteStore
from retcon.where import Where

LEARN = ("longmemeval", "lifebench", "factcon", "friendsqa", "timeqa")  # permissively licensed
TEST: tuple[str, ...] = ("locomo", "timelineqa")  # CC BY-NC: they only test
ANSWERABLE, OFF_TOPIC, ELSEWHERE, UNANSWERABLE = "answerable", "off-topic", "elsewhere", "unanswerable"
KINDS = (ANSWERABLE, OFF_TOPIC, ELSEWHERE, UNANSWERABLE)
TOP_K = 20
PLACES = 10  # conversations of a domain that the off-topic queries are put to
GUESTS = 25  # questions from elsewhere that each conversation gets
SIZES = (3, 10, 30)  # notes of small memories
SMALL = 90  # small memories of a domain
FEW = 20  # off-topic queries that a small memory gets
ALLOWED = 0.01  # mean share of answerable questions flagged in a domain left out: half of 2 %, one domain being harder
COUNTS = tuple(product((0.25, 0.5), (1.0, 2.0, 3.0)))  # what an everyday word and a name count
SHARES = (0.001, 0.0025, 0.005, 0.01, 0.02)  # of answerable questions below the line, where it is drawn
PAGE, OUT, RULE = ROOT / "docs" / "memory.md", RESULTS / "found.json", ROOT / "retcon" / "found.json"

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Row:
    """One query put to one memory."""

    domain: str
    kind: str
    small: bool
    match: Match
    reached: bool = False  # a note that answers it was among the notes found


@dataclass(frozen=True)
class Setting:
    """What the inner loop chooses."""

    counts: tuple[float, float]  # of an everyday word, of a name
    share: float


@dataclass(frozen=True)
class Rows:
    """All rows as arrays; numbers by what everyday words and names count."""

    domain: NDArray[np.str_]
    kind: NDArray[np.str_]
    small: Bools
    reached: Bools
    settled: NDArray[np.int8]  # 1 about memory, 0 not, -1: the numbers say
    numbers: Mapping[tuple[float, float], Floats] = field(repr=False)

    def where(self, domains: Sequence[str], kind: str) -> Bools:
        """The rows of these domains and this kind."""
        chosen: Bools = np.isin(self.domain, domains) & (self.kind == kind)
        return chosen


# -- rows --------------------------------------------------------------------------------------------------------------


def collect(domain: str, folder: Path) -> Iterator[Row]:
    """Every query of the calibration that concerns a domain."""
    histories = _histories(_questions(domain, folder))
    off_topic = (ROOT / "bench" / "offtopic.txt").read_text("utf-8").splitlines()
    chance = random.Random(domain)
    step = max(1, len(histories) // PLACES)
    for number, asked in enumerate(histories):
        ask = _opened(asked[0].history, domain, small=False)
        yield from (ask(question.text, _kind(question), question) for question in asked)
        yield from (ask(query, OFF_TOPIC) for query in (off_topic if number % step == 0 else ()))
        guests = [
            each for other in histories for each in other
            if each.conversation != asked[0].conversation and not each.abstention and other is not asked
        ]  # fmt: skip
        yield from (ask(each.text, ELSEWHERE) for each in chance.sample(guests, min(GUESTS, len(guests))))
    known = [each for asked in histories for each in asked if each.evidence and not each.abstention]
    for number, question in enumerate(chance.sample(known, min(SMALL, len(known)))):
        ask = _opened(_shrink(question, SIZES[number % len(SIZES)], chance), domain, small=True)
        yield ask(question.text, ANSWERABLE, question)
        yield from (ask(query, OFF_TOPIC) for query in chance.sample(off_topic, FEW))


def _questions(domain: str, folder: Path) -> Sequence[BenchmarkQuestion]:
    if domain in ("longmemeval", "locomo"):
        name, file = ("locomo", "locomo10.json") if domain == "locomo" else ("longmemeval-pool", _GOLD)
        return load(name, folder=data_file(file).parent).questions
    with tarfile.open(data_file(f"domains/{domain}.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return load(next(folder.rglob(f"{domain}.jsonl"))).questions


_GOLD = "longmemeval_gold_evidence_500.json"


def _histories(questions: Sequence[BenchmarkQuestion]) -> list[list[BenchmarkQuestion]]:
    """The questions by the history that they are put to."""
    found: dict[int, list[BenchmarkQuestion]] = {}
    for question in questions:
        found.setdefault(id(question.history), []).append(question)
    return list(found.values())


def _kind(question: BenchmarkQuestion) -> str:
    return UNANSWERABLE if question.abstention else ANSWERABLE


def _shrink(question: BenchmarkQuestion, size: int, chance: random.Random) -> Sequence[Note]:
    """The notes that answer the question, and others up to that size, in order."""
    gold = {note.id for note in question.evidence}
    others = [note.id for note in question.history if note.id not in gold]
    kept = gold | set(chance.sample(others, min(max(size - len(gold), 0), len(others))))
    return [note for note in question.history if note.id in kept]


def _opened(history: Sequence[Note], domain: str, *, small: bool) -> Callable[..., Row]:
    """What puts a query to these notes."""
    store = SqliteStore(":memory:")
    store.add(list(chain_turns(history)))

    def ask(query: str, kind: str, question: BenchmarkQuestion | None = None) -> Row:
        found = find(store, query, Where(), top_k=TOP_K, retriever="bm25", embed=None, fill=True)
        gold = {note.id for note in question.evidence} if question else set()
        reached = any(hit.id in gold and hit.score > 0 for hit in found.hits)
        return Row(domain, kind, small, found.match, reached)

    return ask


def to_arrays(rows: Sequence[Row]) -> Rows:
    """The rows as arrays."""
    rules = {counts: Rule(*counts, (0.0, 0.0), 0.0) for counts in COUNTS}
    settled = [settle(row.match) for row in rows]
    return Rows(
        domain=np.array([row.domain for row in rows]),
        kind=np.array([row.kind for row in rows]),
        small=np.array([row.small for row in rows]),
        reached=np.array([row.reached for row in rows]),
        settled=np.array([-1 if each is None else int(each) for each in settled], np.int8),
        numbers={counts: np.array([rule.measure(row.match) for row in rows]) for counts, rule in rules.items()},
    )


# -- the rule ----------------------------------------------------------------------------------------------------------


class Learner:
    """Learns rules from the rows; directions that were found once are kept."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.known: dict[tuple[object, ...], Floats] = {}

    def learn(self, domains: Sequence[str], setting: Setting) -> Rule:
        """The line between both classes of these domains, so low that few answerable questions are below it."""
        key = (tuple(domains), setting.counts)
        if key not in self.known:
            self.known[key] = self._direction(domains, setting)
        line = _line(self.rows, domains, self.rows.numbers[setting.counts] @ self.known[key], setting.share)
        covered, notes = self.known[key].tolist()
        return Rule(*setting.counts, (covered, notes), round(-line, 4))

    def _direction(self, domains: Sequence[str], setting: Setting) -> Floats:
        rows = self.rows
        both = rows.where(domains, ANSWERABLE) | rows.where(domains, OFF_TOPIC)
        unsettled = both & (rows.settled < 0)
        x, y = rows.numbers[setting.counts][unsettled], rows.kind[unsettled] == ANSWERABLE
        fitted = LogisticRegression().fit(x, y, sample_weight=_weights(rows, unsettled))
        out: Floats = fitted.coef_[0].round(4)
        return out


def _weights(rows: Rows, chosen: Bools) -> Floats:
    """The same weight for each domain, size of memory and class."""
    groups = [f"{d}/{k}/{s}" for d, k, s in zip(rows.domain, rows.kind, rows.small, strict=True)]
    _, group, count = np.unique(np.array(groups)[chosen], return_inverse=True, return_counts=True)
    weights: Floats = 1.0 / count[group]
    scaled: Floats = weights * len(group) / weights.sum()
    return scaled


def _line(rows: Rows, domains: Sequence[str], height: Floats, share: float) -> float:
    """The height under which this share of the answerable questions lies, of those that the numbers decide."""
    chosen = rows.where(domains, ANSWERABLE)
    found = np.where(rows.settled[chosen] >= 0, np.inf, height[chosen])
    weights = _weights(rows, chosen)
    order = np.argsort(found)
    passed = np.cumsum(weights[order]) / weights.sum()
    return float(found[order][np.searchsorted(passed, share)]) - 1e-4


def flag(rows: Rows, rule: Rule) -> Bools:
    """Which rows the rule takes for nothing that memory is about."""
    odds = rows.numbers[rule.everyday, rule.name] @ np.array(rule.weights) + rule.intercept
    flagged: Bools = np.where(rows.settled < 0, odds < 0, rows.settled == 0)
    return flagged


def choose(learner: Learner, domains: Sequence[str]) -> Setting:
    """The setting that finds most off-topic queries of a domain left out, few answerable questions being flagged."""
    rows, scored = learner.rows, []
    for setting in (Setting(*each) for each in product(COUNTS, SHARES)):
        parts = [(d, flag(rows, learner.learn([e for e in domains if e != d], setting))) for d in domains]
        lost, caught = (_mean(rows, parts, kind) for kind in (ANSWERABLE, OFF_TOPIC))
        scored.append((lost <= ALLOWED, caught if lost <= ALLOWED else -lost, setting))
    return max(scored, key=lambda each: each[:2])[2]


def _mean(rows: Rows, parts: Sequence[tuple[str, Bools]], kind: str) -> float:
    """The mean over domains of the share flagged, of whole histories."""
    return float(np.mean([flagged[rows.where([domain], kind) & ~rows.small].mean() for domain, flagged in parts]))


def close_by(embedder_name: str, folder: Path) -> float:
    """The cosine that one off-topic query in fifty gets to the closest note, in the domain where that is largest."""
    embed = embedder(embedder_name)
    queries = embed((ROOT / "bench" / "offtopic.txt").read_text("utf-8").splitlines())
    found = []
    for domain in LEARN:
        histories = _histories(_questions(domain, folder))
        texts = [[note.text for note in asked[0].history] for asked in histories[:: max(1, len(histories) // 4)]]
        found.append(np.quantile(np.concatenate([(queries @ embed(each).T).max(axis=1) for each in texts]), 0.98))
    return math.ceil(100 * float(max(found))) / 100


# -- what is reported --------------------------------------------------------------------------------------------------


def measure(rows: Rows) -> tuple[Rule, dict[str, Any]]:
    """The rule that ships, and the shares flagged by domain: by a rule that never saw it."""
    learner = Learner(rows)
    report: dict[str, Any] = {"domains": [], "settings": {}}
    for domain in LEARN:
        others = [each for each in LEARN if each != domain]
        setting = choose(learner, others)
        report["settings"][domain] = asdict(setting)
        report["domains"].append(_count(rows, domain, flag(rows, learner.learn(others, setting)), "left out"))
    setting = choose(learner, LEARN)
    report["settings"]["all"] = asdict(setting)
    rule = learner.learn(LEARN, setting)
    flagged = flag(rows, rule)
    report["domains"] += [_count(rows, domain, flagged, "only tested") for domain in TEST]
    report["fitted"] = [_count(rows, domain, flagged, "learned on") for domain in LEARN]
    return rule, report


def _count(rows: Rows, domain: str, flagged: Bools, role: str) -> dict[str, Any]:
    """Numbers and shares flagged of one domain, whole histories and small memories apart."""
    out: dict[str, Any] = {"domain": domain, "role": role}
    for kind in KINDS:
        here = rows.where([domain], kind) & ~rows.small
        out[kind] = [int(here.sum()), round(float(flagged[here].mean()), 4) if here.any() else None]
    for kind in KINDS[:2]:
        here = rows.where([domain], kind) & rows.small
        out[f"{kind}, small"] = [int(here.sum()), round(float(flagged[here].mean()), 4)]
    lost = rows.where([domain], ANSWERABLE) & ~rows.small & rows.reached
    out["lost"] = round(float(flagged[lost].sum() / (rows.where([domain], ANSWERABLE) & ~rows.small).sum()), 4)
    return out


HEAD = (
    "domain", "answerable, flagged", "the same, though a note that answers had been found", "off-topic, found out",
    "asked of another conversation", "unanswerable",
    "small memories: answerable, flagged", "small memories: off-topic, found out",
)  # fmt: skip


def table(report: Mapping[str, Any]) -> str:
    """The shares flagged, as Markdown."""
    rows = [_cells(row) for row in report["domains"]]
    return grid(HEAD, rows)


def _cells(row: Mapping[str, Any]) -> list[str]:
    shown = [_percent(row[ANSWERABLE][1]), _percent(row["lost"])]
    shown += [_percent(row[kind][1]) for kind in (OFF_TOPIC, ELSEWHERE, UNANSWERABLE)]
    shown += [_percent(row[f"{kind}, small"][1]) for kind in KINDS[:2]]
    return [f"{row['domain']} ({row['role']}, {row[ANSWERABLE][0]:,} questions)", *shown]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def write_rule(rule: Rule) -> None:
    """Write the constants that serve."""
    plain = {
        "about": "python -m bench.found --write learns these numbers; retcon/evidence.py says what they mean",
        "learned_on": [*LEARN, "200 off-topic queries"],
        "everyday": rule.everyday,
        "name": rule.name,
        "weights": dict(zip(NUMBERS, rule.weights, strict=True)),
        "intercept": rule.intercept,
        "close": dict(rule.close),
    }
    RULE.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


def write_page(report: Mapping[str, Any]) -> None:
    """Put the table into its page."""
    block = re.compile(r"(<!-- table: found -->\n).*?(<!-- end -->)", re.DOTALL)
    page = block.sub(lambda found: f"{found[1]}{table(report)}\n{found[2]}", PAGE.read_text("utf-8"))
    PAGE.write_text(page, encoding="utf-8")


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = out_parser(__doc__)
    parser.add_argument("--write", action="store_true", help="write the rule, the result and the table of the docs")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for domain in (*LEARN, *TEST):
            rows += collect(domain, Path(folder))
            print(f"{domain}: {len(rows):,} rows so far", flush=True)
        close = {"hashing": None, "wordllama": close_by("wordllama", Path(folder))}  # hashing compares words only
    rule, report = measure(to_arrays(rows))
    rule = replace(rule, close=close)
    print(table(report), rule, report["settings"], sep="\n\n")
    keep(report, OUT if options.write else options.out)
    if options.write:
        write_rule(rule)
        write_page(report)


if __name__ == "__main__":
    main()
