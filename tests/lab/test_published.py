"""The paper's numbers: cells typed here a second time, and what they must add up to."""

from __future__ import annotations

from typing import Any

import pytest

from retcon.lab.report.cells import bracket, chance, change, number
from retcon.lab.report.published import TABLES, Published, published_rows

HALF = 0.0005  # printed to three decimals
LABELS = (
    "operatorstats", "locomostats", "crossmodel", "retrieved", "pertype", "routerbaselines", "budgetpressure",
    "operatorpairwise", "mechanismfit", "unified", "mlpcapacity", "routeAgate",
)  # fmt: skip
(
    OPERATORSTATS, LOCOMOSTATS, CROSSMODEL, RETRIEVED, PERTYPE, ROUTERBASELINES, BUDGETPRESSURE, OPERATORPAIRWISE,
    MECHANISMFIT, UNIFIED, MLPCAPACITY, ROUTE_A_GATE,
) = (TABLES[label] for label in LABELS)  # fmt: skip


def row(table: Published, **only: Any) -> Any:
    (found,) = [row for row in table.rows if all(row[name] == value for name, value in only.items())]
    return found


def near(one: float, two: float, *, roundings: int = 2) -> bool:
    return abs(one - two) <= roundings * HALF + 1e-9


def test_the_twelve_tables_are_here_under_their_labels() -> None:
    assert tuple(TABLES) == LABELS
    assert [len(table.rows) for table in TABLES.values()] == [12, 12, 8, 4, 15, 24, 4, 12, 12, 8, 4, 32]
    assert {label for label, table in TABLES.items() if table.setting == "full-history"} == {"retrieved", "routeAgate"}
    assert {label for label, table in TABLES.items() if table.dataset == "locomo"} == {"locomostats"}


def test_cells_are_those_of_the_paper() -> None:
    merge = row(OPERATORSTATS, operator="merge", budget=128)
    assert (merge["gain"], merge["low"], merge["high"], merge["p"]) == (0.080, -0.036, 0.196, 0.108)
    assert row(OPERATORSTATS, operator="rewrite", budget=32)["p"] == "<.001"
    assert row(LOCOMOSTATS, operator="merge", budget=32) == {
        "budget": 32, "operator": "merge", "gain": 0.253, "low": 0.120, "high": 0.387, "helped": 24, "harmed": 5,
    }  # fmt: skip
    assert row(CROSSMODEL, model="GLM-5.2", budget=256)["abstract"] == 0.560
    assert row(RETRIEVED, budget=64)["oracle"] == 0.507
    assert row(PERTYPE, type="Knowledge-update", operator="merge")["harmed"] == 10.3
    assert row(ROUTERBASELINES, policy="Evidence-fit rule", budget=128)["accuracy"] == 0.681
    assert row(BUDGETPRESSURE, budget=128)["regime"] == "Transition"
    assert row(OPERATORPAIRWISE, budget=64, first="abstract", second="rewrite")["high"] == 0.240
    assert row(MECHANISMFIT, operator="merge", budget=256, fit="incomplete")["gain"] == 0.152
    assert row(UNIFIED, policy="Calibrated", budget=256)["low"] == -0.009
    assert row(MLPCAPACITY, budget=256)["difference"] == -0.037
    assert row(ROUTE_A_GATE, policy="Frozen safe router", budget=64)["harms"] == 2


@pytest.mark.parametrize("table", [CROSSMODEL, RETRIEVED], ids=lambda table: table.label)
def test_a_gain_is_abstract_minus_retention(table: Published) -> None:
    for each in table.rows:
        assert near(each["gain"], each["abstract"] - each["retention"], roundings=3), each


@pytest.mark.parametrize(
    "rows",
    [LOCOMOSTATS.rows, RETRIEVED.rows, [each for each in CROSSMODEL.rows if each["model"] == "GLM-5.2"]],
    ids=["locomostats", "retrieved", "GLM-5.2"],
)
def test_of_one_realization_a_gain_is_helped_minus_harmed_over_75_questions(rows: Any) -> None:
    for each in rows:
        assert near(each["gain"], (each["helped"] - each["harmed"]) / 75, roundings=1), each


def test_the_binary_oracle_is_abstract_plus_what_it_harmed() -> None:
    for each in RETRIEVED.rows:
        assert near(each["oracle"], each["abstract"] + each["harmed"] / 75), each


def test_a_macro_is_the_mean_of_four_budgets() -> None:
    for policy in {each["policy"] for each in ROUTE_A_GATE.rows}:
        some = [each for each in ROUTE_A_GATE.rows if each["policy"] == policy]
        assert len(some) == 4
        assert near(some[0]["macro"], sum(each["accuracy"] for each in some) / 4), policy


def test_types_and_strata_add_up_to_the_whole() -> None:
    for operator in ("abstract", "merge", "rewrite"):
        *parts, whole = [each for each in PERTYPE.rows if each["operator"] == operator]
        assert sum(each["n"] for each in parts) == whole["n"] == 75
        assert near(whole["gain"], sum(each["n"] * each["gain"] for each in parts) / 75)
        assert whole["gain"] == row(OPERATORSTATS, operator=operator, budget=256)["gain"]
        for budget in (128, 256):
            strata = [each for each in MECHANISMFIT.rows if (each["operator"], each["budget"]) == (operator, budget)]
            assert sum(each["n"] for each in strata) == 75
            mean = sum(each["n"] * each["gain"] for each in strata) / 75
            assert near(mean, row(OPERATORSTATS, operator=operator, budget=budget)["gain"])


def test_fit_shares_are_of_all_questions() -> None:
    for each in BUDGETPRESSURE.rows:
        assert each["full"] + each["zero"] + each["partial"] == pytest.approx(100)


def test_pairs_of_operators_close() -> None:
    for budget in (32, 64, 128, 256):
        first, second, third = (each["difference"] for each in OPERATORPAIRWISE.rows if each["budget"] == budget)
        assert near(first + second, third, roundings=3)


def test_tables_that_state_one_number_twice_agree() -> None:
    for each in UNIFIED.rows:
        name = {"Direct": "Direct utility", "Calibrated": "Calibrated-safe"}[each["policy"]]
        same = row(ROUTERBASELINES, policy=name, budget=each["budget"])
        assert (each["accuracy"], each["harms"]) == (same["accuracy"], same["harms"])
        retention = row(ROUTERBASELINES, policy="Retention", budget=each["budget"])["accuracy"]
        assert near(each["gain"], each["accuracy"] - retention, roundings=3)
    for each in MLPCAPACITY.rows:
        assert each["ridge"] == row(UNIFIED, policy="Direct", budget=each["budget"])["accuracy"]
        assert near(each["difference"], each["mlp"] - each["ridge"], roundings=3)
    for each in OPERATORSTATS.rows[:4]:
        same = row(CROSSMODEL, model="DeepSeek-V3.2", budget=each["budget"])
        assert [each[name] for name in ("gain", "low", "high")] == [same[name] for name in ("gain", "low", "high")]


def test_intervals_hold_their_mean() -> None:
    for label, table in TABLES.items():
        for each in table.rows:
            if "low" in each:
                assert each["low"] <= each.get("gain", each.get("difference")) <= each["high"], (label, each)


def test_numbers_are_written_without_a_leading_zero_and_never_as_minus_nothing() -> None:
    assert number(0.545) == ".545"
    assert number(1.0) == "1.000"
    assert number(-0.0001, signed=True) == "+.000"
    assert number(-0.08, signed=True) == "-.080"
    assert number(12.25, 1) == "12.2"
    assert number(float("nan")) == "–"
    assert bracket(0.1, 0.25, signed=False) == "[.100, .250]"
    assert change(0.48, 0.373, 0.582) == "+.480 [+.373, +.582]"
    assert (chance(0.0009), chance(0.001), chance(1.0)) == ("below .001", ".001", "1.000")


def test_cells_are_text_in_rows_of_one_width() -> None:
    for label in LABELS:
        rows = published_rows(label, (32, 64, 128, 256))
        assert len({len(each) for each in rows}) == 1, label
        assert all(isinstance(cell, str) for each in rows for cell in each)
    assert published_rows("operatorstats")[0] == ("Abstract", "32", "+.480 [+.373, +.582]", "below .001")
    assert published_rows("pertype")[1] == (
        "Multi-session",
        "13",
        "+.051 (2.7/2.0)",
        "+.179 (2.3/0.0)",
        "-.077 (0.7/1.7)",
    )
    assert published_rows("mechanismfit")[0][-1] == "+.343 (.38/.04; 36)"
    assert published_rows("routeAgate", (64, 16))[2] == ("Fixed merge", ".453 (2)", "–", ".457")
    assert published_rows("routerbaselines", (32,))[0] == ("Retention", ".039 (0)", "–")
