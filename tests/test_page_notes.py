"""The Notes view in a real browser: add, find, correct, look back, delete and undo; and the key that opens the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import needs_chromium, tab_to
from waiting import until

from retcon import sample
from retcon.errors import NotFoundError

pytest.importorskip("fastapi")

from page_site import Site, action_of, ask, overflow, settled

from retcon.server import Keys

if TYPE_CHECKING:
    from playwright.sync_api import Page


def shown(opened: Page) -> list[str]:
    """The texts in the list that can be seen, from the top."""
    return [text.strip() for text in opened.locator("#list > .note:not([hidden]) .body").all_text_contents()]


def open_notes(site: Site) -> Page:
    opened = site.open("#notes")
    opened.locator("#list .note").first.wait_for()
    return opened


def focused(opened: Page) -> str | None:
    label: str | None = opened.evaluate("document.activeElement.getAttribute('aria-label')")
    return label


# -- adding and finding ------------------------------------------------------------------------------------------------


@needs_chromium
def test_note_that_is_added_is_confirmed_stands_first_and_is_recalled(site: Site) -> None:
    opened = site.start().open()
    opened.get_by_role("heading", name="No notes yet").wait_for()
    opened.get_by_role("button", name="Add a note").click()
    opened.get_by_label("Text", exact=True).fill("I adopted a cat named Pixel.")
    opened.get_by_text("Who, when and where").click()
    opened.get_by_label("Day").fill("2026-05-09")
    opened.get_by_role("button", name="Add note").click()
    opened.locator("#toast", has_text="Added").wait_for()
    opened.locator("#list .note.fresh", has_text="Pixel").wait_for()
    opened.locator("#list .meta", has_text="9 May 2026").wait_for()
    opened.get_by_label("Text", exact=True).fill("The vet is on Elm Street.")
    opened.get_by_role("button", name="Add note").click()
    opened.wait_for_function("() => document.querySelectorAll('#list .note').length === 2")
    assert shown(opened) == ["The vet is on Elm Street.", "I adopted a cat named Pixel."]
    assert opened.inner_text("#notes-title") == "2 notes"
    opened.get_by_role("tab", name="Recall").click()
    ask(opened, "What is my cat called?")
    assert "2026-05-09 I adopted a cat named Pixel." in opened.locator("#packed .line").all_text_contents()
    assert action_of(opened) == "retain"
    site.quiet()


@needs_chromium
def test_total_pages_and_search_cover_every_note(site: Site) -> None:
    opened = (site.start().sample(), open_notes(site))[1]
    notes = site.memory.get_all(order="newest")
    assert opened.inner_text("#notes-title") == f"{len(notes)} notes"
    assert shown(opened) == [note.text.strip() for note in notes[:50]]
    opened.get_by_role("button", name="Show more").click()
    opened.wait_for_function("() => document.querySelectorAll('#list .note').length === 100")
    opened.fill("#find", "landlord")
    opened.locator("#notes-title", has_text="found").wait_for()
    hits = site.memory.search("landlord", top_k=50)
    assert opened.inner_text("#notes-title") == f"{len(hits)} notes found"
    assert "landlord" in shown(opened)[0].lower()
    opened.fill("#find", "xylophone")
    opened.get_by_text("No note has the word “xylophone”. Only whole words are found.").wait_for()
    opened.fill("#find", "")
    opened.locator("#notes-title", has_text=f"{len(notes)} notes").wait_for()
    site.quiet()


@needs_chromium
def test_hostile_notes_are_text_and_long_ones_are_clipped(site: Site) -> None:
    site.start()
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)> cats \u202e&lt;b&gt; javascript:alert(3)"
    long = "cats and words without end " * 3704
    site.memory.add(attack, user_id="<svg onload=alert(4)>", session='"><script>alert(5)</script>')
    site.memory.add(long[:100_000], speaker="<b>Ann</b>")
    site.memory.add("cats" * 24_000)  # one word wider than any screen
    opened = site.open("#recall?q=%3Cscript%3Ealert(7)%3C/script%3E&user=%3Cimg src=x onerror=alert(8)%3E")
    opened.get_by_role("heading", name="No notes here").wait_for()
    opened.click("#whose summary")
    opened.get_by_label("User").fill("")
    opened.keyboard.press("Enter")
    ask(opened, "cats <script>alert(6)</script>")
    assert attack in opened.locator("#packed").inner_text()
    assert overflow(opened) == 0
    opened.get_by_role("tab", name="Notes").click()
    row = opened.locator("#list .note", has_text="without end")
    row.wait_for()
    assert len(row.inner_text()) < 1000
    row.get_by_role("button", name="show all 100,000 characters").click()
    assert len(row.inner_text()) > 99_000
    assert overflow(opened) == 0
    row.get_by_role("button", name="show less").click()
    assert opened.locator("main script, main img, main svg").count() == 0
    site.quiet()


# -- correcting --------------------------------------------------------------------------------------------------------


@needs_chromium
def test_correction_takes_the_place_of_the_note_and_history_shows_what_it_said(site: Site) -> None:
    site.start()
    site.memory.add("The cat is called Pixle.")
    opened = open_notes(site)
    opened.get_by_role("button", name="Correct: The cat").click()
    box = opened.get_by_label("Corrected text")
    assert box.input_value() == "The cat is called Pixle."
    box.fill("The cat is called Pixel.")
    opened.get_by_role("button", name="Save").click()
    opened.locator("#toast", has_text="Corrected").wait_for()
    assert shown(opened) == ["The cat is called Pixel."]
    assert [note.text for note in site.memory.get_all()] == ["The cat is called Pixel."]
    assert site.memory.get_all(superseded=True)[0].text == "The cat is called Pixle."
    opened.get_by_role("button", name="History: The cat").click()
    opened.locator(".versions li", has_text="Pixle").wait_for()
    opened.get_by_role("button", name="History: The cat").click()
    assert opened.locator(".versions").count() == 0
    opened.reload()
    opened.locator("#list .note").wait_for()
    assert opened.inner_text("#notes-title") == "1 note"
    assert opened.get_by_role("button", name="History: The cat").count() == 1
    site.quiet()


@needs_chromium
def test_correction_can_be_left_and_a_long_hit_is_corrected_from_all_of_its_text(site: Site) -> None:
    site.start()
    text = "vet " + "word " * 220_000
    site.memory.add([text, text + "again", "vet on Elm Street"])
    opened = open_notes(site)
    opened.get_by_role("button", name="Correct: vet on Elm").click()
    opened.get_by_label("Corrected text").fill("nonsense")
    opened.keyboard.press("Escape")
    assert shown(opened)[0] == "vet on Elm Street"
    assert len(site.memory.get_all(superseded=True)) == 3
    opened.fill("#find", "vet")
    opened.locator("#notes-title", has_text="3 notes found").wait_for()
    for number in range(2):  # one of the two came cut, since both are more than an answer holds
        opened.get_by_role("button", name=re.compile("^Correct: vet word")).first.click()
        opened.locator("#list textarea").nth(number).wait_for()
    values = opened.locator("#list textarea").evaluate_all("boxes => boxes.map((box) => box.value)")
    assert sorted(values) == sorted(note.text for note in site.memory.get_all()[:2])
    site.quiet()


# -- deleting ----------------------------------------------------------------------------------------------------------


def three_cats(site: Site) -> Page:
    site.start()
    for number, text in enumerate(("one cat", "two cats", "three cats")):
        site.memory.add(text, id=f"cats/{number}?#%")
    return open_notes(site)


@needs_chromium
def test_delete_is_held_until_it_can_no_longer_be_taken_back(site: Site) -> None:
    opened = three_cats(site)
    opened.get_by_role("button", name="Delete: two cats").click()
    assert shown(opened) == ["three cats", "one cat"]
    assert opened.inner_text("#notes-title") == "2 notes"
    assert focused(opened) == "Delete: one cat"
    assert "Deleted “two cats”" in opened.inner_text("#toast")
    assert len(site.memory.get_all()) == 3, "nothing is sent yet"
    opened.get_by_role("button", name="Undo").click()
    assert shown(opened) == ["three cats", "two cats", "one cat"]
    assert opened.inner_text("#notes-title") == "3 notes"
    assert not opened.locator("#toast").is_visible()
    opened.get_by_role("button", name="Delete: two cats").click()
    opened.get_by_role("button", name="Delete: one cat").click()
    assert "2 notes deleted." in opened.inner_text("#toast")
    with opened.expect_response(lambda answer: answer.request.method == "DELETE"):
        pass  # once the time is over
    until(lambda: [note.text for note in site.memory.get_all()] == ["three cats"])
    assert not opened.locator("#toast").is_visible()
    site.quiet()


@needs_chromium
@pytest.mark.parametrize("leaving", ["view", "page", "tab"])
def test_leaving_sends_what_is_held(site: Site, leaving: str) -> None:
    opened = three_cats(site)
    opened.get_by_role("button", name="Delete: two cats").click()
    if leaving == "view":
        opened.get_by_role("tab", name="Recall").click()
    elif leaving == "page":
        opened.goto("about:blank")
    else:
        opened.close(run_before_unload=True)
    until(lambda: [note.text for note in site.memory.get_all()] == ["one cat", "three cats"])
    if leaving == "view":
        ask(opened, "cats")
        assert "two cats" not in opened.inner_text("#packed")
        site.quiet()


@needs_chromium
def test_note_that_cannot_be_deleted_comes_back_with_the_reason(site: Site) -> None:
    opened = three_cats(site)
    opened.get_by_role("button", name="Delete: two cats").click()
    opened.context.set_offline(True)
    opened.locator("#error", has_text="does not answer").wait_for()
    opened.context.set_offline(False)
    assert shown(opened) == ["three cats", "two cats", "one cat"]
    assert len(site.memory.get_all()) == 3


@needs_chromium
def test_note_that_somebody_else_deleted_is_no_error(site: Site) -> None:
    opened = three_cats(site)
    opened.get_by_role("button", name="Delete: two cats").click()
    site.memory.delete("cats/1?#%")
    with opened.expect_response(lambda answer: answer.request.method == "DELETE"):
        opened.get_by_role("tab", name="Recall").click()
    opened.get_by_role("tab", name="Notes").click()
    opened.wait_for_function("() => document.querySelectorAll('#list .note').length === 2")
    assert not opened.locator("#error").is_visible()
    with pytest.raises(NotFoundError):
        site.memory.get("cats/1?#%")


# -- keyboard ----------------------------------------------------------------------------------------------------------


@needs_chromium
def test_everything_works_from_the_keyboard(site: Site) -> None:
    opened = site.start().open()
    keys = opened.keyboard
    tab_to(opened, "#tab-recall")
    keys.press("ArrowRight")
    assert opened.evaluate("document.activeElement.id") == "tab-notes"
    tab_to(opened, "#note-text")
    keys.type("Pixel the cat hates rain. She sleeps in the box by the stove all winter. The vet is on Elm Street.")
    keys.press("Control+Enter")
    opened.locator("#list .note").wait_for()
    opened.focus("#tab-notes")
    keys.press("ArrowLeft")
    tab_to(opened, "#query")
    keys.type("Where does the cat sleep?")
    keys.press("Enter")
    settled(opened)
    tab_to(opened, "#slider")
    keys.press("Home")
    settled(opened)
    assert action_of(opened) == "extract"
    tab_to(opened, "#packed .cut")
    keys.press("Enter")
    assert opened.locator("#packed .whole").is_visible()
    tab_to(opened, "#escalate")
    keys.press("Enter")
    opened.locator("#tried", has_text="sentences that matter, then whole notes").wait_for()
    assert opened.locator("#escalate").is_disabled()
    tab_to(opened, "#fold-decision > summary")
    keys.press("Enter")
    assert opened.locator("#rule").is_visible()
    opened.focus("#tab-recall")
    keys.press("ArrowRight")
    opened.locator("#list .note").wait_for()
    tab_to(opened, "#list .meta button:last-child")
    keys.press("Enter")
    opened.locator("#notes-none", has_text="no notes yet").wait_for()
    assert opened.evaluate("document.activeElement.id") == "notes-title"
    tab_to(opened, "#toast-act")
    keys.press("Enter")
    assert opened.locator("#list .note").is_visible()
    assert len(site.memory.get_all()) == 1
    site.quiet()


# -- the key -----------------------------------------------------------------------------------------------------------


@needs_chromium
def test_server_with_keys_asks_for_one_in_plain_words_and_the_right_one_opens(site: Site, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    good, _ = keys.add(user_id="ann")
    site.start(keys=keys)
    site.memory.add("Ann's cat is Pixel.", user_id="ann")
    site.memory.add("Bob's cat is Bo.", user_id="bob")
    opened = site.open("#recall?q=cat&budget=64")
    opened.get_by_role("heading", name="This memory needs a key").wait_for()
    assert "retcon keys add" in opened.inner_text("#gate")
    assert "Bearer" not in opened.inner_text("body")
    assert not opened.locator("#views").is_visible()
    assert not opened.locator("#error").is_visible()
    opened.keyboard.press("Enter")
    assert opened.inner_text("#gate-said") == "Paste a key first."
    for wrong in ("rk-wrong", "ключ"):
        opened.get_by_label("Key", exact=True).fill(wrong)
        opened.keyboard.press("Enter")
        opened.locator("#gate-said", has_text="This key is not accepted").wait_for()
    opened.get_by_role("button", name="Show").click()
    assert opened.get_attribute("#key", "type") == "text"
    opened.get_by_label("Key", exact=True).fill(f" {good} ")
    opened.get_by_role("button", name="Open").click()
    settled(opened)
    (line,) = opened.locator("#packed .line").all_text_contents()
    assert line.endswith("Ann's cat is Pixel.")
    assert not opened.locator("#gate").is_visible()
    assert opened.evaluate("JSON.stringify(localStorage)").find("rk-") < 0
    opened.reload()
    settled(opened)
    opened.click("#whose summary")
    opened.get_by_role("button", name="Forget the key").click()
    opened.get_by_role("heading", name="This memory needs a key").wait_for()
    assert opened.evaluate("sessionStorage.getItem('retcon-key')") is None
    assert "Pixel" not in opened.content()
    assert all("401" in each for each in site.seen.errors)  # the browser itself logs a refused request
    keys.close()


@needs_chromium
def test_bound_key_may_not_look_at_others_and_is_told_so_plainly(site: Site, tmp_path: Path, reports: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    bound, _ = keys.add(user_id="ann")
    opened = site.start(keys=keys, reports=reports).open()
    opened.get_by_label("Key", exact=True).fill(bound)
    opened.keyboard.press("Enter")
    opened.get_by_role("heading", name="No notes yet").wait_for()
    assert opened.inner_text("#whose-now") == "all your key may see"
    opened.click("#whose summary")
    assert "anybody" not in opened.inner_text("#scope")
    opened.get_by_label("User").fill("bob")
    opened.keyboard.press("Enter")
    opened.locator("#error", has_text="Your key may not do this").wait_for()
    assert opened.get_attribute("#whose", "open") is None, "the panel does not cover it"
    opened.click("#whose summary")
    opened.get_by_label("User").fill("cat")
    opened.keyboard.press("Tab")
    opened.locator("#scope #error", has_text="Your key may not do this").wait_for()
    opened.get_by_label("User").fill("")
    opened.keyboard.press("Enter")
    opened.get_by_role("button", name="Load the sample").click()
    opened.locator("#empty", has_text="Ask a question").wait_for()
    assert {note.user_id for note in site.memory.get_all()} == {"ann"}
    assert len(site.memory.get_all()) == len(sample.notes())
    opened.get_by_role("tab", name="Report").click()
    opened.locator("#error", has_text="they need an admin key").wait_for()
    keys.close()
