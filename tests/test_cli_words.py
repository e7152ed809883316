"""Expiry and filters on the command line."""

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


def test_expired_notes_are_listed_on_request_until_a_command_purges_them(db: Path) -> None:
    fine("add", "the code", "--id", "a", "--expires", "2100-01-01")
    assert ids("list") == ["a"]
    assert document("supersede", "a", "a newer code", "--new-id", "b", "--expires", "never").get("expires_at") is None
    assert document("get", "a")["expires_at"] == "2100-01-01T00:00:00+00:00"
    assert ids("list", "--expired", "--superseded") == ["a", "b"]
    assert "expires_at 'soon' is not ISO 8601" in complaint("add", "x", "--expires", "soon")


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
