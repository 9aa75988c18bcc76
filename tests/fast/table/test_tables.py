"""Tables by calls: what each method makes of rows, run in memory."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from millstream.common import Row
from millstream.errors import MillstreamError, MissingNameError, ProgramError, SqlError
from millstream.table import (
    DataTypes,
    EnvironmentSettings,
    ResultKind,
    Schema,
    Table,
    TableDescriptor,
    TableEnvironment,
)
from millstream.table.expressions import (
    CURRENT_RANGE,
    CURRENT_ROW,
    UNBOUNDED_RANGE,
    UNBOUNDED_ROW,
    call_sql,
    col,
    lit,
    range_,
    row,
    row_interval,
    with_all_columns,
    with_columns,
    without_columns,
)
from millstream.table.udf import AggregateFunction, TableAggregateFunction, udaf, udf, udtaf, udtf
from millstream.table.window import Over, Session, Tumble
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


@pytest.fixture
def orders(t_env: TableEnvironment) -> Table:
    return t_env.from_elements([(1, "pen", 2.5), (2, "ink", None), (3, None, 4.0)], ["id", "what", "price"])


def rows(table: Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as found:
        return [tuple(each) for each in found]


def test_select_where_and_names(orders: Table) -> None:
    chosen = orders.where(col("id") > 1).select(col("id") * 10, col("what").upper_case.alias("w"), lit(7))
    assert chosen.get_schema().get_field_names() == ["_c0", "w", "_c2"]
    assert rows(chosen) == [(20, "INK", 7), (30, None, 7)]


def test_columns_are_added_dropped_renamed_and_replaced(orders: Table) -> None:
    assert rows(orders.add_columns((col("id") + 1).alias("next")))[0] == (1, "pen", 2.5, 2)
    assert rows(orders.drop_columns(col("what"), col("price")))[:2] == [(1,), (2,)]
    assert orders.rename_columns(col("id").alias("number")).get_schema().get_field_names() == [
        "number",
        "what",
        "price",
    ]
    assert rows(orders.add_or_replace_columns((col("id") * 2).alias("id")))[1] == (4, "ink", None)
    assert orders.alias("a", "b", "c").get_schema().get_field_names() == ["a", "b", "c"]


def test_columns_are_chosen_by_lists_and_ranges(orders: Table) -> None:
    assert orders.select(with_columns(range_(1, 2))).get_schema().get_field_names() == ["id", "what"]
    assert orders.select(with_columns(range_("what", "price"))).get_schema().get_field_names() == ["what", "price"]
    assert orders.select(without_columns(col("what"))).get_schema().get_field_names() == ["id", "price"]
    assert len(orders.select(with_all_columns()).get_schema().get_field_names()) == 3
    assert len(orders.select(col("*")).get_schema().get_field_names()) == 3
    with pytest.raises(ProgramError, match=r"no column 'wat'\. Did you mean 'what'"):
        orders.select(with_columns(col("wat")))


def test_a_column_is_an_attribute_of_its_table(orders: Table) -> None:
    assert rows(orders.select(orders.id))[0] == (1,)
    with pytest.raises(MissingNameError, match=r"no column 'pirce'\. Did you mean 'price'"):
        _ = orders.pirce
    with pytest.raises(MissingNameError, match="Did you mean 'select'"):
        orders.selct(col("id"))


def test_fields_of_rows_are_found_by_name_by_place_and_all_at_once(t_env: TableEnvironment) -> None:
    table = t_env.from_elements([(1, Row(x=5, y="z"))], ["id", "r"])
    assert rows(table.select(col("r").get("x") + 1, col("r").get(1))) == [(6, "z")]
    flat = table.select(col("id"), col("r").flatten)
    assert flat.get_schema().get_field_names() == ["id", "r$x", "r$y"]
    assert rows(flat) == [(1, 5, "z")]
    with pytest.raises(ProgramError, match="expected 0 to 1"):
        table.select(col("r").get(2))
    with pytest.raises(ProgramError, match="not a ROW"):
        table.select(col("id").flatten)


def test_union_all_puts_rows_together(orders: Table) -> None:
    ids = orders.select(col("id"))
    assert sorted(rows(ids.union_all(ids.where(col("id") == 1)))) == [(1,), (1,), (2,), (3,)]


def test_the_same_table_can_run_again_and_again(orders: Table) -> None:
    assert rows(orders) == rows(orders)


def test_elements_have_inferred_types(t_env: TableEnvironment) -> None:
    table = t_env.from_elements(
        [
            (
                1,
                2.0,
                "a",
                b"b",
                True,
                datetime.date(2024, 1, 1),
                datetime.datetime(2024, 1, 1),
                [1, 2],
                {"k": 1},
                Decimal(3),
            )
        ]
    )
    assert [str(each) for each in table.get_schema().get_field_data_types()] == [
        *("BIGINT", "DOUBLE", "STRING", "BYTES", "BOOLEAN", "DATE", "TIMESTAMP(6)"),
        *("ARRAY<BIGINT>", "MAP<STRING NOT NULL, BIGINT>", "DECIMAL(38, 18)"),
    ]
    assert table.get_schema().get_field_names()[:2] == ["_1", "_2"]


@pytest.mark.parametrize(
    ("elements", "schema", "told"),
    [
        ([], None, "found no elements"),
        ([(1, None)], None, "NULL or empty in every row"),
        ([(1, "a"), (2,)], None, "has 2 fields"),
        ([(1,), ("a",)], None, "has values of"),
        ([(1, "a")], ["id", "b", "c"], "3 names for 2 fields"),
        ([(object(),)], None, "whose type cannot be inferred"),
        ([("a",)], DataTypes.ROW([DataTypes.FIELD("n", DataTypes.INT())]), "expected a whole number"),
        ([(None,)], DataTypes.ROW([DataTypes.FIELD("n", DataTypes.INT(False))]), "None|NULL"),
        ([(1,)], "id INT", "expected DataTypes.ROW"),
    ],
)
def test_elements_that_do_not_fit_are_refused_at_the_line(
    t_env: TableEnvironment, elements: list[Any], schema: Any, told: str
) -> None:
    with pytest.raises(ProgramError, match=told) as raised:
        t_env.from_elements(elements, schema)
    assert "test_tables.py" in str(raised.value)


def test_elements_may_be_dicts_rows_or_single_values(t_env: TableEnvironment) -> None:
    assert rows(t_env.from_elements([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])) == [(1, "x"), (2, "y")]
    assert rows(t_env.from_elements([Row(a=1)])) == [(1,)]
    assert rows(t_env.from_elements([1, 2], DataTypes.INT())) == [(1,), (2,)]


def test_a_descriptor_describes_a_source_and_a_sink(t_env: TableEnvironment, capfd: pytest.CaptureFixture[str]) -> None:
    schema = Schema.new_builder().column("n", DataTypes.INT()).column_by_expression("twice", col("n") * 2).build()
    options = {"number-of-rows": "3", "fields.n.kind": "sequence", "fields.n.start": "1", "fields.n.end": "3"}
    builder = TableDescriptor.for_connector("datagen").schema(schema)
    for key, value in options.items():
        builder = builder.option(key, value)
    t_env.create_temporary_table("numbers", builder.build())
    assert sorted(rows(t_env.from_path("numbers"))) == [(1, 2), (2, 4), (3, 6)]
    assert sorted(rows(t_env.from_descriptor(builder.build()))) == [(1, 2), (2, 4), (3, 6)]
    printed = TableDescriptor.for_connector("print").schema(Schema.new_builder().column("x", DataTypes.INT()).build())
    t_env.from_path("numbers").select(col("twice")).execute_insert(printed.build()).wait()
    assert capfd.readouterr().out.count("+I") == 3


def test_a_query_prints_as_flink_prints_it(orders: Table, capsys: pytest.CaptureFixture[str]) -> None:
    orders.execute().print()
    assert capsys.readouterr().out == (
        "+----+----------------------+--------------------------------+--------------------------------+\n"
        "| op |                   id |                           what |                          price |\n"
        "+----+----------------------+--------------------------------+--------------------------------+\n"
        "| +I |                    1 |                            pen |                            2.5 |\n"
        "| +I |                    2 |                            ink |                         <NULL> |\n"
        "| +I |                    3 |                         <NULL> |                            4.0 |\n"
        "+----+----------------------+--------------------------------+--------------------------------+\n"
        "3 rows in set\n"
    )


def test_no_rows_are_an_empty_set_and_long_texts_are_cut(
    t_env: TableEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    table = t_env.from_elements([("x" * 40,), ("千" * 20,)], ["text"])
    table.where(col("text") == "").execute().print()
    table.execute().print()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Empty set"
    assert lines[4] == "| +I | " + "x" * 27 + "... |"
    assert lines[5] == "| +I |  " + "千" * 13 + "... |"


def test_a_batch_environment_shows_no_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        t_env.execute_sql("SELECT 1 AS first_one").print()
    assert capsys.readouterr().out.splitlines()[1] == "|   first_one |"


def test_pandas_both_ways(t_env: TableEnvironment) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [1.5, 2.5]})
    table = t_env.from_pandas(frame)
    assert [str(each) for each in table.get_schema().get_field_data_types()] == ["BIGINT", "STRING", "DOUBLE"]
    pd.testing.assert_frame_equal(table.to_pandas(), frame)
    named = t_env.from_pandas(frame, ["i", "j", "k"])
    assert named.get_schema().get_field_names() == ["i", "j", "k"]
    small = t_env.from_pandas(frame[["a"]], [DataTypes.SMALLINT()])
    assert str(small.get_schema().get_field_data_type("a")) == "SMALLINT"
    with pytest.raises(ProgramError, match="do not fit the types"):
        t_env.from_pandas(pd.DataFrame({"a": [1 << 20]}), [DataTypes.SMALLINT()])
    empty = table.where(col("a") > 5).to_pandas()
    assert list(empty.columns) == ["a", "b", "c"] and len(empty) == 0


def test_a_function_that_fails_is_told_with_its_line_and_row(t_env: TableEnvironment) -> None:
    @udf(result_type=DataTypes.BIGINT())
    def halves(n: int) -> int:
        return n // (n - 2)

    table = t_env.from_elements([(1,), (2,)], ["n"]).select(halves(col("n")))
    with pytest.raises(Exception, match="ZeroDivisionError") as raised:
        rows(table)
    assert "halves" in str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT halves(n) FROM numbers", r"halves takes the arguments \(n, by\), got 1"),
        ("SELECT halves(n, n, n) FROM numbers", r"halves takes the arguments \(n, by\), got 3"),
        (
            "SELECT m.n FROM numbers MATCH_RECOGNIZE (ORDER BY n MEASURES A.n AS n PATTERN (A) DEFINE A AS A.n > 0) m",
            "MATCH_RECOGNIZE is not built yet: it comes with a later version. Until then: match the pattern",
        ),
        ("SELECT * FROM numbers FOR SYSTEM_TIME AS OF TIMESTAMP '2020-01-01 00:00:00'", "not joined is not built yet"),
    ],
)
def test_what_cannot_run_is_told_when_it_is_planned(t_env: TableEnvironment, query: str, words: str) -> None:
    t_env.create_temporary_view("numbers", t_env.from_elements([(1,), (2,)], ["n"]))
    t_env.create_temporary_function("halves", udf(lambda n, by: n // by, result_type=DataTypes.BIGINT()))
    with pytest.raises(MillstreamError, match=words):
        t_env.sql_query(query)


def test_rows_around_rows_are_what_sql_says_of_them(t_env: TableEnvironment) -> None:
    t_env.create_temporary_view("numbers", t_env.from_elements([("a", 1), ("a", 5), ("b", 2), ("a", 3)], ["k", "v"]))
    numbers = t_env.from_path("numbers")
    for window, text in (
        (Over.partition_by(col("k")).order_by(col("v")), "PARTITION BY k ORDER BY v"),
        (Over.order_by(col("v").desc).preceding(UNBOUNDED_ROW), "ORDER BY v DESC ROWS UNBOUNDED PRECEDING"),
        (
            Over.partition_by(col("k")).order_by(col("v")).preceding(row_interval(1)).following(CURRENT_ROW),
            "PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
        ),
        (
            Over.order_by(col("v")).preceding(lit(2)).following(CURRENT_RANGE),
            "ORDER BY v RANGE BETWEEN 2 PRECEDING AND CURRENT ROW",
        ),
        (Over.order_by(col("v")).preceding(UNBOUNDED_RANGE), "ORDER BY v"),
    ):
        said = numbers.over_window(window.alias("w")).select(
            col("k"), col("v").sum.over(col("w")), col("v").count.distinct.over("w")
        )
        calls = "SUM(v) OVER w, COUNT(DISTINCT v) OVER w"
        written = t_env.sql_query(f"SELECT k, {calls} FROM numbers WINDOW w AS ({text})")
        plans = [table.explain().split("== Optimized Physical Plan ==")[1].splitlines()[2] for table in (said, written)]
        assert plans[0] == plans[1]
    assert sorted(rows(said)) == [("a", 1, 1), ("a", 6, 3), ("a", 11, 4), ("b", 3, 2)]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            lambda t: t.over_window(
                Over.order_by(col("id")).preceding(row_interval(2)).following(CURRENT_RANGE).alias("w")
            ),
            "Use the same unit in both",
        ),
        (
            lambda t: t.over_window(Over.order_by(col("id")).alias("w")).select(col("id").sum.over(col("v"))),
            "Window 'v' not found",
        ),
        (lambda t: t.select("id, what"), r"col\(\"id\"\), col\(\"what\"\)"),
        (lambda t: t.where("id > 1"), r"Write where\(call_sql\(\"id > 1\"\)\)"),
        (lambda t: t.select([col("id")]), r"select\(\*columns\)"),
        (lambda t: t.select(3), "expected an expression"),
        (lambda t: t.select(col("idd")), "id"),
        (lambda t: t.where(col("id")), "BOOLEAN"),
        (lambda t: t.add_columns(lit(1).alias("id")), "already"),
        (lambda t: t.fetch(-1), "expected a number of rows"),
        (lambda t: t.union_all("x"), "expected a table"),
        (lambda t: t.aggregate(None), r"aggregate: found None, expected a function made by udaf"),
        (lambda t: t.flat_aggregate(col("id")), r"flat_aggregate: found .* expected a function made by udtaf"),
        (lambda t: t.window("w"), "Tumble.over"),
        (
            lambda t: t.window(Tumble.over(lit(1).day).on(col("id")).alias("w")).group_by(col("id")),
            "not among the groups",
        ),
        (lambda t: t.window(Session.with_gap(lit(1).day).on(col("id")).alias("w")).select(col("id")), "group_by"),
        (lambda t: t.group_by(col("id")).where(col("id") > 1), r"comes select\(...\)"),
        (lambda t: t.execute_insert("nowhere"), "nowhere"),
        (lambda t: t.map(str), "made by udf"),
        (lambda t: t.select(call_sql("id +")), "line 1"),
        (lambda t: t.explain("JSON"), "ExplainDetail"),
    ],
)
def test_a_wrong_call_says_what_to_write(orders: Table, wrong: Any, told: str) -> None:
    with pytest.raises((ProgramError, SqlError), match=told):
        wrong(orders)


def test_a_result_says_what_it_is(orders: Table, t_env: TableEnvironment) -> None:
    result = orders.execute()
    assert result.get_result_kind() is ResultKind.SUCCESS_WITH_CONTENT and result.get_job_client() is not None
    assert result.get_resolved_schema().get_column_names() == ["id", "what", "price"]
    result.wait(10_000)
    assert len(list(result.collect())) == 3
    made = t_env.execute_sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS a")
    assert made.get_result_kind() is ResultKind.SUCCESS and made.get_job_client() is None


def test_a_row_of_expressions_is_a_value(orders: Table) -> None:
    assert tuple(rows(orders.select(row(col("id"), "x").alias("r")))[0][0]) == (1, "x")


class Largest(TableAggregateFunction):
    """The two largest first values of whole rows."""

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator.append(args[0][0])
        accumulator.sort(reverse=True)
        del accumulator[2:]

    def emit_value(self, accumulator: Any) -> Any:
        for value in accumulator:
            yield Row(value)

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(DataTypes.BIGINT())

    def get_result_type(self) -> Any:
        return DataTypes.ROW([DataTypes.FIELD("value", DataTypes.BIGINT())])


def test_a_table_aggregate_without_arguments_takes_whole_rows() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    numbers = t_env.from_elements([(1, "a"), (5, "b"), (3, "a"), (2, "a")], ["n", "k"])
    by_key = numbers.group_by(col("k")).flat_aggregate(udtaf(Largest())).select(col("k"), col("value"))
    with jobs_in_memory(), by_key.execute().collect() as found:
        assert sorted(tuple(row) for row in found) == [("a", 2), ("a", 3), ("b", 5)]


class Named(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += 1

    def get_value(self, accumulator: Any) -> Any:
        return Row("field", accumulator[0])


class NamedRows(TableAggregateFunction):
    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += 1

    def emit_value(self, accumulator: Any) -> Any:
        yield Row("field", accumulator[0])


NAMED = DataTypes.ROW([DataTypes.FIELD("k", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.BIGINT())])
COUNTED = DataTypes.ARRAY(DataTypes.BIGINT())


def test_a_group_keeps_its_name_beside_a_field_of_that_name_in_the_result_of_an_aggregate(
    t_env: TableEnvironment,
) -> None:
    numbers = t_env.from_elements([("a", 1), ("b", 2), ("a", 3)], ["k", "v"])
    by_key = numbers.group_by(col("k"))
    for made in (
        by_key.aggregate(udaf(Named(), result_type=NAMED, accumulator_type=COUNTED)),
        by_key.flat_aggregate(udtaf(NamedRows(), result_type=NAMED, accumulator_type=COUNTED)),
    ):
        chosen = made.select(col("*"))
        assert chosen.get_schema().get_field_names() == ["k", "TMP_0$k", "n"]
        kept = made.select(col("k"), col("n"))
        assert kept.get_schema().get_field_names() == ["k", "n"]
        assert set(rows(kept)) == {("a", 2), ("b", 1)}
        assert set(rows(chosen)) == {("a", "field", 2), ("b", "field", 1)}


def test_an_alias_of_a_result_that_is_the_name_of_a_group_is_ambiguous(t_env: TableEnvironment) -> None:
    numbers = t_env.from_elements([("a", 1)], ["k", "v"])
    function = udaf(Named(), result_type=NAMED, accumulator_type=COUNTED)
    for grouped in (numbers.group_by(col("k")), numbers.group_by(col("v").alias("k"))):
        with pytest.raises(ProgramError, match=r"aggregate: the name 'k' is ambiguous: a group has that name"):
            grouped.aggregate(function.alias("k", "n"))
        with pytest.raises(ProgramError, match=r"the name 'k' is ambiguous"):
            grouped.aggregate(col("v").sum.alias("k"))
        with pytest.raises(ProgramError, match=r"the name 'n' is ambiguous: two columns"):
            grouped.aggregate(function.alias("n", "n"))
    rows_of = udtaf(NamedRows(), result_type=NAMED, accumulator_type=COUNTED)
    with pytest.raises(ProgramError, match=r"flat_aggregate: the name 'k' is ambiguous"):
        numbers.group_by(col("k")).flat_aggregate(rows_of.alias("k", "n"))


@udtf(result_types=[DataTypes.BIGINT(), DataTypes.BIGINT()])
def twice(value: int) -> Any:
    yield value, value


@pytest.mark.parametrize(
    ("method", "use"),
    [
        ("join_lateral", lambda t: t.join_lateral(twice(col("id")).alias("what", "other"))),
        ("join_lateral", lambda t: t.left_outer_join_lateral(twice(col("id")).alias("a", "price"))),
        ("flat_map", lambda t: t.flat_map(twice(col("id")).alias("a", "a"))),
        ("rename_columns", lambda t: t.rename_columns(col("price").alias("id"))),
        ("alias", lambda t: t.alias("a", "a")),
        ("alias", lambda t: t.alias("price")),
    ],
)
def test_two_columns_of_one_name_are_refused_as_in_flink(orders: Table, method: str, use: Any) -> None:
    with pytest.raises(ProgramError, match=rf"{method}: the column name '\w+' is ambiguous.*test_tables\.py:\d+"):
        use(orders)
