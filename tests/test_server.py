"""The routes: what they take, what they give, and that it is what the library says."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import client, error

import retcon
from retcon import Memory, Router
from retcon.errors import ModelUnavailableError
from retcon.model import FakeChat
from retcon.note import Note
from retcon.route import default_router
from retcon.server.verbs import contributions

TURNS = [
    {"role": "user", "content": "I adopted a cat named Pixel."},
    {"role": "assistant", "content": "Lovely! How old is Pixel?"},
    {"role": "user", "content": "Two years. The rent went up to 725 euros, too."},
]


@pytest.fixture
def http(memory: Memory) -> Iterator[Any]:
    with client(memory) as opened:
        yield opened


@pytest.fixture
def filled(http: Any) -> Any:
    body = {"messages": TURNS, "user_id": "ann", "session": "s1", "timestamp": "2026-05-09"}
    assert http.post("/memories", json=body).status_code == 200
    return http


# -- writing -----------------------------------------------------------------------------------------------------------


def test_messages_become_one_note_each_in_order(http: Any, memory: Memory) -> None:
    found = http.post("/memories", json={"messages": TURNS, "user_id": "ann", "metadata": {"n": 1}}).json()["results"]
    assert [each["memory"] for each in found] == [turn["content"] for turn in TURNS]
    assert {each["event"] for each in found} == {"ADD"}
    stored = memory.get_all(user_id="ann")
    assert [note.id for note in stored] == [each["id"] for each in found]
    assert [note.speaker for note in stored] == ["user", "assistant", "user"]
    assert all(note.metadata == {"n": 1} for note in stored)


@pytest.mark.parametrize("name", ["text", "memory", "messages"])
def test_one_text_may_be_called_text_memory_or_messages(http: Any, memory: Memory, name: str) -> None:
    (found,) = http.post("/memories", json={name: "The rent is 725.", "run_id": "r"}).json()["results"]
    assert memory.get(found["id"]).text == found["memory"] == "The rent is 725."
    assert memory.get(found["id"]).run_id == "r"


def test_message_that_only_calls_a_tool_is_passed_over(http: Any) -> None:
    messages = [{"role": "assistant", "content": None, "tool_calls": []}, TURNS[0]]
    assert len(http.post("/memories", json={"messages": messages}).json()["results"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {}, {"text": "a", "memory": "b"}, {"text": " "}, {"text": "a", "bugdet": 3}, {"text": 3}, {"messages": [3]},
        {"messages": [{"role": "user"}]}, {"text": "a", "timestamp": "soon"}, {"text": "a", "user_id": ""},
        {"text": "a", "metadata": [1]}, {"messages": ["a", "b"], "id": "x"},
    ],
)  # fmt: skip
def test_add_that_cannot_be_used_is_refused_and_writes_nothing(http: Any, memory: Memory, body: Any) -> None:
    assert error(http.post("/memories", json=body), 422) == "bad_input"
    assert memory.get_all() == []


def test_list_with_one_bad_message_writes_none(http: Any, memory: Memory) -> None:
    error(http.post("/memories", json={"messages": ["fine", {"text": "a", "timestamp": "soon"}]}), 422)
    assert memory.get_all() == []


def test_supersede_and_history_are_the_librarys(filled: Any, memory: Memory) -> None:
    old = memory.get_all()[0].id
    made = filled.post(f"/memories/{old}/supersede", json={"text": "The cat is called Dot."}).json()
    assert (made["event"], made["supersedes"]) == ("UPDATE", old)
    for each in (old, made["id"]):
        found = filled.get(f"/memories/{each}/history").json()["results"]
        assert [note["id"] for note in found] == [old, made["id"]]
    assert error(filled.post(f"/memories/{old}/supersede", json={"text": "Again."}), 409) == "conflict"
    assert filled.get(f"/memories/{old}").json()["superseded_by"] == made["id"]


def test_delete_takes_the_note_and_is_gone_for_good(filled: Any, memory: Memory) -> None:
    note = memory.get_all()[1].id
    assert filled.delete(f"/memories/{note}").json()["deleted"] == 1
    assert error(filled.get(f"/memories/{note}"), 404) == "not_found"
    assert error(filled.delete(f"/memories/{note}"), 404) == "not_found"
    assert len(memory.get_all()) == 2


def test_delete_of_a_scope_leaves_the_others(filled: Any, memory: Memory) -> None:
    filled.post("/memories", json={"text": "Bob's note.", "user_id": "bob"})
    assert filled.delete("/memories", params={"user_id": "ann"}).json()["deleted"] == 3
    assert [note.user_id for note in memory.get_all()] == ["bob"]


@pytest.mark.parametrize(
    "query", ["", "?user_id=", "?userid=ann", "?user_id=ann&agentid=x", "?user_id=ann&user_id=bob"]
)
def test_delete_of_a_scope_that_is_not_clear_deletes_nothing(filled: Any, memory: Memory, query: str) -> None:
    error(filled.delete(f"/memories{query}"), 422)
    assert len(memory.get_all()) == 3


# -- reading -----------------------------------------------------------------------------------------------------------


def as_sent(note: Note) -> dict[str, Any]:
    """The note as the service sends it: its text once, and called memory."""
    plain = note.to_dict()
    return {"memory": plain.pop("text")} | plain


def test_get_gives_the_note_with_its_text_once_as_memory(filled: Any, memory: Memory) -> None:
    note = memory.get_all()[2]
    assert filled.get(f"/memories/{note.id}").json() == as_sent(note)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_pages_hold_every_note_once_in_order(filled: Any, memory: Memory, limit: int) -> None:
    seen, cursor = [], None
    while True:
        page = filled.get("/memories", params={"limit": limit} | ({"cursor": cursor} if cursor else {})).json()
        seen += [note["id"] for note in page["results"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == [note.id for note in memory.get_all()]


def test_pages_go_on_where_they_were_when_earlier_notes_are_deleted(filled: Any, memory: Memory) -> None:
    ids = [note.id for note in memory.get_all()]
    cursor = filled.get("/memories", params={"limit": 2}).json()["next"]
    memory.delete(ids[0])
    found = filled.get("/memories", params={"limit": 2, "cursor": cursor}).json()
    assert [note["id"] for note in found["results"]] == ids[2:]


def test_pages_go_on_where_they_were_when_all_notes_seen_are_deleted(filled: Any, memory: Memory) -> None:
    ids = [note.id for note in memory.get_all()]
    cursor = filled.get("/memories", params={"limit": 2}).json()["next"]
    for gone in (ids[1], ids[0]):
        memory.delete(gone)
        found = filled.get("/memories", params={"limit": 5, "cursor": cursor}).json()
        assert [note["id"] for note in found["results"]] == ids[2:]


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, "r"])), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 40)), st.booleans()), min_size=1),
    st.sampled_from([{}, {"agent_id": "a"}, {"agent_id": "b", "run_id": "r"}]),
)
def test_every_note_that_is_left_is_shown_once_whatever_is_deleted_between_pages(
    scopes: list[tuple[str | None, str | None]], pages: list[tuple[int, list[int], bool]], asked: dict[str, Any]
) -> None:
    with Memory(":memory:") as memory, client(memory) as http:
        ids = [memory.add(f"note {n}", agent_id=a, run_id=r)[0].id for n, (a, r) in enumerate(scopes)]
        alive = {note.id for note in memory.get_all(**asked)}
        shown: list[str] = []
        gone: set[str] = set()
        cursor: dict[str, str] = {}
        for limit, deleted, all_seen in itertools.chain(pages, itertools.repeat((3, [], False))):
            page = http.get("/memories", params={"limit": limit} | asked | cursor).json()
            shown += [note["id"] for note in page["results"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
            for each in {ids[n % len(ids)] for n in deleted} | (set(shown) if all_seen else set()):
                if each not in gone:
                    memory.delete(each)
                    gone.add(each)
            if all_seen:  # a scope that was emptied begins anew
                new = memory.add("a new one", agent_id=scopes[0][0], run_id=scopes[0][1])[0].id
                ids.append(new)
                alive |= {note.id for note in memory.get_all(**asked)}
        assert len(shown) == len(set(shown))
        assert alive - gone <= set(shown) <= alive
        assert shown == [each for each in ids if each in shown], "in the order they were added"


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_newest_first_is_the_same_list_the_other_way_round(filled: Any, memory: Memory, limit: int) -> None:
    filled.post("/memories", json={"text": "Bob's note.", "user_id": "bob"})
    for user in (None, "ann"):
        whose = {} if user is None else {"user_id": user}
        wanted = [note.id for note in memory.get_all(user_id=user)][::-1]
        seen: list[str] = []
        more: dict[str, Any] = {}
        while True:
            page = filled.get("/memories", params={"limit": limit, "order": "newest"} | whose | more).json()
            assert page["total"] == len(wanted)
            seen += [note["id"] for note in page["results"]]
            if page["next"] is None:
                break
            more = {"cursor": page["next"]}
        assert seen == wanted


def test_newest_first_goes_on_where_it_was_when_all_notes_seen_are_deleted(filled: Any, memory: Memory) -> None:
    ids = [note.id for note in memory.get_all()]
    cursor = filled.get("/memories", params={"limit": 2, "order": "newest"}).json()["next"]
    for gone in (ids[1], ids[2]):
        memory.delete(gone)
        found = filled.get("/memories", params={"order": "newest", "cursor": cursor}).json()
        assert [note["id"] for note in found["results"]] == ids[:1]
    assert error(filled.get("/memories", params={"order": "best"}), 422) == "bad_input"


@pytest.mark.parametrize(
    "other", [{"order": "newest"}, {"superseded": "true"}, {"expired": "true"}, {"session": "s1"}, {"user_id": "ann"}]
)
def test_a_cursor_of_one_list_is_refused_by_another(filled: Any, other: dict[str, str]) -> None:
    cursor = filled.get("/memories", params={"limit": 1}).json()["next"]
    assert filled.get("/memories", params={"limit": 2, "cursor": cursor}).status_code == 200
    refused = filled.get("/memories", params={"limit": 1, "cursor": cursor} | other)
    assert error(refused, 422) == "bad_input"
    assert "order" in refused.json()["error"]["message"]


def test_total_counts_what_is_listed_and_is_unknown_where_a_filter_narrows_it(filled: Any, memory: Memory) -> None:
    memory.supersede(memory.get_all()[0].id, "The cat is called Dot.")
    assert filled.get("/memories").json()["total"] == 3
    assert filled.get("/memories", params={"limit": 1, "offset": 2}).json()["total"] == 3
    assert filled.get("/memories", params={"superseded": "true"}).json()["total"] == 4
    assert filled.get("/memories", params={"user_id": "nobody"}).json()["total"] == 0
    assert filled.get("/memories", params={"session": "s1"}).json()["total"] is None


def test_list_filters_and_offsets(filled: Any) -> None:
    filled.post("/memories", json={"text": "tagged", "metadata": {"tag": "x"}, "session": "s2"})
    assert [n["memory"] for n in filled.get("/memories", params={"session": "s2"}).json()["results"]] == ["tagged"]
    assert len(filled.get("/memories", params={"metadata": '{"tag": "x"}'}).json()["results"]) == 1
    assert len(filled.get("/memories", params={"offset": 3}).json()["results"]) == 1
    for odd in ({"cursor": "nonsense"}, {"limit": 0}, {"limit": "all"}, {"metadata": "[1]"}, {"offset": -1}):
        error(filled.get("/memories", params=odd), 422)


def test_search_ranks_as_the_library_does(filled: Any, memory: Memory) -> None:
    found = filled.post("/search", json={"query": "rent", "user_id": "ann", "top_k": 2}).json()["results"]
    hits = memory.search("rent", user_id="ann", top_k=2)
    assert [(each["id"], each["score"], each["rank"]) for each in found] == [(h.id, h.score, h.rank) for h in hits]
    assert found[0]["memory"] == hits[0].text
    high = found[0]["score"]
    kept = filled.post("/search", json={"query": "rent", "user_id": "ann", "threshold": high}).json()["results"]
    assert [each["id"] for each in kept] == [found[0]["id"]]


def test_filters_may_hold_scope_conditions_and_metadata(filled: Any) -> None:
    filled.post("/memories", json={"text": "The rent of the boat.", "user_id": "ann", "metadata": {"topic": "boat"}})
    for filters in ({"user_id": "ann", "topic": "boat"}, {"metadata": {"topic": "boat"}}):
        (found,) = filled.post("/search", json={"query": "rent", "filters": filters}).json()["results"]
        assert found["metadata"] == {"topic": "boat"}
    wrong: list[dict[str, Any]] = [{"AND": []}, {"user_id": {"in": ["ann"]}}, {"metadata": 3}]
    for odd in wrong:
        error(filled.post("/search", json={"query": "rent", "filters": odd}), 422)
    error(filled.post("/search", json={"query": "rent", "user_id": "ann", "filters": {"user_id": "bob"}}), 422)


@pytest.mark.parametrize(
    "note", ["a/b", "/", "a/history", "/a//b/", "a%2Fb", "a b?c#d", "é/😀", "history", "%", "a\\b"]
)
def test_any_id_is_reached_when_percent_encoded(http: Any, memory: Memory, note: str) -> None:
    http.post("/memories", json={"text": "the one", "id": note})
    http.post("/memories", json={"text": "another", "id": "a"})
    there = f"/memories/{quote(note, safe='')}"
    assert http.get(there).json()["memory"] == "the one"
    assert http.get(f"{there}/sources").json()["id"] == note
    made = http.post(f"{there}/supersede", json={"text": "newer", "new_id": f"{note}/2"}).json()
    assert (made["id"], made["supersedes"]) == (f"{note}/2", note)
    assert [each["id"] for each in http.get(f"{there}/history").json()["results"]] == [note, f"{note}/2"]
    assert http.delete(f"{there}%2F2").json()["deleted"] == 2  # with the version it corrected
    error(http.get(there), 404)
    assert [each.text for each in memory.get_all()] == ["another"]


def test_sources_of_a_note_are_the_note(filled: Any, memory: Memory) -> None:
    note = memory.get_all()[0]
    found = filled.get(f"/memories/{note.id}/sources").json()
    assert (found["kind"], [each["id"] for each in found["results"]]) == ("note", [note.id])


def test_sources_of_a_record_are_the_notes_it_was_written_from(path: Path) -> None:
    with Memory(path, model=FakeChat(["Pixel is a cat."] * 3)) as memory, client(memory) as http:
        http.post("/memories", json={"messages": TURNS, "user_id": "ann"})
        found = http.post("/recall", json={"query": "cat", "user_id": "ann", "action": "merge"}).json()
        behind = http.get(f"/memories/{found['record']['id']}/sources").json()
        assert (behind["kind"], behind["action"]) == ("record", "merge")
        assert {note["id"] for note in behind["results"]} == set(found["record"]["sources"])


# -- the decision and the text -----------------------------------------------------------------------------------------


def without_seconds(recall: dict[str, Any]) -> dict[str, Any]:
    recall["usage"].pop("seconds")
    return recall


@pytest.mark.parametrize("budget", [0, 12, 24, 400])
def test_recall_is_the_librarys_and_within_the_budget(filled: Any, memory: Memory, budget: int) -> None:
    body = {"query": "What does Pixel cost?", "budget": budget, "user_id": "ann"}
    found = filled.post("/recall", json=body).json()
    assert without_seconds(found) == without_seconds(memory.recall(**body).to_dict())  # type: ignore[arg-type]
    assert memory.count(found["text"]) == found["tokens"] <= budget


def test_recall_without_what_was_tried_gives_the_next_best(filled: Any) -> None:
    body: dict[str, Any] = {"query": "Pixel", "budget": 24, "user_id": "ann"}
    first = filled.post("/recall", json=body).json()
    second = filled.post("/recall", json=body | {"exclude": first["tried"]}).json()
    assert second["action"] not in first["tried"]
    error(filled.post("/recall", json=body | {"exclude": [*second["tried"]]}), 422)
    assert filled.post("/recall", json=body | {"action": "retain"}).json()["action"] == "retain"
    error(filled.post("/recall", json=body | {"action": "shout"}), 422)


@pytest.mark.parametrize("budget", [0, 16, 24, 400])
def test_candidates_say_what_became_of_each_note(filled: Any, memory: Memory, budget: int) -> None:
    body = {"query": "Pixel rent", "budget": budget, "user_id": "ann", "candidates": True}
    found = filled.post("/recall", json=body).json()
    rows = found["candidates"]
    assert {row["id"] for row in rows} == {note.id for note in memory.get_all(user_id="ann")}
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    used = {source["id"]: source for source in found["sources"]}
    for row in rows:
        assert row["status"] == ("dropped" if row["id"] not in used else "kept" if used[row["id"]]["whole"] else "cut")
        assert row["used"] == (used[row["id"]]["text"] if row["id"] in used else None)
        assert (row["reason"] is None) == (row["status"] != "dropped")
    assert "candidates" not in filled.post("/recall", json=body | {"candidates": False}).json()


def learned(budgets: tuple[int, ...]) -> Router:
    return Router(
        name="t", actions=("retain", "extract"), features=("budget", "fit", "notes"), budgets=budgets,
        weights={"retain": (0.3, 0.1, -0.02), "extract": (-0.2, 0.4, 0.05)}, intercepts={"retain": 0.2, "extract": 0.1},
    )  # fmt: skip


@pytest.mark.parametrize("router", [default_router(), learned((32, 64)), learned(())], ids=["rule", "clipped", "free"])
@pytest.mark.parametrize("budget", [1, 50, 4000])
def test_contributions_add_up_to_the_utilities(path: Path, router: Router, budget: int) -> None:
    with Memory(path, router=router) as memory, client(memory) as http:
        http.post("/memories", json={"messages": TURNS})
        found = http.post("/decide", json={"query": "Pixel", "budget": budget}).json()
        assert found["actions"] == ["retain", "extract"]
        assert set(found["contributions"]) == set(found["utilities"])
        for action, parts in found["contributions"].items():
            assert set(parts) == {*router.features, "intercept"}
            assert math.isclose(math.fsum(parts.values()), found["utilities"][action], abs_tol=1e-12)
        plain = {name: value for name, value in found.items() if name not in ("contributions", "actions")}
        decided = memory.decide("Pixel", budget)
        assert plain == decided.to_dict()
        assert found["contributions"] == contributions(router, decided)


def test_ask_answers_from_memory_with_the_servers_model(path: Path) -> None:
    with Memory(path, model=FakeChat(["Pixel."] * 4)) as memory, client(memory) as http:
        http.post("/memories", json={"messages": TURNS, "user_id": "ann"})
        found = http.post("/ask", json={"question": "What is my cat called?", "user_id": "ann"}).json()
        assert (found["answer"], found["in_memory"]) == ("Pixel.", True)
        assert found["looks"][0]["recall"]["sources"]
        error(http.post("/ask", json={}), 422)


def test_ask_can_be_made_to_look_at_whole_notes_first(path: Path) -> None:
    with Memory(path, model=FakeChat(lambda ask: "NOT IN MEMORY")) as memory, client(memory) as http:
        http.post(
            "/memories", json={"messages": [{"role": "user", "content": f"Pixel cost {n} euros."} for n in range(40)]}
        )
        body = {"question": "What did Pixel cost?", "budget": 40}
        looks = [
            [look["recall"]["action"] for look in http.post("/ask", json=each).json()["looks"]]
            for each in (body, body | {"safe": True})
        ]
    assert looks[0][0] != "retain"
    assert looks[1] == ["retain", *(action for action in looks[0] if action != "retain")]


def test_ask_without_a_model_says_so(http: Any) -> None:
    assert error(http.post("/ask", json={"query": "who?"}), 422) == "no_model"


def test_model_that_fails_is_a_502_and_recall_falls_back(path: Path) -> None:
    with Memory(path, model=FakeChat([ModelUnavailableError("no connection")] * 9)) as memory, client(memory) as http:
        http.post("/memories", json={"messages": TURNS})
        error(http.post("/ask", json={"query": "cat"}), 502)
        found = http.post("/recall", json={"query": "cat", "action": "merge"}).json()
        assert found["warnings"]
        assert found["action"] != "merge"


# -- about the service -------------------------------------------------------------------------------------------------


def test_health_counts_the_notes(filled: Any) -> None:
    assert filled.get("/health").json() == {"ok": True, "version": retcon.__version__, "model": False, "notes": 3}


def test_metrics_count_requests_notes_and_tokens(filled: Any) -> None:
    tokens = filled.post("/recall", json={"query": "Pixel", "user_id": "ann"}).json()["tokens"]
    filled.get("/memories/none")
    text = filled.get("/metrics").text
    assert "retcon_notes_added_total 3" in text
    assert f"retcon_recalled_tokens_total {tokens}" in text
    assert 'retcon_requests_total{route="/memories/{id}",method="GET",status="404"} 1' in text
    assert re.search(r'retcon_request_seconds_bucket\{route="/recall",le="\+Inf"\} 1', text)
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .*|\w+(\{(\w+="[^"]*",?)+\})? [0-9.e+-]+', line), line


def test_docs_and_openapi_load_nothing_from_elsewhere(http: Any) -> None:
    page = http.get("/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page.text)
    assert "<script" not in page.text
    document = http.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        assert f"<code>{path}</code>" in page.text
        for route in methods.values():
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if body:
                assert document["components"]["schemas"][body["$ref"].rpartition("/")[2]]["examples"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    errors = [
        set(answer["content"])
        for methods in document["paths"].values()
        for route in methods.values()
        for code, answer in route["responses"].items()
        if code != "200"
    ]
    assert errors
    assert all(kinds == {"application/json"} for kinds in errors)


def test_docs_show_code_as_code_and_no_backticks(http: Any) -> None:
    page = http.get("/docs").text
    assert "`" not in page
    assert "<code>exclude</code> what was <code>tried</code>" in page
    assert "`exclude`" in http.get("/openapi.json").text


def test_every_route_has_a_name_that_a_generated_client_can_show(http: Any) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    names = {
        f"{method} {path}": route["operationId"] for path, found in paths.items() for method, route in found.items()
    }
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names.values())
    assert len(set(names.values())) == len(names)
    assert names.items() >= {
        "post /memories": "add_memories", "get /memories": "list_memories", "delete /memories": "delete_memories",
        "get /memories/{id}": "get_memory", "delete /memories/{id}": "delete_memory",
        "post /memories/{id}/supersede": "supersede_memory", "get /memories/{id}/history": "get_history",
        "get /memories/{id}/sources": "get_sources", "post /search": "search_memories", "post /recall": "recall",
        "post /decide": "decide", "post /ask": "ask", "get /health": "get_health", "get /metrics": "get_metrics",
    }.items()  # fmt: skip


def test_examples_of_the_document_are_served(path: Path) -> None:
    with Memory(path, model=FakeChat(["9 May"] * 9)) as memory, client(memory) as http:
        document = http.get("/openapi.json").json()
        note = http.post("/memories", json={"text": "a cat"}).json()["results"][0]["id"]
        for route, methods in document["paths"].items():
            if "requestBody" in methods.get("post", {}):
                reference = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                (example,) = document["components"]["schemas"][reference.rpartition("/")[2]]["examples"]
                assert http.post(route.replace("{id}", note), json=example).status_code == 200, route


@pytest.mark.parametrize("route", ["/health", "/memories", "/", "/docs", "/memories/none", "/nothing"])
def test_head_is_get_without_a_body(http: Any, route: str) -> None:
    got, head = http.get(route), http.head(route)
    assert head.status_code == got.status_code
    assert head.content == b""
    assert head.headers["content-length"] == got.headers["content-length"] == str(len(got.content))
    text = http.get("/metrics").text
    assert re.search(r'retcon_requests_total\{route="[^"]+",method="HEAD",status="\d+"\} 1', text)


def test_unknown_address_and_method_have_the_one_shape(http: Any) -> None:
    assert error(http.get("/nothing"), 404) == "no_route"
    assert error(http.put("/memories"), 405) == "method"
    assert error(http.get("/memories/"), 404) == "no_route"


# -- repeats, and words for callers ------------------------------------------------------------------------------------


def test_an_add_of_what_is_stored_already_says_that_nothing_changed(http: Any) -> None:
    note = {"text": "Once.", "id": "once"}
    assert [http.post("/memories", json=note).json()["results"][0]["event"] for _ in range(3)] == [
        "ADD",
        "NONE",
        "NONE",
    ]
    assert "retcon_notes_added_total 1\n" in http.get("/metrics").text


def test_the_same_correction_is_none_also_where_a_hook_redacts(path: Path) -> None:
    with Memory(path, before_store=lambda note: replace(note, text="[cut]")) as memory, client(memory) as http:
        (note,) = memory.add("secret")
        assert http.put(f"/memories/{note.id}", json={"text": "secret"}).json()["event"] == "NONE"


@pytest.mark.parametrize(
    ("route", "body", "told"),
    [
        ("/memories", {"messages": []}, "messages is empty"),
        ("/memories", {"messages": 5}, "messages is text, an object or a list"),
        ("/memories", {"text": "x", "expires_at": 1800000000}, "expires_at is text"),
        ("/memories", {"text": "x", "expires_at": "soon"}, "or never"),
        ("/recall", {"query": "x", "action": "merge"}, "merge needs a model, and this server has none"),
        ("/recall", {"query": "x", "exclude": ["retain", "extract"]}, "no action is left: exclude names all of"),
        ("/recall", {"query": "x", "budget": -1}, "budget is 0 or more"),
    ],
)
def test_what_is_wrong_is_told_in_words_of_the_route(http: Any, route: str, body: dict[str, Any], told: str) -> None:
    refused = http.post(route, json=body)
    error(refused, 422)
    assert told in refused.json()["error"]["message"]


def test_the_page_of_routes_shows_an_error_of_each_status_and_whose_notes_to_delete(http: Any) -> None:
    page = http.get("/docs").text
    assert "/memories?user_id=ann" in page
    for code in ("not_found", "conflict", "bad_input", "rate", "timeout"):
        assert f"&quot;code&quot;: &quot;{code}&quot;" in page
