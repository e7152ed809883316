"""Learning over many domains: made-up ones, of which the truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retcon.confidence import SIGNALS
from retcon.drafts import TRAITS
from retcon.errors import InputError
from retcon.lab.domains import (
    SPENT,
    UNANSWERABLE,
    Domain,
    Played,
    learn_fixed,
    leave_out,
    play_actions,
    rank_actions,
    read_domain,
)
from retcon.lab.fit_aside import learn_aside
from retcon.lab.fit_drafts import fit_drafts, learn_drafts, scores
from retcon.lab.fit_price import Climb, choose_climbs, fit_confidence, learn_price, logistic, predict, to_ladder, walk
from retcon.lab.outcomes import from_rows
from retcon.route import Router

ACTIONS = ("retain", "abstract", "extract")
BUDGETS = (64, 256)
KNOWN = ("budget", "fit")


def made(
    name: str = "one", *, questions: int = 120, unanswerable: int = 30, seed: int = 0, lean: float = 0.0
) -> Domain:
    """Replies are right where `held` is high; unanswerable questions get replies that nothing holds."""
    chance = np.random.default_rng([seed, *name.encode()])
    size, shape = questions + unanswerable, (questions + unanswerable, len(BUDGETS), len(ACTIONS))
    known = np.arange(size) < questions
    held = chance.random(shape) * np.where(known, 1.0, 0.4)[:, None, None]
    right = (chance.random(shape) < held) & known[:, None, None]
    right[:, :, 1] |= (chance.random(shape[:2]) < lean) & known[:, None]
    signals = chance.random((*shape, len(SIGNALS)))
    signals[..., SIGNALS.index("held")] = held
    answered = chance.random(shape) < 0.8
    return Domain(
        name=name,
        questions=tuple(f"{name}-{i}" for i in range(size)),
        kinds=tuple("answerable" if each else "removed" for each in known),
        twins=tuple(f"{name}-{i}" for i in range(size)),
        conversations=tuple(f"c{i % 7}" for i in range(size)),
        budgets=BUDGETS,
        actions=ACTIONS,
        features=KNOWN,
        x=np.stack([np.tile(np.array(BUDGETS) / 512, (size, 1)), chance.random((size, len(BUDGETS)))], axis=2),
        verdicts={"llm": np.where(answered, right, 0.0), "strict": np.where(answered, right, 0.0)},
        answered=answered,
        logprob=-chance.random(shape),
        signals=np.where(answered[..., None], signals, np.nan),
        traits=chance.random((*shape, len(TRAITS))),
        spent={each: np.ones(shape) for each in SPENT},
    )


def several(**words: float) -> list[Domain]:
    return [made(name, **words) for name in ("one", "two", "three", "four")]  # type: ignore[arg-type]


# - domains -


def test_a_domain_is_read_from_rows_and_an_answer_to_an_unanswerable_question_is_never_right() -> None:
    rows = [
        {
            "dataset": "d", "question_id": q, "budget": budget, "action": action, "kind": kind, "twin": "q1",
            "judge_llm": 1, "judge_strict": 0, "abstained": float(action == "retain"), "logprob": -0.5,
            "notes": 3, "fit": 0.5, "sessions": 1, "inconsistency": 0.1, "similarity": 0.2, "cluster_tokens": 90,
            **{f"signal_{name}": None if action == "retain" else 0.5 for name in SIGNALS},
            **{f"trait_{name}": 0.25 for name in TRAITS}, **dict.fromkeys(SPENT, 2.0),
        }
        for q, kind in (("q1", "answerable"), ("q1-person", "person"))
        for budget in BUDGETS
        for action in ("retain", "extract")
    ]  # fmt: skip
    domain = read_domain(from_rows(rows))
    assert (domain.name, domain.budgets, domain.actions, domain.twins) == (
        "d",
        BUDGETS,
        ("retain", "extract"),
        ("q1",) * 2,
    )
    answerable = domain.answerable
    assert domain.verdicts["llm"][answerable].tolist() == [[[0, 1], [0, 1]]]  # whole notes gave no answer
    assert not domain.verdicts["llm"][~answerable].any()
    assert np.isnan(domain.signals[:, :, 0]).all()
    assert (domain.signals[:, :, 1] == 0.5).all()


def test_rows_without_kinds_are_no_domain() -> None:
    rows = [{"question_id": "q", "budget": 64, "action": a, "judge_llm": 1, "judge_strict": 1} for a in ACTIONS]
    with pytest.raises(InputError, match="need a column kind"):
        read_domain(from_rows(rows))


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0, 0.9))
def test_weights_sum_to_one_and_put_the_share_on_unanswerable_questions(known: int, unknown: int, share: float) -> None:
    domain = made(questions=known, unanswerable=unknown)
    weights = domain.weights(share)
    assert weights.sum() == pytest.approx(1)
    assert weights[~domain.answerable].sum() == pytest.approx(share if unknown else 0)


def test_domains_weigh_alike_whatever_their_size() -> None:
    """Two small domains in which abstract is always right outvote a large one in which it never is."""
    small = [made(name, questions=20, unanswerable=0, lean=1.0) for name in ("one", "two")]
    small = [replace(each, answered=np.ones_like(each.answered)) for each in small]
    small = [replace(each, verdicts={"llm": _only(each, 1)}) for each in small]
    large = made("three", questions=400, unanswerable=0)
    large = replace(large, verdicts={"llm": _only(large, 2)})
    assert rank_actions([*small, large])[0][0] == "abstract"
    assert rank_actions([small[0], large, replace(large, name="four")])[0][0] == "extract"


def _only(domain: Domain, place: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.broadcast_to(np.arange(len(ACTIONS)) == place, domain.answered.shape).astype(float)


def test_a_price_prefers_the_action_that_keeps_silent_where_nothing_is_known() -> None:
    domain = made(questions=50, unanswerable=50)
    talks, silent = np.ones_like(domain.answered), domain.answered.copy()
    silent[:, :, 2] = domain.answerable[:, None]
    talks[:, :, 2] = silent[:, :, 2]
    right = np.zeros(domain.answered.shape)
    right[domain.answerable, :, 1:] = 1.0
    right[domain.answerable, :, 1] += 0.01  # a hair better, and talks where it should not
    domain = replace(domain, answered=talks, verdicts={"llm": right})
    assert rank_actions([domain])[0][0] == "abstract"
    assert rank_actions([domain], wrong_cost=1.0)[0][0] == "extract"


def test_leaving_out_never_shows_a_domain_to_its_own_learner() -> None:
    domains = several()
    for left, names in leave_out(domains, lambda rest: [each.name for each in rest]):
        assert left.name not in names
        assert len(names) == len(domains) - 1


def test_utility_prices_wrong_answers_and_counts_an_abstention_as_nothing() -> None:
    domain = made(questions=1, unanswerable=1)
    verdicts = {"llm": np.array([[[0.0, 1.0, 0.0]] * 2, [[0.0, 0.0, 0.0]] * 2])}
    domain = replace(domain, answered=np.ones_like(domain.answered), verdicts=verdicts)
    right = play_actions(domain, np.full((2, 2), 1))
    assert right.utility(domain, "llm", 0.5).tolist() == [[1, 1], [-0.5, -0.5]]
    refused = Played(np.full((2, 2), -1), np.ones((2, 2)), np.ones((2, 2)))
    assert refused.utility(domain, "llm", 0.5).tolist() == [[0, 0], [0, 0]]
    assert refused.accuracy(domain, "llm").tolist() == [[0, 0], [1, 1]]


# - confidence and price -


def test_logistic_finds_the_weights_that_made_the_data() -> None:
    chance = np.random.default_rng(1)
    x = chance.normal(size=(20_000, 2))
    p = 1 / (1 + np.exp(-(x @ np.array([1.5, -0.5]) + 0.3)))
    weights, intercept = logistic(x, (chance.random(20_000) < p).astype(float), np.ones(20_000))
    assert weights == pytest.approx([1.5, -0.5], abs=0.08)
    assert intercept == pytest.approx(0.3, abs=0.06)


def test_a_confidence_learned_elsewhere_tells_right_from_wrong() -> None:
    domains = several()
    for domain, confidence in leave_out(domains, fit_confidence):
        sure = predict(confidence, domain)
        right = domain.verdicts["llm"] > 0.5
        assert sure[right].mean() > sure[domain.answered & ~right].mean() + 0.1
        assert (sure[~domain.answered] == -1).all()
        given = {name: float(value) for name, value in zip(SIGNALS, domain.signals[domain.answered][0], strict=True)}
        assert confidence(given) == pytest.approx(sure[domain.answered][0])


@settings(max_examples=30)
@given(st.permutations(ACTIONS), st.integers(1, 3), st.floats(0, 1), st.floats(0, 1), st.integers(0, 9))
def test_a_walk_is_what_climbing_look_by_look_comes_to(
    actions: list[str], size: int, stop: float, accept: float, seed: int
) -> None:
    domain = made(questions=20, unanswerable=5, seed=seed)
    sure = predict(fit_confidence(several()), domain)
    order = tuple(actions[:size])
    played = walk(domain, sure, Climb(order, stop, accept))
    for q in range(len(domain.questions)):
        for b in range(len(BUDGETS)):
            best, chosen, calls = -1.0, -1, 0
            for place in map(ACTIONS.index, order):
                calls += 1
                if domain.answered[q, b, place] and sure[q, b, place] > best:
                    best, chosen = float(sure[q, b, place]), place
                if chosen >= 0 and best >= stop:
                    break
            assert played.calls[q, b] == calls
            assert played.action[q, b] == (chosen if best >= accept else -1)


def test_a_price_makes_a_ladder_refuse_more_and_be_worth_more_at_that_price() -> None:
    *learning, left = several()
    free, dear = (learn_price(learning, cost) for cost in (0.0, 2.0))
    weights = left.weights(UNANSWERABLE)
    given = [float(weights @ policy(left).gave(left).mean(axis=1)) for policy in (free, dear)]
    worth = [float(weights @ policy(left).utility(left, "llm", 2.0).mean(axis=1)) for policy in (free, dear)]
    assert given[1] < given[0]
    assert worth[1] > worth[0]
    assert {each.accept for each in free.climbs.values()} == {0.0}


def test_a_ladder_serves_what_was_chosen_at_each_budget() -> None:
    found = choose_climbs(several(), 0.5)
    ladder = to_ladder(found)
    for budget, climb in found.items():
        assert ladder.order([0.0] * 11, budget=budget) == climb.order
        assert (ladder.stop(budget), ladder.accept(budget)) == (climb.stop, climb.accept)


def test_one_domain_is_too_few_to_leave_one_out() -> None:
    with pytest.raises(InputError, match="two at least"):
        choose_climbs(several()[:1], 0.5)


# - stepping aside -


def test_a_router_steps_aside_where_features_tell_nothing() -> None:
    found = learn_aside(several(lean=0.3), [KNOWN])
    assert found.margin is None
    domain = made("five", lean=0.3)
    assert (found(domain).action == learn_fixed(several(lean=0.3))(domain).action).all()


def test_a_router_leaves_the_selected_action_where_a_feature_says_when() -> None:
    domains = [_told(each) for each in several()]
    found = learn_aside(domains[:3], [KNOWN])
    assert found.margin is not None
    assert found.gain[0] > found.gain[1]
    right = found(domains[3]).right(domains[3], "llm")
    base = learn_fixed(domains[:3])(domains[3]).right(domains[3], "llm")
    assert right.mean() > base.mean() + 0.2


def _told(domain: Domain) -> Domain:
    """Whole notes are right where fit is high, abstract where it is low."""
    fits = domain.x[:, :, 1] > 0.5
    right = np.zeros(domain.answered.shape)
    right[:, :, 0], right[:, :, 1] = fits, ~fits
    right[~domain.answerable] = 0
    return replace(domain, answered=np.ones_like(domain.answered), verdicts={"llm": right, "strict": right})


# - drafts -


def test_drafts_keep_the_text_whose_traits_are_of_right_ones() -> None:
    domains = [_shown(each) for each in several()]
    found = learn_drafts(domains[:3], 2)
    assert found.gain[0] > 0.1
    played = found(domains[3])
    base = learn_fixed(domains[:3])(domains[3])
    assert played.right(domains[3], "llm").mean() > base.right(domains[3], "llm").mean() + 0.1
    assert (played.calls == 1).all()
    assert (played.tokens == 1 + 2 * 2).all()  # one reading, two texts written


def _shown(domain: Domain) -> Domain:
    right = (domain.traits[..., 0] > 0.5) & domain.answerable[:, None, None]
    values = right.astype(float)
    return replace(domain, answered=np.ones_like(domain.answered), verdicts={"llm": values, "strict": values})


def test_drafts_serve_the_scores_that_they_were_chosen_by() -> None:
    domain = _shown(made())
    drafts = fit_drafts([domain], ("retain", "extract"))
    every = scores(drafts, domain)
    traits = dict(zip(TRAITS, domain.traits[3, 1, 2].tolist(), strict=True))
    assert drafts.score("extract", traits, budget=BUDGETS[1]) == pytest.approx(float(every[3, 1, 1]))


# - what is scored is what is served -


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.sampled_from([None, 0.0, 0.02, 0.1]), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_router_file_decides_what_was_scored(seed: int, margin: float | None, edge: float) -> None:
    """With fixed actions, margin and rule of fit; and what `safe` weighs against whole notes is the same too."""
    domain = made(questions=12, unanswerable=3, seed=seed)
    fit = np.where(domain.x[:, :, 1] < 0.3, edge, domain.x[:, :, 1])  # some fit wholly, or not at all
    domain = replace(domain, x=np.stack([domain.x[:, :, 0], fit], axis=2))
    aside = replace(learn_aside(several(lean=0.2), [KNOWN]), margin=margin)
    router = Router(
        name="made",
        actions=ACTIONS,
        features=KNOWN,
        weights={action: tuple(aside.response.theta[a].tolist()) for a, action in enumerate(ACTIONS)},
        intercepts={action: float(aside.response.intercept[a]) for a, action in enumerate(ACTIONS)},
        thresholds=dict.fromkeys(BUDGETS, 0.05),
        budgets=BUDGETS,
        fixed={budget: tuple(row) for budget, row in zip(BUDGETS, aside.ranked, strict=True)},
        margin=margin,
        fit_rules=True,
    )
    places, (best, lead) = aside.places(domain), aside.replacing(domain)
    for q in range(len(domain.questions)):
        for b, budget in enumerate(BUDGETS):
            seen = {"budget": budget / 512, "notes": 4.0, "sessions": 1.0, "fit": float(fit[q, b])}
            decision = router.decide(seen, budget=budget)
            assert decision.action == ACTIONS[places[q, b]]
            if 0 < fit[q, b] < 1:
                safe = router.decide(seen, budget=budget, safe=True)
                assert safe.action == (ACTIONS[best[q, b]] if lead[q, b] >= 0.05 else "retain")
