"""What Flink's checkpoint settings mean to the driver, from a job's configuration.

A batch job has no checkpoints in Flink; here its epochs are as large as `millstream.epoch.max-records` allows, and take
as long as they take. And the timeout is one only if it was set: an epoch is the work itself, not only the saving of it,
so that Flink's ten minutes would cancel what merely has much to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.checkpoint.restart import NO_TOLERANCE, Tolerance
from millstream.common import options
from millstream.errors import ConfigurationError
from millstream.jobs.settings.settings import JobSettings

__all__ = ["CheckpointSettings", "checkpoint_settings"]

_TIMEOUT = options.KNOWN["execution.checkpointing.timeout"]
_MIN_PAUSE = options.KNOWN["execution.checkpointing.min-pause"]
_TOLERABLE = options.KNOWN["execution.checkpointing.tolerable-failed-checkpoints"]
_RETRY_MS_MAX = 1_000


@dataclass(frozen=True)
class CheckpointSettings:
    """`interval_ms`: the longest an epoch should take. `min_pause_ms`: from the end of one to the start of the next.
    `timeout_ms`: an epoch that takes longer is cancelled. None: there is no such bound."""

    interval_ms: int | None = None
    min_pause_ms: int = 0
    timeout_ms: int | None = None
    tolerance: Tolerance = NO_TOLERANCE


def checkpoint_settings(settings: JobSettings, *, batch: bool) -> CheckpointSettings:
    """What a job's settings say.

    >>> given = {"execution.checkpointing.timeout": "30 s", "execution.checkpointing.min-pause": "500 ms"}
    >>> checkpoint_settings(JobSettings(configuration=given), batch=False)
    CheckpointSettings(interval_ms=None, min_pause_ms=500, timeout_ms=30000, tolerance=Tolerance(failures_max=0, \
delay_ms=1000))
    """
    configuration = settings.configuration
    interval_ms = settings.checkpoint_interval_ms
    timeout_ms = options.read(_TIMEOUT, configuration) if _TIMEOUT.key in configuration else None
    tolerable = options.read(_TOLERABLE, configuration)
    if timeout_ms is not None and timeout_ms < 1:
        raise ConfigurationError(f"{_TIMEOUT.key} is {timeout_ms} ms. Give a duration such as '10 min'")
    if tolerable < 0:
        raise ConfigurationError(f"{_TOLERABLE.key} is {tolerable}, expected 0 or more")
    tolerance = Tolerance(tolerable, min(interval_ms or _RETRY_MS_MAX, _RETRY_MS_MAX))
    if batch:
        return CheckpointSettings(tolerance=tolerance)
    return CheckpointSettings(interval_ms, options.read(_MIN_PAUSE, configuration), timeout_ms, tolerance)
