"""A hook redacts addresses and numbers, and refuses keys, before anything is stored.

datafog (pip install datafog) finds e-mail addresses, phone and card numbers by patterns, without a model. Where it is
not installed, two patterns of our own stand in for it.
"""

import re
from dataclasses import replace

from retcon import Memory, Note
from retcon.errors import RefusedError

try:
    from datafog import redact
except ImportError:
    redact = None

PRIVATE = ["EMAIL", "PHONE", "CREDIT_CARD", "SSN", "IP_ADDRESS"]  # not DATE: a memory needs its dates
PATTERNS = {"[EMAIL]": r"[\w.+-]+@[\w-]+\.[\w.]+", "[NUMBER]": r"(?<!\w)(?!\d{4}-\d\d-\d\d)\+?\d(?:[ -]?\d){7,}"}
KEY = re.compile(r"\b(?:sk-[\w-]{16,}|AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,})")


def hide(text: str) -> str:
    """The text without addresses and numbers that belong to somebody."""
    if redact is not None:
        return str(redact(text, entity_types=PRIVATE).redacted_text)
    for label, pattern in PATTERNS.items():
        text = re.sub(pattern, label, text)
    return text


def screen(note: Note) -> Note:
    """The note as it may be stored; one that holds a key may not be."""
    if KEY.search(note.text):
        raise RefusedError("it holds a key")
    return replace(note, text=hide(note.text))


with Memory(":memory:", before_store=screen) as memory:
    memory.add("Mail the vet at ann@example.com or call +1 415 555 0134, by 2026-05-09.", user_id="ann")
    (note,) = memory.get_all(user_id="ann")
    print("stored: ", note.text)
    assert "ann@example.com" not in note.text
    assert "415 555" not in note.text
    assert "2026-05-09" in note.text

    try:
        memory.add(["A harmless line.", "My key is sk-abcdefghijklmnopqrstuvwx."], user_id="ann")
    except RefusedError as error:
        print("refused:", error)
    assert len(memory.get_all(user_id="ann")) == 1
