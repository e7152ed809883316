"""Tables in README and docs, written from bench/results: no figure there is typed by hand.

python -m bench.tables            rewrites every block between `<!-- table: NAME -->` and `<!-- end -->`
python -m bench.tables --check    says whether all of them are up to date
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench import ROOT
from bench.audit import TABLES as AUDIT
from bench.budgets import lost_summary, survival_table
from bench.certificate import table as certificate_table
from bench.deletes import table as deletes_table
from bench.doc_tables import tables as shown_tables
from bench.draft_check import TABLES as DRAFT_CHECK
from bench.extra_features import table as richer_table
from bench.fidelity import table as fidelity_table
from bench.finding.page import TABLES as FINDING
from bench.first_gate import table as gate_table
from bench.found import table as found_table
from bench.headline import tables as headline_tables
from bench.judge_tables import tables as judge_tables
from bench.ladder_forms import table as ladder_table
from bench.languages import table as languages_table
from bench.load import attacked_table, soak_table
from bench.load import table as load_table
from bench.operators import table as operator_table
from bench.pilot import tables as pilot_tables
from bench.reader_transfer import TABLES as READERS
from bench.retrieval import table as retrieval_table
from bench.rivals.features import TABLES as FEATURES
from bench.rivals.page import TABLES as RIVALS
from bench.rivals.speed.page import TABLES as RIVALS_SPEED
from bench.speed import paper, scale
from bench.speed.hybrid import table as hybrid_table
from bench.speed.page import section as speed_section
from bench.speed.page import table as speed_goals
from bench.stats import table as stats_table
from bench.tokens import TokenRow
from bench.tokens import table as token_table
from bench.travel_tables import TABLES as TRAVEL

RESULTS = ROOT / "bench" / "results"
_BLOCK = re.compile(r"(<!-- table: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _survival() -> str:
    """What Extract, Retain and plain truncation keep of the gold answers, with the product's own counter."""
    rows = [row for row in _results("extract") if row["counter"] == "estimate"]
    methods = {"retain, rank order": "whole notes (Retain)", "truncate": "truncation", "extract": "**Extract**"}
    budgets = sorted({row["budget"] for row in rows})
    lines = ["| | | " + " | ".join(f"{budget} tokens" for budget in budgets) + " |", "|---" * (2 + len(budgets)) + "|"]
    for setting in ("LongMemEval controlled", "LoCoMo full history"):
        here = [row for row in rows if row["setting"] == setting]
        for method, label in methods.items():
            cells = {row["budget"]: f"{row['survives']:.2f}" for row in here if row["method"] == method}
            about = f"{setting.split()[0]}, {here[0]['questions']:,} questions"
            lines.append(f"| {about} | {label} | " + " | ".join(cells[budget] for budget in budgets) + " |")
    return "\n".join(lines)


_COMMANDS = (
    'retcon add "I adopted a cat named Pixel." -u ann --id n1 --timestamp 2026-05-09',
    'retcon add "Pixel\'s first vet visit cost 84 euros. Any tips?" -u ann --id n2 --timestamp 2026-05-12',
    'retcon recall "How much did the vet cost?" -u ann --budget 22',
)


def _transcript() -> str:
    """A few commands with what they print, run for real."""
    lines = ["```console"]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"RETCON_DB": str(Path(folder) / "demo.db"), "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
        for command in _COMMANDS:
            run = [sys.executable, "-m", "retcon", *shlex.split(command)[1:]]
            done = subprocess.run(run, capture_output=True, text=True, check=True, env=os.environ | settings)
            lines += [f"$ {command}", done.stdout.rstrip()]
    return "\n".join([*lines, "```"])


PILOT = ("controlled", "history", "ladders", "rivals", "no-model", "features", "decide")


def _deep() -> str:
    """What the deep tests tried in full, from the counts that they kept."""
    faults, power, mutants, stores = (_results(f"deep-{name}") for name in ("faults", "power", "mutants", "stores"))
    told = sum(number for kind, number in mutants.items() if kind.endswith("told"))
    rows = [
        ("a write, sync or open fails, EIO, ENOSPC, once or for good", faults["tried"], "all or nothing, a clear line"),
        ("power is lost, and none, some or all of what was not synced", power["tried"], "all that was acknowledged"),
        ("a store file is mutated: bits, pages, its end", mutants["tried"], f"{told:,} told by a check, the rest true"),
        ("a call on SQLite, PostgreSQL and a plain model in memory", stores["operations"], "the same answers"),
    ]
    lines = ["| what happens | trials | what was left |", "|---|---:|---|"]
    return "\n".join([*lines, *(f"| {what} | {number:,} | {left} |" for what, number, left in rows)])


def _pilot(name: str) -> str:
    """One of the tables that are made from the pilot's outcomes."""
    return pilot_tables(_results("pilot"))[name]


def _made(tables: Mapping[str, Callable[[Any], str]], result: str) -> dict[str, Callable[[], str]]:
    """These tables of a result, each made when it is asked for."""

    def make(name: str) -> str:
        return tables[name](_results(result))

    return {name: partial(make, name) for name in tables}


def _scale(make: Callable[[Any], str], result: str = "stores") -> Callable[[], str]:
    """A table of docs/scale.md, or which command makes its result."""

    def made() -> str:
        if not (RESULTS / f"{result}.json").exists():
            return f"*Not measured yet: `python -m bench.speed.{result}`*"
        return make(_results(result))

    return made


def _scale_goals() -> str:
    stores, service = (_results(name) if (RESULTS / f"{name}.json").exists() else {} for name in ("stores", "service"))
    if not stores and not service:
        return "*Not measured yet: `python -m bench.speed.stores` and `python -m bench.speed.service`*"
    return scale.goals_table(stores, service)


TABLES: dict[str, Callable[[], str]] = {
    "scale-goals": _scale_goals,
    "scale-about": _scale(scale.about),
    "scale-stores": _scale(scale.stores_table),
    "scale-growth": _scale(scale.growth_table),
    "scale-service": _scale(scale.service_table, "service"),
    "scale-paper": _scale(paper.hundred_million_table),
    "scale-assumptions": paper.assumptions_table,
    "scale-internet": _scale(paper.internet_table),
    "retrieval": lambda: retrieval_table(_results("retrieval")),
    "tokens": lambda: token_table([TokenRow(**row) for row in _results("tokens")]),
    "extract": lambda: (RESULTS / "extract.md").read_text(encoding="utf-8").rstrip(),
    "budgets-lost": lambda: lost_summary(_results("budgets")),
    "budgets-survival": lambda: survival_table(_results("budgets")),
    "operators": lambda: operator_table(_results("operators")),
    "operators-cpu": lambda: operator_table(_results("operators-cpu")),
    "hybrid": lambda: hybrid_table(_results("hybrid")),
    "speed": lambda: speed_section(_results("speed")),
    "speed-goals": lambda: speed_goals(_results("speed")),
    "survival": _survival,
    "fidelity": lambda: fidelity_table(_results("fidelity")),
    "languages": lambda: languages_table(_results("languages")),
    "found": lambda: found_table(_results("found")),
    "ladder-forms": lambda: ladder_table(_results("ladder_forms")),
    "stats": lambda: stats_table(_results("stats")),
    "richer": lambda: richer_table(_results("extra_features")),
    "deep": _deep,
    "deletes": lambda: deletes_table(_results("deletes")),
    "load": lambda: load_table(_results("load")),
    "load-attacked": lambda: attacked_table(_results("load")),
    "load-soak": lambda: soak_table(_results("load")),
    "certificate": lambda: certificate_table(_results("certificate")),
    "transcript": _transcript,
    "gate": lambda: gate_table(_results("first_gate")),
    **{f"pilot-{name}": partial(_pilot, f"pilot-{name}") for name in PILOT},
    **_made(FINDING, "finding"),
    **_made(TRAVEL, "travel"),
    "domains-fresh": lambda: TRAVEL["domains-readme"](_results("travel_fresh")),
    **_made(DRAFT_CHECK, "draft_check"),
    **_made(READERS, "reader_transfer"),
    **_made(AUDIT, "audit"),
    **RIVALS,
    **FEATURES,
    **RIVALS_SPEED,
    **shown_tables(),
    **judge_tables(),
    **headline_tables(),
}


def pages() -> list[Path]:
    """Every page that may hold a table."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def rewritten(text: str) -> str:
    """The page with each block made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[4]}", text)


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 where a table is out of date")
    options = parser.parse_args()
    stale = []
    for page in pages():
        old = page.read_text(encoding="utf-8")
        if (new := rewritten(old)) != old:
            stale.append(page.name)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    print(f"{'out of date' if options.check else 'rewritten'}: {', '.join(stale) or 'nothing'}")
    sys.exit(1 if options.check and stale else 0)


if __name__ == "__main__":
    main()
