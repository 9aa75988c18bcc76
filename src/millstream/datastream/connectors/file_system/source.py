"""File sources: a format, paths, and whether new files are discovered continuously."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.common.time import DurationLike, duration_ms
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.files.avro_files import AvroRows
from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.lines import JsonLines, TextLines
from millstream.connectors.files.orc_files import OrcRows
from millstream.connectors.files.source import FileSource as EngineFileSource
from millstream.connectors.files.source import file_source
from millstream.connectors.files.wide_text import WideTextLines, wide_charset
from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.datastream.connectors.base import Source
from millstream.datastream.streams.argument_checks import (
    at_users_line,
    checked_output_type,
    checked_text,
    checked_truth,
    refuse,
)
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.graph.notices import log_once

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "BulkFormat",
    "FileEnumeratorProvider",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "StreamFormat",
]


class FileEnumeratorProvider:
    """Flink's enumeration of files. Here text and JSON files are always split into ranges; other formats decide
    themselves."""

    def __init__(self, j_file_enumerator_provider: Any = None) -> None:
        no_java_object(self, j_file_enumerator_provider)

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        return FileEnumeratorProvider()

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        return FileEnumeratorProvider()


class FileSplitAssignerProvider:
    """Flink's assignment of file ranges. Here the driver distributes them evenly."""

    def __init__(self, j_file_split_assigner: Any = None) -> None:
        no_java_object(self, j_file_split_assigner)

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        return FileSplitAssignerProvider()


class _Format:
    """A file format of the public API, with its engine format."""

    def __init__(self, j_format: Any, engine: FileFormat | None) -> None:
        no_java_object(self, j_format)
        if engine is None:
            raise refuse(
                f"{type(self).__name__}: create one with its own methods, such as StreamFormat.text_line_format()"
            )
        self._engine = engine


class StreamFormat(_Format):
    """A format that is read record by record."""

    def __init__(self, j_stream_format: Any = None, *, engine: FileFormat | None = None) -> None:
        super().__init__(j_stream_format, engine)

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Every line is a record of type STRING."""
        with at_users_line():
            is_wide = wide_charset(charset_name) is not None
            return StreamFormat(engine=WideTextLines(charset_name) if is_wide else TextLines(charset_name))

    @staticmethod
    def json_line_format(
        type_info: TypeInformation | None = None, ignore_parse_errors: bool = False, fail_on_missing_field: bool = False
    ) -> StreamFormat:
        """Every line is a JSON document: a record of `type_info`, or without it a plain value (beyond PyFlink)."""
        record_type = checked_output_type("json_line_format", type_info)
        ignores = checked_truth("json_line_format, ignore_parse_errors", ignore_parse_errors)
        fails = checked_truth("json_line_format, fail_on_missing_field", fail_on_missing_field)
        with at_users_line():
            return StreamFormat(engine=JsonLines(record_type, ignores, fails))


class BulkFormat(_Format):
    """A format that is read many records at a time."""

    def __init__(self, j_bulk_format: Any = None, *, engine: FileFormat | None = None) -> None:
        super().__init__(j_bulk_format, engine)

    @staticmethod
    def avro_format(schema: Any) -> BulkFormat:
        """Rows from Avro files, with an `AvroSchema` or its JSON text (beyond PyFlink)."""
        with at_users_line():
            return BulkFormat(engine=AvroRows(AvroSource(str(schema))))

    @staticmethod
    def orc_format(row_type: TypeInformation) -> BulkFormat:
        """Rows of `row_type` from ORC files; columns are matched by name (beyond PyFlink)."""
        if not isinstance(row_type, RowTypeInfo):
            raise refuse(f"orc_format: found {row_type!r}, expected a row type, such as Types.ROW_NAMED([…], […])")
        with at_users_line():
            return BulkFormat(engine=OrcRows(row_type))


class FileSourceBuilder:
    """Collects a file source's settings."""

    def __init__(
        self, j_file_source_builder: Any = None, *, paths: tuple[str, ...] = (), engine: FileFormat | None = None
    ) -> None:
        no_java_object(self, j_file_source_builder)
        if engine is None or not paths:
            raise refuse("FileSourceBuilder: begin with FileSource.for_record_stream_format(format, paths)")
        self._paths = paths
        self._engine = engine
        self._discovery_interval_ms: int | None = None

    def monitor_continuously(self, discovery_interval: DurationLike) -> Self:
        """Discovers new files periodically; the source never ends."""
        with at_users_line():
            interval_ms = duration_ms(discovery_interval)
        if interval_ms <= 0:
            raise refuse(f"monitor_continuously: found {discovery_interval!r}, expected a positive duration")
        self._discovery_interval_ms = interval_ms
        return self

    def process_static_file_set(self) -> Self:
        """Reads the files that exist when the job first starts. This is the default."""
        self._discovery_interval_ms = None
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> Self:
        """Accepted without effect: the format determines how files are split."""
        log_once("file enumerator", "file enumerators have no effect here: the format determines how files are split")
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> Self:
        """Accepted without effect: the driver distributes ranges evenly."""
        log_once("split assigner", "split assigners have no effect here: the driver distributes ranges evenly")
        return self

    def build(self) -> FileSource:
        """The source."""
        with at_users_line():
            return FileSource(engine=file_source(self._paths, self._engine, self._discovery_interval_ms))


class FileSource(Source):
    """A source over files and folders.

    >>> lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in").build()
    """

    def __init__(self, j_file_source: Any = None, *, engine: EngineFileSource | None = None) -> None:
        no_java_object(self, j_file_source)
        if engine is None:
            raise refuse("FileSource: create one with FileSource.for_record_stream_format(format, paths).build()")
        super().__init__(engine)

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """Starts a builder for a format such as `StreamFormat.text_line_format()` or
        `CsvReaderFormat.for_schema(schema)`."""
        return _builder("for_record_stream_format", stream_format, StreamFormat, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Starts a builder for a format such as `ParquetColumnarRowInputFormat(row_type)`."""
        return _builder("for_bulk_file_format", bulk_format, BulkFormat, paths)


def _builder(method: str, format: Any, kind: type[_Format], paths: tuple[str, ...]) -> FileSourceBuilder:
    if not isinstance(format, kind):
        raise refuse(f"{method}: found {format!r}, expected a {kind.__name__}")
    if not paths:
        raise refuse(f"{method}: found no path. Pass files or folders")
    checked_paths = tuple(checked_text(f"{method}, path", path) for path in paths)
    return FileSourceBuilder(paths=checked_paths, engine=format._engine)
