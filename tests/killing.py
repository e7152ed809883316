"""A child process that dies at a moment which is counted, not timed: the same moment however busy the machine is."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from conftest import files_of

Tell = Callable[[int], None]

LEAST_FILE = 40 * 1024  # bytes; a store's shared memory needs 32 KiB
IN_PARENT, AT_CALL, IN_LOG, IN_FILE = "in the parent", "at a call", "while the log is written", "while the file grows"
WAYS = (AT_CALL, IN_LOG, IN_PARENT, IN_FILE)


@dataclass(frozen=True)
class Moment:
    """When a child dies: after so many things told, and then at a call, at a byte, or when its parent has read them."""

    told: int
    calls: int | None = None  # that many more calls and returns of Python and C functions
    size: int | None = None  # at the write that would make a file larger than this


def moments(
    seed: int, path: Path, *, calls: int, log: int, grow: int = 60_000, ways: Sequence[str] = WAYS
) -> Iterator[Moment]:
    """Moments of each way in turn: within so many calls, bytes of log, and bytes by which the store's file grows."""
    draw = random.Random(seed)
    for way in itertools.cycle(ways):
        after = draw.randint(0, 2)
        if way == AT_CALL:
            yield Moment(after, calls=draw.randint(1, calls))
        elif way == IN_LOG:
            yield Moment(after, size=draw.randint(LEAST_FILE, log))
        elif way == IN_PARENT:
            yield Moment(after + 1)
        else:
            largest = max([LEAST_FILE, *(file.stat().st_size for file in files_of(path))])
            yield Moment(after, size=largest + draw.randint(0, grow))


def told_before_death(work: Callable[[Tell], None], moment: Moment) -> list[int]:
    """The numbers that `work` told in a child that died at that moment. It is an error if the child ends by itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            work(_telling(writing, moment))
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        if moment.calls is None and moment.size is None:
            seen = list(itertools.islice(pipe, moment.told))
            os.kill(child, signal.SIGKILL)
        else:
            seen = []
        numbers = [int(line) for line in [*seen, *pipe]]
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the child ended by itself with {status >> 8}"
    assert os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXFSZ)
    return numbers


def _telling(pipe: int, moment: Moment) -> Tell:
    """What the child calls with each number; after enough of them its death is certain."""
    told = itertools.count(1)

    def tell(number: int) -> None:
        os.write(pipe, b"%d\n" % number)
        if next(told) == moment.told:
            _arm(moment)

    if not moment.told:
        _arm(moment)
    return tell


def _arm(moment: Moment) -> None:
    if moment.size is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (moment.size, moment.size))
    if moment.calls is not None:
        left = itertools.count(moment.calls, -1)

        def step(frame: FrameType, event: str, value: object) -> None:
            if next(left) <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(step)
