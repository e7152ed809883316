"""The verbs of learning: fit, calibrate, crossfit; and decide with what they made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, document, fine, run
from test_outcomes import csv_text, world

from retcon import Memory
from retcon.lab.outcomes import from_rows, read, write
from retcon.route import Router

MADE = {
    "counter": "estimate", "embedder": "hashing", "retriever": "bm25", "p_single_session": 0.4, "p_multi_session": 0.3,
    "p_temporal": 0.2, "p_knowledge_update": 0.1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with outcomes of sixty questions: forty of fold train, twenty of fold held."""
    monkeypatch.chdir(tmp_path)
    for name in ("RETCON_DB", "RETCON_MODEL", "RETCON_BUDGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    rows = [
        row | MADE | {"fold": "train" if int(row["question_id"][1:]) < 40 else "held"}
        for row in world(60, actions=("retain", "extract"), talks=12)
    ]
    (tmp_path / "o.csv").write_text(csv_text(rows), encoding="utf-8")
    write(from_rows(rows), tmp_path / "o.parquet")
    (tmp_path / "sub").mkdir()
    return tmp_path


def learn(*more: str) -> Router:
    fine("fit", "o.csv", "--fold", "train", "-o", "r.json", *more)
    return Router.load("r.json")


# -- fit ---------------------------------------------------------------------------------------------------------------


def test_fit_writes_a_router_and_says_what_it_learned(folder: Path) -> None:
    text = fine("fit", "o.csv", "-o", "r.json", "--name", "mine", "--about", "date=2026-11-15")
    router = Router.load(folder / "r.json")
    assert (router.name, router.actions, router.budgets) == ("mine", ("retain", "extract"), (32, 64))
    assert (router.counter, router.embedder, router.provenance["retriever"]) == ("estimate", "hashing", "bm25")
    assert (router.provenance["date"], router.provenance["judge"]) == ("2026-11-15", "llm")
    assert "learned retain, extract from 60 questions at 32, 64 tokens (120 rows, lambda " in text
    assert "ladder: " in text
    assert "wrote r.json" in text


def test_fit_gives_the_router_as_json_and_reads_parquet_alike() -> None:
    found = document("fit", "o.csv", "-o", "one.json", "--name", "r")
    assert found.pop("router") == "one.json"
    assert Router.load(found) == Router.load("one.json")
    fine("fit", "o.parquet", "-o", "two.json", "--name", "r")
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_fit_follows_its_options() -> None:
    router = learn(
        "--budgets", "64", "--judge", "overlap", "--estimator", "gain", "--no-ladder", "--group", "conversation"
    )
    assert (router.budgets, router.ladder, router.name) == ((64,), None, "r")
    known = router.provenance
    assert (known["judge"], known["estimator"], known["group"], known["questions"]) == (
        "overlap",
        "gain",
        "conversation",
        40,
    )
    priced = learn("--call-price", "9", "--token-price", "0.5").ladder
    assert priced is not None
    assert (priced.call_price, priced.token_price) == (9.0, 0.5)


BAD: list[tuple[list[str], str]] = [
    (["fit", "none.csv"], "cannot read none.csv: No such file or directory"),
    (["fit", "o.txt"], "outcomes are a .csv or .parquet file, not 'o.txt'"),
    (["fit", "o.csv", "-o", "no/where/r.json"], "cannot write no/where/r.json: No such file or directory"),
    (["fit", "o.csv", "-o", "sub"], "cannot write sub: Is a directory"),
    (["fit", "o.csv", "--setting", "elsewhere"], "no setting 'elsewhere' among these rows of o.csv; there are up"),
    (["fit", "o.csv", "--dataset", "x"], "no dataset 'x' among these rows of o.csv; there are made"),
    (["fit", "o.csv", "--fold", "held", "--fold", "x"], "no fold 'x' among these rows of o.csv; there are held, train"),
    (["fit", "o.csv", "--actions", "retain,dream"], "no outcomes of dream; there are retain, extract"),
    (["fit", "o.csv", "--actions", "extract"], "the actions must include retain: extract"),
    (["fit", "o.csv", "--judge", "me"], "no judge 'me'; there are llm, overlap"),
    (["fit", "o.csv", "--budgets", "32,many"], "--budgets takes whole numbers with commas between them, not '32,many'"),
    (["fit", "o.csv", "--budgets", "99"], "no outcomes of all actions at 99 tokens; there are [32, 64]"),
    (["fit", "o.csv", "--estimator", "mlp"], "mlp is for comparisons in crossfit"),
    (["fit", "o.csv", "--estimator", "magic"], "no estimator 'magic'; there are ridge, "),
    (["fit", "o.csv", "--group", "day"], "questions are grouped by question or conversation, not by 'day'"),
    (["fit", "o.csv", "--about", "nothing"], "takes KEY=VALUE, not 'nothing'"),
    (["fit", "o.csv", "--name", "a\nb"], "the name must be 1 to 100 printable characters"),
    (["calibrate", "o.csv", "--router", "none.json"], "router file 'none.json' cannot be read"),
    (["crossfit", "o.csv", "--skip", "luck"], "no policy 'luck'; there are retention, always extract, "),
    (["crossfit", "o.csv", "--reference", "luck"], "no policy 'luck' to compare with; there are retention, "),
    (["crossfit", "o.csv", "--skip", "best fixed action"], "no policy 'best fixed action' to compare with"),
    (["crossfit", "o.csv", "--actions", "retain"], "nothing to choose between"),
    (["crossfit", "o.csv", "--folds", "2"], "--folds"),
    (["crossfit", "o.csv", "--seed", "-1"], "--seed"),
    (["fit", "o.csv", "--seed", "-1"], "--seed"),
    (["crossfit", "o.csv", "--folds", "90", "--skip", "MLP"], "90 folds need 90 groups at least, there are 60"),
    (["crossfit", "o.csv", "--questions", "none.jsonl"], "cannot read none.jsonl: No such file or directory"),
    (["crossfit", "o.csv", "--questions", "bad.jsonl"], "bad.jsonl, line 2: a JSON object with 'id' and 'question'"),
    (["crossfit", "o.csv", "--questions", "few.jsonl"], "59 questions have no text, the first: "),
]


@pytest.mark.parametrize(("args", "said"), BAD, ids=[" ".join(args)[:50] for args, _ in BAD])
def test_bad_use_is_one_line_and_code_2(folder: Path, args: list[str], said: str) -> None:
    (folder / "bad.jsonl").write_text('{"id": "q000", "question": "Why?"}\n[1, 2]\n', encoding="utf-8")
    (folder / "few.jsonl").write_text('{"question_id": "q000", "question": "Why?"}\n', encoding="utf-8")
    assert said in complaint(*args)
    assert not (folder / "router.json").exists()


def test_broken_outcomes_are_one_line_that_names_the_file() -> None:
    Path("broken.csv").write_text("question_id,budget,action,judge_a\nq,1,retain,7\n", encoding="utf-8")
    assert complaint("fit", "broken.csv") == "broken.csv: row 1: judge_a is 7, a utility lies in [0, 1]"


# -- calibrate ---------------------------------------------------------------------------------------------------------


def test_calibrate_sets_thresholds_in_place_or_elsewhere() -> None:
    before = learn()
    text = fine("calibrate", "o.csv", "--fold", "held", "--router", "r.json", "-o", "careful.json", "--cap", "0.1")
    assert Router.load("r.json") == before
    after = Router.load("careful.json")
    assert set(after.thresholds) == {32, 64}
    assert after.provenance["calibration"]["cap"] == 0.1
    assert [
        word in text for word in ("threshold", "replaced", "harmed", "accuracy", "of 20", "wrote careful.json")
    ] == [True] * 6
    fine("calibrate", "o.csv", "--fold", "held", "--router", "r.json", "--cap", "0.1")
    assert Router.load("r.json") == after


def test_calibrate_certifies_and_gives_json() -> None:
    learn()
    options = ("--rule", "certified", "--alpha", "0.4", "--delta", "0.3", "--joint", "any")
    found = document("calibrate", "o.csv", "--fold", "held", "-r", "r.json", *options)
    assert set(found["thresholds"]) == {"32", "64"}
    router = Router.load("r.json")
    assert router.certificate is not None
    assert (router.certificate["alpha"], router.certificate["joint"]) == (0.4, "any")
    assert {budget: each["tau"] for budget, each in found["thresholds"].items()} == {
        str(budget): tau for budget, tau in router.thresholds.items()
    }
    never = document("calibrate", "o.csv", "--fold", "held", "-r", "r.json", "--rule", "certified", "--alpha", "0.001")
    assert all(each["tau"] is None for each in never["thresholds"].values())
    assert (
        fine("calibrate", "o.csv", "--fold", "held", "-r", "r.json", "--rule", "certified", "--alpha", "0.001").count(
            "never"
        )
        == 2
    )


def test_calibrate_says_where_the_harm_of_the_ladder_is_certified(folder: Path) -> None:
    learn()
    rows = [row | {"conversation": row["question_id"]} for row in read(folder / "o.csv").rows()]
    write(from_rows(rows), folder / "apart.csv")  # questions of one conversation would not count as independent
    certified = ("calibrate", "apart.csv", "--fold", "held", "-r", "r.json", "--rule", "certified", "--alpha")
    assert "ladder: harm of its own orders is certified at no budget\n" in fine(*certified, "0.001")
    found = document(*certified, "0.9")
    assert set(found["ladder"]["budgets"]) == {"32", "64"}
    assert [Router.load("r.json").bounds_ladder(budget) for budget in (32, 64)] == [True, True]
    assert "ladder: harm of its own orders is certified at 32, 64\n" in fine(*certified, "0.9")
    assert "ladder" not in document("calibrate", "o.csv", "--fold", "held", "-r", "r.json")  # the paper's rule


def test_calibrate_refuses_what_the_router_was_learned_from() -> None:
    learn()
    assert "40 of 60 questions are among those" in complaint("calibrate", "o.csv", "-r", "r.json")
    assert "40 of 40 questions" in complaint("calibrate", "o.csv", "--fold", "train", "-r", "r.json")
    assert "the rule is paper or certified, not 'x'" in complaint(
        "calibrate", "o.csv", "--fold", "held", "-r", "r.json", "--rule", "x"
    )


def test_calibrate_takes_the_judge_of_the_router_unless_told() -> None:
    learn("--judge", "overlap")
    one = document("calibrate", "o.csv", "--fold", "held", "-r", "r.json", "-o", "a.json")
    two = document("calibrate", "o.csv", "--fold", "held", "-r", "r.json", "-o", "b.json", "--judge", "overlap")
    three = document("calibrate", "o.csv", "--fold", "held", "-r", "r.json", "-o", "c.json", "--judge", "llm")
    assert one["thresholds"] == two["thresholds"] != three["thresholds"]


def test_calibrate_warns_where_the_outcomes_were_made_otherwise(folder: Path) -> None:
    learn()
    text = (folder / "o.csv").read_text(encoding="utf-8").replace("estimate", "alphanumeric")
    (folder / "other.csv").write_text(text, encoding="utf-8")
    result = run("calibrate", "other.csv", "--fold", "held", "-r", "r.json")
    assert result.exit_code == 0
    assert "the router was learned with counter 'estimate', these outcomes are of 'alphanumeric'" in result.stderr


def test_calibrate_says_that_questions_of_one_conversation_are_not_independent(folder: Path) -> None:
    learn()
    options = ("--fold", "held", "-r", "r.json", "-o", "c.json", "--rule")
    said = "20 questions of 12 conversations are not independent"
    assert said in run("calibrate", "o.csv", *options, "certified").stderr
    assert said not in run("calibrate", "o.csv", *options, "paper").stderr
    kept = Router.load("c.json").provenance["calibration"]
    assert (kept["questions"], kept["conversations"]) == (20, 12)


def test_a_certificate_of_other_outcomes_does_not_speak_of_the_routers_own_configuration(folder: Path) -> None:
    learn()
    text = (folder / "o.csv").read_text(encoding="utf-8").replace("bm25", "bm25-plain")
    (folder / "other.csv").write_text(text, encoding="utf-8")
    options = ("--fold", "held", "-r", "r.json", "--rule", "certified", "--alpha", "0.4", "--delta", "0.3")
    run("calibrate", "other.csv", *options)
    with Memory(folder / "t.db") as memory:
        memory.add("I adopted a cat named Pixel. She is grey.", id="a1")
    for retriever in ("bm25", "bm25-plain"):
        asked = ("--db", "t.db", "--router", "r.json", "--budget", "32", "--retriever", retriever)
        found = document("decide", "Which cat?", *asked)
        assert (found["certified"], len(found["warnings"])) == (False, 1)
    result = run("calibrate", "o.csv", *options)  # once more, on the right ones: the old certificate is forgotten
    assert "learned with" not in result.stderr
    assert document("decide", "Which cat?", "--db", "t.db", "--router", "r.json", "--budget", "32")["warnings"] == []


# -- crossfit ----------------------------------------------------------------------------------------------------------


SHOWN = (
    "retention", "always extract", "best fixed action", "direct", "calibrated", "certified", "k-NN", "ladder",
    "evidence-fit rule", "vote of two", "action oracle", "binary oracle", "best fixed, twice the budget",
)  # fmt: skip


def test_crossfit_shows_every_policy() -> None:
    text = fine("crossfit", "o.csv", "--skip", "MLP", "--draws", "200")
    assert "60 questions, retain, extract; 5 folds by question, 1 repeat; judge llm" in text
    for policy in SHOWN:
        assert f"\n{policy} " in text
    assert "MLP" not in text
    assert "against best fixed action" in text


def test_crossfit_gives_json_and_follows_its_options() -> None:
    options = ("--skip", "MLP", "--skip", "k-NN", "--draws", "200", "--repeats", "2", "--folds", "4", "--seed", "3")
    found = document(
        "crossfit", "o.csv", "--fold", "train", "--reference", "retention", "--group", "conversation", *options
    )
    assert (found["questions"], found["folds"], found["repeats"], found["group"]) == (40, 4, 2, "conversation")
    rows: dict[str, Any] = {row["policy"]: row for row in found["policies"]}
    assert not {"MLP", "k-NN"} & set(rows)
    assert rows["retention"]["against"] is None
    assert len(rows["direct"]["accuracy"]) == 2
    assert rows["action oracle"]["macro"] >= rows["direct"]["macro"]


def test_crossfit_guesses_types_from_texts(folder: Path) -> None:
    lines = [json.dumps({"id": f"q{number:03}", "question": "When did I move?"}) for number in range(60)]
    (folder / "q.jsonl").write_text("\ufeff" + "\n\n".join(lines) + "\n", encoding="utf-8")
    options = ("--skip", "MLP", "--skip", "k-NN", "--draws", "200", "--folds", "3")
    (folder / "typed.csv").write_text(csv_text(world(60)), encoding="utf-8")
    guessed = document("crossfit", "typed.csv", "--questions", "q.jsonl", *options)
    given = document("crossfit", "typed.csv", *options)
    direct = [next(row for row in found["policies"] if row["policy"] == "direct") for found in (guessed, given)]
    assert direct[0]["accuracy"] != direct[1]["accuracy"]


def test_a_table_without_features_or_abstentions_is_compared_as_far_as_it_goes() -> None:
    kept = ("question_id", "budget", "action", "judge_llm")
    Path("bare.csv").write_text(csv_text([{k: row[k] for k in kept} for row in world(20)]), encoding="utf-8")
    text = fine("crossfit", "bare.csv", "--skip", "MLP", "--draws", "100")
    assert "direct" in text
    assert "ladder" not in text
    assert "evidence-fit" not in text
    fine("fit", "bare.csv", "-o", "bare.json")
    assert Router.load("bare.json").ladder is None


# -- serving what was learned ------------------------------------------------------------------------------------------


def test_decide_takes_the_learned_router(folder: Path) -> None:
    learn()
    fine(
        "calibrate",
        "o.csv",
        "--fold",
        "held",
        "-r",
        "r.json",
        "--rule",
        "certified",
        "--alpha",
        "0.4",
        "--delta",
        "0.3",
    )
    with Memory(folder / "t.db") as memory:
        memory.add("I adopted a cat named Pixel. She is grey.", id="a1")
    found = document("decide", "Which cat?", "--db", "t.db", "--router", "r.json", "--budget", "32")
    assert (found["router"], found["warnings"]) == ("r", [])
    assert not found["certified"]  # who reads the text is not known
    assert set(found["utilities"]) == {"retain", "extract"}
    assert set(found["order"]) <= {"retain", "extract"}
    assert not document("decide", "Which cat?", "--db", "t.db", "--router", "r.json", "--budget", "40")["certified"]
    other = document(
        "decide", "Which cat?", "--db", "t.db", "--router", "r.json", "--counter", "alphanumeric", "-b", "32"
    )
    assert not other["certified"]
    assert "counter 'estimate', this memory has 'alphanumeric'" in other["warnings"][0]
    assert "by r at 32 tokens" in fine("decide", "Which cat?", "--db", "t.db", "--router", "r.json", "-b", "32")
