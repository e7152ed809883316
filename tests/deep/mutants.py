"""Opens mutated copies of a store, one after the other, and tells what became of each.

    python tests/deep/mutants.py FOLDER FIRST COUNT

One JSON line for each mutant, before the next is made: so whoever reads them knows which one ended the process.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

from retcon import Memory
from retcon.errors import RetconError
from retcon.store.checking import check_file

Truth = dict[str, tuple[object, ...]]  # everything about a note, by its id


def make_store(path: Path) -> Truth:
    """A store with all kinds of rows, and the truth about its notes."""
    draw = random.Random(0)
    words = "cat dog red moved Berlin train coffee green paid 2026 vet rent flat".split()
    with Memory(path) as memory:
        for number in range(60):
            memory.add(
                " ".join(draw.choices(words, k=draw.choice([3, 12, 80]))), id=f"n{number}", user_id=f"u{number % 3}",
                session=f"s{number % 4}", speaker="Ann", timestamp=f"2026-05-{number % 28 + 1:02d}",
                metadata={"k": number},
            )  # fmt: skip
        for number in (3, 9, 12):
            memory.supersede(f"n{number}", f"corrected {number}", new_id=f"c{number}")
        memory.add("x" * 20_000, id="long", user_id="u0")
        memory.add("a short one", id="short", user_id="u0", expires_at="2100-01-01")
        memory.delete(["n5", "n6"])
        memory.store.put_record("r", action="merge", budget=9, text="a cat", about="{}", sources=["n0"])
    with Memory(path) as memory:
        return truth(memory)


def truth(memory: Memory) -> Truth:
    return {
        note.id: tuple(sorted((name, repr(value)) for name, value in note.to_dict().items()))
        for note in memory.get_all(superseded=True)
    }


# -- mutations ---------------------------------------------------------------------------------------------------------


def flip_bits(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 1, 1, 2, 4, 16, 64])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def truncate(data: bytearray, draw: random.Random) -> None:
    del data[draw.choice([draw.randrange(len(data)), draw.randrange(len(data) // 4096 + 1) * 4096]) :]


def swap_pages(data: bytearray, draw: random.Random) -> None:
    one, two = (draw.randrange(len(data) // 4096) * 4096 for _ in range(2))
    data[one : one + 4096], data[two : two + 4096] = data[two : two + 4096], data[one : one + 4096]


def blank(data: bytearray, draw: random.Random) -> None:
    at, size = draw.randrange(len(data)), draw.choice([1, 8, 512, 4096])
    data[at : at + size] = bytes(len(data[at : at + size]))


def exchange_letters(data: bytearray, draw: random.Random) -> None:
    """Letters and digits of the text changed, as no parser would notice."""
    places = [at for at in draw.sample(range(len(data)), min(4000, len(data))) if chr(data[at]).isalnum()]
    for at in places[: draw.choice([1, 2, 8])]:
        data[at] = ord(draw.choice("abcdefghij0123456789"))


MUTATIONS: tuple[tuple[str, Callable[[bytearray, random.Random], None]], ...] = (
    ("flipped", flip_bits), ("flipped", flip_bits), ("truncated", truncate), ("swapped", swap_pages),
    ("blanked", blank), ("exchanged", exchange_letters),
)  # fmt: skip


def mutate_file(original: bytes, number: int) -> tuple[str, bytes]:
    name, mutate = MUTATIONS[number % len(MUTATIONS)]
    data = bytearray(original)
    mutate(data, random.Random(number))
    return name, bytes(data)


# -- what becomes of it ------------------------------------------------------------------------------------------------


def serve(path: Path, expected: Truth) -> tuple[bool, list[str]]:
    """Whether all that is served is true and nothing is missing, and every error that is not ours."""
    right, raw = True, []

    def attempt(act: Callable[[], bool]) -> None:
        nonlocal right
        try:
            right = act() and right
        except RetconError as error:
            if "\n" in str(error):
                raw.append(f"more than one line: {error}")
        except Exception as error:
            raw.append(f"{type(error).__name__}: {error}")

    try:
        memory = Memory(path)
    except RetconError:
        return True, raw
    except Exception as error:
        return True, [f"{type(error).__name__}: {error}"]
    attempt(lambda: truth(memory) == expected)
    for note_id in ("n0", "c3", "n17", "long"):
        attempt(lambda note_id=note_id: one(memory, note_id) == expected[note_id])  # type: ignore[misc]
        attempt(lambda note_id=note_id: bool(memory.history(note_id)))  # type: ignore[misc]
    for user in ("u0", "u1", None):
        attempt(lambda user=user: recalls_truth(memory, expected, user))  # type: ignore[misc]
    attempt(lambda: bool(memory.stats()) and memory.count_unpurged() >= 0)
    attempt(lambda: memory.store.get_record("r") in (None, ("a cat", "{}")))
    attempt(lambda: memory.close() is None)  # type: ignore[func-returns-value]
    return right, raw


def one(memory: Memory, note_id: str) -> object:
    return tuple(sorted((name, repr(value)) for name, value in memory.get(note_id).to_dict().items()))


def recalls_truth(memory: Memory, expected: Truth, user: str | None) -> bool:
    """Whether search and recall give nothing but true notes, of that user."""
    hits = memory.search("the vet in Berlin", user_id=user, top_k=30)
    found = memory.recall("the vet in Berlin", 200, user_id=user)
    notes = {
        hit.note.id: tuple(sorted((name, repr(value)) for name, value in hit.note.to_dict().items())) for hit in hits
    }
    return all(expected.get(name) == value for name, value in notes.items()) and all(
        source.id in expected for source in found.sources
    )


def writes(path: Path) -> list[str]:
    """Errors that are not ours when the mutant is written to."""
    raw: list[str] = []
    acts: tuple[Callable[[Memory], object], ...] = (
        lambda memory: memory.add("a new cat", user_id="u1", session="s1"),
        lambda memory: memory.supersede("n20", "another"),
        lambda memory: memory.delete("n21"),
        lambda memory: memory.delete_all(user_id="u2"),
        lambda memory: memory.purge(),
    )
    for act in acts:
        try:
            with Memory(path) as memory:
                act(memory)
        except RetconError:
            pass
        except Exception as error:
            raw.append(f"{type(error).__name__}: {error}")
    return raw


def try_mutant(path: Path, original: bytes, number: int, expected: Truth) -> dict[str, object]:
    kind, data = mutate_file(original, number)
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    path.write_bytes(data)
    try:
        sound = check_file(str(path)).ok
        raw: list[str] = []
    except RetconError:
        sound, raw = False, []
    except Exception as error:
        sound, raw = False, [f"check: {type(error).__name__}: {error}"]
    path.write_bytes(data)
    right, more = serve(path, expected)
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    path.write_bytes(data)
    return {"number": number, "kind": kind, "sound": sound, "right": right, "raw": raw + more + writes(path)}


def main() -> None:
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    whole = folder / "whole.db"
    if not whole.exists():
        make_store(whole)
    with Memory(whole) as memory:
        expected = truth(memory)
    original = whole.read_bytes()
    for number in range(first, first + count):
        print(json.dumps({"begin": number}), flush=True)
        print(json.dumps(try_mutant(folder / f"mutant-{first}.db", original, number, expected)), flush=True)


if __name__ == "__main__":
    main()
