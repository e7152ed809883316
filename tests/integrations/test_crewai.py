"""CrewAI: real agents and crews with a model that only reads, its memory tools, and its own storage as reference."""

from __future__ import annotations

import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

import copy
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.memory.storage.lancedb_storage import LanceDBStorage
from crewai.memory.types import MemoryRecord
from crewai.tools.memory_tools import create_memory_tools
from test_examples import run_example

from integrations.talk import ROOT, TURNS, UNKNOWN, Counted, check_flat, fact, read
from retcon import Memory
from retcon.errors import InputError
from retcon.integrations.crewai import RetconMemory, Storage

BUDGET = 128
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:crewai")


class Reader(BaseLLM):
    """A model that answers from what each call shows it; every call is kept."""

    seen: list[str] = []  # noqa: RUF012

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        self.seen.append("\n".join(str(message["content"]) for message in messages))
        task = self.seen[-1].split("Current Task: ")[-1]
        question = task.split("\n")[0]
        memory = task.split("# Memories from past conversations:")[-1]
        return f"Thought: I know.\nFinal Answer: {read(memory + question)}"


def remembered(seen: str) -> str:
    """What CrewAI put into the call from memory, without its own words around it."""
    parts = seen.split("Relevant memories:\n")
    return parts[1].split("\n\nIMPORTANT: ")[0] if len(parts) > 1 else ""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "crewai"))
    with Counted(tmp_path / "m.db") as opened:
        yield opened


def agent_of(memory: Memory, model: Reader, user: str = "ann") -> Agent:
    kept = RetconMemory(memory, budget=BUDGET, user_id=user)
    return Agent(role="helper", goal="help", backstory="You help.", llm=model, memory=kept)


def model() -> Reader:
    return Reader(model="reader", seen=[])


def test_fact_of_one_conversation_is_recalled_in_the_next_within_the_budget(memory: Memory) -> None:
    reader = model()
    agent_of(memory, reader).kickoff(fact(7).told)
    assert agent_of(memory, reader).kickoff(fact(7).question).raw == fact(7).answer
    shown = remembered(reader.seen[-1])
    assert 0 < memory.count(shown) <= BUDGET
    assert len(shown) / 4 <= BUDGET  # as CrewAI counts for a model that it does not know
    assert agent_of(memory, model(), user="bob").kickoff(fact(7).question).raw == UNKNOWN


def test_crew_keeps_the_result_of_a_task_and_the_next_crew_recalls_it(memory: Memory) -> None:
    for words, said in ((fact(7).told, "Noted."), (fact(7).question, fact(7).answer)):
        agent = Agent(role="helper", goal="help", backstory="You help.", llm=model())
        task = Task(description=words, expected_output="A word.", agent=agent)
        kept = RetconMemory(memory, budget=BUDGET, root_scope="/crew/pets")
        assert Crew(agents=[agent], tasks=[task], memory=kept).kickoff().raw == said
    assert kept.list_scopes("/agent") == ["/crew/pets/agent/helper"]
    assert kept.info().record_count == 2


def test_300_turns_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(memory: Counted) -> None:
    reader, work = model(), []
    agent = agent_of(memory, reader)
    for number in range(TURNS):
        agent.kickoff(fact(number).told)
        work.append(memory.work())
    check_flat(work)
    texts = "\n".join(note.text for note in memory.get_all(user_id="ann"))
    assert all(fact(number).told in texts for number in range(TURNS))
    assert "Relevant memories" not in texts
    for number in (0, 41, 150, 299):
        assert agent.kickoff(fact(number).question).raw == fact(number).answer
    assert max(memory.count(remembered(seen)) for seen in reader.seen) <= BUDGET


def test_tools_of_crewai_store_and_search(memory: Memory) -> None:
    search, save = create_memory_tools(RetconMemory(memory, budget=BUDGET))
    assert save.run(contents=[fact(1).told]).startswith("Saved to memory (scope=/")
    save.run(contents=[fact(2).told, fact(3).told])
    assert fact(2).answer in search.run(queries=[fact(2).question])
    (tool,) = create_memory_tools(RetconMemory(memory, budget=BUDGET).slice(["/a"]))
    assert tool.run(queries=[fact(2).question]) == "No relevant memories found."


@pytest.mark.parametrize("budget", [0, 10, 40, 200])
def test_matches_hold_any_budget_as_they_are_shown(memory: Memory, budget: int) -> None:
    kept = RetconMemory(memory, budget=budget)
    kept.remember_many([fact(n).told for n in range(20)], categories=["lockers"], metadata={"floor": 2})
    matches = kept.recall(fact(7).question)
    assert memory.count("\n".join(match.format() for match in matches)) <= budget
    assert budget < 40 or fact(7).answer in matches[0].record.content
    assert len(kept.recall(fact(7).question, limit=1)) <= 1


def test_scopes_and_categories_narrow_a_search(memory: Memory) -> None:
    kept = RetconMemory(memory, budget=BUDGET, root_scope="/crew")
    kept.remember(fact(1).told, scope="/a/b", categories=["x"])
    kept.remember(fact(1).told.replace(fact(1).answer, "99999"), scope="/ab", categories=["y"])
    for options in ({"scope": "/a"}, {"categories": ["x", "z"]}, {"scope": "/a/b", "categories": ["x"]}):
        (match,) = kept.recall(fact(1).question, **options)
        assert fact(1).answer in match.record.content
    assert kept.recall(fact(1).question, scope="/a", categories=["y"]) == []


def test_update_is_a_newer_version_and_forget_takes_all(memory: Memory) -> None:
    kept = RetconMemory(memory, budget=BUDGET)
    record = kept.remember("My cat is Pixie.", categories=["pets"], metadata={"sure": True})
    assert record is not None
    kept.update(record.id, content="My cat is Pixel.")
    assert [match.record.content for match in kept.recall("cat")] == ["My cat is Pixel."]
    assert [note.text for note in memory.history(record.id)] == ["My cat is Pixie.", "My cat is Pixel."]
    assert kept.list_records()[0].metadata == {"sure": True}
    assert kept.remember("Nothing much.", importance=0.0).importance == 0.0  # type: ignore[union-attr]
    assert kept.forget(record_ids=[record.id, "none"]) == 1
    assert [note.text for note in memory.get_all(superseded=True)] == ["Nothing much."]


def test_private_records_and_vectors_are_refused_in_one_line(memory: Memory) -> None:
    kept = RetconMemory(memory)
    with pytest.raises(InputError, match="kept apart by user_id"):
        kept.remember("x", private=True)
    with pytest.raises(InputError, match="search it with recall"):
        kept._storage.search([0.1])
    assert RetconMemory(memory, user_id="ann").model_copy(update={"read_only": True}).remember("x") is None


def test_copy_of_a_memory_is_on_the_same_store(memory: Memory) -> None:
    copied = copy.deepcopy(RetconMemory(memory, budget=BUDGET))
    copied.remember(fact(1).told)
    assert len(memory.get_all()) == 1


def test_storage_lists_counts_and_deletes_as_crewais_own(memory: Memory, tmp_path: Path) -> None:
    ours, theirs = Storage(RetconMemory(memory)._keeper), LanceDBStorage(path=str(tmp_path / "lance"), vector_dim=2)
    made = [("/a/b", ["x"]), ("/a/c", ["x", "y"]), ("/d", []), ("/e", ["z"])]
    records = [
        MemoryRecord(content=f"Record {n}.", scope=scope, categories=names, metadata={"n": n}, embedding=[0.1, 0.2])
        for n, (scope, names) in enumerate(made)
    ]
    for storage in (ours, theirs):
        storage.save(records)

    def look(storage: Any) -> Any:
        texts = {
            path: sorted(each.content for each in storage.list_records(path)) for path in ("/", "/a", "/a/b", "/q")
        }
        counts = [storage.count(path) for path in (None, "/", "/a", "/a/b", "/q")]
        scopes = [sorted(storage.list_scopes(path)) for path in ("/", "/a")]
        names = [storage.list_categories(path) for path in (None, "/a")]
        info = storage.get_scope_info("/a")
        return texts, counts, scopes, names, info.record_count, sorted(info.categories), sorted(info.child_scopes)

    assert look(ours) == look(theirs)
    later = datetime.now() + timedelta(days=2)
    for options in (
        {"categories": ["y"]},
        {"metadata_filter": {"n": 2}},
        {"scope_prefix": "/a"},
        {"older_than": later},
    ):
        assert ours.delete(**options) == theirs.delete(**options)
        assert look(ours) == look(theirs)


def test_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path.parent / "crewai"))
    assert "Pixel" in run_example(ROOT / "examples" / "integrations" / "crewai_agent.py", tmp_path)
