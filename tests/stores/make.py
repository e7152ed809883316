"""Writes `schema-N.sqlite` and `schema-N.json`: a store as this version makes it, and what it holds.

Run once for each released schema, by that version, and never again: the test opens every one of them.

    python tests/stores/make.py
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np

from retcon import Memory
from retcon.model import FakeChat

HERE = Path(__file__).parent
TALK = [
    ("Ann", "I adopted a cat named Pixel. She is shy."), ("Ben", "How much did the vet cost?"),
    ("Ann", "The first visit cost 84 euros, and the second one 120."), ("Ben", "Is the café on Hauptstraße open?"),
    ("Ann", "Until 18:30, except on Mondays. 猫は元気です。"), ("Ben", "My flight to Lisbon leaves on 3 June."),
]  # fmt: skip


def fill(memory: Memory) -> None:
    """Notes of five scopes with sessions, corrections, deletes, metadata, a record and vectors."""
    for user, days in (("ann", 0), ("ben", 30)):
        for session in range(3):
            moment = datetime(2026, 5, 1 + session, 10, tzinfo=UTC) + timedelta(days=days)
            for turn, (speaker, text) in enumerate(TALK):
                memory.add(
                    f"{text} ({session})", user_id=user, session=f"s{session}", speaker=speaker,
                    timestamp=(moment + timedelta(minutes=turn)).isoformat(), metadata={"turn": turn, "tags": [user]},
                )  # fmt: skip
    memory.add([{"role": "user", "content": text} for _, text in TALK], user_id="ann", agent_id="helper", run_id="r1")
    memory.add("An old note without a date", agent_id="helper")
    memory.add("Nobody's note\nwith two lines")
    memory.add("The spare key is under the pot.", user_id="ann", expires_at="2100-01-01")
    first, second, third = memory.get_all(user_id="ann", session="s0")[:3]
    memory.supersede(first.id, "I adopted a cat named Dot. She is shy.", timestamp="2026-05-08")
    memory.supersede(memory.history(first.id)[-1].id, "I adopted two cats, Dot and Pixel.", timestamp="2026-05-09")
    memory.delete(second.id)
    memory.recall("How much did the vet cost?", budget=32, user_id="ann", action="merge")
    memory.store.put_vectors("constant", [(third.id, np.eye(1, 16, dtype=np.float32))])
    memory.purge()


def contents(memory: Memory) -> dict[str, object]:
    """Every note as plain values, and every history."""
    notes = memory.get_all(superseded=True)
    return {
        "notes": [note.to_dict() for note in notes],
        "histories": {note.id: [each.id for each in memory.history(note.id)] for note in notes},
        "cache": memory.cache_stats(),
    }


def main() -> None:
    """Make the store of this version's schema."""
    ids = count()
    draft = HERE / "new.sqlite"
    chat = FakeChat(["The vet cost 84 euros, then 120."])
    with Memory(
        draft, now=lambda: datetime(2026, 5, 9, tzinfo=UTC), new_id=lambda: f"n{next(ids)}", model=chat
    ) as memory:
        fill(memory)
        found, schema = contents(memory), memory.stats()["schema"]
    (HERE / f"schema-{schema}.json").write_text(
        json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    draft.rename(HERE / f"schema-{schema}.sqlite")


if __name__ == "__main__":
    main()
