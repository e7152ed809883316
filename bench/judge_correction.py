"""What a policy's figures are once the judges' errors are taken back: the estimator, its interval, and a check of it.

    labels = read_labels()
    mine, base = Cells.of(rows_of_policy), Cells.of(rows_of_fixed)      # one row for each question and budget
    corrected(mine, labels)                                             # right, equal weight for domains
    corrected(mine, labels, against=base, worth=Worth(wrong_cost=0.5), unanswerable=0.2)

**The estimator** is post-stratification by verdicts. A reply counts with the share of right replies among the labelled
ones of its domain that have the same verdicts by both judges and the same kind of question (answerable or not); the
share is weighted by how the labels were drawn, and pulled towards that of all domains as if `PULL` further labels said
so. An abstention needs no judge: wrong where the question has an answer, right where it has none. Right, wrong and
utility are linear in those shares.

**The interval** leaves 2.5 % of draws on either side. A draw takes questions anew, each with its twin, within their
domain, and each share from the beta distribution that the labels leave for it. A difference between two policies uses
the same draws.

**The check.** The estimator takes it that a verdict is worth as much among a policy's replies as among all replies, and
a policy that picks its replies may break that. `checked=True` adds the prediction-powered term: the weighted mean of
(label - share) over the labelled replies that the policy itself gave. That makes it right by design whatever the shares
are (a difference estimator, AIPW), and its interval far wider, since a policy gave only a part of the labelled replies.

    python -m bench.judge_correction        fixed actions on the learning domains -> bench/results/judge_correction.json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import RESULTS, keep, out_parser
from bench.evaluation import Array, round_numbers, rows_of
from bench.judge_labels import RIGHT, Labels, Mask, draw_weights, read_labels
from bench.judge_sample import SEED, WAVES
from retcon.errors import InputError
from retcon.lab.domains import Domain, Played
from retcon.lab.stats import Estimate

JUDGES = ("llm", "strict")
DRAWS = 2_000
PULL = 4.0  # labels that the mean of all domains counts as, in the share of one


@dataclass(frozen=True, slots=True)
class Worth:
    """What an ending is worth: right 1, wrong -wrong_cost; abstaining where nothing is known, `abstention`."""

    wrong_cost: float = 0.0
    abstention: float = 0.0


@dataclass(frozen=True, slots=True)
class Cells:
    """How a policy ended: a reply or an abstention for each question and budget."""

    reply: NDArray[np.object_]  # (question, budget, action), as in Labels
    domain: NDArray[np.str_]
    group: NDArray[np.str_]  # what is drawn together: a question with its twin
    answerable: Mask
    abstained: Mask
    verdicts: Mapping[str, Mask]

    def __len__(self) -> int:
        return len(self.domain)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], group: str = "twin") -> Cells:
        """Rows of outcomes, one for each question and budget, with `domain`, `kind`, `twin` and `judge_...`.

        A policy that takes a reply back has `abstained` = 1 on its row. `group` names the column that is drawn.
        """
        rows = list(rows)
        if not rows:
            raise InputError("a policy without a reply has no figures")
        reply = np.empty(len(rows), object)
        reply[:] = [(row["question_id"], int(row["budget"]), row["action"]) for row in rows]
        return cls(
            reply=reply,
            domain=np.array([row["domain"] for row in rows]),
            group=np.array([str(row[group]) for row in rows]),
            answerable=np.array([row["kind"] == "answerable" for row in rows]),
            abstained=np.array([row["abstained"] > RIGHT for row in rows]),
            verdicts={name: np.array([row[f"judge_{name}"] > RIGHT for row in rows]) for name in JUDGES},
        )

    @classmethod
    def of_played(cls, ends: Iterable[tuple[Domain, Played]]) -> Cells:
        """What a policy came to in each of these domains."""
        return cls.of(row for domain, played in ends for row in _played_rows(domain, played))


def _played_rows(domain: Domain, played: Played) -> Iterator[dict[str, Any]]:
    gave = played.gave(domain)
    said = {f"judge_{name}": played.right(domain, name) for name in JUDGES}
    for (q, b), silent in np.ndenumerate(~gave):
        yield {
            "domain": domain.name, "question_id": domain.questions[q], "twin": domain.twins[q],
            "kind": domain.kinds[q], "budget": domain.budgets[b],
            "action": "" if silent else domain.actions[played.action[q, b]], "abstained": float(silent),
            **{name: float(values[q, b]) for name, values in said.items()},
        }  # fmt: skip


# -- what a verdict is worth -------------------------------------------------------------------------------------------


def classes(verdicts: Mapping[str, Mask], answerable: Mask, judges: tuple[str, ...]) -> NDArray[np.int64]:
    """The class of each reply: the judges' verdicts and whether the question has an answer, as one number."""
    out = answerable.astype(np.int64)
    for name in judges:
        out = 2 * out + verdicts[name]
    return out


@dataclass(frozen=True, slots=True)
class Shares:
    """Right replies by domain and class, [1 + draw, domain, class]; the first is the estimate."""

    by_label: Array  # labels drawn anew: for the check, which uses the same labels
    by_belief: Array  # drawn from the beta distribution of each share: for intervals


def shares(labels: Labels, domains: list[str], weights: Array, judges: tuple[str, ...], seed: int) -> Shares:
    """What each class is worth in each domain, pulled towards all domains; 0 in a class that nobody labelled.

    Where all labels of a class agree, drawing them anew never says otherwise. So a share is drawn from the beta
    distribution that has it as its mean and the labels and PULL as its strength.
    """
    size = 2 ** (1 + len(judges))
    kind = np.where(labels.abstained, size, classes(labels.verdicts, labels.answerable, judges))
    one = (kind[:, None] == np.arange(size)).astype(np.float64)
    pooled = _pool(labels, one, weights)
    own, count = np.zeros((2, len(weights), len(domains), size))
    for at, name in enumerate(domains):
        here = weights * (labels.domain == name)
        own[:, at] = _ratio((here * labels.truth) @ one, here @ one)
        count[:, at] = _ratio((here @ one) ** 2, here**2 @ one)  # Kish's effective number of labels
    good, bad = (count * part + PULL * mean[:, None] for part, mean in ((own, pooled), (1 - own, 1 - pooled)))
    good, bad = good * (pooled > 0)[:, None], np.where((pooled > 0)[:, None], bad, 1.0)
    by_label = good / (good + bad)
    mean, strength = by_label[:1], (good + bad)[:1]
    spare = PULL * (pooled[:, None] - pooled[:1, None])  # what the draws say of all domains moves the mean
    centre = np.clip(mean + spare / strength, 0, 1)
    believed = _draw_beta(centre * strength, (1 - centre) * strength, seed)
    believed[0] = mean[0]
    return Shares(by_label, believed)


def _pool(labels: Labels, one: Array, weights: Array) -> Array:
    """[draw, class]: share of right replies in all domains; never quite 0 or 1 where the question has an answer."""
    said = weights @ one
    found = _ratio((weights * labels.truth) @ one, said)
    count, answerable = one.sum(axis=0), np.arange(one.shape[1]) >= one.shape[1] // 2
    return np.asarray(np.where(answerable & (count > 0), (count * found + 0.5) / (count + 1), found))


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def _draw_beta(good: Array, bad: Array, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    sure = (good <= 0) | (bad <= 0)
    drawn = rng.beta(np.where(sure, 1.0, good), np.where(sure, 1.0, bad))
    return np.asarray(np.where(sure, (good > 0).astype(np.float64), drawn))


# -- a policy's figure -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Draws:
    """What is drawn once for all policies; the first of each is the sample itself."""

    domains: list[str]
    groups: NDArray[np.str_]  # all groups, "domain/group"
    counts: Array  # [1 + draw, group]
    weights: Array  # [1 + draw, label]
    shares: Shares


def _draw(cells: Cells, labels: Labels, judges: tuple[str, ...], draws: int, seed: int) -> _Draws:
    domains = sorted(set(cells.domain.tolist()))
    groups = np.unique(_names(cells))
    counts = np.ones((1 + draws, len(groups)))
    rng = np.random.default_rng(seed)
    for name in domains:
        (at,) = np.nonzero(np.char.startswith(groups, f"{name}/"))
        counts[1:, at] = rng.multinomial(len(at), np.full(len(at), 1 / len(at)), draws)
    weights = np.vstack([labels.weight, draw_weights(labels, draws, seed + 1)])
    return _Draws(domains, groups, counts, weights, shares(labels, domains, weights, judges, seed + 2))


def _names(cells: Cells) -> NDArray[np.str_]:
    return np.char.add(np.char.add(cells.domain, "/"), cells.group)


def _figures(
    cells: Cells, labels: Labels, drawn: _Draws, worth: Worth, unanswerable: float | None, judges: tuple[str, ...],
    checked: bool,
) -> Array:  # fmt: skip
    """[draw]: mean over domains of what the policy's endings are worth."""
    share = drawn.shares.by_label if checked else drawn.shares.by_belief
    size = share.shape[2]
    values = (1 + worth.wrong_cost) * share - worth.wrong_cost
    kind = np.where(cells.abstained, size + cells.answerable, classes(cells.verdicts, cells.answerable, judges))
    place = np.searchsorted(drawn.groups, _names(cells))
    ends = np.zeros((len(drawn.groups), size + 2))
    np.add.at(ends, (place, kind), 1)
    answerable = np.array([*([False] * (size // 2)), *([True] * (size // 2)), False, True])
    out = np.zeros(len(share))
    for at, name in enumerate(drawn.domains):
        here = np.char.startswith(drawn.groups, f"{name}/")
        totals = drawn.counts[:, here] @ ends[here]  # [draw, class]
        fixed = np.broadcast_to([worth.abstention, 0.0], (len(share), 2))
        gained = totals * np.concatenate([values[:, at], fixed], axis=1)
        if checked:
            gained[:, :size] += _miss(cells, labels, name, share[:, at], drawn.weights, judges) * (1 + worth.wrong_cost)
        out += _mean(gained, totals, answerable, unanswerable) / len(drawn.domains)
    return out


def _mean(gained: Array, totals: Array, answerable: Mask, unanswerable: float | None) -> Array:
    """[draw]: gained by cell, as drawn, or with this share of unanswerable questions."""
    if unanswerable is None:
        return np.asarray(gained.sum(axis=1) / totals.sum(axis=1))
    sides = [(1 - unanswerable, answerable), (unanswerable, ~answerable)]
    means = [part * gained[:, side].sum(axis=1) / totals[:, side].sum(axis=1) for part, side in sides if part > 0]
    return np.asarray(sum(means))


def _miss(
    cells: Cells, labels: Labels, domain: str, share: Array, weights: Array, judges: tuple[str, ...]
) -> Array:  # fmt: skip
    """[draw, class]: by how much the labelled replies of this policy in a domain exceed their shares, as cells."""
    size = share.shape[1]
    given = set(cells.reply[(cells.domain == domain) & ~cells.abstained].tolist())
    mine = np.array([reply in given for reply in labels.reply.tolist()]) & (labels.domain == domain) & ~labels.abstained
    kind = classes(labels.verdicts, labels.answerable, judges)[mine]
    over = weights[:, mine] * (labels.truth[mine] - share[:, kind])
    return np.asarray(over @ (kind[:, None] == np.arange(size)))


def _check_share(cells: Cells, unanswerable: float | None) -> None:
    if unanswerable is None:
        return
    if not 0 <= unanswerable <= 1:
        raise InputError(f"a share of unanswerable questions lies between 0 and 1, not at {unanswerable}")
    for name in sorted(set(cells.domain.tolist())):
        sides = set(cells.answerable[cells.domain == name].tolist())
        if (unanswerable > 0 and False not in sides) or (unanswerable < 1 and True not in sides):
            missing = "unanswerable" if False not in sides else "answerable"
            raise InputError(f"{name} has no {missing} question, so no figure for a share of {unanswerable:g}")


def corrected(
    policy: Cells,
    labels: Labels,
    *,
    against: Cells | None = None,
    worth: Worth | None = None,
    unanswerable: float | None = None,
    judges: tuple[str, ...] = JUDGES,
    checked: bool = False,
    draws: int = DRAWS,
    seed: int = SEED,
) -> Estimate:
    """The policy's mean worth as corrected, or its difference to another's; domains weigh the same.

    `unanswerable` is the share of unanswerable questions that the figure stands for; None: as they were drawn. With
    `judges=("llm",)` one judge's verdicts alone are corrected.
    """
    if against is not None and set(_names(against).tolist()) != set(_names(policy).tolist()):
        raise InputError("two policies are compared on the same questions")
    _check_share(policy, unanswerable)
    worth = worth or Worth()
    drawn = _draw(policy, labels, judges, draws, seed)
    found = _figures(policy, labels, drawn, worth, unanswerable, judges, checked)
    if against is not None:
        found = found - _figures(against, labels, drawn, worth, unanswerable, judges, checked)
    low, high = np.percentile(found[1:], [2.5, 97.5])
    return Estimate(float(found[0]), float(low), float(high), len(drawn.groups))


# -- fixed actions -----------------------------------------------------------------------------------------------------

LEARNING = ("longmemeval", "lifebench", "factcon", "friendsqa", "timeqa")
UTILITY = Worth(wrong_cost=0.5)


def judged(cells: Cells, judge: str, worth: Worth, unanswerable: float) -> float:
    """The policy's mean worth as a judge has it, domains weighing the same."""
    right = cells.verdicts[judge] & ~cells.abstained
    gained = np.where(cells.abstained, worth.abstention * ~cells.answerable, right - worth.wrong_cost * ~right)
    sides = ((1 - unanswerable, cells.answerable), (unanswerable, ~cells.answerable))
    names = sorted(set(cells.domain.tolist()))
    return float(np.mean([sum(p * gained[(cells.domain == d) & side].mean() for p, side in sides) for d in names]))


def fixed_actions(labels: Labels, draws: int = DRAWS) -> dict[str, Any]:
    """Every action alone on the learning domains: as each judge has it, corrected in four ways, and less abstract."""
    rows = [row for domain in LEARNING for wave in WAVES for row in _rows(domain, wave)]
    actions = sorted({row["action"] for row in rows}, key=("retain", "extract", "merge", "abstract", "hybrid").index)
    ends = {name: Cells.of([row for row in rows if row["action"] == name]) for name in actions}
    found: dict[str, Any] = {}
    for title, worth, part in (("right", Worth(), 0.0), ("utility", UTILITY, 0.2)):
        ways: dict[str, dict[str, Any]] = {
            "corrected": {}, "from llm alone": {"judges": ("llm",)}, "from strict alone": {"judges": ("strict",)},
            "checked": {"checked": True},
        }  # fmt: skip
        found[title] = {
            name: {
                **{judge: judged(cells, judge, worth, part) for judge in JUDGES},
                **{
                    way: asdict(corrected(cells, labels, worth=worth, unanswerable=part, draws=draws, **more))
                    for way, more in ways.items()
                },
                "less abstract": asdict(
                    corrected(cells, labels, against=ends["abstract"], worth=worth, unanswerable=part, draws=draws)
                ),
            }
            for name, cells in ends.items()
        }
    out: dict[str, Any] = round_numbers(found)
    return out


def _rows(domain: str, wave: int) -> Iterable[dict[str, Any]]:
    return (row | {"domain": domain} for row in rows_of(f"{domain}-wave{wave}").rows())


def main() -> None:
    """Compute, keep."""
    keep(fixed_actions(read_labels()), out_parser(__doc__, RESULTS / "judge_correction.json").parse_args().out)


if __name__ == "__main__":
    main()
