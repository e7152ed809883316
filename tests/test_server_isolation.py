"""A key sees its own scope, and nothing in any answer depends on what lies outside of it.

The strongest form of that: the answers one key gets are the same, byte for byte, in a world where others write, read
and delete between its calls, and in a world where they never did.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from conftest import fixed_clock
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import bearer, client, error

from retcon import Memory
from retcon.errors import BusyError, InputError
from retcon.grant import Grant
from retcon.model import FakeChat
from retcon.note import Scope
from retcon.server import Keys
from retcon.server.cursors import Cursors
from retcon.server.idempotency import Idempotency

WORDS = ("cat", "rent", "vet", "boat", "tea", "train")
BOUND = {"ann": {"user_id": "ann"}, "bob": {"user_id": "bob"}, "bot": {"user_id": "bob", "agent_id": "bot"}}
NAMES = ("one", "two")  # ids and Idempotency-Keys that everybody may choose


KEYS = Keys(":memory:")
HELD = {who: KEYS.add(user_id=ids["user_id"], agent_id=ids.get("agent_id"))[0] for who, ids in BOUND.items()}
HELD["admin"] = KEYS.add(admin=True)[0]


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    KEYS.close()


@dataclass
class World:
    """A service with one key for each bound scope and an admin key. Ids say which call made them."""

    http: Any = None
    keys: dict[str, str] = field(default_factory=dict)
    call: int = 0
    made: int = 0

    def new_id(self) -> str:
        self.made += 1
        return f"call{self.call}-note{self.made}"

    def ask(self, who: str, number: int, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """Status and body of the call with that number, without what says how long it took.

        Instead of its cursor, which is sealed, a page has the pages after.
        """
        self.call, self.made = number, 0
        headers = bearer(self.keys[who]) | more.pop("headers", {})
        answer = self.http.request(method, path, headers=headers, **more)
        assert answer.status_code < 500, answer.text
        body = answer.json() if "json" in answer.headers["content-type"] else answer.text
        if isinstance(body, dict) and "usage" in body:
            body["usage"].pop("seconds")
        if isinstance(body, dict) and body.get("next"):
            params = more.get("params", {}) | {"cursor": body["next"]}
            body["next"] = self.ask(who, number, method, path, **more | {"params": params})
        return answer.status_code, body


@contextlib.contextmanager
def world(model: FakeChat | None = None) -> Iterator[World]:
    made, once = World(keys=HELD), Idempotency(":memory:")
    once.secret = bytes(32)  # the ids of repeated requests are then the same in every world
    with (
        contextlib.closing(once),
        Memory(":memory:", now=fixed_clock, new_id=made.new_id, model=model) as memory,
        client(memory, keys=KEYS, idempotency=once) as http,
    ):
        made.http = http
        yield made


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
pick = st.integers(0, 30)  # which of the ids seen so far
names = st.none() | st.sampled_from(NAMES)
CALLS = st.one_of(
    st.tuples(st.just("add"), texts, names, names),
    st.tuples(st.just("chat"), st.lists(texts, min_size=1, max_size=3), names, st.none() | pick),
    st.tuples(st.just("supersede"), pick, texts, names),
    st.tuples(st.sampled_from(["get", "history", "sources", "delete"]), pick),
    st.tuples(st.just("named"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete_all"), st.sampled_from(["user_id", "agent_id"]), st.sampled_from(["ann", "bob", "bot"])),
    st.tuples(st.just("list"), st.integers(1, 3), st.booleans(), st.sampled_from(["oldest", "newest"])),
    st.tuples(st.sampled_from(["search", "recall", "decide"]), texts, st.none() | st.sampled_from(["ann", "bob"])),
    st.tuples(st.sampled_from(["health", "metrics"])),
)
SESSIONS = st.lists(st.tuples(st.sampled_from(["ann", "ann", "bob", "bot", "admin"]), CALLS), min_size=4, max_size=14)


def request(who: str, call: tuple[Any, ...], ids: list[str]) -> dict[str, Any]:
    """The HTTP request of a call. Texts carry the caller's name, so that it is seen wherever they turn up."""
    kind, *rest = call
    note = ids[rest[0] % len(ids)] if ids and rest and isinstance(rest[0], int) else "nobody"
    mark = f"{who}secret "
    if kind == "add":
        body = {"text": mark + rest[0], "user_id": "bob" if who == "admin" else None, "id": rest[1]}
        headers = {"Idempotency-Key": rest[2]} if rest[2] else {}
        return {"method": "POST", "path": "/memories", "json": body, "headers": headers}
    if kind == "chat":
        turns: list[dict[str, Any]] = [{"content": mark + text} for text in rest[0]]
        turns[-1] |= {"id": rest[1]} if rest[1] else {}
        turns[0] |= {"supersedes": ids[rest[2] % len(ids)]} if ids and rest[2] is not None else {}
        body = {"messages": turns, "user_id": "bob" if who == "admin" else None, "session": "s"}
        return {"method": "POST", "path": "/memories", "json": body}
    if kind == "supersede":
        body = {"text": mark + rest[1], "new_id": rest[2]}
        return {"method": "POST", "path": f"/memories/{note}/supersede", "json": body}
    if kind == "named":
        return {"method": "GET", "path": f"/memories/{rest[0]}"}
    if kind == "delete":
        return {"method": "DELETE", "path": f"/memories/{note}"}
    if kind == "delete_all":
        return {"method": "DELETE", "path": "/memories", "params": {rest[0]: rest[1]}}
    if kind == "list":
        params = {"limit": rest[0], "superseded": rest[1], "order": rest[2]}
        return {"method": "GET", "path": "/memories", "params": params}
    if kind in ("search", "recall", "decide"):
        body = {"query": rest[0], "user_id": rest[1]} | ({"candidates": True} if kind == "recall" else {})
        return {"method": "POST", "path": f"/{kind}", "json": body}
    if kind in ("health", "metrics"):
        return {"method": "GET", "path": f"/{kind}"}
    return {"method": "GET", "path": f"/memories/{note}" + ("" if kind == "get" else f"/{kind}")}


def touches_ann(who: str, asked: dict[str, Any], ids: list[str], anns: set[str]) -> bool:
    """Whether an admin's call may change what ann sees: such calls are left out, everybody else's are made."""
    writes = asked["method"] != "GET" and asked["path"].startswith("/memories")
    return who == "admin" and writes and ("ann" in json.dumps(asked) or any(i in json.dumps(asked) for i in anns))


def found_ids(body: Any) -> Iterator[str]:
    """Every id in an answer."""
    if isinstance(body, dict):
        yield from (value for name, value in body.items() if name == "id" and isinstance(value, str))
        for value in body.values():
            yield from found_ids(value)
    elif isinstance(body, list):
        for value in body:
            yield from found_ids(value)


# Whatever others do at random, they have taken every name before, and ann looks everywhere after.
BEFORE = [(who, ("add", "cat rent", name, name)) for who in ("bob", "admin") for name in NAMES]
AFTER: list[tuple[str, tuple[Any, ...]]] = [
    ("ann", call)
    for call in (
        ("add", "cat", "one", "two"), ("named", "one"), ("named", "two"), ("health",), ("list", 3, True, "newest"),
        ("search", "cat rent", None), ("recall", "cat tea", "ann"), ("decide", "vet", None), ("get", 0),
        ("delete_all", "agent_id", "bot"), ("delete_all", "user_id", "ann"),
    )
]  # fmt: skip


@settings(max_examples=20)
@given(middle=SESSIONS)
def test_answers_do_not_depend_on_what_the_key_does_not_own(middle: list[tuple[str, tuple[Any, ...]]]) -> None:
    session = [*BEFORE, *middle, *AFTER]
    ids: list[str] = []
    anns: set[str] = set()
    said: list[tuple[int, dict[str, Any], Any]] = []
    with world() as crowded:
        for number, (who, call) in enumerate(session):
            asked = request(who, call, ids)
            if touches_ann(who, asked, ids, anns):
                continue
            answer = crowded.ask(who, number, **json.loads(json.dumps(asked)))
            new = [each for each in dict.fromkeys(found_ids(answer[1])) if each not in ids]
            ids += new
            if who == "ann":
                anns |= set(new)
                said.append((number, asked, answer))
            shown = json.dumps(answer[1])
            others = {name for name in BOUND if name != who and {name, who} != {"bob", "bot"}}
            if who != "admin":
                echoed = json.dumps(asked)
                assert not any(f"{other}secret" in shown for other in others if f"{other}secret" not in echoed)
    with world() as alone:
        for number, asked, answer in said:
            assert alone.ask("ann", number, **json.loads(json.dumps(asked))) == answer


@settings(max_examples=15)
@given(session=SESSIONS)
def test_everybody_finds_just_what_was_written_for_them(session: list[tuple[str, tuple[Any, ...]]]) -> None:
    owners: dict[str, tuple[str | None, str | None]] = {}
    ids: list[str] = []
    with world() as crowded:
        for number, (who, call) in enumerate(session):
            status, body = crowded.ask(who, number, **request(who, call, ids))
            ids += [each for each in dict.fromkeys(found_ids(body)) if each not in ids]
            if call[0] in ("add", "chat", "supersede") and status == 200:
                mine = BOUND.get(who, {"user_id": "bob"})
                for each in body.get("results", [body]):
                    old = owners.get(body.get("supersedes", ""), (mine["user_id"], mine.get("agent_id")))
                    owners[each["id"]] = owners.get(each["id"], old)
            alive = _all(crowded, "admin", number)
            owners = {note: owner for note, owner in owners.items() if note in alive}
            assert alive == set(owners)
        for who, scope in BOUND.items():
            fits = {
                note
                for note, (user, agent) in owners.items()
                if user == scope["user_id"] and scope.get("agent_id") in (None, agent)
            }
            assert _all(crowded, who, 999) == fits
            assert crowded.ask(who, 999, "GET", "/health")[1]["notes"] == len(fits)


def _all(crowded: World, who: str, number: int) -> set[str]:
    _, page = crowded.ask(who, number, "GET", "/memories", params={"limit": 1000, "superseded": True})
    assert page["next"] is None
    return {note["id"] for note in page["results"]}


# -- the same, case by case --------------------------------------------------------------------------------------------


@pytest.fixture
def both() -> Iterator[World]:
    with world() as made:
        made.ask("ann", 1, "POST", "/memories", json={"text": "annsecret cat", "session": "s"})
        made.ask("bob", 2, "POST", "/memories", json={"text": "bobsecret cat", "session": "s"})
        yield made


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/memories/{id}", None), ("DELETE", "/memories/{id}", None), ("GET", "/memories/{id}/history", None),
        ("GET", "/memories/{id}/sources", None), ("POST", "/memories/{id}/supersede", {"text": "mine now"}),
        ("PUT", "/memories/{id}", {"text": "mine now"}),
        ("POST", "/memories", {"messages": [{"content": "x", "supersedes": "{id}"}]}),
        ("POST", "/memories", {"messages": [{"content": "x", "follows": "{id}"}]}),
    ],
)  # fmt: skip
def test_note_of_another_and_note_of_nobody_are_the_same_404(both: World, method: str, path: str, body: Any) -> None:
    answers = []
    for note in ("call1-note1", "call9-note9"):
        more = {} if body is None else {"json": json.loads(json.dumps(body).replace("{id}", note))}
        status, said = both.ask("bob", 3, method, path.replace("{id}", note), **more)
        assert status == 404
        answers.append(json.dumps(said).replace(note, "ID"))
    assert answers[0] == answers[1]
    assert both.ask("ann", 4, "GET", "/memories/call1-note1")[1]["memory"] == "annsecret cat"
    assert "superseded_by" not in both.ask("ann", 4, "GET", "/memories/call1-note1")[1]


@pytest.mark.parametrize("user", ["ann", "nobody-has-this-name"])
def test_naming_another_scope_is_refused_whether_it_exists_or_not(both: World, user: str) -> None:
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/search", {"json": {"query": "cat", "user_id": user}}),
        ("POST", "/search", {"json": {"query": "cat", "filters": {"user_id": user}}}),
        ("POST", "/search", {"json": {"query": "cat", "filters": {"AND": [{"user_id": user}]}}}),
        ("GET", "/memories", {"params": {"filters": json.dumps({"user_id": user})}}),
        ("POST", "/recall", {"json": {"query": "cat", "user_id": user}}),
        ("POST", "/decide", {"json": {"query": "cat", "user_id": user}}),
        ("GET", "/memories", {"params": {"user_id": user}}),
        ("DELETE", "/memories", {"params": {"user_id": user}}),
        ("POST", "/memories", {"json": {"text": "a", "user_id": user}}),
        ("POST", "/memories", {"json": {"messages": [{"content": "a", "user_id": user}]}}),
    ]
    for method, path, more in calls:
        assert both.ask("bob", 3, method, path, **more) == (
            403, {"error": {"code": "scope", "message": "this key is bound to another user_id"}},
        )  # fmt: skip
    assert both.ask("ann", 4, "GET", "/health")[1]["notes"] == 1


def test_a_name_that_another_has_taken_is_free(both: World) -> None:
    for who in ("ann", "bob"):
        _, said = both.ask(who, 5, "POST", "/memories", json={"text": f"{who}secret named", "id": "mine"})
        stored = said["results"][0]["id"]
        for name in ("mine", stored):
            assert both.ask(who, 6, "GET", f"/memories/{name}")[1]["memory"] == f"{who}secret named"
    status, _ = both.ask("bob", 7, "POST", "/memories", json={"text": "another text", "id": "mine"})
    assert status == 409
    _, made = both.ask("bob", 8, "POST", "/memories/mine/supersede", json={"text": "newer", "new_id": "newer"})
    assert both.ask("bob", 9, "GET", "/memories/newer/history")[1]["results"][1]["id"] == made["id"]


@pytest.mark.parametrize(
    ("path", "more"), [("/recall", {"action": "merge"}), ("/recall", {"action": "rewrite"}), ("/ask", {})]
)
def test_what_another_asked_the_model_does_not_show_in_the_cost(path: str, more: dict[str, Any]) -> None:
    """Two who have the same notes, word for word, and ask the same: each pays for the first time."""
    said = []
    with world(FakeChat(lambda ask: "Pixel is a cat.")) as shared:
        for who in ("ann", "bob", "bob"):
            shared.ask(
                who, 1, "POST", "/memories", json={"text": "Pixel the cat.", "timestamp": "2026-05-09", "id": "n"}
            )
            said.append(shared.ask(who, 2, "POST", path, json={"query": "Pixel cat", **more})[1]["usage"])
    assert said[0] == said[1]
    assert said[0]["model_calls"] > 0
    assert said[2]["model_calls"] == 0


def test_what_tells_of_everybody_is_for_admin_keys(both: World) -> None:
    assert both.ask("bob", 3, "GET", "/metrics")[0] == 403
    assert both.ask("admin", 3, "GET", "/metrics")[0] == 200
    assert both.ask("admin", 3, "GET", "/health")[1]["notes"] == 2
    assert set(both.ask("bob", 3, "DELETE", "/memories/call2-note1")[1]) == {"message", "deleted"}


def test_reports_are_for_admin_keys_and_for_this_machine_without_keys(tmp_path: Any, memory: Memory) -> None:
    (tmp_path / "report.html").write_text("everybody's")
    keys = Keys(":memory:")
    with client(memory, keys=keys, reports=tmp_path) as http:
        assert http.get("/page/report.json").status_code == 200, "no key was ever made"
        bound, admin = keys.add(user_id="ann")[0], keys.add(admin=True)[0]
        assert error(http.get("/page/report.json", headers=bearer(bound)), 403) == "scope"
        (found,) = http.get("/page/report.json", headers=bearer(admin)).json()["reports"]
        assert http.get(f"/{found['url']}").text == "everybody's"
    keys.close()


def test_cursor_is_read_by_the_server_alone_and_for_one_scope(both: World) -> None:
    def page(who: str, **more: Any) -> Any:
        return both.http.get("/memories", params={"limit": 1} | more, headers=bearer(both.keys[who]))

    for number in range(5, 11):
        who = "ann" if number % 2 else "bob"
        assert both.ask(who, number, "POST", "/memories", json={"text": f"{who}secret tea"})[0] == 200
    anns, bobs = (page(who).json()["next"] for who in ("ann", "bob"))
    assert len(base64.urlsafe_b64decode(anns)) == len(base64.urlsafe_b64decode(bobs)) == 24, "whatever the number"
    assert page("ann", cursor=anns).status_code == 200
    changed = [anns[:at] + ("A" if anns[at] != "A" else "B") + anns[at + 1 :] for at in range(len(anns))]
    for odd in (bobs, "", "x", "é", anns[:-4], anns + "AAAA", *changed):
        assert error(page("ann", cursor=odd), 422) == "bad_input"


@given(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32))
def test_cursor_gives_its_place_back_and_another_secret_scope_or_list_does_not(place: int, secret: bytes) -> None:
    ann, bob = (Grant("", Scope(who)) for who in ("ann", "bob"))
    ours, other = Cursors(secret), Cursors(bytes(31) + b"x")
    cursor = ours.write(ann, "oldest", place)
    assert ours.read(ann, "oldest", cursor) == place
    for cursors, grant, listed in ((ours, bob, "oldest"), (other, ann, "oldest"), (ours, ann, "newest")):
        with pytest.raises(InputError):
            cursors.read(grant, listed, cursor)


def test_idempotency_keys_of_two_callers_do_not_meet(both: World) -> None:
    headers = {"Idempotency-Key": "k"}
    for who in ("ann", "bob"):
        status, _ = both.ask(who, 3, "POST", "/memories", json={"text": f"{who}secret tea"}, headers=headers)
        assert status == 200
    assert both.ask("bob", 4, "GET", "/health")[1]["notes"] == 2


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer x", "Basic a2V5", "Bearer rk-", "Bearer rk--", "Bearer \xff", "rk"],
)
def test_without_a_valid_key_nothing_is_told(both: World, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for method, path in (
        ("GET", "/memories"),
        ("GET", "/memories/call1-note1"),
        ("GET", "/metrics"),
        ("POST", "/recall"),
    ):
        answer = both.http.request(method, path, headers=headers)
        assert error(answer, 401) == "key"
        assert answer.headers["www-authenticate"] == "Bearer"
    health = both.http.get("/health", headers=headers)
    assert health.status_code == 401 if header is not None else set(health.json()) == {"ok", "version", "model"}
    assert both.http.get("/docs").status_code == 200


def test_keys_are_kept_hashed_private_and_end_at_once(tmp_path: Any, memory: Memory) -> None:
    keys = Keys(tmp_path / "k")
    with client(memory, keys=keys) as http:
        assert http.get("/memories").status_code == 200, "no key was ever made"
        key, entry = Keys(tmp_path / "k").add(user_id="ann", name="laptop")
        assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600
        assert key.split("-", 2)[2].encode() not in (tmp_path / "k").read_bytes()
        assert http.get("/memories").status_code == 401
        assert http.get("/memories", headers=bearer(key)).status_code == 200
        flipped = key[:-1] + ("A" if key[-1] != "A" else "B")
        for wrong in (flipped, key[:-1], key + "A", key.upper(), f"rk-{'0' * 12}-{key.split('-', 2)[2]}"):
            assert http.get("/memories", headers=bearer(wrong)).status_code == 401
        keys.revoke(entry.id)
        assert http.get("/memories", headers=bearer(key)).status_code == 401
        assert http.get("/memories").status_code == 401, "the last key's end opens nothing"
        two = [("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {key}")]
        assert http.get("/memories", headers=two).status_code == 401
    keys.close()


def test_lock_on_the_keys_holds_up_no_reader_and_the_server_not_for_long(tmp_path: Any, memory: Memory) -> None:
    keys = Keys(tmp_path / "k")
    key, _ = keys.add(user_id="ann")
    other = sqlite3.connect(tmp_path / "k", isolation_level=None)
    with client(memory, keys=keys) as http:
        other.execute("BEGIN IMMEDIATE")
        assert http.get("/memories", headers=bearer(key)).status_code == 200
        with pytest.raises(BusyError):
            keys.add(user_id="bob")
        other.execute("ROLLBACK")
    other.close()
    keys.close()


def test_keys_file_alone_has_every_key_while_the_server_has_it_open(tmp_path: Any) -> None:
    keys, adding = Keys(tmp_path / "k"), Keys(tmp_path / "k")
    assert not keys.exist()
    made = [adding.add(user_id=user)[1] for user in ("ann", "bob")]
    assert keys.exist()
    (tmp_path / "copy").write_bytes((tmp_path / "k").read_bytes())
    copied = Keys(tmp_path / "copy")
    assert copied.entries() == made
    for each in (copied, adding, keys):
        each.close()
