"""Outcomes -> a folder with the advice that they support: one page in plain words, a router and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from retcon.errors import MissingExtraError
from retcon.lab import bench, learn
from retcon.lab.advise import (
    DEFAULT,
    FEW,
    FIXED,
    LADDER,
    LEARNED,
    SMALL,
    Advice,
    Score,
    Standing,
    read_advice,
)  # fmt: skip
from retcon.lab.outcomes import Outcomes, Panel
from retcon.lab.report.figures import crossover_figure
from retcon.lab.report.studies import Readings
from retcon.lab.stats import Estimate
from retcon.ladder import DEFAULT_WRONG_COST
from retcon.operate import ACTIONS

MOST = 10_000  # questions; a larger number says no more than "more"
YOURS = "What is best for your notes: the sample is one invented person's talks. retcon advise --questions asks yours."
SILENT = 10  # unanswerable questions below which their share of wrong answers is no more than a hint
ROUTER, FIXED_ROUTER, PAGE, FIGURE = "router.json", "fixed.json", "advice.md", "crossover.svg"
WEAK = 0.1  # share right of the best action below which a reader tells little


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under their headings; a column named with a leading '>' is flush right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Points:
    """A list under its heading."""

    heading: str
    lines: tuple[str, ...]


Part = str | Table | Points


@dataclass(frozen=True, slots=True)
class Page:
    """A title, then paragraphs, tables and lists."""

    title: str
    parts: tuple[Part, ...]

    def markdown(self) -> str:
        """The page as Markdown."""
        return "\n\n".join([f"# {self.title}", *map(_markdown, self.parts)]) + "\n"


def _markdown(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Points):
        return "\n".join([f"## {part.heading}", "", *(f"- {line}" for line in part.lines)])
    rule = ["--:" if name.startswith(">") else "---" for name in part.columns]
    head = [name.lstrip(">") for name in part.columns]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *part.rows))


# -- on the user's own questions ---------------------------------------------------------------------------------------


def own_page(advice: Advice, files: Mapping[str, object]) -> Page:
    """The page on a user's own questions."""
    table = Table(
        ("", ">right", ">wrong", ">none", ">utility", ">over default", ">over fixed"),
        tuple(map(_score_row, advice.scores)),
    )
    budgets = Table(
        (">budget", "default takes", ">utility", "best other", ">utility", ">gain", ">needed"),
        tuple(map(_standing_row, advice.standings)),
    )
    within = f"Smallest budget within {100 * advice.points:g} points of the best: {advice.enough}."
    enough = f"{within} needed: {_units(advice)} to show it."
    return Page(
        f"Advice for {advice.dataset or 'your questions'}",
        (
            _measured(advice),
            _recommend(advice, files) + _unpriced(advice),
            table,
            _legend(advice),
            budgets,
            enough,
            Points("What this cannot tell", cannot_tell(advice)),
        ),
    )


def _measured(advice: Advice) -> str:
    kinds = f"{advice.questions} questions, {advice.unanswerable} of them unanswerable"
    kinds += f", in {advice.units} conversations" if advice.group == "conversation" else ""
    reader = f"; reader {advice.reader}" if advice.reader else ""
    return f"{kinds}{reader}; judge {advice.judge}."


def _recommend(advice: Advice, files: Mapping[str, object]) -> str:
    """Which router to use, and why, in a sentence or two."""
    ships, path = f"the router that ships ({advice.router['name']})", files.get("fixed", FIXED_ROUTER)
    if advice.use == FIXED:
        return (
            f"USE A FIXED ACTION at each budget, {_actions(advice.fixed)}: {gain(advice.score(FIXED).over_default)}"
            f" over {ships}. In code: Memory(..., router={str(path)!r})."
        )
    if advice.use == LEARNED:
        return (
            f"USE THE ROUTER LEARNED ON YOUR QUESTIONS: {gain(advice.score(LEARNED).over_default)} over {ships},"
            f" {gain(advice.learned_over_fixed)} over fixed actions. In code:"
            f" Memory(..., router={str(files.get('router', ROUTER))!r})."
        )
    return f"KEEP THE ROUTER THAT SHIPS ({advice.router['name']}): {_why_default(advice)}"


def _why_default(advice: Advice) -> str:
    rival = advice.rival
    lead = rival.over_default
    what = "fixed actions" if rival.name == FIXED else "a router learned on your questions"
    if lead is None:
        return f"{what} came to the same."
    if advice.few:
        return f"{advice.units} {_units(advice)} are too few to tell; below {FEW} every difference may be chance."
    if lead.high < 0:
        return f"it is surely better than {what} ({gain(lead)}), the nearest."
    cannot = f"{advice.units} {_units(advice)} cannot tell yet"
    if lead.mean <= 0:
        return f"nothing did better ({what}, the nearest, {gain(lead)}), but {cannot} that it is the best."
    return f"{what} led by {gain(lead)}, and whether that is chance {cannot}; about {_number(advice.needed)} would."


def _unpriced(advice: Advice) -> str:
    """What the advice would be where a wrong answer costs nothing."""
    free = advice.unpriced
    if free is None:
        return ""
    rival = free.rival
    what = {DEFAULT: "to keep the router that ships", FIXED: "fixed actions", LEARNED: "the learned router"}[free.use]
    same = "the same" if free.use == advice.use else what
    return (
        f" With wrong answers for free (--wrong-cost 0) the advice is {same}: {rival.name} {gain(rival.over_default)}."
    )


def _actions(fixed: Mapping[int, str]) -> str:
    """Which action at which budgets: extract at 32 and 64 tokens, retain at 128"""
    at: dict[str, list[str]] = {}
    for budget, action in fixed.items():
        at.setdefault(action, []).append(str(budget))
    return "; ".join(f"{action} at {', '.join(budgets)} tokens" for action, budgets in at.items())


def _score_row(each: Score) -> tuple[str, ...]:
    return each.name, *_shares(each), gain(each.over_default), gain(each.over_fixed)


def _legend(advice: Advice) -> str:
    calls = advice.score(LADDER).calls
    return (
        f"Mean over budgets; utility = right - {advice.wrong_cost:g} x wrong, and any answer to an unanswerable"
        " question is wrong. fixed: the best action at each budget; learned: a router; ladder: looks again"
        f" ({calls:.1f} reader calls); these never saw the questions that they are scored on. The rest: one action"
        " always. Intervals allow for two rivals."
    )


def _standing_row(each: Standing) -> tuple[str, ...]:
    best = next(score for score in each.actions if score.name == each.rival)
    return (
        str(each.budget), _taken(each), share(each.default.utility), each.rival, share(best.utility), gain(each.gain),
        "sure" if each.sure else _number(each.needed) if each.needed else "",
    )  # fmt: skip


def _taken(each: Standing) -> str:
    part = each.takes[each.usual]
    return each.usual if part == 1 else f"{each.usual} {100 * part:.0f} %"


# -- on the shipped sample ---------------------------------------------------------------------------------------------


def sample_page(advice: Advice) -> Page:
    """The page on the shipped sample: whether the default's choices hold for this reader."""
    rows = tuple(row for each in advice.standings for row in _budget_rows(each))
    table = Table((">budget", "", ">right", ">wrong", ">none", ">utility", ">over default"), rows)
    known = advice.router["reader"] or "a reader that it does not name"
    learned = f"The router that ships, {advice.router['name']}, was learned with {known}."
    legend = (
        f"Shares of questions; utility = right - {advice.wrong_cost:g} x wrong, and any answer to an unanswerable"
        f" question is wrong. Intervals allow for {len(advice.actions)} actions."
    )
    return Page(
        f"Does the default hold for {advice.reader or 'this reader'}?",
        (
            f"The shipped sample: {_measured(advice)} {learned}",
            " ".join((*map(_holds, advice.standings), *_unpriced_sample(advice))),
            table,
            legend,
            Points("What this cannot tell", (*cannot_tell(advice), YOURS)),
        ),
    )


def _budget_rows(each: Standing) -> list[tuple[str, ...]]:
    first = (f"{each.budget}", f"default: {_taken(each)}", *_shares(each.default), "")
    return [first, *(("", score.name, *_shares(score), gain(score.over_default)) for score in each.actions)]


def _shares(score: Score) -> tuple[str, ...]:
    return share(score.right), share(score.wrong), share(score.none), share(score.utility)


def _holds(each: Standing) -> str:
    """Whether the default's choices hold at a budget."""
    at, lead = f"At {each.budget} tokens", f"{each.rival} {gain(each.gain)} over the default"
    if each.use != DEFAULT:
        until = f"until your own questions say more, recall(..., action={each.rival!r})"
        return f"{at} the default does NOT hold: {lead}; {until}."
    if each.sure:
        return f"{at} the default HOLDS: surely better than every other action ({lead})."
    more = f"; about {_number(each.needed)} questions would" if each.needed else ""
    return f"{at} nothing speaks against the default, and nothing proves it ({lead}){more}."


def _unpriced_sample(advice: Advice) -> list[str]:
    """At which budgets that would be otherwise where a wrong answer costs nothing."""
    if advice.unpriced is None:
        return []
    pairs = zip(advice.standings, advice.unpriced.standings, strict=True)
    other = [
        f"at {free.budget} tokens {_verdict(free)}" for priced, free in pairs if _verdict(priced) != _verdict(free)
    ]
    return [f"With wrong answers for free (--wrong-cost 0): {'; '.join(other) or 'the same'}."]


def _verdict(each: Standing) -> str:
    if each.use != DEFAULT:
        return f"it does not hold against {each.rival}"
    return "it holds" if each.sure else "nothing is sure"


# -- what cannot be told -----------------------------------------------------------------------------------------------


def cannot_tell(advice: Advice) -> tuple[str, ...]:
    """What these questions leave open, a line each."""
    said = []
    if advice.few:
        said.append(f"Anything for sure: {advice.units} {_units(advice)}, and {FEW} are the fewest that can show it.")
    if advice.small_needed is not None:
        said.append(
            f"Differences to the default below about {share(advice.unseen)} go unseen; one of {share(SMALL)} takes"
            f" about {_number(advice.small_needed)} {_units(advice)}."
        )
    if advice.unanswerable < SILENT:
        few = f"only {advice.unanswerable}" if advice.unanswerable else "none"
        said.append(f'False answers where memory holds none: {few} of the questions are such ("abstention": true).')
    if max(advice.score(name).right for name in advice.actions) < WEAK:
        said.append(
            f"Much about actions: this reader is right in less than {share(WEAK)} of cases whatever it is shown."
        )
    if advice.self_judged:
        said.append("Whether its verdicts are fair: the reader judged its own replies. --judge-model names another.")
    elif advice.judge == "strict":
        said.append("Right answers in other words: the judge strict counts them wrong.")
    return tuple(said)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _units(advice: Advice) -> str:
    return "questions" if advice.group == "question" else "conversations"


def _number(needed: int | None) -> str:
    return "an unknown number of" if needed is None else f"{needed:,}" if needed <= MOST else f"more than {MOST:,}"


def gain(found: Estimate | None) -> str:
    """A difference with its interval, "" where there is none: +.19 [+.04, +.33]"""
    return "" if found is None else f"{_signed(found.mean)} [{_signed(found.low)}, {_signed(found.high)}]"


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("0.", ".", 1)  # -0. becomes 0.


def share(value: float) -> str:
    """A share of 1 with two decimals and no leading zero: .61"""
    return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1)


# -- on disk -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdviceResult:
    """Advice, its page, and where everything is."""

    advice: Advice
    page: Page
    incomplete: tuple[str, ...]  # questions left out: an outcome of theirs is missing
    files: Mapping[str, Path]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        files = {what: str(path) for what, path in self.files.items()}
        return self.advice.to_dict() | {"incomplete": list(self.incomplete), "files": files}


def write_advice(
    table: Outcomes, out: Path, *, judge: str, sample: bool = False, wrong_cost: float = DEFAULT_WRONG_COST,
    draws: int = 10_000, seed: int = 0,
) -> AdviceResult:  # fmt: skip
    """The advice that the outcomes of one dataset and setting support, in a folder; no router of the sample's."""
    rows, incomplete = bench.split_complete(table, judge=judge)
    made, priced = read_advice(rows, judge=judge, wrong_cost=wrong_cost, draws=draws, seed=seed)
    files = {"outcomes": out / bench.OUTCOMES}
    files |= {} if sample else _save_routers(rows, priced.panel, made, out, seed)
    files |= _draw_crossover(table, out, judge, draws, seed)
    page = sample_page(made) if sample else own_page(made, files)
    (out / PAGE).write_text(page.markdown(), encoding="utf-8")
    return AdviceResult(made, page, incomplete, files | {"page": out / PAGE})


def _save_routers(rows: Outcomes, panel: Panel, advice: Advice, out: Path, seed: int) -> dict[str, Path]:
    """A router learned on all of the questions, and one that takes the fixed actions; none of arms no memory offers."""
    if not set(panel.actions) <= set(ACTIONS):
        return {}
    learned = learn.fit_router(rows, panel, name="advised", group=advice.group, seed=seed)
    learned.save(out / ROUTER)
    replace(learned, name="advised-fixed", fixed=advice.ranked, margin=None).save(out / FIXED_ROUTER)
    return {"router": out / ROUTER, "fixed": out / FIXED_ROUTER}


def _draw_crossover(table: Outcomes, out: Path, judge: str, draws: int, seed: int) -> dict[str, Path]:
    """The crossover as a picture; nothing without matplotlib, or without a question that has an answer."""
    studies = Readings(table, judge=judge, draws=draws, seed=seed).studies
    try:
        figure = crossover_figure(studies[0]) if studies else None
    except MissingExtraError:
        return {}
    if figure is None:
        return {}
    (out / FIGURE).write_text(figure.svg, encoding="utf-8")
    return {"figure": out / FIGURE}
