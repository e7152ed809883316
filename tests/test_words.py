"""Words, terms and sentences."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.language import language
from retcon.words import (
    fold,
    index_counts,
    query_terms,
    sentence_ends,
    sentences,
    spoken_date,
    stems,
    term_key,
    words,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café, naïve ÉCOLE!", ["cafe", "naive", "ecole"]),
        ("don't pay 3,200", ["don", "t", "pay", "3", "200"]),
        ("北京大学", ["北京", "京大", "大学"]),
        ("猫", ["猫"]),
        ("I love 寿司 a lot", ["i", "love", "寿司", "a", "lot"]),
        ("ＦＵＬＬ width", ["full", "width"]),
        ("snake_case", ["snake", "case"]),
        ("🙂 …", []),
    ],
)
def test_words_of(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_plain_text_are_its_runs_of_letters_and_digits(text: str) -> None:
    assert words(text) == re.findall("[a-z0-9]+", text.lower())
    assert language("german").words(text * 40) == re.findall("[a-z0-9]{1,512}", (text * 40).lower())


def test_hangul_survives_the_removal_of_accents() -> None:
    assert fold("서울") == "서울"
    assert words("서울에서") == ["서울", "울에", "에서"]


def test_english_endings_meet() -> None:
    assert stems("adopted adopting adopts") == ["adopt"] * 3


def test_function_words_leave_a_query_unless_nothing_else_is_there() -> None:
    assert query_terms("When did I get my cat?") == ["get", "cat"]
    assert query_terms("What is it?") == ["what", "is", "it"]
    assert query_terms("cat cat Cats") == ["cat"]
    assert query_terms("When did I get it?", common=True) == ["when", "did", "i", "get", "it"]


def test_own_words_weigh_twice_those_of_the_turn_before() -> None:
    assert index_counts("cat cat", "cat dog") == {"cat": 5, "dog": 1}


def test_term_keys_are_the_same_in_every_process() -> None:
    code = "from retcon.words import term_key; print(term_key('cat'), term_key('猫'))"
    for seed in ("0", "1"):
        out = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        assert out.stdout.split() == [str(term_key("cat")).encode(), str(term_key("猫")).encode()]


def test_stemming_is_safe_from_many_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(stems, ["running studies happily " * 50] * 200))
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(
    ("timestamp", "spoken"),
    [("2026-05-09T10:00", "9 May 2026"), ("2026-12-31", "31 December 2026"), (None, ""), ("", "")],
)
def test_dates_in_words(timestamp: str | None, spoken: str) -> None:
    assert spoken_date(timestamp) == spoken


@given(st.text())
def test_words_take_any_text(text: str) -> None:
    assert all(word for word in words(text))


@given(st.text())
def test_sentences_are_verbatim_and_in_order(text: str) -> None:
    at = 0
    for sentence in sentences(text):
        assert sentence.strip() == sentence != ""
        at = text.index(sentence, at) + len(sentence)


def test_sentences_keep_titles_times_and_decimals_whole() -> None:
    text = "Mr. Smith came at 5 p.m. with Dr. Lam. He paid $3.50! 我喜欢猫。今天很好。 Really?"
    found = sentences(text)
    assert "He paid $3.50!" in found
    assert found[-3:] == ["我喜欢猫。", "今天很好。", "Really?"]
    assert found[0].startswith("Mr. Smith came at 5 p.m. with Dr. Lam")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'She said "I will sell it. Then I go." and left. Ok.',
            ['She said "I will sell it. Then I go." and left.', "Ok."],
        ),
        ("“Why? I am.” He left.", ["“Why? I am.”", "He left."]),
        ("It's 'cause I said. The dogs' bowl.", ["It's 'cause I said.", "The dogs' bowl."]),
        ('He said "no. Then he left. Bye.', ['He said "no.', "Then he left.", "Bye."]),
        ("J.K. Rowling of the U.S. came. Ok.", ["J.K. Rowling of the U.S. came.", "Ok."]),
        ("Am 12. Mai 2026 kam er. I am 12. Since 2019 so.", ["Am 12. Mai 2026 kam er.", "I am 12.", "Since 2019 so."]),
    ],
)
def test_a_sentence_ends_outside_of_quotes_initials_and_dates(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_a_quote_that_is_never_closed_or_too_long_hides_no_sentence() -> None:
    text = '"I went. ' + "It was far. " * 60 + 'So "be it"'
    assert len(sentences(text)) == 62
    assert len(sentences(f"“{'It was far. ' * 60}”")) > 50


def test_a_line_break_alone_ends_no_sentence_where_lines_do_not_count() -> None:
    text = "Ann has:\n- a cat\n- a dog. She left\nnow"
    assert [text[:end] for end in sentence_ends(text, lines=False)] == [text[:25], text]
