"""Types with types inside: arrays, maps, multisets, rows; and RAW, whose values only Python knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.expressions.data_type import DataType

__all__ = ["ArrayType", "MapType", "MultisetType", "RawType", "RowField", "RowType"]


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


class MultisetType(DataType):
    """Values, and how often each is there."""

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


class RowField:
    """One field of a row."""

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        self.name = name
        self.data_type = data_type
        self.description = description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowField) and (self.name, self.data_type) == (other.name, other.data_type)

    def __hash__(self) -> int:
        return hash((self.name, self.data_type))

    def __repr__(self) -> str:
        return f"RowField({self.name}, {self.data_type!r})"


class RowType(DataType):
    """Named fields.

    >>> from millstream.expressions.types import BigIntType
    >>> str(RowType([RowField("auction", BigIntType())]))
    'ROW<`auction` BIGINT>'
    """

    name = "ROW"

    def __init__(self, fields: Sequence[RowField] = (), nullable: bool = True) -> None:
        super().__init__(nullable)
        self.fields = tuple(fields)

    @classmethod
    def of(cls, names: Sequence[str], types: Sequence[DataType], nullable: bool = True) -> RowType:
        """A row of fields with these names and types."""
        return cls([RowField(name, type_) for name, type_ in zip(names, types, strict=True)], nullable)

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
        """The columns of a table of such rows."""
        return pa.schema([pa.field(field.name, field.data_type.arrow) for field in self.fields])


class RawType(DataType):
    """Values that only Python knows; they travel as pickles."""

    name = "RAW"

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary()
