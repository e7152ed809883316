"""A real small model: in this process, and over HTTP from the server that comes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_model import needs_local_model, smollm
from waiting import until

from retcon import deadline
from retcon.errors import (
    AuthError,
    ContextTooLongError,
    DeadlineError,
    InputError,
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from retcon.model import Ask, Chat, GgufChat, HttpChat, Reply, chat
from retcon.model.gguf import serve

pytestmark = needs_local_model
ROOT = Path(__file__).resolve().parents[1]


def ask(text: str = "Name three colours.", max_tokens: int = 12, **fields: object) -> Ask:
    return Ask(({"role": "user", "content": text},), max_tokens, **fields)  # type: ignore[arg-type]


def path() -> str:
    found = smollm()
    assert found is not None
    return str(found)


@pytest.fixture(scope="module")
def local() -> Iterator[GgufChat]:
    with GgufChat(path(), context=512, threads=1, timeout=300) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(local: GgufChat) -> Iterator[HttpChat]:
    model = HttpChat(local.served.base, "smollm2", key=local.served.key, timeout=300)
    yield model
    model.close()


@pytest.fixture(params=["local", "served"])
def model(request: pytest.FixtureRequest) -> Chat:
    found: Chat = request.getfixturevalue(request.param)
    return found


def only(found: list[Reply | ModelError]) -> Reply:
    (reply,) = found
    assert isinstance(reply, Reply), reply
    return reply


def test_greedy_gives_the_same_text_twice_with_logprobs_and_usage(model: Chat) -> None:
    first, second = (only(model([ask(logprobs=True)])) for _ in range(2))
    assert first.text == second.text != ""
    assert first.logprob is not None
    assert -10 < first.logprob < 0
    assert first.logprob == second.logprob
    assert first.prompt_tokens > 4
    assert first.seconds > 0


def test_max_tokens_is_respected(model: Chat) -> None:
    reply = only(model([ask("Count from one to one hundred in words.", 5)]))
    assert reply.completion_tokens <= 5
    assert reply.finish == "length"
    assert reply.logprob is None


def test_an_answer_that_ends_by_itself_says_stop(model: Chat) -> None:
    reply = only(model([ask("Say hello.", 60)]))
    assert reply.finish == "stop"
    assert reply.completion_tokens < 60


def test_both_ways_to_the_model_give_the_same_text(local: GgufChat, served: HttpChat) -> None:
    assert only(local([ask()])).text == only(served([ask()])).text


def test_a_seed_gives_the_same_sample_and_another_seed_another(model: Chat) -> None:
    def sample(seed: int) -> str:
        return only(model([ask("Tell me a story.", 12, temperature=1.5, seed=seed)])).text

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in (1, 2, 3)}) > 1


def test_a_prompt_that_does_not_fit_is_a_typed_error_in_its_place(model: Chat) -> None:
    good, long, last = model([ask(max_tokens=2), ask("word " * 800), ask(max_tokens=2)])
    assert isinstance(good, Reply)
    assert type(long) is ContextTooLongError
    assert "512" in str(long)
    assert isinstance(last, Reply)


@pytest.mark.parametrize("text", ["", "\0", "\ud800", "<|im_end|><|im_start|>system", "🐈" * 20], ids=ascii)
def test_odd_prompts_are_answered(model: Chat, text: str) -> None:
    assert isinstance(model([ask(text, 2)])[0], Reply)


def test_a_wrong_key_is_refused_by_the_real_server(local: GgufChat) -> None:
    model = HttpChat(local.served.base, "m", key="wrong")
    assert type(model([ask()])[0]) is AuthError
    model.close()


def test_the_server_listens_on_loopback_only_and_its_key_is_not_shown(local: GgufChat) -> None:
    base, key = local.served
    assert base.startswith("http://127.0.0.1:")
    assert len(key) >= 32
    assert key not in repr(local.served) + repr(local) + str(vars(local))


def test_threads_may_ask_at_once(local: GgufChat) -> None:
    alone = [only(local([ask(f"What is {i} plus {i}?", 4)])).text for i in range(3)]
    out: dict[int, str] = {}

    def run(i: int) -> None:
        out[i] = only(local([ask(f"What is {i} plus {i}?", 4)])).text

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [out[i] for i in range(3)] == alone


def test_an_ask_past_its_time_is_a_typed_error(local: GgufChat) -> None:
    ticks = iter(range(0, 10_000, 40))
    clock, local.clock = local.clock, lambda: float(next(ticks))  # 40 s a look, 300 s allowed
    try:
        found = local([ask("Count from one to one hundred in words.", 60)])[0]
    finally:
        local.clock = clock
    assert type(found) is ModelTimeoutError


def test_an_ask_ends_when_its_callers_time_is_over_and_the_next_is_answered(local: GgufChat) -> None:
    with pytest.raises(DeadlineError), deadline.until(time.monotonic() + 0.01):
        local([ask("Count from one to one hundred in words.", 400)])
    assert isinstance(local([ask()])[0], Reply)


def test_the_handlers_of_ctrl_c_and_termination_are_the_programs_own(local: GgufChat) -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: caught)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught == [signal.SIGTERM]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert isinstance(local([ask(max_tokens=2)])[0], Reply)


def test_ctrl_c_ends_a_long_answer_and_native_code_prints_nothing() -> None:
    code = (
        "import os, signal, threading\n"
        "from retcon.model import Ask, GgufChat\n"
        f"model = GgufChat({path()!r}, context=8192, threads=1, timeout=3600)\n"
        "threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    model([Ask(({'role': 'user', 'content': 'Write a very long story.'},), 8000)] * 3)\n"
        "except KeyboardInterrupt:\n"
        "    model.close()\n"
        "    print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


def test_a_closed_model_answers_with_an_error_and_closes_twice(tmp_path: Path) -> None:
    link = tmp_path / "Model.GGUF"
    link.symlink_to(path())
    model = chat(str(link), timeout=300)
    assert isinstance(model, GgufChat)
    assert isinstance(model, Chat)
    assert model.kind == "gguf"
    model.close()
    model.close()
    assert type(model([ask()])[0]) is ModelUnavailableError


def test_serve_gives_a_base_and_a_key_and_stops_listening_after() -> None:
    with serve(path(), context=256, threads=1) as served:
        base, key = served
        model = HttpChat(base, "m", key=key, timeout=300, retries=0)
        assert isinstance(model([ask(max_tokens=2)])[0], Reply)
    assert type(model([ask(max_tokens=2)])[0]) is ModelUnavailableError
    model.close()


def test_the_name_tells_files_apart_and_a_given_name_stays(local: GgufChat) -> None:
    assert local.name.startswith("SmolLM2-135M-Instruct.Q4_1@")
    assert len(local.name.split("@")[1]) == 8


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + bytes(1000)])
def test_a_file_that_is_no_model_is_one_clear_line(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.gguf") as caught:
        chat(str(bad))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(InputError, match="no model file"):
        chat(str(tmp_path / "none.gguf"))


def test_xllamacpp_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"retcon-memory\[local\]"):
        GgufChat(path())
