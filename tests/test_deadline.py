"""Work stops at its deadline, and only there."""

from __future__ import annotations

import math
import time

import pytest

from retcon import deadline
from retcon.errors import DeadlineError


def test_without_a_deadline_nothing_is_late() -> None:
    deadline.check()
    assert deadline.left() == math.inf


def test_past_its_deadline_a_check_raises() -> None:
    with deadline.until(time.monotonic()), pytest.raises(DeadlineError):
        deadline.check()
    deadline.check()


def test_an_inner_deadline_cannot_outlast_the_outer_one() -> None:
    with deadline.until(time.monotonic()), deadline.until(time.monotonic() + 3600):
        assert deadline.left() == 0.0
        with pytest.raises(DeadlineError):
            deadline.check()
    with deadline.until(time.monotonic() + 3600):
        deadline.check()
        assert 0 < deadline.left() <= 3600
