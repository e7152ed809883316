"""The report: files, bytes, a page that is whole and safe, numbers that lead to the rows they come from."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from html import unescape
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from report_page import embedded, parsed
from test_outcomes import world
from typer.testing import CliRunner

from retcon.cli.options import spread
from retcon.cli.run import Group as Verbs
from retcon.errors import InputError, MissingExtraError
from retcon.lab.cli import report as verb
from retcon.lab.outcomes import Outcomes, from_rows, read, write
from retcon.lab.report import figures
from retcon.lab.report.build import SPECS, ReportFiles, make_report, to_csv, to_markdown, write_report
from retcon.lab.report.cells import Value, join
from retcon.lab.report.drawing import THEME, _spread, darken, style_of, use_page_colours
from retcon.lab.report.html import ALPHABET, Report, _pack, page, pair_rows
from retcon.lab.report.story import _verdict
from retcon.lab.report.tables import Table
from retcon.lab.stats import Estimate

ROOT = Path(__file__).parents[2]
BAD = "\"><script>alert('x')</script>&amp;"
DRAWS = 100
Row = dict[str, Any]


def rows() -> list[Row]:
    """Two datasets: one where the evidence is given, one where it has to be found."""
    actions = ("retain", "extract", "abstract", "merge", "rewrite", "merge-agnostic")
    first = world(30, actions=actions, budgets=(32, 64), realizations=2, talks=30)
    second = world(12, actions=actions, budgets=(16, 32), talks=4, seed=1)
    return [row | {"dataset": "longmemeval", "setting": "controlled"} for row in first] + [
        row | {"dataset": "locomo", "setting": "full-history"} for row in second
    ]


@cache
def made() -> Report:
    return make_report(from_rows(rows()), draws=DRAWS)


@cache
def hostile() -> Report:
    """Every word that comes from the rows or the caller tries to be markup."""
    spoilt = [
        row | {"question_id": f"{row['question_id']}{BAD}", "dataset": BAD, "setting": BAD, "type": BAD}
        | {"action": {"merge": BAD, "rewrite": "-->$x^2$ {0} %s"}.get(row["action"], row["action"])}
        for row in world(12, actions=("retain", "merge", "rewrite", "abstract"))
    ]  # fmt: skip
    return make_report(from_rows(spoilt), draws=DRAWS, title=BAD, about={BAD: BAD})


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures without a picture, for tests that do not look: drawing takes most of a report's time."""
    empty = '<svg viewBox="0 0 1 1"></svg>'
    monkeypatch.setattr(figures, "draw", lambda compose, *, height, title: (empty, empty, b""))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    return write_report(made(), tmp_path_factory.mktemp("made") / "report")


def values(of: Report) -> Iterator[Value]:
    """Every number of a report."""
    grids: list[Any] = [*of.tables, *of.figures]
    yield from (cell for grid in grids for row in grid.rows for cell in row if isinstance(cell, Value))
    yield from (piece for f in of.findings for each in f.answers for piece in each.detail if isinstance(piece, Value))


# -- files -------------------------------------------------------------------------------------------------------------


def test_report_writes_a_page_markdown_figures_tables_and_rows(written: ReportFiles) -> None:
    there = {str(path.relative_to(written.folder)) for path in written.folder.rglob("*") if path.is_file()}
    assert there == set(written.files)
    assert {"report.html", "report.md", "rows.csv"} <= there
    for key in written.figures:
        assert {f"figures/{key}.svg", f"figures/{key}-dark.svg", f"figures/{key}.png"} <= there
    assert {f"tables/{key}.csv" for key in written.tables} <= there
    assert set(written.tables) | set(written.missing) == {spec.key for spec in SPECS}
    assert [key.rsplit("-longmemeval")[0] for key in written.figures if "locomo" not in key] == [
        "crossover", "pressure", "budget", "spend", "mix",
    ]  # fmt: skip
    same = read(written.folder / "rows.csv")
    assert len(same) == len(made().outcomes)


def test_a_second_run_gives_the_same_bytes(written: ReportFiles, tmp_path: Path) -> None:
    """In another process, with another order of sets and rows as they were."""
    write(from_rows(rows()), tmp_path / "outcomes.csv")
    code = (
        "from pathlib import Path; from retcon.lab.outcomes import read;"
        "from retcon.lab.report.build import make_report, write_report;"
        f"write_report(make_report(read('outcomes.csv'), draws={DRAWS}), Path('again'))"
    )
    env = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    for name in written.files:
        assert (tmp_path / "again" / name).read_bytes() == (written.folder / name).read_bytes(), name


def test_figures_are_drawn_and_carry_no_date(written: ReportFiles) -> None:
    for key in written.figures:
        at = written.folder / "figures" / key
        assert at.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        for svg in (f"{at}.svg", f"{at}-dark.svg"):
            root = ElementTree.parse(svg).getroot()
            assert root.tag.endswith("svg")
            assert not list(root.iter("{http://purl.org/dc/elements/1.1/}date"))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="cannot write"):
        write_report(made(), tmp_path / "taken" / "report")


def test_without_matplotlib_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retcon.lab.report.build.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"retcon-memory\[lab\]"):
        make_report(from_rows(world(5)))


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [made, hostile], ids=["made", "hostile"])
def test_page_is_whole_and_needs_nothing_else(of: Any) -> None:
    text = page(of())
    found = parsed(text)
    assert len(found.ids) == len(set(found.ids))
    for link in found.links:
        assert link.startswith("#"), link
        assert link[1:] in found.ids, link
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/", "")
    assert "url(" not in text.replace("url(#", "")
    assert found.events == []
    assert found.scripts == 2  # the data and our own


def test_page_allows_its_own_script_and_no_other() -> None:
    text = page(hostile())
    (own,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    (data,) = re.findall(r'id="data">(.*?)</script>\n<script>', text, re.DOTALL)
    assert "<" not in data


@pytest.mark.usefixtures("undrawn")
def test_markdown_holds_no_tag_link_code_or_cell_from_outside() -> None:
    bad = "<img src=x onerror=alert(1)>|`a`[b](javascript:c)&lt;\r\n# d"
    spoilt = [
        row | {"question_id": f"{row['question_id']}{bad}", "dataset": bad, "setting": bad, "type": bad}
        | {"action": bad if row["action"] == "merge" else row["action"]}
        for row in world(12, actions=("retain", "merge", "rewrite", "abstract"))
    ]  # fmt: skip
    told = to_markdown(make_report(from_rows(spoilt), draws=DRAWS, title=bad, about={bad: bad}))
    tags = set(re.findall(r"<[^>]*>", told))
    assert all(re.match(r'<(?:picture>|/picture>|source media="|img src="figures/)', tag) for tag in tags)
    told = re.sub(r"<[^>]*>", "", told)
    assert "<" not in told
    assert "onerror" in told
    assert not re.search(r"(?<!\\)`|(?<!\\)\[(?!Numbers|PNG|rows|report)|^# d", told, re.MULTILINE)
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in told.splitlines() if line.startswith("|")]
    assert columns
    for before, line in pairwise(told.splitlines()):
        if line.startswith("|") and before.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == len(re.findall(r"(?<!\\)\|", before))


def test_words_from_outside_are_shown_as_they_are_and_run_nowhere() -> None:
    text = page(hostile())
    assert "<script>alert" not in text.lower()
    shown = "".join(parsed(text).text)
    assert BAD in shown
    told = to_markdown(hostile())
    assert "<script" not in told.replace("\\<script", "")
    for figure in hostile().figures:
        if figure.missing is None:
            words = "".join(ElementTree.fromstring(figure.svg).itertext())
            assert "<script" not in figure.svg
            if figure.key.startswith("crossover"):
                assert "-->$x^2$" in words  # no formula, no comment


def test_page_reads_without_its_script() -> None:
    shown = " ".join("".join(parsed(page(made())).text).split())
    for table in made().tables:
        assert " ".join(table.title.split()) in shown
        assert table.missing is None or table.missing in shown
    for figure in made().figures:
        assert figure.caption in shown
    for value in values(made()):
        assert re.sub(r"(?<![\w.)])-(?=\.?\d)", "−", value.text) in shown


def test_rows_of_one_dataset_stand_under_its_name() -> None:
    article = re.search(r'<article id="x-all-actions">.*?</article>', page(made()), re.DOTALL)
    assert article is not None
    heads = re.findall(r'<tr class="group"><th scope="rowgroup" colspan="(\d)">(.*?)</th>', article.group())
    assert [name for _, name in heads] == ["LongMemEval, controlled", "LoCoMo, full history"]
    (table_,) = [each for each in made().tables if each.key == "all-actions"]
    assert article.group().count("<tr>") == 1 + len(table_.rows)
    assert {wide for wide, _ in heads} == {str(len(table_.columns) - 1)}


def test_what_is_missing_is_shown_with_its_reason(written: ReportFiles) -> None:
    told, text = (written.folder / "report.md").read_text(), "".join(parsed(page(made())).text)
    assert written.missing
    for key, why in written.missing.items():
        assert f"Not here: {why}." in text, key
        assert f"Not here: {why}." in told.replace("\\", ""), key


def test_marks_stand_under_their_table() -> None:
    text = page(made())
    for table in made().tables:
        article = re.search(rf'<article id="x-{table.key}">.*?</article>', text, re.DOTALL)
        assert article is not None
        for mark in table.marks:
            assert f"<li>{mark}</li>" in unescape(article.group())


# -- numbers and their rows --------------------------------------------------------------------------------------------


def decoded(data: dict[str, Any], name: str) -> list[int]:
    """The codes of a column, as the page's script reads them."""
    column = data["columns"][name]
    wide, text = column["wide"], column["codes"]
    digits = [ALPHABET.index(c) for c in text]
    return [
        sum(digit * 64 ** (wide - 1 - k) for k, digit in enumerate(digits[at : at + wide]))
        for at in range(0, len(text), wide)
    ]


@pytest.mark.parametrize("of", [made, hostile], ids=["made", "hostile"])
def test_every_filter_in_the_page_selects_the_rows_that_it_names(of: Any) -> None:
    data = embedded(page(of()))
    columns = {name: decoded(data, name) for name in data["columns"]}
    wanted = {
        json.dumps({k: v if isinstance(v, list) else [v] for k, v in dict(value.rows).items()}): value.rows
        for value in values(of())
        if value.rows
    }
    assert len(data["filters"]) == len(wanted)
    places = {json.dumps(each, sort_keys=True): each for each in data["filters"]}
    assert len(places) == len(data["filters"])
    picked = []
    for each in data["filters"]:
        chosen = [i for i in range(data["rows"]) if all(columns[name][i] in codes for name, codes in each.items())]
        assert chosen, each
        picked.append(tuple(data["columns"]["question_id"]["values"][columns["question_id"][i]] for i in chosen))
    named = [tuple(of().outcomes.where(**rows).columns["question_id"].tolist()) for rows in wanted.values()]
    assert sorted(picked) == sorted(named)


def over_questions(of: Outcomes, column: str) -> float:
    """The mean over questions and budgets, each averaged over its rows first."""
    cells: dict[Any, list[float]] = defaultdict(list)
    for row in of.rows():
        if row[column] == row[column]:
            cells[row["question_id"], row["budget"]].append(row[column])
    return fmean(map(fmean, cells.values()))


def test_an_accuracy_is_the_mean_of_the_rows_it_leads_to() -> None:
    checked = 0
    plain = [table for table in made().tables if table.key in ("all-actions", "full-history")]
    cells = [cell for table in plain for row in table.rows for cell in row if isinstance(cell, Value)]
    drawn = [row for figure in made().figures if "crossover" in figure.key for row in figure.rows]
    cells += [cell for row in drawn for cell in row[:-1] if isinstance(cell, Value)]
    cells += [v for v in values(made()) if v.text.endswith("%") and v.mean is not None]
    for cell in cells:
        assert cell.rows is not None
        if cell.mean is not None and len(cell.rows["action"]) == 1:
            found = over_questions(made().outcomes.where(**cell.rows), "judge_llm")
            assert found == pytest.approx(cell.mean, abs=1e-9), cell
            assert (
                cell.text.strip("%")[:3].lstrip("0")
                in (f"{found:.3f}".lstrip("0"), f"{100 * found:.1f}")[cell.text.endswith("%")]
            )
            checked += 1
    assert checked > 60


def test_a_gain_is_the_difference_of_the_rows_it_leads_to() -> None:
    (table,) = [table for table in made().tables if table.key == "operator-gains"]
    for row in table.rows:
        cell = row[2]
        assert isinstance(cell, Value)
        assert cell.rows is not None
        assert cell.mean is not None
        raw, other = (
            over_questions(made().outcomes.where(**{**cell.rows, "action": action}), "judge_llm")
            for action in cell.rows["action"]
        )
        assert other - raw == pytest.approx(cell.mean, abs=1e-9)


def test_csv_of_a_table_leads_to_rows_too(written: ReportFiles) -> None:
    rows_file = read(written.folder / "rows.csv")
    found = 0
    for key in written.tables:
        with (written.folder / "tables" / f"{key}.csv").open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if line["rows"]:
                    assert len(rows_file.where(**json.loads(line["rows"]))), line
                    found += 1
    assert found > 200


def test_csv_has_a_line_for_each_cell_of_ours_and_of_the_paper() -> None:
    one = table([("Merge", "32", Value("+.1", 0.1, 0.0, 0.2, {"budget": 32}))], [("Merge", "32", "+.4")])
    assert to_csv(one).splitlines() == [
        "by,row,column,text,mean,low,high,rows",
        'ours,Merge / 32,c,+.1,0.1,0.0,0.2,"{""budget"": 32}"',
        "paper,Merge / 32,c,+.4,,,,",
    ]


@given(st.lists(st.one_of(st.none(), st.integers(-5, 5000)), min_size=1, max_size=400))
def test_packed_columns_come_back(column: list[int | None]) -> None:
    packed = _pack([float("nan") if value is None else float(value) for value in column])
    data = {"columns": {"x": packed}}
    assert [packed["values"][code] for code in decoded(data, "x")] == column


def test_a_page_of_twenty_thousand_rows_stays_small() -> None:
    many = world(
        420,
        actions=("retain", "extract", "abstract", "merge", "rewrite", "hybrid"),
        budgets=(16, 32, 64, 128, 256, 512, 1024, 2048),
    )
    big = from_rows(row | {"seconds": row["logprob"] ** 2, "reader_tokens": row["cluster_tokens"]} for row in many)
    assert len(big) > 20_000
    assert len(page(replaced(big))) < 4_000_000


def replaced(outcomes: Outcomes) -> Report:
    """The made report, with other rows behind it."""
    of = made()
    names = ("title", "opening", "words", "facts", "judge", "published")
    return Report(outcomes=outcomes, tables=(), figures=of.figures, findings=(), **{n: getattr(of, n) for n in names})


# -- ours beside theirs ------------------------------------------------------------------------------------------------


def table(ours: Sequence[Sequence[Value | str]], theirs: Sequence[Sequence[str]]) -> Table:
    return Table("k", "t", "c", ("a", "b", "c"), tuple(map(tuple, ours)), tuple(map(tuple, theirs)))


def test_published_rows_stand_under_ours_of_the_same_name() -> None:
    found = pair_rows(
        table(
            [("Merge", "32", Value("1")), ("Merge", "64", Value("2")), ("Extract", "32", Value("3"))],
            [("merge", "64", "x"), ("Merge", "16", "y")],
        )
    )
    assert [(row[:2], by) for row, by in found] == [
        (("Merge", "32"), ""), (("Merge", "64"), ""), (("merge", "64"), "paper"), (("Extract", "32"), ""),
        (("Merge", "16"), "paper"),
    ]  # fmt: skip


def test_a_count_among_the_words_does_not_keep_rows_apart() -> None:
    found = pair_rows(table([("Temporal", "83", Value("1")), ("All", "300", Value("2"))], [("All", "75", "x")]))
    assert [by for _, by in found] == ["", "", "paper"]


names = st.sampled_from(["Merge", "Abstract", "Rewrite", "merge", ""])


@given(st.lists(st.tuples(names, names), max_size=6), st.lists(st.tuples(names, names, names), max_size=6))
def test_no_row_is_lost_or_doubled_by_pairing(ours: list[tuple[str, str]], theirs: list[tuple[str, str, str]]) -> None:
    given_rows = [(*row, Value(str(i))) for i, row in enumerate(ours)]
    found = pair_rows(table(given_rows, theirs))
    assert [row for row, by in found if not by] == given_rows
    assert sorted(map(str, (row for row, by in found if by))) == sorted(map(str, theirs))


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_dark_and_themed_figures_differ_in_colour_alone() -> None:
    svg = made().figures[0].svg
    plain = re.compile(r"(?<=: )(#[0-9a-f]{6}|var\(--c\d+\))")
    assert darken(svg) != svg
    assert plain.sub("", darken(svg)) == plain.sub("", svg) == plain.sub("", use_page_colours(svg))
    light, other = zip(*THEME, strict=True)
    assert len(set(light)) == len(light)
    assert len(set(other)) == len(other)


def brightness(colour: str) -> float:
    parts_ = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts_]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_every_mark_stands_out_from_the_page(side: int) -> None:
    _, _, faint_lines, paper, *marks = THEME
    for colour in (*THEME[:2], *marks):
        high, low = sorted((brightness(colour[side]), brightness(paper[side])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3, colour
    assert faint_lines not in marks


def test_known_actions_look_different_and_unknown_ones_always_the_same() -> None:
    known = ["retain", "abstract", "merge", "rewrite", "extract", "hybrid", "trunc", "retrel"]
    assert len({style_of(name)[0] for name in known}) == len(known)
    assert len({style_of(name)[1] for name in known}) == len(known)
    assert style_of("mine") == style_of("mine")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_names_are_moved_apart_and_stay_in_order(levels: list[float]) -> None:
    moved = _spread(sorted(levels), 0.1, 0.0, 1.0)
    assert all(b - a >= 0.1 - 1e-3 for a, b in pairwise(moved))
    assert moved[0] >= -1e-3
    assert moved[-1] <= 1 + 1e-3


def test_lists_in_sentences() -> None:
    assert join([]) == ""
    assert join(["a"]) == "a"
    assert join(["a", "b", "c"]) == "a, b and c"
    assert join(["a, x", "b"]) == "a, x; and b"


# -- the story ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tight", "loose", "said"),
    [
        ((0.1, 0.3), (-0.3, -0.1), "pays at 32 tokens and costs at 256"),
        ((0.1, 0.3), (-0.1, 0.2), "pays at 32 tokens; at 256 it is open"),
        ((0.1, 0.3), (0.1, 0.2), "pays at 32 tokens, and still at 256"),
        ((-0.1, 0.3), (-0.3, -0.1), "pays at 32 tokens is not shown here, and at 256 it costs"),
        ((-0.1, 0.3), (-0.1, 0.1), "pays at 32 tokens is not shown here."),
        ((-0.3, -0.1), (-0.1, 0.1), "costs at 32 tokens."),
        ((-0.3, -0.1), (-0.2, -0.1), "costs at 32 tokens, and at 256 too"),
    ],
)
def test_a_verdict_claims_what_intervals_settle_and_no_more(
    tight: tuple[float, float], loose: tuple[float, float], said: str
) -> None:
    first, last = (Estimate(sum(ends) / 2, *ends, 9) for ends in (tight, loose))
    assert said in _verdict(first, last, 32, 256)


@pytest.mark.usefixtures("written", "undrawn")
def test_opening_says_what_was_measured_and_by_whom() -> None:
    told = " ".join(made().opening)
    assert f"{len(rows()):,} outcomes" in told
    assert "LongMemEval, controlled (30 questions at 32 and 64 tokens, 6 actions)" in told
    assert "a model that the rows do not name" in told
    named = make_report(from_rows(world(5)), draws=DRAWS, about={"model": "qwen"})
    assert "Texts and answers are by qwen" in " ".join(named.opening)
    assert ("model", "qwen") in named.facts
    assert "another model (qwen)" in next(table for table in named.tables if table.key == "budget-pressure").marks
    assert not any("do not name their model" in mark for table in named.tables for mark in table.marks)


# -- thin and odd outcomes ---------------------------------------------------------------------------------------------

ODD = {
    "one question": world(1),
    "three questions": world(3),
    "one budget": world(12, budgets=(32,)),
    "retention alone": world(12, actions=("retain",)),
    "no retention": [row for row in world(12) if row["action"] != "retain"],
    "gaps": [row for i, row in enumerate(world(12)) if i % 5],
    "verdicts missing": [row | ({} if i % 7 else {"judge_llm": None}) for i, row in enumerate(world(12))],
    "questions without an answer only": [row | {"abstention": "yes"} for row in world(12)],
    "no features": [{k: row[k] for k in ("question_id", "budget", "action", "judge_llm")} for row in world(12)],
    "two models": [row | {"model": m, "realization": r} for r, m in enumerate("ab") for row in world(12)],
    "a name too long for a router": [row | {"action": row["action"].replace("merge", "m" * 101)} for row in world(12)],
    "a name with a bell": [row | {"action": row["action"].replace("merge", "m\a")} for row in world(12)],
    "names alike": [row | {"dataset": name} for name in ("a b", "a-b") for row in world(8)],
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_whatever_the_rows_a_report_comes_of_them(kind: str) -> None:
    of = make_report(from_rows(ODD[kind]), draws=DRAWS)
    text = page(of)
    found = parsed(text)
    assert len(found.ids) == len(set(found.ids))
    assert len(of.tables) == len(SPECS)
    assert "nan" not in re.sub(r"\W(nan)ces?\W", "", " ".join(found.text).lower()).split()
    keys = [each.key for each in of.figures]
    assert len(keys) == len(set(keys))
    assert all(to_csv(each) for each in of.tables if each.missing is None)
    data = embedded(text)
    assert all(all(codes for codes in each.values()) for each in data["filters"])


# -- the verb ----------------------------------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, str, str]:
    app = typer.Typer(cls=Verbs)
    app.command()(spread(verb.report))
    app.callback()(lambda: None)
    found = CliRunner().invoke(app, ["report", *words])
    return found.exit_code, found.stdout, found.stderr


def test_verb_writes_a_report_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(from_rows(world(8)), "o.csv")
    code, out, err = run("o.csv", "-o", "r", "--draws", "100", "--title", "Ours", "--about", "date=2026-11-15")
    assert code == 0
    assert "figures to r/report.html" in out
    assert "no cross-model: the rows are of one model" in err
    text = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "<title>Ours</title>" in text
    assert "2026-11-15" in text
    assert "2026" not in re.sub("2026-11-15|20260716", "", text)  # no clock was asked


@pytest.mark.usefixtures("undrawn")
def test_verb_gives_json_and_takes_rows_of_one_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(from_rows(rows()), "o.csv")
    code, out, _ = run("o.csv", "--draws", "100", "--dataset", "locomo", "--setting", "full-history", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["folder"] == "report"
    assert "figures/crossover-locomo-full-history.svg" in found["files"]
    assert "all-actions" in found["tables"]
    assert set(read("report/rows.csv").columns["dataset"].tolist()) == {"locomo"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.csv",), "cannot read none.csv"),
        (("o.csv", "--judge", "nobody"), "no judge 'nobody'; there are llm, overlap"),
        (("o.csv", "--dataset", "x"), "no dataset 'x' among these rows of o.csv; there are made"),
        (("o.csv", "--about", "x"), "--about takes KEY=VALUE, not 'x'"),
        (("o.csv", "--draws", "1"), "--draws"),
    ],
)
def test_verb_says_what_is_wrong_in_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(from_rows(world(5)), "o.csv")
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
