"""The paper's twelve tables, made from our outcomes; the paper's own rows stand in each beside ours.

Each is made from the study that comes nearest to the paper's, and marks say what differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from retcon.errors import InputError, RetconError
from retcon.features import FEATURES, TYPES
from retcon.lab import crossfit, stats
from retcon.lab import fit_ladder as ladder
from retcon.lab.crossfit import TWICE, VOTE, Policy, Rules
from retcon.lab.outcomes import Panel, run_mean, type_index
from retcon.lab.report.actions import OPERATORS
from retcon.lab.report.cells import (
    DASH,
    Cells,
    bracket,
    chance,
    count,
    estimate_cell,
    gain_cell,
    number,
    plain_cell,
    rate_cell,
    stratum,
    tally,
)
from retcon.lab.report.published import CONTROLLED, LOCOMO, LONGMEMEVAL, TABLES, published_rows
from retcon.lab.report.studies import NOTHING, SETTINGS, Array, Mask, Readings, Study, present
from retcon.lab.report.tables import POLICIES, Body, Spec, budget_heads, how_drawn, how_folded
from retcon.lab.stats import Gain
from retcon.note import RETAIN

PAIRS = (("merge", "abstract"), ("abstract", "rewrite"), ("merge", "rewrite"))
KINDS = dict(zip(TYPES, ("Single-session", "Multi-session", "Temporal", "Knowledge-update"), strict=True))
REGIMES = ((5.0, "Severely tight"), (33.0, "Tight"), (75.0, "Transition"), (math.inf, "Loose"))  # full fit below, in %
STRATUM = 10  # questions that both fit strata need
FOLDS = ("fit", "calibration", "gate")
GATE_CAP = 0.02  # harm that the independent evaluation's calibration may observe; the paper does not state its own


def _of_study(label: str, study: Study, columns: Sequence[str], rows: Iterable[Cells], note: str = "") -> Body:
    """A table of the paper, made from one study."""
    said = f"{note} {study.sample} {how_drawn(study)}".strip()
    return Body(tuple(columns), list(rows), said, study.marks(label), published_rows(label))


def _of_nearest(
    label: str, columns: Sequence[str], rows: Callable[[Study], Iterable[Cells]], *, learned: bool = False,
    why: str = NOTHING, only: Callable[[Study], bool] = lambda study: True,
) -> Callable[[Readings], Body]:  # fmt: skip
    """What fills a table of the paper: rows of the study nearest to the paper's."""

    def fill(readings: Readings) -> Body:
        study = readings.nearest(label, why, only)
        if not learned:
            return _of_study(label, study, columns, rows(study))
        fitted = study.paper_policies()
        body = _of_study(label, study, columns, rows(study), how_folded(fitted))
        return replace(body, marks=[*body.marks, *_gaps(study, fitted.panel)])

    return fill


def _gaps(study: Study, of: Panel) -> list[str]:
    """What the learners had to do without."""
    found = []
    if absent := [name for name in FEATURES if name not in of.features]:
        found.append(f"the router sees no {' or '.join(absent)}, which the rows lack")
    if left := len(study.questions) - len(of.questions):
        found.append(f"{left} of {len(study.questions)} questions left out: some action has no outcome")
    return found


def _operator_names(study: Study) -> dict[str, str]:
    """Action -> Abstract, Merge or Rewrite."""
    return {action: operator.capitalize() for operator, action in study.operators().items()}


def _operator_gains(study: Study) -> Iterator[Cells]:
    names = _operator_names(study)
    for g in study.gains(list(names)):
        rows = study.cite([RETAIN, g.action], g.budget)
        yield names[g.action], str(g.budget), gain_cell(g.gain, rows), plain_cell(g.p, chance(g.p), rows)


def _locomo_gains(readings: Readings) -> Body:
    study = readings.nearest("locomostats", "there are no rows of LoCoMo", lambda study: study.dataset == LOCOMO)
    names = _operator_names(study)
    clustered = {(g.action, g.budget): g.gain for g in study.gains(list(names))}
    rows = []
    for g in sorted(study.gains(list(names), resamples=study.by_question), key=lambda g: g.budget):
        cited, whole, did = study.cite([RETAIN, g.action], g.budget), clustered[g.action, g.budget], g.changes.questions
        rows.append((
            str(g.budget), names[g.action], estimate_cell(number(g.gain.mean, signed=True), g.gain, cited),
            estimate_cell(bracket(g.gain.low, g.gain.high), g.gain, cited),
            estimate_cell(bracket(whole.low, whole.high), whole, cited) if study.clustered else DASH,
            f"{did.helped}/{did.harmed}",
        ))  # fmt: skip
    columns = (
        "Budget", "Operator", "Paired gain", "95 % interval, questions", "95 % interval, conversations",
        "Helped/harmed",
    )  # fmt: skip
    note = f"{study.sample} {study.draws:,} resamples of questions, and as many of whole conversations beside them."
    return replace(_of_study("locomostats", study, columns, rows), note=note)


def _against_abstract(study: Study) -> Iterator[tuple[Gain, Cells]]:
    """Budget, retention, abstract, gain and helped/harmed."""
    if (action := study.operators().get("abstract")) is None:
        raise InputError(f"{study.name}: there are no outcomes of abstract")
    for g in study.gains([action]):
        did = g.changes.questions
        yield g, (
            str(g.budget), plain_cell(g.retention, number(g.retention), study.cite([RETAIN], g.budget)),
            plain_cell(g.accuracy, number(g.accuracy), study.cite([action], g.budget)),
            gain_cell(g.gain, study.cite([RETAIN, action], g.budget)), f"{did.helped}/{did.harmed}",
        )  # fmt: skip


def _cross_model(readings: Readings) -> Body:
    several = [some for some in readings.models if len(some) > 1]
    if not several:
        raise InputError("the rows are of one model: label the same questions with a second one")
    some = min(several, key=lambda some: (some[0].dataset, some[0].setting) != (LONGMEMEVAL, CONTROLLED))
    rows = [(study.model or "unnamed", *cells) for study in some for _, cells in _against_abstract(study)]
    columns = ("Model", "Budget", "Retention", "Abstract", "Paired gain [95 % CI]", "Helped/harmed")
    body = _of_study("crossmodel", some[0], columns, rows)
    marks = [mark for mark in body.marks if not mark.startswith("another model")]
    if any(study.questions != some[0].questions for study in some):
        marks.append("the models were not asked the same questions")
    return replace(body, marks=marks)


def _full_history(study: Study) -> Iterator[Cells]:
    for g, cells in _against_abstract(study):
        b, a = study.every.index(g.budget), study.actions.index(g.action)
        best = np.maximum(*(run_mean(part[:, b, a]) for part in (study.runs, study.retained)))  # NaN where either is
        yield *cells, rate_cell(study.estimate(best), study.cite([RETAIN, g.action], g.budget))


def _per_type(readings: Readings) -> Body:
    study = readings.nearest("pertype")
    columns = ("Question type", "n", *(name.capitalize() for name in OPERATORS))
    return _of_study("pertype", study, columns, _type_rows(study), f"At {study.budgets[-1]} tokens.")


def _type_rows(study: Study) -> Iterator[Cells]:
    raw, budget = study.per_question("type"), study.budgets[-1]
    actions = [study.operators().get(operator, "") for operator in OPERATORS]
    kinds = np.array([type_index(kind) for kind in raw])
    strata: dict[str, Mask] = {KINDS[name]: kinds == place for place, name in enumerate(TYPES)}
    strata |= {"Other": kinds < 0, "All": np.ones(len(kinds), np.bool_)}
    strata = {name: mask for name, mask in strata.items() if mask.any()}
    measured = study.gains(list(filter(None, actions)), strata=strata, budgets=[budget])
    found = {(g.stratum, g.action): g for g in measured}
    for name, mask in strata.items():
        here = sorted({kind for kind, inside in zip(raw, mask, strict=True) if inside})
        gains = [(found.get((name, action)), study.cite([RETAIN, action], budget, type=here)) for action in actions]
        cells = [DASH if g is None else estimate_cell(_by_run(g), g.gain, rows) for g, rows in gains]
        yield name, str(int(mask.sum())), *cells


def _by_run(g: Gain) -> str:
    return tally(g.gain.mean, g.changes.per_run.helped, g.changes.per_run.harmed)


def _routing(readings: Readings) -> Body:
    study = readings.nearest("routerbaselines")
    fitted = study.paper_policies()
    of, found = fitted.panel, fitted.results
    order = [name for name in POLICIES if name in found and name not in (VOTE, TWICE)]
    rows = [_policy_row(study, of, POLICIES[name], found[name].utility, found[name].harmed) for name in order]
    return _policy_grid("routerbaselines", study, of, rows, how_folded(fitted))


def _policy_grid(label: str, study: Study, of: Panel, rows: Sequence[Cells], note: str) -> Body:
    """A row for each policy, a column for each budget."""
    body = _of_study(label, study, ("Policy", *budget_heads(of.budgets), "Macro"), rows, note)
    return replace(body, marks=[*body.marks, *_gaps(study, of)], published=published_rows(label, of.budgets))


def _policy_row(study: Study, of: Panel, name: str, utility: Array, harmed: Array, **more: Any) -> Cells:
    """Accuracy with harms in parentheses at each budget, and the mean over budgets; both arrays are [q, b]."""
    harms = harmed.sum(axis=0)
    cells = [
        estimate_cell(f"{number(each.mean)} ({count(harms[b])})", each, study.cite(of.actions, of.budgets[b], **more))
        for b, each in enumerate(study.estimates(study.spread(of, utility)))
    ]
    return name, *cells, rate_cell(study.over_budgets(of, utility), study.cite(of.actions, of.budgets, **more))


def _budget_pressure(study: Study) -> Iterator[Cells]:
    for b, budget in enumerate(study.budgets):
        fit, cited = study.fit[:, b], study.cite([RETAIN], budget)
        known = fit[present(fit)]
        if len(known):
            full, zero = 100 * float((known >= 1).mean()), 100 * float((known <= 0).mean())
            shares = [plain_cell(share, f"{share:.1f}", cited) for share in (full, zero, 100 - full - zero)]
            regime = next(name for below, name in REGIMES if full < below)
            yield str(budget), rate_cell(study.estimate(fit), cited), *shares, regime


def _operator_pairs(study: Study) -> Iterator[Cells]:
    operators = study.operators()
    both = [(operators.get(one, ""), operators.get(two, "")) for one, two in PAIRS]
    pairs = [pair for pair in both if all(pair)]
    if not pairs:
        raise InputError(f"{study.name}: there are outcomes of one operator only")
    actions = list(operators.values())
    utility = np.stack([study.values(name) for name in actions], axis=2)
    measured = stats.operator_pairs(
        utility, budgets=study.budgets, actions=actions, resamples=study.resamples, pairs=pairs
    )
    found = {(pair.first, pair.second, pair.budget): pair.difference for pair in measured}
    for budget in study.budgets:
        cells = [
            gain_cell(found[*pair, budget], study.cite(pair, budget)) if (*pair, budget) in found else DASH
            for pair in both
        ]
        yield str(budget), *cells


def _fit_strata(study: Study) -> Iterator[Cells]:
    strata: dict[str, Mask] = {"incomplete": study.fit < 1, "complete": study.fit >= 1}  # NaN is in neither
    sizes = np.min([mask.sum(axis=0) for mask in strata.values()], axis=0)
    budgets = [budget for budget, size in zip(study.budgets, sizes, strict=True) if size >= STRATUM]
    if not budgets:
        raise InputError(f"at no budget are there {STRATUM} questions whose notes all fit and {STRATUM} whose do not")
    inside = {name: mask[:, sizes >= STRATUM] for name, mask in strata.items()}
    names = _operator_names(study)
    found = study.gains(list(names), strata=inside, budgets=budgets)
    for g in sorted(found, key=lambda g: (list(names).index(g.action), g.budget)):  # stable: incomplete first
        chosen = inside[g.stratum][:, budgets.index(g.budget)]
        ids = [question for question, mine in zip(study.questions, chosen, strict=True) if mine]
        text = stratum(g.gain.mean, g.changes.rate.helped, g.changes.rate.harmed, g.gain.n)
        cell = estimate_cell(text, g.gain, study.cite([RETAIN, g.action], g.budget, question_id=ids))
        yield names[g.action], str(g.budget), g.stratum, cell


def _joint_routing(study: Study) -> Iterator[Cells]:
    fitted = study.paper_policies()
    of = fitted.panel
    for name in ("direct", "calibrated", "certified"):
        found = fitted.results[name]
        accuracy = study.estimates(study.spread(of, found.utility))
        gain = study.estimates(study.spread(of, found.utility - of.retentions))
        for b, budget in enumerate(of.budgets):
            cited, harms = study.cite(of.actions, budget), float(found.harmed[:, b].sum())
            cells = (rate_cell(accuracy[b], cited), gain_cell(gain[b], cited), plain_cell(harms, count(harms), cited))
            yield name.capitalize(), str(budget), *cells


def _mlp_check(study: Study) -> Iterator[Cells]:
    fitted = study.paper_policies()
    of, names = fitted.panel, ("ridge", "MLP")
    results = (fitted.results["direct"], study.mlp_policy().results["MLP"])
    both = np.stack([study.spread(of, found.utility) for found in results], axis=2)
    pairs = stats.operator_pairs(
        both, budgets=of.budgets, actions=names, resamples=study.resamples, pairs=[names[::-1]]
    )
    for b, pair in enumerate(pairs):
        cited = study.cite(of.actions, pair.budget)
        accuracy = [rate_cell(each, cited) for each in study.estimates(both[:, b])]
        p = plain_cell(pair.p, chance(pair.p), cited)
        yield str(pair.budget), *accuracy, gain_cell(pair.difference, cited), p


def _independent_gate(readings: Readings) -> Body:
    why = f"it waits for outcomes: no rows say {', '.join(FOLDS)} in a column fold, which keeps the questions apart"
    study = readings.nearest("routeAgate", why, lambda study: set(FOLDS) <= set(study.per_question("fold")))
    names = {action: f"Fixed {name}" for name, action in study.operators().items()}
    whole = study.panel([RETAIN, *names])
    parts, rules = _parts(study, whole), study.rules(len(study.roles.choices), GATE_CAP)
    policies: dict[str, Policy | None] = {
        "Retention": crossfit.always(0),
        **{name: crossfit.always(whole.actions.index(action)) for action, name in names.items()},
        "Per-budget policy selected on fit data": crossfit.best_fixed(0), "Direct ridge": crossfit.Direct(),
        "Frozen safe router": crossfit.Calibrated(), "Certified safe router": crossfit.Calibrated(certified=True),
        "Action oracle": None,
    }  # fmt: skip
    rows = [_gate_row(study, parts, name, policy, rules) for name, policy in policies.items()]
    rows += _gate_ladder(study, rules, whole.budgets)
    sizes = ", ".join(f"{len(part.questions)} {name}" for name, part in parts.items())
    note = f"Questions: {sizes}. Calibration may observe harm in {GATE_CAP:.0%} of its questions."
    body, gate = _policy_grid("routeAgate", study, whole, rows, note), len(parts["gate"].questions)
    marks = [mark for mark in body.marks if "questions (the paper" not in mark]
    if gate != (asked := TABLES["routeAgate"].questions):
        marks.append(f"{gate} gate questions (the paper: {asked})")
    return replace(body, marks=marks)


def _parts(study: Study, whole: Panel) -> dict[str, Panel]:
    fold = dict(zip(study.questions, study.per_question("fold"), strict=True))
    dealt = np.array([fold[name] for name in whole.questions])
    parts = {name: whole.take(np.flatnonzero(dealt == name)) for name in FOLDS}
    if empty := [name for name, part in parts.items() if not part.questions]:
        raise InputError(f"no {empty[0]} question has outcomes of all of {', '.join(whole.actions)}")
    return parts


def _gate_row(study: Study, parts: Mapping[str, Panel], name: str, policy: Policy | None, rules: Rules) -> Cells:
    """What a policy came to at the gate, made before it saw it; without one, the best action of each question."""
    gate = parts["gate"]
    if policy is None:
        plan = np.argmax(gate.utility, axis=2)[:, :, None]
    else:
        plan = policy(parts["fit"], parts["calibration"], rules)(gate.without_outcomes())
    went = ladder.walk(gate, plan)
    harmed = went.replaced & (went.utility < gate.retentions - 1e-12)
    return _policy_row(study, gate, name, went.utility, harmed.astype(np.float64), fold="gate")


def _gate_ladder(study: Study, rules: Rules, budgets: Sequence[int]) -> list[Cells]:
    """Ours, over what a product would choose between, where the rows have it."""
    try:
        whole = study.panel(study.roles.choices)
        parts = _parts(study, whole)
    except RetconError:
        return []
    if whole.budgets != tuple(budgets) or whole.abstained is None:
        return []
    policies = {
        "Best fixed action, all actions": crossfit.best_fixed(0),
        "Ladder, all actions": crossfit.learned_ladder,
    }
    return [_gate_row(study, parts, name, policy, rules) for name, policy in policies.items()]


# -- the list ----------------------------------------------------------------------------------------------------------


PAPER = (
    Spec("operator-gains", "What each operator gains over keeping raw notes",
          "An operator replaces the raw notes by a text that it wrote from them. Its gain is its share of right answers"
          " minus that of retention, on the same questions at the same budget; p is the chance of so large a gain if"
          " every question's sign were a coin toss, so near 0 it helps and near 1 it does not.",
          _of_nearest("operatorstats", ("Operator", "Budget", "Paired gain [95 % CI]", "one-sided p"), _operator_gains,
                      why="there are no rows of LongMemEval or of data of your own; LoCoMo has the next table",
                      only=lambda study: study.dataset != LOCOMO)),
    Spec("locomo-gains", "The same on LoCoMo, whose evidence is shorter",
          "Gain over retention on the same questions at the same budget; helped and harmed count the questions that an"
          " operator answered better, or worse. Questions of one conversation are not independent, so there is a second"
          " interval; with few conversations it is rather too narrow.", _locomo_gains),
    Spec("cross-model", "Does it hold for another model?",
          "Retention against Abstract on the same questions, once for each model that wrote and answered.",
          _cross_model),
    Spec("full-history", "When the notes have to be found first",
          "A retriever finds candidates in the whole history; retention and Abstract get the same ones. The binary"
          " oracle picks the better of the two for every question with hindsight: no policy can, it says how much there"
          " is to win.",
          _of_nearest("retrieved", ("Budget", "Retention", "Abstract", "Paired gain [95 % CI]", "Helped/harmed",
                      "Binary oracle"), _full_history,
                      why="there are no rows of a full history, where a retriever finds the notes",
                      only=lambda study: study.setting in SETTINGS and study.setting != CONTROLLED)),
    Spec("per-type", "Which questions gain and which lose at the loosest budget",
          "Gain over retention by type of question, with the questions helped and harmed in one run in parentheses"
          " (mean over runs).", _per_type),
    Spec("routing-baselines", "Learned routers against simple rules",
          "Share of right answers of each policy, with the number of harmful replacements in parentheses: another"
          " action was chosen where retention did better. Every policy is learned on some questions and tested on"
          " others; oracles look at the answer and only say what is left to win.", _routing),
    Spec("budget-pressure", "How much of the evidence fits",
          "Mean share of the candidate notes that retention packs, and the share of questions of which all, none or"
          " some fit. The regime goes by full fit: below 5 % severely tight, below 33 % tight, below 75 % transition.",
          _of_nearest("budgetpressure", ("Budget", "Mean fit", "Full (%)", "Zero (%)", "Partial (%)", "Regime"),
                      _budget_pressure)),
    Spec("operator-pairs", "One operator against another",
          "Difference in the share of right answers between two operators on the same questions; above zero the one"
          " named first is better.",
          _of_nearest("operatorpairwise", ("Budget", *(f"{a.capitalize()} - {b.capitalize()}" for a, b in PAIRS)),
                      _operator_pairs)),
    Spec("fit-strata", "Gain where the notes do not all fit, and where they do",
          "Gain over retention, apart for questions of which all candidate notes fit and for the others; in parentheses"
          f" the rates helped and harmed and the questions. Budgets at which both kinds have {STRATUM} questions.",
          _of_nearest("mechanismfit", ("Operator", "Budget", "Retention fit", "Gain (helped/harmed; n)"), _fit_strata)),
    Spec("joint-routing", "When to replace and by what, decided together",
          "The direct router takes the action of highest predicted utility. The calibrated one replaces only above a"
          " margin that harmed nobody on calibration questions; the certified one above a margin whose harm rate is at"
          f" most {100 * Rules().alpha:g} % with {100 - 100 * Rules().delta:g} % confidence. Gain is over retention,"
          " harm counts worse replacements.",
          _of_nearest("unified", ("Policy", "Budget", "Accuracy", "Gain [95 % CI]", "Harm"), _joint_routing,
                      learned=True)),
    Spec("mlp-check", "Would a nonlinear router do better?",
          "A small neural network in place of the linear model, learned and tested on the same folds; p is of two-sided"
          " sign flips.",
          _of_nearest("mlpcapacity", ("Budget", "Ridge accuracy", "MLP accuracy", "Difference from ridge [95 % CI]",
                      "two-sided p"), _mlp_check, learned=True)),
    Spec("independent", "Everything frozen before the last questions are opened",
          "Policies are learned on fit questions and calibrated on others, then scored once on the gate questions,"
          " which neither saw: share of right answers, harmful replacements in parentheses. The oracle has hindsight.",
          _independent_gate),
)  # fmt: skip
