"""Settings of file sinks: names of folders and files, and when a file is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.common.time import DurationLike, duration_ms
from millstream.common.utils import JavaObjectWrapper, refuse_java
from millstream.connectors.files import part_rules
from millstream.datastream.streams.argument_checks import at_users_line, checked_count, checked_text, refuse

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "BucketAssigner",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
]


class BucketAssigner(JavaObjectWrapper):
    """Assigns records to folders below the base path."""

    def __init__(self, j_bucket_assigner: Any = None, *, engine: part_rules.BucketAssigner | None = None) -> None:
        super().__init__(j_bucket_assigner)
        self._engine = engine if engine is not None else part_rules.BasePathBuckets()

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Assigns all records to the base path itself."""
        return BucketAssigner(engine=part_rules.BasePathBuckets())

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """Assigns folders by processing time, with a Java date pattern."""
        checked_text("date_time_bucket_assigner, format_str", format_str)
        with at_users_line():
            return BucketAssigner(engine=part_rules.DateTimeBuckets(format_str, timezone_id))

    @staticmethod
    def python_bucket_assigner(function: Callable[[Any], str]) -> BucketAssigner:
        """Assigns folders by a function of the record (beyond PyFlink)."""
        if not callable(function):
            raise refuse(
                f"python_bucket_assigner: found {function!r}, expected a function from a record to a folder's name"
            )
        return BucketAssigner(engine=part_rules.FunctionBuckets(function))


class RollingPolicy(JavaObjectWrapper):
    """Decides when a part file is complete and published."""

    def __init__(self, j_rolling_policy: Any = None, *, engine: part_rules.RollingPolicy | None = None) -> None:
        super().__init__(j_rolling_policy)
        self._engine: part_rules.RollingPolicy = engine if engine is not None else part_rules.OnCheckpoint()

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * 1024 * 1024,
        rollover_interval: int | DurationLike = 60_000,
        inactivity_interval: int | DurationLike = 60_000,
    ) -> DefaultRollingPolicy:
        """Completes a part file at a size (bytes), an age, or an inactivity time (ms, or durations)."""
        with at_users_line():
            engine = part_rules.WhenLargeOrOld(
                checked_count("default_rolling_policy, part_size", part_size),
                _interval_ms("rollover_interval", rollover_interval),
                _interval_ms("inactivity_interval", inactivity_interval),
            )
        return DefaultRollingPolicy(engine=engine)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Completes all part files at every epoch."""
        return OnCheckpointRollingPolicy()


def _interval_ms(name: str, interval: int | DurationLike) -> int:
    milliseconds = interval if isinstance(interval, int) else duration_ms(interval)
    return checked_count(f"default_rolling_policy, {name}", milliseconds)


class DefaultRollingPolicy(RollingPolicy):
    """Rolls by size and age."""

    def __init__(self, j_rolling_policy: Any = None, *, engine: part_rules.RollingPolicy | None = None) -> None:
        super().__init__(j_rolling_policy, engine=engine if engine is not None else part_rules.WhenLargeOrOld())


class OnCheckpointRollingPolicy(RollingPolicy):
    """Rolls at every epoch."""

    def __init__(self, j_rolling_policy: Any = None) -> None:
        super().__init__(j_rolling_policy, engine=part_rules.OnCheckpoint())


class OutputFileConfig(JavaObjectWrapper):
    """The names of part files: `<prefix>-<…><suffix>`.

    >>> config = OutputFileConfig.builder().with_part_prefix("ads").with_part_suffix(".txt").build()
    >>> config.get_part_prefix(), config.get_part_suffix()
    ('ads', '.txt')
    """

    class OutputFileConfigBuilder:
        """Collects prefix and suffix."""

        def __init__(self) -> None:
            self._part_prefix = "part"
            self._part_suffix = ""

        def with_part_prefix(self, prefix: str) -> Self:
            self._part_prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> Self:
            self._part_suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            return OutputFileConfig(self._part_prefix, self._part_suffix)

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        return OutputFileConfig.OutputFileConfigBuilder()

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        super().__init__()
        for part, text in (("prefix", part_prefix), ("suffix", part_suffix)):
            if not isinstance(text, str):
                raise refuse(f"OutputFileConfig: the part {part} is {text!r}, expected a string")
        self._part_prefix = part_prefix
        self._part_suffix = part_suffix

    def get_part_prefix(self) -> str:
        return self._part_prefix

    def get_part_suffix(self) -> str:
        return self._part_suffix


class FileCompactStrategy(JavaObjectWrapper):
    """Decides when small files are compacted: after a number of checkpoints (epochs), or at a total size."""

    def __init__(
        self, j_file_compact_strategy: Any = None, *, builder: FileCompactStrategy.Builder | None = None
    ) -> None:
        super().__init__(j_file_compact_strategy)
        self.settings = dict(builder._settings) if builder is not None else {}

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        return FileCompactStrategy.Builder()

    class Builder:
        """Collects the settings."""

        def __init__(self) -> None:
            self._settings: dict[str, int] = {}

        def build(self) -> FileCompactStrategy:
            if not {"checkpoints", "size_bytes"} & self._settings.keys():
                raise refuse("FileCompactStrategy: set a number of checkpoints or a size threshold")
            return FileCompactStrategy(builder=self)

        def enable_compaction_on_checkpoint(self, num_checkpoints_before_compaction: int) -> Self:
            method = "enable_compaction_on_checkpoint"
            self._settings["checkpoints"] = checked_count(method, num_checkpoints_before_compaction)
            return self

        def set_size_threshold(self, size_threshold: int) -> Self:
            self._settings["size_bytes"] = checked_count("set_size_threshold", size_threshold)
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> Self:
            self._settings["threads"] = checked_count("set_num_compact_threads", num_compact_threads)
            return self


class FileCompactor(JavaObjectWrapper):
    """Determines how small files are compacted."""

    def __init__(self, j_file_compactor: Any = None, *, delimiter: bytes | None = None) -> None:
        refuse_java(j_file_compactor, "FileCompactor", "use FileCompactor.concat_file_compactor()")
        super().__init__()
        self.delimiter = delimiter

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Concatenates files with `file_delimiter` in between. Parquet, Avro and ORC files are merged record by
        record."""
        return FileCompactor(delimiter=file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Disables compaction."""
        return FileCompactor()
