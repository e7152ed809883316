"""Contexts of all rivals -> replies and verdicts: the same reader and the same judges as ours, with our own prompts.

    python -m bench.rivals.answers --model FOLDER --contexts DIR --out OUT       replies alone, resumable
    python -m bench.rivals.answers --replies OUT --contexts DIR --rows bench/results/rows
    python -m bench.rivals.answers ... --rows bench/results/rows --add           beside the rows that are there
    python -m bench.rivals.answers ... --rows ... --checks DEST/logs             and what each did in the check

The first needs the model, and asks in large batches. The second makes rows from kept replies, with no model at all:
numbers and ids, no one's words. The third is for a run of some systems alone: a history that was done anew replaces the
earlier one, and all else stays.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.rivals.contexts import read
from bench.rivals.questions import DOMAINS, questions_of
from bench.rivals.systems import SYSTEMS
from bench.runs import MODEL, RecordingCache, open_model, restore
from bench.unanswerable import kind_of, twin_of
from retcon import answer
from retcon.lab import judge
from retcon.lab.data.question import BenchmarkQuestion
from retcon.lab.label import GRADING, READING, UNREADABLE, Asker, _insist, _verdict
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, Chat, Reply

SPENT = ("calls", "prompted", "generated", "unparsed", "seconds")
CHECKS = "rivals-checks.json"  # beside the rows
_KIND = re.compile(r"^\w+(?=:)|\b[A-Z]\w*(?:Error|Exception|Timeout)\b")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a rival showed for a question at one budget."""

    row: dict[str, Any]
    question: BenchmarkQuestion

    @property
    def ask(self) -> Ask:
        """What the reader is asked: what it is asked of ours."""
        asked = self.question
        return answer.prompt(asked.text, self.row["text"], asked_on=asked.date, logprobs=True)

    def submit(self, reply: Reply) -> judge.Submission:
        """What the judges see."""
        asked = self.question
        return judge.Submission(asked.text, asked.answer, reply.text, asked.raw_type, asked.abstention)


def shown(folders: Sequence[Path], names: Iterable[str] = SYSTEMS) -> list[Shown]:
    """Every context in the folders, of the rivals in their order; of one that is there twice the first."""
    known = {(domain, q.id): q for domain in DOMAINS for q in questions_of(domain)}
    found: dict[tuple[str, str, str, int], Shown] = {}
    for name in names:
        for row in (row for folder in folders for row in read(folder / f"{name}.jsonl") if row["what"] == "context"):
            question = known.get((row["domain"], row["question_id"]))
            if question is not None:
                key = (name, row["domain"], row["question_id"], row["budget"])
                found.setdefault(key, Shown(row, question))
    return list(found.values())


def measure(cells: Sequence[Shown], chat: Chat, cache: ReplyCache, *, chunk: int = 512) -> list[dict[str, Any]]:
    """A row for every context that has a reply: who showed it, what it cost, and what the judges say."""
    asker = Asker(chat, cache, chunk=chunk, progress=_tell)
    asker.ask_all([cell.ask for cell in cells], READING, "read")
    replies = [asker.known[asker.key(cell.ask, READING)] for cell in cells]
    pairs = [(cell, reply) for cell, reply in zip(cells, replies, strict=True) if isinstance(reply, Reply)]
    asks = [judge.prompt(cell.submit(reply)) for cell, reply in pairs]
    asker.ask_all(asks, GRADING, "judge")
    found = [_verdict(asker, ask) for ask in asks]
    again = {place: _insist(asker, asks[place]) for place, each in enumerate(found) if each == UNREADABLE}
    asker.ask_all(again.values(), GRADING, "judge again")
    for place, ask in again.items():
        found[place] = _verdict(asker, ask)
    return [_row(cell, reply, verdict) for (cell, reply), verdict in zip(pairs, found, strict=True)]


def _row(cell: Shown, reply: Reply, verdict: float | str) -> dict[str, Any]:
    asked, given, submission = cell.question, cell.row, cell.submit(reply)
    scores = {f"judge_{name}": score(submission) for name, score in judge.DETERMINISTIC.items()}
    return {
        "system": given["system"], "domain": given["domain"], "question_id": asked.id,
        "conversation": asked.conversation, "kind": kind_of(asked), "twin": twin_of(asked), "budget": given["budget"],
        "context_tokens": given["tokens"], "abstained": float(answer.abstains(reply.text)),
        "reader_tokens": reply.prompt_tokens + reply.completion_tokens,
        **{name: given[name] for name in SPENT},
        "judge_llm": None if isinstance(verdict, str) else verdict, **scores,
    }  # fmt: skip


def histories(folders: Sequence[Path], names: Iterable[str] = SYSTEMS) -> list[dict[str, Any]]:
    """A row for every history that a rival took in, or failed on: what it cost, and why it failed."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name in names:
        for row in (row for folder in folders for row in read(folder / f"{name}.jsonl") if row["what"] == "history"):
            key = (name, row["domain"], row["conversation"])
            if key not in found or found[key]["error"]:
                keys = ("system", "domain", "conversation", *SPENT)
                found[key] = {each: row[each] for each in keys} | {
                    "error": kind_of_error(row["error"]), "turns": row.get("turns", 0),
                }  # fmt: skip
    return list(found.values())


def kind_of_error(error: str) -> str:
    """The kinds of errors that a message names, from the outermost in; what else it says may be somebody's words."""
    return "/".join(dict.fromkeys(_KIND.findall(error))) or ("error" if error else "")


def read_checks(folder: Path) -> dict[str, bool]:
    """System -> whether the check with the model found it to work, of those whose check came to an end."""
    path = folder / CHECKS
    found: dict[str, bool] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def write_checks(logs: Sequence[Path], folder: Path) -> None:
    """Add what the checks in these folders found to what is known."""
    made = [row for log in logs for path in sorted(log.glob("check-*.json")) for row in json.loads(path.read_text())]
    known = read_checks(folder) | {row["system"]: row["works"] for row in made}
    text = json.dumps({name: known[name] for name in SYSTEMS if name in known}, indent=1)
    (folder / CHECKS).write_text(text + "\n", encoding="utf-8")


Rows = Sequence[dict[str, Any]]


def merge(old: tuple[Rows, Rows], new: tuple[Rows, Rows]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Contexts and histories of both runs: of a history that both have the new, unless less of it came through."""
    old_cells, old_took, new_cells, new_took = map(_by_history, (*old, *new))
    order = {name: place for place, name in enumerate(SYSTEMS)}
    cells: list[dict[str, Any]] = []
    took: list[dict[str, Any]] = []
    for key in sorted(dict.fromkeys([*old_took, *new_took]), key=lambda key: order.get(key[0], len(order))):
        worse = key in old_took and (
            key not in new_took
            or len(new_cells.get(key, [])) < len(old_cells.get(key, []))
            or (new_took[key][0]["error"] and not old_took[key][0]["error"])
        )
        cells += (old_cells if worse else new_cells).get(key, [])
        took += (old_took if worse else new_took)[key]
    return cells, took


def _by_history(rows: Rows) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["system"], row["domain"], row["conversation"]), []).append(row)
    return found


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file; none where there is no file."""
    from pyarrow import parquet

    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist() if path.is_file() else []
    return rows


def write(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The rows as a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, compression="zstd")
    print(f"{path.name}: {len(rows):,} rows")


def _tell(stage: str, done: int, total: int) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {stage} {done} of {total}", flush=True)


def main() -> None:
    """Replies, or rows from them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="base URL, .gguf file or transformers folder of the reader")
    parser.add_argument("--model-name", help="its name at an endpoint")
    parser.add_argument("--contexts", type=Path, action="append", required=True, help="folders with contexts")
    parser.add_argument("--systems", help="names with commas; by default all that have contexts")
    parser.add_argument(
        "--replies", type=Path, action="append", default=[], help="folders of kept replies to start from"
    )
    parser.add_argument("--chunk", type=int, default=2048)
    parser.add_argument("--batch-tokens", type=int, default=1_000_000, help="of a transformers folder")
    parser.add_argument("--out", type=Path, help="where replies are kept and exported")
    parser.add_argument("--rows", type=Path, help="write rows there")
    parser.add_argument("--add", action="store_true", help="beside the rows that are there")
    parser.add_argument("--checks", type=Path, action="append", default=[], help="folders of check-*.json of the run")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    cache = ReplyCache(options.out / "replies.db" if options.out else ":memory:", max_bytes=1 << 36)
    for path in (path for folder in options.replies for path in sorted(folder.glob("*.replies.jsonl.gz"))):
        restore(path, cache)
    chat = open_model(options.model, options.model_name, MODEL, options.batch_tokens)
    names = options.systems.split(",") if options.systems else list(SYSTEMS)
    rows: list[dict[str, Any]] = []
    for name in names:
        noted = RecordingCache(cache)
        if cells := shown(options.contexts, [name]):
            try:
                made = measure(cells, chat, noted, chunk=options.chunk)
            finally:  # a run that is stopped keeps what it has
                if options.out:
                    noted.export(options.out / f"{name}.replies.jsonl.gz")
            rows += made
            print(f"{time.strftime('%H:%M:%S')} {name}: {len(made)} of {len(cells)}", flush=True)
    if options.rows:
        paths = options.rows / "rivals.parquet", options.rows / "rivals-histories.parquet"
        made_now = rows, histories(options.contexts, names)
        before = (read_rows(paths[0]), read_rows(paths[1])) if options.add else ([], [])
        for path, some in zip(paths, merge(before, made_now), strict=True):
            write(some, path)
        if options.checks:
            write_checks(options.checks, options.rows)


if __name__ == "__main__":
    main()
