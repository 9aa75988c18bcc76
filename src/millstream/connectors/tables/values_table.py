"""`'connector' = 'values'`: a table with its rows in the definition, as JSON. For examples and tests.

    CREATE TABLE t (id INT, d DATE) WITH ('connector' = 'values', 'data' = '[{"id": 1}, [2, "2026-11-16"]]')

A row is an object, or a list of all columns in their order. The table ends with its last row. With
`'changelog-mode' = 'I,UB,UA,D'` rows change the table, and each is listed as a pair of its kind and the row itself:
`["+I", [1, "a"]]`, `["-D", {"id": 1}]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from millstream.common.types import RowKind
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.tables.factory import GROWS, TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.formats.json_cells import JsonReading
from millstream.connectors.tables.lookups import TableLookup, WholeTable
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.records.columns import KIND_COLUMN
from millstream.records.table_type import TableRowType

__all__ = ["ValuesFactory"]


class ValuesFactory(TableFactory):
    """Rows listed in the definition of the table."""

    name = "values"
    options = (
        TableOption("data", "the rows: a JSON list of objects or of lists", default="[]"),
        TableOption("changelog-mode", "the kinds of rows: I, UB, UA and D, separated by commas", default="I"),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options = TableOptions(table.name, table.options, self.options)
        known_kinds = self.emitted_changes(table.options)
        try:
            rows = json.loads(str(options.text("data")), parse_float=Decimal)
            if not isinstance(rows, list):
                raise ValueError("it is not a list")
            kinds, rows = _kinds(rows, known_kinds)
            read = [_row(row, table.physical, number) for number, row in enumerate(rows, 1)]
        except ValueError as error:
            raise options.wrong("data", f"a JSON list of rows ({error})") from None
        chosen = tuple(range(len(table.physical.fields)) if columns is None else columns)
        fields = [table.physical.fields[at] for at in chosen]
        row_type = RowType(fields, nullable=False)
        arrays = [pa.array([row[field.name] for row in read], field.data_type.arrow) for field in fields]
        schema = row_type.schema
        if kinds is not None:
            arrays, schema = [*arrays, kinds], schema.append(pa.field(KIND_COLUMN, kinds.type))
        source = _ValuesSource(pa.RecordBatch.from_arrays(arrays, schema=schema), row_type)
        return TableSource(source, columns=chosen, bounded=True)

    def lookup(self, table: TableDefinition, columns: Sequence[int], keys: Sequence[int]) -> TableLookup:
        row_type = RowType([table.physical.fields[at] for at in columns], nullable=False)
        return TableLookup(WholeTable(self.source(table, columns, ()).source, row_type), row_type)

    def emitted_changes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        letters = [letter.strip() for letter in options.get("changelog-mode", "I").split(",")]
        if not set(letters) <= set(_LETTERS) or "I" not in letters:
            mode = options["changelog-mode"]
            raise ProgramError(f"option 'changelog-mode' is {mode!r}, expected I, or I with some of UB, UA, D")
        return tuple(kind for letter, kind in _LETTERS.items() if letter in letters)


_LETTERS = {"I": "+I", "UB": "-U", "UA": "+U", "D": "-D"}
_KINDS = {str(kind): kind.value for kind in RowKind}


def _kinds(rows: list[object], known: tuple[str, ...]) -> tuple[pa.Array | None, list[object]]:
    """The row kinds, and the rows; None for an insert-only table."""
    if known == GROWS:
        return None, rows
    kinds, values = [], []
    for number, pair in enumerate(rows, 1):
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] not in known:
            raise ValueError(f"row {number} is not a pair of a kind ({', '.join(known)}) and a row")
        kinds.append(_KINDS[pair[0]])
        values.append(pair[1])
    return pa.array(kinds, pa.int8()), values


def _row(row: object, row_type: RowType, number: int) -> dict[str, object]:
    if isinstance(row, list):
        if len(row) != len(row_type.fields):
            raise ValueError(f"row {number} has {len(row)} values, and the table {len(row_type.fields)} columns")
        row = dict(zip(row_type.names, row, strict=True))
    try:
        values = JsonReading().row(row, row_type)
    except ValueError as error:
        raise ValueError(f"row {number}: {error}") from None
    for field in row_type.fields:
        if values[field.name] is None and not field.data_type.is_nullable:
            raise ValueError(f"row {number}: column {field.name!r} is NOT NULL")
    return values


class _ValuesSource(Source):
    """Rows of the definition; an offset is the number of the next row."""

    bounded = True
    single = True

    def __init__(self, rows: pa.RecordBatch, row_type: RowType) -> None:
        self._rows = rows
        self.type_info = TableRowType(row_type)

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return (Split("values"),)

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(self._rows.num_rows, offset + max(1, budget))

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= self._rows.num_rows)

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        if stop > start:
            yield self._rows.slice(start, stop - start)
        return stop

    def describe(self) -> str:
        return f"{self._rows.num_rows} rows of the definition"
