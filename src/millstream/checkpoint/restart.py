"""Restart policies: whether and when a failed job is started again, as pure functions of plain numbers.

A policy receives the times of earlier failures of this run, the time of the current one, and one random draw (used only
for jitter). It has no state, so the same history always gives the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from millstream.errors import ConfigurationError

__all__ = [
    "NO_TOLERANCE",
    "ExponentialDelay",
    "FailJob",
    "FailureRate",
    "FixedDelay",
    "NoRestart",
    "RestartAfter",
    "RestartPolicy",
    "Tolerance",
]


@dataclass(frozen=True)
class RestartAfter:
    """Start again after this pause."""

    delay_ms: int


@dataclass(frozen=True)
class FailJob:
    """Do not start again; `reason` completes the sentence 'the job failed and was not restarted: …'."""

    reason: str


@dataclass(frozen=True)
class Tolerance:
    """How many consecutive failed epochs are rerun, each after a pause, before a failure counts as a job failure.

    The policy decides only on a failure beyond that number; a committed epoch, or a restart, resets the count.
    """

    failures_max: int = 0
    delay_ms: int = 0


NO_TOLERANCE = Tolerance()


class RestartPolicy(Protocol):
    """Decides after a failure."""

    def on_failure(self, history: tuple[int, ...], now_ms: int, draw: float = 0.5) -> RestartAfter | FailJob:
        """`history`: times of the earlier failures, oldest first. `draw`: a random number in [0, 1)."""


@dataclass(frozen=True)
class NoRestart:
    """Every failure is final.

    >>> NoRestart().on_failure((), 0)
    FailJob(reason='the restart strategy is none')
    """

    def on_failure(self, history: tuple[int, ...], now_ms: int, draw: float = 0.5) -> RestartAfter | FailJob:
        return FailJob("the restart strategy is none")


@dataclass(frozen=True)
class FixedDelay:
    """A fixed number of restarts over the whole run, each after the same pause.

    >>> FixedDelay(attempts=1, delay_ms=200).on_failure((), 0)
    RestartAfter(delay_ms=200)
    >>> FixedDelay(attempts=1, delay_ms=200).on_failure((0,), 900)
    FailJob(reason='all 1 restarts are used up')
    """

    attempts: int
    delay_ms: int

    def __post_init__(self) -> None:
        _not_negative("fixed-delay", attempts=self.attempts, delay_ms=self.delay_ms)

    def on_failure(self, history: tuple[int, ...], now_ms: int, draw: float = 0.5) -> RestartAfter | FailJob:
        if len(history) >= self.attempts:
            return FailJob(f"all {self.attempts} restarts are used up")
        return RestartAfter(self.delay_ms)


@dataclass(frozen=True)
class FailureRate:
    """Restarts while every interval of `interval_ms` has at most `failures_max` failures.

    >>> policy = FailureRate(failures_max=2, interval_ms=1000, delay_ms=10)
    >>> policy.on_failure((0,), 500)
    RestartAfter(delay_ms=10)
    >>> policy.on_failure((0, 500), 900)
    FailJob(reason='3 failures within 1000 ms, at most 2 are allowed')
    """

    failures_max: int
    interval_ms: int
    delay_ms: int

    def __post_init__(self) -> None:
        _not_negative("failure-rate", failures_max=self.failures_max, delay_ms=self.delay_ms)
        if self.interval_ms < 1:
            raise ConfigurationError(f"Restart strategy failure-rate: interval_ms is {self.interval_ms}, expected > 0.")

    def on_failure(self, history: tuple[int, ...], now_ms: int, draw: float = 0.5) -> RestartAfter | FailJob:
        recent = 1 + sum(1 for at_ms in history if now_ms - at_ms <= self.interval_ms)
        if recent > self.failures_max:
            return FailJob(f"{recent} failures within {self.interval_ms} ms, at most {self.failures_max} are allowed")
        return RestartAfter(self.delay_ms)


@dataclass(frozen=True)
class ExponentialDelay:
    """Pauses that grow by `multiplier` up to `delay_max_ms`, and restart from the initial value after a calm period.

    The period is measured from the restart: the failure time plus the pause. Jitter spreads the pauses of many jobs
    that failed together; the growth itself is computed without it.

    >>> policy = ExponentialDelay(initial_delay_ms=100, delay_max_ms=1000, multiplier=2.0, calm_ms=60_000)
    >>> [policy.on_failure(tuple(range(n)), n).delay_ms for n in range(5)]
    [100, 200, 400, 800, 1000]
    >>> policy.on_failure((0, 1, 2), 90_000).delay_ms
    100
    """

    initial_delay_ms: int = 1_000
    delay_max_ms: int = 60_000
    multiplier: float = 1.5
    calm_ms: int = 3_600_000
    jitter: float = 0.0
    attempts_before_calm: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.initial_delay_ms <= self.delay_max_ms:
            raise ConfigurationError(
                f"Restart strategy exponential-delay: the first pause is {self.initial_delay_ms} ms, expected "
                f"between 1 and the longest, {self.delay_max_ms} ms."
            )
        if self.multiplier < 1.0 or not 0.0 <= self.jitter <= 1.0:
            raise ConfigurationError(
                f"Restart strategy exponential-delay: multiplier is {self.multiplier} and jitter {self.jitter}, "
                f"expected at least 1 and between 0 and 1."
            )
        _not_negative("exponential-delay", calm_ms=self.calm_ms, attempts_before_calm=self.attempts_before_calm or 0)

    def on_failure(self, history: tuple[int, ...], now_ms: int, draw: float = 0.5) -> RestartAfter | FailJob:
        pause, in_a_row, previous_ms = float(self.initial_delay_ms), 0, None
        for at_ms in (*history, now_ms):
            if previous_ms is None or at_ms - (previous_ms + pause) >= self.calm_ms:
                pause, in_a_row = float(self.initial_delay_ms), 1
            else:
                pause, in_a_row = min(pause * self.multiplier, float(self.delay_max_ms)), in_a_row + 1
            previous_ms = at_ms
        if self.attempts_before_calm is not None and in_a_row > self.attempts_before_calm:
            return FailJob(f"{in_a_row} failures without a calm period, at most {self.attempts_before_calm} allowed")
        return RestartAfter(round(pause * (1.0 + self.jitter * (2.0 * draw - 1.0))))


def _not_negative(strategy: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise ConfigurationError(f"Restart strategy {strategy}: {name} is {number}, expected 0 or more.")
