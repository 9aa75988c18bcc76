"""Prunes unused fields of row columns, if the source can read a subset of a row's fields.

The used parts of a column are a set of paths: `("place", "zip")`, or `()` for all of it. Paths are collected top down
from all consumers of a relation; then the scan's table is narrowed, and the column types above it follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, RowExpression, transform
from millstream.planner.entries import TableEntry
from millstream.planner.passes.rewriting import relations_of, rewritten_knowing
from millstream.planner.relations import (
    Field,
    Filter,
    Limit,
    Project,
    Relation,
    Scan,
    Schema,
    Sink,
    WatermarkAssign,
    WindowAssign,
)
from millstream.planner.session import PlannerSession
from millstream.planner.table_definitions import table_factory

__all__ = ["prune_fields"]

Path = tuple[str, ...]
Needs = dict[int, set[Path]]
WHOLE: Path = ()


def prune_fields(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Prunes unused fields of rows."""
    if not any(isinstance(relation, Scan) and _can_prune(relation) for relation in relations_of(sinks)):
        return sinks
    needs: dict[int, Needs] = {}
    for relation in reversed(list(relations_of(sinks))):
        own = needs.get(id(relation), {})
        for each, columns in zip(relation.inputs, _needs(relation, own), strict=True):
            held = needs.setdefault(id(each), {})
            for column, paths in columns.items():
                held.setdefault(column, set()).update(paths)

    def rule(old: Relation, new: Relation) -> Relation:
        if isinstance(new, Scan):
            return _narrowed_scan(new, needs.get(id(old), {})) if _can_prune(new) else new
        return _retyped(new)

    return rewritten_knowing(sinks, rule)


def _can_prune(scan: Scan) -> bool:
    """Whether a source can read only those fields of a row that its definition lists."""
    if not isinstance(scan.table, TableEntry) or scan.table.origin is not None or scan.table.connector is None:
        return False
    if not any(isinstance(each, RowType) for each in scan.schema.types):
        return False
    factory = table_factory(scan.table, scan.options)
    return factory.prunes_fields(dict((*scan.table.options, *scan.options)))


# --- used fields ------------------------------------------------------------------------------------------------------


def _uses(expression: RowExpression) -> Iterator[tuple[int, Path]]:
    """The columns that an expression reads, each with the path inside it."""
    path: Path = ()
    inner = expression
    while isinstance(inner, Call) and inner.function == "FIELD":
        path = (str(dict(inner.options)["name"]), *path)
        inner = inner.arguments[0]
    if isinstance(inner, Column):
        yield inner.index, path
        return
    for argument in getattr(inner, "arguments", ()):
        yield from _uses(argument)


def _gathered(expressions: Sequence[RowExpression], into: Needs) -> Needs:
    for expression in expressions:
        for column, path in _uses(expression):
            into.setdefault(column, set()).add(path)
    return into


def _needs(relation: Relation, wanted: Needs) -> list[Needs]:
    """The parts of each input's columns that a relation reads to compute its wanted columns."""
    if isinstance(relation, Project):
        return [_of_project(relation, wanted)]
    passed = {column: set(paths) for column, paths in wanted.items()}
    if isinstance(relation, Filter):
        return [_gathered([relation.condition], passed)]
    if isinstance(relation, Limit):
        return [passed]
    if isinstance(relation, WatermarkAssign):
        passed.setdefault(relation.column, set()).add(WHOLE)
        return [_gathered([relation.watermark], passed)]
    if isinstance(relation, WindowAssign):
        width = len(relation.input.schema)
        below = {column: paths for column, paths in passed.items() if column < width}
        below.setdefault(relation.window.time, set()).add(WHOLE)
        return [below]
    return [{column: {WHOLE} for column in range(len(each.schema))} for each in relation.inputs]


def _of_project(relation: Project, wanted: Needs) -> Needs:
    needs: Needs = {}
    for index, expression in enumerate(relation.expressions):
        uses = list(_uses(expression))
        is_passed_on = isinstance(expression, Column) or (
            isinstance(expression, Call) and expression.function == "FIELD" and len(uses) == 1
        )
        if is_passed_on:
            column, path = uses[0]
            needs.setdefault(column, set()).update(path + deeper for deeper in wanted.get(index, set()))
        else:
            _gathered([expression], needs)
    return needs


# --- the narrower plan ------------------------------------------------------------------------------------------------


def _narrowed(type_: DataType, paths: set[Path]) -> DataType:
    """A row type with only the fields on the paths; at least one field, because a row may be NULL."""
    if not isinstance(type_, RowType) or WHOLE in paths or not type_.fields:
        return type_
    deeper: dict[str, set[Path]] = {}
    for path in paths:
        deeper.setdefault(path[0], set()).add(path[1:])
    retained = [each for each in type_.fields if each.name in deeper] or [type_.fields[0]]
    fields = [_narrowed(each.data_type, deeper.get(each.name, {WHOLE})) for each in retained]
    return RowType.of([each.name for each in retained], fields, type_.is_nullable)


def _narrowed_scan(scan: Scan, needs: Needs) -> Scan:
    read = scan.table.read
    columns = scan.columns if scan.columns is not None else tuple(range(len(read)))
    types = {
        read[column].name: _narrowed(scan.schema.types[index], needs.get(index, set()))
        for index, column in enumerate(columns)
    }
    entry = replace(
        scan.table, columns=tuple(replace(each, type=types.get(each.name, each.type)) for each in scan.table.columns)
    )
    fields = tuple(replace(each, type=types[each.name]) for each in scan.schema.fields)
    return scan if entry == scan.table else replace(scan, table=entry, schema=Schema(fields), is_narrowed=True)


def _retyped(relation: Relation) -> Relation:
    """A relation over narrowed columns; columns that it passes on are narrowed as well."""
    if isinstance(relation, Project):
        expressions = tuple(_over(each, relation.input.schema) for each in relation.expressions)
        fields = tuple(
            replace(field, type=each.type) for field, each in zip(relation.schema.fields, expressions, strict=True)
        )
        return replace(relation, expressions=expressions, schema=Schema(fields))
    if isinstance(relation, Filter):
        condition = _over(relation.condition, relation.input.schema)
        return replace(relation, condition=condition, schema=_passed_on(relation, relation.input))
    if isinstance(relation, WatermarkAssign):
        watermark = _over(relation.watermark, relation.input.schema)
        return replace(relation, watermark=watermark, schema=_passed_on(relation, relation.input))
    if isinstance(relation, Limit | WindowAssign):
        return replace(relation, schema=_passed_on(relation, relation.input))
    return relation


def _passed_on(relation: Relation, below: Relation) -> Schema:
    """The schema with the input's current types; columns that the relation adds are unchanged."""
    fields: list[Field] = list(relation.schema.fields)
    for index, field in enumerate(below.schema.fields):
        fields[index] = replace(fields[index], type=field.type)
    return Schema(tuple(fields))


def _over(expression: RowExpression, schema: Schema) -> RowExpression:
    """An expression over columns with other types."""

    def change(part: RowExpression) -> RowExpression:
        if isinstance(part, Column):
            return Column(schema.types[part.index], part.index)
        if isinstance(part, Call) and part.function == "FIELD":
            row, name = part.arguments[0].type, dict(part.options)["name"]
            if isinstance(row, RowType) and isinstance(part.type, RowType):
                inner = next(each.data_type for each in row.fields if each.name == name)
                return replace(part, type=inner.with_nullability(part.type.is_nullable))
        return part

    return transform(expression, change)
