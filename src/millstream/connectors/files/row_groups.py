"""Reads the row groups of Parquet files, decoding rows incrementally and once.

A range of rows may end inside a row group. Its reader then stays open in this process, positioned at the next row: the
next epoch, which usually runs in the same process, continues there. An epoch that starts elsewhere (it is repeated, or
runs in another process) reopens the row group and skips the preceding rows. Either way the rows are the same: an open
reader is only a cache.

Open readers hold a file and the rows they have read ahead. Both are limited, and the least recently used
reader is closed first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.connectors.files.places import check_size, is_remote, opened_file

__all__ = ["GroupName", "GroupReader", "cache_reader", "group_reader", "without_large_dictionaries"]

BATCH_ROWS_MAX = 65_536
_BATCH_BYTES = 4 * 1024 * 1024
_AHEAD_BYTES = 256 * 1024  # per column of a local file; of an object, the whole row group
_IDLE_BYTES_MAX = 192 * 1024 * 1024  # per worker process, for all idle readers
_IDLE_READERS_MAX = 256
_PIECE_BYTES_MAX = 64 << 20  # of long strings stored once in a dictionary
_CODE_BYTES_MAX = 4  # per value: the length prefix of plain-encoded text


@dataclass(frozen=True)
class GroupName:
    """A row group of a file, and its wanted columns. `emit_dictionaries`: return dictionary-encoded text as
    dictionaries. `paths`: the column paths to read, if not every field of a nested row: `bid.price`.
    `identity`: distinguishes files with the same path."""

    path: str
    size: int
    mark: str
    group: int
    columns: tuple[str, ...]
    emit_dictionaries: bool = False
    paths: tuple[str, ...] = ()
    identity: tuple[int | str, ...] = ()


class GroupReader:
    """Reads one row group from its start; `row` is the next row."""

    def __init__(self, name: GroupName, footer: pq.FileMetaData) -> None:
        self.name, self.row = name, 0
        self.rows = int(footer.row_group(name.group).num_rows)
        chunks = _chunks(footer.row_group(name.group), name.paths or name.columns)
        is_remote_file = is_remote(name.path)
        ahead = [chunk.total_compressed_size for chunk in chunks]
        self._ahead_bytes: int = sum(ahead if is_remote_file else (min(size, _AHEAD_BYTES) for size in ahead))
        check_size(name.path, name.size)
        self._raw: Any = opened_file(name.path, name.size, name.mark) if is_remote_file else pa.OSFile(name.path)
        coded = _coded_columns(footer, chunks) if name.emit_dictionaries else []
        heavy = _heavy_columns(name.columns, chunks, self.rows)
        # `pre_buffer` reads the whole row group, regardless of `buffer_size`: for an object this saves requests, for a
        # local file it only costs memory, whose first allocation is expensive.
        self._file = pq.ParquetFile(
            self._raw,
            metadata=footer,
            read_dictionary=[*coded, *heavy],
            buffer_size=0 if is_remote_file else _AHEAD_BYTES,
            pre_buffer=is_remote_file,
        )
        # A file written by Arrow may return dictionaries without this option.
        self.has_dictionaries = any(pa.types.is_dictionary(each) for each in self._file.schema_arrow.types)
        # Few rows may have many bytes: both limit a batch. Sizes are estimated from the encoded bytes.
        row_bytes = max(1, sum(chunk.total_uncompressed_size for chunk in chunks) // max(1, self.rows))
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
            batch_size=max(1, min(BATCH_ROWS_MAX, _BATCH_BYTES // row_bytes)),
            row_groups=[name.group],
            columns=list(name.paths or name.columns),
            use_threads=False,  # a task has one core
        )
        self._batches = _in_pieces(batches, heavy, frozenset(heavy) - frozenset(coded)) if heavy else batches
        self._decoded: pa.RecordBatch | None = None

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the reader: rows read ahead, and decoded rows not passed over."""
        decoded = self._decoded
        return self._ahead_bytes + (0 if decoded is None else int(decoded.get_total_buffer_size()))

    def ahead(self) -> pa.RecordBatch:
        """Some of the next rows; the same rows are returned until `advance` moves past them."""
        while self._decoded is None or not self._decoded.num_rows:
            decoded = next(self._batches, None)
            if decoded is None:
                raise pa.ArrowInvalid(f"row group {self.name.group} ends at row {self.row}, but has {self.rows} rows")
            self._decoded = decoded.select(list(self.name.columns))
        return self._decoded

    def advance(self, rows: int) -> None:
        """Advance by `rows` rows."""
        while rows:
            decoded = self.ahead()
            passed = min(rows, decoded.num_rows)
            self._decoded = decoded.slice(passed) if passed < decoded.num_rows else None
            self.row, rows = self.row + passed, rows - passed

    def close(self) -> None:
        """Close the file."""
        self._decoded = None
        with suppress(OSError):
            self._file.close(force=True)
        with suppress(OSError):
            self._raw.close()


def _chunks(group: Any, columns: Sequence[str]) -> list[Any]:
    """The column chunks of a row group for the wanted columns; nested ones have several."""
    wanted = tuple(f"{column}." for column in columns)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(wanted)]


def _coded_columns(footer: pq.FileMetaData, chunks: Sequence[Any]) -> list[str]:
    """The text columns that are dictionary-encoded in a row group."""
    texts = {field.name for field in footer.schema.to_arrow_schema() if pa.types.is_string(field.type)}
    return [chunk.path_in_schema for chunk in chunks if chunk.path_in_schema in texts and _is_coded(chunk)]


def _heavy_columns(columns: Sequence[str], chunks: Sequence[Any], rows: int) -> list[str]:
    """The text or bytes columns whose dictionaries may hold a value so long that a batch of it would not fit."""
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.physical_type == "BYTE_ARRAY"
        and chunk.path_in_schema in columns
        and chunk.total_uncompressed_size * min(rows, BATCH_ROWS_MAX) > _PIECE_BYTES_MAX
        and _is_coded(chunk)
    ]


def _in_pieces(
    batches: Iterator[pa.RecordBatch], heavy: Sequence[str], plain_columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Batches whose values of `heavy` columns, read as dictionaries, are limited in total size. Otherwise a dictionary
    with one long string expands from a few hundred bytes to gigabytes. `plain_columns`: the columns to return
    decoded."""
    for batch in batches:
        sizes = np.zeros(batch.num_rows, np.int64)
        for name in heavy:
            column = batch.column(name)
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            sizes += pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
        whole = batch.num_rows if sizes.sum() <= _PIECE_BYTES_MAX else max(1, _PIECE_BYTES_MAX // int(sizes.max()))
        for start in range(0, batch.num_rows, whole or 1):
            piece = batch.slice(start, whole)
            for name in plain_columns:
                at = piece.schema.get_field_index(name)
                piece = piece.set_column(at, name, piece.column(at).dictionary_decode())
            yield piece


def _is_coded(chunk: Any) -> bool:
    """Whether all values of a text column are in its dictionary. A writer whose dictionary grows too large continues
    without it; building a dictionary for the rest would cost more than it saves."""
    if not chunk.has_dictionary_page or chunk.dictionary_page_offset is None or not chunk.num_values:
        return False
    dictionary_bytes = chunk.data_page_offset - chunk.dictionary_page_offset
    codes_bytes = chunk.total_compressed_size - dictionary_bytes
    return bool(0 <= codes_bytes <= _CODE_BYTES_MAX * chunk.num_values)


def without_large_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decodes a dictionary with more values than the batch has rows: it would only use memory."""
    for at, column in enumerate(batch.columns):
        if isinstance(column, pa.DictionaryArray) and len(column.dictionary) > len(column):
            batch = batch.set_column(at, batch.schema.names[at], column.dictionary_decode())
    return batch


_idle_readers: dict[GroupName, GroupReader] = {}


def group_reader(name: GroupName, footer: pq.FileMetaData, row: int) -> GroupReader:
    """A reader positioned at a row of a row group: the cached one, unless it is past the row."""
    reader = _idle_readers.pop(name, None)
    if reader is not None and reader.row <= row:
        try:
            check_size(name.path, name.size)
        except BaseException:
            reader.close()
            raise
    else:
        if reader is not None:
            reader.close()
        reader = GroupReader(name, footer)
    try:
        reader.advance(row - reader.row)
    except BaseException:
        reader.close()
        raise
    return reader


def cache_reader(reader: GroupReader) -> None:
    """Cache a reader while there is room, unless it is at its end."""
    if reader.row >= reader.rows or reader.memory_bytes > _IDLE_BYTES_MAX:
        reader.close()
        return
    _idle_readers[reader.name] = reader
    while (
        len(_idle_readers) > _IDLE_READERS_MAX
        or sum(each.memory_bytes for each in _idle_readers.values()) > _IDLE_BYTES_MAX
    ):
        _idle_readers.pop(next(iter(_idle_readers))).close()
