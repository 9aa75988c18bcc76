"""Converts users' rows, from any table library, to the typed columns of a state to be written.

Arrow tables, readers and batches, and pandas, polars and Spark DataFrames become one Arrow table. A column, or several
that make up a ROW or TUPLE, is then checked against a declared type: cast if that is lossless, converted value by value
if the type has its own encoding (BIG_DEC, INSTANT), and rejected with the state's name otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.columns import arrow_type, checked_batch, stream_schema
from millstream.state.keys.key_columns import KeyColumn, is_stored_as_is, key_column, key_column_of_arrow
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.map_keys import MapKeyCodec

__all__ = ["Columns", "key_columns", "map_key_column", "python_values", "state_column", "table_from"]

Columns = str | Sequence[str]


def table_from(rows: Any, what: str) -> pa.Table:
    """`rows` as one Arrow table; ProgramError naming `what` for unsupported types.

    >>> table_from(pa.table({"key": ["a"]}), "state 'total'").column_names
    ['key']
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if isinstance(rows, list):
        return pa.Table.from_pylist(rows)
    for method in ("toArrow", "to_arrow"):  # Spark, polars
        convert = getattr(rows, method, None)
        if callable(convert):
            return table_from(convert(), what)
    if hasattr(rows, "iloc"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    raise ProgramError(
        f"{what}: found rows of {type(rows).__name__}, expected an Arrow table, a pandas, polars or Spark DataFrame, "
        "or a list of dictionaries"
    )


def picked(table: pa.Table, columns: Columns, what: str) -> list[pa.Array]:
    """The columns of these names."""
    names = [columns] if isinstance(columns, str) else list(columns)
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise ProgramError(f"{what}: the rows have no column {missing[0]!r}; they have {table.column_names}")
    return [_whole(table.column(name)) for name in names]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def python_values(table: pa.Table, columns: Columns, what: str) -> list[Any]:
    """One Python value per row; a tuple if there are several columns."""
    arrays = picked(table, columns, what)
    if isinstance(columns, str):
        return arrays[0].to_pylist()  # type: ignore[no-any-return]
    return list(zip(*(array.to_pylist() for array in arrays), strict=True))


def state_column(table: pa.Table, columns: Columns, type_info: TypeInformation | None, what: str) -> pa.Array:
    """The columns as one column in stored form: the type's Arrow type, or pickles without a type."""
    codec = StateCodec(type_info, what)
    if type_info is None or codec.is_pickled:
        return codec.encode(python_values(table, columns, what))
    arrays = picked(table, columns, what)
    if isinstance(columns, str) and arrays[0].type == codec.arrow_type:
        return arrays[0]
    schema = stream_schema(type_info)
    assert schema is not None
    is_row = pa.types.is_struct(codec.arrow_type) and codec.arrow_type.num_fields > 0 and "value" not in schema.names
    if isinstance(columns, str) and is_row and pa.types.is_struct(arrays[0].type):
        arrays = _fields(arrays[0], schema, what)
    if len(arrays) != len(schema):
        raise ProgramError(f"{what}: {type_info} has {len(schema)} fields, found the columns {columns!r}")
    try:
        batch = checked_batch(pa.RecordBatch.from_arrays(arrays, names=schema.names), type_info)
    except TypeMismatchError:
        # The type may have its own encoding; converting value by value identifies a value that does not fit.
        return codec.encode(python_values(table, columns, what))
    if is_row:
        return pa.StructArray.from_arrays(batch.columns[: len(schema)], fields=list(codec.arrow_type))
    return batch.column(0)


def map_key_column(
    table: pa.Table, columns: Columns, type_info: TypeInformation | None, codec: MapKeyCodec
) -> pa.Array:
    """As `state_column`, for the keys of a map, encoded by its `codec`."""
    if codec.has_forms:
        return codec.encode(list(map(codec.settle, python_values(table, columns, codec.what))))
    return state_column(table, columns, type_info, codec.what)


def _fields(struct: pa.Array, schema: pa.Schema, what: str) -> list[pa.Array]:
    """The fields of a struct in the order of a type, by name, or by position if names differ, as for tuples."""
    own = [field.name for field in struct.type]
    if len(own) != len(schema):
        raise ProgramError(f"{what}: the type has the fields {schema.names}, the column has {own}")
    columns = struct.flatten()
    if set(own) != set(schema.names):
        return list(columns)
    return [columns[own.index(name)] for name in schema.names]


def key_columns(table: pa.Table, columns: Columns, key_type: TypeInformation | None, what: str) -> KeyColumn:
    """The keys in stored form."""
    if key_type is None or arrow_type(key_type) is None or not is_stored_as_is(key_type):
        return key_column(python_values(table, columns, what), key_type)
    return key_column_of_arrow(state_column(table, columns, key_type, f"the key of {what}"))
