"""What the reader is sent, and whether its reply is an answer."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory
from retcon.answer import LONGEST, MARKER, abstains, prompt
from retcon.model import FakeChat

MARKED = [
    "NOT IN MEMORY",
    "NOT IN MEMORY.",
    "not in memory",
    "Not in Memory!",
    '"NOT IN MEMORY"',
    "“NOT IN MEMORY.”",
    "'Not in memory.'",
    "**NOT IN MEMORY**",
    "`NOT IN MEMORY`",
    "(not in memory)",
    "NOT_IN_MEMORY",
    "- NOT IN MEMORY",
    "  \n NOT  IN\nMEMORY  ",
    "Answer: NOT IN MEMORY",
    "The answer is not in memory.",
    "NOT IN MEMORY: the notes only speak of a dog.",
    "I would reply NOT IN MEMORY here, as the notes speak of a dog.",
]
OTHER_FORMS = [
    "",
    "   ",
    "...",
    "I don't know.",
    "I don’t know",
    "I do not know the answer.",
    "Don't know",
    "I cannot find it.",
    "I can't tell from the memory.",
    "We could not determine that",
    "Not mentioned.",
    "Not mentioned in the memory",
    "It is not stated.",
    "It's not specified in the notes.",
    "It was not found here",
    "Not in the memory.",
    "Not in my notes",
    "No information.",
    "There is no mention of a cat.",
    "Not enough information",
    "Insufficient information to answer",
    "Unknown",
    '"Unknown."',
    "N/A",
    "The memory does not say.",
    "The context doesn't mention it",
    "Unfortunately, I don't know.",
]
ANSWERS = [
    "She is not in Rome but in Oslo",
    "Not in Rome, in Oslo.",
    "Not in the kitchen but in the hall",
    "14 June",
    "No",
    "None",
    "Nobody",
    "0",
    "Unknown Mortal Orchestra",
    "Not available until 5 May",
    "Not known for its beaches, Leeds has canals",
    "No record player, a turntable",
    "In memory of her aunt",
    "Information desk",
    "The memory stick",
    "The notes from Monday",
    "It is in memory of Bob",
    "Nicht im Speicher",
    "不知道",
    "Говорил с Анной",
    "She said that she does not know him",
]


@pytest.mark.parametrize("reply", MARKED + OTHER_FORMS)
def test_an_abstention_is_recognised(reply: str) -> None:
    assert abstains(reply)


@pytest.mark.parametrize("reply", ANSWERS)
def test_an_answer_is_no_abstention(reply: str) -> None:
    assert not abstains(reply)


@given(
    st.sampled_from([MARKER, MARKER.lower(), MARKER.title()]),
    st.text(" \t\n.!\"'*_`()[]-:;“”", max_size=6),
    st.text(" \t\n.!\"'*_`()[]-:;“”", max_size=6),
)
def test_the_marker_is_seen_through_case_quotes_and_punctuation(marker: str, before: str, after: str) -> None:
    assert abstains(before + marker + after)


@given(st.text(st.characters()))
def test_any_reply_is_judged_without_failing(reply: str) -> None:
    assert abstains(reply) in (True, False)


def test_the_reader_is_told_the_marker_and_that_memory_is_data() -> None:
    ask = prompt("When?", "2026-05-09 ann: today")
    system, user = ask.messages
    assert (system["role"], user["role"]) == ("system", "user")
    assert MARKER in system["content"]
    assert "data" in system["content"]
    assert user["content"] == "<memory>\n2026-05-09 ann: today\n</memory>\n\nQuestion: When?"
    assert (ask.max_tokens, ask.temperature, ask.seed) == (LONGEST, 0.0, None)
    assert prompt("When?", "x", temperature=0.7, seed=3).seed == 3
    assert ask == prompt("When?", "2026-05-09 ann: today")


@given(st.text(max_size=40), st.sampled_from(["</memory>", "< / MEMORY >", "<memory>", "<<memory>", "</note>"]))
def test_no_memory_closes_its_tags_and_no_question_has_a_second_line(text: str, tag: str) -> None:
    user = prompt(f"a\n{text}{tag}", text + tag + text).messages[1]["content"]
    assert re.findall(r"<\s*/?\s*(?:memory|note)\b", user, re.IGNORECASE) == ["<memory", "</memory"]
    assert len(user.rpartition("\n\nQuestion: ")[2].splitlines()) == 1


def test_an_answer_is_plain_json() -> None:
    with Memory(":memory:", model=FakeChat(["In Leeds."])) as memory:
        memory.add("Ann lives in Leeds.", timestamp="2026-05-09")
        found = memory.ask("Where does Ann live?", 64)
    plain = json.loads(json.dumps(found.to_dict()))
    assert (plain["question"], plain["answer"], plain["in_memory"]) == ("Where does Ann live?", "In Leeds.", True)
    (look,) = plain["looks"]
    assert (look["action"], look["reply"], look["abstained"], look["error"]) == ("retain", "In Leeds.", False, None)
    assert look["usage"] == plain["usage"]
    assert look["recall"]["text"] == "2026-05-09 Ann lives in Leeds."
    assert plain["warnings"] == []
