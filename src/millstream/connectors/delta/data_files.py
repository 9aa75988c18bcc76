"""Writes the data files of a Delta table in tasks: Parquet, one file per combination of partition values.

A file that no transaction lists is not part of the table: readers use only the log. So a task writes directly
into the table's folder, under names unique to the attempt, and leftovers of a lost attempt are invisible
(Delta's `vacuum` removes them).

The log receives only exact statistics of a file: the number of its records, of the nulls in simple columns, and
minimum and maximum of whole numbers and dates. Readers skip files by these; a wrong one would hide records.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.connectors.contracts import Json, SinkWriter, WriterContext
from millstream.connectors.files.part_plan import token_of
from millstream.connectors.foreign_columns import outward
from millstream.connectors.unavailable_targets import named_target
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.records.columns import to_record_batch
from millstream.storage.path_parts import safe
from millstream.storage.patience import with_patience
from millstream.storage.store import open_store

__all__ = ["DataFileWriter", "TableShape", "divided", "file_facts", "partition_text"]

_NO_VALUE_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TableShape:
    """The table's address, the type of its rows, and its partition columns, for a writer."""

    url: str
    row_type: Any
    partition_columns: tuple[str, ...]
    file_bytes_max: int


class DataFileWriter(SinkWriter):
    """Writes the data files of one task attempt in one epoch. Buffers rows in memory; one call writes a file."""

    def __init__(self, shape: TableShape, context: WriterContext) -> None:
        self._shape = shape
        self._context = context
        self._store = with_patience(open_store(shape.url))
        self._open: dict[tuple[str | None, ...], list[pa.RecordBatch]] = {}
        self._open_bytes: dict[tuple[str | None, ...], int] = {}
        self._files: list[dict[str, Json]] = []

    def write(self, batch: Batch) -> None:
        if batch.length == 0:
            return
        for values, rows in divided(self._columns(batch), self._shape.partition_columns):
            self._open.setdefault(values, []).append(rows)
            self._open_bytes[values] = self._open_bytes.get(values, 0) + rows.nbytes
            if self._open_bytes[values] >= self._shape.file_bytes_max:
                self._finish(values)

    def stage(self) -> Sequence[Json]:
        for values in list(self._open):
            self._finish(values)
        return self._files

    def abort(self) -> None:
        self._open = {}
        self._store.delete_many([file["path"] for file in self._files])

    def _columns(self, batch: Batch) -> pa.RecordBatch:
        row_type = self._shape.row_type
        same = batch.typed and batch.type_info == row_type
        columns = batch.columns() if same else to_record_batch(batch.values(), row_type)
        if len(columns.schema) != len(row_type.get_field_names()):
            raise ProgramError(
                "A Delta sink adds new rows only, and this batch holds updates or deletions. Filter the rows by their "
                "kind before the sink."
            )
        return outward(columns, row_type)

    def _finish(self, values: tuple[str | None, ...]) -> None:
        """Write the buffered rows of these partition values."""
        context, shape = self._context, self._shape
        table = pa.Table.from_batches(self._open.pop(values))
        del self._open_bytes[values]
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="snappy", write_page_checksum=True)
        data = bytes(buffer.getvalue())
        folders = [
            f"{safe(name)}={_NO_VALUE_FOLDER if value is None else safe(value)}"
            for name, value in zip(shape.partition_columns, values, strict=True)
        ]
        token = token_of(context.job, context.nonce, context.uid)
        file = f"part-{context.epoch:012d}-{context.subtask:05d}-{token}-{len(self._files):05d}.snappy.parquet"
        # These names need no escaping in the log: '=', '-', '_', '.', letters and digits are unreserved.
        path = "/".join([*folders, file])
        with named_target(shape.url, context.store):
            self._store.put(path, data)
        self._files.append(
            {
                "path": path,
                "bytes": len(data),
                "crc32": zlib.crc32(data),
                "partition": dict(zip(shape.partition_columns, values, strict=True)),
                "written_ms": context.now_ms,
                "stats": file_facts(table),
            }
        )


def divided(
    batch: pa.RecordBatch, partition_columns: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The rows by their partition values, in the log's format, without the columns that hold them.

    Rows of a group stay in order; groups are ordered by their first rows.
    """
    if not partition_columns:
        yield (), batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    for name in partition_columns:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        _, numbers = np.unique(
            codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False), return_inverse=True
        )
        codes = numbers.astype(np.int64)
    _, first_rows = np.unique(codes, return_index=True)
    rest = batch.drop_columns(list(partition_columns))
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(first_rows)))
    ends = [*starts[1:], batch.num_rows]
    for group in np.argsort(first_rows):
        row = int(first_rows[group])
        values = tuple(partition_text(name, batch.column(name)[row].as_py()) for name in partition_columns)
        yield values, rest.take(pa.array(order[starts[group] : ends[group]]))


def partition_text(name: str, value: Any) -> str | None:
    """A partition value in the log's format.

    >>> partition_text("day", dt.date(2026, 3, 1)), partition_text("paid", True), partition_text("shop", None)
    ('2026-03-01', 'true', None)
    """
    if value is None:
        return None
    if value == "":
        raise ProgramError(
            f"Delta sink: a record has '' in the partition column {name!r}. Delta does not store empty text there, it "
            "would be read as null. Map it to None, or to another word, before the sink"
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def file_facts(table: pa.Table) -> dict[str, Json]:
    """The log's statistics of a file.

    >>> file_facts(pa.table({"n": [3, None, 1], "who": ["a", "b", None]}))
    {'numRecords': 3, 'minValues': {'n': 1}, 'maxValues': {'n': 3}, 'nullCount': {'n': 1, 'who': 1}}
    """
    least: dict[str, Json] = {}
    greatest: dict[str, Json] = {}
    nulls: dict[str, Json] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if (pa.types.is_integer(column.type) or pa.types.is_date(column.type)) and column.null_count < len(column):
            extremes = pc.min_max(column).as_py()
            least[name], greatest[name] = _fact(extremes["min"]), _fact(extremes["max"])
    return {"numRecords": table.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _fact(value: int | dt.date) -> Json:
    return value.isoformat() if isinstance(value, dt.date) else value
