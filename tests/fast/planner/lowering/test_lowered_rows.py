"""Rows through what works on one at a time: filters, projections, UNNEST, table functions, sinks and streams."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.relations import add, column, limited, moment, rows_of, table, with_time

from millstream.common import Row, RowKind, Types, WatermarkStrategy
from millstream.errors import ConfigurationError, JobFailedError, NotYetError, ProgramError
from millstream.expressions import nested_types as nested
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call, Literal, RowExpression, UserCall
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.graph.nodes import Read, Write
from millstream.graph.table_nodes import Calc
from millstream.planner.entries import ColumnEntry, TableEntry
from millstream.planner.lowering import StreamOrigin, StreamTarget, lower
from millstream.planner.relations import (
    Correlate,
    Field,
    Filter,
    JoinKind,
    Project,
    Relation,
    Scan,
    Schema,
    SetOperation,
    Sink,
    Sort,
    Unnest,
    Values,
)
from millstream.planner.session import PlannerSession
from millstream.records.table_type import TableRowType
from millstream.runtime.tables.references.rows import correlated_rows, unnested_rows
from millstream.testing import CRASH, EPOCH, Collect, Script, run

NUMBERS = {"a": types.IntType(), "b": types.IntType()}
BOOLEAN = types.BooleanType()


def call(function: str, type_: DataType, *arguments: RowExpression) -> Call:
    return Call(type_, function, arguments)


def whole(value: int | None) -> Literal:
    return Literal(types.IntType(), value)


def projected(relation: Relation, **expressions: RowExpression) -> Project:
    fields = tuple(Field(name, each.type) for name, each in expressions.items())
    return Project(Schema(fields), relation, tuple(expressions.values()))


# --- projections and filters ------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9)), max_size=9))
@settings(max_examples=10)
def test_rows_that_meet_the_condition_are_computed(rows: list[Any]) -> None:
    scan = table(NUMBERS, rows)
    a, b = column(scan, "a"), column(scan, "b")
    positive = Filter(scan.schema, scan, call(">", BOOLEAN, a, whole(0)))
    relation = projected(positive, total=call("+", types.IntType(), a, b), b=b)
    expected = [(None if b is None else a + b, b) for a, b in rows if a is not None and a > 0]
    assert rows_of(relation, epoch_records=4) == expected


def test_a_projection_and_the_filter_below_it_are_one_step() -> None:
    scan = table(NUMBERS, [(1, 2)])
    a = column(scan, "a")
    relation = projected(Filter(scan.schema, scan, call(">", BOOLEAN, a, whole(0))), a=a)
    assert [type(operation) for operation in operations_of(relation)] == [Read, Calc, Write]


def test_what_changes_nothing_is_no_step() -> None:
    scan = table(NUMBERS, [(1, 2)])
    relation = projected(scan, a=column(scan, "a"), b=column(scan, "b"))
    assert [type(operation) for operation in operations_of(relation)] == [Read, Write]


def operations_of(relation: Relation) -> list[Any]:
    from millstream.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment()
    add(relation, Collect(), env)
    env._builder.take()
    return [node.operation for node in env._builder.nodes.values()]


def test_timestamps_travel_with_the_rows_that_stay() -> None:
    rows = [(n, moment(n)) for n in range(5)]
    timed = with_time(table({"n": types.IntType(), "ts": types.TimestampType(3)}, rows), "ts")
    n = column(timed, "n")
    out = Collect()
    odd = Filter(timed.schema, timed, call(">", BOOLEAN, n, whole(2)))
    run(lambda env: add(projected(odd, n=n), out, env))
    assert [(record.value.n, record.timestamp) for record in out.records] == [
        (n, int(moment(n).replace(tzinfo=dt.UTC).timestamp() * 1000)) for n in (3, 4)
    ]


def test_rows_without_columns_are_still_counted() -> None:
    scan = table(NUMBERS, [(1, 2), (3, 4)])
    assert len(rows_of(Project(Schema(()), scan, ()))) == 2


def test_a_row_without_a_value_names_operator_expression_and_record() -> None:
    scan = table(NUMBERS, [(1, 1), (7, 0)])
    relation = projected(scan, x=call("/", types.IntType(), column(scan, "a"), column(scan, "b")))
    with pytest.raises(JobFailedError, match=r"'Calc' failed: .*/.*zero") as failure:
        rows_of(relation)
    assert "record    Row(a=7, b=0)" in failure.value.report


class Opened:
    """A function of the program's that must be opened."""

    events: ClassVar[list[str]] = []

    def open(self, context: Any) -> None:
        Opened.events.append("open")
        self.by = 10

    def close(self) -> None:
        Opened.events.append("close")

    def eval(self, value: int) -> int:
        if value == 13:
            raise ValueError("unlucky")
        return value * self.by


def test_functions_of_the_program_are_opened_and_closed_with_the_operator() -> None:
    Opened.events.clear()
    scan = table(NUMBERS, [(1, 2), (3, 4)])
    function = UserFunction("opened", Opened(), (types.IntType(),))
    used = UserCall(types.IntType(), function, (column(scan, "a"),))
    assert rows_of(projected(scan, x=used, y=call("+", types.IntType(), used, whole(1)))) == [(10, 11), (30, 31)]
    assert Opened.events == ["open", "close"]


def test_a_function_of_the_program_that_raises_is_shown_with_its_record() -> None:
    scan = table(NUMBERS, [(1, 2), (13, 4)])
    function = UserFunction("opened", Opened(), (types.IntType(),))
    with pytest.raises(JobFailedError, match="unlucky") as failure:
        rows_of(projected(scan, x=UserCall(types.IntType(), function, (column(scan, "a"),))))
    assert "Row(a=13, b=4)" in failure.value.report


# --- rows that become several -----------------------------------------------------------------------------------------

ROW = nested.RowType.of(["x", "y"], [types.IntType(), types.VarCharType(3)])
COLLECTIONS: dict[DataType, st.SearchStrategy[Any]] = {
    nested.ArrayType(types.IntType()): st.lists(st.none() | st.integers(0, 9), max_size=3),
    nested.ArrayType(ROW): st.lists(
        st.none() | st.builds(Row, st.integers(0, 9), st.none() | st.just("y")), max_size=3
    ),
    nested.MapType(types.VarCharType(3), types.IntType()): st.dictionaries(
        st.sampled_from("abc"), st.none() | st.integers(0, 9)
    ),
    nested.MultisetType(types.IntType()): st.dictionaries(st.integers(0, 3), st.integers(1, 3)),
}


@settings(max_examples=12)
@given(st.data(), st.booleans(), st.booleans())
def test_unnest_gives_what_the_reference_says(data: st.DataObject, with_ordinality: bool, keeps_all: bool) -> None:
    type_ = data.draw(st.sampled_from(list(COLLECTIONS)))
    rows = data.draw(st.lists(st.tuples(st.integers(0, 9), st.none() | COLLECTIONS[type_]), max_size=5))
    scan = table({"n": types.IntType(), "many": type_}, rows)
    relation = unnested(scan, type_, with_ordinality, JoinKind.LEFT if keeps_all else JoinKind.INNER)
    expected = unnested_rows(rows, lambda row: row[1], type_, with_ordinality, keeps_all)
    assert [row[2:] for row in rows_of(relation)] == [row[2:] for row in expected]
    assert [row[0] for row in rows_of(relation, epoch_records=2)] == [row[0] for row in expected]


def unnested(scan: Relation, type_: Any, with_ordinality: bool, kind: JoinKind) -> Unnest:
    if isinstance(type_, nested.MapType):
        made = [Field("key", type_.key_type), Field("value", type_.value_type)]
    elif isinstance(type_.element_type, nested.RowType):
        made = [Field(field.name, field.data_type) for field in type_.element_type.fields]
    else:
        made = [Field("value", type_.element_type)]
    if with_ordinality:
        made.append(Field("ordinality", types.IntType()))
    return Unnest(Schema((*scan.schema.fields, *made)), scan, column(scan, "many"), with_ordinality, kind)


def spread(a: int, b: int) -> Any:
    for number in range(a or 0):
        yield Row(number, f"{b}") if number % 2 else (number, None)


@pytest.mark.parametrize("keeps_all", [False, True])
def test_a_table_function_gives_rows_beside_each_row(keeps_all: bool) -> None:
    rows = [(0, 1), (2, 5), (None, 3), (3, None)]
    scan = table(NUMBERS, rows)
    function = UserFunction("spread", spread, (types.IntType(), types.VarCharType(5)), kind=UserFunctionKind.TABLE)
    made = (Field("i", types.IntType()), Field("text", types.VarCharType(5)))
    arguments = (column(scan, "a"), column(scan, "b"))
    kind = JoinKind.LEFT if keeps_all else JoinKind.INNER
    relation = Correlate(Schema((*scan.schema.fields, *made)), scan, function, arguments, kind)
    assert rows_of(relation) == correlated_rows(rows, lambda row: spread(*row), 2, keeps_all)


def numbers_below(a: int) -> Any:
    if a == 7:
        raise ValueError("seven")
    return None if a < 0 else range(a)


def test_a_table_function_may_give_single_values_nothing_or_an_error() -> None:
    function = UserFunction("below", numbers_below, (types.IntType(),), kind=UserFunctionKind.TABLE)

    def relation(rows: list[Any]) -> Correlate:
        scan = table(NUMBERS, rows)
        schema = Schema((*scan.schema.fields, Field("i", types.IntType())))
        return Correlate(schema, scan, function, (column(scan, "a"),))

    assert rows_of(relation([(2, 0), (-1, 0)])) == [(2, 0, 0), (2, 0, 1)]
    with pytest.raises(JobFailedError, match="seven") as failure:
        rows_of(relation([(1, 0), (7, 8)]))
    assert "record    Row(a=7, b=8)" in failure.value.report


# --- several inputs, values, and what is not there yet ----------------------------------------------------------------


def test_union_all_is_all_rows_of_all_branches() -> None:
    left = table({"a": types.IntType(False)}, [(1,), (2,)])
    right = table({"x": types.IntType()}, [(None,), (2,)])
    schema = Schema((Field("a", types.IntType()),))
    union = SetOperation(schema, (left, right), "UNION", True)
    assert sorted(rows_of(union, parallelism=2), key=repr) == [(1,), (2,), (2,), (None,)]
    assert sorted(rows_of(projected(union, b=call("+", types.IntType(), column(union, "a"), whole(1)))), key=repr) == [
        (2,),
        (3,),
        (3,),
        (None,),
    ]


def test_values_are_rows() -> None:
    schema = Schema((Field("a", types.IntType()), Field("d", types.DecimalType(5, 2))))
    price = Literal(types.DecimalType(5, 2), Decimal("1.50"))
    rows = ((whole(1), price), (call("+", types.IntType(), whole(1), whole(2)), Literal(types.DecimalType(5, 2), None)))
    assert rows_of(Values(schema, rows)) == [(1, Decimal("1.50")), (3, None)]


def test_what_is_not_built_yet_is_refused_by_name() -> None:
    scan = table(NUMBERS, [(1, 2)])
    with pytest.raises(NotYetError, match="Sort is not built yet: it comes with a later version"):
        rows_of(Sort(scan.schema, scan, ()))
    with pytest.raises(NotYetError, match="UNION is not built yet"):
        rows_of(SetOperation(scan.schema, (scan, scan), "UNION", False))


@pytest.mark.parametrize(("count", "offset"), [(0, 0), (3, 0), (4, 2), (None, 7), (99, 8), (2, 99)])
@pytest.mark.parametrize("epoch_records", [None, 1, 4])
def test_a_limit_gives_the_first_rows_and_no_more(count: int | None, offset: int, epoch_records: int | None) -> None:
    scan = table(NUMBERS, [(n, n) for n in range(10)])
    found = rows_of(limited(scan, count, offset), epoch_records=epoch_records, parallelism=2)
    assert found == [(n, n) for n in range(10)][offset : None if count is None else offset + count]


def test_a_limit_counts_on_after_a_crash() -> None:
    rows = [(1, 1), (2, 2), EPOCH, (3, 3), CRASH, (4, 4), (5, 5)]
    row_type = nested.RowType.of(list(NUMBERS), list(NUMBERS.values()), nullable=False)
    scan = table(NUMBERS, source=Script(rows, type_info=TableRowType(row_type)))
    assert rows_of(limited(scan, 4)) == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_two_columns_of_one_name_are_told_apart() -> None:
    scan = table(NUMBERS, [(1, 2)])
    fields = Schema((Field("a", types.IntType()), Field("a", types.IntType())))
    out = Collect()
    run(lambda env: add(Project(fields, scan, (column(scan, "a"), column(scan, "b"))), out, env))
    assert out.values == [Row(a=1, a0=2)]


# --- event time -------------------------------------------------------------------------------------------------------


def test_a_row_without_its_time_is_refused() -> None:
    timed = with_time(table({"ts": types.TimestampType(3)}, [(moment(1),), (None,)]), "ts")
    with pytest.raises(JobFailedError, match="RowTime field should not be null") as failure:
        rows_of(timed)
    assert "record    Row(ts=None)" in failure.value.report


def test_time_behind_a_projection_is_read_at_the_source() -> None:
    scan = table({"ms": types.BigIntType()}, [(n * 1_000,) for n in range(3)])
    instant = types.LocalZonedTimestampType(3)
    moments = call("TO_TIMESTAMP_LTZ", instant, column(scan, "ms"), Literal(types.IntType(False), 3))
    timed = with_time(projected(scan, ms=column(scan, "ms"), ts=moments), "ts")
    read = operations_of(timed)[0]
    assert isinstance(read, Read) and read.watermarks is not None
    out = Collect()
    run(lambda env: add(timed, out, env))
    assert [record.timestamp for record in out.records] == [0, 1_000, 2_000]


def test_idle_sources_and_sources_that_keep_pace_are_said_by_options() -> None:
    timed = with_time(table({"ts": types.TimestampType(3)}, []), "ts")
    from millstream.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment()
    add(timed, Collect(), env, {"table.exec.source.idle-timeout": "5 s"})
    [read] = [node.operation for node in env._builder.nodes.values() if isinstance(node.operation, Read)]
    env._builder.take()
    assert read.watermarks is not None and read.watermarks.idle_timeout_ms == 5_000
    with pytest.raises(ConfigurationError, match="'soon' is not a duration"):
        add(timed, Collect(), StreamExecutionEnvironment(), {"table.exec.source.idle-timeout": "soon"})


# --- streams and sinks ------------------------------------------------------------------------------------------------

PAIR = Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.INT()])


def stream_table(stream: Any, columns: dict[str, DataType], rowtime: bool = False, changes: bool = False) -> Scan:
    entries = [ColumnEntry(name, type_) for name, type_ in columns.items()]
    if rowtime:
        entries.append(ColumnEntry("ts", types.LocalZonedTimestampType(3), metadata="rowtime"))
    kinds = frozenset(RowKind) if changes else frozenset({RowKind.INSERT})
    origin = StreamOrigin(stream._edges[0].source, "stream", edges=stream._edges, changes=kinds)
    entry = TableEntry(tuple(entries), origin=origin)
    return Scan(Schema(tuple(Field(each.name, each.type) for each in entry.read)), entry)


@pytest.mark.parametrize(
    ("values", "type_info", "expected"),
    [
        ([Row(b="x", a=1)], PAIR, [(1, "x")]),
        ([(1, "x")], Types.TUPLE([Types.INT(), Types.STRING()]), [(1, "x")]),
        ([(1, "x"), Row(b="y", a=2), {"a": 3, "b": "z"}], None, [(1, "x"), (2, "y"), (3, "z")]),
    ],
)
def test_records_of_a_stream_are_rows(values: list[Any], type_info: Any, expected: list[Any]) -> None:
    out = Collect()

    def build(env: Any) -> None:
        stream = env.add_source(Script(values, type_info=type_info))
        add(stream_table(stream, {"a": types.IntType(), "b": types.VarCharType(9)}), out, env)

    run(build)
    assert [tuple(row) for row in out.values] == expected


def test_a_record_that_does_not_fit_its_table_is_named() -> None:
    def build(env: Any) -> None:
        stream = env.add_source(Script([(1, "x"), ("y", 2)]))
        add(stream_table(stream, {"a": types.IntType(), "b": types.VarCharType(9)}), Collect(), env)

    with pytest.raises(JobFailedError, match="field a is 'y'"):
        run(build)


def test_kinds_and_times_of_records_are_those_of_the_rows() -> None:
    row = Row(b="x", a=1)
    row.set_row_kind(RowKind.DELETE)
    out = Collect()

    def build(env: Any) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: 5)
        stream = env.add_source(Script([row], type_info=PAIR)).assign_timestamps_and_watermarks(strategy)
        scan = stream_table(stream, {"a": types.IntType()}, rowtime=True, changes=True)
        add(projected(scan, ts=column(scan, "ts"), a=column(scan, "a")), out, env)

    run(build)
    [record] = out.records
    assert tuple(record.value) == (dt.datetime(1970, 1, 1, 0, 0, 0, 5_000, dt.UTC), 1)
    assert record.value.get_row_kind() is RowKind.DELETE
    assert record.timestamp == 5


def test_a_table_goes_on_as_a_stream() -> None:
    out = Collect()

    def build(env: Any) -> None:
        scan = table(NUMBERS, [(1, 2), (3, 4)])
        [node] = lower([Sink(scan.schema, scan, StreamTarget())], env._builder, PlannerSession())
        assert isinstance(node.output_type, TableRowType)
        from millstream.datastream import DataStream
        from millstream.graph.nodes import Edge

        stream = DataStream(environment=env, edges=(Edge(node.id),))
        stream.key_by("a").map(lambda row: row.a + row.b).sink_to(out)

    run(build)
    assert sorted(out.values) == [3, 7]


def sink_entry(*columns: ColumnEntry, **options: str) -> TableEntry:
    given = {"connector": "blackhole", **{name.replace("_", "."): value for name, value in options.items()}}
    return TableEntry(columns, options=tuple(given.items()), path=("c", "d", "out"))


def written(relation: Relation, entry: TableEntry, config: dict[str, str] | None = None) -> None:
    sink = Sink(relation.schema, relation, entry)
    run(lambda env: lower([sink], env._builder, PlannerSession(config=dict(config or {}))))


def test_null_into_not_null_is_an_error_at_the_record_or_dropped() -> None:
    scan = table(NUMBERS, [(1, 2), (None, 4)])
    entry = sink_entry(ColumnEntry("a", types.IntType(False)), ColumnEntry("b", types.IntType()))
    with pytest.raises(JobFailedError, match="Column 'a' is NOT NULL, however, a null value") as failure:
        written(scan, entry)
    assert "record    Row(a=None, b=4)" in failure.value.report
    written(scan, entry, {"table.exec.sink.not-null-enforcer": "DROP"})
    with pytest.raises(ConfigurationError, match="expected one of error, drop"):
        written(scan, entry, {"table.exec.sink.not-null-enforcer": "NEVER"})


def test_a_table_without_a_connector_cannot_be_written() -> None:
    scan = table(NUMBERS, [(1, 2)])
    entry = TableEntry((ColumnEntry("a", types.IntType()), ColumnEntry("b", types.IntType())), path=("c", "d", "out"))
    with pytest.raises(ProgramError, match="connector"):
        written(scan, entry)


def test_uids_come_from_the_plan_and_are_told_apart_in_one_graph() -> None:
    from dataclasses import replace

    from millstream.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment()
    scan = replace(table(NUMBERS, [(1, 2)]), uid="scan-1")
    for _ in range(2):
        add(scan, Collect(), env)
    assert [node.uid for node in env._builder.nodes.values() if isinstance(node.operation, Read)] == [
        "scan-1",
        "scan-1-2",
    ]
    env._builder.take()
