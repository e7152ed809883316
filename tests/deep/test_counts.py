"""Deep tests do what RETCON_DEEP says, never nothing."""

from __future__ import annotations

import pytest
from counts import scale


@pytest.mark.parametrize(("given", "full", "least", "expected"), [
    ("1", 500, 1, 500), ("0.02", 500, 1, 10), ("0.02", 10, 1, 1), ("0.02", 10, 3, 3), ("1e-9", 7, 1, 1),
])  # fmt: skip
def test_a_count_is_scaled_and_never_below_the_least(
    given: str, full: int, least: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETCON_DEEP", given)
    assert scale(full, least) == expected


def test_without_a_factor_counts_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETCON_DEEP", raising=False)
    assert scale(123) == 123


@pytest.mark.parametrize("given", ["0", "-1", "1.01", "nan", "much", ""])
def test_a_factor_outside_its_range_is_told(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETCON_DEEP", given)
    with pytest.raises(ValueError, match="RETCON_DEEP"):
        scale(1)
