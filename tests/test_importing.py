"""Import: files of other memories and chat exports, written after their public schemas, become notes, each once."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, document, fine
from hypothesis import given
from hypothesis import strategies as st

from retcon import Memory, Note
from retcon.errors import InputError, RefusedError
from retcon.importing import SOURCES, Imported, import_data, import_file

MEM0: dict[str, Any] = {
    "results": [
        {
            "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e", "memory": "Ann has a cat named Pixel", "hash": "bf1",
            "metadata": {"topic": "pets"}, "created_at": "2026-05-01T10:00:00-07:00", "updated_at": None,
            "user_id": "ann", "agent_id": "a9", "role": "user",
        },
        {
            "id": "1", "memory": "Bob pays 725 euros of rent", "metadata": None, "user_id": "bob", "score": 0.3,
            "created_at": "2026-05-01T10:00:00+00:00", "updated_at": "2026-05-03T10:00:00+00:00",
            "expiration_date": "2099-12-31", "categories": ["money"],
        },
    ]
}  # fmt: skip
LANGGRAPH = [
    {
        "namespace": ["memories", "ann"], "key": "k1", "value": {"text": "Ann likes tea.", "score": 3},
        "created_at": "2026-05-01T10:00:00+00:00", "updated_at": "2026-05-02T10:00:00+00:00",
    },
    {
        "namespace": ["bob", "a9", "memories"], "key": "k2", "createdAt": "2026-05-01T10:00:00Z",
        "value": {"kind": "Memory", "content": {"content": "Bob likes rain.", "importance": 1}},
    },
    {"namespace": ["memories", "ann"], "key": "k3", "value": {"food": "soup", "age": 30}},
    {"namespace": ["memories", "ann"], "key": "k4", "value": {}},
]  # fmt: skip


def node(
    name: str, parent: str | None, children: list[str], role: str | None = None, text: str = "", **more: Any
) -> Any:
    content = more.pop("content", {"content_type": "text", "parts": [text]})
    message = {
        "id": name, "author": {"role": role, "name": None, "metadata": {}}, "create_time": more.pop("time", None),
        "content": content, "status": "finished_successfully", "weight": 1.0, "metadata": {}, "recipient": "all",
        **more,
    }  # fmt: skip
    return {"id": name, "message": message if role else None, "parent": parent, "children": children}


CHATGPT = [
    {
        "title": "A cat", "create_time": 1778320000.5, "update_time": 1778320100.0, "conversation_id": "c1", "id": "c1",
        "current_node": "a2",
        "mapping": {
            "root": node("root", None, ["s"]),
            "s": node("s", "root", ["u1"], "system", "", metadata={"is_visually_hidden_from_conversation": True}),
            "u1": node("u1", "s", ["a1", "a2"], "user", "My cat is called Pixel.", time=1778320000.5),
            "a1": node("a1", "u1", [], "assistant", "Nice cat.", time=1778320010.0),
            "a2": node("a2", "u1", ["t"], "assistant", "A lovely name.", time=1778320020.0),
            "t": node("t", "a2", [], "tool", "done"),
        },
    },
    {
        "title": None, "create_time": 1778400000.0, "conversation_id": "c2", "current_node": "x3",
        "mapping": {
            "x1": node("x1", None, ["x2"], "user", content={
                "content_type": "multimodal_text",
                "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "file-x"}, "What is this?"],
            }),
            "x2": node("x2", "x1", ["x3"], "assistant", content={"content_type": "code", "text": "search()"},
                       recipient="browser"),
            "x3": node("x3", "x2", [], "assistant", content={"content_type": "thoughts", "thoughts": []}),
        },
    },
]  # fmt: skip
CLAUDE = [
    {
        "uuid": "conv-1", "name": "Rent", "created_at": "2026-05-01T10:00:00.123456Z", "account": {"uuid": "acc"},
        "chat_messages": [
            {
                "uuid": "m1", "sender": "human", "created_at": "2026-05-01T10:00:01Z", "text": "The rent is 725.",
                "content": [{"type": "text", "text": "The rent is 725."}], "files": [],
                "attachments": [{"file_name": "lease.txt", "extracted_content": "No pets allowed."}],
            },
            {
                "uuid": "m2", "sender": "assistant", "created_at": "2026-05-01T10:00:09Z", "text": "whole",
                "content": [{"type": "thinking", "thinking": "..."}, {"type": "text", "text": "That is a lot."}],
                "attachments": [],
            },
            {"uuid": "m3", "sender": "assistant", "text": "", "content": [{"type": "tool_use", "name": "x"}]},
        ],
    }
]  # fmt: skip
SEND = {"id": "t1", "type": "function", "function": {"name": "send_message", "arguments": '{"message": "Hello Ann."}'}}
LETTA_OLD = {
    "name": "scout", "agent_type": "memgpt_agent",
    "core_memory": [
        {"label": "human", "value": "Her name is Ann.", "created_at": "2026-05-01T10:00:00", "updated_at": None},
        {"label": "persona", "value": ""},
    ],
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "You are scout."}]},
        {
            "role": "user", "created_at": "2026-05-01T10:01:00",
            "content": [{"type": "text", "text": '{"type": "user_message", "message": "My cat is Pixel."}'}],
        },
        {"role": "user", "content": [{"type": "text", "text": '{"type": "heartbeat", "reason": "x"}'}]},
        {"role": "assistant", "content": None, "tool_calls": [SEND], "created_at": "2026-05-01T10:02:00"},
    ],
}  # fmt: skip
LETTA = {
    "agents": [
        {
            "id": "agent-0", "name": "scout", "block_ids": ["block-0"],
            "messages": [
                {"id": "message-0", "role": "user", "content": "Hi there.", "created_at": "2026-05-01T10:00:00Z"},
                {"id": "message-1", "role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
            ],
        }
    ],
    "blocks": [{"id": "block-0", "label": "human", "value": "Her name is Ann.", "limit": 5000}],
}  # fmt: skip
ZEP = {
    "items": [
        {
            "uuid": "z1", "role": "user", "name": "Ann", "content": "My cat is Pixel.", "thread_uuid": "th",
            "created_at": "2026-05-02T10:00:00Z", "reference_time": "2026-05-01T10:00:00Z", "metadata": {"a": 1},
        },
        {"uuid": "z2", "role": "system", "content": "Be brief."},
        {"uuid": "z3", "fact": "Ann lives in Oslo", "name": "LIVES_IN", "valid_at": "2026-04-01T00:00:00Z"},
        {"uuid": "z4", "fact": "Ann lives in Bergen", "name": "LIVES_IN", "invalid_at": "2026-04-01T00:00:00Z"},
    ],
    "next_cursor": None,
}  # fmt: skip
PLAIN = [
    "Just a text.",
    {"role": "user", "content": "The rent is 725.", "created_at": "2026-05-01"},
    {"role": "system", "content": "Be brief."},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}], "id": "talk-1"},
    {"text": "A note.", "user_id": "bob", "metadata": {"n": 1}, "timestamp": "2026-05-02", "id": "n1"},
]
FILES: dict[str, Any] = {
    "mem0": MEM0, "langgraph": LANGGRAPH, "chatgpt": CHATGPT, "claude": CLAUDE, "letta": LETTA_OLD, "zep": ZEP,
    "json": PLAIN,
}  # fmt: skip


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(":memory:") as opened:
        yield opened


def run(memory: Memory, source: str, content: Any, **options: Any) -> Imported:
    return import_data(memory, json.dumps(content).encode(), source, name="f.json", **options)


def told(memory: Memory, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(note, name) for name in ("text", *names)) for note in memory.get_all()]


# -- each kind of file -------------------------------------------------------------------------------------------------


def test_mem0_brings_ids_times_roles_metadata_and_expiry(memory: Memory) -> None:
    found = run(memory, "mem0", MEM0)
    ann, bob = memory.get_all()
    assert (ann.text, ann.user_id, ann.agent_id, ann.speaker) == ("Ann has a cat named Pixel", "ann", "a9", "user")
    assert ann.timestamp == "2026-05-01T10:00:00-07:00"
    assert ann.metadata == {"topic": "pets", "source": "mem0", "source_id": MEM0["results"][0]["id"]}
    assert (bob.timestamp, bob.expires_at) == ("2026-05-03T10:00:00+00:00", "2100-01-01T00:00:00+00:00")
    assert bob.metadata["categories"] == ["money"]
    assert found.scopes == [{"user_id": "ann", "agent_id": "a9", "notes": 1}, {"user_id": "bob", "notes": 1}]
    assert ann.follows is bob.follows is None  # facts are no turns of a talk


def test_langgraph_reads_words_and_namespaces(memory: Memory) -> None:
    found = run(memory, "langgraph", LANGGRAPH)
    assert told(memory, "user_id", "agent_id", "timestamp") == [
        ("Ann likes tea.", "ann", None, "2026-05-02T10:00:00+00:00"),
        ("Bob likes rain.", "bob", "a9", "2026-05-01T10:00:00+00:00"),
        ('{"food": "soup", "age": 30}', "ann", None, None),
    ]
    tea, rain, _ = memory.get_all()
    assert (tea.metadata["namespace"], tea.metadata["key"], tea.metadata["score"]) == (["memories", "ann"], "k1", 3)
    assert (rain.metadata["kind"], rain.metadata["importance"]) == ("Memory", 1)
    assert found.skipped == {"item without a value": 1}


def test_langgraph_reads_a_namespace_as_it_is_told(memory: Memory) -> None:
    run(memory, "langgraph", {"items": LANGGRAPH[:1]}, namespace="*/{agent_id}", user_id="eve")
    assert told(memory, "user_id", "agent_id") == [("Ann likes tea.", "eve", "ann")]
    for pattern, words in (("docs/{user_id}", "memories/ann"), ("{user_id}", "memories/ann"), ("a/{name}", "name")):
        with pytest.raises(InputError, match=words):
            run(memory, "langgraph", LANGGRAPH[:1], namespace=pattern)


def test_chatgpt_takes_the_branch_that_one_sees(memory: Memory) -> None:
    found = run(memory, "chatgpt", CHATGPT, user_id="ann")
    assert told(memory, "speaker", "session", "user_id") == [
        ("My cat is called Pixel.", "user", "c1", "ann"), ("A lovely name.", "assistant", "c1", "ann"),
        ("What is this?", "user", "c2", "ann"),
    ]  # fmt: skip
    first, second, third = memory.get_all()
    assert first.timestamp == "2026-05-09T09:46:40.500000+00:00"
    assert third.timestamp is not None  # of the conversation, where the message has none
    assert second.follows == first.id
    assert first.metadata["title"] == "A cat"
    assert "title" not in third.metadata
    assert found.skipped["message of another branch"] == 1
    assert sum(found.skipped.values()) == 5


def test_chatgpt_takes_every_branch_on_request(memory: Memory) -> None:
    run(memory, "chatgpt", CHATGPT[:1], all_branches=True)
    assert [text for (text,) in told(memory)] == ["My cat is called Pixel.", "Nice cat.", "A lovely name."]


@pytest.mark.parametrize("source", ["chatgpt", "claude"])
def test_a_zip_of_an_export_is_looked_into(memory: Memory, source: str, tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("user.json", "{}")
        packed.writestr("folder/conversations.json", json.dumps(FILES[source]))
    assert import_file(memory, path, source).added == run(memory, source, FILES[source]).known > 0


def test_claude_brings_senders_parts_and_attachments(memory: Memory) -> None:
    found = run(memory, "claude", CLAUDE)
    assert told(memory, "speaker", "session", "timestamp") == [
        ("The rent is 725.", "user", "conv-1", "2026-05-01T10:00:01+00:00"),
        ("No pets allowed.", "user", "conv-1", "2026-05-01T10:00:01+00:00"),
        ("That is a lot.", "assistant", "conv-1", "2026-05-01T10:00:09+00:00"),
    ]
    assert memory.get_all()[1].metadata["file_name"] == "lease.txt"
    assert found.skipped == {"message without words": 1}


def test_letta_brings_blocks_and_what_was_said(memory: Memory) -> None:
    found = run(memory, "letta", LETTA_OLD)
    assert told(memory, "agent_id", "speaker") == [
        ("Her name is Ann.", "scout", None), ("My cat is Pixel.", "scout", "user"),
        ("Hello Ann.", "scout", "assistant"),
    ]  # fmt: skip
    assert memory.get_all()[0].metadata["block"] == "human"
    assert found.skipped == {"empty block": 1, "message of the system": 1, "message without words": 1}
    run(memory, "letta", LETTA)
    assert [text for (text,) in told(memory)][3:] == ["Hi there.", "Hello."]  # the block is there already


def test_zep_brings_messages_and_facts_that_hold(memory: Memory) -> None:
    found = run(memory, "zep", ZEP)
    assert told(memory, "speaker", "session", "timestamp") == [
        ("My cat is Pixel.", "Ann", "th", "2026-05-01T10:00:00+00:00"),
        ("Ann lives in Oslo", None, None, "2026-04-01T00:00:00+00:00"),
    ]
    assert found.skipped == {"message of the system": 1, "fact that no longer holds": 1}


def test_plain_json_takes_texts_messages_notes_and_conversations(memory: Memory) -> None:
    found = run(memory, "json", PLAIN, user_id="ann")
    assert told(memory, "user_id", "speaker", "session", "timestamp") == [
        ("Just a text.", "ann", None, None, None), ("The rent is 725.", "ann", "user", None, "2026-05-01"),
        ("Hi.", "ann", "user", "talk-1", None), ("Hello.", "ann", "assistant", "talk-1", None),
        ("A note.", "bob", None, None, "2026-05-02"),
    ]  # fmt: skip
    assert found.skipped == {"message of the system": 1, "message without words": 1}
    assert (found.first, found.last, found.sessions) == ("2026-05-01", "2026-05-02", 1)


def test_jsonl_is_the_same_line_by_line(memory: Memory) -> None:
    lines = "\n".join(json.dumps(each) for each in PLAIN) + "\n\n"
    assert import_data(memory, lines.encode("utf-8-sig"), "jsonl", user_id="ann").added == 5
    with pytest.raises(InputError, match="line 2 is not JSON at line 1 column 1"):
        import_data(memory, b'"a"\nnonsense\n', "jsonl", name="f")


def test_an_export_of_our_own_can_be_imported_under_another_user(memory: Memory, tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db") as other:
        first = other.add("The rent is 725.", user_id="bob")[0]
        other.supersede(first.id, "The rent is 740.")
        other.export(tmp_path / "notes.jsonl")
    assert import_file(memory, tmp_path / "notes.jsonl", "jsonl").added == 2


# -- once --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", FILES)
def test_run_twice_it_stores_once_and_a_dry_run_tells_the_same_and_stores_nothing(memory: Memory, source: str) -> None:
    before = run(memory, source, FILES[source], dry_run=True, user_id="ann")
    assert memory.get_all() == []
    assert before.dry_run
    first = run(memory, source, FILES[source], user_id="ann")
    assert replace(before, dry_run=False) == first
    assert first.added == len(memory.get_all()) > 0
    again = run(memory, source, FILES[source], user_id="ann")
    assert (again.added, again.known) == (0, first.added)
    other = run(memory, source, FILES[source], user_id="eve")
    assert other.added == sum(note.user_id == "eve" for note in memory.get_all())


@pytest.mark.parametrize("source", ["mem0", "langgraph", "letta"])
def test_a_text_that_has_changed_there_is_a_correction_here(memory: Memory, source: str) -> None:
    run(memory, source, FILES[source])
    changed = json.loads(json.dumps(FILES[source]).replace("cat named Pixel", "cat named Dot").replace("tea", "milk")
                         .replace("name is Ann", "name is Anna"))  # fmt: skip
    found = run(memory, source, changed)
    assert (found.added, found.updated) == (1, 1)
    (new,) = [note for note in memory.get_all() if note.supersedes]
    assert len(memory.history(new.id)) == 2
    assert run(memory, source, changed).added == run(memory, source, FILES[source]).added == 0
    both = [*changed["results"], *MEM0["results"]] if source == "mem0" else None
    if both:  # the same id twice in one file: two versions of one memory
        with Memory(":memory:") as other:
            assert run(other, "mem0", both).updated == 1


def test_the_same_words_said_twice_are_two_notes_and_stay_two(memory: Memory) -> None:
    talk = [{"role": "user", "content": "Yes."}] * 3
    assert run(memory, "json", talk).added == 3
    assert run(memory, "json", talk).added == 0
    assert run(memory, "json", [*talk, *talk]).added == 3


def test_the_owners_hook_is_asked_and_what_it_hides_stays_hidden(tmp_path: Path) -> None:
    def hide(note: Note) -> Note:
        return replace(note, text=note.text.replace("Pixel", "[name]"))

    with Memory(tmp_path / "a.db", before_store=hide) as memory:
        run(memory, "mem0", MEM0)
        assert run(memory, "mem0", MEM0).added == 0
        assert ("Ann has a cat named [name]",) in told(memory)
    with Memory(":memory:", before_store=lambda note: None) as memory:
        with pytest.raises(RefusedError):
            run(memory, "mem0", MEM0)
        assert memory.get_all() == []


# -- files that are off ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "content", "words"),
    [
        ("mem0", {"a": 1}, "f.json has no 'results'"), ("mem0", [3], "f.json.0 is a number, and should be an object"),
        ("mem0", [{"id": "1"}], "f.json.0.memory is null, and should be some text"),
        ("mem0", [{"memory": " "}], "f.json.0.memory is empty"),
        ("mem0", [{"memory": "a", "created_at": "soon"}], "f.json.0: timestamp 'soon' is not ISO 8601"),
        ("mem0", [{"memory": "a", "metadata": [1]}], "f.json.0.metadata is a list, and should be an object"),
        ("mem0", [{"memory": "a", "expiration_date": "x"}], "f.json.0.expiration_date is a date"),
        ("langgraph", {"x": []}, "has no 'items'"), ("langgraph", [{"key": "a"}], "f.json.0.value is null"),
        ("chatgpt", {"title": "x"}, "is no list of conversations"),
        ("chatgpt", [{"mapping": {"a": {"parent": "a"}}, "current_node": "a"}], "'a' is its own ancestor"),
        ("chatgpt", [{"mapping": {}, "current_node": "a"}], "'a' is not there"),
        ("chatgpt", [{"mapping": 3}], "f.json.0.mapping is a number, and should be an object"),
        ("claude", [{}], "f.json.0 has no 'chat_messages'"), ("letta", {}, "is no agent file"),
        ("zep", {}, "has no 'items'"), ("zep", {"items": [{"fact": 3}]}, "f.json.items.0.fact is a number"),
        ("json", [{"txt": "a"}], "f.json.0: a note has no field 'txt'"), ("json", 3, "f.json: a note is text"),
        ("json", [{"text": "a", "user_id": ""}], "f.json.0: user_id is empty"), ("nobody", [], "there is no source"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_with_what_is_wrong_and_where_and_stores_nothing(
    memory: Memory, source: str, content: Any, words: str
) -> None:
    good = FILES.get(source)
    if isinstance(good, list) and isinstance(content, list) and source != "nobody":
        content, words = [*good, *content], words.replace("f.json.0", f"f.json.{len(good)}")
    with pytest.raises(InputError) as found:
        run(memory, source, content)
    assert words in str(found.value)
    assert "\n" not in str(found.value)
    assert memory.get_all() == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not JSON at line 1 column 1"), (b'{\n "a": ]', "line 2 column 7"), (b'"\xff"', "not UTF-8 at byte 1"),
        (b"[" * 100_000, "cannot be read"), (b"PK\x05\x06" + bytes(18), "a zip without a conversations.json"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_json_is_told_with_its_line(memory: Memory, data: bytes, words: str) -> None:
    for source in SOURCES:
        if source != "jsonl":
            with pytest.raises(InputError, match=words):
                import_data(memory, data, source, name="f")


def test_a_zip_that_is_damaged_is_told_in_complaint(memory: Memory) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("conversations.json", json.dumps(CHATGPT))
    data = bytearray(made.getvalue())
    data[60] ^= 0xFF
    with pytest.raises(InputError, match="zip that cannot be read"):
        import_data(memory, bytes(data), "chatgpt", name="f")


def test_half_a_character_does_not_stop_an_import(memory: Memory) -> None:
    import_data(memory, b'["a \\ud83d cat"]', "json")
    assert told(memory) == [("a \ufffd cat",)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["id", "memory", "results", "mapping", "current_node", "parent", "message", "author", "role",
                         "content", "parts", "content_type", "chat_messages", "sender", "text", "namespace", "key",
                         "value", "items", "fact", "agents", "blocks", "messages", "tool_calls", "function", "metadata",
                         "attachments", "a"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from([source for source in SOURCES if source != "jsonl"]), JSON)
def test_any_json_is_imported_or_refused_in_complaint(source: str, content: Any) -> None:
    with Memory(":memory:") as memory:
        added, line = 0, ""
        try:
            added = run(memory, source, content).added
        except InputError as error:
            line = str(error)
        assert "\n" not in line
        assert len(memory.get_all(superseded=True, expired=True)) == added


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_verb_tells_what_it_did_and_a_dry_run_makes_no_store(db: Path) -> None:
    Path("export.json").write_text(json.dumps(MEM0), encoding="utf-8")
    dry = fine("import", "--from", "mem0", "export.json", "--dry-run")
    assert dry.splitlines()[0] == f"would add 2 notes to {db}"
    assert not db.exists()
    assert fine("import", "--from", "mem0", "export.json") == dry.replace("would add", "added")
    assert document("import", "--from", "mem0", "export.json")["known"] == 2
    assert len(document("list")["results"]) == 2


def test_the_verb_reads_standard_input_and_complains_in_complaint(db: Path) -> None:
    assert "added 1 note" in fine("import", "--from", "jsonl", "-", "-u", "ann", input=b'{"text": "a"}\n')
    assert "standard input, line 1" in complaint("import", "--from", "jsonl", "-", input=b"{\n")
    assert "cannot read nothing.json" in complaint("import", "--from", "mem0", "nothing.json")
    assert "no source" in complaint("import", "--from", "nobody", "-", input=b"[]")
