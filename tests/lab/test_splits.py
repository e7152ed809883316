"""Questions are split before any outcome exists: sizes, strata, and conversations that stay together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retcon.errors import InputError
from retcon.features import TYPES
from retcon.lab.data import (
    BenchmarkQuestion,
    by_cost,
    evidence_cost,
    independent,
    load,
    paper_like,
    sample,
    stratified,
)
from retcon.lab.data.splits import INDEPENDENT, PAPER_TEST
from retcon.note import Note


def invented(number: int, kind: str | None, conversation: str, words: int = 3) -> BenchmarkQuestion:
    evidence = (Note(f"n{number}", "word " * words),)
    return BenchmarkQuestion(
        f"q{number:03}", "invented", "Why?", "so", kind, kind or "", conversation, evidence=evidence
    )


@st.composite
def asked(draw: st.DrawFn, least: int = 1, talks: int = 8) -> list[BenchmarkQuestion]:
    shape = st.tuples(st.sampled_from([*TYPES, None]), st.integers(0, talks), st.integers(1, 60))
    drawn = draw(st.lists(shape, min_size=least, max_size=60))
    return [invented(number, kind, f"c{talk}", words) for number, (kind, talk, words) in enumerate(drawn)]


@given(questions=asked(), seed=st.integers(), data=st.data())
def test_samples_have_the_size_asked_for_and_ignore_the_order_of_the_questions(
    questions: list[BenchmarkQuestion], seed: int, data: st.DataObject
) -> None:
    n = data.draw(st.integers(0, len(questions)))
    shuffled = data.draw(st.permutations(questions))
    for draw in (sample, by_cost):
        drawn = draw(questions, n, seed=seed)
        assert len(drawn) == len({question.id for question in drawn}) == n
        assert draw(shuffled, n, seed=seed) == drawn
    fewer, more = sample(questions, n // 2, seed=seed), sample(questions, n, seed=seed)
    assert {question.id for question in fewer} <= {question.id for question in more}
    for draw in (sample, by_cost):
        with pytest.raises(InputError, match=f"{len(questions) + 1} questions cannot be drawn from {len(questions)}"):
            draw(questions, len(questions) + 1, seed=seed)


def test_by_cost_draws_from_four_strata_in_proportion() -> None:
    questions = [invented(number, "temporal", "c", words=number + 1) for number in range(400)]
    drawn = by_cost(questions, 75, seed=3)
    layers = Counter((evidence_cost(question) - 1) // 100 for question in drawn)
    assert sorted(layers.values()) == [18, 19, 19, 19]
    assert drawn != by_cost(questions, 75, seed=4)


@given(questions=asked(), seed=st.integers(), data=st.data())
def test_a_stratified_draw_has_every_type_in_its_share(
    questions: list[BenchmarkQuestion], seed: int, data: st.DataObject
) -> None:
    n = data.draw(st.integers(0, len(questions)))
    drawn = stratified(questions, n, seed=seed)
    assert len({question.id for question in drawn}) == n
    assert stratified(data.draw(st.permutations(questions)), n, seed=seed) == drawn
    every, found = (Counter(question.type for question in some) for some in (questions, drawn))
    assert all(abs(found[kind] - n * size / len(questions)) < 1 for kind, size in every.items())


def test_by_cost_leaves_abstentions_out() -> None:
    assert not any(question.abstention for question in by_cost(load("sample").questions, 74))


@given(questions=asked(least=9, talks=40), seed=st.integers(), data=st.data())
def test_independent_parts_are_disjoint_complete_and_share_no_conversation(
    questions: list[BenchmarkQuestion], seed: int, data: st.DataObject
) -> None:
    talks = {question.id: question.conversation for question in questions}
    assume(len(set(talks.values())) >= len(INDEPENDENT))
    split = independent(questions, seed=seed)
    ids = [name for part in split.parts.values() for name in part]
    assert sorted(ids) == sorted(talks)
    homes = [{talks[name] for name in part} for part in split.parts.values()]
    assert sum(map(len, homes)) == len(set.union(*homes))
    assert independent(data.draw(st.permutations(questions)), seed=seed) == split


def test_independent_parts_have_every_type_in_the_stated_shares() -> None:
    questions = [invented(number, TYPES[number % 4], f"c{number}") for number in range(400)]
    split = independent(questions, seed=1)
    for part, share in INDEPENDENT.items():
        counts = Counter(question.type for question in split.take(part, questions))
        assert all(abs(counts[kind] - 100 * share) <= 1 for kind in TYPES)
    assert independent(questions, seed=2) != split


def test_a_question_and_its_unanswerable_twin_stay_together() -> None:
    names = [f"c{number}{end}" for number in range(60) for end in ("", "_abs")]
    questions = [invented(number, "temporal", name) for number, name in enumerate(names)]
    split = independent(questions, seed=5)
    part = {name: part for part, ids in split.parts.items() for name in ids}
    for first, second in zip(questions[::2], questions[1::2], strict=True):
        assert part[first.id] == part[second.id]


def pool(*, extra: int = 400) -> list[BenchmarkQuestion]:
    kinds = [kind for kind, needed in PAPER_TEST.items() for _ in range(needed)]
    kinds += [TYPES[number % 4] for number in range(extra)]
    return [invented(number, kind, f"c{number}") for number, kind in enumerate(kinds)]


@given(seed=st.integers(), data=st.data())
def test_paper_like_parts_are_disjoint_and_the_tests_types_exact(seed: int, data: st.DataObject) -> None:
    questions = pool()
    split = paper_like(questions, seed=seed)
    assert {part: len(ids) for part, ids in split.parts.items()} == {"train": 325, "dev": 75, "test": 75}
    assert sorted(name for ids in split.parts.values() for name in ids) == [question.id for question in questions]
    assert Counter(question.type for question in split.take("test", questions)) == PAPER_TEST
    turned = questions[data.draw(st.integers(0, 474)) :] + questions[::-1]
    assert paper_like(list({question.id: question for question in turned}.values()), seed=seed) == split


def test_seeds_give_different_paper_like_splits() -> None:
    assert paper_like(pool(), seed=1).parts != paper_like(pool(), seed=2).parts


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: paper_like(pool(extra=0)[1:]), "the test needs 9 questions of type single_session, there are 8"),
        (lambda: paper_like(pool(extra=3)), "a sample of 75 questions cannot be drawn from 3"),
        (lambda: paper_like(pool() + pool()), "two questions have one id"),
        (lambda: independent(pool()[:2]), "3 parts need as many conversations, there are 2"),
        (lambda: independent(pool(), shares={"fit": 1, "gate": 0}), "a share above 0"),
        (lambda: paper_like(pool()).take("gate", pool()), "has no part 'gate'"),
    ],
)
def test_a_split_that_cannot_be_drawn_says_why(draw: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        draw()


def test_draws_are_the_same_on_every_machine() -> None:
    questions = load("sample").questions
    assert [question.id for question in sample(questions, 5, seed=7)] == ["q38", "q50", "q59", "q61", "q62"]
