"""Creates data frames from tables, pandas, Arrow, records, columns, and ranges of numbers.

A schema is a list of names, as in PyFlink, or names with their types: `{"id": DataType.int64()}`. Without types, they
are inferred or taken from Arrow.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.dataframe.context import get_or_create_table_environment
from millstream.dataframe.dataframe import DataFrame
from millstream.dataframe.datatype import DataType, row_type
from millstream.dataframe.event_time.watermarks import Watermark, checked_watermark, timed_row_type
from millstream.expressions.arrow_types import from_arrow_type
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BigIntType
from millstream.graph.site import refuse, refuse_type
from millstream.table.conversions.elements import elements_type, rows_of, stored_type
from millstream.table.table import Table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["from_arrow", "from_dict", "from_pandas", "from_records", "from_table", "range"]

Columns = list[str] | Mapping[str, DataType] | None
_TEXTS = (str, bytes, bytearray, memoryview)
_RANGE_ROWS_MAX = 10_000_000


def from_table(table: Table) -> DataFrame:
    """Creates a data frame from a table."""
    if not isinstance(table, Table):
        raise refuse_type(f"from_table: found {table!r}, expected a Table")
    return DataFrame(table)


def from_pandas(pdf: pd.DataFrame, schema: Columns = None, watermark: Watermark = None) -> DataFrame:
    """Creates a data frame from a pandas DataFrame. Names in a schema rename its columns in order."""
    if not hasattr(pdf, "itertuples"):
        raise refuse_type(f"from_pandas: found {pdf!r} ({type(pdf).__name__}), expected a pandas DataFrame")
    import pyarrow as pa

    if schema is None and not all(isinstance(name, str) for name in pdf.columns):
        pdf = pdf.rename(columns=str)
    return _of_arrow("from_pandas", pa.Table.from_pandas(pdf, preserve_index=False), schema, watermark)


def from_arrow(table: pa.Table, schema: Columns = None, watermark: Watermark = None) -> DataFrame:
    """Creates a data frame from an Arrow table or record batch, with its types unless a schema overrides them."""
    if not hasattr(table, "to_pylist") or not hasattr(table, "schema"):
        raise refuse_type(f"from_arrow: found {type(table).__name__}, expected a pyarrow.Table or RecordBatch")
    import pyarrow as pa

    return _of_arrow("from_arrow", pa.table(table), schema, watermark)


def _of_arrow(method: str, table: pa.Table, schema: Columns, watermark: Watermark) -> DataFrame:
    import pyarrow as pa

    if isinstance(schema, Mapping):
        types = row_type(method, schema)
        table = table.select(_check_present(types, table.column_names, method))
    else:
        names = table.column_names if schema is None else _checked_names(method, schema)
        if len(names) != table.num_columns:
            raise refuse(f"{method}: the schema has {len(names)} names, the data has {table.num_columns} columns")
        types = RowType.of(names, [from_arrow_type(field.type, field.nullable) for field in table.schema])
    timed, entry = timed_row_type(types, checked_watermark(method, watermark))
    try:
        columns = table.rename_columns(list(timed.names)).cast(timed.schema, safe=watermark is None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise refuse(f"{method}: the values do not fit the types: {error}") from error
    return DataFrame(get_or_create_table_environment()._of_columns(columns, timed, entry))


def from_records(data: Sequence[Any], schema: Columns = None, watermark: Watermark = None) -> DataFrame:
    """Creates a data frame from records: dicts, named tuples, or sequences of values, which need a schema for the
    names.

    With a schema, other fields of dicts and named tuples are ignored; without one, all records must have the fields of
    the first. If the schema has types, missing fields are NULL.
    """
    if isinstance(data, (*_TEXTS, Mapping)) or not isinstance(data, Sequence):
        raise refuse_type(f"from_records: found {data!r}, expected records: [{{'id': 1}}, {{'id': 2}}]")
    typed = isinstance(schema, Mapping)
    types = row_type("from_records", schema) if typed else None
    if not data and types is None:
        raise refuse("from_records: found no records and no types, expected one of them to determine the columns")
    names = list(types.names) if types is not None else _checked_names("from_records", schema, data)
    fields = [_values(record, data[0], names, has_schema=schema is not None, fills=typed) for record in data]
    return _of_rows("from_records", fields, names if types is None else types, watermark)


def _values(record: Any, first: Any, names: Sequence[str], has_schema: bool, fills: bool) -> tuple[Any, ...]:
    """The fields of a record, in the order of names."""
    if isinstance(record, _TEXTS) or not isinstance(record, Mapping | Sequence):
        raise refuse_type(f"from_records: found {record!r}, expected a dict, a named tuple or a sequence of values")
    if isinstance(record, Mapping) != isinstance(first, Mapping):
        raise refuse_type(f"from_records: found {record!r} next to {first!r}, expected records of one kind")
    named = record._asdict() if hasattr(record, "_asdict") and hasattr(first, "_asdict") else record
    if not isinstance(named, Mapping):
        if len(record) != len(names):
            raise refuse(f"from_records: found {record!r}, expected {len(names)} values: {', '.join(names)}")
        return tuple(record)
    if unknown := [name for name in named if name not in names and (not has_schema or fills)]:
        raise refuse(f"from_records: found the field {unknown[0]!r} in {record!r}, expected {', '.join(names)}")
    if not fills and (missing := [name for name in names if name not in named]):
        raise refuse(f"from_records: found no field {missing[0]!r} in {record!r}, expected {', '.join(names)}")
    return tuple(named.get(name) for name in names)


def from_dict(data: Mapping[str, Sequence[Any]], schema: Columns = None, watermark: Watermark = None) -> DataFrame:
    """Creates a data frame from columns: names with their values, all of equal length. A schema selects and orders
    columns."""
    if not isinstance(data, Mapping):
        raise refuse_type(f"from_dict: found {data!r}, expected columns: {{'id': [1, 2]}}")
    if not data:
        raise refuse("from_dict: found no columns, expected some: {'id': [1, 2]}")
    for name, values in data.items():
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise refuse_type(f"from_dict: found {values!r} as the column {name!r}, expected its values: [1, 2]")
    lengths = {name: len(values) for name, values in data.items()}
    if len(set(lengths.values())) > 1:
        raise refuse(f"from_dict: found columns of different lengths: {lengths}")
    types = row_type("from_dict", schema) if isinstance(schema, Mapping) else None
    names = _checked_names("from_dict", list(data) if schema is None else list(schema) if types else schema)
    _check_present(names, data, "from_dict")
    rows = list(zip(*(data[name] for name in names), strict=True))
    return _of_rows("from_dict", rows, names if types is None else types, watermark)


def _checked_names(method: str, schema: Any, records: Sequence[Any] = ()) -> list[str]:
    """The names of the schema, if any, otherwise of the first record."""
    first: Any = records[0] if records else None
    if schema is None:
        if isinstance(first, Mapping):
            schema = list(first)
        elif hasattr(first, "_fields"):
            schema = list(first._fields)
        else:
            raise refuse(f"{method}: found {first!r}, expected dicts, named tuples, or a schema that names the fields")
    if not isinstance(schema, list) or not all(isinstance(name, str) for name in schema):
        raise refuse_type(
            f"{method}: found {schema!r} as the schema, expected names, ['id'], or names and types, "
            "{'id': DataType.int64()}"
        )
    if not schema or not all(schema):
        raise refuse(f"{method}: found {schema!r} as the schema, expected at least one name, and no empty ones")
    if len(set(schema)) < len(schema):
        raise refuse(f"{method}: found {schema!r} as the schema, expected each name once")
    return schema


def _check_present(names: RowType | Sequence[str], present: Any, method: str) -> list[str]:
    """The names of a schema, all of which must be present in the data."""
    columns = list(names.names if isinstance(names, RowType) else names)
    if missing := [name for name in columns if name not in present]:
        raise refuse(
            f"{method}: the schema has the column {missing[0]!r}; the data has the columns {', '.join(present)}"
        )
    return columns


def range(start_or_end: int, end: int | None = None, step: int = 1) -> DataFrame:
    """Creates a data frame of the numbers of Python's `range`, in the column `id`."""
    start, stop = (0, start_or_end) if end is None else (start_or_end, end)
    for number in (start, stop, step):
        if not hasattr(number, "__index__"):
            raise refuse_type(f"range: found {number!r}, expected integers")
    if step == 0:
        raise refuse("range: found a step of 0, expected another")
    count = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
    if count > _RANGE_ROWS_MAX:
        raise refuse(
            f"range: found {count:,} numbers, expected at most {_RANGE_ROWS_MAX:,}: the program holds them in memory. "
            "Generate them with read_generic('datagen', …) with 'fields.id.kind' = 'sequence'"
        )
    numbers = [(number,) for number in builtins.range(start, stop, step)]
    return _of_rows("range", numbers, RowType.of(["id"], [BigIntType(False)]), None)


def _of_rows(method: str, rows: list[Any], schema: RowType | list[str], watermark: Watermark) -> DataFrame:
    declared = elements_type(rows, schema)
    types, entry = timed_row_type(stored_type(declared), checked_watermark(method, watermark))
    return DataFrame(get_or_create_table_environment()._of_rows(rows_of(rows, declared), types, entry))
