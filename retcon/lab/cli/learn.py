"""The verbs of learning: fit, calibrate, crossfit. Outcomes in, a router or honest estimates out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from retcon.cli import options as opt
from retcon.cli import show
from retcon.errors import InputError

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

File = Annotated[str, typer.Argument(metavar="OUTCOMES", help="Measured outcomes, .csv or .parquet.")]
Dataset = Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="Only rows of this dataset.")]
Setting = Annotated[
    str | None, typer.Option("--setting", metavar="NAME", help="Only rows of this setting, such as controlled.")
]
Actions = Annotated[
    str | None, typer.Option("--actions", metavar="A,B,C", help="Which actions, retain among them; all if not said.")
]
Judge = Annotated[str | None, typer.Option("--judge", metavar="NAME", help="Whose verdicts; llm where there is one.")]
Budgets = Annotated[str | None, typer.Option("--budgets", metavar="N,N", help="Which budgets; all if not said.")]
Fold = Annotated[
    list[str] | None, typer.Option("--fold", metavar="NAME", help="Only questions of this fold. Repeatable.")
]
Grouping = Annotated[
    str, typer.Option("--group", metavar="NAME", help="What is independent: question, or conversation.")
]
Estimator = Annotated[
    str, typer.Option("--estimator", metavar="NAME", help="ridge (the paper's), ridge-standardised, or gain.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Deals the folds.")]
CallPrice = Annotated[
    float, typer.Option("--call-price", metavar="U", help="Utility that one more reader call must bring.")
]
TokenPrice = Annotated[
    float, typer.Option("--token-price", metavar="U", help="Utility that one more generated token must bring.")
]
Alpha = Annotated[float, typer.Option("--alpha", metavar="P", help="Harm rate that the certificate bounds.")]
Delta = Annotated[float, typer.Option("--delta", metavar="P", help="Chance that the certificate is wrong.")]
Cap = Annotated[float, typer.Option("--cap", metavar="P", help="Harm frequency that the paper's rule may see.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the router is written.")]


def panel_of(
    file: str, *, dataset: str | None, setting: str | None, fold: Sequence[str] | None, actions: str | None,
    judge: str | None, budgets: str | None,
) -> tuple[Any, Any]:  # fmt: skip
    """The outcomes asked for and their dense arrays."""
    from retcon.lab import outcomes

    chosen = outcomes.read(file)
    asked = {"dataset": dataset and [dataset], "setting": setting and [setting], "fold": fold}
    for name, wanted in asked.items():
        there = sorted(set(chosen.columns[name].tolist()))
        if missing := [value for value in wanted or () if value not in there]:
            raise InputError(f"no {name} {missing[0]!r} among these rows of {file}; there are {', '.join(there)}")
        chosen = chosen.where(**{name: wanted})
    return chosen, outcomes.panel(chosen, actions=names(actions), judge=judge, budgets=numbers(budgets))


def names(given: str | None) -> list[str] | None:
    """The names between commas; None where nothing was said."""
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def numbers(given: str | None) -> list[int] | None:
    """The whole numbers between commas; None where nothing was said."""
    try:
        return None if given is None else [int(part) for part in given.split(",")]
    except ValueError:
        raise InputError(f"--budgets takes whole numbers with commas between them, not {given!r}") from None


def fit(
    file: File,
    *,
    output: Output = Path("router.json"),
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The router's; else the file's.")] = None,
    dataset: Dataset = None,
    setting: Setting = None,
    fold: Fold = None,
    actions: Actions = None,
    judge: Judge = None,
    budgets: Budgets = None,
    group: Grouping = "question",
    estimator: Estimator = "ridge",
    features: Annotated[
        str | None,
        typer.Option("--features", metavar="A,B,C", help="What it may look at, as budget,fit; all if not said."),
    ] = None,
    fit_rules: Annotated[
        bool,
        typer.Option("--fit-rules", help="Retain where every note fits, replace where none does, in any case."),
    ] = False,
    ladder: Annotated[
        bool, typer.Option("--ladder/--no-ladder", help="Learn the order of second looks where abstentions are known.")
    ] = True,
    call_price: CallPrice = 0.01,
    token_price: TokenPrice = 0.0,
    about: Annotated[
        list[str] | None,
        typer.Option("--about", metavar="KEY=VALUE", help="Provenance to keep in the file, as date=2026-11-15."),
    ] = None,
    seed: Seed = 0,
    as_json: opt.AsJson = False,
) -> None:
    """Learn a router from measured outcomes.

    One ridge response per action, its penalty by grouped cross-validation; and the ladder of second looks. The file
    names what it was learned from; retcon calibrate adds thresholds.
    """
    from retcon.lab import learn

    rows, panel = panel_of(
        file, dataset=dataset, setting=setting, fold=fold, actions=actions, judge=judge, budgets=budgets
    )
    if features is not None:
        panel = panel.with_features(names(features) or [])
    router = learn.fit_router(
        rows, panel, name=name or output.stem, estimator=estimator, group=group, seed=seed, ladder=ladder,
        call_price=call_price, token_price=token_price, fit_rules=fit_rules,
        about=opt.metadata(about, "--about") or {},
    )  # fmt: skip
    save(router, output)
    if as_json:
        return show.document({"router": str(output), **router.to_dict()})
    return tell_router(router, output)


def calibrate(
    file: File,
    *,
    router: Annotated[str, typer.Option("--router", "-r", metavar="FILE", help="The router to calibrate.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where it is written; else in place.")
    ] = None,
    rule: Annotated[
        str,
        typer.Option("--rule", metavar="NAME", help="paper (no harm seen, or a cap) or certified (an exact bound)."),
    ] = "paper",
    cap: Cap = 0.0,
    alpha: Alpha = 0.05,
    delta: Delta = 0.10,
    joint: Annotated[
        str, typer.Option("--joint", metavar="HOW", help="Budgets together: split delta, any (one tau), or each alone.")
    ] = "split",
    dataset: Dataset = None,
    setting: Setting = None,
    fold: Fold = None,
    judge: Judge = None,
    as_json: opt.AsJson = False,
) -> None:
    """Set a router's thresholds on outcomes it has not seen.

    A replacing action is then taken only where its predicted advantage reaches the budget's threshold. "None
    qualifies" is a normal result: at that budget notes are always retained.
    """
    from retcon.lab import learn
    from retcon.route import Router

    before = Router.load(router)
    rows, panel = panel_of(
        file, dataset=dataset, setting=setting, fold=fold, actions=",".join(before.actions),
        judge=judge or before.provenance.get("judge"), budgets=",".join(map(str, before.budgets)) or None,
    )  # fmt: skip
    made = learn.read_provenance(rows.where(action=panel.actions))
    for what, (learned, here) in replace(before, certificate=None).differences(made).items():
        show.warn(f"the router was learned with {what} {learned!r}, these outcomes are of {here!r}")
    after, found = learn.calibrate_router(
        before, panel, rule=rule, cap=cap, alpha=alpha, delta=delta, joint=joint, provenance=made
    )
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
    show.table(
        [
            (
                str(budget), "never" if each.tau == float("inf") else f"{each.tau:+.4f}",
                f"{each.accepted} of {each.questions}", str(each.harms),
                "" if each.bound is None else f"{each.bound:.4f}", f"{each.accuracy:.3f}",
            )
            for budget, each in found.items()
        ],
        ">budget", ">threshold", ">replaced", ">harmed", ">bound", ">accuracy",
    )  # fmt: skip
    if climbs:
        kept = [budget for budget in climbs["budgets"] if after.bounds_ladder(int(budget))]
        show.out(f"ladder: harm of its own orders is certified at {', '.join(kept) if kept else 'no budget'}")
    return show.out(f"wrote {target}")


def crossfit(
    file: File,
    *,
    dataset: Dataset = None,
    setting: Setting = None,
    fold: Fold = None,
    actions: Actions = None,
    judge: Judge = None,
    budgets: Budgets = None,
    group: Grouping = "question",
    folds: Annotated[
        int, typer.Option("--folds", metavar="K", min=3, help="Three train, one calibrates, one tests.")
    ] = 5,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Ways to deal the folds.")] = 1,
    questions: Annotated[
        str | None,
        typer.Option(
            "--questions", metavar="JSONL", help="Question texts (id, question): types are then guessed, not given."
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option("--reference", metavar="POLICY", help="What the others are compared with.")
    ] = "best fixed action",
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="POLICY", help="Leave it out. Repeatable.")
    ] = None,
    cap: Cap = 0.0,
    alpha: Alpha = 0.05,
    delta: Delta = 0.10,
    call_price: CallPrice = 0.01,
    token_price: TokenPrice = 0.0,
    looks: Annotated[int, typer.Option("--looks", metavar="N", min=1, max=5, help="Most looks of a ladder.")] = 4,
    draws: Annotated[int, typer.Option("--draws", metavar="N", min=100, help="Bootstrap replicates.")] = 10_000,
    seed: Seed = 0,
    as_json: opt.AsJson = False,
) -> None:
    """Compare policies on questions none of them saw.

    Retention, fixed operators, the learned routers and ladders, and oracles: each learned on three folds of the
    questions, calibrated on one, tested on one, in rotation. Differences have paired bootstrap intervals.
    """
    from retcon.lab import learn
    from retcon.lab.crossfit import Rules, default_policies, extra_names
    from retcon.lab.crossfit import crossfit as run

    _, panel = panel_of(
        file, dataset=dataset, setting=setting, fold=fold, actions=actions, judge=judge, budgets=budgets
    )
    every = default_policies(panel)
    if unknown := set(skip or ()).difference(every):
        raise InputError(f"no policy {sorted(unknown)[0]!r}; there are {', '.join(every)}")
    if reference in (skip or ()) or reference not in (*every, *extra_names(panel)):
        raise InputError(f"no policy {reference!r} to compare with; there are {', '.join(every)}")
    rules = Rules(group, cap, alpha, delta, call_price, token_price, looks, seed)
    with show.bar("crossfit", repeats * folds, every=1) as progress:
        fitted = run(
            panel, policies={name: policy for name, policy in every.items() if name not in (skip or ())}, rules=rules,
            k=folds, repeats=repeats, queries=None if questions is None else texts(questions),
            progress=None if progress is None else lambda done, total: progress(done),
        )  # fmt: skip
    summary = learn.summarise(fitted, reference=reference, draws=draws)
    return show.document(summary) if as_json else tell_crossfit(summary)


def save(router: Any, path: Path) -> None:
    """Write a router; a place that cannot be written is one line."""
    try:
        router.save(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def texts(path: str) -> dict[str, str]:
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


def tell_router(router: Any, path: Path) -> None:
    """What was learned, for people."""
    known = router.provenance
    show.out(
        f"learned {', '.join(router.actions)} from {known['questions']} questions at"
        f" {', '.join(map(str, router.budgets))} tokens ({known['rows']} rows, lambda {known['lambda']:g})"
    )
    if router.ladder is not None:
        show.out(f"ladder: {len(router.ladder.orders)} orders, a call costs {router.ladder.call_price:g}")
    show.out(
        f"wrote {path}; it replaces whenever a higher utility is predicted, until retcon calibrate sets thresholds"
    )


def tell_crossfit(summary: Mapping[str, Any]) -> None:
    """The table of policies, for people."""
    show.out(
        f"{summary['questions']} questions, {', '.join(summary['actions'])}; {summary['folds']} folds by"
        f" {summary['group']}, {show.plural(summary['repeats'], 'repeat')}; judge {summary['judge']}"
    )
    budgets = [str(budget) for budget in summary["budgets"]]
    show.table(
        [_policy_row(row) for row in summary["policies"]],
        "policy", *(f">{b}" for b in budgets), ">macro", f">against {summary['reference']}", ">harm", ">calls",
        ">tokens",
    )  # fmt: skip


def _policy_row(row: Mapping[str, Any]) -> Sequence[str]:
    against = row["against"]
    return (
        row["policy"],
        *("" if value is None else f"{value:.3f}" for value in row["accuracy"]),
        f"{row['macro']:.3f}",
        "" if against is None else f"{against['mean']:+.3f} [{against['low']:+.3f}, {against['high']:+.3f}]",
        f"{row['harm']:.3f}",
        f"{row['calls']:.2f}",
        f"{row['tokens']:.0f}",
    )
