"""A PostgreSQL server of the benchmark's own: started from the installed binaries, on a Unix socket in a folder.

It keeps what it promises (`fsync`, `synchronous_commit` are on, as by default). What differs from the defaults is in
`SETTINGS`, and goes into the results.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

SETTINGS = {
    "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min", "wal_compression": "on",
    "effective_cache_size": "8GB", "random_page_cost": "1.1", "maintenance_work_mem": "256MB",
}  # fmt: skip
PORT = 5432  # of the socket's name; nothing listens on the network
USER, DATABASE = "retcon", "postgres"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """The URL of the store on it."""
        return f"postgresql://{USER}@/{DATABASE}?host={self.folder}&port={PORT}"

    def connect(self) -> psycopg.Connection[Any]:
        """A plain connection."""
        return psycopg.connect(host=str(self.folder), port=PORT, user=USER, dbname=DATABASE, autocommit=True)

    def cpu(self) -> float:
        """Seconds of processor time that the processes which run now have used."""
        return cpu_of(self.process.pid)

    def own_mb(self) -> float:
        """Megabytes of memory that its processes have, pages that they share counted once; no page of a file."""
        mine = psutil.Process(self.process.pid)
        total = 0
        for each in [mine, *mine.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += each.memory_full_info().pss
        return total / 1e6

    def version(self) -> str:
        """Of the server."""
        with self.connect() as connection:
            number = connection.info.server_version
        return f"{number // 10000}.{number % 10000}"


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a process and of all its children that are there."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        mine = psutil.Process(pid)
        for each in [mine, *mine.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                spent = each.cpu_times()
                total += spent.user + spent.system
    return total


def find_binaries() -> Path | None:
    """The folder with initdb and postgres; None where they are not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parents[1].name))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


@contextlib.contextmanager
def started(folder: Path, **settings: str) -> Iterator[Server]:
    """A server for the length of the block, its data in the folder; data that lie there are taken up again."""
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    _give(folder)
    with (folder / "log").open("ab") as log:
        if not (folder / "data").exists():
            _run(log, binaries / "initdb", "-D", str(folder / "data"), "-U", USER, "-A", "trust", "-E", "UTF8",
                 "--locale=C")  # fmt: skip
        words = [word for name, value in (SETTINGS | settings).items() for word in ("-c", f"{name}={value}")]
        words += ["-c", f"port={PORT}", "-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
        command = [str(binaries / "postgres"), "-D", str(folder / "data"), *words]
        process = subprocess.Popen(command, stdout=log, stderr=log, **_as_owner())
        try:
            _wait(process, binaries, folder)
            yield Server(folder, process)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _wait(process: subprocess.Popen[bytes], binaries: Path, folder: Path) -> None:
    ready = [str(binaries / "pg_isready"), "-q", "-h", str(folder), "-p", str(PORT), "-t", "1"]
    while subprocess.run(ready, check=False).returncode:
        if process.poll() is not None:
            raise SystemExit(f"PostgreSQL did not start: {(folder / 'log').read_text(errors='replace')[-500:]}")


def _run(log: Any, *words: Any) -> None:
    command = [str(word) for word in words]
    if subprocess.run(command, check=False, stdout=log, stderr=log, **_as_owner()).returncode:
        said = Path(log.name).read_text(errors="replace").splitlines()
        raise SystemExit(f"{Path(command[0]).name} failed: {said[-1] if said else 'no reason given'}")


def _owner() -> pwd.struct_passwd | None:
    """Who runs the server where we are root, whom it refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _give(folder: Path) -> None:
    if owner := _owner():
        os.chown(folder, owner.pw_uid, owner.pw_gid)


def _as_owner() -> dict[str, Any]:
    owner = _owner()
    words: dict[str, Any] = {"cwd": "/", "env": {**os.environ, "LC_ALL": "C"}}
    return words | ({} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []})
