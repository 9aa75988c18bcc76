"""User-defined types: conversions between objects of the program and SQL values.

`sql_type` is the stored type; the program implements `serialize` and `deserialize`. A user-defined type is a class
without instance parameters.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millstream.expressions.data_type import DataType

__all__ = ["UserDefinedType"]


class UserDefinedType(DataType):
    """Base class; subclasses define `sql_type`, `module`, `serialize` and `deserialize`."""

    name = "STRUCTURED"

    @classmethod
    def type_name(cls) -> str:
        """The name of the type."""
        return cls.__name__.lower()

    @classmethod
    def sql_type(cls) -> DataType:
        """The type of stored values."""
        raise NotImplementedError("a user-defined type must define sql_type(), the type of its stored values")

    @classmethod
    def module(cls) -> str:
        """The Python module that defines the type."""
        raise NotImplementedError("a user-defined type must define module(), the Python module that contains it")

    @classmethod
    def java_udt(cls) -> str:
        """The corresponding Java class, which does not exist here."""
        return ""

    @property
    def arrow(self) -> pa.DataType:
        return self.sql_type().arrow

    def need_conversion(self) -> bool:
        return True

    def to_sql_type(self, obj: Any) -> Any:
        return None if obj is None else self.sql_type().to_sql_type(self.serialize(obj))

    def from_sql_type(self, obj: Any) -> Any:
        return None if obj is None else self.deserialize(self.sql_type().from_sql_type(obj))

    def serialize(self, obj: Any) -> Any:
        """Converts an object to its stored value."""
        raise NotImplementedError(
            "a user-defined type must define serialize(), which converts an object to its stored value"
        )

    def deserialize(self, datum: Any) -> Any:
        """Converts a stored value to an object."""
        raise NotImplementedError(
            "a user-defined type must define deserialize(), which converts a stored value to an object"
        )
