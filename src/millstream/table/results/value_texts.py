"""Values of a result as texts for the screen: what CAST to STRING makes of them, in the session's zone."""

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

__all__ = ["row_texts"]


def row_texts(
    source: RowSource, schema: Schema, zone: str, with_kinds: bool, null_text: str = NULL_TEXT
) -> Iterator[list[str]]:
    """The rows of a source as texts; with the kind of each row before its values."""
    text = VarCharType(LENGTH_MAX)
    columns_of = [Column(type_, index) for index, type_ in enumerate(schema.types)]
    casts = [each if _is_binary(each.type) else Call(text, "CAST", (each,)) for each in columns_of]
    program = compile_program(casts, schema.types)
    session = SessionFacts(zone=zone)
    while (batch := source.next_batch()) is not None:
        columns = batch.columns[: len(schema)]
        texts = program.run(columns, batch.num_rows, session).columns
        kinds = _kinds(batch, len(schema))
        for row in zip(kinds, *(column.to_pylist() for column in texts), strict=True):
            values = [null_text if value is None else _shown(value) for value in row[1:]]
            yield [row[0], *values] if with_kinds else values


def _is_binary(data_type: DataType) -> bool:
    return isinstance(data_type, BinaryType | VarBinaryType)


def _shown(value: str | bytes) -> str:
    """A text as it is, bytes as SQL writes them: x'0a'."""
    return f"x'{value.hex()}'" if isinstance(value, bytes) else value


def _kinds(batch: pa.RecordBatch, columns: int) -> list[str]:
    """The kind of each row, as Flink writes it: +I, -U, +U, -D."""
    if batch.num_columns == columns:
        return ["+I"] * batch.num_rows
    names = {kind.value: str(kind) for kind in RowKind}
    return [names[kind] for kind in batch.column(columns).to_pylist()]
