"""The index is always what the notes say it should be, whatever was added, corrected and deleted in whatever order."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from conftest import fixed_clock, raw
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from retcon import Memory, Note, Scope
from retcon.errors import ConflictError
from retcon.note import Filter
from retcon.passages import is_long
from retcon.retrieve import best
from retcon.store import postings, writing
from retcon.store.writing import BATCH
from retcon.where import resolve
from retcon.words import index_counts, query_terms, spoken_date, term_key

Place = tuple[str | None, str | None, str | None]  # user_id, agent_id, run_id
Terms = dict[int, dict[str, tuple[int, int]]]  # term key -> note id -> (count, length)


# -- what the index should hold, from the notes alone ------------------------------------------------------------------


def expected_index(notes: Iterable[Note]) -> dict[Place, Terms]:
    """The index that the notes call for."""
    notes = list(notes)
    texts = {note.id: note.text for note in notes}
    out: dict[Place, Terms] = {}
    for note in notes:
        if note.superseded_by is None:
            counts, length = expected_doc(note, texts)
            terms = out.setdefault((note.user_id, note.agent_id, note.run_id), {})
            for key, count in counts.items():
                terms.setdefault(key, {})[note.id] = (count, length)
    return out


def expected_doc(note: Note, texts: Mapping[str, str]) -> tuple[dict[int, int], int]:
    own = f"{note.speaker or ''} {note.text} {spoken_date(note.timestamp)}"
    context = texts[note.follows] if note.follows else ""
    counts = index_counts(own, "" if is_long(note.text) or is_long(context) else context)
    length = min(sum(counts.values()), postings.LIMIT)
    return {term_key(term): min(count, postings.LIMIT) for term, count in counts.items()}, length


def scores(notes: Iterable[Note], query: str) -> dict[str, float]:
    """BM25 of every current note, by the formula, from the notes alone."""
    notes = list(notes)
    texts = {note.id: note.text for note in notes}
    docs = {note.id: expected_doc(note, texts) for note in notes if note.superseded_by is None}
    total = sum(length for _, length in docs.values())
    out = dict.fromkeys(docs, 0.0)
    for key in map(term_key, query_terms(query)):
        df = sum(key in counts for counts, _ in docs.values())
        idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
        for note_id, (counts, length) in docs.items():
            tf = counts.get(key, 0)
            if tf:
                out[note_id] += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length * len(docs) / total))
    return {note_id: score for note_id, score in out.items() if score > 0}


# -- what it does hold -------------------------------------------------------------------------------------------------


def stored_index(memory: Memory, path: Path) -> dict[Place, Terms]:
    """The index in the file, read by the store's own reader; its two sides and its sums must agree."""
    with memory.store._read() as connection:
        return _index_in(connection)


def _index_in(connection: Any) -> dict[Place, Terms]:
    out: dict[Place, Terms] = {}
    for scope, user_id, agent_id, run_id, count, length in connection.execute(
        "SELECT id, user_id, agent_id, run_id, notes, length FROM scope"
    ).fetchall():
        place = (user_id or None, agent_id or None, run_id or None)
        ids = dict(connection.execute("SELECT slot, id FROM note WHERE scope = ?", (scope,)).fetchall())
        terms = {key: _entries(connection, scope, key, ids) for key in _terms(connection, scope)}
        forward: Terms = {}
        docs = connection.execute("SELECT slot, length, terms FROM doc WHERE scope = ?", (scope,)).fetchall()
        for slot, size, data in docs:
            for key, times in np.frombuffer(data, postings.ENTRY).tolist():
                forward.setdefault(key, {})[ids[slot]] = (times, size)
        assert forward == terms
        assert (count, length) == (len(docs), sum(size for _, size, _ in docs))
        if terms:
            out[place] = terms
    return out


def _terms(connection: Any, scope: int) -> list[int]:
    blocks = {key for (key,) in connection.execute("SELECT term FROM block WHERE scope = ?", (scope,))}
    rows = [key for (key,) in connection.execute("SELECT term FROM posting WHERE scope = ?", (scope,))]
    assert blocks <= set(rows)
    return rows


def _entries(connection: Any, scope: int, key: int, ids: Mapping[int, str]) -> dict[str, tuple[int, int]]:
    query = "SELECT df, peak, low, tail FROM posting WHERE scope = ? AND term = ?"
    df, peak, low, tail = connection.execute(query, (scope, key)).fetchone()
    found = postings.concat(list(postings.read(connection, scope, key, tail)))
    slots = found.slots.tolist()
    assert slots == sorted(set(slots))
    assert (df, True, True) == (len(slots), peak >= max(found.counts), low <= min(found.lengths))
    return {
        ids[slot]: (count, length)
        for slot, count, length in zip(slots, found.counts.tolist(), found.lengths.tolist(), strict=True)
    }


def check_search(memory: Memory, notes: list[Note], query: str, top_k: int, place: Scope) -> None:
    inside = [
        note
        for note in notes
        if place.user_id in (None, note.user_id)
        and place.agent_id in (None, note.agent_id)
        and place.run_id in (None, note.run_id)
    ]
    truth = scores(inside, query)
    found = bm25(memory, query, top_k, place)
    assert [score for _, score in found] == pytest.approx(sorted(truth.values(), reverse=True)[:top_k], abs=1e-6)
    assert dict(found) == pytest.approx({each: truth[each] for each, _ in found}, abs=1e-6)
    assert len(dict(found)) == len(found)
    hits = memory.search(query, top_k=top_k, user_id=place.user_id, agent_id=place.agent_id, run_id=place.run_id)
    assert len(hits) == len(found)


def bm25(memory: Memory, query: str, top_k: int, place: Scope, only: Filter | None = None) -> list[tuple[str, float]]:
    """Ids and scores of the best notes, before anything else than their words counts."""
    with memory.store.snapshot(place) as snapshot:
        found = best(snapshot, dict.fromkeys(query_terms(query), 1.0), top_k, only)
        return list(zip((note.id for note in snapshot.fetch(found.slots)), found.scores, strict=True))


def check_file(path: Path | str) -> None:
    if isinstance(path, str):
        with Memory(path) as memory:
            assert memory.check().problems == ()
        return
    connection = raw(path)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


# -- a machine that does everything in any order -----------------------------------------------------------------------

WORDS = ["cat", "cats", "Café", "日本語の", "running", "ran", "2026", "Ελλάδα", "the", "is", "moved", "Berlin", "red"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
places = st.sampled_from([("ann", None, None), ("ann", None, "r1"), ("ann", "bot", "r2"), ("bob", None, None)])
sessions = st.sampled_from([None, "s1", "s2"])
speakers = st.sampled_from([None, "ann", "Bob Running"])
times = st.sampled_from([None, "2026-05-09", "2025-12-01T10:00:00"])


@st.composite
def drafts(draw: st.DrawFn) -> dict[str, Any]:
    user_id, agent_id, run_id = draw(places)
    fields = {"text": draw(texts), "user_id": user_id, "agent_id": agent_id, "run_id": run_id}
    fields |= {"session": draw(sessions), "speaker": draw(speakers), "timestamp": draw(times)}
    return fields | {"metadata": draw(st.sampled_from([{}, {"k": 1}]))}


@dataclass(frozen=True)
class Link:
    """The model's own idea of a note: the note, and its links by id."""

    note: Note

    @property
    def place(self) -> Place:
        return self.note.user_id, self.note.agent_id, self.note.run_id


class StoreMachine(RuleBasedStateMachine):
    ids: Bundle[str] = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.saved = postings.TAIL, postings.BLOCK, writing.FLUSH
        postings.TAIL, postings.BLOCK, writing.FLUSH = 2, 4, 3  # every path through tails and blocks with few notes
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "notes.db"
        self.memory = self.open()
        self.model: dict[str, Link] = {}  # in the order they were added
        self.made = 0

    def open(self) -> Memory:
        return Memory(self.path, now=fixed_clock)

    def restore(self) -> None:
        postings.TAIL, postings.BLOCK, writing.FLUSH = self.saved

    def teardown(self) -> None:
        self.restore()
        assert self.memory.check().problems == ()
        with Memory(self.path.with_name("fresh.db"), now=fixed_clock) as fresh:
            fresh.load(self.memory.lines())
            assert fresh.get_all(superseded=True) == self.memory.get_all(superseded=True)
            rebuilt = stored_index(fresh, self.path.with_name("fresh.db"))
            assert rebuilt == stored_index(self.memory, self.path)
        self.memory.close()
        self.folder.cleanup()

    # -- the model ---------------------------------------------------------------------------------------------------

    def next_id(self) -> str:
        self.made += 1
        return f"id{self.made}"

    def learn(self, fields: Mapping[str, Any], follows: str | None = None) -> None:
        note = Note(**{**fields, "created_at": fixed_clock().isoformat(), "live": fields.get("timestamp") is None})
        if note.session is not None and follows is None:
            follows = self.newest(note)
        self.model[note.id] = Link(replace(note, follows=follows))
        if note.supersedes:
            old = self.model[note.supersedes]
            self.model[note.supersedes] = Link(replace(old.note, superseded_by=note.id))

    def newest(self, note: Note, before: str | None = None) -> str | None:
        """The newest note of the session, or the newest before another."""
        place = (note.user_id, note.agent_id, note.run_id)
        found = None
        for link in self.model.values():
            if link.note.id == before:
                break
            if link.place == place and link.note.session == note.session is not None:
                found = link.note.id
        return found

    def forget(self, gone: set[str]) -> None:
        before = {note_id: link.note.follows for note_id, link in self.model.items()}
        older = {note_id: link.note.supersedes for note_id, link in self.model.items()}
        self.model = {note_id: link for note_id, link in self.model.items() if note_id not in gone}
        for note_id, link in list(self.model.items()):
            follows, supersedes = _past(link.note.follows, gone, before), _past(link.note.supersedes, gone, older)
            if link.note.follows in gone and follows is None:
                follows = self.newest(link.note, before=note_id)
            note = replace(link.note, follows=follows, supersedes=supersedes, superseded_by=None)
            self.model[note_id] = Link(note)
        for note_id, link in list(self.model.items()):
            if link.note.supersedes:
                old = self.model[link.note.supersedes].note
                self.model[old.id] = Link(replace(old, superseded_by=note_id))

    # -- the rules ---------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.memory.add("the cat", id="id0", user_id="ann")
        self.learn({"id": "id0", "text": "the cat", "user_id": "ann"})

    @rule(target=ids, fields=drafts())
    def add(self, fields: dict[str, Any]) -> str:
        note_id = self.next_id()
        (note,) = self.memory.add(fields | {"id": note_id})
        assert note.text == fields["text"]
        self.learn(fields | {"id": note_id})
        return note_id

    @rule(target=ids, many=st.lists(drafts(), min_size=1, max_size=7))
    def add_list(self, many: list[dict[str, Any]]) -> Any:
        items = [fields | {"id": self.next_id()} for fields in many]
        self.memory.add(items)
        last: dict[Place, str] = {}
        for fields in items:
            place = fields["user_id"], fields["agent_id"], fields["run_id"]
            self.learn(fields, follows=last.get(place) if fields["session"] is None else None)
            last[place] = fields["id"]
        return multiple(*(fields["id"] for fields in items))

    @rule(target=ids, fields=drafts(), other=ids)
    def add_after(self, fields: dict[str, Any], other: str) -> Any:
        """A turn that names the turn before it, in another session maybe."""
        if other not in self.model:
            return multiple()
        user_id, agent_id, run_id = self.model[other].place
        fields = fields | {"id": self.next_id(), "user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        self.memory.add(fields | {"follows": other})
        self.learn(fields, follows=other)
        return fields["id"]

    @rule(note_id=ids)
    def add_again(self, note_id: str) -> None:
        if note_id in self.model:
            note = self.model[note_id].note
            plain = {
                key: value
                for key, value in note.to_dict().items()
                if key not in ("superseded_by", "created_at", "live")
            }
            assert self.memory.add(plain) == [note]

    @rule(note_id=ids, fields=drafts())
    def add_other_text_under_a_known_id(self, note_id: str, fields: dict[str, Any]) -> None:
        if note_id in self.model:
            with pytest.raises(ConflictError):
                self.memory.add([fields, {"text": "quite another text", "id": note_id}])

    @rule(target=ids, note_id=ids, text=texts)
    def supersede(self, note_id: str, text: str) -> Any:
        if note_id not in self.model:
            return multiple()
        old = self.model[note_id].note
        new_id = self.next_id()
        if old.superseded_by:
            with pytest.raises(ConflictError):
                self.memory.supersede(note_id, text, new_id=new_id)
            return multiple()
        self.memory.supersede(note_id, text, new_id=new_id)
        kept = {name: getattr(old, name) for name in ("user_id", "agent_id", "run_id", "session", "speaker")}
        kept |= {"timestamp": fixed_clock().isoformat() if old.timestamp else None}  # a correction is of now
        self.learn(kept | {"id": new_id, "text": text, "metadata": old.metadata, "supersedes": note_id})
        return new_id

    @rule(target=ids, first=drafts(), text=texts)
    def add_and_supersede_in_one_transaction(self, first: dict[str, Any], text: str) -> Any:
        one, two = self.next_id(), self.next_id()
        kept = {name: first[name] for name in ("user_id", "agent_id", "run_id", "session")}
        second = kept | {"text": text, "id": two, "supersedes": one}
        self.memory.add([first | {"id": one}, second])
        self.learn(first | {"id": one})
        self.learn(second, follows=one if first["session"] is None else None)
        return multiple(one, two)

    @rule(gone=st.lists(consumes(ids), min_size=1, max_size=4), versions=st.sampled_from(["all", "one"]))
    def delete(self, gone: list[str], versions: Any) -> None:
        named = {note_id for note_id in gone if note_id in self.model}
        chosen = named if versions == "one" else {note.id for each in named for note in self.memory.history(each)}
        done = self.memory.delete(sorted(named), versions=versions)
        assert (done.notes, done.purged) == (len(chosen), not chosen)
        self.forget(chosen)

    @rule(place=places)
    def delete_all(self, place: Place) -> None:
        user_id, agent_id, run_id = place
        gone = {
            note_id
            for note_id, link in self.model.items()
            if all(want in (None, has) for want, has in zip(place, link.place, strict=True))
        }
        assert self.memory.delete_all(user_id=user_id, agent_id=agent_id, run_id=run_id).notes == len(gone)
        self.forget(gone)

    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.memory = self.open()

    # -- what holds after each -----------------------------------------------------------------------------------------

    @invariant()
    def notes_and_links_agree(self) -> None:
        expected = [link.note for link in self.model.values()]
        assert self.memory.get_all(superseded=True) == expected
        assert self.memory.get_all() == [note for note in expected if note.superseded_by is None]
        for note in expected[-3:]:
            chain = [note]
            while chain[0].supersedes:
                chain.insert(0, self.model[chain[0].supersedes].note)
            while chain[-1].superseded_by:
                chain.append(self.model[chain[-1].superseded_by].note)
            assert self.memory.history(note.id) == chain

    @invariant()
    def index_is_what_the_notes_say(self) -> None:
        notes = [link.note for link in self.model.values()]
        assert stored_index(self.memory, self.path) == expected_index(notes)
        check_file(self.path)

    @invariant()
    def search_agrees_with_the_formula(self) -> None:
        notes = [link.note for link in self.model.values()]
        for query in ("cat Berlin", "the 日本語の red cafe moved running 2026"):
            for top_k, scope in ((2, Scope("ann")), (20, Scope("ann", None, "r1")), (20, Scope())):
                check_search(self.memory, notes, query, top_k, scope)


def _past(note_id: str | None, gone: set[str], link: Mapping[str, str | None]) -> str | None:
    while note_id is not None and note_id in gone:
        note_id = link[note_id]
    return note_id


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=max(20, settings().max_examples // 2), stateful_step_count=15, deadline=None
)


# -- sizes that the machine does not reach -----------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "TAIL", 3)
    monkeypatch.setattr(postings, "BLOCK", 8)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(3))
def test_index_survives_hundreds_of_random_deletes_over_many_blocks(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    with Memory(path, now=fixed_clock) as memory:
        ids: list[str] = []
        for turn in range(4):
            new = [
                {"text": " ".join(draw.choices(WORDS, k=6)), "id": f"{turn}-{i}", "user_id": "ann", "session": "s"}
                for i in range(60)
            ]
            memory.add(new)
            ids += [str(note["id"]) for note in new]
            for _ in range(6):
                gone = draw.sample(ids, 8)
                memory.delete(gone)
                ids = [note_id for note_id in ids if note_id not in gone]
            notes = memory.get_all(superseded=True)
            assert [note.id for note in notes] == ids
            assert stored_index(memory, path) == expected_index(notes)
            check_search(memory, notes, "the cat moved to Berlin 2026", 20, Scope("ann"))
        memory.delete(ids)
        assert stored_index(memory, path) == {}


def test_counts_and_lengths_beyond_sixteen_bits_saturate(memory: Memory, path: Path) -> None:
    memory.add("cat " * 70_000 + "dog", id="long", user_id="ann")
    memory.add("a dog and a cat", id="short", user_id="ann")
    assert stored_index(memory, path) == expected_index(memory.get_all())
    assert [each for each, _ in bm25(memory, "dog", 20, Scope("ann"))] == ["short", "long"]
    assert {hit.id for hit in memory.search("dog", user_id="ann")} == {"short", "long"}


def test_another_scope_changes_no_score(memory: Memory) -> None:
    draw = random.Random(1)

    def add(user_id: str) -> None:
        memory.add([{"text": " ".join(draw.choices(WORDS, k=5)), "user_id": user_id} for _ in range(50)])

    def found() -> list[tuple[str, float]]:
        return [(hit.id, hit.score) for hit in memory.search("cat Berlin the 2026", user_id="ann", top_k=50)]

    add("ann")
    before = found()
    assert before
    add("bob")
    memory.add("cat cat cat Berlin", user_id="ann2")
    assert found() == before
    memory.delete_all(user_id="bob")
    assert found() == before


def test_a_query_over_several_runs_scores_with_their_sums(memory: Memory) -> None:
    draw = random.Random(2)
    for run_id in ("r1", "r2", None):
        memory.add(
            [{"text": " ".join(draw.choices(WORDS, k=draw.randint(2, 9)))} for _ in range(30)],
            user_id="ann",
            run_id=run_id,
        )
    memory.add("cat cat cat", user_id="bob", run_id="r1")
    notes = memory.get_all(superseded=True)
    for scope in (Scope("ann"), Scope(None, None, "r1"), Scope("ann", None, "r2"), Scope()):
        check_search(memory, notes, "cat Berlin red", 25, scope)


def test_filters_narrow_the_results_and_leave_the_scores(memory: Memory) -> None:
    draw = random.Random(3)
    memory.add(
        [
            {
                "text": " ".join(draw.choices(WORDS, k=5)),
                "session": f"s{i % 3}",
                "timestamp": f"2026-05-{1 + i % 28:02d}",
                "metadata": {"even": i % 2 == 0},
            }
            for i in range(120)
        ],
        user_id="ann",
    )
    free = {hit.id: hit for hit in memory.search("cat Berlin", user_id="ann", top_k=200)}
    scores = dict(bm25(memory, "cat Berlin", 200, Scope("ann")))

    def same(**only: Any) -> Iterator[str]:
        narrow = dict(bm25(memory, "cat Berlin", 200, Scope("ann"), resolve(None, cast(Any, only)).only))
        for hit in memory.search("cat Berlin", user_id="ann", top_k=200, **only):
            assert narrow[hit.id] == pytest.approx(scores[hit.id], abs=1e-9)
            yield hit.id

    assert set(same(session="s1")) == {i for i, hit in free.items() if hit.note.session == "s1"}
    assert set(same(metadata={"even": True})) == {i for i, hit in free.items() if hit.note.metadata["even"]}
    late = {i for i, hit in free.items() if "2026-05-10" <= str(hit.note.timestamp) <= "2026-05-12"}
    assert set(same(since="2026-05-10", until="2026-05-12")) == late
    assert late


@pytest.mark.parametrize("near", [False, True])
def test_keys_are_sorted_as_a_stable_argsort_does_even_where_they_differ_in_the_last_bits(near: bool) -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(-(2**63), 2**63 - 1, 50)
    keys = rng.choice(base[:1] + np.arange(4) if near else base, 1_000)
    assert postings._sort(keys).tolist() == np.argsort(keys, kind="stable").tolist()


def test_a_note_that_a_later_batch_of_its_add_corrects_is_in_no_posting(memory: Memory, path: Path) -> None:
    notes = [Note(id=f"n{number}", text=f"turn {number}", user_id="ann") for number in range(2 * BATCH)]
    corrections = [replace(notes[-1], id=f"c{at}", supersedes=f"n{at}") for at in (0, 7, BATCH, 2 * BATCH - 1)]
    memory.store.add([*notes, *corrections])
    stored = memory.get_all(user_id="ann", superseded=True)
    assert stored_index(memory, path) == expected_index(stored)
    assert sum(note.superseded_by is not None for note in stored) == len(corrections)
