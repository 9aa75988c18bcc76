"""How much of its past a job keeps, from its configuration."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.checkpoint.retention import RetentionPolicy
from millstream.common import options
from millstream.errors import ConfigurationError

__all__ = ["deletes_on_cancel", "retention_policy", "savepoint_directory"]

_ON_CANCEL = "execution.checkpointing.externalized-checkpoint-retention"
_SAVEPOINTS = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")
_FLINK_NAMES = ("execution.checkpointing.num-retained", "state.checkpoints.num-retained")


def retention_policy(configuration: Mapping[str, str]) -> RetentionPolicy:
    """The policy that the settings stand for; ours before Flink's, where both are given.

    >>> retention_policy({"state.checkpoints.num-retained": "3"}).keep_last
    3
    """
    given = [key for key in (options.RETENTION_EPOCHS.key, *_FLINK_NAMES) if key in configuration]
    key = given[0] if given else options.RETENTION_EPOCHS.key
    keep_last = options.read(options.KNOWN[key], configuration)
    every_ms = options.read(options.RETENTION_INTERVAL, configuration)
    for_ms = options.read(options.RETENTION_PERIOD, configuration)
    if keep_last < 1:
        raise ConfigurationError(f"{key} is {keep_last}: the newest epoch always stays. Give 1 or more")
    if every_ms is not None and every_ms < 1:
        raise ConfigurationError(f"{options.RETENTION_INTERVAL.key} is {every_ms} ms. Give a duration such as '1 h'")
    if for_ms is not None and every_ms is None:
        raise ConfigurationError(
            f"{options.RETENTION_PERIOD.key} says for how long, but not which epochs are kept. "
            f"Set {options.RETENTION_INTERVAL.key} too"
        )
    return RetentionPolicy(keep_last, every_ms, for_ms)


def deletes_on_cancel(configuration: Mapping[str, str]) -> bool:
    """Whether a job that is cancelled leaves nothing behind. Flink's default does; here that must be asked for.

    >>> deletes_on_cancel({"execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION"})
    True
    """
    text = str(options.read(options.KNOWN[_ON_CANCEL], configuration) or "")
    return text.strip().upper().replace("-", "_") == "DELETE_ON_CANCELLATION"


def savepoint_directory(configuration: Mapping[str, str]) -> str | None:
    """Where savepoints go that name no folder; None: they are kept by reference, in the job's store."""
    return next((path for key in _SAVEPOINTS if (path := options.read(options.KNOWN[key], configuration))), None)
