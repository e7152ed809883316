"""An OpenAI-compatible endpoint around a transformers folder that answers many callers in one batch.

    python -m bench.rivals.server --model FOLDER --port 8100 [--replies FILE] [--encoder FOLDER]
    python -m bench.rivals.server --model FOLDER --port 8100 --decoder SOCKET     the model runs in bench.rivals.decoder

    POST /v1/chat/completions    messages, max_tokens, temperature, seed, tools, tool_choice, response_format
    POST /v1/embeddings          by all-MiniLM-L6-v2
    POST /v1/spent               the replies that this key got since the last call: how a rival's costs are counted
    GET  /v1/models              what there is

Standard library alone, beside torch and transformers. Replies are kept in a file by what was asked, so that a run that
was stopped goes on without paying again. Greedy, or by a seed from the prompt: the same prompt gives the same reply.

Tools go into the model's own chat template. Where a call of a tool is demanded, the reply is begun with the opening of
one; where JSON is demanded, with a brace. That is what a model of this size can be helped with; grammars are not used.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import signal
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.rivals.endpoint import Call
from bench.rivals.say import BadRequestError, DecoderSay, Said, Say, Template, TransformersSay
from retcon.model.base import clean

LONGEST = 1024  # tokens of a reply where a caller names no limit
LARGEST = 1 << 24  # bytes of a request
_TOOL = re.compile(r"<tool_call>\s*(\{.*?\})\s*(?:</tool_call>|\Z)", re.DOTALL)


class Kept:
    """Replies by what was asked, in a file of JSON lines; one that was kept is not paid for again."""

    def __init__(self, path: Path | None, others: Sequence[Path] = ()) -> None:
        self._lock, self._known = threading.Lock(), dict[str, Said]()
        for each in (*others, *([path] if path else [])):
            if each.is_file():
                self._load(each)
        self._file = path.open("a", encoding="utf-8") if path else None
        if self._file and self._file.tell():
            self._file.write("\n")  # what a kill left of a line ends here

    def _load(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was killed
                continue
            key = row.pop("key")
            self._known[key] = Said(**row)

    def get(self, key: str) -> Said | None:
        with self._lock:
            return self._known.get(key)

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def put(self, key: str, said: Said) -> None:
        with self._lock:
            self._known[key] = said
            if self._file:
                self._file.write(json.dumps({"key": key, **asdict(said)}) + "\n")
                self._file.flush()


class Service:
    """What the routes do: values in, values out."""

    def __init__(
        self, say: Say, template: Template, *, name: str, kept: Kept | None = None, encode: Any = None
    ) -> None:
        self.say, self.template, self.name, self.encode = say, template, name, encode
        self.kept = kept or Kept(None)
        self._lock, self._calls = threading.Lock(), defaultdict[str, list[Call]](list)

    def complete(self, asked: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The reply to a request for a chat completion."""
        tools = [each for each in asked.get("tools") or () if isinstance(each, dict)]
        begun = _opening(asked, tools)
        prompt = clean(self.template(_messages(asked), tools)) + begun
        most = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or LONGEST)
        said = self._said(prompt, most, float(asked.get("temperature") or 0.0), asked.get("seed"))
        text, calls = _read(begun + said.text, tools, json_only=begun == "{")
        with self._lock:
            found = tuple((each["function"]["name"], each["function"]["arguments"]) for each in calls)
            self._calls[key].append(Call(said.prompted, said.generated, text, found, bool(tools)))
        return self._answer(text, calls, said)

    def _said(self, prompt: str, most: int, temperature: float, seed: int | None) -> Said:
        drawn = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big") >> 1 if seed is None else int(seed)
        listed = [self.name, prompt, most, temperature, drawn if temperature else 0]
        name = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
        found = self.kept.get(name)
        if found is None:
            found = self.say(prompt, most, temperature, drawn)
            self.kept.put(name, found)
        return found

    def _answer(self, text: str, calls: list[dict[str, Any]], said: Said) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
        if calls:
            message["tool_calls"] = calls
        finish = "tool_calls" if calls else said.finish
        used = {"prompt_tokens": said.prompted, "completion_tokens": said.generated}
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion", "created": int(time.time()),
            "model": self.name, "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": used | {"total_tokens": said.prompted + said.generated},
        }  # fmt: skip

    def embed(self, asked: Mapping[str, Any], _: str) -> dict[str, Any]:
        """The vectors of the texts."""
        if self.encode is None:
            raise BadRequestError("this server has no encoder")
        given = asked.get("input", "")
        rows = self.encode([given] if isinstance(given, str) else list(given))
        plain = asked.get("encoding_format") != "base64"
        vectors = [row.tolist() if plain else base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
        data = [{"object": "embedding", "index": i, "embedding": each} for i, each in enumerate(vectors)]
        used = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": data, "model": asked.get("model", ""), "usage": used}

    def spent(self, _: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The replies of a key since it was last asked for."""
        with self._lock:
            return {"calls": [asdict(each) for each in self._calls.pop(key, [])]}

    def models(self) -> dict[str, Any]:
        """What may be asked."""
        return {"object": "list", "data": [{"id": self.name, "object": "model", "owned_by": "local"}]}


def _messages(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages as a template takes them: text as text, tools that were called as values."""
    given = asked.get("messages")
    if not isinstance(given, list) or not given or not all(isinstance(each, dict) for each in given):
        raise BadRequestError("a request needs messages")
    found = [dict(each) | {"content": _text(each.get("content"))} for each in given]
    for each in found:
        each["role"] = {"developer": "system", "function": "tool"}.get(str(each.get("role")), each.get("role"))
        if calls := each.get("tool_calls"):
            each["tool_calls"] = [{**call, "function": _values(call.get("function", {}))} for call in calls]
    schema = (asked.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema:
        found[-1]["content"] += f"\n\nReply with one JSON object of this schema:\n{json.dumps(schema)}"
    return found


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _values(function: Mapping[str, Any]) -> dict[str, Any]:
    given = function.get("arguments")
    try:
        return {**function, "arguments": json.loads(given) if isinstance(given, str) else given}
    except ValueError:
        return dict(function)


def _opening(asked: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str:
    """How the reply must begin: with a call where one is demanded, with a brace where JSON is."""
    choice = asked.get("tool_choice")
    if tools and choice not in (None, "auto", "none"):
        named = choice["function"]["name"] if isinstance(choice, dict) else None
        only = named or (tools[0]["function"]["name"] if len(tools) == 1 else None)
        return '<tool_call>\n{"name": "' + (f'{only}", "arguments": ' if only else "")
    kind = (asked.get("response_format") or {}).get("type")
    return "{" if kind in ("json_object", "json_schema") else ""


def _read(text: str, tools: Sequence[Any], *, json_only: bool) -> tuple[str, list[dict[str, Any]]]:
    """The text and the calls in a reply; of JSON no more than the first whole value."""
    if json_only:
        try:
            return text[: json.JSONDecoder(strict=False).raw_decode(text)[1]], []
        except ValueError:
            return text, []
    if not tools:
        return text, []
    calls = [call for found in _TOOL.findall(text) if (call := _call(found))]
    return (_TOOL.sub("", text).strip() if calls else text), calls


def _call(text: str) -> dict[str, Any] | None:
    """A call of a tool as the interface has it; None where it is none."""
    try:
        given = json.loads(text, strict=False)
    except ValueError:
        return None
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return None
    arguments = json.dumps(given.get("arguments", given.get("parameters", {})))
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}", "type": "function",
        "function": {"name": given["name"], "arguments": arguments},
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, service: Service, *rest: Any) -> None:
        self.service = service
        super().__init__(*rest)

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            self._send(200, self.service.models())
        else:
            self._fail(404, f"there is no {self.path}")

    def do_POST(self) -> None:
        routes = {"completions": self.service.complete, "embeddings": self.service.embed, "spent": self.service.spent}
        route = routes.get(self.path.rstrip("/").rpartition("/")[2])
        length = int(self.headers.get("Content-Length") or 0)
        if route is None or length > LARGEST:
            self.close_connection = True
            self._fail(404 if route is None else 413, f"there is no {self.path}" if route is None else "too large")
            return
        try:
            asked = json.loads(self.rfile.read(length) or b"{}")
            key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            self._send(200, route(asked, key))
        except (BadRequestError, KeyError, TypeError, ValueError) as error:
            self._fail(400, f"{type(error).__name__}: {error}")

    def _fail(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def _send(self, status: int, plain: Any) -> None:
        body = json.dumps(plain).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: thousands of calls a minute."""


class Server(ThreadingHTTPServer):
    """Listens on this machine alone."""

    daemon_threads = True
    request_queue_size = 1024


def serve(service: Service, port: int = 0) -> Server:
    """A server that listens; `server_port` is its port, `serve_forever` runs it."""
    return Server(("127.0.0.1", port), partial(_Handler, service))


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a transformers folder")
    parser.add_argument("--decoder", help="socket of bench.rivals.decoder, which then runs the model")
    parser.add_argument("--name", default="local", help="what the model is called")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--replies", type=Path, help="where replies are kept")
    parser.add_argument("--known", type=Path, action="append", default=[], help="replies kept before, read only")
    parser.add_argument("--encoder", help="folder of the encoder, for /v1/embeddings")
    parser.add_argument("--batch-tokens", type=int, default=400_000)
    options = parser.parse_args()
    say: TransformersSay | DecoderSay
    if options.decoder:
        say = DecoderSay(options.model, options.decoder)
    else:
        say = TransformersSay(options.model, batch_tokens=options.batch_tokens)
    encode = None
    if options.encoder:
        from bench.rivals.encoder import Encoder

        encode = Encoder(options.encoder)
    kept = Kept(options.replies, options.known)
    server = serve(Service(say, say.template, name=options.name, kept=kept, encode=encode), options.port)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # every reply is in the file by then
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
