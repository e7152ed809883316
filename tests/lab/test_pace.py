"""How many requests go out: never more than allowed, none while the endpoint asks to wait, and back up after that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retcon.lab.pace import LONGEST_WAIT, Pace


class Clock:
    """A time that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def pace(most: int, clock: Clock, chance: float = 0.5) -> Pace:
    return Pace(most, clock=clock, chance=lambda: chance)


events = st.one_of(st.just("answered"), st.floats(0, 1e6), st.none())


@given(most=st.integers(1, 64), said=st.lists(st.tuples(events, st.floats(0.001, 50)), max_size=60))
def test_the_bound_stays_between_one_and_the_most_and_no_wait_is_endless(
    most: int, said: list[tuple[str | float | None, float]]
) -> None:
    clock = Clock()
    held = pace(most, clock, chance=0.999)
    for event, passed in said:
        sent = clock.now
        clock.now += passed
        if isinstance(event, str):
            held.answered()
        else:
            held.refused(sent, event)
        assert 1 <= held.room <= most
        assert held.wait() <= LONGEST_WAIT + 1e-6
        assert not held.may_send(most)
        assert held.may_send(0) == (held.wait() == 0)


@given(asked=st.floats(0.01, 50), passed=st.floats(0, 1, exclude_max=True))
def test_nobody_sends_before_the_time_that_the_endpoint_asked_for(asked: float, passed: float) -> None:
    clock = Clock()
    held = pace(8, clock, chance=0.0)
    held.refused(clock.now, asked)
    clock.now += asked * passed * 0.999
    assert not held.may_send(0)
    clock.now += asked
    assert held.may_send(0)


def test_requests_refused_together_halve_the_bound_once_and_those_sent_later_halve_it_again() -> None:
    clock = Clock()
    held = pace(16, clock)
    sent = clock.now
    clock.now += 1
    for _ in range(16):
        held.refused(sent, 0.1)
    assert held.room == 8
    clock.now += 5
    sent = clock.now
    clock.now += 1
    held.refused(sent, 0.1)
    assert held.room == 4


def test_answers_bring_the_bound_back_by_about_one_a_round() -> None:
    clock = Clock()
    held = pace(16, clock)
    held.refused(clock.now, 0.1)
    for rounds in range(1, 9):
        for _ in range(int(held.room)):
            held.answered()
        assert 8 + 0.8 * rounds <= held.room <= 8 + rounds
    for _ in range(100):
        held.answered()
    assert held.room == 16


def test_a_refusal_without_a_time_is_waited_out_twice_as_long_each_time_until_an_answer() -> None:
    clock = Clock()
    held, waits = pace(64, clock, chance=1.0), []
    for _ in range(4):
        clock.now += 1000
        held.refused(clock.now - 1, None)
        waits.append(held.wait())
    assert waits == [1.0, 2.0, 4.0, 8.0]
    held.answered()
    clock.now += 1000
    held.refused(clock.now - 1, None)
    assert held.wait() == 1.0
