"""Converts rows of files to rows of a table: columns in the file, values in its path, and metadata of the file.

A partition column is not in the files: its value is part of their path (`day=2026-11-16/part-0.parquet`). Metadata
columns name the file of a row. Both are constant for all rows of a file, so they cost one value each.

A file that the table excludes (its path does not match the pattern, or its partition the query) keeps its position in
the list of files, which several tables may share, as a file without rows: its start is its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from millstream.connectors.contracts import Offset, Outlook, Read, Split
from millstream.connectors.files.formats import FileFormat, RowCountedFormat, split_name
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.files.places import InputFile
from millstream.connectors.files.source import FileSource, RowFileSource
from millstream.connectors.tables.filesystem.partition_filters import PartitionFilter
from millstream.connectors.tables.formats.cell_text import cell_value
from millstream.errors import JobFailedError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType

__all__ = ["DEFAULT_PARTITION", "FileChoice", "FileColumn", "table_file_source"]

DEFAULT_PARTITION = "__DEFAULT_PARTITION__"
"""The path component for NULL and empty text."""


@dataclass(frozen=True)
class FileColumn:
    """The origin of a column: the file's own column at `position`, or `partition`, or `metadata`."""

    name: str
    type: DataType
    position: int | None = None
    partition: str | None = None
    metadata: str | None = None


@dataclass(frozen=True)
class FileChoice:
    """Selects the files to read: by `pattern` on the path, and by all `wanted` conditions on the partitions."""

    default_partition: str = DEFAULT_PARTITION
    pattern: str | None = None
    partitions: tuple[FileColumn, ...] = ()
    wanted: tuple[PartitionFilter, ...] = ()

    def matches(self, path: str) -> bool:
        if self.pattern is not None and re.fullmatch(self.pattern, path) is None:
            return False
        if not self.wanted:
            return True
        values = {column.name: _partition_value(path, column, self.default_partition) for column in self.partitions}
        return all(each.matches(values[each.column].as_py()) for each in self.wanted)


class _TableFiles(FileSource):
    """A file source that emits rows of a table."""

    columns: tuple[FileColumn, ...] = ()
    choice: FileChoice = FileChoice()

    def opened(self, store: Any, session: Any) -> _TableFiles:
        source = super().opened(store, session)
        assert isinstance(source, _TableFiles)
        return source.with_columns(self.columns, self.choice)

    def with_columns(self, columns: Sequence[FileColumn], choice: FileChoice) -> _TableFiles:
        """A copy that emits these columns of the selected files."""
        self.columns, self.choice = tuple(columns), choice
        row_type = RowType.of([each.name for each in columns], [each.type for each in columns], nullable=False)
        self.type_info, self._schema = TableRowType(row_type), row_type.schema
        self._is_as_read = [each.position for each in columns] == list(range(len(columns)))
        return self

    def _planned(self, file: InputFile) -> Sequence[Split]:
        if not self.choice.matches(file.path):
            return (Split(split_name(file, 0), 0, {"path": file.path, "end": 0, "size": 0}),)
        splits = super()._planned(file)
        if all(column.metadata != "file.modification-time" for column in self.columns):
            return splits
        return [replace(each, info={**each.info, "modified_ms": file.modified_ns // 1_000_000}) for each in splits]

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return (yield from self._as_table(split, super().read(split, start, stop)))

    def _as_table(self, split: Split, rows: Read) -> Read:
        values: list[pa.Scalar] | None = None
        while True:
            try:
                batch = next(rows)
            except StopIteration as end:
                return end.value
            values = values or [self._constant(column, split) for column in self.columns]
            yield self._table_batch(batch, values)

    def _table_batch(self, batch: pa.RecordBatch, values: list[pa.Scalar]) -> pa.RecordBatch | Batch:
        if self._is_as_read and batch.schema.equals(self._schema):
            return batch
        arrays = [
            pa.repeat(value, batch.num_rows) if column.position is None else batch.column(column.position)
            for column, value in zip(self.columns, values, strict=True)
        ]
        schema = self._schema
        kinds = batch.schema.get_field_index(KIND_COLUMN)
        if kinds >= 0:
            arrays, schema = [*arrays, batch.column(kinds)], schema.append(batch.schema.field(kinds))
        if any(isinstance(array, pa.DictionaryArray) for array in arrays):
            fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
            rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
            assert self.type_info is not None
            return Batch.of_coded_columns(rows, self.type_info)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _constant(self, column: FileColumn, split: Split) -> pa.Scalar:
        """The value of a column that is constant for the file; NULL for a column of the file itself."""
        path = str(split.info["path"])
        if column.partition is not None:
            return _partition_value(path, column, self.choice.default_partition)
        if column.metadata is not None:
            return pa.scalar(_metadata(column.metadata, path, split), column.type.arrow)
        return pa.scalar(None, column.type.arrow)


class _TableRowFiles(_TableFiles, RowFileSource):
    """The same for a format with row offsets."""

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        rows = RowFileSource.read_within(self, split, start, stop, bytes_max)
        return (yield from self._as_table(split, rows))

    def outlook(self, split: Split, offset: Offset, column: int) -> Outlook | None:
        time = self.columns[column]
        if time.position is None or not isinstance(self.format, ParquetRows):
            return None
        return self.format.outlook(split, offset, time.position)


def table_file_source(
    path: str,
    format: FileFormat,
    columns: Sequence[FileColumn],
    discovery_interval_ms: int | None,
    choice: FileChoice,
) -> FileSource:
    """The source of a file table: `format` reads the columns stored in the files."""
    kind = _TableRowFiles if isinstance(format, RowCountedFormat) else _TableFiles
    return kind([path], format, discovery_interval_ms).with_columns(columns, choice)


def _partition_value(path: str, column: FileColumn, default_partition: str) -> pa.Scalar:
    # Column names are escaped like values.
    parts = [part for part in PurePosixPath(path).parts if "=" in part]
    folders = [part for part in parts if unquote(part.split("=", 1)[0]) == column.partition]
    if not folders:
        raise JobFailedError(
            f"File {path} has no {column.partition}=… folder in its path, and the table is partitioned by "
            f"{column.partition!r}. Move the file, or remove the column from PARTITIONED BY"
        )
    text = unquote(folders[-1].split("=", 1)[1])
    if text == default_partition:
        return pa.scalar(None, column.type.arrow)
    try:
        return pa.scalar(cell_value(text, column.type), column.type.arrow)
    except ValueError:
        raise JobFailedError(
            f"File {path}: {text!r} is not a {column.type}. Rename the folder, or correct the column's type"
        ) from None


def _metadata(key: str, path: str, split: Split) -> Any:
    # A text column cannot hold the bytes of a name that is not UTF-8; Java replaces them, too.
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if key == "file.path":
        return shown
    if key == "file.name":
        return PurePosixPath(shown).name
    if key == "file.size":
        return split.info["size"]
    if key == "file.modification-time":
        return split.info["modified_ms"]
    raise AssertionError(key)
