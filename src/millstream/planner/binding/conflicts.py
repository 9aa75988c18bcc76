"""ON CONFLICT of INSERT INTO a table with a primary key: what becomes of rows of the query that have one key.

    DO DEDUPLICATE   the last row stands, and the one before it when it is deleted: sinks by key do so themselves
    DO NOTHING       the first row stands, and the next one when it is deleted
    DO ERROR         two rows at a time are an error, in the epoch in which they meet

The rows of a key are an aggregation by it: FIRST_VALUE of the row, or its only value. An epoch is looked at whole, so
that a row that is updated is no conflict with what it was.
"""

from __future__ import annotations

from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.row_expressions import Call, Column, RowExpression
from millstream.planner.binding.calls import written_text
from millstream.planner.entries import TableEntry
from millstream.planner.relations import Aggregate, AggregateCall, Field, Project, Relation, Schema
from millstream.sql.statements import Insert

__all__ = ["one_row_per_key"]


def one_row_per_key(relation: Relation, entry: TableEntry, statement: Insert) -> Relation:
    """The rows for a table, of which each key of the table has one."""
    site, names = written_text(statement), relation.schema.names
    keys = [names.index(name) for name in entry.primary_key]
    row_type = RowType.of(names, relation.schema.types, False)
    own = relation.schema.columns
    row = Field("$row", row_type)
    fields = (*(relation.schema.fields[at] for at in keys), row)
    whole: RowExpression = Call(row_type, "ROW", own)
    given = Project(Schema(fields), relation, (*(own[at] for at in keys), whole))
    is_error = statement.on_conflict == "ERROR"
    type_ = ArrayType(row_type) if is_error else row_type
    call = AggregateCall("ARRAY_AGG" if is_error else "FIRST_VALUE", (len(keys),), type_, "$first")
    grouped = Aggregate(
        Schema((*fields[:-1], Field("$first", type_))), given, tuple(range(len(keys))), (call,), site=site
    )
    chosen: RowExpression = Column(type_, len(keys))
    if is_error:
        chosen = Call(row_type, "ELEMENT", (chosen,), (("of", "conflict"),), site)
    values = tuple(
        Call(field.type, "FIELD", (chosen,), (("name", field.name),), site) for field in relation.schema.fields
    )
    return Project(Schema(relation.schema.fields), grouped, values)
