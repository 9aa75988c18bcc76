"""Parquet files: an offset is a row number, a split some neighbouring row groups, or all of a file that is not large.

How many rows a small file has is known when it is read: its last offset, `{"end": n}`, says that it is over.

A row group is decoded whole. A range that ends inside one leaves the rest in memory for the next epoch, which mostly
comes to the same worker process; otherwise a large row group would be decoded anew by every small epoch.

Columns are taken by name and cast to the declared type only where nothing is lost; a value that does not fit is an
error that names file and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.formats import (
    RowCountedFormat,
    bounded_batches,
    explained_file_errors,
    split_info,
    split_name,
)
from millstream.connectors.files.places import InputFile, opened_whole
from millstream.connectors.foreign_columns import inward
from millstream.errors import JobFailedError, ProgramError
from millstream.records.columns import stream_schema

__all__ = ["ParquetRows", "row_ranges"]


class ParquetRows(RowCountedFormat):
    """The rows of Parquet files as records of `type_info`; columns the type does not name are not read."""

    name = "Parquet"

    def __init__(self, type_info: TypeInformation) -> None:
        if stream_schema(type_info) is None:
            raise ProgramError("A Parquet file source needs the type of its rows. Give Types.ROW_NAMED([…], […]).")
        self.type_info: TypeInformation = type_info

    def plan(self, file: InputFile, split_bytes_max: int) -> Sequence[Split]:
        if file.size == 0:
            return ()
        if file.size <= split_bytes_max and not file.cut_by_content:
            # Not opened here: of a million small files the driver would read every footer.
            return (Split(split_name(file, 0), 0, split_info(file, None)),)
        splits: list[Split] = []
        begin = row = size_bytes = 0
        metadata = _footer(file.path, file.size, file.mark)
        for group in range(metadata.num_row_groups):
            facts = metadata.row_group(group)
            row += facts.num_rows
            size_bytes += facts.total_byte_size
            if row > begin and (size_bytes >= split_bytes_max or group == metadata.num_row_groups - 1):
                splits.append(Split(split_name(file, begin), begin, split_info(file, row)))
                begin, size_bytes = row, 0
        return tuple(splits)

    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        if self.finished(split, offset):
            return offset
        end = split.info["end"]
        return offset + max(1, budget) if end is None else min(end, offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return isinstance(offset, dict) or (split.info["end"] is not None and offset >= split.info["end"])

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int | None) -> Read:
        path, size, mark = split.info["path"], split.info["size"], split.info.get("mark", "")
        if isinstance(start, dict):
            return start
        schema = stream_schema(self.type_info)
        assert schema is not None
        footer = _footer(path, size, mark)
        names = footer.schema.to_arrow_schema().names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise JobFailedError(
                f"File {path} has the columns {names}, and {missing} of the declared type is not among them. "
                f"Correct the names of the type."
            )
        with (
            explained_file_errors(path, "Parquet"),
            opened_whole(path, size, mark) as raw,
            pq.ParquetFile(raw, metadata=footer) as file,
        ):
            row, bytes_read = start, 0
            for group, begin, end in row_ranges(footer, start, stop):
                table = _row_group(file, (path, size, mark, group), schema.names, is_left=end < _rows_in(footer, group))
                for batch in bounded_batches(table.slice(begin, end - begin), bytes_max):
                    if bytes_max is not None and row > start and bytes_read >= bytes_max:
                        return row
                    row, bytes_read = row + batch.num_rows, bytes_read + batch.nbytes
                    yield inward(batch, self.type_info, path)
        has_ended = split.info["end"] is None and stop >= footer.num_rows
        return {"end": footer.num_rows} if has_ended else stop


def row_ranges(footer: pq.FileMetaData, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The row groups that hold the rows [start, stop), each with the range of its own rows that is meant."""
    first = 0
    for group in range(footer.num_row_groups):
        count = footer.row_group(group).num_rows
        if first < stop and first + count > start:
            yield group, max(start - first, 0), min(stop - first, count)
        first += count


def _rows_in(footer: pq.FileMetaData, group: int) -> int:
    return int(footer.row_group(group).num_rows)


_GroupName = tuple[str, int, str, int]
_KEPT_BYTES_MAX = 192 * 1024 * 1024  # in a worker process, of all row groups together
_kept: dict[tuple[_GroupName, tuple[str, ...]], pa.Table] = {}


def _row_group(file: pq.ParquetFile, name: _GroupName, columns: Sequence[str], *, is_left: bool) -> pa.Table:
    """The columns of a row group; with `is_left` it will be wanted again, and is kept as far as there is room."""
    key = (name, tuple(columns))
    table = _kept.pop(key, None)
    if table is None:
        table = file.read_row_group(name[3], columns=list(columns)).select(list(columns))
    if is_left and table.nbytes <= _KEPT_BYTES_MAX:
        _kept[key] = table
        while sum(each.nbytes for each in _kept.values()) > _KEPT_BYTES_MAX:
            _kept.pop(next(iter(_kept)))  # the one that was put there first
    return table


@lru_cache(maxsize=256)
def _footer(path: str, size: int, mark: str) -> pq.FileMetaData:
    """What the file says of itself. Cached: a file that was planned does not change."""
    with explained_file_errors(path, "Parquet"), opened_whole(path, size, mark) as file:
        return pq.read_metadata(file)
