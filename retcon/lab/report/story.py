"""Studies -> the plain-language opening of a report: what was measured, and what was found, in sentences.

The sentences follow the numbers, whichever way these point: what an interval does not settle is called open. A number
in a sentence is a `Value`, so that it leads to its rows as one in a table does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np

from retcon.lab.crossfit import REFERENCE, CrossFit
from retcon.lab.outcomes import Outcomes, run_mean
from retcon.lab.report import published
from retcon.lab.report.actions import AGNOSTIC, FOCUSED, OPERATORS
from retcon.lab.report.cells import Value, join
from retcon.lab.report.studies import ActionCurve, Study, attempt
from retcon.lab.stats import Estimate
from retcon.note import EXTRACT, RETAIN

Sentence = tuple[Value | str, ...]

PAPER = "Retain or Consolidate? Budget-Dependent Operator Selection for Language Agent Memory"
WHY = (
    "An agent that has talked with someone for months holds more notes than a model should read at once. When a"
    " question comes, only so many tokens may go to memory: the budget. Raw notes can be kept word for word, as many as"
    " fit. Or a model can replace them by a shorter text that it writes from them. The first leaves notes out, the"
    " second may lose the very detail that was asked for. This report measures which of the two answers more questions,"
    " at which budget."
)
BRIEF = {
    "merge": "unites the facts of all notes",
    "abstract": "sums them up in one note",
    "rewrite": "shortens each note by itself",
    EXTRACT: "copies the sentences that matter, without asking a model",
}
JUDGES = {
    "llm": "a language model that compares the answer with the reference",
    "overlap": "most words of the reference must be in the answer",
    "f1": "words shared with the reference, as a score",
    "strict": "numbers, dates and key words of the reference must be there, and nothing against them",
}
MEANINGS = {
    RETAIN: "raw notes, word for word, as many as fit the budget; no model is asked",
    EXTRACT: "the sentences that matter for the question, word for word, with date and source; no model is asked",
    "abstract": "a model writes one higher-level note across all candidates",
    "merge": "a model writes one compact union of the facts in all candidates",
    "rewrite": "a model rewrites each note on its own; as many as fit are kept",
    "hybrid": "the most relevant notes whole, then an abstract of the rest",
    "retrel": "raw notes, the most relevant first",
    "trunc": "raw notes, the most relevant first, the last one cut to fit",
    "none": "the question is asked without any memory",
    "full": "every candidate is read, without a budget",
}
FORMS = {AGNOSTIC: "without seeing the question", FOCUSED: "knowing the question"}
TERMS = (
    ("Budget", "tokens of memory that the reader may see for a question."),
    ("Candidates", "the notes that may be packed for a question."),
    ("Controlled", "the candidates are the evidence itself, so that only the way to pack it differs."),
    ("Full history", "a retriever must find the candidates among all notes first, and may miss."),
    ("Gain", "the share of right answers minus that of raw notes, on the same questions at the same budget."),
    ("Harm", "a written text was taken where raw notes would have done better."),
    ("Interval", "in brackets: the questions are drawn again at random, thousands of times, and 95 % of the results"
     " fall inside. A gain whose interval holds zero may be chance; one whose interval does not is set in bold."),
    ("Fixed, router, ladder", "always one action; one picked for each question before anything is written; or another"
     " one tried where the reader found no answer. All are learned on other questions than they are tested on."),
    ("Oracle, hindsight", "the best action of every question, known only afterwards: a ceiling, not a policy."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """What one study says: in short, and with numbers."""

    study: str
    verdict: str
    detail: Sentence


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, and what each study says to it."""

    question: str
    answers: tuple[StudyAnswer, ...]


def opening(studies: Sequence[Study], outcomes: Outcomes, judge: str, about: Mapping[str, str]) -> list[str]:
    """Paragraphs: why, what was measured on what by whom, and whose numbers stand beside."""
    told = [WHY, _ways(studies), _what_was_measured(studies, outcomes, judge, about), _beside(studies)]
    return [text for text in told if text]


def _ways(studies: Sequence[Study]) -> str:
    """The actions that the findings speak of, in a sentence each."""
    there = dict.fromkeys(study.roles.operator(curve.action) for study in studies for curve in study.curves)
    ways = [f"{name.capitalize()} {BRIEF[name]}" for name in BRIEF if name in there]
    forms = {study.roles.family(curve.action) for study in studies for curve in study.curves}
    told = " Texts called agnostic were written without seeing the question, focused ones with it."
    named = f"These texts are compared with raw notes: {'; '.join(ways)}." if ways else ""
    return named + (told if forms >= {AGNOSTIC, FOCUSED} else "")


def _what_was_measured(studies: Sequence[Study], outcomes: Outcomes, judge: str, about: Mapping[str, str]) -> str:
    parts = [
        f"{study.name} ({len(study.questions):,} questions at {join([str(b) for b in study.shown_budgets])} tokens,"
        f" {len(study.curves)} actions)"
        for study in studies
    ]
    models = sorted({study.model for study in studies if study.model})
    who = about.get("model") or join(models) or "a model that the rows do not name"
    others = [_judge(name) for name in outcomes.judges if name != judge]
    also = f" Verdicts of {join(others)} are kept beside it." if others else ""
    where = f", on {join(parts)}" if parts else ""
    return (
        f"Measured here: {len(outcomes):,} outcomes{where}. One outcome is one question, answered by a reader from one"
        f" text of memory at one budget, and judged right or wrong. Texts and answers are by {who}; the judge is"
        f" {_judge(judge)}.{also}"
    )


def _judge(name: str) -> str:
    return f"{name} ({JUDGES[name]})" if name in JUDGES else name


def _beside(studies: Sequence[Study]) -> str:
    other = " They were made with another model and mostly on other questions, so compare the pattern, not the digits."
    same = any(study.model == published.MODEL for study in studies)
    return (
        f"The question, the method and the rows marked “paper” are from a paper, “{PAPER}” (Kang, Liu and others),"
        f" which used {published.MODEL} on 75 questions each of LongMemEval and LoCoMo.{'' if same else other} Marks"
        " under each table say what differs from the paper's."
    )


def words(studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Every action that was measured, and what it does."""
    found: dict[str, str] = {}
    for study in studies:
        for action in study.roles.order:
            name = study.roles.names[action]
            does = MEANINGS.get(study.roles.operator(action), "an action of this study's own")
            form = FORMS.get(study.roles.family(action))
            called = f" In the rows: {action}." if action != name.lower() else ""
            found.setdefault(name, f"{f'{form}, ' if form else ''}{does}.{called}")
    return list(found.items())


def facts(
    outcomes: Outcomes, about: Mapping[str, str], *, draws: int, seed: int, repeats: int
) -> list[tuple[str, str]]:
    """What the rows and the caller say of how they were made."""
    hidden = ("dataset", "setting", "question_id", "conversation", "type", "raw_type", "action", "pair", "fold")
    found = {}
    for name, column in outcomes.columns.items():
        if column.dtype == object and name not in hidden:
            values = sorted(set(column.tolist()) - {""})
            if 0 < len(values) <= 6:
                found[name.replace("_", " ")] = ", ".join(values)
    runs = len(set(outcomes.columns["realization"].tolist()))
    return [
        ("outcomes", f"{len(outcomes):,}"), ("realizations", str(runs)), *found.items(),
        ("judges", ", ".join(outcomes.judges)), ("bootstrap", f"{draws:,} draws, seed {seed}"),
        ("folds dealt", "once" if repeats == 1 else f"{repeats} times"), *about.items(),
    ]  # fmt: skip


# -- findings ----------------------------------------------------------------------------------------------------------


def findings(studies: Sequence[Study]) -> list[Finding]:
    """What the outcomes say to the questions of the paper, and to ours."""
    asked: tuple[tuple[str, Callable[[Study], Iterator[Any]]], ...] = (  # a verdict first, then sentences
        ("When does replacing raw notes pay?", _when),
        ("Does it depend on whether the notes fit?", _why),
        ("Which text should take their place?", _which),
        ("Can the choice be learned?", _learning_pays),
    )
    found = []
    for question, answer in asked:
        told = ((study, list(answer(study))) for study in studies)
        answers = (StudyAnswer(study.name, said[0], _chain(said[1:], " ")) for study, said in told if said)
        found.append(Finding(question, tuple(answers)))
    return [finding for finding in found if finding.answers]


def _chain(parts: Sequence[Sentence], mark: str) -> Sentence:
    """The parts one after the other, a mark between them."""
    return tuple(piece for i, part in enumerate(parts) for piece in ((mark, *part) if i else part))


def _when(study: Study) -> Iterator[Sentence | str]:
    """The best of the paper's operators at the tightest budget, there and at the loosest."""
    whole = [
        curve for curve in study.operator_curves if curve.budgets == study.shown_budgets and len(curve.budgets) > 1
    ]
    if not whole:
        return
    best = max(whole, key=lambda curve: curve.gain[0].mean)
    names, raw = study.roles.names, study.curves[0]
    tight, loose = best.budgets[0], best.budgets[-1]
    least = min(whole, key=lambda curve: curve.gain[-1].mean)
    yield _verdict(best.gain[0], best.gain[-1], tight, loose)
    yield (
        f"At {tight} tokens {names[best.action]} is right on ", _at(study, best, 0), " of the questions, raw notes"
        " on ", _at(study, raw, 0), ", a difference of ", _change(study, best, 0), f". At {loose} tokens it is ",
        _at(study, best, -1), " against ", _at(study, raw, -1), ", a difference of ", _change(study, best, -1), ".",
    )  # fmt: skip
    if least is not best:
        yield (
            f"Of the paper's operators {names[least.action]} does worst at {loose} tokens: ",
            _change(study, least, -1),
            ".",
        )


def _verdict(tight: Estimate, loose: Estimate, low: int, high: int) -> str:
    """What the two gains say together; an interval that holds zero settles nothing."""
    first, last = _sign(tight), _sign(loose)
    if first > 0 > last:
        return f"It pays at {low} tokens and costs at {high}: the crossover that the paper reports."
    if first > 0:
        return f"It pays at {low} tokens" + (f", and still at {high}." if last > 0 else f"; at {high} it is open.")
    if first < 0:
        return f"It costs at {low} tokens" + (f", and at {high} too." if last < 0 else ".")
    return f"That it pays at {low} tokens is not shown here" + (f", and at {high} it costs." if last < 0 else ".")


def _sign(found: Estimate) -> int:
    return 0 if not found.excludes() else 1 if found.mean > 0 else -1


def _why(study: Study) -> Iterator[Sentence | str]:
    """Gains of the paper's operators where some of the evidence is left out, and where none is."""
    if study.setting != published.CONTROLLED or study.full_fit is None or not study.operator_curves:
        return
    actions = [curve.action for curve in study.operator_curves]
    gain = run_mean(np.stack([study.gain(action) for action in actions], axis=2))  # [q, b]
    found = {}
    for name, inside in (("some", study.fit < 1), ("all", study.fit >= 1)):
        values = run_mean(np.where(inside, gain, np.nan))
        if np.isnan(values).all():
            return
        found[name] = study.estimate(values)
    rows = study.cite([RETAIN, *actions], study.budgets)
    yield _contrast(**found)
    yield (
        "Where some of the evidence was too long for the budget, the paper's operators changed accuracy"
        " by ", _points(found["some"], rows), "; where all of it fit, by ", _points(found["all"], rows),
        f" (mean of {join([curve.name for curve in study.operator_curves])} over budgets).",
    )  # fmt: skip


def _contrast(some: Estimate, all: Estimate) -> str:  # noqa: A002
    if _sign(some) > 0 > _sign(all):
        return "Yes: a written text helps where notes had to be left out, and hurts where it replaces notes that fit."
    if _sign(some) > 0:
        return "In part: a written text helps where notes had to be left out; where all fit, it is open."
    return "Not as the paper says: no clear gain where notes had to be left out."


def _which(study: Study) -> Iterator[Sentence | str]:
    whole = [curve for curve in study.curves if curve.budgets == study.shown_budgets]
    best = [max(whole, key=lambda curve: curve.accuracy[b].mean) for b in range(len(study.shown_budgets))]
    parts = []
    for action, run in groupby(range(len(best)), key=lambda b: best[b].action):
        at = list(run)
        first, last = study.shown_budgets[at[0]], study.shown_budgets[at[-1]]
        span = f"{first} tokens" if first == last else f"{first} to {last} tokens"
        told = _chain([(_at(study, best[b], b),) for b in at], ", ")
        parts.append((f"{study.roles.names[action]} at {span} (", *told, ")"))
    one = study.roles.names[best[0].action]
    yield "No action is highest at every budget." if len(parts) > 1 else f"{one} is highest at every budget."
    yield ("The highest share of right answers has ", *_chain(parts, ", "), ".")
    yield from _focus(study)
    yield from _no_model(study)


def _focus(study: Study) -> Iterator[Sentence]:
    """What it is worth to write for the question."""
    roles, parts = study.roles, []
    for operator in OPERATORS:
        forms = {roles.family(c.action): c.action for c in study.curves if roles.operator(c.action) == operator}
        if AGNOSTIC in forms and FOCUSED in forms:
            pair = [forms[FOCUSED], forms[AGNOSTIC]]
            found = study.estimate(run_mean(study.values(pair[0]) - study.values(pair[1])))
            parts.append((f"{operator.capitalize()} by ", _points(found, study.cite(pair, study.budgets))))
    if parts:
        yield ("Writing for the question instead of without it changes ", *_chain(parts, ", "), " (mean of budgets).")


def _no_model(study: Study) -> Iterator[Sentence]:
    if any(curve.action == EXTRACT and curve.budgets == study.shown_budgets for curve in study.curves):
        gain = _points(study.estimate(run_mean(study.gain(EXTRACT))), study.cite([RETAIN, EXTRACT], study.budgets))
        yield ("Extract, which asks no model, differs from raw notes by ", gain, " (mean of budgets).")


def _learning_pays(study: Study) -> Iterator[Sentence | str]:
    """Router and ladder against the best fixed action, and what hindsight would reach."""
    fit = attempt(study.product_policies)
    if fit is None or REFERENCE not in fit.results:
        return
    fixed, direct = fit.results[REFERENCE], fit.results["direct"]
    rows = study.cite(fit.panel.actions, fit.panel.budgets)
    change = study.over_budgets(fit.panel, direct.utility - fixed.utility)
    ladder = fit.results.get("ladder")
    more = None if ladder is None else study.over_budgets(fit.panel, ladder.utility - fixed.utility)
    yield _lesson(change, more)
    yield (
        "One action for each budget, chosen on other questions, is right on ",
        _mean(study, fit, REFERENCE), " (mean of budgets). A router that picks an action for each question before any"
        " text is written reaches ", _mean(study, fit, "direct"), ", a difference of ", _points(change, rows), ".",
    )  # fmt: skip
    if ladder is not None and more is not None:
        calls = Value(f"{float(np.nanmean(ladder.calls)):.2f}", rows=rows)
        yield (
            "A ladder, which looks again with another action where the reader finds no answer, reaches ",
            _mean(study, fit, "ladder"), ", a difference of ", _points(more, rows), ", at ", calls,
            " reader calls a question instead of one.",
        )  # fmt: skip
    top = _mean(study, fit, "action oracle")
    yield ("Picking the best action of every question with hindsight would reach ", top, ".")


def _lesson(router: Estimate, ladder: Estimate | None) -> str:
    one = ("A router does worse than one fixed action", "That a router helps is not shown", "A router helps")
    said = one[_sign(router) + 1]
    if ladder is None:
        return f"{said}."
    two = ("a second look does worse", "that a second look helps is not shown", "a second look helps")
    same = _sign(router) == _sign(ladder)
    return f"{said}{' and' if same else ';'} {two[_sign(ladder) + 1]}."


# -- numbers in sentences ----------------------------------------------------------------------------------------------


def _at(study: Study, curve: ActionCurve, b: int) -> Value:
    return _share(curve.accuracy[b], study.cite([curve.action], curve.budgets[b]))


def _change(study: Study, curve: ActionCurve, b: int) -> Value:
    return _points(curve.gain[b], study.cite([RETAIN, curve.action], curve.budgets[b]))


def _mean(study: Study, fit: CrossFit, policy: str) -> Value:
    found = study.over_budgets(fit.panel, fit.results[policy].utility)
    return _share(found, study.cite(fit.panel.actions, fit.panel.budgets))


def _share(found: Estimate, rows: Mapping[str, Any]) -> Value:
    return Value(f"{found.mean:.1%}", found.mean, found.low, found.high, rows)


def _points(found: Estimate, rows: Mapping[str, Any]) -> Value:
    if not all(map(isfinite, (found.mean, found.low, found.high))):
        return Value("an amount that was not measured", rows=rows)
    said = [f"{100 * value:+.1f}".replace("-", "−") for value in (found.mean, found.low, found.high)]
    return Value(f"{said[0]} points [{said[1]}, {said[2]}]", found.mean, found.low, found.high, rows)
