"""What the retrieval knows of a question of the seven domains before anything is written, as a table of numbers.

    python -m bench.retrieval_features      needs the data; writes bench/results/rows/retrieval-features.parquet

The paper's eleven features are in the rows of the outcomes; these are counted from the candidates once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench.domains import DOMAINS, WAVES
from bench.evaluation import ROWS
from bench.extra_features import RICH, describe_cluster
from bench.runs import RUNS, questions
from retcon.lab.protocols import PROTOCOLS, cases

RETRIEVAL = RICH[:10]
TABLE = ROWS / "retrieval-features.parquet"


def count_features() -> pa.Table:
    """A row for each question of every wave."""
    names, ids, rows = [], [], []
    for run in (run for run in RUNS if run.name in {f"{name}-{wave}" for name in DOMAINS for wave in WAVES}):
        for case in cases((question for _, question in questions(run)), PROTOCOLS["product"]):
            names.append(run.data)
            ids.append(case.question.id)
            rows.append(describe_cluster(case.cluster)[: len(RETRIEVAL)])
        print(run.name, len(ids), flush=True)
    columns = {name: np.array(rows)[:, place].round(6) for place, name in enumerate(RETRIEVAL)}
    return pa.table({"domain": names, "question_id": ids, **columns})


@cache
def _known() -> dict[tuple[str, str], list[float]]:
    table = pq.read_table(TABLE).to_pylist()
    return {(row["domain"], row["question_id"]): [row[name] for name in RETRIEVAL] for row in table}


def read_features(domain: str, ids: Sequence[str]) -> NDArray[np.float64]:
    """[q, feature] of these questions."""
    return np.array([_known()[domain, each] for each in ids])


if __name__ == "__main__":
    pq.write_table(count_features(), TABLE)
