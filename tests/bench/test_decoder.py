"""The decoder of bench.rivals, with a tiny random model: rows that come and go get what each gets alone."""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retcon.lab.gpu.flow import Row
from retcon.model import Ask

if TYPE_CHECKING:
    from bench.rivals.decoder import Decoder, Weights

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None,
    reason="needs torch and transformers: pip install 'retcon-memory[gpu]'",
)
POOLS = ((3, 64), (2, 512))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers with random weights; token 0 ends an answer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(3)
    config = Qwen2Config(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    for weights in model.parameters():
        weights.data *= 3  # away from the uniform distribution, so that rounding decides nothing
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def weights(folder: Path) -> Weights:
    from bench.rivals.decoder import Weights

    return Weights(str(folder), device="cpu", dtype="float32")


def decoder(weights: Weights, pools: Sequence[tuple[int, int]] = POOLS) -> Decoder:
    from bench.rivals.decoder import Decoder

    return Decoder(weights, pools)


def say(made: Decoder, rows: Sequence[Row]) -> list[list[int]]:
    from bench.rivals.decoder import say_all

    say_all(made, rows)
    return [row.said for row in rows]


def prompt(seed: int, length: int, beginning: Sequence[int] = ()) -> list[int]:
    return [*beginning, *((seed * 31 + place * place * 7 + place) % 47 + 3 for place in range(length))]


def rows() -> list[Row]:
    lengths = [(5, 20), (40, 7), (17, 46), (3, 1), (100, 30), (9, 9), (60, 90), (30, 12), (2, 25), (200, 3)]
    return [Row(i, Ask((), most), prompt(i, length)) for i, (length, most) in enumerate(lengths)]


def generate(folder: Path, asked: Sequence[Row]) -> list[list[int]]:
    """What transformers says."""
    import torch
    from transformers import Qwen2ForCausalLM

    model: Any = Qwen2ForCausalLM.from_pretrained(folder)
    out = []
    for row in asked:
        fed = torch.tensor([row.ids])
        found = model.generate(
            fed, attention_mask=torch.ones_like(fed), do_sample=False, max_new_tokens=row.ask.max_tokens
        )
        out.append(found[0, len(row.ids) :].tolist())
    return out


def test_rows_that_come_and_go_get_what_transformers_says_to_each(folder: Path, weights: Weights) -> None:
    asked = rows()
    assert say(decoder(weights), asked) == generate(folder, asked)
    assert len({len(row.said) for row in asked}) > 3  # they do end at different times


def test_a_slot_that_is_used_again_shows_nothing_of_the_row_before(weights: Weights) -> None:
    one = decoder(weights, ((1, 512),))
    together = say(one, rows())
    alone = [say(decoder(weights, ((1, 512),)), [row])[0] for row in rows()]
    assert together == alone


def test_a_beginning_that_a_slot_holds_is_copied_and_changes_nothing(folder: Path, weights: Weights) -> None:
    beginning = prompt(7, 300)
    asked = [Row(i, Ask((), 12), prompt(i, 20 + i, beginning)) for i in range(6)]
    made = decoder(weights, ((2, 400), (2, 512)))
    assert say(made, asked) == generate(folder, asked)
    assert made.copied_tokens >= 5 * 256
    assert made.read_tokens < 0.5 * sum(len(row.ids) for row in asked)


def test_rows_that_begin_alike_and_others_are_taken_in_at_once(folder: Path, weights: Weights) -> None:
    beginning = prompt(5, 300)
    made = decoder(weights, ((8, 512),))
    say(made, [Row(0, Ask((), 3), prompt(1, 10, beginning))])
    # in one pool, some are read from their beginning and some after what is copied: none ends before it was read
    mixed = [Row(i, Ask((), 6), prompt(i, 12, () if i % 2 else beginning)) for i in range(6)]
    assert say(made, mixed) == generate(folder, mixed)
    assert made.copied_tokens >= 3 * 256


def test_a_slot_without_a_row_keeps_what_it_holds(folder: Path, weights: Weights) -> None:
    beginning = prompt(9, 280)
    made = decoder(weights, ((3, 512),))
    first = [Row(0, Ask((), 2), prompt(1, 10, beginning)), Row(1, Ask((), 60), prompt(2, 30))]
    say(made, first)  # the first leaves early, and its slot stands idle while the other goes on
    later = [Row(2, Ask((), 20), prompt(3, 15, beginning))]
    assert say(made, later) == generate(folder, later)
    assert made.copied_tokens >= 256


def test_a_draw_depends_on_the_seed_and_not_on_the_company(weights: Weights) -> None:
    warm = [Row(i, Ask((), 20, 0.8, seed), prompt(1, 12)) for i, seed in enumerate((1, 2, 1))]
    found = say(decoder(weights), [*warm, *rows()])[:3]
    assert found[0] == found[2] != found[1]
    assert say(decoder(weights), [Row(0, Ask((), 20, 0.8, 2), prompt(1, 12))]) == [found[1]]


def test_a_prompt_that_fits_no_slot_is_handed_back_at_once(weights: Weights) -> None:
    asked = [Row(0, Ask((), 20), prompt(0, 500)), *rows()]
    say(decoder(weights), asked)
    assert asked[0].too_large
    assert not asked[0].said
    assert all(row.said for row in asked[1:])


def test_several_servers_ask_one_decoder_through_a_socket(folder: Path, weights: Weights, tmp_path: Path) -> None:
    from multiprocessing.connection import Client, Listener

    from bench.rivals.decoder import answer

    made = decoder(weights)
    thread = threading.Thread(target=made.run)
    thread.start()
    with Listener(str(tmp_path / "socket"), "AF_UNIX") as listener:
        clients, asked = [], rows()[:4]
        for _ in range(2):
            clients.append(Client(str(tmp_path / "socket"), "AF_UNIX"))
            threading.Thread(target=answer, args=(made, listener.accept()), daemon=True).start()
        for row in asked:
            clients[row.place % 2].send((row.place, row.ids, row.ask.max_tokens, 0.0, 0))
        found = dict(clients[row.place % 2].recv() for row in asked)
        for client in clients:
            client.close()
    made.close()
    thread.join()
    assert [found[row.place] for row in asked] == generate(folder, asked)


def test_calls_under_way_are_asked_again_of_the_next_decoder(folder: Path, tmp_path: Path) -> None:
    """The first decoder takes a call in and dies; the second, at the same socket, answers it and a new one."""
    from multiprocessing.connection import Listener

    from bench.rivals.say import DecoderSay

    save_tokenizer(folder)
    path = str(tmp_path / "socket")
    with Listener(path, "AF_UNIX") as first:
        say_it = DecoderSay(str(folder), path)
        connection = first.accept()
    found: list[Any] = []
    caller = threading.Thread(target=lambda: found.append(say_it("a b c", 4, 0.0, 0)))
    caller.start()
    with connection:  # nobody listens any more when it ends
        asked = connection.recv()
    with Listener(path, "AF_UNIX") as second, second.accept() as connection:
        assert connection.recv() == asked
        connection.send((asked[0], [5, 6, 0]))
        caller.join()
        assert [(each.generated, each.finish) for each in found] == [(3, "stop")]
        other = threading.Thread(target=lambda: found.append(say_it("c b a", 4, 0.0, 0)))
        other.start()
        connection.send((connection.recv()[0], [7]))
        other.join()
    assert found[1].finish == "length"


def test_calls_fail_once_no_decoder_comes_back(folder: Path, tmp_path: Path) -> None:
    from multiprocessing.connection import Listener

    from bench.rivals.say import DecoderSay

    save_tokenizer(folder)
    path = str(tmp_path / "socket")
    with Listener(path, "AF_UNIX") as only:
        say_it = DecoderSay(str(folder), path, patience=0.0)
        only.accept().close()
    with pytest.raises(ConnectionError, match="gone"):
        say_it("a b c", 4, 0.0, 0)


def test_a_decoder_that_stands_still_is_left(weights: Weights, capfd: pytest.CaptureFixture[str]) -> None:
    """A row is under way and no step comes, as where a kernel waits for ever."""
    from bench.rivals.decoder import watch

    made = decoder(weights)
    assert not made.stands_still(0.0)  # nothing is under way
    made._done[rows()[0]] = lambda _: None
    left: list[int] = []
    watch(made, left.append, seconds=0.01)
    assert left == [75]
    assert "stands still" in capfd.readouterr().out


def test_a_decoder_stands_still_only_while_no_step_comes(weights: Weights) -> None:
    """Rows are under way for longer than a step may take, and each step sets the time back."""
    made = decoder(weights)
    seen: list[bool] = []
    step = made.pools[0].launch

    def launch() -> None:
        seen.append(made.stands_still(60.0))
        made.last_step -= 50.0  # as if the step took so long
        seen.append(made.stands_still(60.0))
        step()

    made.pools[0].launch = launch  # type: ignore[method-assign]
    assert say(made, [Row(0, Ask((), 20), prompt(1, 5))])[0]
    assert len(seen) > 2  # several steps, of 50 s each
    assert not any(seen)
    made._done[rows()[0]] = lambda _: None
    made.last_step -= 61.0
    assert made.stands_still(60.0)


def test_a_call_that_several_decoders_ended_with_is_given_up(folder: Path, tmp_path: Path) -> None:
    from multiprocessing.connection import Listener

    from bench.rivals.say import SENT, DecoderSay

    save_tokenizer(folder)
    path = str(tmp_path / "socket")
    failed: list[Exception] = []

    def ask() -> None:
        try:
            say_it("a b c", 4, 0.0, 0)
        except ConnectionError as error:
            failed.append(error)

    with Listener(path, "AF_UNIX") as first:
        say_it = DecoderSay(str(folder), path)
        connection = first.accept()
    caller = threading.Thread(target=ask)
    caller.start()
    for _ in range(SENT - 1):
        with connection:  # nobody listens any more when it ends
            connection.recv()
        with Listener(path, "AF_UNIX") as another:
            connection = another.accept()
    with connection:
        connection.recv()
    with Listener(path, "AF_UNIX") as last, last.accept() as connection:
        caller.join()
        assert len(failed) == 1
        other = threading.Thread(target=lambda: say_it("c", 4, 0.0, 0))
        other.start()
        connection.send((connection.recv()[0], [0]))  # one that did nothing wrong is answered
        other.join()


def test_a_crowd_of_all_sizes_is_said_to_its_end(weights: Weights, capfd: pytest.CaptureFixture[str]) -> None:
    from bench.rivals.decoder import _crowd

    made = decoder(weights, ((3, 256), (2, 512)))
    _crowd(made, list(range(3, 40)), 8)
    told = re.search(r"8 rows of all sizes: ([\d,]+) tokens after ([\d,]+)", capfd.readouterr().out)
    assert told is not None
    said, read = (int(each.replace(",", "")) for each in told.groups())
    assert said >= 8  # each says something
    assert read == made.read_tokens + made.copied_tokens
    assert not made._done


def save_tokenizer(folder: Path) -> None:
    """A tokenizer of three words beside the model."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"a": 3, "b": 4, "c": 5, "?": 6}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(folder)
