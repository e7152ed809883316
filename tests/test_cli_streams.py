"""The command line's streams: what reaches a terminal, a pipe and a file, and what ends a run."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import HOSTILE, ROOT, at_terminal, document, fine, one_line, process, run
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory
from retcon.cli.show import clean


@given(st.text(st.characters()))
def test_clean_text_has_no_control_character_but_line_breaks_and_tabs(text: str) -> None:
    cleaned = clean(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", cleaned)
    if not re.search(r"[\x00-\x1f\x7f-\x9f]", text):
        assert cleaned == text


def test_escape_sequences_in_notes_do_not_reach_the_reader(db: Path) -> None:
    options = ("--id", "x", "--speaker", "\x1b[31mred", "--session", "\x1b[2J", "--meta", "k=\x1b[31m")
    fine("add", HOSTILE, *options)
    for args in ("get x", "list", "history x", "search red", "recall red", "recall red -v -b 1", "recall end"):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", fine(*args.split())), args
    one_line(run("get", HOSTILE).stderr)
    assert not re.search(r"[\x1b\x9b]", run("get", HOSTILE).stderr)


@pytest.mark.parametrize(
    "args", ["get x", "list", "search red", "recall red", "recall red --text", "export -", "get x --json"]
)
def test_escape_sequences_in_notes_do_not_reach_a_terminal(args: str, db: Path) -> None:
    fine("add", HOSTILE, "--id", "x")
    shown, code = at_terminal(args.split())
    assert code == 0
    assert "red" in shown
    assert not re.search(r"[\x00\x1b\x07\x9b]", shown)


def test_asking_for_text_at_a_terminal_does_not_hang(cats: Path) -> None:
    for args in (["add"], ["recall", "-"], ["load", "-"]):
        shown, code = at_terminal(args)
        assert code == 2
        assert "pipe" in shown


def test_bulk_load_draws_a_bar_at_a_terminal_only(db: Path) -> None:
    lines = "".join(json.dumps({"text": f"note {i}"}) + "\n" for i in range(300))
    Path("many.jsonl").write_text(lines, encoding="utf-8")
    shown, code = at_terminal(["load", "many.jsonl"])
    assert code == 0
    assert "load" in shown.replace("added 300 notes", "")
    assert "added 300 notes" in shown
    piped = process("load", "many.jsonl", "--db", "other.db")
    assert (piped.returncode, piped.stderr) == (0, b"")


def test_ten_megabytes_from_standard_input_are_kept(db: Path) -> None:
    big = ("ten megabytes of words " * 450_000).encode()
    assert len(big) > 10_000_000
    assert process("add", "--id", "big", input=big).returncode == 0
    assert json.loads(process("get", "big", "--json").stdout)["text"] == big.decode()
    assert len(fine("list").splitlines()) == 3


def test_nul_bytes_from_standard_input_are_kept(db: Path) -> None:
    assert process("add", "--id", "nul", input=b"a\0b\n").returncode == 0
    assert document("get", "nul")["text"] == "a\0b"
    assert "\0" not in fine("get", "nul")


@pytest.mark.parametrize("args", [["add"], ["add", "--messages", "-"], ["search"], ["load", "-"]])
def test_standard_input_that_is_not_utf8_gives_one_line(args: list[str], cats: Path) -> None:
    result = process(*args, input=b'{"text": "abc\xff"}\n')
    assert result.returncode == 2
    assert "not UTF-8" in one_line(result.stderr.decode())
    assert "0xff" in result.stderr.decode()
    assert len(document("list")["results"]) == 3


def test_arguments_that_are_not_utf8_give_one_line_or_a_result(cats: Path) -> None:
    bad = b"caf\xe9"
    for args, code in (
        ([b"add", bad, b"--meta", b"k=" + bad], 2),
        ([b"get", bad], 2),
        ([b"list", b"--db", bad], 2),
        ([bad], 2),
        ([b"recall", bad], 0),
    ):
        result = process(*args)
        assert result.returncode == code, (args, result)
        assert b"Traceback" not in result.stderr
        if code:
            one_line(result.stderr.decode("utf-8", "replace"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding_of_the_terminal_will_do(encoding: str, db: Path) -> None:
    fine("add", "héllo 慢慢来 😀", "--id", "ü", "--speaker", "Zoë")
    for args in ("list", "recall héllo", "get 慢"):
        result = process(*args.split(), env={"PYTHONIOENCODING": encoding})
        assert result.returncode == (2 if args == "get 慢" else 0), result
        assert b"Traceback" not in result.stderr
        result.stdout.decode(encoding)
    exported = process("export", "-", env={"PYTHONIOENCODING": encoding}).stdout
    assert json.loads(exported.decode("utf-8"))["text"] == "héllo 慢慢来 😀"


def test_reader_that_goes_away_ends_the_program_quietly(db: Path) -> None:
    with Memory(db) as memory:
        memory.add([f"note {i} " + "x" * 200 for i in range(2000)])
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    for args in ("list", "export -"):
        command = f"'{sys.executable}' -m retcon {args} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
        result = subprocess.run(["bash", "-c", command], capture_output=True, env=env, check=True)
        assert result.stderr == b"", args
        assert result.stdout.strip() == b"141"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written_gives_one_line(cats: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    for args in (["export", "-"], ["get", "a1", "--json"]):
        with open("/dev/full", "wb") as full:
            command = [sys.executable, "-m", "retcon", *args]
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=env, check=False)
        assert result.returncode == 2
        text = result.stderr.decode()
        assert "No space left" in (json.loads(text)["error"]["message"] if "--json" in args else one_line(text))


def test_interrupt_ends_the_program_quietly_and_keeps_nothing_half_done(cats: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-m", "retcon", "load", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=env,
    )  # fmt: skip
    assert child.stdin
    child.stdin.write(b'{"text": "half of it"}\n' * 3000)
    child.stdin.flush()
    _wait_until_locked(cats)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert (child.returncode, out, err) == (130, b"", b"")
    assert len(document("list")["results"]) == 3


def _wait_until_locked(db: Path) -> None:
    """Until another process is inside its transaction."""
    connection = sqlite3.connect(db, timeout=0, isolation_level=None)
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            time.sleep(0.01)
        except sqlite3.OperationalError:
            connection.close()
            return
    raise AssertionError("no transaction began")


def test_fault_of_our_own_is_one_line_too(cats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Memory, note_id: str) -> None:
        raise TypeError("two\nlines")

    monkeypatch.setattr(Memory, "get", broken)
    result = run("get", "a1")
    assert result.exit_code == 3
    assert one_line(result.stderr) == "a fault of retcon itself: TypeError: two lines"
