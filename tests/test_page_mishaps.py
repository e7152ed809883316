"""The page when something goes amiss: a slow or absent server, a double click, a wrong budget, an empty store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from browser import needs_chromium, tab_to
from waiting import until

from retcon import sample

pytest.importorskip("fastapi")

from page_site import QUESTION, Site, ask, settled, unfold

if TYPE_CHECKING:
    from playwright.sync_api import Page


def in_sight(opened: Page, selector: str) -> bool:
    """Whether all of the element is inside the window."""
    box = opened.locator(selector).bounding_box()
    size = opened.viewport_size
    assert size is not None
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


class Held:
    """Requests to some path that wait until they are let go."""

    def __init__(self, opened: Page, path: str) -> None:
        self.routes: list[Any] = []
        self.open = False
        opened.route(re.compile(path), self.take)

    def take(self, route: Any) -> None:
        if self.open:
            route.continue_()
        else:
            self.routes.append(route)

    def release(self) -> None:
        self.open = True
        for route in self.routes:
            route.continue_()


# -- the address, and sending once -------------------------------------------------------------------------------------


@needs_chromium
def test_skip_link_moves_the_focus_and_nothing_else(site: Site) -> None:
    opened = site.start().evidence().open("#recall?q=quiz&budget=64&user=robin")
    settled(opened)
    before = opened.evaluate("location.href")
    tab_to(opened, ".skip")
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "main"
    assert opened.evaluate("location.href") == before
    assert opened.input_value("#query") == "quiz"
    assert opened.inner_text("#whose-now") == "robin"
    site.quiet()


@needs_chromium
def test_double_click_on_a_slow_network_stores_one_note(site: Site) -> None:
    opened = site.start().open("#notes")
    held = Held(opened, "/memories$")
    opened.fill("#note-text", "One cat.")
    opened.get_by_role("button", name="Add note").dblclick()
    opened.get_by_role("button", name="Adding …").wait_for()
    opened.locator("#note-text").press("Control+Enter")
    held.release()
    opened.locator("#toast", has_text="Added").wait_for()
    assert [note.text for note in site.memory.get_all()] == ["One cat."]
    assert len(held.routes) == 1


@needs_chromium
def test_note_whose_answer_was_lost_is_sent_again_under_the_same_key(site: Site) -> None:
    opened = site.start().open("#notes")

    def lose(route: Any) -> None:
        route.fetch()
        route.abort()

    opened.route(re.compile("/memories$"), lose)
    opened.fill("#note-text", "One cat.")
    opened.get_by_role("button", name="Add note").click()
    opened.locator("#add #error", has_text="does not answer").wait_for()
    opened.unroute(re.compile("/memories$"))
    opened.get_by_role("button", name="Add note").click()
    opened.locator("#toast", has_text="Added").wait_for()
    assert len(site.memory.get_all()) == 1
    opened.fill("#note-text", "One cat.")
    opened.get_by_role("button", name="Add note").click()
    until(lambda: len(site.memory.get_all()) == 2, 30)


# -- errors and waiting ------------------------------------------------------------------------------------------------


@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_error_of_a_correction_is_in_sight_and_the_text_outlives_other_tabs(site: Site, width: int) -> None:
    opened = site.start().sample().open("#notes", width=width)
    opened.locator("#list button", has_text="Correct").nth(30).click()
    box = opened.get_by_label("Corrected text")
    box.fill("half typed")
    opened.context.set_offline(True)
    opened.get_by_role("button", name="Save").click()
    opened.locator("form.edit #error", has_text="does not answer").wait_for()
    assert in_sight(opened, "#error")
    opened.context.set_offline(False)
    opened.get_by_role("tab", name="Recall").click()
    opened.get_by_role("tab", name="Notes").click()
    box.wait_for()
    assert box.input_value() == "half typed"
    assert not opened.locator("#error").is_visible()
    opened.get_by_role("button", name="Save").click()
    opened.locator("#toast", has_text="Corrected").wait_for()
    assert "half typed" in [note.text for note in site.memory.get_all()]


@needs_chromium
def test_old_answer_is_dimmed_while_asking_and_gone_after_an_error_that_can_be_tried_again(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    held = Held(opened, "/(decide|recall)$")
    opened.fill("#query", "points")
    opened.locator("#asking", has_text="Asking").wait_for()
    opened.wait_for_function("() => Number(getComputedStyle(document.getElementById('result')).opacity) < 0.6")
    held.open = True
    held.routes[0].abort()
    opened.locator("#ask #error", has_text="does not answer").wait_for()
    assert not opened.locator("#result").is_visible()
    assert not opened.locator("#asking").is_visible()
    opened.get_by_role("button", name="Try again").click()
    settled(opened)
    assert not opened.locator("#error").is_visible()
    assert site.seen.asked("/recall")[-1]["query"] == "points"


@needs_chromium
def test_notes_say_that_they_are_loading_and_that_they_could_not_be(site: Site) -> None:
    opened = site.start().evidence().open()
    opened.get_by_role("heading", name="Ask a question").wait_for()
    held = Held(opened, r"/memories\?")
    opened.get_by_role("tab", name="Notes").click()
    opened.locator("#notes-none", has_text="Loading").wait_for()
    until(lambda: bool(opened.evaluate("true")) and held.routes)
    held.open = True
    held.routes[0].abort()
    opened.locator("#notes-said #error", has_text="does not answer").wait_for()
    assert not opened.locator("#notes-none").is_visible()
    opened.get_by_role("button", name="Try again").click()
    opened.locator("#list .note").first.wait_for()
    assert not opened.locator("#error").is_visible()


@needs_chromium
def test_budget_that_cannot_be_is_said_and_not_changed(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    before = len(site.seen.asked("/decide"))
    for typed in ("-5", "abc", "1.5"):
        opened.fill("#budget", typed)
        opened.keyboard.press("Enter")
        opened.locator("#budget-said", has_text="whole number of tokens").wait_for()
        assert opened.input_value("#budget") == typed
    assert len(site.seen.asked("/decide")) == before, "nothing is sent"
    opened.fill("#budget", "")
    opened.locator("#budget").press_sequentially("99999999")
    opened.locator("#error", has_text="The budget can be 32,768 tokens at most").wait_for()
    assert opened.inner_text("#budget-said") == ""
    opened.fill("#budget", "64")
    settled(opened)
    assert not opened.locator("#error").is_visible()


# -- nothing is silent, nothing is a dead end --------------------------------------------------------------------------


@needs_chromium
def test_blank_note_and_unchanged_correction_are_answered(site: Site) -> None:
    site.start().memory.add("One cat.")
    opened = site.open("#notes")
    opened.locator("#list .note").wait_for()
    opened.fill("#note-text", "   ")
    opened.get_by_role("button", name="Add note").click()
    opened.locator("#add #error", has_text="Write something first").wait_for()
    opened.fill("#note-text", "Two cats.")
    opened.get_by_role("button", name="Add note").click()
    opened.locator("#toast", has_text="Added").wait_for()
    assert not opened.locator("#error").is_visible()
    opened.get_by_role("button", name="Correct: One cat").click()
    opened.get_by_role("button", name="Save").click()
    opened.locator("#toast", has_text="Nothing was changed").wait_for()
    site.quiet()


@needs_chromium
def test_added_note_does_not_clear_the_search(site: Site) -> None:
    site.start().memory.add("One cat.")
    opened = site.open("#notes")
    opened.fill("#find", "cat")
    opened.locator("#notes-title", has_text="1 note found").wait_for()
    opened.fill("#note-text", "A dog.")
    opened.get_by_role("button", name="Add note").click()
    opened.locator("#toast", has_text="Added").wait_for()
    assert opened.input_value("#find") == "cat"
    opened.get_by_role("button", name="Show all").click()
    opened.locator("#notes-title", has_text="2 notes").wait_for()
    site.quiet()


@needs_chromium
def test_question_to_an_empty_store_and_its_notes_offer_the_sample_and_a_reload_keeps_the_questions(site: Site) -> None:
    opened = site.start().open()
    opened.get_by_role("heading", name="No notes yet").wait_for()
    opened.fill("#query", "cat")
    opened.keyboard.press("Enter")
    opened.wait_for_function("() => document.getElementById('result').getAttribute('aria-busy') === 'false'")
    opened.locator("#empty", has_text="Load the sample").wait_for()
    assert not opened.locator("#result").is_visible()
    opened.fill("#query", "")
    opened.get_by_role("tab", name="Notes").click()
    opened.locator("#notes-none").get_by_role("button", name="Load the sample").click()
    opened.locator("#toast", has_text="The sample is loaded").wait_for()
    current, every = (len(site.memory.get_all(superseded=old)) for old in (False, True))
    assert every == len(sample.notes())
    said = f"{current} notes, and {every - current} older versions that were corrected."
    assert said in opened.inner_text("#toast")
    opened.locator("#notes-title", has_text=f"{current} notes").wait_for()
    opened.get_by_role("tab", name="Recall").click()
    opened.reload()
    opened.locator(".try button").first.wait_for()
    site.quiet()


@needs_chromium
def test_user_without_notes_leads_to_everybody(site: Site) -> None:
    opened = site.start().evidence().open("#recall?q=quiz&user=nobody")
    opened.locator("#empty", has_text="the notes of nobody only").wait_for()
    opened.get_by_role("button", name="Look at all notes").click()
    settled(opened)
    assert opened.inner_text("#whose-now") == "everybody"
    site.quiet()


# -- what is explained -------------------------------------------------------------------------------------------------


@needs_chromium
def test_rule_is_told_in_words_and_claims_no_chance(site: Site) -> None:
    opened = site.start().sample().open()
    ask(opened, QUESTION.question)
    unfold(opened, "decision")
    features = site.memory.decide(QUESTION.question, 256).features
    fits = f"{round(features['fit'] * features['notes'])} of {features['notes']:.0f}"
    assert fits in opened.inner_text("#fold-decision")
    opened.select_option("#force", "retain")
    opened.locator("#flags", has_text="you chose it").wait_for()
    settled(opened)
    assert not opened.locator("#numbers").is_visible()
    shown = opened.inner_text("#fold-decision")
    for word in ("Chance", "certain", "learned", "caller", "candidate"):
        assert word not in shown
    site.quiet()


@needs_chromium
def test_left_out_notes_are_few_at_first_and_none_has_a_score_for_words_it_lacks(site: Site) -> None:
    opened = site.start().sample().open()
    opened.fill("#budget", "32")
    ask(opened, "landlord")
    unfold(opened, "notes")
    left = opened.locator("#candidates .dropped")
    assert left.filter(visible=True).count() == 5
    opened.get_by_role("button", name=re.compile(r"Show \d+ more that were left out")).click()
    assert left.filter(visible=True).count() == left.count() > 5
    lacking = left.filter(has_text="shares no word with the question")
    assert lacking.count() > 0
    assert not any("score" in text or "tokens" in text for text in lacking.locator(".meta").all_inner_texts())
    site.quiet()


@needs_chromium
def test_text_from_right_to_left_is_set_so_and_tabs_stay_where_they_are(site: Site) -> None:
    site.start().memory.add("החתול שלי נקרא פיקסל")
    opened = site.open("#notes")
    text = opened.locator("#list .passage")
    text.wait_for()
    assert text.evaluate("node => getComputedStyle(node).direction") == "rtl"
    before = opened.locator("#tab-notes").bounding_box()
    opened.goto(f"{site.address}#notes?user=somebody-with-a-long-name")
    opened.locator("#whose-now", has_text="somebody").wait_for()
    assert opened.locator("#tab-notes").bounding_box() == before
    site.quiet()


@needs_chromium
def test_another_app_in_front_sends_no_delete(site: Site) -> None:
    site.start().memory.add("One cat.")
    opened = site.open("#notes")
    opened.get_by_role("button", name="Delete: One cat").click()
    opened.evaluate(
        """() => { Object.defineProperty(document, 'visibilityState', { value: 'hidden' });
        document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    opened.get_by_role("button", name="Undo").click()
    opened.locator("#list .note").wait_for()
    assert len(site.memory.get_all()) == 1
    assert not any(request.method == "DELETE" for request in site.seen.requests)
