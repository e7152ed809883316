"""A memory as one server offers it: whose notes, the usual budget, and what each tool does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from retcon import deadline, validate
from retcon.errors import InputError, NotFoundError
from retcon.grant import EVERYTHING, Grant
from retcon.ladder import Answer, Look
from retcon.mcp import shapes
from retcon.memory import DEFAULT_BUDGET, Memory
from retcon.note import Note, Recall, Source
from retcon.operate import usable
from retcon.store import Deleted


class StoppedError(Exception):
    """The client no longer waits for the answer."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the tools do. A desk that is bound to a scope can neither see nor touch what lies outside it."""

    memory: Memory
    grant: Grant = EVERYTHING
    budget: int = DEFAULT_BUDGET
    stopped: Callable[[], bool] = lambda: False  # asked between the looks of a question

    @property
    def bound(self) -> bool:
        """Whether the server serves one scope, so that calls name none."""
        return not self.grant.admin

    def granted(self, given: shapes.Whose) -> Grant:
        """What the call is about: the server's own scope, or the part of it that the call names."""
        return self.grant.part(validate.scope(given.user_id, given.agent_id, given.run_id))

    def _ids(self, given: shapes.Whose) -> dict[str, Any]:
        return asdict(self.granted(given).scope)

    def _note(self, note_id: str, given: shapes.Whose) -> Note:
        return self.granted(given).find(note_id, self.memory.get)

    def add(self, given: shapes.Add) -> shapes.Added:
        """Store a text or the turns of a conversation."""
        if (given.text is None) == (given.messages is None):
            raise InputError("give a text, or messages, and not both")
        if given.supersedes is not None:
            return self._correct(given, given.supersedes)
        what: Any = given.text if given.messages is None else [turn.model_dump() for turn in given.messages]
        stored = self.memory.add(
            what, id=self._named(given.id), **self._ids(given), session=given.session, speaker=given.speaker,
            timestamp=given.timestamp, metadata=given.metadata,
        )  # fmt: skip
        return shapes.Added(ids=[note.id for note in stored], stored=len(stored))

    def _correct(self, given: shapes.Add, old: str) -> shapes.Added:
        if given.text is None:
            raise InputError("a correction is one text: give text, not messages")
        stored = self.memory.supersede(
            self._note(old, given).id, given.text, new_id=self._named(given.id), timestamp=given.timestamp,
            speaker=given.speaker, session=given.session, metadata=given.metadata,
        )  # fmt: skip
        return shapes.Added(ids=[stored.id], stored=1)

    def search(self, given: shapes.Search) -> shapes.SearchResult:
        """Ranked memories."""
        hits = self.memory.search(
            given.query, **self._ids(given), **_filter(given), top_k=given.top_k, metadata=given.metadata
        )
        found = [
            shapes.Found(
                id=hit.id, text=hit.text[: shapes.LONGEST_EXCERPT], score=hit.score, rank=hit.rank,
                truncated=len(hit.text) > shapes.LONGEST_EXCERPT, speaker=hit.note.speaker, session=hit.note.session,
                timestamp=hit.note.timestamp, duplicate_of=hit.duplicate_of,
            )
            for hit in hits
        ]  # fmt: skip
        return shapes.SearchResult(results=found, count=len(found))

    def context(self, given: shapes.Context) -> shapes.ContextResult:
        """The best text within the budget."""
        recall = self.memory.recall(
            given.query, self._budget(given.budget), **self._ids(given), **_filter(given),
            exclude=given.exclude or (),
        )  # fmt: skip
        return shapes.ContextResult(
            text=recall.text, tokens=recall.tokens, budget=recall.budget, action=recall.action,
            reason=recall.decision.reason, sources=_sources(recall.sources),
            dropped=dict(Counter(item.code for item in recall.dropped)), tried=list(recall.tried),
            more=self._more(recall), warnings=list(recall.warnings),
        )  # fmt: skip

    def _more(self, recall: Recall) -> bool:
        return bool(recall.sources or recall.dropped) and bool(set(usable(self.memory.chat)).difference(recall.tried))

    def ask(self, given: shapes.Ask) -> shapes.AskResult:
        """The model's answer from what memory recalls."""
        if self.memory.chat is None:
            raise InputError(
                "ask_memory needs a model, and this server has none (--model or RETCON_MODEL): "
                "use get_memory_context and read the text yourself"
            )
        answer = self.memory.ask(
            given.question, self._budget(given.budget), **self._ids(given), **_filter(given),
            max_looks=given.max_looks, safe=given.safe, seen=self._go_on,
        )  # fmt: skip
        return _answered(answer)

    def _go_on(self, look: Look) -> None:
        deadline.check()
        if self.stopped():
            raise StoppedError

    def get(self, given: shapes.One) -> shapes.MemoryItem:
        """One memory in full."""
        return shapes.MemoryItem.of(self._note(given.id, given))

    def sources(self, given: shapes.Many) -> shapes.SourcesResult:
        """Memories in full, with their versions."""
        found: list[shapes.Origin] = []
        missing: list[str] = []
        room = _Room()
        for note_id in dict.fromkeys(given.ids):
            try:
                found.append(self._origin(note_id, given, room))
            except NotFoundError:
                missing.append(note_id)
        if not found:
            raise NotFoundError(missing[0])
        return shapes.SourcesResult(sources=found, missing=missing)

    def _origin(self, note_id: str, given: shapes.Whose, room: _Room) -> shapes.Origin:
        grant, note = self.granted(given), self._note(note_id, given)
        shown, more = [], False
        if note.supersedes is not None or note.superseded_by is not None:
            versions = grant.versions(note, self.memory.get)
            shown = [room.item(each) for each in room.while_left(versions)]
            more = next(versions, None) is not None
        return shapes.Origin(memory=room.item(note), versions=shown if len(shown) > 1 or more else [], more=more)

    def delete(self, given: shapes.One) -> shapes.Gone:
        """Delete one memory."""
        return _gone(self.memory.delete(self._note(given.id, given).id))

    def delete_all(self, given: shapes.Whose) -> shapes.Gone:
        """Delete every memory of a scope."""
        ids = self._ids(given)
        if not any(ids.values()):
            raise InputError("name a user_id, agent_id or run_id: this tool never empties a whole store")
        return _gone(self.memory.delete_all(**ids))

    def explain(self, given: shapes.Context) -> shapes.DecisionResult:
        """The decision alone."""
        decision = self.memory.decide(
            given.query, self._budget(given.budget), **self._ids(given), **_filter(given),
            exclude=given.exclude or (),
        )  # fmt: skip
        plain = decision.to_dict() | {"budget": decision.budget}
        return shapes.DecisionResult(**{name: plain[name] for name in shapes.DecisionResult.model_fields})

    def _named(self, chosen: str | None) -> str | None:
        return None if chosen is None else self.grant.name(chosen)

    def _budget(self, given: int | None) -> int:
        return self.budget if given is None else given


class _Room:
    """How much of notes an answer may still hold."""

    def __init__(self) -> None:
        self.left = shapes.ROOM

    def item(self, note: Note) -> shapes.MemoryItem:
        """The note, or its beginning where there is no room for more."""
        item = shapes.MemoryItem.of(note)
        if item.cost > self.left:
            item = item.beginning()
        self.left -= item.cost
        return item

    def while_left(self, notes: Iterator[Note]) -> Iterator[Note]:
        """The notes for which there is room."""
        while self.left > 0 and (note := next(notes, None)) is not None:
            yield note


def _filter(given: shapes.Within) -> dict[str, Any]:
    return {"session": given.session, "since": given.since, "until": given.until}


def _sources(sources: tuple[Source, ...]) -> list[shapes.SourceItem]:
    return [shapes.SourceItem(id=each.id, whole=each.whole, timestamp=each.timestamp) for each in sources]


def _gone(deleted: Deleted) -> shapes.Gone:
    return shapes.Gone(deleted=deleted.notes, records=deleted.records, warning=deleted.warning)


def _answered(answer: Answer) -> shapes.AskResult:
    looks = [
        shapes.Look(action=look.recall.action, tokens=look.recall.tokens, answered=not look.abstained)
        for look in answer.looks
    ]
    return shapes.AskResult(
        answer=answer.text, in_memory=answer.text is not None, looks=looks,
        sources=_sources(answer.looks[-1].recall.sources), model_calls=answer.usage.model_calls,
        model_tokens=answer.usage.tokens, warnings=list(answer.warnings),
    )  # fmt: skip
