"""What is found, ours beside rivals: scores, intervals and choices of settings on made numbers, and a tiny run."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.extract import SURVIVES, answer_words, survival
from bench.finding import __main__ as finding
from bench.finding import compare, vectors
from bench.finding.finders import list_settings, make_finder, measure_settings
from bench.finding.nested import MARGINS, OFF, Setting, choose, joined_grid, lexical_grid
from bench.finding.older import COMMIT
from bench.finding.ours import Answer, Ours
from bench.finding.page import TABLES
from bench.finding.rivals import MOST, Rival, join_ranks, search_bm25s, search_minilm, search_plain, search_tantivy
from bench.finding.scoring import CLUSTER, at, read_column, score, survives
from bench.finding.vectors import DIM, MissingVectorsError, Vectors, make_key
from retcon import Memory
from retcon.lab.data.question import BenchmarkQuestion
from retcon.model.embed import unit_rows
from retcon.note import Note
from retcon.rerank import SHIPPED, Settings
from retcon.tokens import counter

PETS = ("cat Pixel", "dog Bruno", "parrot Kiwi", "horse Luna", "rabbit Snow", "turtle Otto", "hamster Pip", "fish Nemo")


def notes(words: Sequence[str] = PETS) -> list[Note]:
    """One turn about each pet, two a session."""
    return [
        Note(
            f"t{i}", f"I have a {each.split()[0]} called {each.split()[1]}.", "Ann", f"s{i // 2}", f"2026-05-{i + 1:02}"
        )
        for i, each in enumerate(words)
    ]


def question(n: int = 0, *, evidence: Sequence[Note] | None = None, history: Sequence[Note] = ()) -> BenchmarkQuestion:
    history = tuple(history or notes())
    kind, name = PETS[n].split()
    return BenchmarkQuestion(
        f"q{n}", "made", f"What is the {kind} called?", name, None, "", "c",
        evidence=tuple(evidence or (history[n],)), history=history,
    )  # fmt: skip


class Made:
    """A finder that gives what it was told."""

    ways: tuple[str, ...] = ("fill",)

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def find(self, query: str, budgets: Sequence[int]) -> Answer:
        return self.answer

    def close(self) -> None: ...


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """A vector a text, the same on every machine."""
    rows = np.stack([np.random.default_rng(make_key(text)).normal(size=DIM) for text in texts])
    return unit_rows(rows)


class MadeModel:
    """What stands in for MiniLM, which the tests do not install."""

    def encode(self, texts: Sequence[str], **options: object) -> NDArray[np.float32]:
        return embed(texts)


# - scores -


def test_gold_notes_are_counted_by_depth_and_survival_is_of_the_answers_words() -> None:
    history = notes()
    asked = question(0, evidence=history[:2], history=history)
    ranked = ["t0", "t2", "t3", "t4", "t5", "t1"]
    marks = score(Made(Answer(ranked, {"fill": ["", "Pixel", "the cat", "no", "Bruno", "pixel!"]})), asked)
    assert [marks[at(depth)] for depth in (5, 10)] == ["1", "2"]
    assert "".join(marks[f"fill {budget}"] for budget in (32, 64, 128, 256, 512, 1024)) == "010001"
    assert CLUSTER not in marks


def test_an_answer_that_its_evidence_does_not_hold_is_not_asked_for() -> None:
    history = notes()
    marks = score(Made(Answer(["t1"], {"fill": []})), question(0, evidence=history[1:2], history=history))
    assert {mark for name, mark in marks.items() if name.startswith("fill")} == {"-"}


@pytest.mark.parametrize(
    ("cluster", "inside"),
    [
        ({}, "0"),
        ({"t1": None}, "0"),
        ({"t0": None}, "1"),
        ({"t0": "called Pixel."}, "1"),
        ({"t0": "I have a cat"}, "0"),
    ],
)
def test_a_gold_note_is_inside_the_cluster_where_the_part_shown_holds_the_answer(
    cluster: dict[str, str | None], inside: str
) -> None:
    assert score(Made(Answer([], {"fill": [""] * 6}, cluster)), question())[CLUSTER] == inside


def test_an_answer_survives_where_bench_extract_says_so() -> None:
    text = "\n".join(
        f"[2026-05-{i + 1:02}] Ann: it cost 1,20{i} euros\non {i + 1} May, the first of seven." for i in range(9)
    )
    for said in ("seven euros", "9 May 2026", "1208", "the 3rd of June", "Ann May 7", "1,300 dollars", "1st"):
        words = answer_words("How?", said)
        assert survives(words, text) == (survival(words, text) >= SURVIVES), said


def test_columns_read_as_shares_of_the_gold_notes() -> None:
    assert read_column(at(5), "02a", "14k").tolist() == [0.0, 0.5, 0.5]
    assert str(read_column("fill 32", "01-", "111").tolist()) == "[0.0, 1.0, nan]"


# - intervals -


def made_domain(ours: str, rival: str, histories: list[int]) -> dict[str, Any]:
    finders = {compare.OURS: {at(20): ours}, compare.BM25S: {at(20): rival}}
    return {"histories": histories, "gold": "1" * len(ours), "finders": finders}


def test_differences_are_paired_and_drawn_by_question_and_by_history() -> None:
    (row,) = compare.differ(made_domain("1" * 50 + "0" * 50, "0" * 50 + "1" * 50, [50, 50]))
    assert row["mean"] == 0
    assert row["by_history"] == [-1, 1]  # two histories: both the same in half of the draws
    sd = 1 / np.sqrt(100)  # of the mean of 100 differences of +1 and -1
    assert row["by_question"] == pytest.approx([-1.96 * sd, 1.96 * sd], abs=0.03)


def test_one_history_is_not_drawn_and_a_constant_difference_has_no_width() -> None:
    (row,) = compare.differ(made_domain("0" * 20, "1" * 20, [20]))
    assert (row["mean"], row["by_question"]) == (-1, [-1, -1])
    assert "by_history" not in row


def test_intervals_below_zero_are_listed_with_whether_they_are_goals() -> None:
    row = {"mean": -0.1, "n": 9, "by_question": [-0.2, -0.01]}
    rows = [
        row | {"ours": compare.OURS, "rival": compare.BM25S, "column": "@5"},
        row | {"ours": compare.OURS, "rival": compare.BM25S, "column": "@10"},  # not held
        row | {"ours": compare.OURS, "rival": compare.MINILM, "column": "@20"},
        row | {"ours": compare.JOINED, "rival": compare.MINILM, "column": "@20"},
        row | {"ours": compare.JOINED, "rival": compare.FUSED, "column": "@20"},
        row | {"ours": compare.OURS, "rival": compare.MINILM, "column": "extract 64"},
        row | {"ours": compare.OURS, "rival": COMMIT, "column": "extract 64"},
        row | {"ours": compare.OURS, "rival": compare.TANTIVY, "column": "@20", "by_question": [-0.2, 0.0]},
    ]
    found = compare.find_below({"made": rows})
    assert [(each["rival"], each["column"], each["goal"]) for each in found] == [
        ("bm25s", "@5", True), ("MiniLM", "@20", False), ("MiniLM", "@20", True), ("MiniLM + bm25s", "@20", False),
        ("MiniLM", "extract 64", True), (COMMIT, "extract 64", False),
    ]  # fmt: skip


def test_the_share_closed_weighs_domains_equally_and_leaves_out_those_nearly_solved() -> None:
    def domain(new: str, old: str) -> dict[str, Any]:
        finders = {compare.OURS: {at(20): new}, COMMIT: {at(20): old}}
        return {"histories": [len(new)], "gold": "1" * len(new), "finders": finders}

    found = compare.close_gap(
        {
            "small": domain("1100", "1000"),  # misses .75, finds a third of it
            "large": domain("1" * 6 + "0" * 2, "1" * 4 + "0" * 4),  # misses .5, finds half of it
            "solved": domain("0" * 99 + "1", "1" * 99 + "0"),
        },
        compare.OURS,
    )
    assert found is not None
    assert found.shares == pytest.approx({"small": 1 / 3, "large": 1 / 2})
    assert found.all == pytest.approx((0.25 + 0.25) / (0.75 + 0.5))
    assert found.low <= found.all <= found.high
    assert compare.close_gap({"made": made_domain("1", "1", [1])}, compare.OURS) is None


# - settings -


def test_the_domain_that_is_reported_and_timelineqa_have_no_say() -> None:
    scores = {"a": [0.5, 0.6], "b": [0.5, 0.6], "c": [0.9, 0.1], "timelineqa": [0.9, 0.1]}
    assert choose(scores, [1, 1], "c").setting == 1  # a and b choose
    assert choose(scores, [1, 1], "a").setting == 0  # c outweighs b
    assert choose(scores, [1, 1], "timelineqa").setting == 0
    assert choose(scores | {"timelineqa": [0.0, 1.0]}, [1, 1], "a").setting == 0


def test_domains_choose_with_equal_weight_by_the_mean() -> None:
    scores = {"a": [0.2, 0.3, 0.1], "b": [0.2, 0.3, 0.1], "c": [0.9, 0.75, 0.99], "d": [0.0, 0.0, 0.0]}
    assert choose(scores, [1, 1, 1], "d").setting == 1  # means .433, .45, .397


def test_the_margin_is_what_does_best_on_domains_left_out_in_turn() -> None:
    # Setting 0 has one step, 1 and 2 have two. Each of the latter is best on some domains by luck: chosen by the rest,
    # it loses on the one left out. With a margin the simple one is chosen, and does better there.
    scores = {
        "a": [0.50, 0.52, 0.48], "b": [0.50, 0.52, 0.48], "c": [0.50, 0.48, 0.52], "d": [0.50, 0.48, 0.52],
        "out": [0.0, 0.0, 0.0],
    }  # fmt: skip
    found = choose(scores, [1, 2, 2], "out")
    assert found.margin == 0.01  # the rest of three has a mean of .507 for the wrong one
    assert found.setting == 0
    steady = {name: [0.50, 0.52] for name in "abcd"} | {"out": [0.0, 0.0]}
    assert choose(steady, [1, 2], "out").setting == 1
    assert choose(steady, [1, 2], "out").margin == MARGINS[0]


def test_too_few_domains_cannot_choose() -> None:
    with pytest.raises(ValueError, match="two other domains"):
        choose({"a": [1.0], "b": [1.0], "timelineqa": [1.0]}, [1], "a")


def test_the_grid_knows_every_step_and_starts_with_what_ships() -> None:
    assert OFF.keys() == asdict(SHIPPED).keys() - {"meaning"}
    for grid in (lexical_grid(), joined_grid()):
        assert (grid[0].name, grid[0].steps, grid[1].name) == ("shipped", SHIPPED, "all off")
        assert len({each.name for each in grid}) == len({each.steps for each in grid}) == len(grid)
    assert 20 <= len(lexical_grid()) <= 30
    assert Setting("all off", Settings(**OFF)).count_steps() == 0


def test_the_shipped_setting_finds_what_search_finds(tmp_path: Path) -> None:
    asked = [question(n, history=question().history) for n in range(4)]
    first, *_ = measure_settings(asked, compare.OURS, tmp_path)
    ours = Ours(asked[0].history)
    marks = [score(ours, each) for each in asked]
    assert first == {name: "".join(each[name] for each in marks) for name in first}
    assert len(list_settings(compare.OURS)) == len(lexical_grid())


# - finders -


def test_ours_shows_what_a_memory_shows() -> None:
    memory = Memory(":memory:")
    memory.store.add(notes())
    found = Ours(notes()).find("What is the dog called?", (32, 64))
    assert found.ranked == [hit.id for hit in memory.search("What is the dog called?", top_k=50)]
    assert found.texts["recall"] == [memory.recall("What is the dog called?", budget).text for budget in (32, 64)]
    forced = [memory.recall("What is the dog called?", budget, action="extract").text for budget in (32, 64)]
    assert found.texts["extract"] == forced
    assert found.cluster is not None
    assert found.cluster.keys() == {note.id for note in notes()}


def test_plain_bm25_ranks_as_our_retriever_of_that_name() -> None:
    memory = Memory(":memory:", retriever="bm25-plain")
    memory.store.add(notes())
    for query in ("What is the dog called?", "Luna", "I have a cat and a fish", "nothing of that"):
        found = Rival(notes(), search_plain(notes())).find(query, ())
        assert found.ranked == [hit.id for hit in memory.search(query, top_k=MOST)]


@pytest.mark.parametrize("make", [search_bm25s, search_tantivy, search_plain])
def test_a_rival_finds_the_note_itself(make: Any) -> None:
    many = [Note(f"n{i}", f"turn {i} about nothing") for i in range(500)]
    many[321] = Note("gold", "the zebra AND its stripes")
    assert Rival(many, make(many)).find("Where do zebras (or a zebra) live?", ()).ranked[:1] == ["gold"]
    assert make(many)("???") == []


def test_a_fill_keeps_within_its_budget_and_uses_it() -> None:
    long = [Note(f"n{i}", "word " * 30) for i in range(MOST)]
    (text,) = Rival(long, lambda query: list(range(MOST))).find("word", (1024,)).texts["fill"]
    assert 1000 <= counter(None)(text) <= 1024


def test_minilm_ranks_by_cosine_a_long_note_by_its_best_passage() -> None:
    said = ("The zebra eats. " * 25, "The train leaves. " * 25)
    long, other = Note("long", said[0] + said[1]), Note("other", "Nothing at all.")

    class Topics:
        name, dim = "topics", 2

        def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
            rows = np.array([[text.count("zebra") + 1e-3, text.count("train") + 1e-3] for text in texts])
            return unit_rows(rows)

    both = [other, Note("mixed", "zebra train train"), long]
    assert search_minilm(both, Topics(), passages=False)("train")[0] == 1
    assert search_minilm(both, Topics(), passages=True)("train")[0] == 2


def test_ranks_are_joined_by_reciprocal_rank() -> None:
    joined = join_ranks(lambda query: [0, 1, 2], lambda query: [2, 1])
    assert joined("") == [2, 1, 0]  # 1/63 + 1/61, 1/62 + 1/62, 1/61


# - vectors -


def test_vectors_are_kept_by_their_text_and_found_again(tmp_path: Path) -> None:
    Vectors(tmp_path).keep(["a  b", "c"], embed(["a b", "c"]))
    again = Vectors(tmp_path)
    assert again.find_missing(["a\nb", "c", "d"]) == ["d"]
    assert again(["c", "a b"]) == pytest.approx(embed(["c", "a b"]), abs=1e-3)


def test_what_is_missing_is_embedded_once_in_parts_and_where_nothing_can_embed_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingVectorsError, match=r"^2 texts have no vector in .*, and sentence-transformers is not"):
        Vectors(tmp_path)(["a", "b", "a"])
    monkeypatch.setattr(vectors, "_open_model", lambda why: MadeModel())
    monkeypatch.setattr(vectors, "BATCH", 2)
    assert Vectors(tmp_path)(["a", "b", "a", "c"]).shape == (4, DIM)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(vectors, "_open_model", None)
    assert Vectors(tmp_path)(["c", "b"]) == pytest.approx(embed(["c", "b"]), abs=1e-3)


# - a whole run, of three tiny domains -


@pytest.fixture
def domains(tmp_path: Path) -> list[str]:
    """Three files of own questions, the pets of each in another order."""
    paths = []
    for name, first in (("one", 0), ("two", 3), ("three", 5)):
        history = [note.to_dict() for note in notes(PETS[first:] + PETS[:first])]
        rows = [
            {"id": f"{name}-{i}", "question": f"What is the {pet.split()[0]} called?", "answer": pet.split()[1]}
            | {"history_file": f"{name}-history.jsonl", "evidence": [f"t{(i - first) % len(PETS)}"]}
            for i, pet in enumerate(PETS)
        ]
        (tmp_path / f"{name}-history.jsonl").write_text("".join(json.dumps(note) + "\n" for note in history))
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(str(tmp_path / f"{name}.jsonl"))
    return paths


def test_a_run_scores_every_finder_on_every_domain(
    domains: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vectors, "_open_model", lambda why: MadeModel())
    out = tmp_path / "out.json"
    assert finding.main(["--only", *domains, "--vectors", str(tmp_path / "v"), "--jobs", "1", "--out", str(out)]) == 0
    result = json.loads(out.read_text("utf-8"))
    assert list(result["domains"]) == ["one", "two", "three"]
    measured = {*finding.FINDERS, *finding.WITH_VECTORS} - ({COMMIT} if result["left_out"] else set())
    kinds = [compare.OURS, compare.JOINED]
    for name, domain in result["domains"].items():
        assert measured | {kind + compare.NESTED for kind in kinds} <= domain["finders"].keys()
        assert {len(marks) for columns in domain["finders"].values() for marks in columns.values()} == {len(PETS)}
        assert domain["finders"][compare.OURS]["extract 64"] == "1" * len(PETS)
        chosen = result["settings"][compare.OURS]["chosen"][name]["setting"]
        assert 0 <= chosen < len(lexical_grid())
        assert all(
            low <= row["mean"] <= high for row in result["differences"][name] for low, high in [row["by_question"]]
        )
    printed = capsys.readouterr().out
    assert all(f"{name}\n" in printed for name in TABLES)


def test_without_vectors_the_rows_of_minilm_are_left_out_in_a_line(
    domains: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    out = tmp_path / "out.json"
    finding.main(["--only", domains[0], "--limit", "2", "--vectors", str(tmp_path), "--jobs", "1", "--out", str(out)])
    result = json.loads(out.read_text("utf-8"))
    assert finding.WITH_VECTORS[0] not in result["domains"]["one"]["finders"]
    assert [line for line in result["left_out"] if line.startswith("all rows of MiniLM: ")] == result["left_out"][-1:]
    assert len(result["domains"]["one"]["gold"]) == 2


def test_an_unknown_domain_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        finding.main(["--only", "nosuch"])
    assert ended.value.code == 2
    assert "no domain and no file: nosuch" in capsys.readouterr().err


def test_the_older_code_is_asked_the_same_way(tmp_path: Path) -> None:
    from bench.finding import older

    if not older.unpack(tmp_path):
        pytest.skip(f"the history of {COMMIT} is not at hand")
    old = make_finder(COMMIT, notes(), vectors=tmp_path, older=tmp_path)
    found = old.find("What is the dog called?", (64,))
    old.close()
    assert found.ranked[0] == "t1"
    assert "Bruno" in found.texts["extract"][0]
    assert found.cluster is not None
    assert found.cluster["t1"] == notes()[1].text
