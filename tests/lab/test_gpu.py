"""The transformers adapter, with a tiny random model: batches, padding and sampling change nothing about an answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_model import make_model, needs_torch

from retcon.errors import ContextTooLongError, InputError, MissingExtraError
from retcon.lab.gpu import flow, step
from retcon.lab.gpu.chat import TransformersChat
from retcon.model import Ask, Chat, Reply


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> TransformersChat:
    return TransformersChat(str(folder), dtype="float32", device="cpu")


def ask(text: str, max_tokens: int = 12, **fields: Any) -> Ask:
    return Ask(({"role": "user", "content": text},), max_tokens, **fields)


def each(model: TransformersChat, asks: list[Ask]) -> list[Reply]:
    out = []
    for found in model(asks):
        assert isinstance(found, Reply), found
        out.append(found)
    return out


ASKS = [ask("short"), ask("a much longer prompt with many words in it " * 3), ask("x", 3), ask("middle sized one", 20)]


ALIKE = [
    ask("the same notes " * 4 + tail, most) for tail, most in (("one", 5), ("two things", 9), ("x", 30), ("yes", 3))
]


@needs_torch
def test_asks_that_begin_alike_are_answered_as_alone(model: TransformersChat) -> None:
    mixed = [*ALIKE, *ASKS]
    together = each(model, mixed)
    alone = [each(model, [one])[0] for one in mixed]
    assert [(reply.text, reply.finish) for reply in together] == [(reply.text, reply.finish) for reply in alone]
    assert [reply.completion_tokens for reply in together] == [reply.completion_tokens for reply in alone]


@needs_torch
def test_what_asks_share_is_read_once(model: TransformersChat, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    forward = model._model.forward

    def counted(*args: Any, **fields: Any) -> Any:
        read.append(fields["input_ids"].numel())
        return forward(*args, **fields)

    monkeypatch.setattr(model._model, "forward", counted)
    asks = [ask("the same notes " * 8 + tail, 1) for tail in ("one", "two", "six")]
    replies = each(model, asks)
    assert sum(read) < 0.6 * sum(reply.prompt_tokens for reply in replies)


@needs_torch
def test_a_batch_gives_what_each_ask_gives_alone_in_order(model: TransformersChat) -> None:
    together = each(model, ASKS)
    alone = [each(model, [one])[0] for one in ASKS]
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert [reply.finish for reply in together] == [reply.finish for reply in alone]
    assert all(reply.completion_tokens <= one.max_tokens for reply, one in zip(together, ASKS, strict=True))
    assert isinstance(model, Chat)


@needs_torch
def test_greedy_tokens_and_logprobs_are_those_of_plain_forward_passes(model: TransformersChat) -> None:
    import torch

    (reply,) = each(model, [ask("abc", 8, logprobs=True)])
    tokenizer, net = model._tokenizer, model._model
    ids = tokenizer("user abc go", add_special_tokens=False)["input_ids"]
    assert reply.prompt_tokens == len(ids)
    logprobs = []
    with torch.inference_mode():
        for _ in range(reply.completion_tokens):
            scores = torch.log_softmax(net(torch.tensor([ids])).logits[0, -1].float(), -1)
            ids = [*ids, int(scores.argmax())]
            logprobs.append(float(scores.max()))
    assert tokenizer.decode(ids[reply.prompt_tokens :], skip_special_tokens=True) == reply.text
    assert reply.logprob == pytest.approx(sum(logprobs) / len(logprobs), abs=1e-4)
    assert each(model, [ask("abc", 8)])[0].logprob is None


@needs_torch
def test_a_cache_that_grows_past_its_room_gives_the_same_tokens(
    model: TransformersChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = [ask(text, max_tokens=40) for text in ("what", "what is it that was said before", "w")]
    roomy = [reply.text for reply in each(model, asks)]
    monkeypatch.setattr("retcon.lab.gpu.step.ROOM", 3)
    assert [reply.text for reply in each(model, asks)] == roomy
    assert max(map(len, roomy)) > 6, "no answer was long enough to outgrow the room twice"


@needs_torch
def test_a_beginning_read_in_parts_gives_the_same_tokens(
    model: TransformersChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [reply.text for some in (ASKS, ALIKE) for reply in each(model, some)]
    monkeypatch.setattr("retcon.lab.gpu.flow.READ", 80)
    monkeypatch.setattr("retcon.lab.gpu.flow.join_caches", kept := _Kept(step.join_caches))
    assert [reply.text for some in (ASKS, ALIKE) for reply in each(model, some)] == whole
    assert kept.calls, "nothing was read in parts"


class _Kept:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.call, self.calls = call, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self.call(*args)


@needs_torch
def test_a_cache_with_room_is_not_moved_at_a_step() -> None:
    import torch
    import transformers

    from retcon.lab.gpu.step import cache

    grown = cache(transformers)
    new = torch.rand(2, 1, 4, 8)
    keys, _ = grown.update(new, new, 0)
    assert torch.equal(keys, new)
    more, values = grown.update(new[..., :1, :], new[..., 1:2, :], 0)
    assert more.data_ptr() == keys.data_ptr()
    assert torch.equal(more, torch.cat([new, new[..., :1, :]], dim=2))
    assert torch.equal(values, torch.cat([new, new[..., 1:2, :]], dim=2))
    grown.batch_select_indices(torch.tensor([1]))
    last, _ = grown.update(new[:1, :, :1], new[:1, :, :1], 0)
    assert torch.equal(last, torch.cat([new[1:], new[1:, :, :1], new[:1, :, :1]], dim=2))
    assert grown.get_seq_length() == 6


@needs_torch
def test_a_sample_depends_on_its_seed_and_not_on_its_batch(model: TransformersChat) -> None:
    warm = [ask("abc", 10, temperature=1.0, seed=seed) for seed in range(4)]
    alone = [each(model, [one])[0].text for one in warm]
    assert [reply.text for reply in each(model, [*ASKS, *warm])[4:]] == alone
    assert len(set(alone)) > 1
    cold = each(model, [ask("abc", 10), ask("abc", 10, temperature=1e-6, seed=3)])
    assert cold[0].text == cold[1].text


@needs_torch
def test_samples_are_drawn_from_the_softmax(model: TransformersChat) -> None:
    import torch

    drawn = each(model, [ask("abc", 1, temperature=1.0, seed=seed) for seed in range(2000)])
    ids = model._tokenizer("user abc go", add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        wanted = torch.softmax(model._model(torch.tensor([ids])).logits[0, -1].float(), -1)
    letter = int(wanted[3:-1].argmax()) + 3
    share = sum(reply.text == model._tokenizer.decode([letter]) for reply in drawn) / len(drawn)
    assert share == pytest.approx(float(wanted[letter]), abs=0.05)  # 4 standard errors at most


@needs_torch
def test_what_is_under_way_is_bounded_by_tokens_and_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = TransformersChat(str(folder), dtype="float32", device="cpu")
    model = TransformersChat(str(folder), dtype="float32", device="cpu", batch_tokens=500, batch_rows=3)
    sizes: list[tuple[int, int]] = []
    read = flow.Flow._read

    def watched(self: flow.Flow, fed: Any, mask: Any, seen: Any) -> Any:
        sizes.append((len(mask), mask.numel()))
        return read(self, fed, mask, seen)

    asks = [*ASKS, *ALIKE] * 3
    wanted = [reply.text for reply in each(wide, asks)]
    monkeypatch.setattr(flow.Flow, "_read", watched)
    assert [reply.text for reply in each(model, asks)] == wanted
    assert all(rows == 1 or (rows <= 3 and tokens <= 500) for rows, tokens in sizes)
    assert max(rows for rows, _ in sizes) == 3


@needs_torch
def test_rows_that_end_make_room_for_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [2, 3, 40, 5, 2, 38, 4, 3, 2, 30, 4, 6, 2, 25, 3, 5]
    asks = [ask(f"question {n} of them", most) for n, most in enumerate(lengths)]
    model = TransformersChat(str(folder), dtype="float32", device="cpu", batch_rows=4)
    model._flow.ends = frozenset()  # every answer runs to its ceiling
    steps = 0
    step = flow.Flow._step

    def counted(self: flow.Flow, batch: Any) -> None:
        nonlocal steps
        steps += 1
        step(self, batch)

    monkeypatch.setattr(flow.Flow, "_step", counted)
    found = each(model, asks)
    assert [reply.completion_tokens for reply in found] == lengths
    assert steps < 80, "batches of four that wait for their longest row take 40 + 38 + 30 + 25 steps"


@needs_torch
def test_a_batch_that_does_not_fit_the_memory_begins_again_at_half_the_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    model = TransformersChat(str(folder), dtype="float32", device="cpu", batch_tokens=4096)
    wanted = [reply.text for reply in each(model, [*ASKS, *ALIKE])]
    step, most = flow.Flow._step, 3

    def small(self: flow.Flow, batch: Any) -> None:
        if len(batch.rows) > most:
            raise torch.OutOfMemoryError("no")
        step(self, batch)

    monkeypatch.setattr(flow.Flow, "_step", small)
    assert [reply.text for reply in each(model, [*ASKS, *ALIKE])] == wanted
    most = 0
    assert {type(found) for found in model(ASKS)} == {ContextTooLongError}


@needs_torch
def test_a_prompt_past_the_window_is_an_error_in_its_place(model: TransformersChat) -> None:
    good, long = model([ask("a"), ask("a" * 250)])
    assert isinstance(good, Reply)
    assert type(long) is ContextTooLongError
    assert "256" in str(long)
    assert model([]) == []


def test_a_missing_folder_or_library_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no model folder"):
        TransformersChat(str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"retcon-memory\[gpu\]"):
        TransformersChat(str(tmp_path))
