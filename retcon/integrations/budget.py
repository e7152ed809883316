"""A text within a budget that is counted by someone else: a framework, or a model's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable

from retcon import Recall


def fit(recall: Callable[[int], Recall], budget: int, cost: Callable[[str], int]) -> Recall | None:
    """The recall whose text costs no more than the budget by that count; None where there is no room for any text.

    What is asked for shrinks by as much as the count was over, until it fits: one recall mostly, two where the count
    is the higher one. What the text stands in, `cost("")`, is part of the budget.
    """
    room = asked = budget - cost("")
    while asked > 0:
        found = recall(asked)
        used = cost(found.text) - (budget - room)
        if used <= room:
            return found
        asked = min(asked - 1, asked * room // used)
    return None
