"""The verbs of learning: fit, calibrate, crossfit. Outcomes in, a router or honest estimates out."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError
from retcon.lab.cli import options as lab
from retcon.lab.cli import tell

if TYPE_CHECKING:
    from retcon.route import Router

FIT = (
    "retcon fit outcomes.csv --setting controlled -o router.json",
    "retcon fit outcomes.parquet --actions retain,extract --group conversation --about date=2026-11-15",
)
CALIBRATE = (
    "retcon calibrate held-out.csv --router router.json --rule certified --alpha 0.05",
    "retcon calibrate held-out.csv --router router.json --cap 0.02 -o careful.json",
)
CROSSFIT = (
    "retcon crossfit outcomes.csv --setting controlled --actions retain,abstract,merge,rewrite",
    "retcon crossfit outcomes.csv --setting full-history --group conversation --repeats 20 --skip MLP --json",
)


def fit(
    file: lab.File,
    *,
    output: Annotated[Path, option("--output", "FILE", "Where the router is written.", short="-o")] = Path(
        "router.json"
    ),
    name: Annotated[str | None, option("--name", "NAME", "The router's; else the file's.")] = None,
    rows: lab.FoldRows,
    choice: lab.PanelChoice,
    group: lab.Grouping = "question",
    estimator: Annotated[
        str, option("--estimator", "NAME", "ridge (the paper's), ridge-standardised, or gain.")
    ] = "ridge",
    features: Annotated[
        str | None, option("--features", "A,B,C", "What it may look at, as budget,fit; all if not said.")
    ] = None,
    fit_rules: Annotated[
        bool, flag("--fit-rules", "Retain where every note fits, replace where none does, in any case.")
    ] = False,
    ladder: Annotated[
        bool, flag("--ladder/--no-ladder", "Learn the order of second looks where abstentions are known.")
    ] = True,
    prices: lab.LookPrices,
    about: Annotated[
        list[str] | None, option("--about", "KEY=VALUE", "Provenance to keep in the file, as date=2026-11-15.")
    ] = None,
    seed: lab.FoldSeed = 0,
    as_json: opt.AsJson = False,
) -> None:
    """Learn a router from measured outcomes.

    One ridge response per action, its penalty by grouped cross-validation; and the ladder of second looks. The file
    names what it was learned from; retcon calibrate adds thresholds.
    """
    from retcon.lab import learn

    found = rows.read(file)
    panel = choice.panel(found)
    if features is not None:
        panel = panel.with_features(lab.names(features) or [])
    router = learn.fit_router(
        found, panel, name=name or output.stem, estimator=estimator, group=group, seed=seed, ladder=ladder,
        **asdict(prices), fit_rules=fit_rules, about=opt.metadata(about, "--about") or {},
    )  # fmt: skip
    save(router, output)
    if as_json:
        return show.document({"router": str(output), **router.to_dict()})
    return tell.router(router, output)


def calibrate(
    file: lab.File,
    *,
    router: Annotated[str, option("--router", "FILE", "The router to calibrate.", short="-r")],
    output: Annotated[
        Path | None, option("--output", "FILE", "Where it is written; else in place.", short="-o")
    ] = None,
    rule: Annotated[
        str, option("--rule", "NAME", "paper (no harm seen, or a cap) or certified (an exact bound).")
    ] = "paper",
    harm: lab.HarmBounds,
    joint: Annotated[
        str, option("--joint", "HOW", "Budgets together: split delta, any (one tau), or each alone.")
    ] = "split",
    rows: lab.FoldRows,
    judge: lab.Judge = None,
    as_json: opt.AsJson = False,
) -> None:
    """Set a router's thresholds on outcomes it has not seen.

    With --safe a replacing action is then taken only where its predicted advantage reaches the budget's threshold.
    "None qualifies" is a normal result: at that budget notes are then always retained.
    """
    from retcon.lab import learn, outcomes
    from retcon.route import Router

    before = Router.load(router)
    held_out = rows.read(file)
    panel = outcomes.panel(
        held_out, actions=before.actions, judge=judge or before.provenance.get("judge"), budgets=before.budgets or None
    )
    made = learn.read_provenance(held_out.where(action=panel.actions))
    for what, (learned, here) in replace(before, certificate=None).differences(made).items():
        show.warn(f"the router was learned with {what} {learned!r}, these outcomes are of {here!r}")
    after, found = learn.calibrate_router(before, panel, rule=rule, **asdict(harm), joint=joint, provenance=made)
    if rule == "certified" and (talks := len(set(panel.conversations))) < len(panel.questions):
        show.warn(
            f"{len(panel.questions)} questions of {talks} conversations are not independent: the bound is about more"
            " questions of these conversations, not about new ones"
        )
    target = output or Path(router)
    save(after, target)
    climbs = (after.certificate or {}).get("ladder")
    if as_json:
        did = {str(budget): learn.threshold_json(each) for budget, each in found.items()}
        return show.document({"router": str(target), "thresholds": did} | ({"ladder": climbs} if climbs else {}))
    tell.thresholds(found)
    if climbs:
        kept = [budget for budget in climbs["budgets"] if after.bounds_ladder(int(budget))]
        show.out(f"ladder: harm of its own orders is certified at {', '.join(kept) if kept else 'no budget'}")
    return show.out(f"wrote {target}")


def crossfit(
    file: lab.File,
    *,
    rows: lab.FoldRows,
    choice: lab.PanelChoice,
    group: lab.Grouping = "question",
    folds: Annotated[int, option("--folds", "K", "Three train, one calibrates, one tests.", min=3)] = 5,
    repeats: lab.Repeats = 1,
    questions: Annotated[
        str | None, option("--questions", "JSONL", "Question texts (id, question): types are then guessed, not given.")
    ] = None,
    reference: Annotated[
        str, option("--reference", "POLICY", "What the others are compared with.")
    ] = "best fixed action",
    skip: Annotated[list[str] | None, option("--skip", "POLICY", "Leave it out. Repeatable.")] = None,
    harm: lab.HarmBounds,
    prices: lab.LookPrices,
    looks: Annotated[int, option("--looks", "N", "Most looks of a ladder.", min=1, max=5)] = 4,
    draws: Annotated[int, option("--draws", "N", "Bootstrap replicates.", min=100)] = 10_000,
    seed: lab.FoldSeed = 0,
    as_json: opt.AsJson = False,
) -> None:
    """Compare policies on questions none of them saw.

    Retention, fixed operators, the learned routers and ladders, and oracles: each learned on three folds of the
    questions, calibrated on one, tested on one, in rotation. Differences have paired bootstrap intervals.
    """
    from retcon.lab import learn
    from retcon.lab.crossfit import Rules, default_policies, extra_names
    from retcon.lab.crossfit import crossfit as run

    panel = choice.panel(rows.read(file))
    every = default_policies(panel)
    if unknown := set(skip or ()).difference(every):
        raise InputError(f"no policy {sorted(unknown)[0]!r}; there are {', '.join(every)}")
    if reference in (skip or ()) or reference not in (*every, *extra_names(panel)):
        raise InputError(f"no policy {reference!r} to compare with; there are {', '.join(every)}")
    rules = Rules(group=group, **asdict(harm), **asdict(prices), looks=looks, seed=seed)
    with show.bar("crossfit", repeats * folds, every=1) as progress:
        fitted = run(
            panel, policies={name: policy for name, policy in every.items() if name not in (skip or ())}, rules=rules,
            k=folds, repeats=repeats, queries=None if questions is None else read_texts(questions),
            progress=progress,
        )  # fmt: skip
    summary = learn.summarise(fitted, reference=reference, draws=draws)
    return show.document(summary) if as_json else tell.crossfit(summary)


def save(router: Router, path: Path) -> None:
    """Write a router; a place that cannot be written is one line."""
    try:
        router.save(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def read_texts(path: str) -> dict[str, str]:
    """Question id -> text, from JSONL with `id` (or `question_id`) and `question`."""
    found: dict[str, str] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found[str(row["id"] if "id" in row else row["question_id"])] = str(row["question"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{path}, line {number}: a JSON object with 'id' and 'question' is needed") from None
    return found
