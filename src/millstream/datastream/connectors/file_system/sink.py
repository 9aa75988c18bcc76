"""Writes files that become visible when complete, exactly once.

Tasks stage records, which become part files when their epoch is committed and the rolling policy permits it. Folders
and names follow Flink: by default a part file is in a folder named after the hour of writing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.common.serialization import BulkWriterFactory, Encoder
from millstream.connectors.files import part_rules
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.parts import PartFormat, parts_of_encoder
from millstream.connectors.files.sink import FileSink as EngineFileSink
from millstream.datastream.connectors.base import Sink, StreamTransformer, SupportsPreprocessing
from millstream.datastream.connectors.file_system.parts import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.datastream.functions.source_and_sink import SinkFunction
from millstream.datastream.streams.argument_checks import at_users_line, checked_count, checked_text, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.graph.notices import log_once

if TYPE_CHECKING:
    from typing import Self

__all__ = ["FileSink", "PartsWriterFactory", "StreamingFileSink"]


class PartsWriterFactory(BulkWriterFactory):
    """A bulk format of `millstream.datastream.formats`, with its engine format."""

    def __init__(self, parts: PartFormat) -> None:
        super().__init__()
        self.parts = parts


class _FileSettings:
    """The settings collected by the builders of both file sinks."""

    def __init__(
        self,
        j_builder: Any = None,
        *,
        base_path: str = "",
        parts: PartFormat | None = None,
        policy: part_rules.RollingPolicy | None = None,
    ) -> None:
        no_java_object(self, j_builder)
        if parts is None:
            raise refuse(f"{type(self).__qualname__}: begin with FileSink.for_row_format(path, encoder)")
        self._base_path = checked_text("file sink, base_path", base_path)
        self._parts = parts
        self._policy = policy or part_rules.OnCheckpoint()
        self._buckets: part_rules.BucketAssigner = part_rules.DateTimeBuckets()
        self._prefix = "part"
        self._suffix: str | None = None
        self._compaction: Compaction | None = None

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Accepted without effect: rolling is decided at the end of every epoch."""
        checked_count("with_bucket_check_interval", interval)
        log_once("bucket check interval", "the bucket check interval has no effect here: every epoch checks its parts")
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Sets the folders."""
        if not isinstance(bucket_assigner, BucketAssigner):
            raise refuse(f"with_bucket_assigner: found {bucket_assigner!r}, expected a BucketAssigner")
        self._buckets = bucket_assigner._engine
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Sets the prefix and suffix of file names."""
        if not isinstance(output_file_config, OutputFileConfig):
            raise refuse(f"with_output_file_config: found {output_file_config!r}, expected an OutputFileConfig")
        self._prefix = output_file_config.get_part_prefix()
        self._suffix = output_file_config.get_part_suffix()
        return self

    def _set_policy(self, policy: RollingPolicy) -> Self:
        if not isinstance(policy, RollingPolicy):
            raise refuse(f"with_rolling_policy: found {policy!r}, expected one of RollingPolicy")
        self._policy = policy._engine
        return self

    def _engine(self) -> EngineFileSink:
        with at_users_line():
            return EngineFileSink(
                self._base_path,
                self._parts,
                self._buckets,
                self._policy,
                self._prefix,
                self._suffix,
                self._compaction,
            )


class FileSink(Sink, SupportsPreprocessing):
    """A sink that writes files, for `DataStream.sink_to`.

    >>> sink = FileSink.for_row_format("memory://doctest", Encoder.simple_string_encoder()).build()
    """

    class BaseBuilder(_FileSettings, ABC):
        """Collects a file sink's settings."""

        def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
            """Compacts small files of a folder before they are published: readers never see the small files."""
            if not isinstance(strategy, FileCompactStrategy):
                raise refuse(f"enable_compact: found {strategy!r}, expected a FileCompactStrategy")
            if not isinstance(compactor, FileCompactor):
                raise refuse(f"enable_compact: found {compactor!r}, expected a FileCompactor")
            settings, delimiter = strategy.settings, compactor.delimiter
            with at_users_line():
                self._compaction = (
                    None
                    if delimiter is None
                    else Compaction(settings.get("checkpoints"), settings.get("size_bytes"), delimiter)
                )
            return self

        def disable_compact(self) -> Self:
            """Publishes every file individually. Files that wait for compaction are published with the next epoch."""
            self._compaction = None
            return self

        @abstractmethod
        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Sets when a file is complete."""

        def build(self) -> FileSink:
            """The sink."""
            return FileSink(engine=self._engine())

    class RowFormatBuilder(BaseBuilder):
        """For formats that write record by record; a file is complete when it is large or old."""

        def __init__(
            self, j_row_format_builder: Any = None, *, base_path: str = "", parts: PartFormat | None = None
        ) -> None:
            super().__init__(j_row_format_builder, base_path=base_path, parts=parts, policy=part_rules.WhenLargeOrOld())

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            return self._set_policy(rolling_policy)

    class BulkFormatBuilder(BaseBuilder):
        """For formats that write many records at a time; a file is complete with its epoch."""

        def __init__(
            self, j_bulk_format_builder: Any = None, *, base_path: str = "", parts: PartFormat | None = None
        ) -> None:
            super().__init__(j_bulk_format_builder, base_path=base_path, parts=parts, policy=part_rules.OnCheckpoint())

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            return self._set_policy(rolling_policy)

    def __init__(
        self,
        j_file_sink: Any = None,
        transformer: StreamTransformer | None = None,
        *,
        engine: EngineFileSink | None = None,
    ) -> None:
        no_java_object(self, j_file_sink)
        if engine is None:
            raise refuse("FileSink: create one with FileSink.for_row_format(path, encoder).build()")
        super().__init__(engine)
        self._transformer = transformer

    def get_transformer(self) -> StreamTransformer | None:
        """None: the stream is written unchanged."""
        return self._transformer

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        """Starts a builder for a folder and an encoder, such as `Encoder.simple_string_encoder()`."""
        return FileSink.RowFormatBuilder(base_path=base_path, parts=_row_parts("FileSink", encoder))

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory) -> FileSink.BulkFormatBuilder:
        """Starts a builder for a folder and a format, such as `ParquetBulkWriters.for_row_type(row_type)`."""
        return FileSink.BulkFormatBuilder(base_path=base_path, parts=_bulk_parts("FileSink", writer_factory))


class StreamingFileSink(SinkFunction):
    """The older form of `FileSink`, for `DataStream.add_sink`."""

    class BaseBuilder(_FileSettings, ABC):
        """Collects a file sink's settings."""

        @abstractmethod
        def with_rolling_policy(self, policy: RollingPolicy) -> Self:
            """Sets when a file is complete."""

        def build(self) -> StreamingFileSink:
            """The sink."""
            return StreamingFileSink(self._engine())

    class DefaultRowFormatBuilder(BaseBuilder):
        """For formats that write record by record."""

        def __init__(
            self, j_default_row_format_builder: Any = None, *, base_path: str = "", parts: PartFormat | None = None
        ) -> None:
            policy = part_rules.WhenLargeOrOld()
            super().__init__(j_default_row_format_builder, base_path=base_path, parts=parts, policy=policy)

        def with_rolling_policy(self, policy: RollingPolicy) -> Self:
            return self._set_policy(policy)

    class DefaultBulkFormatBuilder(BaseBuilder):
        """For formats that write many records at a time."""

        def __init__(
            self, j_default_bulk_format_builder: Any = None, *, base_path: str = "", parts: PartFormat | None = None
        ) -> None:
            policy = part_rules.OnCheckpoint()
            super().__init__(j_default_bulk_format_builder, base_path=base_path, parts=parts, policy=policy)

        def with_rolling_policy(self, policy: RollingPolicy) -> Self:
            return self._set_policy(policy)

    def __init__(self, j_obj: EngineFileSink) -> None:
        if not isinstance(j_obj, EngineFileSink):
            raise refuse("StreamingFileSink: create one with StreamingFileSink.for_row_format(path, encoder).build()")
        super().__init__(j_obj)

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> StreamingFileSink.DefaultRowFormatBuilder:
        parts = _row_parts("StreamingFileSink", encoder)
        return StreamingFileSink.DefaultRowFormatBuilder(base_path=base_path, parts=parts)

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> StreamingFileSink.DefaultBulkFormatBuilder:
        parts = _bulk_parts("StreamingFileSink", writer_factory)
        return StreamingFileSink.DefaultBulkFormatBuilder(base_path=base_path, parts=parts)


def _row_parts(sink: str, encoder: Any) -> PartFormat:
    if not isinstance(encoder, Encoder):
        raise refuse(
            f"{sink}.for_row_format: found {encoder!r}, expected an Encoder, such as Encoder.simple_string_encoder()"
        )
    return parts_of_encoder(encoder)


def _bulk_parts(sink: str, factory: Any) -> PartFormat:
    parts = getattr(factory, "parts", None)
    if not isinstance(parts, PartFormat):
        raise refuse(
            f"{sink}.for_bulk_format: found {factory!r}, expected a bulk format, "
            "such as ParquetBulkWriters.for_row_type(row_type)"
        )
    return parts
