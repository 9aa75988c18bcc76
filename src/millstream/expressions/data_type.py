"""A data type of SQL: what values a column may have, and whether NULL is one of them.

These are PyFlink's classes, and Flink's logical types: one thing. A type is immutable; types are equal if they are of
one class, have the same parameters, and agree about NULL. Every type is one Arrow type (`arrow`), in which its values
travel and are stored; text that SQL writes for a type (`str`) is what Flink prints.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

import pyarrow as pa

__all__ = ["AtomicType", "DataType"]


class DataType:
    """The root of all types.

    >>> from millstream.expressions.types import BigIntType
    >>> str(BigIntType(False)), BigIntType().not_null() == BigIntType(False)
    ('BIGINT NOT NULL', True)
    """

    name: ClassVar[str]  # as SQL writes it, without parameters

    def __init__(self, nullable: bool = True) -> None:
        self._nullable = nullable

    @property
    def is_nullable(self) -> bool:
        """Whether NULL is one of its values."""
        return self._nullable

    def nullable(self) -> Self:
        """The same type, with NULL."""
        return self.with_nullability(True)

    def not_null(self) -> Self:
        """The same type, without NULL."""
        return self.with_nullability(False)

    def with_nullability(self, nullable: bool) -> Self:
        """The same type, with NULL or without."""
        if nullable == self._nullable:
            return self
        changed = copy.copy(self)
        changed._nullable = nullable
        return changed

    @property
    def parameters(self) -> tuple[Any, ...]:
        """What distinguishes it from other types of its class, but for NULL."""
        return ()

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values."""
        raise NotImplementedError

    @property
    def sql(self) -> str:
        """As SQL writes it, without NOT NULL."""
        return self.name

    def is_like(self, other: DataType) -> bool:
        """Whether both are one type but for NULL."""
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
        """PyFlink's: which Java class carries a value. There is none here; the type stays what it is."""
        return self

    def need_conversion(self) -> bool:
        """Whether a Python value and the value PyFlink ships to Java differ."""
        return False

    def to_sql_type(self, obj: Any) -> Any:
        """The value that PyFlink ships to Java for a Python value."""
        return obj

    def from_sql_type(self, obj: Any) -> Any:
        """The Python value for one that PyFlink got from Java."""
        return obj

    @classmethod
    def type_name(cls) -> str:
        """PyFlink's short name of the class."""
        return cls.__name__.removesuffix("Type").upper()


class AtomicType(DataType):
    """A type with no types inside."""
