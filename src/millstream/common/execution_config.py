"""ExecutionConfig: PyFlink's getters and setters over a Configuration.

Settings are stored only in the configuration, so a setter here, a `-D key=value` and a Configuration passed by the
program cannot disagree. Settings for Flink's JVM (Kryo, Avro, object reuse, closure cleaning) are stored and returned
by their getters, and have no effect here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.options.quantities import parse_duration_ms
from millstream.common.utils import refuse_java
from millstream.errors import ConfigurationError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["ExecutionConfig"]

_PARAMETERS = "pipeline.global-job-parameters"
_CLEANER = "pipeline.closure-cleaner-level"
_WATERMARKS = "pipeline.auto-watermark-interval"
_LATENCY = "metrics.latency.interval"
_PARALLELISM = "parallelism.default"
_MAX_PARALLELISM = "pipeline.max-parallelism"
_CANCEL_INTERVAL = "task.cancellation.interval"
_CANCEL_TIMEOUT = "task.cancellation.timeout"
_KRYO = "pipeline.force-kryo"
_AVRO = "pipeline.force-avro"
_GENERIC_TYPES = "pipeline.generic-types"
_UIDS = "pipeline.auto-generate-uids"
_REUSE = "pipeline.object-reuse"
_COMPRESSION = "execution.checkpointing.snapshot-compression"


class ExecutionConfig:
    """How jobs of an environment run.

    >>> config = ExecutionConfig().set_parallelism(4).set_global_job_parameters({"input": "a.csv"})
    >>> config.get_parallelism(), config.get_global_job_parameters()
    (4, {'input': 'a.csv'})
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, j_execution_config: Any = None, *, configuration: Configuration | None = None) -> None:
        refuse_java(j_execution_config, "ExecutionConfig(j_execution_config)", "use env.get_config()")
        self._configuration = Configuration() if configuration is None else configuration

    def _flag(self, key: str, value: bool) -> ExecutionConfig:
        self._configuration.set_boolean(key, value)
        return self

    def _length(self, key: str, interval_ms: int) -> ExecutionConfig:
        if isinstance(interval_ms, bool) or not isinstance(interval_ms, int) or interval_ms < 0:
            raise ConfigurationError(f"{key} is {interval_ms!r}, expected a whole number of milliseconds, 0 or more.")
        self._configuration.set_string(key, f"{interval_ms} ms")
        return self

    def _length_ms(self, key: str, default_ms: int) -> int:
        text = self._configuration.get_string(key, None)
        return default_ms if text is None else parse_duration_ms(text)

    def _count(self, key: str, count: int, highest: int) -> ExecutionConfig:
        if isinstance(count, bool) or not isinstance(count, int) or not (1 <= count <= highest or count == -1):
            raise ConfigurationError(f"{key} is {count!r}, expected a whole number from 1 to {highest}.")
        if count == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(key)
        else:
            self._configuration.set_integer(key, count)
        return self

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Stored; without effect here (functions are pickled by value)."""
        self._configuration.set_string(_CLEANER, "RECURSIVE")
        return self

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Stored; without effect here."""
        self._configuration.set_string(_CLEANER, "NONE")
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """Whether the closure cleaner was left on."""
        return self._configuration.get_string(_CLEANER, "RECURSIVE") != "NONE"

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Stored; here watermarks advance at the end of every epoch."""
        return self._length(_WATERMARKS, interval)

    def get_auto_watermark_interval(self) -> int:
        """In milliseconds."""
        return self._length_ms(_WATERMARKS, 200)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Stored; without effect here."""
        return self._length(_LATENCY, interval)

    def get_latency_tracking_interval(self) -> int:
        """In milliseconds; 0 is off."""
        return self._length_ms(_LATENCY, 0)

    def get_parallelism(self) -> int:
        """The parallelism set, or PARALLELISM_DEFAULT."""
        return self._configuration.get_integer(_PARALLELISM, self.PARALLELISM_DEFAULT)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """The number of subtasks of operators without their own; -1 removes the setting."""
        return self._count(_PARALLELISM, parallelism, 32768)

    def get_max_parallelism(self) -> int:
        """The maximum set, or -1."""
        return self._configuration.get_integer(_MAX_PARALLELISM, -1)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """The number of key groups: the highest parallelism a job can ever have."""
        return self._count(_MAX_PARALLELISM, max_parallelism, 32768)

    def get_task_cancellation_interval(self) -> int:
        """In milliseconds."""
        return self._length_ms(_CANCEL_INTERVAL, 30_000)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Stored; Spark cancels tasks here."""
        return self._length(_CANCEL_INTERVAL, interval)

    def get_task_cancellation_timeout(self) -> int:
        """In milliseconds."""
        return self._length_ms(_CANCEL_TIMEOUT, 180_000)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Stored; Spark cancels tasks here."""
        return self._length(_CANCEL_TIMEOUT, timeout)

    def enable_force_kryo(self) -> ExecutionConfig:
        """Stored; without effect here."""
        return self._flag(_KRYO, True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Stored; without effect here."""
        return self._flag(_KRYO, False)

    def is_force_kryo_enabled(self) -> bool:
        """The stored setting."""
        return self._configuration.get_boolean(_KRYO, False)

    def enable_generic_types(self) -> ExecutionConfig:
        """Stored; untyped streams are always allowed here, and the plan shows them."""
        return self._flag(_GENERIC_TYPES, True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Stored; untyped streams are always allowed here, and the plan shows them."""
        return self._flag(_GENERIC_TYPES, False)

    def has_generic_types_disabled(self) -> bool:
        """The stored setting."""
        return not self._configuration.get_boolean(_GENERIC_TYPES, True)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Stored; an operator without a uid always gets one here."""
        return self._flag(_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Stored; an operator without a uid always gets one here."""
        return self._flag(_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """The stored setting."""
        return self._configuration.get_boolean(_UIDS, True)

    def enable_force_avro(self) -> ExecutionConfig:
        """Stored; without effect here."""
        return self._flag(_AVRO, True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Stored; without effect here."""
        return self._flag(_AVRO, False)

    def is_force_avro_enabled(self) -> bool:
        """The stored setting."""
        return self._configuration.get_boolean(_AVRO, False)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Stored; chained operators always pass on the same objects here."""
        return self._flag(_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Stored; without effect here."""
        return self._flag(_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        """The stored setting."""
        return self._configuration.get_boolean(_REUSE, False)

    def get_global_job_parameters(self) -> dict[str, str]:
        """The job's parameters: those set here, and those of `-D pipeline.global-job-parameters=a:1,b:2`."""
        text = self._configuration.get_string(_PARAMETERS, "") or ""
        pairs = (pair.partition(":") for pair in text.split(",") if pair.strip())
        parameters = {key.strip(): value.strip() for key, _, value in pairs}
        prefix = f"{_PARAMETERS}."
        for key, value in self._configuration.to_dict().items():
            if key.startswith(prefix):
                parameters[key.removeprefix(prefix)] = value
        return parameters

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Replaces the job's parameters; functions read them from their RuntimeContext."""
        if not isinstance(global_job_parameters_dict, Mapping):
            raise ConfigurationError(
                f"set_global_job_parameters: found {global_job_parameters_dict!r}, expected a dict of parameters"
            )
        for key in self._configuration.key_set():
            if key == _PARAMETERS or key.startswith(f"{_PARAMETERS}."):
                self._configuration.remove_config(key)
        for key, value in global_job_parameters_dict.items():
            self._configuration.set_string(f"{_PARAMETERS}.{key}", str(value))
        return self

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Always empty: there is no Kryo here."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Always empty: there is no Kryo here."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Always empty: there are no POJOs here."""
        return []

    def is_use_snapshot_compression(self) -> bool:
        """The stored setting."""
        return self._configuration.get_boolean(_COMPRESSION, False)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Stored; segments choose their own compression here."""
        return self._flag(_COMPRESSION, bool(use_snapshot_compression))

    def __eq__(self, other: object) -> bool:
        return self._configuration == other._configuration if isinstance(other, ExecutionConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._configuration)


add_pyflink_names(globals())
