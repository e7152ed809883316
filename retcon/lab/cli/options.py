"""The options that the laboratory's verbs share, in groups."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from retcon.cli.options import flag, option
from retcon.errors import InputError

if TYPE_CHECKING:
    from retcon.lab.engine import Engine
    from retcon.lab.outcomes import Outcomes, Panel

File = Annotated[str, typer.Argument(metavar="OUTCOMES", help="Measured outcomes, .csv or .parquet.")]
Folder = Annotated[Path | None, option("--folder", "DIR", "Where the publishers' files are.", envvar="RETCON_DATA")]
Arms = Annotated[str, option("--actions", "A,B,C", "Actions; merge-agnostic is merge written without the question.")]
Budgets = Annotated[str | None, option("--budgets", "N,N", "Tokens; else the protocol's.")]
Realizations = Annotated[int, option("--realizations", "N", "The first is greedy, others are sampled.", min=1)]
Corrections = Annotated[bool, flag("--corrections", "LoCoMo's labels as its audit mends them.")]
SampleSeed = Annotated[int, option("--seed", "N", "Draws the sample.")]
SEED = 20260716
DecidingJudge = Annotated[
    str | None, option("--judge", "NAME", "Whose verdicts decide: llm, or strict, overlap or f1 without one.")
]
Judge = Annotated[str | None, option("--judge", "NAME", "Whose verdicts; llm where there is one.")]
Grouping = Annotated[str, option("--group", "NAME", "What is independent: question, or conversation.")]
FoldSeed = Annotated[int, option("--seed", "N", "Deals the folds.", min=0)]
Repeats = Annotated[int, option("--repeats", "N", "Ways to deal the folds.", min=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRows:
    """Which rows of a file, by where they come from."""

    dataset: Annotated[str | None, option("--dataset", "NAME", "Only rows of this dataset.")] = None
    setting: Annotated[str | None, option("--setting", "NAME", "Only rows of this setting, such as controlled.")] = None

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

    fold: Annotated[list[str] | None, option("--fold", "NAME", "Only questions of this fold. Repeatable.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelChoice:
    """What a panel is made of."""

    actions: Annotated[
        str | None, option("--actions", "A,B,C", "Which actions, retain among them; all if not said.")
    ] = None
    judge: Judge = None
    budgets: Annotated[str | None, option("--budgets", "N,N", "Which budgets; all if not said.")] = None

    def panel(self, rows: Outcomes) -> Panel:
        """The dense arrays of the rows."""
        from retcon.lab import outcomes

        return outcomes.panel(rows, actions=names(self.actions), judge=self.judge, budgets=numbers(self.budgets))


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmBounds:
    """How much harm a threshold may do."""

    cap: Annotated[float, option("--cap", "P", "Harm frequency that the paper's rule may see.")] = 0.0
    alpha: Annotated[float, option("--alpha", "P", "Harm rate that the certificate bounds.")] = 0.05
    delta: Annotated[float, option("--delta", "P", "Chance that the certificate is wrong.")] = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPrices:
    """What a second look must bring."""

    call_price: Annotated[float, option("--call-price", "U", "Utility that one more reader call must bring.")] = 0.01
    token_price: Annotated[float, option("--token-price", "U", "Utility that one more generated token must bring.")] = (
        0.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a model's tokens cost."""

    price_in: Annotated[float, option("--price-in", "P", "For a million tokens read.")] = 0.0
    price_out: Annotated[float, option("--price-out", "P", "For a million tokens written.")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Where models are asked from."""

    name: Annotated[str, option("--engine", "NAME", "local, or ray: worker processes on one machine or many.")] = (
        "local"
    )
    address: Annotated[
        str | None,
        option("--ray-address", "ADDRESS", "A cluster: auto, HOST:PORT, ray://HOST:PORT; else one is started."),
    ] = None
    workers: Annotated[int | None, option("--workers", "N", "Ray's, of each model; else as many as fit.", min=1)] = None

    def check(self) -> None:
        """An error where the engine cannot be had, before anything is done."""
        from retcon.lab.engine import check_engine

        check_engine(self.name, address=self.address, workers=self.workers)

    def start(self) -> AbstractContextManager[Engine]:
        """The engine, for as long as a block runs."""
        from retcon.lab.engine import start_engine

        return start_engine(self.name, address=self.address, workers=self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """Who judges, and how the asks are sent."""

    judge_model: Annotated[str | None, option("--judge-model", "URL|FILE", "Another model as judge.")] = None
    judge_name: Annotated[str | None, option("--judge-name", "NAME", "Its name at the URL.")] = None
    no_judge: Annotated[bool, flag("--no-judge", "Only the judges that need no model.")] = False
    prices: Prices
    chunk: Annotated[int | None, option("--chunk", "N", "Asks sent, then kept, at once: 512, of a GGUF 8.", min=1)] = (
        None
    )
    concurrency: Annotated[int, option("--concurrency", "N", "Asks under way at once at an endpoint.", min=1)] = 16
    engine: EngineChoice
    dry_run: Annotated[bool, flag("--dry-run", "Say what it would take, and stop; needs no model.")] = False

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
