"""Runs in a process with faults.so preloaded: writes to a store whose disk fails, or loses power, at every point.

    LD_PRELOAD=faults.so python tests/deep/disk.py faults FOLDER SHARE
    LD_PRELOAD=faults.so python tests/deep/disk.py power FOLDER SHARE SEED full|normal

Prints one JSON document: how much was tried, and every violation of what is promised.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from retcon import Memory
from retcon.errors import RetconError
from retcon.store.checking import check_file
from retcon.store.connections import Sync

STORES = Path(__file__).parents[1] / "stores"
ERRORS = (errno.EIO, errno.ENOSPC)
SHIM = ctypes.CDLL(None)
SHIM.faults_disarm.restype = ctypes.c_long

State = list[tuple[str, str]]  # id and text of every note, in order
Act = Callable[[Memory], object]


def open_memory(path: Path, sync: Sync = "full") -> Memory:
    return Memory(path, now=lambda: datetime(2026, 5, 9, tzinfo=UTC), sync=sync)


def state(path: Path) -> State:
    """What the store holds; damage is an error."""
    with open_memory(path) as memory:
        notes = [(note.id, note.text) for note in memory.get_all(superseded=True)]
        for note in memory.search("cat vet rent", top_k=100):
            assert (note.id, note.text) in notes
    found = check_file(str(path))
    assert found.ok, found.problems
    return notes


def fill(path: Path, notes: int = 40) -> None:
    with open_memory(path) as memory:
        for number in range(notes):
            text = f"note {number} about the cat, the vet and the rent of {number * 7} " + "words " * (number * 5)
            memory.add(text, id=f"n{number}", user_id=f"u{number % 2}", session="s")


def add(memory: Memory) -> object:
    return memory.add([{"text": f"new {number} cat", "id": f"x{number}"} for number in range(8)], user_id="u0")


def supersede(memory: Memory) -> object:
    return memory.supersede("n3", "corrected: the cat " + "grew " * 400, new_id="y")


def delete(memory: Memory) -> object:
    return memory.delete(["n1", "n2", "n30"])


def purge(memory: Memory) -> object:
    return memory.purge()


ACTS: dict[str, Act] = {"add": add, "supersede": supersede, "delete": delete, "purge": purge}


# -- the disk fails ----------------------------------------------------------------------------------------------------


@dataclass
class Faults:
    """Every operation of every act is made to fail; what was seen."""

    folder: Path
    share: float
    tried: int = 0
    refused: int = 0
    violations: list[str] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        base = self.folder / "base.db"
        fill(base)
        operations = {}
        for name, act in ACTS.items():
            operations[name] = self.sweep(name, base, act)
        old = self.folder / "old.db"
        shutil.copyfile(STORES / "schema-2.sqlite", old)
        operations["migrate"] = self.sweep("migrate", old, None)
        return {"operations": operations, "tried": self.tried, "refused": self.refused, "violations": self.violations}

    def sweep(self, name: str, base: Path, act: Act | None) -> int:
        """How many operations the act needs; each of them failed, once and for good, with both errors."""
        before, after, needed = self.rehearse(base, act)
        for number in some(range(needed), self.share):
            for code in ERRORS:
                for forever in (False, True):
                    self.try_one(f"{name}, operation {number}, {errno.errorcode[code]}, forever {forever}", base, act,
                                 (number, code, forever), (before, after))  # fmt: skip
        return needed

    def rehearse(self, base: Path, act: Act | None) -> tuple[State, State, int]:
        path = self.copy(base)
        before = state(self.copy(base, "before.db"))
        memory = open_memory(path) if act else None
        SHIM.faults_arm(-1, 0, 0)
        if memory is None:
            memory = open_memory(path)
        else:
            assert act is not None
            act(memory)
        needed = SHIM.faults_disarm()
        memory.close()
        return before, state(path), needed

    def try_one(
        self, what: str, base: Path, act: Act | None, fault: tuple[int, int, bool], states: tuple[State, State]
    ) -> None:
        path = self.copy(base)
        memory = open_memory(path) if act else None
        done = True
        SHIM.faults_arm(fault[0], fault[1], int(fault[2]))
        try:
            if memory is None:
                memory = open_memory(path)
            else:
                assert act is not None
                done = act(memory) is not False
        except RetconError as error:
            done = False
            if "\n" in str(error):
                self.violations.append(f"{what}: more than one line: {error}")
        except Exception as error:
            done = False
            self.violations.append(f"{what}: a raw {type(error).__name__}: {error}")
        finally:
            SHIM.faults_disarm()
        self.tried += 1
        self.refused += not done
        self.verify(what, path, memory, (states[1],) if done else states)

    def verify(self, what: str, path: Path, memory: Memory | None, allowed: tuple[State, ...]) -> None:
        """The store, and the memory that saw the fault, go on; all that was acknowledged is there, nothing is half."""
        try:
            if memory is not None:
                found = [(note.id, note.text) for note in memory.get_all(superseded=True)]
                if found not in allowed:
                    self.violations.append(f"{what}: the same memory shows {len(found)} notes")
                memory.close()
            if state(path) not in allowed:
                self.violations.append(f"{what}: the store opens with another state")
        except Exception as error:
            self.violations.append(f"{what}: afterwards {type(error).__name__}: {error}")

    def copy(self, base: Path, name: str = "trial.db") -> Path:
        path = self.folder / name
        for end in ("", "-wal", "-shm", "-journal"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        shutil.copyfile(base, path)
        return path


# -- the power fails ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One line of the log: c(reate), w(rite), t(runcate), s(ync), u(nlink) or m(ark)."""

    kind: str
    path: str
    at: int
    data: bytes


def entries(log: Path) -> Iterator[Entry]:
    data, at = log.read_bytes(), 0
    while at < len(data):
        kind, (length,) = chr(data[at]), struct.unpack_from("<I", data, at + 1)
        path = data[at + 5 : at + 5 + length].decode()
        where, size = struct.unpack_from("<qI", data, at + 5 + length)
        at += 17 + length
        yield Entry(kind, path, where, data[at : at + size])
        at += size


@dataclass
class File:
    """A file as the disk has it, and the writes that it may have or not have."""

    safe: bytes = b""
    waiting: list[Entry] = field(default_factory=list)

    def after_loss(self, keep: Callable[[Entry], bool]) -> bytes:
        """The file after the loss, with those of the waiting writes that are kept."""
        found = bytearray(self.safe)
        for entry in self.waiting:
            if keep(entry):
                if entry.kind == "t":
                    del found[entry.at :]
                    found.extend(bytes(entry.at - len(found)))
                else:
                    found.extend(bytes(max(0, entry.at + len(entry.data) - len(found))))
                    found[entry.at : entry.at + len(entry.data)] = entry.data
        return bytes(found)


def losses(draw: random.Random) -> dict[str, Callable[[Entry], bool]]:
    """What may become of writes that were not synced: none arrives, all do, some do."""
    return {"none": lambda _: False, "all": lambda _: True, "some": lambda _: draw.random() < 0.5}


def power(folder: Path, share: float, seed: int, sync: Sync) -> dict[str, Any]:
    """The store as it is found after a loss of power at every point of a session."""
    path, log = folder / "store" / "notes.db", folder / "log"
    path.parent.mkdir()
    states = session(path, log, sync)
    told = list(entries(log))
    draw, violations, tried = random.Random(seed), [], 0
    for stop in some(range(1, len(told) + 1), share):
        for name, keep in losses(draw).items():
            tried += 1
            files, acknowledged = replay(told[:stop])
            trial = lay_out(folder / "trial", path, files, keep)
            what = f"loss after entry {stop} of {len(told)}, unsynced writes: {name}"
            try:
                found = state(trial)
                if found not in states[acknowledged : acknowledged + 2]:
                    violations.append(f"{what}: {len(found)} notes where {acknowledged} acts were acknowledged")
            except Exception as error:
                violations.append(f"{what}: {type(error).__name__}: {error}")
    return {"entries": len(told), "acts": len(states) - 1, "tried": tried, "violations": violations}


def session(path: Path, log: Path, sync: Sync) -> list[State]:
    """The states that a session of writes goes through, each acknowledged by a mark in the log."""
    states: list[State] = [[]]
    SHIM.faults_record(str(log).encode())
    memory = open_memory(path, sync)
    acts: list[Act] = [
        *(lambda memory, number=number: memory.add(f"cat {number} " * 30, id=f"n{number}") for number in range(40)),
        add, supersede, delete, purge,
        *(lambda memory, number=number: memory.add(f"vet {number}", id=f"z{number}") for number in range(5)),
        lambda memory: memory.delete_all(user_id="u0"), purge, add,
    ]  # fmt: skip
    for number, act in enumerate(acts, 1):
        act(memory)
        SHIM.faults_mark(ctypes.c_int64(number))
        states.append([(note.id, note.text) for note in memory.get_all(superseded=True)])
    memory.close()
    SHIM.faults_record(None)
    return states


def replay(told: list[Entry]) -> tuple[dict[str, File], int]:
    """The files after these entries, and how many acts were acknowledged by then."""
    files: dict[str, File] = {}
    acknowledged = 0
    for entry in told:
        if entry.kind == "m":
            acknowledged = entry.at
        elif entry.kind == "u":
            files.pop(entry.path, None)
        elif entry.kind == "s":
            known = files[entry.path]
            files[entry.path] = File(known.after_loss(lambda _: True))
        elif entry.kind == "c":
            files[entry.path] = File()
        else:
            files.setdefault(entry.path, File()).waiting.append(entry)
    return files, acknowledged


def lay_out(folder: Path, path: Path, files: dict[str, File], keep: Callable[[Entry], bool]) -> Path:
    """The store in a folder of its own, as the disk has it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, file in files.items():
        if name.startswith(str(path)):
            (folder / os.path.basename(name)).write_bytes(file.after_loss(keep))
    return folder / path.name


def some(numbers: range, share: float) -> list[int]:
    """That share of the numbers, spread evenly, the first and the last among them."""
    wanted = max(2, round(len(numbers) * share))
    if wanted >= len(numbers):
        return list(numbers)
    return sorted({numbers[round(at * (len(numbers) - 1) / (wanted - 1))] for at in range(wanted)})


def main() -> None:
    kind, folder, share = sys.argv[1], Path(sys.argv[2]).resolve(), float(sys.argv[3])
    SHIM.faults_watch(f"{folder}/".encode())
    if kind == "faults":
        print(json.dumps(Faults(folder, share).run()))
    else:
        print(json.dumps(power(folder, share, int(sys.argv[4]), "normal" if sys.argv[5] == "normal" else "full")))


if __name__ == "__main__":
    main()
