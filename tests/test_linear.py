"""Twice the text takes twice the time: every pattern of the package, and every function on the way of a note.

Patterns are found by walking the package, so a new one is tested without being named here. Each gets hostile texts of
many kinds, and each function too; functions over notes get hostile sets of notes. Time is this thread's own, so that a
busy machine cannot fail a test; it is judged only where there is enough of it to judge.

    the text -> seconds? it is stopped: what doubles with each character would not end
    once and four times the text -> more than 3 x 3 times as long?
    -> once, twice and four times, the best of 4 to 12 runs -> more than 3 times as long at the larger doubling?

The larger doubling decides: the smaller one has more in it of what is constant or linear, which hides a square.
"""

from __future__ import annotations

import ast
import gc
import importlib
import math
import pkgutil
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

import retcon
from retcon import (
    answer,
    extract,
    features,
    language,
    operate,
    pack,
    reading,
    repeats,
    timeline,
    tokens,
    validate,
    words,
)
from retcon.candidates import gather
from retcon.errors import InputError, MissingExtraError
from retcon.fidelity import check
from retcon.lab import judge
from retcon.memory import Memory
from retcon.note import Cluster, Hit, Note

ROOT = Path(retcon.__file__).parent
FLOOR = 0.02  # seconds below which nothing is judged
STEEP = 3  # times as long for twice the text
FEWEST, RUNS = 3, 12  # of what looks steep, the last only while it does
LIMIT = 10.0  # seconds after which a call is stopped

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer of processor time")

# -- hostile texts -----------------------------------------------------------------------------------------------------

RUNS_OF = (
    *".!?…,;:()[]{}\"'“”‘’«»「」-–—/\\|*#`_<>&%$~=+@^。！、1aAé猫ก\n\t \u00a0\u2028\u0301\u200d\u0f73",
    "😀", "\ud800",
)  # fmt: skip
MIXTURES = (
    "a.", "A. ", "a. ", ". . ", "?!", '."', ".)", "…”", "a,", ", ", " ,", ",;", "( ", "(a", "(a) ", ") ", "(or a",
    "(or a) ", "(AB)", "(AB)x", "1,", "1,234", "1.", "1.1 ", "1-", "1/", "1:", "12:34 ", "T12:34", " T12:34:56",
    "2026-05-09 ", "5/9/2026,", "May 5 ", "May 5-7, ", "5th of May ", "5 pm ", "5p.m.", "half past five ",
    "last week ", "two weeks ago ", "one hundred and ", "three and a half ", "5k ", "$5 ", "£5 million ", "12B ", "①",
    "½ ", "20 miles ", "yes no ", "yes, ", "no. ", "yes or ", "not a ", "not ", "isn't ", "never said ", "Aa ",
    "Aa of ", "Dr Aa ", "NASA ", "'a", "a' ", "\"a' ", '"a" ', "“‘", "‘a", "‘ ", "«", "「", "''", "a'b'", "̖́", "á̖",
    "ཱིͅ", "é", "が", "각", "ﷺ", "ก่", "\U0001f469\u200d", "🇩🇪", " - ", " -", "- ", "a-", "--", "\r\n", "\n\n", " \n",
    "\t ", "a\t", "\x00", "<note ", "< / ", "</", "[inst", "[/", "<|", "```\n", "## ", "# ", "**note: ", "note:",
    "<metadata>", 'viewBox="', 'id="', "url(#", "which or ", "which ", "what time ", "what day do ", "how many a ",
    "how long ", "last ", "is also acceptable. ", "is acceptable. ", "total of ", "from 3 to ", "between a and ",
    "first, ", "unknown ", "no answer", "not mentioned ", "i do not know ", "most likely ", "once ", "none", "twice ",
    ",)",
)  # fmt: skip


def letters(number: int) -> str:
    """A word of its own for each number, with no digit in it."""
    return "w" + "".join(chr(97 + int(digit)) for digit in str(number))


def every(form: str, size: int) -> str:
    """The form with another word each time, until the text is that long."""
    times = size // (len(form) + 4) + 1
    return "".join(form.replace("@", letters(n)) for n in range(times))[:size]


HOSTILE: dict[str, Callable[[int], str]] = {
    **{f"run of {c!a}": partial(lambda c, n: f"cat {c * n}x", c) for c in RUNS_OF},
    **{f"many {c!a}": partial(lambda c, n: c * (n // len(c) + 1), c) for c in MIXTURES},
    **{f"each {form!a}": partial(every, form) for form in ("@ ", "@. ", "Not @ ", "X@ ", "'@' ", "@, ", "(or @) ")},
}

# -- how time grows ----------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A call took more than the limit."""


def stop(number: int, frame: FrameType | None) -> None:
    raise TooLong


@pytest.fixture(autouse=True)
def stopped_at_the_limit() -> Iterator[None]:
    """The timer's signal ends a call; a match of the re module looks for signals, too."""
    before = signal.signal(signal.SIGPROF, stop)
    yield
    signal.signal(signal.SIGPROF, before)


def seconds(call: Callable[[], object]) -> float:
    reading.forget()
    gc.disable()  # what it has to go through is not this call's
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        start = time.thread_time()
        call()
        return time.thread_time() - start
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()


def growth(work: Callable[[Any], object], given: Callable[[int, int], Any], size: int, floor: float = FLOOR) -> str:
    """Nothing where the time grows with the size, or what it took; `given` makes the argument of a size and a run."""
    try:
        return steepness(work, given, size, floor)
    except TooLong:
        return f"more than {LIMIT:g} s at a size of {size}"


def steepness(work: Callable[[Any], object], given: Callable[[int, int], Any], size: int, floor: float) -> str:
    whole = seconds(partial(work, given(size, 0)))
    if whole < floor or whole < STEEP * STEEP * seconds(partial(work, given(size // 4, 0))):
        return ""
    few, some, many = math.inf, math.inf, math.inf
    for run in range(RUNS):  # the least of them: what else the machine does only adds
        few, some, many = (
            min(least, seconds(partial(work, given(part, run))))
            for least, part in ((few, size // 4), (some, size // 2), (many, size))
        )
        if run >= FEWEST and not (many > floor and many > STEEP * some):
            return ""
    return f"{few:.4f}, {some:.4f}, {many:.4f} s"


def as_text(kind: Callable[[int], str], size: int, run: int) -> str:
    """The hostile text, a little another at each run: a cache must not answer."""
    return kind(size) + "xyzuvwpqrstm"[:run]


def steep(work: Callable[[str], object], size: int) -> dict[str, str]:
    """The kinds of hostile text on which the work is not linear."""
    found = {name: growth(work, partial(as_text, kind), size) for name, kind in HOSTILE.items()}
    return {name: took for name, took in found.items() if took}


# -- every pattern -----------------------------------------------------------------------------------------------------


def modules() -> Iterator[ModuleType]:
    """The modules of the package, less those whose optional part is not installed."""
    for found in pkgutil.walk_packages(retcon.__path__, "retcon."):
        if not found.name.endswith("__main__"):
            try:
                yield importlib.import_module(found.name)
            except (ImportError, MissingExtraError):
                continue


def patterns_in(name: str, value: object, seen: set[int]) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The patterns that a value is or holds, however deep."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inner: dict[Any, object] = {}
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield name, value
    elif isinstance(value, dict):
        inner = dict(value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = dict(enumerate(value))
    elif isinstance(value, type):
        inner = dict(vars(value)) if value.__module__.startswith("retcon") else {}
    elif is_dataclass(value):
        inner = {field.name: getattr(value, field.name) for field in fields(value)}
    for key, each in inner.items():
        yield from patterns_in(f"{name}.{key}", each, seen)


def find_patterns() -> dict[str, re.Pattern[str]]:
    """Every pattern of the package by where it stands; those compiled at first use are compiled here."""
    seen: set[int] = set()
    out: dict[str, re.Pattern[str]] = {}
    for module in modules():
        for name, value in list(vars(module).items()):
            if not (name.startswith("__") or isinstance(value, ModuleType)):
                out.update(patterns_in(f"{module.__name__}.{name}", value, seen))
    late = {name: tokens._compile(getattr(tokens, name)) for name in _late()}
    return out | {f"retcon.tokens.{name}": pattern for name, pattern in late.items()}


def _late() -> list[str]:
    tree = ast.parse((ROOT / "tokens.py").read_text("utf-8"))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "_compile"]
    return [call.args[0].id for call in calls if isinstance(call.args[0], ast.Name)]


def exercise(pattern: re.Pattern[str], text: str) -> None:
    pattern.search(text)
    pattern.match(text)
    pattern.fullmatch(text)
    pattern.split(text)
    pattern.sub("", text)
    for _ in pattern.finditer(text):
        pass


PATTERNS = find_patterns()


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern_is_linear(name: str) -> None:
    assert steep(partial(exercise, PATTERNS[name]), 4_000) == {}


def test_the_walk_finds_patterns_wherever_they_stand() -> None:
    for name in ("words._END", "tokens._WHOLE", "worth.KINDS.0.asked", "lab.judge._SPELLED.3.0", "tokens._UNIT"):
        assert f"retcon.{name}" in PATTERNS
    assert len(PATTERNS) > 90


SQUARE = {
    r"[,;:)]+\s+": ("run of ','", 2_000),
    r"[.!?…]+[\"'”’)\]]*(?=\s|$)": ("run of '.'", 1_000),
    r"\s*\(or ([^()]+)\)": ("run of ' '", 4_000),
    r".*\byes\W*\Z": ("run of 'a'", 2_400),
    r"<metadata>.*?</metadata>": ("many '<metadata>'", 8_000),
}


@pytest.mark.parametrize("square", SQUARE)
def test_a_quadratic_pattern_is_caught(square: str) -> None:
    kind, size = SQUARE[square]
    assert growth(partial(exercise, re.compile(square)), partial(as_text, HOSTILE[kind]), size)


def test_an_exponential_pattern_is_caught_before_it_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_linear.LIMIT", 0.5)
    assert "more than 0.5 s" in growth(
        partial(exercise, re.compile(r"a(?:'(?:[a-z]++|\w)+)*")), partial(as_text, HOSTILE["many \"a'b'\""]), 4_000
    )


def test_a_quadratic_function_is_caught() -> None:
    def pairs(text: str) -> int:
        found = text.split()
        return sum(a < b for a in found for b in found)

    assert growth(pairs, partial(as_text, HOSTILE["each '@ '"]), 8_000)


def calls_of_re(node: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """The function it stands in ("" at module level) and the name of each call of the re module."""
    assert not (isinstance(node, ast.ImportFrom) and node.module == "re")
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") == "re":
        yield function, called.attr
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        function = getattr(node, "name", "lambda")
    for inner in ast.iter_child_nodes(node):
        yield from calls_of_re(inner, function)


def test_patterns_are_constants() -> None:
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}
    calls = [(name, *call) for name, tree in trees.items() for call in calls_of_re(tree)]
    assert [call for call in calls if call[2] not in ("compile", "escape")] == []
    # called at module level, with the cues of a table, with names of the module: `compiled` finds all of theirs
    makers = {("worth.py", "_kind"), ("features.py", "cue_pattern"), ("tokens.py", "_compile")}
    assert {call[:2] for call in calls if call[1] and call[2] == "compile"} == makers
    assert set(_late()) == {"_RUN", "_UNIT", "_WHOLE"}


# -- every function of text --------------------------------------------------------------------------------------------

ESTIMATE, ALPHANUMERIC = tokens.counter(None), tokens.counter("alphanumeric")
NOTES = (Note("n1", "Ann paid Dr Lam £124.50 for the cat on 9 May 2026, not 5 pm.", timestamp="2026-05-09T14:30"),)


def whole(text: str) -> Note:
    return Note("n", text, speaker="ann", timestamp="2026-05-09")


def cluster(*texts: str, query: str = "How many times did Ann see the cat, and when?") -> Cluster:
    return Cluster(query, tuple(Hit(whole(text), 1.0, rank) for rank, text in enumerate(texts, 1)))


def recall_text(text: str) -> None:
    with Memory(":memory:") as memory:
        memory.add(text.encode("utf-8", "replace").decode() + " cat")
        memory.recall("where is the cat?", 64)


def ask_text(text: str) -> None:
    with Memory(":memory:") as memory:
        memory.add(["the cat sat", "the dog ran"])
        memory.recall(text, 64)
        memory.search(text)


def judge_reply(question: str = "How many days?", gold: str = "7 days (or 8), in May (AB)", reply: str = "7") -> None:
    for type_ in ("multi-session", "temporal"):
        case = judge.Submission(question, gold, reply, type_)
        judge.prompt(case)
        for score in judge.DETERMINISTIC.values():
            score(case)


def read_time(text: str) -> None:
    with suppress(InputError):
        validate.timestamp(text)


CHEAP: dict[str, Callable[[str], object]] = {
    "words": words.words,
    "stems": words.stems,
    "German stems": language.language("german").stems,
    "Japanese stems": language.language("japanese").stems,
    "sentences": words.sentences,
    "estimate": ESTIMATE,
    "alphanumeric": ALPHANUMERIC,
    "bpe": lambda text: tokens.counter("bpe")(text),
    "cut": lambda text: tokens.cut(text, len(text) // 8, ESTIMATE),
    "cut to little": lambda text: tokens.cut(text, 64, ALPHANUMERIC),
    "pack_text": lambda text: pack.pack_text(text, 64, ESTIMATE),
    "render": lambda text: pack.render(whole(text)),
    "as_data": operate.as_data,
    "cleaned": operate.clean_reply,
    "tagged": lambda text: operate.tag(whole(text)),
    "abstains": answer.abstains,
    "query type": features.query_type,
    "validate": lambda text: validate.draft({"role": "user", "content": text, "metadata": {"a": text}}),
    "timestamp": read_time,
}
DEAR: dict[str, Callable[[str], object]] = {
    "extract": lambda text: extract.extract(cluster(text), 64, count=ESTIMATE),
    "extract to half": lambda text: extract.extract(cluster(text, text[::-1]), len(text) // 8, count=ESTIMATE),
    "query of extract": lambda text: extract.extract(cluster(text, query=text), 64, count=ESTIMATE),
    "retain": lambda text: pack.retain(cluster(text, "cat"), len(text), count=ESTIMATE),
    "mark_duplicates": lambda text: repeats.mark_duplicates(cluster(text, text + " cat", text[1:]).hits),
    "record": lambda text: check(text, NOTES, query="What did Ann pay?"),
    "source": lambda text: check("Ann paid £124.50 on 9 May, not 5 pm.", [whole(text)], query="What did Ann pay?"),
    "both": lambda text: check(text, [whole(text)], query=text),
    "other of both": lambda text: check(text.replace("ot ", ""), [whole(text)]),
    "reply judged": lambda text: judge_reply(reply=text),
    "gold judged": lambda text: judge_reply(gold=text),
    "question judged": lambda text: judge_reply(question=text),
    "recall": recall_text,
    "query": ask_text,
}


@pytest.mark.parametrize("name", CHEAP)
def test_text_function_is_linear(name: str) -> None:
    assert steep(CHEAP[name], 8_000) == {}


@pytest.mark.parametrize("name", DEAR)
def test_function_of_a_note_is_linear(name: str) -> None:
    assert steep(DEAR[name], 2_000) == {}


# -- every function of many notes --------------------------------------------------------------------------------------

COMMON = sorted(repeats._EMPTY_WORDS)
NOTE_KINDS: dict[str, Callable[[int], str]] = {
    "words of their own": lambda n: "cat " + " ".join(letters(20 * n + i) for i in range(20)),
    "few words": lambda n: "cat " + " ".join(letters(n * n * i % 47) for i in range(1, 13)),
    "one text": lambda n: "The cat sat on the mat and ate the fish of the dog.",
    "another number": lambda n: f"I paid {n} dollars for lunch at the cafe with the cat.",
    "another word": lambda n: f"I met {letters(n)} at the cafe today and we talked about the cat.",
    "common words": lambda n: "cat " + " ".join(COMMON[(n * n * i + n) % len(COMMON)] for i in range(1, 13)),
    "short and long": lambda n: "cat" if n % 2 else "cat " + " ".join(letters(20 * n + i) for i in range(20)),
}


def candidates(kind: Callable[[int], str], size: int, run: int) -> Cluster:
    """So many notes that follow each other."""
    notes = (
        Note(f"n{n}", kind(n + run), speaker="ann", timestamp=f"2026-05-{n % 28 + 1:02}", follows=f"n{n - 1}")
        for n in range(size)
    )
    return Cluster("Where did Ann see the cat?", tuple(Hit(note, 1 / (n + 1), n + 1) for n, note in enumerate(notes)))


def mark_cluster(given: Cluster) -> Cluster:
    return Cluster(given.query, repeats.mark_duplicates(given.hits))


def build_cluster(given: Cluster) -> None:
    gather(given.query, given.hits, count=ESTIMATE, cap=8 * len(given.hits))


def check_half(given: Cluster) -> None:
    half = len(given.hits) // 2
    check(" ".join(note.text for note in given.notes[:half]), given.notes[half:], query=given.query)


def recall_from(given: Cluster) -> None:
    with Memory(":memory:", top_k=len(given.hits), cap=1_000_000) as memory:
        memory.add([{"text": note.text, "speaker": "ann"} for note in given.notes])
        for action in ("retain", "extract"):
            memory.recall(given.query, 10 * len(given.hits), action=action)


OVER_NOTES: dict[str, tuple[Callable[[Cluster], object], int]] = {
    "mark_duplicates": (mark_cluster, 1600),
    "cluster": (build_cluster, 1600),
    "extract": (lambda given: extract.extract(given, 10 * len(given.hits), count=ESTIMATE), 800),
    "retain": (lambda given: pack.retain(mark_cluster(given), 10 * len(given.hits), count=ESTIMATE), 800),
    "retain the cheapest": (
        lambda given: pack.retain(given, 10 * len(given.hits), count=ESTIMATE, order="cheapest"), 800
    ),
    "order": (lambda given: timeline.order(given.hits), 3200),
    "check": (check_half, 400),
    "recall": (recall_from, 800),
}  # fmt: skip


@pytest.mark.parametrize("name", OVER_NOTES)
def test_function_of_many_notes_is_linear_in_them(name: str) -> None:
    work, size = OVER_NOTES[name]
    found = {about: growth(work, partial(candidates, kind), size) for about, kind in NOTE_KINDS.items()}
    assert {about: took for about, took in found.items() if took} == {}


def test_spread_is_linear_in_notes() -> None:
    def vectors(size: int, run: int) -> Sequence[Sequence[float]]:
        return [[float((n + run) % 7)] * 64 for n in range(size)]

    assert growth(features.spread, vectors, 3200) == ""
