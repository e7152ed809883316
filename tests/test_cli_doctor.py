"""retcon doctor: what is configured, and what is missing."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from command_line import ROOT, document, document_of_broken, fine

import retcon
from retcon.cli.doctor import EXTRAS


def test_doctor_says_what_is_configured(cats: Path) -> None:
    found, shown = document("doctor"), fine("doctor")
    assert found["ok"]
    assert found["broken"] == []
    assert found["setup"]["router"]["actions"] == ["retain", "extract"]
    assert (found["setup"]["counter"], found["setup"]["retriever"]) == ("estimate", "bm25")
    assert (found["store"]["notes"], found["store"]["scopes"], found["store"]["check"]) == (3, 2, "ok")
    assert found["store"]["bytes"] == cats.stat().st_size
    for word in (
        retcon.__version__,
        sqlite3.sqlite_version,
        "3 notes, 2 scopes",
        "quick check ok",
        "evidence-fit, rule",
        "ready",
    ):
        assert word in shown
    assert found["model"] == {"model": None, "only_for": None, "actions": ["retain", "extract"], "reply": None}
    assert "none configured: actions are retain, extract" in shown


def test_doctor_makes_no_store(db: Path) -> None:
    assert "not there yet" in " ".join(fine("doctor").split())
    assert not document("doctor")["store"]["exists"]
    assert list(db.parent.iterdir()) == []


def test_doctor_shows_no_key(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    for args in (["doctor"], ["doctor", "--json"]):
        assert "very-secret" not in fine(*args)
        assert "set, not shown" in fine(*args)


@pytest.mark.parametrize("args", ["--router nope.json", "--counter nope", "--retriever nope", "--embedder nope"])
def test_doctor_finds_a_part_that_cannot_be_used(args: str, db: Path) -> None:
    assert "nope" in document_of_broken("doctor", *args.split())["setup"]["error"]


@pytest.mark.parametrize("value", ["abc", "-1", "1e9", "99999999999"])
def test_doctor_finds_a_budget_that_is_none(value: str, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETCON_BUDGET", value)
    assert "RETCON_BUDGET" in document_of_broken("doctor")["environment"]["error"]


NAMES = {  # distribution -> module, where they differ
    "scikit_learn": "sklearn", "opentelemetry_api": "opentelemetry", "faiss_cpu": "faiss", "openai_agents": "agents",
    "llama_index_core": "llama_index.core", "pydantic_ai_slim": "pydantic_ai", "google_adk": "google.adk",
}  # fmt: skip


def test_doctor_knows_every_extra_of_the_package(db: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"dev", "docs"}  # of those who work on retcon
    for name, (_, modules) in EXTRAS.items():
        wanted = {re.split(r"[>=<\[]", item)[0].replace("-", "_") for item in project["optional-dependencies"][name]}
        assert set(modules) == {NAMES.get(each, each) for each in wanted}


def test_doctor_names_the_install_line_of_what_is_missing(db: Path) -> None:
    hidden = "import sys; sys.modules.update(wordllama=None, bpe_openai=None)\nfrom retcon.cli import main\nmain()"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", hidden, "doctor"]
    result = subprocess.run(command, capture_output=True, env=env, check=False, text=True)
    assert result.returncode == 0, result.stderr
    shown = " ".join(result.stdout.split())
    assert "pip install 'retcon-memory[embed]'" in shown
    assert "pip install 'retcon-memory[bpe]'" in shown
