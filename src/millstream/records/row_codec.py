"""Rows and tuples as columns: transposed in both directions, as a struct when nested and as a whole batch at the top.

Fields are matched by position. A row with names in another order than declared is handled by `conform`. The first
columns of a batch are the fields; `__kind` follows only if some record is not an INSERT row: it holds the record's
change kind, null for a None record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.common.types import Row, RowKind, rows_from_columns
from millstream.records.codecs import Codec, Doubt, NoneType, with_nulls

KIND_COLUMN = "__kind"

_KINDS = tuple(RowKind)
_KIND_FIELD = pa.field(KIND_COLUMN, pa.int8())


# The number of records transposed at once: more would exceed the CPU cache and take twice the time per record.
_TRANSPOSED_MAX = 4_096


def transposed(cells: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """A list per field, of records with `width` fields each; any other width raises Doubt.

    >>> transposed([(1, "a"), (2, "b")], 2)
    [[1, 2], ['a', 'b']]
    """
    columns: list[list[Any]] = [[] for _ in range(width)]
    for start in range(0, len(cells), _TRANSPOSED_MAX):
        try:
            pieces = list(zip(*cells[start : start + _TRANSPOSED_MAX], strict=True))
        except ValueError:
            raise Doubt from None
        if len(pieces) != width:
            raise Doubt
        for column, piece in zip(columns, pieces, strict=True):
            column.extend(piece)
    return columns


def _spread(values: list[Any], column: list[Any]) -> list[Any]:
    """A column for all records, None where the record is None."""
    remaining = iter(column)
    return [None if value is None else next(remaining) for value in values]


class RowCodec(Codec):
    """Row values (or equivalent tuples and lists); decodes to Row, or to tuple for a TUPLE."""

    def __init__(self, names: Sequence[str], fields: Sequence[Codec], *, to_tuples: bool) -> None:
        self._columns = [codec.field(name) for name, codec in zip(names, fields, strict=True)]
        super().__init__(pa.struct(self._columns), tuple if to_tuples else Row)
        self._names = tuple(names)
        self._codecs = tuple(fields)
        self._to_tuples = to_tuples
        plain = tuple(f"f{i}" for i in range(len(names)))
        # Names with which a row is matched by position; rows of a plain ROW are never matched by name.
        self._positional = None if self._names == plain else frozenset({None, self._names, plain})

    @property
    def schema(self) -> pa.Schema:
        """The columns of a stream of this type."""
        return pa.schema(self._columns)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        columns, is_lossless, has_none = self._columns_of(values)
        if self._kinds(values) is not None:
            raise Doubt  # a nested row cannot have a change kind: conform reports it
        arrays, are_columns_lossless = self._encode_columns(columns)
        nulls = pa.array([value is None for value in values], pa.bool_()) if has_none else None
        if not arrays:
            return pa.array([None if value is None else {} for value in values], self.arrow), is_lossless
        return pa.StructArray.from_arrays(arrays, type=self.arrow, mask=nulls), is_lossless and are_columns_lossless

    def decode(self, array: pa.Array) -> list[Any]:
        columns = [codec.decode(array.field(i)) for i, codec in enumerate(self._codecs)]
        return with_nulls(self._records(columns, len(array)), array)

    def encode_batch(self, values: list[Any]) -> tuple[pa.RecordBatch, bool]:
        """The whole stream batch, and whether it is lossless."""
        columns, is_lossless, has_none = self._columns_of(values)
        arrays, are_columns_lossless = self._encode_columns(columns)
        kinds = self._kinds(values)
        fields = self._columns
        if has_none or kinds is not None or not arrays:
            codes = [None if v is None else 0 for v in values] if kinds is None else kinds
            arrays.append(pa.array(codes, pa.int8()))
            fields = [*fields, _KIND_FIELD]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), is_lossless and are_columns_lossless

    def decode_batch(self, batch: pa.RecordBatch) -> list[Any]:
        """The records of a stream batch."""
        columns = [codec.decode(batch.column(i)) for i, codec in enumerate(self._codecs)]
        records = self._records(columns, batch.num_rows)
        if batch.num_columns > len(columns):
            for position, code in enumerate(batch.column(len(columns)).to_pylist()):
                if code is None:
                    records[position] = None
                elif code:
                    records[position].set_row_kind(_KINDS[code])
        return records

    def _records(self, columns: list[list[Any]], count: int) -> list[Any]:
        if not self._to_tuples:
            return rows_from_columns(columns, self._names, count)
        return list(zip(*columns, strict=True)) if columns else [()] * count

    def _columns_of(self, values: list[Any]) -> tuple[list[list[Any]], bool, bool]:
        """A list per field; whether the records themselves convert losslessly; whether any record is None."""
        if self._to_tuples and list(map(type, values)).count(tuple) == len(values):  # the common case
            return transposed(values, len(self._codecs)), True, False
        kinds = set(map(type, values))
        has_none = NoneType in kinds
        kinds.discard(NoneType)
        present = [value for value in values if value is not None] if has_none else values
        is_lossless = True
        cells: list[Any] = present
        if kinds == {Row} and not self._to_tuples:
            names = {row._fields for row in present}
            if self._positional is not None and not names <= self._positional:
                raise Doubt
            is_lossless = names == {self._names}
            cells = [row._values for row in present]
        elif self._to_tuples and kinds <= {tuple}:
            pass
        elif not self._to_tuples and kinds <= {tuple, list}:
            is_lossless = not kinds
        else:
            raise Doubt
        columns = transposed(cells, len(self._codecs))
        return [_spread(values, column) for column in columns] if has_none else columns, is_lossless, has_none

    def _encode_columns(self, columns: list[list[Any]]) -> tuple[list[pa.Array], bool]:
        arrays, is_lossless = [], True
        for codec, column in zip(self._codecs, columns, strict=True):
            array, is_column_lossless = codec.encode(column)
            arrays.append(array)
            is_lossless = is_lossless and is_column_lossless
        return arrays, is_lossless

    def _kinds(self, values: list[Any]) -> list[int | None] | None:
        """The change kinds as codes, or None if every row is an INSERT."""
        if self._to_tuples:
            return None
        insert = RowKind.INSERT
        if not any([value._row_kind is not insert for value in values if type(value) is Row]):  # noqa: C419 - faster
            return None
        return [value._row_kind.value if type(value) is Row else (None if value is None else 0) for value in values]


class ValueCodec:
    """A stream of single values: one column, `value`."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.schema = pa.schema([codec.field("value")])

    def encode_batch(self, values: list[Any]) -> tuple[pa.RecordBatch, bool]:
        """The whole stream batch, and whether it is lossless."""
        array, is_lossless = self._codec.encode(values)
        return pa.RecordBatch.from_arrays([array], schema=self.schema), is_lossless

    def decode_batch(self, batch: pa.RecordBatch) -> list[Any]:
        """The records of a stream batch."""
        return self._codec.decode(batch.column(0))
