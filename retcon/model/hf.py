"""A transformers model in this process (extra `gpu`), for labelling: thousands of asks in a few large batches.

Asks that begin alike are put together: what they share (rules, notes, a question) is read once and only their ends are
read for each. Prompts are padded on the left. A batch is bounded by the tokens it may come to, prompts and answers
together, and by rows; one that still does not fit the memory is halved. Sampling adds Gumbel noise to the logits and
takes the largest (which draws from the softmax); the noise of a row is a hash of its seed, the step and the token, so
an answer does not depend on what shares its batch, up to rounding, and all rows of a batch are drawn at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retcon.errors import ContextTooLongError, InputError, MissingExtraError, ModelError
from retcon.model.base import Ask, Reply, clean, clean_messages
from retcon.model.step import attention, cache, joined

SHARED = 0.7  # groups over rows above which reading the beginnings apart does not pay
READ = 131_072  # tokens that are read at once: what a layer makes of them is far larger than what the cache keeps
LEAVE = 0.75  # rows that are done leave the batch once so many, or fewer, of it go on


@dataclass(frozen=True, slots=True)
class _Row:
    """One ask as tokens, with its place in the caller's list."""

    place: int
    ask: Ask
    ids: list[int]


class HfChat:
    """A causal language model with a chat template, from a folder."""

    kind = "hf"

    def __init__(
        self,
        path: str,
        *,
        name: str | None = None,
        batch_tokens: int = 65_536,
        batch_rows: int = 1024,
        dtype: str = "bfloat16",
        device: str | None = None,
    ) -> None:
        """`batch_tokens` bounds prompts and answers of one batch, padding included; a large GPU takes a million.
        `device` is a GPU where there is one."""
        if not Path(path).is_dir():
            raise InputError(f"there is no model folder {path!r}")
        self._torch, self._transformers = _libraries()
        transformers = self._transformers
        self.path, self.name = path, name or Path(path).resolve().name
        self.batch_tokens, self.batch_rows = batch_tokens, batch_rows
        self.device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype=getattr(self._torch, dtype), attn_implementation=attention(transformers)
        )
        self._model.to(self.device).eval()
        self._ends = _ends(self._model, self._tokenizer)
        self._pad = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else min(self._ends)
        # only what is said here: a model's own defaults may hold repetition penalties and cut the distribution
        self._model.generation_config = transformers.GenerationConfig(
            do_sample=False, eos_token_id=sorted(self._ends), pad_token_id=self._pad
        )
        self._window = int(getattr(self._model.config, "max_position_embeddings", 0) or 0)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"HfChat({self.path!r}, device={self.device!r})"

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        with self._lock:
            out: dict[int, Reply | ModelError] = {}
            rows = [_Row(i, ask, ids) for i, (ask, ids) in enumerate(zip(asks, self._ids(asks), strict=True))]
            for row in rows:
                if self._window and len(row.ids) + row.ask.max_tokens > self._window:
                    needed = f"{len(row.ids)} tokens and {row.ask.max_tokens} for the answer"
                    out[row.place] = ContextTooLongError(f"{self.name}: {needed}, context {self._window}")
            for batch in self._batches([row for row in rows if row.place not in out]):
                out |= self._answer(batch)
            return [out[i] for i in range(len(asks))]

    def _ids(self, asks: Sequence[Ask]) -> list[list[int]]:
        """The tokens of every ask; the tokenizer takes them all at once, which it does in parallel."""
        template = self._tokenizer.apply_chat_template
        texts = [template(clean_messages(ask), tokenize=False, add_generation_prompt=True) for ask in asks]
        return list(self._tokenizer(texts, add_special_tokens=False)["input_ids"]) if texts else []

    def _batches(self, rows: Sequence[_Row]) -> Iterator[list[_Row]]:
        """Rows that begin alike together, the longest first, so that memory that does not suffice shows at once."""
        batch: list[_Row] = []
        prompt = answer = 0  # the longest of the batch
        for group in sorted(_kin(rows), key=lambda group: -len(group[0].ids)):
            for row in group:
                prompt, answer = max(prompt, len(row.ids)), max(answer, row.ask.max_tokens)
                full = (len(batch) + 1) * (prompt + answer) > self.batch_tokens or len(batch) >= self.batch_rows
                if batch and full:
                    yield batch
                    batch, prompt, answer = [], len(row.ids), row.ask.max_tokens
                batch.append(row)
        if batch:
            yield batch

    def _answer(self, rows: list[_Row]) -> dict[int, Reply | ModelError]:
        started = time.monotonic()
        try:
            found, logprobs = self._generate(rows)
        except self._torch.OutOfMemoryError:
            if len(rows) == 1:
                size = _size(rows)
                return {rows[0].place: ContextTooLongError(f"{self.name}: {size} tokens do not fit the memory")}
            found = None
        if found is None:  # outside the except block, which would keep the failed batch's memory
            if self.device.startswith("cuda"):
                self._torch.cuda.empty_cache()
            half = len(rows) // 2
            return self._answer(rows[:half]) | self._answer(rows[half:])
        seconds = (time.monotonic() - started) / len(rows)
        return {
            row.place: self._reply(row, ids, values, seconds)
            for row, ids, values in zip(rows, found, logprobs, strict=True)
        }

    def _generate(self, rows: list[_Row]) -> tuple[list[list[int]] | None, list[list[float]]]:
        """New tokens of each row and their log-probabilities.

        Most answers are far shorter than their ceiling: rows that are done leave the batch, so that the few long ones
        do not carry all others to their end.
        """
        torch = self._torch
        said: list[list[int]] = [[] for _ in rows]
        logprobs: list[list[float]] = [[] for _ in rows]
        draw = _Draw(torch, [row.ask for row in rows], self.device)
        alive = torch.arange(len(rows), device=self.device)
        with torch.inference_mode():
            fed, mask, seen = self._begun(rows)
            while True:
                logits, seen = self._read(fed, mask, seen)
                tokens, values = draw(logits, alive)
                stays = self._note(rows, alive.tolist(), tokens.tolist(), values.tolist(), said, logprobs)
                if not stays:
                    return said, logprobs
                if len(stays) <= LEAVE * len(alive):  # moving the cache costs as much as a step or two
                    kept = torch.tensor(stays, device=self.device, dtype=torch.long)
                    alive, tokens, mask = alive[kept], tokens[kept], mask[kept]
                    seen.batch_select_indices(kept)
                fed, mask = tokens[:, None], torch.cat([mask, mask.new_ones((len(alive), 1))], dim=1)

    def _begun(self, rows: list[_Row]) -> tuple[Any, Any, Any]:
        """What is left to read of each row, the mask over all of it, and the cache of what rows begin alike with."""
        groups = _kin(rows)
        if len(groups) > SHARED * len(rows):
            return *self._padded([row.ids for row in rows]), None
        place = {id(row): i for i, row in enumerate(rows)}
        shares = [min(_common(group[0].ids, group[-1].ids), *(len(row.ids) - 1 for row in group)) for group in groups]
        heads, mask = self._padded([group[0].ids[:share] for group, share in zip(groups, shares, strict=True)])
        _, seen = self._read(heads, mask, None)
        head_of, tails = [0] * len(rows), [[0]] * len(rows)
        for number, (group, share) in enumerate(zip(groups, shares, strict=True)):
            for row in group:
                head_of[place[id(row)]], tails[place[id(row)]] = number, row.ids[share:]
        index = self._torch.tensor(head_of, device=self.device)
        seen.batch_select_indices(index)
        rest, after = self._padded(tails)
        return rest, self._torch.cat([mask[index], after], dim=1), seen

    def _read(self, fed: Any, mask: Any, seen: Any) -> tuple[Any, Any]:
        """Scores of each row's next token, and the cache with `fed` in it; a long beginning is read in parts."""
        rows = max(1, READ // fed.shape[1])
        if seen is None and len(fed) > rows:
            parts = [self._read(fed[i : i + rows], mask[i : i + rows], None) for i in range(0, len(fed), rows)]
            caches = [part[1] for part in parts]
            return self._torch.cat([part[0] for part in parts]), joined(self._transformers, self._torch, caches)
        places = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -fed.shape[1] :]
        out = self._model(
            input_ids=fed, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1,
            past_key_values=cache(self._transformers) if seen is None else seen,
        )  # fmt: skip
        return out.logits[:, -1], out.past_key_values

    def _padded(self, rows: Sequence[list[int]]) -> tuple[Any, Any]:
        """Tokens and mask, padded on the left."""
        torch, longest = self._torch, max(map(len, rows))
        ids = torch.full((len(rows), longest), self._pad, dtype=torch.long)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, longest - len(row) :] = torch.tensor(row)
            mask[i, longest - len(row) :] = 1
        return ids.to(self.device), mask.to(self.device)

    def _note(
        self, rows: list[_Row], alive: list[int], tokens: list[int], values: list[float], said: list[list[int]],
        logprobs: list[list[float]],
    ) -> list[int]:  # fmt: skip
        """Put down the new token of each row that is not done; which places of the batch go on."""
        stays = []
        for place, (row, token, value) in enumerate(zip(alive, tokens, values, strict=True)):
            if self._done(rows[row], said[row]):
                continue
            said[row].append(token)
            logprobs[row].append(value)
            if not self._done(rows[row], said[row]):
                stays.append(place)
        return stays

    def _done(self, row: _Row, said: list[int]) -> bool:
        return len(said) >= row.ask.max_tokens or (bool(said) and said[-1] in self._ends)

    def _reply(self, row: _Row, ids: list[int], logprobs: list[float], seconds: float) -> Reply:
        ids = ids[: row.ask.max_tokens]
        end = next((i for i, token in enumerate(ids) if token in self._ends), None)
        said = ids if end is None else ids[: end + 1]
        return Reply(
            text=clean(self._tokenizer.decode(ids[:end], skip_special_tokens=True)),
            prompt_tokens=len(row.ids),
            completion_tokens=len(said),
            seconds=seconds,
            finish="length" if end is None else "stop",
            logprob=sum(logprobs[: len(said)]) / len(said) if row.ask.logprobs and said else None,
        )


class _Draw:
    """Picks each row's next token, and gives its log-probability under the model."""

    def __init__(self, torch: Any, asks: Sequence[Ask], device: str) -> None:
        self.torch, self.step = torch, 0
        self.warm = any(ask.temperature > 0 for ask in asks)
        self.temperature = torch.tensor([[ask.temperature] for ask in asks], device=device)
        self.seed = torch.tensor([[ask.seed or 0] for ask in asks], device=device)

    def __call__(self, logits: Any, alive: Any) -> tuple[Any, Any]:  # (rows, vocabulary), the rows' places
        plain = logits.float()
        noisy = plain
        if self.warm:  # a greedy row has temperature 0, and gets no noise
            noise = self.torch.log(-self.torch.log(self._uniform(self.seed[alive], plain.shape[1]))).float()
            noisy = plain - self.temperature[alive] * noise
        self.step += 1
        chosen = noisy.argmax(dim=1, keepdim=True)
        value = plain.gather(1, chosen) - plain.logsumexp(dim=1, keepdim=True)
        return chosen.squeeze(1), value.squeeze(1)

    def _uniform(self, seed: Any, size: int) -> Any:
        """(rows, size) numbers in (0, 1): seed, step and token mixed in 32 bits (multiply, shift, xor; twice)."""
        token = self.torch.arange(size, device=seed.device)
        mixed = (seed * 0x9E3779B1 + self.step * 0x85EBCA77 + token * 0xC2B2AE3D) & 0xFFFFFFFF
        for _ in range(2):
            mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        return ((mixed ^ (mixed >> 16)).double() + 0.5) / 2.0**32


def _kin(rows: Sequence[_Row]) -> list[list[_Row]]:
    """Groups of rows that have at least half of their tokens in common at the beginning.

    Sorted by their tokens, rows that begin alike stand side by side, and what the first and the last of a group share
    all of them share.
    """
    groups: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: row.ids):
        if groups and 2 * _common(groups[-1][0].ids, row.ids) >= max(len(row.ids), len(groups[-1][0].ids)):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two rows have in common at the beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _size(rows: Sequence[_Row]) -> int:
    """Tokens that a batch may come to: every row is padded to the longest prompt and runs to the longest answer."""
    return len(rows) * (max(len(row.ids) for row in rows) + max(row.ask.max_tokens for row in rows))


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer."""
    given = getattr(model.generation_config, "eos_token_id", None)
    listed = given if isinstance(given, list) else [given]
    ends = frozenset(int(token) for token in (*listed, tokenizer.eos_token_id) if token is not None)
    if not ends:
        raise InputError("this model has no token that ends an answer")
    return ends


def _libraries() -> tuple[Any, Any]:
    try:
        import torch  # seconds, so only where a model is loaded
        import transformers
    except ImportError:
        raise MissingExtraError("a transformers model", "gpu") from None
    return torch, transformers
