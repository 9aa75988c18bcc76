"""Data types as arguments: a type of `DataTypes`, or SQL text."""

from __future__ import annotations

import datetime
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.graph.site import refuse_type

__all__ = ["checked_type"]

_TYPES_OF_PYTHON: dict[Any, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BYTES",
    datetime.date: "DATE",
    datetime.time: "TIME",
}


def checked_type(method: str, data_type: Any) -> DataType:
    """The data type of an argument; strings are parsed as SQL: "BIGINT NOT NULL"."""
    if isinstance(data_type, DataType):
        return data_type
    if isinstance(data_type, str):
        from millstream.datastream.streams.argument_checks import at_users_line

        with at_users_line():
            return _parsed(data_type)
    if isinstance(data_type, type) and issubclass(data_type, DataType):
        raise refuse_type(f"{method}: found the class {data_type.__name__}, expected a type: {data_type.__name__}(...)")
    if isinstance(data_type, type) and data_type in _TYPES_OF_PYTHON:
        raise refuse_type(
            f"{method}: found the class {data_type.__name__}, expected a data type. Write DataTypes."
            f"{_TYPES_OF_PYTHON[data_type]}()"
        )
    if callable(data_type) and not isinstance(data_type, type):
        name = getattr(data_type, "__name__", "...")
        raise refuse_type(f"{method}: found {data_type!r}, expected a data type. Call it: DataTypes.{name}()")
    raise refuse_type(
        f"{method}: found {data_type!r} ({type(data_type).__name__}), expected a data type such as DataTypes.BIGINT(), "
        f"or SQL text, 'BIGINT'"
    )


def _parsed(text: str) -> DataType:
    from millstream.planner.type_names import data_type
    from millstream.sql.parser import parse_type

    return data_type(parse_type(text))
