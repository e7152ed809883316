"""Embedders: rows of length 1, the same everywhere, and no network."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retcon.errors import InputError, MissingExtraError
from retcon.model import Embed, HashingEmbed, WordLlamaEmbed, embedder
from retcon.words import words

ROOT = Path(__file__).resolve().parents[1]
TEXTS = [
    "I adopted a cat named Pixel.",
    "Café au lait at 7 am",
    "今日は東京で会議があります",
    "The the the THE",
    "x" * 5000,
]
needs_wordllama = pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="wordllama is not installed")


def run(code: str, **env: str) -> str:
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@given(st.lists(st.text(), max_size=6))
def test_hashing_rows_have_length_one_or_zero(texts: list[str]) -> None:
    rows = HashingEmbed()(texts)
    assert rows.shape == (len(texts), 256)
    assert rows.dtype == np.float32
    for text, row in zip(texts, rows, strict=True):
        length = float(np.linalg.norm(row.astype(np.float64)))
        assert length == pytest.approx(1, abs=1e-6) or length == 0
        assert words(text) or length == 0


@given(st.lists(st.text(), min_size=1, max_size=6))
def test_hashing_row_does_not_depend_on_its_neighbours(texts: list[str]) -> None:
    embed = HashingEmbed(64)
    assert np.array_equal(embed(texts), np.concatenate([embed([text]) for text in texts]))


def test_hashing_is_the_same_past_one_batch() -> None:
    texts = [f"note {i} about thing {i % 7}" for i in range(1030)]
    embed = HashingEmbed(16)
    assert np.array_equal(embed(texts)[1020:], embed(texts[1020:]))


def test_hashing_gives_the_same_bytes_in_every_process() -> None:
    code = (
        "from retcon.model import HashingEmbed; import hashlib\n"
        f"print(hashlib.sha256(HashingEmbed()({TEXTS!r}).tobytes()).hexdigest())"
    )
    here = hashlib.sha256(HashingEmbed()(TEXTS).tobytes()).hexdigest()
    assert {run(code, PYTHONHASHSEED=seed) for seed in ("0", "1", "4242")} == {here}


def test_hashing_bytes_are_pinned() -> None:
    """A change here changes every learned router: raise the router format when it is meant."""
    row = HashingEmbed(32)(["I adopted a cat named Pixel, and the cat purrs."])[0]
    assert {i: value for i, value in enumerate(row.tolist()) if value} == pytest.approx(
        {3: -0.419591, 4: 0.335673, 5: -0.593391, 7: 0.083918, 27: 0.419591, 28: 0.419591}, abs=1e-6
    )


def test_shared_words_bring_texts_together_and_function_words_hardly() -> None:
    a, same, other, common = HashingEmbed()(
        ["The cat is on my roof", "Cats on roofs", "Tax forms are due in April", "It is on my desk"]
    )
    assert a @ same > 0.9
    assert abs(a @ other) < 0.2
    assert a @ common < a @ same / 2


def test_inflected_and_accented_words_meet() -> None:
    a, b = HashingEmbed()(["walking to the CAFÉ", "walks to the cafe"])
    assert a @ b == pytest.approx(1, abs=1e-6)


def test_a_word_said_often_counts_less_than_proportionally() -> None:
    once, often, word = HashingEmbed()(["cat dog", "cat cat cat cat dog", "cat"])
    assert often @ word == pytest.approx(2 / np.sqrt(5), abs=1e-6)  # sqrt(4) against 1
    assert once @ word == pytest.approx(1 / np.sqrt(2), abs=1e-6)


def test_embedder_takes_a_name_an_object_or_nothing() -> None:
    own = HashingEmbed(32)
    assert embedder(own) is own
    assert embedder(None).name == embedder("hashing").name == "hashing"
    assert HashingEmbed(32).name != HashingEmbed().name
    assert isinstance(own, Embed)


@pytest.mark.parametrize("spec", ["word2vec", "", 7, object(), list])
def test_an_unknown_embedder_is_one_clear_line(spec: object) -> None:
    with pytest.raises(InputError, match="embedder") as caught:
        embedder(spec)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_hashing_needs_a_dimension() -> None:
    with pytest.raises(InputError, match="not 0"):
        HashingEmbed(0)


def test_wordllama_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(MissingExtraError, match=r"retcon-memory\[embed\]"):
        WordLlamaEmbed()


@needs_wordllama
def test_wordllama_rows_have_length_one_and_zero_without_words() -> None:
    embed = embedder("wordllama")
    rows = embed([*TEXTS, "", " ... !"])
    assert rows.shape == (len(TEXTS) + 2, embed.dim)
    assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([1.0] * len(TEXTS) + [0.0, 0.0], abs=1e-6)
    assert embed([]).shape == (0, embed.dim)


@needs_wordllama
def test_wordllama_loads_with_no_network_and_an_empty_home(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "def stop(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'): raise SystemExit(event)\n"
        "sys.addaudithook(stop)\n"
        "from retcon.model import WordLlamaEmbed\n"
        "print(WordLlamaEmbed()(['a cat']).shape)"
    )
    assert run(code, HOME=str(tmp_path)) == "(1, 256)"
    assert list(tmp_path.iterdir()) == []


def test_model_does_not_import_wordllama_before_it_is_asked_for() -> None:
    assert run("import retcon.model, sys; print('wordllama' in sys.modules)") == "False"
