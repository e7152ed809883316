"""The tables that bench.runs wrote, as the small files that the analyses read: ids, numbers, costs, no one's words.

    python -m bench.outcome_rows --runs out --out bench/results/rows

LongMemEval's questions trained the classifier of query types, so in the rows of its pool the guessed types are replaced
by the guesses of classifiers that did not see the question (`retcon.lab.querytype.out_of_fold`). A question that was
made from another gets the guess of that one: the classifier has seen all of its words but one.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.evaluation import ROWS, SEED
from bench.runs import RUNS, Run, questions
from retcon.features import TYPES
from retcon.lab.outcomes import Outcomes, from_rows, read, write
from retcon.lab.querytype import cue_matrix, out_of_fold

POOL = "longmemeval-pool"


def unseen_types(rows: Outcomes, run: Run) -> list[dict[str, Any]]:
    """The rows with the type probabilities of classifiers that were trained without their question."""
    asked = [question for _, question in questions(replace(run, data=POOL, ids=(), abstentions=False))]
    labels = np.array([TYPES.index(question.type) for question in asked])
    guessed = out_of_fold(cue_matrix([each.text for each in asked]), labels, np.arange(len(asked)), seed=SEED)
    of = {
        q.id: {f"p_{t}": float(p) for t, p in zip(TYPES, row, strict=True)}
        for q, row in zip(asked, guessed, strict=True)
    }
    return [row | of.get(row.get("twin") or row["question_id"], {}) for row in rows.rows()]


def main() -> None:
    """Every table that is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="where bench.runs wrote its tables")
    parser.add_argument("--out", type=Path, default=ROWS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for run in RUNS:
        for part in ("", "-gate"):
            table = options.runs / f"{run.name}{part}.csv"
            if not table.is_file():
                continue
            rows = read(table)
            pooled = run.data in (POOL, "longmemeval") and not run.abstentions
            kept = from_rows(unseen_types(rows, run)) if pooled else rows
            write(kept, options.out / f"{run.name}{part}.parquet")
            print(f"{run.name}{part}: {len(kept)} rows")


if __name__ == "__main__":
    main()
