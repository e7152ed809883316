"""Decision, cluster -> what was done in the end: the decided action, or the best action without a model in its place.

A generated text is a view. It is kept under a hash of all that made it (action, prompt version, model, budget, counter,
focus, source texts), found again when the same cluster, budget and focus return, and gone with any of its sources. It
is always written from raw notes and checked against them. Whatever fails, the caller gets text and a warning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Literal

from retcon.cache import CachedChat, owners
from retcon.errors import (
    DeadlineError,
    InputError,
    MalformedReplyError,
    ModelError,
    NotFoundError,
    RetconError,
    StoreError,
)
from retcon.model import Ask, Chat, Reply
from retcon.note import RETAIN, Cluster, Decision, Dropped, Fidelity, Note, Packed, Record, Source, Usage
from retcon.operate import ACTIONS, Made, operate, spent, usable
from retcon.store.sqlite import SqliteStore
from retcon.tokens import Counter
from retcon.trace import span

Guard = Literal["warn", "strict"]
GUARDS = ("warn", "strict")


@dataclass(frozen=True, slots=True)
class Took:
    """What was done in the end, and what came of it."""

    action: str
    made: Made
    warnings: tuple[str, ...] = ()
    record: Record | None = None
    fidelity: Fidelity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Performer:
    """Runs actions for a memory. Without a chat model, those that need none."""

    store: SqliteStore
    count: Counter
    chat: Chat | None
    focus: bool
    guard: Guard

    def perform(self, cluster: Cluster, decision: Decision, safe: Callable[[], str]) -> Took:
        """What the decided action made; where it fails, what the action named by `safe` made."""
        action, meter = decision.action, None if self.chat is None else Meter(self.chat)
        if ACTIONS[action].needs_model and meter is None:
            raise InputError(f"{action} needs a model: Memory(model=...); without one: {', '.join(usable(None))}")
        try:
            took = self._take(action, cluster, decision.budget, meter)
        except DeadlineError:  # no time for another action either
            raise
        except Exception as error:  # an action may be anybody's code: recall survives it
            return self._fallen_back(cluster, decision, safe, _line(error), _usage(meter))
        took = replace(took, made=replace(took.made, usage=_usage(meter)))
        if took.made.packed.text or not cluster.hits or not decision.budget:
            return self._guarded(took, cluster, decision, safe)
        if not ACTIONS[action].needs_model:
            return self._retained(cluster, decision)
        why = f"it wrote nothing that fits {decision.budget} tokens"
        return self._fallen_back(cluster, decision, safe, why, took.made.usage)

    def _take(self, action: str, cluster: Cluster, budget: int, meter: Meter | None) -> Took:
        if meter is not None and ACTIONS[action].needs_model:
            return self._generate(action, cluster, budget, meter)
        return Took(action, self._operate(action, cluster, budget))

    def _guarded(self, took: Took, cluster: Cluster, decision: Decision, safe: Callable[[], str]) -> Took:
        if took.fidelity is None or took.fidelity.ok:
            return took
        doubts = f"no source supports {doubtful(took.fidelity)}"
        if self.guard == "strict":
            return self._fallen_back(cluster, decision, safe, doubts, took.made.usage)
        return replace(took, warnings=(f"the {took.action} record may be wrong: {doubts}",))

    def _fallen_back(
        self, cluster: Cluster, decision: Decision, safe: Callable[[], str], why: str, usage: Usage
    ) -> Took:
        action, made = safe(), Made(Packed("", 0))
        try:
            made = self._operate(action, cluster, decision.budget)
        except DeadlineError:
            raise
        except Exception:  # what fails here fails again, or is as good as nothing
            pass
        if not made.packed.text:
            action, made = RETAIN, self._operate(RETAIN, cluster, decision.budget)
        warning = f"{decision.action} failed, so {action} took its place: {why}"
        return Took(action, replace(made, usage=usage), (warning,))

    def _retained(self, cluster: Cluster, decision: Decision) -> Took:
        """Whole notes where an action without a model found nothing to say; that action's nothing where none fits."""
        made = self._operate(RETAIN, cluster, decision.budget)
        if not made.packed.text:
            return Took(decision.action, made)
        why = f"{decision.action} found nothing to say within {decision.budget} tokens, so notes are retained"
        return Took(RETAIN, made, (why,))

    def _operate(self, action: str, cluster: Cluster, budget: int) -> Made:
        return operate(action, cluster, budget, count=self.count)

    def _generate(self, action: str, cluster: Cluster, budget: int, meter: Meter) -> Took:
        """The record on file for just this cluster, budget and focus, else a new one; checked against its sources."""
        record = identify(action, cluster, budget, chat=meter, count=self.count, focus=self.focus)
        made = _revived(self.store.get_record(record.id), cluster, self.count)
        if made is not None and made.packed.tokens <= budget:
            record = replace(record, reused=True)
        else:
            owned = owners(cluster.notes)
            cached = CachedChat(meter, self.store, record.version, about=record.sources, owned=owned)
            with span("retcon.generate", action=action):
                made = operate(action, cluster, budget, count=self.count, chat=cached, focus=self.focus)
            if not cached.hits + cached.misses or not made.packed.text:
                return Took(action, made)  # it did without the model, or has nothing to show
            self._keep(record, budget, made)
        from retcon.fidelity import check  # loaded at the first record: its patterns take a while to compile

        used = {source.id for source in made.packed.sources}
        sources = [note for note in cluster.notes if note.id in used]
        return Took(action, made, (), record, check(made.packed.text, sources, query=cluster.query))

    def _keep(self, record: Record, budget: int, made: Made) -> None:
        used = [[source.id, source.whole] for source in made.packed.sources]
        about = {"record": asdict(record), "used": used, "dropped": [asdict(drop) for drop in made.packed.dropped]}
        with suppress(StoreError, NotFoundError):  # a record is a view: one that cannot be kept is written again
            self.store.put_record(
                record.id, action=record.action, budget=budget, text=made.packed.text, about=json.dumps(about),
                sources=record.sources,
            )  # fmt: skip


class Meter:
    """A model that adds up what it is asked, and answers as the protocol says or raises a ModelError."""

    def __init__(self, chat: Chat) -> None:
        self.chat, self.name, self.kind = chat, chat.name, chat.kind
        self.usage = Usage()  # of real calls: what a cache answers is free

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        self.usage += Usage(model_calls=len(asks))
        try:
            replies = list(self.chat(asks))
        except RetconError:
            raise
        except Exception as error:
            raise ModelError(f"{self.name} failed: {_line(error)}") from error
        if len(replies) != len(asks):
            raise MalformedReplyError(f"{self.name}: {len(replies)} replies to {len(asks)} asks")
        checked = [self._checked(reply) for reply in replies]
        self.usage += replace(spent([reply for reply in checked if isinstance(reply, Reply)]), model_calls=0)
        return checked

    def _checked(self, reply: object) -> Reply | ModelError:
        if isinstance(reply, ModelError):
            return reply
        if not isinstance(reply, Reply) or not isinstance(reply.text, str):
            return MalformedReplyError(f"{self.name}: a {type(reply).__name__} is no reply with text")
        return replace(reply, text=reply.text.encode("utf-8", "replace").decode())  # SQLite takes no half surrogates


def identify(action: str, cluster: Cluster, budget: int, *, chat: Chat, count: Counter, focus: bool) -> Record:
    """The record that this action would write, under a hash of everything that changes its text.

    Written without focus by an action that is not ranked, it serves every query that finds the same notes, in whatever
    order.
    """
    notes: Sequence[Note] = cluster.notes
    if not focus and not ACTIONS[action].ranked:
        notes = sorted(notes, key=lambda note: note.id)
    sources = tuple(note.id for note in notes)
    texts = [[note.text, note.speaker, note.timestamp, note.follows, note.created_at] for note in notes]
    content, version = _hash(texts), ACTIONS[action].version
    about = [chat.kind, chat.name, count.name, cluster.query if focus else None]
    key = _hash([2, action, version, budget, focus, *about, sources, content])
    return Record(key, action, chat.name, version, focus, content, sources)


def doubtful(fidelity: Fidelity) -> str:
    """The claims that make a record doubtful, in words, at most three."""
    claims = [claim for claim in fidelity.unsupported if claim.kind in ("number", "date", "name")]
    claims += [ours for ours, _ in fidelity.mutated]
    named = ", ".join(f"the {claim.kind} {claim.text!r}" for claim in claims[:3])
    return named + (f" and {len(claims) - 3} more" if len(claims) > 3 else "")


def _revived(kept: tuple[str, str] | None, cluster: Cluster, count: Counter) -> Made | None:
    """What a kept record (text, about) gives for the cluster it was written from."""
    if kept is None:
        return None
    text, about = kept[0], json.loads(kept[1])
    notes = {note.id: note for note in cluster.notes}
    used = [(notes[each], whole) for each, whole in about["used"]]
    sources = tuple(Source(note.id, note.text, whole, note.timestamp) for note, whole in used)
    return Made(Packed(text, count(text), sources, tuple(Dropped(**drop) for drop in about["dropped"])))


def _usage(meter: Meter | None) -> Usage:
    return Usage() if meter is None else meter.usage


def _line(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def _hash(value: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()
