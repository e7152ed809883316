"""An operator of your own: one dated line per event. It is routed, guarded, kept and reported like those that ship."""

from retcon import Memory, Packed, Router
from retcon.model import FakeChat
from retcon.operate import Job, record, register


@register("timeline", about="one dated line per event", version="1")
def timeline(job: Job) -> Packed:
    return record(job, "Write one line per event, its date first, oldest first{aim}. No other words.")


router = Router.load(
    {
        "format": 1,
        "name": "timeline-under-pressure",
        "kind": "rule",
        "actions": ["retain", "timeline"],
        "features": ["fit"],
        "weights": {"retain": [1.0], "timeline": [0.0]},
        "intercepts": {"retain": 0.0, "timeline": 0.999},  # a timeline unless every note fits
    }
)
# Any model will do: a base URL, a .gguf file. This one has learned its only line by heart.
model = FakeChat(lambda ask: "2026-05-09 adopted the cat Pixel\n2026-05-20 check-up set for 12 June", name="by-heart")

with Memory(":memory:", router=router, model=model) as memory:
    memory.add("I adopted a cat named Pixel from the shelter in Leeds today!", timestamp="2026-05-09")
    memory.add("The vet gave us a date: Pixel's first check-up is on 12 June.", timestamp="2026-05-20")
    memory.add("It rained all day and the bus to work was an hour late again.", timestamp="2026-05-21")
    for _ in range(2):
        found = memory.recall("What happened with Pixel?", budget=40)
        assert found.record is not None
        print(f"{found.text}\n  {found.tokens} tokens; {found.decision.reason}")
        kept = "reused" if found.record.reused else "new"
        print(f"  written by {found.record.model}, {kept}, from {len(found.sources)} notes")
    print("whole notes, where they fit:", memory.recall("What happened with Pixel?", budget=200).action)
