"""Cassettes: what was recorded is what is replayed, and nothing secret is in the file."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from cassette import CassetteChat
from hypothesis import given
from hypothesis import strategies as st
from misbehaving import Server

from retcon.errors import InputError, ModelError, RateLimitError
from retcon.model import Ask, Chat, FakeChat, HttpChat, Reply

KEY = "sk-canary-fedcba9876543210"


def ask(text: str, **fields: object) -> Ask:
    return Ask(({"role": "user", "content": text},), 10, **fields)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5, unique_by=lambda pair: pair[0]))
def test_replay_gives_what_was_recorded(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("tape") / "tape.jsonl"
    path.touch()
    asks = [ask(prompt) for prompt, _ in pairs]
    recorded = CassetteChat(path, FakeChat([text for _, text in pairs], name="inner"))(asks)
    replayed = CassetteChat(path)
    assert replayed(asks[::-1]) == recorded[::-1]
    assert not pairs or replayed.name == "inner"


def test_every_part_of_an_ask_tells_it_from_others(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    CassetteChat(tape, FakeChat(["x"]))([ask("a")])
    replay = CassetteChat(tape)
    others = [
        ask("b"),
        ask("a", temperature=0.5),
        ask("a", seed=1),
        ask("a", logprobs=True),
        Ask(ask("a").messages, 11),
    ]
    for found in replay(others):
        assert type(found) is ModelError
        assert "holds no reply with the key " in str(found)
    assert isinstance(replay([ask("a")])[0], Reply)


def test_the_same_ask_recorded_twice_is_replayed_in_turn_then_the_last_stays(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    CassetteChat(tape, FakeChat(["one", "two"]))([ask("a"), ask("a")])
    found = CassetteChat(tape)([ask("a")] * 3)
    assert [reply.text for reply in found if isinstance(reply, Reply)] == ["one", "two", "two"]


def test_errors_pass_through_and_are_not_recorded(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    limit = RateLimitError("slow down")
    assert CassetteChat(tape, FakeChat([limit]))([ask("a")]) == [limit]
    assert not tape.exists()


def test_the_key_of_the_recorded_endpoint_is_not_in_the_file(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    with Server() as server:
        recorder = CassetteChat(tape, HttpChat(server.base, "m", key=KEY))
        assert isinstance(recorder([ask("a")])[0], Reply)
        recorder.close()
        assert server.seen[0].headers["authorization"].endswith(KEY)
    assert KEY.encode() not in tape.read_bytes()
    assert KEY not in repr(recorder)
    assert set(json.loads(tape.read_text())) == {"key", "model", "ask", "reply"}


def _record(path: Path, number: int) -> None:
    recorder = CassetteChat(path, FakeChat(lambda asked: asked.messages[0]["content"] * 500))
    for turn in range(20):
        recorder([ask(f"{number}-{turn}")])


def test_several_processes_record_whole_lines_into_one_file(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_record, args=(tape, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    replay = CassetteChat(tape)
    found = replay([ask(f"{number}-{turn}") for number in range(3) for turn in range(20)])
    assert all(isinstance(reply, Reply) for reply in found)


@pytest.mark.parametrize("content", [b"{}\n", b"[]", b"\xff", b'{"key": "k", "model": "m", "reply": {"x": 1}}'])
def test_a_file_that_is_no_cassette_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_bytes(content)
    with pytest.raises(InputError, match=r"tape\.jsonl") as caught:
        CassetteChat(tape)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="cannot read"):
        CassetteChat(tmp_path / "none")


def test_a_cassette_is_a_chat(tmp_path: Path) -> None:
    assert isinstance(CassetteChat(tmp_path / "t", FakeChat()), Chat)
