"""The command line: every verb, every stream, and no traceback whatever comes in."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner, Result

import retcon
from retcon import Memory
from retcon.cli import app
from retcon.cli.doctor import EXTRAS, KEYS, READ
from retcon.cli.show import clean
from retcon.features import FEATURES

ROOT = Path(__file__).parents[1]
VERBS: dict[str, Any] = dict(get_command(app).commands)  # type: ignore[attr-defined]
READING = (
    "search cat", "recall cat", "decide cat", "get a1", "list", "history a1", "export out.jsonl", "export -",
    "cache stats", "cache clear --yes",
)  # fmt: skip
HOSTILE = "a\x00b \x1b[31m red \x1b[0m \x9b31m \x1b]0;title\x07 \r end"


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and the path of a store in it that is not there yet."""
    monkeypatch.chdir(tmp_path)
    for name in (*READ, *KEYS, "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RETCON_DB", str(tmp_path / "t.db"))
    return tmp_path / "t.db"


@pytest.fixture
def cats(db: Path) -> Path:
    """A store with two notes of ann's and one of bob's."""
    with Memory(db) as memory:
        memory.add("I adopted a cat named Pixel.", id="a1", user_id="ann", session="s1", timestamp="2026-05-09")
        memory.add("The rent is 725 a month.", id="a2", user_id="ann", session="s2", metadata={"n": 3})
        memory.add("My cat is called Bo.", id="b1", user_id="bob")
    return db


def run(*args: str, input: str | bytes | None = None) -> Result:  # noqa: A002
    return CliRunner().invoke(app, list(args), input=input)


def fine(*args: str, input: str | bytes | None = None) -> str:  # noqa: A002
    """Standard output of a run that must succeed."""
    result = run(*args, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*args: str, input: str | None = None) -> Any:  # noqa: A002
    """The one JSON document of a run that must succeed."""
    return json.loads(fine(*args, "--json", input=input))


def complaint(*args: str, input: str | bytes | None = None) -> str:  # noqa: A002
    """The one line of a run that must fail with exit code 2, nothing on standard output."""
    result = run(*args, input=input)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return one_line(result.stderr)


def one_line(stderr: str) -> str:
    assert stderr.startswith("retcon: ")
    assert stderr.count("\n") == 1
    assert stderr.endswith("\n")
    assert "Traceback" not in stderr
    return stderr.removeprefix("retcon: ").strip()


def process(*args: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The real program, with its own streams."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    command = [sys.executable, "-m", "retcon", *args]
    return subprocess.run(command, capture_output=True, timeout=60, env=env, check=False, **options)


# -- every verb --------------------------------------------------------------------------------------------------------


def test_verbs_are_the_ones_this_version_has() -> None:
    assert set(VERBS) == {
        "add", "supersede", "delete", "get", "list", "history", "search", "recall", "decide", "ask", "export",
        "load", "cache", "label", "fit", "calibrate", "crossfit", "bench", "report", "advise", "mechanism", "doctor",
        "demo", "version",
    }  # fmt: skip


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_of_a_verb_has_a_summary_and_examples(verb: str) -> None:
    text = fine(verb, "--help")
    summary, shown = text.split("\n\n")[1].strip(), re.findall(rf"^ +(?:.*\| )?.*retcon {verb}", text, re.M)
    assert summary.endswith(".")
    assert len(summary.splitlines()) == 1
    assert "Examples:" in text
    assert len(shown) >= 2
    assert "--json" in text


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_example_names_only_options_that_exist(verb: str) -> None:
    examples = fine(verb, "--help").split("Examples:")[1]
    known = {option for parameter in VERBS[verb].params for option in parameter.opts} | {"--version"}
    ours = re.sub(r'"[^"]*"|\|\s*(?!retcon).*$', "", examples, flags=re.M)
    assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", ours)) <= known


def test_no_verb_shows_the_verbs() -> None:
    assert all(verb in fine() for verb in VERBS)
    assert fine() == fine("--help")


def test_version_is_the_packages_own() -> None:
    assert fine("--version") == fine("version") == f"retcon {retcon.__version__}\n"
    assert document("version") == {"version": retcon.__version__}


# -- documentation -----------------------------------------------------------------------------------------------------


def test_docs_have_a_section_for_each_verb_and_no_other() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", page, re.M) == list(VERBS)
    for verb in VERBS:
        section = page.split(f"### {verb}\n")[1].split("\n### ")[0].split("\n## ")[0]
        assert re.search(rf"^\$ (?:.*\| )?retcon {verb}\b", section, re.M), verb


def replayed(page: str) -> str:
    """The page with what each command of its console blocks prints now, run in order in an empty folder."""
    (chat,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    Path("chat.json").write_text(chat, encoding="utf-8")
    return re.sub(r"(?<=```console\n)(.*?)(?=```)", lambda block: _replay(block[1]), page, flags=re.DOTALL)


def _replay(block: str) -> str:
    commands = re.findall(r"^\$ (.*)$", block, re.M)
    return "".join(f"$ {command}\n{_steady(_shell(command))}" for command in commands)


def _shell(command: str) -> str:
    """What the command prints; a pipe before retcon is run by a real shell."""
    before, _, ours = command.rpartition("| ")
    fed = subprocess.run(["sh", "-c", before], capture_output=True, check=True).stdout if before else None
    result = run(*shlex.split(ours)[1:], input=fed)
    return result.stdout + result.stderr


def _steady(output: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00", "2026-05-21T08:00:00+00:00", output)


def test_docs_show_what_the_commands_print(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETCON_DB")
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert replayed(page) == page, "python tests/test_cli.py writes it anew"


def test_docs_name_every_option_of_each_verb() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    options = {option for verb in VERBS.values() for parameter in verb.params for option in parameter.opts}
    missing = {option for option in options if option.startswith("--") and f"`{option}" not in page}
    assert not missing


# -- writing -----------------------------------------------------------------------------------------------------------


def test_add_stores_what_it_is_told(db: Path) -> None:
    options = "-u ann --agent-id bot --run-id r1 --session s1 --speaker Ann --timestamp 2026-05-09 --id a1".split()
    fine("add", "I adopted a cat.", *options, "--meta", "n=3", "--meta", "tag=pets", "--meta", 'x={"y": [1]}')
    with Memory(db) as memory:
        note = memory.get("a1")
    assert (note.text, note.user_id, note.agent_id, note.run_id) == ("I adopted a cat.", "ann", "bot", "r1")
    assert (note.session, note.speaker, note.timestamp) == ("s1", "Ann", "2026-05-09")
    assert note.metadata == {"n": 3, "tag": "pets", "x": {"y": [1]}}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "[" * 100_000, "9" * 5000, "{", "", "a=b"])
def test_metadata_that_is_no_json_is_kept_as_text(value: str, db: Path) -> None:
    assert document("add", "x", "--meta", f"k={value}")["results"][0]["metadata"] == {"k": value}


@pytest.mark.parametrize("dash", [["-"], []])
def test_add_reads_standard_input_without_its_last_line_break(dash: list[str], db: Path) -> None:
    assert document("add", *dash, input="one\ntwo\n")["results"][0]["text"] == "one\ntwo"


def test_add_reads_messages_from_a_file_or_standard_input(db: Path) -> None:
    chat = json.dumps([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi, Ann."}])
    Path("chat.json").write_text(chat, encoding="utf-8")
    stored = document("add", "--messages", "chat.json", "--session", "s1")["results"]
    assert [(note["speaker"], note["text"]) for note in stored] == [("user", "Hello."), ("assistant", "Hi, Ann.")]
    assert len(document("add", "--messages", "-", input=chat)["results"]) == 2
    assert fine("add", "--messages", "chat.json").startswith("stored 2 notes: ")


@pytest.mark.parametrize("what", ["{", "{}", "3", "[3]", '[{"role": "user"}]', '["a", ""]', "\ufeff[", "[" * 100_000])
def test_messages_that_are_none_give_one_line(what: str, db: Path) -> None:
    complaint("add", "--messages", "-", input=what)


def test_text_and_messages_together_are_refused(db: Path) -> None:
    assert "not both" in complaint("add", "x", "--messages", "-", input="[]")


def test_add_again_with_the_same_id_changes_nothing(db: Path) -> None:
    fine("add", "x", "--id", "a")
    fine("add", "x", "--id", "a")
    assert "taken" in complaint("add", "y", "--id", "a")
    assert len(document("list")["results"]) == 1


def test_supersede_is_found_and_history_keeps_both(cats: Path) -> None:
    fine("supersede", "a1", "My cat is called Dot.", "--new-id", "a3", "--timestamp", "2026-06-01")
    assert [hit["id"] for hit in document("search", "cat", "-u", "ann")["results"]] == ["a3"]
    assert [note["id"] for note in document("history", "a1")["results"]] == ["a1", "a3"]
    shown = fine("history", "a3")
    assert "superseded by a3" in shown
    assert "current" in shown
    assert document("supersede", "a3", "-", input="Dot it is.\n")["text"] == "Dot it is."
    assert "superseded" in complaint("supersede", "a1", "again")


# -- deleting ----------------------------------------------------------------------------------------------------------


def test_delete_removes_every_id_or_none(cats: Path) -> None:
    assert "nope" in complaint("delete", "a1", "nope", "--yes")
    assert fine("get", "a1")
    assert document("delete", "a1", "b1", "--yes") == {"notes": 2, "records": 0, "purged": True, "warning": None}
    assert [note["id"] for note in document("list")["results"]] == ["a2"]


def test_delete_all_takes_the_scope_alone(cats: Path) -> None:
    assert fine("delete", "--all", "-u", "ann", "-y") == "deleted 2 notes\n"
    assert [note["id"] for note in document("list")["results"]] == ["b1"]
    assert fine("delete", "--everything", "-y") == "deleted 1 note\n"
    assert document("list") == {"results": []}


@pytest.mark.parametrize(
    "args", ["", "a1 --all", "--all", "--everything -u ann", "a1 -u ann", "--all --everything -u x"]
)
def test_delete_without_a_clear_aim_is_refused(args: str, cats: Path) -> None:
    assert "name ids, or --all" in complaint("delete", *args.split(), "--yes")
    assert len(document("list")["results"]) == 3


@pytest.mark.parametrize("args", ["a1", "--all -u ann", "--everything"])
def test_delete_wants_a_yes_where_no_one_can_be_asked(args: str, cats: Path) -> None:
    assert "--yes" in complaint("delete", *args.split(), input="y\n")
    assert len(document("list")["results"]) == 3


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 2), ("n", 1, 3)])
def test_delete_asks_a_person_at_the_terminal(answer: str, code: int, left: int, cats: Path) -> None:
    shown, exit_code = at_terminal(["delete", "a1"], f"{answer}\n")
    assert "delete 1 note (a1)?" in shown
    assert exit_code == code
    assert len(document("list")["results"]) == left


# -- reading -----------------------------------------------------------------------------------------------------------


def test_get_shows_every_field(cats: Path) -> None:
    shown = fine("get", "a2")
    assert "| The rent is 725 a month." in shown
    assert re.search(r'^metadata +\{"n": 3\}$', shown, re.M)
    assert document("get", "a2")["metadata"] == {"n": 3}


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ("", ["a1", "a2", "b1"]),
        ("-u ann", ["a1", "a2"]),
        ("--session s1", ["a1"]),
        ("--since 2026-05-01 --until 2026-05-31", ["a1"]),
        ("--until 2026-05-08", []),
        ("--meta n=3", ["a2"]),
        ("--meta n=4", []),
        ("--limit 1", ["a1"]),
    ],
)
def test_list_and_search_filter(options: str, ids: list[str], cats: Path) -> None:
    assert [note["id"] for note in document("list", *options.split())["results"]] == ids
    found = document("search", "cat rent", *options.replace("--limit", "-k").split())["results"]
    assert {hit["id"] for hit in found} == set(ids) or (options == "--limit 1" and len(found) == 1)


def test_list_shows_superseded_notes_on_request(cats: Path) -> None:
    fine("supersede", "a1", "Dot.", "--new-id", "a3")
    assert len(document("list", "-u", "ann")["results"]) == 2
    assert len(document("list", "-u", "ann", "--superseded")["results"]) == 3


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_keep_to_the_width(columns: int, cats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with Memory(cats) as memory:
        memory.add("cat " + "慢慢来" * 100, id="wide", speaker="s" * 9)
    for verb in (["list"], ["search", "cat"]):
        lines = fine(*verb).splitlines()
        assert any(line.endswith("...") for line in lines)
        assert all(len(line) + len(re.findall("[慢来]", line)) <= columns for line in lines)


def test_search_marks_a_duplicate(cats: Path) -> None:
    for name in ("d1", "d2"):
        fine("add", "Juniper is a nine-year-old lurcher with early kidney disease.", "--id", name)
    assert re.search(r"\(= d\d\) Juniper", fine("search", "lurcher"))


def test_nothing_found_is_no_error(cats: Path) -> None:
    result = run("search", "zebra")
    assert (result.exit_code, result.stdout) == (0, "")
    assert one_line(result.stderr) == "no note matches"
    assert document("search", "zebra") == {"results": []}
    assert document("list", "-u", "nobody") == {"results": []}
    assert one_line(run("list", "-u", "nobody").stderr) == "no notes found"


# -- recalling ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def week(db: Path) -> Path:
    """A store in which a small budget leaves much out."""
    with Memory(db) as memory:
        for day in range(1, 10):
            memory.add(f"On day {day} the cat ate {day * 11} biscuits and slept.", id=f"n{day}", session=f"s{day}")
    return db


def test_recall_shows_action_tokens_reason_text_sources_and_what_was_dropped(
    week: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    found = document("recall", "How many biscuits on day 3?", "-b", "32")
    shown = fine("recall", "How many biscuits on day 3?", "-b", "32")
    assert shown.startswith(f"{found['action']}, {found['tokens']} of 32 tokens\n")
    assert " ".join(shown.split()).count(found["decision"]["reason"]) == 1
    assert all(f"| {line}" in shown for line in found["text"].splitlines())
    assert f"from {len(found['sources'])} note" in shown
    assert sum(map(int, re.findall(r"^dropped (\d+), ", shown, re.M))) == len(found["dropped"]) > 3
    assert " more" in shown


def test_recall_verbose_names_every_dropped_note(week: Path) -> None:
    args = ("recall", "How many biscuits on day 3?", "-b", "32")
    ids = [dropped["id"] for dropped in document(*args)["dropped"]]
    assert re.findall(r"^(n\d)  ", fine(*args, "--verbose"), re.M) == ids


def test_recall_text_is_the_packed_text_and_nothing_else(week: Path) -> None:
    args = ("recall", "biscuits", "--budget", "64")
    assert fine(*args, "--text") == document(*args)["text"] + "\n"


def test_recall_is_the_librarys_own(week: Path) -> None:
    with Memory(week) as memory:
        expected = memory.recall("biscuits on day 3", 48, exclude=["extract"]).to_dict()
    found = document("recall", "biscuits on day 3", "-b", "48", "--exclude", "extract")
    assert found | {"usage": 0} == expected | {"usage": 0}


def test_recall_takes_every_part_by_name(week: Path) -> None:
    from retcon.route import default_router

    default_router().save("r.json")
    found = document(
        *"recall cat -b 40 --action retain --counter alphanumeric --retriever hybrid --embedder hashing".split(),
        *"-k 3 --router r.json --session s3 --since 2020-01-01".split(),
    )
    assert found["action"] == "retain"
    assert found["decision"]["forced"]
    assert document("recall", "cat", "-k", "3")["decision"]["features"]["notes"] == 3


def test_budget_comes_from_the_option_else_the_environment_else_256(
    week: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert document("recall", "cat")["budget"] == 256
    monkeypatch.setenv("RETCON_BUDGET", "16")
    assert document("recall", "cat")["budget"] == 16
    assert document("recall", "cat", "-b", "8")["budget"] == 8
    assert document("recall", "cat", "--budget", "0")["text"] == ""
    assert "(no text)" in fine("recall", "cat", "--budget", "0")


def test_decide_shows_utilities_threshold_features_and_reason(week: Path) -> None:
    found = document("decide", "biscuits", "-b", "32")
    shown = fine("decide", "biscuits", "-b", "32")
    assert found["reason"] in " ".join(shown.split())
    assert re.search(r"^advantage \S+, threshold 0$", shown, re.M)
    for name in (*found["utilities"], *FEATURES):
        assert re.search(rf"^{name} +\S+$", shown, re.M)


@pytest.mark.parametrize("verb", ["search", "recall", "decide"])
def test_query_may_come_from_standard_input(verb: str, week: Path) -> None:
    usage = {"usage": 0} if verb == "recall" else {}
    assert document(verb, input="biscuits\n") | usage == document(verb, "biscuits") | usage
    assert document(verb, "-", input="biscuits") | usage == document(verb, "biscuits") | usage


# -- files -------------------------------------------------------------------------------------------------------------


def test_export_and_load_round_trip_through_files_and_streams(cats: Path) -> None:
    fine("supersede", "a1", "Dot é 慢 \u2028.", "--new-id", "a3")
    assert fine("export", "one.jsonl") == "wrote 4 notes to one.jsonl\n"
    lines = fine("export", "-")
    assert lines == Path("one.jsonl").read_text(encoding="utf-8")
    assert fine("load", "one.jsonl", "--db", "two.db") == "added 4 notes to two.db\n"
    assert document("load", "-", "--db", "three.db", input=lines) == {"added": 4}
    assert fine("export", "-", "--db", "two.db") == fine("export", "-", "--db", "three.db") == lines
    assert document("load", "one.jsonl", "--db", "two.db") == {"added": 0}


def test_export_takes_a_scope(cats: Path) -> None:
    assert document("export", "bob.jsonl", "-u", "bob") == {"path": "bob.jsonl", "notes": 1}
    assert [note["id"] for note in document("export", "-", "-u", "bob")["results"]] == ["b1"]
    assert json.loads(fine("export", "-", "-u", "bob"))["id"] == "b1"


@pytest.mark.parametrize("bad", ["nope", '{"text": 3}', '{"text": ""}', "[]", "\udcff", '{"text": "x", "odd": 1}'])
def test_load_is_all_or_none(bad: str, db: Path) -> None:
    raw = b'{"text": "first"}\n' + bad.encode("utf-8", "surrogateescape") + b"\n"
    Path("bad.jsonl").write_bytes(raw)
    complaint("load", "bad.jsonl")
    complaint("load", "-", input=raw)
    assert document("list") == {"results": []}


@pytest.mark.parametrize("args", ["load nope.jsonl", "load .", "add --messages nope.json", "add --messages ."])
def test_file_that_cannot_be_read_gives_one_line_and_no_store(args: str, db: Path) -> None:
    assert "cannot read" in complaint(*args.split())
    assert not db.exists()


def test_load_reads_a_pipe_once(db: Path) -> None:
    command = f"'{sys.executable}' -m retcon load <(echo '{{\"text\": \"from a pipe\"}}')"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run(["bash", "-c", command], capture_output=True, env=env, check=True).stdout.startswith(
        b"added 1 "
    )


# -- a store that is not there, or not one -----------------------------------------------------------------------------


@pytest.mark.parametrize("args", [*READING, "supersede a1 x", "delete a1 --yes"])
def test_verb_that_needs_a_store_makes_none(args: str, db: Path) -> None:
    assert "does not exist yet" in complaint(*args.split())
    assert list(db.parent.iterdir()) == []


def not_a_database(db: Path) -> None:
    db.write_bytes(b"this is no database at all, whatever its name may say\n" * 100)


def a_folder(db: Path) -> None:
    db.mkdir()


def a_newer_schema(db: Path) -> None:
    Memory(db).close()
    connection = sqlite3.connect(db)
    connection.execute("PRAGMA user_version = 999")
    connection.close()


def another_programs(db: Path) -> None:
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()


@pytest.mark.parametrize("args", ["add x", "load -", "doctor", *READING])
@pytest.mark.parametrize("spoil", [not_a_database, a_folder, a_newer_schema, another_programs])
def test_file_that_is_no_store_of_ours_gives_one_line_and_stays_as_it_is(spoil: Any, args: str, db: Path) -> None:
    spoil(db)
    before = db.read_bytes() if db.is_file() else None
    if args == "doctor":
        result = run("doctor")
        assert result.exit_code == 1
        assert "BROKEN store: " in result.stdout
        assert document_of_broken("doctor")["store"]["error"]
    else:
        complaint(*args.split(), input="")
    assert (db.read_bytes() if db.is_file() else None) == before


def document_of_broken(*args: str) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["ok"]
    assert found["broken"]
    return found


@pytest.mark.parametrize("path", ["no/such/folder/t.db", "postgresql://host/db", "x" * 5000, "/dev/null/t.db"])
def test_path_that_cannot_be_opened_gives_one_line(path: str, db: Path) -> None:
    complaint("add", "x", "--db", path)
    complaint("list", "--db", path)
    document_of_broken("doctor", "--db", path)


def test_folder_that_cannot_be_written_gives_one_line() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may write anywhere
        try:
            complaint("add", "x", "--db", f"{folder}/t.db")
            document_of_broken("doctor", "--db", f"{folder}/t.db")
        finally:
            if root:
                os.seteuid(0)
        assert os.listdir(folder) == []


def test_damage_inside_a_store_is_told_by_doctor_and_breaks_no_verb(week: Path) -> None:
    fine("delete", "n1", "--yes")  # leaves no log behind
    raw = bytearray(week.read_bytes())
    for page in range(2, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    week.write_bytes(raw)
    assert document_of_broken("doctor")["store"]["error"]
    for args in (*READING, "add x"):
        result = run(*args.split())
        assert result.exit_code in (0, 2)
        assert "Traceback" not in result.output
        if result.exit_code == 2:
            one_line(result.stderr)


# -- bad use -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ("nope", "nope"),
        ("recall cat --bugdet 3", "--budget"),
        ("recall cat -b -1", "-1"),
        ("recall cat -b 99999999999999999999", "10,000,000"),
        ("recall cat -b 1.5", "--budget"),
        ("recall cat -b x", "--budget"),
        (f"recall cat -b {'9' * 5000}", "budget"),
        ("recall cat --action nope", "retain, extract"),
        ("recall cat --exclude nope", "retain, extract"),
        ("recall cat --exclude retain --exclude extract", "no action is left"),
        ("recall cat --counter nope", "estimate"),
        ("recall cat --retriever nope", "bm25"),
        ("recall cat --embedder nope", "hashing"),
        ("recall cat --router nope.json", "nope.json"),
        ("recall cat --router .", "router"),
        ("search cat -k 0", "top_k"),
        ("search cat -k 99999999", "top_k"),
        ("search cat --since yesterday", "ISO 8601"),
        ("search cat --meta nope", "KEY=VALUE"),
        ("search cat --meta =x", "KEY=VALUE"),
        ("search -x", "--"),
        ("list --limit 0", "--limit"),
        ("get", "ID"),
        ("get nope", "nope"),
        ("history nope", "nope"),
        ("supersede nope text", "nope"),
        ("add one two", "two"),
        ("add x -u", "-u"),
        ("add x --timestamp noon", "ISO 8601"),
        ("export", "FILE"),
        ("cache", "stats|clear"),
        ("cache nope", "stats"),
        ("ask cat", "--model"),
        ("ask cat --model nope", "gguf"),
        ("ask cat --model nope.gguf", "nope.gguf"),
        ("ask cat --model http:// --model-name m", "http://localhost:8000/v1"),
        ("ask cat --model http://127.0.0.1:9", "--model-name"),
        ("ask cat --model http://127.0.0.1:9 --model-name m --timeout 0", "time-out"),
        ("ask cat --model http://127.0.0.1:9 --model-name m --timeout nan", "time-out"),
        ("ask cat --model http://127.0.0.1:9 --model-name m --max-rungs 0", "max_rungs"),
        ("ask cat --model http://127.0.0.1:9 --model-name m --max-tokens 0", "--max-tokens"),
        ("recall cat --action merge", "--model"),
        ("recall cat --guard nope", "strict"),
        ("recall cat --model http://a:b@127.0.0.1:9 --model-name m", "no user"),
        ("recall cat --api-key sk-secret", "RETCON_API_KEY"),
        ("export no/such/folder/x.jsonl", "cannot write"),
        ("version --nope", "--nope"),
    ],
)
def test_bad_use_gives_one_line_and_exit_code_2(args: str, word: str, cats: Path) -> None:
    assert word in complaint(*args.split())
    verb, *rest = args.split()
    result = run(verb, "--json", *rest)
    assert (result.exit_code, result.stdout) == (2, "")
    error = json.loads(result.stderr)["error"]
    assert set(error) == {"code", "message"}
    assert word in error["message"]


@pytest.mark.parametrize(
    ("args", "code"), [("get nope", "not_found"), ("add y --id a1", "conflict"), ("nope", "usage"), ("get", "usage")]
)
def test_json_error_carries_the_code_of_its_kind(args: str, code: str, cats: Path) -> None:
    assert json.loads(run(*args.split(), "--json").stderr)["error"]["code"] == code


def test_json_after_two_dashes_is_text(cats: Path) -> None:
    assert run("search", "--", "--json").exit_code == 0
    one_line(run("get", "--", "--json").stderr)


def test_empty_text_is_refused(db: Path) -> None:
    for text in ("", " \n\t "):
        assert "empty" in complaint("add", text)
        assert "empty" in complaint("add", input=text)


def test_options_that_are_empty_are_refused(cats: Path) -> None:
    for option in ("-u", "--agent-id", "--run-id", "--session"):
        assert "empty" in complaint("search", "cat", option, "")


SYNTAX = [
    '"',
    '"cat',
    "cat*",
    "NEAR(cat, 3)",
    "-cat",
    "cat AND OR NOT",
    "'; DROP TABLE note; --",
    "%_\\",
    "{a}: ^b",
    "",
]


@pytest.mark.parametrize("verb", ["search", "recall", "decide"])
def test_query_syntax_of_engines_is_plain_text(verb: str, cats: Path) -> None:
    for query in SYNTAX:
        assert run(verb, "--", query, input="piped").exit_code == 0, query
    assert len(document("list")["results"]) == 3


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verb=st.sampled_from(["search", "recall", "decide"]), query=st.text(st.characters(), max_size=60))
def test_any_query_gives_a_result(verb: str, query: str, cats: Path) -> None:
    result = run(verb, "--", query, input="piped")
    assert result.exit_code == 0, result.output


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=60))
def test_any_text_is_stored_as_it_is_or_refused_in_one_line(text: str, db: Path) -> None:
    result = run("add", "--json", "--", text, input="piped")
    if result.exit_code == 0:
        assert json.loads(result.stdout)["results"][0]["text"] in (text, "piped")
        assert text in ("-", json.loads(result.stdout)["results"][0]["text"])
    else:
        assert result.exit_code == 2
        assert json.loads(result.stderr)["error"]["code"] == "bad_input"


# -- streams -----------------------------------------------------------------------------------------------------------


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


def at_terminal(args: Sequence[str], typed: str = "") -> tuple[str, int]:
    """What a person sees who runs the program in a terminal of 80 columns, and its exit code."""
    ours, theirs = pty.openpty()
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "80"}
    command = [sys.executable, "-m", "retcon", *args]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True)
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b"".join(_chunks(ours, child))
    os.close(ours)
    return shown.decode(), child.wait(timeout=30)


def _chunks(terminal: int, child: subprocess.Popen[bytes]) -> Iterator[bytes]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if select.select([terminal], [], [], 0.1)[0]:
                if not (chunk := os.read(terminal, 65536)):
                    return
                yield chunk
            elif child.poll() is not None:
                return
        except OSError:  # Linux: the other side is closed
            return
    child.kill()
    raise AssertionError("the program did not end")


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
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err) == (130, b"", b"")
    assert len(document("list")["results"]) == 3


def _wait_until_locked(db: Path) -> None:
    """Until another process is inside its transaction."""
    connection = sqlite3.connect(db, timeout=0, isolation_level=None)
    until = time.monotonic() + 30
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


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("retcon rec", {"recall"}),
        ("retcon recall --bud", {"--budget"}),
        ("retcon recall --action re", {"retain", "rewrite"}),
        ("retcon search --retriever bm25-", {"bm25-plain"}),
        ("retcon recall --counter alpha", {"alphanumeric"}),
    ],
)
def test_shell_completion_offers_what_fits(typed: str, offered: set[str], db: Path) -> None:
    env = {"_RETCON_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    result = process(env=env)
    assert set(result.stdout.decode().split()) == offered
    assert result.stderr == b""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_script_is_shown(shell: str, db: Path) -> None:
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    result = process("--show-completion", shell, env=env)
    assert result.returncode == 0
    assert b"_RETCON_COMPLETE" in result.stdout


# -- doctor ------------------------------------------------------------------------------------------------------------


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
        "evidence-fit",
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


def test_doctor_knows_every_extra_of_the_package(db: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"dev"}
    for name, (_, modules) in EXTRAS.items():
        wanted = {re.split(r"[>=<\[]", item)[0].replace("-", "_") for item in project["optional-dependencies"][name]}
        assert set(modules) == {{"scikit_learn": "sklearn"}.get(each, each) for each in wanted}


def test_doctor_names_the_install_line_of_what_is_missing(db: Path) -> None:
    hidden = "import sys; sys.modules.update(wordllama=None, bpe_openai=None)\nfrom retcon.cli import main\nmain()"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", hidden, "doctor"]
    result = subprocess.run(command, capture_output=True, env=env, check=False, text=True)
    assert result.returncode == 0, result.stderr
    shown = " ".join(result.stdout.split())
    assert "pip install 'retcon-memory[embed]'" in shown
    assert "pip install 'retcon-memory[bpe]'" in shown


# -- speed -------------------------------------------------------------------------------------------------------------


def test_help_loads_neither_rich_nor_optional_parts() -> None:
    code = (
        "import sys\nfrom retcon.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stderr
    assert not set(loaded.split()) & {"rich", "wordllama", "bpe_openai", "sklearn", "httpx"}


def test_streams_of_a_caller_are_left_open(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "x"}\n')))
    with pytest.raises(SystemExit) as ended:
        app(["load", "-"])
    assert ended.value.code == 0
    assert not sys.stdin.closed


if __name__ == "__main__":
    page = ROOT / "docs" / "cli.md"
    with tempfile.TemporaryDirectory() as folder:
        for name in (*READ, *KEYS):
            os.environ.pop(name, None)
        os.chdir(folder)
        page.write_text(replayed(page.read_text(encoding="utf-8")), encoding="utf-8")
