"""Projections with Flink's column names. Columns passed on unchanged remain time attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.expressions.row_expressions import Call, Column, RowExpression
from millstream.planner.relations import Field, Project, Relation, Schema, TimeKind
from millstream.sql import syntax

__all__ = ["item_name", "passed_field", "project", "project_items", "projected_field", "renamed", "unique_names"]


def project(relation: Relation, expressions: Sequence[RowExpression], names: Sequence[str]) -> Project:
    """Projects a relation to these expressions, under these names."""
    fields = tuple(
        projected_field(relation.schema, expression, name) for expression, name in zip(expressions, names, strict=True)
    )
    return Project(Schema(fields), relation, tuple(expressions))


def project_items(
    relation: Relation, expressions: Sequence[RowExpression], written: Sequence[str | None], prefix: str = "EXPR$"
) -> Project:
    """Projects to a SELECT's items. A second `a` is renamed `a0`; references to `a` are then ambiguous."""
    made = project(relation, expressions, unique_names(written, prefix))
    fields = tuple(
        each if name in (None, each.name) else replace(each, written=name)
        for each, name in zip(made.schema.fields, written, strict=True)
    )
    return replace(made, schema=Schema(fields))


def projected_field(schema: Schema, expression: RowExpression, name: str) -> Field:
    """The field of an expression: a column passed on unchanged remains a time attribute, PROCTIME() becomes one."""
    passed = passed_field(schema, expression)
    time = None if passed is None else passed.time
    if isinstance(expression, Call) and expression.function == "PROCTIME":
        time = TimeKind.PROCTIME
    return Field(name, expression.type, time)


def passed_field(schema: Schema, expression: RowExpression) -> Field | None:
    """The input field that an expression passes on unchanged; None for other expressions and outer columns."""
    is_own = isinstance(expression, Column) and expression.index < len(schema)
    return schema.fields[expression.index] if is_own and isinstance(expression, Column) else None


def renamed(relation: Relation, names: Sequence[str]) -> Relation:
    """Renames a relation's columns."""
    if tuple(names) == relation.schema.names:
        return relation
    columns = [Column(field.type, index) for index, field in enumerate(relation.schema.fields)]
    return project(relation, columns, names)


def item_name(item: syntax.Expression, alias: str | None) -> str | None:
    """The natural name of an item: its alias, or the name of its column or field; None otherwise."""
    if alias is not None:
        return alias
    if isinstance(item, syntax.As):
        return item.names[0]
    if isinstance(item, syntax.Name):
        return item.parts[-1]
    if isinstance(item, syntax.Call) and item.span is not None and item.span.text.upper() == item.name.upper():
        return item.name.upper()  # CURRENT_DATE and similar: a function written as a name
    return item.name if isinstance(item, syntax.FieldAccess) else None


def unique_names(names: Sequence[str | None], prefix: str = "EXPR$") -> list[str]:
    """Makes column names unique: unnamed ones get the prefix and their position, a second `a` becomes `a0`.

    >>> unique_names(["a", None, "a"])
    ['a', 'EXPR$1', 'a0']
    """
    candidates = [name if name is not None else f"{prefix}{position}" for position, name in enumerate(names)]
    seen: set[str] = set()
    result = []
    for name in candidates:
        chosen, number = name, 0
        while chosen in seen or (chosen != name and chosen in candidates):
            chosen, number = f"{name}{number}", number + 1
        seen.add(chosen)
        result.append(chosen)
    return result
