"""A function that remembers: what it gives, how much it keeps, and that the garbage collector passes it over."""

from __future__ import annotations

import gc
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from retcon.memo import Memo
from retcon.words import stem_words, term_key


@given(st.lists(st.text(max_size=3)), st.integers(1, 5))
def test_a_memo_gives_what_its_function_gives(texts: list[str], most: int) -> None:
    memo = Memo(len, most)
    assert memo.each(texts) == list(map(len, texts)) == list(map(memo, texts))
    assert len(memo.known) <= most


def test_a_text_is_asked_for_once() -> None:
    asked: list[str] = []

    def raise_case(text: str) -> str:
        asked.append(text)
        return text.upper()

    memo = Memo(raise_case, 10)
    assert memo.each(["a", "b", "a"]) == ["A", "B", "A"]
    assert memo("b") == "B"
    assert asked == ["a", "b"]


def test_threads_that_begin_anew_all_the_time_get_what_they_ask_for() -> None:
    memo, texts, wrong = Memo(len, 2), ["x" * size for size in range(1, 9)], list[list[int]]()

    def ask() -> None:
        for _ in range(300):
            if (found := memo.each(texts)) != list(range(1, 9)):
                wrong.append(found)

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_garbage_collector_passes_over_what_is_remembered() -> None:
    term_key.each(stem_words(["cats", "running"]))
    assert "cat" in term_key.known
    assert not gc.is_tracked(term_key.known)


def test_a_long_text_is_not_kept_and_pushes_nothing_out() -> None:
    memo = Memo(len, 2, longest=3)
    memo.each(["a", "bb"])
    assert memo("four") == 4
    assert memo.known == {"a": 1, "bb": 2}
