"""The training of the query-type model: against a constructed answer, against scikit-learn, and without leaks."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.querytype import (
    BLOCKS,
    EVERYDAY,
    LOCOMO,
    LONGMEMEVAL,
    OTHERS,
    LabelledQuestions,
    Settings,
    calibration_error,
    fit_model,
    learned_sets,
    link_questions,
    marks,
    ours,
    round_weights,
)
from retcon import sample
from retcon.errors import InputError
from retcon.features import TYPES, QueryTypes, query_type
from retcon.lab.querytype import (
    CUES,
    PENALTIES,
    Array,
    Hits,
    Places,
    best_penalty,
    cue_matrix,
    deal,
    fit_path,
    out_of_fold,
    probabilities,
    split_probabilities,
    train,
)
from retcon.words import words

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("RETCON_DATA") or ROOT.parent / "shared" / "data")
STORED: dict[str, Any] = json.loads((ROOT / "retcon" / "querytype.json").read_text("utf-8"))
OURS = [json.loads(line) for line in (ROOT / "bench" / "questions.jsonl").read_text("utf-8").splitlines()]
PAGE = (ROOT / "docs" / "querytypes.md").read_text("utf-8")

seeds = st.integers(0, 2**31)


def drawn(seed: int, n: int = 60, groups: int = 15) -> tuple[Hits, Places, Places]:
    """Cues, types that lean on three of them, and groups."""
    rng = np.random.default_rng(seed)
    hits = rng.random((n, len(CUES))) < 0.2
    types = np.where(rng.random(n) < 0.6, hits[:, :3] @ (1, 1, 1), rng.integers(0, len(TYPES), n))
    return hits, types.astype(np.int64), rng.integers(0, groups, n)


def shuffled(seed: int, n: int) -> Places:
    return np.random.default_rng(seed).permutation(n)


def same(a: QueryTypes, b: QueryTypes) -> bool:
    return np.allclose(a.weights, b.weights, atol=1e-9) and np.allclose(a.intercepts, b.intercepts, atol=1e-9)


def softmax(z: Array) -> Array:
    lifted = np.exp(z)
    return np.asarray(lifted / lifted.sum(axis=1, keepdims=True))


# --- the fit


def test_training_recovers_the_model_that_made_the_types() -> None:
    base, factors = np.array([1, 2, 3, 1]), np.array([[1, 2, 1, 3], [1, 1, 4, 2], [2, 1, 1, 5]])  # odds of each type
    rows, types = [], []
    for found in itertools.product((False, True), repeat=3):
        odds = base * np.prod(factors[list(found)], axis=0)  # as many questions, so that the shares are exact
        types += np.repeat(np.arange(4), odds).tolist()
        rows += [[*found] + [False] * (len(CUES) - 3)] * int(odds.sum())
    model = train(np.array(rows), types, penalty=1e-9)
    true = np.log(np.vstack((base, factors)))
    assert np.abs(np.array(model.intercepts) - (true[0] - true[0, 0])[1:]).max() < 1e-5
    assert np.abs(np.array(model.weights)[:3] - (true[1:] - true[1:, :1])[:, 1:]).max() < 1e-5
    assert np.abs(np.array(model.weights)[3:]).max() == 0  # cues that nobody used


@pytest.mark.parametrize("penalty", [1e-4, 1e-3, 1e-2, 0.3])
def test_fit_equals_scikit_learn(penalty: float) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    data = ours()
    theirs = linear.LogisticRegression(C=1 / (penalty * len(data.types)), tol=1e-9, max_iter=10_000)
    theirs.fit(data.hits, data.types)
    (w,) = fit_path(data.hits, data.types, (penalty,))
    assert np.abs((w[1:] - w[1:, :1]) - (theirs.coef_ - theirs.coef_[:1]).T).max() < 1e-4
    assert np.abs((w[0] - w[0, 0]) - (theirs.intercept_ - theirs.intercept_[0])).max() < 1e-4
    model = train(data.hits, data.types, penalty=penalty)
    assert np.abs(probabilities(model, data.hits) - theirs.predict_proba(data.hits)).max() < 1e-5


@given(seeds, st.sampled_from(PENALTIES))
@settings(max_examples=20, deadline=None)
def test_the_slope_is_zero_at_the_fit(seed: int, penalty: float) -> None:
    hits, types, _ = drawn(seed)
    (w,) = fit_path(hits, types, (penalty,))
    miss = softmax(w[0] + hits @ w[1:]) - np.eye(len(TYPES))[types]
    assert np.abs(hits.T @ miss / len(types) + penalty * w[1:]).max() < 1e-9
    assert np.abs(miss.mean(axis=0)).max() < 1e-4  # the intercepts are all but free
    assert np.abs(w.sum(axis=1)).max() < 1e-9


def test_a_path_of_penalties_ends_where_single_fits_end() -> None:
    hits, types, _ = drawn(1)
    for penalty, w in zip(PENALTIES, fit_path(hits, types, PENALTIES), strict=True):
        assert np.abs(w - fit_path(hits, types, (penalty,))[0]).max() < 1e-9


def test_separable_types_still_converge() -> None:
    hits = np.zeros((40, len(CUES)), np.bool_)
    types = np.arange(40) % 4
    hits[np.arange(40), types] = True
    model = train(hits, types, penalty=1e-8)
    assert probabilities(model, hits)[np.arange(40), types].min() > 0.999


@pytest.mark.parametrize("present", [(0,), (3,), (0, 1, 2), (1, 3)])
def test_a_type_without_questions_gets_next_to_no_probability(present: tuple[int, ...]) -> None:
    hits, types, groups = drawn(5, n=120)
    types = np.array(present)[types % len(present)]
    p = out_of_fold(hits, types, groups)
    assert np.isfinite(p).all()
    absent = [t for t in range(len(TYPES)) if t not in present]
    assert p[:, absent].max(initial=0) < 1e-3


def test_the_chosen_penalty_is_the_one_with_the_lowest_held_out_loss() -> None:
    hits, types, groups = drawn(8, n=150, groups=40)
    fold = deal(groups, folds=3, seed=4)
    loss = []
    for penalty in PENALTIES:
        held = [(fold == f, train(hits[fold != f], types[fold != f], penalty=penalty)) for f in range(3)]
        p = [probabilities(model, hits[out])[np.arange(out.sum()), types[out]] for out, model in held]
        loss.append(-np.log(np.concatenate(p)).sum())
    assert best_penalty(hits, types, groups=groups, seed=4) == PENALTIES[int(np.argmin(loss))]
    assert same(train(hits, types, groups=groups, seed=4), train(hits, types, penalty=PENALTIES[int(np.argmin(loss))]))


# --- weights and sources


def test_a_question_that_counts_twice_is_as_good_as_two() -> None:
    hits, types, _ = drawn(3)
    weights = np.where(np.arange(60) < 20, 2.0, 1.0)
    twice = np.concatenate((np.arange(60), np.arange(20)))
    assert same(train(hits, types, penalty=1e-3, weights=weights), train(hits[twice], types[twice], penalty=1e-3))


def test_the_mix_of_another_source_moves_neither_the_prior_nor_the_guess_of_a_cue_it_lacks() -> None:
    hits, types, _ = drawn(3)
    lone = np.zeros((40, len(CUES)), np.bool_)  # of one type, and without any cue
    model = train(hits, types, penalty=1e-3)
    joined, labels = np.concatenate((hits, lone)), np.concatenate((types, np.full(40, 1)))
    sources = np.array([""] * 60 + ["other"] * 40)
    apart = train(joined, labels, penalty=1e-3 * 60 / 100, sources=sources)
    heap = train(joined, labels, penalty=1e-3 * 60 / 100)
    assert apart.prior == model.prior != heap.prior
    assert np.abs(probabilities(apart, hits) - probabilities(model, hits)).max() < 0.02
    assert np.abs(probabilities(heap, hits) - probabilities(model, hits)).max() > 0.05


def test_a_source_teaches_which_cue_goes_with_which_type() -> None:
    hits, types, _ = drawn(3)
    hits[:, 5] = False  # a cue that only the other source has
    other, kinds = np.zeros((40, len(CUES)), np.bool_), np.arange(40) % 2
    other[:, 5] = kinds == 1
    joined, labels = np.concatenate((hits, other)), np.concatenate((types, kinds))
    model = train(joined, labels, penalty=1e-3, sources=[""] * 60 + ["other"] * 40)
    assert model.weights[5][0] > 1  # multi-session against single-session


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_text_without_a_cue_gets_the_mix_of_the_own_questions(seed: int) -> None:
    hits, types, _ = drawn(seed)
    model = train(hits, types, penalty=1e-2)
    none = np.zeros((1, len(CUES)), np.bool_)
    assert np.abs(probabilities(model, none)[0] - np.bincount(types, minlength=4) / len(types)).max() < 1e-12
    assert model("asdkjhaskjdh") == model.prior


def test_sets_count_alike_whatever_their_size() -> None:
    rng = np.random.default_rng(0)

    def made(n: int) -> LabelledQuestions:
        return LabelledQuestions(rng.random((n, len(CUES))) < 0.2, rng.integers(0, 4, n), np.arange(n).astype(np.str_))

    sets = {name: made(30) for name in (*EVERYDAY, *OTHERS)}
    twice = {name: each.part(np.tile(np.arange(30), 2)) for name, each in sets.items()}
    once, again = (fit_model(each, Settings(0.3, 1e-3)) for each in (sets, sets | {"ours": twice["ours"]}))
    assert same(once, again)


# --- probabilities


@given(st.lists(st.one_of(st.text(), st.sampled_from([row["question"] for row in OURS])), min_size=1, max_size=5))
@settings(deadline=None)
def test_probabilities_are_those_that_serving_gives(queries: list[str]) -> None:
    model = trained()
    p = probabilities(model, queries)
    assert p.shape == (len(queries), len(TYPES))
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-12
    assert np.abs(p - [model(query) for query in queries]).max() < 1e-6
    assert (p == probabilities(model, cue_matrix(queries))).all()


def trained() -> QueryTypes:
    return train([row["question"] for row in OURS], [TYPES.index(row["type"]) for row in OURS], penalty=1e-3)


def test_no_questions_have_no_probabilities() -> None:
    assert cue_matrix([]).shape == (0, len(CUES))
    assert probabilities(trained(), []).shape == (0, len(TYPES))


@given(seeds)
@settings(max_examples=6, deadline=None)
def test_out_of_fold_rows_are_distributions_and_the_same_every_time(seed: int) -> None:
    hits, types, groups = drawn(seed)
    p = out_of_fold(hits, types, groups, seed=seed)
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-12
    assert p.min() >= 0
    assert (p == out_of_fold(hits, types, groups, seed=seed)).all()


@given(seeds, seeds)
@settings(max_examples=6, deadline=None)
def test_the_order_of_the_questions_changes_nothing(seed: int, other: int) -> None:
    hits, types, groups = drawn(seed)
    order = shuffled(other, len(types))
    assert same(train(hits, types), train(hits[order], types[order]))
    p = out_of_fold(hits, types, groups)
    assert np.abs(out_of_fold(hits[order], types[order], groups[order]) - p[order]).max() < 1e-9


# --- leaks


def test_a_cue_that_gives_a_group_away_is_learned_in_sample_and_useless_out_of_fold() -> None:
    groups = np.repeat(np.arange(20), 10)
    secret = np.random.default_rng(0).permutation(20) % 4  # each group one type, each type five groups
    hits, types = np.zeros((200, len(CUES)), np.bool_), secret[groups]
    hits[np.arange(200), groups] = True  # a cue of its own for each group
    in_sample = probabilities(train(hits, types), hits)
    assert in_sample[np.arange(200), types].min() > 0.9
    p = out_of_fold(hits, types, groups)
    assert p[np.arange(200), types].max() < 0.5
    assert (p.argmax(axis=1) == types).mean() <= 0.25  # the own group is missing from the mix, so worse than chance
    alone = out_of_fold(hits, types, np.arange(200))  # with the wrong groups the leak is wide open
    assert (alone.argmax(axis=1) == types).mean() > 0.9


@given(seeds, st.integers(0, 14))
@settings(max_examples=8, deadline=None)
def test_rows_do_not_depend_on_the_types_in_their_own_group(seed: int, group: int) -> None:
    hits, types, groups = drawn(seed)
    mine = groups == group
    other = np.where(mine, (types + 1) % len(TYPES), types)
    before, after = out_of_fold(hits, types, groups), out_of_fold(hits, other, groups)
    assert (before[mine] == after[mine]).all()
    assert not mine.any() or (before[~mine] != after[~mine]).any()  # the others did see it


def test_each_row_comes_from_the_model_of_the_other_folds() -> None:
    hits, types, groups = drawn(2)
    fold, p = deal(groups, folds=4, seed=9), out_of_fold(hits, types, groups, folds=4, seed=9)
    for f in range(4):
        model = train(hits[fold != f], types[fold != f], groups=groups[fold != f], seed=9)
        assert (p[fold == f] == probabilities(model, hits[fold == f])).all()


@given(st.lists(st.sampled_from("abcdefgh"), min_size=2).filter(lambda g: len(set(g)) > 1), st.integers(2, 9), seeds)
def test_a_group_is_never_divided_and_folds_are_even(groups: list[str], folds: int, seed: int) -> None:
    fold = deal(groups, folds=folds, seed=seed)
    of = dict(zip(groups, fold.tolist(), strict=True))
    assert [of[group] for group in groups] == fold.tolist()
    sizes = Counter(of.values())
    assert max(sizes.values()) - min(sizes.get(f, 0) for f in range(folds)) <= 1


def test_a_split_gives_training_rows_out_of_fold_and_others_the_model_of_all_training() -> None:
    hits, types, groups = drawn(6)
    training = groups < 10
    p = split_probabilities(hits, types, groups, training=training, seed=1)
    assert (p[training] == out_of_fold(hits[training], types[training], groups[training], seed=1)).all()
    model = train(hits[training], types[training], groups=groups[training], seed=1)
    assert (p[~training] == probabilities(model, hits[~training])).all()


@given(seeds)
@settings(max_examples=6, deadline=None)
def test_types_outside_the_training_part_are_not_looked_at(seed: int) -> None:
    hits, types, groups = drawn(seed)
    training = groups < 10
    unknown = np.where(training, types, -1)
    p = split_probabilities(hits, types, groups, training=training)
    assert (p == split_probabilities(hits, unknown, groups, training=training)).all()


def test_a_group_on_both_sides_of_a_split_is_refused() -> None:
    hits, types, groups = drawn(6)
    with pytest.raises(InputError, match="in the training part and outside it"):
        split_probabilities(hits, types, groups, training=np.arange(60) < 30)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: train([], []), "0 questions and 0 types"),
        (lambda: train(["a"], [0, 1]), "1 questions and 2 types"),
        (lambda: train(["a", "b"], [0, 4]), "from 0 to 3"),
        (lambda: train(["a", "b"], [0, -1]), "from 0 to 3"),
        (lambda: train(["a", "b"], ["temporal", "temporal"]), "from 0 to 3"),
        (lambda: train(["a", "b"], [0, 1], penalty=0), "above 0, not 0"),
        (lambda: train(["a", "b"], [0, 1], penalty=float("nan")), "not nan"),
        (lambda: train(["a"], [0]), "two groups at least, not 3 and 1"),
        (lambda: train(np.zeros((2, 3), np.bool_), [0, 1]), f"{len(CUES)} columns"),
        (lambda: train(["a", "b"], [0, 1], weights=[1]), "weights of shape (1,)"),
        (lambda: train(["a", "b"], [0, 1], weights=[1, 0]), "above 0"),
        (lambda: train(["a", "b"], [0, 1], sources=["x", "y"]), 'no question has the source ""'),
        (lambda: out_of_fold(["a", "b"], [0, 1], ["x", "x"]), "not 5 and 1"),
        (lambda: out_of_fold(["a", "b"], [0, 1], ["x", "y"], folds=1), "not 1 and 2"),
        (lambda: out_of_fold(["a", "b"], [0, 1], ["x"]), "2 questions and groups of shape"),
        (lambda: split_probabilities(["a", "b"], [0, 1], ["x", "y"], training=[True]), "a mask of 1"),
    ],
)
def test_bad_input_is_one_clear_line(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- cost and layers


def test_out_of_fold_of_three_hundred_questions_is_quick() -> None:
    hits, types, groups = drawn(0, n=300, groups=300)

    def once(seed: int) -> float:
        start = time.process_time()
        out_of_fold(hits, types, groups, seed=seed)
        return time.process_time() - start

    assert min(map(once, range(3))) < 4  # measured .2 s; room for a busy machine


def test_serving_does_not_load_the_training() -> None:
    code = (
        "import sys, retcon\n"
        "with retcon.Memory(':memory:') as memory:\n"
        "    memory.add('I adopted a cat.')\n"
        "    memory.recall('When did I get my cat?', budget=64)\n"
        "print([name for name in ('retcon.features', 'retcon.lab.querytype') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['retcon.features']"


# --- what ships


def test_the_shipped_cues_are_those_of_the_training() -> None:
    assert {cue["name"]: cue["words"] for cue in STORED["cues"]} == CUES


def test_our_questions_are_sixty_a_type_without_repeats() -> None:
    assert Counter(row["type"] for row in OURS) == dict.fromkeys(TYPES, 60)
    assert len({" ".join(words(row["question"])) for row in OURS}) == len(OURS)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_numbers_in_the_docs_are_those_of_the_model_file(name: str) -> None:
    begin, end = marks(name)
    assert PAGE.split(begin)[1].split(end)[0] == BLOCKS[name](STORED["provenance"])


def test_the_examples_in_the_docs_run() -> None:
    found = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 2
    for code in found:
        exec(code, {})


def test_questions_that_share_a_link_share_a_label() -> None:
    labels = link_questions([["a", "s1"], ["b", "s2"], ["c", "s2", "s3"], ["d", "s3"], ["e", "s1", "s4"], ["f"]])
    assert len(set(labels)) == 3
    assert labels[1] == labels[2] == labels[3]
    assert labels[0] == labels[4]


@pytest.mark.skipif(not (DATA / "domains").is_dir(), reason="the sets of questions are not here (RETCON_DATA)")
def test_the_shipped_weights_are_made_from_the_named_questions() -> None:
    made = STORED["provenance"]
    model = round_weights(fit_model(learned_sets(), Settings(made["count"], made["penalty"])))
    stored = [[cue["weights"][name] for name in TYPES[1:]] for cue in STORED["cues"]]
    assert np.abs(np.array(model.weights) - stored).max() < 0.0011
    assert max(abs(probabilities(model, ["Where do I work now?"])[0] - query_type("Where do I work now?"))) < 1e-3
    assert model("asdkjhaskjdh") == query_type("asdkjhaskjdh")


def test_the_shipped_sample_is_not_learned_from() -> None:
    learned = {" ".join(words(row["question"])) for row in OURS}
    assert not learned & {" ".join(words(each.question)) for each in sample.questions()}


def test_calibration_error_is_the_distance_of_confidence_from_the_share_that_is_right() -> None:
    confidence = np.array([0.95, 0.95, 0.55, 0.55])
    assert calibration_error(confidence, np.array([True, True, True, False])) == pytest.approx(0.05)
    assert calibration_error(confidence, np.array([False, False, False, False])) == pytest.approx(0.75)


@pytest.mark.skipif(not (DATA / LOCOMO).is_file(), reason="the benchmarks' questions are not here (RETCON_DATA)")
def test_no_question_of_ours_is_a_benchmarks() -> None:
    theirs = [row["question"] for row in json.loads((DATA / LONGMEMEVAL).read_text("utf-8"))]
    theirs += [row["question"] for talk in json.loads((DATA / LOCOMO).read_text("utf-8")) for row in talk["qa"]]
    sets = [frozenset(words(query)) for query in theirs]
    for row in OURS:
        mine = frozenset(words(row["question"]))
        assert max(len(mine & other) / len(mine | other) for other in sets) < 0.7, row["question"]
