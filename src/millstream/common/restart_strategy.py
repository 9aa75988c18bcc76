"""Restart strategies: plain data that determine whether a failed job starts again, and when.

`checkpoint` makes the decision from these numbers. It reads the attributes ending in `_ms`; the getters are PyFlink's.
"""

from __future__ import annotations

from typing import Any

from millstream.common.time import Duration, DurationLike, duration_ms
from millstream.common.utils import refuse_java
from millstream.errors import ConfigurationError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


class RestartStrategyConfiguration:
    """The reaction to a failure; made by `RestartStrategies`."""

    def __init__(self, j_restart_strategy_configuration: Any = None) -> None:
        refuse_java(j_restart_strategy_configuration, f"{type(self).__name__}", "use RestartStrategies")

    def get_description(self) -> str:
        """The strategy in a sentence."""
        return "Cluster level default restart strategy."

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RestartStrategyConfiguration):
            return NotImplemented
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(sorted(vars(self).items()))))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.get_description()}>"


def _at_least(low: int, name: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < low:
        raise ConfigurationError(f"{name} of a restart strategy is {number!r}, expected a whole number from {low} on.")
    return number


def _length_ms(name: str, length: int | DurationLike) -> int:
    """PyFlink accepts milliseconds here; durations are accepted as well."""
    return _at_least(0, name, length if isinstance(length, int) else duration_ms(length))


class RestartStrategies:
    """Makes restart strategies.

    >>> RestartStrategies.fixed_delay_restart(3, 1000).get_description()
    'Restart with fixed delay (1000 ms). #3 restart attempts.'
    """

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """A failure ends the job."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """The strategy in the configuration."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | DurationLike
    ) -> RestartStrategyConfiguration:
        """A number of attempts, each after the same pause (milliseconds, or a duration)."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | DurationLike, delay_interval: int | DurationLike
    ) -> RestartStrategyConfiguration:
        """Attempts as long as there are at most `failure_rate` failures within `failure_interval`."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(failure_rate, failure_interval, delay_interval)

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: int | DurationLike,
        max_backoff: int | DurationLike,
        backoff_multiplier: float,
        reset_backoff_threshold: int | DurationLike,
        jitter_factor: float,
    ) -> RestartStrategyConfiguration:
        """Pauses that grow with each failure, up to a maximum, and restart from the initial one after a quiet
        period."""
        return RestartStrategies.ExponentialDelayRestartStrategyConfiguration(
            initial_backoff, max_backoff, backoff_multiplier, reset_backoff_threshold, jitter_factor
        )

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A failure ends the job."""

        def __init__(self, j_restart_strategy: Any = None) -> None:
            super().__init__(j_restart_strategy)

        def get_description(self) -> str:
            return "Restart deactivated."

    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The strategy in the configuration."""

        def __init__(self, j_restart_strategy: Any = None) -> None:
            super().__init__(j_restart_strategy)

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A number of attempts, each after the same pause."""

        def __init__(
            self,
            restart_attempts: int,
            delay_between_attempts_interval: int | DurationLike,
            j_restart_strategy: Any = None,
        ) -> None:
            super().__init__(j_restart_strategy)
            self.restart_attempts = _at_least(0, "restart_attempts", restart_attempts)
            self.delay_ms = _length_ms("delay_between_attempts", delay_between_attempts_interval)

        def get_restart_attempts(self) -> int:
            """How many attempts."""
            return self.restart_attempts

        def get_delay_between_attempts_interval(self) -> Duration:
            """The pause before each."""
            return Duration.of_millis(self.delay_ms)

        def get_description(self) -> str:
            return f"Restart with fixed delay ({self.delay_ms} ms). #{self.restart_attempts} restart attempts."

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Attempts while failures stay rare."""

        def __init__(
            self,
            max_failure_rate: int,
            failure_interval: int | DurationLike,
            delay_between_attempts_interval: int | DurationLike,
            j_restart_strategy: Any = None,
        ) -> None:
            super().__init__(j_restart_strategy)
            self.max_failure_rate = _at_least(1, "failure_rate", max_failure_rate)
            self.failure_interval_ms = _length_ms("failure_interval", failure_interval)
            self.delay_ms = _length_ms("delay_interval", delay_between_attempts_interval)

        def get_max_failure_rate(self) -> int:
            """The most failures within the interval."""
            return self.max_failure_rate

        def get_failure_interval(self) -> Duration:
            """The interval in which failures are counted."""
            return Duration.of_millis(self.failure_interval_ms)

        def get_delay_between_attempts_interval(self) -> Duration:
            """The pause before each attempt."""
            return Duration.of_millis(self.delay_ms)

        def get_description(self) -> str:
            return (
                f"Failure rate restart with maximum of {self.max_failure_rate} failures within interval "
                f"{self.failure_interval_ms} ms and fixed delay {self.delay_ms} ms."
            )

    class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Pauses that grow with each failure."""

        def __init__(
            self,
            initial_backoff: int | DurationLike,
            max_backoff: int | DurationLike,
            backoff_multiplier: float,
            reset_backoff_threshold: int | DurationLike,
            jitter_factor: float,
        ) -> None:
            super().__init__()
            self.initial_backoff_ms = _length_ms("initial_backoff", initial_backoff)
            self.max_backoff_ms = _length_ms("max_backoff", max_backoff)
            self.backoff_multiplier = float(backoff_multiplier)
            self.reset_backoff_threshold_ms = _length_ms("reset_backoff_threshold", reset_backoff_threshold)
            self.jitter_factor = float(jitter_factor)
            if self.initial_backoff_ms < 1 or self.max_backoff_ms < self.initial_backoff_ms:
                raise ConfigurationError(
                    f"backoff of a restart strategy is {self.initial_backoff_ms} to {self.max_backoff_ms} ms, "
                    "expected a positive pause that grows. Raise max_backoff or lower initial_backoff."
                )
            if self.backoff_multiplier < 1 or not 0 <= self.jitter_factor <= 1:
                raise ConfigurationError(
                    f"backoff_multiplier is {self.backoff_multiplier} and jitter_factor {self.jitter_factor}, "
                    "expected a multiplier of 1 or more and a jitter between 0 and 1."
                )

        def get_description(self) -> str:
            return (
                f"Restart with exponential delay ({self.initial_backoff_ms} ms to {self.max_backoff_ms} ms, "
                f"times {self.backoff_multiplier:g}, reset after {self.reset_backoff_threshold_ms} ms, "
                f"jitter {self.jitter_factor:g})."
            )


add_pyflink_names(globals())
