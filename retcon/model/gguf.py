"""A GGUF file, run by llama.cpp inside this process (xllamacpp, extra `local`).

llama.cpp's server object also listens, here on a free loopback port behind a random key: `served` names both, and
`serve` opens a file for just that. It takes over Ctrl-C when it loads; the handlers are put back.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import secrets
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from retcon import deadline
from retcon.errors import (
    ContextTooLongError,
    DeadlineError,
    InputError,
    MalformedReplyError,
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from retcon.model.base import Ask, Reply, clean, clean_messages

_SAMPLE = 2**20  # bytes at either end of a file that tell it from others


class Served(NamedTuple):
    """Where a local model listens, and the key it wants. The key is not shown."""

    base: str
    key: str

    def __repr__(self) -> str:
        return f"Served({self.base!r})"


class GgufChat:
    """A GGUF model in this process. Greedy asks, one at a time, give the same text every time."""

    kind = "gguf"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        context: int = 4096,
        parallel: int = 1,
        threads: int | None = None,
        timeout: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Loads the file. `context` is the window of each ask, prompt and answer together; `parallel` asks share the
        processor. `threads` is one less than the cores by default: on a busy machine more were ten times slower. An ask
        may take `timeout` seconds; that is looked at after every token, so a prompt under way is read to its end."""
        if not Path(path).is_file():
            raise InputError(f"there is no model file {os.fspath(path)!r}")
        if not (timeout > 0 and math.isfinite(timeout)) or context < 1 or parallel < 1:
            raise InputError("a time-out is a number of seconds above 0, context and parallel are 1 or more")
        self.path = os.fspath(path)
        self.name = name or f"{Path(path).stem}@{_fingerprint(self.path)}"
        self.timeout, self.clock = timeout, clock
        self._pid = os.getpid()
        self._native = _Native(self.path, context, parallel, threads or max(1, _cores() - 1))
        self._stop = weakref.finalize(self, self._native.close)

    def __repr__(self) -> str:
        return f"GgufChat({self.path!r}, name={self.name!r})"

    @property
    def served(self) -> Served:
        """Where this model answers over HTTP, on this machine only."""
        return self._native.served

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        if self._pid != os.getpid():
            return [ModelUnavailableError(f"{self.name} was loaded before a fork: load it in this process")] * len(asks)
        stop = threading.Event()
        try:
            waiting = [self._native.submit(partial(self._ask, ask, stop)) for ask in asks]
            with deadline.on_stop(stop.set):
                return [
                    _result(each) if each is not None else ModelUnavailableError(f"{self.name} is closed")
                    for each in waiting
                ]
        finally:
            stop.set()  # after Ctrl-C, or when it is late: what still runs ends at its next token

    def close(self) -> None:
        """Wait for the asks under way, then free the model."""
        if self._pid == os.getpid():
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, ask: Ask, stop: threading.Event, server: Any) -> Reply | ModelError:
        started = self.clock()
        heard = _Heard()

        def hear(part: Any) -> bool:
            """Take one part of the answer in; True ends it."""
            heard.late = self.clock() - started > self.timeout
            return heard.take(part) or heard.late or stop.is_set()

        if stop.is_set():
            return ModelUnavailableError(f"{self.name}: interrupted")
        try:
            server.handle_chat_completions(_payload(ask), hear)
        except (RuntimeError, ValueError) as error:
            return ModelError(f"{self.name}: {_line(str(error))}")
        if heard.error is not None:
            return _error(self.name, heard.error)
        if heard.finish is None:
            if heard.late:
                return ModelTimeoutError(f"{self.name}: no complete reply within {self.timeout:.3g} s")
            return MalformedReplyError(f"{self.name}: the reply ended before its end")
        return heard.reply(self.clock() - started)


@contextlib.contextmanager
def serve(path: str | os.PathLike[str], **options: Any) -> Iterator[Served]:
    """Base URL and key of a llama.cpp server on loopback that holds the model, for as long as the block runs."""
    with GgufChat(path, **options) as chat:
        yield chat.served


class _Native:
    """llama.cpp's server object, the threads that may use it, and its end."""

    def __init__(self, path: str, context: int, parallel: int, threads: int) -> None:
        xllamacpp = _xllamacpp()
        key = secrets.token_urlsafe(24)
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx, params.n_parallel = context * parallel, parallel  # the slots share n_ctx
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
        params.verbosity, params.offline, params.ui, params.endpoint_metrics = -1, True, False, True
        params.cache_prompt, params.cache_ram_mib = False, 0  # earlier asks change no number
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        with _own_signals():
            try:
                self._server = xllamacpp.Server(params)
            except RuntimeError:
                raise InputError(f"{path}: llama.cpp cannot load this file") from None
        self._server.handle_metrics()  # waits for the native loop: one that is ended before it has begun never ends
        self.served = Served(self._server.listening_address + "/v1", key)
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="retcon-gguf")
        self._lock = threading.Lock()

    def submit(self, job: Callable[[Any], Reply | ModelError]) -> Future[Reply | ModelError] | None:
        with self._lock:
            return None if self._server is None else self._pool.submit(job, self._server)

    def close(self) -> None:
        with self._lock:
            self._pool.shutdown(wait=True)
            self._server = None  # its destructor ends the native threads


@dataclass
class _Heard:
    """An answer as its parts come in."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    late: bool = False

    def take(self, part: Any) -> bool:
        """Whether the answer ends with this part: an error does, the last part ends by itself."""
        if not isinstance(part, dict) or "choices" not in part:
            found = part.get("error", part) if isinstance(part, dict) else {}
            self.error = found if isinstance(found, dict) else {"message": str(found)}
            return True
        self.usage = part.get("usage") or self.usage
        for choice in part["choices"]:
            self.texts.append(choice["delta"].get("content") or "")
            self.finish = choice.get("finish_reason") or self.finish
            self.logprobs += [token["logprob"] for token in (choice.get("logprobs") or {}).get("content") or ()]
        return False

    def reply(self, seconds: float) -> Reply:
        finite = [value for value in self.logprobs if math.isfinite(value)]
        return Reply(
            text=clean("".join(self.texts)),
            prompt_tokens=int(self.usage.get("prompt_tokens", 0)),
            completion_tokens=int(self.usage.get("completion_tokens", 0)),
            seconds=seconds,
            finish="length" if self.finish == "length" else "stop",
            logprob=sum(finite) / len(finite) if finite else None,
        )


def _result(waiting: Future[Reply | ModelError]) -> Reply | ModelError:
    """The answer, or an error once the caller's time is over."""
    left = deadline.seconds_left()
    try:
        return waiting.result(None if left == math.inf else left)
    except TimeoutError:
        raise DeadlineError("no reply of the model before the time for this work was over") from None


def _payload(ask: Ask) -> dict[str, Any]:
    """The request. It streams, so that a time-out can end it."""
    plain: dict[str, Any] = {
        "messages": clean_messages(ask),
        "max_tokens": ask.max_tokens, "temperature": ask.temperature,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    if ask.seed is not None:
        plain["seed"] = ask.seed % 2**32
    return plain | ({"logprobs": True, "top_logprobs": 1} if ask.logprobs else {})


def _error(name: str, said: Mapping[str, Any]) -> ModelError:
    line = f"{name}: {_line(str(said.get('message', 'the model failed')))}"
    if said.get("type") == "exceed_context_size_error":
        return ContextTooLongError(line)
    return ModelUnavailableError(line) if said.get("code") == 500 else ModelError(line)


def _line(said: str) -> str:
    return " ".join(said.split())[:200]


def _fingerprint(path: str) -> str:
    """Eight characters that tell this file from others of its name: a hash of its size and both ends."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(_SAMPLE)
        file.seek(max(0, size - _SAMPLE))
        return hashlib.sha256(b"%d " % size + head + file.read(_SAMPLE)).hexdigest()[:8]


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the process's Ctrl-C and termination handlers, from whatever thread, while native code sets its own."""
    get, put = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
    get.restype = put.restype = ctypes.c_void_p
    get.argtypes, put.argtypes = [ctypes.c_int], [ctypes.c_int, ctypes.c_void_p]
    kept = [(number, get(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in kept:
            put(number, handler)


def _xllamacpp() -> Any:
    try:
        import xllamacpp  # native code, so only where a file is opened
    except ImportError:
        raise MissingExtraError("a local GGUF model", "local") from None
    return xllamacpp
