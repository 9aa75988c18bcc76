"""Types of the program's own: how its objects become values of SQL, and back.

The class `sql_type` names is what is stored; `serialize` and `deserialize` are the program's. Such a type is a class,
and an instance of it has no parameters.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millstream.expressions.data_type import DataType

__all__ = ["UserDefinedType"]


class UserDefinedType(DataType):
    """To be derived from: give it `sql_type`, `module`, `serialize` and `deserialize`."""

    name = "STRUCTURED"

    @classmethod
    def type_name(cls) -> str:
        """The name of the type."""
        return cls.__name__.lower()

    @classmethod
    def sql_type(cls) -> DataType:
        """The type that values are stored as."""
        raise NotImplementedError("a user-defined type says in sql_type() what its values are stored as")

    @classmethod
    def module(cls) -> str:
        """The Python module it stands in."""
        raise NotImplementedError("a user-defined type says in module() which Python module it stands in")

    @classmethod
    def java_udt(cls) -> str:
        """A Java class that does the same; there is none here."""
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
        """The stored value of an object."""
        raise NotImplementedError("a user-defined type says in serialize() how an object is stored")

    def deserialize(self, datum: Any) -> Any:
        """The object of a stored value."""
        raise NotImplementedError("a user-defined type says in deserialize() how an object is made of what is stored")
