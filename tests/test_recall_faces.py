"""Safe recalls and drafts over every face: the command line and HTTP give what the library gives, errors too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, document, fine
from misbehaving import Server, completion, says

from retcon import AsyncMemory, Memory, Recall, Router
from retcon.drafts import TRAITS, Drafts
from retcon.model import FakeChat

pytest.importorskip("fastapi")

from serving import client, error

pytestmark = pytest.mark.both_stores

QUESTION = "How much did the vet cost?"
NOTES = (
    "I adopted a cat named Pixel.",
    "Pixel's first vet visit cost 84 euros. She hid behind the boiler for an hour.",
    "The vet is called Dr. Aylin Kaya and works in Basel.",
)
GOOD, POOR = "The first vet visit cost 84 euros.", "The cat hid behind the boiler."
NAMES = ("retain", "extract", "merge", "abstract")
DRAFTS = Drafts(
    actions=("merge", "abstract"), traits=TRAITS, weights=(2.0, 1.0, 0.0, -1.0), levels=(0.0, 0.0), slopes=(0.0, 0.0)
)
ROUTER = Router(
    name="mine", actions=NAMES, features=(), weights=dict.fromkeys(NAMES, ()),
    intercepts={"retain": 0.5, "extract": 0.625, "merge": 0.5, "abstract": 0.5}, thresholds={32: 0.25, 64: 0.125},
    drafts={2: DRAFTS},
)  # fmt: skip


@pytest.fixture
def router(tmp_path: Path) -> Path:
    ROUTER.save(tmp_path / "router.json")
    return tmp_path / "router.json"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETCON_DB", str(tmp_path / "t.db"))
    with Memory(tmp_path / "t.db") as memory:
        memory.add(list(NOTES))
    return tmp_path / "t.db"


@pytest.fixture
def writer() -> Iterator[Server]:
    with Server(always=says(completion(GOOD))) as server:
        server.queue.append(says(completion(POOR)))
        yield server


def without_seconds(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"usage": found["usage"] | {"seconds": 0.0}}


@pytest.mark.parametrize("budget", [32, 64])
@pytest.mark.parametrize("safe", [False, True])
def test_the_command_line_is_as_safe_as_the_library(store: Path, router: Path, budget: int, safe: bool) -> None:
    options = ("-b", str(budget), "--router", str(router), *(["--safe"] if safe else []))
    with Memory(store, router=ROUTER) as memory:
        recalled, decided = (call(QUESTION, budget, safe=safe) for call in (memory.recall, memory.decide))
    assert without_seconds(document("recall", QUESTION, *options)) == without_seconds(recalled.to_dict())
    assert document("decide", QUESTION, *options) == json.loads(json.dumps(decided.to_dict()))
    assert recalled.action == ("retain" if safe and budget == 32 else "extract")


def test_the_command_line_says_the_threshold_that_counts(store: Path, tmp_path: Path, router: Path) -> None:
    told = fine("decide", QUESTION, "-b", "32", "--router", str(router), "--safe")
    assert "advantage 0.125, threshold 0.25" in told
    Router.from_dict(ROUTER.to_dict() | {"fixed": {"32": ["extract"]}}).save(tmp_path / "aside.json")
    assert "no threshold" in fine("decide", QUESTION, "-b", "32", "--router", str(tmp_path / "aside.json"))


def test_the_command_line_writes_drafts(store: Path, router: Path, writer: Server) -> None:
    model = ("--model", writer.base, "--model-name", "m", "--router", str(router))
    found = document("recall", QUESTION, "-b", "32", "--drafts", "2", *model)
    assert (found["action"], found["text"], found["usage"]["model_calls"]) == ("abstract", GOOD, 2)
    assert [draft["action"] for draft in found["drafts"]] == ["abstract", "merge"]
    shown = fine("recall", QUESTION, "-b", "32", "--drafts", "2", "-v", *model)
    assert "A summary of the notes: kept over one text merged from the notes." in shown
    assert "the best of 2 drafts" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--safe"], "safe needs thresholds, and router 'evidence-fit' has none: retcon calibrate sets them"),
        (["--drafts", "2"], "router 'evidence-fit' has no drafts of 2 texts; it has none"),
    ],
)
def test_the_command_line_refuses_what_the_router_has_not_learned(store: Path, options: list[str], said: str) -> None:
    assert complaint("recall", QUESTION, *options) == said


def test_http_gives_what_the_library_gives(path: Path) -> None:
    with Memory(path, router=ROUTER, model=FakeChat([POOR, GOOD])) as memory, client(memory) as http:
        memory.add(list(NOTES))
        body = {"query": QUESTION, "budget": 32}
        safe = http.post("/recall", json=body | {"safe": True}).json()
        assert (safe["action"], safe["decision"]["threshold"], safe["decision"]["safe"]) == ("retain", 0.25, True)
        assert http.post("/decide", json=body | {"safe": True}).json()["action"] == "retain"
        assert http.post("/decide", json=body).json()["action"] == "extract"
        drafted = http.post("/recall", json=body | {"drafts": 2}).json()
        assert (drafted["action"], drafted["text"]) == ("abstract", GOOD)
        assert drafted["usage"]["model_calls"] == 2
        assert without_seconds(http.post("/recall", json=body | {"drafts": 2}).json()) == without_seconds(
            json.loads(json.dumps(memory.recall(QUESTION, 32, drafts=2).to_dict()))
        )


@pytest.mark.parametrize("more", [{"safe": True}, {"drafts": 2}, {"drafts": 0}, {"drafts": "two"}, {"safe": "maybe"}])
def test_http_refuses_with_one_line_what_cannot_be(path: Path, more: dict[str, Any]) -> None:
    with Memory(path) as memory, client(memory) as http:
        memory.add(list(NOTES))
        assert error(http.post("/recall", json={"query": QUESTION} | more), 422) == "bad_input"


def test_awaited_recalls_are_as_safe() -> None:
    async def go() -> list[Recall]:
        async with AsyncMemory(":memory:", router=ROUTER) as memory:
            await memory.add(list(NOTES))
            return [await memory.recall(QUESTION, 32, safe=safe) for safe in (False, True)]

    assert [found.action for found in asyncio.run(go())] == ["extract", "retain"]
