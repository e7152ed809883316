"""Any calls in any order give the same answers on SQLite, on PostgreSQL and by a plain model in memory."""

from __future__ import annotations

from clusters import Cluster
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from twins import TwinMachine


def test_any_calls_give_the_same_answers_on_both_stores_and_by_the_model(cluster: Cluster) -> None:
    TwinMachine.cluster = cluster
    quick = settings(
        max_examples=6,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.reuse, Phase.generate),
    )
    run_state_machine_as_test(TwinMachine, settings=quick)
