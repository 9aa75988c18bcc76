"""Parquet files: an offset is a row number, a split some neighbouring row groups.

Columns are taken by name and cast to the declared type only where nothing is lost; a value that does not fit is an
error that names file and column.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.discovery import InputFile
from millstream.connectors.files.formats import FileFormat
from millstream.connectors.foreign_columns import inward
from millstream.errors import JobFailedError, ProgramError
from millstream.records.columns import stream_schema

__all__ = ["ParquetRows", "row_ranges"]

_BATCH_RECORDS_MAX = 65_536


class ParquetRows(FileFormat):
    """The rows of Parquet files as records of `type_info`; columns the type does not name are not read."""

    name = "Parquet"

    def __init__(self, type_info: TypeInformation) -> None:
        if stream_schema(type_info) is None:
            raise ProgramError("A Parquet file source needs the type of its rows. Give Types.ROW_NAMED([…], […]).")
        self.type_info: TypeInformation = type_info

    def plan(self, file: InputFile, split_bytes_max: int) -> Sequence[Split]:
        if file.size == 0:
            return ()
        splits: list[Split] = []
        begin = row = size_bytes = 0
        metadata = _footer(file.path, file.size)
        for group in range(metadata.num_row_groups):
            facts = metadata.row_group(group)
            row += facts.num_rows
            size_bytes += facts.total_byte_size
            if row > begin and (size_bytes >= split_bytes_max or group == metadata.num_row_groups - 1):
                name = file.path if begin == 0 else f"{file.path}#{begin}"
                splits.append(Split(name, begin, {"path": file.path, "end": row, "size": file.size}))
                begin, size_bytes = row, 0
        return tuple(splits)

    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        return min(split.info["end"], offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= split.info["end"])

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        path = split.info["path"]
        schema = stream_schema(self.type_info)
        assert schema is not None
        footer = _footer(path, split.info["size"])
        names = footer.schema.to_arrow_schema().names
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise JobFailedError(
                f"File {path} has the columns {names}, and {missing} of the declared type is not among them. "
                f"Correct the names of the type."
            )
        with _explain_errors(path):
            _check_size(path, split.info["size"])
            with pq.ParquetFile(path, metadata=footer) as file:
                for group, begin, end in row_ranges(footer, start, stop):
                    table = file.read_row_group(group, columns=schema.names).select(schema.names)
                    for batch in table.slice(begin, end - begin).to_batches(max_chunksize=_BATCH_RECORDS_MAX):
                        yield inward(batch, self.type_info, path)
        return stop


def row_ranges(footer: pq.FileMetaData, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The row groups that hold the rows [start, stop), each with the range of its own rows that is meant."""
    first = 0
    for group in range(footer.num_row_groups):
        count = footer.row_group(group).num_rows
        if first < stop and first + count > start:
            yield group, max(start - first, 0), min(stop - first, count)
        first += count


@lru_cache(maxsize=256)
def _footer(path: str, size: int) -> pq.FileMetaData:
    """What the file says of itself. Cached: a file that was planned does not change."""
    with _explain_errors(path):
        _check_size(path, size)
        return pq.read_metadata(path)


def _check_size(path: str, size: int) -> None:
    size_now = os.stat(path).st_size
    if size_now != size:
        raise JobFailedError(
            f"File {path} has {size_now} bytes, and had {size} when it was first seen: it was cut or replaced. "
            f"Nothing of it was skipped. Put the original back, and give changed data a new name."
        )


@contextmanager
def _explain_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise JobFailedError(
            f"File {path} is gone, and its records were not all read. Put it back under its name and start again."
        ) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise JobFailedError(f"File {path} is not whole Parquet ({error}). Replace it by a whole copy.") from error
