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

from retcon.cache import CachedChat
from retcon.errors import InputError, NotFoundError, StoreError
from retcon.fidelity import check
from retcon.model import Chat
from retcon.note import RETAIN, Cluster, Decision, Fidelity, Packed, Record, Source, Usage
from retcon.operate import ACTIONS, Made, operate, usable
from retcon.store.sqlite import SqliteStore
from retcon.tokens import Counter

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
        action, budget = decision.action, decision.budget
        if not ACTIONS[action].needs_model:
            made = self._operate(action, cluster, budget)
            return Took(action, made) if made.packed.text else self._retained(cluster, decision)
        if self.chat is None:
            raise InputError(f"{action} needs a model: Memory(model=...); without one: {', '.join(usable(None))}")
        try:
            took = self._generate(action, cluster, budget, self.chat)
        except Exception as error:  # an operator may be anybody's code: recall survives it
            return self._fallen_back(cluster, decision, safe, " ".join(str(error).split()) or type(error).__name__)
        if cluster.hits and not took.made.packed.text:
            return self._fallen_back(cluster, decision, safe, "it wrote nothing that fits", took.made.usage)
        return self._guarded(took, cluster, decision, safe)

    def _guarded(self, took: Took, cluster: Cluster, decision: Decision, safe: Callable[[], str]) -> Took:
        if took.fidelity is None or took.fidelity.ok:
            return took
        doubts = f"no source supports {doubtful(took.fidelity)}"
        if self.guard == "strict":
            return self._fallen_back(cluster, decision, safe, doubts, took.made.usage)
        return replace(took, warnings=(f"the {took.action} record may be wrong: {doubts}",))

    def _fallen_back(
        self, cluster: Cluster, decision: Decision, safe: Callable[[], str], why: str, spent: Usage | None = None
    ) -> Took:
        action = safe()
        made = self._operate(action, cluster, decision.budget)
        if not made.packed.text:
            action, made = RETAIN, self._operate(RETAIN, cluster, decision.budget)
        warning = f"{decision.action} failed, so {action} took its place: {why}"
        return Took(action, replace(made, usage=spent or made.usage), (warning,))

    def _retained(self, cluster: Cluster, decision: Decision) -> Took:
        """Whole notes where an action without a model found nothing to say; that action's nothing where none fits."""
        made = self._operate(RETAIN, cluster, decision.budget)
        if not made.packed.text:
            return Took(decision.action, made)
        why = f"{decision.action} found nothing to say within {decision.budget} tokens, so notes are retained"
        return Took(RETAIN, made, (why,))

    def _operate(self, action: str, cluster: Cluster, budget: int) -> Made:
        return operate(action, cluster, budget, count=self.count)

    def _generate(self, action: str, cluster: Cluster, budget: int, chat: Chat) -> Took:
        """The record on file for just this cluster, budget and focus, else a new one; checked against its sources."""
        record = identify(action, cluster, budget, chat=chat, count=self.count, focus=self.focus)
        made = _revived(self.store.get_record(record.id), cluster, self.count)
        if made is not None and made.packed.tokens <= budget:
            record = replace(record, reused=True)
        else:
            cached = CachedChat(chat, self.store, record.version, about=record.sources)
            made = operate(action, cluster, budget, count=self.count, chat=cached, focus=self.focus)
            self._keep(record, budget, made)
        used = {source.id for source in made.packed.sources}
        sources = [note for note in cluster.notes if note.id in used]
        return Took(action, made, (), record, check(made.packed.text, sources, query=cluster.query))

    def _keep(self, record: Record, budget: int, made: Made) -> None:
        if not made.packed.text:
            return
        about = json.dumps({"record": asdict(record), "used": [source.id for source in made.packed.sources]})
        with suppress(StoreError, NotFoundError):  # a record is a view: one that cannot be kept is written again
            self.store.put_record(
                record.id, action=record.action, budget=budget, text=made.packed.text, about=about,
                sources=record.sources,
            )  # fmt: skip


def identify(action: str, cluster: Cluster, budget: int, *, chat: Chat, count: Counter, focus: bool) -> Record:
    """The record that this action would write, under a hash of everything that changes its text."""
    sources = tuple(note.id for note in cluster.notes)
    texts = [[note.text, note.speaker, note.timestamp] for note in cluster.notes]
    content, version = _hash(texts), ACTIONS[action].version
    about = [chat.kind, chat.name, count.name, cluster.query if focus else None]
    key = _hash([1, action, version, budget, focus, *about, sources, content])
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
    text, about = kept
    used = set(json.loads(about)["used"])
    sources = tuple(Source(n.id, n.text, False, n.timestamp) for n in cluster.notes if n.id in used)
    return Made(Packed(text, count(text), sources))


def _hash(value: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()
