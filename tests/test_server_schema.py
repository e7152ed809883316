"""The OpenAPI document is true: whatever it allows is served without a fault, and every answer is as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from serving import bearer

from retcon import Memory
from retcon.model import FakeChat
from retcon.server import Keys, Limits, create_app

HELD = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


KEYS, MEMORY = Keys(":memory:"), Memory(":memory:", model=FakeChat(lambda ask: "NOT IN MEMORY"))
ADMIN = bearer(KEYS.add(admin=True)[0])
for number in range(5):
    MEMORY.add(f"note {number} about a cat named Pixel", id=f"n{number}", user_id="ann", session="s")

schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(MEMORY, keys=KEYS, limits=Limits(rate=0)))


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    MEMORY.close()
    KEYS.close()


@schema.parametrize()
@settings(
    max_examples=30, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_every_answer_is_as_the_document_says(case: Any) -> None:
    case.call_and_validate(checks=HELD, headers=ADMIN)
