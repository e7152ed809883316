"""Does the certificate hold, and is it worth having? Calibration sets drawn from populations whose harm is known.

    python -m bench.certificate --out bench/results/certificate.json

A *simulated* population has a continuous advantage s, uniform on [0, 1], and a harm rate H(tau) in closed form. A
*pilot* population is all questions of one budget of a file of measured outcomes (RETCON_PILOT names it): calibration
sets are drawn from it with replacement, and its harm is counted. The router of the pilot is a ridge per action, fitted
once on all rows before anything is drawn: it is fixed, which is all the certificate asks, but its gains here are not
honest estimates for new questions. *Joint* rows certify all budgets of the pilot at once. Populations marked *outside*
break the promise's conditions on purpose: questions come by whole conversations. The result holds numbers, no text of
any benchmark.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from bench import grid, keep, out_parser, pilot_file
from retcon.lab.calibrate import certified_threshold, joint_thresholds, paper_threshold, smallest_n

ALPHAS = (0.02, 0.05, 0.10)
DELTA = 0.10
SIZES = (60, 150, 300)
DRAWS = 1000
SEED = 20261115
LAMBDA = 1e-3
BUDGETS = (32, 64, 128, 256)
POWER = "harm alpha / 4 in all"  # the population that must get a threshold
ABOVE = 1 + 1e-9  # harm that is exactly alpha must not count as above it by rounding
SETTINGS = {
    "LongMemEval controlled": ("longmemeval", "controlled", ("retain", "abstract", "merge", "rewrite")),
    "LoCoMo full history": ("locomo", "full-history", ("retain", "abstract", "merge")),
}
TYPES = (("single-session", "cat4"), ("multi-session", "cat1"), ("temporal", "cat2"), ("knowledge-update",))
Floats = NDArray[np.float64]
Drawn = tuple[Floats, Floats, Floats]  # advantage, chosen, retained


class HarmPopulation(Protocol):
    """Where calibration questions come from, with the truth about every threshold."""

    def draw(self, rng: np.random.Generator, n: int) -> Drawn: ...
    def harm(self, tau: float) -> float: ...
    def gain(self, tau: float) -> float: ...


@dataclass(frozen=True, slots=True)
class SimulatedPopulation:
    """s is uniform on [0, 1]; replacing harms with a probability that depends on s, and helps a share of the rest."""

    pieces: tuple[tuple[float, float, float], ...]  # from, to, probability of harm there
    helped: float = 0.3

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        s = rng.random(n)
        harm = np.zeros(n)
        for a, b, q in self.pieces:
            harm[(a <= s) & (s < b)] = q
        return self.outcomes(rng, s, harm)

    def outcomes(self, rng: np.random.Generator, s: Floats, harm: Floats) -> Drawn:
        """Utilities that follow the probabilities: harmed 1 -> 0, helped 0 -> 1, the others stay 0."""
        harmed = rng.random(len(s)) < harm
        helped = ~harmed & (rng.random(len(s)) < self.helped)
        return s, helped.astype(float), harmed.astype(float)

    def harm(self, tau: float) -> float:
        return math.fsum(q * max(b - max(a, tau), 0) for a, b, q in self.pieces)

    def gain(self, tau: float) -> float:
        return self.helped * (max(1 - tau, 0) - self.harm(tau)) - self.harm(tau)


@dataclass(frozen=True, slots=True)
class ClusteredPopulation:
    """Outside the promise: questions come in conversations, and one in five conversations has all the harm."""

    rate: float
    length: int = 30
    harmful: float = 0.2
    helped: float = 0.3

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        kinds = rng.random(-(-n // self.length)) < self.harmful
        harm = np.where(np.repeat(kinds, self.length)[:n], self.rate / self.harmful, 0.0)
        return self._even().outcomes(rng, rng.random(n), harm)

    def harm(self, tau: float) -> float:
        return self._even().harm(tau)

    def gain(self, tau: float) -> float:
        return self._even().gain(tau)

    def _even(self) -> SimulatedPopulation:
        return SimulatedPopulation(((0.0, 1.0, self.rate),), self.helped)


@dataclass(frozen=True, slots=True)
class FinitePopulation:
    """Measured questions, drawn with replacement: one by one, or by whole conversations of about the size asked for."""

    advantage: Floats
    chosen: Floats
    retained: Floats
    talks: tuple[NDArray[np.int64], ...] = ()

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        picked = self._by_talk(rng, n) if self.talks else rng.integers(0, len(self.advantage), n)
        return self.advantage[picked], self.chosen[picked], self.retained[picked]

    def _by_talk(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        count = round(n / len(self.advantage) * len(self.talks))
        return np.concatenate([self.talks[i] for i in rng.integers(0, len(self.talks), count)])

    def harm(self, tau: float) -> float:
        return float(np.mean((self.advantage >= tau) & (self.chosen < self.retained)))

    def gain(self, tau: float) -> float:
        return float(np.mean(np.where(self.advantage >= tau, self.chosen - self.retained, 0.0)))


def simulated_populations(alpha: float) -> dict[str, HarmPopulation]:
    """Populations for one alpha. In each, more replacing pays, so that the rule is drawn towards the edge."""
    steps = pairwise(np.linspace(0, 1, 21).tolist())
    return {
        "harm falls as s rises": SimulatedPopulation(tuple((a, b, 0.4 * (1 - (a + b) / 2)) for a, b in steps)),
        "harm exactly alpha down to s = .2, more below": SimulatedPopulation(
            ((0.85, 1.0, alpha / 0.15), (0.0, 0.2, 0.15))
        ),
        "harm a hair above alpha wherever it pays": SimulatedPopulation(((0.85, 1.0, 1.001 * alpha / 0.15),)),
        "harm 2 alpha in all": SimulatedPopulation(((0.0, 1.0, 2 * alpha),)),
        POWER: SimulatedPopulation(((0.0, 1.0, alpha / 4),)),
    }


def clustered_populations(alpha: float) -> dict[str, HarmPopulation]:
    """Populations that come by whole conversations."""
    return {"harm 2 alpha in all, in one of five conversations of 30": ClusteredPopulation(2 * alpha)}


# The pilot: measured outcomes and a fixed router.


def pilot(path: Path) -> dict[tuple[str, int], FinitePopulation]:
    """The population of each setting and budget, under the setting's fixed router."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(name, b): found for name in SETTINGS for b, found in _setting(rows, *SETTINGS[name]).items()}


def _setting(
    rows: Sequence[dict[str, str]], data: str, setting: str, actions: Sequence[str]
) -> dict[int, FinitePopulation]:
    mine = [row for row in rows if (row["dataset"], row["setting"]) == (data, setting) and row["action"] in actions]
    by = {(row["question_id"], int(row["budget"]), row["action"]): row for row in mine}
    cells = sorted({(question, budget) for question, budget, _ in by})
    x = np.array([_features(by[*cell, "retain"]) for cell in cells])
    u = np.array([[float(by[*cell, action]["judge_llm"]) for action in actions] for cell in cells])
    mu = ridge(x, u)
    best = 1 + mu[:, 1:].argmax(axis=1)
    every = np.arange(len(cells))
    rows_of = {b: np.array([i for i, cell in enumerate(cells) if cell[1] == b]) for b in BUDGETS}
    talk = np.array([by[*cell, "retain"]["conversation"] for cell in cells])
    s, chosen = mu[every, best] - mu[:, 0], u[every, best]
    return {b: FinitePopulation(s[i], chosen[i], u[i, 0], _groups(talk[i])) for b, i in rows_of.items()}


def _features(row: dict[str, str]) -> list[float]:
    """The features that the rows have; the two of the embeddings are not among them."""
    budget, tokens = float(row["budget"]), float(row["cluster_tokens"])
    kind = [float(row["type"].startswith(names)) for names in TYPES]  # LoCoMo's category 3 is none of the four
    return [budget / 512, float(row["notes"]), tokens / budget, float(row["fit"]), float(row["sessions"]), *kind]


def ridge(x: Floats, u: Floats) -> Floats:
    """Predictions of one response per column of u: (1/n) sum of squares + lambda |theta|^2, the intercept free."""
    centred = x - x.mean(axis=0)
    gram = centred.T @ centred / len(x) + LAMBDA * np.eye(x.shape[1])
    theta = np.linalg.solve(gram, centred.T @ (u - u.mean(axis=0)) / len(x))
    predicted: Floats = u.mean(axis=0) + centred @ theta
    return predicted


def _groups(labels: NDArray[np.str_]) -> tuple[NDArray[np.int64], ...]:
    return tuple(np.flatnonzero(labels == label) for label in np.unique(labels))


# Measuring.


@dataclass(frozen=True, slots=True)
class Rule:
    """What one rule did over the draws."""

    exceeds: float  # share of draws after which the population harm is above alpha
    error: float  # its standard error
    none: float  # share of draws with tau = inf
    harm: float  # mean population harm
    gain: float  # mean population accuracy above retention's


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """One population, sample size and alpha."""

    kind: str  # simulated, pilot or outside
    population: str
    budget: int | None
    n: int
    alpha: float
    certified: Rule
    zero_harm: Rule
    most_gain: float | None  # of any threshold whose population harm is at most alpha


def measure(
    population: HarmPopulation, n: int, alphas: Sequence[float], *, draws: int, rng: np.random.Generator
) -> list[tuple[Rule, Rule]]:
    """The certified rule and the zero-harm rule at each alpha, over the same calibration sets."""
    sets = [population.draw(rng, n) for _ in range(draws)]
    zero = [paper_threshold(*drawn).tau for drawn in sets]
    out = []
    for alpha in alphas:
        certified = [certified_threshold(*drawn, alpha=alpha, delta=DELTA).tau for drawn in sets]
        out.append((_rule(population, certified, alpha), _rule(population, zero, alpha)))
    return out


def _rule(population: HarmPopulation, taus: Sequence[float], alpha: float) -> Rule:
    values, places = np.unique(taus, return_inverse=True)  # few, so the truth about each is asked once
    harm = np.array([population.harm(tau) for tau in values])[places]
    gain = np.array([population.gain(tau) for tau in values])[places]
    return _summary(harm, gain, np.isposinf(taus), alpha)


def _summary(harm: Floats, gain: Floats, none: NDArray[Any], alpha: float) -> Rule:
    """Of arrays with one entry per draw."""
    exceeds = float(np.mean(harm > alpha * ABOVE))
    error = math.sqrt(exceeds * (1 - exceeds) / len(harm))
    return Rule(exceeds, error, float(np.mean(none)), float(np.mean(harm)), float(np.mean(gain)))


def measure_joint(
    budgets: dict[int, FinitePopulation],
    n: int,
    alpha: float,
    how: Literal["split", "any"],
    *,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Rule, Rule]:
    """The joint certificate and the zero-harm rule of each budget: harm of the worst budget, or harm at any."""
    certified, zero = [], []
    for _ in range(draws):
        picked = rng.integers(0, len(budgets[BUDGETS[0]].advantage), n)
        sets = {b: (at.advantage[picked], at.chosen[picked], at.retained[picked]) for b, at in budgets.items()}
        certified.append([t.tau for t in joint_thresholds(sets, alpha=alpha, delta=DELTA, how=how).values()])
        zero.append([paper_threshold(*rows).tau for rows in sets.values()])
    return _joint_rule(budgets, certified, alpha, how), _joint_rule(budgets, zero, alpha, how)


def _joint_rule(budgets: dict[int, FinitePopulation], taus: Sequence[Sequence[float]], alpha: float, how: str) -> Rule:
    tau = np.array(taus)[:, :, None]  # draw x budget x question
    s, chosen, kept = (
        np.array([getattr(at, name) for at in budgets.values()]) for name in ("advantage", "chosen", "retained")
    )
    replaced = s >= tau
    harmed = replaced & (chosen < kept)
    harm = harmed.any(axis=1).mean(axis=1) if how == "any" else harmed.mean(axis=2).max(axis=1)
    gain = np.where(replaced, chosen - kept, 0.0).mean(axis=(1, 2))
    return _summary(harm, gain, np.isposinf(tau), alpha)


def most_gain(population: HarmPopulation, alpha: float) -> float:
    """The gain of the best threshold that is truly within alpha: what no rule can beat."""
    taus = population.advantage if isinstance(population, FinitePopulation) else np.linspace(0, 1, 201)
    return max((population.gain(tau) for tau in taus if population.harm(tau) <= alpha * ABOVE), default=0.0)


def jobs(
    finite: dict[tuple[str, int], FinitePopulation],
) -> Iterator[tuple[str, str, int | None, HarmPopulation, int, list[float]]]:
    """Everything to measure: kind, name, budget, population, n and the alphas."""
    for n in SIZES:
        for alpha in ALPHAS:
            yield from (
                ("simulated", name, None, found, n, [alpha]) for name, found in simulated_populations(alpha).items()
            )
            yield from (
                ("outside", name, None, found, n, [alpha]) for name, found in clustered_populations(alpha).items()
            )
        for (name, budget), found in finite.items():
            alone = FinitePopulation(found.advantage, found.chosen, found.retained)
            yield "pilot", name, budget, alone, n, list(ALPHAS)
    for (name, budget), found in finite.items():
        if len(found.talks) < len(found.advantage):
            yield "outside", f"{name}, {len(found.talks)} conversations", budget, found, len(found.advantage), [*ALPHAS]


def run(path: Path, *, draws: int = DRAWS) -> dict[str, Any]:
    """All rows, and whether what must be shown was shown."""
    rng = np.random.default_rng(SEED)
    finite = pilot(path)
    rows = []
    work = track(list(jobs(finite)), "drawing calibration sets", console=Console(stderr=True))
    for kind, name, budget, found, n, alphas in work:
        rules = measure(found, n, alphas, draws=draws, rng=rng)
        for alpha, (certified, zero) in zip(alphas, rules, strict=True):
            rows.append(CertificateRow(kind, name, budget, n, alpha, certified, zero, most_gain(found, alpha)))
    rows += joint_rows(finite, draws=draws, rng=rng)
    return {
        "delta": DELTA,
        "draws": draws,
        "seed": SEED,
        "shown": decide_claims(rows, draws),
        "smallest_n": {str(alpha): [smallest_n(alpha, DELTA, harms) for harms in range(4)] for alpha in ALPHAS},
        "rows": [asdict(row) for row in rows],
    }


def joint_rows(
    finite: dict[tuple[str, int], FinitePopulation], *, draws: int, rng: np.random.Generator
) -> Iterator[CertificateRow]:
    """All budgets of each setting at once, both ways."""
    hows: dict[Literal["split", "any"], str] = {"split": "a tau per budget", "any": "one tau, harm at any budget"}
    for name in SETTINGS:
        budgets = {b: finite[name, b] for b in BUDGETS}
        for how, words in hows.items():
            for alpha in ALPHAS:
                rules = measure_joint(budgets, 300, alpha, how, draws=draws, rng=rng)
                yield CertificateRow("joint", f"{name}, {words}", None, 300, alpha, *rules, None)


def decide_claims(rows: Sequence[CertificateRow], draws: int) -> dict[str, Any]:
    """The two claims with the numbers that decide them."""
    limit = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / draws)
    worst = max(row.certified.exceeds for row in rows if row.kind != "outside")
    power = min(1 - row.certified.none for row in rows if row.population == POWER and row.n == 300)
    return {"limit": limit, "worst": worst, "holds": worst <= limit, "power": power, "has_power": power >= 0.8}


# Showing.


def table(result: dict[str, Any]) -> str:
    """The tables of docs/certificate.md."""
    return "\n\n".join((_violations(result), _worth(result), _sizes(result), _verdict(result)))


def _violations(result: dict[str, Any]) -> str:
    def cell(rows: list[dict[str, Any]], rule: str) -> str:
        worst = max((row[rule] for row in rows), key=lambda found: found["exceeds"])
        return f"{_share(worst['exceeds'], 3)} ± {_share(worst['error'], 3)}"

    head = f"Share of {result['draws']:,} calibration sets after which the population harm is above alpha"
    return _grid(result, f"{head} (promised: at most {_share(result['delta'])})", cell)


def _worth(result: dict[str, Any]) -> str:
    def cell(rows: list[dict[str, Any]], rule: str) -> str:
        none, gain = (float(np.mean([row[rule][key] for row in rows])) for key in ("none", "gain"))
        most = [row["most_gain"] for row in rows if row["most_gain"] is not None and rule == "certified"]
        return f"{_share(none)}; {100 * gain:+.1f}" + (f" of {100 * np.mean(most):.1f}" if most else "")

    return _grid(result, "Share of calibration sets where none qualifies; mean gain over retention, in points", cell)


def _grid(result: dict[str, Any], head: str, cell: Callable[[list[dict[str, Any]], str], str]) -> str:
    """One line per population and n, one column per rule and alpha. The budgets of a pilot share a line."""
    names = [f"{rule} {_share(alpha)}" for rule in ("certified", "zero harm") for alpha in ALPHAS]
    lines = []
    for kind, title in _KINDS.items():
        lines.append([f"*{title}*"])
        here = [row for row in result["rows"] if row["kind"] == kind]
        for name, n in dict.fromkeys((row["population"], row["n"]) for row in sorted(here, key=_order)):
            of = [[row for row in here if _key(row) == (name, n, alpha)] for alpha in ALPHAS]
            cells = [cell(rows, rule) for rule in ("certified", "zero_harm") for rows in of]
            lines.append([name, str(n), *cells])
    return f"**{head}**\n\n{grid(['population', 'n', *names], lines)}"


_KINDS = {
    "simulated": "simulated, harm known in closed form",
    "pilot": "measured questions, each of four budgets alone",
    "joint": "measured questions, four budgets at once",
    "outside": "outside the promise: drawn by whole conversations",
}


def _order(row: dict[str, Any]) -> tuple[str, int]:
    return row["population"], row["n"]


def _key(row: dict[str, Any]) -> tuple[str, int, float]:
    return row["population"], row["n"], row["alpha"]


def _sizes(result: dict[str, Any]) -> str:
    head = f"**Fewest calibration questions that certify alpha at delta = {_share(result['delta'])}**"
    lines = [head, "", "| alpha | no harm seen | 1 harm | 2 harms | 3 harms |", "|---|---|---|---|---|"]
    found = result["smallest_n"].items()
    return "\n".join([*lines, *(f"| {_share(float(alpha))} | " + " | ".join(map(str, n)) + " |" for alpha, n in found)])


def _verdict(result: dict[str, Any]) -> str:
    found = result["shown"]
    return (
        f"Worst violation rate inside the promise {found['worst']:.3f}; delta and three standard errors of"
        f" {result['draws']:,} draws are {found['limit']:.3f}. With harm alpha / 4 and n = 300, at least"
        f" {100 * found['power']:.1f} % of the sets get a threshold that replaces."
    )


def _share(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def main() -> None:
    """Draw, print, keep; fails where the certificate does."""
    parser = out_parser(__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args()
    result = run(pilot_file(), draws=options.draws)
    print(table(result))
    keep(result, options.out)
    sys.exit(0 if result["shown"]["holds"] and result["shown"]["has_power"] else 1)


if __name__ == "__main__":
    main()
