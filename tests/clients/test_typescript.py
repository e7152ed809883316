"""The TypeScript client: made from the document of the running server, packed, installed elsewhere, and run by node."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from misbehaving import Server, completion, says
from serving import ROOT, Served, served

import retcon
from retcon.server import Keys

PACKAGE = ROOT / "clients" / "typescript"


@dataclass(frozen=True)
class Running:
    """A server with a model that knows the answer, and two of its keys."""

    server: Served
    ann: str
    admin: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    db = tmp_path_factory.mktemp("store") / "agent.db"
    with closing(Keys(f"{db}.keys")) as keys:
        (ann, _), (admin, _) = keys.add(user_id="ann"), keys.add(admin=True)
    with (
        Server(always=says(completion("Pixel"))) as model,
        served(db, "--model", model.base, "--model-name", "fake") as server,
    ):
        yield Running(server, ann, admin)
        server.process.terminate()


@pytest.fixture(scope="module")
def document(running: Running) -> dict[str, Any]:
    return dict(running.server.http.get("/openapi.json").json())


@pytest.fixture(scope="module")
def packed(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it would be published, its types made from the document of the running server."""
    (PACKAGE / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    folder = tmp_path_factory.mktemp("packed")
    npm(PACKAGE, "pack", "--silent", "--pack-destination", str(folder))
    (made,) = folder.glob("*.tgz")
    return made


@pytest.fixture(scope="module")
def project(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of somebody else's, with the package installed and its tests compiled, strictly."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
    npm(folder, "install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", str(packed))
    for file in (PACKAGE / "test").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "node_modules" / "@types").symlink_to(PACKAGE / "node_modules" / "@types")
    run(folder, str(PACKAGE / "node_modules" / ".bin" / "tsc"), "--project", "tsconfig.json")
    return folder


def run(folder: Path, *command: str, **env: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False, env=os.environ | env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def npm(folder: Path, *words: str) -> str:
    return run(folder, "npm", *words)


def test_the_package_holds_what_a_user_needs_and_nothing_else(packed: Path) -> None:
    with tarfile.open(packed) as opened:
        names = {name.removeprefix("package/") for name in opened.getnames()}
    assert names == {
        "package.json", "README.md", "LICENSE",
        "dist/index.js", "dist/index.d.ts", "dist/schema.js", "dist/schema.d.ts",
    }  # fmt: skip


def test_its_version_is_retcons_and_its_lock_names_no_registry() -> None:
    assert json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["version"] == retcon.__version__
    lock = json.loads((PACKAGE / "package-lock.json").read_text(encoding="utf-8"))
    assert lock["version"] == retcon.__version__
    assert not [name for name, each in lock["packages"].items() if "resolved" in each]
    assert all("integrity" in each for name, each in lock["packages"].items() if name)


def test_its_types_are_those_of_the_running_server(document: dict[str, Any], project: Path) -> None:
    types = (project / "node_modules" / "retcon-memory" / "dist" / "schema.d.ts").read_text(encoding="utf-8")
    wanted = [route["operationId"] for methods in document["paths"].values() for route in methods.values()]
    assert [name for name in wanted if f"    {name}: {{\n" not in types] == []
    assert [name for name in document["components"]["schemas"] if f"        {name}: " not in types] == []


def test_every_verb_works_against_the_real_server(running: Running, project: Path) -> None:
    keys = {"RETCON_URL": running.server.url, "RETCON_KEY": running.ann, "RETCON_ADMIN": running.admin}
    told = run(project, "node", "--test", "--test-reporter=tap", "out/client.test.js", **keys)
    assert "\n# fail 0\n" in told
    assert "\n# pass 8\n" in told


def test_every_route_has_a_verb(document: dict[str, Any]) -> None:
    code = (PACKAGE / "src" / "index.ts").read_text(encoding="utf-8")
    routes = [(method, path) for path, methods in document["paths"].items() for method in methods]
    assert [each for each in routes if f'{each[0].upper()}("{each[1]}"' not in code] == []
