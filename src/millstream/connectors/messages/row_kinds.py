"""The kinds of rows at the edge of a job: formats that have no word for them take new rows only.

A deletion that is written as a plain document would be read as a new row. So such formats refuse rows that are no
INSERT, and name the formats that hold them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row, RowKind
from millstream.errors import TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, to_record_batch

__all__ = ["check_insert", "inserted_rows"]


def check_insert(row: Any, format_name: str) -> None:
    """Raises unless `row` is a new row."""
    if row is None:
        raise TypeMismatchError(
            f"{format_name} was given None in place of a row. Filter such records before the sink", value=row
        )
    if isinstance(row, Row) and row.get_row_kind() is not RowKind.INSERT:
        raise TypeMismatchError(
            f"{format_name} has no word for what became of a row, and was given one of kind {row.get_row_kind().name}: "
            f"{row!r}. Write changes as Debezium or Canal JSON, or filter rows by their kind before the sink",
            value=row,
        )


def inserted_rows(batch: Batch, type_info: TypeInformation, format_name: str) -> pa.RecordBatch:
    """The columns of a batch of new rows of the type, without that of their kinds. Others are refused."""
    if batch.typed and batch.type_info == type_info:
        columns = batch.columns()
    else:
        columns = to_record_batch(batch.values(), type_info)
    if columns.schema.names[-1:] != [KIND_COLUMN]:
        return columns
    kinds = columns.column(columns.num_columns - 1)
    if kinds.null_count or pc.any(pc.not_equal(kinds, 0), min_count=0).as_py():
        for row in batch.values():
            check_insert(row, format_name)
    return columns.remove_column(columns.num_columns - 1)
