"""Packing: the budget holds for every text and counter, and every candidate is shown as stored or accounted for."""

from __future__ import annotations

import time
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.errors import InputError
from retcon.note import MARK, Cluster, Hit, Note, Packed
from retcon.pack import costs, fit_fraction, pack_text, render, retain
from retcon.tokens import Counter, counter

ODD = {
    "characters": len,
    "thirds": lambda t: len(t) // 3,
    "bytes": lambda t: len(t.encode("utf-8", "surrogatepass")),
    "one": lambda t: 1,
    "seven": lambda t: 7,
    "square": lambda t: len(t) ** 2 // 50,  # the whole costs more than its parts
    "wave": lambda t: len(t) % 11,  # goes up and down
    "falling": lambda t: max(0, 60 - len(t)),  # more text costs less
}
COUNTERS = [counter("estimate"), counter("alphanumeric"), *(counter(odd) for odd in ODD.values())]
ADDITIVE = [counter(len), counter(ODD["bytes"]), counter("alphanumeric")]

TEXT = st.one_of(
    st.text(max_size=80),
    st.text(st.characters(codec=None), max_size=20),  # lone surrogates too
    st.sampled_from(
        ["I ran 5 km.", "我昨天买了一只猫。它叫小白！", "👩‍👩‍👧 yes 🎉🎉", "one\ntwo\r\n\nthree", "  ", ""]
    ),
)
STAMP = st.one_of(st.none(), st.dates().map("{}T10:00".format), st.sampled_from(["2026-05-09", "soon"]))
NAME = st.one_of(st.none(), st.sampled_from(["ann", "Bob", "", "a\nb"]))


@st.composite
def clusters(draw: st.DrawFn, most: int = 7) -> Cluster:
    """Any notes in any order of score, some of them marked as repeats of an earlier one."""
    count = draw(st.integers(0, most))
    hits = []
    for i in range(count):
        note = Note(f"n{i}", draw(TEXT), draw(NAME), timestamp=draw(STAMP))
        same = draw(st.sampled_from([None, None, *(f"n{j}" for j in range(i))]))
        hits.append(Hit(note, draw(st.floats(0, 30)), i + 1, same))
    return Cluster(draw(TEXT), tuple(hits))


def cluster_of(*texts: str, query: str = "cat", stamps: bool = False) -> Cluster:
    days = [f"2026-05-{9 + i:02d}T10:00" if stamps else None for i in range(len(texts))]
    notes = [Note(f"n{i}", text, timestamp=day) for i, (text, day) in enumerate(zip(texts, days, strict=True))]
    return Cluster(query, tuple(Hit(note, float(len(texts) - i), i + 1) for i, note in enumerate(notes)))


def accounted(packed: Packed, cluster: Cluster) -> bool:
    return sorted([s.id for s in packed.sources] + [d.id for d in packed.dropped]) == sorted(h.id for h in cluster.hits)


@given(clusters(), st.integers(0, 300), st.sampled_from(COUNTERS), st.sampled_from(["rank", "cheapest"]))
def test_retain_never_exceeds_the_budget_and_reports_its_own_count(
    cluster: Cluster, budget: int, count: Counter, order: Literal["rank", "cheapest"]
) -> None:
    packed = retain(cluster, budget, count=count, order=order)
    assert packed.tokens <= budget
    assert packed.tokens == (count(packed.text) if packed.text else 0)
    assert accounted(packed, cluster)
    assert packed == retain(cluster, budget, count=count, order=order)


@given(clusters(), st.integers(0, 300), st.sampled_from(COUNTERS), st.sampled_from(["rank", "cheapest"]))
def test_retain_shows_exactly_the_rendered_sources(
    cluster: Cluster, budget: int, count: Counter, order: Literal["rank", "cheapest"]
) -> None:
    packed = retain(cluster, budget, count=count, order=order)
    notes = {note.id: note for note in cluster.notes}
    lines = sorted(render(notes[source.id]) for source in packed.sources)
    assert sorted(packed.text.split("\n") if packed.sources else []) == lines
    assert all(source.whole and source.text == notes[source.id].text for source in packed.sources)
    shown = {source.id for source in packed.sources}
    assert [note.id for note in cluster.notes if note.id in shown] == [source.id for source in packed.sources]


@given(clusters(), st.integers(0, 300), st.sampled_from(COUNTERS), st.sampled_from(["rank", "cheapest"]))
def test_text_accounting_costs_raw_text_alone(
    cluster: Cluster, budget: int, count: Counter, order: Literal["rank", "cheapest"]
) -> None:
    packed = retain(cluster, budget, count=count, order=order, accounting="text")
    assert packed.tokens == sum(count(source.text) for source in packed.sources) <= budget
    assert accounted(packed, cluster)


@given(clusters(), st.integers(0, 300), st.sampled_from(ADDITIVE), st.sampled_from(["rank", "cheapest"]), st.booleans())
def test_fit_fraction_is_the_share_that_retain_does_not_drop_for_the_budget(
    cluster: Cluster, budget: int, count: Counter, order: Literal["rank", "cheapest"], rendered: bool
) -> None:
    accounting: Literal["rendered", "text"] = "rendered" if rendered else "text"
    packed = retain(cluster, budget, count=count, order=order, accounting=accounting)
    short = sum(drop.code == "budget" for drop in packed.dropped)
    expected = (len(cluster.hits) - short) / len(cluster.hits) if cluster.hits else 1.0
    given_costs = costs(cluster.hits, count=count, accounting=accounting)
    for each in (None, given_costs):
        assert fit_fraction(cluster, budget, count=count, order=order, accounting=accounting, costs=each) == expected


@given(clusters(), st.integers(0, 300), st.sampled_from(["rank", "cheapest"]))
def test_fit_fraction_agrees_with_retain_under_the_default_estimate(
    cluster: Cluster, budget: int, order: Literal["rank", "cheapest"]
) -> None:
    count = counter("estimate")
    short = sum(drop.code == "budget" for drop in retain(cluster, budget, count=count, order=order).dropped)
    expected = (len(cluster.hits) - short) / len(cluster.hits) if cluster.hits else 1.0
    assert fit_fraction(cluster, budget, count=count, order=order) == expected


@given(clusters(), st.integers(1, 120), st.sampled_from(ADDITIVE))
def test_retain_packs_as_an_independent_greedy_loop_does(cluster: Cluster, budget: int, count: Counter) -> None:
    lines: list[str] = []
    kept: list[str] = []
    for hit in cluster.hits:
        if hit.duplicate_of in kept:
            continue
        if count("\n".join([*lines, render(hit.note)])) <= budget:
            lines.append(render(hit.note))
            kept.append(hit.id)
    assert [source.id for source in retain(cluster, budget, count=count).sources] == kept


@given(clusters(), st.integers(0, 60), st.sampled_from(COUNTERS))
def test_every_drop_for_the_budget_needs_more_than_was_left(cluster: Cluster, budget: int, count: Counter) -> None:
    for drop in retain(cluster, budget, count=count).dropped:
        if drop.code == "budget" and drop.reason.startswith("needs") and budget:
            need, left = (int(word) for word in drop.reason.replace(",", "").split() if word.lstrip("-").isdecimal())
            assert need > left


def test_a_note_that_does_not_fit_is_skipped_and_a_smaller_one_enters() -> None:
    packed = retain(cluster_of("x" * 50, "y" * 96, "z" * 20), 80, count=counter(len))
    assert packed.text == "x" * 50 + "\n" + "z" * 20
    assert [(d.id, d.code, d.reason) for d in packed.dropped] == [
        ("n1", "budget", "needs 97 tokens, 30 left")
    ]  # with its line break


def test_cheapest_first_packs_more_notes_and_shows_them_best_first() -> None:
    cluster = cluster_of("a" * 60, "b" * 30, "c" * 20)
    assert retain(cluster, 60, count=counter(len)).text == "a" * 60
    assert retain(cluster, 60, count=counter(len), order="cheapest").text == "b" * 30 + "\n" + "c" * 20


def test_a_near_duplicate_of_a_packed_note_is_dropped_in_rank_order_only() -> None:
    notes = [Note("a", "I have a cat."), Note("b", "I have a cat!")]
    cluster = Cluster("cat", (Hit(notes[0], 2.0, 1), Hit(notes[1], 1.0, 2, duplicate_of="a")))
    ranked = retain(cluster, 100, count=counter(len))
    assert [(d.id, d.code, d.reason) for d in ranked.dropped] == [("b", "duplicate", "says the same as a")]
    assert fit_fraction(cluster, 100, count=counter(len)) == 1.0
    assert len(retain(cluster, 100, count=counter(len), order="cheapest").sources) == 2


def test_a_near_duplicate_enters_where_the_better_note_does_not_fit() -> None:
    notes = [Note("a", "I have a cat, as I said before."), Note("b", "I have a cat.")]
    cluster = Cluster("cat", (Hit(notes[0], 2.0, 1), Hit(notes[1], 1.0, 2, duplicate_of="a")))
    assert retain(cluster, 15, count=counter(len)).text == "I have a cat."


@pytest.mark.parametrize(
    ("note", "line"),
    [
        (Note("1", "I adopted a cat.", "ann", timestamp="2026-05-09T10:00"), "2026-05-09 ann: I adopted a cat."),
        (Note("1", "I adopted a cat."), "I adopted a cat."),
        (Note("1", "hi", timestamp="2026-05-09"), "2026-05-09 hi"),
        (Note("1", "hi", "ann", timestamp="soon"), "ann: hi"),
        (Note("1", "one\n  2026-05-09 bob: two\r\n\u2028three "), "one 2026-05-09 bob: two three"),
        (Note("1", "我昨天买了一只猫。🎉", "小明"), "小明: 我昨天买了一只猫。🎉"),
    ],
)
def test_a_note_renders_on_one_line(note: Note, line: str) -> None:
    assert render(note) == line


@given(TEXT, NAME)
def test_no_text_or_name_makes_a_second_line(text: str, name: str | None) -> None:
    assert len(render(Note("1", text, name, timestamp="2026-05-09")).splitlines()) == 1


@given(TEXT, st.integers(0, 40), st.sampled_from(COUNTERS))
def test_generated_text_is_cut_to_its_budget_as_a_prefix(text: str, budget: int, count: Counter) -> None:
    kept = pack_text(text, budget, count)
    assert text.startswith(kept) or (kept.endswith(MARK) and text.startswith(kept.removesuffix(MARK)))
    assert not kept or count(kept) <= budget
    assert budget or not kept


@pytest.mark.parametrize("call", [retain, fit_fraction])
def test_a_negative_budget_is_an_error(call: object) -> None:
    with pytest.raises(InputError, match="-1"):
        call(cluster_of("a"), -1, count=counter(len))  # type: ignore[operator]


def test_an_unknown_order_and_a_wrong_number_of_costs_are_errors() -> None:
    with pytest.raises(InputError, match="random"):
        retain(cluster_of("a"), 5, count=counter(len), order="random")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 costs for 1"):
        fit_fraction(cluster_of("a"), 5, count=counter(len), costs=[1, 2])


def test_fit_fraction_is_quick_with_costs_given() -> None:
    texts = (f"Note {i}: " + "we talked about the trip to Oslo and more. " * 3 for i in range(20))
    cluster = cluster_of(*texts, stamps=True)
    each = costs(cluster.hits, count=counter("estimate"))
    best = min(_seconds(cluster, each) for _ in range(20))
    assert best < 0.003  # ten times the goal: a loaded machine passes, a quadratic rewrite does not


def _seconds(cluster: Cluster, each: list[int]) -> float:
    start = time.process_time()
    fit_fraction(cluster, 128, count=counter("estimate"), costs=each)
    return time.process_time() - start
