"""Recorded replies: a JSONL file that is written while a real model answers, and answers in its place after."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict

from retcon.errors import InputError, ModelError
from retcon.model.base import Ask, Chat, Reply, plain_ask


class CassetteChat:
    """With `inner`, asks it and records its replies; without, replays the file and asks nobody.

    Errors are not recorded. The same ask recorded again counts once more: replay gives the recordings of an ask in
    turn, and the last of them from then on.
    """

    kind = "cassette"

    def __init__(self, path: str | os.PathLike[str], inner: Chat | None = None) -> None:
        self.path, self.inner = os.fspath(path), inner
        self._lock = threading.Lock()
        self._takes: dict[str, list[Reply]] = {}
        self._played: dict[str, int] = {}
        self.name = inner.name if inner is not None else self._read()

    def __repr__(self) -> str:
        return f"CassetteChat({self.path!r}, {'recording' if self.inner is not None else 'replaying'} {self.name!r})"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        if self.inner is None:
            with self._lock:
                return [self._replay(ask) for ask in asks]
        replies = self.inner(asks)
        with self._lock:
            self._append([(ask, reply) for ask, reply in zip(asks, replies, strict=True) if isinstance(reply, Reply)])
        return replies

    def close(self) -> None:
        """Close the model that is recorded."""
        close = getattr(self.inner, "close", None)
        if close is not None:
            close()

    def _replay(self, ask: Ask) -> Reply | ModelError:
        key = ask_key(ask)
        takes = self._takes.get(key)
        if not takes:
            return ModelError(f"{self.path} holds no reply with the key {key[:12]}: record it again")
        turn = self._played[key] = self._played.get(key, 0) + 1
        return takes[min(turn, len(takes)) - 1]

    def _append(self, pairs: Sequence[tuple[Ask, Reply]]) -> None:
        """One write of whole lines at the end of the file, so that several recorders do not cut into each other."""
        lines = [
            json.dumps({"key": ask_key(ask), "model": self.name, "ask": plain_ask(ask), "reply": asdict(reply)})
            for ask, reply in pairs
        ]
        if not lines:
            return
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, "".join(line + "\n" for line in lines).encode())
            finally:
                os.close(file)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}") from error

    def _read(self) -> str:
        """The name of the recorded model; the recordings go into `_takes`."""
        name, number = "cassette", 0
        try:
            with open(self.path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):  # noqa: B007
                    entry = json.loads(line)
                    name = str(entry["model"])
                    self._takes.setdefault(str(entry["key"]), []).append(Reply(**entry["reply"]))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}") from error
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self.path}: line {number} is not a recorded reply") from None
        return name


def ask_key(ask: Ask) -> str:
    """A hash of the ask alone, so that a cassette replays whatever the recorded model was called."""
    return hashlib.sha256(json.dumps(plain_ask(ask), sort_keys=True).encode()).hexdigest()
