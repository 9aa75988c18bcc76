"""ON CONFLICT of INSERT INTO a table with a primary key: reduces the query's rows to one per key.

    DO DEDUPLICATE   retains the last row, or the previous one when it is deleted: sinks by key already do this
    DO NOTHING       retains the first row, or the next one when it is deleted
    DO ERROR         two rows with one key at the end of an epoch are an error

The rows are grouped by key and aggregated: FIRST_VALUE of the row, or its single value. Conflicts are checked per
epoch, so an updated row does not conflict with its previous value.
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
    """A table's new rows, reduced to one per primary key."""
    site, names = written_text(statement), relation.schema.names
    keys = [names.index(name) for name in entry.primary_key]
    row_type = RowType.of(names, relation.schema.types, False)
    own = relation.schema.columns
    row = Field("$row", row_type)
    fields = (*(relation.schema.fields[at] for at in keys), row)
    whole: RowExpression = Call(row_type, "ROW", own)
    keyed_rows = Project(Schema(fields), relation, (*(own[at] for at in keys), whole))
    is_error = statement.on_conflict == "ERROR"
    type_ = ArrayType(row_type) if is_error else row_type
    call = AggregateCall("ARRAY_AGG" if is_error else "FIRST_VALUE", (len(keys),), type_, "$first")
    grouped = Aggregate(
        Schema((*fields[:-1], Field("$first", type_))), keyed_rows, tuple(range(len(keys))), (call,), site=site
    )
    chosen: RowExpression = Column(type_, len(keys))
    if is_error:
        chosen = Call(row_type, "ELEMENT", (chosen,), (("of", "conflict"),), site)
    values = tuple(
        Call(field.type, "FIELD", (chosen,), (("name", field.name),), site) for field in relation.schema.fields
    )
    return Project(Schema(relation.schema.fields), grouped, values)
