"""The archive of a table: when rows leave the state, and which sink writes them.

With a time column (`by`), a row is archived when its time is `after_ms` behind the watermark, otherwise when it has not
changed for `after_ms` of processing time. Both define a *cut*, a time that only grows; rows at or before it leave. It
moves in steps of `every_ms`, so that an archive has one file per step and not per epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connectors.archives.archived_files import (
    ARCHIVED_COUNT,
    ARCHIVED_REMOVED,
    ARCHIVED_VERSION,
    FORM,
    ArchivedFile,
    milliseconds,
)
from millstream.connectors.contracts import Json, Sink
from millstream.connectors.delta.sink import DeltaTableSink
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.connectors.files.part_plan import Chunk, Part
from millstream.connectors.files.parts import ParquetParts
from millstream.connectors.files.sink import FileSink
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BigIntType, BooleanType, LocalZonedTimestampType, TimestampType
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.state.keys.hashing import Int64s

__all__ = ["DELTA", "MICROSECONDS", "PARQUET", "Archive"]

PARQUET, DELTA, DISCARDED = "parquet", "delta", "discarded"
MICROSECONDS = 6
"""The precision of times in a Delta table."""
_ROW_GROUP_ROWS = 16_384
_WHOLE = 1 << 62


@dataclass(frozen=True)
class Archive:
    """The archive for old rows of a table: `row_type` and `primary_key` are the table's."""

    url: str
    format: str
    row_type: RowType
    primary_key: tuple[str, ...]
    by: str | None
    after_ms: int
    every_ms: int

    @property
    def is_counted(self) -> bool:
        """Whether the table has no primary key, and equal rows are stored with a count."""
        return not self.primary_key

    @property
    def has_fixed_times(self) -> bool:
        """Whether all versions of a key have the same time: then the time identifies the files that may hold the
        key."""
        return self.by is not None and (self.is_counted or self.by in self.primary_key)

    @property
    def file_type(self) -> RowType:
        """The columns of a file."""
        last = ARCHIVED_COUNT if self.is_counted else ARCHIVED_REMOVED
        own = [BigIntType(False), BigIntType(False) if self.is_counted else BooleanType()]
        types = [self._file_column(each) for each in self.row_type.types]
        return RowType.of([*self.row_type.names, ARCHIVED_VERSION, last], [*types, *own], nullable=False)

    def _file_column(self, kind: DataType) -> DataType:
        """The type of a column in a file: nullable, for columns added later. Delta only supports microsecond
        timestamps."""
        if self.format == DELTA and isinstance(kind, TimestampType | LocalZonedTimestampType):
            return type(kind)(MICROSECONDS)
        return kind.nullable()

    def sink(self) -> Sink:
        """The sink for the files; a subtask writes at most one per epoch."""
        file_type = TableRowType(self.file_type)
        if self.format == DELTA:
            return DeltaTableSink(self.url, file_type, file_bytes_max=_WHOLE, adds_columns=True)
        if self.format == DISCARDED:
            return DiscardingSink()
        return FileSink(self.url, ArchiveParts(file_type))

    def discarding(self) -> Archive:
        """A copy for replays: rows leave the state but are not written."""
        return replace(self, format=DISCARDED)

    def cut_ms(self, time_ms: int) -> int | None:
        """The time up to which rows are archived at `time_ms` (a watermark or processing time); None: no rows are.

        The end of the input archives nothing: the complete table remains in state.
        """
        if time_ms in (MIN_WATERMARK, MAX_WATERMARK):
            return None
        cut_ms = time_ms - self.after_ms
        return cut_ms - cut_ms % self.every_ms if self.every_ms else cut_ms

    def times_ms(self, row: list[pa.Array]) -> Int64s:
        """The event time of each row; NEVER_MS for NULL."""
        assert self.by is not None
        return milliseconds(row[self.row_type.names.index(self.by)])

    def entry(
        self, staged: Json, epoch: int, version: int, times_ms: Int64s, groups: Int64s, births: Mapping[str, str]
    ) -> ArchivedFile:
        """The state's entry for a file, from the writer's `staged` entry, the times of its rows, and the births
        of its columns."""
        crc32: int | None = None
        if self.format == DISCARDED:
            file, staged_name, size = "", "", 0
        elif self.format == DELTA:
            file, staged_name, size = str(staged["path"]), "", int(staged["bytes"])
            crc32 = int(staged["crc32"])
        else:
            chunk = Chunk(**staged)
            file, staged_name = Part((chunk,), 0, 0).file_name("part", ArchiveParts.suffix), chunk.file
            size, crc32 = chunk.bytes, chunk.crc32
        low_ms, high_ms = int(times_ms.min()), int(times_ms.max())
        group_low, group_high = int(groups.min()), int(groups.max())
        names, extent = (self.url, file, staged_name), (low_ms, high_ms, group_low, group_high)
        born = json.dumps(dict(births)) if births else ""
        return ArchivedFile(FORM, *names, epoch, version, len(times_ms), size, *extent, crc32, born)


@dataclass(frozen=True)
class ArchiveParts(ParquetParts):
    """Parquet with page checksums, and with small row groups, so that a key can be read without the whole file."""

    def written(self, tables: Iterable[pa.Table]) -> bytes:
        sink = pa.BufferOutputStream()
        table = pa.concat_tables(list(tables))
        pq.write_table(
            table, sink, compression=self.compression, row_group_size=_ROW_GROUP_ROWS, write_page_checksum=True
        )
        return bytes(sink.getvalue())
