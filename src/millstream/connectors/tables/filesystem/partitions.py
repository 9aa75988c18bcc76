"""Assigns rows to partition folders: `day=2026-11-16/hour=7`; the files omit the partition columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.connectors.files.part_rules import BucketAssigner
from millstream.connectors.tables.filesystem.file_rows import DEFAULT_PARTITION
from millstream.connectors.tables.formats.csv_cells import text_bytes
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

__all__ = ["PartitionBuckets"]

# All other characters are escaped: a path, or a reader that follows Hive's rules, may interpret them.
_UNESCAPED = " !$&()+,-.;@[]^_`{}~"


class PartitionBuckets(BucketAssigner):
    """A folder for each combination of values of the partition columns.

    >>> rows = pa.record_batch({"n": [1, 2, 3], "day": ["a/b", None, "a/b"]})
    >>> buckets = PartitionBuckets(["n", "day"], ["day"])
    >>> [(folder, [row for row in rows.take(at).to_pylist()]) for folder, at in buckets.folders(rows)]
    [('day=a%2Fb', [{'n': 1, 'day': 'a/b'}, {'n': 3, 'day': 'a/b'}]), \
('day=__DEFAULT_PARTITION__', [{'n': 2, 'day': None}])]
    """

    def __init__(
        self, columns: Sequence[str], partition_keys: Sequence[str], default_partition: str = DEFAULT_PARTITION
    ) -> None:
        self._keys = [(name, columns.index(name)) for name in partition_keys]
        self._written = [at for at, name in enumerate(columns) if name not in partition_keys]
        self._default = default_partition
        if not self._written:
            raise ProgramError("all columns of the table are partition columns: its files would be empty")

    def for_epoch(self, now_ms: int) -> None:
        return None

    def divided(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        columns = batch.coded_columns()
        assert isinstance(batch.type_info, TableRowType)
        fields = batch.type_info.row_type.fields
        type_info = TableRowType(RowType([fields[at] for at in self._written], nullable=False))
        written_columns = columns.select([columns.schema.names[at] for at in self._written])
        for folder, at in self.folders(columns):
            rows = written_columns if len(at) == len(batch) else written_columns.take(at)
            yield folder, Batch.of_coded_columns(rows, type_info)

    def folders(self, columns: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
        """Every folder with the positions of its rows, in the order of first occurrence."""
        codes = np.zeros(columns.num_rows, dtype=np.int64)
        for _, position in self._keys:
            values, count = _codes(columns.column(position))
            codes = codes * count + values
        if (codes == codes[:1]).all():
            yield from [(self._folder(columns, 0), pa.array(np.arange(len(codes))))] if len(codes) else []
            return
        _, firsts, group = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(len(firsts) + 1))
        for number in np.argsort(firsts).tolist():
            yield self._folder(columns, int(firsts[number])), pa.array(order[bounds[number] : bounds[number + 1]])

    def _folder(self, columns: pa.RecordBatch, row: int) -> str:
        parts = []
        for name, position in self._keys:
            value = columns.column(position)[row]
            text = value.cast(pa.string()).as_py() if value.is_valid else None
            parts.append(f"{_folder_name(name)}={quote(text, safe=_UNESCAPED) if text else self._default}")
        return "/".join(parts)


def _folder_name(column: str) -> str:
    """A column's name in folder names; a leading dot is escaped, because it would hide the folder.

    >>> _folder_name("a/b"), _folder_name(".day"), _folder_name("_day")
    ('a%2Fb', '%2Eday', '_day')
    """
    escaped = quote(column, safe=_UNESCAPED)
    return f"%2E{escaped[1:]}" if escaped.startswith(".") else escaped


def _codes(column: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """A number per row, equal for equal values and for NULL, and the count of distinct numbers."""
    if not isinstance(column, pa.DictionaryArray):
        if pa.types.is_string(column.type) and _is_one_text(column):  # the usual case: rows arrive in time order
            return np.zeros(len(column), np.int64), 1
        encoded = column.dictionary_encode(null_encoding="encode")
        return np.asarray(encoded.indices, np.int64), len(encoded.dictionary)
    # A dictionary from a function may hold a value twice, and NULL among its values or its rows.
    places = column.dictionary.dictionary_encode()
    null = len(places.dictionary)
    numbers = np.append(np.asarray(places.indices.fill_null(null), np.int64), null)
    return numbers[np.asarray(column.indices.cast(pa.int64()).fill_null(len(places)))], null + 1


def _is_one_text(column: pa.Array) -> bool:
    """Whether all rows have the same text, and none is NULL; without comparing row by row."""
    if column.null_count or not len(column):
        return False
    offsets, letters = text_bytes(column)
    width = int(offsets[1])
    if len(letters) != width * len(column) or not (np.diff(offsets) == width).all():
        return False
    return bool((letters.reshape(len(column), width) == letters[:width]).all())
