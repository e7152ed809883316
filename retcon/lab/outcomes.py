"""A file or rows -> Outcomes -> Panel: what was measured offline, checked, then as dense arrays.

`Outcomes` has a row for each question, budget, action and realization; on disk it is CSV, or Parquet with the extra
`lab`. It is a dict of NumPy columns: no data frame is needed, so that labelling writes CSV where pyarrow is missing.
`Panel` is [question, budget, action], which all learning code works on. Columns:

    dataset setting question_id conversation type budget action realization pair fold
    notes cluster_tokens sessions fit inconsistency similarity p_<type>        what is known before generation
    abstained logprob unsupported    what came out
    signal_<name>       what speaks for the reply (`retcon.confidence`); empty where the reader abstained
    trait_<name>        what the text shows, by the names of `retcon.drafts.TRAITS`
    context_tokens generated_tokens prompted_tokens model_calls reader_tokens seconds    what it cost
    judge_<name>        utility in [0, 1] by each judge
    model reader grader retriever counter embedder renderer prompts ...        how it was made

Needed are question_id, budget, action and one judge. A retention row whose `pair` names an action is that action's own
counterpart: gains use it, joint tables the mean of all retentions. Other columns are carried along.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.confidence import SIGNALS
from retcon.drafts import HOLDS, TRAITS
from retcon.errors import InputError, MissingExtraError, quote
from retcon.features import BUDGET_UNIT, TYPES
from retcon.note import RETAIN

Array = NDArray[np.float64]
Column = NDArray[Any]

JUDGE, SIGNAL, TRAIT = "judge_", "signal_", "trait_"
KEY = ("dataset", "setting", "question_id", "budget", "action", "realization", "pair", "model", "reader")
TEXT = ("dataset", "setting", "question_id", "conversation", "type", "action", "pair", "fold")
WHOLE = ("budget", "realization")
KNOWN_BEFORE = (
    "notes", "cluster_tokens", "sessions", "fit", "inconsistency", "similarity", *(f"p_{name}" for name in TYPES),
)  # fmt: skip
COSTS = ("context_tokens", "generated_tokens", "prompted_tokens", "model_calls", "reader_tokens", "seconds")
NUMBERS = (*KNOWN_BEFORE, *COSTS, "abstained", "logprob", "unsupported", *(TRAIT + name for name in (*TRAITS, HOLDS)))
# The names benchmarks give their types; LoCoMo's open questions (cat3) have no counterpart and go with multi-session.
TYPE_OF = {"cat1": 1, "cat2": 2, "cat3": 1, "cat4": 0}
_DEFAULT = {
    "dataset": "", "setting": "", "type": "", "pair": "", "fold": "", "model": "", "reader": "", "realization": 0,
}  # fmt: skip
_SPECIAL = re.compile('[,"\r\n]')
_MOST = 1 << 53  # whole numbers past it are not exact
_SAME = 1e-6  # features closer than this differ by rounding only


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A checked table of columns, all of one length."""

    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.columns["question_id"])

    @property
    def judges(self) -> tuple[str, ...]:
        """The names of the judges whose verdicts the rows carry."""
        return tuple(name.removeprefix(JUDGE) for name in self.columns if name.startswith(JUDGE))

    @property
    def actions(self) -> tuple[str, ...]:
        """Every action in the table, retain first, the others by name."""
        return _order_actions(set(self.columns["action"].tolist()))

    def where(self, **only: object) -> Outcomes:
        """The rows whose columns have these values: `where(setting="controlled")`; a None is no condition."""
        keep = np.ones(len(self), bool)
        if unknown := [name for name in only if name not in self.columns]:
            raise InputError(f"no column {unknown[0]}; there are {', '.join(self.columns)}")
        for name, value in only.items():
            if value is not None:
                wanted: Any = list(value) if isinstance(value, (list, tuple, set)) else [value]
                keep &= np.isin(self.columns[name], wanted)
        return Outcomes({name: column[keep] for name, column in self.columns.items()})

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows as plain values."""
        names, lists = list(self.columns), [column.tolist() for column in self.columns.values()]
        return (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))


def read(path: str | PathLike[str]) -> Outcomes:
    """The outcomes in a .csv or .parquet file."""
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"outcomes are a .csv or .parquet file, not {path.name!r}")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        columns = _parse_csv(raw) if path.suffix.lower() == ".csv" else _parse_parquet(raw)
        return check_columns(columns)
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None


def write(outcomes: Outcomes, path: str | PathLike[str]) -> None:
    """Write a .csv or .parquet file; the same outcomes give the same bytes."""
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"outcomes are written as .csv or .parquet, not {path.name!r}")
    try:
        path.write_bytes(_to_csv(outcomes).encode() if path.suffix.lower() == ".csv" else _to_parquet(outcomes))
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def from_rows(rows: Iterable[Mapping[str, Any]]) -> Outcomes:
    """The checked table of these rows; a key that a row lacks, or has as None, is missing there."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return check_columns({name: [row.get(name) for row in rows] for name in names})


def check_columns(columns: Mapping[str, Sequence[Any]]) -> Outcomes:
    """The table with every column in its type; an InputError names the first row that cannot be."""
    if not columns or not len(next(iter(columns.values()))):
        raise InputError("there are no outcomes")
    if missing := [name for name in ("question_id", "budget", "action") if name not in columns]:
        raise InputError(f"no column {', '.join(missing)}; there are {', '.join(list(columns)[:12])}")
    size = len(columns["question_id"])
    if odd := [name for name, values in columns.items() if len(values) != size]:
        raise InputError(f"{len(columns[odd[0]])} values of {odd[0]} and {size} of question_id")
    typed = {name: _convert(name, values) for name, values in columns.items()}
    for name, value in _DEFAULT.items():
        typed.setdefault(name, np.full(size, value, dtype=object if isinstance(value, str) else np.int64))
    conversations = typed.setdefault("conversation", typed["question_id"].copy())
    typed["conversation"] = np.where(conversations == "", typed["question_id"], conversations)
    table = Outcomes(typed)
    if not table.judges:
        raise InputError(f"no utility: a column named {JUDGE}<name> is needed")
    for fault in _faults(table):
        raise InputError(fault)
    return table


def type_index(raw: str) -> int:
    """The place in TYPES of a benchmark's type, -1 where it has none."""
    name = raw.replace("-", "_")
    for place, known in enumerate(TYPES):
        if name.startswith((known, known.split("_")[0])):
            return place
    return TYPE_OF.get(name, -1)


# -- dense arrays ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """Outcomes of one dataset and setting as dense arrays: q questions, b budgets, a actions, r realizations.

    Questions stand in an order that their content gives, not their names nor the order of rows, so that neither
    changes a fold, a draw or a result. `utility` is the mean over realizations (retention: over all its runs).
    """

    questions: tuple[str, ...]
    conversations: tuple[str, ...]
    types: NDArray[np.int64]  # [q], the place in TYPES or -1
    budgets: tuple[int, ...]
    actions: tuple[str, ...]  # retain first, the others by name
    features: tuple[str, ...]
    x: Array  # [q, b, feature]
    runs: Array  # [q, b, a, r], NaN where a realization is missing
    retained: Array  # [q, b, a, r], the retention that belongs to each run
    retentions: Array  # [q, b], the mean of all retentions
    abstained: Array | None  # [q, b, a, r]
    judge: str  # whose verdicts the utilities are
    tokens: Mapping[str, Array]  # of COSTS: [q, b, a]; only the columns that the table has
    logprob: Array | None = None  # [q, b, a, r]
    signals: Array | None = None  # [q, b, a, r, signal], those of `SIGNALS`; NaN where the reader abstained
    dataset: str = ""

    @cached_property
    def utility(self) -> Array:
        """[q, b, a], the mean over realizations."""
        mean = run_mean(self.runs)
        mean[:, :, 0] = self.retentions
        return mean

    @property
    def fit(self) -> Array:
        """[q, b], the share of candidate notes that retention packs."""
        if "fit" not in self.features:
            raise InputError("the outcomes have no column 'fit'")
        return self.x[:, :, self.features.index("fit")]

    def take(self, index: NDArray[np.int64]) -> Panel:
        """The same arrays for these questions alone."""
        part = {name: getattr(self, name) for name in ("types", "x", "runs", "retained", "retentions")}
        return replace(
            self,
            questions=tuple(self.questions[i] for i in index),
            conversations=tuple(self.conversations[i] for i in index),
            abstained=None if self.abstained is None else self.abstained[index],
            logprob=None if self.logprob is None else self.logprob[index],
            signals=None if self.signals is None else self.signals[index],
            tokens={name: values[index] for name, values in self.tokens.items()},
            **{name: values[index] for name, values in part.items()},
        )

    def without_outcomes(self) -> Panel:
        """What a policy may see of questions it is tested on: everything known before generation, no outcome."""
        return replace(
            self,
            runs=np.full_like(self.runs, np.nan),
            retained=np.full_like(self.retained, np.nan),
            retentions=np.full_like(self.retentions, np.nan),
            abstained=None,
            logprob=None,
            signals=None,
            tokens={},
        )

    def with_types(self, probabilities: Array) -> Panel:
        """The panel with these type probabilities [q, 4] in place of the types themselves."""
        x = self.x.copy()
        for place, name in enumerate(TYPES):
            x[:, :, self.features.index(name)] = probabilities[:, None, place]
        return replace(self, x=x)

    def with_features(self, names: Sequence[str]) -> Panel:
        """The panel with these features alone, for a router that shall look at no others."""
        if missing := [name for name in names if name not in self.features]:
            raise InputError(f"the outcomes have no feature {missing[0]!r}; they have {', '.join(self.features)}")
        if not names:
            raise InputError("a router needs a feature to look at")
        return replace(self, features=tuple(names), x=self.x[:, :, [self.features.index(name) for name in names]])


def run_mean(runs: Array) -> Array:
    """The mean over the last axis of what is there; NaN where nothing is."""
    there = ~np.isnan(runs)
    sums: Array = np.where(there, runs, 0.0).sum(axis=-1)
    return np.where(there.any(axis=-1), sums / np.maximum(there.sum(axis=-1), 1), np.nan)


def panel(
    outcomes: Outcomes, *, actions: Sequence[str] | None = None, judge: str | None = None,
    budgets: Sequence[int] | None = None,
) -> Panel:  # fmt: skip
    """The dense arrays of one dataset and setting. Every question needs every action at every budget.

    Budgets default to those at which each of the actions was measured at all. A blank model or reader is no other one.
    """
    if not len(outcomes):
        raise InputError("there are no outcomes of that kind")
    judge = _choose_judge(outcomes, judge)
    for name in ("dataset", "setting", "model", "reader"):
        blank = {""} if name in ("model", "reader") else set()  # where nothing was written, no model need be named
        found = sorted(set(outcomes.columns[name].tolist()) - blank)
        if len(found) > 1:
            raise InputError(f"the rows are of several {name}s ({', '.join(found)}): choose one with {name}=")
    chosen = _order_actions(set(actions) if actions is not None else set(outcomes.actions))
    if RETAIN not in chosen:
        raise InputError(f"the actions must include retain: {', '.join(chosen)}")
    if unknown := [name for name in chosen if name not in outcomes.actions]:
        raise InputError(f"no outcomes of {', '.join(unknown)}; there are {', '.join(outcomes.actions)}")
    at = outcomes.where(action=list(chosen), budget=_choose_budgets(outcomes, chosen, budgets))
    return _PanelBuilder(at, chosen, JUDGE + judge).build()


class _PanelBuilder:
    """Fills the arrays of a panel from the rows of one dataset and setting."""

    def __init__(self, table: Outcomes, actions: tuple[str, ...], judge: str) -> None:
        self.table, self.actions, self.judge = table, actions, judge
        column = table.columns
        names, self.q = np.unique(column["question_id"], return_inverse=True)
        budgets, self.b = np.unique(column["budget"], return_inverse=True)
        self.a = np.array([actions.index(name) for name in column["action"].tolist()])
        self.r = np.unique(column["realization"], return_inverse=True)[1]
        self.names, self.budgets = names.tolist(), tuple(budgets.tolist())
        self.shape = (len(self.names), len(self.budgets), len(actions), int(self.r.max()) + 1)

    def build(self) -> Panel:
        values = self.table.columns[self.judge]
        own = self._own_rows()
        runs = self._runs(values, own)
        self._check_complete(runs)
        features, x = self._features()
        complete = self._complete_columns()
        made = Panel(
            questions=tuple(self.names), conversations=tuple(self._per_question("conversation")),
            types=np.array([type_index(raw) for raw in self._per_question("type")]), budgets=self.budgets,
            actions=self.actions, features=features, x=x, runs=runs, retained=self._retained_runs(values, runs),
            retentions=self._retentions(values), judge=self.judge.removeprefix(JUDGE),
            abstained=self._runs(complete["abstained"], own) if "abstained" in complete else None,
            logprob=self._runs(complete["logprob"], own) if "logprob" in complete else None,
            signals=self._signals(own),
            tokens={name: run_mean(self._runs(complete[name], own)) for name in COSTS if name in complete},
            dataset=self.table.columns["dataset"][0],
        )  # fmt: skip
        return made.take(_by_content(made))

    def _own_rows(self) -> NDArray[np.intp]:
        """One row a cell and realization: of several retentions the one without a pair, else the first pair's."""
        own: dict[tuple[int, ...], int] = {}
        pairs, seen = self.table.columns["pair"].tolist(), set()
        for row, (cell, pair) in enumerate(zip(self._cells(), pairs, strict=True)):
            if (cell, pair) in seen:
                q, b, a, _ = cell
                raise InputError(
                    f"two outcomes, with and without a model's name: {self._cell(q, b)} under {self.actions[a]}"
                )
            seen.add((cell, pair))
            if cell not in own or pair < pairs[own[cell]]:
                own[cell] = row
        return np.array(list(own.values()), np.intp)

    def _cells(self) -> Iterator[tuple[int, ...]]:
        return zip(self.q.tolist(), self.b.tolist(), self.a.tolist(), self.r.tolist(), strict=True)

    def _runs(self, values: Column, own: NDArray[np.intp]) -> Array:
        out = np.full(self.shape, np.nan)
        out[self.q[own], self.b[own], self.a[own], self.r[own]] = values[own]
        return out

    def _signals(self, own: NDArray[np.intp]) -> Array | None:
        """[q, b, a, r, signal]; None where the table lacks a signal, or has none of any reply."""
        columns = [self.table.columns.get(SIGNAL + name) for name in SIGNALS]
        known = [values for values in columns if values is not None and not np.isnan(values).all()]
        return np.stack([self._runs(values, own) for values in known], axis=-1) if len(known) == len(columns) else None

    def _complete_columns(self) -> dict[str, Column]:
        """The columns of numbers that every row has."""
        given = {name: self.table.columns[name] for name in NUMBERS if name in self.table.columns}
        return {name: values for name, values in given.items() if not np.isnan(values).any()}

    def _retentions(self, values: Column) -> Array:
        sums, counts = np.zeros((2, *self.shape[:2]))
        mine = (self.a == 0) & ~np.isnan(values)
        np.add.at(sums, (self.q[mine], self.b[mine]), values[mine])
        np.add.at(counts, (self.q[mine], self.b[mine]), 1)
        return sums / counts

    def _retained_runs(self, values: Column, runs: Array) -> Array:
        """Each action's own retention runs; where an action has none of its own, the plain ones."""
        out = np.repeat(runs[:, :, :1], self.shape[2], axis=2)
        pair, place = self.table.columns["pair"], {name: i for i, name in enumerate(self.actions)}
        for row in np.flatnonzero((self.a == 0) & (pair != "")):
            if pair[row] in place:
                out[self.q[row], self.b[row], place[pair[row]], self.r[row]] = values[row]
        return np.where(np.isnan(runs), np.nan, out)

    def _check_complete(self, runs: Array) -> None:
        gaps = np.argwhere(np.isnan(runs).all(axis=3))
        if len(gaps):
            q, b, a = gaps[0]
            raise InputError(f"{len(gaps)} outcomes are missing, the first: {self._cell(q, b)} under {self.actions[a]}")

    def _per_question(self, name: str) -> list[str]:
        out = [""] * len(self.names)
        for q, value in zip(self.q.tolist(), self.table.columns[name].tolist(), strict=True):
            out[q] = value
        return out

    def _features(self) -> tuple[tuple[str, ...], Array]:
        """Names and values [q, b, feature], from the retention rows; a column that the table lacks is left out."""
        shape = self.shape[:2]
        seen = {name: values for name in KNOWN_BEFORE if (values := self._feature(name)) is not None}
        budgets = np.broadcast_to(np.array(self.budgets, np.float64), shape)
        made = {"budget": budgets / BUDGET_UNIT}
        made |= {name: seen[name] for name in ("notes",) if name in seen}
        if "cluster_tokens" in seen:
            made["pressure"] = seen["cluster_tokens"] / np.maximum(budgets, 1)
        made |= {name: seen[name] for name in ("fit", "sessions", "inconsistency", "similarity") if name in seen}
        types = np.array([type_index(raw) for raw in self._per_question("type")])
        for place, name in enumerate(TYPES):
            hot = np.broadcast_to((types == place).astype(np.float64)[:, None], shape)
            made[name] = seen.get(f"p_{name}", hot)
        return tuple(made), np.stack(list(made.values()), axis=2)

    def _feature(self, name: str) -> Array | None:
        """[q, b] of a column, None where no retention has it. All retentions of a cell must say the same."""
        mine = np.flatnonzero(self.a == 0)
        values = self.table.columns.get(name, np.full(len(self.a), np.nan))[mine]
        if np.isnan(values).all():
            return None
        low, high = np.full(self.shape[:2], np.inf), np.full(self.shape[:2], -np.inf)
        np.minimum.at(low, (self.q[mine], self.b[mine]), values)  # a NaN stays one
        np.maximum.at(high, (self.q[mine], self.b[mine]), values)
        if len(gaps := np.argwhere(np.isnan(high))):
            raise InputError(f"{name} is known for some questions and not for {self._cell(*gaps[0])}")
        if len(odd := np.argwhere(high - low > _SAME * np.maximum(np.abs(high), 1))):
            q, b = odd[0]
            raise InputError(f"{name} is {low[q, b]:g} and {high[q, b]:g} for {self._cell(q, b)}")
        return high

    def _cell(self, q: int, b: int) -> str:
        return f"{self.names[q]} at {self.budgets[b]} tokens"


def _by_content(made: Panel) -> NDArray[np.int64]:
    """The order of questions by what is known of them, features first; of alike ones, by what their conversations hold.

    Questions that are alike in that too may change places without changing anything.
    """
    kept = (made.abstained, made.logprob, made.signals, *made.tokens.values())
    flat = [made.x, made.types, made.utility, made.runs, made.retained, *(part for part in kept if part is not None)]
    keys = np.concatenate([part.reshape(len(made.questions), -1) for part in flat], axis=1)
    keys = np.where(np.isnan(keys), -np.inf, keys)
    order = np.lexsort(keys.T[::-1])
    new = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    rank = np.zeros(len(order), np.int64)
    rank[order[1:]] = np.cumsum(new)
    held: dict[str, list[int]] = {}
    for name, place in zip(made.conversations, rank.tolist(), strict=True):
        held.setdefault(name, []).append(place)
    kinds = {kind: place for place, kind in enumerate(sorted({tuple(sorted(held[name])) for name in held}))}
    talk = np.array([kinds[tuple(sorted(held[name]))] for name in made.conversations])
    return np.lexsort((talk, rank))


# -- reading and checking ----------------------------------------------------------------------------------------------


def _parse_csv(raw: bytes) -> dict[str, list[str]]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: byte 0x{raw[error.start]:02x} at {error.start}") from None
    try:
        head, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[]]
    except csv.Error as error:
        raise InputError(f"not CSV: {error}") from None
    if len(set(head)) < len(head):
        raise InputError(f"a column stands twice: {', '.join(sorted({name for name in head if head.count(name) > 1}))}")
    for number, row in enumerate(rows, 1):
        if len(row) != len(head):
            raise InputError(f"row {number} has {len(row)} cells, the head has {len(head)}")
    return {name: list(column) for name, column in zip(head, zip(*rows, strict=True), strict=True)} if rows else {}


def _parse_parquet(raw: bytes) -> dict[str, list[Any]]:
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(pyarrow.BufferReader(raw))
        return {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(f"not Parquet: {' '.join(str(error).split())[:200]}") from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("Parquet files", "lab") from None
    return pyarrow, pyarrow.parquet


def _to_csv(outcomes: Outcomes) -> str:
    rows = ([_cell(value) for value in row.values()] for row in outcomes.rows())
    return "".join(",".join(map(_quote, row)) + "\n" for row in ([*outcomes.columns], *rows))


def _quote(cell: str) -> str:
    # csv.writer leaves a lone carriage return bare, and csv.reader then ends the row there
    return '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell


def _to_parquet(outcomes: Outcomes) -> bytes:
    pyarrow, parquet = _pyarrow()
    out = io.BytesIO()
    table = pyarrow.table({name: column.tolist() for name, column in outcomes.columns.items()})
    parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _convert(name: str, values: Sequence[Any]) -> Column:
    if name in WHOLE:
        return np.array([_whole(name, number, value) for number, value in enumerate(values, 1)], np.int64)
    if name in NUMBERS or name.startswith((JUDGE, SIGNAL)):
        return np.array([_number(name, number, value) for number, value in enumerate(values, 1)], np.float64)
    return np.array(["" if value is None else str(value) for value in values], object)


def _show(value: object) -> str:
    """The value as it would stand in a file."""
    return repr(quote(value, 40).strip("'"))


def _number(name: str, row: int, value: Any) -> float:
    if value is None or value == "":
        return math.nan
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"row {row}: {name} is {_show(value)}, not a number") from None
    if math.isinf(found):
        raise InputError(f"row {row}: {name} is not finite")
    return found


def _whole(name: str, row: int, value: Any) -> int:
    found = _number(name, row, value)
    if not 0 <= found <= _MOST or found != int(found):
        raise InputError(f"row {row}: {name} is {_show(value)}, not a whole number of 0 or more")
    return int(found)


def _faults(table: Outcomes) -> Iterator[str]:
    """What no table may have, the most basic first; rows are counted from 1."""
    column = table.columns
    for name in ("question_id", "action"):
        for row in np.flatnonzero(column[name] == ""):
            yield f"row {row + 1}: no {name}"
    for judge in table.judges:
        values = column[JUDGE + judge]
        for row in np.flatnonzero((values < 0) | (values > 1)):  # a judge may have no verdict on a row
            yield f"row {row + 1}: {JUDGE}{judge} is {_cell(float(values[row]))}, a utility lies in [0, 1]"
    for row in np.flatnonzero((column["pair"] != "") & (column["action"] != RETAIN)):
        yield f"row {row + 1}: only a retention has a pair, {column['action'][row]} has {column['pair'][row]!r}"
    yield from _find_repeats(column)
    for name, many in (("fold", "folds"), ("conversation", "conversations"), ("type", "types")):
        yield from _find_disagreements(column, name, many)


def _find_repeats(column: Mapping[str, Column]) -> Iterator[str]:
    seen: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(zip(*(column[name].tolist() for name in KEY), strict=True), 1):
        if seen.setdefault(key, row) != row:
            yield f"rows {seen[key]} and {row} are the same outcome: {key[2]} at {key[3]} tokens under {key[4]}"


def _find_disagreements(column: Mapping[str, Column], name: str, many: str) -> Iterator[str]:
    """A question whose rows disagree on something that belongs to the question."""
    first: dict[tuple[str, str, str], str] = {}
    keys = zip(*(column[part].tolist() for part in ("dataset", "setting", "question_id")), strict=True)
    for key, value in zip(keys, column[name].tolist(), strict=True):
        if first.setdefault(key, value) != value:
            yield f"question {key[2]} is in two {many}: {first[key]} and {value}"


def _choose_judge(outcomes: Outcomes, judge: str | None) -> str:
    if judge is None:
        return "llm" if "llm" in outcomes.judges else outcomes.judges[0]
    if judge not in outcomes.judges:
        raise InputError(f"no judge {judge!r}; there are {', '.join(outcomes.judges)}")
    return judge


def _choose_budgets(outcomes: Outcomes, actions: Sequence[str], asked: Sequence[int] | None) -> list[int]:
    """The budgets asked for; else those at which each of these actions was measured at all."""
    at = [set(outcomes.where(action=action).columns["budget"].tolist()) for action in actions]
    common = sorted(set.intersection(*at))
    if asked is not None:
        if not asked:
            raise InputError(f"no budget was asked for; there are {common}")
        if missing := sorted(set(asked).difference(common)):
            raise InputError(f"no outcomes of all actions at {missing[0]} tokens; there are {common}")
        return sorted(asked)
    if not common:
        raise InputError(f"no budget at which all of {', '.join(actions)} were measured")
    return common


def _order_actions(actions: set[str]) -> tuple[str, ...]:
    rest = sorted(actions - {RETAIN})
    return (RETAIN, *rest) if RETAIN in actions else tuple(rest)
