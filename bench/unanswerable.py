"""Questions that memory cannot answer, made from ones that it can: one thing that the question names is swapped.

Rules, each a kind of its own:
- `person`: the one person whom the question names, for another of the same history
- `time`: its month or day of the week, for another; its years, for years before all that the page tells of
- `thing`: a thing that it names, for one of the same sort that some note names; where the notes are facts, a name, for
  one of another question that facts tell of in the same way

A swap is kept only where nothing in the history answers it: no note that names the new one, with the notes around it,
holds half of the other words of the question; none holds the words of the old answer; none says of the new one what the
evidence says of the old one. A question without two other telling words is left alone: it asks for too little.

A question that is made has the id of its twin, the one that it was made from, and its kind after a `~`.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from retcon.lab.data.question import NOT_IN_MEMORY, BenchmarkQuestion, answerable
from retcon.note import Note
from retcon.words import COMMON, COMMON_STEMS, stems

SEED = 20261116
ANSWERABLE, PUBLISHED, REMOVED = "answerable", "published", "removed"
PERSON, TIME, THING = "person", "time", "thing"
MADE = (PERSON, TIME, THING)
MARK = "~"
HALF, MOST = 0.5, 0.6  # of the other words of a question, or of what the evidence says; of the words of its answer
THIRD = 1 / 3  # of the other words, where a time is swapped: what was done once is often done again
FEWEST = 2  # telling words beside what is swapped; one more where somebody is called by the first name, as in talk
NEAR, SCENE = 1, 12  # notes on each side that belong to one; where people talk, what they do is told over many turns
LONGEST_FACT = 200  # characters
FURTHEST = 120  # years that a question is moved by
KIN = tuple("mom dad sister brother aunt uncle cousin niece nephew grandmother boss neighbor".split())
SAME = {
    frozenset(pair.split())
    for pair in (
        "mom mother",
        "dad father",
        "grandmother grandma",
        "neighbor friend",
        "boss manager",
        "cousin relative",
    )
}
MONTHS = tuple("January February March April May June July August September October November December".split())
DAYS = tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
# Things of one sort.
SORTS = tuple(
    tuple(line.split())
    for line in """
    laptop camera tablet printer
    bike car motorcycle boat train bus van plane
    guitar piano violin ukulele drums flute
    shoes sandals gloves socks
    dress jacket shirt suit hat glove sweater uniform handbag scarf
    necklace ring watch bracelet
    mixer blender toaster kettle microwave
    cake bread pizza soup salad cobbler turkey pasta sushi cocktail lasagna
    cookies eggs tomatoes herbs chips dumplings mushrooms persimmons
    museum gallery zoo aquarium
    church airport
    wedding graduation funeral
    festival concert
    workshop webinar
    dog cat hamster rabbit monkey duck chick turtle bird
    yoga swimming hiking cycling tennis volleyball skating fishing badminton basketball soccer golf squash
    embroidery pottery baking gardening photography calligraphy knitting woodworking
    book magazine
    movie documentary
    books magazines
    movies documentaries
    tea coffee baijiu wine beer
    kitchen bedroom bathroom garage
    apartment office
    stamps coins bottles postcards
    """.strip().splitlines()
)
# Words that many questions share: they do not tell one from another.
LOOSE = frozenset(
    stems(
        "say said tell told think get got go went come came make made do kind sort type name time day thing many much"
        " specific specifically particular mention mentioned want wants use used first last new one two three right now"
        " main primarily reply respond ask asks happen happened reason person people long old month year week"
    )
)
LIVES = re.compile(r"\b(?:born|died|married|citizen|child|position|employed|educated|works|speaks)\b")
_RUN = r"[A-Z][\w&\-]*(?: (?:of the |of |the |and )?[A-Z][\w&\-]*)*"
_HEAD = rf"(?=[?.]|,(?! [A-Z])|'s| (?:{'|'.join(sorted(COMMON - {'of', 'to', 'by'}))})\b)"  # no other noun follows
_OTHER = rf"(?:(?!(?:{'|'.join(sorted(COMMON))})\b)[\w\-]+ )"
_ARTICLE = rf"(?:\b(?:my|the|a|an|this|his|her|their|our|new|practicing)|'s) {_OTHER}{{0,2}}?"
_COMPARES = re.compile(
    r"\b(?:first|before|after|between|since|order|recently|latest|earliest|total|ago|or|more|most)\b"
)
_YES = re.compile(r"(?:Do|Does|Did|Is|Are|Was|Were|Has|Have|Had|Can|Could|Will|Would) ")
_HABIT = re.compile(r"\b(?:usual|usually|typically|often|regularly|frequently|prefers?|habits?)\b")
_NAME = re.compile(rf"(?:(?<=[a-z,] )|(?<=[a-z,] [\"“])){_RUN}(?!\.\w)")
_NAME_IN_FACT = re.compile(_RUN.replace(r"[A-Z]", r"\b[A-Z]", 1))
_TO = re.compile(r"^\(to ([^)]+)\)")
_PROPER = re.compile(r"[A-Z][\w.'\-]*(?: (?:[A-Z][\w.'\-]*|de|van|von|di|bin|al|del))*(?: \(.*\))?")
_FULL = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")
_YEAR = re.compile(r"\b(?:1\d|20)\d\d\b")
_YEARS = re.compile(rf"\b(?:(?:{'|'.join(month[:3] for month in MONTHS)})[a-z]* )?\d{{4}}\b", re.IGNORECASE)
_WHEN = (
    "(?:" + "|".join(rf"(?<=\b{word})" for word in "in |of |on |early |late |mid-|last |my |On |In ".split("|")) + ")"
)
_LOWER = re.compile(r"\b[a-z]{3,}\b")
_THIRD = re.compile(r"\b(?:[Hh]e|[Ss]he|[Hh]is|[Hh]er)\b")
_RELATED = re.compile(
    rf"\b(?:{'|'.join(KIN)}|mother|father|wife|husband|girlfriend|boyfriend|son|daughter|child|children|parents?)\b"
)
# Where somebody is only told of it, the same may be known from elsewhere.
_TOLD = re.compile(r"\b(?:conversation|chat|chatting|talking|message|exchange|shared|consult\w*|learned|preference)\b")
_HE = re.compile(r"\b(?:he|she|him|her|his|hers)\b")
_I = re.compile(r"\b(?:I|I'm|me|my)\b")
_FIRST = re.compile(r"\b(?:I|me|my|you|your)\b")


@dataclass(frozen=True, slots=True)
class Spot:
    """What a question names, and where; only spots of one kind and shape stand in for each other."""

    kind: str
    shape: str
    start: int
    end: int

    def text(self, question: str) -> str:
        return question[self.start : self.end]


class History:
    """The notes of one history by the words that they hold."""

    def __init__(self, notes: Sequence[Note]) -> None:
        self.notes = notes
        self.words = [frozenset(_note_words(note)) for note in notes]
        self.holding = _invert(self.words)

    @cached_property
    def people(self) -> frozenset[str]:
        """Those who speak, and those whom a page is about.

        Where notes are addressed to somebody, only those who are: programs send notes too, and nobody writes to them.
        """
        to = {found[1] for note in self.notes if (found := _TO.match(note.text))}
        said = defaultdict(list)
        for note in self.notes:
            said[note.speaker or ""].append(note.text)
        if to:
            return frozenset(
                name for name in to & set(said) if _FULL.fullmatch(name) and any(map(_I.search, said[name]))
            )
        small = {word for note in self.notes for word in _LOWER.findall(note.text)}  # a role is no name
        return frozenset(
            name
            for name, texts in said.items()
            if _PROPER.fullmatch(name)
            and not re.search("[A-Z]{2}", name)
            and name.split()[-1].lower() not in small
            and _is_person(texts)
        )

    @cached_property
    def called(self) -> Mapping[str, str]:
        """How a person is called -> the person: by the full name, or by the first one where others use it."""
        short = {
            name.split()[0]: name
            for name in sorted(self.people)
            if self.talk and name.split()[0] not in self.family_names and self._is_used(name.split()[0], name)
        }
        return short | {re.sub(r" \(.*\)", "", name): name for name in sorted(self.people) if " " in name}

    @cached_property
    def talk(self) -> bool:
        """Whether notes are turns of people, who say "I" and "you", and no pages."""
        return sum(bool(_FIRST.search(note.text)) for note in self.notes) >= 0.2 * len(self.notes)

    @cached_property
    def family_names(self) -> frozenset[str]:
        """First words of names that several have: there the family comes first."""
        first = [name.split()[0] for name in self.people]
        return frozenset(first) if len(set(first)) < 0.8 * len(first) else frozenset()

    def _is_used(self, first: str, name: str) -> bool:
        return any(re.search(rf"\b{re.escape(first)}\b", note.text) for note in self.notes if note.speaker != name)

    def naming(self, text: str) -> set[int]:
        """Places of the notes that hold all words of it."""
        terms = [term for term in stems(text) if term not in COMMON_STEMS]
        return set.intersection(*(self.holding.get(term, set()) for term in terms)) if terms else set()

    def around(self, place: int, reach: int) -> frozenset[str]:
        """The words of a note and of those beside it in its session."""
        session = self.notes[place].session
        beside = range(max(place - reach, 0), min(place + reach + 1, len(self.notes)))
        return frozenset().union(*(self.words[i] for i in beside if self.notes[i].session == session))

    @cached_property
    def facts(self) -> Mapping[str, frozenset[str]]:
        """Name -> what facts say of it, where the notes are facts: one short sentence each, and nobody talks."""
        if max(len(note.text) for note in self.notes) > LONGEST_FACT or self.talk:
            return {}
        told: dict[str, set[str]] = defaultdict(set)
        for note in self.notes:
            for name in _NAME_IN_FACT.findall(note.text):
                told[name].update(_frame(note.text, name))
        return {name: frozenset(some) for name, some in told.items()}

    def suit(self, asked: frozenset[str], name: str) -> bool:
        """Whether a name is of the sort that is asked about: some other has facts both of what is asked and of its own.

        And none of its own is what is asked.
        """
        own = self.facts.get(name, frozenset())
        return not own & asked and any(asked & some and own & (some - asked) for some in self.facts.values())

    def first_year(self, speaker: str | None) -> int | None:
        """The earliest year in the notes of that speaker."""
        years = [int(year) for note in self.notes if note.speaker == speaker for year in _YEAR.findall(note.text)]
        return min(years, default=None)


def _note_words(note: Note) -> Iterator[str]:
    when = datetime.fromisoformat(note.timestamp).strftime("%A %B %Y") if note.timestamp else ""
    yield from stems(f"{note.speaker or ''} {note.text} {when}")


def _invert(words: Sequence[frozenset[str]]) -> Mapping[str, set[int]]:
    holding: dict[str, set[int]] = defaultdict(set)
    for place, some in enumerate(words):
        for word in some:
            holding[word].add(place)
    return holding


def _is_person(texts: Sequence[str]) -> bool:
    """Whether a speaker says "I", or a page says "he" or "she" in a third of its notes."""
    if any(_FIRST.search(text) for text in texts[:20]) and max(map(len, texts)) < 400:
        return True
    return sum(bool(_THIRD.search(text)) for text in texts) >= 0.35 * len(texts)


def _frame(text: str, name: str) -> Iterator[str]:
    """What a fact says of a name: the small words around it; nothing where another name comes first."""
    before, _, after = re.sub(r"^\d+\. (?:The )?", "", text).partition(name)
    if not re.search("[A-Z]", before):
        said = re.match(r"[a-z' ]*", after)
        yield f"{before}_ {' '.join((said[0] if said else '').split()[:4])}"


# - what a question names -


def spots(question: str, history: History, owner: str | None = None) -> list[Spot]:
    """What could be swapped; a person or a time only where the question names a single one."""
    people, times = _people(question, history, owner), list(_times(question))
    taken = [(spot.start, spot.end) for spot in (*people, *times)] + _parts(question, owner)
    several = len(re.findall(rf"\b(?:{'|'.join(MONTHS + DAYS)})", question)) > 1
    found = [*(people if len(people) == 1 else ()), *(times if len(times) == 1 and not several else ())]
    return found + list(_things(question, history, taken))


def _parts(question: str, name: str | None) -> list[tuple[int, int]]:
    """Where a question names somebody, or a part of the name."""
    return [found.span() for part in (name or "").split() for found in re.finditer(rf"\b{part}\b", question)]


def _people(question: str, history: History, owner: str | None) -> list[Spot]:
    """The people whom a question names, beside the owner of the history."""
    own, found = _parts(question, owner), dict[int, Spot]()
    for called in sorted(history.called, key=len, reverse=True):
        for match in re.finditer(rf"\b{re.escape(called)}\b(?! [(A-Z])", question):
            titled = re.search(r"\W[A-Z][\w.]* $", question[: match.start()])  # "General", or a longer name
            if not titled and not _overlaps(match.span(), own + [(spot.start, spot.end) for spot in found.values()]):
                found[match.start()] = Spot(PERSON, "full" if " " in called else "short", *match.span())
    for match in re.finditer(rf"\b(?:my|her|his) ({'|'.join(KIN)})(?!,? [A-Z])(?='s|[ ?.])", question):
        found[match.start(1)] = Spot(PERSON, "kin", *match.span(1))
    return list(found.values())


def _times(question: str) -> Iterator[Spot]:
    for shape, names in (("month", MONTHS), ("day", DAYS)):
        for found in re.finditer(rf"{_WHEN}(?:{'|'.join(names)})(?=s?\b)", question):
            yield Spot(TIME, shape, *found.span())
    years = list(_YEARS.finditer(question))
    if 1 <= len(years) <= 2 and re.search(
        r"(?:from|in|between|during|since|until) $", question[: years[0].start()], re.I
    ):
        yield Spot(TIME, "years", years[0].start(), years[-1].end())


def _things(question: str, history: History, taken: list[tuple[int, int]]) -> Iterator[Spot]:
    for shape, span in _phrases(question):
        if _overlaps(span, taken) or (shape.startswith("sort ") and not history.talk):
            continue
        if shape == "name":
            if not (frames := history.facts.get(question[slice(*span)])):
                continue
            shape = "of whom facts tell" if any(map(LIVES.search, frames)) else "of which facts tell"
        taken.append(span)
        yield Spot(PERSON if shape.startswith("of whom") else THING, shape, *span)


def _phrases(question: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Names that facts tell of, and things of a known sort."""
    yield from (("name", found.span()) for found in _NAME.finditer(question))
    for number, sort in enumerate(SORTS):
        for found in re.finditer(rf"{_ARTICLE}({'|'.join(sort)}){_HEAD}", question):
            yield f"sort {number}", found.span(1)


def _overlaps(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return any(start < span[1] and span[0] < end for start, end in others)


def find_owner(questions: Sequence[BenchmarkQuestion]) -> str | None:
    """Whose history it is: somebody whom a quarter of its questions name in full."""
    named: dict[str, int] = defaultdict(int)
    for question in questions:
        for name in set(_FULL.findall(question.text)):
            named[name] += 1
    best = max(named, key=lambda name: named[name], default=None)
    return best if best and len(questions) >= 8 and 4 * named[best] >= len(questions) else None


# - what takes its place -


def swap(question: BenchmarkQuestion, spot: Spot, new: str) -> BenchmarkQuestion:
    """The question with that in its place; it has no answer any more."""
    return replace(
        question, id=f"{question.id}{MARK}{spot.kind}", answer=NOT_IN_MEMORY, evidence=(), abstention=True,
        text=question.text[: spot.start] + new + question.text[spot.end :],
    )  # fmt: skip


def is_answered(question: BenchmarkQuestion, spot: Spot, new: str, history: History) -> bool:
    """Whether something in the history may answer the question with the new one in its place, or it asks too little."""
    old = frozenset(stems(spot.text(question.text)))
    others = _telling(question.text[: spot.start] + " " + question.text[spot.end :])
    if (
        len(others) < FEWEST + (spot.shape == "short")
        or not _differs(question, spot, new)
        or not _is_tied(question, others)
    ):
        return True
    if spot.kind == PERSON and not _fits(question, spot):
        return True
    if spot.kind == THING and _COMPARES.search(question.text):  # what is compared may be known of the new one as well
        return True
    if spot.kind != TIME and not any(history.naming(name) for name in _aliases(new, spot)):
        return True
    years = _years(question.text)
    gold, says = _telling(question.answer) - others, _says_of(question, old)
    reach = SCENE if spot.shape in ("short", "full") else NEAR
    enough = THIRD if spot.kind == TIME else HALF
    return any(
        _share(others, history.around(place, reach)) >= enough
        or _share(gold, history.words[place]) >= MOST
        or any(_share(said, history.words[place]) >= HALF for said in says)
        or bool(years & _years(history.notes[place].text))
        for name in _aliases(new, spot)
        for place in history.naming(name)
    )


def _is_tied(question: BenchmarkQuestion, others: frozenset[str]) -> bool:
    """Whether the evidence holds some word of the question beside what is swapped: it asks about nothing else."""
    return any(others & frozenset(_note_words(note)) for note in question.evidence)


def _fits(question: BenchmarkQuestion, spot: Spot) -> bool:
    """Whether the rest of the question says nothing that holds for the old person alone."""
    rest = question.text[: spot.start] + question.text[spot.end :]
    odd = _HE.search(rest) if spot.shape == "kin" else _TOLD.search(rest)
    return not odd and not _RELATED.search(rest)


def _years(text: str) -> frozenset[int]:
    """The years that a text names; where it says from when to when, those between too."""
    found = [int(year) for year in _YEAR.findall(text)]
    return frozenset(range(min(found), max(found) + 1)) if len(found) == 2 else frozenset(found)


def _aliases(new: str, spot: Spot) -> set[str]:
    """By what notes may name it: a person by the last part of the name too, a relative by another word."""
    same = {word for pair in SAME if new in pair for word in pair}
    return {new} | same | ({new.split()[-1]} if spot.shape == "full" else set())


def _differs(question: BenchmarkQuestion, spot: Spot, new: str) -> bool:
    """Whether question, answer and evidence do not name the new one, and the question names the old one once."""
    old = frozenset(stems(spot.text(question.text)))
    fresh = frozenset(stems(new)) - COMMON_STEMS
    known = old | frozenset(stems(question.text)) | frozenset(stems(question.answer))
    beside = [frozenset(stems(f"{note.speaker} {note.text}")) for note in question.evidence]
    one = any({*old, *fresh} <= frozenset(stems(" ".join(pair))) for pair in SAME)
    again = (old - COMMON_STEMS) & frozenset(stems(question.text[: spot.start] + " " + question.text[spot.end :]))
    return bool(fresh) and not (one or again or fresh & known) and not any(fresh <= some for some in beside)


def _says_of(question: BenchmarkQuestion, old: frozenset[str]) -> list[frozenset[str]]:
    """What each note of the evidence that names the old one says of it: its words in small letters."""
    notes = [note for note in question.evidence if old <= frozenset(stems(note.text))]
    return [frozenset(stems(" ".join(_LOWER.findall(note.text)))) - COMMON_STEMS - old for note in notes]


def _telling(text: str) -> frozenset[str]:
    return frozenset(stems(text)) - COMMON_STEMS - LOOSE


def _share(wanted: frozenset[str], held: frozenset[str]) -> float:
    return len(wanted & held) / len(wanted) if wanted else 0.0


def shift_years(question: BenchmarkQuestion, spot: Spot, history: History, draw: random.Random) -> str | None:
    """The same years, moved to before all that the page of the evidence tells of; None where that is far away."""
    page = question.evidence[0]
    first = history.first_year(page.speaker) if page.timestamp is None else None
    text = spot.text(question.text)
    if first is None:
        return None
    back = max(map(int, _YEAR.findall(text)), default=0) - first + draw.randint(5, 25)
    return _YEAR.sub(lambda found: str(int(found[0]) - back), text) if 0 < back <= FURTHEST else None


# - all of them -

# (kind, shape) -> what may take a place
Offers = Mapping[tuple[str, str], frozenset[str]]


def make(questions: Iterable[BenchmarkQuestion]) -> list[BenchmarkQuestion]:
    """For every answerable question and each kind, the first swap that nothing answers, where there is one."""
    groups: dict[int, list[BenchmarkQuestion]] = defaultdict(list)
    for question in filter(asks_for_facts, answerable(questions)):
        groups[id(question.history)].append(question)
    made = [each for group in groups.values() for each in _make_group(group)]
    return list({each.text: each for each in reversed(made)}.values())[::-1]  # one of each text: the first


def asks_for_facts(question: BenchmarkQuestion) -> bool:
    """Whether it asks for what was said: not for advice or a habit, which anything may answer, nor for yes or no."""
    return "preference" not in question.raw_type and not _HABIT.search(question.text) and not _YES.match(question.text)


def _make_group(group: Sequence[BenchmarkQuestion]) -> Iterator[BenchmarkQuestion]:
    history, owner = History(group[0].history), find_owner(group)
    found = {question.id: spots(question.text, history, owner) for question in group}
    offers = _offers(group, found, history, owner)
    for question in group:
        for kind in MADE:
            draw = random.Random(f"{SEED}/{question.id}/{kind}")
            swaps = (
                swap(question, spot, new)
                for spot in found[question.id]
                if spot.kind == kind
                for new in _candidates(question, spot, history, offers, draw)
                if spot.shape == "years" or not is_answered(question, spot, new, history)
            )
            yield from [made for made in (next(swaps, None),) if made is not None]


def _offers(
    group: Sequence[BenchmarkQuestion], found: Mapping[str, Sequence[Spot]], history: History, owner: str | None
) -> Offers:
    offers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for called, name in history.called.items():
        if not owner or not set(name.split()) & set(owner.split()):
            offers[PERSON, "full" if " " in called else "short"].add(called)
    offers[PERSON, "kin"], offers[TIME, "month"], offers[TIME, "day"] = set(KIN), set(MONTHS), set(DAYS)
    for question in group:
        for spot in found[question.id]:
            if spot.shape.startswith("sort "):
                offers[THING, spot.shape].update(word for word in SORTS[int(spot.shape[5:])] if history.naming(word))
            elif spot.kind == THING or spot.shape == "of whom facts tell":
                offers[spot.kind, spot.shape].add(spot.text(question.text))
    return {shape: frozenset(some) for shape, some in offers.items()}


def _candidates(
    question: BenchmarkQuestion, spot: Spot, history: History, offers: Offers, draw: random.Random
) -> list[str]:
    """What may take the place, in a drawn order."""
    if spot.shape == "years":
        shifted = shift_years(question, spot, history, draw)
        return [] if shifted is None else [shifted]
    order = sorted(offers.get((spot.kind, spot.shape), ()))
    draw.shuffle(order)
    if spot.shape == "of which facts tell":
        asked = _asked(question, spot)
        order = [name for name in order if history.suit(asked, name)]
    return order


def _asked(question: BenchmarkQuestion, spot: Spot) -> frozenset[str]:
    """What the evidence says of that which is to be swapped."""
    name = spot.text(question.text)
    return frozenset(said for note in question.evidence if name in note.text for said in _frame(note.text, name))


def kind_of(question: BenchmarkQuestion) -> str:
    """The kind of a question: answerable, published as unanswerable, its turns removed, or made by one of the rules."""
    if not question.abstention:
        return ANSWERABLE
    if (kind := question.id.rpartition(MARK)[2]) in MADE:
        return kind
    return REMOVED if re.search(r"-removed(~\d+)?$|-r\d+$", question.id) else PUBLISHED


def twin_of(question: BenchmarkQuestion) -> str:
    """The id of the answerable question that it was made from, or is the unanswerable form of; its own otherwise."""
    if kind_of(question) in MADE:
        return question.id.rpartition(MARK)[0]
    return re.sub(r"_abs$|-removed(~\d+)?$", "", question.id)
