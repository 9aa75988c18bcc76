"""Rows that the program has at hand: lists of values, and pandas DataFrames. Their types are declared, or inferred.

Inferred types are PyFlink's: whole numbers are BIGINT, floats DOUBLE, texts STRING; what is NULL everywhere has no type
and is refused. A column's type fits all of its values.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.common.types import Row
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.data_types import from_arrow_type
from millstream.expressions.nested_types import ArrayType, MapType, RowType
from millstream.graph.site import refuse

__all__ = ["elements_type", "frame_type", "rows_of"]

_DECIMAL = types.DecimalType(38, 18)


def elements_type(elements: Sequence[Any], schema: Any) -> RowType:
    """The type of rows of `from_elements`: a row type, names of columns, or by the elements alone."""
    if isinstance(schema, RowType):
        return schema
    if isinstance(schema, DataType):
        return RowType.of(["value"], [schema])
    names = _names(schema)
    if not elements:
        raise refuse("from_elements: found no elements, so their types are unknown. Give schema=DataTypes.ROW([...])")
    rows = [_fields(element) for element in elements]
    if wrong := [row for row in rows if len(row) != len(rows[0])]:
        raise refuse(
            f"from_elements: the first element has {len(rows[0])} fields, and {wrong[0]!r} has {len(wrong[0])}"
        )
    own_names = _own_names(elements[0], len(rows[0]))
    if names is not None and len(names) != len(rows[0]):
        raise refuse(f"from_elements: found {len(names)} names for {len(rows[0])} fields: {', '.join(names)}")
    columns = list(zip(*rows, strict=True))
    return RowType.of(
        names or own_names,
        [_column_type(name, values) for name, values in zip(names or own_names, columns, strict=True)],
    )


def rows_of(elements: Iterable[Any], row_type: RowType) -> list[Any]:
    """The elements as rows of a type: dicts by their keys, single values as rows of one."""
    names = row_type.names
    rows: list[Any] = []
    for element in elements:
        if isinstance(element, Mapping):
            if unknown := [key for key in element if key not in names]:
                raise refuse(
                    f"from_elements: {element!r} has a field {unknown[0]!r}; the columns are {', '.join(names)}"
                )
            rows.append(tuple(element.get(name) for name in names))
        else:
            rows.append(element if isinstance(element, Row) else tuple(_fields(element)))
        if len(rows[-1]) != len(names):
            raise refuse(
                f"from_elements: {element!r} has {len(rows[-1])} fields, expected {len(names)}: {', '.join(names)}"
            )
    return rows


def _names(schema: Any) -> list[str] | None:
    if schema is None:
        return None
    if isinstance(schema, list | tuple) and all(isinstance(name, str) for name in schema):
        return list(schema)
    raise refuse(
        f"from_elements: found {schema!r} as the schema, expected DataTypes.ROW([...]) or a list of column names"
    )


def _fields(element: Any) -> list[Any]:
    if isinstance(element, Mapping):
        return list(element.values())
    if isinstance(element, tuple | list | Row):
        return list(element)
    return [element]


def _own_names(element: Any, width: int) -> list[str]:
    names = getattr(element, "_fields", None)  # of a Row with names, or a named tuple
    if isinstance(element, Mapping):
        names = list(element)
    return list(names) if names and len(names) == width else [f"_{place + 1}" for place in range(width)]


def _column_type(name: str, values: Sequence[Any]) -> DataType:
    found: DataType | None = None
    for value in values:
        if value is not None:
            found = _wider(name, found, _inferred(name, value))
    if found is None:
        raise refuse(
            f"from_elements: column {name!r} is NULL in every row. Declare its type: schema=DataTypes.ROW([...])"
        )
    return found


def _wider(name: str, narrow: DataType | None, other: DataType) -> DataType:
    """A type that fits both."""
    if narrow is None or narrow == other:
        return other
    numbers = (types.BigIntType, types.DoubleType)
    if isinstance(narrow, numbers) and isinstance(other, numbers):
        return types.DoubleType()
    if isinstance(narrow, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_wider(name, narrow.element_type, other.element_type))
    raise refuse(
        f"from_elements: column {name!r} has values of {narrow} and of {other}. Declare it: schema=DataTypes.ROW([...])"
    )


def _inferred(name: str, value: Any) -> DataType:
    """The type PyFlink infers of a value."""
    plain = _inferred_scalar(value)
    if plain is not None:
        return plain
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return ArrayType(_column_type(name, value))
    if isinstance(value, Mapping):
        return MapType(_column_type(name, list(value)), _column_type(name, list(value.values())))
    if isinstance(value, Row) or hasattr(value, "_fields"):
        fields = list(value)
        return RowType.of(_own_names(value, len(fields)), [_inferred(name, field) for field in fields])
    raise refuse(
        f"from_elements: found {value!r} ({type(value).__name__}) in column {name!r}, which no type is inferred for. "
        "Declare it: schema=DataTypes.ROW([...])"
    )


def _inferred_scalar(value: Any) -> DataType | None:
    value = getattr(value, "item", lambda: value)()  # numpy's scalars
    if isinstance(value, datetime.datetime):
        return types.TimestampType(6) if value.tzinfo is None else types.LocalZonedTimestampType(6)
    for kind, data_type in _SCALARS:
        if isinstance(value, kind):
            return data_type
    return None


_SCALARS: tuple[tuple[type | tuple[type, ...], DataType], ...] = (
    (bool, types.BooleanType()),
    (int, types.BigIntType()),
    (float, types.DoubleType()),
    (str, types.VarCharType(types.LENGTH_MAX)),
    ((bytes, bytearray), types.VarBinaryType(types.LENGTH_MAX)),
    (Decimal, _DECIMAL),
    (datetime.date, types.DateType()),
    (datetime.time, types.TimeType(0)),
    (datetime.timedelta, types.DayTimeIntervalType()),
)


def frame_type(batch: pa.Table, schema: Any) -> RowType:
    """The type of rows of `from_pandas`: a row type, names, types, or by the columns alone."""
    if isinstance(schema, RowType):
        if len(schema.fields) != batch.num_columns:
            raise refuse(
                f"from_pandas: found {batch.num_columns} columns and {len(schema.fields)} types, expected as many"
            )
        return schema
    inferred = [from_arrow_type(each.type) for each in batch.schema]
    if schema is None:
        return RowType.of([str(name) for name in batch.column_names], inferred)
    if not isinstance(schema, list | tuple) or len(schema) != batch.num_columns:
        raise refuse(f"from_pandas: found {schema!r} as the schema, expected {batch.num_columns} names or types")
    if all(isinstance(each, DataType) for each in schema):
        return RowType.of([str(name) for name in batch.column_names], list(schema))
    if all(isinstance(each, str) for each in schema):
        return RowType.of(list(schema), inferred)
    raise refuse("from_pandas: the schema is a list of names, a list of data types, or DataTypes.ROW([...])")
