"""`retcon mechanism`: how coverage and replacement balance as the budget grows, as a table, as JSON, or drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError

if TYPE_CHECKING:
    from retcon.lab.mechanism import Sweep

EXAMPLES = (
    "retcon mechanism",
    "retcon mechanism --budgets 8,16,32,64,128 --evict",
    "retcon mechanism --out mechanism.svg --json",
)
FORMATS = ("svg", "png")
DEFAULT = "16,32,64,128,256,512"  # the budgets of retcon.lab.mechanism, which is not loaded before it is needed
MOST = 64  # budgets in one table
PER_OCTAVE = 24  # steps between a budget and its double: what is drawn, and where crossovers are looked for


def mechanism(
    *,
    budgets: Annotated[str, option("--budgets", "N,N,...", "Budgets in tokens.")] = DEFAULT,
    evict: Annotated[bool, flag("--evict", "Raw notes leave: what the record does not hold is lost.")] = False,
    out: Annotated[str | None, option("--out", "FILE", "Draw it into this .svg or .png file.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show why tight budgets favour records, and loose ones raw notes.

    A model over made-up notes and queries, nothing measured: what a record adds where no raw note fits (coverage),
    what it costs where one does (replacement), their sum, and the action that gains most.
    """
    from retcon.lab.mechanism import example, sweep
    from retcon.lab.mechanism_plot import draw

    each = _read_budgets(budgets)
    kind = None if out is None else _format(out, each)
    population = example()
    found = sweep(population, each, evict=evict)
    fine = sweep(population, _refine(each), evict=evict)
    if out is not None and kind is not None:
        Path(out).write_bytes(draw(fine, marks=each, kind=kind))
    if as_json:
        return show.document(_document(found, fine) | {"evict": evict, "out": out})
    _table(found, evict=evict)
    show.out()
    for name in found.operators:
        show.fold(f"{name}: {_name_turns(fine, name)}")
    return None if out is None else show.out(f"drawn in {out}")


def _read_budgets(given: str) -> tuple[int, ...]:
    try:
        each = sorted({int(part) for part in given.split(",")})
    except ValueError:
        raise InputError(f"--budgets takes whole numbers with commas between them, not {given[:80]!r}") from None
    if each[0] < 1 or each[-1] > 1 << 20 or len(each) > MOST:
        raise InputError(f"--budgets takes up to {MOST} numbers from 1 to {1 << 20:,}, not {given[:80]!r}")
    return tuple(each)


def _refine(budgets: Sequence[int]) -> tuple[int, ...]:
    """The budgets, with steps between them that look even on a log2 axis."""
    import numpy as np

    low, high = budgets[0], budgets[-1]
    steps = np.geomspace(low, high, max(2, round(np.log2(high / low) * PER_OCTAVE)) + 1).round().astype(int)
    return tuple(sorted({*budgets, *steps.tolist()}))


def _format(out: str, budgets: Sequence[int]) -> str:
    if len(budgets) < 2:
        raise InputError("--out needs two budgets or more to draw between")
    kind = Path(out).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InputError(f"--out takes a name that ends in .svg or .png, not {out[:80]!r}")
    return kind


# -- told --------------------------------------------------------------------------------------------------------------


def _table(found: Sweep, *, evict: bool) -> None:
    spill = (">spillover",) if evict else ()
    columns = (">budget", ">raw fits", "operator", ">coverage", ">replacement", *spill, ">gain", "action")
    show.table(_rows(found, evict=evict), *columns)


def _rows(found: Sweep, *, evict: bool) -> Iterator[tuple[str, ...]]:
    effects = [found.coverage, found.replacement, *([found.spillover] if evict else []), found.gain]
    for b, (budget, action) in enumerate(zip(found.budgets, found.actions, strict=True)):
        for o, name in enumerate(found.operators):
            first = (str(budget), f"{found.grounded[b]:.0%}") if o == 0 else ("", "")
            yield (*first, name, *(_sign(effect[b, o]) for effect in effects), action if o == 0 else "")


def _sign(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # + 0.0: no minus before a zero


def _name_turns(fine: Sweep, name: str) -> str:
    """Where an operator's gain turns, in words."""
    gain, turns = fine.gain[:, fine.operators.index(name)], fine.crossings(name)
    if not turns:
        return "gains at every budget here" if gain[0] > 0 else "gains at no budget here"
    where = ", ".join(f"{'back ' if i % 2 else ''}at {turn:.0f}" for i, turn in enumerate(turns))
    return f"{'gain turns to loss' if gain[0] > 0 else 'loss turns to gain'} {where} tokens"


def _document(found: Sweep, fine: Sweep) -> dict[str, Any]:
    return {
        "budgets": list(found.budgets),
        "grounded": found.grounded.tolist(),
        "actions": list(found.actions),
        "operators": {
            name: {
                "coverage": found.coverage[:, o].tolist(),
                "replacement": found.replacement[:, o].tolist(),
                "spillover": found.spillover[:, o].tolist(),
                "gain": found.gain[:, o].tolist(),
                "crossovers": list(fine.crossings(name)),
            }
            for o, name in enumerate(found.operators)
        },
    }
