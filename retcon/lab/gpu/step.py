"""One token a row -> the next, at little cost: keys and values are read where they lie, neither repeated nor moved.

Where several query heads share a key head, transformers repeats keys and values for each of them as soon as rows are
padded, and its cache is copied as a whole at every token. With a thousand rows of a thousand tokens both cost more
than the model does. Here the heads that share a key become rows of one query, and the cache has room to grow in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NAME = "retcon-grouped"  # of the attention, among those that transformers knows
ROOM = 64  # tokens a cache has left after it was moved


def attention(transformers: Any) -> str:
    """The name under which the attention of this module is known to transformers from now on."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    def forward(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **options: Any
    ) -> tuple[Any, None]:
        rows, heads, length, size = query.shape
        shared = heads // key.shape[1]
        if length > 1 or shared == 1:
            return sdpa_attention_forward(  # type: ignore[no-any-return]
                module, query, key, value, attention_mask, scaling=scaling, **options
            )
        from torch.nn.functional import scaled_dot_product_attention as attend

        # one token looks at all that came before it, so that heads may stand where tokens do
        grouped = query.reshape(rows, key.shape[1], shared, size)
        mask = None if attention_mask is None else attention_mask.expand(-1, -1, shared, -1)
        return attend(grouped, key, value, attn_mask=mask, scale=scaling).reshape(rows, 1, heads, size), None

    transformers.AttentionInterface.register(NAME, forward)
    transformers.AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    return NAME


def cache(transformers: Any) -> Any:
    """An empty cache whose layers have room to grow in."""
    from transformers.cache_utils import DynamicLayer

    class Layer(DynamicLayer):  # type: ignore[misc]
        """Keys and values at the beginning of larger buffers."""

        is_initialized: bool

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.dtype, self.device = key_states.dtype, key_states.device
                self.is_initialized = True
                self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
                self.whole: tuple[Any, ...] = ()
            have, more = self.keys.shape[-2], key_states.shape[-2]
            if not self.whole or have + more > self.whole[0].shape[-2]:
                self.whole = (_grow(self.keys, key_states), _grow(self.values, value_states))
            for buffer, new in zip(self.whole, (key_states, value_states), strict=True):
                buffer[..., have : have + more, :] = new
            self.keys, self.values = (buffer[..., : have + more, :] for buffer in self.whole)
            return self.keys, self.values

        def batch_select_indices(self, indices: Any) -> None:
            super().batch_select_indices(indices)
            self.whole = ()

    made = transformers.DynamicCache()
    made.layer_class_to_replicate = Layer
    return made


def join_caches(transformers: Any, torch: Any, parts: Sequence[Any]) -> Any:
    """One cache of the rows of several, flush right; these are emptied layer by layer, so that little is held twice."""
    made = cache(transformers)
    width = max(part.get_seq_length() for part in parts)
    for number, layers in enumerate(zip(*(part.layers for part in parts), strict=True)):
        keys, values = (
            torch.cat([_widen(torch, getattr(each, name), width) for each in layers]) for name in ("keys", "values")
        )
        for each in layers:
            each.keys = each.values = None
            each.whole = ()
        made.update(keys, values, number)
    return made


def trim_cache(seen: Any, columns: int) -> None:
    """Cut off the first columns of a cache."""
    for layer in seen.layers:
        layer.keys, layer.values = layer.keys[..., columns:, :], layer.values[..., columns:, :]
        layer.whole = ()


def _widen(torch: Any, values: Any, width: int) -> Any:
    """With zeros on the left: what is masked must still be a number."""
    return torch.nn.functional.pad(values, (0, 0, width - values.shape[-2], 0))


def _grow(old: Any, new: Any) -> Any:
    """A buffer with what there was in front, and room for what comes."""
    rows, heads, have, size = old.shape
    buffer = new.new_empty((rows, heads, have + new.shape[-2] + ROOM, size))
    buffer[..., :have, :] = old
    return buffer
