"""A memory as one server offers it: whose notes, the usual budget, and what each tool does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from retcon import validate
from retcon.answer import Answer, Rung
from retcon.errors import InputError, NotFoundError
from retcon.mcp import shapes
from retcon.memory import DEFAULT_BUDGET, Memory
from retcon.note import Note, Recall, Scope, Source
from retcon.operate import usable
from retcon.store import Deleted

ALL = Scope()


class StoppedError(Exception):
    """The client no longer waits for the answer."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the tools do. A desk that is bound to a scope can neither see nor touch what lies outside it."""

    memory: Memory
    bound: Scope = ALL
    budget: int = DEFAULT_BUDGET
    stopped: Callable[[], bool] = lambda: False  # asked between the looks of a question

    def scope(self, given: shapes.Whose) -> Scope:
        """The scope that the server is bound to, else the one that the call names."""
        if self.bound != ALL:
            return self.bound
        return validate.scope(given.user_id, given.agent_id, given.run_id)

    def note(self, note_id: str, scope: Scope) -> Note:
        """The note with this id, where it lies within the scope."""
        found = self.memory.get(note_id)
        if not _within(found, scope):
            raise NotFoundError(note_id)
        return found

    def add(self, given: shapes.Add) -> shapes.Added:
        """Store a text or the turns of a conversation."""
        if (given.text is None) == (given.messages is None):
            raise InputError("give a text, or messages, and not both")
        if given.supersedes is not None:
            return self._correct(given, given.supersedes)
        what: Any = given.text if given.messages is None else [turn.model_dump() for turn in given.messages]
        stored = self.memory.add(
            what, id=given.id, **_ids(self.scope(given)), session=given.session, speaker=given.speaker,
            timestamp=given.timestamp, metadata=given.metadata,
        )  # fmt: skip
        return shapes.Added(ids=[note.id for note in stored], stored=len(stored))

    def _correct(self, given: shapes.Add, old: str) -> shapes.Added:
        if given.text is None:
            raise InputError("a correction is one text: give text, not messages")
        stored = self.memory.supersede(
            self.note(old, self.scope(given)).id, given.text, new_id=given.id, timestamp=given.timestamp,
            speaker=given.speaker, session=given.session, metadata=given.metadata,
        )  # fmt: skip
        return shapes.Added(ids=[stored.id], stored=1)

    def search(self, given: shapes.Search) -> shapes.SearchResult:
        """Ranked memories."""
        hits = self.memory.search(
            given.query, **_ids(self.scope(given)), **_filter(given), top_k=given.top_k, metadata=given.metadata
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
            given.query, self._budget(given.budget_tokens), **_ids(self.scope(given)), **_filter(given),
            exclude=given.exclude or (),
        )  # fmt: skip
        return shapes.ContextResult(
            text=recall.text, tokens=recall.tokens, budget_tokens=recall.budget, action=recall.action,
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
            given.question, self._budget(given.budget_tokens), **_ids(self.scope(given)), **_filter(given),
            max_rungs=given.max_looks, seen=self._go_on,
        )  # fmt: skip
        return _answered(answer)

    def _go_on(self, rung: Rung) -> None:
        if self.stopped():
            raise StoppedError

    def get(self, given: shapes.One) -> shapes.MemoryItem:
        """One memory in full."""
        return shapes.MemoryItem.of(self.note(given.id, self.scope(given)))

    def sources(self, given: shapes.Many) -> shapes.SourcesResult:
        """Memories in full, with their versions."""
        scope = self.scope(given)
        found: list[shapes.Origin] = []
        missing: list[str] = []
        for note_id in dict.fromkeys(given.ids):
            try:
                found.append(self._origin(note_id, scope))
            except NotFoundError:
                missing.append(note_id)
        if not found:
            raise NotFoundError(missing[0])
        return shapes.SourcesResult(sources=found, missing=missing)

    def _origin(self, note_id: str, scope: Scope) -> shapes.Origin:
        note = self.note(note_id, scope)
        versions = [each for each in self.memory.history(note_id) if _within(each, scope)]
        shown = [shapes.MemoryItem.of(each) for each in versions] if len(versions) > 1 else []
        return shapes.Origin(memory=shapes.MemoryItem.of(note), versions=shown)

    def delete(self, given: shapes.One) -> shapes.Gone:
        """Delete one memory."""
        return _gone(self.memory.delete(self.note(given.id, self.scope(given)).id))

    def delete_all(self, given: shapes.Whose) -> shapes.Gone:
        """Delete every memory of a scope."""
        scope = self.scope(given)
        if scope == ALL:
            raise InputError("name a user_id, agent_id or run_id: this tool never empties a whole store")
        return _gone(self.memory.delete_all(**_ids(scope)))

    def explain(self, given: shapes.Context) -> shapes.DecisionResult:
        """The decision alone."""
        decision = self.memory.decide(
            given.query, self._budget(given.budget_tokens), **_ids(self.scope(given)), **_filter(given),
            exclude=given.exclude or (),
        )  # fmt: skip
        plain = decision.to_dict() | {"budget_tokens": decision.budget}
        return shapes.DecisionResult(**{name: plain[name] for name in shapes.DecisionResult.model_fields})

    def _budget(self, given: int | None) -> int:
        return self.budget if given is None else given


def _within(note: Note, scope: Scope) -> bool:
    return all(wanted in (None, getattr(note, name)) for name, wanted in _ids(scope).items())


def _ids(scope: Scope) -> dict[str, Any]:
    return {"user_id": scope.user_id, "agent_id": scope.agent_id, "run_id": scope.run_id}


def _filter(given: shapes.Within) -> dict[str, Any]:
    return {"session": given.session, "since": given.since, "until": given.until}


def _sources(sources: tuple[Source, ...]) -> list[shapes.SourceItem]:
    return [shapes.SourceItem(id=each.id, whole=each.whole, timestamp=each.timestamp) for each in sources]


def _gone(deleted: Deleted) -> shapes.Gone:
    return shapes.Gone(deleted=deleted.notes, records=deleted.records, warning=deleted.warning)


def _answered(answer: Answer) -> shapes.AskResult:
    looks = [
        shapes.Look(action=rung.recall.action, tokens=rung.recall.tokens, answered=not rung.abstained)
        for rung in answer.rungs
    ]
    return shapes.AskResult(
        answer=answer.text, in_memory=answer.text is not None, looks=looks,
        sources=_sources(answer.rungs[-1].recall.sources), model_calls=answer.usage.model_calls,
        model_tokens=answer.usage.tokens, warnings=list(answer.warnings),
    )  # fmt: skip
