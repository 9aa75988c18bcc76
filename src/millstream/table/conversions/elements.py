"""Rows from lists of values and pandas DataFrames of the program, with declared or inferred types.

Elements are tuples, Rows, dicts, objects with attributes, or single values. Without names, the columns of dicts and of
objects are in alphabetical order, as in PyFlink.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.common.types import Row
from millstream.expressions.data_type import DataType
from millstream.expressions.data_types import from_arrow_type
from millstream.expressions.nested_types import ArrayType, MapType, RowField, RowType
from millstream.expressions.user_types import UserDefinedType
from millstream.graph.site import refuse, refuse_type
from millstream.table.conversions.inferred_types import attributes_of, inferred_column_type

__all__ = ["elements_type", "frame_type", "rows_of", "stored_type"]

Conversion = Callable[[Any], Any] | None
"""Converts a value to its stored form; None: it is stored unchanged."""


def elements_type(elements: Sequence[Any], schema: Any) -> RowType:
    """The row type of `from_elements`: declared, from column names, or inferred from the elements."""
    if isinstance(schema, RowType):
        return schema
    if isinstance(schema, DataType):
        return RowType.of(["value"], [schema])
    names_of_schema = _schema_names(schema)
    if not elements:
        raise refuse("from_elements: found no elements, so their types are unknown. Give schema=DataTypes.ROW([...])")
    named = [_named_fields(element) for element in elements]
    if all(fields is not None for fields in named):
        known = {name: None for fields in named for name in fields or ()}
        names = names_of_schema if names_of_schema is not None and set(names_of_schema) == set(known) else sorted(known)
        columns = [[(fields or {}).get(name) for fields in named] for name in names]
    else:
        rows = [_fields(element) for element in elements]
        if wrong := [row for row in rows if len(row) != len(rows[0])]:
            raise refuse_type(
                f"from_elements: the first element has {len(rows[0])} fields, and {wrong[0]!r} has {len(wrong[0])}"
            )
        names, columns = _own_names(elements[0], len(rows[0])), [list(column) for column in zip(*rows, strict=True)]
    names = names if names_of_schema is None else _completed(names_of_schema, len(columns))
    return RowType.of(names, [inferred_column_type(*column) for column in zip(names, columns, strict=True)])


def _completed(names: list[str], width: int) -> list[str]:
    """The names of all columns: the declared names, then `_3` and so on."""
    if len(names) > width:
        raise refuse(f"from_elements: found {len(names)} names for {width} fields: {', '.join(names)}")
    return [*names, *(f"_{place + 1}" for place in range(len(names), width))]


def rows_of(elements: Iterable[Any], row_type: RowType) -> list[Any]:
    """The elements as rows of a type: dicts and objects by field name, single values as rows of one field."""
    names = row_type.names
    conversions = [_conversion(data_type) for data_type in row_type.types]
    rows: list[Any] = []
    for element in elements:
        fields = _named_fields(element)
        if fields is not None and set(fields) <= set(names):
            row: Any = tuple(fields.get(name) for name in names)
        elif fields is not None and (isinstance(element, Mapping) or len(fields) != len(names)):
            unknown = next((key for key in fields if key not in names), None)
            raise refuse(f"from_elements: {element!r} has a field {unknown!r}; the columns are {', '.join(names)}")
        else:
            row = element if isinstance(element, Row) else tuple(_fields(element))
        if len(row) != len(names):
            raise refuse(f"from_elements: {element!r} has {len(row)} fields, expected {len(names)}: {', '.join(names)}")
        rows.append(_converted(row, conversions))
    return rows


def _converted(row: Any, conversions: list[Conversion]) -> Any:
    """Converts a row's values to their stored form."""
    if not any(conversions):
        return row
    values = [v if change is None or v is None else change(v) for v, change in zip(row, conversions, strict=True)]
    if not isinstance(row, Row):
        return tuple(values)
    changed = Row(*values)
    changed.set_row_kind(row.get_row_kind())
    return changed


def _conversion(data_type: DataType) -> Conversion:
    """The conversion to a type's stored form: user-defined types serialise, arrays and objects become lists and
    tuples."""
    if isinstance(data_type, UserDefinedType):
        return data_type.to_sql_type
    if isinstance(data_type, ArrayType):
        inner = _conversion(data_type.element_type)
        return lambda value: _listed(value, inner)
    if isinstance(data_type, MapType) and (inner := _conversion(data_type.value_type)) is not None:
        change = inner
        return lambda value: {key: None if item is None else change(item) for key, item in value.items()}
    if isinstance(data_type, RowType):
        parts = [_conversion(each) for each in data_type.types]
        names = data_type.names
        return lambda value: _nested_row(value, names, parts)
    return None


def _listed(value: Any, change: Conversion) -> Any:
    items = value.tolist() if isinstance(value, array.array) or hasattr(value, "dtype") else value
    return items if change is None else [None if item is None else change(item) for item in items]


def _nested_row(value: Any, names: tuple[str, ...], parts: list[Conversion]) -> Any:
    attributes = attributes_of(value)
    fields = value if attributes is None else tuple(attributes.get(name) for name in names)
    if isinstance(fields, Row | tuple | list) and len(fields) == len(names):
        return _converted(fields if isinstance(fields, Row) else tuple(fields), parts)
    return fields


def stored_type(data_type: Any) -> Any:
    """The type with user-defined types replaced by their stored types."""
    if isinstance(data_type, UserDefinedType):
        return stored_type(data_type.sql_type()).with_nullability(data_type.is_nullable)
    if isinstance(data_type, ArrayType):
        return ArrayType(stored_type(data_type.element_type), data_type.is_nullable)
    if isinstance(data_type, MapType):
        return MapType(stored_type(data_type.key_type), stored_type(data_type.value_type), data_type.is_nullable)
    if type(data_type) is RowType:
        fields = [RowField(each.name, stored_type(each.data_type), each.description) for each in data_type.fields]
        return RowType(fields, data_type.is_nullable)
    return data_type


def _schema_names(schema: Any) -> list[str] | None:
    if schema is None:
        return None
    if isinstance(schema, list | tuple) and all(isinstance(name, str) for name in schema):
        return list(schema)
    raise refuse_type(
        f"from_elements: found {schema!r} as the schema, expected DataTypes.ROW([...]) or a list of column names"
    )


def _named_fields(element: Any) -> Mapping[str, Any] | None:
    """The fields of a dict or a user's object by name; None for values whose fields are positional."""
    if isinstance(element, Mapping):
        return element
    return None if isinstance(element, tuple | list | Row) else attributes_of(element)


def _fields(element: Any) -> list[Any]:
    if isinstance(element, Mapping):
        return list(element.values())
    if isinstance(element, tuple | list | Row):
        return list(element)
    attributes = attributes_of(element)
    return [element] if attributes is None else list(attributes.values())


def _own_names(element: Any, width: int) -> list[str]:
    names = getattr(element, "_fields", None)  # names of a Row or a named tuple
    return list(names) if names and len(names) == width else [f"_{place + 1}" for place in range(width)]


def frame_type(batch: pa.Table, schema: Any) -> RowType:
    """The row type of `from_pandas`: declared, from names or types, or inferred from the columns."""
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
