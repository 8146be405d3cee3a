"""Backoff: a policy and an attempt give a delay."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backoff import DEFAULT, HOUR, Backoff, crash_delay
from holdfast.errors import UsageError


def _delays(policy, count=4):
    return [policy.delay(n) for n in range(1, count + 1)]


@pytest.mark.spec("RETRY-2")
@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Backoff.exponential(base=1), [2, 4, 8, 16]),
        (Backoff.exponential(base=timedelta(minutes=1), cap=200), [120, 200, 200, 200]),
        (Backoff.quadratic(), [60, 240, 540, 960]),
        (Backoff.linear(base=5), [5, 10, 15, 20]),
        (Backoff.fixed(7), [7, 7, 7, 7]),
        (Backoff.of([1, 2, timedelta(seconds=3)]), [1, 2, 3, 3]),
        (Backoff.of(lambda n: n * 10.0), [10, 20, 30, 40]),
    ],
)
def test_each_shape_has_its_delays(policy, delays):
    """N is the number of the attempt that failed, the first is 1."""
    assert _delays(policy) == delays


@pytest.mark.spec("RETRY-2")
def test_the_default_is_exponential_from_a_second_with_three_attempts():
    """Base 1 s, 10 % jitter, 3 attempts, cap 1 h."""
    assert (DEFAULT.shape, DEFAULT.base_seconds, DEFAULT.attempts) == ("exponential", 1.0, 3)
    assert (DEFAULT.jitter, DEFAULT.cap_seconds) == (0.1, HOUR)


@pytest.mark.spec("RETRY-2")
@given(n=st.integers(1, 10**6), chance=st.floats(0, 1, exclude_max=True))
@pytest.mark.parametrize("policy", [DEFAULT, Backoff.quadratic(), Backoff.linear(2)])
def test_jitter_only_adds_after_the_cap_and_nothing_overflows(policy, n, chance):
    """A requested delay is never shortened; at most 10 % is added."""
    plain = policy.delay(n)
    assert plain <= policy.cap_seconds
    assert plain <= policy.delay(n, chance) <= plain * 1.1 + 1e-9


@pytest.mark.spec("RETRY-2")
def test_a_list_of_delays_allows_one_attempt_more_than_it_has_delays():
    """The first execution needs no delay; with more attempts the last delay repeats."""
    assert Backoff.of([1, 2]).attempts == 3
    assert Backoff.of([1, 2], attempts=9).attempts == 9
    assert Backoff.none().attempts == 1


@pytest.mark.parametrize(
    "wrong", [lambda: Backoff(attempts=0), lambda: Backoff.fixed(-1), lambda: Backoff.of([])]
)
def test_what_could_never_work_is_refused_at_definition(wrong):
    """Not only at the first failure."""
    with pytest.raises(UsageError):
        wrong()


@pytest.mark.spec("LEASE-6", "RETRY-8")
def test_the_first_crash_costs_no_time_and_further_ones_the_default_delay():
    """0, 2, 4, 8 s, up to the cap, without jitter."""
    assert [crash_delay(n) for n in range(1, 5)] == [0, 2, 4, 8]
    assert crash_delay(10**6) == HOUR
