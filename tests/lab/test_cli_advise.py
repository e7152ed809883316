"""The verb advise, on questions of one's own and on the shipped sample: one page, files, errors, and going on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, document, run
from local_model import needs_local_model, smollm
from misbehaving import Server, answers, says
from test_label import failing

from retcon import Memory
from retcon.cli.doctor import KEYS, READ
from retcon.lab.cli import advise
from retcon.lab.data import load
from retcon.lab.outcomes import read
from retcon.model import FakeChat
from retcon.route import Router, default_router

ROOT = Path(__file__).parents[2]
LONGEST = 40  # lines of a page, in a terminal of 80 columns


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and no variable of ours set."""
    monkeypatch.chdir(tmp_path)
    for name in (*READ, *KEYS, "RETCON_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(always=answers) as started:
        yield started


@pytest.fixture
def mine(folder: Path) -> Path:
    """Thirty questions of one's own over one file of notes, six of them without an answer."""
    questions = load("sample-more").questions
    (folder / "notes.jsonl").write_text("".join(json.dumps(note.to_dict()) + "\n" for note in questions[0].history))
    lines = [
        {"id": each.id, "question": each.text, "answer": each.answer, "history_file": "notes.jsonl",
         "abstention": each.abstention}
        for each in (*questions[:24], *(each for each in questions if each.abstention))
    ]  # fmt: skip
    (folder / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:30]))
    return folder / "mine.jsonl"


def model(server: Server) -> tuple[str, ...]:
    return ("--model", server.base, "--model-name", "m")


def advised(server: Server, *more: str) -> tuple[str, ...]:
    few = ("--budgets", "32,64", "--actions", "retain,extract,merge")
    return ("advise", "--questions", "mine.jsonl", *model(server), *few, *more)


def sampled(server: Server, *more: str) -> tuple[str, ...]:
    return ("advise", "--sample", *model(server), *more)


# -- one's own questions -----------------------------------------------------------------------------------------------


def test_advise_says_on_one_page_what_to_use_and_what_it_cannot_tell_and_writes_a_router_that_serves(
    server: Server, mine: Path, folder: Path
) -> None:
    told = run("advise", "--questions", "mine.jsonl", *model(server))
    assert told.exit_code == 0, told.output
    assert "protocol product: every question has its notes" in told.stderr
    assert len(told.stdout.splitlines()) <= LONGEST, told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80
    said = " ".join(told.stdout.split())
    assert "30 questions, 6 of them unanswerable; reader m; judge llm." in said
    for word in ("KEEP THE ROUTER THAT SHIPS", "What this cannot tell:", "the reader judged its own replies"):
        assert word in said
    page = (folder / "advice/advice.md").read_text()
    for name in ("default", "fixed", "learned", "ladder", "retain", "extract", "hybrid"):
        assert f"\n| {name} | ." in page
    router = Router.load("advice/router.json")
    known = {name: router.provenance[name] for name in ("dataset", "setting", "model", "judge", "retriever")}
    assert known == {"dataset": "mine", "setting": "product", "model": "m", "judge": "llm", "retriever": "bm25"}
    assert (folder / "advice/crossover.svg").read_text().startswith("<?xml")
    with Memory(":memory:", router="advice/router.json", model=FakeChat(lambda ask: "x", name="m")) as memory:
        memory.add([note.to_dict() for note in load("sample").questions[0].history])
        decision = memory.decide("How big is the flat?", 64)
        assert (decision.router, decision.warnings) == ("advised", ())
    fixed = json.loads(run("advise", "--questions", "mine.jsonl", *model(server), "--json").stdout)["fixed"]
    with Memory(":memory:", router="advice/fixed.json", model=FakeChat(lambda ask: "x", name="m")) as memory:
        memory.add([note.to_dict() for note in load("sample").questions[0].history])
        taken = {budget: memory.decide("How big is the flat?", int(budget)).action for budget in fixed}
        assert taken == fixed


def test_json_holds_the_whole_advice_and_a_second_run_pays_nothing(server: Server, mine: Path) -> None:
    found = document(*advised(server))
    paid = len(server.seen)
    assert (found["questions"], found["unanswerable"], found["use"]) == (30, 6, "default")
    assert [each["budget"] for each in found["standings"]] == [32, 64]
    assert found["files"]["page"] == "advice/advice.md"
    for score in found["scores"]:
        assert score["right"] + score["wrong"] + score["none"] == pytest.approx(1)
        assert score["utility"] == pytest.approx(score["right"] - 0.5 * score["wrong"])
    assert found["router"] == {"name": default_router(writes=True).name, "reader": found["router"]["reader"]}
    assert document(*advised(server)) == found
    assert len(server.seen) == paid


def test_a_limit_draws_from_answerable_and_unanswerable_questions_and_says_so(server: Server, mine: Path) -> None:
    told = run(*advised(server, "--limit", "20", "--no-judge"))
    assert told.exit_code == 0, told.output
    assert "20 of 30 questions, drawn with seed 20260716; --limit 30 asks all" in told.stderr
    columns = read("advice/outcomes.csv").columns
    assert len(set(columns["question_id"].tolist())) == 20
    assert set(columns["abstention"].tolist()) == {"", "yes"}
    assert "judge strict" in told.stdout


def test_a_wrong_answer_costs_what_it_is_said_to_cost(server: Server, mine: Path) -> None:
    for cost in (0.0, 2.0):
        found = document(*advised(server, "--wrong-cost", str(cost)))
        for score in found["scores"]:
            assert score["utility"] == pytest.approx(score["right"] - cost * score["wrong"])


def test_advise_without_matplotlib_leaves_the_figure_out(
    server: Server, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = document(*advised(server, "--limit", "6", "--no-judge"))
    assert "figure" not in found["files"]
    assert (found["judge"], found["few"]) == ("strict", True)


def test_without_notes_advise_takes_the_evidence(server: Server, folder: Path) -> None:
    lines = [
        {"id": str(i), "question": f"What is {i}?", "answer": str(i), "evidence": [{"text": f"It is {i}."}]}
        for i in range(6)
    ]
    (folder / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = run(*advised(server))
    assert told.exit_code == 0, told.output
    assert "protocol controlled: not every question has all its notes" in told.stderr


# -- the shipped sample ------------------------------------------------------------------------------------------------


def test_the_sample_says_on_one_page_whether_the_default_holds_and_with_which_reader_it_was_learned(
    server: Server, folder: Path
) -> None:
    told = run(*sampled(server, "--limit", "24"))
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) <= LONGEST, told.stdout
    said, router = " ".join(told.stdout.split()), default_router(writes=True)
    assert "Does the default hold for m?" in said
    assert f"The router that ships, {router.name}, was learned with {router.provenance['reader']}." in said
    assert "Qwen2.5-Coder-1.5B-Instruct" in said
    for budget in (64, 256):
        assert f"At {budget} tokens " in said
    for action in ("retain", "extract", "merge", "abstract", "hybrid"):
        assert f" {action} " in said
    assert "the sample is one invented person's talks" in said
    assert not any("<reply>" in seen.body["messages"][1]["content"] for seen in server.seen), "no model judges"
    assert {path.name for path in (folder / advise.SAMPLE.output).iterdir()} >= {"advice.md", "outcomes.csv"}
    assert not (folder / advise.SAMPLE.output / "router.json").exists()
    paid = len(server.seen)
    assert run(*sampled(server, "--limit", "24")).stdout == told.stdout
    assert len(server.seen) == paid


def test_a_model_may_judge_the_sample_too(server: Server) -> None:
    found = document(*sampled(server, "--limit", "8", "--budgets", "64", "--judge", "llm"))
    assert found["judge"] == "llm"
    assert any("<reply>" in seen.body["messages"][1]["content"] for seen in server.seen)


def test_a_dry_run_of_the_sample_needs_no_model_and_makes_nothing(folder: Path) -> None:
    found = document("advise", "--sample", "--dry-run")
    assert found["calls"]["read"] == found["cells"] == advise.SAMPLE.limit * 2 * 5
    assert list(folder.iterdir()) == []


COMMAND = (
    "advise", "--sample", "--limit", "8", "--budgets", "64", "--actions", "retain,extract", "--chunk", "2", "--json",
)  # fmt: skip


def start(folder: Path) -> subprocess.Popen[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("RETCON_", "OPENAI_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "retcon", *COMMAND, "--model", str(smollm())],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=known | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def finished(folder: Path) -> dict[str, Any]:
    process = start(folder)
    out, err = process.communicate(timeout=3600)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def replies(folder: Path) -> int:
    with sqlite3.connect(folder / advise.SAMPLE.output / "replies.db") as connection:
        return int(connection.execute("SELECT count(*) FROM reply").fetchone()[0])


@needs_local_model
def test_the_sample_with_a_real_reader_is_killed_goes_on_where_it_was_and_pays_nothing_twice(folder: Path) -> None:
    process = start(folder)
    assert process.stderr is not None
    assert any("read 4 of 16" in line for line in process.stderr), "it told how far it was"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    kept = replies(folder)
    assert 8 <= kept < 16, "what the probe asked, and a little more"
    found = finished(folder)
    assert (found["questions"], found["few"], found["use"]) == (8, True, "default")
    assert found["reader"].startswith("SmolLM2-135M")
    assert found["router"]["reader"].startswith("Qwen2.5-Coder-1.5B-Instruct")
    paid = replies(folder)
    assert paid == 16
    assert finished(folder) == found
    assert replies(folder) == paid


# -- what cannot be done -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("takes a .jsonl file, not 'mine.csv'", ("--questions", "mine.csv")),
        ("cannot read other.jsonl", ("--questions", "other.jsonl")),
        ("name another action beside retain", ("--actions", "retain")),
        ("no protocol 'paper'", ("--protocol", "paper")),
        ("--budgets takes whole numbers", ("--budgets", "few")),
        ("no judge 'me'", ("--judge", "me")),
        ("a wrong answer costs 0 or more, not -1", ("--wrong-cost", "-1")),
        ("a wrong answer costs 0 or more, not nan", ("--wrong-cost", "nan")),
        ("name one of them", ("--sample",)),
        ("Invalid value for '--limit'", ("--limit", "0")),
    ],
)
def test_bad_use_of_advise_is_one_line_and_nothing_is_asked(
    server: Server, mine: Path, said: str, more: Sequence[str]
) -> None:
    assert said in complaint(*advised(server, *more))
    assert server.seen == []


def test_advise_says_whose_questions_it_wants_and_that_it_needs_a_model() -> None:
    assert "--questions FILE.jsonl for yours, --sample for those that ship" in complaint("advise")
    assert "advise needs a model" in complaint("advise", "--sample")


def test_questions_that_cannot_be_measured_are_left_out_and_said_with_the_reason(server: Server, mine: Path) -> None:
    gone = load("sample").questions[0].text

    def matches(body: Any) -> bool:
        asked = body["messages"][1]["content"]
        return "<note>" in asked and gone in asked

    server.always = failing(matches, says({"error": {"message": "bad words"}}, 400), answers)
    told = run(*advised(server, "--no-judge"))
    assert told.exit_code == 1
    assert "29 questions, 6 of them unanswerable" in told.stdout
    assert "1 question left out: an outcome is missing" in told.stderr
    assert "2 outcomes missing (write: model): the same command asks for these alone" in told.stderr


def test_a_run_of_which_too_little_is_left_says_why(server: Server, mine: Path) -> None:
    kept = [question.text for question in load("sample").questions[:3]]

    def matches(body: Any) -> bool:
        asked = body["messages"][1]["content"]
        return "<memory>" in asked and not any(text in asked for text in kept)

    server.always = failing(matches, says({"error": {"message": "bad words"}}, 400), answers)
    told = run(*advised(server, "--no-judge", "--budgets", "64"))
    assert (told.exit_code, told.stdout) == (2, "")
    last = told.stderr.splitlines()[-1]
    assert "advice needs 5 questions with complete outcomes, there are 3: 81 failed (read: model)" in last


def test_four_questions_are_refused_before_anything_is_asked(server: Server, mine: Path, folder: Path) -> None:
    told = run(*advised(server, "--limit", "4"))
    assert (told.exit_code, told.stdout) == (2, "")
    assert "4 questions can tell nothing: advice needs 5" in told.stderr.splitlines()[-1]
    assert server.seen == []
    assert not (folder / "advice").exists()
