"""The Recall view in a real browser: the text first, why below it, and everything else on request."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import needs_chromium, shots

from retcon import Router, sample
from retcon.errors import ModelUnavailableError
from retcon.model.fake import FakeChat
from retcon.note import Decision

pytest.importorskip("fastapi")

from page_site import LADDER, QUESTION, Site, action_of, ask, drag, settled, unfold, violations

from retcon.server import page

if TYPE_CHECKING:
    from playwright.sync_api import Page

WEIGHING = {
    "format": 1, "name": "weighing", "kind": "learned", "actions": ["retain", "extract"], "features": ["fit"],
    "weights": {"retain": [0.6], "extract": [0.1]}, "intercepts": {"retain": 0.2, "extract": 0.5},
    "thresholds": {"32": 0.05},
}  # fmt: skip
LONG = (
    "The movers come on Friday at nine. They take the piano first and the plants last. "
    "The deposit for the new flat was 910 euros. Nobody told the landlord about the piano yet."
)


def told(opened: Page, name: str) -> str:
    """The text of an element, folded or not."""
    return opened.locator(f"#{name}").text_content() or ""


# -- the text, and why -------------------------------------------------------------------------------------------------


@needs_chromium
@pytest.mark.parametrize("width", [1280, 390])
def test_text_comes_first_and_large_and_why_follows_in_one_plain_sentence(site: Site, width: int) -> None:
    opened = site.start().sample().open(width=width, height=844)
    ask(opened, QUESTION.question)
    recalled = site.memory.recall(QUESTION.question, 256)
    assert opened.locator("#packed .line").all_text_contents() == recalled.text.split("\n")
    assert opened.inner_text("#why") == recalled.why
    top = {name: opened.locator(f"#{name}").bounding_box() for name in ("packed", "why", "fold-decision")}
    assert top["packed"] is not None
    assert top["why"] is not None
    assert top["fold-decision"] is not None
    assert top["packed"]["y"] < 844 * 0.4, "high on the first screen"
    assert top["packed"]["y"] < top["why"]["y"] < top["fold-decision"]["y"]
    sizes = "node => [node, document.body].map((each) => parseFloat(getComputedStyle(each).fontSize))"
    text, body = opened.locator("#packed").evaluate(sizes)
    assert text > body
    for name in ("bars", "moved", "candidates", "reason"):
        assert not opened.locator(f"#{name}").is_visible(), f"{name} is folded"
    site.quiet()


@needs_chromium
def test_what_was_cut_is_marked_and_opens_in_its_place(site: Site) -> None:
    site.start().memory.add(LONG, timestamp="2026-05-09")
    opened = site.open()
    opened.fill("#budget", "24")
    ask(opened, "How much was the deposit for the flat?")
    assert action_of(opened) == "extract"
    (button,) = opened.locator("#packed .cut").all()
    assert re.fullmatch(r"\d+ words left out", button.inner_text())
    left = int(button.inner_text().split()[0])
    used = site.memory.recall("How much was the deposit for the flat?", 24).sources[0].text
    assert left == len(LONG.split()) - len(used.split())
    button.click()
    whole = opened.locator("#packed .whole")
    assert whole.inner_text() == LONG
    marked = "".join(whole.locator("mark").all_text_contents())
    assert "910 euros" in marked
    assert "piano" not in marked
    button.click()
    assert not whole.is_visible()
    site.quiet()


@needs_chromium
def test_nothing_about_the_question_is_said_in_plain_words(site: Site) -> None:
    opened = site.start().evidence().open()

    def unfound(route: Any) -> None:
        answer = route.fetch()
        words = "Nothing in memory is about this"
        said = {"found": False, "warnings": [words.lower()], "why": f"{words}: this is only the nearest there is."}
        route.fulfill(response=answer, json=answer.json() | said)

    opened.route(re.compile("/recall$"), unfound)
    ask(opened, "What is the capital of France?")
    assert opened.locator("#found").is_visible()
    assert opened.inner_text("#found") == "Nothing in memory is about this. The newest notes instead:"
    assert opened.inner_text("main").count("Nothing in memory") == 1
    colours = "nodes => nodes.map((node) => getComputedStyle(node).color)"
    line, body = (opened.locator(name).first.evaluate_all(colours)[0] for name in ("#packed .line", "body"))
    assert line != body, "they are dimmed"
    opened.unroute(re.compile("/recall$"))
    ask(opened, QUESTION.question)
    assert not opened.locator("#found").is_visible()
    site.quiet()


@needs_chromium
def test_text_can_be_copied(site: Site) -> None:
    opened = site.start().evidence().open(permissions=["clipboard-read", "clipboard-write"])
    ask(opened, QUESTION.question)
    opened.click("#copy")
    opened.locator("#toast", has_text="Copied").wait_for()
    assert opened.evaluate("navigator.clipboard.readText()") == site.memory.recall(QUESTION.question, 256).text
    site.quiet()


# -- the address -------------------------------------------------------------------------------------------------------


def address(opened: Page) -> str:
    return str(opened.evaluate("decodeURIComponent(location.hash.replaceAll('+', ' '))"))


@needs_chromium
def test_question_budget_and_user_are_in_the_address_and_a_link_shows_the_same(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    drag(opened, 32)
    settled(opened)
    opened.click("#whose summary")
    opened.get_by_label("User").fill("robin")
    opened.keyboard.press("Enter")
    settled(opened)
    assert address(opened) == f"#recall?q={QUESTION.question}&budget=32&user=robin"
    shared = opened.evaluate("location.hash")
    other = site.open(shared)
    settled(other)
    assert other.input_value("#query") == QUESTION.question
    assert other.input_value("#budget") == "32"
    assert other.inner_text("#whose-now") == "robin"
    assert other.inner_text("#packed") == opened.inner_text("#packed")
    sent = [request.url.split("#")[0] for request in site.seen.requests]
    assert not any("q=" in url for url in sent), "no address that is sent holds the question"
    site.quiet()


@needs_chromium
def test_back_and_forward_step_through_questions_budgets_and_views(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, "quiz")
    ask(opened, "points")
    drag(opened, 32)
    settled(opened)
    opened.get_by_role("tab", name="Notes").click()
    opened.locator("#list .note").first.wait_for()
    for wanted in (("points", "32"), ("points", "256"), ("quiz", "256")):
        opened.go_back()
        settled(opened)
        assert (opened.input_value("#query"), opened.input_value("#budget")) == wanted
        assert opened.locator("#recall").is_visible()
    opened.go_forward()
    opened.go_forward()
    settled(opened)
    assert (opened.input_value("#query"), opened.input_value("#budget")) == ("points", "32")
    site.quiet()


@needs_chromium
@pytest.mark.parametrize("at", ["#recall?budget=-1", "#recall?budget=99999999", "#nowhere?q=cat&budget=x", "#?q=%zz"])
def test_address_that_means_nothing_opens_the_page(site: Site, at: str) -> None:
    opened = site.start().evidence().open(at)
    opened.locator("#query").wait_for()
    assert opened.input_value("#budget") == "256"
    assert opened.get_attribute("#tab-recall", "aria-selected") == "true"
    site.quiet()


# -- the slider --------------------------------------------------------------------------------------------------------


@needs_chromium
def test_slide_from_256_to_32_turns_the_decision(site: Site) -> None:
    opened = site.start(router=Router.load(WEIGHING)).evidence().open()
    ask(opened, QUESTION.question)
    unfold(opened, "decision")

    def drawn() -> dict[str, Any]:
        found: dict[str, Any] = opened.evaluate(
            """() => {
              const said = (id) => document.getElementById(id).textContent;
              return {
                action: document.getElementById('result').dataset.action, reason: said('reason'), why: said('why'),
                advantage: said('advantage'), moved: said('moved'),
                tokens: Number(said('tokens')), goal: Number(document.getElementById('bars').dataset.goal),
                line: parseFloat(getComputedStyle(document.querySelector('.track'), '::after').left),
                retain: parseFloat(document.querySelector('.retain .fill').style.width),
              };
            }"""
        )
        return found

    def goal(decided: Decision) -> Any:
        assert decided.threshold == 0.0  # the page is not asked to be safe
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
    assert after["reason"].startswith("Sentences that matter: ")
    plain = decided.reason.removeprefix("extract: ").replace("for retain", "for whole notes")
    assert after["reason"].endswith(f"{plain}.")
    assert f"+{decided.advantage:.3f}" in after["advantage"]
    assert 0 < after["tokens"] <= 32
    assert after["moved"] != before["moved"]
    assert after["why"] != before["why"]
    unfold(opened, "notes")
    assert {"◧ the marked part is in the text", "□ left out"} & set(opened.locator(".status").all_inner_texts())
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
    assert action_of(opened) == "retain"
    assert "What fits has the last word" in told(opened, "advantage")
    opened.fill("#budget", "16")
    opened.keyboard.press("Enter")
    settled(opened)
    assert action_of(opened) == "extract"
    assert "To replace them, it must pass the dashed line at 0.200" in told(opened, "advantage")
    site.quiet()


@needs_chromium
@pytest.mark.parametrize(("margin", "action"), [(None, "extract"), (0.5, "extract"), (0.25, "retain")])
def test_the_usual_choice_is_named_whether_it_is_taken_or_left(site: Site, margin: float | None, action: str) -> None:
    likes = {
        "format": 1, "name": "usual", "kind": "learned", "actions": ["retain", "extract"], "features": [],
        "weights": {"retain": [], "extract": []}, "intercepts": {"retain": 0.75, "extract": 0.25},
        "fixed": {"256": ["extract", "retain"]}, "margin": margin,
    }  # fmt: skip
    opened = site.start(router=Router.load(likes)).sample().open()
    ask(opened, QUESTION.question)
    assert action_of(opened) == action
    taken = "This is the usual choice at this budget" if action == "extract" else "The usual choice at this budget is"
    assert taken in told(opened, "advantage")
    assert "-0.500" in told(opened, "advantage").replace("−", "-")
    assert opened.locator("#bars").get_attribute("data-goal") == ""  # no line to pass
    assert ("steps aside" in told(opened, "reason")) == (margin is None)
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
    opened.locator("#of", has_text="is writing").wait_for()
    with opened.expect_event("requestfailed", lambda request: request.url.endswith("/recall")):
        opened.fill("#query", "How many points in all?")
    opened.locator("#of", has_text="the model writes it").wait_for()
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
    assert opened.inner_text("#packed") == "(no text)"
    assert opened.inner_text("#why") == "No text: the budget is zero."
    site.quiet()


@needs_chromium
def test_scope_narrows_what_is_recalled_and_a_reload_keeps_it(site: Site) -> None:
    site.start()
    site.memory.add("Ann's cat is Pixel.", user_id="ann")
    site.memory.add("Bob's cat is Bo.", user_id="bob", run_id="r1")
    opened = site.open()
    ask(opened, "Whose cat?")
    unfold(opened, "notes")
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
    (line,) = opened.locator("#packed .line").all_text_contents()
    assert line.endswith("Bob's cat is Bo.")
    site.quiet()


@needs_chromium
def test_empty_store_loads_the_sample_and_offers_questions(site: Site) -> None:
    opened = site.start().open()
    opened.get_by_role("heading", name="No notes yet").wait_for()
    opened.get_by_role("button", name="Load the sample").click()
    opened.locator(".try button").first.click()
    settled(opened)
    asked, budget = opened.input_value("#query"), int(opened.input_value("#budget"))
    assert action_of(opened) == site.memory.recall(asked, budget, user_id="robin").action
    assert len(site.memory.get_all(user_id="robin", superseded=True)) == len(sample.notes())
    opened.get_by_role("tab", name="Notes").click()
    opened.get_by_role("button", name="Show more").click()
    opened.wait_for_function("() => document.querySelectorAll('#list .note').length === 100")
    opened.get_by_role("tab", name="Recall").click()
    opened.locator("#slider").press("End")
    settled(opened)
    recalled = site.memory.recall(opened.input_value("#query"), 4096, user_id="robin")
    assert opened.locator("#packed .line").all_text_contents() == recalled.text.split("\n")  # all of it
    opened.get_by_role("tab", name="Notes").click()
    opened.wait_for_function("() => document.querySelectorAll('#list .note').length === 50")
    opened.fill("#find", "landlord")
    opened.locator("#notes-title", has_text="found").wait_for()
    assert "landlord" in opened.inner_text("#list").lower()
    site.quiet()


def wrote(_: object) -> str:
    return "🐈🐈 Quiz: 99 points at Ancoats, says “𝔐arek”. Forty more on 3 May 2031."


@needs_chromium
def test_generated_text_waits_for_release_and_its_doubtful_claims_are_marked(site: Site, tmp_path: Path) -> None:
    chat = FakeChat(wrote)
    opened = site.start(router=Router.load(LADDER), model=chat).evidence().open()
    opened.fill("#query", QUESTION.question)
    opened.locator("#result").wait_for()
    opened.fill("#budget", "64")  # typed, not left yet
    opened.locator("#of", has_text="the model writes it").wait_for()
    assert chat.asked == []
    assert action_of(opened) == "merge"
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
    assert any("no note has this" in text for text in opened.locator("#packed mark small").all_inner_texts())
    unfold(opened, "decision")
    ways = ["merged by the model", "sentences that matter", "whole notes"]
    looks = [text.removesuffix(" ›").strip() for text in opened.locator(".looks li").all_text_contents()]
    assert looks == ways
    assert opened.locator(".looks [aria-current=step]").text_content() == ways[0]
    opened.get_by_role("button", name="Try another way").click()
    opened.locator("#tried", has_text="merged by the model, then sentences that matter").wait_for()
    assert "the next way to look" in opened.inner_text("#why")
    assert opened.locator(".looks [aria-current=step]").text_content() == ways[1]
    opened.select_option("#force", "retain")
    opened.locator("#flags", has_text="you chose it").wait_for()
    assert action_of(opened) == "retain"
    opened.screenshot(path=shots(tmp_path) / "ladder.png", full_page=True)
    site.quiet()


def answers_of(opened: Page) -> tuple[str, str]:
    """The answer and what is said of it, once the model has read."""
    opened.wait_for_function("() => document.getElementById('sure').textContent.endsWith('read.')")
    return opened.inner_text("#answered"), opened.inner_text("#sure")


@needs_chromium
def test_the_model_answers_on_request_and_the_page_says_how_sure_that_is(site: Site, tmp_path: Path) -> None:
    replies = ["Marek", "<b>Zanzibar</b>", "NOT IN MEMORY"]
    chat = FakeChat(lambda ask: replies[0] if "<memory>" in ask.messages[1]["content"] else "A quiz.")
    stated = {"signals": ["stated"], "weights": [6.0], "intercept": -3.0}
    free = {"orders": [["extract", "retain"]], "features": [], "weights": [[]], "intercepts": {"64": [0.0]}}
    priced = {"0.5": free | {"stops": {"64": 0.9}, "accepts": {"64": 0.5}}}
    router = Router.load(LADDER | {"confidence": stated, "prices": priced})
    opened = site.start(router=router, model=chat).open()
    site.memory.add("The quiz was won by Marek.", timestamp="2026-05-09")
    asking = "Who won the quiz?"
    ask(opened, asking)
    assert opened.inner_text("#answered") == "", "nothing is asked before it is wanted"
    opened.get_by_role("button", name="Answer it").click()
    assert answers_of(opened) == ("Marek", "Very likely right: about 95 in 100 such answers are. 1 text read.")
    opened.screenshot(path=shots(tmp_path) / "answer.png", full_page=True)
    assert violations(opened) == []
    for budget, text, told in (
        (
            "80",
            "Not sure enough to answer.",
            "The best reply is “<b>Zanzibar</b>”. Probably wrong: about 5 in 100 such",
        ),
        ("90", "Memory does not hold the answer.", "2 texts read."),
    ):
        del replies[0]
        opened.fill("#budget", budget)
        opened.keyboard.press("Enter")
        settled(opened)
        site.memory.clear_cache()
        assert opened.inner_text("#answered") == "", "the answer to another question is forgotten"
        opened.get_by_role("button", name="Answer it").click()
        answer, sure = answers_of(opened)
        assert answer == text
        assert sure.startswith(told)
    assert [each["budget"] for each in site.seen.asked("/ask")] == [256, 80, 90]
    site.quiet()


@needs_chromium
def test_a_model_that_fails_is_one_line_and_a_server_without_one_offers_no_answer(site: Site) -> None:
    opened = site.start().evidence().open()
    ask(opened, QUESTION.question)
    assert opened.locator("#answer").is_hidden()
    gone = FakeChat([ModelUnavailableError("gone")] * 9)
    opened = site.start(model=gone, router="evidence-fit").open()
    ask(opened, QUESTION.question)
    opened.get_by_role("button", name="Answer it").click()
    opened.locator("#error", has_text="The model did not answer").wait_for()
    assert opened.inner_text("#sure") == ""


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
