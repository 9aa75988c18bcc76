"""ORC files: an offset is a row number, a file is one split, and an epoch reads the stripes that hold its rows.

Columns are matched by name, and cast to the declared type only without loss. The number of rows of a stripe is
determined by reading one of its columns, and cached: an epoch that continues in a file does not read earlier stripes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.formats import (
    RowCountedFormat,
    bounded_batches,
    explained_file_errors,
    split_info,
    split_name,
)
from millstream.connectors.files.parts import ColumnParts
from millstream.connectors.files.places import InputFile, identity_of, opened_whole
from millstream.connectors.foreign_columns import inward
from millstream.errors import JobFailedError, ProgramError
from millstream.records.columns import stream_schema

__all__ = ["OrcParts", "OrcRows"]

_STRIPE_ROWS_MAX = 1 << 28  # a column of repeated numbers may take some bytes in the file and 2 GiB in memory


class OrcRows(RowCountedFormat):
    """The rows of ORC files as records of `type_info`; columns the type does not name are not read."""

    name = "ORC"

    def __init__(self, type_info: TypeInformation) -> None:
        if stream_schema(type_info) is None:
            raise ProgramError("An ORC file source needs the type of its rows. Pass Types.ROW_NAMED([…], […]).")
        self.type_info: TypeInformation = type_info

    def plan(self, file: InputFile, split_bytes_max: int) -> Sequence[Split]:
        return (Split(split_name(file, 0), 0, split_info(file, None)),)

    def reach(self, split: Split, offset: Offset, budget: int) -> Offset:
        return offset if self.finished(split, offset) else offset + max(1, budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return isinstance(offset, dict)

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int | None) -> Read:
        if isinstance(start, dict):
            return start
        path, size, mark = split.info["path"], split.info["size"], split.info.get("mark", "")
        schema = stream_schema(self.type_info)
        assert schema is not None
        with explained_file_errors(path, "ORC"), opened_whole(path, size, mark) as raw:
            file = orc.ORCFile(raw)
            _check_names(file.schema.names, schema.names, path)
            if file.nrows > file.nstripes * _STRIPE_ROWS_MAX:
                raise JobFailedError(
                    f"File {path} claims to have {file.nrows:,} rows in {file.nstripes} stripes; a stripe is "
                    f"read whole, and may have at most {_STRIPE_ROWS_MAX:,} rows. Write smaller stripes, or Parquet"
                )
            counts = _stripe_rows(path, identity_of(path, mark))
            first, row, bytes_read = 0, start, 0
            for stripe in range(file.nstripes):
                if first >= stop:
                    break
                if stripe == len(counts):
                    counts.append(file.read_stripe(stripe, columns=schema.names[:1]).num_rows)
                last = first + counts[stripe]
                if last > start:
                    rows = file.read_stripe(stripe, columns=schema.names).select(schema.names)
                    begin = max(start - first, 0)
                    table = pa.Table.from_batches([rows]).slice(begin, min(stop, last) - first - begin)
                    for batch in bounded_batches(table, bytes_max):
                        if bytes_max is not None and row > start and bytes_read >= bytes_max:
                            return row
                        row, bytes_read = row + batch.num_rows, bytes_read + batch.nbytes
                        yield inward(batch, self.type_info, path)
                first = last
            row_count = file.nrows
        return {"end": row_count} if stop >= row_count else stop


@lru_cache(maxsize=256)
def _stripe_rows(path: str, identity: tuple[int | str, ...]) -> list[int]:
    """The row counts of the stripes of a file that were read so far. Cached per file identity, not per path."""
    return []


def _check_names(names: Sequence[str], wanted: Sequence[str], path: str) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise JobFailedError(
            f"File {path} has the columns {list(names)}, and {missing} of the declared type is missing. "
            f"Correct the names of the type."
        )


@dataclass(frozen=True)
class OrcParts(ColumnParts):
    """ORC of the stream's type, or of `type_info` when the stream itself is untyped."""

    compression: str = "zstd"
    suffix = ".orc"
    format_name = "ORC"

    def written(self, tables: Iterable[pa.Table]) -> bytes:
        sink: Any = pa.BufferOutputStream()
        try:
            with orc.ORCWriter(sink, compression=self.compression) as writer:
                for table in tables:
                    writer.write(table)
        except pa.ArrowNotImplementedError as error:
            raise ProgramError(f"An ORC file cannot hold these records: {error}. Map them before the sink") from error
        return bytes(sink.getvalue())

    def tables(self, chunk: bytes) -> Iterator[pa.Table]:
        file = orc.ORCFile(pa.BufferReader(chunk))
        return (pa.Table.from_batches([file.read_stripe(stripe)]) for stripe in range(file.nstripes))
