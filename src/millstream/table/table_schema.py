"""`TableSchema`: the names and types of a table's columns, as `get_schema` returns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.table.schemas.type_arguments import checked_type

__all__ = ["TableSchema"]


class TableSchema:
    """Names and types of columns.

    >>> from millstream.table.types import DataTypes
    >>> TableSchema(["a"], [DataTypes.INT()]).get_field_names()
    ['a']
    """

    def __init__(
        self,
        field_names: Sequence[str] | None = None,
        data_types: Sequence[DataType] | None = None,
        j_table_schema: Any = None,
    ) -> None:
        if j_table_schema is not None or field_names is None or data_types is None:
            raise refuse("TableSchema: expected field_names and data_types, both lists")
        if len(field_names) != len(data_types):
            raise refuse(f"TableSchema: found {len(field_names)} names and {len(data_types)} types, expected as many")
        self._names = list(field_names)
        self._types = [
            checked_type(f"TableSchema, {name!r}", each) for name, each in zip(field_names, data_types, strict=True)
        ]

    def copy(self) -> TableSchema:
        """A copy."""
        return TableSchema(self._names, self._types)

    def get_field_data_types(self) -> list[DataType]:
        """The types of all columns."""
        return list(self._types)

    def get_field_data_type(self, field: int | str) -> DataType | None:
        """The type of a column, by its name or its position counted from 0; None if it does not exist."""
        if isinstance(field, str):
            return self._types[self._names.index(field)] if field in self._names else None
        return self._types[field] if 0 <= field < len(self._types) else None

    def get_field_count(self) -> int:
        """The number of columns."""
        return len(self._names)

    def get_field_names(self) -> list[str]:
        """The names of all columns."""
        return list(self._names)

    def get_field_name(self, field_index: int) -> str | None:
        """The name of the column at a position counted from 0; None if it does not exist."""
        return self._names[field_index] if 0 <= field_index < len(self._names) else None

    def to_row_data_type(self) -> RowType:
        """The type of its rows."""
        return RowType.of(self._names, self._types)

    def __repr__(self) -> str:
        lines = (f" |-- {name}: {type_}" for name, type_ in zip(self._names, self._types, strict=True))
        return "\n".join(["root", *lines, ""])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableSchema) and (self._names, self._types) == (other._names, other._types)

    def __hash__(self) -> int:
        return hash((tuple(self._names), tuple(self._types)))

    @classmethod
    def builder(cls) -> TableSchema.Builder:
        """Starts a schema."""
        return TableSchema.Builder()

    class Builder:
        """Collects columns, in order."""

        def __init__(self) -> None:
            self._names: list[str] = []
            self._types: list[DataType] = []

        def field(self, name: str, data_type: DataType) -> TableSchema.Builder:
            """Adds a column."""
            self._names.append(name)
            self._types.append(checked_type(f"field {name!r}", data_type))
            return self

        def build(self) -> TableSchema:
            """The schema."""
            return TableSchema(self._names, self._types)


add_pyflink_names(globals())
