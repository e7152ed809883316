"""Whether this process should be sent new requests: from its start until a stop begins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """One switch that is turned once. What is being drained still answers, and tells each client to come no more."""

    draining: bool = False

    def drain(self) -> None:
        """Say from now on that others should be asked."""
        self.draining = True
