"""Buffers rows until the end of a window and emits them unchanged: collects them in an array, then unnests it."""

from __future__ import annotations

from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.row_expressions import Call, Column
from millstream.planner.relations import (
    BUFFERED_ROWS,
    AggregateCall,
    Field,
    Project,
    Relation,
    Schema,
    SortKey,
    Unnest,
    WindowAggregate,
    WindowProperty,
    WindowShape,
)

__all__ = ["buffered_rows"]


def buffered_rows(
    below: Relation,
    window: WindowShape,
    partition: tuple[int, ...] = (),
    bounds: dict[WindowProperty, Field] | None = None,
    order: tuple[SortKey, ...] = (),
    site: str | None = None,
) -> Project:
    """Emits the rows of each window (and partition) at its end, with its `bounds`; `order` sorts the rows of a
    window."""
    schema, added = below.schema, bounds or {}
    width = len(schema)
    names = [f"f{number}" for number in range(width)]
    row = RowType.of(names, list(schema.types), nullable=False)
    columns = schema.columns
    rows = Project(schema + Schema((Field("$row", row),)), below, (*columns, Call(row, "ROW", columns)))
    array = ArrayType(row, False)
    keys = tuple(Field(schema.names[at], schema.types[at]) for at in partition)
    windows = WindowAggregate(
        Schema((*keys, Field(BUFFERED_ROWS, array), *added.values())),
        rows,
        window,
        partition,
        (AggregateCall("ARRAY_AGG", (width,), array, BUFFERED_ROWS, order=order),),
        tuple(added),
        site=site,
    )
    elements = Schema(tuple(Field(name, type_) for name, type_ in zip(names, schema.types, strict=True)))
    each = Unnest(windows.schema + elements, windows, Column(array, len(keys)))
    first = len(windows.schema)
    chosen = [*range(first, first + width), *range(len(keys) + 1, first)]
    fields = tuple(Field(field.name, field.type) for field in schema.fields) + tuple(added.values())
    return Project(Schema(fields), each, tuple(Column(each.schema.types[at], at) for at in chosen))
