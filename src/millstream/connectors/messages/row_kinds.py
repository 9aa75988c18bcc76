"""Row kinds at the edge of a job: formats without row kinds accept inserts only.

A delete written as a plain document would be read as a new row. So such formats reject rows other than INSERT, with an
error that names the formats that support them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row, RowKind
from millstream.errors import TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN, to_record_batch

__all__ = ["check_insert", "inserted_rows", "rows_and_kinds"]


def check_insert(row: Any, format_name: str) -> None:
    """Raises unless `row` is an insert."""
    if row is None:
        raise TypeMismatchError(
            f"{format_name} received None in place of a row. Filter such records before the sink", value=row
        )
    if isinstance(row, Row) and row.get_row_kind() is not RowKind.INSERT:
        raise TypeMismatchError(
            f"{format_name} cannot represent row kinds, but received a row of kind {row.get_row_kind().name}: "
            f"{row!r}. Write changes as Debezium or Canal JSON, or filter rows by their kind before the sink",
            value=row,
        )


def rows_and_kinds(batch: Batch, type_info: TypeInformation) -> tuple[pa.RecordBatch, npt.NDArray[np.int8]]:
    """The columns of the type, and the kind of each row by its number. None instead of a row is rejected."""
    if batch.typed and batch.type_info == type_info:
        columns = batch.columns()
    else:
        columns = to_record_batch(batch.values(), type_info)
    if columns.schema.names[-1:] != [KIND_COLUMN]:
        return columns, np.zeros(columns.num_rows, np.int8)
    kinds = columns.column(columns.num_columns - 1)
    if kinds.null_count:
        check_insert(None, "A changelog")
    return columns.remove_column(columns.num_columns - 1), kinds.to_numpy()


def inserted_rows(batch: Batch, type_info: TypeInformation, format_name: str) -> pa.RecordBatch:
    """The columns of a batch of inserts, without the column of row kinds. Other rows are rejected."""
    columns, kinds = rows_and_kinds(batch, type_info)
    if kinds.any():
        for row in batch.values():
            check_insert(row, format_name)
    return columns
