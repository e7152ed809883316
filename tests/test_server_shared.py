"""Several servers on one store, each with its own connections: what one knows, the others know."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import complaint, document
from serving import bearer, client, error
from waiting import LONG, until

from retcon import Memory
from retcon.errors import StoreError
from retcon.model import FakeChat
from retcon.server import Keys, Limits
from retcon.server.known_keys import FRESH, WHOLE, KnownKeys
from retcon.server.rates import ALONE, BucketFile, Rates
from retcon.store.places import load_postgres
from retcon.store.service import Taken

both_stores = pytest.mark.both_stores


def keys_of(path: Path | str) -> Keys:
    """The store's keys, as `retcon serve` opens them."""
    return Keys(load_postgres().open_service(path) if isinstance(path, str) else f"{path}.keys")


@contextlib.contextmanager
def two_servers(path: Path | str, limits: Limits | None = None, **options: Any) -> Iterator[tuple[Any, Any, Keys]]:
    """Clients of two servers on the store, and its keys, of which there is one."""
    with contextlib.ExitStack() as stack:
        keys = [stack.enter_context(contextlib.closing(keys_of(path))) for _ in range(3)]
        keys[2].add(admin=True)
        servers = [
            stack.enter_context(
                client(stack.enter_context(Memory(path, **options)), keys=each, limits=limits or Limits())
            )
            for each in keys[:2]
        ]
        yield servers[0], servers[1], keys[2]


@both_stores
def test_write_that_is_repeated_at_another_server_is_done_once(path: Path | str) -> None:
    with two_servers(path) as (one, two, keys), ThreadPoolExecutor(8) as pool:
        key, _ = keys.add(user_id="ann")
        for number in range(3):
            headers = bearer(key) | {"Idempotency-Key": f"k{number}"}
            body = {"text": f"cat {number}"}
            asked = [pool.submit(each.post, "/memories", json=body, headers=headers) for each in (one, two) * 4]
            answers = [each.result(LONG) for each in asked]
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1
            assert two.get("/health", headers=bearer(key)).json()["notes"] == number + 1
            other = two.post("/memories", json={"text": "another"}, headers=headers)
            assert error(other, 422) == "idempotency"
        headers = bearer(key) | {"Idempotency-Key": "gone"}
        gone = [each.delete("/memories?user_id=ann", headers=headers).json()["deleted"] for each in (one, two)]
        assert gone == [3, 3], "the second is told what the first did"


@both_stores
def test_page_cursor_of_one_server_is_valid_at_the_other(path: Path | str) -> None:
    with two_servers(path) as (one, two, keys):
        key, _ = keys.add(user_id="ann")
        for number in range(3):
            one.post("/memories", json={"text": f"cat {number}"}, headers=bearer(key))
        page = one.get("/memories", params={"limit": 2}, headers=bearer(key)).json()
        rest = two.get("/memories", params={"limit": 2, "cursor": page["next"]}, headers=bearer(key)).json()
        assert [note["memory"] for note in rest["results"]] == ["cat 2"]


@both_stores
@pytest.mark.parametrize("burst", [7, 200])  # of the larger bucket a server takes a few at once
def test_rate_of_a_key_holds_for_all_servers_together(path: Path | str, burst: int) -> None:
    limits = Limits(rate=1e-9 if burst == 7 else burst / 1e9, burst=burst, key_in_flight=96)
    with two_servers(path, limits) as (one, two, keys), ThreadPoolExecutor(8) as pool:
        key, _ = keys.add(user_id="ann")
        asked = [pool.submit(each.get, "/memories", headers=bearer(key)) for each in (one, two) * (burst // 2 + 4)]
        answers = [each.result(LONG) for each in asked]
        assert sorted({answer.status_code for answer in answers}) == [200, 429]
        assert sum(answer.status_code == 200 for answer in answers) == burst
        other, _ = keys.add(user_id="bob")
        until(lambda: one.get("/memories", headers=bearer(other)).status_code == 200)  # it has a bucket of its own


@both_stores
def test_quota_of_a_key_holds_where_servers_add_at_the_same_time(path: Path | str) -> None:
    with two_servers(path, Limits(key_notes=5)) as (one, two, keys), ThreadPoolExecutor(16) as pool:
        key, _ = keys.add(user_id="ann")
        together = threading.Barrier(16)

        def add(number: int) -> httpx.Response:
            keyed = {"Idempotency-Key": f"k{number}"} if number % 4 < 2 else {}
            together.wait()
            server: httpx.Client = (one, two)[number % 2]
            return server.post("/memories", json={"text": f"n {number}"}, headers=bearer(key) | keyed)

        answers = list(pool.map(add, range(16)))
        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [507] * 11


@both_stores
def test_reply_that_one_server_paid_for_is_found_at_the_other(path: Path | str) -> None:
    models = [FakeChat(lambda ask: "The cat is called Pixel."), FakeChat(lambda ask: "Never asked.")]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(client(stack.enter_context(Memory(path, model=model)))) for model in models]
        servers[0].post("/memories", json={"text": "My cat is called Pixel. She is shy and sleeps all day long."})
        body = {"query": "What is the cat called?", "budget": 24, "action": "merge"}
        first, again = (each.post("/recall", json=body).json() for each in servers)
        assert first["text"] == again["text"] == "The cat is called Pixel."
        assert models[0].asked
        assert not models[1].asked, "the second server asked its own model"


# -- keys in tables ----------------------------------------------------------------------------------------------------


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new store on a PostgreSQL server."""
    monkeypatch.chdir(tmp_path)
    running = request.getfixturevalue("cluster")
    made = running.url()
    yield made
    running.drop(made)


def test_keys_on_postgresql_are_made_listed_and_revoked_by_the_command(url: str, tmp_path: Path) -> None:
    made = document("keys", "add", "--user-id", "ann", "--name", "laptop", "--db", url)
    assert "crosses" not in str(made)
    assert "share notes" in complaint("keys", "add", "--agent-id", "A9", "--db", url)
    (listed,) = document("keys", "list", "--db", url)["results"]
    assert (listed["id"], listed["user_id"], listed["name"]) == (made["id"], "ann", "laptop")
    with contextlib.closing(keys_of(url)) as keys, Memory(url) as memory, client(memory, keys=keys) as http:
        assert http.get("/memories").status_code == 401
        assert http.get("/memories", headers=bearer(made["key"])).status_code == 200
        assert http.get("/memories", headers=bearer(made["key"][:-1] + "x")).status_code == 401
        assert document("keys", "revoke", made["id"], "--db", url)["revoked_at"]
        until(lambda: http.get("/memories", headers=bearer(made["key"])).status_code == 401)
        assert http.get("/memories").status_code == 401, "revoking the last key opens nothing"
    assert list(tmp_path.iterdir()) == [], "nothing is kept in the folder of the server"


def test_first_key_closes_a_running_server_on_postgresql(url: str) -> None:
    with contextlib.closing(keys_of(url)) as keys, Memory(url) as memory, client(memory, keys=keys) as http:
        assert http.get("/memories").status_code == 200
        document("keys", "add", "--admin", "--db", url)
        until(lambda: http.get("/memories").status_code == 401)


def test_keys_that_were_removed_from_the_tables_open_nothing(url: str) -> None:
    document("keys", "add", "--admin", "--db", url)
    tables = load_postgres().open_service(url)
    with contextlib.closing(tables), tables.use() as connection:
        connection.execute("DELETE FROM key")
    assert "keys were made here, and none is left" in complaint("serve", "--db", url)
    assert "keys were made here, and none is left" in complaint("serve", "--workers", "2", "--db", url)


def test_keys_of_an_older_version_in_a_file_are_not_passed_over(url: str) -> None:
    from retcon.store.places import beside

    with contextlib.closing(Keys(f"{beside(url)}.keys")) as older:
        key, _ = older.add(user_id="ann")
    assert "name it with --keys" in complaint("serve", "--db", url)
    assert "name it with --keys" in complaint("keys", "list", "--db", url)
    assert document("keys", "list", "--db", url, "--keys", f"{beside(url)}.keys")["results"]
    assert key


def test_move_does_not_drop_the_keys_of_its_goal(url: str, tmp_path: Path) -> None:
    document("keys", "add", "--admin", "--db", url)
    with Memory(tmp_path / "a.db") as memory:
        memory.add("a cat")
    assert "holds keys of a service" in complaint("migrate", "--from", str(tmp_path / "a.db"), "--to", url)


def test_tables_of_the_service_hold_no_words_and_no_keys(url: str) -> None:
    with two_servers(url) as (one, _, keys):
        key, _ = keys.add(user_id="ann")
        headers = bearer(key) | {"Idempotency-Key": "my-own-key"}
        one.post("/memories", json={"text": "a zebra named Pixel"}, headers=headers)
        tables = load_postgres().open_service(url)
        with contextlib.closing(tables), tables.use() as connection:
            names = ("service", "key", "secret", "answer", "bucket")
            kept = str([connection.execute(f"SELECT * FROM {name}").fetchall() for name in names])
        assert len(kept) > 200
        for word in ("zebra", "Pixel", "my-own-key", key.split("-", 2)[2]):
            assert word not in kept


# -- the parts ---------------------------------------------------------------------------------------------------------


class FewKeys:
    """Keys as tables give them, or an error."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.asked: list[int] = []
        self.broken = False

    def changes(self, since: int) -> list[Any]:
        self.asked.append(since)
        if self.broken:
            raise StoreError("the server is down")
        return [row for row in self.rows if row[0] > since]

    def exist(self) -> bool:
        return bool(self.rows)


def test_known_keys_are_never_older_than_a_second_and_ask_once_for_all_who_wait(tmp_path: Path) -> None:
    now, few = [100.0], FewKeys()
    with contextlib.closing(Keys(tmp_path / "k")) as made:
        key, entry = made.add(user_id="ann")
        query = "SELECT salt, hash, user_id, agent_id, run_id, admin FROM key"
        (row,) = made._rows(query)
    few.rows = [(3, entry.id, True, *row)]
    known = KnownKeys(few, LONG, clock=lambda: now[0])  # type: ignore[arg-type]

    async def look(*, at: float) -> bool:
        now[0] = at
        await asyncio.gather(*(known.refresh() for _ in range(20)))
        return known.grant(key) is not None

    async def play() -> None:
        assert await look(at=100.0)
        assert few.asked == [0]
        assert known.exist()
        assert known.grant(f"rk-{entry.id}-wrong") is None
        few.rows = [(4, entry.id, False, *row)]  # revoked
        assert await look(at=100.0 + FRESH / 2 - 0.01)
        assert few.asked == [0]
        assert not await look(at=100.0 + FRESH)
        assert few.asked == [0, 3], "only what changed is read"
        few.broken = True
        with pytest.raises(StoreError):
            await look(at=100.0 + 3 * FRESH)
        few.broken = False
        few.rows = []  # by another program
        assert not await look(at=100.0 + WHOLE)
        assert few.asked[-1] == 0, "now and then all are read"
        assert known.exist(), "nothing opens the server again"

    asyncio.run(play())


class Counted:
    """A bucket that says what was asked of it, or an error."""

    def __init__(self, *answers: Taken) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, float, int]]()

    def take(self, key: str, *, rate: float, burst: float, debt: float, most: int) -> Taken:
        self.asked.append((key, debt, most))
        if not self.answers:
            raise StoreError("locked")
        return self.answers.pop(0)

    def close(self) -> None:
        pass


def test_server_takes_several_requests_at_once_and_pays_for_large_bodies() -> None:
    now, shared = [0.0], Counted(Taken(10, 0.0), Taken(10, 0.0), Taken(0, 2.0), Taken(1, 0.0))
    rates = Rates(100.0, 200, shared, clock=lambda: now[0])

    async def play() -> None:
        assert [await rates.wait("k") for _ in range(10)] == [0.0] * 10
        assert shared.asked == [("k", 0, 10)]
        await rates.wait("k")
        rates.charge("k", 12)  # nine are left of what it took
        assert await rates.wait("k") == 2.0
        assert shared.asked[1:] == [("k", 0, 10), ("k", 3, 10)]
        assert await rates.wait("k") == 2.0
        assert len(shared.asked) == 3, "who was told to wait costs nobody a question"
        now[0] = 2.5
        assert await rates.wait("k") == 0.0

    asyncio.run(play())


def test_what_a_server_took_and_did_not_use_is_lost_after_a_second() -> None:
    now, shared = [0.0], Counted(Taken(10, 0.0), Taken(10, 0.0))
    rates = Rates(100.0, 200, shared, clock=lambda: now[0])

    async def play() -> None:
        await rates.wait("k")
        now[0] = 1.5
        await rates.wait("k")
        assert len(shared.asked) == 2

    asyncio.run(play())


def test_server_counts_for_itself_while_the_buckets_cannot_be_reached() -> None:
    now, shared = [0.0], Counted()
    rates = Rates(1.0, 3, shared, clock=lambda: now[0])

    async def play() -> None:
        assert [await rates.wait("k") > 0 for _ in range(5)] == [False, False, False, True, True]
        assert len(shared.asked) == 1
        shared.answers = [Taken(1, 0.0)]
        now[0] = ALONE + 0.1
        assert await rates.wait("k") == 0.0
        assert len(shared.asked) == 2

    asyncio.run(play())


def test_bucket_file_survives_a_clock_that_begins_again(tmp_path: Path) -> None:
    now = [1000.0]
    with contextlib.closing(BucketFile(tmp_path / "r", clock=lambda: now[0])) as buckets:

        def take(most: int) -> Taken:
            return buckets.take("k", rate=1.0, burst=4, debt=0, most=most)

        assert take(3).requests == 3
        assert take(3).requests == 1
        assert take(3) == Taken(0, 1.0)
        now[0] = 5.0  # the machine was started again
        assert take(3).requests == 0
        now[0] = 7.0
        assert take(3).requests == 2
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o600
