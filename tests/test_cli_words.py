"""Expiry, filters and what load refuses, on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import complaint, document, fine


def ids(*args: str) -> list[str]:
    return [note["id"] for note in document(*args)["results"]]


@pytest.mark.parametrize(("given", "ahead"), [
    ("30d", timedelta(days=30)), ("12h", timedelta(hours=12)), ("15m", timedelta(minutes=15)),
])  # fmt: skip
def test_expires_takes_a_length_of_time_from_now(db: Path, given: str, ahead: timedelta) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    (note,) = document("add", "the code", "--id", "a", "--expires", given)["results"]
    assert before + ahead <= datetime.fromisoformat(note["expires_at"]) <= datetime.now(UTC) + ahead


def test_expired_notes_are_listed_on_request(db: Path) -> None:
    fine("add", "the code", "--id", "a", "--expires", "2100-01-01")
    assert ids("list") == ["a"]
    assert document("supersede", "a", "a newer code", "--new-id", "b", "--expires", "never").get("expires_at") is None
    assert document("get", "a")["expires_at"] == "2100-01-01T00:00:00+00:00"
    assert ids("list", "--expired", "--superseded") == ["a", "b"]


def test_filter_takes_conditions_as_json(cats: Path) -> None:
    fine("add", "The rent is 725.", "--id", "r", "-u", "ann", "--meta", "pages=3")
    assert ids("list", "--filter", '{"pages": {"gte": 3}}') == ["r"]
    assert ids("search", "rent", "--filter", '{"AND": [{"user_id": "ann"}, {"pages": {"in": [3]}}]}') == ["r"]
    assert document("recall", "rent", "--filter", '{"pages": 4}')["text"] == ""


@pytest.mark.parametrize(("given", "told"), [
    ("pages=3", "--filter takes a JSON object, not 'pages=3'"), ("[1]", "--filter takes a JSON object"),
    ('{"a": {"like": 1}}', "has no operator 'like'"), ("{", "--filter takes a JSON object"),
])  # fmt: skip
def test_a_filter_that_is_off_is_one_line(cats: Path, given: str, told: str) -> None:
    assert told in complaint("list", "--filter", given)


@pytest.mark.parametrize("line", ["not json", "{'text': 'a'}", '{"text": "a" "b"}'])
def test_load_of_a_line_that_is_no_json_names_line_and_file(line: str, db: Path) -> None:
    Path("talk.jsonl").write_text(f'{{"text": "a"}}\n{line}\n')
    told = "is not JSON; each line must hold one note"
    assert complaint("load", "talk.jsonl") == f"line 2 of talk.jsonl {told}"
    assert complaint("load", "-", input=f"{line}\n".encode()) == f"line 1 {told}"


@pytest.mark.parametrize("when", ["30x", "soon", "", "d30", "2026-13-01"])
def test_expires_names_its_forms(when: str, db: Path) -> None:
    assert "--expires takes 30d, 12h or 15m from now, or ISO 8601 such as" in complaint("add", "x", "--expires", when)
