"""Ask -> key -> reply: the same ask is paid for once.

A memory keeps replies in the notes' own file, where a deleted note takes with it every reply to a prompt that held it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

from retcon.errors import BusyError, ModelError
from retcon.model.base import Ask, Chat, Reply, plain_ask, sanitize
from retcon.note import Note
from retcon.store import Kept

FORMAT = 1  # raise it when a kept reply no longer means what it meant


Owners = tuple[tuple[str, str, str], ...]  # (user_id, agent_id, run_id) of each scope, '' for none


def owners(notes: Iterable[Note]) -> Owners:
    """Whose notes these are: their scopes, each once."""
    return tuple(sorted({(note.user_id or "", note.agent_id or "", note.run_id or "") for note in notes}))


def cache_key(chat: Chat, ask: Ask, *, realization: int, prompt_version: str, owned: Owners = ()) -> str:
    """A hash of everything that changes the answer, and of whose notes the prompt holds.

    A reply is found again only by those who own what it was made from: a caller who knows another's notes word for word
    could otherwise see by the cost that the same was asked before.
    """
    listed = {
        "format": FORMAT,
        "adapter": chat.kind,
        "model": chat.name,
        "ask": plain_ask(ask),  # messages, max_tokens, temperature, seed, logprobs
        "realization": realization,
        "prompt_version": prompt_version,
    }
    if owned:  # the key of a prompt that holds nobody's notes is as it always was
        listed["owned"] = owned
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


class Replies(Protocol):
    """Where replies are kept."""

    def get_replies(self, keys: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Kept]: ...
    def put_replies(self, given: Sequence[Kept], sources: Sequence[str]) -> int: ...


Arrived = Mapping[int, Reply | ModelError]  # place among the asks -> what came


@runtime_checkable
class Arriving(Protocol):
    """A model whose replies are there one by one, so that each can be kept before the others have come."""

    def arrivals(self, asks: Sequence[Ask], /) -> Iterator[Arrived]: ...


def arrivals(chat: Chat, asks: Sequence[Ask]) -> Iterator[Arrived]:
    """The replies as they come; all of them together where the model answers a batch as a whole."""
    if isinstance(chat, Arriving):
        yield from chat.arrivals(asks)
    else:
        yield dict(enumerate(chat(asks)))


def in_order(arriving: Iterable[Arrived]) -> list[Reply | ModelError]:
    """The replies in the order of the asks, once all have come."""
    found: dict[int, Reply | ModelError] = {}
    for some in arriving:
        found |= some
    return [found[place] for place in sorted(found)]


class CachedChat:
    """A model that is asked only for what is not kept yet. `hits` and `misses` count this object's asks.

    A reply from the cache carries the tokens and seconds of the call that made it. `about` names the notes whose text
    the prompts hold: a notes' store keeps nothing without them. `owned` says whose they are.
    """

    def __init__(
        self,
        chat: Chat,
        cache: Replies,
        prompt_version: str,
        realization: int = 0,
        about: Sequence[str] = (),
        owned: Owners = (),
    ) -> None:
        self.chat, self.cache, self.owned = chat, cache, owned
        self.prompt_version, self.realization, self.about = prompt_version, realization, tuple(about)
        self.name, self.kind = chat.name, chat.kind
        self.hits = self.misses = 0

    def __repr__(self) -> str:
        return f"CachedChat({self.chat!r}, prompt_version={self.prompt_version!r})"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return in_order(self.arrivals(asks))

    def arrivals(self, asks: Sequence[Ask], /) -> Iterator[Arrived]:
        """The replies as they come, the kept ones with the first; what is new is kept before it is handed on."""
        keys = [self._key(ask) for ask in asks]
        found: dict[str, Reply | ModelError] = dict(self._find_kept(keys))
        missing = {key: ask for key, ask in zip(keys, asks, strict=True) if key not in found}
        self.hits += sum(key in found for key in keys)
        self.misses += len(missing)
        asked, places = list(missing), defaultdict[str, list[int]](list)
        for place, key in enumerate(keys):
            places[key].append(place)
        for some in arrivals(self.chat, list(missing.values())) if missing else ():
            replies = {asked[place]: reply for place, reply in some.items()}
            self._keep({key: reply for key, reply in replies.items() if isinstance(reply, Reply)})
            found |= replies
            yield {place: reply for key, reply in found.items() for place in places[key]}
            found = {}
        if found:
            yield {place: reply for key, reply in found.items() for place in places[key]}

    def _key(self, ask: Ask) -> str:
        return cache_key(
            self.chat, ask, realization=self.realization, prompt_version=self.prompt_version, owned=self.owned
        )

    def _find_kept(self, keys: Sequence[str]) -> dict[str, Reply]:
        try:
            kept = self.cache.get_replies(keys, self.about)
        except BusyError:  # a locked cache costs a call, not the answer
            return {}
        return {key: Reply(**_reply_fields(one)) for key, one in kept.items()}

    def _keep(self, replies: dict[str, Reply]) -> None:
        kept = [Kept(key, self.name, **_reply_fields(sanitize(reply))) for key, reply in replies.items()]
        with contextlib.suppress(BusyError):
            self.cache.put_replies(kept, self.about)


def _reply_fields(one: Reply | Kept) -> dict[str, Any]:
    return {each.name: getattr(one, each.name) for each in fields(Reply)}
