"""A server and two users who cannot see each other: `retcon serve` in another process, spoken to with plain HTTP."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def call(url: str, key: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    """The answer of the server, or its error as it says it."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **headers}
    try:
        with urlopen(Request(url, data, sent)) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            return json.load(error)


def key_for(user: str, db: Path) -> str:
    """A new key that is bound to the user."""
    command = [sys.executable, "-m", "retcon", "keys", "add", "--user-id", user, "--db", str(db), "--json"]
    return str(json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["key"])


with tempfile.TemporaryDirectory() as folder:
    db = Path(folder) / "agent.db"
    ann, bob = key_for("ann", db), key_for("bob", db)
    command = [sys.executable, "-m", "retcon", "serve", "--db", str(db), "--port", "0", "--log", "error"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().split()[-1]

    note = {"text": "I adopted a cat named Pixel.", "timestamp": "2026-05-09"}
    for _ in range(2):  # the second is a retry: the same answer, and no second note
        stored = call(f"{url}/memories", ann, note, **{"Idempotency-Key": "visit-1"})["results"][0]
    print("ann stored", stored["memory"])
    print("ann has", call(f"{url}/health", ann)["notes"], "note, bob has", call(f"{url}/health", bob)["notes"])

    recalled = call(f"{url}/recall", ann, {"query": "When did I get my cat?", "budget": 32})
    print("ann recalls", recalled["tokens"], "tokens:", recalled["text"])
    print("bob asks for ann's note:", call(f"{url}/memories/{stored['id']}", bob)["error"]["code"])

    server.terminate()  # finishes what it accepted, then stops
    print("exit code", server.wait(timeout=30))
    server.stdout.close()
