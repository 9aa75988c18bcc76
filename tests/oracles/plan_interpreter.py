"""The reference semantics of a plan: every relation is computed completely from its inputs, row by row where practical.

Passes are compared with it: they must preserve the rows of a plan. Expressions run in the tasks' program, which has a
reference of its own.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.expressions.coercion import stored_value
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.planner import relations as r
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.kernel import SessionFacts

Row = tuple[Any, ...]
Tables = Mapping[str, Sequence[Row]]
"""Rows of each table, by its name, of the columns its entry reads."""
FACTS = SessionFacts()


def rows_of(relation: r.Relation, tables: Tables) -> list[Row]:
    """All rows of a relation."""
    return _RULES[type(relation)](relation, tables)


def counted(rows: Sequence[Row]) -> Counter[str]:
    """Rows as a multiset."""
    return Counter(repr(row) for row in rows)


def computed(
    expressions: Sequence[RowExpression], rows: Sequence[Row], types: Sequence[DataType], condition: Any = None
) -> list[Row]:
    columns = [pa.array([stored_value(row[i], type_) for row in rows], type_.arrow) for i, type_ in enumerate(types)]
    result = compile_program(expressions, types, condition).run(columns, len(rows), FACTS)
    values = [column.to_pylist() for column in result.columns]
    count = len(rows) if result.selected is None else len(result.selected)
    return [tuple(column[i] for column in values) for i in range(count)]


def _scan(relation: r.Scan, tables: Tables) -> list[Row]:
    assert not relation.filters
    rows = tables[relation.table.path[-1]]
    if relation.columns is None:
        return list(rows)
    return [tuple(row[column] for column in relation.columns) for row in rows]


def _project(relation: r.Project, tables: Tables) -> list[Row]:
    return computed(relation.expressions, rows_of(relation.input, tables), relation.input.schema.types)


def _filter(relation: r.Filter, tables: Tables) -> list[Row]:
    rows = rows_of(relation.input, tables)
    kept = computed([relation.condition], rows, relation.input.schema.types)
    return [row for row, (is_true,) in zip(rows, kept, strict=True) if is_true]


def _values(relation: r.Values, tables: Tables) -> list[Row]:
    return [computed(row, [()], ())[0] if row else () for row in relation.rows]


def _union(relation: r.SetOperation, tables: Tables) -> list[Row]:
    assert relation.kind == "UNION" and relation.all
    return [row for branch in relation.branches for row in rows_of(branch, tables)]


def _unnest(relation: r.Unnest, tables: Tables) -> list[Row]:
    rows = rows_of(relation.input, tables)
    collections = computed([relation.collection], rows, relation.input.schema.types)
    type_ = relation.collection.type
    assert isinstance(type_, ArrayType)
    is_row = isinstance(type_.element_type, RowType)
    result = []
    for row, (elements,) in zip(rows, collections, strict=True):
        for place, element in enumerate(elements or (), start=1):
            made = tuple(element.values()) if is_row and element else (element,)
            result.append(row + made + ((place,) if relation.with_ordinality else ()))
    return result


# --- windows ----------------------------------------------------------------------------------------------------------

EPOCH = datetime.datetime(1970, 1, 1)


def _moment(milliseconds: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(milliseconds=milliseconds)


def windows_of(window: r.WindowShape, moment: datetime.datetime) -> Iterator[tuple[int, int]]:
    """The windows of a timestamp: start and end."""
    at = round((moment - EPOCH) / datetime.timedelta(milliseconds=1))
    if window.kind is r.WindowKind.CUMULATE:
        assert window.slide_ms is not None
        start = at - (at - window.offset_ms) % window.size_ms
        end = start + window.slide_ms
        while end <= start + window.size_ms:
            if at < end:
                yield start, end
            end += window.slide_ms
        return
    slide = window.slide_ms or window.size_ms
    start = at - (at - window.offset_ms) % slide
    while start > at - window.size_ms:
        yield start, start + window.size_ms
        start -= slide


def _window_assign(relation: r.WindowAssign, tables: Tables) -> list[Row]:
    result = []
    for row in rows_of(relation.input, tables):
        if row[relation.window.time] is not None:
            for start, end in windows_of(relation.window, row[relation.window.time]):
                result.append((*row, _moment(start), _moment(end), _moment(end - 1)))
    return result


def _window_aggregate(relation: r.WindowAggregate, tables: Tables) -> list[Row]:
    window = relation.window
    rows: list[tuple[Row, tuple[Any, ...]]] = []
    for row in rows_of(relation.input, tables):
        if window.attached is not None:
            rows.append((row, (row[window.attached[0]], row[window.attached[1]])))
        elif row[window.time] is not None:
            for start, end in windows_of(window, row[window.time]):
                rows.append((row, (_moment(start), _moment(end))))
    groups: dict[str, tuple[Row, list[Row]]] = {}
    for row, span in rows:
        key = (*(row[group] for group in relation.groups), *span)
        groups.setdefault(repr(key), (key, []))[1].append(row)
    result = []
    for key, members in groups.values():
        start, end = key[-2:]
        properties = {"start": start, "end": end, "time": end - datetime.timedelta(milliseconds=1)}
        calls = tuple(_called(call, members) for call in relation.calls)
        result.append((*key[:-2], *calls, *(properties[each.value] for each in relation.properties)))
    return result


# --- groups -----------------------------------------------------------------------------------------------------------


def _aggregate(relation: r.Aggregate, tables: Tables) -> list[Row]:
    groups: dict[str, tuple[Row, list[Row]]] = {}
    for row in rows_of(relation.input, tables):
        key = tuple(row[group] for group in relation.groups)
        groups.setdefault(repr(key), (key, []))[1].append(row)
    return [(*key, *(_called(call, members) for call in relation.calls)) for key, members in groups.values()]


def _called(call: r.AggregateCall, rows: Sequence[Row]) -> Any:
    taken = [row for row in rows if call.filter is None or row[call.filter]]
    if not call.arguments:
        return len(taken)
    values = [row[call.arguments[0]] for row in taken if row[call.arguments[0]] is not None]
    if call.distinct:
        values = list(dict.fromkeys(values))
    if call.function == "COUNT":
        return len(values)
    return {"SUM": sum, "MIN": min, "MAX": max}[call.function](values) if values else None


_RULES: dict[type, Any] = {
    r.Scan: _scan,
    r.Project: _project,
    r.Filter: _filter,
    r.Values: _values,
    r.SetOperation: _union,
    r.Unnest: _unnest,
    r.WindowAssign: _window_assign,
    r.WindowAggregate: _window_aggregate,
    r.Aggregate: _aggregate,
    r.WatermarkAssign: lambda relation, tables: rows_of(relation.input, tables),
    r.Sink: lambda relation, tables: rows_of(relation.input, tables),
}
