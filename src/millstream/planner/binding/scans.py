"""A catalog table as a relation: the connector's columns, then computed columns, then the watermark.

The session that reads a table binds the expressions of its definition.
"""

from __future__ import annotations

from millstream.common.options import read as read_option
from millstream.common.options.table_options import CDC_DUPLICATES
from millstream.common.types import RowKind
from millstream.errors import NotYetError, SqlError
from millstream.expressions.row_expressions import Call, Column, RowExpression
from millstream.expressions.types import TimestampType
from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.projections import project
from millstream.planner.binding.scope import Scope
from millstream.planner.changing_relations import Normalise
from millstream.planner.entries import ColumnEntry, Options, TableEntry, shown
from millstream.planner.relations import Field, Relation, Scan, Schema, TimeKind, WatermarkAssign
from millstream.planner.session import PlannerSession
from millstream.planner.traits.changes import GROWS, is_upserts, scan_changes
from millstream.sql import syntax

__all__ = ["bind_computed", "bind_watermark", "scan_table"]

SOURCE_WATERMARK = "SOURCE_WATERMARK"


def scan_table(entry: TableEntry, session: PlannerSession, options: Options = ()) -> Relation:
    """The table with all its columns, in order of definition; `options` are those of a hint."""
    read = entry.read
    scan = Scan(Schema(tuple(Field(each.name, each.type) for each in read)), entry, options=options)
    relation: Relation = scan
    if entry.columns != read:
        scope = Scope.of(scan)
        positions = {each.name: index for index, each in enumerate(read)}
        expressions = [
            bind_computed(entry, column, scope, session)
            if column.is_computed
            else Column(column.type, positions[column.name])
            for column in entry.columns
        ]
        relation = project(scan, expressions, entry.names)
    return _normalised(_with_watermark(relation, entry, session), scan, entry, session)


def _normalised(relation: Relation, scan: Scan, entry: TableEntry, session: PlannerSession) -> Relation:
    """Normalises upserts by the table's key, and deduplicates changes that a source may repeat."""
    changes = scan_changes(scan)
    may_repeat = read_option(CDC_DUPLICATES, session.config)
    # With a key, a delete may carry only the key; without a key, it carries the whole row.
    may_be_keys = bool(entry.primary_key) and RowKind.UPDATE_BEFORE not in changes
    if changes == GROWS or session.is_batch or not (is_upserts(changes) or may_repeat or may_be_keys):
        return relation
    if not entry.primary_key:
        name = f"Table {shown(entry.path)}" if entry.path else "The stream"
        raise SqlError(
            f"{name} is a changelog of upserts, or of changes that may be repeated, but has no primary key to "
            "identify the row to replace."
            " Declare PRIMARY KEY (…) NOT ENFORCED"
        )
    return Normalise(relation.schema, relation, tuple(entry.names.index(name) for name in entry.primary_key))


def bind_computed(entry: TableEntry, column: ColumnEntry, scope: Scope, session: PlannerSession) -> RowExpression:
    """A computed column's expression over the connector's columns."""
    assert column.expression is not None
    try:
        return bind_expression(column.expression, scope, session)
    except (SqlError, NotYetError) as error:
        table = f" of {shown(entry.path)}" if entry.path else ""
        words = f"Invalid expression for computed column '{column.name}'{table}.\n{error}"
        raise (
            type(error)(words)
            if isinstance(error, NotYetError)
            else SqlError(words, line=error.line, column=error.column)
        ) from None


def _with_watermark(relation: Relation, entry: TableEntry, session: PlannerSession) -> Relation:
    if entry.watermark is None:
        return relation
    index = entry.names.index(entry.watermark.column)
    if relation.schema.fields[index].time is TimeKind.PROCTIME:
        raise SqlError("A watermark can not be defined for a processing-time attribute column: leave it out")
    watermark = bind_watermark(entry.watermark.expression, Scope.of(relation), session)
    fields = list(relation.schema.fields)
    fields[index] = Field(fields[index].name, fields[index].type, TimeKind.ROWTIME)
    return WatermarkAssign(Schema(tuple(fields)), relation, index, watermark)


def bind_watermark(written: syntax.Expression, scope: Scope, session: PlannerSession) -> RowExpression:
    """A watermark's expression; SOURCE_WATERMARK() delegates to the source."""
    if isinstance(written, syntax.Call) and written.name.upper() == SOURCE_WATERMARK:
        return Call(TimestampType(3), SOURCE_WATERMARK)
    return bind_expression(written, scope, session)
