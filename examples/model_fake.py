"""Test code that asks a model without having one: a fake, and the reply cache."""

import tempfile
from pathlib import Path

from retcon.cache import CachedChat
from retcon.errors import RateLimitError
from retcon.lab.reply_cache import ReplyCache
from retcon.model import Ask, FakeChat

ask = Ask(({"role": "user", "content": "Who has a cat?"},), max_tokens=20)

fake = FakeChat(
    ["Ann has a cat.", RateLimitError("slow down", retry_after=2.0), lambda ask: f"{len(ask.messages)} seen"]
)
for found in fake([ask, ask, ask]):
    print("fake:", found)
print("asked:", len(fake.asked))

with tempfile.TemporaryDirectory() as folder:
    cache = ReplyCache(Path(folder) / "replies.db")
    for _ in range(2):
        model = CachedChat(FakeChat(["Ann has a cat."]), cache, prompt_version="1")
        model([ask, ask])
        print(f"cached: {model.hits} from the cache, {model.misses} asked")
    print("cache:", cache.stats())
    cache.close()
