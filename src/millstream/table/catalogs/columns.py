"""The columns of a table with their types, its watermark and its key, as `get_resolved_schema` returns them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any

from millstream.expressions.data_type import DataType
from millstream.graph.site import refuse
from millstream.sql.statements import ColumnDefinition, WatermarkDefinition

if TYPE_CHECKING:
    from millstream.table.resolved_expression import ResolvedExpression

__all__ = [
    "Column",
    "ComputedColumn",
    "Constraint",
    "MetadataColumn",
    "PhysicalColumn",
    "UniqueConstraint",
    "WatermarkSpec",
]


class Column(ABC):
    """A column: its name, its type, and the origin of its values."""

    def __init__(
        self, j_column: Any = None, *, name: str = "", data_type: DataType | None = None, comment: str | None = None
    ) -> None:
        if j_column is not None or data_type is None:
            raise refuse("Column: make one by Column.physical(), Column.computed() or Column.metadata()")
        self._name = name
        self._data_type = data_type
        self._comment = comment

    @staticmethod
    def physical(name: str, data_type: DataType) -> PhysicalColumn:
        """A column that the connector stores."""
        return PhysicalColumn(name=name, data_type=data_type)

    @staticmethod
    def computed(name: str, resolved_expression: ResolvedExpression) -> ComputedColumn:
        """A computed column."""
        return ComputedColumn(name=name, expression=resolved_expression)

    @staticmethod
    def metadata(name: str, data_type: DataType, metadata_key: str | None, is_virtual: bool) -> MetadataColumn:
        """A column with the connector's metadata of each row."""
        return MetadataColumn(name=name, data_type=data_type, metadata_key=metadata_key, is_virtual=is_virtual)

    @abstractmethod
    def with_comment(self, comment: str | None) -> Column:
        """The column with a comment."""

    @abstractmethod
    def is_physical(self) -> bool:
        """Whether the connector stores it."""

    @abstractmethod
    def is_persisted(self) -> bool:
        """Whether an INSERT writes it."""

    def get_data_type(self) -> DataType:
        """The type."""
        return self._data_type

    def get_name(self) -> str:
        """The name."""
        return self._name

    def get_comment(self) -> str | None:
        """The comment."""
        return self._comment

    def as_summary_string(self) -> str:
        """The column on one line."""
        extras = self.explain_extras()
        return f"`{self._name}` {self._data_type}" + (f" {extras}" if extras else "")

    @abstractmethod
    def explain_extras(self) -> str | None:
        """The definition beyond name and type."""

    @abstractmethod
    def copy(self, new_type: DataType) -> Column:
        """The column with a different type."""

    @abstractmethod
    def rename(self, new_name: str) -> Column:
        """The column with a different name."""

    @property
    @abstractmethod
    def _definition(self) -> ColumnDefinition:
        """The column's definition in CREATE TABLE."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self._name, self._data_type))

    def __str__(self) -> str:
        return self.as_summary_string()

    __repr__ = __str__


class PhysicalColumn(Column):
    """A column that the connector stores."""

    def __init__(self, j_physical_column: Any = None, **parts: Any) -> None:
        super().__init__(j_physical_column, **parts)

    def with_comment(self, comment: str | None) -> PhysicalColumn:
        return PhysicalColumn(name=self._name, data_type=self._data_type, comment=comment)

    def is_physical(self) -> bool:
        return True

    def is_persisted(self) -> bool:
        return True

    def explain_extras(self) -> str | None:
        return None

    def copy(self, new_data_type: DataType) -> PhysicalColumn:
        return PhysicalColumn(name=self._name, data_type=new_data_type, comment=self._comment)

    def rename(self, new_name: str) -> PhysicalColumn:
        return PhysicalColumn(name=new_name, data_type=self._data_type, comment=self._comment)

    @property
    def _definition(self) -> ColumnDefinition:
        return ColumnDefinition(self._name, self._data_type, comment=self._comment)  # type: ignore[arg-type]


class ComputedColumn(Column):
    """A computed column."""

    def __init__(
        self,
        j_computed_column: Any = None,
        *,
        name: str = "",
        expression: ResolvedExpression | None = None,
        data_type: DataType | None = None,
        comment: str | None = None,
    ) -> None:
        own_type = data_type if data_type is not None or expression is None else expression.get_output_data_type()
        super().__init__(j_computed_column, name=name, data_type=own_type, comment=comment)
        assert expression is not None
        self._expression = expression

    def _changed(self, **parts: Any) -> ComputedColumn:
        parts_of_self: dict[str, Any] = {"name": self._name, "data_type": self._data_type, "comment": self._comment}
        return ComputedColumn(expression=self._expression, **(parts_of_self | parts))

    def with_comment(self, comment: str | None) -> ComputedColumn:
        return self._changed(comment=comment)

    def is_physical(self) -> bool:
        return False

    def is_persisted(self) -> bool:
        return False

    def get_expression(self) -> ResolvedExpression:
        """The expression."""
        return self._expression

    def explain_extras(self) -> str | None:
        return f"AS {self._expression.as_summary_string()}"

    def copy(self, new_data_type: DataType) -> ComputedColumn:
        return self._changed(data_type=new_data_type)

    def rename(self, new_name: str) -> ComputedColumn:
        return self._changed(name=new_name)

    @property
    def _definition(self) -> ColumnDefinition:
        return ColumnDefinition(self._name, expression=self._expression._node, comment=self._comment)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputedColumn) and self._definition == other._definition

    __hash__ = Column.__hash__


class MetadataColumn(Column):
    """A column with the connector's metadata of each row."""

    def __init__(
        self,
        j_metadata_column: Any = None,
        *,
        name: str = "",
        data_type: DataType | None = None,
        metadata_key: str | None = None,
        is_virtual: bool = False,
        comment: str | None = None,
    ) -> None:
        super().__init__(j_metadata_column, name=name, data_type=data_type, comment=comment)
        self._metadata_key = metadata_key
        self._is_virtual = is_virtual

    def _changed(self, **parts: Any) -> MetadataColumn:
        parts_of_self: dict[str, Any] = {"name": self._name, "data_type": self._data_type, "comment": self._comment}
        parts_of_self |= {"metadata_key": self._metadata_key, "is_virtual": self._is_virtual}
        return MetadataColumn(**(parts_of_self | parts))

    def is_virtual(self) -> bool:
        """Whether the column is read-only."""
        return self._is_virtual

    def get_metadata_key(self) -> str | None:
        """The connector's metadata key; None if it equals the column's name."""
        return self._metadata_key

    def with_comment(self, comment: str | None) -> MetadataColumn:
        return self._changed(comment=comment)

    def is_physical(self) -> bool:
        return False

    def is_persisted(self) -> bool:
        return not self._is_virtual

    def explain_extras(self) -> str | None:
        key = f" FROM '{self._metadata_key}'" if self._metadata_key else ""
        return f"METADATA{key}{' VIRTUAL' if self._is_virtual else ''}"

    def copy(self, new_data_type: DataType) -> MetadataColumn:
        return self._changed(data_type=new_data_type)

    def rename(self, new_name: str) -> MetadataColumn:
        # Without a key the column's name is the key, which a renamed column keeps.
        return self._changed(name=new_name, metadata_key=self._metadata_key or self._name)

    @property
    def _definition(self) -> ColumnDefinition:
        type_: Any = self._data_type
        return ColumnDefinition(
            self._name, type_, metadata=self._metadata_key or "", is_virtual=self._is_virtual, comment=self._comment
        )


class WatermarkSpec:
    """The rowtime column and its watermark."""

    def __init__(
        self, j_watermark_spec: Any = None, *, column: str = "", expression: ResolvedExpression | None = None
    ) -> None:
        if j_watermark_spec is not None or expression is None:
            raise refuse("WatermarkSpec: make one by WatermarkSpec.of(column, expression)")
        self._column = column
        self._expression = expression

    @staticmethod
    def of(rowtime_attribute: str, watermark_expression: ResolvedExpression) -> WatermarkSpec:
        """The watermark of a column."""
        return WatermarkSpec(column=rowtime_attribute, expression=watermark_expression)

    def get_rowtime_attribute(self) -> str:
        """The rowtime column."""
        return self._column

    def get_watermark_expression(self) -> ResolvedExpression:
        """The watermark's expression."""
        return self._expression

    def as_summary_string(self) -> str:
        """The watermark on one line."""
        type_ = self._expression.get_output_data_type()
        return f"WATERMARK FOR `{self._column}`: {type_} AS {self._expression.as_summary_string()}"

    @property
    def _definition(self) -> WatermarkDefinition:
        return WatermarkDefinition((self._column,), self._expression._node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatermarkSpec) and self._definition == other._definition

    def __hash__(self) -> int:
        return hash(self._column)

    def __str__(self) -> str:
        return self.as_summary_string()


class Constraint(ABC):
    """A constraint on the rows of a table."""

    class ConstraintType(Enum):
        """The kinds of constraints."""

        PRIMARY_KEY = 0
        UNIQUE_KEY = 1

    def __init__(self, j_constraint: Any = None, *, name: str = "") -> None:
        if j_constraint is not None:
            raise refuse("Constraint: make one by UniqueConstraint.primary_key(name, columns)")
        self._name = name

    def get_name(self) -> str:
        """The name."""
        return self._name

    def is_enforced(self) -> bool:
        """Whether the constraint is enforced. Never true, as in Flink."""
        return False

    def get_type(self) -> Constraint.ConstraintType:
        """The kind."""
        return Constraint.ConstraintType.PRIMARY_KEY

    @abstractmethod
    def as_summary_string(self) -> str:
        """The constraint on one line."""

    def __str__(self) -> str:
        return self.as_summary_string()


class UniqueConstraint(Constraint):
    """Columns whose values are unique."""

    def __init__(self, j_unique_constraint: Any = None, *, name: str = "", columns: tuple[str, ...] = ()) -> None:
        super().__init__(j_unique_constraint, name=name)
        self._columns = columns

    @staticmethod
    def primary_key(name: str, columns: list[str]) -> UniqueConstraint:
        """Creates a primary key."""
        return UniqueConstraint(name=name, columns=tuple(columns))

    def get_columns(self) -> list[str]:
        """The columns."""
        return list(self._columns)

    def get_type_string(self) -> str:
        """The kind in SQL syntax."""
        return "PRIMARY KEY"

    def as_summary_string(self) -> str:
        columns = ", ".join(f"`{column}`" for column in self._columns)
        return f"CONSTRAINT `{self._name}` PRIMARY KEY ({columns}) NOT ENFORCED"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UniqueConstraint) and (self._name, self._columns) == (other._name, other._columns)

    def __hash__(self) -> int:
        return hash((self._name, self._columns))
