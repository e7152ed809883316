"""The frozen records that travel through retcon, in the order in which a query meets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any

from retcon.language import ENGLISH, Language

Span = tuple[int, int]  # of characters: from, up to
MARK = " ..."  # stands where words were left out

RETAIN, EXTRACT = "retain", "extract"  # the actions that ship: two that need no model
MERGE, ABSTRACT, REWRITE, HYBRID = "merge", "abstract", "rewrite", "hybrid"  # and four that do


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose notes: an id that is named must match, one left None may be anything."""

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """One raw record. Its text never changes; a correction is another note that supersedes it."""

    id: str
    text: str
    speaker: str | None = None
    session: str | None = None
    timestamp: str | None = None  # when it happened, by the caller: ISO 8601, at least a date
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    follows: str | None = None  # the turn before it, whose words help to find this one
    supersedes: str | None = None  # the older note that this one corrects
    superseded_by: str | None = None  # the newer note that corrects this one
    created_at: str | None = None  # when it was stored, UTC
    live: bool = False  # added as it was said: without a timestamp, the day of `created_at` is shown
    expires_at: str | None = None  # from then on it is not recalled; it stays until it is purged

    def to_dict(self) -> dict[str, Any]:
        """The note as plain JSON values, `None` fields left out."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["metadata"] = dict(self.metadata)
        return {name: value for name, value in plain.items() if value not in (None, {}, False)}


@dataclass(frozen=True, slots=True)
class Condition:
    """What one value of a note must be like. `retcon.filters` reads and tests it."""

    name: str  # session, speaker, timestamp, created_at or, after "metadata.", a key of the metadata
    operator: str  # eq, ne, gt, gte, lt, lte, in, nin, contains or icontains
    value: Any


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions of which all must hold ("and"), one ("or") or none ("not")."""

    join: str
    parts: tuple[Condition | Junction, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which notes of a scope may come back: by session, time range (inclusive), metadata equality, or a condition."""

    session: str | None = None
    since: str | None = None
    until: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    condition: Condition | Junction | None = None  # what `filters` ask for
    now: str | None = None  # leaves out notes that have expired by then, UTC to the second; None keeps them
    without: tuple[str, ...] = ()  # ids of notes that the caller has before it already

    def __bool__(self) -> bool:
        """Whether it may leave out notes that have not expired."""
        plain = self.session is not None or self.since or self.until or self.metadata or self.without
        return bool(plain) or self.condition is not None


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved note with its score; rank starts at 1."""

    note: Note
    score: float
    rank: int
    duplicate_of: str | None = None  # id of a better-ranked note that says the same
    place: int = field(default=0, compare=False)  # of the note in the order of insertion
    passage: Span | None = None  # the part of a long note that it was found by
    span: Span | None = None  # the part that is shown, where that is not all of the note

    @property
    def id(self) -> str:
        return self.note.id

    @property
    def text(self) -> str:
        """The text that is shown: the note's, or the part of it."""
        return self.note.text if self.span is None else self.note.text[slice(*self.span)].strip()

    @property
    def shown(self) -> Note:
        """The note with the text that is shown, marked where it was cut."""
        if self.span is None:
            return self.note
        front = f"{MARK.strip()} " if self.note.text[: self.span[0]].strip() else ""
        back = MARK if self.note.text[self.span[1] :].strip() else ""
        return replace(self.note, text=f"{front}{self.text}{back}")

    def to_dict(self) -> dict[str, Any]:
        """The hit as plain JSON values; `memory` repeats the text for callers used to that name."""
        return (
            {"id": self.id, "memory": self.note.text, "score": self.score, "rank": self.rank}
            | ({"duplicate_of": self.duplicate_of} if self.duplicate_of else {})
            | ({"passage": list(self.passage)} if self.passage else {})
            | {"note": self.note.to_dict()}
        )


@dataclass(frozen=True, slots=True)
class Dropped:
    """A candidate that is not in the packed text, and why. `code` is for programs, `reason` for people."""

    id: str
    code: str  # budget | duplicate | cap | no_match
    reason: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Whether something in memory is about a query, and what that was read from."""

    found: bool
    notes: int  # searched
    words: int  # of the query that may say what it is about; with none it asks for memory as a whole
    covered: float  # share of its words that the best notes hold; everyday words count less, names more
    score: float  # the retriever's, of the best note
    similarity: float | None = None  # cosine of the closest note, where embeddings were searched
    named: bool = False  # it names the speaker of one of the best notes
    missing: tuple[str, ...] = ()  # words of it that none of these notes holds

    def to_dict(self) -> dict[str, Any]:
        """The evidence as plain JSON values."""
        return asdict(self) | {"missing": list(self.missing)}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The candidate notes that one query works on, best first, and what the candidate cap left out."""

    query: str
    hits: tuple[Hit, ...]
    dropped: tuple[Dropped, ...] = ()
    costs: tuple[int, ...] = ()  # tokens of each hit as rendered, where they were counted
    over_cap: tuple[Hit, ...] = ()  # retrieved, and left out by the candidate cap
    evidence: Evidence | None = field(default=None, compare=False)  # that memory is about the query, where weighed
    warnings: tuple[str, ...] = ()  # what went wrong when they were found
    language: Language = ENGLISH  # by which query and notes are read

    @property
    def notes(self) -> tuple[Note, ...]:
        """The notes as an action sees them: of a long one the part that is shown."""
        return tuple(hit.shown for hit in self.hits)

    @property
    def retrieved(self) -> tuple[Hit, ...]:
        """Every hit of the query, best first, those over the cap included."""
        return tuple(sorted((*self.hits, *self.over_cap), key=lambda hit: hit.rank))


@dataclass(frozen=True, slots=True)
class Source:
    """A note that stands behind the packed text: the part of it that was used, and whether that is all of it."""

    id: str
    text: str
    whole: bool
    timestamp: str | None = None
    span: Span | None = None  # of a long note: the part that the action was given

    @classmethod
    def of(cls, hit: Hit, *, whole: bool, text: str | None = None) -> Source:
        """The note of the hit, or the part of it that is shown; `text` where less of it was used."""
        text = hit.text if text is None else text
        return cls(hit.id, text, whole and hit.span is None, hit.note.timestamp, hit.span)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one call cost."""

    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def tokens(self) -> int:
        """Tokens read and written by the model."""
        return self.prompt_tokens + self.completion_tokens

    def to_dict(self) -> dict[str, Any]:
        """The cost as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Packed:
    """Text that fits a budget, what it stands on and what had to stay out."""

    text: str
    tokens: int
    sources: tuple[Source, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    usage: Usage = field(default=Usage(), compare=False)  # what a model was asked for it


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen action and everything that led to it."""

    action: str
    utilities: Mapping[str, float]  # the router's score of each action
    advantage: float  # best replacing action's score minus retention's
    threshold: float | None  # the advantage a replacing action must reach; None where none counts
    features: Mapping[str, float]
    reason: str  # one plain sentence with numbers
    router: str
    budget: int
    extrapolated: bool = False  # the budget lies outside what the router was calibrated on
    forced: bool = False  # the caller named the action
    safe: bool = False  # the router's thresholds count
    selected: str | None = None  # the fixed action that the router takes, or leaves by a margin
    certified: bool = False  # the router's certificate of bounded harm holds for this decision
    order: tuple[str, ...] = ()  # the looks of the router's ladder for this query, where it has one
    warnings: tuple[str, ...] = ()  # what makes the prediction doubtful

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain JSON values; a threshold that nothing reaches is null, and so is one if none counts."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain |= {"utilities": dict(self.utilities), "features": dict(self.features)}
        plain |= {"order": list(self.order), "warnings": list(self.warnings)}
        finite = self.threshold is not None and isfinite(self.threshold)
        return plain | {"threshold": self.threshold if finite else None}


@dataclass(frozen=True, slots=True)
class Record:
    """Where a generated text comes from. A view: it can be rebuilt from its sources, and goes with any of them."""

    id: str  # a hash of all that made it
    action: str
    model: str
    version: str  # of the prompt
    focus: bool  # written for the query
    content: str  # a hash of the source texts
    sources: tuple[str, ...]
    reused: bool = field(default=False, compare=False)  # it was on file


@dataclass(frozen=True, slots=True)
class Claim:
    """Something checkable in a text: what it says as written, what that means, and where it stands."""

    kind: str  # number | date | name | quote | negation
    text: str
    value: str  # "23", "2026-05-09", "T17:00", "maria lopez", "not adopt"
    start: int
    end: int
    note: str | None = None  # id of the note it stands in; None: the record

    def to_dict(self) -> dict[str, Any]:
        """The claim as plain JSON values."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What a record adds to its sources, changes in them and leaves out of them."""

    unsupported: tuple[Claim, ...] = ()  # in the record, in no source
    missing: tuple[Claim, ...] = ()  # in a source sentence that bears on the query, not in the record
    mutated: tuple[tuple[Claim, Claim], ...] = ()  # in the record, and what it was in the source
    supported: int = 0

    @property
    def ok(self) -> bool:
        """No number, date or name without support, and nothing changed."""
        return not self.mutated and all(claim.kind not in ("number", "date", "name") for claim in self.unsupported)

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain JSON values."""
        return {
            "ok": self.ok,
            "supported": self.supported,
            "unsupported": [claim.to_dict() for claim in self.unsupported],
            "missing": [claim.to_dict() for claim in self.missing],
            "mutated": [{"record": ours.to_dict(), "source": theirs.to_dict()} for ours, theirs in self.mutated],
        }


@dataclass(frozen=True, slots=True)
class Draft:
    """One of several texts that were written for a query: by which action, and how good it is by its traits."""

    action: str
    score: float
    tokens: int


def _fields(item: Source | Dropped | Draft) -> dict[str, Any]:
    """What `asdict` says of an item that holds plain values alone, without copying them."""
    return {name: getattr(item, name) for name in item.__slots__}


@dataclass(frozen=True, slots=True)
class Recall:
    """What `recall` gives back: text within the budget, and the reasons."""

    text: str
    tokens: int
    budget: int
    query: str
    action: str
    decision: Decision
    sources: tuple[Source, ...]
    dropped: tuple[Dropped, ...]
    cluster: Cluster = field(repr=False, compare=False)  # the candidates that it was made from
    usage: Usage = field(default=Usage(), compare=False)
    warnings: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()  # the actions spent so far, this one included
    record: Record | None = None  # of generated text
    fidelity: Fidelity | None = None  # of generated text, against its sources
    drafts: tuple[Draft, ...] = ()  # the texts that were chosen from, best first, where there were to be several
    why: str = ""  # one plain sentence, for people; `decision.reason` has the numbers
    again: Callable[[tuple[str, ...]], Recall | None] | None = field(default=None, repr=False, compare=False)

    @property
    def evidence(self) -> Evidence | None:
        """What `found` stands on; None where the candidates came without it."""
        return self.cluster.evidence

    @property
    def found(self) -> bool:
        """Whether anything in memory is about the query; the text is filler where not, or empty with `fill=False`."""
        return self.evidence is None or self.evidence.found

    def escalate(self) -> Recall | None:
        """The next best recall, by an action not tried yet; None when every action has been."""
        return self.again(self.tried) if self.again is not None else None

    def to_dict(self) -> dict[str, Any]:
        """The recall as plain JSON values."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("cluster", "again")}
        plain |= {"decision": self.decision.to_dict(), "usage": self.usage.to_dict()}
        plain |= {"record": asdict(self.record) if self.record else None}
        plain |= {"fidelity": self.fidelity.to_dict() if self.fidelity else None}
        plain |= {name: [_fields(item) for item in getattr(self, name)] for name in ("sources", "dropped", "drafts")}
        plain |= {"found": self.found, "evidence": self.evidence.to_dict() if self.evidence else None}
        return plain | {"warnings": list(self.warnings), "tried": list(self.tried)}
