"""Copies a table in one snapshot into a job's store: Parquet files, one per range of its pages.

Rows read from a table cannot be read again, because the table changes. So all of them are first stored, from one state
of the database (an exported snapshot that all readers share), and the job reads the files as often as necessary. Page
ranges have equal sizes regardless of keys, need no index, and are read concurrently.

A copy is complete before it is used, so a crash leaves only files that no document names.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.column_types import typed_batch
from millstream.connectors.databases.dialect import Timeouts
from millstream.connectors.databases.postgres_session import NO_TRANSACTION_TIMEOUT, connect, quoted, quoted_name
from millstream.connectors.databases.table_layout import TableLayout
from millstream.records.columns import stream_schema
from millstream.storage.content import content_of
from millstream.storage.store import Store

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["CopiedFile", "CopyPlace", "copy_table"]

_PAGE_BYTES = 8192
_RANGE_PAGES = 8192
_READERS_MAX = 4
_PARSED_BYTES = 4 << 20
_FIRST_LINES = 64


@dataclass(frozen=True)
class CopiedFile:
    """A stored range: the file, its number of rows, its length and checksum."""

    file: str
    rows: int
    bytes: int
    crc32: int


@dataclass(frozen=True)
class CopyPlace:
    """The database to copy from, and the target folder, which no other copy uses."""

    address: DatabaseAddress
    timeouts: Timeouts
    store: Store
    folder: str


def copy_table(
    place: CopyPlace, layout: TableLayout, type_info: RowTypeInfo, snapshot: str, range_pages: int = _RANGE_PAGES
) -> tuple[CopiedFile, ...]:
    """Copy all rows of the table in this snapshot; returns the non-empty files."""
    with _reader(place, snapshot) as connection:
        # Lock the table until all ranges are read: VACUUM FULL, CLUSTER or REFRESH would move rows to
        # other pages, and a row moved between two ranges would be copied twice, or not at all.
        connection.execute(f"SELECT FROM {quoted(layout.name)} LIMIT 0")
        row = connection.execute("SELECT pg_relation_size(to_regclass(%s))", [quoted(layout.name)]).fetchone()
        pages = -(-int(row[0] or 0) // _PAGE_BYTES) if layout.is_plain and row is not None else 0
        conditions = _page_ranges(pages, range_pages)

        def copy(number: int) -> CopiedFile | None:
            return _copy_range(
                place, layout, type_info, snapshot, conditions[number], f"{place.folder}/{number:05d}.parquet"
            )

        with ThreadPoolExecutor(min(_READERS_MAX, len(conditions)), thread_name_prefix="millstream-copy") as readers:
            return tuple(file for file in readers.map(copy, range(len(conditions))) if file is not None)


def _page_ranges(pages: int, range_pages: int) -> list[str]:
    """Conditions that divide the rows of a table with this many pages; a small one has a single empty condition."""
    starts = list(range(0, max(pages, 1), range_pages))
    if len(starts) == 1:
        return [""]
    return [_page_range(start, stop) for start, stop in zip(starts, [*starts[1:], None], strict=True)]


def _page_range(start: int, stop: int | None) -> str:
    """The rows of a page range. The last range has no end: pages may have been added since they were counted."""
    end = "" if stop is None else f" AND ctid < '({stop},0)'::tid"
    return f" WHERE ctid >= '({start},0)'::tid{end}"


def _reader(place: CopyPlace, snapshot: str) -> Connection[Any]:
    """A connection in a transaction that sees the snapshot."""
    connection = connect(place.address, place.timeouts)
    try:
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET idle_in_transaction_session_timeout = 0")  # one connection only holds the lock
        connection.execute(NO_TRANSACTION_TIMEOUT)
        connection.commit()
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    except BaseException:
        connection.close()
        raise
    return connection


def _copy_range(
    place: CopyPlace, layout: TableLayout, type_info: RowTypeInfo, snapshot: str, condition: str, file: str
) -> CopiedFile | None:
    schema = stream_schema(type_info)
    path = place.store.local_path(file)
    sink: Any = pa.BufferOutputStream() if path is None else str(path)
    rows = 0
    with pq.ParquetWriter(sink, schema, write_page_checksum=True) as writer:
        for batch in _batches(place, layout, type_info, snapshot, condition):
            writer.write_batch(batch)
            rows += batch.num_rows
    if path is None and rows:
        place.store.put(file, sink.getvalue().to_pybytes())
    if not rows:
        place.store.delete(file)
        return None
    place.store.settle(file)
    return CopiedFile(file, rows, *content_of(place.store, file))


def _batches(
    place: CopyPlace, layout: TableLayout, type_info: RowTypeInfo, snapshot: str, condition: str
) -> Iterator[pa.RecordBatch]:
    names, types = type_info.get_field_names(), type_info.get_field_types()
    columns = ", ".join(map(quoted_name, names))
    statement = f"COPY (SELECT {columns} FROM {quoted(layout.name)}{condition}) TO STDOUT (FORMAT csv)"
    with _reader(place, snapshot) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
        for text in _pieces(copy):
            yield typed_batch(_parse(text, len(names)), names, types, f"Table {layout.name}")


def _pieces(copy: Any) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time; the server sends each row separately, so a line may be larger."""
    lines, count = iter(copy), _FIRST_LINES
    while piece := b"".join(islice(lines, count)):
        yield piece
        line_bytes = max(1, len(piece) // count)
        count = max(1, min(2 * count, _PARSED_BYTES // line_bytes))


def _parse(text: bytes, width: int) -> list[pa.Array]:
    """Parses columns of CSV text: nothing between commas is a null, two quotes are an empty text."""
    names = [str(i) for i in range(width)]
    if text.startswith(BOM_UTF8):
        text = BOM_UTF8 + text  # the parser removes a mark at the start, and this one belongs to a value
    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]
