"""A client that openapi-python-client makes from the document of the running server: it calls every route."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from misbehaving import Server, completion, says
from serving import Served, served

NAME = "made_client"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    """The server, with a model that always knows the answer."""
    with Server(always=says(completion("Pixel"))) as model:
        options = ("--model", model.base, "--model-name", "fake")
        with served(tmp_path / "agent.db", *options) as server:
            yield server
            server.process.terminate()


@pytest.fixture
def made(running: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The document of the server, from which the client was made that can now be imported."""
    document = running.http.get("/openapi.json").json()
    (tmp_path / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"]
    where = ["--path", str(tmp_path / "openapi.json"), "--output-path", str(tmp_path / NAME)]
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # where its ruff is
    done = subprocess.run([*command, *where], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    yield document
    for module in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[module]


@pytest.fixture
def client(running: Served, made: dict[str, Any]) -> Iterator[Any]:
    with importlib.import_module(NAME).Client(base_url=running.url) as opened:
        yield opened


def test_a_generated_client_calls_every_route_and_reads_every_answer(
    running: Served, made: dict[str, Any], client: Any
) -> None:
    routes = [(method, path, route) for path, methods in made["paths"].items() for method, route in methods.items()]
    for method, path, route in sorted(routes, key=lambda each: each[0] == "delete"):
        given: dict[str, Any] = {}
        if "{id}" in path:
            given["id"] = running.http.post("/memories", json={"text": "I adopted a cat."}).json()["results"][0]["id"]
        if "requestBody" in route:
            given["body"] = example_of(made, route)
        if (method, path) == ("delete", "/memories"):
            given["user_id"] = "ann"
        called = importlib.import_module(f"{NAME}.api.{route['tags'][0]}.{route['operationId']}")
        answer = called.sync_detailed(client=client, **given)
        assert answer.status_code == 200, (method, path, answer.content)
        assert type(answer.parsed).__name__ == name_of(route["responses"]["200"]), (method, path)


def test_a_generated_client_tells_an_error_by_its_code(client: Any) -> None:
    answer = importlib.import_module(f"{NAME}.api.read.get_memory").sync_detailed("nope", client=client)
    assert answer.status_code == 404
    assert answer.parsed.error.code == "not_found"


def name_of(part: dict[str, Any]) -> str:
    """The name of the class that a body has."""
    (schema,) = (kind["schema"] for name, kind in part["content"].items() if name != "text/event-stream")
    return str(schema["$ref"]).rpartition("/")[2] if "$ref" in schema else {"string": "str"}[schema["type"]]


def example_of(document: dict[str, Any], route: dict[str, Any]) -> Any:
    """The document's own example of a body, as the client's class."""
    name = name_of(route["requestBody"])
    (example,) = document["components"]["schemas"][name]["examples"]
    return getattr(importlib.import_module(f"{NAME}.models"), name).from_dict(example)
