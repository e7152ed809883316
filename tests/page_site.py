"""The page at / for tests: a store behind a real server, pages onto it in a browser, and what a person does there."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser import Seen, served, watched

from retcon import Memory, sample
from retcon.server import Keys, create_app

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTION = next(each for each in sample.questions() if each.id == "q10")
LADDER = {
    "format": 1, "name": "climber", "kind": "learned", "actions": ["retain", "extract", "merge"],
    "features": ["fit", "temporal"], "weights": {"retain": [0.5, 0.1], "extract": [0.0, 0.1], "merge": [0.0, -0.2]},
    "intercepts": {"retain": 0.1, "extract": 0.4, "merge": 0.45}, "thresholds": {"32": 0.05, "256": 0.1},
    "ladder": {
        "orders": [["merge", "extract", "retain"]], "features": [], "weights": [[]], "intercepts": {"64": [0.0]},
    },
}  # fmt: skip


class Site:
    """A store behind a server, and pages onto it."""

    def __init__(self, folder: Path, browser: Browser, stack: ExitStack) -> None:
        self.folder, self.browser, self.stack = folder, browser, stack
        self.address = ""
        self.memory: Memory
        self.seen: Seen

    def start(self, *, keys: Keys | None = None, reports: Path | None = None, **options: Any) -> Site:
        self.memory = self.stack.enter_context(Memory(self.folder / "notes.db", **options))
        self.address = self.stack.enter_context(served(create_app(self.memory, keys=keys, reports=reports)))
        return self

    def open(self, at: str = "", *, width: int = 1280, height: int = 900, **options: Any) -> Page:
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self.stack.callback(context.close)
        opened = context.new_page()
        opened.set_default_timeout(120_000)
        self.seen = watched(opened)
        opened.goto(self.address + at)
        return opened

    def evidence(self) -> Site:
        """The store holds the notes that answer `QUESTION`, and no others."""
        rows = [row for row in sample.notes() if row["id"] in QUESTION.evidence]
        self.memory.load(json.dumps(row | {"user_id": "robin"}) for row in rows)
        return self

    def sample(self) -> Site:
        """The store holds the sample conversation."""
        self.memory.load(json.dumps(row | {"user_id": "robin"}) for row in sample.notes())
        return self

    def quiet(self) -> None:
        """Nothing went wrong, nothing popped up, and no other machine was asked."""
        assert self.seen.errors == []
        assert self.seen.dialogs == []
        assert self.seen.strangers(self.address) == []


def ask(opened: Page, query: str) -> None:
    opened.fill("#query", query)
    opened.keyboard.press("Enter")
    settled(opened)


def settled(opened: Page) -> None:
    """Wait until the answer to what the inputs say is drawn."""
    opened.wait_for_function(
        """() => {
          const [result, box] = ['result', 'budget'].map((id) => document.getElementById(id));
          return !result.hidden && result.getAttribute('aria-busy') === 'false' && result.dataset.budget === box.value;
        }"""
    )


def action_of(opened: Page) -> str | None:
    """The action whose text is shown."""
    return opened.get_attribute("#result", "data-action")


def unfold(opened: Page, *names: str) -> None:
    """Open what is folded: "notes", "decision" or "words"."""
    for name in names:
        if opened.get_attribute(f"#fold-{name}", "open") is None:
            opened.click(f"#fold-{name} > summary")


def drag(opened: Page, to: int) -> None:
    """Drag the slider's thumb to the tick of a budget, in small moves."""
    box = opened.locator("#slider").bounding_box()
    tick = opened.locator("#ticks span", has_text=re.compile(f"^{to:,}$")).evaluate("e => parseFloat(e.style.left)")
    place = opened.evaluate("() => { const s = document.getElementById('slider'); return 100 * s.value / s.max; }")
    assert box is not None
    thumb = 19.2
    x = [box["x"] + thumb / 2 + (box["width"] - thumb) * share / 100 for share in (place, tick)]
    opened.mouse.move(x[0], box["y"] + box["height"] / 2)
    opened.mouse.down()
    opened.mouse.move(x[1], box["y"] + box["height"] / 2, steps=12)
    opened.mouse.up()


def overflow(opened: Page) -> int:
    """Pixels by which the page is wider than the window, or a text wider than its place."""
    found: int = opened.evaluate(
        """() => Math.max(0, document.documentElement.scrollWidth - innerWidth,
          ...[...document.querySelectorAll('.note, .packed')].map((node) => node.scrollWidth - node.clientWidth))"""
    )
    return found


def violations(opened: Page) -> list[str]:
    """What axe finds wrong with the page as it is now: the rule, how bad it is, and where."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None, "axe-playwright-python is part of the extra [dev]"
    assert spec.origin is not None
    if not opened.evaluate("'axe' in window"):
        opened.evaluate(Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = opened.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:160]} {node['failureSummary'][:200]}"
        for each in found
        for node in each["nodes"]
    ]
