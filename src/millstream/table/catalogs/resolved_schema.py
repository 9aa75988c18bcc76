"""`ResolvedSchema`: the columns of a table with their types, its watermark and its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.graph.site import refuse
from millstream.table.catalogs.columns import Column, PhysicalColumn, UniqueConstraint, WatermarkSpec

__all__ = ["ResolvedSchema"]


class ResolvedSchema:
    """The resolved columns of a table.

    >>> from millstream.table.types import DataTypes
    >>> print(ResolvedSchema.physical(["a"], [DataTypes.INT()]))
    (
      `a` INT
    )
    """

    def __init__(
        self,
        columns: Sequence[Column] | None = None,
        watermark_specs: Sequence[WatermarkSpec] | None = None,
        primary_key: UniqueConstraint | None = None,
        j_resolved_schema: Any = None,
    ) -> None:
        if j_resolved_schema is not None or columns is None:
            raise refuse("ResolvedSchema: expected columns, as Column.physical(name, data_type)")
        self._columns = tuple(columns)
        self._watermark_specs = tuple(watermark_specs or ())
        self._primary_key = primary_key

    @staticmethod
    def of(columns: Sequence[Column]) -> ResolvedSchema:
        """A schema with columns only."""
        return ResolvedSchema(columns)

    @staticmethod
    def physical(column_names: Sequence[str], column_data_types: Sequence[DataType]) -> ResolvedSchema:
        """A schema of physical columns."""
        pairs = zip(column_names, column_data_types, strict=True)
        return ResolvedSchema([PhysicalColumn(name=name, data_type=type_) for name, type_ in pairs])

    def get_column_count(self) -> int:
        """The number of columns."""
        return len(self._columns)

    def get_columns(self) -> list[Column]:
        """All columns."""
        return list(self._columns)

    def get_column_names(self) -> list[str]:
        """The names of all columns."""
        return [column.get_name() for column in self._columns]

    def get_column_data_types(self) -> list[DataType]:
        """The types of all columns."""
        return [column.get_data_type() for column in self._columns]

    def get_column(self, column_index_or_name: int | str) -> Column | None:
        """A column by its position, counted from 0, or by its name; None if it does not exist."""
        if isinstance(column_index_or_name, str):
            return next((each for each in self._columns if each.get_name() == column_index_or_name), None)
        return self._columns[column_index_or_name] if 0 <= column_index_or_name < len(self._columns) else None

    def get_watermark_specs(self) -> list[WatermarkSpec]:
        """The watermarks."""
        return list(self._watermark_specs)

    def get_primary_key(self) -> UniqueConstraint | None:
        """The primary key."""
        return self._primary_key

    def get_primary_key_indexes(self) -> list[int]:
        """The positions of the primary key's columns, counted from 0."""
        names = self.get_column_names()
        return [names.index(name) for name in self._primary_key.get_columns()] if self._primary_key else []

    def to_source_row_data_type(self) -> RowType:
        """The row type of reads: all columns."""
        return self._row_type(self._columns)

    def to_physical_row_data_type(self) -> RowType:
        """The row type that the connector stores."""
        return self._row_type([column for column in self._columns if column.is_physical()])

    def to_sink_row_data_type(self) -> RowType:
        """The row type of writes."""
        return self._row_type([column for column in self._columns if column.is_persisted()])

    def _row_type(self, columns: Sequence[Column]) -> RowType:
        return RowType.of([each.get_name() for each in columns], [each.get_data_type() for each in columns], False)

    def __str__(self) -> str:
        parts: list[Any] = [*self._columns, *self._watermark_specs]
        parts += [self._primary_key] if self._primary_key else []
        return "(\n" + ",\n".join(f"  {part.as_summary_string()}" for part in parts) + "\n)"

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResolvedSchema) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self._columns)
