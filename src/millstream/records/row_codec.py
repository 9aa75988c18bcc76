"""Rows and tuples as columns: transposed both ways, as a struct when nested and as a whole batch at the top.

Fields go by position. A row with names of its own, in another order than declared, is a matter for
`conform`. Inside a batch the first columns are the fields; `__kind` follows only where some record is not a
plain INSERT row: it holds the record's change kind, null for a record that is None.
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


class RowCodec(Codec):
    """Row values (or tuples and lists given for them); decodes to Row, or to tuple for a TUPLE."""

    def __init__(self, names: Sequence[str], fields: Sequence[Codec], *, to_tuples: bool) -> None:
        self._columns = [codec.field(name) for name, codec in zip(names, fields, strict=True)]
        super().__init__(pa.struct(self._columns), tuple if to_tuples else Row)
        self._names = tuple(names)
        self._codecs = tuple(fields)
        self._to_tuples = to_tuples
        plain = tuple(f"f{i}" for i in range(len(names)))
        # Names by which a row may be taken by position; rows of a plain ROW are never matched by name.
        self._positional = None if self._names == plain else frozenset({None, self._names, plain})

    @property
    def schema(self) -> pa.Schema:
        """The columns of a stream of this type."""
        return pa.schema(self._columns)

    def encode(self, values: list[Any]) -> tuple[pa.Array, bool]:
        cells, kept, has_none = self._cells(values)
        if self._kinds(values) is not None:
            raise Doubt  # a nested row's change kind has no place: conform names it
        arrays, columns_kept = self._encode_columns(cells)
        nulls = pa.array([value is None for value in values], pa.bool_()) if has_none else None
        if not arrays:
            return pa.array([None if value is None else {} for value in values], self.arrow), kept
        return pa.StructArray.from_arrays(arrays, type=self.arrow, mask=nulls), kept and columns_kept

    def decode(self, array: pa.Array) -> list[Any]:
        columns = [codec.decode(array.field(i)) for i, codec in enumerate(self._codecs)]
        return with_nulls(self._records(columns, len(array)), array)

    def encode_batch(self, values: list[Any]) -> tuple[pa.RecordBatch, bool]:
        """The whole stream batch, and whether the values are kept."""
        cells, kept, has_none = self._cells(values)
        arrays, columns_kept = self._encode_columns(cells)
        kinds = self._kinds(values)
        fields = self._columns
        if has_none or kinds is not None or not arrays:
            codes = [None if v is None else 0 for v in values] if kinds is None else kinds
            arrays.append(pa.array(codes, pa.int8()))
            fields = [*fields, _KIND_FIELD]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), kept and columns_kept

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

    def _cells(self, values: list[Any]) -> tuple[list[Sequence[Any]], bool, bool]:
        """Each record's values in field order; whether the records themselves are kept; whether one is None."""
        kinds = set(map(type, values))
        has_none = NoneType in kinds
        kinds.discard(NoneType)
        width = len(self._codecs)
        present = [value for value in values if value is not None] if has_none else values
        kept = True
        cells: list[Sequence[Any]] = present
        if kinds == {Row} and not self._to_tuples:
            names = {row._fields for row in present}
            if self._positional is not None and not names <= self._positional:
                raise Doubt
            kept = names == {self._names}
            cells = [row._values for row in present]
        elif self._to_tuples and kinds <= {tuple}:
            pass
        elif not self._to_tuples and kinds <= {tuple, list}:
            kept = not kinds
        else:
            raise Doubt
        if cells and set(map(len, cells)) != {width}:
            raise Doubt
        if has_none:
            cells = self._spread(values, cells)
        return cells, kept, has_none

    def _spread(self, values: list[Any], cells: list[Sequence[Any]]) -> list[Sequence[Any]]:
        """Cells for all records again, with Nones where the record is None."""
        remaining, empty = iter(cells), (None,) * len(self._codecs)
        return [empty if value is None else next(remaining) for value in values]

    def _encode_columns(self, cells: list[Sequence[Any]]) -> tuple[list[pa.Array], bool]:
        arrays, kept = [], True
        for i, codec in enumerate(self._codecs):
            array, column_kept = codec.encode([cell[i] for cell in cells])
            arrays.append(array)
            kept = kept and column_kept
        return arrays, kept

    def _kinds(self, values: list[Any]) -> list[int | None] | None:
        """The change kinds as codes, or nothing where every row is an INSERT."""
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
        """The whole stream batch, and whether the values are kept."""
        array, kept = self._codec.encode(values)
        return pa.RecordBatch.from_arrays([array], schema=self.schema), kept

    def decode_batch(self, batch: pa.RecordBatch) -> list[Any]:
        """The records of a stream batch."""
        return self._codec.decode(batch.column(0))
