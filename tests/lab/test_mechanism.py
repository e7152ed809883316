"""The surrogate against naive loops over queries, the paper's propositions as properties, and the verb."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from retcon.cli.run import Group
from retcon.errors import InputError
from retcon.lab.cli.mechanism import EXAMPLES, mechanism
from retcon.lab.mechanism import (
    BUDGETS,
    Growth,
    Operator,
    Population,
    Swap,
    crossings,
    decompose,
    example,
    joint,
    localize,
    pack,
    plug_in,
    retention,
    swap,
    sweep,
)
from retcon.note import Cluster, Hit, Note
from retcon.pack import retain
from retcon.tokens import counter

ROOT = Path(__file__).resolve().parents[2]
CLOSE = 1e-12

phis = st.floats(-1, 1, allow_subnormal=False)
shares = st.floats(0, 1, allow_subnormal=False)
eighths = st.integers(-8, 8).map(lambda k: k / 8)  # exact in binary, and equal often enough to tie


def rows(cells: st.SearchStrategy[Any], n: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(cells, min_size=n, max_size=n)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """What `localize` takes: some weights are 0, J is any part of H & G, and retention is silent on X."""
    n = draw(st.integers(1, 12))
    counts = draw(rows(st.integers(0, 5), n).filter(any))
    g, h, j = (draw(rows(st.booleans(), n)) for _ in range(3))
    raw, record = draw(rows(phis, n)), draw(rows(phis, n))
    return {
        "F": [count / sum(counts) for count in counts],
        "G": g,
        "H": h,
        "J": [all(three) for three in zip(g, h, j, strict=True)],
        "before": [0.0 if h[q] and not g[q] else raw[q] for q in range(n)],
        "record": record,
    }


@st.composite
def populations(draw: st.DrawFn) -> Population:
    notes, queries = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    curve = st.builds(Growth, shares, shares, st.floats(1, 200))
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
    return Population(
        costs=np.array(draw(rows(st.integers(1, 40), notes))),
        clusters=np.array(draw(rows(st.integers(0, 2), notes))),
        phi=np.array(draw(rows(rows(st.sampled_from((-1.0, -0.25, 0.0, 0.0, 0.5, 1.0)), queries), notes))),
        F=np.full(queries, 1 / queries),
        turn=np.array(draw(rows(shares, queries))),
        detail=np.array(draw(rows(shares, queries))),
        operators=tuple(Operator(name, draw(curve), draw(curve), draw(st.floats(0, 2))) for name in names),
    )


def expectation(weights: Any, values: Any) -> float:
    return math.fsum(w * v for w, v in zip(weights, values, strict=True))


# -- the decomposition -------------------------------------------------------------------------------------------------


@given(worlds())
def test_gain_is_coverage_plus_replacement_where_retrieval_changes_locally(world: dict[str, Any]) -> None:
    made = localize(**world)
    found = decompose(made)
    total = expectation(made.F, made.after) - expectation(made.F, made.before)
    assert found.gain == pytest.approx(total, abs=CLOSE)
    assert found.coverage.value + found.replacement.value == pytest.approx(total, abs=CLOSE)


@given(worlds())
def test_no_spillover_at_all_where_retrieval_changes_locally(world: dict[str, Any]) -> None:
    made = localize(**world)
    assert made.localized
    assert decompose(made).spillover == 0  # exactly


@given(worlds())
def test_terms_equal_the_equations_query_by_query(world: dict[str, Any]) -> None:
    weights, g, h, j, before, record = (world[name] for name in ("F", "G", "H", "J", "before", "record"))
    every = range(len(weights))
    x = [q for q in every if h[q] and not g[q]]
    jay = [q for q in every if j[q]]
    found = decompose(localize(**world))
    assert found.coverage.probability == pytest.approx(math.fsum(weights[q] for q in x), abs=CLOSE)
    assert found.coverage.value == pytest.approx(math.fsum(weights[q] * record[q] for q in x), abs=CLOSE)
    assert found.replacement.probability == pytest.approx(math.fsum(weights[q] for q in jay), abs=CLOSE)
    change = math.fsum(weights[q] * (record[q] - before[q]) for q in jay)
    assert found.replacement.value == pytest.approx(change, abs=CLOSE)


@given(worlds(), st.data())
def test_spillover_is_what_was_planted_wherever_it_was_planted(world: dict[str, Any], data: st.DataObject) -> None:
    sound = localize(**world)
    after = np.where(data.draw(rows(st.booleans(), len(sound.F))), data.draw(rows(phis, len(sound.F))), sound.after)
    planted = after - sound.after
    broken = Swap(**world, after=after)
    found, expected = decompose(broken), decompose(sound)
    assert broken.residual == pytest.approx(planted, abs=CLOSE)
    assert found.spillover == pytest.approx(expectation(sound.F, planted), abs=CLOSE)
    assert (found.coverage, found.replacement) == (expected.coverage, expected.replacement)
    total = found.coverage.value + found.replacement.value + found.spillover
    assert found.gain == pytest.approx(total, abs=CLOSE)
    assert broken.localized or planted.any()


def test_spillover_that_cancels_is_still_seen() -> None:
    both: dict[str, Any] = {"F": [0.5, 0.5], "G": [True, True], "H": [False, False], "J": [False, False]}
    made = Swap(**both, before=np.full(2, 0.5), record=np.zeros(2), after=np.array([1.0, 0.0]))
    assert decompose(made).spillover == 0
    assert not made.localized


def test_another_note_that_already_spoke_on_x_shows_as_spillover() -> None:
    one: dict[str, Any] = {"F": [1.0], "G": [False], "H": [True], "J": [False], "before": [0.25], "record": [0.75]}
    found = decompose(Swap(**one, after=np.array([0.75])))
    assert (found.coverage.value, found.spillover, found.gain) == (0.75, -0.25, 0.5)
    with pytest.raises(InputError, match=r"query 0 has 0\.25"):
        localize(**one)


@given(worlds())
def test_terms_are_zero_where_their_region_has_no_weight(world: dict[str, Any]) -> None:
    quiet = [not (h and not g) and not j for g, h, j in zip(world["G"], world["H"], world["J"], strict=True)]
    assume(any(quiet))
    weights = [float(free) / sum(quiet) for free in quiet]
    found = decompose(localize(**(world | {"F": weights})))
    for term in (found.coverage, found.replacement):
        assert (term.probability, term.mean, term.value) == (0, 0, 0)
    assert found.gain == 0


@given(worlds())
def test_coverage_is_positive_where_the_record_is_right_on_average(world: dict[str, Any]) -> None:
    term = decompose(
        localize(**(world | {"record": [abs(phi) + 0.01 for phi in np.array(world["record"]) * 0.9]}))
    ).coverage
    assert (term.value > 0) == (term.probability > 0)
    term = decompose(localize(**(world | {"record": [-1.0] * len(world["F"])}))).coverage
    assert (term.value < 0) == (term.probability > 0)


@given(worlds())
def test_replacement_never_helps_where_the_record_is_no_more_faithful(world: dict[str, Any]) -> None:
    worse = np.minimum(world["record"], world["before"])
    assert decompose(localize(**(world | {"record": worse}))).replacement.value <= 0


def test_a_worked_example_by_hand() -> None:
    made = localize(
        F=[0.25, 0.25, 0.25, 0.25],
        G=[False, True, True, False],
        H=[True, True, False, False],
        J=[False, True, False, False],
        before=[0.0, 1.0, 0.5, 0.0],
        record=[0.75, 0.5, 0.0, 0.0],
    )
    found = decompose(made)
    assert made.X.tolist() == [True, False, False, False]
    assert made.after.tolist() == [0.75, 0.5, 0.5, 0.0]
    assert (found.coverage.probability, found.coverage.mean, found.coverage.value) == (0.25, 0.75, 0.1875)
    assert (found.replacement.probability, found.replacement.mean, found.replacement.value) == (0.25, -0.5, -0.125)
    assert found.gain == 0.0625


def test_what_was_handed_in_cannot_change_a_swap() -> None:
    before = np.array([1.0])
    made = localize(F=[1.0], G=[True], H=[True], J=[True], before=before, record=[0.5])
    before[0] = -1
    assert decompose(made).gain == -0.5
    with pytest.raises(ValueError, match="read-only"):
        made.before[0] = 0


# -- when and which ----------------------------------------------------------------------------------------------------


@given(st.lists(rows(eighths, 3), min_size=1, max_size=6))
def test_joint_rule_is_the_argmax_with_ties_to_retention_then_to_the_first(gains: list[list[float]]) -> None:
    found = joint(gains)
    for row, action, advantage in zip(gains, found.action, found.advantage, strict=True):
        values = [0.0, *row]
        assert action == values.index(max(values))  # index() finds the first, and retention stands first
        assert advantage == max(row)


def test_joint_rule_takes_one_row_or_any_stack_of_rows() -> None:
    assert int(joint([-1.0, 0.0]).action) == 0
    assert int(joint([0.5, 0.5]).action) == 1
    assert joint(np.ones((2, 3, 4))).action.shape == (2, 3)


@given(st.integers(1, 5).flatmap(lambda n: st.tuples(rows(eighths, n), rows(eighths, n))))
def test_regret_never_exceeds_twice_the_largest_error(pair: tuple[list[float], list[float]]) -> None:
    predicted, true = pair
    found = plug_in(predicted, true)
    chosen = predicted.index(max(predicted))
    error = max(abs(Fraction(p) - Fraction(t)) for p, t in zip(predicted, true, strict=True))
    assert found.chosen == chosen
    assert found.regret == max(true) - true[chosen]
    assert found.epsilon == error
    assert 0 <= found.regret <= found.bound == 2 * error  # eighths: no rounding to forgive


def test_the_bound_is_reached_by_two_errors_that_just_hide_the_better_action() -> None:
    found = plug_in([[0.625, 0.625], [0.25, 0.375]], [[0.5, 0.75], [0.25, 0.375]])
    assert found.chosen.tolist() == [0, 1]
    assert found.best.tolist() == [1, 1]
    assert found.regret.tolist() == found.bound.tolist() == [0.25, 0.0]


# -- packing, and the raw-grounded region ------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 120))
def test_packing_is_that_of_retention_cheapest_first(costs: list[int], budget: int) -> None:
    notes = [Note(f"n{i}", " ".join(["word"] * cost)) for i, cost in enumerate(costs)]
    cluster = Cluster("q", tuple(Hit(note, 1.0, i) for i, note in enumerate(notes, 1)))
    kept = retain(cluster, budget, count=counter("alphanumeric"), order="cheapest", accounting="text")
    assert [note.id for note, fits in zip(notes, pack(costs, budget), strict=True) if fits] == [
        s.id for s in kept.sources
    ]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(-2, 2)), min_size=1, max_size=12), st.integers(1, 90))
def test_each_cluster_is_packed_on_its_own(notes: list[tuple[int, int]], budget: int) -> None:
    costs, clusters = (np.array(column) for column in zip(*notes, strict=True))
    together = pack(costs, budget, clusters)
    for cluster in set(clusters.tolist()):
        assert (together[clusters == cluster] == pack(costs[clusters == cluster], budget)).all()


@given(populations(), st.integers(1, 250), st.integers(1, 250))
def test_grounded_region_only_grows_with_the_budget(population: Population, one: int, other: int) -> None:
    small, large = (retention(population, budget).G for budget in sorted((one, other)))
    assert not (small & ~large).any()


@given(populations(), st.integers(1, 250))
def test_retention_contributes_the_best_ranked_packed_note_that_applies(population: Population, budget: int) -> None:
    fits, found = pack(population.costs, budget, population.clusters), retention(population, budget)
    for q in range(len(population.F)):
        applicable = [phi for phi, inside in zip(population.phi[:, q], fits, strict=True) if inside and phi != 0]
        assert found.G[q] == bool(applicable)
        assert found.contribution[q] == (applicable[0] if applicable else 0)


# -- sweeps ------------------------------------------------------------------------------------------------------------


@given(populations())
def test_sweep_agrees_with_each_swap_and_adds_up(population: Population) -> None:
    found = sweep(population, (1, 7, 40, 240))
    assert not found.spillover.any()
    assert found.gain == pytest.approx(found.coverage + found.replacement, abs=CLOSE)
    for b, budget in enumerate(found.budgets):
        for o, operator in enumerate(population.operators):
            one = decompose(swap(population, operator, budget))
            assert (found.gain[b, o], found.coverage[b, o]) == (one.gain, one.coverage.value)


@given(populations(), st.integers(1, 250))
def test_eviction_spills_exactly_what_the_record_does_not_hold(population: Population, budget: int) -> None:
    for operator in population.operators:
        kept, gone = swap(population, operator, budget), swap(population, operator, budget, evict=True)
        lost = np.where(kept.H, 0.0, kept.before)
        found, sound = decompose(gone), decompose(kept)
        assert found.spillover == pytest.approx(-expectation(population.F, lost), abs=CLOSE)
        assert (found.coverage, found.replacement) == (sound.coverage, sound.replacement)


@given(populations())
def test_no_coverage_is_left_once_every_query_is_grounded(population: Population) -> None:
    assume((population.phi != 0).any(axis=0).all())
    found = sweep(population, (int(population.costs.sum()),))
    assert found.grounded.tolist() == [pytest.approx(1)]
    assert not found.coverage.any()


def test_every_action_wins_somewhere_in_the_built_in_population() -> None:
    found = sweep(example())
    assert set(found.actions) == {"retain", *found.operators}
    assert found.actions[-1] == "retain"
    assert all(len(found.crossings(name)) == 1 for name in found.operators)
    assert (np.diff(found.grounded) > 0).all()


def test_spillover_changes_the_decision_in_the_built_in_population() -> None:
    kept, gone = sweep(example()), sweep(example(), evict=True)
    assert (gone.gain <= kept.gain).all()
    assert gone.actions != kept.actions
    assert np.array_equal(gone.coverage, kept.coverage)


def test_crossings_lie_on_straight_lines_of_the_log_axis() -> None:
    assert crossings((16, 64), (1.0, -1.0)) == (32,)
    assert crossings((16, 32, 64), (1.0, 0.0, -1.0)) == (32,)  # a gain of 0 is no gain: the turn is there, once
    assert crossings((16, 32, 64), (0.0, 1.0, 0.5)) == (16,)
    assert crossings((2, 8, 32), (-1.0, 1.0, -1.0)) == (4, 16)
    assert crossings((16, 32), (1.0, 2.0)) == crossings((16, 32), (-1.0, 0.0)) == crossings((16,), (1.0,)) == ()


@given(shares, shares, st.floats(1, 500))
def test_curve_starts_low_ends_high_and_is_half_way_at_half(low: float, high: float, half: float) -> None:
    curve = Growth(low, high, half)
    assert curve(0) == low
    assert curve(half) == pytest.approx((low + high) / 2)
    assert curve(1e18) == pytest.approx(high)


# -- bad input ---------------------------------------------------------------------------------------------------------

FINE: dict[str, Any] = {
    "F": [0.5, 0.5],
    "G": [True, False],
    "H": [True, True],
    "J": [True, False],
    "before": [1, 0],
    "record": [0.5, 0.5],
}
ONE: dict[str, Any] = {"costs": [5], "clusters": [0], "phi": [[1.0]], "F": [1.0], "turn": [0.5], "detail": [0.5]}
FLAT = Growth(0.5, 0.5, 1)
SOME = Operator("merge", FLAT, FLAT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"record": [1.5, 0]}, r"fidelity 'record' must lie in \[-1, 1\], not 1\.5"),
        ({"before": [-1.25, 0]}, r"fidelity 'before' must lie in \[-1, 1\], not -1\.25"),
        ({"record": [math.nan, 0]}, "finite"),
        ({"record": ["much", "little"]}, "must be numbers"),
        ({"record": [0.5]}, r"shape \(1,\), \(2,\) is needed"),
        ({"F": [1.5, -0.5]}, r"0 or more, not -0\.5"),
        ({"F": [0.5, 0.4]}, r"add up to 1, not 0\.9"),
        ({"F": [0, 0]}, "add up to 1, not 0"),
        ({"F": []}, "one or more"),
        ({"F": [[0.5, 0.5]]}, "one row"),
        ({"J": [True, True]}, "J must lie inside H and G: query 1 does not"),
        ({"J": [1, 0]}, "J must be true or false for each of 2 queries"),
        ({"G": [True]}, "G must be true or false"),
        ({"H": [[True], [True, False]]}, "H must be true or false"),
        ({"G": [False, False], "J": [False, False]}, "retention must contribute 0"),
    ],
)
def test_bad_swap_is_one_clear_line(change: dict[str, Any], said: str) -> None:
    assert decompose(localize(**FINE)).gain == 0
    with pytest.raises(InputError, match=said) as caught:
        localize(**(FINE | change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Population(**(ONE | {"costs": [0]}), operators=(SOME,)), "1 or more for each note"),
        (lambda: Population(**(ONE | {"costs": [2.5]}), operators=(SOME,)), "whole tokens"),
        (lambda: Population(**(ONE | {"clusters": [0, 1]}), operators=(SOME,)), "for each of 1 notes"),
        (lambda: Population(**(ONE | {"phi": [[2.0]]}), operators=(SOME,)), r"'phi' must lie in \[-1, 1\], not 2"),
        (lambda: Population(**(ONE | {"turn": [1.5]}), operators=(SOME,)), r"turn must lie in \[0, 1\], not 1\.5"),
        (lambda: Population(**ONE, operators=()), "at least one: none given"),
        (lambda: Population(**ONE, operators=(SOME, SOME)), "names of their own, at least one: merge, merge"),
        (lambda: Operator("retain", FLAT, FLAT), "cannot be called retain"),
        (lambda: Operator("merge", Growth(0, 1.5, 1), FLAT), r"coverage of merge must lie in \[0, 1\], not 1\.5"),
        (lambda: Operator("merge", FLAT, Growth(-2, 1, 1)), r"fidelity of merge must lie in \[-1, 1\], not -2"),
        (lambda: Growth(0, 1, 0), "half-way budget above 0"),
        (lambda: example(notes=0), "1 or more of each"),
        (lambda: sweep(example(), ()), "none given"),
        (lambda: sweep(example(), (32, 16)), "must rise, and be at least one: 32, 16"),
        (lambda: sweep(example(), (0,)), "1 token or more, and below 2\\*\\*53, not 0"),
        (lambda: sweep(example(), (1.5,)), "whole tokens, not 1.5"),  # type: ignore[arg-type]
        (lambda: sweep(example()).crossings("prune"), "unknown operator 'prune': known are merge"),
        (lambda: crossings((1, 2), (1.0,)), "1 gains for 2 budgets"),
        (lambda: joint([]), "one or more"),
        (lambda: joint([math.inf]), "finite"),
        (lambda: plug_in([0.5], [0.5, 0.5]), r"shape \(1,\), true ones \(2,\)"),
    ],
)
def test_bad_population_budget_or_utility_is_one_clear_line(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


# -- the verb ----------------------------------------------------------------------------------------------------------

app = typer.Typer(cls=Group, name="retcon", rich_markup_mode=None, pretty_exceptions_enable=False)
app.callback()(lambda: None)
app.command()(mechanism)


def fine(*args: str) -> str:
    result = CliRunner().invoke(app, ["mechanism", *args])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def bad(*args: str) -> str:
    result = CliRunner().invoke(app, ["mechanism", *args])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("retcon: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_table_has_a_row_for_every_operator_and_budget() -> None:
    told = fine()
    found = sweep(example())
    lines = told.splitlines()
    assert lines[0].split() == ["budget", "raw", "fits", "operator", "coverage", "replacement", "gain", "action"]
    body = lines[2 : 2 + len(BUDGETS) * len(found.operators)]
    firsts = body[:: len(found.operators)]
    assert [int(line.split()[0]) for line in firsts] == list(BUDGETS)
    assert [line.split()[-1] for line in firsts] == list(found.actions)
    gains = [float(re.findall(r"[+-]\d\.\d{3}", line)[-1]) for line in body]
    assert gains == pytest.approx(found.gain.ravel().tolist(), abs=0.0005)
    assert told.count("gain turns to loss at") == len(found.operators)


def test_the_page_shows_what_the_code_and_the_verb_give() -> None:
    page = (ROOT / "docs" / "mechanism.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    *body, last = code.strip().splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join(body), scope)
    shown, promised = last.split("  # ")
    assert eval(shown, scope) == eval(promised)
    ((command, transcript),) = re.findall(r"```\n\$ retcon mechanism (.*?)\n(.*?)```", page, re.DOTALL)
    assert fine(*command.split()).startswith(transcript)
    gone = sweep(example(), evict=True)
    assert sweep(example()).actions[3:5] == ("rewrite", "rewrite")
    assert gone.actions[3:5] == ("retain", "retain")
    assert gone.gain[3:5, 2].round(1).tolist() == [-0.3, -0.3]


def test_json_holds_the_sweep() -> None:
    document = json.loads(fine("--json", "--budgets", "64, 16,16,512"))
    found = sweep(example(), (16, 64, 512))
    assert (document["budgets"], document["actions"]) == ([16, 64, 512], list(found.actions))
    assert document["operators"]["merge"]["gain"] == found.gain[:, 0].tolist()
    assert document["operators"]["merge"]["spillover"] == [0, 0, 0]
    assert 100 < document["operators"]["merge"]["crossovers"][0] < 150
    assert (document["evict"], document["out"]) == (False, None)


def test_eviction_shows_the_spillover() -> None:
    assert "spillover" not in fine()
    assert "spillover" in fine("--evict")
    assert min(json.loads(fine("--evict", "--json"))["operators"]["merge"]["spillover"]) < 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--budgets", "16,many"), "whole numbers with commas"),
        (("--budgets", ""), "whole numbers with commas"),
        (("--budgets", "0,16"), "from 1 to"),
        (("--budgets", "16,99999999"), "from 1 to"),
        (("--out", "plot.pdf"), "ends in .svg or .png, not 'plot.pdf'"),
        (("--out", "plot.svg", "--budgets", "64"), "two budgets or more"),
    ],
)
def test_bad_use_is_one_line(args: tuple[str, ...], said: str) -> None:
    assert said in bad(*args)


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for line in EXAMPLES:
        assert fine(*line.split()[2:])
    assert [path.name for path in tmp_path.iterdir()] == ["mechanism.svg"]


def test_svg_is_the_same_bytes_in_every_process_and_holds_no_date(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fine("--out", str(tmp_path / "here.svg"))
    code = "import sys; from retcon.lab.cli.mechanism import mechanism; mechanism(out=sys.argv[1])"
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    there = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "there.svg")]
    subprocess.run(there, env=env, check=True, capture_output=True, timeout=300)
    drawn = (tmp_path / "here.svg").read_bytes()
    assert drawn == (tmp_path / "there.svg").read_bytes()
    assert b"<dc:date>" not in drawn


def test_png_is_drawn_with_and_without_spillover(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    fine("--out", str(tmp_path / "kept.PNG"), "--budgets", "16,64,256")
    fine("--out", str(tmp_path / "gone.PNG"), "--budgets", "16,64,256", "--evict")
    kept, gone = ((tmp_path / name).read_bytes() for name in ("kept.PNG", "gone.PNG"))
    assert kept.startswith(b"\x89PNG")
    assert kept != gone


def test_missing_matplotlib_is_one_line_that_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'retcon-memory[lab]'" in bad("--out", str(tmp_path / "plot.svg"))
    assert not list(tmp_path.iterdir())
    assert fine("--json")


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "No such file" in bad("--out", str(tmp_path / "nowhere" / "plot.svg"))
