"""A router is a small JSON file. This one extracts whenever the notes cost more than twice the budget."""

import json
import tempfile
from pathlib import Path

from retcon import Memory

router = {
    "format": 1,
    "name": "twice-the-budget",
    "kind": "rule",
    "actions": ["retain", "extract"],
    "features": ["pressure"],
    "weights": {"retain": [0.0], "extract": [1.0]},  # the score of extract is the pressure, cost / budget ...
    "intercepts": {"retain": 2.0, "extract": 0.0},  # ... and that of retain is 2
}

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "router.json"
    path.write_text(json.dumps(router))
    with Memory(":memory:", router=path) as memory:
        for day in range(1, 11):
            memory.add(
                f"Ran {day} km along the canal. The weather was fine. Legs felt good.", timestamp=f"2026-04-{day:02}"
            )
        for budget in (64, 256):
            decision = memory.decide("How far did I run on 7 April?", budget=budget)
            print(decision.reason)
        assert memory.decide("How far?", budget=64).action == "extract"
        assert memory.decide("How far?", budget=256).action == "retain"
