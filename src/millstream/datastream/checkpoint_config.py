"""Checkpoint settings: getters and setters over the environment's configuration.

Every epoch of Millstream is a checkpoint: once its manifest is written, the job resumes from it. The interval therefore
bounds the duration of an epoch; pause, timeout and tolerable failures apply to epochs. Flink's other settings
(alignment, concurrency, at-least-once) are stored and returned by their getters, but have no effect here; this is
logged once. Modes and values are checked as in Flink.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.common.configuration import Configuration
from millstream.common.options import KNOWN, Option
from millstream.common.time import Duration
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.environment.durations import duration_ms
from millstream.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import ConfigurationError
from millstream.graph.notices import log_once
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from enum import Enum
    from typing import Self

    Choice = TypeVar("Choice", bound=Enum)

__all__ = ["CheckpointConfig", "log_settings_without_effect"]

_PREFIX = "execution.checkpointing."
_INTERVAL = _PREFIX + "interval"
_MODE = _PREFIX + "mode"
_TIMEOUT = _PREFIX + "timeout"
_MIN_PAUSE = _PREFIX + "min-pause"
_CONCURRENT = _PREFIX + "max-concurrent-checkpoints"
_TOLERABLE = _PREFIX + "tolerable-failed-checkpoints"
_RETENTION = _PREFIX + "externalized-checkpoint-retention"
_UNALIGNED = _PREFIX + "unaligned.enabled"
_UNALIGNED_FORCED = _PREFIX + "unaligned.forced"
_ALIGNED_TIMEOUT = _PREFIX + "aligned-checkpoint-timeout"
_WHY_NOT = {
    _MODE: "execution is exactly-once, which costs no more here",
    _CONCURRENT: "epochs follow one another, and only publishing is concurrent with the next",
    _UNALIGNED: "barriers follow an epoch's data, so there is no alignment to skip",
    _UNALIGNED_FORCED: "barriers follow an epoch's data, so there is no alignment to skip",
    _ALIGNED_TIMEOUT: "barriers follow an epoch's data, so there is no alignment to time",
}


def log_settings_without_effect(configuration: Configuration) -> None:
    """Logs once for every changed checkpoint setting that has no effect."""
    for key, text in configuration.to_dict().items():
        option = KNOWN.get(key)
        if option is None or option.effect or not key.startswith(_PREFIX):
            continue
        if _differs(option, text):
            notice = f"{key} has no effect here: {_WHY_NOT[key]}" if key in _WHY_NOT else f"{key}: {option.doc}"
            log_once(key, notice)


def _differs(option: Option, text: str) -> bool:
    """Whether a setting differs from its default. An invalid string counts as changed, because nothing else parses
    it."""
    try:
        value = option.parse(text.upper().replace("-", "_") if option.key == _MODE else text)
    except ConfigurationError:
        return True
    return bool(value != option.default)


class CheckpointConfig:
    """How often the job commits, the time limit of an epoch, and Flink's other checkpoint settings as data.

    >>> config = CheckpointConfig()
    >>> config.is_checkpointing_enabled(), config.get_checkpoint_timeout()
    (False, 600000)
    >>> config.set_checkpoint_interval(5000).get_checkpoint_interval()
    5000
    """

    def __init__(self, j_checkpoint_config: Any = None, *, configuration: Configuration | None = None) -> None:
        no_java_object(self, j_checkpoint_config)
        self._configuration = Configuration() if configuration is None else configuration

    def _set_ms(self, method: str, key: str, value_ms: int, least: int) -> Self:
        self._configuration.set_string(key, f"{checked_count(method, value_ms, least)} ms")
        return self

    def _with_notices(self) -> Self:
        log_settings_without_effect(self._configuration)
        return self

    def _choice(self, key: str, kind: type[Choice], default: Choice) -> Choice:
        text = self._configuration.get_string(key, None) or default.name
        name = text.strip().upper().replace("-", "_")
        if name not in kind.__members__:
            raise refuse(f"{key}: found {text!r}, expected one of {', '.join(kind.__members__)}")
        return kind[name]

    def is_checkpointing_enabled(self) -> bool:
        """Whether an interval was set. Millstream commits every epoch in any case."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The configured mode; EXACTLY_ONCE by default."""
        return self._choice(_MODE, CheckpointingMode, CheckpointingMode.EXACTLY_ONCE)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> Self:
        """Sets the mode. Execution is always exactly-once; setting at-least-once logs this."""
        if not isinstance(checkpointing_mode, CheckpointingMode):
            raise refuse(f"set_checkpointing_mode: found {checkpointing_mode!r}, expected a CheckpointingMode")
        self._configuration.set_string(_MODE, checkpointing_mode.name)
        return self._with_notices()

    def get_checkpoint_interval(self) -> int:
        """The interval in ms; -1 if not set."""
        return duration_ms(self._configuration, _INTERVAL, -1)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> Self:
        """Sets the maximum interval between commits, which bounds the size of epochs."""
        return self._set_ms("set_checkpoint_interval", _INTERVAL, checkpoint_interval, least=1)

    def get_checkpoint_timeout(self) -> int:
        """The timeout in ms; ten minutes by default, as in Flink. The default is not enforced: an epoch includes the
        processing, not only the writing of a checkpoint."""
        return duration_ms(self._configuration, _TIMEOUT, 600_000)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> Self:
        """Sets the time limit of an epoch in ms. A longer epoch is cancelled and counts as failed."""
        return self._set_ms("set_checkpoint_timeout", _TIMEOUT, checkpoint_timeout, least=1)

    def get_min_pause_between_checkpoints(self) -> int:
        """The minimum pause in ms."""
        return duration_ms(self._configuration, _MIN_PAUSE, 0)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> Self:
        """Sets the minimum pause between the commit of an epoch and the beginning of the next, in ms."""
        method = "set_min_pause_between_checkpoints"
        return self._set_ms(method, _MIN_PAUSE, min_pause_between_checkpoints, least=0)

    def get_max_concurrent_checkpoints(self) -> int:
        """Always 1, because epochs do not overlap."""
        return self._configuration.get_integer(_CONCURRENT, 1)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> Self:
        """Stored without effect."""
        maximum = checked_count("set_max_concurrent_checkpoints", max_concurrent_checkpoints)
        self._configuration.set_integer(_CONCURRENT, maximum)
        return self._with_notices()

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether the first failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> Self:
        """Tolerates no failed checkpoint, or any number (older method)."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """The number of consecutive epochs that may fail and be retried before the job fails."""
        return self._configuration.get_integer(_TOLERABLE, 0)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> Self:
        """Sets how many failed epochs are tolerated before the restart strategy decides. Failures in user functions are
        never tolerated."""
        method = "set_tolerable_checkpoint_failure_number"
        self._configuration.set_integer(_TOLERABLE, checked_count(method, tolerable_checkpoint_failure_number, least=0))
        return self

    def set_externalized_checkpoint_retention(self, retention_mode: ExternalizedCheckpointRetention) -> Self:
        if not isinstance(retention_mode, ExternalizedCheckpointRetention):
            raise refuse(
                f"set_externalized_checkpoint_retention: found {retention_mode!r}, "
                "expected an ExternalizedCheckpointRetention"
            )
        self._configuration.set_string(_RETENTION, retention_mode.name)
        return self

    def is_externalized_checkpoints_enabled(self) -> bool:
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self._choice(_RETENTION, ExternalizedCheckpointRetention, none)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._configuration.get_boolean(_UNALIGNED, False)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> Self:
        """Stored without effect: barriers follow an epoch's data, so alignment never occurs."""
        self._configuration.set_boolean(_UNALIGNED, bool(enabled))
        return self._with_notices()

    def disable_unaligned_checkpoints(self) -> Self:
        return self.enable_unaligned_checkpoints(False)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration | timedelta) -> Self:
        if isinstance(alignment_timeout, timedelta):
            timeout_ms = alignment_timeout // timedelta(milliseconds=1)
        elif isinstance(alignment_timeout, Duration):
            timeout_ms = alignment_timeout.to_millis()
        else:
            raise refuse(f"set_aligned_checkpoint_timeout: found {alignment_timeout!r}, expected a Duration")
        return self._set_ms("set_aligned_checkpoint_timeout", _ALIGNED_TIMEOUT, timeout_ms, least=0)._with_notices()

    def get_aligned_checkpoint_timeout(self) -> Duration:
        return Duration.of_millis(duration_ms(self._configuration, _ALIGNED_TIMEOUT, 0))

    def set_alignment_timeout(self, alignment_timeout: Duration | timedelta) -> Self:
        """Older name of `set_aligned_checkpoint_timeout`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Older name of `get_aligned_checkpoint_timeout`."""
        return self.get_aligned_checkpoint_timeout()

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> Self:
        self._configuration.set_boolean(_UNALIGNED_FORCED, bool(force_unaligned_checkpoints))
        return self._with_notices()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._configuration.get_boolean(_UNALIGNED_FORCED, False)


add_pyflink_names(globals())
