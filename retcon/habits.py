"""Words of other memories -> what they are called here, for the messages of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Never

MEM0 = "retcon.mem0.Memory takes Mem0's words"
KEYWORDS: Mapping[str, str] = {
    "search.limit": f"here it is top_k; {MEM0}",
    **dict.fromkeys(
        [f"{verb}.{word}" for verb in ("recall", "decide", "ask", "ask_stream") for word in ("limit", "top_k")],
        "the budget bounds the text, and Memory(top_k=...) how many notes are looked at",
    ),
    "user": "here it is user_id",
    "agent": "here it is agent_id",
    "run": "here it is run_id",
    "session_id": "here it is session",
    "infer": f"notes are stored as they are, and shortened when they are recalled; {MEM0}",
    "threshold": f"every hit has its score; {MEM0}",
    "data": f"here it is text; {MEM0}",
    "memory_id": f"here it is id; {MEM0}",
    "expiration_date": f"here it is expires_at; {MEM0}",
    "namespace": "whose notes is user_id, agent_id and run_id",
    "ttl": "here it is expires_at, which takes a timedelta",
}
METHODS: Mapping[str, str] = {
    "update": f"supersede(id, text) corrects a note, and history(id) keeps both; {MEM0}",
    "reset": f"delete_all(everything=True) empties the store; {MEM0}",
    "put": "add(text, id=...) stores a note, and supersede(id, text) corrects one",
    "list": "get_all() lists notes",
    "query": "search(query) ranks notes, and recall(query, budget) gives text",
}


def hint(words: Mapping[str, str], word: str) -> str:
    """What to add to the message about an unknown word; empty where there is nothing to say.

    A word may come with the verb that it was said to, as in "recall.limit".
    """
    told = words.get(word) or words.get(word.rpartition(".")[2])
    return f": {told}" if told else ""


class Hints:
    """A class whose error for a name that it does not have says what another memory's word is called here."""

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name: str) -> Never:
            """Raises the error."""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint(METHODS, name)}")
