"""The decision rule, its reasons and the router file."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retcon.errors import InputError, RouterError
from retcon.features import FEATURES
from retcon.route import LARGEST_FILE, SHIPPED, Router, default_router, load_shipped

ROOT = Path(__file__).resolve().parents[1]
ACTIONS = ("retain", "extract", "merge", "abstract")
EXAMPLE: dict[str, Any] = {
    "format": 1,
    "name": "example",
    "kind": "learned",
    "actions": ["retain", "extract", "merge"],
    "features": ["budget", "fit"],
    "weights": {"retain": [0.3, 0.4], "extract": [0.1, 0.05], "merge": [0.0, -0.1]},
    "intercepts": {"retain": 0.0, "extract": 0.25, "merge": 0.35},
    "thresholds": {"32": 0.02, "64": 0.08, "128": None},
    "budgets": [32, 64, 128],
    "embedder": "hashing",
    "counter": "estimate",
    "reasons": {},
    "provenance": {"seed": 7},
}

# Sixteenths add and subtract exactly, so ties are real ties.
exact = st.integers(-32, 32).map(lambda k: k / 16)
vectors = st.lists(exact, min_size=len(FEATURES), max_size=len(FEATURES))
rankings = st.dictionaries(
    st.integers(1, 512), st.permutations(ACTIONS).flatmap(lambda p: st.integers(1, 4).map(lambda n: tuple(p[:n]))),
    min_size=1, max_size=4,
)  # fmt: skip
taus = st.dictionaries(st.integers(1, 512), exact | st.just(math.inf), min_size=1, max_size=4)


def constant(utilities: dict[str, float], **more: Any) -> Router:
    """A router that predicts these utilities whatever it sees."""
    weights: dict[str, tuple[float, ...]] = dict.fromkeys(utilities, ())
    given_: dict[str, Any] = {"name": "constant", "features": (), "weights": weights, "intercepts": utilities}
    return Router(actions=tuple(utilities), **(given_ | more))


@st.composite
def routers(draw: st.DrawFn, *, calibrated: bool | None = None) -> Router:
    names = tuple(draw(st.lists(st.sampled_from(FEATURES), unique=True, max_size=4)))
    row = st.tuples(*[exact for _ in names])
    if calibrated is None:
        calibrated = draw(st.booleans())
    return Router(
        name=draw(st.sampled_from(("a", "β-router"))),
        actions=ACTIONS,
        features=names,
        weights={action: draw(row) for action in ACTIONS},
        intercepts={action: draw(exact) for action in ACTIONS},
        thresholds=draw(taus) if calibrated else {},
        budgets=tuple(draw(st.lists(st.integers(0, 512), max_size=3))),
        provenance=draw(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)),
    )


@st.composite
def travellers(draw: st.DrawFn) -> Router:
    """Routers with fixed actions, and some with a margin."""
    return dataclasses.replace(draw(routers()), fixed=draw(rankings), margin=draw(st.none() | exact.map(abs)))


def x(**named: float) -> list[float]:
    """A feature vector with these values, 0.5 elsewhere."""
    return [named.get(name, 0.5) for name in FEATURES]


# What is decided


@given(routers(), vectors, st.integers(0, 1024), st.booleans())
def test_decision_follows_the_formula(router: Router, psi: list[float], budget: int, safe: bool) -> None:
    assume(router.thresholds or not safe)
    known = sorted(router.thresholds or router.budgets)
    seen = dict(zip(FEATURES, psi, strict=True))
    if known:
        clipped = float(np.clip(budget, known[0], known[-1]))
        seen["budget"] = seen["budget"] if clipped == budget else clipped / 512
    mu = {
        a: router.intercepts[a] + sum(w * seen[f] for w, f in zip(router.weights[a], router.features, strict=True))
        for a in ACTIONS
    }
    advantage = max(mu[a] for a in ACTIONS[1:]) - mu["retain"]
    decision = router.decide(psi, budget=budget, safe=safe)
    assert dict(decision.utilities) == pytest.approx(mu, abs=1e-12)
    assert decision.advantage == pytest.approx(advantage, abs=1e-12)
    assert decision.extrapolated == bool(known and not known[0] <= budget <= known[-1])
    assert (decision.threshold, decision.safe) == (router.threshold(budget) if safe else 0.0, safe)
    accepted = decision.advantage >= router.threshold(budget) if safe else decision.advantage > 0
    assert (decision.action != "retain") == accepted
    if accepted:
        assert decision.utilities[decision.action] == max(decision.utilities[a] for a in ACTIONS[1:])


@given(st.lists(exact, min_size=1, max_size=3))
def test_ties_go_to_retain(others: list[float]) -> None:
    utilities = {"retain": max(others), **{f"o{i}": u for i, u in enumerate(others)}}
    decision = constant(utilities).decide(x(), budget=64)
    assert decision.action == "retain"
    assert "ties go to retain" in decision.reason


@given(routers(calibrated=True), vectors, st.integers(0, 1024), st.floats(0, 4))
def test_raising_thresholds_never_turns_retain_into_replace(
    router: Router, psi: list[float], budget: int, rise: float
) -> None:
    stricter = dataclasses.replace(router, thresholds={b: tau + rise for b, tau in router.thresholds.items()})
    if router.decide(psi, budget=budget, safe=True).action == "retain":
        assert stricter.decide(psi, budget=budget, safe=True).action == "retain"


@given(routers(calibrated=True), vectors, st.integers(0, 1024))
def test_thresholds_count_only_where_the_caller_wants_to_be_safe(router: Router, psi: list[float], budget: int) -> None:
    plain = router.decide(psi, budget=budget)
    high = max(plain.utilities.values())
    assert plain.action == ("retain" if plain.utilities["retain"] == high else plain.action)
    assert plain.utilities[plain.action] == high
    assert not plain.certified
    assert router.decide(psi, budget=budget, safe=True).utilities == plain.utilities


def test_safe_without_thresholds_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="safe needs thresholds, and router 'constant' has none: retcon calibrate"):
        constant({"retain": 0.0, "merge": 0.5}).decide(x(), budget=64, safe=True)


@given(routers(), vectors, st.integers(0, 1024), st.permutations(ACTIONS[1:]))
def test_the_order_of_actions_matters_only_in_ties(
    router: Router, psi: list[float], budget: int, order: list[str]
) -> None:
    one = router.decide(psi, budget=budget)
    two = dataclasses.replace(router, actions=("retain", *order)).decide(psi, budget=budget)
    assert (one.action == "retain") == (two.action == "retain")
    assert one.utilities == two.utilities
    assert one.utilities[one.action] == two.utilities[two.action]
    if one.action != two.action:
        assert order.index(two.action) < order.index(one.action)


def test_the_first_of_two_equal_replacing_actions_is_taken() -> None:
    assert constant({"retain": 0.0, "b": 1.0, "a": 1.0}).decide(x(), budget=1).action == "b"


@given(taus, st.integers(0, 600))
def test_between_calibrated_budgets_the_stricter_neighbour_holds(thresholds: dict[int, float], budget: int) -> None:
    tau = constant({"retain": 0.0, "merge": 0.5}, thresholds=thresholds).threshold(budget)
    below = [b for b in thresholds if b <= budget]
    above = [b for b in thresholds if b >= budget]
    neighbours = {max(below)} if below else set()
    neighbours |= {min(above)} if above else set()
    assert tau == max(thresholds[b] for b in neighbours)


def test_a_calibrated_budget_has_its_own_threshold() -> None:
    router = constant({"retain": 0.0, "merge": 0.5}, thresholds={32: 0.9, 64: 0.1, 128: 0.7})
    assert [router.threshold(b) for b in (32, 64, 128)] == [0.9, 0.1, 0.7]
    assert [router.threshold(b) for b in (1, 33, 65, 9999)] == [0.9, 0.9, 0.7, 0.7]
    safe = [router.decide(x(), budget=b, safe=True).action for b in (32, 63, 64, 65)]
    assert safe == ["retain", "retain", "merge", "retain"]


def test_an_advantage_that_equals_the_threshold_is_enough() -> None:
    router = constant({"retain": 0.25, "merge": 0.5}, thresholds={64: 0.25})
    assert router.decide(x(), budget=64, safe=True).action == "merge"


def test_beyond_the_known_budgets_the_budget_is_clipped_and_said_so() -> None:
    router = Router.from_dict(EXAMPLE | {"thresholds": {"32": -9, "128": -9}})
    inside, beyond = (router.decide(x(budget=b / 512, pressure=7, fit=0.2), budget=b) for b in (128, 4096))
    assert beyond.utilities == inside.utilities
    assert (inside.extrapolated, beyond.extrapolated) == (False, True)
    assert beyond.budget == 4096
    assert beyond.features["budget"] == 0.25
    assert (beyond.features["pressure"], beyond.features["fit"]) == (7, 0.2)
    assert "4096 tokens is outside the 32 to 128" in beyond.reason


def test_a_direct_router_with_known_budgets_is_clipped_too() -> None:
    router = Router.from_dict(EXAMPLE | {"thresholds": {}})
    assert router.decide(x(), budget=16).extrapolated
    assert router.decide(x(), budget=16).features["budget"] == 32 / 512
    assert not Router.from_dict(EXAMPLE | {"thresholds": {}, "budgets": []}).decide(x(), budget=16).extrapolated


def test_decide_leaves_the_callers_vector_alone() -> None:
    psi = np.array(x(budget=8.0))
    Router.from_dict(EXAMPLE).decide(psi, budget=4096)
    assert psi[0] == 8.0


def test_a_null_threshold_accepts_nothing() -> None:
    decision = constant({"retain": 0.0, "merge": 1e9}, thresholds={64: math.inf}).decide(x(), budget=64, safe=True)
    assert (decision.action, decision.threshold) == ("retain", math.inf)
    assert "accepted no replacing action at 64 tokens" in decision.reason


def test_only_available_actions_are_weighed() -> None:
    router = constant({"retain": 0.1, "extract": 0.2, "merge": 0.9})
    decision = router.decide(x(), budget=64, available=iter(("retain", "extract", "unknown")))
    assert decision.action == "extract"
    assert set(decision.utilities) == {"retain", "extract"}


def test_escalation_walks_down_the_utilities_and_back_to_retain_by_the_rule() -> None:
    router = constant({"retain": 0.5, "extract": 0.3, "merge": 0.9, "abstract": 0.7})
    tried: list[str] = []
    while len(tried) < 4:
        tried.append(router.decide(x(), budget=64, exclude=tried).action)
    assert tried == ["merge", "abstract", "retain", "extract"]
    with pytest.raises(InputError, match="no action is left"):
        router.decide(x(), budget=64, exclude=tried)


@given(routers(), vectors, st.integers(0, 1024), st.sets(st.sampled_from(ACTIONS)), st.sets(st.sampled_from(ACTIONS)))
def test_the_chosen_action_is_always_available_and_not_excluded(
    router: Router, psi: list[float], budget: int, available: set[str], exclude: set[str]
) -> None:
    assume(available - exclude)
    decision = router.decide(psi, budget=budget, available=available, exclude=exclude)
    assert decision.action in available - exclude
    assert set(decision.utilities) == available - exclude
    if "retain" not in available - exclude:
        assert decision.utilities[decision.action] == max(decision.utilities.values())
    assert math.isfinite(decision.advantage)
    assert decision.reason.startswith(f"{decision.action}: ")
    assert "\n" not in decision.reason


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite_are_an_error(odd: float) -> None:
    with pytest.raises(RouterError, match="similarity"):
        default_router().decide(x(similarity=odd), budget=64)


def test_a_vector_of_the_wrong_length_is_an_error() -> None:
    with pytest.raises(InputError, match="3 features, 11"):
        default_router().decide([1, 2, 3], budget=64)


def test_utilities_that_overflow_are_an_error() -> None:
    router = Router.from_dict(EXAMPLE | {"weights": {a: [1e308, 1e308] for a in EXAMPLE["actions"]}})
    with pytest.raises(RouterError, match="not finite"):
        router.decide(x(budget=1e3, fit=1e3), budget=64)


# What ships


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_is_loaded_once_by_its_name_and_its_file_is_in_saved_form(name: str, tmp_path: Path) -> None:
    router = load_shipped(name)
    assert router is load_shipped(name) is Router.load(name)
    assert router.name == name
    router.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (ROOT / "retcon" / "routers" / f"{name}.json").read_bytes()
    with pytest.raises(RouterError, match="no router 'nope' ships"):
        load_shipped("nope")


@pytest.mark.parametrize(("name", "domains"), [("domains", 5), ("domains-nc", 7)])
def test_one_of_many_domains_says_what_it_stands_on(name: str, domains: int) -> None:
    router = load_shipped(name)
    assert len(router.provenance["domains"]) == domains
    assert ("NC" in router.provenance["license"]) == (name == "domains-nc")
    assert router.provenance["reader"] == "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M-bf16"
    assert set(router.actions) == {"retain", "extract", "merge", "abstract", "hybrid"}
    assert all(set(ranked) == set(router.actions) for ranked in router.fixed.values())
    assert set(router.thresholds) == set(router.fixed) == set(router.budgets) == {32, 64, 128, 256, 512}
    assert sorted(router.prices) == [0.0, 0.25, 0.5, 1.0, 2.0]
    assert router.confidence is not None
    assert set(router.drafts) == {2, 3}


@pytest.mark.parametrize("name", [name for name in SHIPPED if name.startswith(("locomo", "longmemeval"))])
def test_a_learned_one_that_ships_says_what_it_stands_on(name: str) -> None:
    router = load_shipped(name)
    assert router.kind == "learned"
    assert router.actions[0] == "retain"
    assert set(router.actions) == (
        {"retain", "extract"} if "free" in name else {"retain", "extract", "merge", "abstract", "hybrid"}
    )
    assert router.ladder is not None
    assert {action for order in router.ladder.orders for action in order} <= set(router.actions)
    assert ("NC" in router.provenance["license"]) == ("locomo" in name)
    assert router.provenance["dataset"] == ("locomo" if "locomo" in name else "longmemeval-pool")
    assert router.certificate is not None
    for budget, found in router.certificate["budgets"].items():
        assert found["bound"] <= 0.05
        assert router.thresholds[int(budget)] == found["tau"]


@pytest.mark.parametrize(("name", "free"), [("longmemeval", True), ("locomo", False)])
def test_a_learned_one_that_ships_comes_of_the_rows_that_are_published(name: str, free: bool) -> None:
    pytest.importorskip("pyarrow")
    from bench import shipped_routers

    assert shipped_routers.router(name, free=free).to_dict() == load_shipped(f"{name}-free" if free else name).to_dict()


@pytest.mark.parametrize("name", ["domains", "domains-nc"])
def test_one_learned_on_many_domains_comes_of_the_rows_that_are_published(name: str) -> None:
    """All but ladders, drafts and thresholds, which take minutes: `python -m bench.domain_routers` makes the whole."""
    pytest.importorskip("pyarrow")
    from bench.domain_routers import round_confidence
    from bench.travel import LEARNING, OPENED, SERVED, read_waves
    from retcon.lab.domains import rank_actions
    from retcon.lab.fit_aside import learn_aside
    from retcon.lab.fit_price import fit_confidence

    router = load_shipped(name)
    domains = [read_waves(each) for each in (LEARNING if name == "domains" else (*LEARNING, *OPENED))]
    assert router.provenance["domains"] == [each.name for each in domains]
    assert [list(router.fixed[budget]) for budget in domains[0].budgets] == rank_actions(domains)
    assert router.confidence == round_confidence(fit_confidence(domains))
    aside = learn_aside(domains, SERVED)
    assert (router.margin, router.features) == (aside.margin, aside.form.features)


def test_the_default_writes_only_where_a_model_does() -> None:
    assert default_router().name == "evidence-fit"
    assert default_router(writes=True).name == "domains"


@given(st.sampled_from([name for name in SHIPPED if name != "evidence-fit"]), st.data())
def test_where_fit_rules_it_has_the_last_word(name: str, data: st.DataObject) -> None:
    notes = data.draw(st.integers(1, 200))
    fitting = data.draw(st.integers(0, notes))
    budget = data.draw(st.integers(1, 4096))
    seen = x(notes=notes, fit=fitting / notes, budget=budget / 512, temporal=data.draw(st.floats(0, 1)))
    decision = load_shipped(name).decide(seen, budget=budget)
    if fitting == notes:
        assert decision.action == "retain"
        assert decision.order[0] == "retain"
        assert "fits in" in decision.reason or "fit in" in decision.reason
    elif fitting == 0:
        assert decision.action != "retain"
        assert "fits in" in decision.reason or "does not fit" in decision.reason
    elif decision.selected is None:
        assert "predicted" in decision.reason
    else:
        assert decision.selected in decision.reason
    assert sorted(set(decision.order)) == sorted(decision.order)


def test_fit_rules_leave_what_is_excluded_alone() -> None:
    router = dataclasses.replace(constant({"retain": 0.1, "merge": 0.9, "abstract": 0.8}), fit_rules=True)
    whole = x(notes=3, fit=1.0)
    assert router.decide(whole, budget=64).action == "retain"
    assert router.decide(whole, budget=64, exclude=["retain"]).action == "merge"
    assert dataclasses.replace(router, fit_rules=False).decide(whole, budget=64).action == "merge"
    nothing = dataclasses.replace(constant({"retain": 0.9, "merge": 0.1}), fit_rules=True)
    assert nothing.decide(x(notes=3, fit=0.0), budget=64).action == "merge"
    assert nothing.decide(x(notes=3, fit=0.0), budget=64, available=["retain"]).action == "retain"
    assert nothing.decide(x(notes=0, fit=0.0), budget=64).action == "retain"


def test_a_certificate_does_not_hold_where_fit_replaces_although_nothing_qualified() -> None:
    router = dataclasses.replace(
        constant({"retain": 0.5, "merge": 0.1}), thresholds={64: math.inf}, fit_rules=True,
        certificate={"alpha": 0.05, "delta": 0.1, "budgets": {"64": {"tau": None}}},
    )  # fmt: skip
    assert not router.decide(x(notes=3, fit=0.0), budget=64, safe=True).certified
    assert dataclasses.replace(router, fit_rules=False).decide(x(notes=3, fit=0.5), budget=64, safe=True).certified
    assert not dataclasses.replace(router, fit_rules=False).decide(x(notes=3, fit=0.5), budget=64).certified


# The rule


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 4096))
def test_the_rule_retains_iff_everything_fits(notes: int, fitting: int, budget: int) -> None:
    assume(fitting <= notes)
    decision = load_shipped("evidence-fit").decide(x(notes=notes, fit=fitting / notes), budget=budget)
    assert decision.action == ("retain" if fitting == notes else "extract")
    assert decision.reason.endswith("(by rule, not learned)")
    counted = f"only {fitting} of {notes} candidate notes fit in {budget} tokens"
    assert (f"all {notes} candidate notes fit" if fitting == notes else counted) in decision.reason


def test_the_rule_gives_its_reason_in_numbers() -> None:
    rule = load_shipped("evidence-fit")
    assert rule.decide(x(notes=20, fit=0.15), budget=64).reason == (
        "extract: only 3 of 20 candidate notes fit in 64 tokens (15 %), so the sentences that matter "
        "stand for them (by rule, not learned)"
    )
    assert "(99 %)" in rule.decide(x(notes=200, fit=199 / 200), budget=64).reason
    assert "no candidate notes" in rule.decide(x(notes=0, fit=1.0), budget=64).reason


# Fixed actions, and stepping aside


FIXED = {32: ("merge", "extract", "retain"), 128: ("abstract", "merge", "retain")}
LEARNED = {"domains": ["chats", "books", "news"], "reader": "tiny"}
NAMED = {"retain": 0.25, "extract": 0.5, "merge": 0.5, "abstract": 0.625}


@given(routers(), rankings, vectors, st.integers(0, 1024), st.sets(st.sampled_from(ACTIONS), min_size=1))
def test_a_router_without_a_margin_takes_the_first_fixed_action_that_can_be_had(
    router: Router, fixed: dict[int, tuple[str, ...]], psi: list[float], budget: int, available: set[str]
) -> None:
    router = dataclasses.replace(router, fixed=fixed)
    near = min(fixed, key=lambda b: (abs(math.log2(max(budget, 1)) - math.log2(b)), b))
    wanted = [action for action in fixed[near] if action in available]
    assume(wanted and (len(fixed) == 1 or math.log2(max(budget, 1)).is_integer()))
    decision = router.decide(psi, budget=budget, available=available)
    assert decision.action == decision.selected == wanted[0]
    assert decision.threshold is None
    assert not decision.certified
    assert "the router steps aside" in decision.reason or len(available) == 1 or not decision.features["notes"]


@given(routers(), rankings, vectors, st.integers(1, 1024), exact.map(abs), st.sets(st.sampled_from(ACTIONS)))
def test_a_fixed_action_is_left_only_by_more_than_the_margin(
    router: Router, fixed: dict[int, tuple[str, ...]], psi: list[float], budget: int, margin: float, gone: set[str]
) -> None:
    assume(len(gone) < len(ACTIONS))
    router = dataclasses.replace(router, fixed=fixed, margin=margin)
    decision = router.decide(psi, budget=budget, exclude=gone)
    mu, base = decision.utilities, decision.selected
    high = max(mu.values())
    if base is not None and high - mu[base] <= margin:
        assert decision.action == base
    else:
        assert mu[decision.action] == high


@given(rankings, st.integers(1, 5000))
def test_the_nearest_learned_budget_is_nearest_in_its_logarithm_and_of_two_the_smaller(
    fixed: dict[int, tuple[str, ...]], budget: int
) -> None:
    near = constant(NAMED, fixed=fixed).nearest_fixed(budget)
    away = {known: abs(math.log2(budget) - math.log2(known)) for known in fixed}
    assert away[near] == pytest.approx(min(away.values()), abs=1e-12)


def test_between_two_budgets_as_near_the_smaller_one_counts() -> None:
    router = constant(NAMED, fixed=FIXED)
    assert [router.nearest_fixed(budget) for budget in (0, 1, 63, 64, 65, 9999)] == [32, 32, 32, 32, 128, 128]


def test_what_is_not_to_be_had_goes_to_the_next_of_the_list() -> None:
    router = constant(NAMED, fixed=FIXED)
    taken, gone = [], list[str]()
    while len(gone) < 4:
        taken.append(router.decide_next(x(), budget=128, available=(*ACTIONS, "rewrite"), exclude=gone).action)
        gone.append(taken[-1])
    assert taken == ["abstract", "merge", "retain", "extract"]  # then what only the weights know
    assert router.decide_next(x(), budget=128, available=(*ACTIONS, "rewrite"), exclude=gone).action == "rewrite"
    assert router.decide(x(), budget=128, available=("retain", "extract")).action == "retain"


def test_reasons_say_whether_the_router_stepped_aside() -> None:
    router = constant(NAMED, fixed=FIXED, provenance=LEARNED)
    on = "on 3 domains with the reader tiny"
    assert router.decide(x(), budget=128).reason == (f"abstract: selected at 128 tokens {on}; the router steps aside")
    assert router.decide(x(), budget=96, exclude=["abstract"]).reason == (
        f"merge: selected, next after abstract, at 128 tokens (the nearest learned) {on}; the router steps aside"
    )
    assert constant(NAMED, fixed=FIXED).decide(x(), budget=32).reason == (
        "merge: selected at 32 tokens; the router steps aside"
    )


def test_reasons_say_by_how_much_the_fixed_action_was_left_or_not() -> None:
    near, far = (constant(NAMED, fixed=FIXED, margin=margin) for margin in (0.125, 0.0625))
    assert near.decide(x(), budget=32).reason == (
        "merge: selected at 32 tokens; abstract is predicted 0.62 against 0.50, and a lead of 0.12 does not exceed the"
        " margin 0.12"
    )
    assert far.decide(x(), budget=32).reason == (
        "abstract: predicted 0.62 against 0.50 for merge, selected at 32 tokens; the lead of 0.12 exceeds the margin"
        " 0.06"
    )
    assert near.decide(x(), budget=128).reason == "abstract: selected at 128 tokens, and predicted the highest too"


def test_safe_asks_the_advantage_of_the_fixed_replacing_action_to_reach_the_threshold() -> None:
    router = constant(NAMED, fixed=FIXED, thresholds={32: 0.25, 128: 0.5})
    held, kept = (router.decide(x(), budget=budget, safe=True) for budget in (32, 128))
    assert (held.action, held.advantage, held.threshold, held.selected) == ("merge", 0.25, 0.25, None)
    assert (kept.action, kept.advantage, kept.threshold) == ("retain", 0.375, 0.5)
    assert router.decide(x(), budget=128).action == "abstract"


def test_fit_rules_come_before_the_fixed_action() -> None:
    router = constant(NAMED, fixed={64: ("retain", "merge")}, fit_rules=True)
    assert router.decide(x(notes=3, fit=0.5), budget=64).action == "retain"
    assert router.decide(x(notes=3, fit=0.0), budget=64).action == "merge"
    all_fit = constant(NAMED, fixed={64: ("merge",)}, fit_rules=True).decide(x(notes=3, fit=1.0), budget=64)
    assert (all_fit.action, all_fit.selected) == ("retain", None)


# Reasons


def test_learned_reasons_carry_the_numbers_of_the_comparison() -> None:
    utilities = {"retain": 0.3125, "merge": 0.46875}
    decided = constant(utilities, thresholds={64: 0.08}).decide(x(), budget=64, safe=True)
    assert decided.reason == (
        "merge: predicted 0.47 against 0.31 for retain, advantage 0.16 is at least the threshold 0.08 at 64 tokens"
    )
    kept = constant(utilities, thresholds={64: 0.16}).decide(x(), budget=64, safe=True)
    assert kept.reason == (
        "retain: predicted 0.31 against 0.47 for merge, advantage 0.156 is below the threshold 0.160 at 64 tokens"
    )
    direct = constant(utilities).decide(x(), budget=64)
    assert direct.reason == "merge: predicted 0.47 against 0.31 for retain at 64 tokens, and the higher wins"


def test_reasons_say_when_retain_is_out_or_nothing_else_is_left() -> None:
    router = constant({"retain": 0.5, "extract": 0.3, "merge": 0.4})
    assert "retain is out" in router.decide(x(), budget=64, exclude=("retain",)).reason
    assert "only action left" in router.decide(x(), budget=64, exclude=("retain", "merge")).reason
    assert "only action left" in router.decide(x(), budget=64, available=("retain",)).reason


@pytest.mark.parametrize("sentence", ["$secret", "cost $", "two\nlines", "${notes", 7])
def test_own_reasons_may_only_use_known_names(sentence: Any) -> None:
    with pytest.raises(RouterError, match="reason for merge"):
        Router.from_dict(EXAMPLE | {"reasons": {"merge": sentence}})


# Files


@given(routers() | travellers())
def test_save_and_load_give_the_same_router_and_the_same_bytes(tmp_path_factory: Any, router: Router) -> None:
    folder = tmp_path_factory.mktemp("routers")
    router.save(folder / "a.json")
    again = Router.load(folder / "a.json")
    again.save(folder / "b.json")
    assert again == router == Router.load(router.to_dict()) == pickle.loads(pickle.dumps(router))
    raw = (folder / "a.json").read_bytes()
    assert raw == (folder / "b.json").read_bytes()
    assert raw.endswith(b"}\n")
    assert b"\r" not in raw


def test_saved_bytes_do_not_depend_on_the_order_of_keys(tmp_path: Path) -> None:
    backwards = {key: EXAMPLE[key] for key in reversed(EXAMPLE)}
    backwards["weights"] = dict(reversed(EXAMPLE["weights"].items()))
    Router.load(EXAMPLE).save(tmp_path / "a.json")
    Router.load(backwards).save(str(tmp_path / "b.json"))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["thresholds"] == {"32": 0.02, "64": 0.08, "128": None}


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"format": 2}, "format"),
    ({"format": True}, "format"),
    ({"name": ""}, "name"),
    ({"name": "two\nlines"}, "name"),
    ({"kind": "magic"}, "kind"),
    ({"actions": ["extract", "retain", "merge"]}, "first action must be retain"),
    ({"actions": ["extract", "merge"]}, "first action must be retain"),
    ({"actions": []}, "first action must be retain"),
    ({"actions": ["retain", "merge", "merge"]}, "distinct"),
    ({"actions": ["retain", ["merge"]]}, "actions"),
    ({"actions": 5}, "shape"),
    ({"features": ["budget", "gold"]}, "unknown features gold"),
    ({"features": ["fit", "fit"]}, "twice"),
    ({"features": ["fit"]}, "2 weights of retain, 1 features"),
    ({"weights": {"retain": [0, 0], "extract": [0, 0]}}, "weights are for"),
    ({"weights": EXAMPLE["weights"] | {"other": [0, 0]}}, "weights are for"),
    ({"weights": EXAMPLE["weights"] | {"merge": [0]}}, "1 weights of merge"),
    ({"weights": EXAMPLE["weights"] | {"merge": [0, "1"]}}, "not a number"),
    ({"weights": EXAMPLE["weights"] | {"merge": [0, True]}}, "not a number"),
    ({"weights": EXAMPLE["weights"] | {"merge": [0, math.nan]}}, "not finite"),
    ({"weights": EXAMPLE["weights"] | {"merge": [0, 10**400]}}, "shape"),
    ({"weights": []}, "shape"),
    ({"intercepts": {"retain": 0, "extract": 0}}, "intercepts are for"),
    ({"intercepts": EXAMPLE["intercepts"] | {"merge": math.inf}}, "not finite"),
    ({"intercepts": EXAMPLE["intercepts"] | {"merge": None}}, "not a number"),
    ({"thresholds": {"64": math.nan}}, "thresholds"),
    ({"thresholds": {"64": -math.inf}}, "thresholds"),
    ({"thresholds": {"064": 0.1}}, "not a budget"),
    ({"thresholds": {"-1": 0.1}}, "budgets"),
    ({"thresholds": {"6.4": 0.1}}, "shape"),
    ({"thresholds": {"9" * 5000: 0.1}}, "not a budget"),
    ({"thresholds": [0.1]}, "shape"),
    ({"thresholds": None}, "shape"),
    ({"fixed": {"64": ["merge", "rewrite"]}}, "fixed actions at 64 tokens must be distinct names out of retain"),
    ({"fixed": {"64": ["merge", "merge"]}}, "distinct"),
    ({"fixed": {"64": []}}, "fixed actions at 64"),
    ({"fixed": {"0": ["merge"]}}, "budgets of 1 or more"),
    ({"fixed": {"64": "merge"}}, "not a list"),
    ({"fixed": ["merge"]}, "shape"),
    ({"margin": 0.1}, "a margin is a finite number from 0 on, and needs fixed actions"),
    ({"fixed": {"64": ["merge"]}, "margin": -0.1}, "margin"),
    ({"fixed": {"64": ["merge"]}, "margin": math.inf}, "margin"),
    ({"fixed": {"64": ["merge"]}, "margin": "wide"}, "not a number"),
    ({"tresholds": {"64": 0.1}}, "unknown entries: tresholds"),
    ({"a\nb": 1}, "unknown entries"),
    ({"features": ["budget", "a\nb"]}, "unknown features"),
    ({"budgets": [1.5]}, "not a budget"),
    ({"budgets": [True]}, "not a budget"),
    ({"embedder": 3}, "embedder"),
    ({"reasons": {"rewrite": "because"}}, "no action"),
    ({"provenance": 3}, "shape"),
]


@pytest.mark.parametrize(("change", "said"), MALFORMED)
def test_a_malformed_router_is_one_clear_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RouterError, match=said) as caught:
        Router.from_dict(copy.deepcopy(EXAMPLE) | change)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("key", ["format", "name", "actions", "features", "weights", "intercepts"])
def test_a_router_without_a_needed_entry_says_which(key: str) -> None:
    with pytest.raises(RouterError, match=f"lacks {key}"):
        Router.from_dict({name: value for name, value in EXAMPLE.items() if name != key})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps(EXAMPLE).replace("0.25", "NaN").encode(),
        json.dumps(EXAMPLE).replace("0.25", "-Infinity").encode(),
        json.dumps(EXAMPLE).replace("0.25", "1e999").encode(),
        json.dumps(EXAMPLE).replace("0.25", "9" * 5000).encode(),
        json.dumps(EXAMPLE).encode() + b" " * LARGEST_FILE,
    ],
    ids=lambda raw: repr(raw[:12]),
)
def test_a_file_that_is_no_router_is_one_clear_line(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "r.json").write_bytes(raw)
    with pytest.raises(RouterError) as caught:
        Router.load(tmp_path / "r.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path, "a\0b"):
        with pytest.raises(RouterError, match="cannot be read"):
            Router.load(path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(EXAMPLE)) | st.text(), inner),
    ),
    st.sampled_from(sorted(EXAMPLE)),
)
def test_any_json_is_a_router_or_a_router_error(value: Any, key: str) -> None:
    said = ""
    try:
        Router.from_dict(copy.deepcopy(EXAMPLE) | {key: value})
    except RouterError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1


def test_provenance_that_is_no_json_cannot_be_saved(tmp_path: Path) -> None:
    for bad in (math.nan, object()):
        router = Router.from_dict(EXAMPLE | {"provenance": {"x": bad}})
        with pytest.raises(RouterError, match="not plain JSON"):
            router.save(tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()
