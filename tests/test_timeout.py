"""The time-out that a caller gives bounds the whole call: retries, waits, bodies that drip, batches, every look."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from misbehaving import Behaviour, Handler, Server, completion, drips, drips_headers, held, says
from test_ask import NO, QUERY, STORY, Both, remembering
from waiting import LONG

from retcon import Memory, deadline
from retcon.deadline import TimeLimit
from retcon.errors import DeadlineError, InputError, ModelError, ModelTimeoutError
from retcon.model import Ask, HttpEmbed, Reply

pytestmark = pytest.mark.both_stores

SHORT = 0.5  # seconds that a call is given here; nothing but giving up in time ends it


def opened(path: Path, server: Server, **options: Any) -> Memory:
    memory = Memory(path, model=server.base, model_name="m", router="evidence-fit", **options)
    memory.add([text for text, _ in STORY])
    return memory


def limited(_: threading.Event) -> Behaviour:
    return says({"error": "slow down"}, 429, retry_after="0")


def failing(_: threading.Event) -> Behaviour:
    return says({"error": "down"}, 503)


SLOW: dict[str, Callable[[threading.Event], Behaviour]] = {
    "silent": held,
    "drips": drips,
    "drips headers": drips_headers,
}
MAY_PASS = {"429": limited, "503": failing}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("action", ["merge", "rewrite", "hybrid"])
def test_recall_falls_back_when_its_time_is_over_however_the_model_is_slow(
    path: Path, server: Server, release: threading.Event, name: str, action: str
) -> None:
    server.always = SLOW[name](release)
    with opened(path, server) as memory:
        found = memory.recall(QUERY, 40, action=action, timeout=SHORT)
    assert found.text
    assert found.action in ("extract", "retain")
    (warning,) = found.warnings
    assert warning.startswith(f"{action} failed, so {found.action} took its place: ")
    assert "within the 0.5 s" in warning
    assert not release.is_set()


@pytest.mark.parametrize("name", [*SLOW, *MAY_PASS])
def test_ask_ends_in_an_error_when_its_time_is_over(
    path: Path, server: Server, release: threading.Event, name: str
) -> None:
    server.always = (SLOW | MAY_PASS)[name](release)
    with opened(path, server) as memory:
        began = time.monotonic()
        with pytest.raises(ModelError):
            memory.ask(QUERY, 40, timeout=SHORT)
        assert time.monotonic() - began < LONG / 4  # six asks of four retries each would wait for much longer
    assert not release.is_set()


def test_a_batch_of_more_asks_than_connections_shares_one_time_out(
    path: Path, server: Server, release: threading.Event
) -> None:
    """Alone each of them would have the 60 s of the endpoint."""
    server.always = held(release)
    with Memory(path, model=server.base, model_name="m") as memory:
        memory.add([f"The cat Pixel has check-up number {n} on {n} June." for n in range(20)])
        found = memory.recall(QUERY, 400, action="rewrite", timeout=SHORT)
        assert found.warnings
    assert len(server.seen) <= 8  # none of the others was begun


def test_the_answer_so_far_is_kept_where_a_later_look_is_late(
    path: Path, server: Server, release: threading.Event
) -> None:
    """Both looks at whole notes and sentences say that they hold nothing; the model that writes never answers."""
    server.always = lambda handler: (says(completion(NO)) if reads(handler) else held(release))(handler)
    with opened(path, server) as memory:
        found = memory.ask(QUERY, 40, timeout=3)
    assert found.text is None
    assert found.looks[0].error is None
    assert any("within the 3 s" in warning for warning in found.warnings)


def reads(handler: Handler) -> bool:
    return "<memory>" in handler.asked["messages"][1]["content"]


def test_no_look_begins_once_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own: a reader takes three seconds, the call has seven."""
    now = [0.0]
    monkeypatch.setattr(deadline, "time", Ticking(now))

    def read(ask: Ask) -> str:
        now[0] += 3
        return NO

    chat = Both(read)
    with remembering(chat) as memory:
        found = memory.ask(QUERY, 40, timeout=7)
    assert len(chat.readings) == 3  # begun at 0, 3 and 6 seconds
    assert found.text is None
    assert found.warnings == ("the time for this call was over before every look was taken",)


@dataclass
class Ticking:
    """The `time` of a module, as a test sets it."""

    now: list[float]

    def monotonic(self) -> float:
        return self.now[0]


@dataclass
class Recorder:
    """A model that writes down how much time it was given."""

    name: str = "recorder"
    kind: str = "fake"
    left: list[float] = field(default_factory=list)

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        self.left.append(deadline.seconds_left())
        return [Reply(NO, 1, 1, 0.0, "stop") for _ in asks]


def test_every_ask_of_a_call_has_what_is_left_of_one_time_out() -> None:
    chat = Recorder()
    with remembering(chat, timeout=1000) as memory:
        memory.ask(QUERY, 40)
        assert len(chat.left) > 4
        assert 900 < chat.left[-1] <= chat.left[0] <= 1000
        assert chat.left == sorted(chat.left, reverse=True)
        chat.left.clear()
        memory.ask("another question", 40, timeout=50)
        assert max(chat.left) <= 50
        chat.left.clear()
        memory.recall("yet another", 40, action="merge", timeout=20)
        assert chat.left[0] <= 20
        again = memory.recall("one more", 40).escalate()
        assert again is not None
        assert 900 < chat.left[-1] <= 1000  # a second recall is a call of its own


def test_a_model_that_is_handed_in_has_its_own_time_unless_the_memory_says_otherwise() -> None:
    chat = Recorder()
    with remembering(chat) as memory:
        memory.recall(QUERY, 40, action="merge")
        assert chat.left == [float("inf")]
        memory.recall("another", 40, action="merge", timeout=30)
        assert chat.left[-1] <= 30


def test_the_deadline_of_a_server_stays_its_own_error(path: Path, server: Server, release: threading.Event) -> None:
    """What is over is not the model's time: there is no time for a fallback either."""
    server.always = held(release)
    with (
        opened(path, server, timeout=LONG) as memory,
        pytest.raises(DeadlineError),
        deadline.until(time.monotonic() + SHORT),
    ):
        memory.recall(QUERY, 40, action="merge")


def test_what_was_kept_needs_no_time() -> None:
    chat = Both(lambda ask: "14 June")
    with remembering(chat) as memory:
        first = memory.ask(QUERY, 40)
        asked = len(chat.asked)
        again = memory.ask(QUERY, 40, timeout=1e-9)
        assert (again.text, len(chat.asked)) == (first.text, asked)


def test_a_call_without_time_asks_no_model() -> None:
    chat = Both()
    with remembering(chat) as memory:
        assert "within the 1e-09 s" in memory.recall(QUERY, 40, action="merge", timeout=1e-9).warnings[0]
        with pytest.raises(ModelTimeoutError, match="within the 1e-09 s"):
            memory.ask(QUERY, 40, timeout=1e-9)
    assert chat.asked == []


@pytest.mark.parametrize("odd", [0, -1, float("nan"), float("inf"), "2", True, None])
def test_a_time_out_is_a_number_above_nought(odd: Any) -> None:
    with pytest.raises(InputError, match="a time-out is a number of seconds above 0"):
        TimeLimit.of(odd)
    if odd is not None:
        with pytest.raises(InputError, match="time-out"):
            Memory(":memory:", timeout=odd)
        with remembering(Both()) as memory:
            for call in (memory.recall, memory.ask, memory.ask_stream):
                with pytest.raises(InputError, match="time-out"):
                    call(QUERY, 40, timeout=odd)


@pytest.mark.parametrize("retriever", ["dense", "hybrid", None])
@pytest.mark.parametrize("verb", ["recall", "ask"])
def test_an_embedder_that_hangs_has_no_more_than_the_calls_time(
    path: Path, server: Server, release: threading.Event, verb: str, retriever: str | None
) -> None:
    """Its own time-out is far off."""
    server.always = held(release)
    embed = HttpEmbed(server.base, "m", dim=2, timeout=LONG)
    with contextlib.closing(embed), Memory(path, embedder=embed, retriever=retriever, model=Both()) as memory:
        memory.add([text for text, _ in STORY])
        began = time.monotonic()
        with pytest.raises(ModelTimeoutError, match=r"no vectors within 0\.5 s$"):
            getattr(memory, verb)(QUERY, 40, timeout=SHORT)
        assert time.monotonic() - began < LONG / 4
    assert server.seen
    assert not release.is_set()


def test_the_callers_embedder_is_not_asked_where_words_alone_are_searched(path: Path, server: Server) -> None:
    embed = HttpEmbed(server.base, "m", dim=2)
    with contextlib.closing(embed), Memory(path, embedder=embed, retriever="bm25", model=Both()) as memory:
        memory.add([text for text, _ in STORY])
        assert memory.recall(QUERY, 40).text
    assert not server.seen


def test_an_earlier_deadline_than_the_calls_stays_what_it_is(
    path: Path, server: Server, release: threading.Event
) -> None:
    server.always = held(release)
    embed = HttpEmbed(server.base, "m", dim=2, timeout=LONG)
    with contextlib.closing(embed), Memory(path, embedder=embed, retriever="dense") as memory:
        memory.add("a cat")
        with deadline.until(time.monotonic() + SHORT), pytest.raises(DeadlineError):
            memory.recall("cat", 40, timeout=LONG)
