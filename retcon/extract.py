"""Extract: the words that matter for the query, verbatim, with their dates. Needs no model and can invent nothing.

    notes -> sentences -> a score each -> a queue -> what fits of its beginning -> in order of time -> counted again

What a sentence is worth for the query is told in `worth`.

More budget never shows less. Sentences queue up best first, in an order that no budget changes, and a budget shows the
beginning of the queue: whole sentences, and of the first that no longer fits the part around the words that the query
asks for. The parts of a sentence are nested too: each larger one holds each smaller one. This is by construction, from
`FLOOR` tokens up, for every counter by which a longer text never costs less than a part of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush

from retcon import deadline
from retcon.note import MARK, Cluster, Dropped, Hit, Packed, Source
from retcon.pack import check, one_line, retain
from retcon.reading import Spans, read
from retcon.timeline import begins_like_a_head, day, says_day_itself, turns
from retcon.tokens import LOOSE, Counter
from retcon.worth import KIND, Piece, Target, rank, read_lines, read_query, skip_repeats

ROOM = 6  # tokens: a date must leave the best piece as many, and a sentence is not cut to fewer
LEAST = 3  # tokens below which nothing more is added
TELLING = 5  # words that a part of a sentence must have, unless it is all that fits
FLOOR = 32  # tokens: no sentence whose smallest part costs more is the first, while there is another


def extract(cluster: Cluster, budget: int, *, count: Counter) -> Packed:
    """The sentences worth most for the query, within the budget; never empty where a whole note would fit."""
    lines = read_lines(cluster)
    target = read_query(cluster.query, lines, cluster.language)
    pieces = rank(lines, target, cluster.hits)
    page = _page(cluster, pieces, check(budget), count)
    purse = Purse(budget, page, count)
    taken = _choose(pieces, target, purse) if budget else []
    text = page.show(taken)
    while text and count(text) > budget:  # the counter charges more for the whole than for its parts
        deadline.check()
        taken.pop()
        text = page.show(taken)
    if not text:  # budget 0, or only whole notes fit: a counter may charge less for them
        return retain(cluster, budget, count=count)
    purse.left = budget - count(text)
    return Packed(
        text, budget - purse.left, _sources(cluster.hits, pieces, taken), _explain_drops(cluster.hits, pieces, purse)
    )


# - how it is shown -


@dataclass(frozen=True)
class Page:
    """How pieces are shown: a note a line, by time, with its date and its speaker.

    The speaker is shown where speakers differ or the query names one. A date is left out only under a line of the same
    day and session, and never where the line could then be taken for more of the line above or for another's: where
    some notes have no date, or where it has no speaker and the line above has one, or begins like a head itself.
    """

    days: Sequence[str]
    names: Sequence[str]
    sessions: Sequence[str | None]
    turns: Sequence[int]  # position in time of each candidate
    once: bool  # a date may be left out

    @cached_property
    def heads(self) -> list[str]:
        """What stands before the words of each note: "2026-05-09 ann: "."""
        return [f"{day} {name}" if day else name for day, name in zip(self.days, self.undated, strict=True)]

    @cached_property
    def undated(self) -> list[str]:
        """The same without the date."""
        return [f"{name} " if name else "" for name in self.names]

    def show(self, taken: Iterable[Piece]) -> str:
        """The pieces as text."""
        out: list[str] = []
        before: Piece | None = None
        for piece in sorted(taken, key=lambda p: (self.turns[p.hit], p.place)):
            if before is None or before.hit != piece.hit:
                out += ["\n" if before else "", self._head(piece, None if before is None else before.hit)]
            else:
                out.append(_join(before, piece))
            out.append(piece.shown)
            before = piece
        return "".join(out)

    def _head(self, piece: Piece, above: int | None) -> str:
        """The head of a line that begins with this piece, under a line of that note."""
        if above is not None and self._goes_on(piece, above):
            return self.undated[piece.hit]
        said = piece.begun and says_day_itself(piece.text, self.days[piece.hit], named=bool(self.names[piece.hit]))
        return self.undated[piece.hit] if said else self.heads[piece.hit]

    def _goes_on(self, piece: Piece, above: int) -> bool:
        """Whether the date of the line above holds for this line too, and is not needed to tell them apart."""
        hit = piece.hit
        if not self.once or self.sessions[hit] is None or self.sessions[hit] != self.sessions[above]:
            return False
        clear = bool(self.names[hit]) or not (self.names[above] or (piece.begun and begins_like_a_head(piece.text)))
        return clear and self.days[hit] == self.days[above]


def _join(before: Piece, piece: Piece) -> str:
    """What stands between two pieces of a note: the mark of a cut where a sentence between them is left out."""
    marked = not before.ended or not piece.begun or piece.place == before.place + 1
    return " " if marked else f"{MARK} "


def _page(cluster: Cluster, pieces: Sequence[Piece], budget: int, count: Counter) -> Page:
    """The page for this cluster; bare of dates and speakers where they would leave the best piece no room."""
    notes = cluster.notes
    days = [day(note) for note in notes]
    names = [one_line(note.speaker or "") for note in notes]
    read = cluster.language.stems
    if len(set(names)) == 1 and not set(read(names[0])) & set(read(cluster.query)):
        names = [""] * len(notes)  # one voice throughout, which the query does not name
    page = Page(
        days, [f"{name}:" if name else "" for name in names], [note.session for note in notes], turns(cluster.hits),
        once=all(days) or not any(days),
    )  # fmt: skip
    if pieces and not _has_room(page.heads[pieces[0].hit], pieces[0].text, budget, count):
        return replace(page, days=[""] * len(notes), names=[""] * len(notes))
    return page


def _has_room(head: str, text: str, budget: int, count: Counter) -> bool:
    """Whether the head leaves room for the text: below FLOOR for all of it; from there on, where the budget must not
    decide, for a part of it."""
    if budget < FLOOR:
        return count(head + text) <= budget
    room = FLOOR - count(head)
    return room >= ROOM or count(text) <= room


# - what fits -


class Purse:
    """What is left of the budget. A piece pays its words, a note its date and speaker.

    Costs are summed, which is quick and for the usual counters too much; `settle` puts the text's own count in
    place of the sum.
    """

    def __init__(self, budget: int, page: Page, count: Counter) -> None:
        self.budget, self.left = budget, budget
        self.page, self.count = page, count
        self.taken: list[Piece] = []
        self.spent = 0  # the sum of all costs: the same for every budget that took these pieces
        self.hits: set[int] = set()
        self.settled = True
        self.known: dict[Piece, Runs] = {}

    def runs(self, piece: Piece, target: Target) -> Runs:
        """The parts of the sentence, found once."""
        if piece not in self.known:
            self.known[piece] = Runs(piece, target)
        return self.known[piece]

    def lead(self, hit: int) -> str:
        """What a piece of this note would bring in before its words."""
        if hit in self.hits:
            return f"{MARK} "
        return f"\n{self.page.heads[hit]}" if self.taken else self.page.heads[hit]

    def cost(self, piece: Piece) -> int:
        """Tokens of the piece with what it would bring in."""
        return self.count(self.lead(piece.hit) + piece.shown)

    def fits(self, piece: Piece) -> bool:
        """Whether there is room for the piece; the text itself is counted before the answer is no."""
        cost = self.cost(piece)
        if cost > self.left:
            self.settle()
        return cost <= self.left or self.total(piece) <= self.budget

    def total(self, piece: Piece) -> int:
        """Tokens of the text with this piece in it."""
        return self.count(self.page.show([*self.taken, piece]))

    def settle(self) -> None:
        if not self.settled:
            self.left = self.budget - self.count(self.page.show(self.taken))
            self.settled = True

    def is_full(self) -> bool:
        """Whether so little is left that nothing more is added."""
        if self.taken and self.left < LEAST:
            self.settle()
        return bool(self.taken) and self.left < LEAST

    def pay(self, piece: Piece) -> None:
        """Take the piece in."""
        cost = self.cost(piece)
        self.left -= cost
        self.spent += cost
        self.taken.append(piece)
        self.hits.add(piece.hit)
        self.settled = False


def _choose(pieces: Sequence[Piece], target: Target, purse: Purse) -> list[Piece]:
    """The beginning of the queue that fits; its last piece may be a part of a sentence."""
    for piece in _queue(pieces, target, purse):
        deadline.check()
        if purse.is_full():
            break
        if purse.fits(piece):
            purse.pay(piece)
            continue
        purse.settle()
        part = _part(piece, target, purse) if purse.left >= ROOM or not purse.taken else None
        if part is not None:
            purse.pay(part)
        if purse.taken:
            break
    return purse.taken


def _queue(pieces: Sequence[Piece], target: Target, purse: Purse) -> Iterator[Piece]:
    """The pieces in the order in which they enter, whatever the budget: best first, equal sentences once.

    One whose smallest part is large beside all that came before it waits until it no longer is, so that no huge word
    keeps everything behind it out.
    """
    said: set[str] = set()
    waiting: list[tuple[int, int, Piece]] = []
    for place, piece in enumerate(pieces):
        deadline.check()
        while waiting and waiting[0][0] <= _most(purse):
            yield heappop(waiting)[2]
        if piece.text in said:
            continue
        said.add(piece.text)
        need = _need(piece, target, purse)
        if need <= _most(purse):
            yield piece
        else:
            heappush(waiting, (need, place, piece))
    while waiting:
        yield heappop(waiting)[2]


def _most(purse: Purse) -> int:
    """Tokens that the smallest part of the next piece may cost."""
    return max(FLOOR, purse.spent // 2)


def _need(piece: Piece, target: Target, purse: Purse) -> int:
    """Tokens of the smallest part of the piece, or of all of it where that is few."""
    cost = purse.cost(piece)
    return cost if cost <= _most(purse) else min(cost, purse.cost(purse.runs(piece, target).smallest))


# - parts of a sentence -


class Runs:
    """The parts of a sentence, each inside the next: from the word that matters most out to the whole sentence."""

    def __init__(self, piece: Piece, target: Target) -> None:
        self.piece = piece
        found = read(piece.text, target.language).spans
        self.spans = found.places
        self.values = _values(piece.text, found, target)

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """First and last span of each part, the smallest first."""
        return _peel(self.values)[::-1]

    @cached_property
    def smallest(self) -> Piece:
        """The part that is left in the end: of the spans that are worth most, the first."""
        best = self.values.index(max(self.values))
        return self._cut(best, best)

    def take(self, size: int) -> Piece:
        """The part of that size, counted from 0."""
        return self._cut(*self.ends[size])

    def _cut(self, first: int, last: int) -> Piece:
        text = self.piece.text[self.spans[first][0] : self.spans[last][1]]
        begun, ended = first == 0, last == len(self.spans) - 1
        return self.piece._replace(text=text.strip(LOOSE), begun=begun, ended=ended)

    def reserve(self, size: int) -> Piece:
        """The part with every mark that a smaller one has: what it pays, so that no larger one costs less."""
        first, last = self.ends[0]
        return self.take(size)._replace(begun=first == 0, ended=last == len(self.spans) - 1)


def _values(text: str, found: Spans, target: Target) -> list[float]:
    """What each span of the sentence is worth: its words of the query; of the kinds that are asked for, the nearest."""
    starts = [start for start, _ in found.places]
    values = target.overlaps(text, found.words)
    held: set[int] = set()
    for kind in target.kinds:
        held |= {i for i, run in enumerate(found.words) if not kind.words.isdisjoint(run)}
        held |= {bisect_right(starts, told.end() - 1) - 1 for told in kind.held.finditer(text)}
    near = [i for i, value in enumerate(values) if value > 0]
    if held:
        values[min(sorted(held), key=lambda i: _distance(i, near))] += KIND
    return values


def _distance(place: int, others: Sequence[int]) -> int:
    """How far the place is from the nearest of the others, which ascend."""
    at = bisect_left(others, place)
    return min((abs(place - other) for other in others[max(at - 1, 0) : at + 1]), default=0)


def _peel(values: Sequence[float]) -> list[tuple[int, int]]:
    """First and last span of each part, from all spans down to one.

    What says nothing for the query goes first, from whichever end has more of it; then, of both ends, the one that is
    worth less. Where nothing matters, the beginning stays.
    """
    telling = [i for i, value in enumerate(values) if value > 0] or [0]
    low, high = 0, len(telling) - 1
    left, right = 0, len(values) - 1
    out = [(left, right)]
    while left < right:
        before, after = telling[low] - left, right - telling[high]
        drops = before >= after
        if before == after == 0:  # both ends matter
            drops = values[left] < values[right]
            low, high = low + drops, high - (not drops)
        left, right = left + drops, right - (not drops)
        out.append((left, right))
    return out


def _part(piece: Piece, target: Target, purse: Purse) -> Piece | None:
    """The largest part of the sentence that fits."""
    runs = purse.runs(piece, target)
    least = runs.reserve(0)
    room = purse.budget - purse.total(least) + purse.cost(least)  # one count tells what its head costs here
    size = _largest(len(runs.ends) - 1, lambda size: purse.cost(runs.reserve(size)) <= room)
    if size < 0:
        return None
    part = runs.take(size)
    enough = piece.matches and len(target.language.words(part.text)) >= TELLING if purse.taken else bool(part.text)
    return part if enough else None


def _largest(sizes: int, fits: Callable[[int], bool]) -> int:
    """The largest number below `sizes` that fits, where all below one that fits do too; -1 where none does."""
    low, high, step = -1, sizes, 1
    while low + step < high:  # doubling steps: the work grows with what is found
        deadline.check()
        if not fits(low + step):
            high = low + step
            break
        low, step = low + step, 2 * step
    while high - low > 1:
        deadline.check()
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# - what is said about it -


def _sources(hits: Sequence[Hit], pieces: Sequence[Piece], taken: Sequence[Piece]) -> tuple[Source, ...]:
    """The notes behind the text, best first: all of a note's text, or the pieces of it, one a line."""
    used, there = _by_hit(taken), _by_hit(pieces)
    out: list[Source] = []
    for i in sorted(used):
        whole = len(used[i]) == len(there[i]) and all(piece.whole for piece in used[i])
        text = hits[i].text if whole else "\n".join(piece.text for piece in sorted(used[i], key=lambda p: p.place))
        out.append(Source.of(hits[i], whole=whole, text=text))
    return tuple(out)


def _explain_drops(hits: Sequence[Hit], pieces: Sequence[Piece], purse: Purse) -> tuple[Dropped, ...]:
    """Each note that has nothing in the text, and why."""
    used, there = _by_hit(purse.taken), _by_hit(pieces)
    fresh, said = set(skip_repeats(hits)), {piece.text for piece in purse.taken}
    out: list[Dropped] = []
    for i, hit in enumerate(hits):
        deadline.check()
        if i in used:
            continue
        own = [piece for piece in there.get(i, ()) if piece.text not in said]
        need = purse.cost(own[0]) if own else 0
        why = f"needs {need} tokens, {purse.left} left" if need > purse.left else "comes after one that did not fit"
        if i not in fresh:
            out.append(Dropped(hit.id, "duplicate", f"says the same as {hit.duplicate_of}"))
        elif i in there and not own:
            out.append(Dropped(hit.id, "duplicate", "all it says is there from another note"))
        elif not any(piece.matches for piece in own):
            out.append(Dropped(hit.id, "no_match", "shares no word with the query", need))
        else:
            out.append(Dropped(hit.id, "budget", f"its best sentence {why}", need))
    return tuple(out)


def _by_hit(pieces: Iterable[Piece]) -> dict[int, list[Piece]]:
    out: dict[int, list[Piece]] = {}
    for piece in pieces:
        out.setdefault(piece.hit, []).append(piece)
    return out
