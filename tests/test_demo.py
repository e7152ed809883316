"""The demo: what it must show, within its promises, and that what it says of survival is true."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from retcon import sample
from retcon.cli import app
from retcon.demo import BUDGETS, ROUTER, SHOWN, play, survives
from retcon.operate import usable


@pytest.fixture(scope="module")
def acts() -> dict[str, Any]:
    """The one document of `retcon demo --json`."""
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def told() -> str:
    result = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def test_docs_show_how_the_demo_begins(told: str) -> None:
    page = (Path(__file__).parents[1] / "docs/cli/about.md").read_text("utf-8")
    shown = page.partition("$ retcon demo\n")[2].partition("\n...\n```")[0]
    loaded = re.compile(r"loaded in [0-9.]+ s")
    assert loaded.sub("", told).startswith(loaded.sub("", shown))


def test_demo_shows_one_question_of_each_type_at_four_budgets(acts: dict[str, Any]) -> None:
    types = {question.type for question in sample.questions()} - {"abstention"}
    assert {question["type"] for question in acts["questions"]} == types
    assert len(SHOWN) == len(types) == 4
    for question in acts["questions"]:
        assert [recall["budget"] for recall in question["recalls"]] == [32, 64, 128, 256]


def test_each_question_shown_sounds_like_its_type(acts: dict[str, Any], told: str) -> None:
    for question in acts["questions"]:
        guessed = question["guessed"]
        kind = question["type"].replace("-", "_")
        assert max(guessed, key=guessed.__getitem__) == kind
        assert f"sounds like: {question['type']} {guessed[kind]:.2f}" in told


def test_demo_played_again_shows_the_same_texts(acts: dict[str, Any]) -> None:
    again = dict(itertools.islice(play(), 3))
    for name in ("questions", "retain"):
        first, second = ([one["text"] for one in _recalls(found[name])] for found in (acts, again))
        assert first == second


def _recalls(act: Any) -> list[dict[str, Any]]:
    return [one for part in (act if isinstance(act, list) else [act]) for one in part["recalls"]]


def test_demo_never_goes_over_a_budget(acts: dict[str, Any]) -> None:
    recalls = [recall for question in acts["questions"] for recall in question["recalls"]]
    recalls += [*acts["retain"]["recalls"], *acts["escalate"]["recalls"]]
    recalls += [acts["supersede"][name] for name in ("before", "after", "deleted")]
    assert all(recall["tokens"] <= recall["budget"] for recall in recalls)
    assert all(row["tokens"] <= row["budget"] for row in acts["summary"]["rows"])


def test_demo_holds_the_whole_sample(acts: dict[str, Any]) -> None:
    rows = sample.notes()
    assert acts["sample"]["turns"] == len(rows)
    assert acts["sample"]["sessions"] == len({row["session"] for row in rows})
    assert acts["sample"]["corrections"] == sum("supersedes" in row for row in rows) > 0


def test_demo_retains_where_everything_fits(acts: dict[str, Any]) -> None:
    *smaller, recall = acts["retain"]["recalls"]
    assert recall["action"] == "retain"
    assert "retain" not in {one["action"] for one in smaller if one["budget"] < 64}
    assert recall["dropped"] == []
    assert recall["survives"]
    assert all(source["whole"] for source in recall["sources"])


def test_demo_escalates_through_every_action_once(acts: dict[str, Any]) -> None:
    actions = [recall["decision"]["action"] for recall in acts["escalate"]["recalls"]]
    assert sorted(actions) == sorted(usable(None))
    assert acts["escalate"]["type"] == "abstention"


def test_demo_correction_is_found_and_its_deletion_undoes_it(acts: dict[str, Any]) -> None:
    act = acts["supersede"]
    assert "£48" not in act["before"]["text"]
    assert "£48" in act["after"]["text"]
    assert act["deleted"]["text"] == act["before"]["text"]
    assert [note["text"] for note in act["history"]][-1] == act["correction"]
    assert len(act["history"]) == 3


def test_summary_covers_each_budget_and_action_and_gains_with_the_budget(acts: dict[str, Any]) -> None:
    rows = acts["summary"]["rows"]
    kinds = (*usable(None), ROUTER)
    assert [(row["budget"], row["action"]) for row in rows] == [(b, kind) for b in BUDGETS for kind in kinds]
    assert acts["summary"]["questions"] == len(sample.questions())
    for kind in kinds:
        counts = [row["survive"] for row in rows if row["action"] == kind]
        assert 0 <= counts[0] <= counts[-1] <= acts["summary"]["stated"]
        assert counts[-1] > 0


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("52 square metres", "It has 52 square metres.", True),
        ("52 square metres", "It is 52 metres long.", False),
        ("9 March 2026", "2026-03-09 user: finished it", True),
        ("9 March 2026", "2026-03-19 user: finished it", False),
        ("£13.50", "Callum takes £13.50 a walk", True),
        ("£13.50", "Callum takes £13 a walk", False),
        ("two minutes", "", False),
    ],
)
def test_answer_survives_iff_all_its_words_are_there(answer: str, text: str, expected: bool) -> None:
    assert survives(answer, text) is expected


def test_demo_is_told_within_80_columns_and_without_colour(told: str) -> None:
    assert "\x1b" not in told
    assert max(map(len, told.splitlines())) <= 80


def test_demo_tells_decisions_texts_what_was_dropped_and_the_table(told: str, acts: dict[str, Any]) -> None:
    flat = " ".join(told.split())
    for question in acts["questions"]:
        assert f"{question['question']} [{question['type']}] gold answer: {question['answer']}" in flat
        for recall in question["recalls"]:
            assert recall["decision"]["reason"] in flat
    shown = " ".join(re.sub(r"^ *\| ", "", line).strip() for line in told.splitlines())
    text = acts["questions"][0]["recalls"][1]["text"]
    assert " ".join(text.split()) in " ".join(shown.split())
    for word in ("dropped:", "escalate() gives None", "memory.supersede(", "memory.history(", "nothing dropped"):
        assert word in flat
    assert len(re.findall(r"^ *\d+  (?:retain|extract|router) ", told, re.M)) == len(acts["summary"]["rows"])


def test_demo_plays_its_acts_one_by_one() -> None:
    names = []
    for name, _ in play():
        names.append(name)
        if name == "escalate":
            break  # the store goes with the generator
    assert names == ["sample", "questions", "retain", "escalate"]
