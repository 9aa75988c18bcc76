"""Restart strategies are pure functions of the previous failures and the current time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.restart import (
    ExponentialDelay,
    FailJob,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartAfter,
    RestartPolicy,
)
from millstream.errors import ConfigurationError

TIMES = st.lists(st.integers(0, 10**9), max_size=30).map(lambda times: tuple(sorted(times)))


def run(policy: RestartPolicy, *times: int, draw: float = 0.5) -> list[int | None]:
    """The pauses of the policy for failures at `times`; None where it stops restarting."""
    decisions = [policy.on_failure(times[:i], at_ms, draw) for i, at_ms in enumerate(times)]
    return [decision.delay_ms if isinstance(decision, RestartAfter) else None for decision in decisions]


def test_none_never_restarts() -> None:
    assert run(NoRestart(), 0) == [None]


def test_a_fixed_delay_limits_restarts_over_the_whole_run() -> None:
    assert run(FixedDelay(attempts=2, delay_ms=30), 0, 10**6, 10**9) == [30, 30, None]
    assert run(FixedDelay(attempts=0, delay_ms=30), 0) == [None]


def test_a_failure_rate_fails_the_job_on_one_failure_too_many_in_the_interval() -> None:
    policy = FailureRate(failures_max=2, interval_ms=100, delay_ms=5)
    assert run(policy, 0, 50, 100) == [5, 5, None]
    assert run(policy, 0, 50, 101) == [5, 5, 5]
    assert run(policy, 0, 200, 400, 600) == [5, 5, 5, 5]


def test_an_exponential_delay_grows_to_its_longest_pause() -> None:
    policy = ExponentialDelay(initial_delay_ms=100, delay_max_ms=500, multiplier=2.0, calm_ms=10_000)
    assert run(policy, 0, 1, 2, 3, 4) == [100, 200, 400, 500, 500]


def test_an_exponential_delay_resets_after_a_calm_period_counted_from_the_restart() -> None:
    policy = ExponentialDelay(initial_delay_ms=100, delay_max_ms=500, multiplier=2.0, calm_ms=1_000)
    assert run(policy, 0, 1_099) == [100, 200]
    assert run(policy, 0, 1_100) == [100, 100]
    # The second failure's pause was 200 ms, so the calm period ends 1,200 ms after it.
    assert run(policy, 0, 10, 1_209) == [100, 200, 400]
    assert run(policy, 0, 10, 1_210) == [100, 200, 100]


def test_an_exponential_delay_may_limit_its_attempts_between_calm_periods() -> None:
    policy = ExponentialDelay(100, 500, 2.0, calm_ms=1_000, attempts_before_calm=2)
    assert run(policy, 0, 1, 2) == [100, 200, None]
    assert run(policy, 0, 1, 5_000, 5_001) == [100, 200, 100, 200]


def test_jitter_spreads_the_pause_both_ways_only_by_the_random_number() -> None:
    policy = ExponentialDelay(initial_delay_ms=1_000, jitter=0.1)
    pauses = [policy.on_failure((), 0, draw) for draw in (0.0, 0.5, 1.0)]
    assert pauses == [RestartAfter(900), RestartAfter(1_000), RestartAfter(1_100)]


def test_the_reason_for_not_restarting_is_reported() -> None:
    assert NoRestart().on_failure((), 0) == FailJob("the restart strategy is none")
    assert FailureRate(1, 1_000, 0).on_failure((5,), 6) == FailJob("2 failures within 1000 ms, at most 1 are allowed")


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedDelay(-1, 0),
        lambda: FixedDelay(1, -1),
        lambda: FailureRate(1, 0, 0),
        lambda: FailureRate(-1, 10, 0),
        lambda: ExponentialDelay(initial_delay_ms=0),
        lambda: ExponentialDelay(initial_delay_ms=10, delay_max_ms=5),
        lambda: ExponentialDelay(multiplier=0.5),
        lambda: ExponentialDelay(jitter=2.0),
        lambda: ExponentialDelay(calm_ms=-1),
    ],
)
def test_invalid_numbers_are_rejected_when_the_strategy_is_built(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match="Restart strategy"):
        make()


@given(TIMES, st.integers(10**9, 2 * 10**9), st.floats(0, 1))
def test_exponential_pauses_stay_between_the_first_and_the_longest(
    history: tuple[int, ...], now_ms: int, draw: float
) -> None:
    decision = ExponentialDelay(100, 5_000, 1.7, calm_ms=60_000).on_failure(history, now_ms, draw)
    assert isinstance(decision, RestartAfter)
    assert 100 <= decision.delay_ms <= 5_000


@given(TIMES, st.integers(1, 10), st.integers(1, 10**6))
def test_a_failure_rate_restarts_exactly_while_the_rate_is_not_exceeded(
    history: tuple[int, ...], failures_max: int, interval_ms: int
) -> None:
    now_ms = max(history, default=0)
    decision = FailureRate(failures_max, interval_ms, 0).on_failure(history, now_ms)
    within = len([at_ms for at_ms in (*history, now_ms) if at_ms >= now_ms - interval_ms])
    assert isinstance(decision, RestartAfter) == (within <= failures_max)
