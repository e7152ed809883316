"""The options that the laboratory's verbs share, in groups."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retcon.errors import InputError

if TYPE_CHECKING:
    from retcon.lab.outcomes import Outcomes, Panel

File = Annotated[str, typer.Argument(metavar="OUTCOMES", help="Measured outcomes, .csv or .parquet.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", envvar="RETCON_DATA", metavar="DIR", help="Where the publishers' files are."),
]
Arms = Annotated[
    str,
    typer.Option("--actions", metavar="A,B,C", help="Actions; merge-agnostic is merge written without the question."),
]
Budgets = Annotated[str | None, typer.Option("--budgets", metavar="N,N", help="Tokens; else the protocol's.")]
Realizations = Annotated[
    int, typer.Option("--realizations", metavar="N", min=1, help="The first is greedy, others are sampled.")
]
Corrections = Annotated[bool, typer.Option("--corrections", help="LoCoMo's labels as its audit mends them.")]
SampleSeed = Annotated[int, typer.Option("--seed", metavar="N", help="Draws the sample.")]
SEED = 20260716
DecidingJudge = Annotated[
    str | None,
    typer.Option("--judge", metavar="NAME", help="Whose verdicts decide: llm, or strict, overlap or f1 without one."),
]
Judge = Annotated[str | None, typer.Option("--judge", metavar="NAME", help="Whose verdicts; llm where there is one.")]
Grouping = Annotated[
    str, typer.Option("--group", metavar="NAME", help="What is independent: question, or conversation.")
]
FoldSeed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Deals the folds.")]
Repeats = Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Ways to deal the folds.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRows:
    """Which rows of a file, by where they come from."""

    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="Only rows of this dataset.")] = None
    setting: Annotated[
        str | None, typer.Option("--setting", metavar="NAME", help="Only rows of this setting, such as controlled.")
    ] = None

    def read(self, file: str) -> Outcomes:
        """The outcomes of a file that were asked for."""
        from retcon.lab import outcomes

        chosen = outcomes.read(file)
        for name, asked in asdict(self).items():
            wanted = [asked] if isinstance(asked, str) else asked
            there = sorted(set(chosen.columns[name].tolist()))
            if missing := [value for value in wanted or () if value not in there]:
                raise InputError(f"no {name} {missing[0]!r} among these rows of {file}; there are {', '.join(there)}")
            chosen = chosen.where(**{name: wanted})
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRows(StudyRows):
    """Which rows of a file, by where they come from and by their fold."""

    fold: Annotated[
        list[str] | None, typer.Option("--fold", metavar="NAME", help="Only questions of this fold. Repeatable.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelChoice:
    """What a panel is made of."""

    actions: Annotated[
        str | None,
        typer.Option("--actions", metavar="A,B,C", help="Which actions, retain among them; all if not said."),
    ] = None
    judge: Judge = None
    budgets: Annotated[str | None, typer.Option("--budgets", metavar="N,N", help="Which budgets; all if not said.")] = (
        None
    )

    def panel(self, rows: Outcomes) -> Panel:
        """The dense arrays of the rows."""
        from retcon.lab import outcomes

        return outcomes.panel(rows, actions=names(self.actions), judge=self.judge, budgets=numbers(self.budgets))


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmBounds:
    """How much harm a threshold may do."""

    cap: Annotated[float, typer.Option("--cap", metavar="P", help="Harm frequency that the paper's rule may see.")] = (
        0.0
    )
    alpha: Annotated[float, typer.Option("--alpha", metavar="P", help="Harm rate that the certificate bounds.")] = 0.05
    delta: Annotated[float, typer.Option("--delta", metavar="P", help="Chance that the certificate is wrong.")] = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPrices:
    """What a second look must bring."""

    call_price: Annotated[
        float, typer.Option("--call-price", metavar="U", help="Utility that one more reader call must bring.")
    ] = 0.01
    token_price: Annotated[
        float, typer.Option("--token-price", metavar="U", help="Utility that one more generated token must bring.")
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a model's tokens cost."""

    price_in: Annotated[float, typer.Option("--price-in", metavar="P", help="For a million tokens read.")] = 0.0
    price_out: Annotated[float, typer.Option("--price-out", metavar="P", help="For a million tokens written.")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """Who judges, and how the asks are sent."""

    judge_model: Annotated[
        str | None, typer.Option("--judge-model", metavar="URL|FILE", help="Another model as judge.")
    ] = None
    judge_name: Annotated[str | None, typer.Option("--judge-name", metavar="NAME", help="Its name at the URL.")] = None
    no_judge: Annotated[bool, typer.Option("--no-judge", help="Only the judges that need no model.")] = False
    prices: Prices
    chunk: Annotated[
        int | None, typer.Option("--chunk", metavar="N", min=1, help="Asks sent, then kept, at once: 512, of a GGUF 8.")
    ] = None
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Asks under way at once at an endpoint.")
    ] = 16
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and stop.")] = False

    @property
    def judged(self) -> bool:
        """Whether a model judges."""
        return not self.no_judge


def names(given: str | None) -> list[str] | None:
    """The names between commas; None where nothing was said."""
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def numbers(given: str | None) -> list[int] | None:
    """The whole numbers between commas; None where nothing was said."""
    try:
        return None if given is None else [int(part) for part in given.split(",")]
    except ValueError:
        raise InputError(f"--budgets takes whole numbers with commas between them, not {given!r}") from None
