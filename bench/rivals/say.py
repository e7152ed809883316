"""A prompt -> what a model says to it: the model in this process, or in that of bench.rivals.decoder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
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


class DecoderSay:
    """A model in a process of its own: here are only its tokenizer and the calls under way."""

    def __init__(self, folder: str, socket: str) -> None:
        from transformers import AutoTokenizer, GenerationConfig

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        given = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        self.ends = frozenset(given if isinstance(given, list) else [given])
        self._connection = Client(socket, "AF_UNIX")
        self._lock, self._numbers, self._calls = threading.Lock(), count(), dict[int, Future[list[int] | None]]()
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
        call: Future[list[int] | None] = Future()
        with self._lock:
            if self._gone:
                raise ConnectionError("the decoder is gone")
            number = next(self._numbers)
            self._calls[number] = call
            self._connection.send((number, ids, tokens, temperature, seed))
        said = call.result()
        if said is None:
            raise BadRequestError(f"{len(ids)} tokens and {tokens} for the answer do not fit the context")
        stopped = bool(said) and said[-1] in self.ends
        text = self.tokenizer.decode(said[:-1] if stopped else said, skip_special_tokens=True)
        return Said(clean(text), len(ids), len(said), "stop" if stopped else "length")

    def _receive(self) -> None:
        while True:
            try:
                number, said = self._connection.recv()
            except (EOFError, OSError):
                with self._lock:
                    self._gone = True
                    for call in self._calls.values():
                        call.set_exception(ConnectionError("the decoder is gone"))
                return
            self._calls.pop(number).set_result(said)
