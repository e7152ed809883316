"""Rows of tokens -> what a model says to each of them: a batch that is filled up again as rows end.

Answers differ in length by far, so a batch that waited for its longest row would be nearly empty most of the time.
Here a row leaves when it has ended and others take its place. Rows stand flush right: the columns that no row uses any
more are cut off on the left, and what comes in is padded there. Rows that begin alike (the same rules, notes and
question) are put in side by side, and what they share is read once. If the memory does not suffice, the rows that were
under way begin again in a batch of half the size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from retcon import deadline
from retcon.lab.gpu.step import cache, join_caches, trim_cache
from retcon.model.base import Ask

SHARED = 0.7  # groups over rows above which reading the beginnings apart does not pay
READ = 131_072  # tokens that are read at once: what a layer makes of them is far larger than what the cache keeps
LEAVE = 0.75  # a batch is filled up, or cut down, once so few of its rows go on: moving the cache costs a step or two


@dataclass(slots=True, eq=False)
class Row:
    """One ask as tokens, and what was said to it so far."""

    place: int  # in the caller's list
    ask: Ask
    ids: list[int]
    said: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reach: int = 0  # the longest of the rows that begin like it
    too_large: bool = False  # it does not fit the memory, even alone


@dataclass(slots=True)
class _Batch:
    """Rows under way: what the model has read of them, and the token of each that it has not."""

    rows: list[Row]
    mask: Any  # (rows, columns read): 1 where a row has a token
    seen: Any  # the cache over the same columns
    tokens: Any  # (rows,)


class Flow:
    """A model with its tokens that end an answer; `run` says every row to its end."""

    def __init__(self, torch: Any, transformers: Any, model: Any, *, ends: frozenset[int], pad: int) -> None:
        self.torch, self.transformers, self.model = torch, transformers, model
        self.ends, self.pad = ends, pad

    def run(self, rows: Sequence[Row], *, tokens: int, most: int) -> None:
        """Fill in what is said to each row, with at most `most` rows and about `tokens` tokens under way at once."""
        groups = group_by_beginning(rows)
        for group in groups:
            longest = max(len(row.ids) for row in group)
            for row in group:
                row.reach = longest
        waiting = deque(row for group in sorted(groups, key=lambda group: -group[0].reach) for row in group)
        while waiting:
            under_way: list[Row] = []
            try:
                with self.torch.inference_mode():
                    self._run(waiting, under_way, tokens, most)
            except self.torch.OutOfMemoryError:
                tokens //= 2
            if under_way:  # outside the except block, which would keep the failed batch's memory
                self._again(waiting, under_way)

    def _again(self, waiting: deque[Row], rows: list[Row]) -> None:
        if self.torch.cuda.is_available():
            self.torch.cuda.empty_cache()
        for row in rows:
            row.said, row.logprobs, row.too_large = [], [], len(rows) == 1
        waiting.extendleft(row for row in reversed(rows) if not row.too_large)

    def _run(self, waiting: deque[Row], under_way: list[Row], tokens: int, most: int) -> None:
        """Until no row waits or goes on. `under_way` always names the rows that would be lost by a failure."""
        answer = max(row.ask.max_tokens for row in waiting)
        batch: _Batch | None = None
        while waiting or batch is not None:
            deadline.check()
            room = self._room(waiting, under_way, answer, tokens, most)
            if waiting and (batch is None or len(under_way) <= LEAVE * room):
                new = [waiting.popleft() for _ in range(min(len(waiting), max(1, room - len(under_way))))]
                under_way.extend(new)
                batch = self._join(batch, self._begin(new))
            elif batch is not None:
                self._step(batch)
            if batch is not None:
                stays = self._find_unfinished(batch)
                under_way[:] = [batch.rows[i] for i in stays]
                if not stays:
                    batch = None
                elif not waiting and len(stays) <= LEAVE * len(batch.rows):
                    self._keep(batch, stays)

    @staticmethod
    def _room(waiting: deque[Row], under_way: list[Row], answer: int, tokens: int, most: int) -> int:
        """Rows that may be under way at once; those that wait are no longer than the reach of the first of them."""
        longest = max((waiting[0].reach if waiting else 0, *(len(row.ids) for row in under_way)))
        return max(1, min(most, tokens // (longest + answer)))

    def _begin(self, rows: list[Row]) -> _Batch:
        """Rows read for the first time, each with its first token said."""
        fed, mask, seen = self._read_beginnings(rows)
        logits, seen = self._read(fed, mask, seen)
        return _Batch(rows, mask, seen, self._say(rows, logits))

    def _step(self, batch: _Batch) -> None:
        """One more token for every row."""
        batch.mask = self.torch.cat([batch.mask, batch.mask.new_ones((len(batch.rows), 1))], dim=1)
        logits, batch.seen = self._read(batch.tokens[:, None], batch.mask, batch.seen)
        batch.tokens = self._say(batch.rows, logits)

    def _join(self, batch: _Batch | None, new: _Batch) -> _Batch:
        """Both as one batch."""
        if batch is None:
            return new
        self._keep(batch, self._find_unfinished(batch))
        if not batch.rows:
            return new
        torch, width = self.torch, max(batch.mask.shape[1], new.mask.shape[1])
        both = (batch, new)
        masks = [torch.nn.functional.pad(each.mask, (width - each.mask.shape[1], 0)) for each in both]
        seen = join_caches(self.transformers, torch, [each.seen for each in both])
        return _Batch(batch.rows + new.rows, torch.cat(masks), seen, torch.cat([each.tokens for each in both]))

    def _find_unfinished(self, batch: _Batch) -> list[int]:
        return [i for i, row in enumerate(batch.rows) if not self._has_ended(row)]

    def _keep(self, batch: _Batch, stays: list[int]) -> None:
        """Drop all other rows, and the columns that none of these uses."""
        if len(stays) == len(batch.rows):
            return
        batch.rows = [batch.rows[i] for i in stays]
        if not stays:
            return
        kept = self.torch.tensor(stays, device=batch.mask.device)
        batch.mask, batch.tokens = batch.mask[kept], batch.tokens[kept]
        unused = int(batch.mask.any(dim=0).int().argmax())
        batch.mask = batch.mask[:, unused:]
        trim_cache(batch.seen, unused)
        batch.seen.batch_select_indices(kept)

    def _read_beginnings(self, rows: list[Row]) -> tuple[Any, Any, Any]:
        """What is left to read of each row, the mask over all of it, and the cache of what rows begin alike with."""
        groups = group_by_beginning(rows)
        if len(groups) > SHARED * len(rows):
            return *self._pad([row.ids for row in rows]), None
        shares = [min(_common(group[0].ids, group[-1].ids), *(len(row.ids) - 1 for row in group)) for group in groups]
        heads, mask = self._pad([group[0].ids[:share] for group, share in zip(groups, shares, strict=True)])
        _, seen = self._read(heads, mask, None)
        head_of = {row.place: number for number, group in enumerate(groups) for row in group}
        numbers = [head_of[row.place] for row in rows]
        index = self.torch.tensor(numbers, device=mask.device)
        seen.batch_select_indices(index)
        rest, after = self._pad([row.ids[shares[number] :] for row, number in zip(rows, numbers, strict=True)])
        return rest, self.torch.cat([mask[index], after], dim=1), seen

    def _read(self, fed: Any, mask: Any, seen: Any) -> tuple[Any, Any]:
        """Scores of each row's next token, and the cache with `fed` in it; a long beginning is read in parts."""
        rows = max(1, READ // fed.shape[1])
        if seen is None and len(fed) > rows:
            parts = [self._read(fed[i : i + rows], mask[i : i + rows], None) for i in range(0, len(fed), rows)]
            scores = self.torch.cat([part[0] for part in parts])
            return scores, join_caches(self.transformers, self.torch, [part[1] for part in parts])
        places = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -fed.shape[1] :]
        out = self.model(
            input_ids=fed, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1,
            past_key_values=cache(self.transformers) if seen is None else seen,
        )  # fmt: skip
        return out.logits[:, -1], out.past_key_values

    def _pad(self, rows: Sequence[list[int]]) -> tuple[Any, Any]:
        """Tokens and mask, padded on the left."""
        torch, longest = self.torch, max(map(len, rows))
        ids = torch.full((len(rows), longest), self.pad, dtype=torch.long)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, longest - len(row) :] = torch.tensor(row)
            mask[i, longest - len(row) :] = 1
        return ids.to(self.model.device), mask.to(self.model.device)

    def _say(self, rows: Sequence[Row], logits: Any) -> Any:
        """The next token of every row; those that have not ended get it written down, with its log-probability."""
        scores = logits.float()
        chosen = _add_noise(self.torch, scores, rows).argmax(dim=1, keepdim=True)
        values = (scores.gather(1, chosen) - scores.logsumexp(dim=1, keepdim=True)).squeeze(1).tolist()
        tokens = chosen.squeeze(1)
        for row, token, value in zip(rows, tokens.tolist(), values, strict=True):
            if not self._has_ended(row):
                row.said.append(token)
                row.logprobs.append(value)
        return tokens

    def _has_ended(self, row: Row) -> bool:
        return len(row.said) >= row.ask.max_tokens or (bool(row.said) and row.said[-1] in self.ends)


def _add_noise(torch: Any, scores: Any, rows: Sequence[Row]) -> Any:
    """(rows, vocabulary): scores with Gumbel noise times temperature, so that the largest is a draw from the softmax.

    The noise is a hash of a row's seed, its step and the token: the same whatever shares the batch.
    """
    warm = [i for i, row in enumerate(rows) if row.ask.temperature > 0]
    if not warm:
        return scores

    def column(values: Sequence[float | int]) -> Any:
        return torch.tensor(values, device=scores.device)[:, None]

    seeds, steps = column([rows[i].ask.seed or 0 for i in warm]), column([len(rows[i].said) for i in warm])
    noise = torch.log(-torch.log(_uniform(torch, seeds, steps, scores.shape[1]))).float()
    noisy = scores.clone()
    noisy[warm] -= column([rows[i].ask.temperature for i in warm]) * noise
    return noisy


def _uniform(torch: Any, seeds: Any, steps: Any, size: int) -> Any:
    """(rows, size) numbers in (0, 1): seed, step and token mixed in 32 bits (multiply, shift, xor; twice)."""
    token = torch.arange(size, device=seeds.device)
    mixed = (seeds * 0x9E3779B1 + steps * 0x85EBCA77 + token * 0xC2B2AE3D) & 0xFFFFFFFF
    for _ in range(2):
        mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 16)).double() + 0.5) / 2.0**32


def group_by_beginning(rows: Sequence[Row]) -> list[list[Row]]:
    """Groups of rows that have at least half of their tokens in common at the beginning.

    Sorted by their tokens, rows that begin alike stand side by side, and what the first and the last of a group share
    all of them share.
    """
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.ids):
        if groups and 2 * _common(groups[-1][0].ids, row.ids) >= max(len(row.ids), len(groups[-1][0].ids)):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two rows have in common at the beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
