"""Options of file tables, and the source and sink they configure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import ClassVar
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.connectors.contracts import Sink
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.group_filters import GroupFilter
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.files.part_rules import OnCheckpoint, WhenLargeOrOld
from millstream.connectors.files.places import files_below, place_of
from millstream.connectors.files.sink import FileSink
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.filesystem.file_rows import FileChoice, FileColumn, table_file_source
from millstream.connectors.tables.filesystem.partition_commit import CommitRule, PartitionedFileSink, PartitionTime
from millstream.connectors.tables.filesystem.partition_filters import partition_filter
from millstream.connectors.tables.filesystem.partitions import PartitionBuckets
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat
from millstream.connectors.tables.formats.formats import format_changes, format_names, format_of, format_options
from millstream.connectors.tables.lookups import LOOKUP_OPTIONS, TableLookup, WholeTable, lookup_settings
from millstream.connectors.tables.options import TableOptions
from millstream.errors import NotAvailableError, NotYetError, ProgramError, did_you_mean
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowField, RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.expressions.types import BigIntType, LocalZonedTimestampType, VarCharType

__all__ = ["FilesystemFactory"]

_COMMIT = "sink.partition-commit"
_TIMES = "partition.time-extractor"
_JAVA_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


class FilesystemFactory(TableFactory):
    """Files in one folder, or in one folder per partition."""

    name = "filesystem"
    options = (
        TableOption("path", "the folder, or an address as s3://bucket/folder", required=True),
        TableOption("format", f"one of {', '.join(format_names(True))}", required=True),
        TableOption("source.monitor-interval", "how often to look for new files; without it the table ends"),
        TableOption("source.path.regex-pattern", "read only files whose whole path matches"),
        TableOption("partition.default-name", "the folder of NULL", default="__DEFAULT_PARTITION__"),
        TableOption(f"{_TIMES}.kind", "default; Java classes are not supported", default="default"),
        TableOption(f"{_TIMES}.timestamp-pattern", "the time of a partition, such as '$day $hour:00:00'"),
        TableOption(f"{_TIMES}.timestamp-formatter", "the format of that time, of yyyy MM dd HH mm ss"),
        TableOption("sink.rolling-policy.file-size", "a file is finished at this size", default="128MB"),
        TableOption("sink.rolling-policy.rollover-interval", "or when it has been open for this long"),
        TableOption("sink.rolling-policy.inactivity-interval", "or has not grown for this long"),
        TableOption("sink.rolling-policy.check-interval", "accepted as in Flink; here every epoch checks"),
        TableOption(f"{_COMMIT}.trigger", "process-time or partition-time", default="process-time"),
        TableOption(f"{_COMMIT}.delay", "how long after its time a partition is committed", default="0 s"),
        TableOption(f"{_COMMIT}.policy.kind", "success-file: a file in its folder marks a complete partition"),
        TableOption(f"{_COMMIT}.success-file.name", "the name of that file", default="_SUCCESS"),
        TableOption(f"{_COMMIT}.watermark-time-zone", "the time zone of partition names", default="UTC"),
        TableOption("sink.shuffle-by-partition.enable", "accepted as in Flink; it has no effect here", default="false"),
        TableOption("auto-compaction", "whether small files are merged", default="false"),
        TableOption("compaction.file-size", "up to this size"),
        *LOOKUP_OPTIONS,
    )
    metadata_keys: ClassVar[Mapping[str, DataType]] = {
        "file.path": VarCharType(0x7FFFFFFF, False),
        "file.name": VarCharType(0x7FFFFFFF, False),
        "file.size": BigIntType(False),
        "file.modification-time": LocalZonedTimestampType(3, False),
    }

    def prunes_fields(self, options: Mapping[str, str]) -> bool:
        return options.get("format") == "parquet"

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options, format = self._options(table)
        fields = table.physical.fields
        chosen = tuple(range(len(fields) + len(table.metadata)) if columns is None else columns)
        stored = [at for at, field in enumerate(fields) if field.name not in table.partition_keys]
        read = [at for at in stored if at in chosen] if format.reads_by_name else stored
        read = read or stored[:1]  # counting rows needs one column
        partitions = tuple(FileColumn(name, _type(table, name), partition=name) for name in table.partition_keys)
        conditions = [(each, partition_filter(each, fields, table.partition_keys)) for each in filters]
        pushed_down = tuple(each for each, condition in conditions if condition is not None)
        wanted = tuple(condition for _, condition in conditions if condition is not None)
        reader = format.reader(FormatOptions(options, ""), RowType([fields[at] for at in read], nullable=False))
        skips: tuple[RowExpression, ...] = ()
        if isinstance(reader, ParquetRows):
            reader, skips = _skipping(reader, [each for each in filters if each not in pushed_down], fields)
        choice = FileChoice(str(options.text("partition.default-name")), _pattern(options), partitions, wanted)
        source = table_file_source(
            str(options.text("path")),
            reader,
            [_column(table, at, read) for at in chosen],
            options.duration_ms("source.monitor-interval"),
            choice,
        )
        return TableSource(source, columns=chosen, filters=pushed_down, skips=skips, bounded=source.bounded)

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        options, format = self._options(table)
        if overwrite:
            raise ProgramError(f"table {table.name!r}: files do not support INSERT OVERWRITE. Write into a new folder")
        size = options.bytes("sink.rolling-policy.file-size") or 128 << 20
        rollover_ms = options.duration_ms("sink.rolling-policy.rollover-interval")
        idle_ms = options.duration_ms("sink.rolling-policy.inactivity-interval")
        options.duration_ms("sink.rolling-policy.check-interval")
        is_rolling = rollover_ms is not None or idle_ms is not None
        compaction = None
        if options.boolean("auto-compaction"):
            compaction = Compaction(size_bytes=options.bytes("compaction.file-size") or size)
        fields = [field for field in table.physical.fields if field.name not in table.partition_keys]
        default = str(options.text("partition.default-name"))
        names = table.physical.names
        rule = _commit_rule(options, table)
        sink = (FileSink if rule is None else PartitionedFileSink)(
            str(options.text("path")),
            format.parts(FormatOptions(options, ""), RowType(fields, nullable=False)),
            PartitionBuckets(names, table.partition_keys, default) if table.partition_keys else None,
            WhenLargeOrOld(size, rollover_ms or 1_800_000, idle_ms or 1_800_000) if is_rolling else OnCheckpoint(),
            compaction=compaction,
        )
        return sink.with_rule(rule) if isinstance(sink, PartitionedFileSink) and rule is not None else sink

    def lookup(self, table: TableDefinition, columns: Sequence[int], keys: Sequence[int]) -> TableLookup:
        options, _ = self._options(table)
        # A lookup table is read completely, to its end.
        settings = {name: value for name, value in table.options.items() if name != "source.monitor-interval"}
        types = [*table.physical.fields, *(RowField(each.name, each.type) for each in table.metadata)]
        row_type = RowType([types[at] for at in columns], nullable=False)
        source = self.source(replace(table, options=settings), columns, ()).source
        return TableLookup(WholeTable(source, row_type), row_type, lookup_settings(options))

    def partitions(self, table: TableDefinition) -> list[dict[str, str]]:
        options, _ = self._options(table)
        root = place_of(str(options.text("path")))
        folders = {PurePosixPath(file.path).parent for file in files_below(root)}
        partitions = []
        for folder in sorted(folders, key=str):
            pairs = (part.split("=", 1) for part in folder.parts if "=" in part)
            values = {unquote(name): value for name, value in pairs}
            if all(name in values for name in table.partition_keys):
                partitions.append({name: unquote(values[name]) for name in table.partition_keys})
        return partitions

    def emitted_changes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        return format_changes(options.get("format"))

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return format_changes(table.options.get("format"))

    def _options(self, table: TableDefinition) -> tuple[TableOptions, TableFormat]:
        name = table.options.get("format", "")
        options = TableOptions(table.name, table.options, (*self.options, *format_options((name,))))
        return options, format_of(name, table.name, "format", for_files=True)


def _skipping(
    reader: ParquetRows, filters: Sequence[RowExpression], fields: Sequence[RowField]
) -> tuple[ParquetRows, tuple[RowExpression, ...]]:
    """A reader that skips row groups by their statistics, and the conditions it uses."""
    names = [field.name for field in fields]
    conditions = [(each, partition_filter(each, fields, names)) for each in filters]
    known = [(each, plain) for each, plain in conditions if plain is not None]
    groups = [GroupFilter(plain.column, plain.comparison, plain.constant) for _, plain in known]
    return reader.skipping(groups), tuple(each for each, _ in known)


def _type(table: TableDefinition, name: str) -> DataType:
    return table.physical.types[table.physical.names.index(name)]


def _column(table: TableDefinition, at: int, read: list[int]) -> FileColumn:
    fields = table.physical.fields
    if at >= len(fields):
        metadata = table.metadata[at - len(fields)]
        return FileColumn(metadata.name, metadata.type, metadata=metadata.key)
    field = fields[at]
    if field.name in table.partition_keys:
        return FileColumn(field.name, field.data_type, partition=field.name)
    return FileColumn(field.name, field.data_type, position=read.index(at))


def _pattern(options: TableOptions) -> str | None:
    pattern = options.text("source.path.regex-pattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise options.wrong("source.path.regex-pattern", f"a regular expression ({error})") from None
    return pattern


# --- partition commit -------------------------------------------------------------------------------------------------


def _commit_rule(options: TableOptions, table: TableDefinition) -> CommitRule | None:
    """When partitions are committed; None: never."""
    trigger = options.choice(f"{_COMMIT}.trigger", ("process-time", "partition-time"))
    delay_ms = options.duration_ms(f"{_COMMIT}.delay") or 0
    time = _partition_time(options, table)
    kinds = [kind.strip() for kind in (options.text(f"{_COMMIT}.policy.kind") or "").split(",") if kind.strip()]
    for kind in kinds:
        if kind == "metastore":
            raise NotYetError.of(f"table {table.name!r}: the commit policy 'metastore'", "catalogs of Hive")
        if kind == "custom":
            raise NotAvailableError(
                f"table {table.name!r}: a custom commit policy is a Java class, which is not supported. Use "
                "'success-file'"
            )
        if kind != "success-file":
            raise options.wrong(f"{_COMMIT}.policy.kind", f"success-file.{did_you_mean(kind, ['success-file'])}")
    if not kinds:
        return None
    if not table.partition_keys:
        raise ProgramError(
            f"table {table.name!r} commits partitions ('{_COMMIT}.policy.kind') but has none. Add PARTITIONED BY (…)"
        )
    name = str(options.text(f"{_COMMIT}.success-file.name"))
    if "/" in name or name[:1] not in ("_", "."):
        raise options.wrong(f"{_COMMIT}.success-file.name", "a name that starts with _ or ., which readers skip")
    return CommitRule(delay_ms, time if trigger == "partition-time" else None, name)


def _partition_time(options: TableOptions, table: TableDefinition) -> PartitionTime | None:
    options.choice(f"{_TIMES}.kind", ("default",))
    pattern, zone = options.text(f"{_TIMES}.timestamp-pattern"), str(options.text(f"{_COMMIT}.watermark-time-zone"))
    for name in re.findall(r"\$(\w+)", pattern or ""):
        if not any(name.startswith(key) for key in table.partition_keys):
            raise options.wrong(
                f"{_TIMES}.timestamp-pattern",
                f"${', $'.join(table.partition_keys)}.{did_you_mean(name, table.partition_keys)}",
            )
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise options.wrong(f"{_COMMIT}.watermark-time-zone", "a time zone, such as UTC or Europe/Berlin") from None
    formatter = options.text(f"{_TIMES}.timestamp-formatter")
    if formatter is not None:
        letters = re.sub("|".join(_JAVA_LETTERS), lambda match: _JAVA_LETTERS[match[0]], formatter)
        if re.search("[A-Za-z]", re.sub("%[A-Za-z]", "", letters)):
            raise options.wrong(f"{_TIMES}.timestamp-formatter", "a format of yyyy, MM, dd, HH, mm and ss")
        formatter = letters
    if not table.partition_keys:
        return None
    return PartitionTime(table.partition_keys, pattern, formatter, zone)
