"""The key of an endpoint stays secret, whatever the server writes back."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import traceback
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from misbehaving import Behaviour, Server, completion, says, sends
from test_http import KEY, PASSING, Waits, client, one, waits

from retcon.errors import InputError, ModelError
from retcon.model import HttpChat
from retcon.model.http import Endpoint

__all__ = ["waits"]  # fixtures


@pytest.mark.parametrize("name", [*PASSING, "fine", "echo", "401", "redirect", "json"])
def test_the_key_appears_in_no_log_error_or_repr(
    server: Server, waits: Waits, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpcore").setLevel(logging.DEBUG)
    more: dict[str, Behaviour] = {
        "echo": says({"error": {"message": f"Incorrect API key provided: {KEY}\nBearer {KEY}."}}, 400),
        "401": sends(f"who is {KEY}".encode(), 401),
        "redirect": sends(b"", 302, location="http://localhost/"),
        "json": sends(f"{{not json {KEY}".encode()),
        "fine": says(completion()),
    }
    server.always = PASSING[name][0] if name in PASSING else more[name]
    model = client(server, waits, retries=1)
    found = one(model)
    assert server.seen[0].headers["authorization"].endswith(KEY)
    shown = [repr(model), repr(model.endpoint), str(model), repr(found), str(found), caplog.text]
    if isinstance(found, ModelError):
        shown += [*traceback.format_exception(found), repr(vars(found)), repr(found.__context__), repr(found.__cause__)]
        assert found.__context__ is None
        shown.append(repr(pickle.loads(pickle.dumps(found))))
    assert KEY not in "\n".join(shown)


def longest_part(shown: str) -> int:
    """How many characters of the key stand in a row there."""
    parts = (KEY[i:j] for i in range(len(KEY)) for j in range(i + 1, len(KEY) + 1))
    return max((len(part) for part in parts if part in shown), default=0)


WRAPPED = {
    "after spaces": " " * 975 + KEY,
    "at the cut": "x" * (199 - 10) + " " + KEY,
    "at every cut": "".join("y" * n + KEY[:12] for n in range(40)),
    "in lines": "\n".join(KEY),
    "in two": KEY[:13] + " \t\n " + KEY[13:],
    "with zero width": "\u200b".join(KEY),
    "with controls": "\x00".join(KEY),
    "in capitals": KEY.upper(),
    "after much": "\u200b" * 19_990 + KEY,
    "a part": f"key {KEY[:20]}... is wrong",
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("status", [400, 401, 500])
def test_no_part_of_the_key_is_shown_however_the_server_writes_it(
    server: Server, waits: Waits, name: str, status: int
) -> None:
    for body in (json.dumps({"error": {"message": WRAPPED[name]}}).encode(), WRAPPED[name].encode()):
        server.always = sends(body, status)
        found = str(one(client(server, waits, retries=0)))
        bare = "".join(sign for sign in found.lower() if "!" <= sign <= "~")
        assert longest_part(bare) < 8, found
        assert len(found) < 300


@pytest.mark.parametrize(
    "written",
    [
        quote(KEY, safe=""), "".join(f"%{ord(c):02X}" for c in KEY), KEY.encode().hex(),
        *(base64.b64encode(ahead + KEY.encode() + b":").decode() for ahead in (b"", b":", b"u:")),
    ],
)  # fmt: skip
def test_the_key_in_another_writing_is_not_shown_either(written: str) -> None:
    for ahead in (0, 150, 190):
        shown = Endpoint("http://x", KEY).redact("." * ahead + " " + written)
        assert len(shown) <= 200
        assert written[4:16] not in shown


@given(st.text(), st.text(), st.integers(0, 300))
def test_words_around_the_key_are_kept(before: str, after: str, blanks: int) -> None:
    shown = Endpoint("http://x", KEY).redact(before + " " * blanks + KEY + after)
    assert longest_part(shown) < 8
    assert len(shown) <= 200
    assert shown.isprintable()
    assert Endpoint("http://x", KEY).redact("the model is not loaded") == "the model is not loaded"


def test_a_url_with_secrets_is_refused_without_repeating_them() -> None:
    for url in (f"http://user:{KEY}@host/v1", f"https://host/v1?key={KEY}", f"https://host/v1#{KEY}"):
        with pytest.raises(InputError) as caught:
            HttpChat(url, "m")
        assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it() -> None:
    for key in (f"{KEY}\r\nx: y", f"{KEY}ü", " "):
        with pytest.raises(InputError, match="key") as caught:
            HttpChat("http://localhost", "m", key=key)
        assert KEY not in str(caught.value)
