"""Texts as PostgreSQL holds them: what it cannot hold, NUL, stands behind a mark, and so does the mark itself."""

from __future__ import annotations

_MARK = "\ue000"


def encode_text(text: str) -> bytes:
    """The text's bytes, marked."""
    if "\0" in text or _MARK in text:
        text = text.replace(_MARK, _MARK + "e").replace("\0", _MARK + "n")
    return text.encode()


def decode_text(data: bytes) -> str:
    """The text as it was."""
    text = data.decode()
    return text.replace(_MARK + "n", "\0").replace(_MARK + "e", _MARK) if _MARK in text else text
