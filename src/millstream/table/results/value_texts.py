"""Formats a result's values for the screen: as CAST to STRING does, in the session's zone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millstream.common.types import RowKind
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call, Column
from millstream.expressions.types import LENGTH_MAX, BinaryType, VarBinaryType, VarCharType
from millstream.planner.relations import Schema
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.table.results.row_source import RowSource
from millstream.table.results.tableau import NULL_TEXT

__all__ = ["ValueTexts", "row_texts"]


class ValueTexts:
    """Formats the rows of a result, a batch at a time."""

    def __init__(self, schema: Schema, zone: str, null_text: str = NULL_TEXT) -> None:
        text = VarCharType(LENGTH_MAX)
        columns_of = [Column(type_, index) for index, type_ in enumerate(schema.types)]
        casts = [each if _is_binary(each.type) else Call(text, "CAST", (each,)) for each in columns_of]
        self._columns = len(schema)
        self._program = compile_program(casts, schema.types)
        self._session = SessionFacts(zone=zone)
        self._null_text = null_text

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[list[str]]:
        """The formatted rows of a batch: kind, then values."""
        texts = self._program.run(batch.columns[: self._columns], batch.num_rows, self._session).columns
        kinds = _kinds(batch, self._columns)
        for kind, *values in zip(kinds, *(column.to_pylist() for column in texts), strict=True):
            yield [kind, *(self._null_text if value is None else _shown(value) for value in values)]


def row_texts(
    source: RowSource, schema: Schema, zone: str, with_kinds: bool, null_text: str = NULL_TEXT
) -> Iterator[list[str]]:
    """The rows of a source as strings; with the kind of each row before its values."""
    texts = ValueTexts(schema, zone, null_text)
    while (batch := source.next_batch()) is not None:
        for row in texts.of_batch(batch):
            yield row if with_kinds else row[1:]


def _is_binary(data_type: DataType) -> bool:
    return isinstance(data_type, BinaryType | VarBinaryType)


def _shown(value: str | bytes) -> str:
    """A string unchanged, bytes in SQL syntax: x'0a'."""
    return f"x'{value.hex()}'" if isinstance(value, bytes) else value


def _kinds(batch: pa.RecordBatch, columns: int) -> list[str]:
    """The kind of each row, in Flink's notation: +I, -U, +U, -D."""
    if batch.num_columns == columns:
        return ["+I"] * batch.num_rows
    names = {kind.value: str(kind) for kind in RowKind}
    return [names[kind] for kind in batch.column(columns).to_pylist()]
