"""The page of the server at `/`: static files with strict headers, the sample conversation, and reports, if any.

    /                       index.html, always asked for again
    /page/HASH/app.js       scripts and styles; HASH is of all their bytes, so a browser may keep them for good
    /page/sample.json       the sample conversation, for a store that is still empty
    /page/report.json       which reports there are, what they found in short, and their crossovers
    /page/report/PATH       the files of a report, in a sandbox of their own

The page asks nothing of any other machine, and its policy would not let it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from retcon import sample
from retcon.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

Guard = Callable[["Request"], object]  # raises for a caller that may not read

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report is one file with its style and script inside. It gets an origin of its own, and nothing to talk to.
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-forms"
)  # allow-forms: closing a dialog counts as one
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
FOR_GOOD = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".csv": "text/csv; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
}
FRONT = ("index.html", "report.html")  # what a report may be called, first found first
LARGEST_TABLE = 4_000_000  # bytes of a crossover table, or of a summary, that are read


@dataclass(frozen=True, slots=True)
class Asset:
    """One static file as it is sent."""

    body: bytes
    type: str
    tag: str


@dataclass(frozen=True, slots=True)
class Assets:
    """The page's files, read once: the front and, under a hash of them all, the rest."""

    front: Asset
    digest: str
    files: Mapping[str, Asset]


@lru_cache(maxsize=1)
def assets() -> Assets:
    """The static files that ship with the package."""
    folder = Path(__file__).with_name("page")
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in TYPES}
    front = found.pop("index.html")
    digest = _digest(*(part for name, body in found.items() for part in (name.encode(), body)))
    files = {name: _asset(name, body) for name, body in found.items()}
    return Assets(_asset("index.html", front.replace(b"{{assets}}", f"page/{digest}".encode())), digest, files)


def mount(app: FastAPI, *, reports: Path | None, guard: Guard | None = None) -> None:
    """Serve the page from this app. `reports` is a folder that `retcon report` wrote, or a folder of such folders.

    `guard` is called with each request for the list of reports and raises where its key is wrong. The files then lie
    under a name that only that list tells, since a link cannot send a key.
    """
    root = None if reports is None else _folder(reports)
    ticket = "" if guard is None else f"{secrets.token_urlsafe(18)}/"

    def front(request: Request) -> Response:
        return _send(request, assets().front, ASK_AGAIN)

    def file(request: Request) -> Response:
        known = assets()
        asset = known.files.get(request.path_params["name"]) if request.path_params["digest"] == known.digest else None
        return _not_found() if asset is None else _send(request, asset, FOR_GOOD)

    def sample_notes(request: Request) -> Response:
        return _json({"user_id": "robin", "notes": sample.notes(), "questions": _sample_questions()})

    def list_reports(request: Request) -> Response:
        if guard is not None:
            guard(request)
        return _json({"reports": [] if root is None else list(_reports(root, f"page/report/{ticket}"))})

    def report(request: Request) -> Response:
        path: str = request.path_params["path"]
        if root is None or not secrets.compare_digest(path[: len(ticket)].encode(), ticket.encode()):
            return _not_found()
        return _report(root, path[len(ticket) :])

    app.add_route("/", front, include_in_schema=False)
    app.add_route("/page/sample.json", sample_notes, include_in_schema=False)
    app.add_route("/page/report.json", list_reports, include_in_schema=False)
    app.add_route("/page/report/{path:path}", report, include_in_schema=False)
    app.add_route("/page/{digest}/{name}", file, include_in_schema=False)


# -- what is sent ------------------------------------------------------------------------------------------------------


def _send(request: Request, asset: Asset, cache: str) -> Response:
    from starlette.responses import Response

    headers = {
        **HEADERS, "Content-Security-Policy": POLICY, "Cache-Control": cache, "ETag": asset.tag,
        "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
    }  # fmt: skip
    theirs = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if asset.tag in theirs or "*" in theirs:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.type, headers=headers)


def _json(value: Mapping[str, Any]) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(value, headers={**HEADERS, "Cache-Control": ASK_AGAIN})


def _not_found() -> Response:
    from starlette.responses import JSONResponse

    body = {"error": {"code": "not_found", "message": "there is no such file"}}
    return JSONResponse(body, status_code=404, headers=HEADERS)


def _asset(name: str, body: bytes) -> Asset:
    return Asset(body, TYPES[Path(name).suffix], f'"{_digest(body)}"')


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:16]


def _sample_questions() -> list[str]:
    """One sample question of each kind."""
    first = {question.type: question.question for question in reversed(sample.questions())}
    return list(first.values())[::-1]


# -- reports -----------------------------------------------------------------------------------------------------------


def _folder(reports: Path) -> Path:
    root = Path(reports).resolve()
    if not root.is_dir():
        raise InputError(f"there is no folder of reports at {reports}")
    return root


def _report(root: Path, path: str) -> Response:
    from starlette.responses import FileResponse

    found = within(root, path)
    if found is None:
        return _not_found()
    headers = {**HEADERS, "Content-Security-Policy": REPORT_POLICY, "Cache-Control": ASK_AGAIN}
    return FileResponse(found, media_type=TYPES[found.suffix], headers=headers)


def within(root: Path, path: str) -> Path | None:
    """The file at this path under the root, or None: no way up, no link out, nothing hidden, no unknown type."""
    parts = PurePosixPath(path).parts
    if "\\" in path or "\0" in path or any(part.startswith((".", "/")) for part in parts):
        return None
    try:
        found = root.joinpath(*parts).resolve()
        if found.is_dir():
            found = next((found / name for name in FRONT if (found / name).is_file()), found).resolve()
        fine = found.is_relative_to(root) and found.is_file() and found.suffix in TYPES
    except (OSError, ValueError):  # a name that the file system does not take
        return None
    return found if fine else None


def _reports(root: Path, base: str) -> Iterator[dict[str, Any]]:
    """Each report: its name, its address, what it found in short, and the crossovers in its table of them."""
    for folder in [root, *sorted(child for child in root.iterdir() if child.is_dir())]:
        inner = "" if folder == root else f"{folder.name}/"
        front = next((name for name in FRONT if within(root, inner + name)), None)
        if front is not None:
            table = within(root, f"{inner}tables/crossover.csv")
            rows = [] if table is None else list(crossovers(table))
            told = summary(within(root, f"{inner}summary.json"))
            yield {"name": folder.name, "url": f"{base}{inner}{front}", **told, "crossovers": rows}


def summary(file: Path | None) -> dict[str, Any]:
    """A report's title and findings, each a question with the verdict of every study; empty where there are none."""
    try:
        found = json.loads(file.read_bytes()[:LARGEST_TABLE]) if file is not None else {}
        findings = [
            {"question": str(each["question"]), "answers": [
                {name: str(answer[name]) for name in ("study", "verdict")} for answer in each["answers"]
            ]}
            for each in found.get("findings", ())
        ]  # fmt: skip
        return {"title": str(found.get("title", "")), "findings": findings}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # not one that we wrote
        return {"title": "", "findings": []}


def crossovers(table: Path) -> Iterator[dict[str, Any]]:
    """Where each action's gain over raw notes reaches zero: tokens, interval and words; None where it never does."""
    try:
        text = table.read_bytes()[:LARGEST_TABLE].decode("utf-8-sig", "replace")
        rows = list(csv.DictReader(io.StringIO(text)))
    except (OSError, csv.Error):
        return
    for row in rows:
        if row.get("by") == "ours" and (row.get("column") or "").startswith("Crossover"):
            group, _, action = (row.get("row") or "").rpartition(" / ")
            numbers = {name: _number(row.get(name)) for name in ("mean", "low", "high")}
            yield {"group": group, "action": action, "text": row.get("text") or "", **numbers}


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
