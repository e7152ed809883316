"""How much of what a question needs is found: ours and rivals, on all domains, in one run. No model writes or reads.

    python -m bench.finding [--limit N] [--only DOMAIN ...] [--vectors FOLDER] [--jobs N] [--out PATH]

`bench/finding/__init__.py` says what is scored, `nested.py` how settings are chosen for a domain by the others. A
domain is one of the seven, or a file of your own questions (docs/datasets.md). MiniLM's vectors are kept in a folder;
what is missing there is embedded first where sentence-transformers is installed, else the rows of MiniLM are left out.

LoCoMo has been looked at since the first version, so its figures are no test. timelineqa chooses nothing. What the code
of 9b954fe finds is measured in the same run, from the history of this repository.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from bench import RESULTS, keep, out_parser
from bench.budgets import BUDGETS, domains
from bench.finding import compare, older
from bench.finding.finders import list_settings, make_finder, measure_settings, open_vectors
from bench.finding.nested import NEVER_CHOOSES, choose
from bench.finding.page import TABLES
from bench.finding.rivals import embedded_text
from bench.finding.scoring import DEPTHS, Columns, at, describe, group, measure, read_column
from bench.finding.vectors import MissingVectorsError
from retcon.lab.data import datasets
from retcon.lab.data.question import BenchmarkQuestion, answerable
from retcon.passages import split

VECTORS = RESULTS.parent / "vectors"
FINDERS = (compare.OURS, older.COMMIT, *compare.LEXICAL)
WITH_VECTORS = (compare.JOINED, *compare.DENSE)


@dataclass(frozen=True, slots=True)
class Plan:
    """What all tasks of a run share."""

    limit: int | None
    vectors: Path
    older: Path | None


@dataclass(frozen=True, slots=True)
class Task:
    """One finder, or the settings of one of ours, on one domain."""

    plan: Plan
    domain: str
    name: str
    settings: bool = False


@lru_cache(maxsize=1)
def load_domain(name: str, limit: int | None) -> Sequence[BenchmarkQuestion]:
    """So many answerable questions of the domain, spread over all of it."""
    found = answerable(domains()[name]() if name in domains() else datasets.load(name).questions)
    return found[:: max(1, -(-len(found) // limit)) if limit else 1]


def work(task: Task) -> list[Columns] | str:
    """The columns of the finder, or of each setting; a line where vectors are missing."""
    plan, questions = task.plan, load_domain(task.domain, task.plan.limit)
    try:
        if task.settings:
            return measure_settings(questions, task.name, plan.vectors)
        make = lambda notes: make_finder(task.name, notes, vectors=plan.vectors, older=plan.older)  # noqa: E731
        return [measure(questions, make)]
    except MissingVectorsError as error:
        return str(error)


def run(names: Sequence[str], plan: Plan, jobs: int) -> dict[str, Any]:
    """All scores, differences and choices."""
    left_out = [] if plan.older else [f"{older.COMMIT}: its code is not in the history at hand"]
    have = [name for name in FINDERS if plan.older or name != older.COMMIT]
    kinds = [compare.OURS]
    if missing := embed_all(names, plan):
        left_out.append(f"all rows of MiniLM: {missing}")
    else:
        have += WITH_VECTORS
        kinds.append(compare.JOINED)
    tasks = [Task(plan, domain, name) for domain in names for name in have]
    tasks += [Task(plan, domain, kind, settings=True) for domain in names for kind in kinds]
    done = dict(zip(tasks, _spread(tasks, jobs), strict=True))
    left_out += sorted(
        {f"{task.name} on {task.domain}: {found}" for task, found in done.items() if isinstance(found, str)}
    )
    found = {task: columns for task, columns in done.items() if not isinstance(columns, str)}
    return gather(names, plan, have, kinds, found) | {"left_out": left_out}


def embed_all(names: Iterable[str], plan: Plan) -> str:
    """Nothing, once every note, passage and question has its vector; else why not."""
    vectors = open_vectors(plan.vectors)
    try:
        vectors.embed((text for name in names for text in list_texts(load_domain(name, plan.limit))), progress=True)
    except MissingVectorsError as error:
        return str(error)
    return ""


def list_texts(questions: Sequence[BenchmarkQuestion]) -> Iterator[str]:
    """All that is embedded of a domain."""
    for asked in group(questions):
        yield from (question.text for question in asked)
        for note in asked[0].history:
            yield embedded_text(note, note.text)
            yield from (embedded_text(note, note.text[slice(*span)]) for span in split(note.text))


def _spread(tasks: Sequence[Task], jobs: int) -> Iterator[list[Columns] | str]:
    """What each task gives, in order, over some processes."""
    with ExitStack() as stack:
        spread = map if jobs == 1 else stack.enter_context(ProcessPoolExecutor(jobs)).map
        yield from track(spread(work, tasks), "measuring", total=len(tasks), console=Console(stderr=True))


def gather(
    names: Sequence[str], plan: Plan, have: Sequence[str], kinds: Sequence[str], found: Mapping[Task, list[Columns]]
) -> dict[str, Any]:
    """What the tasks gave, as one result."""
    result: dict[str, Any] = {"depths": DEPTHS, "budgets": BUDGETS, "older": older.COMMIT, "settings": {}}
    result["domains"] = {
        Path(name).stem: describe(load_domain(name, plan.limit))
        | {"finders": {each: found[task][0] for each in have if (task := Task(plan, name, each)) in found}}
        for name in names
    }
    for kind in kinds:
        by_setting = {Path(name).stem: found.get(Task(plan, name, kind, settings=True)) for name in names}
        nest(result, kind, {name: columns for name, columns in by_setting.items() if columns is not None})
    result["differences"] = {name: compare.differ(domain) for name, domain in result["domains"].items()}
    return result | {"below": compare.find_below(result["differences"])}


def nest(result: dict[str, Any], kind: str, by_setting: Mapping[str, Sequence[Columns]]) -> None:
    """Add the means of every setting, the choice for each domain, and its columns as a finder of its own."""
    settings = list_settings(kind)
    means = {
        name: [float(read_column(at(20), each[at(20)], result["domains"][name]["gold"]).mean()) for each in columns]
        for name, columns in by_setting.items()
    }
    choosing = [name for name in means if name != NEVER_CHOOSES]
    study: dict[str, Any] = {"names": [each.name for each in settings], "choosing": choosing, "chosen": {}}
    result["settings"][kind] = study | {"means": {n: [round(each, 4) for each in row] for n, row in means.items()}}
    if len(choosing) < 3:
        return
    for name in means:
        choice = choose(means, [each.count_steps() for each in settings], name)
        study["chosen"][name] = {"setting": choice.setting, "margin": choice.margin}
        finders = result["domains"][name]["finders"]
        finders[kind + compare.NESTED] = by_setting[name][choice.setting]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, keep."""
    parser = out_parser(__doc__)
    parser.add_argument("--limit", type=int, help="questions a domain, spread over all of them")
    parser.add_argument(
        "--only", metavar="DOMAIN", nargs="+", help="these domains alone, or files of your own questions"
    )
    parser.add_argument("--vectors", type=Path, default=VECTORS, help="folder that keeps MiniLM's vectors")
    parser.add_argument("--jobs", type=int, default=2, help="processes that measure at a time")
    args = parser.parse_args(argv)
    names = args.only or list(domains())
    if unknown := [name for name in names if name not in domains() and not Path(name).is_file()]:
        parser.error(f"no domain and no file: {', '.join(unknown)}; domains are {', '.join(domains())}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) if older.unpack(Path(folder)) else None
        result = run(names, Plan(args.limit, args.vectors, code), args.jobs)
    result["seconds"] = round(time.perf_counter() - started)
    keep(result, args.out)
    print(*(f"{name}\n\n{make(result)}\n" for name, make in TABLES.items()), *result["left_out"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
