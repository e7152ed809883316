"""A real browser and a real server for tests: Debian's Chromium driven by playwright, uvicorn in a thread."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None, reason="needs Chromium (Debian: apt install chromium)"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Its sandbox is left out for root, who cannot have one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address at which the app answers, on a free port of this machine."""
    import uvicorn

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server does not get started"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(120)


@dataclass
class Seen:
    """What a page did besides what it shows."""

    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def asked(self, path: str) -> list[dict[str, Any]]:
        """The JSON bodies that were sent to one path, oldest first."""
        return [each.post_data_json or {} for each in self.requests if urlsplit(each.url).path == path]

    def strangers(self, address: str) -> list[str]:
        """Addresses of other machines that the page asked."""
        own = urlsplit(address).netloc
        return [each.url for each in self.requests if urlsplit(each.url).scheme != "data" and own != _host(each)]


def _host(request: Request) -> str:
    return urlsplit(request.url).netloc


def watched(page: Page) -> Seen:
    """A record of the page's errors, dialogs and requests from now on."""
    seen = Seen()

    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            seen.errors.append(message.text)

    def dialog(opened: Dialog) -> None:
        seen.dialogs.append(opened.message)
        opened.dismiss()

    page.on("console", console)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request))
    page.on("dialog", dialog)
    return seen


def shots(fallback: Path) -> Path:
    """The folder for screenshots: RETCON_SHOTS where it is set."""
    folder = Path(os.environ.get("RETCON_SHOTS") or fallback)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tab_to(page: Page, wanted: str, *, most: int = 40) -> None:
    """Press Tab until the element that the selector names has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"{most} tabs do not lead to {wanted}")


CROSSOVERS = """by,row,column,text,mean,low,high,rows
ours,"LoCoMo, full history / Extract",Crossover budget [95 % CI],"171 [56, above 256]",170.9,56.2,,{}
ours,"LoCoMo, full history / Extract",Full fit there (%),18,18.0,,,{}
ours,"LoCoMo, full history / Merge",Crossover budget [95 % CI],"above 256 [below 32, above 256]",,,,{}
paper,"LoCoMo, full history / Merge",Crossover budget,90,90,,,{}
"""
SUMMARY = """{"title": "Measured", "findings": [{"question": "When does it pay?", "answers": [
  {"study": "LoCoMo, full history", "verdict": "Yes, at 32 tokens."}]}]}"""
REPORT = (
    "<!doctype html><title>r</title><style>h1{color:teal}</style><h1>Measured</h1>"
    "<script>document.querySelector('h1').textContent += ' here';"
    "try { localStorage.length; document.title = 'escaped'; } catch (e) { document.title = 'kept in'; }</script>"
)


def written_report(folder: Path) -> Path:
    """A report as `retcon report` leaves one, beside what must not be served."""
    report = folder / "report"
    (report / "tables").mkdir(parents=True)
    (report / "report.html").write_text(REPORT, encoding="utf-8")
    (report / "tables" / "crossover.csv").write_text(CROSSOVERS, encoding="utf-8")
    (report / "summary.json").write_text(SUMMARY, encoding="utf-8")
    (report / ".hidden.html").write_text("hidden", encoding="utf-8")
    (report / "program.exe").write_bytes(b"MZ")
    (folder / "secret.html").write_text("secret", encoding="utf-8")
    (report / "link.html").symlink_to(folder / "secret.html")
    return report
