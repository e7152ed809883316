"""One function a verb: a grant and a request -> plain JSON values.

Whatever a request names, it is answered within the grant's scope. A note outside of it does not exist for the caller:
the same error, word for word, as for an id that nobody has.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from retcon import deadline, validate
from retcon.errors import InputError, NotFoundError
from retcon.grant import IDS, Grant, own_names
from retcon.ladder import Answer, Look
from retcon.memory import Memory
from retcon.note import Decision, Hit, Note, Recall, Scope
from retcon.operate import ACTIONS, usable
from retcon.route import Router
from retcon.screen import screen
from retcon.server.cursors import Cursors
from retcon.server.idempotency import KeyedWrite
from retcon.server.limits import Limits
from retcon.server.refusals import Refusal
from retcon.server.schema import (
    AddIn,
    AskIn,
    DecideIn,
    HistoryQuery,
    ListQuery,
    RecallIn,
    ScopeQuery,
    SearchIn,
    SupersedeIn,
    WhereIn,
    parse_json,
)
from retcon.server.stream import Event
from retcon.serving import check_expiry
from retcon.store import Deleted
from retcon.store.service import Lock
from retcon.trace import span
from retcon.where import Where

_WHERE: tuple[Literal["user_id", "agent_id", "run_id", "session", "since", "until", "metadata", "filters"], ...]
_WHERE = ("user_id", "agent_id", "run_id", "session", "since", "until", "metadata", "filters")  # of a request
_CORRECTED = ("session", "speaker", "timestamp", "metadata", "expires_at")  # what a correction may say beside its text
_SHOWN = ("id", "speaker", "timestamp", "session")  # of a candidate, beside its text
BRIEF = 200  # characters of a note in an answer that is full


@dataclass(frozen=True, slots=True)
class Write:
    """A write in two parts: doing it, and the answer made of what was kept of the doing.

    What is kept holds no text. `asked` is all that makes two requests the same.
    """

    asked: Sequence[Any]
    do: Callable[[KeyedWrite | None], Any]
    answer: Callable[[Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class HttpVerbs:
    """The verbs of one memory, within limits."""

    memory: Memory
    limits: Limits
    cursors: Cursors

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, grant: Grant, body: AddIn) -> Write:
        """The write that stores notes."""
        what = _one_of(messages=body.messages, text=body.text, memory=body.memory)
        names: dict[str, str] = {}  # ids of notes -> what the caller calls them
        drafts = self._drafts(grant, what, body, names)

        def do(keyed: KeyedWrite | None) -> Any:
            linked = self._link(grant, drafts, names)
            named = [_name_draft(draft, keyed, number) for number, draft in enumerate(linked)]
            self.check_quota(grant, [draft.get("id") for draft in named])
            known = {name for name in names if self._is_stored(name)}
            single = isinstance(what, (str, Mapping))
            with span("retcon.add", notes=len(named)), own_names(names):
                stored = self.memory.add(named[0] if single and named else named)
            return [[note.id, note.created_at, *(["NONE"] if note.id in known else [])] for note in stored]

        def answer(kept: Any) -> dict[str, Any]:
            pairs = zip(kept, drafts, strict=True)
            return {"results": [self._added(*each, text=draft["text"]) for each, draft in pairs]}

        return Write(["add", body.model_dump()], do, answer)

    def _added(self, note_id: str, created_at: str, event: str = "ADD", *, text: str) -> dict[str, Any]:
        return _event(event, note_id, created_at, self._text(note_id, text))

    def supersede(self, grant: Grant, note_id: str, body: SupersedeIn) -> Write:
        """The write that corrects a note."""
        return self._correct("supersede", grant, note_id, body)

    def update(self, grant: Grant, note_id: str, body: SupersedeIn) -> Write:
        """The write that corrects the newest version of a note; the same words again change nothing."""
        return self._correct("update", grant, note_id, body)

    def _correct(self, verb: str, grant: Grant, note_id: str, body: SupersedeIn) -> Write:
        text = _one_of(text=body.text, memory=body.memory)
        self._check_length("text", text, self.limits.text)
        check_expiry(body.expires_at)
        chosen = None if body.new_id is None else grant.name(body.new_id)
        fields = {name: getattr(body, name) for name in _CORRECTED}

        def do(keyed: KeyedWrite | None) -> Any:
            old = grant.find(note_id, self.memory.get)
            if verb == "update":
                old = self._newest(old)
                if chosen is None and self._says(old, text, fields):
                    return [old.id, old.created_at, None]
            names = {old.id: note_id} | ({} if chosen is None else {chosen: body.new_id or ""})
            new_id = chosen or (keyed.note_id(0) if keyed else None)
            with span("retcon.supersede"), own_names(names):
                stored = self._find_done(new_id, old) if keyed else None
                if stored is None:
                    self.check_quota(grant, [new_id])
                    stored = self.memory.supersede(old.id, text, new_id=new_id, **fields)
            return [stored.id, stored.created_at, old.id]

        def answer(kept: Any) -> dict[str, Any]:
            new_id, created_at, older = kept
            told = _event("NONE" if older is None else "UPDATE", new_id, created_at, self._text(new_id, text))
            return told if older is None else told | {"supersedes": older}

        return Write([verb, note_id, body.model_dump()], do, answer)

    def _says(self, note: Note, text: str, fields: Mapping[str, Any]) -> bool:
        """Whether the note says this already, as the memory's hook would store it."""
        given = {name: value for name, value in fields.items() if value is not None}
        draft = validate.note({"id": note.id, "text": text, **given}, created_at=note.created_at or "")
        (asked,) = screen([draft], self.memory.before_store)
        return asked.text == note.text and all(getattr(asked, name) == getattr(note, name) for name in given)

    def _newest(self, note: Note) -> Note:
        while note.superseded_by is not None:
            deadline.check()
            note = self.memory.get(note.superseded_by)
        return note

    def _text(self, note_id: str, sent: str) -> str:
        """The text as it was stored, which the memory's hook may have changed; empty where the note is gone again."""
        if self.memory.before_store is None:
            return sent
        with suppress(NotFoundError):
            return self.memory.get(note_id).text
        return ""

    def delete(self, grant: Grant, note_id: str) -> Write:
        """The write that deletes a note with all its versions, and all that stands on them."""

        def do(_: KeyedWrite | None) -> Any:
            note = grant.find(note_id, self.memory.get)
            with span("retcon.delete"):
                return _deletion(self.memory.delete(note.id), grant)

        return Write(["delete", note_id], do, _deletion_answer)

    def delete_all(self, grant: Grant, query: ScopeQuery) -> Write:
        """The write that deletes all notes of a scope."""
        named = validate.scope(query.user_id, query.agent_id, query.run_id)
        if named == Scope():
            raise InputError("name a user_id, agent_id or run_id whose notes to delete")
        where = Where(grant.narrow(named))

        def do(_: KeyedWrite | None) -> Any:
            with span("retcon.delete_all"):
                return _deletion(self.memory.delete_all(where=where), grant)

        return Write(["delete_all", asdict(named)], do, _deletion_answer)

    def _drafts(self, grant: Grant, what: Any, body: AddIn, names: dict[str, str]) -> list[dict[str, Any]]:
        """The fields of each note, every one of them within the grant; `names` gets the caller's names of them."""
        if what == []:
            raise InputError("messages is empty: give one at least")
        if isinstance(what, list) and len(what) > self.limits.messages:
            raise _too_much("messages", len(what), self.limits.messages)
        if body.id is not None and isinstance(what, list):
            raise InputError("an id names one note: give each item of a list its own 'id'")
        shared = {name: getattr(body, name) for name in (*IDS, "id", *_CORRECTED)}
        drafts = list(validate.drafts(what, **shared))
        for draft in drafts:
            scope = grant.narrow(validate.scope(*(draft.get(name) for name in IDS)))
            draft |= {name: value for name in IDS if (value := getattr(scope, name)) is not None}
            self._check_length("text", draft["text"], self.limits.text)
            check_expiry(draft.get("expires_at"))
            if "id" in draft:
                given, draft["id"] = draft["id"], grant.name(draft["id"])
                names[draft["id"]] = given
        return drafts

    def _link(self, grant: Grant, drafts: Sequence[dict[str, Any]], names: dict[str, str]) -> Iterator[dict[str, Any]]:
        """The drafts, the notes that they follow or supersede being the caller's own, or of the same add."""
        known = {draft.get("id") for draft in drafts}
        for draft in drafts:
            links = {link: draft[link] for link in ("follows", "supersedes") if draft.get(link) is not None}
            ours = {link: grant.name(given) for link, given in links.items()}
            found = {
                link: ours[link] if ours[link] in known else grant.find(links[link], self.memory.get).id
                for link in links
            }
            names |= {found[link]: given for link, given in links.items()}
            yield draft | found

    def check_quota(self, grant: Grant, ids: Sequence[str | None]) -> None:
        """Nothing, or an error where so many new notes are over the quota; one that is stored already is none."""
        most = self.limits.key_notes
        if not most or grant.admin:
            return
        held = self.memory.store.count(grant.scope)
        if held + len(ids) <= most:
            return
        new = sum(each is None or not self._is_stored(each) for each in ids)
        if held + new > most:
            message = f"this key has {held:,} notes, {new:,} more are over its quota of {most:,}; nothing was written"
            raise Refusal(507, "quota", message)

    def quota_locks(self, grant: Grant) -> tuple[Lock, ...]:
        """What a write of this key locks, so that nobody else adds between its count and its add.

        Keys that share notes have an id in common: one of them holds all of the other's.
        """
        if not self.limits.key_notes or grant.admin:
            return ()
        return tuple(("quota", name, value) for name in IDS if (value := getattr(grant.scope, name)) is not None)

    def _is_stored(self, note_id: str) -> bool:
        with suppress(NotFoundError):
            return bool(self.memory.get(note_id))
        return False

    def _find_done(self, new_id: str | None, old: Note) -> Note | None:
        """The correction, where it was written and the server was stopped before it could remember so."""
        newer = old.superseded_by
        return self.memory.get(newer) if newer is not None and newer == new_id else None

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, grant: Grant, note_id: str) -> dict[str, Any]:
        """One note."""
        return _note(grant.find(note_id, self.memory.get))

    def history(self, grant: Grant, note_id: str, query: HistoryQuery) -> dict[str, Any]:
        """Every version of a note, oldest first, and the cursor of the page after."""
        note = grant.find(note_id, self.memory.get)
        after = None if query.cursor is None else _read_version(query.cursor)
        try:
            results, more = self._fill(grant.versions(note, self.memory.get, after=after), self.limits.page)
        except NotFoundError:
            raise InputError("the cursor is not one that this server gave, or its note is gone") from None
        return {"results": results, "next": _write_version(results[-1]["id"]) if more else None}

    def sources(self, grant: Grant, note_id: str) -> dict[str, Any]:
        """The raw notes behind a note, which is itself, or behind a generated record."""
        kept = self.memory.store.get_record(validate.note_id(note_id))
        if kept is None:
            note = self.get(grant, note_id)
            return {"id": note["id"], "kind": "note", "results": [note]}
        record = json.loads(kept[1])["record"]
        try:
            notes = [grant.find(each, self.memory.get) for each in record["sources"]]
        except NotFoundError:
            raise NotFoundError(note_id) from None
        return {
            "id": note_id, "kind": "record", "action": record["action"],
            "results": list(self._shorten([_note(note) for note in notes])),
        }  # fmt: skip

    def page(self, grant: Grant, query: ListQuery) -> dict[str, Any]:
        """Notes in the order asked for, the cursor of the page after, and how many there are in all."""
        if query.limit > self.limits.page:
            raise _too_much("limit", query.limit, self.limits.page)
        where = grant.where(
            user_id=query.user_id, agent_id=query.agent_id, run_id=query.run_id, session=query.session,
            since=query.since, until=query.until, metadata=_parse_object("metadata", query.metadata),
            filters=_parse_object("filters", query.filters),
        )  # fmt: skip
        where = where if query.expired else where.unexpired(self.memory.now())
        start, offset, asked = 0, query.offset, _listed(query)
        if query.cursor is not None:
            start, offset = self.cursors.read(grant, asked, query.cursor), 0
        listed = self.memory.store.all(
            where.scope, where.only, after=start or None, superseded=query.superseded, order=query.order
        )
        with span("retcon.list", limit=query.limit):
            results, more = self._fill(_from_number(offset, listed), query.limit)
            cursor = self.cursors.write(grant, asked, self._place(results, start)) if more else None
        total = None
        if not where.only:
            total = self.memory.store.count(where.scope, superseded=query.superseded, now=where.only.now)
        return {"results": results, "next": cursor, "total": total}

    def search(self, grant: Grant, body: SearchIn) -> dict[str, Any]:
        """The best notes for the query."""
        where = self._where(grant, body)
        self._check_length("query", body.query, self.limits.query)
        top_k = body.top_k or body.limit or min(self.memory.top_k, self.limits.top_k)
        if top_k > self.limits.top_k:
            raise _too_much("top_k", top_k, self.limits.top_k)
        with span("retcon.search", top_k=top_k) as current:
            hits = self.memory.search(body.query, top_k=top_k, where=where)
            current.set_attribute("results", len(hits))
        least = -1.0 if body.threshold is None else body.threshold
        return {"results": list(self._shorten([_hit(hit) for hit in hits if hit.score >= least]))}

    def decide(self, grant: Grant, body: DecideIn) -> dict[str, Any]:
        """The decision alone, with what each feature adds to it."""
        self._check_query(body)
        self._check_actions(None, body.exclude)
        where = self._where(grant, body)
        with span("retcon.decide", budget=body.budget) as current:
            found = self.memory.decide(
                body.query, body.budget, where=where, exclude=tuple(body.exclude), safe=body.safe, fill=body.fill
            )
            current.set_attribute("action", found.action)
        parts = contributions(self.memory.router, found)
        return found.to_dict() | {"contributions": parts, "actions": list(usable(self.memory.chat))}

    def recall(self, grant: Grant, body: RecallIn) -> dict[str, Any]:
        """The best text within the budget; with `candidates`, every candidate and what became of it."""
        self._check_query(body)
        self._check_actions(body.action, body.exclude)
        where = self._where(grant, body)
        with span("retcon.recall", budget=body.budget) as current:
            found = self.memory.recall(
                body.query, body.budget, where=where, action=body.action, exclude=tuple(body.exclude),
                safe=body.safe, drafts=body.drafts, fill=body.fill,
            )  # fmt: skip
            current.set_attribute("action", found.action)
            current.set_attribute("tokens", found.tokens)
        plain = found.to_dict()
        return plain | {"candidates": self._candidates(found)} if body.candidates else plain

    def ask(self, grant: Grant, body: AskIn) -> dict[str, Any]:
        """The reader's answer and the looks that led to it; once it is late, no further one is taken."""
        *_, last = self.ask_stream(grant, body)
        return last.data

    def ask_stream(self, grant: Grant, body: AskIn) -> Iterator[Event]:
        """An event `seen` for each look as it happens, then `answer`.

        Looks that nobody read wait for one that was: where the model fails at every look, there is no event before the
        error.
        """
        question = _one_of(question=body.question, query=body.query)
        if self.memory.chat is None:
            raise Refusal(422, "no_model", "this server has no model to ask: recall gives the text to read yourself")
        where = self._where(grant, body)
        self._check_length("question", question, self.limits.query)
        self._check_budget(body.budget)
        with span("retcon.ask", budget=body.budget) as current:
            looks = self.memory.ask_stream(
                question, body.budget, where=where, max_looks=body.max_looks, max_tokens=body.max_tokens,
                safe=body.safe, wrong_cost=body.wrong_cost, fill=body.fill,
            )  # fmt: skip
            held: list[Event] = []
            for number, step in enumerate(looks):
                if isinstance(step, Answer):
                    current.set_attribute("looks", number)
                    yield from (*held, Event("answer", step.to_dict()))
                else:
                    held.append(Event("seen", _seen(step, number + 1)))
                    if step.error is None and step.recall.text:
                        yield from held
                        held = []
                    deadline.check()

    def count(self, grant: Grant) -> int:
        """How many notes the caller may see."""
        return self.memory.store.count(grant.scope)

    def _candidates(self, recall: Recall) -> list[dict[str, Any]]:
        hits = recall.cluster.retrieved if recall.cluster else ()
        used = {source.id: source for source in recall.sources}
        why = {dropped.id: dropped.reason for dropped in recall.dropped}
        out = []
        for hit in hits:
            source = used.get(hit.id)
            status = "dropped" if source is None else "kept" if source.whole else "cut"
            plain = {"memory": hit.text} | {name: getattr(hit.note, name) for name in _SHOWN}
            plain |= {"score": hit.score, "status": status, "used": None if source is None else source.text}
            out.append(plain | {"reason": why.get(hit.id) if source is None else None})
        return list(self._shorten(out))

    # -- checks --------------------------------------------------------------------------------------------------------

    def _place(self, results: Sequence[dict[str, Any]], start: int) -> int:
        """Where a page ends: the place of its last note that is still there, or where the page began."""
        for note in reversed(results):
            with suppress(NotFoundError):
                return self.memory.store.place(note["id"])
        return start

    def _fill(self, notes: Iterator[Note], most: int) -> tuple[list[dict[str, Any]], bool]:
        """As many of the notes as one answer may hold, one at least, and whether there are more."""
        out: list[dict[str, Any]] = []
        room = self.limits.page_bytes
        for note in notes:
            deadline.check()
            plain = _note(note)
            room -= _weight(plain)
            if out and (len(out) >= most or room < 0):
                return out, True
            out.append(plain)
        return out, False

    def _shorten(self, entries: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The entries, all of them, those for whose text the answer has no room with its beginning."""
        room = self.limits.page_bytes
        for number, entry in enumerate(entries):
            weight = _weight(entry)
            if number and weight > room:
                yield _cut(entry)
            else:
                room -= weight
                yield entry

    def _where(self, grant: Grant, body: WhereIn) -> Where:
        """Which notes a request is about."""
        return grant.where(**{name: getattr(body, name) for name in _WHERE})

    def _check_query(self, body: DecideIn) -> None:
        self._check_length("query", body.query, self.limits.query)
        self._check_budget(body.budget)

    def _check_actions(self, action: str | None, exclude: Sequence[str]) -> None:
        able = usable(self.memory.chat)
        if action in ACTIONS and action not in able:
            message = f"{action} needs a model, and this server has none; without one: {', '.join(able)}"
            raise Refusal(422, "no_model", message)
        if action is None and set(able) <= set(exclude):
            raise InputError(f"no action is left: exclude names all of {', '.join(able)}")

    def _check_budget(self, budget: int) -> None:
        if budget > self.limits.budget:
            raise _too_much("budget", budget, self.limits.budget)

    def _check_length(self, what: str, text: object, most: int) -> None:
        if isinstance(text, str) and len(text) > most:
            raise Refusal(422, "too_long", f"{what} has {len(text):,} characters, this server takes {most:,} at most")


def contributions(router: Router, decision: Decision) -> dict[str, dict[str, float]]:
    """What each feature adds to the utility of each action that was weighed; they sum up to that utility."""
    return {
        action: {
            name: weight * decision.features[name]
            for name, weight in zip(router.features, router.weights[action], strict=True)
        }
        | {"intercept": router.intercepts[action]}
        for action in decision.utilities
    }


# -- small parts -------------------------------------------------------------------------------------------------------


def _one_of(**given: Any) -> Any:
    found = [value for value in given.values() if value is not None]
    if len(found) != 1:
        raise InputError(f"give {' or '.join(given)}, one of them")
    return found[0]


def _name_draft(draft: dict[str, Any], keyed: KeyedWrite | None, number: int) -> dict[str, Any]:
    return draft if keyed is None or "id" in draft else {**draft, "id": keyed.note_id(number)}


def _note(note: Note) -> dict[str, Any]:
    rest = {name: value for name, value in note.to_dict().items() if name not in ("id", "text")}
    return {"id": note.id, "memory": note.text, **rest}


def _cut(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry without what may be long."""
    left = {name: value for name, value in entry.items() if name != "metadata"}
    return left | {"memory": entry["memory"][:BRIEF], "truncated": True} | ({"used": None} if "used" in left else {})


def _weight(plain: dict[str, Any]) -> int:
    """Bytes of the values as they are sent, about."""
    return len(json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")) + 1


def _hit(hit: Hit) -> dict[str, Any]:
    plain = _note(hit.note) | {"score": hit.score, "rank": hit.rank}
    return plain | ({"duplicate_of": hit.duplicate_of} if hit.duplicate_of else {})


def _seen(look: Look, number: int) -> dict[str, Any]:
    """A look in brief: the answer at the end holds all of it."""
    told = look.to_dict()
    brief = {name: told[name] for name in ("action", "abstained", "confidence", "error", "usage")}
    brief["abstained"] = look.abstained and look.error is None  # a reader that failed has not read it
    return {"look": number, **brief, "tokens": look.recall.tokens, "budget": look.recall.budget}


def _event(event: str, note_id: str, created_at: str, text: str) -> dict[str, Any]:
    return {"id": note_id, "memory": text, "event": event, "created_at": created_at}


def _deletion(deleted: Deleted, grant: Grant) -> dict[str, Any]:
    """What may be told: how the file lies on disk depends on everybody's notes."""
    if not grant.admin:
        return {"deleted": deleted.notes}
    told = {"deleted": deleted.notes, "purged": deleted.purged}
    return told | ({"warning": deleted.warning} if deleted.warning else {})


def _deletion_answer(kept: Any) -> dict[str, Any]:
    number = kept["deleted"]
    return {"message": f"deleted {number} note{'' if number == 1 else 's'}", **kept}


def _too_much(what: str, given: int, most: int) -> Refusal:
    shown = f"{given:,}" if abs(given) < 10**15 else "a huge number"
    return Refusal(422, "too_much", f"{what} is {shown}, this server takes {most:,} at most")


def _parse_object(what: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = parse_json(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{what} is a JSON object")
    return found


def _listed(query: ListQuery) -> str:
    """What makes the pages of two requests pages of one list."""
    return query.model_dump_json(exclude={"limit", "offset", "cursor"})


def _from_number(number: int, notes: Iterator[Note]) -> Iterator[Note]:
    for each, note in enumerate(notes):
        deadline.check()
        if each >= number:
            yield note


def _write_version(note_id: str) -> str:
    """The cursor of a history: the last version that was shown."""
    return base64.urlsafe_b64encode(note_id.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _read_version(cursor: str) -> str:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        raise InputError("the cursor is not one that this server gave") from None
