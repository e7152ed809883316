"""Replies for readers to label: drawn by stratum with their weights, as blind sheets in two orders.

    python -m bench.judge_sample --replies FOLDER --out FOLDER

FOLDER of replies holds the answers that the labelling runs wrote (NAME-waveN.answers.jsonl.gz); the other gets a sheet
for each reader and the key. `bench.judge_labels` joins what they write.

The population is every reply of waves 1 to 3 of seven domains. A stratum is a domain, whether the question has an
answer, whether the reply abstains, both judges' verdicts, and whether the text was copied (retain, extract) or written
by a model. Within a stratum replies are drawn without replacement, each as likely as another, and carry the weight
(replies there / replies drawn there). The same reply to the same question stands once on a sheet, and its label counts
for each time it was drawn.

A sheet shows an id, the question, what is the right answer, and the reply: no action, budget, domain or verdict. Sheets
hold the benchmarks' words and stay outside of the project; what is kept has ids, verdicts and labels alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.evaluation import rows_of

Row = dict[str, Any]
Stratum = tuple[str, bool, bool, int, int, str]  # domain, answerable, abstained, model judge, strict judge, how made

SEED = 20261116
DOMAINS = ("longmemeval", "lifebench", "factcon", "friendsqa", "timeqa", "locomo", "timelineqa")
WAVES = (1, 2, 3)
READERS = ("A", "B")
COPIED = ("retain", "extract")
# Replies of a domain that are drawn, by (model judge, strict judge); half copied, half written. Where the judges differ
# a label tells most, so these are drawn more often than they occur.
ANSWERED = {(0, 0): 16, (1, 0): 22, (1, 1): 12, (0, 1): 8}
UNANSWERABLE = {(0, 0): 6, (1, 0): 4}
ABSTAINED = {True: 4, False: 2}  # answerable or not: a check of the rule alone
WHY = {
    "published": "the publisher made this question so that memory does not hold its answer",
    "removed": "the notes that held the answer were cut out of memory",
    "person": "made from an answerable question by putting another person into it",
    "time": "made from an answerable question by putting another time into it",
    "thing": "made from an answerable question by putting another thing into it",
}


# -- drawing -----------------------------------------------------------------------------------------------------------


def stratum(row: Mapping[str, Any]) -> Stratum:
    """Where a reply belongs."""
    made = "copied" if row["action"] in COPIED else "written"
    verdicts = int(row["judge_llm"] > 0.5), int(row["judge_strict"] > 0.5)
    return (row["domain"], row["kind"] == "answerable", row["abstained"] > 0.5, *verdicts, made)


def wanted(where: Stratum) -> int:
    """How many replies of a stratum are drawn, if it holds as many; an odd one goes to written texts."""
    _, answerable, abstained, llm, strict, made = where
    if abstained:
        if (llm, strict) != ((0, 0) if answerable else (1, 1)):
            return 2  # a judge that contradicts the rule: rare
        whole = ABSTAINED[answerable]
    else:
        whole = (ANSWERED if answerable else UNANSWERABLE).get((llm, strict), 0)
    return whole // 2 if made == "copied" else whole - whole // 2


def draw(rows: Sequence[Row], seed: int = SEED) -> list[Row]:
    """The sampled rows with their weight, stratum after stratum."""
    held: dict[Stratum, list[Row]] = defaultdict(list)
    for row in rows:
        held[stratum(row)].append(row)
    rng, out = np.random.default_rng(seed), []
    for where, there in sorted(held.items()):
        size = min(wanted(where), len(there))
        chosen = rng.choice(len(there), size, replace=False)
        out += [there[i] | {"weight": len(there) / size} for i in sorted(chosen.tolist())]
    return out


def name_texts(drawn: Sequence[Row], seed: int = SEED) -> list[Row]:
    """The rows with ids in random order, one id for the same reply to the same question."""
    texts = sorted({(row["question_id"], row["reply"]) for row in drawn})
    order = np.random.default_rng(seed + 1).permutation(len(texts))
    ids = {texts[place]: f"r{number:03d}" for number, place in enumerate(order.tolist(), 1)}
    return [row | {"id": ids[row["question_id"], row["reply"]]} for row in drawn]


# -- sheets ------------------------------------------------------------------------------------------------------------


def read_replies(folder: Path, rows: Mapping[tuple[str, int, str], Row]) -> Iterator[Row]:
    """Every row of the population with its question, right answer and reply; a row without a reply is an error."""
    seen = set()
    for domain in DOMAINS:
        for wave in WAVES:
            path = folder / f"{domain}-wave{wave}.answers.jsonl.gz"
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for said in map(json.loads, lines):
                    key = said["question_id"], said["budget"], said["action"]
                    seen.add(key)
                    yield rows[key] | {name: said[name] for name in ("question", "gold", "reply")}
    if missing := rows.keys() - seen:
        raise SystemExit(f"{len(missing)} rows have no reply, the first is {min(missing)}")


def population() -> list[Row]:
    """The rows of the waves and domains: ids, kind, verdicts."""
    names = (
        "question_id", "budget", "action", "kind", "raw_type", "twin", "conversation",
        "abstained", "judge_llm", "judge_strict", "judge_overlap", "judge_f1",
    )  # fmt: skip
    return [
        {name: row[name] for name in names} | {"domain": domain}
        for domain in DOMAINS
        for wave in WAVES
        for row in rows_of(f"{domain}-wave{wave}").rows()
    ]


def show(row: Row) -> Row:
    """What a reader sees of a reply."""
    shown = {"id": row["id"], "question": row["question"]}
    if row["kind"] != "answerable":
        remark = "" if row["gold"] == "not in memory" else f" The publisher's remark: {row['gold']}"
        shown["no_answer"] = f"Memory does not hold the answer: {WHY[row['kind']]}.{remark}"
    elif "preference" in row["raw_type"]:
        shown["rubric"] = row["gold"]
    else:
        shown["answer"] = row["gold"]
    return shown | {"reply": row["reply"]}


def write_sheets(drawn: Sequence[Row], folder: Path) -> None:
    """A sheet for each reader, each in an order of its own, and the key, which readers do not get."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = list({row["id"]: show(row) for row in drawn}.values())
    for number, reader in enumerate(READERS, 2):
        order = np.random.default_rng(SEED + number).permutation(len(shown))
        write_lines(folder / f"sheet-{reader}.jsonl", [shown[i] for i in order.tolist()])
    hidden = ("question", "gold", "reply", "raw_type")
    write_lines(folder / "key.jsonl", [{k: v for k, v in row.items() if k not in hidden} for row in drawn])


def write_lines(path: Path, rows: Sequence[Row]) -> None:
    """Rows as JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read_lines(path: Path) -> list[Row]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    """Draw and write the sheets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=Path, required=True, help="where the answers of the labelling runs are")
    parser.add_argument("--out", type=Path, required=True, help="where sheets and key go; outside of the project")
    options = parser.parse_args()
    rows = {(row["question_id"], row["budget"], row["action"]): row for row in population()}
    drawn = name_texts(draw(list(read_replies(options.replies, rows))))
    write_sheets(drawn, options.out)
    print(f"{len(drawn)} replies drawn, {len({row['id'] for row in drawn})} to read")


if __name__ == "__main__":
    main()
