"""The machinery of bench.rivals.speed: workers, limits, going on after a stop, pages. No rival is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.rivals.speed import __main__ as speed
from bench.rivals.speed import turns
from bench.rivals.speed.costs import closure, costs, size
from bench.rivals.speed.page import adds, goals, judged, report, searches
from bench.rivals.speed.process import Limits, Process, StoppedError
from bench.rivals.speed.stores.langgraph_stores import _apart
from bench.rivals.speed.systems import OURS, OURS_VECTORS, RIVALS, SYSTEMS, System
from bench.rivals.speed.vectors import Pooled, make_pools, open_pools

LIMITS = Limits(load_s=600.0, memory_gb=4.0, patience_s=600.0)


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pools")
    chance = np.random.default_rng(0)
    make_pools(folder, lambda texts: chance.standard_normal((len(texts), 16)).astype(np.float32))
    return folder


# -- vectors at hand ---------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_a_text_has_one_vector_of_length_one_whoever_asks_and_beside_whatever_else(texts: list[str]) -> None:
    chance = np.random.default_rng(1)
    pooled = Pooled(*(chance.standard_normal((50, 8)).astype(np.float32) for _ in range(2)))
    rows = pooled(texts)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert all(np.array_equal(row, pooled([text])[0]) for row, text in zip(rows, texts, strict=True))
    assert np.array_equal(np.array(pooled.floats(texts), np.float32), rows)


def test_every_process_opens_the_same_vectors(pools: Path) -> None:
    assert np.array_equal(open_pools(pools)(["tea"]), open_pools(pools)(["tea"]))
    assert not np.array_equal(open_pools(pools)(["tea"]), open_pools(pools)(["coffee"]))


# -- a worker ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, pools: Path) -> turns.Work:
    made = turns.prepare(tmp_path_factory.mktemp("work"), 300, 2, seed=0)
    return turns.Work(made.size, made.source, pools, made.queries, made.late)


def test_notes_are_of_two_users_and_as_many_as_were_asked_for(work: turns.Work) -> None:
    notes = [json.loads(line) for line in work.source.read_text(encoding="utf-8").splitlines()]
    assert len(notes) == len({note["id"] for note in notes}) == 300
    assert sum(note["user"] == turns.SMALL for note in notes) == turns.FEW
    assert {len(queries) for queries in work.queries.values()} == {2}


@pytest.mark.parametrize("name", [OURS, OURS_VECTORS, "fts5"])
def test_a_system_loads_searches_and_takes_one_more_in_a_process_of_its_own(name: str, work: turns.Work) -> None:
    process, loaded = turns.start(SYSTEMS[name], work, LIMITS)
    with process:
        assert (loaded["notes"], loaded["whole"]) == (300, True)
        assert loaded["per_s"] > 0
        for user, queries in work.queries.items():
            found = process.ask("search", queries[0], user)
            assert found["foreign"] == 0
            assert found["wall"] > 0
        late = dict(work.late[0]) | {"text": "zanzibar zeppelin", "user": turns.SMALL}
        process.ask("add", late)
        assert process.ask("search", "zanzibar zeppelin", turns.SMALL)["found"] >= 1
        assert process.ask("size")["disk_mb"] > 0
    assert process.process.poll() is not None


def test_a_bulk_add_that_takes_too_long_ends_between_two_batches_and_can_be_searched(work: turns.Work) -> None:
    with Process.start("floor.Fts5", work.folder / "cut", work.pools, memory_gb=4.0) as process:
        found = process.ask("load", str(work.source), 0.0)
        assert found["whole"] is False
        assert found["notes"] == turns.FEW  # the first user's, as a batch holds one user's notes
        assert process.ask("search", work.queries[turns.SMALL][0], turns.SMALL)["found"] > 0


def test_an_error_inside_a_system_is_told_in_a_line_and_the_next_verb_is_answered(work: turns.Work) -> None:
    with Process.start("floor.Fts5", work.folder / "error", work.pools, memory_gb=4.0) as process:
        with pytest.raises(StoppedError, match="fails: FileNotFoundError"):
            process.ask("load", str(work.folder / "absent.jsonl"), 1.0)
        assert process.ask("size")["disk_mb"] >= 0


def test_a_system_that_cannot_be_opened_says_why(tmp_path: Path, pools: Path) -> None:
    with pytest.raises(StoppedError, match="fails: AttributeError"):
        Process.start("floor.Absent", tmp_path / "absent", pools, memory_gb=4.0)


# -- limits ------------------------------------------------------------------------------------------------------------


def run(body: str, *, memory_gb: float = 4.0) -> Process:
    """A process that tells of 5 notes, then is ready, then does that when it is asked."""
    opened = 'import json, sys\nprint(json.dumps({"progress": 5}))\nprint(json.dumps({"done": {}}), flush=True)\n'
    process = Process([sys.executable, "-c", f"{opened}sys.stdin.readline()\n{body}"], memory_gb)
    process.wait(120.0)
    return process


def test_who_does_not_answer_in_time_is_stopped_and_how_far_it_came_is_known() -> None:
    process = run("sys.stdin.read()")
    with pytest.raises(StoppedError) as stopped:
        process.ask("load", seconds=0.2)
    assert (stopped.value.notes, stopped.value.why) == (5, "in 0 s")
    assert process.process.poll() is not None


def test_who_takes_too_much_memory_is_stopped() -> None:
    process = run("taken = bytearray(b'x') * 400_000_000\nsys.stdin.read()", memory_gb=0.2)
    with pytest.raises(StoppedError) as stopped:
        process.ask("load")
    assert (stopped.value.notes, stopped.value.why) == (5, "within 0.2 GB")
    assert process.process.poll() is not None


def test_a_process_that_ends_by_itself_is_noticed_at_once() -> None:
    process = run("sys.exit(3)")
    with pytest.raises(StoppedError, match="its process ended with 3"):
        process.ask("load")
    process.close()


def test_a_rival_that_was_stopped_leaves_a_row_that_says_how_far_it_came(
    work: turns.Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> Process:
        raise StoppedError("in 60 s", 120)

    monkeypatch.setattr(Process, "start", stop)
    row = turns.measure(SYSTEMS["mem0"], work, {}, LIMITS)
    assert row["why"] == "not reached: 120 of 300 notes in 60 s"
    assert "search" not in row


@pytest.mark.parametrize(
    ("load", "own_mb", "why"),
    [
        ({"per_s": 100.0}, 100.0, "not tried: 1,000 s at the rate of 10,000 notes (limit 240)"),
        ({"per_s": 9_000.0}, 1_200.0, "not tried: 12 GB of memory at the rate of 10,000 notes (limit 8)"),
        ({"per_s": 9_000.0}, 100.0, None),
    ],
)
def test_what_cannot_be_reached_by_the_rate_before_is_not_tried(load: Any, own_mb: float, why: str | None) -> None:
    rows = {"mem0@10000": {"load": load, "size": {"own_mb": own_mb}}, "mem0@1000": {"load": {"per_s": 1.0}}}
    assert speed.hopeless(rows, "mem0", 100_000, Limits(load_s=240.0, memory_gb=8.0)) == why
    assert speed.hopeless(rows, "chroma", 100_000, Limits(load_s=240.0, memory_gb=8.0)) is None
    assert speed.hopeless(rows, "mem0", 5_000, Limits(load_s=1.0, memory_gb=8.0)) is None  # 1,000 notes say too little
    assert speed.hopeless(rows, "fts5", 1_000_000, LIMITS) == "not tried: see bench.speed"


# -- one run, and going on ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("speed") / "rivals_speed.json"
    known = {"chroma": {"why": "not installed: chromadb"}}
    settings = {"queries": 2, "seed": 0}
    state = {
        "machine": speed._machine(),
        "settings": settings,
        "costs": known,
        "rows": {},
        "embedding": {},
        "seconds": 0.0,
    }
    speed.save(state, out)
    speed.main(arguments(out))
    return out


def arguments(out: Path, *more: str) -> list[str]:
    return ["--sizes", "300", "--queries", "2", "--systems", "fts5,chroma", "--out", str(out), *more]


def test_a_run_has_a_row_for_every_system_beside_ours(kept: Path) -> None:
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert set(found["rows"]) == {f"{name}@300" for name in (OURS, OURS_VECTORS, "fts5", "chroma")}
    row = found["rows"]["fts5@300"]
    assert row["search"]["calls"] == row["small search"]["calls"] == 2
    assert row["ratio"]["retcon recall wall"] > 0
    assert row["add"]["p50_ms"] > 0
    assert found["rows"]["chroma@300"] == {"why": "not installed: chromadb"}
    assert found["costs"][OURS]["packages"] > 1
    assert not list(kept.parent.glob("*.part"))


def test_what_is_measured_is_not_measured_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads(kept.read_text(encoding="utf-8"))
    monkeypatch.setattr(turns, "open_ours", None)  # would raise if it were called
    speed.main(arguments(kept))
    assert json.loads(kept.read_text(encoding="utf-8"))["rows"] == before["rows"]


def test_a_run_goes_on_where_it_was_stopped(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = json.loads(kept.read_text(encoding="utf-8"))
    gone = state["rows"].pop("fts5@300")
    out = tmp_path / "stopped.json"
    speed.save(state, out)
    monkeypatch.setattr(turns, "measure", lambda system, *_: gone | {"made": system.name})
    speed.main(arguments(out))
    found = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert found["fts5@300"]["made"] == "fts5"
    assert {key: row for key, row in found.items() if key != "fts5@300"} == state["rows"]


def test_what_was_measured_otherwise_is_not_mixed_in(kept: Path) -> None:
    with pytest.raises(SystemExit, match="say --fresh"):
        speed.main(["--sizes", "300", "--queries", "3", "--systems", "fts5", "--out", str(kept)])


@pytest.mark.parametrize("wrong", [["--sizes", "10"], ["--sizes", "many"], ["--systems", "me"], ["--queries", "0"]])
def test_bad_use_is_refused_in_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        speed.main(wrong)
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err.splitlines()[-1]


# -- what a system brings ----------------------------------------------------------------------------------------------


def test_the_packages_of_a_system_are_those_it_needs_and_no_extra() -> None:
    found = closure(["retcon-memory"])
    assert {"retcon-memory", "numpy", "pystemmer", "typer", "rich"} <= set(found)
    assert not {"bm25s", "pytest", "faiss-cpu"} & set(found)
    assert size(found["numpy"]) > 1_000_000
    assert size(found["retcon-memory"]) > 500_000  # installed in place, so its own folder counts


def test_a_system_that_is_not_installed_says_so() -> None:
    absent = System("x", "X", "memory", "words", "x.X", "import x", ("no-such-package-at-all",))
    assert costs(absent) == {"why": "not installed: no-such-package-at-all"}


def test_every_store_of_the_list_has_its_class_and_rivals_are_all_but_ours() -> None:
    folder = Path(turns.__file__).parent / "stores"
    for system in SYSTEMS.values():
        module, name = system.store.split(".")
        assert f"class {name}" in (folder / f"{module}.py").read_text(encoding="utf-8")
    assert set(RIVALS) == set(SYSTEMS) - {OURS, OURS_VECTORS}


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_no_batch_has_a_text_twice_and_no_note_is_lost(texts: list[str]) -> None:
    notes = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    found = list(_apart(notes))
    assert sorted((note["id"] for some in found for note in some), key=int) == [note["id"] for note in notes]
    assert all(len({note["text"] for note in some}) == len(some) for some in found)


# -- the page ----------------------------------------------------------------------------------------------------------


def took(ms: float, **more: Any) -> dict[str, Any]:
    return {"p50_ms": ms, "p95_ms": 2 * ms, "cpu_p50_ms": ms, "calls": 10, "found": 20.0, "foreign": 0} | more


def row(ms: float, *, per_s: float, ratio: float | None = None, **more: Any) -> dict[str, Any]:
    verbs = ("search", "recall") if ratio is None else ("search",)
    found: dict[str, Any] = {f"{mark}{verb}": took(ms) for mark in ("", "small ") for verb in verbs}
    if ratio is not None:
        names = [
            f"{mark}{ours} recall {clock}"
            for mark in ("", "small ")
            for ours in (OURS, OURS_VECTORS)
            for clock in ("wall", "cpu")
        ]
        found["ratio"] = dict.fromkeys(names, ratio)
    load = {"notes": 100_000, "whole": True, "per_s": per_s, "wall_s": 1.0}
    taken = {"own_mb": 10.0, "peak_mb": 20.0, "disk_mb": 5.0}
    return found | {"load": load, "size": taken, "add": took(1.0), "load_average": 0.5} | more


@pytest.fixture
def results() -> dict[str, Any]:
    rows = {
        f"{OURS}@100000": row(2.0, per_s=9_000.0), f"{OURS_VECTORS}@100000": row(4.0, per_s=4_000.0),
        "lancedb-words@100000": row(6.0, per_s=18_000.0, ratio=3.0),
        "langgraph-memory@100000": row(50.0, per_s=100.0, ratio=25.0),
        "llamaindex-vectors@100000": row(8.0, per_s=100.0, ratio=4.0),
        "llamaindex-bm25@100000": row(8.0, per_s=100.0, ratio=40.0) | {"small search": took(1.0, foreign=31)},
        "chroma@100000": {"why": "not reached: 7 of 100,000 notes within 8 GB"},
        "mem0@100000": row(90.0, per_s=10.0, ratio=45.0, why="not reached: 4,000 of 100,000 notes in 360 s"),
    }  # fmt: skip
    rows["mem0@100000"]["load"] |= {"notes": 4_000, "whole": False}
    cost = {"packages": 15, "mb": 77.0, "import_ms": 180.0, "import_cpu_ms": 150.0, "versions": {"retcon-memory": "1"}}
    machine = {"processor": "a processor", "cores": 2, "python": "3.11", "sqlite": "3"}
    return {
        "machine": machine, "settings": {"queries": 10, "seed": 0}, "costs": {OURS: cost}, "rows": rows,
        "embedding": {"chroma": {"why": "not measured: x"}}, "seconds": 600.0,
    }  # fmt: skip


def line(table: str, title: str) -> str:
    return next(each for each in table.splitlines() if each.startswith(f"| {title}"))


def test_a_goal_is_judged_for_every_memory_and_for_no_engine(results: dict[str, Any]) -> None:
    found = {goal.what.split(" over ")[0].removeprefix("search of "): goal.met for goal in judged(results)}
    assert found == {
        "LangGraph InMemoryStore": True, "LlamaIndex vector index": False, "LlamaIndex BM25 retriever": True,
        "Mem0, infer=False, local Qdrant": True, "bulk add at 100,000 notes, rate": False,
    }  # fmt: skip
    assert "(4,000 notes in it)" in goals(results)
    assert "missed by 60%" in goals(results)


def test_below_the_stated_size_no_recall_is_judged(results: dict[str, Any]) -> None:
    results["rows"] = {key.replace("100000", "1000"): found for key, found in results["rows"].items()}
    assert [goal.what for goal in judged(results)] == ["bulk add at 1,000 notes, rate over LanceDB's full text"]


def test_a_cell_without_a_figure_says_why(results: dict[str, Any]) -> None:
    table = searches(results)
    assert line(table, "Chroma") == "| Chroma | vectors | not reached: 7 of 100,000 notes within 8 GB |"
    assert "| 90 / 180 = 45× (45×), 4,000 of 100,000 notes in 360 s |" in line(table, "Mem0")
    assert "3.1 of 20 another user's" in line(searches(results, mark="small "), "LlamaIndex BM25")
    assert "a rebuild" in line(adds(results), "LlamaIndex BM25")


def test_the_report_has_every_table(results: dict[str, Any]) -> None:
    shown = report(results)
    assert shown.count("rivals-speed-") == 8
    assert "10 minutes on 2 cores (a processor)" in shown
    assert "not measured: x" in shown


def test_ratios_are_of_the_medians_of_the_same_queries() -> None:
    def spans(*walls: float) -> Iterator[dict[str, float]]:
        return ({"wall": wall, "cpu": wall / 2} for wall in walls)

    asked: turns.Asked = {
        f"{ours} {verb} {user}": list(spans(1.0, 2.0, 3.0, 400.0))
        for ours in (OURS, OURS_VECTORS)
        for verb in ("search", "recall")
        for user in (turns.BIG, turns.SMALL)
    }
    asked |= {f"mem0 search {user}": list(spans(10.0, 20.0, 60.0)) for user in (turns.BIG, turns.SMALL)}
    assert set(turns.ratios(asked, "mem0").values()) == {10.0}  # the fourth query of ours was not asked of mem0
