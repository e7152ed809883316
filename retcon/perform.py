"""Decision, cluster -> the recall: by the decided action, or by the best action without a model in its place.

A generated text is a view. It is kept under a hash of all that made it (action, prompt version, model, budget, counter,
focus, source texts), found again when the same cluster, budget and focus return, and gone with any of its sources. It
is always written from raw notes and checked against them. Whatever fails, the caller gets text and a warning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Literal

from retcon import deadline, holds
from retcon.cache import CachedChat, owners
from retcon.confidence import Witnesses
from retcon.deadline import UNLIMITED, TimeLimit
from retcon.drafts import HOLDS, UNTOLD, Drafts, traits
from retcon.errors import (
    DeadlineError,
    InputError,
    MalformedReplyError,
    ModelError,
    ModelTimeoutError,
    NotFoundError,
    RetconError,
    StoreError,
    message_of,
)
from retcon.evidence import NOTHING
from retcon.ladder import replace_action
from retcon.model import Ask, Chat, Reply
from retcon.note import (
    MARK,
    RETAIN,
    Cluster,
    Decision,
    Draft,
    Dropped,
    Fidelity,
    Note,
    Packed,
    Recall,
    Record,
    Source,
    Usage,
)
from retcon.operate import ACTIONS, operate, sum_usage, usable
from retcon.pack import RENDERER
from retcon.store import Store
from retcon.timeline import in_order, when
from retcon.tokens import Counter
from retcon.trace import span

Guard = Literal["warn", "strict"]
GUARDS = ("warn", "strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Performer:
    """Runs actions for a memory. Without a chat model, those that need none."""

    store: Store
    count: Counter
    chat: Chat | None
    focus: bool
    guard: Guard

    def perform(
        self, cluster: Cluster, decision: Decision, safe: Callable[[], str], limit: TimeLimit = UNLIMITED
    ) -> Recall:
        """The recall by the decided action; where that fails, or its model takes too long, by what `safe` names."""
        action, meter = decision.action, None if self.chat is None else Meter(self.chat, limit)
        if ACTIONS[action].needs_model and meter is None:
            raise InputError(f"{action} needs a model: Memory(model=...); without one: {', '.join(usable(None))}")
        try:
            found = self._take(cluster, decision, meter)
        except DeadlineError:  # no time for another action either
            raise
        except Exception as error:  # an action may be anybody's code: recall survives it
            return self._fall_back(cluster, decision, safe, message_of(error), _usage(meter))
        found = replace(found, usage=_usage(meter))
        if found.text or not cluster.hits or not decision.budget:
            return self._guard_against(found, safe)
        if not ACTIONS[action].needs_model:
            return self._retain(cluster, decision)
        why = f"it wrote nothing that fits {decision.budget} tokens"
        return self._fall_back(cluster, decision, safe, why, found.usage)

    def choose(
        self,
        cluster: Cluster,
        decision: Decision,
        drafts: Drafts,
        exclude: Collection[str],
        safe: Callable[[], str],
        limit: TimeLimit = UNLIMITED,
    ) -> Recall:
        """The best of several texts: each of the drafts that may be tried is written, and the highest score wins.

        What fails is left out, with a warning. Where nothing is left to choose from, what `safe` names takes its place.
        """
        left = [action for action in drafts.actions if action in usable(self.chat) and action not in exclude]
        if not left or not cluster.hits or not decision.budget:
            found = self.perform(cluster, decision, safe, limit)
            none = f"none of the drafts {', '.join(drafts.actions)} can be written, so {found.action} took their place"
            return found if left else replace(found, warnings=(*found.warnings, none))
        meter = None if self.chat is None else Meter(self.chat, limit)
        tried = [self._try(cluster, replace_action(decision, action, action), meter) for action in left]
        texts = [each for each in tried if isinstance(each, Recall)]
        failed = {action: each for action, each in zip(left, tried, strict=True) if isinstance(each, str)}
        if not texts:
            first = replace_action(decision, left[0], f"{left[0]}: no draft could be written")
            why = "; ".join(f"{action}: {reason}" for action, reason in failed.items())
            return self._fall_back(cluster, first, safe, why, _usage(meter))
        held = self._hold(texts, meter) if HOLDS in drafts.traits else None
        found = _keep_best(texts, drafts, decision, held)
        missing = (f"{action} failed, so it is not among the drafts: {why}" for action, why in failed.items())
        return replace(found, usage=_usage(meter), warnings=(*found.warnings, *missing))

    def _hold(self, texts: Sequence[Recall], meter: Meter | None) -> list[float]:
        """How likely the model finds that each text holds the answer."""
        if meter is None or len(texts) == 1:
            return [UNTOLD] * len(texts)
        asks = [holds.prompt(each.query, each.text) for each in texts]
        cluster = texts[0].cluster
        about = [note.id for note in cluster.notes]
        cached = CachedChat(
            meter, self.store, f"holds-{holds.PROMPTS}", about=about, owned=owners(cluster.notes)
        )  # fmt: skip
        try:
            replies = cached(asks)
        except ModelError:
            return [UNTOLD] * len(texts)
        found = [holds.likelihood(reply) if isinstance(reply, Reply) else None for reply in replies]
        return [UNTOLD if each is None else each for each in found]

    def _try(self, cluster: Cluster, decision: Decision, meter: Meter | None) -> Recall | str:
        """The recall by the decided action, or why it is not to be used."""
        try:
            found = self._take(cluster, decision, meter)
        except DeadlineError:
            raise
        except Exception as error:  # an action may be anybody's code: recall survives it
            return message_of(error)
        if not found.text:
            return f"it has nothing to say within {decision.budget} tokens"
        return _doubts(found) if self.guard == "strict" and not _is_sound(found) else _warn(found)

    def _take(self, cluster: Cluster, decision: Decision, meter: Meter | None) -> Recall:
        if meter is not None and ACTIONS[decision.action].needs_model:
            return self._write(cluster, decision, meter)
        return _recall(cluster, decision, self._operate(decision.action, cluster, decision.budget))

    def _guard_against(self, found: Recall, safe: Callable[[], str]) -> Recall:
        """The recall, where its record is in doubt with a warning, or another in its place."""
        if self.guard == "strict" and not _is_sound(found):
            return self._fall_back(found.cluster, found.decision, safe, _doubts(found), found.usage)
        return _warn(found)

    def _fall_back(
        self, cluster: Cluster, decision: Decision, safe: Callable[[], str], why: str, usage: Usage
    ) -> Recall:
        action, packed = safe(), Packed("", 0)
        try:
            packed = self._operate(action, cluster, decision.budget)
        except DeadlineError:
            raise
        except Exception:  # what fails here fails again, or is as good as nothing
            pass
        if not packed.text:
            action, packed = RETAIN, self._operate(RETAIN, cluster, decision.budget)
        warning = f"{decision.action} failed, so {action} took its place: {why}"
        return _recall(cluster, decision, replace(packed, usage=usage), action, warning)

    def _retain(self, cluster: Cluster, decision: Decision) -> Recall:
        """Whole notes where an action without a model found nothing to say; that action's nothing where none fits."""
        packed = self._operate(RETAIN, cluster, decision.budget)
        if not packed.text:
            return _recall(cluster, decision, packed)
        why = f"{decision.action} found nothing to say within {decision.budget} tokens, so notes are retained"
        return _recall(cluster, decision, packed, RETAIN, why)

    def _operate(self, action: str, cluster: Cluster, budget: int) -> Packed:
        return operate(action, cluster, budget, count=self.count)

    def _write(self, cluster: Cluster, decision: Decision, meter: Meter) -> Recall:
        """The record on file for just this cluster, budget and focus, else a new one; checked against its sources."""
        action, budget = decision.action, decision.budget
        record = identify(action, cluster, budget, chat=meter, count=self.count, focus=self.focus)
        packed = _unpack_record(self.store.get_record(record.id), cluster, self.count)
        if packed is not None and packed.tokens <= budget:
            record = replace(record, reused=True)
        else:
            owned = owners(cluster.notes)
            cached = CachedChat(meter, self.store, record.version, about=record.sources, owned=owned)
            with span("retcon.generate", action=action):
                packed = operate(action, cluster, budget, count=self.count, chat=cached, focus=self.focus)
            if not cached.hits + cached.misses or not packed.text:
                return _recall(cluster, decision, packed)  # it did without the model, or has nothing to show
            self._keep(record, budget, packed)
        from retcon.fidelity import check  # loaded at the first record: its patterns take a while to compile

        used = {source.id for source in packed.sources}
        sources = [note for note in cluster.notes if note.id in used]
        fidelity = check(packed.text, sources, query=cluster.query)
        short = (f"the {action} record was cut to fit {budget} tokens",) if packed.text.endswith(MARK) else ()
        return replace(_recall(cluster, decision, packed, "", *short), record=record, fidelity=fidelity)

    def _keep(self, record: Record, budget: int, packed: Packed) -> None:
        used = [[source.id, source.whole] for source in packed.sources]
        about = {"record": asdict(record), "used": used, "dropped": [asdict(drop) for drop in packed.dropped]}
        with suppress(StoreError, NotFoundError):  # a record is a view: one that cannot be kept is written again
            self.store.put_record(
                record.id, action=record.action, budget=budget, text=packed.text, about=json.dumps(about),
                sources=record.sources,
            )  # fmt: skip


def _recall(cluster: Cluster, decision: Decision, packed: Packed, action: str = "", *warnings: str) -> Recall:
    """The recall of a packed text; by another action than the decided one it is not certified."""
    if action and action != decision.action:
        decision = replace(decision, certified=False)  # the bound is on what the router chose
    evidence = cluster.evidence
    if evidence is not None and evidence.notes and not evidence.found:
        warnings = (NOTHING, *warnings)
    return Recall(
        text=packed.text, tokens=packed.tokens, budget=decision.budget, query=cluster.query,
        action=action or decision.action, decision=decision, sources=packed.sources,
        dropped=packed.dropped + cluster.dropped, cluster=cluster, usage=packed.usage,
        warnings=(*cluster.warnings, *decision.warnings, *warnings),
    )  # fmt: skip


def _is_sound(found: Recall) -> bool:
    """Whether no record was written, or its sources bear it out."""
    return found.fidelity is None or found.fidelity.ok


def _doubts(found: Recall) -> str:
    return f"no source supports {name_doubts(found.fidelity)}" if found.fidelity is not None else ""


def _warn(found: Recall) -> Recall:
    """The recall, with a warning where its record is in doubt."""
    if _is_sound(found):
        return found
    return replace(found, warnings=(*found.warnings, f"the {found.action} record may be wrong: {_doubts(found)}"))


def _keep_best(
    texts: Sequence[Recall], drafts: Drafts, decision: Decision, held: Sequence[float] | None = None
) -> Recall:
    """The text of the highest score, of equals the first; its reason names all of them."""
    witnesses, budget = Witnesses.of(texts[0].cluster), decision.budget
    shown = [
        traits(each.text, witnesses) | {HOLDS: p} for each, p in zip(texts, held or [UNTOLD] * len(texts), strict=True)
    ]
    scores = [drafts.score(each.action, found, budget=budget) for each, found in zip(texts, shown, strict=True)]
    ranked = sorted(range(len(texts)), key=lambda place: -scores[place])
    best = texts[ranked[0]]
    named = [Draft(texts[place].action, scores[place], texts[place].tokens) for place in ranked]
    told = ", ".join(f"{each.action} {each.score:.3f}" for each in named)
    many = f"the best of {len(named)} drafts by what they show" if len(named) > 1 else "the only draft there is"
    return replace(
        best, drafts=tuple(named), decision=replace_action(decision, best.action, f"{best.action}: {many} ({told})")
    )


class Meter:
    """A model that adds up what it is asked, and answers within the limit and as the protocol says.

    Else it raises a ModelError.
    """

    def __init__(self, chat: Chat, limit: TimeLimit = UNLIMITED) -> None:
        self.chat, self.name, self.kind, self.limit = chat, chat.name, chat.kind, limit
        self.usage = Usage()  # of real calls: what a cache answers is free

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        deadline.check()
        if self.limit.over:
            raise self._late()
        self.usage += Usage(model_calls=len(asks))
        try:
            with deadline.until(self.limit.end):
                replies = list(self.chat(asks))
        except DeadlineError:
            deadline.check()  # not only the model's time is over
            raise self._late() from None
        except RetconError:
            raise
        except Exception as error:
            raise ModelError(f"{self.name} failed: {message_of(error)}") from error
        if len(replies) != len(asks):
            raise MalformedReplyError(f"{self.name}: {len(replies)} replies to {len(asks)} asks")
        checked = [self._check(reply) for reply in replies]
        self.usage += replace(sum_usage([reply for reply in checked if isinstance(reply, Reply)]), model_calls=0)
        return checked

    def _late(self) -> ModelError:
        return ModelTimeoutError(f"{self.name}: no reply within the {self.limit.seconds:g} s that this call was given")

    def _check(self, reply: object) -> Reply | ModelError:
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
    texts = [[note.text, note.speaker, when(note), note.follows] for note in notes]
    content, version = _hash(texts), ACTIONS[action].version
    about = [chat.kind, chat.name, count.name, cluster.query if focus else None]
    shown = [note.id for note in in_order(cluster.hits)]
    key = _hash([3, RENDERER, action, version, budget, focus, *about, sources, shown, content])
    return Record(key, action, chat.name, version, focus, content, sources)


def name_doubts(fidelity: Fidelity) -> str:
    """The claims that make a record doubtful, in words, at most three."""
    claims = [claim for claim in fidelity.unsupported if claim.kind in ("number", "date", "name")]
    claims += [ours for ours, _ in fidelity.mutated]
    named = ", ".join(f"the {claim.kind} {claim.text!r}" for claim in claims[:3])
    return named + (f" and {len(claims) - 3} more" if len(claims) > 3 else "")


def _unpack_record(kept: tuple[str, str] | None, cluster: Cluster, count: Counter) -> Packed | None:
    """What a kept record (text, about) gives for the cluster it was written from."""
    if kept is None:
        return None
    text, about = kept[0], json.loads(kept[1])
    hits = {hit.id: hit for hit in cluster.hits}
    sources = tuple(Source.of(hits[each], whole=whole) for each, whole in about["used"])
    return Packed(text, count(text), sources, tuple(Dropped(**drop) for drop in about["dropped"]))


def _usage(meter: Meter | None) -> Usage:
    return Usage() if meter is None else meter.usage


def _hash(value: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()
