"""Parquet files: an offset is a row number; a split is some adjacent row groups, or the whole file unless it is large.

The number of rows of a small file is known once it is read: its last offset, `{"end": n}`, marks its end.

A row group is decoded as it is read (`row_groups.py`), so a small epoch of a large row group costs little. A row group
without any matching row is not read at all (`group_filters.py`).

Columns are matched by name and cast to the declared type only without loss; a value that does not fit is an
error that names file and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Outlook, Read, Split
from millstream.connectors.files.formats import (
    RowCountedFormat,
    bounded_batches,
    explained_file_errors,
    split_info,
    split_name,
)
from millstream.connectors.files.group_filters import GroupFilter, may_hold
from millstream.connectors.files.places import InputFile, check_size, identity_of, is_remote, opened_whole
from millstream.connectors.files.row_groups import (
    GroupName,
    GroupReader,
    cache_reader,
    group_reader,
    without_large_dictionaries,
)
from millstream.connectors.foreign_columns import inward
from millstream.errors import JobFailedError, MillstreamError, ProgramError
from millstream.records.columns import stream_schema

__all__ = ["ParquetRows", "group_ends", "near_boundary", "row_ranges"]

_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class ParquetRows(RowCountedFormat):
    """The rows of Parquet files as records of `type_info`; columns the type does not name are not read."""

    name = "Parquet"

    def __init__(self, type_info: TypeInformation, *, emit_dictionaries: bool = False) -> None:
        """`emit_dictionaries`: emit dictionary-encoded text as dictionaries."""
        if stream_schema(type_info) is None:
            raise ProgramError("A Parquet file source needs the type of its rows. Pass Types.ROW_NAMED([…], […]).")
        self.type_info: TypeInformation = type_info
        self._emit_dictionaries = emit_dictionaries
        self._filters: tuple[GroupFilter, ...] = ()

    def skipping(self, filters: Sequence[GroupFilter]) -> ParquetRows:
        """A copy that skips row groups without a row for which all `filters` are true."""
        made = copy(self)
        made._filters = tuple(filters)
        return made

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
        if end is None:
            return offset + max(1, budget)
        # The footer was read when the split was planned, so its row groups are known without a read.
        footer = _footer(split.info["path"], split.info["size"], split.info.get("mark", ""))
        return min(end, near_boundary(group_ends(footer), offset, offset + budget))

    def finished(self, split: Split, offset: Offset) -> bool:
        return isinstance(offset, dict) or (split.info["end"] is not None and offset >= split.info["end"])

    def outlook(self, split: Split, offset: Offset, position: int) -> Outlook | None:
        """The number of rows left, and the earliest time in the column at `position`, if the footer has it. Does not
        open objects that were not opened when the split was planned."""
        path, size, end = split.info["path"], split.info["size"], split.info["end"]
        if self.finished(split, offset) or (end is None and is_remote(path)):
            return None
        schema = stream_schema(self.type_info)
        assert schema is not None
        try:
            times = _group_times(path, size, split.info.get("mark", ""), schema.field(position))
        except (MillstreamError, OSError):
            return None  # reading the file will report the error
        end = times[-1].end if end is None and times else end
        left = [group.earliest_ms for group in times if group.begin < (end or 0) and group.end > offset]
        known = [earliest_ms for earliest_ms in left if earliest_ms is not None]
        return Outlook(end - offset, min(known)) if known and len(known) == len(left) else None

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int | None) -> Read:
        path, size, mark = split.info["path"], split.info["size"], split.info.get("mark", "")
        if isinstance(start, dict):
            return start
        schema = stream_schema(self.type_info)
        assert schema is not None
        footer = _footer(path, size, mark)
        stored = footer.schema.to_arrow_schema()
        names = stored.names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise JobFailedError(
                f"File {path} has the columns {names}, and {missing} of the declared type is missing. "
                f"Correct the names of the type."
            )
        paths = tuple(path for field in schema for path in _paths(field, stored.field(field.name)))
        paths = () if paths == tuple(schema.names) else paths
        row, bytes_read, is_full, declared = start, 0, False, _DeclaredRows(self.type_info, schema, path)
        with explained_file_errors(path, "Parquet"):
            check_size(path, size)
            identity = identity_of(path, mark)
            for group, begin, end in row_ranges(footer, start, stop):
                if self._filters and not may_hold(self._filters, footer.row_group(group)):
                    row += end - begin
                    continue
                name = GroupName(path, size, mark, group, tuple(schema.names), self._emit_dictionaries, paths, identity)
                reader = group_reader(name, footer, begin)
                try:
                    for batch in _batches_until(reader, end, bytes_max):
                        is_full = bytes_max is not None and row > start and bytes_read >= bytes_max
                        if is_full:
                            break
                        reader.advance(batch.num_rows)
                        row, bytes_read = row + batch.num_rows, bytes_read + batch.nbytes
                        yield declared.batch(batch)
                except BaseException:
                    reader.close()
                    raise
                cache_reader(reader)
                if is_full:
                    return row
        has_ended = split.info["end"] is None and stop >= footer.num_rows
        return {"end": footer.num_rows} if has_ended else stop


class _DeclaredRows:
    """Converts batches of a file to the declared type. Remembers that a schema needs no conversion."""

    def __init__(self, type_info: TypeInformation, schema: pa.Schema, path: str) -> None:
        self._type_info, self._schema, self._path = type_info, schema, path

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._schema):
            return batch
        made = inward(batch, self._type_info, self._path)
        if made.schema.equals(batch.schema):  # dictionary-encoded text is allowed
            self._schema = batch.schema
        return made


def _paths(wanted: pa.Field, stored: pa.Field, above: str = "") -> Iterator[str]:
    """The column paths to read: of a nested row only the wanted fields, if the file has all of them."""
    path = f"{above}{wanted.name}"
    fields = list(wanted.type) if pa.types.is_struct(wanted.type) and pa.types.is_struct(stored.type) else []
    inside = {field.name: field for field in stored.type} if fields else {}
    has_all = all(field.name in inside and "." not in field.name for field in fields) and "." not in wanted.name
    if not fields or not has_all or len(inside) < stored.type.num_fields:
        yield path
        return
    for field in fields:
        yield from _paths(field, inside[field.name], f"{path}.")


def group_ends(footer: pq.FileMetaData) -> list[int]:
    """The row after each row group."""
    return list(accumulate(footer.row_group(group).num_rows for group in range(footer.num_row_groups)))


def near_boundary(ends: Sequence[int], start: int, stop: int) -> int:
    """The best end for a range of about [start, stop): the end of a row group if near enough. Otherwise
    another process may have to decode the row group again up to that row.

    >>> [near_boundary([100, 200, 300], 0, stop) for stop in (30, 70, 130, 190, 210)]
    [30, 100, 100, 200, 200]
    """
    nearest = min((end for end in ends if end > start), key=lambda end: abs(end - stop), default=stop)
    return nearest if 2 * abs(nearest - stop) <= stop - start else stop


def row_ranges(footer: pq.FileMetaData, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The row groups that hold the rows [start, stop), each with the range of its rows to read."""
    first = 0
    for group in range(footer.num_row_groups):
        count = footer.row_group(group).num_rows
        if first < stop and first + count > start:
            yield group, max(start - first, 0), min(stop - first, count)
        first += count


def _batches_until(reader: GroupReader, end: int, bytes_max: int | None) -> Iterator[pa.RecordBatch]:
    """The rows before `end`; the caller must advance past each batch before requesting the next."""
    while reader.row < end:
        ahead = reader.ahead()
        if end - reader.row < ahead.num_rows:
            ahead = ahead.slice(0, end - reader.row)
        pieces = [ahead]  # a reader returns no more rows than a batch may have
        if bytes_max is not None and ahead.nbytes > bytes_max:
            pieces = bounded_batches(pa.Table.from_batches([ahead]), bytes_max)
        yield from map(without_large_dictionaries, pieces) if reader.has_dictionaries else pieces


def _footer(path: str, size: int, mark: str) -> pq.FileMetaData:
    """The footer of the file."""
    with explained_file_errors(path, "Parquet"):
        return _footer_of(path, size, mark, identity_of(path, mark))


@lru_cache(maxsize=256)
def _footer_of(path: str, size: int, mark: str, identity: tuple[int | str, ...]) -> pq.FileMetaData:
    """Cached per `identity`: a process may run several jobs, and their files may be rewritten between them."""
    with opened_whole(path, size, mark) as file:
        return pq.read_metadata(file)


class _GroupTime(NamedTuple):
    """A row group's first and last row, and the earliest time of a column in it; None: unknown."""

    begin: int
    end: int
    earliest_ms: int | None


def _group_times(path: str, size: int, mark: str, column: pa.Field) -> tuple[_GroupTime, ...]:
    with explained_file_errors(path, "Parquet"):
        return _group_times_of(path, size, mark, column, identity_of(path, mark))


@lru_cache(maxsize=4096)
def _group_times_of(
    path: str, size: int, mark: str, column: pa.Field, identity: tuple[int | str, ...]
) -> tuple[_GroupTime, ...]:
    # Every epoch queries all remaining files of every source: far more than the cached footers.
    footer = _footer(path, size, mark)
    stored = footer.schema.to_arrow_schema()
    at = stored.get_field_index(column.name)
    kind = stored.field(at).type if at >= 0 else pa.null()
    # A time without a zone is not an instant: the two are not mixed here, regardless of how they are read.
    is_time = pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type)
    unit = kind.unit if is_time and (kind.tz is None) == (column.type.tz is None) else None
    return tuple(
        _GroupTime(begin, end, None if unit is None else _earliest_ms(footer.row_group(group), column.name, unit))
        for group, (begin, end) in enumerate(pairwise((0, *group_ends(footer))))
    )


def _earliest_ms(group: pq.RowGroupMetaData, name: str, unit: str) -> int | None:
    """The earliest time of a column in a row group, from its statistics."""
    chunks = [chunk for chunk in map(group.column, range(group.num_columns)) if chunk.path_in_schema == name]
    if len(chunks) != 1 or chunks[0].physical_type != "INT64" or chunks[0].statistics is None:
        return None
    if not chunks[0].statistics.has_min_max:
        return None
    number = int(chunks[0].statistics.min_raw)
    return number * 1_000 if unit == "s" else number // _PER_MS[unit]
