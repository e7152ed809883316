"""Spans: there for a program that set them up, free for one that did not, and without anybody's words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from serving import LOCAL

from retcon import Memory
from retcon.errors import ModelUnavailableError
from retcon.model import FakeChat
from retcon.server import create_app
from retcon.trace import span


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """Where the spans of this process go: a provider can be set only once in one."""
    made = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    exporter.clear()
    return exporter


def nested(spans: InMemorySpanExporter) -> list[tuple[ReadableSpan, str | None]]:
    """Each finished span with the name of the one around it."""
    made = spans.get_finished_spans()
    names = {each.context.span_id: each.name for each in made if each.context}
    return [(each, None if each.parent is None else names[each.parent.span_id]) for each in made]


@pytest.mark.parametrize("loaded", ["", "import opentelemetry.trace\n"], ids=["absent", "not set up"])
def test_span_that_nobody_set_up_loads_and_makes_nothing(loaded: str) -> None:
    code = (
        f"import sys\n{loaded}before = set(sys.modules)\nfrom retcon.trace import span\n"
        "with span('x', a=1) as one, span('y') as other:\n    one.set_attribute('b', 2)\n"
        "print(one is other, span('x') is span('y'), [n for n in set(sys.modules) - before if 'telemetry' in n])"
    )
    out = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[0] == "True True []"


def test_span_has_its_name_and_attributes(spans: InMemorySpanExporter) -> None:
    with span("retcon.test", budget=64, model=None) as current:
        current.set_attribute("tokens", 12)
    (found,) = spans.get_finished_spans()
    assert found.name == "retcon.test"
    assert dict(found.attributes or {}) == {"retcon.budget": 64, "retcon.tokens": 12}


def test_error_marks_the_span_with_its_class_alone(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="zanzibar"), span("retcon.test"):
        raise ValueError("zanzibar")
    (found,) = spans.get_finished_spans()
    assert not found.status.is_ok
    assert dict(found.attributes or {}) == {"error.type": "ValueError"}
    assert not found.events
    assert "zanzibar" not in found.to_json()


def test_spans_nest_over_the_threads_of_the_service_and_hold_nobodys_words(
    spans: InMemorySpanExporter, memory: Memory
) -> None:
    app = create_app(memory)

    async def traced(scope: Any, receive: Any, send: Any) -> None:
        """A program's own layer around the service."""
        with trace.get_tracer("theirs").start_as_current_span("outer"):
            await app(scope, receive, send)

    with TestClient(traced, base_url=LOCAL) as http:
        spans.clear()
        http.post("/memories", json={"text": "zanzibar", "user_id": "quetzal"})
        http.post("/recall", json={"query": "marzipan", "budget": 32})
        http.post("/search", json={"query": "marzipan"})
        http.post("/search", json={"query": "x", "since": "kumquat"})
        http.get("/memories/quetzal", params={"since": "kumquat"})
        made = {each.name: each for each in spans.get_finished_spans()}
    assert {"retcon.add", "retcon.recall", "retcon.search"} <= set(made)
    within: dict[str, set[str | None]] = {"outer": {None}, "retcon.request": {"outer"}}
    within |= {"retcon.features": {"retcon.recall"}, "retcon.retrieve": {"retcon.recall", "retcon.search"}}
    for each, above in nested(spans):
        assert above in within.get(each.name, {"retcon.request"})
        assert not [word for word in ("zanzibar", "quetzal", "marzipan", "kumquat") if word in each.to_json()]
    attributes = dict(made["retcon.recall"].attributes or {})
    assert attributes["retcon.budget"] == 32
    assert {"retcon.action", "retcon.tokens"} <= set(attributes)


def test_recall_and_ask_are_traced_stage_by_stage_and_hold_nobodys_words(
    spans: InMemorySpanExporter, path: Path
) -> None:
    with Memory(path, model=FakeChat(lambda ask: "quetzal"), top_k=7) as memory:
        memory.add("zanzibar and marzipan", user_id="kumquat")
        memory.recall("marzipan", 64, user_id="kumquat", action="merge")
        memory.ask("marzipan", 64)
        found = nested(spans)
    stages = {each.name: dict(each.attributes or {}) for each, _ in found}
    assert stages["retcon.retrieve"] == {"retcon.top_k": 7}
    assert stages["retcon.features"] == stages["retcon.read"] == {}
    generated = [dict(each.attributes or {}) for each, _ in found if each.name == "retcon.generate"]
    assert generated == [{"retcon.action": "merge"}, {"retcon.action": "abstract"}]
    assert not [
        each for each, _ in found for word in ("zanzibar", "quetzal", "marzipan", "kumquat") if word in each.to_json()
    ]


def test_stage_that_fails_is_marked_and_recall_goes_on(spans: InMemorySpanExporter, path: Path) -> None:
    with Memory(path, model=FakeChat([ModelUnavailableError("zanzibar")] * 9)) as memory:
        memory.add("a cat named Pixel")
        assert memory.recall("cat", 64, action="merge").warnings
    (failed,) = [each for each in spans.get_finished_spans() if each.name == "retcon.generate"]
    assert dict(failed.attributes or {}) == {"retcon.action": "merge", "error.type": "ModelUnavailableError"}
    assert "zanzibar" not in failed.to_json()


def test_request_belongs_to_the_span_that_its_caller_names(spans: InMemorySpanExporter, memory: Memory) -> None:
    with TestClient(create_app(memory), base_url=LOCAL) as http:
        http.get("/health", headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    (found,) = spans.get_finished_spans()
    assert found.parent is not None
    assert (found.parent.trace_id, found.parent.span_id) == (int("a" * 32, 16), int("b" * 16, 16))
    assert dict(found.attributes or {}) == {"retcon.method": "GET", "retcon.route": "/health", "retcon.status": 200}
