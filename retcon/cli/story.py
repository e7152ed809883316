"""How the demo is told: each act as it comes, readable at 80 columns and in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from retcon.cli.show import block, day, fold, one_line, out, plural, table
from retcon.demo import Act


def tell(acts: Iterator[Act]) -> None:
    """Print the acts."""
    for name, act in acts:
        _ACTS[name](act)


def _title(text: str) -> None:
    out(f"\n{text}\n{'=' * len(text)}\n")


def _sample(act: dict[str, Any]) -> None:
    _title("A person's chats, two months of them")
    fold(
        f"{plural(act['turns'], 'turn')} in {plural(act['sessions'], 'session')} from {day(act['first'])} to "
        f"{day(act['last'])}, {plural(act['corrections'], 'correction')} among them, loaded in {act['seconds']:.2f} s. "
        "No model, no key and no network are used: everything below is computed now, on this machine."
    )


def _questions(act: list[dict[str, Any]]) -> None:
    _title("One question of each type, at four budgets")
    fold(
        "Every line that starts with | is what an agent would be given. It never costs more than the budget. In "
        "brackets is the true type of the question, which nobody knows when it is asked; 'sounds like' is what its "
        "words alone tell."
    )
    for question in act:
        _ask(question)
        for recall in question["recalls"]:
            _recall(recall, stated=question["stated"])


def _ask(question: dict[str, Any]) -> None:
    out()
    fold(f"{question['question']}  [{question['type']}]")
    fold(f"gold answer: {question['answer']}")
    likely = sorted(question["guessed"].items(), key=lambda item: -item[1])
    fold("sounds like: " + ", ".join(f"{name} {p:.2f}" for name, p in likely).replace("_", "-"))


def _recall(recall: dict[str, Any], *, stated: bool) -> None:
    out()
    fold(f"{recall['budget']} tokens, {recall['tokens']} used. {recall['decision']['reason']}", indent="  ")
    block(recall["text"] or "(no text)", mark="  | ")
    fold(f"{_evidence(recall, stated)}; {_drops(recall)}", indent="  ")


def _evidence(recall: dict[str, Any], stated: bool) -> str:
    gold = f"{recall['evidence']} of {plural(recall['of'], 'gold turn')}"
    if not recall["of"]:
        return "The answer is in no note"
    if not stated:
        return f"The answer has to be worked out, with {gold}"
    return f"{'All' if recall['survives'] else 'Not all'} words of the answer are there, with {gold}"


def _drops(recall: dict[str, Any]) -> str:
    codes = [dropped["code"] for dropped in recall["dropped"]]
    counts = ", ".join(f"{codes.count(code)} {code.replace('_', ' ')}" for code in dict.fromkeys(codes))
    return f"{plural(len(codes), 'note')} dropped: {counts}" if codes else "nothing dropped"


def _retain(act: dict[str, Any]) -> None:
    _title("When everything fits, nothing is replaced")
    fold(
        f"The same memory, asked only about notes since {act['since']}: sentences while room is short, and whole notes "
        "once there is room for all of them."
    )
    _ask(act)
    for recall in act["recalls"]:
        _recall(recall, stated=act["stated"])


def _escalate(act: dict[str, Any]) -> None:
    _title("A reader that finds no answer asks for the next best text")
    fold(
        "recall.escalate() gives it, by an action not tried yet, and None once every action has been. Here no note "
        "holds the answer, and a careful reader ends with: not in memory."
    )
    _ask(act)
    for recall in act["recalls"]:
        _recall(recall, stated=act["stated"])
    out()
    out("  escalate() gives None: every action has been tried")


def _supersede(act: dict[str, Any]) -> None:
    _title("A correction is another note, and the one that recall finds")
    fold(act["question"])
    out()
    _short(f"{act['before']['budget']} tokens", act["before"])
    out()
    fold(f'memory.supersede("{act["superseded"]}", "{act["correction"]}")', indent="  ")
    _short("and then", act["after"])
    out()
    out(f'  memory.history("{act["superseded"]}"), oldest first')
    for note in act["history"]:
        block(one_line(note["text"]), mark=f"  {day(note['timestamp'])} ", then=" " * 13)
    out()
    _short('memory.delete("correction", versions="one"): the older one is current', act["deleted"])


def _short(when: str, recall: dict[str, Any]) -> None:
    out(f"  {when}")
    block(recall["text"] or "(no text)", mark="  | ")


def _summary(act: dict[str, Any]) -> None:
    _title(f"All {act['questions']} questions")
    fold(
        f"The answers of {act['stated']} questions stand in their gold turns word for word: 'answers' counts those "
        "whose words are all in the recalled text. 'gold turns' is the share of gold turns that are there, wholly or "
        "in part, over all questions; 'tokens' and 'ms' are means over all of them."
    )
    out()
    rows = [
        (
            str(row["budget"]),
            row["action"],
            f"{row['survive']} of {act['stated']}",
            f"{row['evidence']:.0%}",
            f"{row['tokens']:.0f}",
            f"{row['ms']:.1f}",
        )
        for row in act["rows"]
    ]
    table(rows, ">budget", "action", ">answers", ">gold turns", ">tokens", ">ms")


_ACTS: dict[str, Callable[[Any], None]] = {
    "sample": _sample,
    "questions": _questions,
    "retain": _retain,
    "escalate": _escalate,
    "summary": _summary,
    "supersede": _supersede,
}
