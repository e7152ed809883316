"""Rows of rivals and of ours -> who is right how often, at what price, and by how much they differ.

    python -m bench.rivals.quality --out bench/results/rivals.json       from the committed rows
    MODEL=... bash bench/rivals/run.sh                                   what makes them, on a machine with a GPU

The analysis that bench/prereg/rivals.md fixes. Ours are played from the outcomes of every action, with policies that
have not seen the domain (`bench.travel`); rivals are read once, from what they showed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import keep, out_parser
from bench.evaluation import ROWS, round_numbers, rows_of
from bench.rivals.answers import read_checks, read_rows
from bench.rivals.questions import BUDGETS, DOMAINS
from bench.rivals.systems import SYSTEMS
from bench.travel import LEARNING, SERVED, play_fit, read_waves
from retcon.lab.domains import Domain, Played, Policy, read_domain
from retcon.lab.fit_aside import learn_aside
from retcon.lab.fit_price import learn_price
from retcon.lab.stats import replicates, resample

Array = NDArray[np.float64]
SEED, DRAWS, SHARE, COST = 20261117, 10_000, 0.2, 0.5
LEARNED = (1, 2, 3)  # waves that ours is learned on, as the preregistration says
UNREAD, FAILED = 0.5, 0.5  # shares above which a system is not measured
NO_MODEL, ONE_CALL, LADDER_0, LADDER_HALF = "no model", "one call", "ladder 0", "ladder 0.5"
OURS = (NO_MODEL, ONE_CALL, LADDER_0, LADDER_HALF)
AVERAGED = ("both", "llm", "strict", "false", "utility")


@dataclass(frozen=True)
class Scores:
    """What a system came to in a domain: each measure by question and budget, NaN where it was not read."""

    questions: tuple[str, ...]
    values: Mapping[str, Array]  # measure -> [q, b]
    reads: Array  # [q, b]: reader calls
    writes: Array  # [q, b]: calls at the question before it is read; NaN of a ladder, whose tokens count all the same
    tokens: Array  # [q, b]: read and written at the question, the reader's included
    shown: Array  # [q, b]: tokens shown; NaN of ours


def measures(verdicts: Mapping[str, Array], answered: Array, there: NDArray[np.bool_]) -> dict[str, Array]:
    """[q, b] of every measure. An answer to an unanswerable question is wrong, an abstention is 0."""
    known = there[:, None]
    right = {judge: np.where(known, verdicts[judge] * answered, 0.0) for judge in ("llm", "strict")}
    both = np.minimum(right["llm"], right["strict"])
    missing = np.isnan(answered)
    found = {"both": both, **right, "utility": both - COST * (answered - both), "answered": answered}
    return {name: np.where(missing, np.nan, values) for name, values in found.items()}


# -- ours --------------------------------------------------------------------------------------------------------------


def learn(domain: str) -> dict[str, Policy]:
    """Our policies, learned on the domains that are not this one."""
    rest = [read_waves(name, LEARNED) for name in LEARNING if name != domain]
    return {
        NO_MODEL: play_fit,
        ONE_CALL: learn_aside(rest, SERVED),
        LADDER_0: learn_price(rest, wrong_cost=0.0),
        LADDER_HALF: learn_price(rest, wrong_cost=0.5),
    }


def score_ours(domain: Domain, policy: Policy) -> Scores:
    """What one of our policies came to, at the budgets that are compared."""
    played = policy(domain)
    at = [domain.budgets.index(budget) for budget in BUDGETS]
    gave = played.gave(domain).astype(float)
    verdicts = {judge: played.right(domain, judge) for judge in ("llm", "strict")}
    found = measures(verdicts, gave, domain.answerable)
    return Scores(
        domain.questions, {name: each[:, at] for name, each in found.items()}, played.calls[:, at],
        _writes(played, domain)[:, at], played.tokens[:, at], np.full((len(domain.questions), len(at)), np.nan),
    )  # fmt: skip


def _writes(played: Played, domain: Domain) -> Array:
    """Calls that wrote what was read; not known of a ladder, which writes before some of its looks."""
    wrote = np.take_along_axis(domain.spent["model_calls"], np.maximum(played.action, 0)[:, :, None], axis=2)[:, :, 0]
    return np.asarray(np.where((played.calls == 1).all(), wrote, np.nan))


# -- rivals ------------------------------------------------------------------------------------------------------------


def score_rival(rows: Sequence[Mapping[str, Any]], questions: Sequence[str], there: NDArray[np.bool_]) -> Scores:
    """What a rival came to on these questions."""
    place = {each: q for q, each in enumerate(questions)}
    columns = ("judge_llm", "judge_strict", "abstained", "calls", "spent", "context_tokens")
    table = {name: np.full((len(questions), len(BUDGETS)), np.nan) for name in columns}
    for row in rows:
        at = place[row["question_id"]], BUDGETS.index(row["budget"])
        spent = row["prompted"] + row["generated"] + row["reader_tokens"]
        # a verdict that could not be read counts as no
        given = {**row, "judge_llm": row["judge_llm"] or 0.0, "spent": spent}
        for name in columns:
            table[name][at] = given[name]
    verdicts = {"llm": table["judge_llm"], "strict": table["judge_strict"]}
    found = measures(verdicts, 1 - table["abstained"], there)
    return Scores(
        tuple(questions), found, table["calls"] * 0 + 1, table["calls"], table["spent"], table["context_tokens"]
    )


def ingest(histories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What taking in the histories of a domain cost, what could not be parsed, and what failed."""
    done = [each for each in histories if not each["error"]]
    calls, turns = sum(each["calls"] for each in done), sum(each["turns"] for each in done)
    spent = sum(each["prompted"] + each["generated"] for each in done)
    every = sum(each["calls"] for each in histories)
    reasons = Counter(each["error"] for each in histories if each["error"])
    return {
        "histories": len(done), "failed": dict(reasons.most_common()), "calls": calls, "tokens": spent, "turns": turns,
        "calls_per_1000_turns": 1000 * calls / turns if turns else None,
        "tokens_per_1000_turns": 1000 * spent / turns if turns else None,
        "unparsed": sum(each["unparsed"] for each in histories) / every if every else None,
        "seconds": sum(each["seconds"] for each in done),
    }  # fmt: skip


def unmeasured(cost: Mapping[str, Any], histories: int) -> str:
    """Why a system has no score in a domain; empty where it has one."""
    if cost["unparsed"] is not None and cost["unparsed"] > UNREAD:
        return f"{cost['unparsed']:.0%} of the model's replies could not be parsed"
    if cost["histories"] < (1 - FAILED) * histories:
        reasons = [f"{reason} on {count}" for reason, count in cost["failed"].items()]
        late = histories - cost["histories"] - sum(cost["failed"].values())
        reasons += [f"{late} not done"] if late else []
        return f"{histories - cost['histories']} of {histories} histories missing: {', '.join(reasons)}"
    return ""


# -- comparison --------------------------------------------------------------------------------------------------------


def mix(values: Array, there: NDArray[np.bool_], share: float = SHARE) -> float:
    """The mean [q] with this share of unanswerable questions; those without a value are left out."""
    read = ~np.isnan(values)
    known, unknown = values[there & read], values[~there & read]
    return float((1 - share) * known.mean() + share * unknown.mean()) if len(known) and len(unknown) else float("nan")


def summarise(scores: Scores, there: NDArray[np.bool_]) -> dict[str, Any]:
    """The figures of a system in a domain, by budget and in the mean over budgets."""

    def each(name: str, take: Callable[[Array], float]) -> dict[str, Any]:
        values = scores.values[name]
        return {"mean": take(_over_budgets(values)), "budgets": [take(values[:, b]) for b in range(len(BUDGETS))]}

    known = {name: each(name, lambda values: _mean(values[there])) for name in ("both", "llm", "strict")}
    return {
        **known,
        "false": each("answered", lambda values: _mean(values[~there])),
        "utility": each("utility", lambda values: mix(values, there)),
        "reads": _mean(scores.reads), "writes": _mean(scores.writes),
        "tokens": _mean(scores.tokens), "shown": _mean(scores.shown),
        "questions": int((~np.isnan(scores.values["both"]).all(axis=1)).sum()),
    }  # fmt: skip


def _mean(values: Array) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _over_budgets(values: Array) -> Array:
    """[q]: the mean over budgets; NaN where one is missing."""
    return np.asarray(values.mean(axis=1))


def differ(
    one: Scores, other: Scores, there: NDArray[np.bool_], twins: Sequence[str], budget: int | None = None
) -> dict[str, Any]:
    """One system less another on the questions that both have, with intervals by question and its twin."""
    found = {}
    for name, share in (("both", 0.0), ("utility", SHARE)):
        gap = one.values[name] - other.values[name]
        gap = _over_budgets(gap) if budget is None else gap[:, budget]
        read = np.flatnonzero(~np.isnan(gap))
        found[name] = _interval(gap[read], there[read], [twins[q] for q in read.tolist()], share)
    return found


def _interval(gap: Array, there: NDArray[np.bool_], twins: Sequence[str], share: float) -> dict[str, float]:
    draws = resample(len(gap), seed=SEED, draws=DRAWS, clusters=twins)
    mask = there.astype(float)
    columns = np.column_stack([gap * mask, mask, gap * (1 - mask), 1 - mask])
    sums = replicates(columns, draws)
    means = _weigh(sums, share)
    low, high = np.nanquantile(means, (0.025, 0.975))
    return {"mean": float(_weigh(columns.mean(axis=0)[None], share)[0]), "low": float(low), "high": float(high)}


def _weigh(sums: Array, share: float) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        known, unknown = sums[:, 0] / sums[:, 1], sums[:, 2] / sums[:, 3]
    return np.asarray(known if not share else (1 - share) * known + share * unknown)


def analyse(rows: Path = ROWS) -> dict[str, Any]:
    """Every figure of the comparison."""
    contexts, histories = read_rows(rows / "rivals.parquet"), read_rows(rows / "rivals-histories.parquet")
    checks = read_checks(rows)
    tried = {each["system"] for each in histories} | set(checks)
    found: dict[str, Any] = {}
    for name in DOMAINS:
        domain = read_domain(rows_of(f"{name}-rivals", rows), name=name)
        ours = {title: score_ours(domain, policy) for title, policy in learn(name).items()}
        found[name] = compare(domain, ours, [r for r in contexts if r["domain"] == name],
                              [r for r in histories if r["domain"] == name], tried, checks)  # fmt: skip
        print(name, flush=True)
    return {"seed": SEED, "draws": DRAWS, "budgets": list(BUDGETS), "domains": found, "mean": over_domains(found)}


def compare(
    domain: Domain, ours: Mapping[str, Scores], contexts: Sequence[Mapping[str, Any]],
    histories: Sequence[Mapping[str, Any]], tried: Collection[str], checks: Mapping[str, bool],
) -> dict[str, Any]:  # fmt: skip
    """One domain: the figures of ours and of every rival that was tried in any, and the differences."""
    there, total = domain.answerable, len(set(domain.conversations))
    systems: dict[str, Any] = {name: summarise(each, there) for name, each in ours.items()}
    differences: dict[str, Any] = {}
    for name in SYSTEMS:
        took = [each for each in histories if each["system"] == name]
        if name not in tried:
            continue
        cost = ingest(took)
        scores = score_rival([each for each in contexts if each["system"] == name], domain.questions, there)
        why = unmeasured(cost, total)
        if not why and np.isnan(scores.values["both"]).all():
            why = "contexts were made and not read"
        if why and not checks.get(name, True):
            why += "; it failed the check with this model"
        systems[name] = {"ingest": cost, "why": why, **({} if why else summarise(scores, there))}
        if not why:
            differences[name] = {
                title: {
                    "mean": differ(mine, scores, there, domain.twins),
                    "budgets": [differ(mine, scores, there, domain.twins, b) for b in range(len(BUDGETS))],
                }
                for title, mine in ours.items()
            }
    kinds = {"answerable": int(there.sum()), "unanswerable": int((~there).sum()), "histories": total}
    return {"questions": kinds, "systems": systems, "differences": differences}


def over_domains(found: Mapping[str, Any]) -> dict[str, Any]:
    """The mean of the domains in which a system was measured, and how many these are."""
    out: dict[str, Any] = {}
    for name in (*OURS, *SYSTEMS):
        measured = [each["systems"][name] for each in found.values() if "both" in each["systems"].get(name, {})]
        if measured:
            out[name] = {"domains": len(measured)} | {key: _average(measured, key) for key in AVERAGED}
            out[name] |= {
                key: float(np.mean([each[key] for each in measured])) for key in ("reads", "writes", "tokens")
            }
    return out


def _average(measured: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    budgets = np.mean([each[key]["budgets"] for each in measured], axis=0)
    return {"mean": float(np.mean([each[key]["mean"] for each in measured])), "budgets": budgets.tolist()}


def main() -> None:
    """Analyse the committed rows."""
    parser = out_parser(__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS)
    options = parser.parse_args()
    keep(round_numbers(analyse(options.rows)), options.out, indent=None)


if __name__ == "__main__":
    main()
