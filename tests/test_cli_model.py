"""The command line with a model: a real server on loopback writes and reads, refuses, or is not there."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, at_terminal, complaint, document, fine, one_line, process, run
from conftest import bytes_of
from local_model import needs_local_model, smollm
from misbehaving import Behaviour, Handler, Server, completion, says
from typer.testing import Result

from retcon import Memory
from retcon.answer import MARKER
from retcon.cli.doctor import KEYS, READ
from retcon.model import http
from retcon.model.gguf import serve

KEY = "sk-canary-0123456789abcdef"
QUESTION = "How much did the vet cost?"
RECORD = "Pixel's first vet visit cost 84 euros."
REFUSED = says({"error": {"message": f"bad key {KEY}"}}, 401)


def is_reader(body: Any) -> bool:
    """Whether a request asks the reader, and not a writer of records."""
    return "<memory>" in body["messages"][-1]["content"]


def model(*, writes: str = RECORD, reads: Callable[[str], str] = lambda content: "84 euros") -> Behaviour:
    """Answers operators with a record, and the reader by a rule on what it is given."""

    def behave(handler: Handler) -> None:
        content = handler.asked["messages"][-1]["content"]
        said = reads(content) if is_reader(handler.asked) else writes
        handler.reply(200, json.dumps(completion(said)).encode())

    return behave


RULE = ("--router", "evidence-fit")  # no ladder of its own: every action has its turn


@pytest.fixture
def vet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose notes do not all fit 48 tokens, in a folder of its own, and no variable of ours set but a key."""
    monkeypatch.chdir(tmp_path)
    for name in (*READ, *KEYS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("RETCON_DB", str(tmp_path / "t.db"))
    monkeypatch.setenv("RETCON_API_KEY", KEY)
    with Memory(tmp_path / "t.db") as memory:
        memory.add("I adopted a cat named Pixel.", id="cat", timestamp="2026-05-09")
        memory.add(f"{RECORD} She hid behind the boiler for an hour.", id="vet", timestamp="2026-05-12")
        memory.add("The vet is called Dr. Aylin Kaya and works in Basel.", id="name", timestamp="2026-05-14")
    return tmp_path / "t.db"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(always=model()) as started:
        yield started


def at(server: Server) -> tuple[str, ...]:
    return ("--model", server.base, "--model-name", "m", *RULE)


def merged(server: Server, *more: str) -> tuple[str, ...]:
    return ("recall", QUESTION, "-b", "48", "--action", "merge", *at(server), *more)


def asked(server: Server, *more: str) -> tuple[str, ...]:
    return ("ask", QUESTION, "-b", "48", *at(server), *more)


def without_key(result: Result) -> Result:
    assert KEY not in result.stdout + result.stderr
    return result


# -- recall ------------------------------------------------------------------------------------------------------------


def test_recall_json_shows_decision_record_sources_fidelity_and_usage(vet: Path, server: Server) -> None:
    found = document(*merged(server))
    assert (found["action"], found["text"]) == ("merge", RECORD)
    assert found["decision"]["forced"]
    assert (found["record"]["model"], found["record"]["action"], found["record"]["reused"]) == ("m", "merge", False)
    assert set(found["record"]["sources"]) == {source["id"] for source in found["sources"]} == {"cat", "vet", "name"}
    assert found["fidelity"]["ok"]
    assert found["usage"]["model_calls"] == 1
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (7, 2)
    assert [one.headers["authorization"] for one in server.seen] == [f"Bearer {KEY}"]


def test_recall_says_whether_a_record_is_reused_and_what_it_cost(vet: Path, server: Server) -> None:
    first, second = fine(*merged(server)), fine(*merged(server))
    record = document(*merged(server))["record"]["id"]
    assert f"record {record[:12]}, written now, by m, for this query" in first
    assert f"record {record[:12]}, reused, by m" in second
    assert "cost: 1 model call, 7 tokens read, 2 written" in first
    assert "cost: no model call" in second
    assert "nothing unsupported or changed" in first
    assert len(server.seen) == 1


def test_recall_lists_each_unsupported_and_changed_claim_on_a_line(vet: Path, server: Server) -> None:
    server.always = model(writes="Pixel's first vet visit cost 48 euros. Zanzibar was there.")
    result = run(*merged(server))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any(line.startswith("changed number") and '"48' in line and 'vet says "84' in line for line in lines)
    assert any(line.startswith("unsupported name") and "Zanzibar" in line for line in lines)
    assert "may be wrong" in one_line(result.stderr)


def test_strict_guard_takes_an_action_without_a_model(vet: Path, server: Server) -> None:
    server.always = model(writes="Pixel's visit cost 48 euros.")
    found = document(*merged(server, "--guard", "strict"))
    assert found["action"] in ("retain", "extract")
    assert found["record"] is None
    assert "merge failed" in found["warnings"][0]
    assert document(*merged(server, "--guard", "warn"))["action"] == "merge"


def test_no_focus_keeps_the_question_from_the_writer(vet: Path, server: Server) -> None:
    assert document(*merged(server))["record"]["focus"]
    assert not document(*merged(server, "--no-focus"))["record"]["focus"]
    assert [QUESTION in json.dumps(one.body) for one in server.seen] == [True, False]
    assert ", for any query" in fine(*merged(server, "--no-focus"))


def test_text_alone_is_the_record(vet: Path, server: Server) -> None:
    assert fine(*merged(server, "--text")) == f"{RECORD}\n"


def test_recall_without_a_generative_action_does_not_call(vet: Path, server: Server) -> None:
    plain = document("recall", QUESTION, "-b", "48", *RULE)
    assert document("recall", QUESTION, "-b", "48", *at(server)) | {"usage": 0} == plain | {"usage": 0}
    assert document("decide", QUESTION, "-b", "48", *at(server))["action"] == plain["action"]
    assert server.seen == []


def test_generated_text_moves_no_terminal(vet: Path, server: Server) -> None:
    server.always = model(writes="Pixel \x1b[31m cost 84 \x9b31m euros.", reads=lambda content: "84 \x1b[31m euros")
    for result in (run(*merged(server)), run(*asked(server)), run(*asked(server, "--verbose"))):
        assert result.exit_code == 0
        assert not set(result.output) & {"\x1b", "\x9b"}


# -- a model that fails ------------------------------------------------------------------------------------------------


def failing(kind: str, server: Server) -> None:
    if kind == "refused":
        server.always = REFUSED
    else:
        server.http.shutdown()
        server.http.server_close()


@pytest.mark.parametrize(("kind", "word"), [("refused", "401"), ("down", "no connection")])
def test_recall_falls_back_and_ask_gives_one_line(
    kind: str, word: str, vet: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)  # before a retry
    plain = fine("recall", QUESTION, "-b", "48", "--text")
    failing(kind, server)
    result = without_key(run(*merged(server, "--timeout", "60", "--text")))
    assert (result.exit_code, result.stdout) == (0, plain)
    assert word in one_line(result.stderr)
    result = without_key(run(*merged(server, "--timeout", "60", "--json")))
    assert word in json.loads(result.stdout)["warnings"][0]
    result = without_key(run(*asked(server, "--timeout", "60", "--max-looks", "1")))
    assert result.exit_code == 2
    assert word in one_line(result.stderr)
    assert result.stdout == ""
    result = without_key(run(*asked(server, "--verbose", "--max-looks", "1")))
    assert f"   reader: failed, {server.base}: " in result.stderr
    result = without_key(run(*asked(server, "--timeout", "60", "--json")))
    assert (result.exit_code, result.stdout) == (2, "")
    assert json.loads(result.stderr)["error"]["code"] in ("model_auth", "model_unavailable")


def test_key_is_no_option_and_is_not_repeated(vet: Path, server: Server) -> None:
    for given in (["--api-key", KEY], [f"--api-key={KEY}"]):
        result = without_key(run(*asked(server, *given)))
        assert result.exit_code == 2
        assert "RETCON_API_KEY" in one_line(result.stderr)
    assert server.seen == []


# -- ask ---------------------------------------------------------------------------------------------------------------


def test_ask_ends_with_the_answer(vet: Path, server: Server) -> None:
    assert fine(*asked(server)) == "84 euros\n"
    found = document(*asked(server))
    assert (found["answer"], found["in_memory"], len(found["looks"])) == ("84 euros", True, 1)
    assert all(is_reader(one.body) for one in server.seen)


def test_ask_shows_its_looks_at_a_terminal_before_the_answer(vet: Path, server: Server) -> None:
    shown, code = at_terminal(asked(server))
    assert code == 0
    assert shown.startswith("1. extract, ")
    assert "   reader: 84 euros\r\n   cost: 1 model call, 7 tokens read, 2 written" in shown
    assert shown.endswith("\r\n\r\n84 euros\r\n")


def test_ask_climbs_while_the_reader_finds_nothing(vet: Path, server: Server) -> None:
    server.always = model(reads=lambda content: "84 euros" if f"<memory>\n{RECORD}\n" in content else MARKER)
    result = run(*asked(server, "--verbose"))
    assert (result.exit_code, result.stdout) == (0, "84 euros\n")
    shown = result.stderr
    assert "1. extract, " in shown
    assert f"   reader: no answer here ({MARKER})" in shown
    assert re.search(r"^2\. merge, \d+ of 48 tokens\n   from 3 notes: ", shown, re.M)
    assert f"   | {RECORD}" in shown
    assert "   record " in shown
    assert shown.rstrip().splitlines()[-1].startswith("2 looks, cost: 3 model calls, 21 tokens read, 6 written")


def test_ask_that_finds_nothing_says_so_and_exits_with_0(vet: Path, server: Server) -> None:
    server.always = model(reads=lambda content: MARKER)
    assert fine(*asked(server)) == "not in memory\n"
    found = document(*asked(server))
    assert (found["answer"], found["in_memory"], len(found["looks"])) == (None, False, 4)
    assert len(document(*asked(server, "--max-looks", "2"))["looks"]) == 2


def test_ask_looks_at_whole_notes_first_where_it_shall_be_safe(vet: Path, server: Server) -> None:
    server.always = model(reads=lambda content: MARKER)
    own, safe = (
        [look["recall"]["action"] for look in document(*asked(server, "--max-looks", "3", *more))["looks"]]
        for more in ((), ("--safe",))
    )
    assert "retain" not in own
    assert safe == ["retain", *own]


@pytest.mark.parametrize(("most", "looks"), [("9", 1), ("10", 2)])
def test_ask_stops_once_it_has_cost_enough(most: str, looks: int, vet: Path, server: Server) -> None:
    server.always = model(reads=lambda content: MARKER)  # a reply costs 9 tokens, read and written
    assert len(document(*asked(server, "--max-tokens", most))["looks"]) == looks


def test_ask_of_an_empty_memory_asks_no_one(vet: Path, server: Server) -> None:
    result = run(*asked(server, "-u", "nobody", "--verbose"))
    assert "reader: not asked, there is no text to read" in result.stderr
    assert result.stdout == "not in memory\n"
    assert server.seen == []


def test_ask_takes_its_question_from_standard_input(vet: Path, server: Server) -> None:
    assert document("ask", *at(server), input=f"{QUESTION}\n")["question"] == QUESTION


def test_ask_shows_each_look_before_the_next_begins(vet: Path, server: Server) -> None:
    shown = threading.Event()

    def held(handler: Handler) -> None:
        assert shown.wait(120), "the first look was not shown while the second was under way"
        model(reads=lambda content: MARKER)(handler)

    server.queue.append(model(reads=lambda content: MARKER))
    server.always = held
    command = [sys.executable, "-m", "retcon", *asked(server, "--max-looks", "2", "--timeout", "120", "-v")]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env) as child:
        assert child.stderr is not None
        first = [child.stderr.readline()]
        while first[-1] and not first[-1].startswith("   cost: "):
            first.append(child.stderr.readline())
        shown.set()
        rest = child.stderr.read()
    assert first[0].startswith("1. extract")
    assert "2. merge" in rest
    assert child.returncode == 0


# -- how a model is named ----------------------------------------------------------------------------------------------


def test_model_comes_from_the_option_else_the_environment(
    vet: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETCON_MODEL", server.base)
    monkeypatch.setenv("RETCON_MODEL_NAME", "theirs")
    assert document("recall", QUESTION, "-b", "48", "--action", "merge")["record"]["model"] == "theirs"
    named = document("recall", QUESTION, "-b", "48", "--action", "merge", "--model-name", "mine")
    assert named["record"]["model"] == "mine"
    assert "nope.gguf" in complaint("ask", QUESTION, "--model", "nope.gguf")


def test_openai_variables_count_only_where_a_model_is_needed(
    vet: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RETCON_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for verb in ("recall", "decide"):  # no name of a model, and none is missed
        document(verb, QUESTION, "-b", "48")
    assert server.seen == []
    assert "--model-name" in complaint("ask", QUESTION)
    monkeypatch.setenv("RETCON_MODEL_NAME", "m")
    assert document("ask", QUESTION)["answer"] == "84 euros"
    assert document("recall", QUESTION, "-b", "48", "--action", "merge")["action"] == "merge"
    assert [one.headers["authorization"] for one in server.seen] == [f"Bearer {KEY}"] * 2


def test_openai_key_goes_to_no_other_endpoint(vet: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETCON_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    document(*asked(server))
    assert "authorization" not in server.seen[0].headers


def test_completion_marks_actions_that_need_a_model(vet: Path) -> None:
    env = {"_RETCON_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "retcon recall --action re"}
    shown = process(env=env).stdout.decode()
    assert '"retain"' in shown
    assert "needs --model" in shown.split("rewrite")[1]
    assert "needs --model" not in shown.split("rewrite")[0]


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_cache_counts_records_and_replies(vet: Path, server: Server) -> None:
    assert document("cache", "stats") == {"records": 0, "replies": 0, "bytes": 0, "hits": 0, "misses": 0}
    document(*merged(server))
    document(*asked(server))
    document(*asked(server))
    found = document("cache", "stats")
    assert (found["records"], found["replies"], found["hits"], found["misses"]) == (1, 2, 1, 2)
    shown = fine("cache", "stats")
    assert shown.startswith("1 record and 2 replies, ")
    assert "a reply was found 1 time, not found 2 times" in shown
    assert len(server.seen) == 2


def test_cache_clear_removes_what_models_wrote_and_no_note(vet: Path, server: Server) -> None:
    server.always = model(writes="Quixotry cost 84 euros.", reads=lambda content: "zymurgy")
    document(*merged(server))
    document(*asked(server))
    notes = fine("export", "-")
    assert b"Quixotry" in bytes_of(vet)
    assert b"zymurgy" in bytes_of(vet)
    assert "--yes" in complaint("cache", "clear", input="y\n")
    assert document("cache", "clear", "--yes") == {"records": 1, "replies": 2}
    assert b"Quixotry" not in bytes_of(vet)
    assert b"zymurgy" not in bytes_of(vet)
    assert fine("export", "-") == notes
    assert fine("cache", "clear", "-y") == "cleared 0 records and 0 replies\n"
    assert not document(*merged(server))["record"]["reused"]
    assert len(server.seen) == 3


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 1)])
def test_cache_clear_asks_a_person_at_the_terminal(
    answer: str, code: int, left: int, vet: Path, server: Server
) -> None:
    document(*merged(server))
    shown, exit_code = at_terminal(["cache", "clear"], f"{answer}\n")
    assert "clear 1 record and 1 reply?" in shown
    assert exit_code == code
    assert document("cache", "stats")["records"] == left


# -- doctor ------------------------------------------------------------------------------------------------------------


def test_doctor_asks_a_model_only_when_told_to(vet: Path, server: Server) -> None:
    found, shown = document("doctor", *at(server)), fine("doctor", *at(server))
    assert (found["model"]["model"], found["model"]["name"], found["model"]["reply"]) == (server.base, "m", None)
    assert found["model"]["actions"][:3] == ["retain", "extract", "merge"]
    assert f"m at {server.base}, the key is sent, not shown" in shown
    assert "not asked" in shown
    assert server.seen == []
    checked = document("doctor", *at(server), "--check-model")
    assert checked["ok"]
    assert checked["model"]["reply"]["text"] == RECORD
    assert len(server.seen) == 1
    assert server.seen[0].body["max_tokens"] <= 8


@pytest.mark.parametrize(("kind", "word"), [("refused", "401"), ("down", "no connection")])
def test_doctor_finds_a_model_that_does_not_answer(kind: str, word: str, vet: Path, server: Server) -> None:
    failing(kind, server)
    for more in ((), ("--json",)):
        result = without_key(run("doctor", *at(server), "--check-model", "--timeout", "60", *more))
        assert result.exit_code == 1
        assert word in result.stdout
    assert len(server.seen) == (2 if kind == "refused" else 0)  # once each: no retries
    assert run("doctor", *at(server)).exit_code == 0


def test_doctor_hides_what_a_url_may_hold_of_secrets(vet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETCON_MODEL", f"http://user:{KEY}@127.0.0.1:9/v1?key={KEY}")
    monkeypatch.setenv("RETCON_MODEL_NAME", "m")
    for more in ((), ("--json",)):
        result = without_key(run("doctor", *more))
        assert result.exit_code == 1
        assert "http://127.0.0.1:9/v1" in result.stdout


def test_doctor_says_for_what_the_openai_endpoint_counts(
    vet: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.base)
    monkeypatch.setenv("RETCON_MODEL_NAME", "m")
    assert "for ask and forced actions, by OPENAI_BASE_URL" in fine("doctor")
    assert "OPENAI_BASE_URL" in document("doctor")["model"]["only_for"]


@pytest.mark.parametrize(("made", "word"), [(None, "no model file"), (b"nope", "no GGUF file")])
def test_doctor_finds_a_file_that_is_no_model(made: bytes | None, word: str, vet: Path) -> None:
    if made is not None:
        Path("x.gguf").write_bytes(made)
    result = run("doctor", "--model", "x.gguf", "--json")
    assert result.exit_code == 1
    assert word in json.loads(result.stdout)["model"]["error"]


def test_doctor_cannot_check_a_model_that_is_not_configured(vet: Path) -> None:
    result = run("doctor", "--check-model")
    assert result.exit_code == 1
    assert "no model is configured" in result.stdout


# -- real models -------------------------------------------------------------------------------------------------------


@needs_local_model
def test_real_server_writes_a_record_within_the_budget(vet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(str(smollm())) as served:
        there = ("-b", "24", "--model", served.base, "--model-name", "smol")
        refused = document("recall", QUESTION, "--action", "abstract", *there)
        monkeypatch.setenv("RETCON_API_KEY", served.key)
        found = document("recall", QUESTION, "--action", "abstract", *there)
        read = run("ask", QUESTION, "--max-looks", "1", *there)
    assert refused["action"] in ("retain", "extract")
    assert "401" in refused["warnings"][0]
    assert found["action"] == "abstract"
    assert 0 < found["tokens"] <= 24
    assert found["usage"]["prompt_tokens"] > 50
    assert found["fidelity"] is not None
    assert read.exit_code == 0
    assert read.stdout
    assert served.key not in read.output


@needs_local_model
def test_real_file_reads_an_answer_under_its_own_name(vet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETCON_MODEL_NAME", "that of some endpoint")
    found = document("ask", QUESTION, "-b", "24", "--model", str(smollm()), "--max-looks", "1", "--timeout", "300")
    with sqlite3.connect(vet) as connection:
        (name,) = connection.execute("SELECT model FROM reply").fetchone()
    connection.close()
    assert name.startswith("SmolLM2")
    assert found["looks"][0]["recall"]["tokens"] <= 24
    assert found["usage"]["model_calls"] == 1
