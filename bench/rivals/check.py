"""Does every rival work as its authors show it? A few turns, one question, and what must come back.

    python -m bench.rivals.check                                           with scripted replies: the plumbing
    python -m bench.rivals.check --endpoint http://127.0.0.1:8100/v1       with a real model
    python -m bench.rivals.check --folder MODEL --systems longllmlingua    those that load one

With scripted replies a rival gets what its authors' prompts ask for, in the right form: one that fails then is wired
wrongly by us. With a real model it may fail because that model does not follow its prompts; that is what its row says.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.rivals.base import Setup, fit
from bench.rivals.contexts import Meter
from bench.rivals.encoder import Encoder
from bench.rivals.endpoint import Endpoint
from bench.rivals.say import Said
from bench.rivals.server import Service, serve
from bench.rivals.systems import SYSTEMS, System
from retcon.note import Note

TURNS = (
    "My sister Rosa moved to Lisbon last spring.", "I am learning to bake bread; my first loaf was flat.",
    "The dentist moved my appointment to Thursday.", "I adopted a cat named Pixel from the shelter.",
    "Work is busy: we ship the new release in June.", "I bought a blue bicycle for 240 euros.",
)  # fmt: skip
QUESTION, EXPECTED = "What is the name of the cat that I adopted?", "Pixel"
FACT = "The user adopted a cat named Pixel."
BLIND = ("newest", "llmlingua")  # they show what they show, whatever is asked
# what a good model would say where a rival demands JSON, by the name of the schema
_CAT = {"source_entity_name": "Ann", "target_entity_name": "Pixel", "relation_type": "ADOPTED", "fact": FACT}
FORMS: dict[str, dict[str, Any]] = {
    "CombinedExtraction": {
        "extracted_entities": [{"name": name, "entity_type_id": 0} for name in ("Ann", "Pixel")], "edges": [_CAT],
    },
    "BatchEdgeTimestamps": {"timestamps": [{"valid_at": None, "invalid_at": None}]},
    "NodeResolutions": {
        "entity_resolutions": [{"id": n, "name": each, "duplicate_candidate_id": -1} for n, each in enumerate("ab")],
    },
    "EdgeDuplicate": {"duplicate_facts": [], "contradicted_facts": []},
    "SummarizedEntities": {"summaries": []},
    "FactExtractionResponse": {
        "facts": [{"what": FACT, "when": "N/A", "where": "N/A", "who": "user", "why": "N/A", "fact_type": "world"}],
    },
    "KnowledgeGraph": {
        "nodes": [{"id": each, "name": each, "type": "Entity", "description": FACT} for each in ("Ann", "Pixel")],
        "edges": [{"source_node_id": "Ann", "target_node_id": "Pixel", "relationship_name": "adopted"}],
    },
    "SummarizedContent": {"summary": FACT, "description": FACT},
    "_ConsolidationBatchResponse": {"creates": [], "updates": [], "deletes": []},
}  # fmt: skip
_TOOL = re.compile(r'"name": ?"(\w*[Mm]emory\w*)"')


def history(repeats: int = 1) -> list[Note]:
    """The turns, day after day; a long history ends with other talk."""
    texts = [*TURNS, *(f"On day {day} it rained, and I read a book at home." for day in range(repeats - 1))]
    return [
        Note(f"n{place}", text, speaker="Ann", session=f"s{place // 16}", timestamp=f"2026-03-{place % 28 + 1:02}")
        for place, text in enumerate(texts)
    ]


def script(prompt: str, tokens: int, temperature: float, seed: int) -> Said:
    """What a good model would say to the prompts of the rivals."""
    if said := _filled(prompt):
        text = said
    elif tools := _TOOL.findall(prompt):
        opened = prompt.rstrip().endswith('"arguments":')
        body = json.dumps({"content": FACT})
        named = f'<tool_call>\n{{"name": "{tools[0]}", "arguments": {body}}}\n</tool_call>'
        whole = named.removeprefix('<tool_call>\n{"name": "') if prompt.endswith('{"name": "') else named
        text = body + "}" if opened else whole
    elif prompt.endswith("{"):
        text = json.dumps({"memory": [{"id": "0", "text": FACT, "attributed_to": "user"}]})[1:]
    elif "<fact>" in prompt:
        text = f"<facts><fact>{FACT}</fact></facts>"
    elif "yes or no" in prompt:
        text = "yes"
    elif "one number" in prompt:
        text = "5"
    else:
        text = FACT
    return Said(text, len(prompt) // 4, len(text) // 4, "stop")


def _filled(prompt: str) -> str:
    """A reply to a prompt that demands JSON of a schema that we know; empty where it does not."""
    known = (form for title, form in FORMS.items() if f'"title": "{title}' in prompt)
    found = next(known, None) if prompt.endswith("{") else None
    return "" if found is None else json.dumps(found)[1:]


def join(messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None) -> str:
    """A prompt without a template."""
    return "\n".join([json.dumps(tools) if tools else "", *(str(each["content"]) for each in messages), ""])


def check(system: System, setup: Setup) -> dict[str, Any]:
    """Whether what was said comes back, and what that took."""
    meter = Meter(system, setup.endpoint)
    budget = 64 if system.folder else 256  # what compresses gets less room than there is text
    found: list[str] = []
    try:
        rival = system.open(setup)
        long = system.name in ("langchain-summary", "after-memgpt")  # they begin to write once a chat is long
        meter.measure(lambda: rival.add(history(260 if long else 1)))
        meter.measure(lambda: found.extend(rival.context(QUESTION, budget)))
    except Exception as error:
        return {"system": system.name, "works": False, "why": f"{type(error).__name__}: {str(error)[:300]}"}
    text, spent = fit(found, budget), meter.total
    works = EXPECTED in text or (system.name in BLIND and bool(text))
    return {
        "system": system.name, "works": works, "shown": text[:300], "calls": spent.calls, "unparsed": spent.unparsed,
        "seconds": spent.seconds,
    }  # fmt: skip


def main() -> None:
    """Check those asked for; the exit code says whether all work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", help="names with commas; by default all that can run with what is given")
    parser.add_argument("--endpoint", help="base URL of a real model")
    parser.add_argument("--name", default="local")
    parser.add_argument("--folder", default="", help="of the model, for what loads it itself")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    url = options.endpoint or _scripted()
    every = [each.name for each in SYSTEMS.values() if (options.folder or not each.folder) and not each.alone]
    names = options.systems.split(",") if options.systems else every
    encode = Encoder()

    def work(name: str) -> dict[str, Any]:
        at = Endpoint(url, options.name, f"check/{name}")
        found = check(SYSTEMS[name], Setup(encode, at, options.folder))
        print(json.dumps(found), flush=True)
        return found

    with ThreadPoolExecutor(options.threads) as pool:
        done = list(pool.map(work, names))
    if options.out:
        options.out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(0 if all(each["works"] for each in done) else 1)


def _scripted() -> str:
    server = serve(Service(script, join, name="local"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


if __name__ == "__main__":
    main()
