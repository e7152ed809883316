"""The command line: every verb, every stream, and no traceback whatever comes in."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from command_line import (
    ROOT,
    at_terminal,
    complaint,
    document,
    document_of_broken,
    fine,
    one_line,
    process,
    run,
)
from conftest import bytes_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command

import retcon
from retcon import Memory
from retcon.cli import app
from retcon.cli.doctor import KEYS, READ
from retcon.features import FEATURES, SPREAD, TYPES

VERBS: dict[str, Any] = dict(get_command(app).commands)  # type: ignore[attr-defined]
READING = (
    "search cat", "recall cat", "decide cat", "get a1", "list", "history a1", "export out.jsonl", "export -",
    "cache stats", "cache clear --yes",
)  # fmt: skip


# -- every verb --------------------------------------------------------------------------------------------------------


def test_verbs_are_the_ones_this_version_has() -> None:
    assert set(VERBS) == {
        "add", "supersede", "delete", "get", "list", "history", "search", "recall", "decide", "ask", "export",
        "load", "import", "cache", "migrate", "check", "backup", "restore", "embed", "purge", "reindex", "label", "fit",
        "calibrate", "crossfit",
        "bench", "report", "advise", "mechanism", "serve", "keys", "mcp", "doctor", "demo", "version",
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


PAGES = [ROOT / "docs/cli" / f"{name}.md" for name in ("index", "notes", "recall", "files", "lab", "serve", "about")]
TURN = "\f"  # stands between two pages


def read_pages() -> str:
    """The pages of the command line in reading order: what one of them stores, the next ones find."""
    return TURN.join(page.read_text(encoding="utf-8") for page in PAGES)


def test_docs_have_a_section_for_each_verb_and_no_other() -> None:
    page = read_pages()
    assert re.findall(r"^## (\w+)$", page, re.M) == list(VERBS)
    for verb in VERBS:
        section = page.split(f"## {verb}\n")[1].split("\n## ")[0]
        assert re.search(rf"^\$ (?:.*\| )?retcon {verb}\b", section, re.M), verb


def replayed(page: str) -> str:
    """The pages with what each command of their console blocks prints now, run in order in an empty folder."""
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
    page = read_pages()
    assert replayed(page) == page, "python tests/test_cli.py writes it anew"


def test_docs_name_every_option_of_each_verb() -> None:
    page = read_pages()
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


def test_delete_takes_every_version_unless_one_is_said(cats: Path) -> None:
    fine("supersede", "a1", "Dot it is.", "--new-id", "a3")
    assert fine("delete", "a3", "--versions", "one", "-y") == "deleted 1 note\n"
    assert "superseded_by" not in document("get", "a1")
    fine("supersede", "a1", "Dot it is.", "--new-id", "a4")
    assert fine("delete", "a1", "-y") == "deleted 2 notes\n"
    assert [note["id"] for note in document("list", "--superseded")["results"]] == ["a2", "b1"]


def test_delete_asks_about_the_versions_that_go_too(cats: Path) -> None:
    fine("supersede", "a1", "Dot it is.", "--new-id", "a3")
    shown, _ = at_terminal(["delete", "a3"], "n\n")
    assert "delete 2 notes (a1, a3)?" in shown


def test_only_purge_deletes_what_has_expired(cats: Path) -> None:
    fine("add", "a stale zebracode", "--id", "old", "--expires", "2020-01-01")
    for line in (*READING, "list --expired", "delete b1 --yes"):
        fine(*line.split())
    assert document("get", "old")["text"] == "a stale zebracode"
    assert document("purge") == {"expired": 1, "purged": True}
    assert "old" in complaint("get", "old")
    assert b"zebracode" not in bytes_of(cats)
    assert fine("purge") == "deleted 0 expired notes\n"


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


def test_recall_shows_action_tokens_why_text_sources_and_what_was_dropped(
    week: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    found = document("recall", "How many biscuits on day 3?", "-b", "32")
    shown = fine("recall", "How many biscuits on day 3?", "-b", "32")
    assert shown.startswith(f"{found['action']}, {found['tokens']} of 32 tokens\n")
    assert " ".join(shown.split()).count(found["why"]) == 1
    assert found["decision"]["reason"] not in " ".join(shown.split()), "the numbers come with --verbose"
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


@pytest.mark.parametrize(("router", "unread"), [("evidence-fit", {*SPREAD, *TYPES}), ("longmemeval-free", {*SPREAD})])
def test_decide_shows_utilities_threshold_reason_and_the_features_read(
    router: str, unread: set[str], week: Path
) -> None:
    found = document("decide", "biscuits", "-b", "32", "--router", router)
    shown = fine("decide", "biscuits", "-b", "32", "--router", router)
    assert found["reason"] in " ".join(shown.split())
    assert re.search(r"^advantage \S+, threshold \S+$", shown, re.M)
    assert list(found["features"]) == [name for name in FEATURES if name not in unread]
    for name in (*found["utilities"], *found["features"]):
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
    assert not db.exists()  # nothing of a store that was not there before
    fine("add", "a note", "--id", "kept")
    complaint("load", "bad.jsonl")
    assert [note["id"] for note in document("list")["results"]] == ["kept"]


@pytest.mark.parametrize(
    "document", ['[\n {"text": "a"},\n {"text": "b"}\n]', '[{"text": "a"}]', '{\n "text": "a"\n}', '{"a":\n1}']
)
def test_load_of_json_that_is_not_jsonl_says_so_and_what_to_do(document: str, db: Path) -> None:
    Path("talk.json").write_text(document)
    said = complaint("load", "talk.json")
    assert "line 1: this is JSON, not JSONL" in said
    assert "jq -c '.[]' FILE" in said
    assert "retcon bench locomo --folder DIR" in said
    assert not db.exists()


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
        ("ask cat --model http://127.0.0.1:9 --model-name m --max-looks 0", "max_looks"),
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
    with tempfile.TemporaryDirectory() as folder:
        for name in (*READ, *KEYS):
            os.environ.pop(name, None)
        os.chdir(folder)
        for page, text in zip(PAGES, replayed(read_pages()).split(TURN), strict=True):
            page.write_text(text, encoding="utf-8")
