"""Outcomes of several domains -> Domains: what learning over many domains, and leaving one out, works on.

A domain is one dataset with its unanswerable questions. An answer to one of those is wrong, an abstention is no answer:

    utility = right - wrong_cost * wrong

Learning weighs domains alike, and within each `UNANSWERABLE` of the weight is on unanswerable questions. A policy is
learned on some domains and played on another; what it `Played` says which reply stood and what it cost. `leave_out` is
the one loop of all choices: each of the domains in turn is tested by what was learned on the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from retcon.confidence import SIGNALS
from retcon.drafts import HOLDS, TRAITS, UNTOLD
from retcon.errors import InputError
from retcon.lab.outcomes import Outcomes, panel

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Learned = TypeVar("Learned")

ANSWERABLE = "answerable"
UNANSWERABLE = 0.2  # share of the weight in learning
REFUSED = -1  # no reply stood
SPENT = ("model_calls", "generated_tokens", "prompted_tokens", "reader_tokens")


@dataclass(frozen=True)
class Domain:
    """The outcomes of one domain as dense arrays: q questions, b budgets, a actions."""

    name: str
    questions: tuple[str, ...]
    kinds: tuple[str, ...]  # "answerable", or how it came to be unanswerable
    twins: tuple[str, ...]  # the question that it was made from, or itself
    conversations: tuple[str, ...]
    budgets: tuple[int, ...]
    actions: tuple[str, ...]
    features: tuple[str, ...]
    x: Array  # [q, b, feature]: known before generation
    verdicts: Mapping[str, Array]  # judge -> [q, b, a]: 1 where the reply is right, 0 too where none was given
    answered: NDArray[np.bool_]  # [q, b, a]
    logprob: Array  # [q, b, a]
    signals: Array  # [q, b, a, signal], of replies; NaN where none was given
    traits: Array  # [q, b, a, trait], of texts
    spent: Mapping[str, Array]  # of SPENT: [q, b, a]
    trait_names: tuple[str, ...] = TRAITS

    @property
    def answerable(self) -> NDArray[np.bool_]:
        """[q]"""
        return np.array([kind == ANSWERABLE for kind in self.kinds])

    def weights(self, share: float = UNANSWERABLE) -> Array:
        """[q], summing to 1: this share of it on the unanswerable questions."""
        there = self.answerable
        share = share if not there.all() else 0.0
        known, unknown = (1 - share) / max(int(there.sum()), 1), share / max(int((~there).sum()), 1)
        return np.where(there, known, unknown)

    @property
    def fit(self) -> Array:
        """[q, b], the share of candidate notes that fit."""
        return self.x[:, :, self.features.index("fit")]

    def place(self, action: str) -> int:
        """The action's place in the arrays."""
        return self.actions.index(action)

    def with_features(self, names: Sequence[str]) -> Domain:
        """The domain with these features alone."""
        return replace(self, features=tuple(names), x=self.x[:, :, [self.features.index(name) for name in names]])


@dataclass(frozen=True)
class Played:
    """What a policy came to, each [q, b]: whose reply stood (REFUSED: nobody's), reader calls, and all tokens."""

    action: Places
    calls: Array
    tokens: Array
    confidence: Array | None = None  # of the reply that stood, where the policy knows it
    spends: tuple[int, ...] | None = None  # places of the budgets that it took, where these are not those it was given

    def right(self, domain: Domain, judge: str) -> Array:
        """1 where the reply that stood is right."""
        return np.where(self.gave(domain), self._of(domain.verdicts[judge]), 0.0)

    def gave(self, domain: Domain) -> NDArray[np.bool_]:
        """Whether an answer was given."""
        return np.asarray((self._of(domain.answered) > 0) & (self.action >= 0))

    def _of(self, values: NDArray[np.generic]) -> Array:
        """The values of the replies that stood."""
        seen = values if self.spends is None else values[:, list(self.spends)]
        found: Array = np.take_along_axis(seen, np.maximum(self.action, 0)[:, :, None], axis=2)[:, :, 0].astype(float)
        return found

    def utility(self, domain: Domain, judge: str, wrong_cost: float) -> Array:
        """Right less the price of wrong."""
        right = self.right(domain, judge)
        return right - wrong_cost * (self.gave(domain) - right)

    def accuracy(self, domain: Domain, judge: str) -> Array:
        """Right, where a right abstention counts as right."""
        return self.right(domain, judge) + (~self.gave(domain) & ~domain.answerable[:, None])


Policy = Callable[[Domain], Played]
Learner = Callable[[Sequence[Domain]], Policy]


def read_domain(
    rows: Outcomes, *, judges: Sequence[str] = ("llm", "strict"), name: str | None = None, holds: bool = False
) -> Domain:
    """The domain that these rows are of; they need kinds, signals and traits, and with `holds` the model's word too."""
    made = panel(rows, judge=judges[0])
    column = rows.columns
    if missing := [each for each in ("kind", "twin", "abstained", "logprob") if each not in column]:
        raise InputError(f"outcomes of a domain need a column {missing[0]}")
    q = {each: place for place, each in enumerate(made.questions)}
    at = (
        np.array([q[each] for each in column["question_id"].tolist()]),
        np.array([made.budgets.index(each) for each in column["budget"].tolist()]),
        np.array([made.actions.index(each) for each in column["action"].tolist()]),
    )
    shape = (len(q), len(made.budgets), len(made.actions))

    def fill(values: Sequence[float] | NDArray[np.float64]) -> Array:
        out = np.full(shape, np.nan)
        out[at] = np.asarray(values, float)
        return out

    def label(of: str) -> tuple[str, ...]:
        found = dict(zip(column["question_id"].tolist(), column[of].tolist(), strict=True))
        return tuple(str(found[each]) for each in made.questions)

    def trait(of: str) -> Array:
        values = fill(column[f"trait_{of}"])
        return np.where(np.isnan(values), UNTOLD, values) if of == HOLDS else values

    kinds, names = label("kind"), (*TRAITS, HOLDS) if holds else TRAITS
    answered = fill(column["abstained"]) < 0.5
    counts = answered & (np.array(kinds) == ANSWERABLE)[:, None, None]
    return Domain(
        name=name or made.dataset,
        questions=made.questions,
        kinds=kinds,
        twins=label("twin"),
        conversations=made.conversations,
        budgets=made.budgets,
        actions=made.actions,
        features=made.features,
        x=made.x,
        verdicts={judge: np.where(counts, fill(column[f"judge_{judge}"]), 0.0) for judge in judges},
        answered=answered,
        logprob=fill(column["logprob"]),
        signals=np.stack([fill(column[f"signal_{each}"]) for each in SIGNALS], axis=3),
        traits=np.stack([trait(each) for each in names], axis=3),
        spent={each: fill(column[each]) for each in SPENT},
        trait_names=names,
    )


def leave_out(
    domains: Sequence[Domain], learn: Callable[[Sequence[Domain]], Learned]
) -> Iterator[tuple[Domain, Learned]]:
    """Each domain, with what was learned on the others."""
    for left in domains:
        yield left, learn([each for each in domains if each is not left])


# -- one action ----------------------------------------------------------------------------------------------------


def rank_actions(domains: Sequence[Domain], judge: str = "llm", *, wrong_cost: float = 0.0) -> list[list[str]]:
    """For each budget the actions, best first: by utility, domains weighing alike. Of equals the earlier is better.

    At cost 0 unanswerable questions say nothing, and the utility is the share of right answers.
    """
    first = domains[0]
    worth = np.zeros((len(first.budgets), len(first.actions)))
    for domain in domains:
        weights = domain.weights(0.0 if wrong_cost == 0 else UNANSWERABLE)
        right, given = domain.verdicts[judge], domain.answered
        worth += np.einsum("q,qba->ba", weights, right - wrong_cost * (given - right))
    order = np.argsort(-np.round(worth, 12), axis=1, kind="stable")
    return [[first.actions[place] for place in row] for row in order.tolist()]


def play_actions(domain: Domain, chosen: Places, *, written: Sequence[int] = ()) -> Played:
    """One action each [q, b], read once; `written` are all actions whose texts were paid for, else the chosen one."""
    spent = sum((domain.spent[name] for name in SPENT[1:3]), np.zeros(domain.answered.shape))
    read = _at(domain.spent["reader_tokens"], chosen)
    wrote = spent[:, :, list(written)].sum(axis=2) if written else _at(spent, chosen)
    return Played(chosen, np.ones(chosen.shape), read + wrote)


def learn_fixed(domains: Sequence[Domain], *, actions: Sequence[str] | None = None, wrong_cost: float = 0.0) -> Policy:
    """The action selected per budget."""
    ranked = rank_actions(domains, wrong_cost=wrong_cost)
    return lambda domain: play_actions(domain, fixed_places(domain, ranked, actions))


def fixed_places(domain: Domain, ranked: Sequence[Sequence[str]], actions: Sequence[str] | None = None) -> Places:
    """[q, b]: the first action of each budget's ranking that may be used."""
    best = [next(name for name in row if actions is None or name in actions) for row in ranked]
    return np.tile([domain.place(name) for name in best], (len(domain.questions), 1))


def _at(values: Array, chosen: Places) -> Array:
    found: Array = np.take_along_axis(values, np.maximum(chosen, 0)[:, :, None], axis=2)[:, :, 0]
    return found
