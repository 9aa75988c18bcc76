"""Which restart policy a job runs under: the strategy of the program or its configuration, else Flink's default.

Flink's default without checkpointing is no restart, with checkpointing exponential delay. Every epoch is a
checkpoint here, so "with checkpointing" means that the program asked for it by `enable_checkpointing`.
"""

from __future__ import annotations

from millstream.checkpoint.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartPolicy
from millstream.common.restart_strategy import RestartStrategies
from millstream.jobs.settings.settings import JobSettings

__all__ = ["restart_policy"]


def restart_policy(settings: JobSettings) -> RestartPolicy:
    """The policy of a job.

    >>> restart_policy(JobSettings(restart=RestartStrategies.fixed_delay_restart(3, 100)))
    FixedDelay(attempts=3, delay_ms=100)
    """
    given = settings.restart
    if isinstance(given, RestartStrategies.FixedDelayRestartStrategyConfiguration):
        return FixedDelay(given.restart_attempts, given.delay_ms)
    if isinstance(given, RestartStrategies.FailureRateRestartStrategyConfiguration):
        return FailureRate(given.max_failure_rate, given.failure_interval_ms, given.delay_ms)
    if isinstance(given, RestartStrategies.ExponentialDelayRestartStrategyConfiguration):
        return ExponentialDelay(
            given.initial_backoff_ms,
            given.max_backoff_ms,
            given.backoff_multiplier,
            given.reset_backoff_threshold_ms,
            given.jitter_factor,
        )
    if isinstance(given, RestartStrategies.NoRestartStrategyConfiguration):
        return NoRestart()
    return NoRestart() if settings.checkpoint_interval_ms is None else ExponentialDelay(jitter=0.1)
