"""Nine tables that the paper lacks: every action, what it costs, what budget is enough, ladders, and where gains end.

Each has a row for every dataset and setting of the outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from retcon.errors import InputError, RetconError
from retcon.lab import fit_ladder as ladder
from retcon.lab import stats
from retcon.lab.crossfit import ORACLES, REFERENCE, TWICE, Result
from retcon.lab.outcomes import JUDGE, Panel, run_mean
from retcon.lab.report.cells import (
    POLICIES,
    Body,
    Cell,
    Cells,
    Spec,
    Value,
    budget_heads,
    finite,
    gained,
    how_drawn,
    how_folded,
    marks_of,
    plain,
    rate,
    samples,
    valued,
)
from retcon.lab.report.published import DASH, bracket, number
from retcon.lab.report.studies import PACKINGS, Array, Readings, Study, looks_for, present
from retcon.lab.stats import Estimate
from retcon.note import RETAIN

SPENDING = {  # column -> head, decimals
    "context_tokens": ("Context tokens", 1), "prompted_tokens": ("Tokens read to write it", 1),
    "generated_tokens": ("Tokens written", 1), "model_calls": ("Model calls", 2),
    "reader_tokens": ("Reader tokens", 1), "seconds": ("Seconds", 2),
}  # fmt: skip
WITHIN = (3, 1)  # points below the best accuracy


def _grid(
    studies: Sequence[Study], cells: Callable[[Study], Mapping[tuple[str, int], Cell]], *,
    aside: Callable[[Study, str], Cells] | None = None, heads: tuple[str, ...] = (),
) -> Body:  # fmt: skip
    """A row for each study and action that has a cell, and a column for each budget of any of the studies."""
    budgets, rows = sorted({budget for study in studies for budget in study.budgets}), list[Cells]()
    for study in studies:
        found = cells(study)
        for action in study.arms.order:
            more = () if aside is None else aside(study, action)
            if more or any((action, budget) in found for budget in budgets):
                row = (found.get((action, budget), DASH) for budget in budgets)
                rows.append((study.about, study.arms.names[action], *row, *more))
    note = f"{samples(studies)} {how_drawn(*studies)}"
    return Body(("Data", "Action", *budget_heads(budgets), *heads), rows, note, marks_of(studies))


def _shares(study: Study, values: Array) -> dict[tuple[str, int], Cell]:
    """A rate for each action and budget."""
    return {cell: rate(each, study.cite([cell[0]], cell[1])) for cell, each in study.by_cell(values).items()}


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
    return (valued(text, found, study.cite([action], study.budgets if known.any() else None)),)


def _cost(readings: Readings) -> Body:
    studies, rows = readings.every(), list[Cells]()
    if not any(study.mean(name) is not None for study in studies for name in SPENDING):
        raise InputError(f"the rows do not say what was spent (columns {', '.join(SPENDING)})")
    for study in studies:
        spent = {name: mean for name in SPENDING if (mean := study.mean(name)) is not None}
        cells = [(action, name) for action in study.arms.order for name in spent]
        values = [run_mean(spent[name][:, :, study.actions.index(action)]) for action, name in cells]
        found = dict(zip(cells, study.estimates(np.stack(values, axis=1)) if values else [], strict=True))
        for action in study.arms.order:
            row = [_spent(found.get((action, name)), name, study.cite([action])) for name in SPENDING]
            rows.append((study.about, study.arms.names[action], *row))
    columns = ("Data", "Action", *(head for head, _ in SPENDING.values()))
    return Body(columns, rows, f"{samples(studies)} {how_drawn(*studies)}", marks_of(studies))


def _spent(found: Estimate | None, name: str, cited: Mapping[str, Any]) -> Cell:
    return DASH if found is None else valued(f"{found.mean:.{SPENDING[name][1]}f}", found, cited)


def _unsupported(readings: Readings) -> Body:
    studies = readings.every("unsupported", "the rows do not say whether a claim lacks support (column unsupported)")
    return _grid(studies, lambda study: _shares(study, _known(study.mean("unsupported"))))


def _known(values: Array | None) -> Array:
    assert values is not None
    return values


def _judges(readings: Readings) -> Body:
    studies = readings.every()
    first = studies[0].judge
    others = sorted({name for study in studies for name in study.table.judges} - {first})
    if not others:
        raise InputError("there are the verdicts of one judge only")
    rows, graded = list[Cells](), False
    for study in studies:
        for action in (*study.arms.order, None):
            mine = np.ones(len(study.table), np.bool_) if action is None else study.table.columns["action"] == action
            cited = study.cite(study.actions if action is None else [action])
            said = {name: study.table.columns[JUDGE + name][mine] for name in (first, *others)}
            graded |= any(not np.isin(each[present(each)], (0, 1)).all() for each in said.values())
            right = [_right(each, cited) for each in said.values()]
            agreed = [cell for name in others for cell in _agreement(said[first], said[name], cited)]
            rows.append((study.about, "All" if action is None else study.arms.names[action], *right, *agreed))
    pairs = [head for name in others for head in (f"{first} and {name} agree", f"kappa, {first} and {name}")]
    marks = ["graded verdicts count as right from one half on where agreement is counted"] if graded else []
    columns = ("Data", "Action", *(f"Right by {name}" for name in (first, *others)), *pairs)
    return Body(columns, rows, samples(studies), marks + marks_of(studies))


def _right(verdicts: Array, cited: Mapping[str, Any]) -> Cell:
    known = verdicts[present(verdicts)]
    mean = float(known.mean()) if len(known) else math.nan
    return plain(mean, number(mean), cited)


def _agreement(one: Array, two: Array, cited: Mapping[str, Any]) -> tuple[Cell, Cell]:
    known = present(one + two)
    if not known.any():
        return DASH, DASH
    a, b = (one[known] >= 0.5).astype(np.float64), (two[known] >= 0.5).astype(np.float64)
    raw, beyond = float((a == b).mean()), stats.kappa(a, b)
    return plain(raw, number(raw), cited), plain(beyond, number(beyond), cited)


def _per_token(readings: Readings) -> Body:
    studies = readings.every("context_tokens", "the rows do not say how many tokens were read (column context_tokens)")
    return _grid(studies, _bought)


def _bought(study: Study) -> dict[tuple[str, int], Cell]:
    """Accuracy for 100 tokens shown: a ratio of means, in every resample as in the sample."""
    tokens, cells = _known(study.mean("context_tokens")), dict[tuple[str, int], Cell]()
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


def _needed(readings: Readings) -> Body:
    studies, rows = readings.every(), list[Cells]()
    budgets = sorted({budget for study in studies for budget in study.budgets})
    for study in studies:
        for action in study.arms.order:
            values = study.values(action)
            if present(values).any(axis=0).all():
                named = (study.about, study.arms.names[action])
                rows.append((*named, *_buys(study, study.budgets, values, [action], budgets)))
        rows += _policy_buys(readings, study, budgets)
    near = [f"Budget within {points} point{'s' if points > 1 else ''}" for points in WITHIN]
    columns = ("Data", "Action or policy", *budget_heads(budgets), *near)
    return Body(columns, rows, f"{samples(studies)} {how_drawn(*studies)}", marks_of(studies))


def _policy_buys(readings: Readings, study: Study, budgets: Sequence[int]) -> list[Cells]:
    """The row of the policy of highest mean accuracy; none where nothing can be cross-fitted."""
    try:
        fitted = readings.climbed(study)
    except RetconError:
        return []
    honest = [found for name, found in fitted.results.items() if name not in (*ORACLES, TWICE)]
    best, of = max(honest, key=lambda found: found.macro), fitted.panel
    cells = _buys(study, of.budgets, study.spread(of, best.utility), of.actions, budgets)
    return [(study.about, f"Best policy: {POLICIES[best.name]}", *cells)]


def _buys(study: Study, at: Sequence[int], values: Array, actions: Sequence[str], budgets: Sequence[int]) -> Cells:
    """Accuracy at each budget, and the smallest budgets that come near the best."""
    found = dict(zip(at, study.estimates(values), strict=True))
    cells = [rate(found[budget], study.cite(actions, budget)) if budget in found else DASH for budget in budgets]
    means = np.array([[each.mean for each in found.values()]])
    drawn = stats.replicates(values, study.resamples)
    drawn = drawn[present(drawn).all(axis=1)]
    cited = study.cite(actions, at)
    return (*cells, *(_smallest(at, means, drawn if len(drawn) else means, points, cited) for points in WITHIN))


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
            fitted = readings.climbed(study)
        except RetconError as error:
            reasons.append(str(error))
            continue
        if fitted.panel.abstained is None:
            reasons.append(f"{study.about}: the rows do not say where the reader abstained (column abstained)")
            continue
        told.append(study)
        found = fitted.results
        order = [name for name in POLICIES if name in found and name != "binary oracle"]
        rows += [_spend_row(study, fitted.panel, found[name], found[REFERENCE]) for name in order]
    if not told:
        raise InputError("; ".join(reasons))
    columns = (
        "Data", "Policy", "Accuracy", "Difference from the best fixed action [95 % CI]", "Harm (%)", "Reader calls",
        "Tokens read", "Tokens written",
    )  # fmt: skip
    folds = " ".join(dict.fromkeys(how_folded(readings.climbed(study)) for study in told))
    price = readings.climbed(told[0]).rules.call_price
    note = f"{folds} A further call must bring {price:g} of accuracy. {samples(told)} {how_drawn(*told)}"
    return Body(columns, rows, note, marks_of(told))


def _spend_row(study: Study, of: Panel, found: Result, base: Result) -> Cells:
    """Means over the budgets that were measured; differences over those that both have."""
    spent = {"context_tokens": found.read, "generated_tokens": found.generated}
    measured = (found.utility, found.utility - base.utility, 100 * found.harmed, found.calls, *spent.values())
    columns = np.stack([run_mean(study.spread(of, values)) for values in measured], axis=1)
    accuracy, difference, harm, calls, *tokens = study.estimates(columns)
    cited = study.cite(of.actions, of.budgets)
    return (
        study.about, POLICIES[found.name], rate(accuracy, cited),
        DASH if found.name == base.name else gained(difference, cited), valued(f"{harm.mean:.1f}", harm, cited),
        valued(f"{calls.mean:.2f}", calls, cited),
        *(
            valued(f"{each.mean:.1f}", each, cited) if name in of.tokens else DASH
            for name, each in zip(spent, tokens, strict=True)
        ),
    )  # fmt: skip


def _false_answers(readings: Readings) -> Body:
    if not readings.silent:
        raise InputError("there are no rows of questions that memory does not answer (column abstention)")
    studies = [study for study in readings.silent if study.mean("abstained") is not None]
    if not studies:
        raise InputError("the rows do not say where the reader abstained (column abstained)")
    body = _grid(studies, lambda study: _shares(study, 1 - _known(study.mean("abstained"))))
    budgets = sorted({budget for study in studies for budget in study.budgets})
    rows = []
    for study in studies:
        rows += [row for row in body.rows if row[0] == study.about]
        rows += _false_ladder(readings, study, budgets)
    return replace(body, rows=rows)


def _false_ladder(readings: Readings, silent: Study, budgets: Sequence[int]) -> list[Cells]:
    """The ladder learned on all answerable questions of the same data, on these; none where that cannot be."""
    same = [each for each in readings.studies if (each.dataset, each.setting) == (silent.dataset, silent.setting)]
    try:
        learned, asked = (study.panel(same[0].arms.choices) for study in (same[0], silent)) if same else (None, None)
        if learned is None or asked is None or learned.abstained is None or asked.abstained is None:
            return []
        if learned.features != asked.features:
            return []
        steps = ladder.fit_ladder(learned, looks=looks_for(len(learned.actions)))
    except RetconError:
        return []
    says = replace(asked, runs=asked.abstained, retentions=run_mean(asked.abstained[:, :, 0]))
    wrong = silent.spread(asked, 1 - ladder.walk(says, ladder.plan(steps, asked)).utility)
    found = dict(zip(asked.budgets, silent.estimates(wrong), strict=True))
    cells = [rate(found[b], silent.cite(asked.actions, b)) if b in found else DASH for b in budgets]
    return [(silent.about, "Ladder", *cells)]


def _crossovers(readings: Readings) -> Body:
    studies, rows = readings.every(), list[Cells]()
    for study in studies:
        if RETAIN not in study.actions or len(study.budgets) < 2 or study.budgets[0] < 1:
            continue
        for action in study.arms.order:
            gain = study.gain(action)
            if action not in (RETAIN, *PACKINGS) and present(gain).any(axis=0).all():
                rows.append((study.about, study.arms.names[action], *_crossing(study, action, gain)))
    if not rows:
        raise InputError("a crossover needs retention and another action at two budgets or more")
    columns = ("Data", "Action", "Crossover budget [95 % CI]", "Resamples that cross (%)", "Full fit there (%)")
    return Body(columns, rows, f"{samples(studies)} {how_drawn(*studies)}", marks_of(studies))


def _crossing(study: Study, action: str, gain: Array) -> Cells:
    at = study.budgets
    found, cited = stats.crossover(gain, at, study.resamples), study.cite([RETAIN, action], at)
    ends = (found.budget, found.low, found.high)
    point, low, high = (finite(end) if end > 0 else None for end in ends)
    texts = [_budget(end, at) for end in ends]
    share = 100 * found.share
    place = Value(f"{texts[0]} [{texts[1]}, {texts[2]}]", point, low, high, cited)
    return (place, plain(share, f"{share:.0f}", cited), _pressure(study, found.budget))


def _budget(value: float, at: Sequence[int]) -> str:
    if math.isnan(value):
        return DASH
    return f"below {at[0]}" if value == 0 else f"above {at[-1]}" if math.isinf(value) else f"{value:.0f}"


def _pressure(study: Study, budget: float) -> Cell:
    """The share of questions whose notes all fit at a budget, between measured ones linear in log2 B."""
    if study.mean("fit") is None or not 0 < budget < math.inf:
        return DASH
    full = run_mean(np.where(np.isnan(study.fit), np.nan, study.fit >= 1).T)
    share = 100 * float(np.interp(math.log2(budget), np.log2(study.budgets), full))
    return plain(share, f"{share:.0f}", study.cite([RETAIN], study.budgets))


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
          " deterministic check.", _unsupported),
    Spec("judges", "Do the judges agree?",
          "Share of answers that each judge calls right, the share on which two judges agree, and Cohen's kappa, which"
          " is 0 for agreement by chance and 1 for full agreement.", _judges),
    Spec("per-token", "Accuracy bought by 100 tokens",
          "Share of right answers divided by the mean tokens that the reader was shown, times 100. An action that uses"
          " less of its budget scores higher here than its accuracy alone would say.", _per_token),
    Spec("budget-needed", "What budget do I need?",
          "Share of right answers that each budget buys, and the smallest budget within 3 points and within 1 point of"
          " the best one, with the range that it takes over resamples. The best policy is the one of highest mean"
          " accuracy among the cross-fitted ones, picked with hindsight.", _needed),
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
