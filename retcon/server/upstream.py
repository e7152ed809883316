"""Where the chat proxy's requests go on to, and how much of a conversation goes with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from retcon import validate
from retcon.tokens import check_budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where chat requests go on to, and how much of a conversation goes with them."""

    base: str
    key: str | None = field(default=None, repr=False)
    budget: int = 1024  # tokens of memory in a request, where it names no other number
    recent: int = 4096  # tokens of the newest turns, which stay as they are
    user: str = "default"  # whose conversation it is where neither key nor request says so
    seconds: float = 300.0  # for an answer, from the request to its last byte

    def __post_init__(self) -> None:
        from retcon.model.http import Endpoint  # late: every verb of the command line loads this file

        checked = Endpoint(self.base, self.key, timeout=self.seconds)
        object.__setattr__(self, "base", checked.base)
        check_budget(self.budget)
        check_budget(self.recent)
        validate.name("the proxy's user", self.user)
