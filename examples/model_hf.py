"""A transformers model in this process, for large batches: python model_hf.py FOLDER

Without a folder it makes a tiny model with random weights: its records are noise, but noise within the budget.
"""

import sys
import tempfile

from retcon import Memory
from retcon.errors import MissingExtraError
from retcon.lab.gpu.chat import TransformersChat


def tiny_model(folder: str) -> str:
    """A folder with a two-layer model and a tokenizer of single characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    characters = ["<end>", "<pad>", "<unk>", *(chr(code) for code in range(32, 127))]
    letters = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(characters)}, unk_token="<unk>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, eos_token="<end>", pad_token="<pad>", unk_token="<unk>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(characters), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, eos_token_id=0, pad_token_id=1,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def main(folder: str) -> None:
    with Memory(":memory:", model=TransformersChat(folder)) as memory:
        memory.add("Ann adopted a cat named Pixel from the shelter on Mill Road.", timestamp="2026-05-09")
        recall = memory.recall("What did Ann adopt?", budget=32, action="merge")
        print(f"{recall.action}, {recall.tokens} of 32 tokens: {recall.text!r}")
        assert recall.tokens <= 32


if len(sys.argv) > 1:
    main(sys.argv[1])
else:
    with tempfile.TemporaryDirectory() as made:
        try:
            TransformersChat(made)
        except MissingExtraError as error:
            print(error)
        except (OSError, ValueError):  # the empty folder is no model yet, but the libraries are there
            main(tiny_model(made))
