"""A prompt -> what a model says to it: the model in this process, or in that of bench.rivals.decoder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Client
from typing import Any

from bench.rivals.live import Live
from retcon.lab.gpu.flow import Row
from retcon.model.base import Ask, clean


class BadRequestError(ValueError):
    """What the caller sent cannot be answered."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the model said to a prompt."""

    text: str
    prompted: int
    generated: int
    finish: str


Say = Callable[[str, int, float, int], Said]  # prompt, tokens, temperature, seed
SENT = 3  # decoders that a call is sent to before it is given up
Template = Callable[..., str]


class TransformersSay:
    """A model in a folder: prompts of many threads are said in one batch."""

    def __init__(self, folder: str, *, batch_tokens: int, batch_rows: int = 512) -> None:
        from retcon.lab.gpu.chat import TransformersChat

        self.chat = TransformersChat(folder)
        self.window = self.chat._window or 1 << 30
        self.live = Live(self.chat._flow, tokens=batch_tokens, most=batch_rows)
        self._places = count()

    def template(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> str:
        """The prompt that the model's own template makes of the messages."""
        made: str = self.chat._tokenizer.apply_chat_template(
            list(messages), tools=tools or None, tokenize=False, add_generation_prompt=True
        )
        return made

    def __call__(self, prompt: str, tokens: int, temperature: float, seed: int) -> Said:
        ids = list(self.chat._tokenizer([prompt], add_special_tokens=False)["input_ids"][0])
        if len(ids) + tokens > self.window:
            raise BadRequestError(f"{len(ids)} tokens and {tokens} for the answer, context {self.window}")
        row = Row(next(self._places), Ask((), tokens, temperature, seed), ids)
        self.live.say(row)
        reply = self.chat._reply(row, 0.0)
        if isinstance(reply, Exception):
            raise BadRequestError(str(reply))
        return Said(reply.text, reply.prompt_tokens, reply.completion_tokens, reply.finish)


@dataclass(slots=True)
class _Under:
    """A call under way: what was asked for, and where its answer goes."""

    asked: tuple[list[int], int, float, int]  # tokens, limit, temperature, seed
    said: Future[list[int] | None]
    sent: int = 0  # to so many decoders


class DecoderSay:
    """A model in a process of its own: here are only its tokenizer and the calls under way.

    Should that process end, calls under way are asked again of the next one that listens at the same socket; one that
    was under way when several ended is given up, as it may be what ends them.
    """

    def __init__(self, folder: str, socket: str, *, patience: float = 120.0) -> None:
        from transformers import AutoTokenizer, GenerationConfig

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        given = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        self.ends = frozenset(given if isinstance(given, list) else [given])
        self._socket, self._patience = socket, patience
        self._connection = Client(socket, "AF_UNIX")
        self._lock, self._numbers, self._calls = threading.Lock(), count(), dict[int, _Under]()
        self._gone = False
        threading.Thread(target=self._receive, daemon=True).start()

    def template(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> str:
        """The prompt that the model's own template makes of the messages."""
        made: str = self.tokenizer.apply_chat_template(
            list(messages), tools=tools or None, tokenize=False, add_generation_prompt=True
        )
        return made

    def __call__(self, prompt: str, tokens: int, temperature: float, seed: int) -> Said:
        ids = list(self.tokenizer([prompt], add_special_tokens=False)["input_ids"][0])
        call = _Under((ids, tokens, temperature, seed), Future())
        with self._lock:
            if self._gone:
                raise ConnectionError("the decoder is gone")
            number = next(self._numbers)
            self._calls[number] = call
            self._send(number, call)
        said = call.said.result()
        if said is None:
            raise BadRequestError(f"{len(ids)} tokens and {tokens} for the answer do not fit the context")
        stopped = bool(said) and said[-1] in self.ends
        text = self.tokenizer.decode(said[:-1] if stopped else said, skip_special_tokens=True)
        return Said(clean(text), len(ids), len(said), "stop" if stopped else "length")

    def _send(self, number: int, call: _Under) -> None:
        call.sent += 1
        with suppress(OSError):  # what a decoder that ends does not get, the next one gets
            self._connection.send((number, *call.asked))

    def _receive(self) -> None:
        while True:
            try:
                number, said = self._connection.recv()
            except (EOFError, OSError):
                if self._ask_again():
                    continue
                return
            with self._lock:
                call = self._calls.pop(number)
            call.said.set_result(said)

    def _ask_again(self) -> bool:
        """Whether another decoder came within the time there is; it is asked for all calls under way."""
        until = time.monotonic() + self._patience
        while time.monotonic() < until:
            with suppress(OSError):
                found = Client(self._socket, "AF_UNIX")
                with self._lock:
                    self._connection.close()
                    self._connection = found
                    self._give_up([number for number, call in self._calls.items() if call.sent >= SENT])
                    for number, call in self._calls.items():
                        self._send(number, call)
                return True
            time.sleep(0.2)
        with self._lock:
            self._gone = True
            self._connection.close()
            self._give_up(list(self._calls))
        return False

    def _give_up(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._calls.pop(number).said.set_exception(ConnectionError("the decoder is gone"))
