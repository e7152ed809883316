"""From measured outcomes to a calibrated router. The outcomes are made up here; `retcon label` measures real ones."""

import random

from retcon import Memory
from retcon.lab.crossfit import REFERENCE, crossfit, default_policies
from retcon.lab.learn import calibrate_router, fit_router, summarise
from retcon.lab.outcomes import from_rows, panel

BUDGETS = (32, 64, 128)


def simulated(questions: int = 400) -> list[dict[str, object]]:
    """A small world: retention is right where the notes fit, extraction a bit over half of the time."""
    draw, rows = random.Random(7), []
    for number in range(questions):
        tokens = draw.randint(20, 300)
        fold = "train" if number % 2 else "held"  # a router is calibrated on questions it was not learned from
        about = {"question_id": f"q{number}", "fold": fold, "cluster_tokens": tokens, "notes": tokens // 15 + 1}
        for budget in BUDGETS:
            fit = min(1.0, budget / tokens)
            for action, chance in (("retain", 0.95 if fit == 1 else 0.1 + 0.5 * fit), ("extract", 0.6)):
                right = draw.random() < chance
                silent = not right and draw.random() < 0.8  # the reader says that it does not know
                seen = about | {"budget": budget, "fit": fit, "counter": "estimate", "sessions": 1}
                rows.append(seen | {"action": action, "judge_exact": int(right), "abstained": int(silent)})
    return rows


outcomes = from_rows(simulated())

# How good is each policy on questions that it has not seen?
every = panel(outcomes)
policies = {name: default_policies(every)[name] for name in ("retention", REFERENCE, "direct", "calibrated", "ladder")}
for row in summarise(crossfit(every, policies=policies), reference=REFERENCE, draws=1000)["policies"]:
    print(f"{row['policy']:30} {row['macro']:.3f} right, {row['harm']:.3f} harmed, {row['calls']:.2f} reader calls")

# Learn on one half, calibrate on the other: at most 10 % harmed at each budget, with a confidence of 90 %.
train, held = (outcomes.where(fold=name) for name in ("train", "held"))
router = fit_router(train, panel(train), name="made-up")
router, thresholds = calibrate_router(router, panel(held), rule="certified", alpha=0.10, delta=0.10)
for budget, found in thresholds.items():
    print(f"{budget:4} tokens: replace from an advantage of {found.tau:+.3f} on, harm at most {found.bound:.3f}")

with Memory(":memory:", router=router) as memory:  # router.save("router.json") and router="router.json" do as well
    for day in range(1, 20):
        memory.add(f"On day {day} the cat slept for {day + 3} hours and then ate a little.", id=f"n{day}")
    recall = memory.recall("How long did the cat sleep on day 7?", budget=64, safe=True)
    print(recall.decision.reason)
    print(f"certified: {recall.decision.certified}; tries in this order: {' > '.join(recall.decision.order)}")
