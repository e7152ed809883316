"""The same calls on SQLite and on PostgreSQL, whose answers must be the same, and those of a plain model in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
from clusters import Cluster
from conftest import fixed_clock
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from test_postings import WORDS, StoreMachine, check_search, places, stored_index, texts

from retcon import Memory, Scope
from retcon.errors import NotFoundError, RetconError
from retcon.note import Filter
from retcon.store import Kept

VECTORS = {word: np.eye(len(WORDS), dtype=np.float32)[place] for place, word in enumerate(WORDS)}


class Twin:
    """Two memories that are told the same; what they say is compared, the errors too."""

    def __init__(self, *twins: Memory) -> None:
        self.twins = twins

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            return self.ask(lambda memory: getattr(memory, name)(*args, **options))

        return call

    def close(self) -> None:
        """Close both; neither purges."""
        for memory in self.twins:
            memory.close(purge=False)

    def ask(self, what: Callable[[Memory], Any]) -> Any:
        """What both say."""
        answers = [self._answer(memory, what) for memory in self.twins]
        first, *others = answers
        for other in others:
            assert _plain(other) == _plain(first)
        if isinstance(first, RetconError):
            raise first
        return first

    @staticmethod
    def _answer(memory: Memory, what: Callable[[Memory], Any]) -> Any:
        try:
            return what(memory)
        except RetconError as error:
            return error


def _plain(answer: Any) -> Any:
    return (type(answer), str(answer)) if isinstance(answer, RetconError) else answer


class TwinMachine(StoreMachine):
    """What the machine of one store does, on two, and more that only their comparison can judge."""

    cluster: Cluster
    operations = 0

    def open(self) -> Memory:
        if not hasattr(self, "url"):
            self.url = self.cluster.url()
        twins = [Memory(place, now=fixed_clock) for place in (self.path, self.url)]
        return cast(Memory, Twin(*twins))

    @property
    def twin(self) -> Twin:
        return cast(Twin, self.memory)

    def teardown(self) -> None:
        for memory in self.twin.twins:
            assert memory.check().problems == ()
        self.restore()
        self.memory.close()
        self.cluster.drop(self.url)
        self.folder.cleanup()

    # -- rules that only a comparison can judge ----------------------------------------------------------------------

    @rule(query=texts, place=places, budget=st.sampled_from([8, 64, 400]))
    def recall(self, query: str, place: Any, budget: int) -> None:
        words = dict(zip(("user_id", "agent_id", "run_id"), place, strict=True))
        self.twin.ask(lambda memory: replace_seconds(memory.recall(query, budget, **words)))
        self.twin.ask(lambda memory: [(hit.id, hit.score, hit.rank) for hit in memory.search(query, top_k=9, **words)])

    @rule(limit=st.integers(1, 5), order=st.sampled_from(["oldest", "newest"]), place=places)
    def page(self, limit: int, order: Any, place: Any) -> None:
        after = next(iter(self.model), None)
        scope = Scope(*place)
        self.twin.ask(lambda memory: list(memory.store.all(scope, limit=limit, order=order)))
        self.twin.ask(lambda memory: list(memory.store.all(Scope(), after=after, limit=limit, order=order)))
        self.twin.ask(lambda memory: (memory.store.count(scope), memory.store.count(scope, superseded=False)))

    @rule(name=st.sampled_from("rst"), text=texts, data=st.data())
    def put_record(self, name: str, text: str, data: st.DataObject) -> None:
        about: dict[str, Any] = {
            "action": "merge",
            "budget": 9,
            "text": text,
            "about": "{}",
            "sources": self.some(data),
        }
        with suppress(NotFoundError):
            self.twin.ask(lambda memory: memory.store.put_record(name, **about))

    @rule(name=st.sampled_from("rst"))
    def get_record(self, name: str) -> None:
        self.twin.ask(lambda memory: (memory.store.get_record(name), memory.store.count_records()))

    @rule(key=st.sampled_from("klm"), text=texts, logprob=st.sampled_from([None, -0.5, 0.0, -0.0]), data=st.data())
    def put_reply(self, key: str, text: str, logprob: float | None, data: st.DataObject) -> None:
        sources = self.some(data)
        reply = Kept(key, "model", text, 3, 4, 0.25, "stop", logprob)
        self.twin.ask(lambda memory: memory.store.put_replies([reply], sources, most_bytes=700))

    @rule(keys=st.lists(st.sampled_from("klmn"), max_size=4))
    def get_replies(self, keys: list[str]) -> None:
        self.twin.ask(lambda memory: (memory.store.get_replies(keys), memory.store.reply_stats()))

    @rule(word=st.sampled_from(WORDS), place=places)
    def embed_and_search(self, word: str, place: Any) -> None:
        for memory in self.twin.twins:
            lacking = memory.store.find_unembedded(_everywhere(), "words", limit=100)
            rows = [(note.id, _vector(note.text)[None]) for note in lacking.notes]
            memory.store.put_vectors("words", rows, lacking.upto)
        self.twin.ask(lambda memory: _nearest(memory, word, Scope(*place)))

    @rule()
    def forget_caches(self) -> None:
        self.memory.clear_cache()

    def some(self, data: st.DataObject) -> list[str]:
        return data.draw(st.lists(st.sampled_from([*self.model, "nowhere"]), min_size=1, max_size=3, unique=True))

    # -- what holds after each -----------------------------------------------------------------------------------------

    @invariant()
    def index_is_what_the_notes_say(self) -> None:
        first, second = (stored_index(memory, self.path) for memory in self.twin.twins)
        assert first == second

    @invariant()
    def search_agrees_with_the_formula(self) -> None:
        type(self).operations += 1
        notes = [link.note for link in self.model.values()]
        for memory in self.twin.twins:
            check_search(memory, notes, "the 日本語の red cafe moved running 2026", 20, Scope("ann"))

    @invariant()
    def counts_agree(self) -> None:
        self.memory.count_unpurged()
        self.memory.cache_stats()


def replace_seconds(found: Any) -> Any:
    """A recall without how long it took."""
    return replace(found, seconds=0.0) if hasattr(found, "seconds") else found


def _everywhere() -> Any:
    from retcon.where import Where

    return Where()


def _vector(text: str) -> Any:
    rows = [VECTORS[word] for word in text.split() if word in VECTORS]
    found = np.sum(rows, axis=0) if rows else np.ones(len(WORDS), np.float32)
    return (found / np.linalg.norm(found)).astype(np.float32)


def _nearest(memory: Memory, word: str, scope: Scope) -> list[tuple[str, float]]:
    with memory.store.snapshot(scope) as snapshot:
        found = snapshot.nearest("words", VECTORS[word], 5, Filter())
        ids = [note.id for note in snapshot.fetch(found.slots.tolist())]
        return sorted(zip(ids, found.scores.tolist(), strict=True))
