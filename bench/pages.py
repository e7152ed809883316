"""The report page of the runs in the paper's protocols, as it is kept in bench/results/report.

    python -m bench.pages --out bench/results/report
    python -m bench.pages --runs locomo-independent,locomo-independent-gate --out bench/results/report-independent

`retcon report` makes the same page from any table of outcomes, with figures, Markdown and rows beside it; here the rows
are in bench/results/rows already, so only the page and its tables are kept, with two of the judges.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from bench.evaluation import JUDGES, ROWS, rows_of
from retcon.lab.outcomes import JUDGE, Outcomes, from_rows
from retcon.lab.report.build import make_report, write_report

RUNS = (
    "longmemeval-controlled", "locomo-controlled", "longmemeval-small", "locomo-history", "pool-abstention",
    "locomo-abstention",
)  # fmt: skip
ABOUT = {"date": "2026-11-15", "commands": "python -m bench.runs, bench.rows, bench.pages"}
BESIDE, KEPT = "rows.csv beside this page", "bench/results/rows"
UNUSED = ("seconds", "prompted_tokens", "reader_tokens")


def joined(names: tuple[str, ...] = RUNS) -> Outcomes:
    """The rows of these runs in one table, with the verdicts of two judges."""
    judges = tuple(JUDGE + name for name in JUDGES)
    return from_rows(
        {name: value for name, value in row.items() if name not in UNUSED and _kept(name, judges)}
        for run in names
        for row in rows_of(run).rows()
    )


def _kept(name: str, judges: tuple[str, ...]) -> bool:
    return not name.startswith(JUDGE) or name in judges


def main() -> None:
    """Write the page and its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=",".join(RUNS), help="names of runs, with commas between them")
    parser.add_argument("--out", type=Path, default=ROWS.parent / "report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = write_report(make_report(joined(tuple(options.runs.split(","))), about=ABOUT), Path(folder)).folder
        options.out.mkdir(parents=True, exist_ok=True)
        page = (made / "report.html").read_text(encoding="utf-8")
        (options.out / "report.html").write_text(page.replace(BESIDE, KEPT), encoding="utf-8")
        shutil.copy(made / "summary.json", options.out)
        shutil.copytree(made / "tables", options.out / "tables", dirs_exist_ok=True)


if __name__ == "__main__":
    main()
