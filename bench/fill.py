"""How full the texts are: tokens of each action's text as a share of its budget, and who pays for dates and speakers.

    python -m bench.fill --out bench/results/fill.json

Rows: the four waves of the seven domains, where everything that is shown counts, and the controlled runs, where
retention pays for the text of turns alone while every other action pays for all that it shows. No verdict is read.
Beside the mean over all questions stands that over those whose notes do not all fit: where they do, there may be no
more to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import RESULTS, keep, out_parser
from bench.domains import DOMAINS, WAVES
from bench.evaluation import Array, round_numbers, rows_of
from retcon.lab.outcomes import Outcomes, from_rows

Mask = NDArray[np.bool_]

WHOLE_WAVES = WAVES  # those labelled in every domain
CONTROLLED = ("longmemeval-controlled", "locomo-controlled")


def fill(rows: Outcomes) -> dict[str, Any]:
    """Action -> for each budget the mean share that is filled: of all questions, where not all notes fit, and empty."""
    column = rows.columns
    share = column["context_tokens"] / column["budget"]
    return {
        action: {
            str(budget): _filled(share, column["fit"] < 1, (column["action"] == action) & (column["budget"] == budget))
            for budget in np.unique(column["budget"]).tolist()
        }
        for action in rows.actions
    }


def _filled(share: Array, tight: Mask, mine: Mask) -> dict[str, Any]:
    some, pressed = share[mine], share[mine & tight]
    return {
        "all": float(some.mean()), "pressed": float(pressed.mean()) if len(pressed) else None,
        "empty": float((some == 0).mean()), "n": len(some), "n_pressed": len(pressed),
    }  # fmt: skip


def domain_rows(name: str, waves: Sequence[str] = WHOLE_WAVES) -> Outcomes:
    """The rows of a domain over some waves."""
    return from_rows(row for wave in waves for row in rows_of(f"{name}-{wave}").rows())


def run() -> dict[str, Any]:
    """Every domain, and both controlled runs."""
    found: dict[str, Any] = round_numbers({
        "waves": list(WHOLE_WAVES), "domains": {name: fill(domain_rows(name)) for name in DOMAINS},
        "controlled": {name: fill(rows_of(name)) for name in CONTROLLED},
    })  # fmt: skip
    return found


def main() -> None:
    """Compute, keep."""
    keep(run(), out_parser(__doc__, RESULTS / "fill.json").parse_args().out)


if __name__ == "__main__":
    main()
