"""Relations as lines of a plan, with Flink's operator names.

`logical_line` prints a node of the abstract syntax tree, `physical_line` one of the optimised plan, where a projection
above a filter is one Calc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Column, RowExpression
from millstream.planner.changing_relations import FromChangelog, LookupJoin, Normalise, ToChangelog
from millstream.planner.correlate_text import correlate_text, logical_correlate_text
from millstream.planner.entries import TableEntry
from millstream.planner.expression_text import Notation, expression_text
from millstream.planner.over_text import options_hint_text, over_text, rank_text, state_hint_text
from millstream.planner.relations import (
    Aggregate,
    AggregateCall,
    Correlate,
    Filter,
    Join,
    Limit,
    Over,
    Project,
    Rank,
    Relation,
    Scan,
    SetOperation,
    Sink,
    Sort,
    Unnest,
    Values,
    WatermarkAssign,
    WindowAggregate,
    WindowAssign,
    WindowKind,
    WindowShape,
)
from millstream.planner.time_joins import IntervalJoin, TemporalJoin, WindowJoin
from millstream.planner.window_ranks import WindowRank

__all__ = ["logical_line", "physical_inputs", "physical_line"]


def _table(table: Any) -> tuple[str, ...]:
    if isinstance(table, TableEntry):
        return table.path or (_title(table.origin) if table.origin is not None else "*anonymous*",)
    return (_title(table),)


def _title(end: Any) -> str:
    """The title of a source or sink outside catalogs, such as a DataStream or the program."""
    return f"*{getattr(end, 'name', None) or type(end).__name__}*"


def _names(relation: Relation) -> str:
    return ", ".join(relation.schema.names)


# --- abstract syntax tree ---------------------------------------------------------------------------------------------


def logical_line(relation: Relation) -> str:
    """A node of the abstract syntax tree."""
    maker = _LOGICAL.get(type(relation))
    return maker(relation) if maker else f"Logical{type(relation).__name__}(fields=[{_names(relation)}])"


def _text(relation: Relation, expression: RowExpression) -> str:
    return expression_text(expression, relation.schema.names, Notation.LOGICAL)


def _logical_project(relation: Project) -> str:
    pairs = zip(relation.schema.names, relation.expressions, strict=True)
    return f"LogicalProject({', '.join(f'{name}=[{_text(relation.input, each)}]' for name, each in pairs)})"


def _logical_aggregate(relation: Aggregate | WindowAggregate) -> str:
    groups = ", ".join(map(str, relation.groups))
    calls = "".join(f", {call.name}=[{_logical_call(call)}]" for call in relation.calls)
    if isinstance(relation, WindowAggregate):
        properties = ", ".join(each.value for each in relation.properties)
        window = _group_window(relation)
        return f"LogicalWindowAggregate(group=[{{{groups}}}]{calls}, window=[{window}], properties=[{properties}])"
    return f"LogicalAggregate(group=[{{{groups}}}]{calls})"


def _logical_call(call: AggregateCall) -> str:
    arguments = ", ".join(f"${argument}" for argument in call.arguments)
    name = call.function or getattr(call.user, "name", "function")
    filtered = f" FILTER ${call.filter}" if call.filter is not None else ""
    return f"{name}({'DISTINCT ' if call.distinct else ''}{arguments}){filtered}"


def _logical_window(relation: WindowAssign) -> str:
    window = relation.window
    sizes = [each for each in (window.slide_ms, window.size_ms, window.offset_ms or None) if each is not None]
    arguments = ", ".join([f"DESCRIPTOR(${window.time})", *(f"{size}:INTERVAL DAY TO SECOND" for size in sizes)])
    fields = ", ".join(f"{each.type.nullable()} {each.name}" for each in relation.schema.fields)
    return f"LogicalTableFunctionScan(invocation=[{window.kind.value}({arguments})], rowType=[RecordType({fields})])"


def _logical_values(relation: Values) -> str:
    rows = ", ".join("{ " + ", ".join(_text(relation, each) for each in row) + " }" for row in relation.rows)
    return f"LogicalValues(tuples=[[{rows}]])"


def _logical_join(relation: Join) -> str:
    condition = "true" if relation.condition is None else _text(relation, relation.condition)
    return f"LogicalJoin(condition=[{condition}], joinType=[{relation.kind.value.lower()}])"


_LOGICAL: dict[type, Callable[[Any], str]] = {
    Sink: lambda relation: f"LogicalSink(table=[{'.'.join(_table(relation.target))}], fields=[{_names(relation)}])",
    Scan: lambda relation: (
        f"LogicalTableScan(table=[[{', '.join(_table(relation.table))}]]{options_hint_text(relation.options)})"
    ),
    Project: _logical_project,
    Filter: lambda relation: f"LogicalFilter(condition=[{_text(relation.input, relation.condition)}])",
    Values: _logical_values,
    Aggregate: _logical_aggregate,
    WindowAggregate: _logical_aggregate,
    WindowAssign: _logical_window,
    Join: _logical_join,
    SetOperation: lambda relation: f"Logical{relation.kind.capitalize()}(all=[{str(relation.all).lower()}])",
    WatermarkAssign: lambda relation: (
        f"LogicalWatermarkAssigner(rowtime=[{relation.schema.names[relation.column]}], "
        f"watermark=[{_text(relation.input, relation.watermark)}])"
    ),
    Unnest: logical_correlate_text,
    Correlate: logical_correlate_text,
    Limit: lambda relation: f"LogicalSort({_limit(relation)})",
    Sort: lambda relation: f"LogicalSort({_sort_keys(relation, Notation.LOGICAL)})",
}


def _limit(relation: Limit) -> str:
    offset = f"offset=[{relation.offset}]" if relation.offset else ""
    fetch = f"fetch=[{relation.count}]" if relation.count is not None else ""
    return ", ".join(each for each in (offset, fetch) if each)


def _sort_keys(relation: Sort, notation: Notation) -> str:
    names = relation.schema.names
    is_logical = notation is Notation.LOGICAL
    columns = [f"${key.column}" if is_logical else names[key.column] for key in relation.keys]
    keys = [f"{name} {'DESC' if key.descending else 'ASC'}" for name, key in zip(columns, relation.keys, strict=True)]
    return f"orderBy=[{', '.join(keys)}]"


# --- optimised --------------------------------------------------------------------------------------------------------


def physical_inputs(relation: Relation) -> tuple[Relation, ...]:
    """The inputs of a line, which includes a filter below a projection."""
    if isinstance(relation, Project) and isinstance(relation.input, Filter):
        return relation.input.inputs
    return relation.inputs


def physical_line(relation: Relation, notation: Notation = Notation.PHYSICAL) -> str:
    """An operator of the optimised plan."""
    maker = _PHYSICAL.get(type(relation))
    return maker(relation, notation) if maker else f"{type(relation).__name__}(select=[{_names(relation)}])"


def _calc(relation: Project | Filter, notation: Notation) -> str:
    below = relation.input
    filtered = relation if isinstance(relation, Filter) else below if isinstance(below, Filter) else None
    names = below.schema.names
    expressions: tuple[RowExpression, ...]
    if isinstance(relation, Project):
        expressions = relation.expressions
    else:
        expressions = tuple(Column(each.type, index) for index, each in enumerate(relation.schema.fields))
    columns = []
    for name, expression in zip(relation.schema.names, expressions, strict=True):
        text = expression_text(expression, names, notation)
        columns.append(text if text == name else f"{text} AS {name}")
    where = ""
    if filtered is not None:
        where = f", where=[{expression_text(filtered.condition, filtered.input.schema.names, notation)}]"
    return f"Calc(select=[{', '.join(columns)}]{where})"


def _scan(relation: Scan, notation: Notation) -> str:
    path = list(_table(relation.table))
    if isinstance(relation.table, TableEntry):
        read = [each.name for each in relation.table.read]
        if relation.filters:
            conditions = ", ".join(expression_text(each, read, notation) for each in relation.filters)
            path.append(f"filter=[{conditions}]")
        if relation.columns is not None:
            path.append(f"project=[{', '.join(read[column] for column in relation.columns)}]")
        rows = [field for field in relation.schema.fields if isinstance(field.type, RowType)]
        if relation.is_narrowed and rows:
            path.append(f"rows=[{', '.join(f'{each.name}({_fields_of(each.type)})' for each in rows)}]")
    extras = f"{_archive(relation.table)}{options_hint_text(relation.options)}"
    return f"TableSourceScan(table=[[{', '.join(path)}]], fields=[{_names(relation)}]{extras})"


def _fields_of(row: DataType) -> str:
    """The field names of a row, with those of nested rows."""
    assert isinstance(row, RowType)
    inner = [f"{e.name}({_fields_of(e.data_type)})" if isinstance(e.data_type, RowType) else e.name for e in row.fields]
    return ", ".join(inner)


def _watermark(relation: WatermarkAssign, notation: Notation) -> str:
    text = expression_text(relation.watermark, relation.input.schema.names, notation)
    return f"WatermarkAssigner(rowtime=[{relation.schema.names[relation.column]}], watermark=[{text}])"


def _length(milliseconds: int) -> str:
    """A duration in Flink's format: `10 min`, `1 s`, `500 ms`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds % size == 0 and milliseconds:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def _window_text(window: WindowShape, names: tuple[str, ...]) -> str:
    if window.attached is not None:
        start, end = window.attached
        time = f"win_start=[{names[start]}], win_end=[{names[end]}]"
    else:
        time = f"time_col=[{names[window.time]}]"
    size = {WindowKind.CUMULATE: "max_size", WindowKind.SESSION: "gap"}.get(window.kind, "size")
    sizes = f"{size}=[{_length(window.size_ms)}]"
    if window.slide_ms is not None:
        step = "step" if window.kind is WindowKind.CUMULATE else "slide"
        sizes += f", {step}=[{_length(window.slide_ms)}]"
    offset = f", offset=[{_length(window.offset_ms)}]" if window.offset_ms else ""
    return f"{window.kind.value}({time}, {sizes}{offset})"


def _group_window(relation: WindowAggregate) -> str:
    names = {"TUMBLE": "TumblingGroupWindow", "HOP": "SlidingGroupWindow", "SESSION": "SessionGroupWindow"}
    kind = names[relation.window.kind.value]
    sizes = [each for each in (relation.window.size_ms, relation.window.slide_ms) if each is not None]
    return f"{kind}('w$, {relation.input.schema.names[relation.window.time]}, {', '.join(map(str, sizes))})"


def _calls(relation: Aggregate | WindowAggregate) -> list[str]:
    names = relation.input.schema.names
    columns = [names[group] for group in relation.groups]
    for call in relation.calls:
        arguments = ", ".join(names[argument] for argument in call.arguments) or "*"
        distinct = "DISTINCT " if call.distinct else ""
        filtered = f" FILTER {names[call.filter]}" if call.filter is not None else ""
        name = call.function or getattr(call.user, "name", "function")
        columns.append(f"{name}({distinct}{arguments}){filtered} AS {call.name}")
    return columns


def _aggregate(relation: Aggregate, notation: Notation) -> str:
    names = ", ".join(relation.input.schema.names[group] for group in relation.groups)
    grouped = f"groupBy=[{names}], " if relation.groups else ""
    hinted = state_hint_text(relation.hints)
    return f"GroupAggregate({grouped}select=[{', '.join(_calls(relation))}]{hinted})"


def _window_aggregate(relation: WindowAggregate, notation: Notation) -> str:
    names = ", ".join(relation.input.schema.names[group] for group in relation.groups)
    grouped = f"groupBy=[{names}], " if relation.groups else ""
    first = len(relation.groups) + len(relation.calls)
    columns = _calls(relation)
    for index, wanted in enumerate(relation.properties):
        columns.append(f"{wanted.value}('w$) AS {relation.schema.names[first + index]}")
    if relation.window.is_legacy and relation.window.attached is None:
        return f"GroupWindowAggregate({grouped}window=[{_group_window(relation)}], select=[{', '.join(columns)}])"
    window = _window_text(relation.window, relation.input.schema.names)
    return f"WindowAggregate({grouped}window=[{window}], select=[{', '.join(columns)}])"


def _join(relation: Join, notation: Notation) -> str:
    name = type(relation).__name__
    names = (*relation.left.schema.names, *relation.right.schema.names)
    where = "" if relation.condition is None else expression_text(relation.condition, names, notation)
    kinds = {"INNER": "InnerJoin", "LEFT": "LeftOuterJoin", "RIGHT": "RightOuterJoin", "FULL": "FullOuterJoin"}
    kind = kinds.get(relation.kind.value, f"Left{relation.kind.value.capitalize()}Join")
    expiries = _expiries(relation, notation)
    hinted = state_hint_text(relation.hints)
    return f"{name}(joinType=[{kind}], where=[{where or 'true'}], select=[{_names(relation)}]{expiries}{hinted})"


def _expiries(relation: Join, notation: Notation) -> str:
    """The expiry of rows that no later row can match; "" if all rows are retained."""
    texts = []
    for word, side, expiries in zip(("left", "right"), relation.inputs, relation.expiries, strict=True):
        moments = [expression_text(each.moment, side.schema.names, notation) for each in expiries]
        texts += [f"{word}: {text} {_signed(each.offset_ms)}" for text, each in zip(moments, expiries, strict=True)]
    return f", retainedUntil=[{', '.join(texts)}]" if texts else ""


def _signed(milliseconds: int) -> str:
    return f"{'-' if milliseconds < 0 else '+'} {abs(milliseconds)} ms"


def _lookup_join(relation: LookupJoin, notation: Notation) -> str:
    width, names = len(relation.input.schema), relation.input.schema.names
    keys = [
        f"{relation.schema.names[width + key.column]}={expression_text(key.value, names, notation)}"
        for key in relation.keys
    ]
    kind = {"INNER": "InnerJoin", "LEFT": "LeftOuterJoin"}[relation.kind.value]
    where = ""
    if relation.condition is not None:
        where = f", where=[{expression_text(relation.condition, relation.schema.names, notation)}]"
    table = ".".join(relation.table.path)
    parts = f"table=[{table}], joinType=[{kind}], lookup=[{', '.join(keys)}]{where}, select=[{_names(relation)}]"
    return f"LookupJoin({parts})"


def _values(relation: Values, notation: Notation) -> str:
    rows = ", ".join("{ " + ", ".join(expression_text(e, (), notation) for e in row) + " }" for row in relation.rows)
    return f"Values(tuples=[[{rows}]], values=[{_names(relation)}])"


def _sink(relation: Sink, notation: Notation) -> str:
    overwrite = ", overwrite=[true]" if relation.overwrite else ""
    archive = _archive(relation.target)
    return f"Sink(table=[{'.'.join(_table(relation.target))}], fields=[{_names(relation)}]{overwrite}{archive})"


def _archive(table: Any) -> str:
    """The archive options of a table stored in the job."""
    options = dict(table.options) if isinstance(table, TableEntry) else {}
    named = [f"{key.removeprefix('archive.')}={value}" for key, value in options.items() if key.startswith("archive.")]
    return f", archive=[{', '.join(named)}]" if named else ""


_PHYSICAL: dict[type, Callable[[Any, Notation], str]] = {
    Sink: _sink,
    Scan: _scan,
    Project: _calc,
    Filter: _calc,
    WatermarkAssign: _watermark,
    Aggregate: _aggregate,
    WindowAggregate: _window_aggregate,
    WindowAssign: lambda relation, notation: (
        f"WindowTableFunction(window=[{_window_text(relation.window, relation.input.schema.names)}])"
    ),
    Correlate: correlate_text,
    Unnest: correlate_text,
    Join: _join,
    IntervalJoin: _join,
    WindowJoin: _join,
    TemporalJoin: _join,
    Rank: lambda relation, notation: rank_text(relation),
    WindowRank: lambda relation, notation: rank_text(relation),
    Over: lambda relation, notation: over_text(relation),
    LookupJoin: _lookup_join,
    Normalise: lambda relation, notation: (
        f"ChangelogNormalize(key=[{', '.join(relation.schema.names[at] for at in relation.keys)}])"
    ),
    ToChangelog: lambda relation, notation: f"ToChangelog({relation.text})",
    FromChangelog: lambda relation, notation: f"FromChangelog({relation.text})",
    Values: _values,
    SetOperation: lambda relation, notation: (
        f"{relation.kind.capitalize()}(all=[{str(relation.all).lower()}], {relation.kind.lower()}=[{_names(relation)}])"
    ),
    Limit: lambda relation, notation: f"Limit({_limit(relation)})",
    Sort: lambda relation, notation: f"Sort({_sort_keys(relation, notation)})",
}
