"""Nine tables that the paper lacks: every action, what it costs, what budget is enough, ladders, and where gains end.

Each has a row for every dataset and setting of the outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from retcon.errors import InputError, RetconError
from retcon.lab import fit_ladder as ladder
from retcon.lab import stats
from retcon.lab.crossfit import ORACLES, REFERENCE, TWICE, Result
from retcon.lab.outcomes import JUDGE, Panel, run_mean
from retcon.lab.report.actions import PACKINGS
from retcon.lab.report.cells import (
    DASH,
    Cell,
    Cells,
    Value,
    bracket,
    crossover_cell,
    estimate_cell,
    gain_cell,
    number,
    plain_cell,
    rate_cell,
)
from retcon.lab.report.studies import Array, Readings, Study, attempt, looks_for, present
from retcon.lab.report.tables import POLICIES, Body, Spec, budget_heads, how_drawn, how_folded
from retcon.lab.stats import Estimate
from retcon.note import RETAIN

SPENDING = {  # column -> head, decimals
    "context_tokens": ("Context tokens", 1), "prompted_tokens": ("Tokens read to write it", 1),
    "generated_tokens": ("Tokens written", 1), "model_calls": ("Model calls", 2),
    "reader_tokens": ("Reader tokens", 1), "seconds": ("Seconds", 2),
}  # fmt: skip
WITHIN = (3, 1)  # points below the best accuracy


def _of_studies(studies: Sequence[Study], columns: Iterable[str], rows: Iterable[Cells]) -> Body:
    """A table whose rows begin with the name of their study, and what is said of all studies."""
    note = f"{_samples(studies)} {how_drawn(*studies)}"
    return Body(("Data", *columns), list(rows), note, _marks(studies))


def _samples(studies: Sequence[Study]) -> str:
    return " ".join(study.sample for study in studies)


def _marks(studies: Sequence[Study]) -> list[str]:
    marks = ["one realization"] if all(study.shape[3] == 1 for study in studies) else []
    return marks + [f"{study.name}: operators saw the question" for study in studies if study.roles.focused]


def _budgets(studies: Sequence[Study]) -> list[int]:
    return sorted({budget for study in studies for budget in study.budgets})


def _grid(
    studies: Sequence[Study], cells: Callable[[Study], Mapping[tuple[str, int], Cell]], *,
    aside: Callable[[Study, str], Cells] = lambda study, action: (), heads: tuple[str, ...] = (),
    below: Callable[[Study, Sequence[int]], Iterable[Cells]] = lambda study, budgets: (),
) -> Body:  # fmt: skip
    """A row for each study and action that has a cell, and a column for each budget of any of the studies."""
    budgets, rows = _budgets(studies), list[Cells]()
    for study in studies:
        found = cells(study)
        for action in study.roles.order:
            more = aside(study, action)
            if more or any((action, budget) in found for budget in budgets):
                row = (found.get((action, budget), DASH) for budget in budgets)
                rows.append((study.name, study.roles.names[action], *row, *more))
        rows += below(study, budgets)
    return _of_studies(studies, ("Action", *budget_heads(budgets), *heads), rows)


def _shares(study: Study, values: Array | None) -> dict[tuple[str, int], Cell]:
    """A rate for each action and budget."""
    assert values is not None
    return {cell: rate_cell(each, study.cite([cell[0]], cell[1])) for cell, each in study.by_cell(values).items()}


def _at_budgets(
    study: Study, of: Sequence[int], found: Sequence[Estimate], actions: Sequence[str], budgets: Sequence[int]
) -> list[Cell]:
    """Rates at the budgets `of`, as cells at all budgets."""
    at = dict(zip(of, found, strict=True))
    return [rate_cell(at.get(budget), study.cite(actions, budget)) for budget in budgets]


def _all_actions(readings: Readings) -> Body:
    return _grid(
        readings.every(), lambda study: _shares(study, study.utility), aside=_macro, heads=("Macro [95 % CI]",)
    )


def _macro(study: Study, action: str) -> Cells:
    """The mean over budgets; of an action that knows no budget, all there is."""
    known = present(study.values(action)).any(axis=0)
    if known.any() and not known.all():  # a mean over other budgets would not compare
        return (DASH,)
    whole = study.values(action) if known.any() else study.utility[:, :, study.actions.index(action)]
    found = study.estimate(run_mean(whole))
    text = f"{number(found.mean)} {bracket(found.low, found.high, signed=False)}"
    return (estimate_cell(text, found, study.cite([action], study.budgets if known.any() else None)),)


def _cost(readings: Readings) -> Body:
    studies = readings.every()
    if not any(study.mean(name) is not None for study in studies for name in SPENDING):
        raise InputError(f"the rows do not say what was spent (columns {', '.join(SPENDING)})")
    rows = (row for study in studies for row in _costs(study))
    return _of_studies(studies, ("Action", *(head for head, _ in SPENDING.values())), rows)


def _costs(study: Study) -> Iterator[Cells]:
    spent = {name: mean for name in SPENDING if (mean := study.mean(name)) is not None}
    for a, action in ((study.actions.index(action), action) for action in study.roles.order):
        means = [run_mean(spent[name][:, :, a]) for name in spent]
        found = dict(zip(spent, study.estimates(np.stack(means, axis=1)) if means else (), strict=True))
        cells = [
            estimate_cell(f"{found[name].mean:.{digits}f}", found[name], study.cite([action]))
            if name in found
            else DASH
            for name, (_, digits) in SPENDING.items()
        ]
        yield study.name, study.roles.names[action], *cells


def _unsupported_claims(readings: Readings) -> Body:
    studies = readings.every("unsupported", "the rows do not say whether a claim lacks support (column unsupported)")
    return _grid(studies, lambda study: _shares(study, study.mean("unsupported")))


def _judges(readings: Readings) -> Body:
    studies = readings.every()
    first = studies[0].judge
    others = sorted({name for study in studies for name in study.table.judges} - {first})
    if not others:
        raise InputError("there are the verdicts of one judge only")
    rows, graded = list[Cells](), False
    for study in studies:
        for action in (*study.roles.order, None):
            mine = np.ones(len(study.table), np.bool_) if action is None else study.table.columns["action"] == action
            cited = study.cite(study.actions if action is None else [action])
            said = {name: study.table.columns[JUDGE + name][mine] for name in (first, *others)}
            graded |= any(not np.isin(each[present(each)], (0, 1)).all() for each in said.values())
            right = [_right(each, cited) for each in said.values()]
            agreed = [cell for name in others for cell in _agreement(said[first], said[name], cited)]
            rows.append((study.name, "All" if action is None else study.roles.names[action], *right, *agreed))
    pairs = [head for name in others for head in (f"{first} and {name} agree", f"kappa, {first} and {name}")]
    marks = ["graded verdicts count as right from one half on where agreement is counted"] if graded else []
    columns = ("Data", "Action", *(f"Right by {name}" for name in (first, *others)), *pairs)
    return Body(columns, rows, _samples(studies), marks + _marks(studies))


def _right(verdicts: Array, cited: Mapping[str, Any]) -> Cell:
    known = verdicts[present(verdicts)]
    mean = float(known.mean()) if len(known) else math.nan
    return plain_cell(mean, number(mean), cited)


def _agreement(one: Array, two: Array, cited: Mapping[str, Any]) -> tuple[Cell, Cell]:
    known = present(one + two)
    if not known.any():
        return DASH, DASH
    a, b = (one[known] >= 0.5).astype(np.float64), (two[known] >= 0.5).astype(np.float64)
    raw, beyond = float((a == b).mean()), stats.kappa(a, b)
    return plain_cell(raw, number(raw), cited), plain_cell(beyond, number(beyond), cited)


def _per_token(readings: Readings) -> Body:
    studies = readings.every("context_tokens", "the rows do not say how many tokens were read (column context_tokens)")
    return _grid(studies, _bought)


def _bought(study: Study) -> dict[tuple[str, int], Cell]:
    """Accuracy for 100 tokens shown: a ratio of means, in every resample as in the sample."""
    tokens, cells = study.mean("context_tokens"), dict[tuple[str, int], Cell]()
    assert tokens is not None
    for action in study.actions:
        right, read = (stats.replicates(study.values(action, of), study.resamples) for of in (study.utility, tokens))
        for b, budget in enumerate(study.budgets):
            both = present(study.values(action)[:, b] + study.values(action, tokens)[:, b])
            u, t = (float(study.values(action, of)[both, b].sum()) for of in (study.utility, tokens))
            some = read[:, b] > 0
            if t > 0 and some.any():
                low, high = np.quantile(100 * right[some, b] / read[some, b], (0.025, 0.975)).tolist()
                cited = study.cite([action], budget)
                cells[action, budget] = Value(number(100 * u / t), 100 * u / t, low, high, cited)
    return cells


def _budget_needed(readings: Readings) -> Body:
    studies, rows = readings.every(), list[Cells]()
    budgets = _budgets(studies)
    for study in studies:
        for action in study.roles.order:
            values = study.values(action)
            if present(values).any(axis=0).all():
                named = (study.name, study.roles.names[action])
                rows.append((*named, *_buys(study, study.budgets, values, [action], budgets)))
        rows += _policy_buys(study, budgets)
    near = [f"Budget within {points} point{'s' if points > 1 else ''}" for points in WITHIN]
    return _of_studies(studies, ("Action or policy", *budget_heads(budgets), *near), rows)


def _policy_buys(study: Study, budgets: Sequence[int]) -> Iterator[Cells]:
    """The row of the policy of highest mean accuracy; none where nothing can be cross-fitted."""
    if (fitted := attempt(study.product_policies)) is not None:
        honest = [found for name, found in fitted.results.items() if name not in (*ORACLES, TWICE)]
        best, of = max(honest, key=lambda found: found.macro), fitted.panel
        cells = _buys(study, of.budgets, study.spread(of, best.utility), of.actions, budgets)
        yield study.name, f"Best policy: {POLICIES[best.name]}", *cells


def _buys(study: Study, at: Sequence[int], values: Array, actions: Sequence[str], budgets: Sequence[int]) -> Cells:
    """Accuracy at each budget, and the smallest budgets that come near the best."""
    found = study.estimates(values)
    means = np.array([[each.mean for each in found]])
    drawn = stats.replicates(values, study.resamples)
    drawn = drawn[present(drawn).all(axis=1)]
    cited, ends = study.cite(actions, at), drawn if len(drawn) else means
    return (
        *_at_budgets(study, at, found, actions, budgets),
        *(_smallest(at, means, ends, points, cited) for points in WITHIN),
    )


def _smallest(at: Sequence[int], means: Array, drawn: Array, points: int, cited: Mapping[str, Any]) -> Value:
    needed, ends = float(_enough(at, means, points)[0]), np.sort(_enough(at, drawn, points))
    last = len(ends) - 1
    low, high = float(ends[math.floor(0.025 * last)]), float(ends[math.ceil(0.975 * last)])
    return Value(f"{needed:.0f} [{low:.0f}, {high:.0f}]", needed, low, high, cited)


def _enough(at: Sequence[int], means: Array, points: int) -> Array:
    """The smallest budget whose mean is within so many points of its row's best."""
    near = means >= means.max(axis=1, keepdims=True) - points / 100 - 1e-9
    return np.array([at[place] for place in near.argmax(axis=1).tolist()], np.float64)


def _ladders(readings: Readings) -> Body:
    rows, told, reasons = list[Cells](), list[Study](), list[str]()
    for study in readings.every():
        try:
            fitted = study.product_policies()
        except RetconError as error:
            reasons.append(str(error))
            continue
        if fitted.panel.abstained is None:
            reasons.append(f"{study.name}: the rows do not say where the reader abstained (column abstained)")
            continue
        told.append(study)
        found = fitted.results
        order = [name for name in POLICIES if name in found and name != "binary oracle"]
        rows += [_spend_row(study, fitted.panel, found[name], found[REFERENCE]) for name in order]
    if not told:
        raise InputError("; ".join(reasons))
    columns = (
        "Policy", "Accuracy", "Difference from the best fixed action [95 % CI]", "Harm (%)", "Reader calls",
        "Tokens read", "Tokens written",
    )  # fmt: skip
    folds = " ".join(dict.fromkeys(how_folded(study.product_policies()) for study in told))
    price = told[0].product_policies().rules.call_price
    note = f"{folds} A further call must bring {price:g} of accuracy. "
    body = _of_studies(told, columns, rows)
    return replace(body, note=f"{note}{body.note}")


def _spend_row(study: Study, of: Panel, found: Result, base: Result) -> Cells:
    """Means over the budgets that were measured; differences over those that both have."""
    spent = {"context_tokens": found.read, "generated_tokens": found.generated}
    measured = (found.utility, found.utility - base.utility, 100 * found.harmed, found.calls, *spent.values())
    means = np.stack([run_mean(study.spread(of, values)) for values in measured], axis=1)
    accuracy, difference, harm, calls, *tokens = study.estimates(means)
    cited = study.cite(of.actions, of.budgets)
    return (
        study.name, POLICIES[found.name], rate_cell(accuracy, cited),
        DASH if found.name == base.name else gain_cell(difference, cited),
        estimate_cell(f"{harm.mean:.1f}", harm, cited), estimate_cell(f"{calls.mean:.2f}", calls, cited),
        *(
            estimate_cell(f"{each.mean:.1f}", each, cited) if name in of.tokens else DASH
            for name, each in zip(spent, tokens, strict=True)
        ),
    )  # fmt: skip


def _false_answers(readings: Readings) -> Body:
    if not readings.silent:
        raise InputError("there are no rows of questions that memory does not answer (column abstention)")
    studies = [study for study in readings.silent if study.mean("abstained") is not None]
    if not studies:
        raise InputError("the rows do not say where the reader abstained (column abstained)")
    return _grid(studies, _false_answer_rates, below=lambda study, budgets: _false_ladder(readings, study, budgets))


def _false_answer_rates(study: Study) -> dict[tuple[str, int], Cell]:
    abstained = study.mean("abstained")
    return _shares(study, None if abstained is None else 1 - abstained)


def _false_ladder(readings: Readings, silent: Study, budgets: Sequence[int]) -> list[Cells]:
    """The ladder learned on all answerable questions of the same data, on these; none where that cannot be."""
    same = [each for each in readings.studies if (each.dataset, each.setting) == (silent.dataset, silent.setting)]
    if not same:
        return []
    try:
        learned, asked = (study.panel(same[0].roles.choices) for study in (same[0], silent))
        if learned.abstained is None or asked.abstained is None or learned.features != asked.features:
            return []
        steps = ladder.fit_ladder(learned, looks=looks_for(len(learned.actions)))
    except RetconError:
        return []
    says = replace(asked, runs=asked.abstained, retentions=run_mean(asked.abstained[:, :, 0]))
    wrong = silent.spread(asked, 1 - ladder.walk(says, ladder.plan(steps, asked)).utility)
    cells = _at_budgets(silent, asked.budgets, silent.estimates(wrong), asked.actions, budgets)
    return [(silent.name, "Ladder", *cells)]


def _crossovers(readings: Readings) -> Body:
    studies, rows = readings.every(), list[Cells]()
    for study in studies:
        if RETAIN not in study.actions or len(study.budgets) < 2 or study.budgets[0] < 1:
            continue
        for action in study.roles.order:
            gain = study.gain(action)
            if action not in (RETAIN, *PACKINGS) and present(gain).any(axis=0).all():
                rows.append((study.name, study.roles.names[action], *_crossing(study, action, gain)))
    if not rows:
        raise InputError("a crossover needs retention and another action at two budgets or more")
    columns = ("Action", "Crossover budget [95 % CI]", "Resamples that cross (%)", "Full fit there (%)")
    return _of_studies(studies, columns, rows)


def _crossing(study: Study, action: str, gain: Array) -> Cells:
    found, rows = stats.crossover(gain, study.budgets, study.resamples), study.cite([RETAIN, action], study.budgets)
    share = plain_cell(100 * found.share, f"{100 * found.share:.0f}", rows)
    return crossover_cell(found, study.budgets, rows), share, _pressure(study, found.budget)


def _pressure(study: Study, budget: float) -> Cell:
    """The share of questions whose notes all fit at a budget, between measured ones linear in log2 B."""
    if study.mean("fit") is None or not 0 < budget < math.inf:
        return DASH
    share = 100 * float(np.interp(math.log2(budget), np.log2(study.budgets), study.fit_shares))
    return plain_cell(share, f"{share:.0f}", study.cite([RETAIN], study.budgets))


# -- the list ----------------------------------------------------------------------------------------------------------


MORE = (
    Spec("all-actions", "Every action at every budget",
          "Share of right answers of each action that was measured, and its mean over budgets; no memory and no budget"
          " at all stand there too. Agnostic texts were written without the question, focused ones with it.",
          _all_actions),
    Spec("cost", "What an action costs",
          "Means over questions and all budgets: tokens handed to the reader, tokens that a model read and wrote to"
          " make them, its calls, the reader's own tokens, and seconds in all.", _cost),
    Spec("unsupported", "How often a generated text says what its notes do not",
          "Share of generated texts with a number, date, name, negation or quote that the notes do not bear out, by a"
          " deterministic check.", _unsupported_claims),
    Spec("judges", "Do the judges agree?",
          "Share of answers that each judge calls right, the share on which two judges agree, and Cohen's kappa, which"
          " is 0 for agreement by chance and 1 for full agreement.", _judges),
    Spec("per-token", "Accuracy bought by 100 tokens",
          "Share of right answers divided by the mean tokens that the reader was shown, times 100. An action that uses"
          " less of its budget scores higher here than its accuracy alone would say.", _per_token),
    Spec("budget-needed", "What budget do I need?",
          "Share of right answers that each budget buys, and the smallest budget within 3 points and within 1 point of"
          " the best one, with the range that it takes over resamples. The best policy is the one of highest mean"
          " accuracy among the cross-fitted ones, picked with hindsight.", _budget_needed),
    Spec("ladders", "A second look against the same spend otherwise",
          "A ladder asks again with another action where the reader found no answer. It reads more, so it stands beside"
          " other ways to spend as much: the best fixed action at twice the budget (where that was measured), the same"
          " asked again, a vote of two. Everything is learned on other questions; figures are means over budgets.",
          _ladders),
    Spec("false-answers", "Answers where memory holds none",
          "Questions to which 'not in memory' is right: the share that were answered all the same, lower is better. The"
          " ladder was learned on the other questions; it answers as soon as one of its looks does.", _false_answers),
    Spec("crossover", "The budget at which replacing stops paying",
          "Where the mean gain over retention first falls to zero, between measured budgets linear in log2 of the"
          " budget; 'below' and 'above' say that it does so outside them. Full fit is the share of questions whose"
          " candidate notes would all fit there: the paper's claim is that this, not tokens, decides.", _crossovers),
)  # fmt: skip
