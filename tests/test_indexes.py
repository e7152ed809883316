"""The index of a large pool: nearly what an exact search finds, never what the store does not hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from retcon import Memory, Scope
from retcon.model.embed import embed_texts
from retcon.note import Filter
from retcon.store import indexes
from retcon.store.indexes import Indexes
from retcon.store.sqlite import SqliteStore
from retcon.store.vectors import KEPT

DIM, NOTES = 24, 1500


class Clusters:
    """Texts "topic number" as points around the topic, always the same."""

    name, dim = "clusters", DIM

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        rows = [self._row(text.split(": ")[-1]) for text in texts]
        return np.array(rows, np.float32)

    @staticmethod
    def _row(text: str) -> NDArray[np.float64]:
        topic, _, number = text.partition(" ")
        seeds = [int(topic.removeprefix("topic") or 0), 1000 + int(number or 0)] if number.isdigit() else [0, 0]
        center, own = (np.random.default_rng(seed).standard_normal(DIM) for seed in seeds)
        row: NDArray[np.float64] = center + 0.6 * own
        return row / np.linalg.norm(row)


TOPICS = [f"topic{n}" for n in range(30)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores whose pools have an index from 500 vectors on, and compare one by one below 50."""
    opened = SqliteStore.__init__

    def open_small(self: SqliteStore, *args: Any, **options: Any) -> None:
        opened(self, *args, **options)
        self._indexes = Indexes(self.path, least=500)

    monkeypatch.setattr(SqliteStore, "__init__", open_small)
    monkeypatch.setattr(indexes, "NARROW", 50)
    monkeypatch.setattr(indexes, "SAVE_AFTER", 100)
    monkeypatch.setattr(indexes, "_MISSING", [])


def filled(path: Path) -> Memory:
    memory = Memory(path, embedder=Clusters(), retriever="dense")
    memory.add([
        {"role": "user", "content": f"{TOPICS[n % 30]} {n}", "id": f"n{n}", "metadata": {"n": n}} for n in range(NOTES)
    ])  # fmt: skip
    return memory


def exact(memory: Memory, query: str, k: int, **words: Any) -> list[str]:
    notes = memory.get_all(**words)
    scores = Clusters()([note.text for note in notes]) @ Clusters()([query])[0]
    return [notes[at].id for at in np.argsort(-scores)[:k] if scores[at] > 0]


def found(memory: Memory, query: str, k: int, **words: Any) -> list[str]:
    return [hit.id for hit in memory.search(query, top_k=k, **words)]


def recall(memory: Memory, k: int = 20, **words: Any) -> float:
    shared = []
    for query in (f"{topic} 99999" for topic in TOPICS[:10]):
        best = exact(memory, query, k, **words)
        shared.append(len({*found(memory, query, k, **words)} & {*best}) / len(best))
    return float(np.mean(shared))


def files(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.vectors").glob("*")) if Path(f"{path}.vectors").is_dir() else []


def test_without_the_package_all_vectors_are_compared_and_one_warning_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with filled(path) as memory:
        with pytest.warns(UserWarning, match=r"retcon-memory\[index\]"):
            memory.search("topic3 1")
        assert recall(memory) == 1.0
        assert not files(path)


def test_a_small_pool_has_no_index(path: Path) -> None:
    with Memory(path, embedder=Clusters(), retriever="dense") as memory:
        memory.add([f"{TOPICS[n % 30]} {n}" for n in range(400)])
        memory.search("topic3 1")
        assert memory.store._indexes._held == {}


class TestWithFaiss:
    @pytest.fixture(autouse=True)
    def needs_faiss(self) -> None:
        pytest.importorskip("faiss", reason="the extra 'index' is not installed")

    def test_the_index_finds_nearly_what_an_exact_search_finds(self, path: Path) -> None:
        with filled(path) as memory:
            assert recall(memory) >= 0.98
            assert len(memory.store._indexes._held) == 1
        (file,) = files(path)
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    def test_filters_hold_narrow_and_wide(self, path: Path) -> None:
        with filled(path) as memory:
            for least in (100, NOTES - 40):
                only: dict[str, Any] = {"filters": {"n": {"gte": least}}}
                assert recall(memory, **only) >= 0.98
                assert all(int(each[1:]) >= least for each in found(memory, "topic3 1", 20, **only))

    def test_the_file_is_read_again_and_not_made_again(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with filled(path) as memory:
            memory.search("topic3 1")
        before = files(path)
        monkeypatch.setattr(indexes, "build", lambda *_: pytest.fail("made again"))
        with Memory(path, embedder=Clusters(), retriever="dense") as memory:
            memory.add("topic3 7", id="new")
            assert "new" in found(memory, "topic3 7", 5)
            assert recall(memory) >= 0.98
        assert files(path) == before

    @pytest.mark.parametrize("harm", [b"", b"no index", None])
    def test_a_file_that_is_damaged_or_gone_is_made_again(self, path: Path, harm: bytes | None) -> None:
        with filled(path) as memory:
            memory.search("topic3 1")
        (file,) = files(path)
        file.unlink() if harm is None else file.write_bytes(harm)
        with Memory(path, embedder=Clusters(), retriever="dense") as memory:
            assert recall(memory) >= 0.98
        assert files(path) not in ([], [file])

    def test_what_is_added_or_deleted_elsewhere_counts_at_once(self, path: Path) -> None:
        with filled(path) as memory, Memory(path, embedder=Clusters(), retriever="dense") as other:
            memory.search("topic3 1")
            gone = found(other, "topic3 33", 5)
            other.delete(gone[:2])
            other.supersede(gone[2], "topic9 5", new_id="corrected")
            other.add("topic3 33", id="new")
            other.embed()
            now = found(memory, "topic3 33", 40)
            assert "new" in now
            assert not {*gone[:3]} & {*now}
            assert "corrected" in found(memory, "topic9 5", 5)
            assert recall(memory) >= 0.98

    def test_a_snapshot_confirms_what_an_index_finds_without_being_told_of_deletes(self, path: Path) -> None:
        with filled(path) as memory:
            name = memory._identify(memory.embedder).name
            (first, *_) = found(memory, "topic3 33", 5)
            slot = int(first[1:])
            memory.delete(first)
            with memory.store.snapshot(Scope()) as snapshot:  # no refresh before it
                near = snapshot.nearest(name, Clusters()(["topic3 33"])[0], 20, Filter())
            assert slot not in near.slots.tolist()

    def test_scopes_are_never_mixed(self, path: Path) -> None:
        with Memory(path, embedder=Clusters(), retriever="dense") as memory:
            for user in ("ann", "bob"):
                memory.add([f"{TOPICS[n % 30]} {n}" for n in range(600)], user_id=user)
            for user in ("ann", "bob"):
                assert {hit.note.user_id for hit in memory.search("topic3 1", user_id=user, top_k=50)} == {user}
                assert recall(memory, user_id=user) >= 0.98
            assert {hit.note.user_id for hit in memory.search("topic3 1", top_k=50)} == {"ann", "bob"}
            assert len(files(path)) == 2

    @pytest.mark.parametrize("reopened", [False, True])
    def test_after_a_purge_no_file_holds_a_deleted_vector(self, path: Path, reopened: bool) -> None:
        kept, gone = "topic3 3", "topic4 4"
        with filled(path) as memory:
            memory.search("topic3 1")
            assert any(_half(gone) in file.read_bytes() for file in files(path))
            if not reopened:
                memory.delete("n4")
                assert memory.purge()
                assert files(path)
        if reopened:
            with Memory(path) as memory:
                memory.delete("n4")
                assert memory.purge()
            assert not files(path)  # nobody had it open: it is made again when it is needed
        with Memory(path, embedder=Clusters(), retriever="dense") as memory:
            assert "n3" in found(memory, kept, 3)
            assert "n4" not in found(memory, gone, 3)
        assert not any(_half(gone) in file.read_bytes() for file in files(path))
        assert any(_half(kept) in file.read_bytes() for file in files(path))

    def test_deleting_everybody_and_purging_leaves_no_file(self, path: Path) -> None:
        with filled(path) as memory:
            memory.search("topic3 1")
            memory.delete_all(everything=True)
            assert memory.purge()
        assert not files(path)


def _half(text: str) -> bytes:
    return bytes(embed_texts(Clusters(), [text])[0].astype(KEPT).tobytes())
