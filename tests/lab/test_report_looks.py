"""A report in a real browser: short until it is unfolded, its contents lead into it, and axe finds nothing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import needs_chromium, shots
from test_report import made

from retcon.lab.report.build import write_report

pytest.importorskip("fastapi")

from page_site import violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENS = 10  # of 900 pixels: what is seen of a report at first


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (write_report(made(), tmp_path_factory.mktemp("made")).folder / "report.html").as_uri()


@pytest.fixture
def opened(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, scheme = getattr(request, "param", (1280, "light"))
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


@needs_chromium
@pytest.mark.parametrize(
    "opened", [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")], indirect=True, ids=str
)
def test_axe_finds_nothing_wrong_with_a_report_folded_or_not(opened: Page, tmp_path: Path) -> None:
    assert violations(opened) == []
    width, dark = opened.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]")
    opened.screenshot(path=shots(tmp_path) / f"whole-report-{width}-{'dark' if dark else 'light'}.png", full_page=True)
    opened.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(opened) == []
    opened.locator(".v").first.click()
    opened.locator("#rows").wait_for()
    assert violations(opened) == []


@needs_chromium
@pytest.mark.parametrize("opened", [(1280, "light"), (390, "light")], indirect=True, ids=str)
def test_report_is_short_until_it_is_unfolded_and_scrolls_only_as_a_page(opened: Page) -> None:
    assert opened.evaluate("document.documentElement.scrollHeight") < 900 * SCREENS
    assert opened.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    inner = """() => [...document.querySelectorAll('main *')].filter((node) => node.checkVisibility())
      .filter((node) => /auto|scroll/.test(getComputedStyle(node).overflowY))
      .filter((node) => node.scrollHeight > node.clientHeight + 1)
      .map((node) => node.id || node.className)"""
    opened.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert opened.evaluate(inner) == []


@needs_chromium
@pytest.mark.parametrize("key", ["x-all-actions", "x-budget-locomo-full-history", "read", "made"])
def test_contents_lead_into_what_is_folded(opened: Page, key: str) -> None:
    fold = opened.locator(f"details.fold:has(#{key}), #{key} > details.fold")
    assert fold.count() == 1
    assert fold.get_attribute("open") is None
    opened.locator(f'nav a[href="#{key}"]').click()
    opened.wait_for_function("key => document.getElementById(key).getBoundingClientRect().top < innerHeight", arg=key)
    assert fold.get_attribute("open") is not None
