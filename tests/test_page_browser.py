"""The page at / in a real browser: what a person sees and does."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import Seen, chromium, needs_chromium, served, shots, tab_to, watched, written_report

from retcon import Memory, Router, sample
from retcon.cli import serve
from retcon.model.fake import FakeChat
from retcon.note import Decision

pytest.importorskip("fastapi")


from retcon.server import Keys, create_app, page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTION = next(each for each in sample.questions() if each.id == "q10")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return written_report(tmp_path / "made")


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

    def open(self, *, width: int = 1280, height: int = 900, **options: Any) -> Page:
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self.stack.callback(context.close)
        opened = context.new_page()
        opened.set_default_timeout(120_000)
        self.seen = watched(opened)
        opened.goto(self.address)
        return opened

    def evidence(self) -> Site:
        """The store holds the notes that answer `QUESTION`, and no others."""
        rows = [row for row in sample.notes() if row["id"] in QUESTION.evidence]
        self.memory.load(json.dumps(row | {"user_id": "robin"}) for row in rows)
        return self

    def quiet(self) -> None:
        """Nothing went wrong, nothing popped up, and no other machine was asked."""
        assert self.seen.errors == []
        assert self.seen.dialogs == []
        assert self.seen.strangers(self.address) == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def site(tmp_path: Path, browser: Browser) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, browser, stack)


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


@needs_chromium
def test_note_that_is_added_is_recalled(site: Site) -> None:
    opened = site.start().open()
    opened.get_by_role("heading", name="No notes yet").wait_for()
    opened.get_by_role("button", name="Add a note").click()
    opened.get_by_label("Text", exact=True).fill("I adopted a cat named Pixel.")
    opened.get_by_label("When").fill("2026-05-09")
    opened.get_by_role("button", name="Add note").click()
    opened.locator("#list .note", has_text="Pixel").wait_for()
    opened.get_by_role("tab", name="Recall").click()
    ask(opened, "What is my cat called?")
    assert "2026-05-09 I adopted a cat named Pixel." in opened.inner_text("#packed")
    assert opened.inner_text("#action") == "retain"
    assert "kept whole" in opened.inner_text("#candidates .note")
    assert [note.text for note in site.memory.get_all()] == ["I adopted a cat named Pixel."]
    site.quiet()


@needs_chromium
def test_slide_from_256_to_32_turns_the_decision(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)

    def drawn() -> dict[str, Any]:
        found: dict[str, Any] = opened.evaluate(
            """() => {
              const said = (id) => document.getElementById(id).textContent;
              return {
                action: said('action'), reason: said('reason'), advantage: said('advantage'), why: said('why'),
                tokens: Number(said('tokens')), goal: Number(document.getElementById('bars').dataset.goal),
                line: parseFloat(getComputedStyle(document.querySelector('.track'), '::after').left),
                retain: parseFloat(document.querySelector('.retain .fill').style.width),
              };
            }"""
        )
        return found

    def goal(decided: Decision) -> Any:
        return pytest.approx(decided.utilities["retain"] + decided.threshold)

    before, decided = drawn(), site.memory.decide(QUESTION.question, 256)
    assert (before["action"], before["goal"]) == ("retain", goal(decided))
    assert before["retain"] == pytest.approx(100 * decided.utilities["retain"], abs=1e-3)
    drag(opened, 32)
    assert opened.input_value("#budget") == "32"
    settled(opened)
    opened.wait_for_function("() => document.getAnimations().length === 0")  # bars move for a moment
    after, decided = drawn(), site.memory.decide(QUESTION.question, 32)
    assert after["action"] == decided.action == "extract"
    assert after["goal"] == goal(decided)
    assert after["retain"] == pytest.approx(100 * decided.utilities["retain"], abs=1e-3)
    assert (after["line"] < before["line"]) == (after["goal"] < before["goal"])
    assert after["line"] != before["line"]
    assert after["reason"].lower().startswith(decided.reason.removeprefix("extract: ").lower())
    assert f"+{decided.advantage:.3f}" in after["advantage"]
    assert 0 < after["tokens"] <= 32
    assert after["why"] != before["why"]
    assert {"◧ cut: the marked part", "□ dropped"} & set(opened.locator(".status").all_inner_texts())
    site.quiet()


@needs_chromium
def test_what_fits_has_the_last_word_and_the_page_says_so(site: Site, tmp_path: Path) -> None:
    eager = {
        "format": 1, "name": "eager", "kind": "learned", "actions": ["retain", "extract"], "features": ["fit"],
        "weights": {"retain": [0.0], "extract": [0.0]}, "intercepts": {"retain": 0.2, "extract": 0.9},
        "thresholds": {"16": 0.1}, "fit_rules": True,
    }  # fmt: skip
    (tmp_path / "eager.json").write_text(json.dumps(eager), encoding="utf-8")
    site.start(router=tmp_path / "eager.json")
    site.memory.add(["My cat is called Pixel.", "The rent of the flat is 725 euros a month, due on the first."])
    opened = site.open()
    ask(opened, "Which cat?")
    assert opened.inner_text("#action") == "retain"
    assert "What fits has the last word" in opened.inner_text("#advantage")
    opened.fill("#budget", "16")
    opened.keyboard.press("Enter")
    settled(opened)
    assert opened.inner_text("#action") == "extract"
    assert "what it takes to replace" in opened.inner_text("#advantage")
    site.quiet()


@needs_chromium
def test_requests_are_coalesced_while_dragging_and_the_last_one_wins(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    held: list[Any] = []
    moving = True

    def hold(route: Any) -> None:
        held.append(route)
        if not moving:
            route.continue_()

    opened.route(re.compile("/(decide|recall)$"), hold)
    before = len(site.seen.asked("/decide"))
    moves = opened.evaluate(
        """async () => { const s = document.getElementById('slider'); const from = +s.value;
        for (let i = 1; i <= 60; i++) { s.value = from - i; s.dispatchEvent(new Event('input', {bubbles: true}));
          await new Promise(r => setTimeout(r, 4)); }
        s.dispatchEvent(new Event('change', {bubbles: true})); return document.getElementById('budget').value; }"""
    )
    assert len(held) == 1, "one request at a time, however many moves"
    moving = False
    held[0].continue_()
    settled(opened)
    asked = [body["budget"] for body in site.seen.asked("/decide")[before:]]
    assert len(asked) == 2, "what was first and what is last"
    assert asked[0] > asked[-1] == int(moves) < 256
    assert site.seen.asked("/recall")[-1]["budget"] == int(moves)
    site.quiet()


@needs_chromium
def test_new_query_does_not_wait_for_text_that_is_still_being_written(site: Site) -> None:
    released = threading.Event()

    def slow(_: object) -> str:
        released.wait(120)
        return "61 points."

    opened = site.start(router=Router.load(LADDER), model=FakeChat(slow)).evidence().open()
    opened.fill("#budget", "64")
    opened.fill("#query", QUESTION.question)
    with opened.expect_request(re.compile("/recall$")):
        opened.keyboard.press("Enter")
    opened.locator("#of", has_text="being written").wait_for()
    with opened.expect_event("requestfailed", lambda request: request.url.endswith("/recall")):
        opened.fill("#query", "Who knew the boiling point of gallium?")
    opened.locator("#of", has_text="needs the model").wait_for()
    released.set()
    site.quiet()


@needs_chromium
def test_arrow_keys_move_the_budget_and_the_number_takes_any(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    opened.focus("#slider")
    opened.keyboard.press("Home")
    assert opened.input_value("#budget") == "16"
    opened.keyboard.press("ArrowRight")
    assert opened.input_value("#budget") == "17"
    opened.keyboard.press("End")
    assert opened.input_value("#budget") == "4096"
    assert opened.get_attribute("#slider", "aria-valuetext") == "4096 tokens"
    opened.fill("#budget", "100")
    settled(opened)
    assert site.seen.asked("/recall")[-1]["budget"] == 100
    opened.fill("#budget", "0")
    settled(opened)
    assert "buys no text" in opened.inner_text("#packed")
    site.quiet()


@needs_chromium
def test_hostile_notes_are_text_and_long_ones_are_clipped(site: Site) -> None:
    site.start()
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)> cats \u202e&lt;b&gt; javascript:alert(3)"
    long = "cats and words without end " * 3704
    site.memory.add(attack, user_id="<svg onload=alert(4)>", session='"><script>alert(5)</script>')
    site.memory.add(long[:100_000], speaker="<b>Ann</b>")
    site.memory.add("cats" * 24_000)  # one word wider than any screen
    opened = site.open()
    ask(opened, "cats <script>alert(6)</script>")
    assert attack in opened.locator(".note", has_text="<script>").first.inner_text()
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


@needs_chromium
def test_note_is_deleted_only_when_confirmed_and_the_focus_stays_near(site: Site) -> None:
    site.start()
    for number, text in enumerate(("one cat", "two cats", "three cats")):
        site.memory.add(text, id=f"cats/{number}?#%")
    opened = site.open()
    opened.get_by_role("tab", name="Notes").click()
    opened.get_by_role("button", name="Delete: two cats").click()
    assert opened.inner_text("#confirm-text") == "two cats"
    assert opened.evaluate("document.activeElement.value") == "keep"
    opened.keyboard.press("Escape")
    assert len(site.memory.get_all()) == 3
    assert opened.evaluate("document.activeElement.getAttribute('aria-label')") == "Delete: two cats"
    opened.get_by_role("button", name="Delete: two cats").click()
    opened.locator("#confirm").get_by_role("button", name="Keep").click()
    assert len(site.memory.get_all()) == 3
    opened.get_by_role("button", name="Delete: two cats").click()
    opened.locator("#confirm").get_by_role("button", name="Delete").click()
    opened.locator("#list .note", has_text="two cats").wait_for(state="detached")
    assert [note.text for note in site.memory.get_all()] == ["one cat", "three cats"]
    assert opened.evaluate("document.activeElement.getAttribute('aria-label')") == "Delete: three cats"
    site.quiet()


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
    opened.focus("body")
    tab_to(opened, "#tab-notes")
    keys.press("ArrowLeft")
    tab_to(opened, "#query")
    keys.type("Where does the cat sleep?")
    keys.press("Enter")
    settled(opened)
    tab_to(opened, "#slider")
    keys.press("Home")
    settled(opened)
    assert opened.inner_text("#action") == "extract"
    tab_to(opened, "#escalate")
    keys.press("Enter")
    opened.locator("#tried", has_text="extract → retain").wait_for()
    assert opened.locator("#escalate").is_disabled()
    opened.focus("#tab-recall")
    keys.press("ArrowRight")
    opened.locator("#list .note").wait_for()
    tab_to(opened, "#list button")
    keys.press("Enter")
    keys.press("Tab")
    keys.press("Enter")
    opened.locator("#notes-none").wait_for()
    assert site.memory.get_all() == []
    assert opened.evaluate("document.activeElement.id") == "notes-title"
    site.quiet()


@needs_chromium
def test_focus_is_visible_on_every_control(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    opened.evaluate("document.activeElement.blur()")
    for _ in range(14):
        opened.keyboard.press("Tab")
        style = opened.evaluate(
            """() => { const s = getComputedStyle(document.activeElement);
            return [document.activeElement.id, s.outlineStyle, s.boxShadow, document.activeElement.tagName]; }"""
        )
        assert style[1] != "none" or style[2] != "none" or style[3] == "BODY", style


@needs_chromium
def test_wrong_key_is_one_line_and_the_right_one_opens(site: Site, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    good, _ = keys.add(user_id="ann")
    site.start(keys=keys)
    site.memory.add("Ann's cat is Pixel.", user_id="ann")
    site.memory.add("Bob's cat is Bo.", user_id="bob")
    opened = site.open()
    error = opened.locator("#error")
    error.wait_for()
    opened.fill("#key", "rk-wrong")
    opened.keyboard.press("Enter")
    ask_for = opened.locator("#query")
    ask_for.fill("cat")
    ask_for.press("Enter")
    error.wait_for()
    box = error.bounding_box()
    assert box is not None
    assert box["height"] < 45
    assert "key" in error.inner_text().lower()
    opened.fill("#key", good)
    opened.keyboard.press("Tab")
    opened.locator("#candidates .note").wait_for()
    assert error.is_hidden()
    assert opened.locator("#candidates .note").all_inner_texts()[0].endswith("Ann's cat is Pixel.")
    assert opened.locator("#candidates .note").count() == 1
    assert opened.evaluate("JSON.stringify(localStorage)").find("rk-") < 0
    assert opened.evaluate("sessionStorage.getItem('retcon-key')") == good
    assert all("401" in each for each in site.seen.errors)  # the browser itself logs a refused request
    keys.close()


@needs_chromium
def test_key_that_is_bound_to_a_user_loads_the_sample_as_that_user(site: Site, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    bound, _ = keys.add(user_id="ann")
    opened = site.start(keys=keys).open()
    opened.locator("#error").wait_for()
    opened.fill("#key", bound)
    opened.keyboard.press("Tab")
    opened.get_by_role("button", name="Load the sample").click()
    opened.locator("#empty", has_text="Type a query").wait_for()
    assert {note.user_id for note in site.memory.get_all()} == {"ann"}
    assert len(site.memory.get_all()) == len(sample.notes())
    keys.close()


@needs_chromium
def test_scope_narrows_what_is_recalled_and_a_reload_keeps_it(site: Site) -> None:
    site.start()
    site.memory.add("Ann's cat is Pixel.", user_id="ann")
    site.memory.add("Bob's cat is Bo.", user_id="bob", run_id="r1")
    opened = site.open()
    ask(opened, "Whose cat?")
    assert opened.locator("#candidates .note").count() == 2
    opened.click("#whose summary")
    opened.get_by_label("User").fill("bob")
    opened.keyboard.press("Tab")
    opened.wait_for_function("() => document.querySelectorAll('#candidates .note').length === 1")
    opened.keyboard.press("Escape")
    assert opened.evaluate("document.activeElement.tagName") == "SUMMARY"
    opened.reload()
    settled(opened)
    assert opened.inner_text("#whose-now") == "bob"
    assert opened.locator("#candidates .note").all_inner_texts()[0].endswith("Bob's cat is Bo.")
    site.quiet()


@needs_chromium
def test_empty_store_loads_the_sample_and_offers_questions(site: Site) -> None:
    opened = site.start().open()
    opened.wait_for_function("() => document.querySelector('#empty').innerText.includes('retcon demo')")
    opened.get_by_role("button", name="Load the sample").click()
    opened.locator(".try button").first.click()
    settled(opened)
    asked, budget = opened.input_value("#query"), int(opened.input_value("#budget"))
    assert opened.inner_text("#action") == site.memory.decide(asked, budget, user_id="robin").action
    assert len(site.memory.get_all(user_id="robin", superseded=True)) == len(sample.notes())
    opened.get_by_role("tab", name="Notes").click()
    opened.get_by_role("button", name="Show more").click()
    opened.wait_for_function("() => document.querySelectorAll('#list .note').length === 100")
    opened.get_by_role("tab", name="Recall").click()
    opened.locator("#slider").press("End")
    settled(opened)
    recalled = site.memory.recall(opened.input_value("#query"), 4096, user_id="robin")
    assert opened.locator("#packed .passage").evaluate("node => node.textContent") == recalled.text  # all of it
    opened.get_by_role("tab", name="Notes").click()
    opened.wait_for_function("() => document.querySelectorAll('#list .note').length === 50")
    opened.fill("#find", "landlord")
    opened.wait_for_function("() => !document.getElementById('notes-title').textContent.includes('50+')")
    assert "landlord" in opened.inner_text("#list").lower()
    site.quiet()


LADDER = {
    "format": 1, "name": "climber", "kind": "learned", "actions": ["retain", "extract", "merge"],
    "features": ["fit", "temporal"], "weights": {"retain": [0.5, 0.1], "extract": [0.0, 0.1], "merge": [0.0, -0.2]},
    "intercepts": {"retain": 0.1, "extract": 0.4, "merge": 0.45}, "thresholds": {"32": 0.05, "256": 0.1},
    "ladder": {
        "orders": [["merge", "extract", "retain"]], "features": [], "weights": [[]], "intercepts": {"64": [0.0]},
    },
}  # fmt: skip


def wrote(_: object) -> str:
    return "🐈🐈 Quiz: 99 points at Ancoats, says “𝔐arek”. Forty more on 3 May 2031."


@needs_chromium
def test_generated_text_waits_for_release_and_its_doubtful_claims_are_marked(site: Site, tmp_path: Path) -> None:
    chat = FakeChat(wrote)
    opened = site.start(router=Router.load(LADDER), model=chat).evidence().open()
    opened.fill("#query", QUESTION.question)
    opened.locator("#result").wait_for()
    opened.fill("#budget", "64")  # typed, not left yet
    opened.locator("#of", has_text="needs the model").wait_for()
    assert chat.asked == []
    assert opened.inner_text("#action") == "merge"
    opened.keyboard.press("Enter")
    opened.locator("#packed mark").first.wait_for()
    assert len(chat.asked) == 1
    recall = site.memory.recall(QUESTION.question, 64)
    assert recall.fidelity is not None
    claims = [*recall.fidelity.unsupported, *(ours for ours, _ in recall.fidelity.mutated)]
    assert {"99", "3 May 2031"} <= {claim.text for claim in claims}
    marked = opened.locator("#packed mark").evaluate_all("marks => marks.map(m => m.firstChild.data)")
    assert set(marked) <= {claim.text for claim in claims}  # offsets hold behind characters of two UTF-16 units
    assert {"99", "3 May 2031"} <= set(marked)
    assert any("no source" in text for text in opened.locator("#packed mark small").all_inner_texts())
    assert opened.locator(".looks li").all_inner_texts() == ["merge", "extract", "retain"]
    assert opened.locator(".looks [aria-current=step]").inner_text() == "merge"
    opened.get_by_role("button", name="Escalate").click()
    opened.locator("#tried", has_text="merge → extract").wait_for()
    assert opened.locator(".looks [aria-current=step]").inner_text() == "extract"
    opened.select_option("#force", "retain")
    opened.locator("#flags", has_text="asked for").wait_for()
    assert opened.inner_text("#action") == "retain"
    opened.screenshot(path=shots(tmp_path) / "ladder.png", full_page=True)
    site.quiet()


@needs_chromium
def test_offsets_in_code_points_become_offsets_in_utf16(site: Site) -> None:
    opened = site.start().open()
    text = "a🐈b𝔐c\u0301d"
    found = opened.evaluate(
        """async ([url, text]) => {
          const { units, runs, usedRuns } = await import(url);
          const plain = (list) => list.map((run) => [run.text, Boolean(run.mark)]);
          const marks = [{ start: 1, end: 3 }, { start: 2, end: 4 }, { start: 4, end: 9 }];
          const used = usedRuns("One. Two! Three? Two!", "Two!\\nTwo!\\nnot there");
          return [units(text, [0, 1, 2, 3, 4, 5, 6, 7, 9]), plain(runs(text, marks)), plain(used)];
        }""",
        [f"{site.address}page/{page.assets().digest}/text.js", text],
    )
    assert found[0] == [len(text[:place].encode("utf-16-le")) // 2 for place in (0, 1, 2, 3, 4, 5, 6, 7, 9)]
    assert found[1] == [["a", False], ["🐈b", True], ["𝔐", False], ["c\u0301d", True]]
    assert found[2] == [["One. ", False], ["Two!", True], [" Three? ", False], ["Two!", True]]


@needs_chromium
def test_report_tab_shows_the_report_in_a_sandbox_and_the_crossovers(site: Site, reports: Path) -> None:
    opened = site.start(reports=reports).open()
    opened.get_by_role("tab", name="Report").click()
    frame = opened.frame_locator("#report-frame")
    frame.get_by_role("heading", name="Measured here").wait_for()
    assert opened.frames[1].evaluate("document.title") == "kept in"
    assert opened.locator("#crossover svg").count() == 1
    opened.get_by_text("As text").click()
    assert "Extract: 171 [56, above 256]" in opened.inner_text("#crossover details")
    assert opened.locator("#crossover circle").count() == 1
    assert opened.locator("#crossover path").count() == 3
    site.quiet()


@needs_chromium
def test_report_tab_without_a_report_says_how_to_make_one(site: Site) -> None:
    opened = site.start().open()
    opened.get_by_role("tab", name="Report").click()
    told = opened.locator("#report-none")
    told.wait_for()
    assert "retcon report outcomes.csv" in told.inner_text()
    assert "retcon serve --reports" in told.inner_text()
    assert "--reports" in Path(serve.__file__).read_text(encoding="utf-8")
    box = told.bounding_box()
    assert box is not None
    assert box["height"] < 40
    site.quiet()


@needs_chromium
def test_server_that_is_gone_is_one_line(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    opened.context.set_offline(True)
    opened.fill("#budget", "64")
    opened.locator("#error", has_text="does not answer").wait_for()
    opened.context.set_offline(False)
    opened.fill("#budget", "65")
    settled(opened)
    assert opened.locator("#error").is_hidden()


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


@needs_chromium
@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 390, "light")]
)
def test_no_view_scrolls_sideways_and_text_has_contrast(
    site: Site, reports: Path, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    site.start(reports=reports)
    site.memory.load(json.dumps(row | {"user_id": "robin"}) for row in sample.notes())
    opened = site.open(width=width, height=844, color_scheme=scheme, reduced_motion="reduce")
    folder = shots(tmp_path)
    ask(opened, QUESTION.question)
    for view in ("recall", "notes", "report"):
        opened.click(f"#tab-{view}")
        opened.locator(
            {"recall": "#candidates .note", "notes": "#list .note", "report": "#crossover svg"}[view]
        ).first.wait_for()
        assert overflow(opened) == 0, view
        assert opened.evaluate(FAINT) == [], view
        opened.screenshot(path=folder / f"{view}-{name}.png", full_page=view != "notes")
    assert opened.evaluate("getComputedStyle(document.querySelector('.fill')).transitionDuration") == "0s"
    site.quiet()


# Texts whose contrast with what lies behind them is under 4.5, by the formula of WCAG.
FAINT = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.03928 * 255 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [r, g, b] = parts(colour).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const colour = node ? getComputedStyle(node).backgroundColor : 'rgb(255, 255, 255)';
    return (parts(colour)[3] ?? 1) > 0 ? colour : behind(node.parentElement);
  };
  const contrast = (node) => {
    const [low, high] = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const speaks = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  return [...document.querySelectorAll('body *')]
    .filter((node) => node.checkVisibility() && !node.closest('svg, select, :disabled') && speaks(node))
    .filter((node) => contrast(node) < 4.5)
    .map((node) => `${node.tagName} ${node.className} ${node.textContent.slice(0, 40)}`);
}"""
