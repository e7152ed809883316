"""What may be asked and what comes back, with examples. Names are those of Mem0's dialect where it has one.

Requests are checked against these classes. Answers are written as they are, without a second check: the classes for
them are documentation, and the tests hold answers against it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from retcon.memory import DEFAULT_BUDGET
from retcon.server.refusals import Refusal
from retcon.serving import one_line

Budget = Annotated[int, Field(ge=0, description="Tokens the text may cost, all that is rendered counted.")]


FILTERS = (
    "Conditions in one object, with Mem0's words: user_id, agent_id, run_id, session, speaker, timestamp, created_at, "
    "and metadata keys; values that must be equal, or eq, ne, gt, gte, lt, lte, in, nin, contains, icontains; "
    "AND, OR, NOT."
)
EXPIRES = "From then on it is not recalled, and the next purge removes it: ISO 8601 (not seconds), or never."


def parse_json(text: str | bytes) -> Any:
    """The JSON value; a name that stands twice in one object is refused."""
    return json.loads(text, object_pairs_hook=_refuse_repeats)


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise Refusal(400, "bad_json", f"{one_line(twice, 60)!a} stands twice in one object")
    return found


def _request(**example: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra={"examples": [example]})


class ScopeIn(BaseModel):
    """Whose notes; what is left out is what the key says, or anybody's."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None


class WhereIn(ScopeIn):
    """Whose notes, and which of them."""

    session: str | None = None
    since: str | None = Field(None, description="ISO 8601, inclusive.")
    until: str | None = Field(None, description="ISO 8601, inclusive; a bare date means all of that day.")
    metadata: dict[str, Any] | None = Field(None, description="Values that a note's metadata must have.")
    filters: dict[str, Any] | None = Field(None, description=FILTERS)


class AddIn(ScopeIn):
    """What to store: `messages`, or `text` (also called `memory`). Raw notes are stored as they are."""

    model_config = _request(
        messages=[
            {"role": "user", "content": "I adopted a cat named Pixel."},
            {"role": "assistant", "content": "Congratulations!"},
        ],
        user_id="ann", session="s1", timestamp="2026-05-09T10:00", metadata={"topic": "pets"},
    )  # fmt: skip

    messages: str | dict[str, Any] | list[str | dict[str, Any]] | None = None
    text: str | None = None
    memory: str | None = None
    id: str | None = Field(
        None, description="A name for the note. With a key that is bound to a scope, the id is made from it."
    )
    session: str | None = None
    speaker: str | None = None
    timestamp: str | int | float | None = Field(None, description="When it happened: ISO 8601, or seconds since 1970.")
    metadata: dict[str, Any] | None = None
    expires_at: str | None = Field(None, description=EXPIRES)
    infer: bool | None = Field(None, description="Taken and passed over: notes are stored as they are.")


class SupersedeIn(BaseModel):
    """A correction; the older note stays in the history."""

    model_config = _request(text="The cat is called Dot, not Pixel.", timestamp="2026-05-10")

    text: str | None = None
    memory: str | None = None
    new_id: str | None = Field(None, description="A name for the correction; see `id` of an add.")
    session: str | None = None
    speaker: str | None = None
    timestamp: str | int | float | None = None
    metadata: dict[str, Any] | None = None
    expires_at: str | None = Field(None, description=f"{EXPIRES} By default when the older note does.")


class SearchIn(WhereIn):
    """A query for a ranked list."""

    model_config = _request(query="cat", user_id="ann", top_k=5)

    query: str
    top_k: Annotated[int, Field(ge=1)] | None = None
    limit: Annotated[int, Field(ge=1)] | None = Field(None, description="Another name for top_k.")
    threshold: float | None = Field(None, description="Leave out notes with a lower score.")


class DecideIn(WhereIn):
    """A query whose decision is asked for, without any text."""

    model_config = _request(query="When did I get my cat?", budget=64, user_id="ann")

    query: str
    budget: Budget = DEFAULT_BUDGET
    exclude: list[str] = Field([], description="Actions to leave out: those whose text held no answer.")
    safe: bool = Field(
        False, description="Replace whole notes only where the router's threshold is reached; it must have thresholds."
    )
    fill: bool = Field(True, description="Where nothing is about the query, give the newest notes; else no text.")


class RecallIn(DecideIn):
    """A query for the best text within a budget."""

    model_config = _request(query="When did I get my cat?", budget=64, user_id="ann", exclude=[], candidates=False)

    action: str | None = Field(None, description="Force one action.")
    drafts: Annotated[int, Field(ge=1, le=10)] = Field(
        1, description="Write so many texts and keep the best by what they show; the router must have drafts."
    )
    candidates: bool = Field(False, description="Also every candidate note, and what became of it.")


class AskIn(WhereIn):
    """A question that the server's model answers from what is recalled."""

    model_config = _request(question="When did I get my cat?", budget=64, user_id="ann", max_looks=2)

    question: str | None = None
    query: str | None = Field(None, description="Another name for question.")
    budget: Budget = DEFAULT_BUDGET
    max_looks: Annotated[int, Field(ge=1, le=10)] = 4
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    safe: bool = Field(
        False, description="One more look, at whole notes, comes first: no right answer of theirs is lost."
    )
    wrong_cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="What a wrong answer costs, where a right one brings 1; .5 if the router knows prices."
    )
    fill: bool = Field(True, description="Read the newest notes where nothing is about the question; else no call.")


class ScopeQuery(BaseModel):
    """Whose notes, in an address."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None


class ListQuery(ScopeQuery):
    """Which notes to list, and from where on."""

    session: str | None = None
    since: str | None = None
    until: str | None = None
    metadata: str | None = Field(None, description="A JSON object: values that a note's metadata must have.")
    filters: str | None = Field(None, description=f"A JSON object. {FILTERS}")
    superseded: bool = False
    expired: bool = False
    order: Literal["oldest", "newest"] = Field("oldest", description="Which note comes first.")
    limit: Annotated[int, Field(ge=1)] = 100
    offset: Annotated[int, Field(ge=0)] = 0
    cursor: str | None = Field(None, description="`next` of the page before; order and filters stay the same.")


class HistoryQuery(BaseModel):
    """From where on to list the versions of a note."""

    model_config = ConfigDict(extra="forbid")

    cursor: str | None = Field(None, description="`next` of the page before.")


# -- answers -----------------------------------------------------------------------------------------------------------


def _answer(**example: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [example]})


NOTE: dict[str, Any] = {
    "id": "4f1c2a", "memory": "I adopted a cat named Pixel.", "session": "s1", "timestamp": "2026-05-09T10:00:00",
    "user_id": "ann", "created_at": "2026-05-21T08:00:00+00:00",
}  # fmt: skip
DECISION: dict[str, Any] = {
    "action": "extract", "utilities": {"retain": 0.25, "extract": 1.0}, "advantage": 0.75, "threshold": 0.0,
    "features": {"budget": 0.125, "fit": 0.25}, "reason": "1 of 4 notes fits, so the sentences that matter are taken",
    "router": "evidence-fit", "budget": 64, "extrapolated": False, "forced": False, "safe": False, "selected": None,
    "certified": False, "order": [], "warnings": [],
}  # fmt: skip
RECALL: dict[str, Any] = {
    "text": "[2026-05-09] I adopted a cat named Pixel.", "tokens": 14, "budget": 64,
    "query": "When did I get my cat?", "action": "extract", "decision": DECISION,
    "sources": [{"id": "4f1c2a", "text": NOTE["memory"], "whole": True, "timestamp": "2026-05-09T10:00:00"}],
    "dropped": [{"id": "9ab2", "code": "budget", "reason": "needs 30 tokens, 12 left", "tokens": 30}],
    "usage": {"model_calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "seconds": 0.004},
    "warnings": [], "tried": ["extract"], "record": None, "fidelity": None, "drafts": [], "found": True,
    "evidence": {
        "found": True, "notes": 4, "words": 1, "covered": 0.8, "score": 1.74, "similarity": None, "named": False,
        "missing": ["get"],
    },
    "why": "The sentences that matter: not all notes fit, and this should answer better than whole notes.",
}  # fmt: skip


class ErrorBody(BaseModel):
    """What went wrong: `code` for programs, `message` for people."""

    code: str
    message: str


class ErrorOut(BaseModel):
    """The one shape of every error."""

    model_config = _answer(error={"code": "not_found", "message": "no note has the id '4f1c2a'"})

    error: ErrorBody


class NoteOut(BaseModel):
    """One note; fields that are empty are left out."""

    model_config = ConfigDict(json_schema_extra={"examples": [NOTE]})

    id: str
    memory: str
    truncated: bool = Field(
        False, description="The answer was full: `memory` is its beginning, and the note's own address gives all of it."
    )
    speaker: str | None = None
    session: str | None = None
    timestamp: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    metadata: dict[str, Any] = {}
    follows: str | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    created_at: str | None = None
    live: bool = Field(
        False, description="Added as it was said: without a timestamp, it is of the day of `created_at`."
    )
    expires_at: str | None = None


class EventOut(BaseModel):
    """One note that was written; `event` is NONE where the same was stored before."""

    id: str
    memory: str
    event: str
    created_at: str


class AddOut(BaseModel):
    """The notes as stored, in the order given."""

    model_config = _answer(
        results=[{"id": "4f1c2a", "memory": NOTE["memory"], "event": "ADD", "created_at": NOTE["created_at"]}]
    )

    results: list[EventOut]


class SupersedeOut(EventOut):
    """The correction as stored."""

    model_config = _answer(
        id="77d0", memory="The cat is called Dot, not Pixel.", event="UPDATE", created_at=NOTE["created_at"],
        supersedes="4f1c2a",
    )  # fmt: skip

    supersedes: str


class UpdateOut(EventOut):
    """The newest version of the note, under an id of its own; `event` is NONE where it said the same before."""

    model_config = _answer(
        id="77d0", memory="The cat is called Dot, not Pixel.", event="UPDATE", created_at=NOTE["created_at"],
        supersedes="4f1c2a",
    )  # fmt: skip

    supersedes: str | None = None


class DeletedOut(BaseModel):
    """How many notes went. `purged` and `warning`, about the words in the files, are for admin keys."""

    model_config = _answer(message="deleted 1 note", deleted=1)

    message: str
    deleted: int
    purged: bool | None = None
    warning: str | None = None


class PageOut(BaseModel):
    """Notes in order; `next` is the cursor of the page after, null at the end.

    A page ends at `limit` notes, or earlier where it has so many bytes that the next note would be too many.
    """

    model_config = _answer(results=[NOTE], next=None)

    results: list[NoteOut]
    next: str | None


class ListOut(PageOut):
    """A page of notes, the oldest or the newest first, and how many there are in all.

    `total` is null where session, since, until or metadata narrow the list: to count it would be to read it.
    """

    model_config = _answer(results=[NOTE], next=None, total=1)

    total: int | None


class SourcesOut(BaseModel):
    """The raw notes that stand behind a note (itself) or behind a generated record."""

    model_config = _answer(id="4f1c2a", kind="note", results=[NOTE])

    id: str
    kind: str
    action: str | None = None
    results: list[NoteOut]


class HitOut(NoteOut):
    """A note with its score and rank; `duplicate_of` names a better one that says the same."""

    score: float
    rank: int
    duplicate_of: str | None = None


class SearchOut(BaseModel):
    """The best notes first."""

    model_config = _answer(results=[{**NOTE, "score": 4.2, "rank": 1}])

    results: list[HitOut]


class DecisionOut(BaseModel):
    """The chosen action and what led to it.

    `threshold` is null where none counts and, with `safe`, where nothing reaches it.
    """

    model_config = _answer(**DECISION)

    action: str
    utilities: dict[str, float]
    advantage: float
    threshold: float | None
    features: dict[str, float]
    reason: str
    router: str
    budget: int
    extrapolated: bool
    forced: bool
    safe: bool
    selected: str | None = Field(description="The fixed action that the router takes, or leaves by a margin.")
    certified: bool
    order: list[str]
    warnings: list[str]


class DecideOut(DecisionOut):
    """A decision, the actions that could be chosen, and what each feature adds to each action's utility."""

    model_config = _answer(
        **DECISION, actions=["retain", "extract"],
        contributions={"retain": {"fit": 0.25, "intercept": 0.0}, "extract": {"fit": 0.0, "intercept": 1.0}},
    )  # fmt: skip

    actions: list[str]
    contributions: dict[str, dict[str, float]]


class SourceOut(BaseModel):
    """A note behind the text, and the part of it that was used."""

    id: str
    text: str
    whole: bool
    timestamp: str | None


class DroppedOut(BaseModel):
    """A candidate that is not in the text, and why."""

    id: str
    code: str
    reason: str
    tokens: int


class CandidateOut(BaseModel):
    """A candidate note and what became of it: kept whole, cut to the part `used`, or dropped."""

    id: str
    memory: str
    truncated: bool = False
    speaker: str | None
    timestamp: str | None
    session: str | None
    score: float
    status: str
    used: str | None
    reason: str | None


class UsageOut(BaseModel):
    """What it cost."""

    model_calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class EvidenceOut(BaseModel):
    """Whether something in memory is about a query, and what that was read from."""

    found: bool
    notes: int = Field(description="Searched.")
    words: int = Field(description="Of the query that may say what it is about; 0: it asks for memory as a whole.")
    covered: float = Field(description="Share of its words that the best notes hold.")
    score: float = Field(description="Of the best note.")
    similarity: float | None = Field(description="Of the closest note, where embeddings were searched.")
    named: bool = Field(description="It names the speaker of one of the best notes.")
    missing: list[str] = Field(description="Its words that none of these notes holds.")


class DraftOut(BaseModel):
    """One of several texts that were written, and how good it is by what it shows."""

    action: str
    score: float
    tokens: int


class RecallOut(BaseModel):
    """Text within the budget, and why it is that text."""

    model_config = _answer(**RECALL)

    text: str
    tokens: int
    budget: int
    query: str
    action: str
    decision: DecisionOut
    sources: list[SourceOut]
    dropped: list[DroppedOut]
    usage: UsageOut
    warnings: list[str]
    tried: list[str]
    record: dict[str, Any] | None
    fidelity: dict[str, Any] | None
    drafts: list[DraftOut] = Field(description="The texts that were chosen from, best first, where there were several.")
    why: str = Field(description="One plain sentence, for people; the decision's `reason` has the numbers.")
    found: bool = Field(description="False: nothing in memory is about this, and the text, if any, only fills up.")
    evidence: EvidenceOut | None
    candidates: list[CandidateOut] = []


class LookOut(BaseModel):
    """One look of the reader."""

    action: str
    reply: str
    abstained: bool
    confidence: float | None = Field(description="How likely the reply is right; null where nothing is known of that.")
    error: str | None
    usage: UsageOut
    recall: RecallOut


class AskOut(BaseModel):
    """The answer, null where memory does not hold it or it was refused, and the looks that led to it."""

    model_config = _answer(
        question="When did I get my cat?", answer="On 9 May 2026.", in_memory=True, confidence=0.81, refused=False,
        look=1, usage=RECALL["usage"], warnings=[],
        looks=[
            {"action": "extract", "reply": "On 9 May 2026.", "abstained": False, "confidence": 0.81, "error": None,
             "usage": RECALL["usage"], "recall": RECALL},
        ],
    )  # fmt: skip

    question: str
    answer: str | None
    in_memory: bool
    confidence: float | None = Field(description="How likely the reply that was given, or refused, is right.")
    refused: bool = Field(description="There was a reply, and at this wrong_cost it does not pay to give it.")
    look: int | None = Field(description="The number of the look with that reply, from 1.")
    looks: list[LookOut]
    usage: UsageOut
    warnings: list[str]


class HealthOut(BaseModel):
    """Whether it serves. `notes` counts what the caller may see, and is there only for a caller who may see some."""

    model_config = _answer(ok=True, version="0.1.0", model=False, notes=12)

    ok: bool
    version: str
    model: bool
    notes: int | None = None


class ReadyOut(BaseModel):
    """That new requests may come."""

    model_config = _answer(ready=True)

    ready: bool
