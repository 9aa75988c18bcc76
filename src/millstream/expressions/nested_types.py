"""Nested types: arrays, maps, multisets, rows; and RAW, whose values are opaque Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from millstream.common.types import Row
from millstream.errors import TypeMismatchError
from millstream.expressions.data_type import DataType

__all__ = [
    "ArrayType",
    "ListViewType",
    "MapType",
    "MapViewType",
    "MultisetType",
    "RawType",
    "RowField",
    "RowType",
    "StructuredType",
    "types_within",
]


def _convert_elements(values: Any, change: Callable[[Any], Any]) -> Any:
    """Converts all elements of an array."""
    return None if values is None else [change(value) for value in values]


class ArrayType(DataType):
    name = "ARRAY"

    def __init__(self, element_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.element_type = element_type

    @property
    def parameters(self) -> tuple[Any, ...]:
        return (self.element_type,)

    @property
    def sql(self) -> str:
        return f"ARRAY<{self.element_type}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.element_type.arrow)

    def need_conversion(self) -> bool:
        return self.element_type.need_conversion()

    def to_sql_type(self, obj: Any) -> Any:
        return _convert_elements(obj, self.element_type.to_sql_type)

    def from_sql_type(self, obj: Any) -> Any:
        return _convert_elements(obj, self.element_type.from_sql_type)


class MapType(DataType):
    name = "MAP"

    def __init__(self, key_type: DataType, value_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.key_type = key_type
        self.value_type = value_type

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.key_type, self.value_type

    @property
    def sql(self) -> str:
        return f"MAP<{self.key_type}, {self.value_type}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(self.key_type.arrow, self.value_type.arrow)

    def need_conversion(self) -> bool:
        return self.key_type.need_conversion() or self.value_type.need_conversion()

    def to_sql_type(self, obj: Any) -> Any:
        key, value = self.key_type.to_sql_type, self.value_type.to_sql_type
        return None if obj is None else {key(k): value(v) for k, v in obj.items()}

    def from_sql_type(self, obj: Any) -> Any:
        key, value = self.key_type.from_sql_type, self.value_type.from_sql_type
        return None if obj is None else {key(k): value(v) for k, v in obj.items()}


class ListViewType(DataType):
    """A list in an accumulator, stored in state element by element."""

    name = "LIST_VIEW"

    def __init__(self, element_type: DataType) -> None:
        super().__init__(False)
        self.element_type = element_type

    @property
    def parameters(self) -> tuple[Any, ...]:
        return (self.element_type,)


class MapViewType(DataType):
    """A map in an accumulator, stored in state entry by entry."""

    name = "MAP_VIEW"

    def __init__(self, key_type: DataType, value_type: DataType) -> None:
        super().__init__(False)
        self.key_type = key_type
        self.value_type = value_type

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.key_type, self.value_type


class MultisetType(DataType):
    """Values with their number of occurrences."""

    name = "MULTISET"

    def __init__(self, element_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.element_type = element_type

    @property
    def parameters(self) -> tuple[Any, ...]:
        return (self.element_type,)

    @property
    def sql(self) -> str:
        return f"MULTISET<{self.element_type}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(self.element_type.arrow, pa.int32())

    def need_conversion(self) -> bool:
        return self.element_type.need_conversion()

    def to_sql_type(self, obj: Any) -> Any:
        return _convert_elements(obj, self.element_type.to_sql_type)

    def from_sql_type(self, obj: Any) -> Any:
        return _convert_elements(obj, self.element_type.from_sql_type)


class RowField:
    """One field of a row."""

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        if not isinstance(data_type, DataType):
            raise TypeMismatchError(
                f"field {name!r} of a row: found {data_type!r}, expected a data type such as DataTypes.BIGINT()"
            )
        self.name = name
        self.data_type = data_type
        self.description = description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowField) and (self.name, self.data_type) == (other.name, other.data_type)

    def __hash__(self) -> int:
        return hash((self.name, self.data_type))

    def need_conversion(self) -> bool:
        return self.data_type.need_conversion()

    def to_sql_type(self, obj: Any) -> Any:
        return self.data_type.to_sql_type(obj)

    def from_sql_type(self, obj: Any) -> Any:
        return self.data_type.from_sql_type(obj)

    def __repr__(self) -> str:
        return f"RowField({self.name}, {self.data_type!r})"


def _row_field(field: Any) -> RowField:
    """Converts a field, or a tuple of name, type and optional description, to a field."""
    if isinstance(field, RowField):
        return field
    if isinstance(field, tuple) and len(field) in (2, 3) and isinstance(field[0], str):
        if isinstance(field[1], DataType):
            return RowField(*field)
        raise TypeMismatchError(f"the field {field[0]!r} of a row: found {field[1]!r}, expected a data type")
    raise TypeMismatchError(f"a field of a row: found {field!r}, expected DataTypes.FIELD(name, type)")


class RowType(DataType):
    """Named fields.

    >>> from millstream.expressions.types import BigIntType
    >>> str(RowType([RowField("auction", BigIntType())]))
    'ROW<`auction` BIGINT>'
    """

    name = "ROW"

    def __init__(self, fields: Sequence[RowField | tuple[Any, ...]] = (), nullable: bool = True) -> None:
        super().__init__(nullable)
        self.fields = tuple(map(_row_field, fields))

    @classmethod
    def of(cls, names: Sequence[str], types: Sequence[DataType], nullable: bool = True) -> RowType:
        """A row of fields with these names and types."""
        return cls([RowField(name, type_) for name, type_ in zip(names, types, strict=True)], nullable)

    def add(self, field: str | RowField | tuple[Any, ...], data_type: DataType | None = None) -> RowType:
        """Appends a field in place, as in PyFlink. Call it only before the type is used."""
        self.fields = (*self.fields, _row_field((field, data_type) if isinstance(field, str) else field))
        return self

    def field_names(self) -> list[str]:
        """The fields' names, as a list."""
        return list(self.names)

    def field_types(self) -> list[DataType]:
        """The fields' types, as a list."""
        return list(self.types)

    def __iter__(self) -> Iterator[RowField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, key: str | int | slice) -> RowField | RowType:
        """A field by name or index; a row type by slice."""
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"No RowField named {key}")
            return self.fields[self.names.index(key)]
        if isinstance(key, slice):
            return RowType(self.fields[key])
        if not isinstance(key, int):
            raise TypeError("RowType keys should be strings, integers or slices")
        if not -len(self.fields) <= key < len(self.fields):
            raise IndexError("RowType index out of range")
        return self.fields[key]

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        values = [obj.get(name) for name in self.names] if isinstance(obj, dict) else list(obj)
        return tuple(field.to_sql_type(value) for field, value in zip(self.fields, values, strict=True))

    def from_sql_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        row = Row(*(field.from_sql_type(value) for field, value in zip(self.fields, obj, strict=True)))
        row.set_field_names(list(self.names))
        return row

    @property
    def names(self) -> tuple[str, ...]:
        """The fields' names."""
        return tuple(field.name for field in self.fields)

    @property
    def types(self) -> tuple[DataType, ...]:
        """The fields' types."""
        return tuple(field.data_type for field in self.fields)

    @property
    def parameters(self) -> tuple[Any, ...]:
        return (self.fields,)

    @property
    def sql(self) -> str:
        shown = (f"`{field.name.replace('`', '``')}` {field.data_type}" for field in self.fields)
        return f"ROW<{', '.join(shown)}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(field.name, field.data_type.arrow) for field in self.fields])

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a table of these rows."""
        return pa.schema([pa.field(field.name, field.data_type.arrow) for field in self.fields])


class StructuredType(RowType):
    """Named fields with a class name; the class need not exist. Values are rows.

    >>> from millstream.expressions.types import IntType
    >>> str(StructuredType("com.example.User", [RowField("age", IntType())]))
    "STRUCTURED<'com.example.User', `age` INT>"
    """

    name = "STRUCTURED"

    def __init__(self, class_name: str, fields: Sequence[RowField] = (), nullable: bool = True) -> None:
        super().__init__(fields, nullable)
        self.class_name = class_name

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.class_name, self.fields

    @property
    def sql(self) -> str:
        shown = super().sql.removeprefix("ROW<")
        return f"STRUCTURED<'{self.class_name}', {shown}"


class RawType(DataType):
    """Opaque Python values, transported as pickles."""

    name = "RAW"

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary()


def types_within(data_type: DataType) -> list[DataType]:
    """The type and all types within it."""
    if isinstance(data_type, RowType):
        inner = list(data_type.types)
    elif isinstance(data_type, ArrayType):
        inner = [data_type.element_type]
    elif isinstance(data_type, MapType):
        inner = [data_type.key_type, data_type.value_type]
    elif isinstance(data_type, MultisetType):
        inner = [data_type.element_type]
    else:
        inner = []
    return [data_type, *(each for part in inner for each in types_within(part))]
