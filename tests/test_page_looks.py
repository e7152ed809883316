"""How the page looks and reads: every screen and state, wide and narrow, light and dark, held against axe's rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import needs_chromium, shots

from retcon import Router
from retcon.cli import serve
from retcon.model.fake import FakeChat

pytest.importorskip("fastapi")

from page_site import LADDER, QUESTION, Site, ask, overflow, settled, unfold, violations

from retcon.server import Keys

if TYPE_CHECKING:
    from playwright.sync_api import Page

LOOKS = [(name, width, scheme) for name, width in (("desk", 1280), ("phone", 390)) for scheme in ("light", "dark")]
looks = pytest.mark.parametrize(("name", "width", "scheme"), LOOKS, ids=[f"{name}-{s}" for name, _, s in LOOKS])


class Looker:
    """Looks at one state after another: axe's rules, nothing wider than the screen, a picture for people."""

    def __init__(self, opened: Page, folder: Path, name: str) -> None:
        self.opened, self.folder, self.name = opened, folder, name

    def __call__(self, state: str) -> None:
        assert violations(self.opened) == [], state
        assert overflow(self.opened) == 0, state
        self.opened.screenshot(path=self.folder / f"{state}-{self.name}.png")


def looker(site: Site, tmp_path: Path, name: str, width: int, scheme: str, at: str = "") -> Looker:
    phone: dict[str, Any] = {"has_touch": True, "is_mobile": True} if width < 500 else {}
    opened = site.open(at, width=width, height=844, color_scheme=scheme, reduced_motion="reduce", **phone)
    return Looker(opened, shots(tmp_path), f"{name}-{scheme}")


@needs_chromium
@looks
def test_axe_finds_nothing_wrong_with_the_views(
    site: Site, reports: Path, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    look = looker(site.start(reports=reports).sample(), tmp_path, name, width, scheme)
    opened = look.opened
    opened.get_by_role("heading", name="Ask a question").wait_for()
    look("idle")
    ask(opened, QUESTION.question)
    look("recall")
    opened.fill("#budget", "48")
    opened.keyboard.press("Enter")
    settled(opened)
    look("recall-cut")
    opened.locator("#packed .cut").first.click()
    unfold(opened, "notes", "decision", "words")
    look("recall-unfolded")
    opened.click("#whose summary")
    look("whose")
    opened.get_by_role("tab", name="Notes").click()
    opened.locator("#list .note").first.wait_for()
    look("notes")
    opened.get_by_text("Who, when and where").click()
    opened.locator("#list button", has_text="Correct").first.click()
    look("notes-correct")
    opened.keyboard.press("Escape")
    opened.locator("#list button", has_text="Delete").first.click()
    look("notes-undo")
    opened.get_by_role("button", name="Undo").click()
    opened.get_by_role("tab", name="Report").click()
    opened.locator("#crossover svg").wait_for()
    opened.get_by_text("As text").click()
    look("report")
    site.quiet()


@needs_chromium
@looks
def test_axe_finds_nothing_wrong_with_what_is_empty_written_or_refused(
    site: Site, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    def wrote(_: object) -> str:
        return "Quiz: 99 points at Ancoats on 3 May 2031."

    site.start(router=Router.load(LADDER), model=FakeChat(wrote))
    look = looker(site, tmp_path, name, width, scheme)
    opened = look.opened
    opened.get_by_role("heading", name="No notes yet").wait_for()
    look("empty")
    opened.get_by_role("tab", name="Notes").click()
    opened.locator("#notes-none h2").wait_for()
    look("notes-empty")
    opened.get_by_role("tab", name="Report").click()
    opened.get_by_role("heading", name="No report yet").wait_for()
    look("report-empty")
    site.evidence()
    opened.get_by_role("tab", name="Recall").click()
    opened.fill("#budget", "64")
    ask(opened, QUESTION.question)
    opened.locator("#packed mark").first.wait_for()
    look("written")
    opened.get_by_role("button", name="Try another way").click()
    opened.locator("#tried", has_text="Tried").wait_for()
    settled(opened)
    look("another-way")
    opened.context.set_offline(True)
    opened.fill("#budget", "65")
    opened.locator("#error", has_text="does not answer").wait_for()
    look("error")


@needs_chromium
@looks
def test_axe_finds_nothing_wrong_with_the_gate(site: Site, tmp_path: Path, name: str, width: int, scheme: str) -> None:
    keys = Keys(tmp_path / "keys.db")
    keys.add(user_id="ann")
    look = looker(site.start(keys=keys), tmp_path, name, width, scheme)
    look.opened.get_by_role("heading", name="This memory needs a key").wait_for()
    look("gate")
    look.opened.fill("#key", "rk-wrong")
    look.opened.keyboard.press("Enter")
    look.opened.locator("#gate-said", has_text="not accepted").wait_for()
    look("gate-refused")
    keys.close()


@needs_chromium
def test_axe_does_find_what_is_wrong(site: Site) -> None:
    opened = site.start().open()
    opened.evaluate("document.body.append(Object.assign(new Image(), {src: 'data:,'}))")
    assert any(found.startswith("image-alt (critical)") for found in violations(opened))


# -- sizes, themes, focus ----------------------------------------------------------------------------------------------


@needs_chromium
def test_what_a_finger_presses_is_large_enough(site: Site) -> None:
    opened = site.start().sample().open(width=390, height=844, has_touch=True, is_mobile=True)
    ask(opened, QUESTION.question)
    small = """() => [...document.querySelectorAll('button, select, summary, input')]
      .filter((node) => node.checkVisibility())
      .map((node) => [node.id || node.textContent, node.getBoundingClientRect()])
      .filter(([, box]) => box.height < 40 || box.width < 40).map(([name]) => name)"""
    assert opened.evaluate(small) == []
    opened.get_by_role("tab", name="Notes").click()
    opened.locator("#list .note").first.wait_for()
    assert opened.evaluate(small) == []


@needs_chromium
def test_focus_is_visible_on_every_control(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    unfold(opened, "notes", "decision")
    opened.evaluate("document.activeElement.blur()")
    for _ in range(18):
        opened.keyboard.press("Tab")
        style = opened.evaluate(
            """() => { const s = getComputedStyle(document.activeElement);
            return [document.activeElement.id, s.outlineStyle, s.boxShadow, document.activeElement.tagName]; }"""
        )
        assert style[1] != "none" or style[2] != "none" or style[3] == "BODY", style


@needs_chromium
def test_dark_and_light_follow_the_system_and_the_button(site: Site) -> None:
    opened = site.start().evidence().open(color_scheme="dark")

    def shade() -> int:
        return int(opened.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"))

    assert shade() < 60
    opened.get_by_role("button", name="Switch to light").click()
    assert shade() > 200
    opened.reload()
    assert shade() > 200
    opened.get_by_role("button", name="Switch to dark").click()
    assert shade() < 60
    site.quiet()


# -- the report --------------------------------------------------------------------------------------------------------


@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_report_view_says_what_was_found_at_body_size_and_leads_to_the_report(
    site: Site, reports: Path, width: int
) -> None:
    opened = site.start(reports=reports).open("#report", width=width)
    opened.get_by_role("heading", name="Measured").wait_for()
    assert "When does it pay?" in opened.inner_text("#report-findings")
    assert "Yes, at 32 tokens." in opened.inner_text("#report-findings")
    assert opened.locator("#crossover svg").count() == 1
    assert opened.locator("#crossover circle").count() == 1
    assert opened.locator("#crossover path").count() == 3
    sizes = """() => [...document.querySelectorAll('#crossover text')].map((text) => {
      const box = text.ownerSVGElement.getBoundingClientRect();
      const label = text.getBoundingClientRect();
      return [parseFloat(getComputedStyle(text).fontSize) * box.width / text.ownerSVGElement.viewBox.baseVal.width,
        label.left >= box.left - 1 && label.right <= box.right + 1];
    })"""
    body = opened.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
    for size, inside in opened.evaluate(sizes):
        assert size == pytest.approx(body, rel=0.1)
        assert inside
    scrolls = """() => [...document.querySelectorAll('main *')]
      .filter((node) => /auto|scroll/.test(getComputedStyle(node).overflowY))
      .filter((node) => node.scrollHeight > node.clientHeight + 1)
      .map((node) => node.id || node.tagName)"""
    assert opened.evaluate(scrolls) == []
    opened.get_by_text("As text").click()
    assert "Extract: 171 [56, above 256]" in opened.inner_text("#crossover details")
    with opened.context.expect_page() as opening:
        opened.get_by_role("link", name="Open the whole report").click()
    report = opening.value
    report.get_by_role("heading", name="Measured here").wait_for()
    assert report.title() == "kept in", "a report has an origin of its own"
    site.quiet()


@needs_chromium
def test_report_view_without_a_report_says_how_to_make_one(site: Site) -> None:
    opened = site.start().open("#report")
    told = opened.locator("#report-none")
    told.wait_for()
    assert "retcon report outcomes.csv" in told.inner_text()
    assert "retcon serve --reports" in told.inner_text()
    assert "--reports" in Path(serve.__file__).read_text(encoding="utf-8")
    site.quiet()
