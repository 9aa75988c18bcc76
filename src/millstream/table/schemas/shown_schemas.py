"""A relation's columns, for programs."""

from __future__ import annotations

from millstream.planner.relations import Schema
from millstream.table.catalogs.resolved_schema import ResolvedSchema

__all__ = ["resolved_schema", "shown_tree"]


def resolved_schema(schema: Schema) -> ResolvedSchema:
    """The columns as a `ResolvedSchema`."""
    return ResolvedSchema.physical(schema.names, schema.types)


def shown_tree(schema: Schema) -> str:
    """The columns in the format of `print_schema`."""
    return "(\n" + ",\n".join(f"  `{field.name}` {_typed(field)}" for field in schema.fields) + "\n)"


def _typed(field: object) -> str:
    text = str(field)
    return text[len(field.name) + 1 :]  # type: ignore[attr-defined]
