"""Any OpenAI-compatible endpoint: POST {base}/chat/completions, {base}/embeddings and {base}/rerank.

A batch call is sync; inside, one private event loop per endpoint runs the requests, because only there can a deadline
cover every phase of a request (name lookup, connection, headers, a body that drips). The key travels in one header and
nowhere else: errors are built from our own words and, redacted, the server's, never from the client library's
exceptions, and redirects are not followed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import json
import math
import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from retcon import deadline
from retcon.errors import (
    AuthError,
    ContextTooLongError,
    DeadlineError,
    InputError,
    MalformedReplyError,
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitError,
)
from retcon.model.base import Ask, Reply, clean, clean_messages, token_count
from retcon.model.embed import check_rows
from retcon.tokens import counter
from retcon.words import words

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

MOST_BYTES = 4 * 2**20  # of a reply to one ask
CONNECT = 10.0  # seconds for a connection, where the time-out allows more
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds before a retry: backoff starts here, and nothing waits longer
REMEMBER = 30.0  # seconds in which an endpoint that cannot be reached, or refuses the key, is not tried again
_SAID = 200  # characters of the server's own words in an error
_NEAR = 20_000  # characters of them that are looked at
_PART = 8  # characters of the key that are taken for a part of it

# Parameters that newer hosted models refuse by name, and what to send in their place; None sends nothing.
_RENAMED: Mapping[str, str | None] = {"max_tokens": "max_completion_tokens", "temperature": None}
# How servers say that the prompt is too long (OpenAI and vLLM, llama.cpp, Ollama, text-generation-inference, ...).
_TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context length",
    "context size",
    "context window",
    "max_model_len",
    "too many tokens",
    "prompt is too long",
    "input is too long",
    "longer than the maximum model length",
)


@dataclass(frozen=True)
class Endpoint:
    """Where to post, and how patiently. `sleep`, `chance`, `clock` and `now` are there for tests."""

    base: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 60.0  # seconds for an ask, with all its retries and the waits between them
    attempt: float | None = None  # of these for one attempt, from its first to its last byte; all of them by default
    concurrency: int = 8  # requests under way at once, over all threads
    retries: int = 4
    remember: float = REMEMBER
    most_bytes: int = MOST_BYTES
    sleep: Callable[[float], Awaitable[Any]] = field(default=asyncio.sleep, repr=False)
    chance: Callable[[], float] = field(default=random.random, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    now: Callable[[], float] = field(default=time.time, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", _base(self.base))
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and self.key.strip()):
            raise InputError("the API key holds characters that a header cannot carry")
        deadline.check_timeout(self.timeout)
        deadline.check_timeout(self.timeout if self.attempt is None else self.attempt)
        if not self.remember >= 0:
            raise InputError(f"a failure is remembered for 0 seconds or more, not {self.remember}")
        if self.concurrency < 1 or self.retries < 0:
            raise InputError(f"concurrency is 1 or more and retries 0 or more, not {self.concurrency}, {self.retries}")

    def redact(self, said: str) -> str:
        """The server's words in one line, without the key or a part of it, then cut."""
        near = " ".join(said.split())[:_NEAR]
        line = clean(" ".join("".join(c if c.isprintable() else " " for c in near).split()))
        return hide_key(self.key, line)[:_SAID] if self.key else line[:_SAID]


def hide_key(key: str, line: str) -> str:
    """The beginning of the line without the key: as it is, with blanks in it, percent-encoded, in hex or in base64.

    A part of it that is long enough to be one by no accident goes too. More of the line than is shown is looked at, so
    that the key is known also where the end of what is shown runs through it.
    """
    forms = _forms(key)
    line = line[: _SAID + 4 * max(map(len, forms))]
    places = [place for place, sign in enumerate(line) if "!" <= sign <= "~"]
    squeezed = "".join(line[place] for place in places).lower()
    hidden: set[int] = set()
    for form in forms:
        size = min(_PART, len(form))
        parts = {form[i : i + size] for i in range(len(form) - size + 1)}
        for start in range(len(squeezed) - size + 1):
            if squeezed[start : start + size] in parts:
                hidden.update(range(places[start], places[start + size - 1] + 1))
    return "".join(
        sign if place not in hidden else "[key]" if place - 1 not in hidden else "" for place, sign in enumerate(line)
    )


def _forms(key: str) -> set[str]:
    """How the key may be written, in lower case and without blanks."""
    plain = key.encode()
    forms = {key, quote(key, safe=""), "".join(f"%{byte:02x}" for byte in plain), plain.hex()}
    for ahead in range(3):  # base64 depends on where in a longer text the key begins
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(bytes(ahead) + plain).decode().rstrip("=")[(0, 2, 3)[ahead] :][:-1])
    return {squeezed for form in forms if (squeezed := "".join(form.split()).lower())}


class HttpChat:
    """A chat model behind an OpenAI-compatible endpoint."""

    kind = "http"

    def __init__(self, base: str, name: str | None, *, key: str | None = None, **options: Any) -> None:
        """`base` with or without /v1; `options` are the fields of `Endpoint`."""
        if not name:
            raise InputError("an endpoint needs the name of the model to ask: model_name='...'")
        self.name = name
        self.endpoint = Endpoint(base, key, **options)
        self._loop_thread = _LoopThread(self.endpoint)
        self._count = counter("estimate")
        self._refused: set[str] = set()  # parameters of _RENAMED that this model does not take

    def __repr__(self) -> str:
        return f"HttpChat({self.endpoint.base!r}, {self.name!r})"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return self._loop_thread.run([partial(self._ask, ask) for ask in asks])

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._loop_thread.close()

    async def _ask(self, ask: Ask, client: _Client) -> Reply | ModelError:
        started = self.endpoint.clock()
        while True:
            known = len(self._refused)
            found = await client.post("/chat/completions", self._payload(ask))
            if isinstance(found, _RefusedParameter):
                self._refused |= {name for name in _RENAMED if found.parameter == name}
                if len(self._refused) > known:
                    continue
                return found.error
            if isinstance(found, ModelError):
                return found
            return self._reply(ask, found, self.endpoint.clock() - started)

    def _payload(self, ask: Ask) -> dict[str, Any]:
        plain: dict[str, Any] = {"model": self.name, "messages": clean_messages(ask)}
        plain |= {"max_tokens": ask.max_tokens, "temperature": ask.temperature, "stream": False}
        for name in self._refused:
            value, other = plain.pop(name), _RENAMED[name]
            if other is not None:
                plain[other] = value
        if ask.seed is not None:
            plain["seed"] = ask.seed
        if ask.logprobs:
            plain |= {"logprobs": True, "top_logprobs": 1}  # 20 alternatives a token are some servers' default
        return plain

    def _reply(self, ask: Ask, found: Any, seconds: float) -> Reply | ModelError:
        try:
            choice = found["choices"][0]
            text, finish = choice["message"]["content"], choice.get("finish_reason")
        except (LookupError, TypeError, AttributeError):
            return MalformedReplyError(f"{self.name}: the reply has no choices with a message")
        if not isinstance(text, str):
            return MalformedReplyError(f"{self.name}: the reply's content is {type(text).__name__}, not text")
        text = clean(text)
        usage = found.get("usage")
        told = usage if isinstance(usage, dict) else {}
        prompt, completion = (token_count(told.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        if prompt is None:
            prompt = sum(self._count(message["content"]) for message in ask.messages)
        if completion is None:
            completion = self._count(text)
        cut = finish in ("length", "max_tokens")
        return Reply(text, prompt, completion, seconds, "length" if cut else "stop", mean_logprob(choice))


class HttpEmbed:
    """Vectors from an OpenAI-compatible endpoint. `name` and `dim` are asked for once, unless they are given."""

    def __init__(
        self, base: str, name: str | None = None, key: str | None = None, *, dim: int | None = None, batch: int = 64,
        **options: Any,
    ) -> None:  # fmt: skip
        self._name = name
        self.endpoint = Endpoint(base, key, **{"most_bytes": 16 * MOST_BYTES, **options})
        self._loop_thread = _LoopThread(self.endpoint)
        self._dim, self._batch = dim, batch

    def __repr__(self) -> str:
        return f"HttpEmbed({self.endpoint.base!r}, {self._name!r})"

    @property
    def name(self) -> str:
        """The model: as it was given, or the only one that the endpoint lists."""
        if self._name is None:
            (found,) = self._loop_thread.run([find_only_model])
            if isinstance(found, ModelError):
                raise found
            self._name = found
        return self._name

    @property
    def dim(self) -> int:
        """The length of a vector."""
        if self._dim is None:
            self._vectors(["dimension"])
        assert self._dim is not None
        return self._dim

    def __call__(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        full = [i for i, text in enumerate(texts) if words(text)]
        out = np.zeros((len(texts), self.dim), np.float32)
        if full:
            out[full] = self._vectors([texts[i] for i in full])
        return out

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._loop_thread.close()

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        assert self.name, "a request names its model"
        parts = [texts[i : i + self._batch] for i in range(0, len(texts), self._batch)]
        found = self._loop_thread.run([partial(self._part, part) for part in parts])
        for each in found:
            if isinstance(each, ModelError):
                raise each
        return np.concatenate([each for each in found if not isinstance(each, ModelError)])

    async def _part(self, texts: Sequence[str], client: _Client) -> NDArray[np.float32] | ModelError:
        found = await client.post("/embeddings", {"model": self._name, "input": list(texts)})
        if isinstance(found, _RefusedParameter):
            return found.error
        if isinstance(found, ModelError):
            return found
        try:
            data = sorted(found["data"], key=lambda row: int(row["index"]))
            rows = np.array([row["embedding"] for row in data], np.float64)
        except (LookupError, TypeError, ValueError, OverflowError):
            rows = np.empty(0)
        wanted = (len(texts), self._dim or (max(1, rows.shape[1]) if rows.ndim == 2 else 1))
        if rows.shape != wanted or not np.isfinite(rows).all():
            return MalformedReplyError(f"{self.name}: the reply holds vectors {rows.shape}, expected {wanted}")
        self._dim = wanted[1]
        return check_rows(self.name, rows, len(texts))


async def find_only_model(client: _Client) -> str | ModelError:
    """The name of the one model that an endpoint lists; an error where it lists none, or several."""
    found, where = await client.get("/models"), client.endpoint.base
    if isinstance(found, _RefusedParameter):
        return found.error
    if isinstance(found, ModelError):
        return found
    try:
        names = [str(each["id"]) for each in found["data"]]
    except (LookupError, TypeError):
        return MalformedReplyError(f"{where}: the reply lists no models")
    if len(names) == 1:
        return names[0]
    listed = client.endpoint.redact(", ".join(names)) or "none"
    return ModelError(f"{where}: name the model, {where}#NAME; it lists {listed}")


def mean_logprob(choice: Any) -> float | None:
    """The mean log-probability of a choice's tokens, where it carries them."""
    try:
        values = [float(token["logprob"]) for token in choice["logprobs"]["content"]]
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
    finite = [value for value in values if math.isfinite(value)]
    mean = sum(value / len(finite) for value in finite)
    return mean if finite and math.isfinite(mean) else None


# -- the requests ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RefusedParameter:
    """A 400 that names the parameter it does not take."""

    parameter: str
    error: ModelError


@dataclass(frozen=True, slots=True)
class _PassingFailure:
    """A failure that may pass by itself: the error if it does not, and the seconds the server asks to wait."""

    error: ModelError
    wait: float | None = None

    def told(self) -> ModelError:
        """The error, which says to whoever tries again later that this may help, and when."""
        self.error.passing, self.error.retry_after = True, self.wait
        return self.error


@dataclass(frozen=True, slots=True)
class _LastingFailure:
    """A failure that every ask would meet: nobody listens there, or the key is refused."""

    error: ModelError


class _Client:
    """What a coroutine needs to post: the connections and the bound on requests, both of one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.httpx = _httpx()
        headers = {"accept-encoding": "identity", "content-type": "application/json", "user-agent": "retcon"}
        if endpoint.key:
            headers["authorization"] = f"Bearer {endpoint.key}"
        self.connections = self.httpx.AsyncClient(
            headers=headers,
            timeout=self.httpx.Timeout(endpoint.timeout, connect=min(CONNECT, endpoint.timeout), pool=None),
            limits=self.httpx.Limits(max_connections=endpoint.concurrency),
            follow_redirects=False,
            trust_env=not _is_loopback(endpoint.base),  # a proxy of the environment is not for this machine
        )
        self.bound = asyncio.Semaphore(endpoint.concurrency)
        self._accepted = False  # whether this key was ever good for a reply
        self._known: tuple[ModelError, float] | None = None  # a lasting failure, and until when it counts

    async def get(self, path: str) -> Any:
        """What `post` gives, for a request without a body."""
        return await self._request(path, None)

    async def post(self, path: str, payload: Mapping[str, Any]) -> Any:
        """The reply's JSON, a `_RefusedParameter`, or the error that was left after the retries."""
        return await self._request(path, json.dumps(payload).encode())

    async def _request(self, path: str, body: bytes | None) -> Any:
        async with self.bound:
            if (known := self._find_known()) is not None:
                return known
            until = self.endpoint.clock() + self.endpoint.timeout
            for turn in range(self.endpoint.retries + 1):
                found = await self._attempt(path, body, until)
                if not isinstance(found, _PassingFailure):
                    return self._note(found)
                if turn == self.endpoint.retries:
                    break
                wait = self._wait(turn, found.wait)
                if self.endpoint.clock() + wait >= until:
                    break
                await self.endpoint.sleep(wait)
                if self.endpoint.clock() >= until:  # it took longer than asked for: what went wrong before counts
                    break
        return found.told()

    def _find_known(self) -> ModelError | None:
        """The failure that another ask has met a short while ago and this one would meet again."""
        if self._known is None or self.endpoint.clock() >= self._known[1]:
            return None
        error = self._known[0]
        return type(error)(f"{error}; the next try is {self.endpoint.remember:g} s after this was first met")

    def _note(self, found: Any) -> Any:
        """What was found, once a failure that lasts is remembered and any other answer has cleared it."""
        if not isinstance(found, _LastingFailure):
            self._known = None
            return found
        self._known = found.error, self.endpoint.clock() + self.endpoint.remember
        return found.error

    def _wait(self, turn: int, asked: float | None) -> float:
        """Seconds before the next attempt: full jitter under a doubling bound, or what the server asks and a little."""
        if asked is not None:
            return min(asked + self.endpoint.chance() * FIRST_WAIT, LONGEST_WAIT)
        return self.endpoint.chance() * min(FIRST_WAIT * 2.0**turn, LONGEST_WAIT)

    async def _attempt(self, path: str, body: bytes | None, until: float) -> Any:
        limit = max(0.0, min(self.endpoint.attempt or self.endpoint.timeout, until - self.endpoint.clock()))
        where = self.endpoint.base
        try:
            async with asyncio.timeout(limit):
                status, headers, said = await self._exchange(path, body)
        except (TimeoutError, self.httpx.TimeoutException):
            return _PassingFailure(ModelTimeoutError(f"{where}: no complete reply within {limit:.3g} s"))
        except self.httpx.ConnectError as error:
            return _LastingFailure(ModelUnavailableError(f"{where}: {_plain_failure(error)}"))
        except self.httpx.TransportError as error:
            return _PassingFailure(ModelUnavailableError(f"{where}: {_plain_failure(error)}"))
        except (self.httpx.HTTPError, self.httpx.InvalidURL, ValueError) as error:
            return ModelError(f"{where}: the request failed ({type(error).__name__})")
        if said is None:
            return MalformedReplyError(f"{where}: the reply is larger than {self.endpoint.most_bytes} bytes")
        if status != 200:
            return self._refusal(status, headers, said)
        self._accepted = True
        try:
            return json.loads(said)
        except (ValueError, RecursionError):
            return MalformedReplyError(f"{where}: the reply is not JSON ({len(said)} bytes)")

    async def _exchange(self, path: str, body: bytes | None) -> tuple[int, Mapping[str, str], bytes | None]:
        """Status, headers and body; None for a body that is too large, of which the rest is not read."""
        said = bytearray()
        url = self.endpoint.base + path
        async with self.connections.stream("GET" if body is None else "POST", url, content=body) as response:
            async for part in response.aiter_bytes():
                said += part
                if len(said) > self.endpoint.most_bytes:
                    return response.status_code, response.headers, None
        return response.status_code, response.headers, bytes(said)

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Any:
        """What an answer other than 200 means."""
        said, parameter, code = _server_words(body)
        line = f"{self.endpoint.base}: {status} {self.endpoint.redact(said)}".rstrip()
        lowered = f"{said} {code}".lower()
        if status in (401, 403):
            refused = AuthError(line if self.endpoint.key else f"{line} (no key was given)")
            # to a key that was good before, 403 may be about this one prompt: others must not pay for it
            return refused if status == 403 and self._accepted else _LastingFailure(refused)
        if status == 429:
            wait = retry_after(headers.get("retry-after"), self.endpoint.now())
            limited = RateLimitError(line, wait)
            return limited if "insufficient_quota" in lowered else _PassingFailure(limited, wait)
        if status in (400, 413, 422, 500) and any(phrase in lowered for phrase in _TOO_LONG):
            return ContextTooLongError(line)
        if status == 408:
            return _PassingFailure(ModelTimeoutError(line))
        if status == 409 or status >= 500:
            wait = retry_after(headers.get("retry-after"), self.endpoint.now())
            return _PassingFailure(ModelUnavailableError(line), wait)
        if 300 <= status < 400:
            return ModelError(f"{line}: redirects are not followed, give the final base URL")
        error = ModelError(line)
        return _RefusedParameter(parameter, error) if status == 400 and code.startswith("unsupported_") else error


class _LoopThread:
    """A private event loop in a thread of its own, made when first needed and again after a fork or a close."""

    def __init__(self, endpoint: Endpoint) -> None:
        _httpx()  # a missing extra is told at once
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._pid = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: _Client | None = None
        self._stop: Callable[[], object] = _do_nothing

    def run(self, jobs: Sequence[Callable[[_Client], Coroutine[Any, Any, T]]]) -> list[T]:
        """What each job returns, in order."""
        if not jobs:
            return []
        loop, client = self._start()

        async def every() -> list[T]:
            return list(await asyncio.gather(*(job(client) for job in jobs)))

        left = deadline.seconds_left()
        future = asyncio.run_coroutine_threadsafe(every(), loop)
        try:
            with deadline.on_stop(future.cancel):
                return future.result(None if left == math.inf else left)
        except TimeoutError:
            future.cancel()
            raise DeadlineError(f"{self.endpoint.base}: no reply before the time for this work was over") from None
        except CancelledError:
            deadline.check()  # it was stopped; else the model was closed meanwhile
            raise
        except BaseException:  # Ctrl-C: nothing goes on behind the caller's back
            future.cancel()
            raise

    def close(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                self._stop()
            self._pid, self._loop, self._client, self._stop = -1, None, None, _do_nothing

    def _start(self) -> tuple[asyncio.AbstractEventLoop, _Client]:
        if self._pid not in (-1, os.getpid()):  # forked: the thread stayed behind, and the lock may be held for ever
            self._lock, self._pid = threading.Lock(), -1
        with self._lock:
            if self._pid == -1 or self._loop is None or self._client is None:
                loop = self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve_loop, args=(loop,), name="retcon-http", daemon=True)
                thread.start()
                self._client = asyncio.run_coroutine_threadsafe(_make_client(self.endpoint), loop).result()
                self._stop = weakref.finalize(self, _stop_loop, loop, self._client, thread, os.getpid())
                self._pid = os.getpid()
            return self._loop, self._client


async def _make_client(endpoint: Endpoint) -> _Client:
    return _Client(endpoint)


def _serve_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop_loop(loop: asyncio.AbstractEventLoop, client: _Client, thread: threading.Thread, pid: int) -> None:
    if pid != os.getpid() or not thread.is_alive() or thread is threading.current_thread():
        return

    async def stop() -> None:
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        with contextlib.suppress(Exception):
            await client.connections.aclose()

    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(stop(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


def _do_nothing() -> None:
    pass


# -- words and numbers of the protocol ---------------------------------------------------------------------------------


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date against `now`; None where it says neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _base(given: str) -> str:
    """The base URL as it is posted to: without a slash at the end, and /v1 where only a host was given."""
    try:
        parts = urlsplit(given.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    odd = any(c.isspace() or not c.isprintable() for c in given.strip())
    if parts.scheme not in ("http", "https") or not host or odd:
        raise InputError("a model endpoint is a URL like http://localhost:8000/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(f"{parts.scheme}://{host}: no user, query or fragment in a base URL; the key goes into key")
    place = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/embeddings").removesuffix("/rerank")
    return f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{path or '/v1'}"


def _is_loopback(base: str) -> bool:
    host = urlsplit(base).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _plain_failure(error: httpx.TransportError) -> str:
    """What went wrong with a connection, in our words and those of the system."""
    kind = {
        "ConnectError": "no connection",
        "RemoteProtocolError": "the reply was cut off or is not HTTP",
        "ReadError": "the connection broke while reading",
        "WriteError": "the connection broke while writing",
        "ProxyError": "the proxy refused",
    }.get(type(error).__name__, type(error).__name__)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return f"{kind} ({cause.strerror})"
        if isinstance(cause, OSError) and cause.errno:
            return f"{kind} ({os.strerror(cause.errno)})"
        if isinstance(cause, BaseExceptionGroup):  # an error for each address that the name has
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__ or cause.__context__
    return kind


def _server_words(body: bytes) -> tuple[str, str, str]:
    """The message, the parameter and the code or type of an error body, whatever of these it has."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace"), "", ""
    error = found.get("error", found) if isinstance(found, dict) else found
    if not isinstance(error, dict):
        return _text(error), "", ""
    message = error.get("message") or error.get("detail") or ""
    code = f"{_text(error.get('code'))} {_text(error.get('type'))}".strip()
    return _text(message), _text(error.get("param")), code


def _text(value: Any) -> str:
    """A value of the server's as words; it may be anything that JSON can hold."""
    try:
        return value if isinstance(value, str) else json.dumps(value) if value else ""
    except RecursionError:
        return ""


def _httpx() -> Any:
    try:
        import httpx  # only where an endpoint is in use
    except ImportError:
        raise MissingExtraError("a model endpoint", "http") from None
    return httpx
