"""The driver's settings, read from a job's settings: the only module that interprets options.

    JobSettings (set by the program) ── driver_settings() ──► DriverSettings (used by the driver)

Checkpoints, restarts, retention and rescaling have a function each below. It reads Flink's options and ours, of which
ours take precedence, and rejects invalid values. Three things differ from a Flink user's expectation:

- A batch job has no checkpoints in Flink; here its epochs are large, and take as long as necessary.
- The checkpoint timeout applies only if it was set: an epoch is the work itself, not only its checkpoint, so Flink's
  ten minutes would cancel epochs that merely have much to do.
- Flink's default is no restart without checkpointing, and exponential delay with it. Every epoch is a checkpoint
  here, so "with checkpointing" means that the program called `enable_checkpointing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.checkpoint.ahead import NOT_AHEAD, AheadBounds
from millstream.checkpoint.restart import (
    NO_TOLERANCE,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartPolicy,
    Tolerance,
)
from millstream.checkpoint.retention import RetentionPolicy
from millstream.common import options
from millstream.common.options.flink_options import buffer_timeout_ms
from millstream.common.restart_strategy import RestartStrategies
from millstream.errors import ConfigurationError
from millstream.jobs.settings.job_settings import JobSettings
from millstream.storage.store import is_object_address
from millstream.storage.tier.tiered_store import TierSettings

__all__ = [
    "AutoscaleSettings",
    "CheckpointSettings",
    "DriverSettings",
    "ahead_bounds",
    "autoscale_settings",
    "checkpoint_settings",
    "deletes_on_cancel",
    "driver_settings",
    "epoch_target_ms",
    "restart_policy",
    "retention_policy",
    "savepoint_directory",
    "tier_settings",
]

_TIMEOUT = options.KNOWN["execution.checkpointing.timeout"]
_MIN_PAUSE = options.KNOWN["execution.checkpointing.min-pause"]
_TOLERABLE = options.KNOWN["execution.checkpointing.tolerable-failed-checkpoints"]
_RETRY_MS_MAX = 1_000
_AHEAD_EPOCHS = 8
_ON_CANCEL = options.KNOWN["execution.checkpointing.externalized-checkpoint-retention"]
_SAVEPOINTS = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")
_RETAINED = ("execution.checkpointing.num-retained", "state.checkpoints.num-retained")


@dataclass(frozen=True)
class CheckpointSettings:
    """`interval_ms`: the longest an epoch should take. `min_pause_ms`: from the end of one to the start of the next.
    `timeout_ms`: a longer epoch is reported; it is cancelled if `is_timeout_firm`, but the closing epoch of a bounded
    input only if the program set the timeout (`is_timeout_set`)."""

    interval_ms: int | None = None
    min_pause_ms: int = 0
    timeout_ms: int = 600_000
    is_timeout_firm: bool = False
    is_timeout_set: bool = False
    tolerance: Tolerance = NO_TOLERANCE


@dataclass(frozen=True)
class AutoscaleSettings:
    """The bounds of a job's parallelism, its target epoch time, and the cooldown after a change."""

    parallelism_min: int
    parallelism_max: int
    target_ms: int
    cooldown_ms: int


@dataclass(frozen=True)
class DriverSettings:
    """All settings. `records_max` and `bytes_max` bound an epoch's input, in BATCH too. `rounds_max`: how many rounds
    an epoch may take, for loops without a limit of their own. `target_ms`: how long an epoch should take, None: without
    limit. `parallelism` is the default for operators without their own; `autoscale` None: it changes only on request.
    `ahead`: how far epochs may run ahead of commits.

    Many fields: each is a setting.
    """

    records_max: int
    bytes_max: int
    rounds_max: int
    poll_ms: int
    min_interval_ms: int
    restarts: RestartPolicy
    retention: RetentionPolicy
    deletes_on_cancel: bool
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    target_ms: int | None = None
    parallelism: int = 1
    autoscale: AutoscaleSettings | None = None
    ahead: AheadBounds = NOT_AHEAD


def driver_settings(
    settings: JobSettings, *, batch: bool, parallelism: int, max_parallelism: int, store_url: str = ""
) -> DriverSettings:
    """The driver's settings of a job; `batch`: it processes its input as one whole."""
    configuration = settings.configuration
    return DriverSettings(
        records_max=options.read(options.EPOCH_MAX_RECORDS, configuration),
        bytes_max=options.read(options.EPOCH_MAX_BYTES, configuration),
        rounds_max=options.read(options.LOOP_ROUNDS_MAX, configuration),
        poll_ms=options.read(options.EPOCH_POLL_INTERVAL, configuration),
        min_interval_ms=options.read(options.EPOCH_MIN_INTERVAL, configuration),
        restarts=restart_policy(settings),
        retention=retention_policy(configuration),
        deletes_on_cancel=deletes_on_cancel(configuration),
        checkpoints=checkpoint_settings(settings, batch=batch),
        target_ms=None if batch else epoch_target_ms(settings),
        parallelism=parallelism,
        autoscale=autoscale_settings(configuration, max_parallelism),
        ahead=NOT_AHEAD if batch else ahead_bounds(configuration, store_url),
    )


def ahead_bounds(configuration: Mapping[str, str], store_url: str) -> AheadBounds:
    """How far epochs may run ahead of commits: by default a number of epochs for an object store, and zero for a
    folder, where a commit takes less time than running ahead would save.

    >>> ahead_bounds({}, "s3://bucket/job").epochs_max, ahead_bounds({}, "file:///jobs/clicks").epochs_max
    (8, 0)
    """
    epochs_max = options.read(options.AHEAD_MAX_EPOCHS, configuration)
    if epochs_max is None:
        epochs_max = _AHEAD_EPOCHS if is_object_address(store_url) else 0
    bytes_max = options.read(options.AHEAD_MAX_BYTES, configuration)
    age_max_ms = options.read(options.AHEAD_MAX_AGE, configuration)
    for option, value in (
        (options.AHEAD_MAX_EPOCHS, epochs_max),
        (options.AHEAD_MAX_BYTES, bytes_max),
        (options.AHEAD_MAX_AGE, age_max_ms),
    ):
        if value < 0:
            raise ConfigurationError(f"{option.key} is {value}, expected 0 or more")
    return AheadBounds(epochs_max, bytes_max, age_max_ms)


def checkpoint_settings(settings: JobSettings, *, batch: bool) -> CheckpointSettings:
    """The checkpoint settings of a job. As in Flink the timeout applies if checkpoints are enabled, and not in BATCH; a
    timeout that a streaming program sets itself always applies.

    >>> configuration = {"execution.checkpointing.timeout": "30 s", "execution.checkpointing.min-pause": "500 ms"}
    >>> checkpoint_settings(JobSettings(configuration=configuration), batch=False)
    CheckpointSettings(interval_ms=None, min_pause_ms=500, timeout_ms=30000, is_timeout_firm=True, \
is_timeout_set=True, tolerance=Tolerance(failures_max=0, delay_ms=1000))
    """
    configuration = settings.configuration
    interval_ms = settings.checkpoint_interval_ms
    timeout_ms, is_set = options.read(_TIMEOUT, configuration), _TIMEOUT.key in configuration
    tolerable = options.read(_TOLERABLE, configuration)
    if timeout_ms < 1:
        raise ConfigurationError(f"{_TIMEOUT.key} is {timeout_ms} ms. Set a duration such as '10 min'")
    if tolerable < 0:
        raise ConfigurationError(f"{_TOLERABLE.key} is {tolerable}, expected 0 or more")
    tolerance = Tolerance(tolerable, min(interval_ms or _RETRY_MS_MAX, _RETRY_MS_MAX))
    if batch:
        return CheckpointSettings(timeout_ms=timeout_ms, tolerance=tolerance)
    min_pause_ms, is_firm = options.read(_MIN_PAUSE, configuration), is_set or interval_ms is not None
    return CheckpointSettings(interval_ms, min_pause_ms, timeout_ms, is_firm, is_set, tolerance)


def epoch_target_ms(settings: JobSettings) -> int | None:
    """How long an epoch should take: no longer than the checkpoint interval, or than the buffer timeout if the program
    set one. A disabled buffer timeout (-1 in Flink) means that only throughput matters.

    >>> short = {"execution.buffer-timeout.interval": "200 ms"}
    >>> epoch_target_ms(JobSettings(checkpoint_interval_ms=1_000, configuration=short))
    200
    >>> epoch_target_ms(JobSettings(checkpoint_interval_ms=1_000))
    1000
    """
    configuration, interval_ms = settings.configuration, settings.checkpoint_interval_ms
    timeout_ms = buffer_timeout_ms(configuration)
    return interval_ms if timeout_ms is None or timeout_ms < 0 else min(timeout_ms, interval_ms or timeout_ms)


def restart_policy(settings: JobSettings) -> RestartPolicy:
    """The policy of a job.

    >>> restart_policy(JobSettings(restart=RestartStrategies.fixed_delay_restart(3, 100)))
    FixedDelay(attempts=3, delay_ms=100)
    """
    strategy = settings.restart
    if isinstance(strategy, RestartStrategies.FixedDelayRestartStrategyConfiguration):
        return FixedDelay(strategy.restart_attempts, strategy.delay_ms)
    if isinstance(strategy, RestartStrategies.FailureRateRestartStrategyConfiguration):
        return FailureRate(strategy.max_failure_rate, strategy.failure_interval_ms, strategy.delay_ms)
    if isinstance(strategy, RestartStrategies.ExponentialDelayRestartStrategyConfiguration):
        return ExponentialDelay(
            strategy.initial_backoff_ms,
            strategy.max_backoff_ms,
            strategy.backoff_multiplier,
            strategy.reset_backoff_threshold_ms,
            strategy.jitter_factor,
        )
    if isinstance(strategy, RestartStrategies.NoRestartStrategyConfiguration):
        return NoRestart()
    return NoRestart() if settings.checkpoint_interval_ms is None else ExponentialDelay(jitter=0.1)


def retention_policy(configuration: Mapping[str, str]) -> RetentionPolicy:
    """The retention policy of a configuration; our options take precedence over Flink's.

    >>> retention_policy({"state.checkpoints.num-retained": "3"}).keep_last
    3
    """
    keys = [key for key in (options.RETENTION_EPOCHS.key, *_RETAINED) if key in configuration]
    key = keys[0] if keys else options.RETENTION_EPOCHS.key
    keep_last = options.read(options.KNOWN[key], configuration)
    every_ms = options.read(options.RETENTION_INTERVAL, configuration)
    for_ms = options.read(options.RETENTION_PERIOD, configuration)
    if keep_last < 1:
        raise ConfigurationError(f"{key} is {keep_last}: the newest epoch is always retained. Set 1 or more")
    if every_ms is not None and every_ms < 1:
        raise ConfigurationError(f"{options.RETENTION_INTERVAL.key} is {every_ms} ms. Set a duration such as '1 h'")
    if for_ms is not None and every_ms is None:
        raise ConfigurationError(
            f"{options.RETENTION_PERIOD.key} is set, but not which epochs are retained. "
            f"Set {options.RETENTION_INTERVAL.key} too"
        )
    return RetentionPolicy(keep_last, every_ms, for_ms)


def deletes_on_cancel(configuration: Mapping[str, str]) -> bool:
    """Whether a cancelled job removes its epochs. That is Flink's default; here it must be configured.

    >>> deletes_on_cancel({"execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION"})
    True
    """
    text = str(options.read(_ON_CANCEL, configuration) or "")
    return text.strip().upper().replace("-", "_") == "DELETE_ON_CANCELLATION"


def savepoint_directory(configuration: Mapping[str, str]) -> str | None:
    """The folder of savepoints that name none; None: they are saved by reference, in the job's store."""
    return next((path for key in _SAVEPOINTS if (path := options.read(options.KNOWN[key], configuration))), None)


def tier_settings(configuration: Mapping[str, str], store_url: str) -> TierSettings | None:
    """The tier of a job's tasks; None: there is none, e.g. for a store that is a folder.

    >>> tier_settings({"millstream.tier.max-bytes": "1000000"}, "s3://bucket/job")
    TierSettings(folder=None, bytes_max=1000000)
    >>> tier_settings({}, "file:///jobs/clicks") is None
    True
    """
    folder = options.read(options.TIER_FOLDER, configuration)
    bytes_max = options.read(options.TIER_MAX_BYTES, configuration)
    if bytes_max is not None and bytes_max < 1:
        raise ConfigurationError(
            f"{options.TIER_MAX_BYTES.key} is {bytes_max}, expected 1 or more. To disable the tier, set "
            f"{options.TIER_FOLDER.key} to off"
        )
    if folder == "off" or not is_object_address(store_url):
        return None
    return TierSettings(folder, bytes_max)


def autoscale_settings(configuration: Mapping[str, str], max_parallelism: int) -> AutoscaleSettings | None:
    """The settings of a job; None: its parallelism changes only on request.

    >>> autoscale_settings({"millstream.rescale.auto": "true", "millstream.rescale.max": "4"}, 128)
    AutoscaleSettings(parallelism_min=1, parallelism_max=4, target_ms=1000, cooldown_ms=60000)
    """
    if not options.read(options.RESCALE_AUTO, configuration):
        return None
    least = options.read(options.RESCALE_MIN, configuration)
    most = options.read(options.RESCALE_MAX, configuration)
    target_ms = options.read(options.RESCALE_TARGET_EPOCH, configuration)
    if most is None:
        raise ConfigurationError(
            f"{options.RESCALE_AUTO.key} is on, but there is no upper bound. Set {options.RESCALE_MAX.key} to the "
            "highest parallelism that the machines support"
        )
    if not 1 <= least <= most <= max_parallelism:
        raise ConfigurationError(
            f"{options.RESCALE_MIN.key} is {least} and {options.RESCALE_MAX.key} is {most}, expected 1 <= min <= max "
            f"<= {max_parallelism}, the job's maximum parallelism"
        )
    if target_ms < 1:
        raise ConfigurationError(f"{options.RESCALE_TARGET_EPOCH.key} is {target_ms} ms. Set a duration such as '1 s'")
    return AutoscaleSettings(least, most, target_ms, options.read(options.RESCALE_COOLDOWN, configuration))
