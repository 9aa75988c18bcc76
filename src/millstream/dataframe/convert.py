"""Data frames of what a program has: tables, pandas, Arrow, records, columns, ranges of numbers."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.dataframe.context import get_or_create_table_environment
from millstream.dataframe.dataframe import DataFrame
from millstream.dataframe.datatype import DataType, row_type
from millstream.errors import NotYetError
from millstream.expressions.arrow_types import from_arrow_type
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import BigIntType
from millstream.graph.site import refuse
from millstream.table.table import Table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["from_arrow", "from_dict", "from_pandas", "from_records", "from_table", "range"]

DataTypes = Mapping[str, DataType] | None
Watermark = tuple[str, str] | None
_RANGE_ROWS_MAX = 10_000_000


def from_table(table: Table) -> DataFrame:
    """The data frame of a table."""
    if not isinstance(table, Table):
        raise refuse(f"from_table: found {table!r}, expected a Table")
    return DataFrame(table)


def from_pandas(pdf: pd.DataFrame, schema: DataTypes = None, watermark: Watermark = None) -> DataFrame:
    """The rows of a DataFrame of pandas."""
    _refuse_watermark("from_pandas", watermark)
    types = None if schema is None else row_type("from_pandas", schema)
    return DataFrame(get_or_create_table_environment().from_pandas(pdf, types))


def from_arrow(table: pa.Table, schema: DataTypes = None, watermark: Watermark = None) -> DataFrame:
    """The rows of a table or record batch of Arrow, whose types are kept unless a schema says others."""
    _refuse_watermark("from_arrow", watermark)
    if not hasattr(table, "to_pylist") or not hasattr(table, "schema"):
        raise refuse(f"from_arrow: found {type(table).__name__}, expected a pyarrow.Table or RecordBatch")
    if schema is None:
        kinds = [from_arrow_type(field.type, field.nullable) for field in table.schema]
        types = RowType.of(table.schema.names, kinds)
    else:
        types = row_type("from_arrow", schema)
    columns = [table.column(name).to_pylist() for name in _known(types, table.schema.names, "from_arrow")]
    return _rows(list(zip(*columns, strict=True)), types)


def from_records(data: Iterable[Any], schema: DataTypes = None, watermark: Watermark = None) -> DataFrame:
    """Records: dicts, named tuples, or sequences of values, which need a schema for their names."""
    _refuse_watermark("from_records", watermark)
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise refuse(f"from_records: found {data!r}, expected records: [{{'id': 1}}, {{'id': 2}}]")
    records = list(data)
    if not records and schema is None:
        raise refuse("from_records: found no records and no schema, expected one of both to tell the columns")
    types = None if schema is None else row_type("from_records", schema)
    first: Any = records[0] if records else None
    if isinstance(first, Mapping):
        names: list[str] | None = list(first)
    else:
        names = list(first._fields) if hasattr(first, "_fields") else None
    if names is None and types is None:
        raise refuse(f"from_records: found {first!r}, expected dicts, named tuples, or a schema that names the fields")
    if types is not None:
        names = list(types.names)
    assert names is not None
    return _rows([_values(record, names) for record in records], names if types is None else types)


def _values(record: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """The fields of a record in the order of names."""
    fields = record._asdict() if hasattr(record, "_asdict") else record
    if isinstance(fields, Mapping):
        if unknown := [name for name in fields if name not in names]:
            raise refuse(f"from_records: found the field {unknown[0]!r} in {record!r}, expected {', '.join(names)}")
        return tuple(fields.get(name) for name in names)
    if isinstance(record, str | bytes) or not isinstance(record, Sequence) or len(record) != len(names):
        raise refuse(f"from_records: found {record!r}, expected {len(names)} values: {', '.join(names)}")
    return tuple(record)


def from_dict(data: Mapping[str, Sequence[Any]], schema: DataTypes = None, watermark: Watermark = None) -> DataFrame:
    """Columns: names with their values, all of one length."""
    _refuse_watermark("from_dict", watermark)
    if not isinstance(data, Mapping) or not data:
        raise refuse(f"from_dict: found {data!r}, expected columns: {{'id': [1, 2]}}")
    for name, values in data.items():
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise refuse(f"from_dict: found {values!r} as the column {name!r}, expected its values: [1, 2]")
    lengths = {name: len(values) for name, values in data.items()}
    if len(set(lengths.values())) > 1:
        raise refuse(f"from_dict: found columns of different lengths: {lengths}")
    if schema is None:
        return _rows(list(zip(*data.values(), strict=True)), list(data))
    types = row_type("from_dict", schema)
    return _rows(list(zip(*(data[name] for name in _known(types, data, "from_dict")), strict=True)), types)


def _known(types: RowType, names: Iterable[str], method: str) -> tuple[str, ...]:
    """The names of a schema, all of which are there."""
    there = list(names)
    if missing := [name for name in types.names if name not in there]:
        raise refuse(f"{method}: the schema has the column {missing[0]!r}; the data has {', '.join(there)}")
    return types.names


def range(start_or_end: int, end: int | None = None, step: int = 1) -> DataFrame:
    """Numbers in the column `id`, as Python's range has them."""
    start, stop = (0, start_or_end) if end is None else (start_or_end, end)
    for number in (start, stop, step):
        if not hasattr(number, "__index__"):
            raise refuse(f"range: found {number!r}, expected whole numbers")
    if step == 0:
        raise refuse("range: found a step of 0, expected one that goes somewhere")
    count = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
    if count > _RANGE_ROWS_MAX:
        raise refuse(
            f"range: found {count:,} numbers, expected at most {_RANGE_ROWS_MAX:,}: the program holds them all. Let "
            "them be made by read_generic('datagen', …) with 'fields.id.kind' = 'sequence'"
        )
    numbers = [(number,) for number in builtins.range(start, stop, step)]
    return _rows(numbers, RowType.of(["id"], [BigIntType(False)]))


def _rows(rows: list[Any], schema: RowType | list[str]) -> DataFrame:
    return DataFrame(get_or_create_table_environment().from_elements(rows, schema))


def _refuse_watermark(method: str, watermark: Watermark) -> None:
    if watermark is not None:
        raise NotYetError.of(
            f"{method} with a watermark",
            "watermarks of rows that the program has",
            "read_generic(…, watermark=…), or StreamTableEnvironment.from_data_stream with a Schema",
        )
