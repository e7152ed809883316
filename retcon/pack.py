"""Notes, budget -> text that fits. Retention packs whole notes; generated text is cut to its budget here too.

Two accountings. "rendered", the product's: every character that is shown costs, dates, speakers and line breaks
included, and the joined text is counted again at the end, so that the budget holds for a counter that does not add up.
"text", the paper's: a note costs its raw text alone, and the costs are summed. Whatever was chosen is shown a note a
line, in order of time (`timeline`).

A cost is counted once per note and may be handed from one call to the next (`costs`): the features ask for the fit at
every decision. The empty text costs 0, whatever a counter says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from retcon import deadline
from retcon.errors import InputError, quote
from retcon.note import Cluster, Dropped, Hit, Note, Packed, Source
from retcon.timeline import day, says_day_itself, turns
from retcon.tokens import Counter, cut_marked, cut_sentences

Order = Literal["rank", "cheapest"]
Accounting = Literal["rendered", "text"]

RENDERER = "3"  # changes with every change of how a text is written out: routers and records carry it


def render(note: Note) -> str:
    """The note on one line: date, speaker, text. Line breaks inside become spaces: no text can pose as another note."""
    return (label(note) + one_line(note.text)).rstrip()


def label(note: Note) -> str:
    """What stands before a note's words: "2026-05-09 ann: ", less what the note does not have or begins with itself."""
    who, known = one_line(note.speaker or ""), day(note)
    dated = f"{known} " if known and not says_day_itself(note.text, known, named=bool(who)) else ""
    return f"{dated}{who}: " if who else dated


def one_line(text: str) -> str:
    """The text with each run of line breaks, and the blanks around it, as one space."""
    lines = text.splitlines()
    return lines[0].strip() if len(lines) == 1 else " ".join(line.strip() for line in lines if line.strip())


def costs(hits: Sequence[Hit], *, count: Counter, accounting: Accounting = "rendered") -> list[int]:
    """Tokens of each candidate on its own, in order."""
    return [_cost(hit.shown, count, accounting) for hit in hits]


def _cost(note: Note, count: Counter, accounting: Accounting) -> int:
    deadline.check()
    return count(note.text if accounting == "text" else render(note))


def retain(
    cluster: Cluster,
    budget: int,
    *,
    count: Counter,
    order: Order = "rank",
    accounting: Accounting = "rendered",
    costs: Sequence[int] | None = None,
) -> Packed:
    """Whole notes within the budget. One that does not fit is passed over, and a smaller one after it may still enter.

    Notes are shown in order of time, however they were chosen; the sources are named best first. In rank order a
    near-duplicate of a packed note stays out; cheapest-first, the paper's controlled protocol, packs every note it can.
    """
    each = _costs(cluster, count, accounting, costs)
    choice = _Choice(cluster, each, check(budget), None if accounting == "text" else count).fill(order)
    choice.settle()
    text = choice.text()
    used = sum(each[i] for i in choice.taken) if accounting == "text" else count(text) if text else 0
    return Packed(text, used, choice.sources(), choice.drops())


def fit_fraction(
    cluster: Cluster,
    budget: int,
    *,
    count: Counter,
    order: Order = "rank",
    accounting: Accounting = "rendered",
    costs: Sequence[int] | None = None,
) -> float:
    """Share of the candidates that `retain` keeps: those it does not drop for the budget. 1.0 where there are none.

    A near-duplicate of a packed note is kept in this sense, since nothing of it is lost. For a counter that charges
    more for the whole than for its parts the share may lie above: the last count, the dearest, is left out here.
    """
    each = _costs(cluster, count, accounting, costs)
    choice = _Choice(cluster, each, check(budget), None if accounting == "text" else count).fill(order)
    return 1.0 if not each else (len(each) - len(choice.refused)) / len(each)


def pack_text(text: str, budget: int, count: Counter) -> str:
    """The text if it fits, else as many of its first sentences as do: the hard cap on generated text.

    Where not even the first sentence fits, as much of it as does, with the mark of a cut.
    """
    return cut_sentences(text, check(budget), count) or cut_marked(text, budget, count)


def check(budget: int) -> int:
    """The budget, if it is one; a negative one is the caller's error."""
    if budget < 0:
        raise InputError(f"the budget must be 0 tokens or more, not {quote(budget)}")
    return budget


def _costs(cluster: Cluster, count: Counter, accounting: Accounting, given: Sequence[int] | None) -> Sequence[int]:
    each = costs(cluster.hits, count=count, accounting=accounting) if given is None else given
    if len(each) != len(cluster.hits):
        raise InputError(f"{len(each)} costs for {len(cluster.hits)} candidates")
    return each


class _Choice:
    """The notes that are in, by position, and why the others are not.

    Costs are summed as long as the sum fits, which is quick and for the usual counters a little too much. Where it does
    not fit, the text itself is counted (`settle`), and from there on with each note that might still enter.
    """

    def __init__(self, cluster: Cluster, costs: Sequence[int], budget: int, count: Counter | None) -> None:
        self.hits, self.costs, self.budget, self.left = cluster.hits, costs, budget, budget
        self.count = count  # None: costs add up, and what stands between the notes is free
        self.gap = count("\n") if count else 0
        self.taken: list[int] = []
        self.ids: set[str] = set()  # of the notes taken
        self.refused: dict[int, tuple[int, int]] = {}  # need, and what was left
        self.repeats: dict[int, str] = {}
        self.settled = True
        self.lines: dict[int, str] = {}  # as rendered so far

    @cached_property
    def turns(self) -> list[int]:
        return turns(self.hits)

    def fill(self, order: Order) -> _Choice:
        """Every note tried once; itself, for chaining."""
        if order not in ("rank", "cheapest"):
            raise InputError(f"unknown order {order!r}: known are rank, cheapest")
        every = range(len(self.hits))
        for i in every if order == "rank" else sorted(every, key=self.costs.__getitem__):
            deadline.check()
            same = self.hits[i].duplicate_of
            if order == "rank" and same is not None and self.holds(same):
                self.repeats[i] = same
            elif not self.budget or not self.enter(i):
                self.refused.setdefault(i, (self.costs[i], self.left))
        return self

    def holds(self, note_id: str) -> bool:
        return note_id in self.ids

    def enter(self, i: int) -> bool:
        """Whether the note fits; it is in, if so."""
        need = self.costs[i] + (self.gap if self.taken else 0)
        if need > self.left:
            self.settle()
            if self.count and self.taken and self.costs[i] <= self.left:
                need = self.count(self.text([*self.taken, i])) - (self.budget - self.left)
            if need > self.left:
                self.refused[i] = (need, self.left)
                return False
        self.taken.append(i)
        self.ids.add(self.hits[i].id)
        self.left -= need
        self.settled = False
        return True

    def settle(self) -> None:
        """Put the text's own count in place of the sum; take notes back while it is over the budget."""
        if self.count is None or self.settled:
            return
        self.left = self.budget - self.count(self.text())
        while self.left < 0:  # the counter charges more for the whole than for its parts
            deadline.check()
            last, over = self.taken.pop(), self.left
            self.left = self.budget - (self.count(self.text()) if self.taken else 0)
            self.refused[last] = (self.left - over, self.left)
        self.ids = {self.hits[i].id for i in self.taken}
        self.settled = True

    def text(self, positions: Sequence[int] | None = None) -> str:
        """The notes in order of time, a line each."""
        shown = sorted(self.taken if positions is None else positions, key=self.turns.__getitem__)
        return "\n".join(map(self._line, shown))

    def _line(self, i: int) -> str:
        if i not in self.lines:
            self.lines[i] = render(self.hits[i].shown)
        return self.lines[i]

    def sources(self) -> tuple[Source, ...]:
        return tuple(Source.of(self.hits[i], whole=True) for i in sorted(self.taken))

    def drops(self) -> tuple[Dropped, ...]:
        why = {i: ("budget", f"needs {need} tokens, {left} left") for i, (need, left) in self.refused.items()}
        for i, same in self.repeats.items():
            said = f"says the same as {same}"
            why[i] = ("duplicate", said) if self.holds(same) else ("budget", f"{said}, which was taken back")
        return tuple(Dropped(self.hits[i].id, *why[i], tokens=self.costs[i]) for i in sorted(why))
