"""The result of a statement: rows with a schema. Flink's result of a definition is a single row, OK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.expressions.types import LENGTH_MAX, BooleanType, VarCharType
from millstream.planner.relations import Field, Schema

__all__ = ["OK", "StatementResult", "text_rows"]


@dataclass(frozen=True)
class StatementResult:
    """Rows with a schema; `is_ok`: the statement succeeded without other output."""

    schema: Schema
    rows: tuple[tuple[Any, ...], ...]
    is_ok: bool = False


STRING = VarCharType(LENGTH_MAX)
OK = StatementResult(Schema((Field("result", STRING),)), (("OK",),), is_ok=True)


def text_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], flags: Sequence[str] = ()) -> StatementResult:
    """Rows of strings under these names; columns in `flags` are BOOLEAN."""
    fields = tuple(Field(name, BooleanType() if name in flags else STRING) for name in names)
    return StatementResult(Schema(fields), tuple(tuple(row) for row in rows))
