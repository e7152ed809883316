"""A recall -> one plain sentence, without numbers, that says why its text is what it is. For people.

`decision.reason` has the numbers. The sentence is about the text that came back: where another action took the place of
the decided one, it says so, and where the text is whole notes after all, it does not call it shortened. Of an answer it
says how sure it is.
"""

from __future__ import annotations

from retcon.ladder import Answer
from retcon.note import ABSTRACT, EXTRACT, HYBRID, MERGE, RETAIN, REWRITE, Decision, Recall

NOTHING_FOUND = "Nothing in memory is about this"
WHAT = {  # what the text of an action is
    RETAIN: "whole notes",
    EXTRACT: "the sentences that matter",
    MERGE: "one text merged from the notes",
    ABSTRACT: "a summary of the notes",
    REWRITE: "each note in fewer words",
    HYBRID: "the best notes whole, and a summary of the rest",
}
WRITTEN = (MERGE, ABSTRACT, REWRITE, HYBRID)  # by a model
UNUSED = (": it wrote nothing that fits ", ": no source supports ")  # warnings about a text that a model wrote
SURE = ((0.8, "very likely right"), (0.6, "probably right"), (0.4, "may be right"), (0.0, "probably wrong"))
FIRST = "the first of several ways to look"
USUAL = "the usual choice at this budget"
BETTER = "this should answer better than whole notes"


def explain(recall: Recall) -> str:
    """The sentence for a recall."""
    if not recall.budget:
        return "No text: the budget is zero."
    if not recall.found and recall.evidence and recall.evidence.notes:
        return f"{NOTHING_FOUND}{': this is only the nearest there is' if recall.text else ''}."
    if not recall.cluster.hits:
        return "No text: there are no notes here to recall."
    if not recall.text:
        return "No text: nothing that was found fits the budget."
    return f"{_capital(_explain_text(recall))}."


def explain_confidence(answer: Answer) -> str | None:
    """How sure the reply is that was given or refused; None where nothing is known of that."""
    if (p := answer.confidence) is None:
        return None
    words = next(words for least, words in SURE if p >= least)
    return f"{words}: about {round(100 * p)} in 100 such answers are"


def _explain_text(recall: Recall) -> str:
    what, decided = _what(recall.action), recall.decision.action
    if recall.action != decided:
        return f"{_failure(recall)}, so this is {what}"
    if recall.decision.forced:
        return f"{what}, as asked for"
    if _is_next_look(recall):
        return f"{what}: the next way to look, after {_list(recall.tried, decided)}"
    if _fits_whole(recall):
        return f"{WHAT[RETAIN]}: everything that was found fits"
    if recall.drafts:
        return f"{what}: {_about_drafts(recall)}"
    return f"{what}: {_reason(recall)}"


def _reason(recall: Recall) -> str:
    weighed, fit = recall.decision.utilities, recall.decision.features.get("fit", 1.0)
    if len(weighed) == 1:
        return "there is no other way to choose"
    if recall.decision.selected is not None:
        return _about_selected(recall.decision, recall.decision.selected)
    if RETAIN in weighed and not _is_predicted(recall.decision):
        return FIRST if recall.decision.order else USUAL
    if recall.action == RETAIN:
        rivals = "shortening or rewriting" if set(weighed).intersection(WRITTEN) else "shortening"
        return f"{rivals} would not clearly help here"
    if RETAIN not in weighed:
        return "this should answer best of what is left"
    if fit <= 0:
        return "no note fits whole"
    return f"not all notes fit, and {BETTER}" if fit < 1 else BETTER


def _about_drafts(recall: Recall) -> str:
    others = tuple(draft.action for draft in recall.drafts[1:])
    return f"kept over {_list(others, recall.action)}" if others else "the only text that could be written"


def _about_selected(decision: Decision, selected: str) -> str:
    """Of a router that has a usual choice: whether it was taken, or left for a better one."""
    if decision.action == selected:
        return USUAL
    if decision.utilities.get(decision.action) == max(decision.utilities.values()):
        return "here this should answer better than the usual choice"
    return FIRST


def _is_predicted(decision: Decision) -> bool:
    """Whether the scores, or that no note fits, led to the action: a ladder's first look may have other reasons."""
    replaces = decision.advantage > 0 and decision.advantage >= (decision.threshold or 0.0)
    if decision.action == RETAIN:
        return not replaces
    best = max(score for action, score in decision.utilities.items() if action != RETAIN)
    return decision.features.get("fit", 1.0) <= 0 or (replaces and decision.utilities.get(decision.action) == best)


def _failure(recall: Recall) -> str:
    """What became of the action that was decided on and gave no text to show."""
    action = recall.decision.action
    if action in WRITTEN:
        wrote = any(reason in warning for reason in UNUSED for warning in recall.warnings)
        return "what the model wrote could not be used" if wrote else "the model could not be used"
    return "shortening left nothing to show" if action == EXTRACT else f"{action} gave nothing to show"


def _is_next_look(recall: Recall) -> bool:
    return any(action != recall.action for action in recall.tried)


def _fits_whole(recall: Recall) -> bool:
    """Whether the text is every note that was found, whole; repeats may be left out."""
    whole = all(source.whole for source in recall.sources)
    return recall.record is None and whole and all(drop.code == "duplicate" for drop in recall.dropped)


def _what(action: str) -> str:
    return WHAT.get(action, f"the text of {action}")


def _list(tried: tuple[str, ...], now: str) -> str:
    *first, last = [_what(action) for action in tried if action != now]
    return f"{', '.join(first)} and {last}" if first else last


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
