"""Operators: the registry, what a model is sent, and what is made of its replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retcon import Memory
from retcon.errors import InputError, MalformedReplyError, ModelError, RateLimitError
from retcon.ladder import DEFAULT_ORDER, next_look
from retcon.model import Ask, FakeChat, Reply
from retcon.note import ABSTRACT, HYBRID, MERGE, RETAIN, REWRITE, Cluster, Hit, Note, Packed
from retcon.operate import (
    ACTIONS,
    RULES,
    SMALLEST,
    Job,
    Length,
    as_data,
    clean_reply,
    finish_reply,
    operate,
    record,
    register,
    tag,
    usable,
)
from retcon.pack import costs, retain
from retcon.route import Router
from retcon.tokens import counter

COUNT = counter("estimate")
WRITERS = (MERGE, ABSTRACT, REWRITE, HYBRID)
NOTES = (
    Note("c", "The vet moved Pixel's check-up to 14 June at 9:30.", "ann", "s2", "2026-06-01T08:00:00"),
    Note("a", "I adopted a cat named Pixel from the shelter in Leeds.", "ann", "s1", "2026-05-09T10:00:00"),
    Note("b", "Pixel's check-up is on 12 June.", "bob", "s1", "2026-05-20"),
)


def cluster(notes: Sequence[Note] = NOTES, query: str = "When is the check-up?") -> Cluster:
    bare = Cluster(query, tuple(Hit(note, 1.0 / rank, rank) for rank, note in enumerate(notes, 1)))
    return replace(bare, costs=tuple(costs(bare.hits, count=COUNT)))


def made(action: str, chat: FakeChat, budget: int = 64, **options: object) -> Packed:
    given_cluster = options.pop("cluster", cluster())
    assert isinstance(given_cluster, Cluster)
    return operate(action, given_cluster, budget, count=COUNT, chat=chat, **options)  # type: ignore[arg-type]


def sent(chat: FakeChat, number: int = -1) -> str:
    """What the model was sent, as one text."""
    return "\n".join(message["content"] for message in chat.asked[number].messages)


class Batches(FakeChat):
    """A fake that also remembers how many asks came together."""

    def __init__(self, rule: Callable[[Ask], str]) -> None:
        super().__init__(rule)
        self.sizes: list[int] = []

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        self.sizes.append(len(asks))
        return super().__call__(asks)


# -- the registry ------------------------------------------------------------------------------------------------------


@pytest.fixture
def timeline() -> Iterator[str]:
    @register("timeline", about="one dated line per event")
    def _timeline(job: Job) -> Packed:
        return record(job, "One line per event, its date first{aim}.")

    yield "timeline"
    del ACTIONS["timeline"]


def test_a_registered_operator_is_listed_routed_forced_and_reported(timeline: str) -> None:
    assert timeline in usable(FakeChat())
    assert timeline not in usable(None)
    router = Router(
        name="mine",
        kind="rule",
        actions=("retain", timeline),
        features=("pressure",),
        weights={"retain": (0.0,), timeline: (1.0,)},
        intercepts={"retain": 1.0, timeline: 0.0},
    )
    chat = FakeChat(lambda ask: "2026-05-09 adopted a cat named Pixel")
    with Memory(":memory:", router=router, model=chat) as memory:
        for note in NOTES:
            memory.add(note.text, id=note.id, speaker=note.speaker, timestamp=note.timestamp)
        routed = memory.recall("cat", 24)
        assert (routed.action, routed.text) == (timeline, "2026-05-09 adopted a cat named Pixel")
        assert routed.record is not None
        assert (routed.record.action, routed.record.model) == (timeline, "fake")
        assert routed.fidelity is not None
        assert "One line per event, its date first, keeping" in sent(chat)
        assert memory.recall("cat", 1000).action == "retain"
        assert memory.recall("cat", 1000, action=timeline).decision.forced


def test_without_a_model_an_operator_that_needs_one_is_refused(timeline: str) -> None:
    with pytest.raises(InputError, match="timeline needs a model"):
        operate(timeline, cluster(), 64, count=COUNT)
    with Memory(":memory:") as memory, pytest.raises(InputError, match="timeline needs a model"):
        memory.recall("cat", 64, action=timeline)


@pytest.mark.parametrize("name", ["", "Timeline", "1st", "time line", "a" * 41, "a\n", "-a", "é", None, 3])
def test_odd_names_are_refused(name: object) -> None:
    with pytest.raises(InputError, match="name"):
        register(name, about="x")(lambda job: Packed("", 0))  # type: ignore[arg-type]
    assert name not in ACTIONS


@pytest.mark.parametrize("name", ["retain", "merge", "timeline"])
def test_a_name_is_taken_once(name: str, timeline: str) -> None:
    before = ACTIONS[name]
    with pytest.raises(InputError, match="already"):
        register(name, about="x")(lambda job: Packed("", 0))
    assert ACTIONS[name] is before


def test_instructions_may_hold_braces_and_text_without_sources_stands_on_all_notes() -> None:
    @register("braces", about="x")
    def _braces(job: Job) -> Packed:
        assert job.chat is not None
        return replace(record(job, "As JSON like {0} or {x}{aim}."), sources=())

    try:
        chat = FakeChat(['{"pet": "Pixel"}'])
        found = made("braces", chat)
        assert [source.id for source in found.sources] == ["c", "a", "b"]
        assert "As JSON like {0} or {x}, keeping" in sent(chat)
    finally:
        del ACTIONS["braces"]


@pytest.mark.parametrize("text", ["word " * 500, "x" * 3000, "\ud800 half", ""])
def test_whatever_an_operator_hands_back_is_held_to_the_budget(text: str) -> None:
    @register("careless", about="claims what it likes", needs_model=False)
    def _careless(job: Job) -> Packed:
        return Packed(text, 1)

    try:
        found = operate("careless", cluster(), 20, count=COUNT)
        assert found.tokens == (COUNT(found.text) if found.text else 0) <= 20
        found.text.encode()
        assert bool(found.text) == bool(found.sources)
    finally:
        del ACTIONS["careless"]


def test_the_ladder_goes_down_its_order_and_then_through_the_registry() -> None:
    assert DEFAULT_ORDER[:4] == ("extract", "merge", "abstract", "retain")
    left = ["zzz", *sorted(ACTIONS)]
    climbed: list[str] = []
    while len(climbed) < len(left):
        climbed.append(next_look(left, climbed))
    assert climbed == [*DEFAULT_ORDER, "zzz"]
    with pytest.raises(InputError, match="no action is left"):
        next_look(left, climbed)


# -- prompts -----------------------------------------------------------------------------------------------------------


def job(**fields: object) -> Job:
    return replace(Job(cluster(), 64, COUNT), **fields)  # type: ignore[arg-type]


CLOSES = re.compile(r"<\s*/?\s*note\b", re.IGNORECASE)
TAGS = st.lists(
    st.sampled_from(["<", "/", ">", " ", "note", "NOTE", "</note>", "<note>", "\n", "<<", "x", "‹", "\t", "memory"])
    | st.text(max_size=4),
    max_size=12,
).map("".join)


@given(TAGS, TAGS)
@example("</note>", "</NOTE >")
@example("< / note ><note>", "<")
@example("<</note>/note>", "note>")
def test_no_note_closes_or_opens_a_tag(text: str, speaker: str) -> None:
    found = tag(Note("x", text, speaker, timestamp="2026-05-09"))
    assert found.startswith("<note>")
    assert found.endswith("</note>")
    assert not CLOSES.search(found.removeprefix("<note>").removesuffix("</note>"))
    assert len(found.splitlines()) == 1


def test_neutralising_is_linear_and_leaves_plain_text_alone() -> None:
    for plain in ("x < y and a <b> c", "[1] see [INSTALL]", "I <3 notes", "notes > memory", "<strong>", "a <- s"):
        assert as_data(plain) == plain
    assert as_data("<" + " " * 200_000 + "x") == "<" + " " * 200_000 + "x"
    assert as_data("<" * 200_000 + "|").endswith("<‹|")
    assert as_data(as_data("<|im_end|></s>")) == as_data("<|im_end|></s>")


@pytest.mark.parametrize("action", WRITERS)
def test_a_focused_prompt_holds_the_question_and_an_agnostic_one_does_not(action: str) -> None:
    for focus in (True, False):
        chat = FakeChat(lambda ask: "Pixel.")
        made(action, chat, 32, focus=focus)
        assert chat.asked
        for ask in chat.asked:
            (system, user) = (message["content"] for message in ask.messages)
            assert system == RULES
            assert ("When is the check-up?" in user) is focus
            assert ("question" in user) is focus
            assert "{aim}" not in user


@pytest.mark.parametrize("budget", [12, 32, 100])
def test_the_token_ceiling_comes_from_the_budget(budget: int) -> None:
    for action in (MERGE, ABSTRACT):
        chat = FakeChat(lambda ask: "Pixel.")
        made(action, chat, budget)
        assert [ask.max_tokens for ask in chat.asked] == [budget + 8]
        assert f"At most {max(6, int(0.7 * budget))} words" in sent(chat)
        made(action, chat, budget, length=Length(0.9, "Write about {words} words."))
        assert chat.asked[-1].max_tokens == budget + 8
        assert f"Write about {max(6, int(0.9 * budget))} words." in sent(chat)
        assert "At most" not in sent(chat)
    chat = FakeChat(lambda ask: "Pixel.")
    made(REWRITE, chat, budget)
    assert all(SMALLEST + 8 <= ask.max_tokens <= budget + 8 for ask in chat.asked)


@given(st.permutations(NOTES))
def test_notes_stand_oldest_first_whatever_their_rank(ranked: list[Note]) -> None:
    text = sent_notes(ranked)
    assert [text.index(day) for day in ("2026-05-09", "2026-05-20", "2026-06-01")] == sorted(
        text.index(day) for day in ("2026-05-09", "2026-05-20", "2026-06-01")
    )
    assert "2026-05-09 ann: I adopted" in text
    assert text == sent_notes(NOTES)


def sent_notes(ranked: Sequence[Note]) -> str:
    """What a model is sent for notes of that rank."""
    hits = tuple(Hit(note, 1.0, rank, place=NOTES.index(note)) for rank, note in enumerate(ranked, 1))
    chat = FakeChat(lambda ask: "Pixel.")
    operate(MERGE, Cluster("Which cat?", hits), 64, count=COUNT, chat=chat)
    return chat.asked[0].messages[1]["content"]


def test_a_reply_that_the_ceiling_cut_ends_at_a_sentence_or_with_the_mark() -> None:
    def reply(text: str, finish: str) -> str:
        return finish_reply(Reply(text, 1, 1, 0.0, finish))

    assert reply("Pixel is two. She lives in Os", "length") == "Pixel is two."
    assert reply("Pixel lives with Maria Lopez in Os", "length") == "Pixel lives with Maria Lopez in ..."
    assert reply("Pixel lives in Oslo", "stop") == "Pixel lives in Oslo"
    assert reply("Pixelwithoutend", "length") == ""
    assert reply("Ann has:\n- a cat\n- a do", "length") == "Ann has:\n- a cat\n- a ..."
    assert reply('Ann left. She said "I go. You st', "length") == "Ann left."


def test_a_date_that_a_model_writes_twice_stands_once() -> None:
    assert clean_reply("2026-05-12 2026-05-12 Pixel moved; 2026-05-13: 2026-05-13 she left.") == (
        "2026-05-12 Pixel moved; 2026-05-13 she left."
    )
    assert clean_reply("12 May 2026 12 May 2026 she left.") == "12 May 2026 she left."
    assert clean_reply("2026-05-12 ann: 2026-05-12 she left.") == "2026-05-12 ann: she left."
    for said in ("Between 2026-05-12, 2026-05-12 and x", "2026-05-12, 2026-05-12 and 2026-05-13"):
        assert clean_reply(said) == said
    chat = FakeChat(lambda ask: "2026-05-09 ann: adopted Pixel.")
    assert "2026-05-09 ann: adopted Pixel." in made(REWRITE, chat, 64).text.splitlines()


@pytest.mark.parametrize("focus", [True, False])
@pytest.mark.parametrize("action", WRITERS)
def test_the_same_job_sends_the_same_bytes(action: str, focus: bool) -> None:
    first, second = FakeChat(lambda ask: "Pixel."), FakeChat(lambda ask: "Pixel.")
    assert made(action, first, 40, focus=focus) == made(action, second, 40, focus=focus)
    assert first.asked == second.asked


@pytest.mark.parametrize("action", [MERGE, ABSTRACT, REWRITE])
def test_without_focus_the_rank_of_the_notes_changes_nothing(action: str) -> None:
    def run(notes: Sequence[Note], focus: bool) -> tuple[Packed, list[Ask]]:
        chat = FakeChat(lambda ask: f"{len(ask.messages[1]['content'])} says {ask.messages[1]['content'][6:16]}")
        return made(action, chat, 40, focus=focus, cluster=cluster(notes)), chat.asked

    assert run(NOTES, False) == run(NOTES[::-1], False)
    assert run(NOTES, True)[0].sources != run(NOTES[::-1], True)[0].sources


# -- what each writes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [MERGE, ABSTRACT])
def test_merge_and_abstract_make_one_call_over_all_notes(action: str) -> None:
    chat = Batches(lambda ask: "Pixel's check-up is on 14 June at 9:30 (latest).")
    found = made(action, chat)
    assert chat.sizes == [1]
    assert all(note.text in sent(chat) for note in NOTES)
    assert found.text == "Pixel's check-up is on 14 June at 9:30 (latest)."
    assert {source.id for source in found.sources} == {"a", "b", "c"}
    assert (found.usage.model_calls, found.usage.completion_tokens) == (1, COUNT(found.text))
    assert found.usage.prompt_tokens > 100


def test_merge_and_abstract_ask_for_different_things() -> None:
    chats = [FakeChat(["x"]), FakeChat(["x"])]
    for action, chat in zip((MERGE, ABSTRACT), chats, strict=True):
        made(action, chat)
    assert sent(chats[0]) != sent(chats[1])


def shortened(ask: Ask) -> str:
    """A rewrite: the first note longest, the third shortest."""
    text = ask.messages[1]["content"]
    if "adopted" in text:
        return "Adopted the cat Pixel from the shelter in the town of Leeds"
    return "Check-up moved to 14 June 9:30" if "moved" in text else "Check-up 12 June"


def test_rewrite_asks_once_for_each_note_in_one_batch_and_keeps_note_boundaries() -> None:
    chat = Batches(shortened)
    found = made(REWRITE, chat, 100)
    assert chat.sizes == [3]
    assert [sum(note.text in sent(chat, i) for note in NOTES) for i in range(3)] == [1, 1, 1]
    assert found.text.splitlines() == [
        "2026-05-09 ann: Adopted the cat Pixel from the shelter in the town of Leeds",
        "2026-05-20 bob: Check-up 12 June",
        "2026-06-01 ann: Check-up moved to 14 June 9:30",
    ]
    assert [(source.id, source.text, source.whole) for source in found.sources] == [
        (note.id, note.text, False) for note in NOTES
    ]
    assert found.usage.model_calls == 3


def test_rewrite_packs_the_cheapest_first() -> None:
    lines = ["2026-05-20 bob: Check-up 12 June", "2026-06-01 ann: Check-up moved to 14 June 9:30"]
    budget = COUNT("\n".join(lines))
    found = made(REWRITE, FakeChat(shortened), budget)
    assert found.text.splitlines() == lines
    assert [drop.id for drop in found.dropped] == ["a"]
    ranked = cluster((NOTES[1], NOTES[0], NOTES[2]))  # the longest first: in rank order it would take the room of two
    assert COUNT("2026-05-09 ann: Adopted the cat Pixel from the shelter in the town of Leeds") <= budget
    assert made(REWRITE, FakeChat(shortened), budget, cluster=ranked).text.splitlines() == lines
    assert made(REWRITE, FakeChat(shortened), COUNT(lines[0])).text == lines[0]


def test_rewrite_cuts_a_line_that_would_not_fit_alone_and_joins_its_lines() -> None:
    found = made(REWRITE, FakeChat(lambda ask: "one\ntwo\n" * 300), 24)
    assert 12 < found.tokens <= 24
    assert re.fullmatch(r"2026-0\d-\d\d (?:ann|bob): (?:one two )+(?:one )?\.\.\.", found.text)


def test_rewrite_passes_over_notes_of_which_nothing_is_left() -> None:
    found = made(REWRITE, FakeChat(["", "Check-up 14 June", "``` ```"]), 64)
    assert (found.text, [source.id for source in found.sources]) == ("2026-05-09 ann: Check-up 14 June", ["a"])


LONG = tuple(
    Note(f"n{i}", f"On day {i} Ann walked {i + 2} km along the canal and fed the ducks.", "ann", None, f"2026-04-0{i}")
    for i in range(1, 7)
)


def test_hybrid_shows_whole_notes_first_and_then_an_abstract_of_the_rest() -> None:
    chat = FakeChat(["Ann walked 5 to 8 km on the later days."])
    found = made(HYBRID, chat, 90, cluster=cluster(LONG))
    head, _, tail = found.text.rpartition("\n")
    assert head == retain(cluster(LONG), 45, count=COUNT).text != ""
    assert tail == "Ann walked 5 to 8 km on the later days."
    whole = [source.id for source in found.sources if source.whole]
    assert whole == [f"n{i + 1}" for i in range(len(whole))]
    assert {source.id for source in found.sources} == {note.id for note in LONG}
    assert [note.id for note in LONG if note.text in sent(chat)] == [note.id for note in LONG if note.id not in whole]
    assert found.tokens == COUNT(found.text) <= 90


@given(st.integers(1, 200), st.text(max_size=600))
def test_hybrid_stays_within_its_budget(budget: int, reply: str) -> None:
    try:
        found = made(HYBRID, FakeChat(lambda ask: reply), budget, cluster=cluster(LONG))
    except MalformedReplyError:
        return
    assert found.tokens == (COUNT(found.text) if found.text else 0) <= budget


def test_hybrid_asks_nothing_where_all_notes_fit() -> None:
    chat = FakeChat()
    assert made(HYBRID, chat, 500) == retain(cluster(), 500, count=COUNT)
    assert chat.asked == []


def test_hybrid_with_no_room_for_a_record_is_retention() -> None:
    chat = FakeChat()
    assert made(HYBRID, chat, SMALLEST).text == retain(cluster(), SMALLEST, count=COUNT).text
    assert chat.asked == []


def test_hybrid_does_not_summarise_what_a_packed_note_says_already() -> None:
    twin = cluster((LONG[0], replace(LONG[0], id="twin"), *LONG[1:]))
    hits = tuple(replace(hit, duplicate_of="n1") if hit.id == "twin" else hit for hit in twin.hits)
    chat = FakeChat(["The rest."])
    found = made(HYBRID, chat, 60, cluster=replace(twin, hits=hits))
    assert found.sources[0].id == "n1"
    assert "twin" not in {source.id for source in found.sources}
    assert [drop.id for drop in found.dropped] == ["twin"]
    assert LONG[0].text not in sent(chat)


@pytest.mark.parametrize("action", WRITERS)
def test_nothing_is_asked_for_no_notes_no_budget_or_too_small_a_one(action: str) -> None:
    chat = FakeChat()
    assert made(action, chat, 64, cluster=cluster(())) == Packed("", 0)
    for budget in (0, 1, SMALLEST - 1):
        made(action, chat, budget)
    assert chat.asked == []


@pytest.mark.parametrize("action", WRITERS)
def test_a_model_that_fails_is_its_own_error(action: str) -> None:
    error = RateLimitError("slow down", retry_after=1.0)
    chat = FakeChat(["x", error, "x"] if action == REWRITE else [error])
    with pytest.raises(RateLimitError) as caught:
        made(action, chat, 32)
    assert caught.value is error


@pytest.mark.parametrize("action", [MERGE, ABSTRACT])
@pytest.mark.parametrize("reply", ["", " \n", "```\n```", "Record:", '""', "<note></note>"])
def test_a_reply_without_words_is_malformed(action: str, reply: str) -> None:
    with pytest.raises(MalformedReplyError, match="no word that fits 64 tokens"):
        made(action, FakeChat([reply]))


class Short:
    """A model that loses a reply."""

    name = kind = "short"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        found: list[Reply | ModelError] = [Reply("x", 1, 1, 0.0, "stop") for _ in asks]
        return found[1:]


@pytest.mark.parametrize("action", WRITERS)
def test_too_few_replies_are_malformed(action: str) -> None:
    with pytest.raises(MalformedReplyError, match=r"\d replies to \d asks"):
        operate(action, cluster(), 32, count=COUNT, chat=Short())


@given(st.sampled_from([MERGE, ABSTRACT, REWRITE]), st.text(), st.integers(SMALLEST, 80))
def test_every_text_is_within_its_budget(action: str, reply: str, budget: int) -> None:
    try:
        found = made(action, FakeChat(lambda ask: reply), budget)
    except MalformedReplyError:
        return
    assert found.tokens == (COUNT(found.text) if found.text else 0) <= budget
    found.text.encode()


# -- cleaning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        "Ann has a cat.",
        "  Ann has a cat.\n",
        "```\nAnn has a cat.\n```",
        "```text\nAnn has a cat.\n```",
        "```Ann has a cat.```",
        "Record: Ann has a cat.",
        "memory record:\nAnn has a cat.",
        "**Summary:** Ann has a cat.",
        "**Note**: Ann has a cat.",
        "Rewritten note: Ann has a cat.",
        '"Ann has a cat."',
        "“Ann has a cat.”",
        'Answer: "Ann has a cat."',
        "<note>Ann has a cat.</note>",
        "<NOTE >Ann has a cat.< /note>",
        "```\n<note>Record: Ann has a cat.</note>\n```",
    ],
)
def test_cleaning_takes_off_what_is_around_the_words(reply: str) -> None:
    assert clean_reply(reply) == "Ann has a cat."


@pytest.mark.parametrize(
    "text",
    [
        '"Yes" and "no"',
        'She said "stop"',
        "Records: 5",
        "a ``` b",
        "note the date",
        "<notebook>",
        "x < note",
        "Ann noted: a cat",
        '"',
    ],
)
def test_cleaning_leaves_the_words_alone(text: str) -> None:
    assert clean_reply(text) == text


@given(st.text(st.characters(), max_size=200))
def test_cleaning_survives_anything(text: str) -> None:
    clean_reply(text).encode()


def test_retain_is_no_writer() -> None:
    assert {name for name, action in ACTIONS.items() if action.needs_model} == set(WRITERS)
    assert ACTIONS[RETAIN].needs_model is False
