"""A tiny random model in a transformers folder, for tests of what holds one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None,
    reason="needs torch and transformers: pip install 'retcon-memory[gpu]'",
)
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}{% if add_generation_prompt %}go{% endif %}"
)


def make_model(path: Path, *, room: int = 256) -> Path:
    """A model of two layers with random weights and a tokenizer of letters, of which it reads so many."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {
        letter: i for i, letter in enumerate(["<end>", "<pad>", "<unk>", *"abcdefghijklmnopqrstuvwxyz0123456789 "])
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>", unk_token="<unk>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=room, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    for weights in model.parameters():
        weights.data *= 3  # away from the uniform distribution, so that rounding decides nothing
    model.save_pretrained(path)
    settings = path / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"repetition_penalty": 3.0}))  # not to be obeyed
    return path
