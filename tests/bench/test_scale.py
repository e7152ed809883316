"""The benchmarks of scale run from end to end at a tiny size, and the arithmetic is what it says. Nothing is timed."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil")
pytest.importorskip("psycopg")

from bench.speed import paper, scale, service, stores
from bench.speed.server import find_binaries


@pytest.fixture(scope="module")
def results() -> Iterator[Any]:
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    out = Path(tempfile.mkdtemp(prefix="retcon-scale-"))
    out.chmod(0o755)  # a server of root's tests runs as another user
    words = ["--stages", "120:4,200:6", "--heavy", "60", "--queries", "3", "--purge", "--out", str(out)]
    stores.main([*words, "--keep", str(out / "kept")])
    stores.main([*words, "--keep", str(out / "kept")])  # goes on where all is done
    yield json.loads((out / "stores.json").read_text(encoding="utf-8"))
    shutil.rmtree(out)


def test_both_stores_hold_every_user_and_answer_the_same(results: Any) -> None:
    assert [scale.users_of(stage) for stage in results["stages"]] == [7, 7]  # taken up again: all users are there
    for stage in results["stages"]:
        assert set(stage["recall"]) == {"ordinary", "heavy"}
        assert all(found["differ"] == 0 for found in stage["recall"].values())
        assert stage["notes"]["sqlite"] == stage["notes"]["postgres"]
        assert all(stage["disk"][name]["per_note"] > 0 for name in stores.STORES)


def test_a_run_that_goes_on_adds_nothing_twice(results: Any) -> None:
    assert all(stage["bulk"] == {} for stage in results["stages"])
    late = (stores.SINGLE + stores.WARM) * 4
    assert scale.notes_of(results["stages"][-1]) == 200 + 60 + late - (stores.SINGLE + stores.WARM)


def test_new_users_of_a_stage_share_what_is_missing() -> None:
    first, second = stores.plan(((100, 3), (300, 5)), 40)
    assert [(user.name, user.notes) for user in first] == [("heavy", 40), ("u0", 34), ("u1", 33), ("u2", 33)]
    assert [user.notes for user in second] == [100, 100]
    assert len({user.number for user in first + second}) == 6


@pytest.mark.parametrize("text", ["1000", "a:b", "1000:10,900:20", "1000:10,2000:10", "100:90"])
def test_a_stage_that_cannot_be_is_refused_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        stores.main(["--stages", text])
    assert "error: argument --stages" in capsys.readouterr().err


def made(**changed: Any) -> Any:
    """A result with round figures."""
    recall = {name: {"p50_ms": 5.0, "p95_ms": 9.0, "cpu_p50_ms": 6.0} for name in stores.STORES}
    stage = {
        "notes": dict.fromkeys(stores.STORES, 1_000_000), "disk": {name: {"per_note": 2_000} for name in stores.STORES},
        "bulk": {name: {"last_per_s": 10_000.0} for name in stores.STORES},
        "recall": {"ordinary": {"recall": recall, "server_cpu_ms": 1.5}},
        "single": {"postgres": {"cpu_p50_ms": 2.0}, "server_cpu_ms": 1.0},
    }  # fmt: skip
    return {"stages": [stage | changed]}


def test_paper_arithmetic_gives_the_constructed_answer() -> None:
    given = paper.Assumptions(
        users=864_000, notes=1_000, recalls=10, adds=10, peak=2, busy=0.5, http=1, partition=100_000_000, copies=2,
        resident=0.5, core_hour=1, memory_month=1, disk_month=1,
    )  # fmt: skip
    found = {line.what: line.value for line in paper.work_out(made(), given)}
    assert found["notes"] == 864_000_000
    assert found["bytes of one copy"] == pytest.approx(1.728)  # TB
    assert found["databases, split by user"] == 9
    assert found["recalls a second at the peak"] == pytest.approx(200)
    assert found["cores of services for recalls"] == pytest.approx(200 * 0.007 / 0.5)
    assert found["cores a month"] == pytest.approx((200 * 0.0085 + 200 * 0.004) / 0.5 * 730)
    total = found["cores a month"] + 1_728 * 0.5 * 2 + 1_728 * 2 * 2
    assert found["a month"] == pytest.approx(total)
    assert found["**a million recalls**"] == pytest.approx(total / (100 * 730 * 3600 / 1e6))


def test_hundred_million_notes_take_what_one_takes_a_hundred_million_times() -> None:
    lines = paper.hundred_million_table(made()).splitlines()
    assert "100,000,000 / 10,000 a second = 2.8 h" in lines[-1]
    assert "= 200 GB" in lines[-1]


def test_a_purge_on_paper_takes_as_long_for_every_note() -> None:
    table = paper.hundred_million_table(made(purge_s={"sqlite": 36.0, "postgres": 72.0}))
    assert "72 s / 1,000,000 × 100,000,000 = 2.0 h" in table
    assert "not measured" in paper.hundred_million_table(made())


def test_every_assumption_has_an_option_and_a_meaning() -> None:
    table = paper.assumptions_table()
    assert all(f"`{paper.option_of(name)}`" in table for name in paper.vars_of(paper.Assumptions()))


def test_the_service_is_measured_beside_an_earlier_one_or_the_reason_is_told(tmp_path: Path) -> None:
    words = ["--notes", "100", "--clients", "2", "--rounds", "1", "--seconds", "1", "--out", str(tmp_path)]
    try:
        service.main(words)
    except SystemExit as error:
        if str(error).startswith("nothing to compare with"):
            return
        raise
    found = json.loads((tmp_path / "service.json").read_text(encoding="utf-8"))
    assert found["errors"] == []
    assert found["lost"] == {"earlier": 0, "now": 0}
    assert all(found["systems"][name]["requests"] > 0 for name in service.SYSTEMS)
    assert scale.service_table(found).count("\n") == 6


def test_servers_take_turns_at_being_first() -> None:
    orders = [list(service.in_turn(number)) for number in range(3)]
    assert {order[0] for order in orders} == set(service.SYSTEMS)
    assert all(sorted(order) == sorted(service.SYSTEMS) for order in orders)
