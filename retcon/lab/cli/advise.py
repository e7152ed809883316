"""`retcon advise`: a small study of your own questions, and what it says about action and budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from retcon.cli import options as opt
from retcon.cli import show
from retcon.cli.options import option
from retcon.errors import InputError
from retcon.lab.cli import options as lab
from retcon.lab.cli import study, tell

if TYPE_CHECKING:
    from retcon.lab.protocols import Protocol

EXAMPLES = (
    "retcon advise --questions mine.jsonl --model model.gguf",
    "retcon advise --questions mine.jsonl --sample 100 --model http://localhost:8000/v1 --model-name qwen -o advice",
)
WHY = {
    "product": "every question has its notes, so they are retrieved as a memory would",
    "controlled": "not every question has all its notes, so the gold evidence stands for what a retriever finds",
}


def advise(
    *,
    questions: Annotated[str, option("--questions", "JSONL", "Your questions, answers and notes.", short="-q")],
    sample: Annotated[int, option("--sample", "N", "At most so many questions.", min=1)] = 50,
    output: Annotated[
        Path, option("--output", "DIR", "Where everything goes; a run there is resumed.", short="-o")
    ] = Path("advice"),
    protocol: Annotated[
        str | None, option("--protocol", "NAME", "product if the questions have notes, else controlled.")
    ] = None,
    actions: lab.Arms = "retain,extract,merge,abstract",
    budgets: lab.Budgets = None,
    realizations: lab.Realizations = 1,
    judge: lab.DecidingJudge = None,
    seed: lab.SampleSeed = lab.SEED,
    model: opt.ModelChoice,
    how: lab.Labelling,
    as_json: opt.AsJson = False,
) -> None:
    """Say which action and budget suit your own questions.

    A sample of them is measured with your model. The advice says how sure it is; a router learned from the same
    outcomes and a figure go to the folder. Stopped at any point, the same command goes on where it was.
    """
    from retcon.lab import advise as advices
    from retcon.lab import bench as benches
    from retcon.lab import label as labels
    from retcon.lab import outcomes

    judge = judge or ("llm" if how.judged else "strict")
    labels.check_arms(arms := lab.names(actions) or [])
    if len(arms) < 2:
        raise InputError("advice is a choice: name another action beside retain")
    benches.check_judge(judge, judged=how.judged)
    lab.numbers(budgets)
    study.check_model(model, how, "advise")
    rules = _choose_protocol(questions, protocol, budgets)
    picked = study.choose_questions(questions, rules, sample=sample, seed=seed)
    if len(picked) < benches.FEWEST:
        few = show.plural(len(picked), "question")
        raise InputError(f"{few} can tell nothing: advice needs {benches.FEWEST}, better 50")
    todo = study.make_cells(picked, rules, arms, realizations)
    with study.prepare_folder(todo, output, model, how, as_json=as_json) as ready:
        if ready is None:
            return
        found = ready.label(todo)
    if found.outcomes is None:
        raise InputError(
            f"not one of {len(todo)} outcomes could be measured: {benches.describe_failures(found.failures)}"
        )
    outcomes.write(found.outcomes, output / benches.OUTCOMES)
    result = advices.write_advice(found.outcomes, output, judge=judge)
    if as_json:
        show.document(result.to_dict() | {"failures": dict(found.failures)})
    else:
        tell.advice(result)
    tell.failures(found.failures)


def _choose_protocol(path: str, name: str | None, budgets: str | None) -> Protocol:
    """The protocol of that name, else the one that suits what the user's own questions come with."""
    from retcon.lab.data import load

    if not path.endswith(".jsonl"):
        raise InputError(f"--questions takes a .jsonl file, not {path[:200]!r}; docs/datasets.md has its form")
    every = [question for question in load(path).questions if not question.abstention]
    if name is None:
        name = "product" if every and all(question.history for question in every) else "controlled"
        show.warn(f"protocol {name}: {WHY[name]}")
    return study.choose_protocol(name, budgets)
