"""What a model does as a reader is counted right: answers, abstentions, chatter, and answers where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench import reader_trial
from retcon.lab.data import BenchmarkQuestion, load
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, FakeChat


def two() -> list[BenchmarkQuestion]:
    """A question of the sample, and the same with another's evidence."""
    first, other = [question for question in load("sample").questions if question.evidence][:2]
    return [first, replace(first, id="none", evidence=other.evidence, abstention=True)]


def read(rule: str | None, folder: Path) -> dict[str, object]:
    """What a reader that always says this comes to; None says the gold answer."""
    asked = two()

    def say(ask: Ask) -> str:
        return asked[0].answer if rule is None else rule

    cache = ReplyCache(folder / "replies.db")
    try:
        return reader_trial.read_all(FakeChat(say, name="fake"), asked, cache)
    finally:
        cache.close()


def test_a_reader_that_always_knows_is_right_and_answers_where_there_is_nothing(tmp_path: Path) -> None:
    found = read(None, tmp_path)
    assert (found["questions"], found["right"], found["abstained"]) == (1, 1, 0)
    assert (found["without_an_answer"], found["answered_none"], found["long"], found["failed"]) == (1, 1, 0, 0)


def test_a_reader_that_never_knows_abstains_everywhere(tmp_path: Path) -> None:
    found = read("NOT IN MEMORY", tmp_path)
    assert (found["right"], found["abstained"], found["answered_none"]) == (0, 1, 0)


def test_chatter_is_counted(tmp_path: Path) -> None:
    assert read("well " * reader_trial.LONG, tmp_path)["long"] == 2
