"""10,000 random operations give the same answers on SQLite, on PostgreSQL and by a plain model in memory."""

from __future__ import annotations

import counts
from clusters import Cluster
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from twins import TwinMachine

STEPS = 50  # at most; 200 runs of so many made 8,520 calls


def test_ten_thousand_calls_give_the_same_answers(cluster: Cluster) -> None:
    TwinMachine.cluster, TwinMachine.operations = cluster, 0
    deep = settings(
        max_examples=counts.scale(300, least=2), stateful_step_count=STEPS, deadline=None,
        suppress_health_check=list(HealthCheck), database=None, phases=(Phase.generate,),
    )  # fmt: skip
    run_state_machine_as_test(TwinMachine, settings=deep)
    counts.keep("stores", {"operations": TwinMachine.operations})
    assert counts.factor() < 1 or TwinMachine.operations >= 10_000
