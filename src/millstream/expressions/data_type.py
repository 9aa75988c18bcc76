"""SQL data types: the values that a column may have, and whether NULL is one of them.

These classes serve both as PyFlink's data types and as Flink's logical types. A type is immutable; types are equal if
they have the same class, parameters and nullability. Each type has one Arrow type (`arrow`) for transport and storage.
`str` returns the type in Flink's SQL syntax.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

import pyarrow as pa

__all__ = ["AtomicType", "DataType"]


class DataType:
    """The base of all types.

    >>> from millstream.expressions.types import BigIntType
    >>> str(BigIntType(False)), BigIntType().not_null() == BigIntType(False)
    ('BIGINT NOT NULL', True)
    """

    name: ClassVar[str]  # SQL name without parameters

    def __init__(self, nullable: bool = True) -> None:
        self._nullable = nullable

    @property
    def is_nullable(self) -> bool:
        """Whether NULL is a value of the type."""
        return self._nullable

    def nullable(self) -> Self:
        """The same type, nullable."""
        return self.with_nullability(True)

    def not_null(self) -> Self:
        """The same type, NOT NULL."""
        return self.with_nullability(False)

    def with_nullability(self, nullable: bool) -> Self:
        """The same type with the given nullability."""
        if nullable == self._nullable:
            return self
        changed = copy.copy(self)
        changed._nullable = nullable
        return changed

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The parameters that distinguish types of one class, except nullability."""
        return ()

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values."""
        raise NotImplementedError

    @property
    def sql(self) -> str:
        """The type in SQL syntax, without NOT NULL."""
        return self.name

    def is_like(self, other: DataType) -> bool:
        """Whether both types are equal except for nullability."""
        return type(self) is type(other) and self.parameters == other.parameters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataType) and self.is_like(other) and self._nullable == other._nullable

    def __hash__(self) -> int:
        return hash((type(self), self.parameters, self._nullable))

    def __str__(self) -> str:
        return self.sql if self._nullable else f"{self.sql} NOT NULL"

    def __repr__(self) -> str:
        shown = [repr(parameter) for parameter in self.parameters]
        return f"{type(self).__name__}({', '.join([*shown, str(self._nullable).lower()])})"

    def bridged_to(self, conversion_cls: str) -> Self:
        """In PyFlink, selects the Java class of values. It has no effect here."""
        return self

    def need_conversion(self) -> bool:
        """Whether a Python value differs from the value that PyFlink sends to Java."""
        return False

    def to_sql_type(self, obj: Any) -> Any:
        """Converts a Python value to the value that PyFlink sends to Java."""
        return obj

    def from_sql_type(self, obj: Any) -> Any:
        """Converts a value that PyFlink receives from Java to a Python value."""
        return obj

    @classmethod
    def type_name(cls) -> str:
        """PyFlink's short name of the class."""
        return cls.__name__.removesuffix("Type").upper()


class AtomicType(DataType):
    """A type without element types."""
