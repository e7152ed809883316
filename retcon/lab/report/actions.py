"""Outcomes -> the role of each action: the paper's operator, a choice of a product, a reference; and its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retcon.lab.outcomes import Outcomes
from retcon.note import EXTRACT, RETAIN

OPERATORS = ("abstract", "merge", "rewrite")  # in the order of the paper's tables
REFERENCES = ("none", "full")  # no memory at all, and no budget
PACKINGS = ("retrel", "trunc")  # retention in another order, or with its last note cut
AGNOSTIC, FOCUSED, UNSAID = "agnostic", "focused", ""
WRITTEN, OTHER = "written", "other"
FAMILIES = {
    AGNOSTIC: "Written without the question",
    FOCUSED: "Written for the question",
    WRITTEN: "Written by a model",
    OTHER: "Other ways to fill the budget",
}
NAMES = {
    RETAIN: "Retention", "retrel": "Retention by relevance", "trunc": "Truncation", "none": "No memory",
    "full": "No budget",
}  # fmt: skip
SHORT = {"retrel": "By relevance"}  # where a name would be too long for the margin of a figure
LONGEST = 20  # characters of a name in the margin of a figure


@dataclass(frozen=True, slots=True)
class Roles:
    """The actions of some outcomes in their roles."""

    operators: Mapping[str, str]  # abstract, merge, rewrite -> the action that is the paper's operator
    choices: tuple[str, ...]  # what a product would choose between: of an operator's two forms the focused one
    order: tuple[str, ...]  # all actions as a table lists them
    names: Mapping[str, str]  # what people call them
    focused: bool  # whether the operators saw the question, as the paper's did not

    def family(self, action: str) -> str:
        """Who writes the text, and knowing what."""
        name = self.names[action]
        form = next((form for form in (AGNOSTIC, FOCUSED) if name.endswith(f", {form}")), None)
        return form or (WRITTEN if action in OPERATORS else OTHER)

    def short(self, action: str) -> str:
        """The name of an action, without the form that the family says."""
        return cut(SHORT.get(action) or self.names.get(action, action).split(",")[0], LONGEST)

    def operator(self, action: str) -> str:
        """The paper's operator behind a variant; the action itself where there is none."""
        base = self.short(action).lower()
        return base if base in OPERATORS else action


def cut(text: str, longest: int) -> str:
    """The text for a figure, cut where it would not fit."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def roles(outcomes: Outcomes) -> Roles:
    """Which actions are the paper's operators, written without the question, and what to call every action."""
    forms = _forms(outcomes)
    by: dict[str, dict[str, str]] = {AGNOSTIC: {}, UNSAID: {}, FOCUSED: {}}
    for name, (base, form) in forms.items():
        by[form][base] = name
    chosen = next((some for some in by.values() if some), {})
    written = [name for some in by.values() for name in some.values()]
    first = [RETAIN, EXTRACT, *written]
    rest = [name for name in outcomes.actions if name not in (*first, *REFERENCES)]
    out = {*REFERENCES, *PACKINGS, *(name for base, name in by[AGNOSTIC].items() if base in by[FOCUSED])}
    return Roles(
        operators={name: chosen[name] for name in OPERATORS if name in chosen},
        choices=tuple(name for name in outcomes.actions if name not in out),
        order=tuple(name for name in (*first, *rest, *REFERENCES) if name in outcomes.actions),
        names={name: _name(name, *forms.get(name, (name, UNSAID))) for name in outcomes.actions},
        focused=chosen is by[FOCUSED] and bool(chosen),
    )


def _forms(outcomes: Outcomes) -> dict[str, tuple[str, str]]:
    """Action -> operator and form, in the order of the paper.

    `merge-agnostic` and `qmerge` say what they are; merge beside the first is focused, beside the second agnostic.
    """
    have, columns = set(outcomes.actions), outcomes.columns
    said = dict(zip(columns["action"].tolist(), columns["focus"].tolist(), strict=True)) if "focus" in columns else {}
    short, long = any(f"q{name}" in have for name in OPERATORS), any(f"{name}-{AGNOSTIC}" in have for name in OPERATORS)
    found = {}
    for base in OPERATORS:
        plain = AGNOSTIC if short else FOCUSED if long else said.get(base, UNSAID)
        forms = {base: plain if plain in (AGNOSTIC, FOCUSED) else UNSAID}
        forms |= {f"{base}-{AGNOSTIC}": AGNOSTIC, f"q{base}": FOCUSED}
        found.update({name: (base, form) for name, form in forms.items() if name in have})
    return found


def _name(action: str, base: str, form: str) -> str:
    return NAMES.get(action) or base.capitalize() + (f", {form}" if form else "")
