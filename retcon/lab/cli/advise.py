"""`retcon advise`: a small study of your own questions, or of the shipped sample with your own reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import flag, option
from retcon.errors import InputError
from retcon.lab.cli import options as lab
from retcon.lab.cli import study, tell
from retcon.ladder import DEFAULT_WRONG_COST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retcon.lab.data import BenchmarkQuestion
    from retcon.lab.protocols import Protocol

EXAMPLES = (
    "retcon advise --sample --model http://localhost:8000/v1 --model-name qwen",
    "retcon advise --questions mine.jsonl --model model.gguf",
    "retcon advise --questions mine.jsonl --limit 300 --wrong-cost 1 --model ollama:llama3.2 -o advice",
)
WHY = {
    "product": "every question has its notes, so they are retrieved as a memory would",
    "controlled": "not every question has all its notes, so the gold evidence stands for what a retriever finds",
}
ACTIONS = "retain,extract,merge,abstract,hybrid"


@dataclass(frozen=True, slots=True)
class Kind:
    """What an advice on the user's own questions, or on the sample, takes if not said."""

    limit: int
    output: str
    judge: str
    budgets: str | None = None


OWN, SAMPLE = Kind(100, "advice", "llm"), Kind(60, "advice-sample", "strict", "64,256")
SLOW = 20  # questions of the sample for a GGUF file, which answers one by one


def advise(
    *,
    questions: Annotated[
        str | None, option("--questions", "JSONL", "Your questions, answers and notes.", short="-q")
    ] = None,
    sample: Annotated[
        bool,
        flag("--sample", "In place of yours: questions that ship, in minutes. Does the default hold for your reader?"),
    ] = False,
    limit: Annotated[
        int | None,
        option(
            "--limit",
            "N",
            f"At most so many questions; {OWN.limit} if not said; of the sample {SAMPLE.limit}, {SLOW} for a GGUF.",
            min=1,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "DIR",
            f"Where everything goes; a run there is resumed. {OWN.output}, or {SAMPLE.output}, if not said.",
            short="-o",
        ),
    ] = None,
    wrong_cost: Annotated[
        float, option("--wrong-cost", "U", "What a wrong answer costs, where a right one gains 1.")
    ] = DEFAULT_WRONG_COST,
    protocol: Annotated[
        str | None, option("--protocol", "NAME", "product if the questions have notes, else controlled.")
    ] = None,
    actions: lab.Arms = ACTIONS,
    budgets: lab.Budgets = None,
    realizations: lab.Realizations = 1,
    judge: lab.DecidingJudge = None,
    seed: lab.SampleSeed = lab.SEED,
    model: opt.ModelChoice,
    how: lab.Labelling,
    as_json: opt.AsJson = False,
) -> None:
    """Say which router suits your questions and your reader, and how sure that is.

    A sample of them is measured with your model: the router that ships, the best fixed action at each budget, and a
    router learned on your questions, each with right and wrong answers and the gain with its interval. Questions of
    yours that memory cannot answer ("abstention": true) count too. Stopped at any point, the same command goes on
    where it was.
    """
    from retcon.lab import advice_page as pages
    from retcon.lab import advise as advices
    from retcon.lab import bench as benches
    from retcon.lab import label as labels
    from retcon.lab import outcomes
    from retcon.lab.data.shipped import MORE
    from retcon.lab.judge import DETERMINISTIC

    kind = _choose_kind(questions, sample=sample)
    if sample and judge in (None, *DETERMINISTIC) and how.judge_model is None:
        how = replace(how, no_judge=True)  # the sample's answers are names and numbers: no model need judge them
    judge = judge or (kind.judge if how.judged else "strict")
    labels.check_arms(arms := lab.names(actions) or [])
    if len(arms) < 2:
        raise InputError("advice is a choice: name another action beside retain")
    advices.check_cost(wrong_cost)
    benches.check_judge(judge, judged=how.judged)
    lab.numbers(budgets)
    study.check_model(model, how, "advise")
    name = protocol or ("product" if questions is None else _suit(questions))
    rules = study.choose_protocol(name, budgets or kind.budgets)
    picked = _choose_questions(questions or MORE, rules, limit=limit or _choose_limit(kind, model), seed=seed)
    todo = study.make_cells(picked, rules, arms, realizations)
    out = output or Path(kind.output)
    with study.prepare_folder(todo, out, model, how, as_json=as_json) as ready:
        if ready is None:
            return
        found = ready.label(todo)
    why = benches.describe_failures(found.failures)
    if found.outcomes is None:
        raise InputError(f"not one of {len(todo)} outcomes could be measured: {why}")
    outcomes.write(found.outcomes, out / benches.OUTCOMES)
    try:
        result = pages.write_advice(found.outcomes, out, judge=judge, sample=sample, wrong_cost=wrong_cost)
    except InputError as error:  # too few questions are complete
        raise InputError(f"{error}: {why}" if why else str(error)) from None
    if as_json:
        show.document(result.to_dict() | {"failures": dict(found.failures)})
    else:
        tell.advice(result)
    tell.failures(found.failures)


def _choose_kind(questions: str | None, *, sample: bool) -> Kind:
    if sample and questions is not None:
        raise InputError("--questions are yours and --sample the shipped ones: name one of them")
    if not sample and questions is None:
        raise InputError("whose questions? --questions FILE.jsonl for yours, --sample for those that ship")
    if questions is not None and not questions.endswith(".jsonl"):
        raise InputError(f"--questions takes a .jsonl file, not {questions[:200]!r}; docs/datasets.md has its form")
    return SAMPLE if sample else OWN


def _choose_limit(kind: Kind, model: opt.ModelChoice) -> int:
    """How many questions, if not said: the sample is a matter of minutes with any reader."""
    slow = str(model.keywords(needed_by=None)["model"]).endswith(".gguf")
    return SLOW if slow and kind is SAMPLE else kind.limit


def _choose_questions(data: str, rules: Protocol, *, limit: int, seed: int) -> Sequence[BenchmarkQuestion]:
    """The questions to be measured, answerable or not."""
    from retcon.lab.bench import FEWEST

    every = study.choose_questions(data, rules, sample=None, seed=seed, abstentions=None)
    picked = study.draw(every, limit, seed=seed)
    if len(picked) < FEWEST:
        few = show.plural(len(picked), "question")
        raise InputError(f"{few} can tell nothing: advice needs {FEWEST}, better 100")
    if len(picked) < len(every):
        show.warn(f"{len(picked)} of {len(every)} questions, drawn with seed {seed}; --limit {len(every)} asks all")
    return picked


def _suit(path: str) -> str:
    """The name of the protocol that suits what the user's own questions come with."""
    from retcon.lab.data import load

    every = [question for question in load(path).questions if not question.abstention]
    name = "product" if every and all(question.history for question in every) else "controlled"
    show.warn(f"protocol {name}: {WHY[name]}")
    return name
