"""The frozen analysis of bench/prereg/domains.md: decisions learned on some domains, judged on others.

    python -m bench.travel --out bench/results/travel.json            every policy, nested, then the two opened once
    python -m bench.travel --fresh --out bench/results/travel_fresh.json   learned on three waves, the fourth scored
    python -m bench.travel --learning                                 the five learning domains alone

Rows: NAME-wave1 to 4.parquet of each domain. A policy is learned on `llm` verdicts, frozen, and scored by both judges.
Nested: what is reported of a learning domain was learned on the other four, every setting chosen by leaving out among
those. What is reported of `locomo` and `timelineqa` was learned on all five.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import keep, out_parser
from bench.evaluation import round_numbers, rows_of
from bench.judge_correction import Cells, Worth, corrected
from bench.judge_labels import read_labels
from bench.retrieval_features import RETRIEVAL, read_features
from bench.unanswerable import MADE
from retcon.features import FEATURES, TYPES
from retcon.lab.calibrate import certified_threshold, upper_bound
from retcon.lab.domains import (
    ANSWERABLE,
    REFUSED,
    Array,
    Domain,
    Places,
    Played,
    Policy,
    learn_fixed,
    leave_out,
    play_actions,
    rank_actions,
    read_domain,
)
from retcon.lab.fit import Linear
from retcon.lab.fit_aside import Aside, fit_response, learn_aside
from retcon.lab.fit_drafts import Writing, learn_drafts
from retcon.lab.fit_price import PRICES, Priced, learn_price, predict
from retcon.lab.outcomes import Outcomes
from retcon.lab.stats import Resamples, replicates, resample, sign_flip
from retcon.note import EXTRACT, RETAIN

LEARNING = ("longmemeval", "lifebench", "factcon", "friendsqa", "timeqa")
OPENED = ("locomo", "timelineqa")
WAVES = (1, 2, 3, 4)  # whole in every domain
FRESH = WAVES[3:]  # labelled last (bench/prereg/wave4.md)
JUDGES = ("llm", "strict")
SHARES = (0.0, 0.2, 0.4)  # of unanswerable questions
COSTS = (0.0, 0.5, 1.0)
SEED, DRAWS = 20261116, 10_000
FREE = (RETAIN, EXTRACT)
SIX = ("budget", "fit", *TYPES)
SERVED = (SIX, FEATURES)  # what a router file may look at
ALPHA, DELTA = 0.05, 0.10
FIXED, ROUTER, VOTE, TWICE, ORACLE = "fixed", "router", "vote of two", "twice the budget", "oracle"
SILENT = "never answers"

Learn = Callable[[Sequence[Domain]], Policy]
End = tuple[Domain, Played]


# -- domains -----------------------------------------------------------------------------------------------------------


def read_waves(name: str, waves: Sequence[int] = WAVES, *, holds: bool = False) -> Domain:
    """The rows of these waves of a domain, with the retrieval's features behind the paper's."""
    return read_runs(name, [f"{name}-wave{wave}" for wave in waves], holds=holds)


def read_runs(name: str, runs: Sequence[str], *, holds: bool = False) -> Domain:
    """The rows of these runs as one domain."""
    tables = [rows_of(run).columns for run in runs]
    shared = [column for column in tables[0] if all(column in each for each in tables)]
    joined = Outcomes({column: np.concatenate([each[column] for each in tables]) for column in shared})
    domain = read_domain(joined, judges=JUDGES, name=name, holds=holds)
    more = read_features(name, domain.questions)
    wide = np.broadcast_to(more[:, None, :], (*domain.x.shape[:2], more.shape[1]))
    groups = tuple(map(_list_of_facts, domain.conversations)) if name == "factcon" else domain.conversations
    return replace(
        domain,
        features=(*domain.features, *RETRIEVAL),
        x=np.concatenate([domain.x, wide], axis=2),
        conversations=groups,
        twins=tuple(map(_without_paraphrase, domain.twins)),
    )


def _list_of_facts(conversation: str) -> str:
    return conversation.split("-")[1]


def _without_paraphrase(twin: str) -> str:
    return twin.removesuffix("_Paraphrased")


# -- policies ----------------------------------------------------------------------------------------------------------


def learn_vote(domains: Sequence[Domain]) -> Policy:
    """Two actions always asked, the pair selected per budget: the likelier answer stands, an abstention never wins."""
    actions = domains[0].actions
    pairs = [(a, c) for a in range(len(actions)) for c in range(len(actions)) if a != c]
    worth = [
        np.mean([d.weights(0.0) @ _vote(d, pair).right(d, "llm") for d in domains], axis=0) for pair in pairs
    ]  # [pair][b]
    best = [pairs[place] for place in np.argmax(worth, axis=0).tolist()]

    def play(domain: Domain) -> Played:
        votes = [_vote(domain, pair) for pair in best]
        return _join([(vote, place) for place, vote in enumerate(votes)])

    return play


def _vote(domain: Domain, pair: tuple[int, int]) -> Played:
    first, second = pair
    given = domain.answered
    swap = given[:, :, second] & ~given[:, :, first]
    both = given[:, :, first] == given[:, :, second]
    swap |= both & (domain.logprob[:, :, second] > domain.logprob[:, :, first])
    spent = [play_actions(domain, np.full(swap.shape, place)).tokens for place in pair]
    return Played(np.where(swap, second, first), np.full(swap.shape, 2.0), spent[0] + spent[1])


def learn_twice(domains: Sequence[Domain]) -> Policy:
    """The action selected for twice the budget, with twice the budget; the largest budget has none, and stays."""
    fixed = learn_fixed(domains)

    def play(domain: Domain) -> Played:
        played, budgets = fixed(domain), domain.budgets
        double = [budgets.index(2 * b) if 2 * b in budgets else place for place, b in enumerate(budgets)]
        return replace(_join([(played, place) for place in double]), spends=tuple(double))

    return play


def _join(parts: Sequence[tuple[Played, int]]) -> Played:
    """At each budget what a policy came to at some place."""
    columns = {
        name: np.stack([getattr(played, name)[:, place] for played, place in parts], axis=1)
        for name in ("action", "calls", "tokens")
    }
    return Played(columns["action"], columns["calls"], columns["tokens"])


def play_oracle(domain: Domain) -> Played:
    """For each question and budget an action whose reply is right, where there is one."""
    return play_actions(domain, domain.verdicts["llm"].argmax(axis=2))


def play_silent(domain: Domain) -> Played:
    """No answer, ever."""
    none = np.zeros(domain.answered.shape[:2])
    return Played(np.full(none.shape, REFUSED), none, none)


def play_fit(domain: Domain) -> Played:
    """Whole notes where every candidate fits, else Extract: the default without a model."""
    whole = domain.x[:, :, domain.features.index("fit")] >= 1
    return play_actions(domain, np.where(whole, domain.place(RETAIN), domain.place(EXTRACT)))


def play_always(action: str, domain: Domain) -> Played:
    """One action throughout."""
    return play_actions(domain, np.full(domain.answered.shape[:2], domain.place(action)))


@dataclass(frozen=True)
class Safe:
    """A response, and at each budget the advantage from which whole notes are replaced."""

    response: Linear
    features: tuple[str, ...]
    taus: Array  # [b]

    def __call__(self, domain: Domain) -> Played:
        best, lead = advantage(self.response, domain.with_features(self.features))
        return play_actions(domain, np.where(lead >= self.taus, best, domain.place(RETAIN)))


def advantage(response: Linear, domain: Domain) -> tuple[Places, Array]:
    """[q, b]: the best replacing action, and how far its response is above whole notes'."""
    mu, whole = response(domain.x), domain.place(RETAIN)
    others = np.delete(np.arange(mu.shape[2]), whole)
    best = others[mu[:, :, others].argmax(axis=2)]
    return best, np.take_along_axis(mu, best[:, :, None], axis=2)[:, :, 0] - mu[:, :, whole]


def learn_safe(domains: Sequence[Domain]) -> Safe:
    """A response learned on half of the questions; of each domain's other half a certified threshold, the strictest."""
    parts = [halves(domain.with_features(FEATURES)) for domain in domains]
    response = fit_response([first for first, _ in parts], 0.1)
    taus = [_certify(response, second) for _, second in parts]
    return Safe(response, FEATURES, np.max(taus, axis=0))


@dataclass(frozen=True)
class ServedSafe:
    """A router with fit rule, fixed actions and margin, and at each budget the advantage that replaces whole notes."""

    aside: Aside
    taus: Array  # [b]

    def __call__(self, domain: Domain) -> Played:
        best, lead = self.aside.replacing(domain)
        replaces = np.where(domain.fit <= 0, True, (lead >= self.taus) & (domain.fit < 1))
        return play_actions(domain, np.where(replaces, best, domain.place(RETAIN)))


def learn_shipped_safe(domains: Sequence[Domain]) -> ServedSafe:
    """The router; of each domain the certified threshold of one learned on the others, and the strictest of these.

    Added after the analysis was frozen: a file has one response, which is the router's, so halves cannot calibrate it.
    """
    aside = learn_aside(domains, SERVED)

    def learn(rest: Sequence[Domain]) -> Aside:
        used = [domain.with_features(aside.form.features) for domain in rest]
        return replace(aside, ranked=rank_actions(rest), response=fit_response(used, aside.form.penalty))

    taus = [_certify_at(domain, *other.replacing(domain)) for domain, other in leave_out(domains, learn)]
    return ServedSafe(aside, np.max(taus, axis=0))


def _certify(response: Linear, domain: Domain) -> Array:
    return _certify_at(domain, *advantage(response, domain))


def _certify_at(domain: Domain, best: Places, lead: Array) -> Array:
    """[b]: the certified threshold on the advantage of these actions."""
    right, there = domain.verdicts["llm"], domain.answerable
    chosen = np.take_along_axis(right, best[:, :, None], axis=2)[:, :, 0]
    level = DELTA / len(domain.budgets)
    found = [
        certified_threshold(
            lead[there, b], chosen[there, b], right[there, b, domain.place(RETAIN)], alpha=ALPHA, delta=level
        ).tau
        for b in range(len(domain.budgets))
    ]
    return np.array(found)


def halves(domain: Domain) -> tuple[Domain, Domain]:
    """The questions in two halves, a question together with its twin."""
    names = sorted(set(domain.twins))
    first = set(np.random.default_rng(SEED).permutation(names)[: len(names) // 2].tolist())
    chosen = np.array([twin in first for twin in domain.twins])
    return take(domain, chosen), take(domain, ~chosen)


def take(domain: Domain, chosen: NDArray[np.bool_]) -> Domain:
    """These questions of the domain."""
    index = np.flatnonzero(chosen)
    parts: dict[str, Any] = {
        name: tuple(getattr(domain, name)[i] for i in index)
        for name in ("questions", "kinds", "twins", "conversations")
    } | {name: getattr(domain, name)[index] for name in ("x", "answered", "logprob", "signals", "traits")}
    return replace(
        domain,
        **parts,
        verdicts={judge: values[index] for judge, values in domain.verdicts.items()},
        spent={name: values[index] for name, values in domain.spent.items()},
    )


LEARNERS: Mapping[str, Learn] = {
    FIXED: learn_fixed,
    **{f"fixed at {cost:g}": partial(learn_fixed, wrong_cost=cost) for cost in COSTS[1:]},
    ROUTER: partial(learn_aside, features=SERVED),
    "router, retrieval's features too": partial(learn_aside, features=(*SERVED, (*FEATURES, *RETRIEVAL))),
    "drafts 2": partial(learn_drafts, count=2),
    "drafts 3": partial(learn_drafts, count=3),
    TWICE: learn_twice,
    VOTE: learn_vote,
    **{f"ladder {cost:g}": partial(learn_price, wrong_cost=cost) for cost in PRICES},
    "ladder 0.5, nothing written": partial(learn_price, wrong_cost=0.5, actions=FREE),
    "free router": partial(learn_aside, features=SERVED, actions=FREE),
    "safe": learn_safe,
    "safe, as shipped": learn_shipped_safe,
}
CONSTANT: Mapping[str, Policy] = {
    SILENT: play_silent,
    "evidence-fit": play_fit,
    **{f"always {name}": partial(play_always, name) for name in ("retain", "extract", "merge", "abstract", "hybrid")},
    ORACLE: play_oracle,
}
# Differences that the preregistration asks for, beside each policy's to the fixed action.
PAIRS = (
    *((f"ladder {cost:g}", f"fixed at {cost:g}") for cost in COSTS[1:]),
    ("ladder 0", VOTE), ("ladder 0.5", VOTE), ("ladder 0", TWICE), ("drafts 2", TWICE), ("drafts 3", TWICE),
    ("drafts 3", "ladder 0"), ("free router", "always extract"), ("evidence-fit", "always extract"),
    ("ladder 0.5, nothing written", "ladder 0.5"),
)  # fmt: skip

HEADLINES = (("ladder 0", "right", 0.0), ("ladder 0.5", "utility 0.5", 0.2), ("ladder 1", "utility 1", 0.2))


# -- scores ------------------------------------------------------------------------------------------------------------


def draw_ways(domain: Domain) -> dict[str, Resamples]:
    """Draws of questions with their twins, and of conversations where these are more than one."""
    size = len(domain.questions)
    found = {"by_question": resample(size, seed=SEED, draws=DRAWS, clusters=domain.twins)}
    if 1 < len(set(domain.conversations)) < size and domain.name != "longmemeval":
        found["by_conversation"] = resample(size, seed=SEED, draws=DRAWS, clusters=domain.conversations)
    return found


def estimate(values: Array, domain: Domain, share: float, ways: Mapping[str, Resamples]) -> dict[str, Any]:
    """The mean of values [q] with this share of unanswerable questions, and its interval for each way to draw."""
    there = domain.answerable.astype(float)
    columns = np.column_stack([values * there, there, values * (1 - there), 1 - there])
    found = {}
    for how, draws in ways.items():
        sums = replicates(columns, draws)
        low, high = np.quantile(_mix(sums, share), (0.025, 0.975))
        mean = _mix(columns.mean(axis=0)[None], share)[0]
        found[how] = {"mean": float(mean), "low": float(low), "high": float(high)}
    return found


def _mix(sums: Array, share: float) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        known, unknown = sums[:, 0] / sums[:, 1], np.where(sums[:, 3] > 0, sums[:, 2] / sums[:, 3], 0.0)
    return np.asarray((1 - share) * known + (share * unknown if share else 0.0))


def measures(played: Played, domain: Domain, judge: str) -> dict[str, Array]:
    """[q, b] of each measure."""
    right = played.right(domain, judge)
    gave = played.gave(domain)
    costs = {f"utility {cost:g}": played.utility(domain, judge, cost) for cost in COSTS}
    return {"right": right, "wrong": gave - right, **costs, "accuracy": played.accuracy(domain, judge)}


def score(played: Played, domain: Domain) -> dict[str, Any]:
    """What a policy came to in a domain, by judge, share of unanswerable questions, budget and kind."""
    found: dict[str, Any] = {
        name: {f"{share:g}": float(domain.weights(share) @ values.mean(axis=1)) for share in SHARES}
        for name, values in (("calls", played.calls), ("tokens", played.tokens))
    }
    for judge in JUDGES:
        each = measures(played, domain, judge)
        found[judge] = {
            f"{share:g}": {name: (domain.weights(share) @ values).tolist() for name, values in each.items()}
            for share in SHARES
        }
    gave = played.gave(domain)
    found["false answers"] = {
        kind: float(gave[[k == kind for k in domain.kinds]].mean()) for kind in sorted(set(domain.kinds) - {ANSWERABLE})
    }
    return found


def differ(one: Played, other: Played, domain: Domain, ways: Mapping[str, Resamples]) -> dict[str, Any]:
    """One policy less another, mean over budgets."""
    found: dict[str, Any] = {}
    for judge in JUDGES:
        mine, theirs = measures(one, domain, judge), measures(other, domain, judge)
        found[judge] = {
            f"{share:g}": {
                name: estimate((mine[name] - theirs[name]).mean(axis=1), domain, share, ways)
                for name in ("right", *(f"utility {cost:g}" for cost in COSTS if cost), "accuracy")  # at 0 it is right
                if share or name in ("right", "accuracy")
            }
            for share in SHARES
        }
    found["calls"] = float((one.calls - other.calls).mean())
    return found


def harm(played: Played, domain: Domain) -> dict[str, Any]:
    """How often a right answer of whole notes was lost, by budget, with its exact upper bound."""
    there = domain.answerable
    whole = domain.verdicts["llm"][there][:, :, domain.place(RETAIN)]
    lost = (whole > played.right(domain, "llm")[there]).sum(axis=0).tolist()
    size = int(there.sum())
    return {
        "questions": size,
        "harms": lost,
        "at_most": [upper_bound(int(each), size, 0.05) for each in lost],
        "replaced": (played.action[there] != domain.place(RETAIN)).mean(axis=0).tolist(),
    }


def describe_confidence(sure: Array, domain: Domain) -> dict[str, Any]:
    """AUC of right against wrong replies and of answerable against not, and calibration error in ten bins."""
    given = domain.answered
    p, right = sure[given], domain.verdicts["llm"][given]
    known = np.broadcast_to(domain.answerable[:, None, None], given.shape)[given]
    weight = np.broadcast_to(domain.weights()[:, None, None], given.shape)[given]
    bins = np.clip((p * 10).astype(int), 0, 9)
    gaps = [abs(np.sum(weight[bins == k] * (p - right)[bins == k])) for k in range(10)]
    kinds = np.broadcast_to(np.array(domain.kinds)[:, None, None], given.shape)[given]
    return {
        "auc": auc(p, right > 0.5, weight),
        "auc of answerable": auc(p[known], right[known] > 0.5, weight[known]),
        "auc by kind": {
            kind: auc(
                p[known | (kinds == kind)], known[known | (kinds == kind)], np.ones(len(p))[known | (kinds == kind)]
            )
            for kind in sorted(set(domain.kinds) - {ANSWERABLE})
        },
        "calibration error": float(sum(gaps) / weight.sum()),
        "replies": len(p),
    }


def auc(score: Array, truth: NDArray[np.bool_], weight: Array) -> float:
    """The chance that a true one has the higher score, ties half; weighted."""
    order = np.argsort(score, kind="stable")
    score, truth, weight = score[order], truth[order], weight[order]
    up, down = weight * truth, weight * ~truth
    _, first = np.unique(score, return_index=True)
    below = np.concatenate([[0.0], np.cumsum(down)])[first]
    tied = np.add.reduceat(down, first)
    ups = np.add.reduceat(up, first)
    total = up.sum() * down.sum()
    return float(np.sum(ups * (below + tied / 2)) / total) if total else float("nan")


# -- the analysis ------------------------------------------------------------------------------------------------------


def play_all(domain: Domain, learned: Mapping[str, Policy]) -> dict[str, Played]:
    """What every policy came to in a domain."""
    return {name: policy(domain) for name, policy in {**learned, **CONSTANT}.items()}


def learn_all(domains: Sequence[Domain]) -> dict[str, Policy]:
    """Every policy, learned on these domains."""
    found = {}
    for name, learn in LEARNERS.items():
        began = time.perf_counter()
        found[name] = learn(domains)
        print(f"  {name}: {time.perf_counter() - began:.0f} s", flush=True)
    return found


def tell(policy: Policy) -> Any:
    """What was chosen, for those who want to know."""
    if isinstance(policy, Aside):
        at = None if policy.margin is None else [len(policy.form.features), policy.form.penalty]
        return {"margin": policy.margin, "features and penalty": at, "inner gain": list(policy.gain)}
    if isinstance(policy, Writing):
        return {"actions": list(policy.drafts.actions), "inner gain": list(policy.gain)}
    if isinstance(policy, Priced):
        return {str(b): [" > ".join(c.order), c.stop, c.accept] for b, c in policy.climbs.items()}
    if isinstance(policy, Safe | ServedSafe):
        return {"taus": policy.taus.tolist()}
    return None


def report(domain: Domain, learned: Mapping[str, Policy], ranked: Sequence[Sequence[str]]) -> dict[str, Any]:
    """All figures of one domain."""
    played, ways = play_all(domain, learned), draw_ways(domain)
    pairs = [(name, FIXED) for name in played if name != FIXED] + list(PAIRS)
    differences = {f"{one} less {other}": differ(played[one], played[other], domain, ways) for one, other in pairs}
    sure = predict(_confidence(learned), domain)
    return {
        "questions": {kind: domain.kinds.count(kind) for kind in sorted(set(domain.kinds))},
        "conversations": len(set(domain.conversations)),
        "selected": [row[0] for row in ranked],
        "chosen": {name: tell(policy) for name, policy in learned.items() if tell(policy) is not None},
        "policies": {name: score(each, domain) for name, each in played.items()},
        "differences": differences,
        "harm": {
            name: harm(played[name], domain) for name in ("safe", "safe, as shipped", FIXED, ROUTER, "ladder 0.5")
        },
        "confidence": describe_confidence(sure, domain),
        "checks": check(domain, learned),
    }


def check(domain: Domain, learned: Mapping[str, Policy]) -> dict[str, Any]:
    """The headline differences of each wave alone, and without questions that were made from others."""
    waves = {
        f"wave {wave}": np.isin(domain.questions, rows_of(f"{domain.name}-wave{wave}").columns["question_id"].tolist())
        for wave in WAVES
    }
    waves = {name: chosen for name, chosen in waves.items() if chosen.any()}
    parts = waves | {"without made questions": ~np.isin(domain.kinds, MADE)}
    found: dict[str, Any] = {}
    for name, chosen in parts.items():
        part = take(domain, chosen)
        ways = {"by_question": resample(len(part.questions), seed=SEED, draws=DRAWS, clusters=part.twins)}
        for one, measure, share in HEADLINES:
            mine, base = (measures(learned[each](part), part, "llm")[measure] for each in (one, FIXED))
            gap = estimate((mine - base).mean(axis=1), part, share, ways)
            found.setdefault(f"{one} less {FIXED}, {measure} at {share:g}", {})[name] = gap["by_question"]
    return found


def _confidence(learned: Mapping[str, Policy]) -> Any:
    priced = learned["ladder 0.5"]
    assert isinstance(priced, Priced)
    return priced.confidence


def over_domains(found: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The mean over domains of every difference, each domain's own, and a sign-flip test with the domain as unit."""
    first = found[names[0]]["differences"]
    out: dict[str, Any] = {}
    for pair, of in first.items():
        for judge in JUDGES:
            for share, each in of[judge].items():
                for name in each:
                    values = [found[d]["differences"][pair][judge][share][name]["by_question"]["mean"] for d in names]
                    out.setdefault(pair, {}).setdefault(judge, {}).setdefault(share, {})[name] = {
                        "mean": float(np.mean(values)), "each": values,
                        "p": sign_flip(values, seed=SEED, alternative="two-sided"),
                    }  # fmt: skip
    return out


def select_before(domains: Sequence[Domain]) -> dict[str, float] | None:
    """Right answers of the actions selected on LoCoMo and the pool alone, as it was done before, on the others."""
    old = [domain for domain in domains if domain.name in ("locomo", "longmemeval")]
    if len(old) < 2:
        return None
    policy = learn_fixed(old)
    return {
        domain.name: float(domain.weights(0.0) @ policy(domain).right(domain, "llm").mean(axis=1))
        for domain in domains
        if domain not in old
    }


def correct(ends: Mapping[str, Sequence[End]]) -> dict[str, Any]:
    """The headline differences by labelled replies: post-stratified on the verdicts of both judges."""
    labels, found = read_labels(), dict[str, Any]()
    for one, measure, share in (("drafts 2", "right", 0.0), ("drafts 3", "right", 0.0), *HEADLINES):
        cost = float(measure.split()[1]) if measure.startswith("utility") else 0.0
        mine, base = (Cells.of_played(ends[name]) for name in (one, FIXED))
        made = corrected(mine, labels, against=base, worth=Worth(wrong_cost=cost), unanswerable=share)
        found[f"{one} less {FIXED}, {measure} at {share:g}"] = asdict(made)
    return found


def analyse(
    learning: Sequence[Domain], opened: Sequence[Domain], scored: Mapping[str, Domain] | None = None
) -> dict[str, Any]:
    """Nested over the learning domains, then the others, opened once; `scored` are the questions where not all are."""
    found: dict[str, Any] = {}
    ends: dict[str, list[End]] = {}
    for left, (learned, ranked) in leave_out(learning, lambda rest: (learn_all(rest), rank_actions(rest))):
        domain = left if scored is None else scored[left.name]
        found[domain.name] = report(domain, learned, ranked)
        for name, policy in learned.items():
            ends.setdefault(name, []).append((domain, policy(domain)))
        print(domain.name, flush=True)
    nested = [domain.name for domain in learning]
    by_labels = {"nested": correct(ends)}
    if opened:
        learned, ranked = learn_all(learning), rank_actions(learning)
        found |= {domain.name: report(domain, learned, ranked) for domain in opened}
        for domain in opened:
            by_labels[domain.name] = correct({name: [(domain, play(domain))] for name, play in learned.items()})
    return {
        "nested": nested,
        "domains": found,
        "corrected": by_labels,
        "selected on two": select_before([*learning, *opened]),
        "over nested": over_domains(found, nested),
        "over all": over_domains(found, list(found)),
    }


def main() -> None:
    """Run the analysis, keep it."""
    parser = out_parser(__doc__)
    parser.add_argument("--learning", action="store_true", help="leave the two that are opened once shut")
    parser.add_argument("--fresh", action="store_true", help="learn on the first three waves, score on the fourth")
    options = parser.parse_args()
    waves = tuple(wave for wave in WAVES if wave not in FRESH) if options.fresh else WAVES
    asked = FRESH if options.fresh else WAVES
    learning = [read_waves(name, waves) for name in LEARNING]
    opened = [] if options.learning else [read_waves(name, asked) for name in OPENED]
    scored = {name: read_waves(name, FRESH) for name in LEARNING} if options.fresh else None
    result = {"seed": SEED, "draws": DRAWS, "learned on": list(waves), "waves": list(asked)}
    result |= analyse(learning, opened, scored)
    keep(round_numbers(result), options.out, indent=None)


if __name__ == "__main__":
    main()
