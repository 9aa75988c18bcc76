"""The state's entries for archived files, and reading of the files.

An entry is stored in the keyed state of the table, by the file's version, under one key of each key group in the
file: so any subtask that owns a key group has the entries of all files with rows of that group. Entries are only added.

The file is first staged, then published, under different names. A reader tries the published name, the staged one, and
the published one again: one of them always exists. A file under neither name was removed, which is an error: no query
result omits its rows silently.

Others can access an archive folder. So a file is read only if it is byte for byte the one written: the entry has its
length and checksum. Parquet's own checks are insufficient: its footer, which selects the row groups of a key, has no
checksum, and a slightly damaged footer can make Arrow crash the process. The file is not mapped either, because
truncating a mapped file would crash the process, too.

Columns are matched by name, and by their *birth*: a column that the file lacks, or that has the same name but a
different birth, was added to the table later, and is NULL in the file's rows. A birth is any string; "": an original
column.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.connectors.files.group_filters import GroupFilter, may_hold
from millstream.errors import StoreAwayError, StoreDamagedError, StoreError
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BigIntType, IntType, VarCharType
from millstream.state.keys.hashing import Int64s
from millstream.state.tables.layout import NEVER_MS
from millstream.storage.content import content_of
from millstream.storage.patience import with_patience
from millstream.storage.store import Store, is_transient, open_store, shown_address

__all__ = [
    "ARCHIVED_COUNT",
    "ARCHIVED_REMOVED",
    "ARCHIVED_VERSION",
    "ENTRY_TYPE",
    "FORM",
    "ArchivedFile",
    "births_of",
    "check_file",
    "entries_of",
    "entry_column",
    "latest_ms",
    "milliseconds",
    "read_file",
]

FORM = 3
"""The format version of entries, and of files: a reader rejects a later one. Format 1 has no delete rows in files;
formats 1 and 2 have no checksum in entries, and no births: all columns are original."""
ARCHIVED_VERSION = "archived_version"
"""The column with the version of a row: of two rows of a key the one with the greater number is newer.
It is not the epoch: epochs committed together may share a number."""
ARCHIVED_COUNT = "archived_count"
"""The column with the count of a row, in a table without a primary key. Counts are added up."""
ARCHIVED_REMOVED = "archived_removed"
"""The column that marks delete rows, in a table with a primary key. A delete row has the key, and
NULL in all other columns. Files of format 1 have no such column, and no delete rows."""

_NEEDED = (ARCHIVED_VERSION, ARCHIVED_COUNT)
_PER_MS = {"us": 1_000, "ns": 1_000_000}
_TEXT, _NUMBER = VarCharType(0x7FFFFFFF, False), BigIntType(False)


@dataclass(frozen=True)
class ArchivedFile:
    """One file. `url` is the archive's address, `file` and `staged` are names below it ("": never staged elsewhere).
    Its rows have times from `low_ms` to `high_ms`, and keys of the groups `group_low` to `group_high`. Of two rows with
    the same key, the one with the greater `version` is newer. `born`: the births of non-original columns, as JSON; ""
    or None: all columns are original. Many fields: each one is stored in the state."""

    form: int
    url: str
    file: str
    staged: str
    epoch: int
    version: int
    rows: int
    bytes: int
    low_ms: int
    high_ms: int
    group_low: int
    group_high: int
    crc32: int | None = None
    born: str | None = None


_TYPES = {
    "form": IntType(False),
    "url": _TEXT,
    "file": _TEXT,
    "staged": _TEXT,
    "crc32": _NUMBER.nullable(),
    "born": _TEXT.nullable(),
}
ENTRY_TYPE = RowType.of(
    [each.name for each in fields(ArchivedFile)],
    [_TYPES.get(each.name, _NUMBER) for each in fields(ArchivedFile)],
    nullable=False,
)
"""The type of entries in the state."""


def entry_column(entries: Sequence[ArchivedFile]) -> pa.Array:
    """Entries as a column of the state."""
    return pa.array([asdict(entry) for entry in entries], pa.struct(list(ENTRY_TYPE.schema)))


def entries_of(columns: Iterable[pa.Array]) -> list[ArchivedFile]:
    """The distinct files of these entries, in the order of their versions."""
    entries = {ArchivedFile(**entry) for column in columns for entry in _each_once(column).to_pylist()}
    return sorted(entries, key=lambda entry: (entry.version, entry.epoch, entry.file))


def _each_once(column: pa.StructArray) -> pa.StructArray:
    """The distinct entries of a column: a file has one entry per key group, which may be very many."""
    _check_forms(column)
    files = column.field("file").dictionary_encode()
    numbers = column.field("version").to_numpy() * len(files.dictionary) + files.indices.to_numpy()
    return column.take(pa.array(np.unique(numbers, return_index=True)[1]))


def _check_forms(column: pa.StructArray) -> None:
    newer = np.flatnonzero(column.field("form").to_numpy() > FORM)
    if len(newer):
        entry = column[int(newer[0])].as_py()
        raise StoreDamagedError(
            f"the archived file {entry['file']} has format {entry['form']}, and this Millstream reads up to format "
            f"{FORM}. Read it with the version that wrote it, or a later one"
        )


def latest_ms(columns: Iterable[pa.StructArray]) -> int | None:
    """The greatest time of a row in the files of these entries; None without entries."""
    latest: int | None = None
    for column in columns:
        _check_forms(column)
        if len(column):
            greatest = int(pc.max(column.field("high_ms")).as_py())
            latest = greatest if latest is None else max(latest, greatest)
    return latest


def births_of(names: Sequence[str], born: Sequence[str]) -> dict[str, str]:
    """The births of columns that are not original, empty if all columns are.

    >>> births_of(["k", "n"], ["", "7f3a:42"]), births_of(["k"], [])
    ({'n': '7f3a:42'}, {})
    """
    return {name: birth for name, birth in zip(names, born, strict=False) if birth}


def read_file(
    entry: ArchivedFile, schema: pa.Schema, filters: Sequence[GroupFilter] = (), births: Mapping[str, str] | None = None
) -> pa.Table:
    """The rows of a file with the columns of `schema`, which may include the archive's own. Row groups without
    a row for which all `filters` are true are skipped. `births`: the births of the table's non-original columns."""
    file = _opened(entry)
    if file.metadata.num_rows != entry.rows:
        row_count = file.metadata.num_rows
        raise StoreDamagedError(f"{_shown(entry)} has {row_count} rows, expected {entry.rows}. Put the file back")
    file_births, table_births = json.loads(entry.born or "{}"), births or {}
    present = {name for name in file.schema_arrow.names if file_births.get(name) == table_births.get(name)}
    missing = [name for name in _NEEDED if name in schema.names and name not in present]
    if missing:
        raise StoreDamagedError(f"{_shown(entry)} has no column {missing[0]}. Put the file back")
    names = [name for name in schema.names if name in present]
    groups = [at for at in range(file.num_row_groups) if may_hold(filters, file.metadata.row_group(at))]
    try:
        rows = file.read_row_groups(groups, columns=names)
        columns = [
            rows.column(field.name).cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(entry, error) from error
    return pa.table(columns, schema=schema)


def _shown(entry: ArchivedFile) -> str:
    return f"the archived file {entry.file} in {shown_address(entry.url)}"


def _unreadable(entry: ArchivedFile, error: Exception) -> StoreError:
    """The error for an unreadable file: transient if the disk does not answer, else damage."""
    if is_transient(error):
        return StoreAwayError(f"{_shown(entry)} cannot be read now: {error}")
    return StoreDamagedError(f"{_shown(entry)} cannot be read: {error}. Put the file back")


def _opened(entry: ArchivedFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(_opened_content(entry), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(entry, error) from error


def check_file(entry: ArchivedFile) -> None:
    """Raises StoreDamagedError if the file is missing or has changed."""
    _opened_content(entry).close()


def _opened_content(entry: ArchivedFile) -> pa.NativeFile:
    store = with_patience(open_store(entry.url))
    # It may be published between the first and the second attempt; then the third one succeeds.
    for name in (entry.file, entry.staged, entry.file):
        source = _source(store, name, entry) if name else None
        if source is not None:
            return source
    raise StoreDamagedError(
        f"{_shown(entry)} is missing, with {entry.rows} rows that left the state in epoch {entry.epoch}. No query "
        "returned results without them. Put the file back"
        ""
    )


def _source(store: Store, name: str, entry: ArchivedFile) -> pa.NativeFile | None:
    """The verified content of a name; None if it does not exist."""
    if not store.exists(name):
        return None
    path = store.local_path(name)
    try:
        if path is None:
            data = store.get(name)
            _check_content(entry, len(data), zlib.crc32(data))
            return pa.BufferReader(data)
        row_count = os.stat(path)
        _check_content(entry, *_local_content(str(path), row_count.st_ino, row_count.st_size, row_count.st_mtime_ns))
        return pa.OSFile(str(path))
    except FileNotFoundError:
        return None  # it was renamed in the meantime
    except StoreDamagedError:
        if store.exists(name):
            raise
        return None


def _check_content(entry: ArchivedFile, size: int, crc32: int) -> None:
    """Reject a file that is not the one written. Entries of older versions have a length but no checksum."""
    if entry.bytes and size != entry.bytes:
        raise StoreDamagedError(
            f"{_shown(entry)} has {size} bytes, expected {entry.bytes}: it was truncated or replaced. Put the file back"
        )
    if entry.crc32 is not None and crc32 != entry.crc32:
        raise StoreDamagedError(
            f"{_shown(entry)} has changed: its checksum does not match. It was modified or replaced. Put the file back"
        )


@lru_cache(maxsize=65_536)
def _local_content(path: str, inode: int, size: int, changed_ns: int) -> tuple[int, int]:
    """Length and checksum of a local file, cached while its identity, size and time are unchanged."""
    return content_of(open_store(os.path.dirname(path)), os.path.basename(path))


def milliseconds(column: pa.Array) -> Int64s:
    """A column of dates or timestamps in milliseconds since 1970, rounded down; NEVER_MS for NULL.

    >>> milliseconds(pa.array([1500, None, -1], pa.timestamp("us"))).tolist() == [1, NEVER_MS, -1]
    True
    """
    kind = column.type
    if pa.types.is_date32(kind):
        ticks = column.cast(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) * 86_400_000
    else:
        ticks = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        ticks = ticks * 1_000 if kind.unit == "s" else ticks // _PER_MS.get(kind.unit, 1)
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), ticks, NEVER_MS).astype(np.int64)
