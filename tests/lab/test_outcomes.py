"""Outcomes: the table on disk, what it may not hold, and the dense arrays made of it."""

from __future__ import annotations

import csv
import io
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.confidence import SIGNALS
from retcon.errors import InputError, MissingExtraError, RetconError
from retcon.features import FEATURES, TYPES
from retcon.lab.outcomes import (
    KNOWN_BEFORE,
    Outcomes,
    Panel,
    check_columns,
    from_rows,
    panel,
    read,
    run_mean,
    type_index,
    write,
)

ROOT = Path(__file__).parents[2]
PILOT = Path(os.environ.get("RETCON_PILOT") or ROOT.parent / "shared" / "pilot" / "outcomes.csv")
Row = dict[str, Any]
RAW = ("single-session-user", "multi-session", "temporal-reasoning", "knowledge-update")


def world(
    questions: int = 30,
    *,
    budgets: Sequence[int] = (32, 64),
    actions: Sequence[str] = ("retain", "extract", "merge"),
    realizations: int = 1,
    talks: int = 6,
    seed: int = 0,
) -> list[Row]:
    """Made-up outcomes: retention is right where it fits, the others by the question's type; wrong often abstains."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for q in range(questions):
        kind, tokens = int(rng.integers(4)), int(rng.integers(20, 200))
        about = {
            "dataset": "made", "setting": "up", "question_id": f"q{q:03}", "conversation": f"c{q % talks}",
            "type": RAW[kind], "notes": int(rng.integers(1, 9)), "cluster_tokens": tokens,
            "sessions": int(rng.integers(1, 4)), "inconsistency": round(float(rng.random()), 3),
            "similarity": round(float(rng.random()), 3),
        }  # fmt: skip
        for budget in budgets:
            fit = min(1.0, budget / tokens)
            for place, action in enumerate(actions):
                chance = fit if place == 0 else 0.75 if kind % (len(actions) - 1 or 1) == place - 1 else 0.25
                for realization in range(realizations):
                    right = bool(rng.random() < chance)
                    rows.append(
                        about
                        | {"budget": budget, "action": action, "realization": realization, "fit": round(fit, 4)}
                        | {"context_tokens": min(budget, tokens), "generated_tokens": 0 if place < 2 else 20}
                        | {"abstained": int(not right and rng.random() < 0.7), "logprob": -float(rng.random())}
                        | {"judge_llm": int(right), "judge_overlap": int(right and rng.random() < 0.8)}
                    )
    return rows


def with_signals(rows: list[Row]) -> list[Row]:
    """The rows with a number for each signal of a reply that gives an answer."""
    draw = random.Random(7)
    return [row | {f"signal_{name}": None if row["abstained"] else draw.random() for name in SIGNALS} for row in rows]


def csv_text(rows: Iterable[Row]) -> str:
    rows = list(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def same(a: Outcomes, b: Outcomes) -> bool:
    return a.columns.keys() == b.columns.keys() and all(
        np.array_equal(a.columns[n], b.columns[n], equal_nan=a.columns[n].dtype.kind == "f") for n in a.columns
    )


def arrays(found: Panel) -> dict[str, Any]:
    """The panel's numbers."""
    named = ("types", "budgets", "actions", "features", "x", "runs", "retained", "retentions", "abstained", "logprob")
    return {name: getattr(found, name) for name in (*named, "signals")} | dict(found.tokens)


def equal(a: Panel, b: Panel) -> bool:
    one, two = arrays(a), arrays(b)
    return one.keys() == two.keys() and all(
        np.array_equal(one[n], two[n], equal_nan=True) if isinstance(one[n], np.ndarray) else one[n] == two[n]
        for n in one
    )


# -- the table on disk -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_comes_back_as_it_was_and_is_written_in_the_same_bytes(tmp_path: Path, ending: str) -> None:
    rows = world(4, realizations=2)
    rows[0] |= {"pair": "merge", "realization": 7, "said": 'a "quote", a\ncomma', "logprob": None}
    rows[1] |= {"said": "carriage\rreturn", "fold": "train"}
    rows[1:] = [row | {"fold": "train"} if row["question_id"] == "q000" else row for row in rows[1:]]
    rows[0]["fold"] = "train"
    one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
    first = from_rows(rows)
    write(first, one)
    again = read(one)
    write(again, two)
    assert same(first, again)
    assert one.read_bytes() == two.read_bytes()
    assert again.columns["said"].tolist()[:3] == ['a "quote", a\ncomma', "carriage\rreturn", ""]
    assert math.isnan(again.columns["logprob"][0])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=4))
def test_any_text_survives_a_csv_file(tmp_path_factory: Any, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("texts") / "o.csv"
    rows = [
        {"question_id": f"q{i}", "budget": 1, "action": "retain", "judge_a": 1, "x": t} for i, t in enumerate(texts)
    ]
    write(from_rows(rows), path)
    assert read(path).columns["x"].tolist() == texts


def test_numbers_survive_a_csv_file_to_the_last_bit(tmp_path: Path) -> None:
    values = [0.1, 1 / 3, 1e-300, 123456789.123456789, 5.0, 0.0]
    rows = [
        {"question_id": f"q{i}", "budget": 1, "action": "retain", "judge_a": 1, "seconds": v}
        for i, v in enumerate(values)
    ]
    write(from_rows(rows), tmp_path / "o.csv")
    assert read(tmp_path / "o.csv").columns["seconds"].tolist() == values


def test_a_table_with_a_byte_order_mark_crlf_and_blank_lines_is_read(tmp_path: Path) -> None:
    text = "\ufeff" + csv_text(world(2)).replace("\n", "\r\n") + "\r\n\r\n"
    (tmp_path / "o.csv").write_bytes(text.encode())
    assert same(read(tmp_path / "o.csv"), from_rows(world(2)))


def test_the_columns_that_are_not_there_have_plain_defaults() -> None:
    found = from_rows([{"question_id": 7, "budget": "32", "action": "retain", "judge_me": "0.5"}])
    column = {name: values.tolist() for name, values in found.columns.items()}
    assert (column["question_id"], column["conversation"], column["budget"]) == (["7"], ["7"], [32])
    assert (column["realization"], column["pair"], column["fold"], column["dataset"]) == ([0], [""], [""], [""])
    assert (found.judges, found.actions, len(found)) == (("me",), ("retain",), 1)


def test_where_picks_rows_and_none_is_no_condition() -> None:
    table = from_rows(world(5))
    assert len(table.where(action=["retain", "merge"], budget=32)) == 10
    assert same(table.where(action=None, setting="up"), table)
    assert len(table.where(action=())) == 0
    with pytest.raises(InputError, match="no column sitting"):
        table.where(sitting="up")


@pytest.mark.skipif(not PILOT.is_file(), reason="RETCON_DATA: no pilot outcomes here")
def test_the_pilots_file_works_as_it_is() -> None:
    table = read(PILOT)
    assert len(table) == 18_840
    found = panel(table.where(setting="controlled"), actions=["retain", "abstract", "merge", "rewrite"])
    assert (len(found.questions), found.budgets, found.judge) == (300, (32, 64, 128, 256), "llm")
    assert found.utility.mean(axis=0).round(3).tolist()[0] == [0.033, 0.157, 0.203, 0.190]  # the pilot's own table
    history = panel(table.where(dataset="locomo"), actions=["retain", "merge"], judge="overlap")
    assert (len(history.questions), len(set(history.conversations))) == (120, 10)
    assert (history.types >= 0).all()


# -- what no table may hold --------------------------------------------------------------------------------------------


def drop(name: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [{key: value for key, value in row.items() if key != name} for row in rows]


def put(row: int, **values: Any) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [each | values if i == row else each for i, each in enumerate(rows)]


FAULTS: list[tuple[Callable[[list[Row]], list[Row]], str]] = [
    (drop("question_id"), "no column question_id"),
    (drop("action"), "no column action"),
    (lambda rows: drop("judge_llm")(drop("judge_overlap")(rows)), "no utility: a column named judge_<name>"),
    (put(2, judge_llm=1.5), "row 3: judge_llm is 1.5, a utility lies in [0, 1]"),
    (put(2, judge_llm=-0.01), "row 3: judge_llm is -0.01, a utility lies in [0, 1]"),
    (put(2, judge_llm="yes"), "row 3: judge_llm is 'yes', not a number"),
    (put(2, fit="inf"), "row 3: fit is not finite"),
    (put(4, budget="many"), "row 5: budget is 'many', not a number"),
    (put(4, budget=-1), "row 5: budget is '-1', not a whole number of 0 or more"),
    (put(4, budget=1.5), "row 5: budget is '1.5', not a whole number"),
    (put(4, budget=None), "row 5: budget is 'None', not a whole number"),
    (put(4, budget="1e300"), "row 5: budget is '1e300', not a whole number"),
    (put(4, budget=10**400), "row 5: budget is '1000"),
    (put(4, realization="x"), "row 5: realization is 'x', not a number"),
    (put(0, question_id=""), "row 1: no question_id"),
    (put(0, action=None), "row 1: no action"),
    (lambda rows: [*rows, rows[3]], "rows 4 and 13 are the same outcome: q000 at 64 tokens under retain"),
    (put(0, fold="train"), "question q000 is in two folds: train and "),
    (put(0, conversation="c9"), "question q000 is in two conversations: c9 and c0"),
    (put(0, type="temporal"), "question q000 is in two types: temporal and "),
    (put(1, pair="retain"), "row 2: only a retention has a pair, extract has 'retain'"),
    (lambda rows: [], "there are no outcomes"),
]


@pytest.mark.parametrize(("change", "said"), FAULTS, ids=[said[:40] for _, said in FAULTS])
def test_an_impossible_table_is_one_clear_line(change: Callable[[list[Row]], list[Row]], said: str) -> None:
    with pytest.raises(InputError) as caught:
        from_rows(change(world(2)))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="1 values of judge_a and 2 of question_id"):
        check_columns({"question_id": ["a", "b"], "budget": [1, 1], "action": ["retain", "retain"], "judge_a": [1]})


FILES: list[tuple[str, bytes, str]] = [
    ("o.csv", b"question_id,budget\xff\n", "o.csv: not UTF-8: byte 0xff at 18"),
    ("o.csv", b"a,b\n1,2\n1,2,3\n", "o.csv: row 2 has 3 cells, the head has 2"),
    ("o.csv", b"a,a\n1,2\n", "o.csv: a column stands twice: a"),
    ("o.csv", b'a,b\n"1,2\n', "o.csv: not CSV: "),
    ("o.csv", b"", "o.csv: there are no outcomes"),
    ("o.csv", b"question_id,budget,action,judge_a\n", "o.csv: there are no outcomes"),
    ("o.parquet", b"PAR1 and then something else PAR1", "o.parquet: not Parquet: "),
    ("o.parquet", b"", "o.parquet: not Parquet: "),
    ("o.json", b"{}", "outcomes are a .csv or .parquet file, not 'o.json'"),
]


@pytest.mark.parametrize(("name", "raw", "said"), FILES)
def test_a_file_that_is_no_table_is_one_clear_line(tmp_path: Path, name: str, raw: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_parquet_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "o.parquet"
    write(from_rows(world(3)), path)
    raw = path.read_bytes()
    for size in (4, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(InputError, match="not Parquet") as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_places_that_cannot_be_read_or_written_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        read(tmp_path / "none.csv")
    for name in ("none/o.csv", "none/o.parquet"):
        with pytest.raises(InputError, match=r"cannot write .*No such file"):
            write(from_rows(world(1)), tmp_path / name)
    with pytest.raises(InputError, match=r"written as \.csv or \.parquet"):
        write(from_rows(world(1)), tmp_path / "o.txt")
    with pytest.raises(InputError, match="cannot write"):
        write(from_rows([world(1)[0] | {"said": "\ud800"}]), tmp_path / "o.csv")


def test_parquet_without_its_extra_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"retcon-memory\[lab\]"):
        write(from_rows(world(1)), tmp_path / "o.parquet")


_BASE = csv_text(world(2)).encode()
_PIECES = [
    b",",
    b'"',
    b"\n",
    b"\r",
    b"\0",
    b"\xff",
    b"1e999",
    b"nan",
    b"-1",
    b"retain",
    b"judge_",
    b"budget",
    b"9" * 30,
]


@given(st.lists(st.tuples(st.integers(0, len(_BASE)), st.integers(0, 12), st.sampled_from(_PIECES)), max_size=4))
def test_any_bytes_are_a_table_or_a_clear_error(tmp_path_factory: Any, cuts: list[tuple[int, int, bytes]]) -> None:
    raw = _BASE
    for place, size, piece in cuts:
        raw = raw[:place] + piece + raw[place + size :]
    path = tmp_path_factory.mktemp("mutated") / "o.csv"
    path.write_bytes(raw)
    try:
        panel(read(path))
    except RetconError as error:
        assert "\n" not in str(error)  # noqa: PT017


@given(st.binary(max_size=60))
def test_any_bytes_called_parquet_are_a_clear_error(tmp_path_factory: Any, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("mutated") / "o.parquet"
    path.write_bytes(raw)
    with pytest.raises(InputError):
        read(path)


# -- dense arrays ------------------------------------------------------------------------------------------------------


def test_types_of_benchmarks_have_their_place() -> None:
    assert [type_index(raw) for raw in (*RAW, *TYPES)] == [0, 1, 2, 3] * 2
    assert [type_index(f"cat{n}") for n in (4, 1, 2, 3, 5)] == [0, 1, 2, 1, -1]
    assert type_index("") == type_index("other") == -1


def test_a_panel_holds_each_outcome_in_its_place() -> None:
    rows = world(8, realizations=2)
    found = panel(from_rows(rows))
    assert (found.budgets, found.actions) == ((32, 64), ("retain", "extract", "merge"))
    assert found.features == FEATURES
    for row in rows:
        q, b, a = (
            found.questions.index(row["question_id"]), found.budgets.index(row["budget"]),
            found.actions.index(row["action"]),
        )  # fmt: skip
        assert found.runs[q, b, a, row["realization"]] == row["judge_llm"]
        assert found.abstained is not None
        assert found.abstained[q, b, a, row["realization"]] == row["abstained"]
        assert found.logprob is not None
        assert found.logprob[q, b, a, row["realization"]] == row["logprob"]
        assert found.tokens["context_tokens"][q, b, a] == row["context_tokens"]
        assert (found.questions[q], found.conversations[q]) == (row["question_id"], row["conversation"])
        hot = [float(RAW.index(row["type"]) == place) for place in range(4)]
        seen = [row["budget"] / 512, row["notes"], row["cluster_tokens"] / row["budget"], row["fit"], row["sessions"]]
        assert found.x[q, b].tolist() == [*seen, row["inconsistency"], row["similarity"], *hot]
    assert np.array_equal(found.utility, found.runs.mean(axis=3))
    assert np.array_equal(found.fit, found.x[:, :, found.features.index("fit")])


def test_type_probabilities_stand_in_for_the_type() -> None:
    rows = [row | {f"p_{name}": 0.25 for name in TYPES} for row in world(4)]
    assert (panel(from_rows(rows)).x[:, :, -4:] == 0.25).all()


def test_features_that_the_table_lacks_are_left_out_and_types_may_be_unknown() -> None:
    needed = ("question_id", "budget", "action", "judge_llm")
    found = panel(from_rows([{name: row[name] for name in needed} for row in world(4)]))
    assert found.features == ("budget", *TYPES)
    assert (found.x[:, :, 1:] == 0).all()
    assert (found.types == -1).all()
    assert found.abstained is None
    with pytest.raises(InputError, match="no column 'fit'"):
        _ = found.fit


def test_a_feature_known_for_some_questions_only_is_refused() -> None:
    with pytest.raises(InputError, match="fit is known for some questions and not for q000 at 64 tokens"):
        panel(from_rows(put(3, fit=None)(world(3))))


def test_retentions_of_one_cell_must_agree_on_features() -> None:
    rows = world(3, realizations=2)
    with pytest.raises(InputError, match=r"notes is .* and 99 for q000 at 32 tokens"):
        panel(from_rows(put(1, notes=99)(rows)))


def paired() -> Panel:
    """One question with a plain retention, right, and two that belong to actions: merge's wrong, extract's right."""
    row = {"question_id": "q", "budget": 32, "judge_llm": 1.0}
    rows = [
        row | {"action": "retain"},
        row | {"action": "retain", "pair": "merge", "judge_llm": 0.0},
        row | {"action": "retain", "pair": "extract"},
        row | {"action": "extract", "judge_llm": 0.0},
        row | {"action": "merge"},
        row | {"action": "abstract"},
    ]
    return panel(from_rows(rows))


def test_gains_use_an_actions_own_retention_and_joint_tables_the_mean_of_all() -> None:
    found = paired()
    assert found.actions == ("retain", "abstract", "extract", "merge")
    assert found.retained[0, 0, :, 0].tolist() == [1.0, 1.0, 1.0, 0.0]  # abstract has none of its own: the plain one
    assert found.runs[0, 0, :, 0].tolist() == [1.0, 1.0, 0.0, 1.0]
    assert found.retentions[0, 0] == pytest.approx(2 / 3)
    assert found.utility[0, 0].tolist() == pytest.approx([2 / 3, 1.0, 0.0, 1.0])


def test_without_a_plain_retention_the_first_pairs_stands_in() -> None:
    row = {"question_id": "q", "budget": 32}
    rows = [
        row | {"action": "retain", "pair": "merge", "judge_llm": 0.0},
        row | {"action": "retain", "pair": "extract", "judge_llm": 1.0},
        row | {"action": "extract", "judge_llm": 0.0},
        row | {"action": "merge", "judge_llm": 1.0},
    ]
    for some in (rows, rows[::-1]):
        found = panel(from_rows(some))
        assert found.runs[0, 0, 0, 0] == 1.0  # extract's, the first by name
        assert found.retained[0, 0, 1:, 0].tolist() == [1.0, 0.0]
        assert found.retentions[0, 0] == 0.5


def test_a_missing_realization_is_no_outcome_and_counts_in_no_mean() -> None:
    rows = [row for row in world(3, realizations=2) if not (row["realization"] == 1 and row["action"] == "merge")]
    found = panel(from_rows(rows))
    assert np.isnan(found.runs[:, :, 2, 1]).all()
    assert np.isnan(found.retained[:, :, 2, 1]).all()
    assert np.array_equal(found.utility[:, :, 2], found.runs[:, :, 2, 0])


def test_the_first_gap_is_named() -> None:
    rows = [row for row in world(3) if (row["question_id"], row["budget"], row["action"]) != ("q001", 64, "merge")]
    with pytest.raises(InputError, match="1 outcomes are missing, the first: q001 at 64 tokens under merge"):
        panel(from_rows(rows))
    assert panel(from_rows(rows), actions=["retain", "extract"]).actions == ("retain", "extract")
    assert panel(from_rows(rows), budgets=[32]).budgets == (32,)


def test_a_row_without_a_verdict_is_no_outcome_for_that_judge() -> None:
    rows = put(5, judge_llm=None)(world(3))  # q000 at 64 tokens under merge
    assert panel(from_rows(rows), judge="overlap").runs.shape == (3, 2, 3, 1)
    with pytest.raises(InputError, match="1 outcomes are missing, the first: q000 at 64 tokens under merge"):
        panel(from_rows(rows))
    assert panel(from_rows(rows), actions=["retain", "extract"]).judge == "llm"


def test_a_retention_without_a_verdict_counts_in_no_mean() -> None:
    row = {"question_id": "q", "budget": 32, "judge_llm": 1.0}
    found = panel(
        from_rows(
            [
                row | {"action": "retain"},
                row | {"action": "retain", "pair": "merge", "judge_llm": None},
                row | {"action": "merge"},
            ]
        )
    )
    assert found.retentions[0, 0] == 1.0
    assert math.isnan(found.retained[0, 0, 1, 0])


def test_budgets_default_to_those_at_which_every_action_was_measured() -> None:
    rows = [*world(3), {**world(1)[0], "budget": 0, "action": "none"}]
    assert panel(from_rows(rows), actions=["retain", "merge"]).budgets == (32, 64)
    with pytest.raises(InputError, match="no budget at which all of retain, none were measured"):
        panel(from_rows(rows), actions=["none", "retain"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"judge": "nobody"}, "no judge 'nobody'; there are llm, overlap"),
        ({"actions": ["retain", "dream"]}, "no outcomes of dream; there are retain, extract, merge"),
        ({"actions": ["merge"]}, "the actions must include retain: merge"),
        ({"actions": []}, "the actions must include retain"),
        ({"budgets": [32, 99]}, "no outcomes of all actions at 99 tokens; there are [32, 64]"),
        ({"budgets": []}, "no budget was asked for"),
    ],
)
def test_asking_for_what_is_not_there_says_what_is(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        panel(from_rows(world(3)), **options)
    assert said in str(caught.value)


def test_a_panel_is_of_one_dataset_and_one_setting() -> None:
    for name in ("dataset", "setting"):
        rows = [*world(2), *(row | {name: "other"} for row in world(2))]
        with pytest.raises(InputError, match=f"the rows are of several {name}s .*: choose one with {name}="):
            panel(from_rows(rows))
        assert len(panel(from_rows(rows).where(**{name: "other"})).questions) == 2
    with pytest.raises(InputError, match="no outcomes of that kind"):
        panel(from_rows(world(2)).where(setting="elsewhere"))


def test_a_retention_that_names_no_model_stands_beside_rows_that_do() -> None:
    rows = [row | {"model": "" if row["action"] == "retain" else "m", "reader": "r"} for row in world(3)]
    assert panel(from_rows(rows)).utility.tolist() == panel(from_rows(world(3))).utility.tolist()
    with pytest.raises(InputError, match="several models"):
        panel(from_rows([row | ({"model": "n"} if row["action"] == "merge" else {}) for row in rows]))
    twice = [*rows, *(row | {"model": "m"} for row in rows if row["action"] == "retain")]
    with pytest.raises(InputError, match="two outcomes, with and without a model's name: q000 at 32 tokens under ret"):
        panel(from_rows(twice))


def renamed(rows: list[Row], seed: int) -> list[Row]:
    """The rows in another order, with other names for questions and conversations."""
    draw = random.Random(seed)
    ids, talks = ({row[name] for row in rows} for name in ("question_id", "conversation"))
    new = {name: f"{draw.random()}" for name in sorted(ids | talks)}
    moved = [row | {name: new[row[name]] for name in ("question_id", "conversation")} for row in rows]
    draw.shuffle(moved)
    return moved


@pytest.mark.parametrize("rich", [True, False])
def test_neither_names_nor_the_order_of_rows_nor_of_actions_change_a_panel(rich: bool) -> None:
    """Also where most questions are alike in their features and in what came of them."""
    rows = with_signals(world(40, talks=5, realizations=1))
    if not rich:
        kept = ("question_id", "conversation", "budget", "action", "judge_llm", "abstained")
        rows = [{name: row[name] for name in kept} for row in rows]
    plain = panel(from_rows(rows))
    for seed in range(5):
        other = panel(from_rows(renamed(rows, seed)), actions=["merge", "retain", "extract"])
        assert equal(plain, other)
        assert sorted(map(plain.conversations.count, set(plain.conversations))) == sorted(
            map(other.conversations.count, set(other.conversations))
        )


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_panel_carries_the_signals_of_every_reply_that_gives_an_answer(tmp_path: Path, ending: str) -> None:
    rows = with_signals(world(6, realizations=2))
    write(from_rows(rows), tmp_path / f"rows{ending}")
    found = panel(read(tmp_path / f"rows{ending}"))
    assert found.signals is not None
    assert found.signals.shape == (*found.runs.shape, len(SIGNALS))
    assert found.abstained is not None
    assert np.array_equal(np.isnan(found.signals).any(axis=-1), found.abstained == 1)
    for row in rows:
        q, b = found.questions.index(row["question_id"]), found.budgets.index(row["budget"])
        seen = found.signals[q, b, found.actions.index(row["action"]), row["realization"]]
        assert np.array_equal(seen, [row[f"signal_{name}"] or math.nan for name in SIGNALS], equal_nan=True)
    assert found.without_outcomes().signals is None


def test_a_panel_has_no_signals_where_the_table_lacks_one() -> None:
    rows = [{name: value for name, value in row.items() if name != "signal_said"} for row in with_signals(world(4))]
    assert panel(from_rows(rows)).signals is None
    assert panel(from_rows(world(4))).signals is None


def test_a_signal_that_is_no_number_is_refused() -> None:
    rows = with_signals(world(2))
    rows[3] |= {"signal_held": "much"}
    with pytest.raises(InputError, match="row 4: signal_held is 'much', not a number"):
        from_rows(rows)


def test_take_gives_the_same_questions_alone() -> None:
    found = panel(from_rows(with_signals(world(6, realizations=2))))
    index = np.array([4, 1])
    part = found.take(index)
    assert part.questions == (found.questions[4], found.questions[1])
    for name in ("x", "types", "runs", "retained", "retentions", "abstained", "logprob", "utility"):
        assert np.array_equal(getattr(part, name), getattr(found, name)[index])
    assert part.signals is not None
    assert found.signals is not None
    assert np.array_equal(part.signals, found.signals[index], equal_nan=True)
    assert np.array_equal(part.tokens["context_tokens"], found.tokens["context_tokens"][index])


def test_a_hidden_panel_shows_features_and_no_outcome() -> None:
    found = panel(from_rows(world(6)))
    found.utility  # noqa: B018  (computed once: it must not travel along)
    hidden = found.without_outcomes()
    assert np.array_equal(hidden.x, found.x)
    for outcome in (hidden.utility, hidden.runs, hidden.retained, hidden.retentions):
        assert np.isnan(outcome).all()
    assert (hidden.abstained, hidden.logprob, dict(hidden.tokens)) == (None, None, {})


def test_the_features_of_a_panel_are_those_of_the_table() -> None:
    assert {"notes", "fit", "sessions", "inconsistency", "similarity"} <= set(KNOWN_BEFORE) & set(FEATURES)


def test_run_mean_counts_what_is_there_and_warns_of_nothing() -> None:
    nan = math.nan
    found = run_mean(np.array([[1.0, nan, 0.0], [nan, nan, nan]]))
    assert found[0] == 0.5
    assert math.isnan(found[1])
