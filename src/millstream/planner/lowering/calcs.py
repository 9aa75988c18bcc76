"""Lowers projections and filters to Calc nodes, and other row-wise relations: UNNEST, table functions, VALUES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from millstream.connectors.program_sources import CollectionSource
from millstream.errors import LATER, NotYetError
from millstream.expressions.coercion import as_type
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import definition_of
from millstream.expressions.nanosecond_range import has_nanoseconds
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall, walk
from millstream.expressions.sql_text import sql_text
from millstream.expressions.types import TinyIntType
from millstream.graph import table_nodes
from millstream.graph.nodes import Read
from millstream.planner.lowering.context import Lowered, Lowering, named_row
from millstream.planner.relations import (
    Correlate,
    Filter,
    JoinKind,
    Limit,
    Project,
    SetOperation,
    Sort,
    Unnest,
    Values,
)
from millstream.records.columns import from_record_batch
from millstream.records.table_type import TableRowType
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.kernel import SessionFacts

__all__ = [
    "columns_of_row",
    "lower_calc",
    "lower_casts",
    "lower_correlate",
    "lower_filter",
    "lower_limit",
    "lower_project",
    "lower_union",
    "lower_unnest",
    "lower_values",
]


def lower_project(relation: Project, context: Lowering) -> Lowered:
    """Lowers a projection, together with a filter below it."""
    below = relation.input
    condition = below.condition if isinstance(below, Filter) else None
    rows = context.lowered(below.input if isinstance(below, Filter) else below)
    return lower_calc(rows, relation.expressions, relation.schema.names, context, condition)


def lower_filter(relation: Filter, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    return lower_calc(rows, columns_of_row(rows.row_type), rows.row_type.names, context, relation.condition)


def columns_of_row(row_type: RowType) -> tuple[RowExpression, ...]:
    """All columns, unchanged."""
    return tuple(Column(type_, index) for index, type_ in enumerate(row_type.types))


def lower_casts(rows: Lowered, types: Mapping[int, DataType], context: Lowering) -> Lowered:
    """Casts the columns at these positions, where their types differ."""
    names = rows.row_type.names
    columns = list(columns_of_row(rows.row_type))
    for at, wanted in types.items():
        cast = as_type(columns[at], wanted)
        columns[at] = replace(cast, site=sql_text(cast, names)) if isinstance(cast, Call) else cast
    return lower_calc(rows, columns, names, context)


def lower_calc(
    rows: Lowered,
    expressions: Sequence[RowExpression],
    names: Sequence[str],
    context: Lowering,
    condition: RowExpression | None = None,
) -> Lowered:
    """Projects the rows that meet a condition; adds no node if the result equals the input."""
    if not expressions:  # a batch needs at least one column to have a row count
        expressions, names = (Literal(TinyIntType(False), 0),), ("nothing",)
    row_type = named_row(names, [each.type for each in expressions])
    is_same = tuple(expressions) == columns_of_row(rows.row_type) and row_type == rows.row_type
    if condition is None and is_same:
        return rows
    calc = table_nodes.Calc(tuple(expressions), condition, rows.types, context.table_session)
    return context.added(calc, "Calc", rows.nodes, row_type)


def lower_limit(relation: Limit, context: Lowering) -> Lowered:
    """LIMIT without order on an append-only table: any rows qualify; a single task counts them."""
    if isinstance(relation.input, Sort):
        raise NotYetError.of("ORDER BY … LIMIT", LATER)
    rows = context.lowered(relation.input)
    operation = table_nodes.LimitRows(relation.count, relation.offset)
    attributes = {"parallelism": 1, **context.uid_for(relation)}
    return context.added(operation, "Limit", rows.nodes, rows.row_type, **attributes)


def lower_union(relation: SetOperation, context: Lowering) -> Lowered:
    """UNION ALL: merges all branches, with the columns of the whole."""
    if relation.kind.upper() != "UNION" or not relation.all:
        raise NotYetError.of(relation.kind + ("" if not relation.all else " ALL"), LATER)
    row_type = named_row(relation.schema.names, relation.schema.types)
    nodes: list[int] = []
    for branch in relation.branches:
        rows = context.lowered(branch)
        if rows.row_type != row_type:
            # The branches' types differ only in nullability and names, so no cast is needed.
            calc = table_nodes.Calc(columns_of_row(rows.row_type), None, rows.types, context.table_session)
            rows = context.added(calc, "Calc", rows.nodes, row_type)
        nodes += rows.nodes
    return Lowered(tuple(nodes), row_type)


def lower_values(relation: Values, context: Lowering) -> Lowered:
    """Rows written in the query: their values are computed once, during planning."""
    row_type = named_row(relation.schema.names, relation.schema.types)
    if any(_needs_a_task(part) for row in relation.rows for cell in row for part in walk(cell)):
        return _computed_values(relation, row_type, context)
    cells = [_constants(row, context) for row in relation.rows]
    source = CollectionSource(cells, TableRowType(row_type))
    return context.added(Read(source), "Source: Values", (), row_type, parallelism=1)


def _needs_a_task(part: RowExpression) -> bool:
    """Whether an expression cannot be evaluated while planning: user functions are opened in tasks, CURRENT_TIMESTAMP
    is the epoch's time, and Python values have no nanoseconds."""
    if isinstance(part, UserCall) or (isinstance(part, Call) and has_nanoseconds(part.type)):
        return True
    definition = definition_of(part.function) if isinstance(part, Call) else None
    return definition is not None and not definition.deterministic


def _computed_values(relation: Values, row_type: RowType, context: Lowering) -> Lowered:
    """Computes rows in a task, each from an empty row."""
    nothing = named_row(["nothing"], [TinyIntType(False)])
    nodes: list[int] = []
    for row in relation.rows:
        source = CollectionSource([(0,)], TableRowType(nothing))
        empty = context.added(Read(source), "Source: Values", (), nothing, parallelism=1)
        calc = table_nodes.Calc(tuple(row), None, empty.types, context.table_session)
        nodes += context.added(calc, "Calc", empty.nodes, row_type).nodes
    return Lowered(tuple(nodes), row_type)


def _constants(row: Sequence[RowExpression], context: Lowering) -> tuple[object, ...]:
    if all(isinstance(cell, Literal) for cell in row):
        return tuple(cell.value for cell in row if isinstance(cell, Literal))
    facts = SessionFacts(zone=context.session.zone, catalog=context.session.catalog, database=context.session.database)
    columns = compile_program(list(row), []).run([], 1, facts).columns
    row_type = named_row([f"f{place}" for place in range(len(row))], [cell.type for cell in row])
    batch = pa.RecordBatch.from_arrays(columns, schema=row_type.schema)
    return tuple(from_record_batch(batch, TableRowType(row_type))[0])


def lower_unnest(relation: Unnest, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    operation = table_nodes.UnnestRows(
        relation.collection,
        rows.types,
        relation.with_ordinality,
        _is_left_join(relation.kind, "UNNEST"),
        context.table_session,
        relation.condition,
    )
    return context.added(operation, "Unnest", rows.nodes, _extended_row_type(rows, relation))


def lower_correlate(relation: Correlate, context: Lowering) -> Lowered:
    rows = context.lowered(relation.input)
    row_type = _extended_row_type(rows, relation)
    made = row_type.fields[len(rows.row_type.fields) :]
    operation = table_nodes.Correlate(
        relation.function,
        relation.arguments,
        rows.types,
        RowType(made, nullable=False),
        _is_left_join(relation.kind, "a table function"),
        context.table_session,
        relation.condition,
    )
    return context.added(operation, "Correlate", rows.nodes, row_type)


def _extended_row_type(rows: Lowered, relation: Unnest | Correlate) -> RowType:
    """The row type of the input's columns, followed by the columns that the relation adds."""
    added = relation.schema.fields[len(relation.input.schema) :]
    names = [*rows.row_type.names, *(field.name for field in added)]
    return named_row(names, [*rows.types, *(field.type for field in added)])


def _is_left_join(kind: JoinKind, what: str) -> bool:
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise NotYetError.of(f"a {kind.value} join with {what}", LATER)
    return kind is JoinKind.LEFT
