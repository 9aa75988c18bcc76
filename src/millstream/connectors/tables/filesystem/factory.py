"""The options of tables in files, and the source and sink they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from millstream.connectors.contracts import Sink
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.files.part_rules import OnCheckpoint, WhenLargeOrOld
from millstream.connectors.files.parts import ParquetParts, PartFormat
from millstream.connectors.files.sink import FileSink
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.filesystem.file_rows import FileColumn, table_file_source
from millstream.connectors.tables.filesystem.partitions import PartitionBuckets
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.expressions.types import BigIntType, VarCharType
from millstream.records.table_type import TableRowType

__all__ = ["FilesystemFactory"]

FORMATS = ("parquet",)


class FilesystemFactory(TableFactory):
    """Files in one folder, or in a folder for each partition."""

    name = "filesystem"
    options = (
        TableOption("path", "the folder, or an address as s3://bucket/folder", required=True),
        TableOption("format", f"one of {', '.join(FORMATS)}", required=True),
        TableOption("source.monitor-interval", "how often to look for new files; without it the table ends"),
        TableOption("partition.default-name", "the folder of NULL", default="__DEFAULT_PARTITION__"),
        TableOption("sink.rolling-policy.file-size", "a file is finished at this size", default="128MB"),
        TableOption("sink.rolling-policy.rollover-interval", "or when it has been open for so long"),
        TableOption("sink.rolling-policy.inactivity-interval", "or has not grown for so long"),
        TableOption("sink.parallelism", "how many tasks write"),
        TableOption("auto-compaction", "whether small files become larger ones", default="false"),
        TableOption("compaction.file-size", "up to this size"),
    )
    metadata_keys: ClassVar[Mapping[str, DataType]] = {
        "file.path": VarCharType(0x7FFFFFFF, False),
        "file.name": VarCharType(0x7FFFFFFF, False),
        "file.size": BigIntType(False),
    }

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options = self._options(table)
        fields = table.physical.fields
        chosen = tuple(range(len(fields) + len(table.metadata)) if columns is None else columns)
        read: list[int] = [at for at in chosen if at < len(fields) and fields[at].name not in table.partition_keys]
        given = [self._column(table, at, read) for at in chosen]
        file_type = TableRowType(RowType([fields[at] for at in read], nullable=False))
        source = table_file_source(
            str(options.text("path")),
            self._reader(options, file_type),
            given,
            options.duration_ms("source.monitor-interval"),
            str(options.text("partition.default-name")),
        )
        return TableSource(source, columns=chosen, bounded=source.bounded)

    def _column(self, table: TableDefinition, at: int, read: list[int]) -> FileColumn:
        fields = table.physical.fields
        if at >= len(fields):
            metadata = table.metadata[at - len(fields)]
            return FileColumn(metadata.name, metadata.type, metadata=metadata.key)
        field = fields[at]
        if field.name in table.partition_keys:
            return FileColumn(field.name, field.data_type, partition=field.name)
        return FileColumn(field.name, field.data_type, position=read.index(at))

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        options = self._options(table)
        if overwrite:
            raise ProgramError(f"table {table.name!r}: files take no INSERT OVERWRITE. Write into a new folder")
        size = options.bytes("sink.rolling-policy.file-size") or 128 << 20
        rollover_ms = options.duration_ms("sink.rolling-policy.rollover-interval")
        idle_ms = options.duration_ms("sink.rolling-policy.inactivity-interval")
        is_rolling = rollover_ms is not None or idle_ms is not None
        compaction = None
        if options.boolean("auto-compaction"):
            compaction = Compaction(size_bytes=options.bytes("compaction.file-size") or size)
        buckets = None
        if table.partition_keys:
            default = str(options.text("partition.default-name"))
            buckets = PartitionBuckets(table.physical.names, table.partition_keys, default)
        return FileSink(
            str(options.text("path")),
            self._writer(options),
            buckets,
            WhenLargeOrOld(size, rollover_ms or 1_800_000, idle_ms or 1_800_000) if is_rolling else OnCheckpoint(),
            compaction=compaction,
        )

    def _options(self, table: TableDefinition) -> TableOptions:
        options = TableOptions(table.name, table.options, self.options)
        options.choice("format", FORMATS)
        return options

    def _reader(self, options: TableOptions, type_info: TableRowType) -> FileFormat:
        return ParquetRows(type_info)

    def _writer(self, options: TableOptions) -> PartFormat:
        return ParquetParts()
