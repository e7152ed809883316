"""What two readers said of 500 replies, how far they agree, and how far each judge agrees with them.

    python -m bench.judge_labels --join FOLDER       labels and key -> bench/results/reply-labels.json
    python -m bench.judge_labels --out bench/results/judge_labels.json

The readers are two runs of one large language model, not people: each labelled all replies alone, in an order of its
own, blind to action, budget, policy, domain and verdicts, with the same written guidelines. A reply that they differ on
counts half. `bench.judge_sample` drew the replies, so every figure here is weighted to stand for all replies of the
population; intervals draw labels anew within their strata (n - 1 of n, weights scaled up: Rao and Wu 1988).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import RESULTS, keep
from bench.evaluation import Array, round_numbers
from bench.judge_sample import COPIED, DOMAINS, READERS, SEED, read_lines, stratum

Mask = NDArray[np.bool_]
Reply = tuple[str, int, str]  # question, budget, action: one reply in the population

LABELS = RESULTS / "reply-labels.json"
NAMES = ("llm", "strict", "f1", "overlap")
RIGHT = 0.5  # F1 counts as right above it
DRAWS = 10_000
KEPT = ("id", "domain", "question_id", "twin", "budget", "action", "kind", "abstained", "weight")


@dataclass(frozen=True, slots=True)
class Labels:
    """Replies with what both readers said, and what the judges did; one entry for each time a reply was drawn."""

    reply: NDArray[np.object_]  # of Reply
    text: NDArray[np.str_]  # the same for the same reply to the same question
    domain: NDArray[np.str_]
    answerable: Mask
    abstained: Mask
    copied: Mask
    stratum: NDArray[np.int64]
    weight: Array  # replies in the population that this one stands for
    right: Mask  # [label, reader]
    unsure: Mask  # [label, reader]
    verdicts: Mapping[str, Mask]

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def truth(self) -> Array:
        """1 where both readers say right, 0 where both say wrong, one half where they differ."""
        return np.asarray(self.right.mean(axis=1))

    def where(self, keep: Mask) -> Labels:
        """These labels alone."""
        arrays = {each.name: getattr(self, each.name)[keep] for each in fields(self) if each.name != "verdicts"}
        return Labels(**arrays, verdicts={name: said[keep] for name, said in self.verdicts.items()})

    def keep_only(self, keep: Mask) -> Labels:
        """These labels alone, which then stand for all of their strata; a stratum without any left is gone."""
        left, had = (np.bincount(self.stratum[part], minlength=self.stratum.max() + 1) for part in (keep, keep | True))
        grown = self.weight * (had / np.maximum(left, 1))[self.stratum]
        return replace(self, weight=grown).where(keep)


# -- joining -----------------------------------------------------------------------------------------------------------


def join(folder: Path) -> list[dict[str, Any]]:
    """The key with both readers' labels; a reply that a reader left out, or labelled twice, ends the script."""
    key, said = read_lines(folder / "key.jsonl"), {}
    asked = {row["id"] for row in key}
    for reader in READERS:
        lines = read_lines(folder / f"labels-{reader}.jsonl")
        said[reader] = {line["id"]: line for line in lines}
        if len(lines) != len(said[reader]) or said[reader].keys() != asked:
            odd = sorted(asked ^ said[reader].keys())[:3]
            raise SystemExit(f"reader {reader}: {len(lines)} labels for {len(asked)} replies, odd are {odd}")
    return [_kept(row, [said[reader][row["id"]] for reader in READERS]) for row in key]


def _kept(row: Mapping[str, Any], said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in KEPT}, "abstained": int(row["abstained"] > RIGHT),
        "judges": {name: int(row[f"judge_{name}"] > RIGHT) for name in NAMES},
        "right": [int(each["right"]) for each in said], "unsure": [int(each["unsure"]) for each in said],
    }  # fmt: skip


def read_labels(path: Path = LABELS) -> Labels:
    """The labels that are kept."""
    return as_labels(json.loads(path.read_text(encoding="utf-8")))


def as_labels(rows: Sequence[Mapping[str, Any]]) -> Labels:
    """Rows of the kept form as arrays."""
    numbers: dict[Any, int] = {}
    strata = [stratum({**row, **{f"judge_{name}": row["judges"][name] for name in NAMES}}) for row in rows]
    reply = np.empty(len(rows), object)
    reply[:] = [(row["question_id"], row["budget"], row["action"]) for row in rows]
    return Labels(
        reply=reply,
        text=np.array([row["id"] for row in rows]),
        domain=np.array([row["domain"] for row in rows]),
        answerable=np.array([row["kind"] == "answerable" for row in rows]),
        abstained=np.array([row["abstained"] == 1 for row in rows]),
        copied=np.array([row["action"] in COPIED for row in rows]),
        stratum=np.array([numbers.setdefault(each, len(numbers)) for each in strata]),
        weight=np.array([float(row["weight"]) for row in rows]),
        right=np.array([row["right"] for row in rows]) == 1,
        unsure=np.array([row["unsure"] for row in rows]) == 1,
        verdicts={name: np.array([row["judges"][name] == 1 for row in rows]) for name in NAMES},
    )


# -- drawing labels anew -----------------------------------------------------------------------------------------------


def draw_weights(labels: Labels, draws: int, seed: int = SEED) -> Array:
    """[draw, label]: weights of labels drawn anew within their strata; a stratum of one label keeps it.

    Of n labels n - 1 are drawn and count n / (n - 1) each: drawing n would make intervals too narrow by that factor,
    and most strata have about ten (Rao and Wu 1988).
    """
    rng = np.random.default_rng(seed)
    out = np.tile(labels.weight, (draws, 1))
    for number in np.unique(labels.stratum):
        (at,) = np.nonzero(labels.stratum == number)
        if len(at) > 1:
            out[:, at] *= rng.multinomial(len(at) - 1, np.full(len(at), 1 / len(at)), draws) * len(at) / (len(at) - 1)
    return out


def weighted_share(weights: Array, of: Array, among: Array) -> dict[str, float | None]:
    """Weighted share of `of` among `among`, with its interval; `weights` are [1 + draw, label], the first as drawn."""
    whole = weights @ among
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(whole > 0, weights @ (of * among) / whole, np.nan)
    if np.isnan(shares[0]):
        return {"share": None, "low": None, "high": None}
    low, high = np.nanpercentile(shares[1:], [2.5, 97.5])
    return {"share": float(shares[0]), "low": float(low), "high": float(high)}


# -- readers against each other ----------------------------------------------------------------------------------------


def agreement(labels: Labels) -> dict[str, Any]:
    """How often both readers say the same of a reply, and Cohen's kappa; each text counts once, unweighted."""
    first = np.unique(labels.text, return_index=True)[1]
    one, other = labels.right[first].T
    return {
        "replies": len(first), "same": float((one == other).mean()) if len(first) else None, "kappa": kappa(one, other),
        "right": {name: float(said.mean()) for name, said in zip(READERS, (one, other), strict=True)},
        "unsure": {name: float(labels.unsure[first, at].mean()) for at, name in enumerate(READERS)},
        "differ_and_unsure": int(((one != other) & labels.unsure[first].any(axis=1)).sum()),
        "differ": int((one != other).sum()),
    }  # fmt: skip


def kappa(one: Mask, other: Mask) -> float | None:
    """Cohen's kappa: agreement beyond chance; None where both always say one and the same."""
    if not len(one):
        return None
    same = float((one == other).mean())
    chance = float(one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean()))
    return None if chance == 1 else (same - chance) / (1 - chance)


def parts(labels: Labels) -> dict[str, Mask]:
    """The parts that are shown apart."""
    answered = ~labels.abstained
    return {
        "all": np.ones(len(labels), bool),
        "answerable, answered": labels.answerable & answered,
        **{f"{name}, answerable, answered": labels.answerable & answered & (labels.domain == name) for name in DOMAINS},
        "unanswerable, answered": ~labels.answerable & answered,
        "abstained": labels.abstained,
    }


# -- judges against readers --------------------------------------------------------------------------------------------


def trust(labels: Labels, judge: str, weights: Array, among: Mask) -> dict[str, Any]:
    """What a judge's verdicts are worth among some replies, weighted; `let_pass`: wrong replies that it calls right."""
    said, truth, part = labels.verdicts[judge].astype(float), labels.truth, among.astype(float)
    same = said * truth + (1 - said) * (1 - truth)
    return {
        "labels": int(among.sum()),
        "agrees": weighted_share(weights, same, part), "precision": weighted_share(weights, truth, part * said),
        "recall": weighted_share(weights, said, part * truth),
        "let_pass": weighted_share(weights, said, part * (1 - truth)),
        "says_right": weighted_share(weights, said, part), "is_right": weighted_share(weights, truth, part),
    }  # fmt: skip


def favours(labels: Labels, judge: str, weights: Array) -> dict[str, Any]:
    """What a judge adds to the share of right replies, read from copied and from written text, and the difference."""
    error = labels.verdicts[judge] - labels.truth
    here = labels.answerable & ~labels.abstained
    drawn = [
        (weights @ (error * part)) / (weights @ part.astype(float))
        for part in (here & labels.copied, here & ~labels.copied)
    ]
    return {
        name: dict(zip(("mean", "low", "high"), [float(each[0]), *np.percentile(each[1:], [2.5, 97.5])], strict=True))
        for name, each in {"copied": drawn[0], "written": drawn[1], "difference": drawn[0] - drawn[1]}.items()
    }


def by_verdicts(labels: Labels, weights: Array) -> dict[str, Any]:
    """Share of right replies by what both judges say, in all domains and in each."""
    here, llm, strict = labels.answerable & ~labels.abstained, labels.verdicts["llm"], labels.verdicts["strict"]
    groups: dict[str, Mask] = {"all": here, **{name: here & (labels.domain == name) for name in DOMAINS}}

    def shares(group: Mask) -> dict[str, Any]:
        whole = float(labels.weight[group].sum())
        out = {}
        for said in ((1, 1), (1, 0), (0, 1), (0, 0)):
            part = group & (llm == said[0]) & (strict == said[1])
            found = weighted_share(weights, labels.truth, part.astype(float))
            out["llm {}, strict {}".format(*said)] = {
                "labels": int(part.sum()), "replies": float(labels.weight[part].sum()) / whole, **found,
            }  # fmt: skip
        return out

    return {name: shares(group) for name, group in groups.items()}


Rule = Callable[[Labels], Labels]
RULES: dict[str, Rule] = {
    "both readers, half where they differ": lambda labels: labels,
    "where both agree and are sure": lambda labels: labels.keep_only(
        (labels.right[:, 0] == labels.right[:, 1]) & ~labels.unsure.any(axis=1)
    ),
}


def run(labels: Labels, draws: int = DRAWS) -> dict[str, Any]:
    """All of it."""
    found: dict[str, Any] = {
        "drawn": len(labels), "texts": len(set(labels.text.tolist())), "replies": float(labels.weight.sum()),
        "seed": SEED, "draws": draws,
        "agreement": {name: agreement(labels.where(part)) for name, part in parts(labels).items()},
    }  # fmt: skip
    for name, rule in RULES.items():
        some = rule(labels)
        weights = np.vstack([some.weight, draw_weights(some, draws)])
        found.setdefault("judges", {})[name] = {
            part: {judge: trust(some, judge, weights, among) for judge in NAMES}
            for part, among in parts(some).items()
            if part != "all"
        }
        if name == next(iter(RULES)):
            found["verdicts"] = by_verdicts(some, weights)
            found["favours"] = {judge: favours(some, judge, weights) for judge in NAMES}
    out: dict[str, Any] = round_numbers(found)
    return out


def write_labels(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """One line a label, as JSON."""
    path.write_text("[\n " + ",\n ".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def main() -> None:
    """Join, or compute and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", type=Path, help="folder with the key and the labels of both readers")
    parser.add_argument("--out", type=Path, default=RESULTS / "judge_labels.json", help="write the result there")
    options = parser.parse_args()
    if options.join:
        write_labels(join(options.join), LABELS)
    keep(run(read_labels()), options.out)


if __name__ == "__main__":
    main()
