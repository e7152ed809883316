"""Claude's memory tool: the real client against a scripted API, and the SDK's own file tool as reference."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool
from hypothesis import given, settings
from hypothesis import strategies as st
from test_examples import run_example

from integrations.talk import ROOT, TURNS, Counted, check_flat, fact, read
from retcon import Memory
from retcon.integrations.anthropic import RetconAsyncMemoryTool, RetconMemoryTool

BUDGET = 200


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "m.db") as opened:
        yield opened


class Claude:
    """The API as the client meets it: each reply is a step of the script, made from what the request shows."""

    def __init__(self, *steps: Callable[[str], Any]) -> None:
        self.steps, self.seen = list(steps), list[str]()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        sent = json.loads(request.content)
        assert sent["tools"] == [{"type": "memory_20250818", "name": "memory"}]
        self.seen.append(json.dumps(sent["messages"]))
        block = self.steps.pop(0)(self.seen[-1])
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        body = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": [block]}
        return httpx2.Response(200, json=body | {"stop_reason": stop, "stop_sequence": None, "usage": usage})


def use(**given: Any) -> Callable[[str], Any]:
    return lambda _: {"type": "tool_use", "id": "t", "name": "memory", "input": given}


def answer(seen: str) -> Any:
    return {"type": "text", "text": read(seen)}


def talk(claude: Claude, tool: Any, words: str) -> str:
    with (
        httpx2.Client(transport=httpx2.MockTransport(claude)) as http,
        Anthropic(api_key="k", http_client=http) as client,
    ):
        messages: Any = [{"role": "user", "content": words}]
        runner = client.beta.messages.tool_runner(
            model="claude", max_tokens=99, tools=[tool], messages=messages, thread=False
        )
        return str(runner.until_done().content[0].text)


def test_fact_of_one_conversation_is_found_in_the_next(memory: Memory) -> None:
    tool = RetconMemoryTool(memory, budget=BUDGET, user_id="ann")
    keep = use(command="create", path="/memories/lockers.md", file_text=fact(7).told)
    talk(Claude(use(command="view", path="/memories"), keep, lambda _: {"type": "text", "text": "Kept."}), tool, "Hi.")
    look = Claude(use(command="view", path="/memories"), use(command="view", path="/memories/lockers.md"), answer)
    assert talk(look, tool, fact(7).question) == fact(7).answer
    assert "/memories/lockers.md" in look.seen[1]
    assert fact(7).answer in memory.recall(fact(7).question, 64, user_id="ann").text


def test_asynchronous_client_gives_the_same(memory: Memory) -> None:
    async def scene(claude: Claude) -> str:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(claude)) as http:
            client = AsyncAnthropic(api_key="k", http_client=http)
            tool = RetconAsyncMemoryTool(memory, budget=BUDGET, user_id="ann")
            messages: Any = [{"role": "user", "content": fact(7).question}]
            runner = client.beta.messages.tool_runner(
                model="claude", max_tokens=99, tools=[tool], messages=messages, thread=False
            )
            return str((await runner.until_done()).content[0].text)

    call(RetconMemoryTool(memory, user_id="ann"), command="create", path="/memories/a", file_text=fact(7).told)
    claude = Claude(use(command="view", path="/memories/none"), use(command="view", path="/memories/a"), answer)
    assert asyncio.run(scene(claude)) == fact(7).answer
    assert "the path /memories/none does not exist" in claude.seen[1]


def test_300_turns_stay_within_the_budget_lose_no_fact_and_ask_for_the_same_work(memory: Counted) -> None:
    tool, work = RetconMemoryTool(memory, budget=BUDGET, user_id="ann"), []
    for number in range(TURNS):
        path = f"/memories/{number % 10}/{number}.md"
        call(tool, command="create", path=path, file_text="Notes of the day:\n")
        call(tool, command="insert", path=path, insert_line=1, insert_text=fact(number).told)
        memory.work()
        for seen in (path, "/memories"):
            assert memory.count(call(tool, command="view", path=seen)) <= BUDGET
        work.append(memory.work())
    check_flat(work)
    texts = "\n".join(note.text for note in memory.get_all(user_id="ann"))
    assert all(fact(number).told in texts for number in range(TURNS))


def call(tool: Any, **given: Any) -> str:
    return str(tool.call(given))


def test_long_file_is_shown_in_parts_that_fit_and_name_the_next(memory: Memory) -> None:
    tool = RetconMemoryTool(memory, budget=BUDGET)
    text = "\n".join(fact(number).told for number in range(40))
    call(tool, command="create", path="/memories/long", file_text=text)
    seen, first = [], 1
    while True:
        shown = call(tool, command="view", path="/memories/long", view_range=[first, -1])
        assert memory.count(shown) <= BUDGET
        seen += [line.split("\t")[1] for line in shown.split("\n") if "\t" in line]
        if "(more: view_range [" not in shown:
            break
        first = int(shown.split("view_range [")[1].split(",")[0])
    assert "\n".join(seen) == text


def test_one_line_over_the_budget_is_cut(memory: Memory) -> None:
    tool = RetconMemoryTool(memory, budget=60)
    call(tool, command="create", path="/memories/a", file_text="word " * 500)
    shown = call(tool, command="view", path="/memories/a")
    assert "word word" in shown
    assert memory.count(shown) <= 60


def test_every_version_of_a_file_stays_in_its_history_and_a_delete_takes_all(memory: Memory) -> None:
    tool = RetconMemoryTool(memory, user_id="ann")
    call(tool, command="create", path="/memories/a", file_text="The cat is Pixel.")
    call(tool, command="str_replace", path="/memories/a", old_str="Pixel", new_str="Bo")
    call(tool, command="rename", old_path="/memories/a", new_path="/memories/b/c")
    (note,) = memory.get_all(user_id="ann")
    assert [version.text for version in memory.history(note.id)] == [
        "The cat is Pixel.",
        "The cat is Bo.",
        "The cat is Bo.",
    ]
    call(tool, command="delete", path="/memories/b")
    assert memory.get_all(superseded=True) == []


def test_files_of_others_and_notes_that_are_no_files_do_not_exist(memory: Memory) -> None:
    memory.add("A note of a conversation.", user_id="ann", session="/memories/a")
    call(RetconMemoryTool(memory, user_id="bob"), command="create", path="/memories/a", file_text="Bob's.")
    tool = RetconMemoryTool(memory, user_id="ann")
    for command in ("view", "delete"):
        with pytest.raises(ToolError, match="does not exist"):
            call(tool, command=command, path="/memories/a")
    tool.clear_all_memory()
    assert len(memory.get_all()) == 2


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"command": "view", "path": "/etc/passwd"}, "a path begins with /memories"),
        ({"command": "view", "path": "/memories/../etc"}, "a path begins with /memories"),
        ({"command": "view", "path": "/memoriesx"}, "a path begins with /memories"),
        ({"command": "view"}, "view was called with wrong parameters"),
        ({"command": "insert", "path": "/memories/a", "insert_line": 9, "insert_text": "x"}, "lines 0 to 2"),
        ({"command": "str_replace", "path": "/memories/a", "old_str": "o", "new_str": "x"}, "2 times in lines 1, 2"),
        ({"command": "delete", "path": "/memories"}, "/memories itself stays"),
        ({"command": "create", "path": "/memories/" + "x" * 2000, "file_text": "x"}, "characters"),
    ],
)  # fmt: skip
def test_wrong_command_is_told_in_one_line_and_changes_nothing(memory: Memory, command: Any, said: str) -> None:
    tool = RetconMemoryTool(memory)
    call(tool, command="create", path="/memories/a", file_text="one\ntwo")
    with pytest.raises(ToolError, match=said) as caught:
        call(tool, **command)
    assert "\n" not in str(caught.value)
    assert [note.text for note in memory.get_all(superseded=True)] == ["one\ntwo"]


PATHS = st.sampled_from(["/memories/a", "/memories/b", "/memories/d/a", "/memories/d/e", "/memories/d", "/memories"])
TEXTS = st.sampled_from(["", "x", "one\ntwo", "one\ntwo\n", " \n", "y\r\ny"])
COMMANDS = st.one_of(
    st.fixed_dictionaries({"command": st.just("view"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("view"), "path": PATHS, "view_range": st.just([2, -1])}),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
    st.fixed_dictionaries(
        {
            "command": st.just("str_replace"),
            "path": PATHS,
            "old_str": st.sampled_from(["x", "one", "y"]),
            "new_str": TEXTS,
        }
    ),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "path": PATHS, "insert_line": st.integers(-1, 3), "insert_text": TEXTS}
    ),
)
_numbers = itertools.count()


@settings(max_examples=60)
@given(st.lists(COMMANDS, max_size=12))
def test_files_behave_as_those_of_the_sdks_own_tool(
    tmp_path_factory: pytest.TempPathFactory, commands: list[Any]
) -> None:
    reference = BetaLocalFilesystemMemoryTool(str(tmp_path_factory.mktemp(str(next(_numbers)))))
    with Memory(":memory:") as memory:
        tool = RetconMemoryTool(memory, budget=10_000)
        for command in commands:
            assert outcome(tool, command) == outcome(reference, command), command
            for folder in sorted(reference.memory_root.rglob("*"), reverse=True):
                if folder.is_dir() and not list(folder.iterdir()):
                    folder.rmdir()  # ours has no folder without a file


def outcome(tool: Any, command: dict[str, Any]) -> Any:
    """What a command gives, as far as it is promised: the content of files, and whether it failed."""
    try:
        said = str(tool.call(command))
    except (ToolError, OSError):  # the reference lets errors of the file system through
        return "failed"
    return said.rstrip("\n") if "content of" in said.split("\n")[0] else "done"


def test_folder_lists_what_the_sdks_own_tool_lists(memory: Memory, tmp_path: Path) -> None:
    ours, reference = RetconMemoryTool(memory), BetaLocalFilesystemMemoryTool(str(tmp_path / "files"))
    for path in ("a", "d/b", "d/.hidden", "d/e/f", "d/e/g/h", ".x/y"):
        for tool in (ours, reference):
            call(tool, command="create", path=f"/memories/{path}", file_text="x")
    for folder in ("/memories", "/memories/d"):
        lists = [call(tool, command="view", path=folder).split("\n")[1:] for tool in (ours, reference)]
        assert lists[0] == [line.split("\t")[1] for line in lists[1]]


def test_example_runs(tmp_path: Path) -> None:
    assert "Pixel" in run_example(ROOT / "examples" / "integrations" / "anthropic_memory.py", tmp_path, "-W", "error")
