"""A memory as one server offers it: whose notes, the usual budget, and what each tool does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from retcon import deadline, validate
from retcon.errors import InputError, NotFoundError
from retcon.grant import EVERYTHING, Grant, own_names
from retcon.ladder import Answer, Look
from retcon.mcp import schema
from retcon.memory import DEFAULT_BUDGET, Memory
from retcon.note import RETAIN, Note, Recall, Scope, Source
from retcon.operate import usable
from retcon.serving import check_expiry
from retcon.store import Deleted
from retcon.where import Where


class StoppedError(Exception):
    """The client no longer waits for the answer."""


@dataclass(frozen=True, slots=True)
class ToolVerbs:
    """What the tools do. Verbs that are bound to a scope can neither see nor touch what lies outside it."""

    memory: Memory
    grant: Grant = EVERYTHING
    budget: int = DEFAULT_BUDGET
    stopped: Callable[[], bool] = lambda: False  # asked between the looks of a question

    @property
    def bound(self) -> bool:
        """Whether the server serves one scope, so that calls name none."""
        return not self.grant.admin

    def grant_for(self, given: schema.ScopeArguments) -> Grant:
        """What the call is about: the server's own scope, or the part of it that the call names."""
        return self.grant.part(validate.scope(given.user_id, given.agent_id, given.run_id))

    def _where(self, given: schema.WhereArguments, metadata: dict[str, Any] | None = None) -> Where:
        """Which notes the call is about, within what the server may see."""
        return self.grant.where(
            user_id=given.user_id, agent_id=given.agent_id, run_id=given.run_id, session=given.session,
            since=given.since, until=given.until, metadata=metadata,
        )  # fmt: skip

    def _note(self, note_id: str, given: schema.ScopeArguments) -> Note:
        return self.grant_for(given).find(note_id, self.memory.get)

    def add(self, given: schema.AddArguments) -> schema.AddResult:
        """Store a text or the turns of a conversation."""
        if (given.text is None) == (given.messages is None):
            raise InputError("give a text, or messages, and not both")
        check_expiry(given.expires_at)
        if given.supersedes is not None:
            return self._correct(given, given.supersedes)
        if given.messages == []:
            raise InputError("messages is empty: give one at least")
        what: Any = given.text if given.messages is None else [_turn(turn) for turn in given.messages]
        note_id = self._note_id(given.id)
        again = self._is_stored(note_id)
        with own_names({note_id or "": given.id or ""}):
            stored = self.memory.add(what, id=note_id, **asdict(self.grant_for(given).scope), **_said(given))
        return schema.AddResult(ids=[note.id for note in stored], stored=0 if again else len(stored))

    def _correct(self, given: schema.AddArguments, old: str) -> schema.AddResult:
        if given.text is None:
            raise InputError("a correction is one text: give text, not messages")
        new_id, said = self._note_id(given.id), _said(given)
        newest = self._newest(self._note(old, given), new_id)
        if new_id is None and newest.text == given.text and not any(said.values()):
            return schema.AddResult(ids=[newest.id], stored=0)
        again = self._is_stored(new_id)
        with own_names({newest.id: old, new_id or "": given.id or ""}):
            stored = self.memory.supersede(newest.id, given.text, new_id=new_id, **said)
        return schema.AddResult(ids=[stored.id], stored=0 if again else 1)

    def _newest(self, note: Note, new_id: str | None) -> Note:
        """The newest version of the note; of a correction that is made once more, the note that it corrects."""
        while note.superseded_by is not None and note.superseded_by != new_id:
            deadline.check()
            note = self.memory.get(note.superseded_by)
        return note

    def _is_stored(self, note_id: str | None) -> bool:
        with suppress(NotFoundError):
            return note_id is not None and bool(self.memory.get(note_id))
        return False

    def page(self, given: schema.ListArguments) -> schema.ListResult:
        """A page of memories, newest first."""
        where = self._where(given).unexpired(self.memory.now())
        notes = self.memory.store.all(where.scope, where.only, after=self._after(given), order="newest")
        page = list(islice(notes, given.limit + 1))
        shown = [schema.ListedItem.of(note) for note in page[: given.limit]]
        following = shown[-1].id if len(page) > given.limit else None
        return schema.ListResult(memories=shown, total=self._count(where), next=following)

    def _count(self, where: Where) -> int:
        """How many current notes there are; where the list is narrowed, they are gone through."""
        if not where.only:
            return self.memory.store.count(where.scope, superseded=False, now=where.only.now)
        return sum(1 for _ in self.memory.store.all(where.scope, where.only))

    def _after(self, given: schema.ListArguments) -> str | None:
        """The note that a cursor names: the last one of the page before."""
        try:
            return None if given.cursor is None else self._note(given.cursor, given).id
        except NotFoundError:
            raise InputError(
                "the cursor is not one that list_memories gave, or its memory is gone: list anew"
            ) from None

    def search(self, given: schema.SearchArguments) -> schema.SearchResult:
        """Ranked memories."""
        hits = self.memory.search(
            _words("query", given.query), where=self._where(given, given.metadata), top_k=given.top_k
        )
        found = [
            schema.FoundItem(
                id=hit.id, text=hit.text[: schema.LONGEST_EXCERPT], score=hit.score, rank=hit.rank,
                truncated=len(hit.text) > schema.LONGEST_EXCERPT, speaker=hit.note.speaker, session=hit.note.session,
                timestamp=hit.note.timestamp, duplicate_of=hit.duplicate_of,
            )
            for hit in hits
        ]  # fmt: skip
        return schema.SearchResult(results=found, count=len(found))

    def recall(self, given: schema.RecallArguments) -> schema.RecallResult:
        """The best text within the budget.

        Where nothing in memory is about the query it is every memory, whole, or no text where they do not fit: a word
        that notes put another way must not make them seem not to be there.
        """
        query, where, budget = _words("query", given.query), self._where(given), self._budget(given.budget)
        self._check_exclude(given.exclude)
        recall = self.memory.recall(query, budget, where=where, exclude=given.exclude or (), fill=False)
        if not recall.found and not where.only:
            recall = self._recall_all(query, budget, where) or recall
        return schema.RecallResult(
            text=recall.text, found=recall.found, tokens=recall.tokens, budget=recall.budget, action=recall.action,
            sources=_sources(recall.sources), tried=list(recall.tried), left_out=len(recall.dropped),
            more=recall.found and self._more(recall), warnings=list(recall.warnings),
        )  # fmt: skip

    def _recall_all(self, query: str, budget: int, where: Where) -> Recall | None:
        """Every note of the scope, whole; None where that is more than the budget, or than one recall looks at."""
        recall = self.memory.recall(query, budget, where=where, action=RETAIN)
        if not recall.text or any(drop.code != "duplicate" for drop in recall.dropped):
            return None
        held = self.memory.store.count(where.scope, superseded=False, now=where.unexpired(self.memory.now()).only.now)
        whole = all(source.whole for source in recall.sources) and held <= len(recall.cluster.hits)
        return recall if whole else None

    def _check_exclude(self, exclude: list[str] | None) -> None:
        able = usable(self.memory.chat)
        if set(able) <= set(exclude or ()):
            raise InputError(f"no other text is left: {', '.join(able)} were all tried")

    def _more(self, recall: Recall) -> bool:
        """Whether another action may show what this text left out."""
        left_out = bool(recall.dropped) or not all(source.whole for source in recall.sources)
        return left_out and bool(set(usable(self.memory.chat)).difference(recall.tried))

    def ask(self, given: schema.AskArguments) -> schema.AskResult:
        """The model's answer from what memory recalls."""
        if self.memory.chat is None:
            raise InputError(
                "ask_memory needs a model, and this server has none (--model or RETCON_MODEL): "
                "use recall_memories and read the text yourself"
            )
        answer = self.memory.ask(
            _words("question", given.question), self._budget(given.budget), where=self._where(given),
            max_looks=given.max_looks, safe=given.safe, wrong_cost=given.wrong_cost, seen=self._go_on,
        )  # fmt: skip
        return _ask_result(answer)

    def _go_on(self, look: Look) -> None:
        deadline.check()
        if self.stopped():
            raise StoppedError

    def get(self, given: schema.OneArguments) -> schema.MemoryItem:
        """One memory in full."""
        return schema.MemoryItem.of(self._note(given.id, given))

    def sources(self, given: schema.ManyArguments) -> schema.SourcesResult:
        """Memories in full, with their versions."""
        found: list[schema.Origin] = []
        missing: list[str] = []
        room = _Room()
        for note_id in dict.fromkeys(given.ids):
            try:
                found.append(self._origin(note_id, given, room))
            except NotFoundError:
                missing.append(note_id)
        if not found:
            raise NotFoundError(missing[0])
        return schema.SourcesResult(sources=found, missing=missing)

    def _origin(self, note_id: str, given: schema.ScopeArguments, room: _Room) -> schema.Origin:
        grant, note = self.grant_for(given), self._note(note_id, given)
        shown, more = [], False
        if note.supersedes is not None or note.superseded_by is not None:
            versions = grant.versions(note, self.memory.get)
            shown = [room.item(each) for each in room.while_left(versions)]
            more = next(versions, None) is not None
        return schema.Origin(memory=room.item(note), versions=shown if len(shown) > 1 or more else [], more=more)

    def delete(self, given: schema.OneArguments) -> schema.DeleteResult:
        """Delete one memory."""
        return _delete_result(self.memory.delete(self._note(given.id, given).id))

    def delete_all(self, given: schema.ScopeArguments) -> schema.DeleteResult:
        """Delete every memory of a scope."""
        scope = self.grant_for(given).scope
        if scope == Scope():
            raise InputError("name a user_id, agent_id or run_id: this tool never empties a whole store")
        return _delete_result(self.memory.delete_all(where=Where(scope)))

    def explain(self, given: schema.RecallArguments) -> schema.DecisionResult:
        """The decision alone."""
        query, where, budget = _words("query", given.query), self._where(given), self._budget(given.budget)
        self._check_exclude(given.exclude)
        decision = self.memory.decide(query, budget, where=where, exclude=given.exclude or (), fill=False)
        plain = decision.to_dict() | {"budget": decision.budget}
        return schema.DecisionResult(**{name: plain[name] for name in schema.DecisionResult.model_fields})

    def _note_id(self, chosen: str | None) -> str | None:
        return None if chosen is None else self.grant.name(chosen)

    def _budget(self, given: int | None) -> int:
        return self.budget if given is None else given


class _Room:
    """How much of notes an answer may still hold."""

    def __init__(self) -> None:
        self.left = schema.ROOM

    def item(self, note: Note) -> schema.MemoryItem:
        """The note, or its beginning where there is no room for more."""
        item = schema.MemoryItem.of(note)
        if item.cost > self.left:
            item = item.cut()
        self.left -= item.cost
        return item

    def while_left(self, notes: Iterator[Note]) -> Iterator[Note]:
        """The notes for which there is room."""
        while self.left > 0 and (note := next(notes, None)) is not None:
            yield note


def _words(what: str, given: str) -> str:
    """The query or question; one without a word in it is about nothing."""
    if not given.strip():
        raise InputError(f"{what} is empty: say what to look for; list_memories shows all that there is")
    return given


def _turn(turn: schema.Message) -> dict[str, Any]:
    return turn.model_dump(exclude_none=True)


def _said(given: schema.AddArguments) -> dict[str, Any]:
    """What a note may say beside its text."""
    return {name: getattr(given, name) for name in ("session", "speaker", "timestamp", "metadata", "expires_at")}


def _sources(sources: tuple[Source, ...]) -> list[schema.SourceItem]:
    return [schema.SourceItem(id=each.id, whole=each.whole, timestamp=each.timestamp) for each in sources]


def _delete_result(deleted: Deleted) -> schema.DeleteResult:
    return schema.DeleteResult(deleted=deleted.notes, records=deleted.records, warning=deleted.warning)


def _ask_result(answer: Answer) -> schema.AskResult:
    looks = [
        schema.LookItem(action=look.recall.action, tokens=look.recall.tokens, answered=not look.abstained)
        for look in answer.looks
    ]
    sure = answer.confidence
    return schema.AskResult(
        answer=answer.text, in_memory=answer.text is not None, looks=looks,
        confidence=None if sure is None else round(sure, 2), refused=answer.refused,
        sources=_sources(answer.look.recall.sources), model_calls=answer.usage.model_calls,
        model_tokens=answer.usage.tokens, warnings=list(answer.warnings),
    )  # fmt: skip
