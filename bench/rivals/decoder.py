"""Rows of tokens -> what a model of the Qwen2 or Llama family says to each, at a few milliseconds a token.

    python -m bench.rivals.decoder --model FOLDER --socket PATH    serves bench.rivals.server, several of them at once
    python -m bench.rivals.decoder --model FOLDER --check          against transformers' generate, then tokens a second
    python -m bench.rivals.decoder ... --no-graphs                 every step is launched anew: slower, nothing recorded

A rival asks, waits and asks again, so what counts is the time of one token with some dozens of rows under way. There
transformers spends most of it in Python. Here every row has a slot in a cache that never moves, one step over all slots
is recorded once as a CUDA graph and then replayed, and rows come and go without touching their neighbours. Slots are of
a few sizes (`POOLS`), so that short rows do not pay for long ones. A prompt that begins like one whose slot still holds
it copies that part instead of reading it. Greedy, or by a seed, with the draws of `retcon.lab.gpu.flow`.

A process whose GPU stands still ends itself (`watch`), so that whoever started it can start another: servers ask again.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import groupby
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retcon.lab.gpu.flow import Row, _add_noise
from retcon.model.base import Ask

# slots, and tokens of each: 81 GB of a 1.5B
POOLS = ((256, 1024), (192, 2048), (112, 4096), (96, 8192), (48, 16_384), (4, 32_768))
ROWS = (8, 16, 32, 48, 64, 96, 128, 192, 256)  # a step is recorded for so many slots
EVERY = 4  # tokens between two readings of prompts that have arrived
READ = 24_576  # tokens of prompts that are read between two tokens
LOOKED_AT = 131_072  # tokens of what came before that are laid out at once for it
PATIENCE = 60  # seconds
STILL = 30.0  # seconds without a step, with rows under way, after which the GPU is taken to stand still
ALIKE, GRAIN = 256, 64  # a beginning is copied from so many tokens on, in multiples of so many

Ids = NDArray[np.int64]
Held = tuple[bytes, Ids]  # a prompt's beginning, and all of it


class Weights:
    """The tensors of a model, those that are multiplied with the same input side by side; and its forward pass."""

    def __init__(self, folder: str, *, device: str | None = None, dtype: str = "bfloat16") -> None:
        import torch
        import transformers

        self.torch = torch
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=getattr(torch, dtype)
        )
        config: Any = model.config
        self.heads, self.shared = config.num_attention_heads, config.num_key_value_heads
        self.size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.window, self.eps = int(config.max_position_embeddings), config.rms_norm_eps
        self.dtype = getattr(torch, dtype)
        with torch.inference_mode():
            body = model.model.to(self.device)
            self.embed, self.norm = body.embed_tokens.weight, body.norm.weight
            self.head = model.lm_head.to(self.device).weight
            self.layers = [_layer(torch, each) for each in body.layers]
            places = torch.arange(self.window, device=self.device)[None]
            cos, sin = body.rotary_emb(self.embed[:1, None], places)
            self.cos, self.sin = cos[0], sin[0]
        given = model.generation_config.eos_token_id
        listed = given if isinstance(given, list) else [given]
        self.ends = frozenset(int(each) for each in listed if each is not None)

    def read(self, fed: Any, places: Any, attend: Callable[[int, Any, Any, Any], Any]) -> Any:
        """(rows, tokens, hidden): what the model makes of the tokens; `attend` keeps keys and values, and looks."""
        torch, functional = self.torch, self.torch.nn.functional
        rows, tokens = fed.shape
        x = self.embed[fed]
        cos, sin = self.cos[places][:, :, None], self.sin[places][:, :, None]
        turned = self.heads + self.shared
        for number, (before, qkv, bias, out, out_bias, after, up, down) in enumerate(self.layers):
            made = functional.linear(self._normal(x, before), qkv, bias).view(rows, tokens, -1, self.size)
            both = made[:, :, :turned]
            half = both.shape[-1] // 2
            both = both * cos + torch.cat([-both[..., half:], both[..., :half]], dim=-1) * sin
            seen = attend(number, both[:, :, : self.heads], both[:, :, self.heads :], made[:, :, turned:])
            x = x + functional.linear(seen.reshape(rows, tokens, -1), out, out_bias)
            gate, value = functional.linear(self._normal(x, after), up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * value, down)
        return x

    def score(self, x: Any) -> Any:
        """(rows, vocabulary) of (rows, hidden)."""
        return self.torch.nn.functional.linear(self._normal(x, self.norm), self.head)

    def _normal(self, x: Any, weight: Any) -> Any:
        return self.torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, self.eps)


def _layer(torch: Any, layer: Any) -> tuple[Any, ...]:
    at, mlp = layer.self_attn, layer.mlp
    parts = (at.q_proj, at.k_proj, at.v_proj)
    bias = None if at.q_proj.bias is None else torch.cat([each.bias for each in parts])
    return (
        layer.input_layernorm.weight, torch.cat([each.weight for each in parts]), bias, at.o_proj.weight,
        at.o_proj.bias, layer.post_attention_layernorm.weight, torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        mlp.down_proj.weight,
    )  # fmt: skip


class Pool:
    """Slots of one size: what was read and said in each, and the recorded step over the first so many of them."""

    def __init__(self, weights: Weights, slots: int, length: int, *, record: bool = True) -> None:
        torch = weights.torch
        self.weights, self.slots, self.length = weights, slots, length
        shape = (len(weights.layers), slots, weights.shared, length, weights.size)
        self.keys = torch.zeros(shape, dtype=weights.dtype, device=weights.device)
        self.values = torch.zeros_like(self.keys)
        self.rows: list[Row | None] = [None] * slots
        self.held: list[Held | None] = [None] * slots  # prompts that slots hold, also of rows that have ended
        self._fed = torch.zeros((2, slots), dtype=torch.long, device=weights.device)  # tokens and places
        self._chosen = torch.zeros(slots, dtype=torch.long, device=weights.device)
        self._scores = torch.zeros((slots, len(weights.head)), dtype=weights.dtype, device=weights.device)
        self._graphs: dict[tuple[int, int], Any] = {}
        self.can_record = record and weights.device.startswith("cuda")
        self._memory = torch.cuda.graph_pool_handle() if self.can_record else None
        self.steps = 0

    @property
    def under_way(self) -> list[int]:
        """Slots whose row goes on."""
        return [slot for slot, row in enumerate(self.rows) if row is not None]

    def free(self) -> int | None:
        """The first slot without a row."""
        return next((slot for slot, row in enumerate(self.rows) if row is None), None)

    # -- reading prompts -----------------------------------------------------------------------------------------------

    def copy(self, pool: Pool, source: int, slot: int, tokens: int) -> None:
        """Begin a slot with what another holds."""
        if (pool, source) != (self, slot):
            for mine, other in ((self.keys, pool.keys), (self.values, pool.values)):
                mine[:, slot, :, :tokens] = other[:, source, :, :tokens]

    def begin(self, slots: Sequence[int], start: int) -> None:
        """Read the prompts of the rows in the slots, of which `start` tokens are there, and say the first token."""
        torch, weights = self.weights.torch, self.weights
        rows = [row for slot in slots if (row := self.rows[slot]) is not None]
        wide = max(len(row.ids) for row in rows) - start
        wide = min(-(-wide // 8) * 8, self.length - start)
        fed = torch.zeros((len(rows), wide), dtype=torch.long)
        for i, row in enumerate(rows):
            fed[i, : len(row.ids) - start] = torch.tensor(row.ids[start:])
        at = torch.tensor(list(slots), device=weights.device)
        places = torch.arange(start, start + wide, device=weights.device).expand(len(rows), -1)
        x = weights.read(fed.to(weights.device), places, self._look_back(at, start, wide))
        last = torch.tensor([len(row.ids) - start - 1 for row in rows], device=weights.device)
        scores = weights.score(x[torch.arange(len(rows), device=weights.device), last])
        for row, token in zip(rows, choose(torch, scores, rows), strict=True):
            row.said.append(token)
        for slot, row in zip(slots, rows, strict=True):
            self.held[slot] = hold(row.ids)

    def _look_back(self, at: Any, start: int, wide: int) -> Callable[[int, Any, Any, Any], Any]:
        """Attention of tokens to those before them, and in the slots to what was there before all of them."""
        torch, group = self.weights.torch, self.weights.heads // self.weights.shared
        attend = torch.nn.functional.scaled_dot_product_attention
        mask = None
        if start:
            mask = torch.full((wide, start + wide), float("-inf"), dtype=self.weights.dtype, device=at.device)
            mask = mask.triu(start + 1)

        def look(number: int, query: Any, key: Any, value: Any) -> Any:
            query, key, value = (each.transpose(1, 2) for each in (query, key, value))
            self.keys[number][at, :, start : start + wide] = key
            self.values[number][at, :, start : start + wide] = value
            if start:
                key, value = (each[number][at, :, : start + wide] for each in (self.keys, self.values))
            key, value = (each.repeat_interleave(group, dim=1) for each in (key, value))
            return attend(query, key, value, attn_mask=mask, is_causal=mask is None).transpose(1, 2)

        return look

    # -- one token more ------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start one step of all rows under way.

        Steps of all pools are on one stream. Graphs that are recorded one after the other share the workspace of
        cuBLAS (pytorch#193402): replayed beside each other, they may wait for ever.
        """
        slots = self.under_way
        rows = [self.rows[slot] for slot in slots]
        # a slot without a row writes to its last place, which no row uses: what it holds stays whole
        fed = np.zeros((2, self.slots), np.int64)
        fed[1] = self.length - 1
        fed[0, slots] = [row.said[-1] for row in rows if row is not None]
        fed[1, slots] = [len(row.ids) + len(row.said) - 1 for row in rows if row is not None]
        wide = next((each for each in ROWS if each > slots[-1]), self.slots)
        reach = int(fed[1, slots].max()) + 1
        long = next(each for each in _lengths(self.length) if each >= reach)
        self.steps += 1
        self._fed.copy_(self.weights.torch.from_numpy(fed))
        self._run(min(wide, self.slots), long)

    def collect(self) -> None:
        """Write down what the step said."""
        torch = self.weights.torch
        slots = self.under_way
        rows = [row for slot in slots if (row := self.rows[slot]) is not None]
        chosen = self._chosen.tolist()
        warm = [slot for slot, row in zip(slots, rows, strict=True) if row.ask.temperature > 0]
        if warm:
            drawn = choose(torch, self._scores[warm], [row for row in rows if row.ask.temperature > 0])
            for slot, token in zip(warm, drawn, strict=True):
                chosen[slot] = token
        for slot, row in zip(slots, rows, strict=True):
            row.said.append(chosen[slot])

    def _run(self, wide: int, long: int) -> None:
        if not self.can_record:
            self._step(wide, long)
            return
        graph = self._graphs.get((wide, long))
        if graph is None:
            graph = self._graphs[wide, long] = self._record(wide, long)
        if graph is not None:
            graph.replay()

    def _record(self, wide: int, long: int) -> Any:
        """The step as a graph, once it was run; None where it cannot be recorded, and no other is then."""
        torch, began = self.weights.torch, time.monotonic()
        try:
            self._step(wide, long)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._memory):
                self._step(wide, long)
        except Exception as error:
            print(f"no graph of {wide} rows and {long} tokens: {type(error).__name__}: {error}", flush=True)
            torch.cuda.synchronize()
            self.can_record = False
            self._step(wide, long)
            return None
        print(f"recorded {wide} rows, {long} tokens in {time.monotonic() - began:.2f} s", flush=True)
        return graph

    def _step(self, wide: int, long: int) -> None:
        torch, weights = self.weights.torch, self.weights
        tokens, places = self._fed[0, :wide], self._fed[1, :wide]
        at, group = torch.arange(wide, device=weights.device), weights.heads // weights.shared
        hidden = torch.arange(long, device=weights.device)[None] > places[:, None]
        mask = torch.zeros((wide, long), dtype=weights.dtype, device=weights.device)
        mask = mask.masked_fill_(hidden, float("-inf"))[:, None, None].expand(-1, weights.shared, group, -1)

        def look(number: int, query: Any, key: Any, value: Any) -> Any:
            keys, values = self.keys[number], self.values[number]
            keys[at, :, places], values[at, :, places] = key[:, 0], value[:, 0]
            # heads that share a key stand where tokens do: one token looks at all before it
            grouped = query.reshape(wide, weights.shared, group, weights.size)
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(grouped, keys[:wide, :, :long], values[:wide, :, :long], attn_mask=mask)

        scores = weights.score(weights.read(tokens[:, None], places[:, None], look)[:, 0])
        self._scores[:wide] = scores
        self._chosen[:wide] = scores.argmax(dim=1)


def choose(torch: Any, scores: Any, rows: Sequence[Row]) -> list[int]:
    """The next token of every row."""
    found: list[int] = _add_noise(torch, scores.float(), rows).argmax(dim=1).tolist()
    return found


def hold(ids: Sequence[int]) -> Held:
    """A prompt, and the beginning that it is found by."""
    whole = np.array(ids)
    return whole[:ALIKE].tobytes(), whole


def _lengths(length: int) -> tuple[int, ...]:
    return tuple(length * part // 4 for part in range(1, 5))


def common(one: Ids, other: Ids) -> int:
    """How many tokens two prompts have in common at the beginning."""
    short = min(len(one), len(other))
    differ = one[:short] != other[:short]
    return int(differ.argmax()) if differ.any() else short


class Decoder:
    """Says rows as they arrive. `run` goes on until `close`, in whatever thread calls it; `say` is for any thread."""

    def __init__(self, weights: Weights, pools: Sequence[tuple[int, int]] = POOLS, *, record: bool = True) -> None:
        self.weights, self.ends = weights, weights.ends
        fitting = [(slots, min(length, weights.window)) for slots, length in pools]
        self.pools = [Pool(weights, *each, record=record) for each in dict.fromkeys(fitting)]
        self._arrived: queue.SimpleQueue[tuple[Row, Callable[[Row], None]] | None] = queue.SimpleQueue()
        self._done: dict[Row, Callable[[Row], None]] = {}
        self._waiting: deque[Row] = deque()
        self.read_tokens, self.copied_tokens = 0, 0
        self.last_step = time.monotonic()

    @property
    def longest(self) -> int:
        """Tokens of a prompt with its answer that still fit; the last place of a slot stays free."""
        return max(pool.length for pool in self.pools) - 1

    def say(self, row: Row, done: Callable[[Row], None]) -> None:
        """Begin a row once there is room; `done` is called when it has ended."""
        self._arrived.put((row, done))

    def close(self) -> None:
        """End once every row has ended."""
        self._arrived.put(None)

    def run(self) -> None:
        """Say rows until told to stop."""
        going, since = True, 0
        with self.weights.torch.inference_mode(), _attention(self.weights):
            while going or self._waiting or self._done:
                going = self._take(idle=not self._done) and going
                busy = [pool for pool in self.pools if any(pool.rows)]
                if self._waiting and (since >= EVERY or not busy):
                    self._admit()
                    since = 0
                    busy = [pool for pool in self.pools if any(pool.rows)]
                for pool in busy:
                    pool.launch()
                for pool in busy:
                    pool.collect()
                    self._release(pool)
                self.last_step = time.monotonic()
                since += 1

    def stands_still(self, seconds: float = STILL) -> bool:
        """Whether rows are under way and none of them got a token for so long."""
        return bool(self._done) and time.monotonic() - self.last_step > seconds

    def _take(self, *, idle: bool) -> bool:
        while True:
            try:
                found = self._arrived.get(block=idle)
            except queue.Empty:
                return True
            if found is None:
                return False
            row, done = found
            if not self._done:
                self.last_step = time.monotonic()
            self._done[row] = done
            if len(row.ids) + row.ask.max_tokens > self.longest or not row.ids:
                row.too_large = True
                self._done.pop(row)(row)
            else:
                self._waiting.append(row)
            idle = idle and not self._done

    def _has_ended(self, row: Row) -> bool:
        return len(row.said) >= row.ask.max_tokens or row.said[-1] in self.ends

    def _release(self, pool: Pool) -> None:
        """Hand back the rows that have ended; one that is yet to be read has said nothing."""
        for slot in pool.under_way:
            row = pool.rows[slot]
            if row is not None and row.said and self._has_ended(row):
                pool.rows[slot] = None
                self._done.pop(row)(row)

    def _admit(self) -> None:
        """Give slots to rows that wait, as many as are read at once, and read their prompts."""
        later: list[Row] = []
        found: list[tuple[int, int, int]] = []  # pool, tokens that are there, slot
        leaders: set[bytes] = set()
        free = [pool.free() for pool in self.pools]
        room = READ
        while self._waiting and room > 0:
            row = self._waiting.popleft()
            number = next(i for i, p in enumerate(self.pools) if len(row.ids) + row.ask.max_tokens < p.length)
            if (slot := free[number]) is None:
                later.append(row)
                continue
            held = hold(row.ids)
            donor = self._find_alike(held) if len(row.ids) > ALIKE else None
            if donor is None and len(row.ids) > ALIKE and held[0] in leaders:
                later.append(row)  # until the one that begins alike is read
                continue
            leaders.add(held[0])
            pool, start = self.pools[number], 0
            if donor is not None:
                start = donor[2]
                pool.copy(self.pools[donor[0]], donor[1], slot, start)
            pool.rows[slot], pool.held[slot] = row, None
            free[number] = pool.free()
            found.append((number, start, slot))
            room -= len(row.ids) - start
            self.read_tokens, self.copied_tokens = self.read_tokens + len(row.ids) - start, self.copied_tokens + start
        self._waiting.extendleft(reversed(later))
        self._begin(found)

    def _begin(self, found: list[tuple[int, int, int]]) -> None:
        for (number, start), some in groupby(sorted(found), key=lambda each: each[:2]):
            pool = self.pools[number]

            def size(slot: int, pool: Pool = pool) -> int:
                row = pool.rows[slot]
                return len(row.ids) if row is not None else 0

            slots = sorted((slot for _, _, slot in some), key=size)
            for part in _parts([size(slot) for slot in slots], start):
                self._patiently(lambda: pool.begin(slots[part], start))  # noqa: B023
            self._release(pool)

    def _patiently(self, work: Callable[[], None]) -> None:
        """Do it; where the memory does not suffice because of other processes, wait for them a while."""
        torch = self.weights.torch
        for _ in range(PATIENCE):
            try:
                work()
            except torch.OutOfMemoryError as error:
                print(f"waiting for memory: {error}", flush=True)
            else:
                return
            torch.cuda.empty_cache()
            time.sleep(1)
            self.last_step = time.monotonic()  # it waits for others, and does not stand still
        work()

    def _find_alike(self, wanted: Held) -> tuple[int, int, int] | None:
        """Pool, slot and tokens of the longest beginning that a slot holds; None where none begins alike."""
        best: tuple[int, int, int] | None = None
        for number, pool in enumerate(self.pools):
            for slot, held in enumerate(pool.held):
                if held is not None and held[0] == wanted[0]:
                    shared = min(common(held[1], wanted[1]), len(wanted[1]) - 1) // GRAIN * GRAIN
                    if shared >= ALIKE and (best is None or shared > best[2]):
                        best = (number, slot, shared)
        return best


def _parts(lengths: Sequence[int], start: int) -> Iterator[slice]:
    """Slices of rows, shortest first, that are read at once: bounded in what is read, and in what is looked at."""
    begin = 0
    for end in range(1, len(lengths) + 1):
        rows = end + 1 - begin
        if end == len(lengths) or (
            rows * (lengths[end] - start) > READ or (start > 0 and rows * lengths[end] > LOOKED_AT)
        ):
            yield slice(begin, end)
            begin = end


@contextmanager
def _attention(weights: Weights) -> Iterator[None]:
    """On a GPU, kernels that take a mask and can be recorded."""
    if weights.device.startswith("cuda"):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        chosen: Any = sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    else:
        chosen = nullcontext()
    with chosen:
        yield


# -- for servers in other processes ------------------------------------------------------------------------------------


def answer(decoder: Decoder, connection: Connection) -> None:
    """Say what one server asks for: (number, tokens, limit, temperature, seed) in, (number, what was said) out."""
    lock = threading.Lock()

    def send(row: Row) -> None:
        with lock:
            connection.send((row.place, None if row.too_large else row.said))

    while True:
        try:
            number, ids, tokens, temperature, seed = connection.recv()
        except (EOFError, OSError):
            return
        decoder.say(Row(number, Ask((), tokens, temperature, seed), ids), _quietly(send))


def _quietly(send: Callable[[Row], None]) -> Callable[[Row], None]:
    def sent(row: Row) -> None:
        with suppress(OSError):  # the server may be gone
            send(row)

    return sent


def listen(decoder: Decoder, path: str) -> None:
    """Take in servers at a socket until the process ends."""
    Path(path).unlink(missing_ok=True)
    with Listener(path, "AF_UNIX", backlog=16) as listener:
        print(f"listening on {path}", flush=True)
        while True:
            threading.Thread(target=answer, args=(decoder, listener.accept()), daemon=True).start()


def watch(decoder: Decoder, leave: Callable[[int], object] = os._exit, seconds: float = STILL) -> None:
    """Leave the process once the GPU stands still: a kernel that waits for ever cannot be stopped in any other way."""
    while not decoder.stands_still(seconds):
        time.sleep(min(1.0, seconds / 4))
    print(f"no token in {seconds:.0f} s: this decoder stands still", flush=True)
    faulthandler.dump_traceback()
    leave(os.EX_TEMPFAIL)


def _start_watch(decoder: Decoder) -> None:
    if decoder.weights.device.startswith("cuda"):  # a processor may well take that long for a token
        threading.Thread(target=watch, args=(decoder,), daemon=True).start()


# -- a look at it ------------------------------------------------------------------------------------------------------


def say_all(decoder: Decoder, rows: Sequence[Row]) -> float:
    """Seconds that the rows took."""
    began = time.monotonic()
    for row in rows:
        decoder.say(row, lambda _: None)
    decoder.close()
    decoder.run()
    return time.monotonic() - began


def check(folder: str, *, record: bool = True, sizes: Sequence[int] = (1, 40, 160, 300), tokens: int = 64) -> bool:
    """Whether it says what transformers says, up to rounding; and how fast it is, also in a crowd of all sizes."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = Weights(folder)
    decoder = Decoder(weights, POOLS if weights.device == "cuda" else ((8, 256), (2, 1024)), record=record)
    _start_watch(decoder)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": each}], tokenize=False, add_generation_prompt=True
        )
        for each in _questions()
    ]  # fmt: skip
    asked = [list(tokenizer([text], add_special_tokens=False)["input_ids"][0]) for text in texts]
    rows = [Row(i, Ask((), tokens), ids) for i, ids in enumerate(asked)]
    print(f"{len(rows)} prompts in {say_all(decoder, rows):.2f} s, {decoder.copied_tokens} tokens copied", flush=True)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=weights.dtype)
    model.to(weights.device)
    agreed = []
    for row in rows:
        fed = torch.tensor([row.ids], device=weights.device)
        with torch.inference_mode():
            out = model.generate(fed, attention_mask=torch.ones_like(fed), do_sample=False, max_new_tokens=tokens,
                                 repetition_penalty=1.0, top_p=None, top_k=None, temperature=None)  # fmt: skip
        theirs = out[0, len(row.ids) :].tolist()
        same = common(np.array(theirs), np.array(row.said))
        gap = 0.0 if same >= min(len(theirs), len(row.said)) else _gap(torch, model, row, same)
        agreed.append(gap <= 0.5)
        print(f"  {len(row.ids)} tokens: {same} of {len(theirs)} alike, then a gap of {gap:.3f}", flush=True)
    del model
    for size in sizes:
        _time(decoder, asked, size, tokens)
    _crowd(decoder, [token for ids in asked for token in ids], 240 if weights.device == "cuda" else 12)
    return all(agreed)


def _gap(torch: Any, model: Any, row: Row, place: int) -> float:
    """By how much transformers prefers its own token to ours where they part: little where rounding decided."""
    fed = torch.tensor([row.ids + row.said[:place]], device=model.device)
    with torch.inference_mode():
        scores = model(fed).logits[0, -1].float()
    return float(scores.max() - scores[row.said[place]])


def _questions() -> list[str]:
    long = " ".join(
        f"On day {day} Ann walked {day % 7 + 2} miles and met {'Bob' if day % 2 else 'Eve'}." for day in range(40)
    )
    asked = ("How far did Ann walk on day 3?", "Whom did she meet on day 10?", "Sum it up in one line.")
    return [
        "Name three rivers of Europe.", "Write a haiku about rain.", "What is 17 times 3?", "List the months.",
        "Reply with the JSON object {\"a\": 1} and nothing else.", *(f"{long}\n{each}" for each in asked),
    ]  # fmt: skip


def _time(decoder: Decoder, asked: Sequence[list[int]], size: int, tokens: int) -> None:
    """Print the time of a step at so many rows, once it was recorded."""
    ends, decoder.ends = decoder.ends, frozenset()
    for _ in range(2):
        rows = [Row(i, Ask((), tokens), list(asked[i % 4])) for i in range(size)]
        before = sum(pool.steps for pool in decoder.pools)
        seconds = say_all(decoder, rows)
        steps = sum(pool.steps for pool in decoder.pools) - before
    decoder.ends = ends
    print(f"  {size} rows: {size * tokens / seconds:,.0f} tokens/s, {1000 * seconds / steps:.2f} ms a step", flush=True)


def _crowd(decoder: Decoder, ids: Sequence[int], size: int) -> None:
    """Print the pace of rows of every size at once, of which some begin alike: what rivals ask for side by side."""
    rng, endless = np.random.default_rng(7), list(ids) * (1 + decoder.longest // len(ids))
    rows = []
    for place in range(size):
        pool = decoder.pools[place % len(decoder.pools)]
        length = int(rng.integers(pool.length // 4, pool.length - pool.length // 8))
        start = int(rng.integers(0, len(ids))) if place % 3 else 0
        fed = endless[start : start + length]
        rows.append(Row(place, Ask((), int(rng.integers(8, min(128, pool.length // 8)))), fed))
    seconds, said = say_all(decoder, rows), sum(len(row.said) for row in rows)
    read = sum(len(row.ids) for row in rows)
    print(f"  {size} rows of all sizes: {said:,} tokens after {read:,} in {seconds:.1f} s", flush=True)


def main() -> None:
    """Serve until told to stop, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a transformers folder")
    parser.add_argument("--socket", help="where servers ask")
    parser.add_argument("--check", action="store_true", help="against transformers, and tokens a second")
    parser.add_argument("--no-graphs", action="store_true", help="launch every step anew")
    options = parser.parse_args()
    record = not options.no_graphs
    if options.check or not options.socket:
        raise SystemExit(0 if check(options.model, record=record) else "it does not say what transformers says")
    weights = Weights(options.model)
    pools = POOLS if weights.device == "cuda" else ((16, 1024), (8, 4096), (4, 16_384))
    decoder = Decoder(weights, pools, record=record)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=listen, args=(decoder, options.socket), daemon=True).start()
    _start_watch(decoder)
    decoder.run()


if __name__ == "__main__":
    main()
