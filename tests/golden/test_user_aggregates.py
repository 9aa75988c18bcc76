"""User-defined aggregates match a loop over the rows, in groups and in windows, across epochs, failures and
parallelism.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from changing_tables import TYPE, Changelog, materialised, random_changelog

from millstream.common.time import Duration
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import MillstreamError
from millstream.table import DataTypes, EnvironmentSettings, ListView, MapView, StreamTableEnvironment, TableEnvironment
from millstream.table.expressions import UNBOUNDED_RANGE, col, lit
from millstream.table.schema import Schema
from millstream.table.udf import AggregateFunction, TableAggregateFunction, udaf, udtaf
from millstream.table.window import Over, Session, Slide, Tumble
from millstream.testing import CRASH, EPOCH, Collect, Script, run
from millstream.testing.local_jobs import jobs_in_memory

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Middle(AggregateFunction):
    """The median. It needs all values, in a list."""

    def create_accumulator(self) -> Any:
        return Row(ListView())

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0].add(args[0])

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            held = list(accumulator[0])
            held.remove(args[0])
            accumulator[0].clear()
            accumulator[0].add_all(held)

    def merge(self, accumulator: Any, accumulators: Any) -> None:
        for other in accumulators:
            accumulator[0].add_all(other[0].get())

    def get_value(self, accumulator: Any) -> Any:
        return middle(list(accumulator[0]))

    def get_result_type(self) -> Any:
        return DataTypes.BIGINT()

    def get_accumulator_type(self) -> Any:
        return DataTypes.ROW([DataTypes.FIELD("held", DataTypes.LIST_VIEW(DataTypes.BIGINT()))])


class Unmerged(Middle):
    """The same without `merge`, so that panes cannot be combined."""

    merge = AggregateFunction.merge
    retract = AggregateFunction.retract


class Occurrences(TableAggregateFunction):
    """Every text with its number of occurrences."""

    def create_accumulator(self) -> Any:
        return Row(MapView())

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        seen = accumulator[0]
        seen[args[0]] = 1 + (seen.get(args[0]) if seen.contains(args[0]) else 0)

    def retract(self, accumulator: Any, *args: Any) -> None:
        seen = accumulator[0]
        seen[args[0]] -= 1
        if not seen[args[0]]:
            seen.remove(args[0])

    def emit_value(self, accumulator: Any) -> Any:
        for text, count in accumulator[0].items():
            yield Row(text, count)

    def get_result_type(self) -> Any:
        return DataTypes.ROW(
            [DataTypes.FIELD("text", DataTypes.STRING()), DataTypes.FIELD("times", DataTypes.BIGINT())]
        )

    def get_accumulator_type(self) -> Any:
        return DataTypes.ROW([DataTypes.FIELD("seen", DataTypes.MAP_VIEW(DataTypes.STRING(), DataTypes.BIGINT()))])


def middle(values: list[Any]) -> Any:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def groups_of(rows: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    groups: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    return groups


def after_each_epoch(changelog: Changelog, build: Any, *, only_grows: bool, crashes: Any = (), parallelism: int) -> Any:
    """The contents of a Table API table after each epoch."""
    out = Collect()

    def program(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(changelog.script(crashes), type_info=TYPE), type_info=TYPE)
        table = t_env.from_data_stream(stream) if only_grows else t_env.from_changelog_stream(stream)
        t_env.create_temporary_view("t", table)
        t_env.to_changelog_stream(build(t_env, table)).sink_to(out)

    collected = run(program, parallelism=parallelism).of(out)
    for epoch in range(1, len(changelog.epochs) + 1):
        rows = materialised(row for rows in changelog.epochs[:epoch] for row in rows).elements()
        yield list(rows), materialised(record.value for record in collected if record.epoch <= epoch)


@pytest.mark.parametrize("seed", range(9))
def test_groups_match_a_loop_over_their_rows_after_every_epoch(seed: int) -> None:
    random = Random(seed)
    only_grows = seed % 3 == 0
    changelog = random_changelog(random, 6, 12, only_grows=only_grows)

    def build(t_env: Any, table: Any) -> Any:
        t_env.create_temporary_function("middle", udaf(Middle()))
        return t_env.sql_query(
            "SELECT k, middle(v), middle(DISTINCT v), middle(v) FILTER (WHERE s = 'a'), COUNT(*) FROM t GROUP BY k"
        )

    epochs = after_each_epoch(
        changelog, build, only_grows=only_grows, crashes=[random.randrange(6)], parallelism=random.choice((1, 2, 4))
    )
    for rows, given in epochs:
        expected = Counter(
            (
                key,
                middle([row[1] for row in held]),
                middle(list({row[1] for row in held})),
                middle([row[1] for row in held if row[2] == "a"]),
                len(held),
            )
            for key, held in groups_of(rows).items()
        )
        assert given == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_table_aggregate_emits_the_rows_of_each_group(seed: int) -> None:
    random = Random(100 + seed)
    changelog = random_changelog(random, 5, 10, only_grows=False)

    def build(t_env: Any, table: Any) -> Any:
        counted = table.group_by(col("k")).flat_aggregate(udtaf(Occurrences())(col("s")).alias("text", "times"))
        return counted.select(col("times"), col("k"), col("text"))

    for rows, given in after_each_epoch(
        changelog, build, only_grows=False, crashes=[2], parallelism=random.choice((1, 3))
    ):
        expected = Counter(
            (count, key, text)
            for key, held in groups_of(rows).items()
            for text, count in Counter(row[2] for row in held).items()
        )
        assert given == expected


BY_THEMSELVES: dict[str, Callable[[Any], Any]] = {
    "udaf": lambda table: table.group_by(col("k")).select(col("k"), udaf(Middle())(col("v"))),
    "distinct": lambda table: table.group_by(col("k")).select(col("k"), udaf(Middle())(col("v")).distinct),
    "udtaf": lambda table: (
        table.group_by(col("k"))
        .flat_aggregate(udtaf(Occurrences())(col("s")).alias("text", "times"))
        .select(col("k"), col("text"), col("times"))
    ),
    "over": lambda table: table.over_window(
        Over.partition_by(col("k")).order_by(col("v")).preceding(UNBOUNDED_RANGE).alias("w")
    ).select(col("k"), udaf(Middle())(col("v")).over(col("w"))),
}


@pytest.mark.parametrize("name", list(BY_THEMSELVES))
def test_a_program_with_unnamed_functions_resumes_after_a_restart(name: str) -> None:
    # Each start creates new function objects; their state is recognised nevertheless.
    script, store = random_changelog(Random(name), 4, 8, only_grows=False).script(), f"started-again-{name}"

    def ran(store: str, epochs: int | None) -> list[Row]:
        out = Collect()

        def program(env: Any) -> None:
            t_env = StreamTableEnvironment.create(env)
            stream = env.add_source(Script(script, type_info=TYPE), type_info=TYPE).uid("t")
            table = BY_THEMSELVES[name](t_env.from_changelog_stream(stream))
            t_env.to_changelog_stream(table).sink_to(out).uid("out")

        return [record.value for record in run(program, store=store, epochs=epochs).of(out)]

    assert materialised([*ran(store, 2), *ran(store, None)]) == materialised(ran(f"{store}-whole", None))


ROW = Types.ROW_NAMED(["k", "v", "at"], [Types.INT(), Types.LONG(), Types.LONG()])


def moment(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def in_windows(rows: list[Row], query: Any, parallelism: int, crash: int) -> list[tuple[Any, ...]]:
    out = Collect()
    script: list[Any] = []
    for place, row in enumerate(rows):
        script += [row] + ([CRASH] if place == crash else []) + ([EPOCH] if place % 4 == 3 else [])

    def program(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        waits = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1000))
        stream = env.add_source(Script(script, type_info=ROW), type_info=ROW)
        timed = stream.assign_timestamps_and_watermarks(waits.with_timestamp_assigner(lambda row, _: row.at))
        schema = Schema.new_builder().column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
        table = t_env.from_data_stream(timed, schema.watermark("ts", "SOURCE_WATERMARK()").build())
        t_env.create_temporary_view("t", table)
        t_env.create_temporary_function("middle", udaf(Middle()))
        t_env.create_temporary_function("unmerged", udaf(Unmerged()))
        # As PyFlink calls it: once per window, with a Series.
        series = udaf(lambda values: int(values.max()), result_type=DataTypes.BIGINT(), func_type="pandas")
        t_env.create_temporary_function("largest", series)
        given = t_env.sql_query(query) if isinstance(query, str) else query(t_env, table)
        t_env.to_data_stream(given).sink_to(out)

    return sorted(tuple(record.value) for record in run(program, parallelism=parallelism).of(out))


def random_rows(random: Random) -> list[Row]:
    at = 0
    rows = []
    for _ in range(24):
        at += random.choice((0, 50, 120, 400))
        rows.append(Row(k=random.randrange(3), v=random.randrange(20), at=max(0, at - random.randrange(200))))
    return rows


MEASURES = "middle(v), unmerged(v), largest(v), middle(DISTINCT v), MAX(v)"


def results(held: list[int]) -> tuple[Any, ...]:
    return middle(held), middle(held), max(held), middle(list(set(held))), max(held)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("windows", "spans"),
    [
        (
            "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.5' SECOND)",
            lambda at: [(at // 500 * 500, at // 500 * 500 + 500)],
        ),
        (
            "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0.25' SECOND, INTERVAL '0.5' SECOND)",
            lambda at: [(start, start + 500) for start in (at // 250 * 250, at // 250 * 250 - 250)],
        ),
        (
            "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.25' SECOND, INTERVAL '0.5' SECOND)",
            lambda at: [
                (at // 500 * 500, at // 500 * 500 + size) for size in (250, 500) if at < at // 500 * 500 + size
            ],
        ),
    ],
)
def test_windows_match_a_loop_over_their_rows(windows: str, spans: Any, seed: int) -> None:
    random = Random(seed)
    rows = random_rows(random)
    query = f"SELECT k, window_start, window_end, {MEASURES} FROM TABLE({windows}) GROUP BY k, window_start, window_end"
    held: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        for start, end in spans(row.at):
            held[row.k, moment(start), moment(end)].append(row.v)
    expected = sorted((*key, *results(values)) for key, values in held.items())
    assert in_windows(rows, query, random.choice((1, 2)), random.randrange(24)) == expected


@pytest.mark.parametrize("seed", range(6))
def test_sessions_match_a_loop_over_their_rows(seed: int) -> None:
    random = Random(seed)
    rows = random_rows(random)
    session = "(ts, INTERVAL '0.15' SECOND)"
    query = f"SELECT k, SESSION_START{session}, {MEASURES} FROM t GROUP BY k, SESSION{session}"
    expected = []
    for key in {row.k for row in rows}:
        open_session: list[Row] = []
        for row in [*sorted((each for each in rows if each.k == key), key=lambda each: each.at), None]:
            if open_session and (row is None or row.at - open_session[-1].at > 150):
                values = [each.v for each in open_session]
                expected.append((key, moment(open_session[0].at), *results(values)))
                open_session = []
            if row is not None:
                open_session.append(row)
    assert in_windows(rows, query, random.choice((1, 2)), random.randrange(24)) == sorted(expected)


@pytest.mark.parametrize("window", ["tumble", "slide", "session"])
def test_table_api_windows_match_sql_windows(window: str) -> None:
    rows = random_rows(Random(7))
    groups = {
        "tumble": Tumble.over(lit(500).milli).on(col("ts")).alias("w"),
        "slide": Slide.over(lit(500).milli).every(lit(250).milli).on(col("ts")).alias("w"),
        "session": Session.with_gap(lit(150).milli).on(col("ts")).alias("w"),
    }
    legacy = {
        "tumble": ("TUMBLE_START", "TUMBLE", "INTERVAL '0.5' SECOND"),
        "slide": ("HOP_START", "HOP", "INTERVAL '0.25' SECOND, INTERVAL '0.5' SECOND"),
        "session": ("SESSION_START", "SESSION", "INTERVAL '0.15' SECOND"),
    }
    start, function, sizes = legacy[window]
    text = f"SELECT {start}(ts, {sizes}), k, middle(v) + 1 FROM t GROUP BY k, {function}(ts, {sizes})"

    def selected(t_env: Any, table: Any) -> Any:
        grouped = table.window(groups[window]).group_by(col("w"), col("k"))
        return grouped.aggregate(udaf(Middle())(col("v")).alias("m")).select(col("w").start, col("k"), col("m") + 1)

    assert in_windows(rows, selected, 2, 5) == in_windows(rows, text, 1, 9)


class Sums(AggregateFunction):
    """Two columns, over whole rows."""

    def create_accumulator(self) -> Any:
        return [0, 0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += args[0].v
        accumulator[1] += 1

    def get_value(self, accumulator: Any) -> Any:
        return Row(*accumulator)

    def get_result_type(self) -> Any:
        return DataTypes.ROW([DataTypes.FIELD("total", DataTypes.BIGINT()), DataTypes.FIELD("n", DataTypes.BIGINT())])

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(DataTypes.BIGINT())


def batch_table() -> Any:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    return t_env.from_elements([(1, 2), (1, 4), (2, 5)], ["k", "v"])


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    with jobs_in_memory(), table.execute().collect() as results_:
        return sorted(tuple(row) for row in results_)


def test_an_aggregate_over_whole_rows_emits_its_fields_as_columns() -> None:
    table = batch_table()
    summed = table.group_by(col("k")).aggregate(udaf(Sums()).alias("a", "b"))
    assert rows_of(summed.select(col("b"), col("k"), col("a") * 10)) == [(1, 2, 50), (2, 1, 60)]
    assert rows_of(table.aggregate(udaf(Sums())).select(col("*"))) == [(11, 3)]


def test_a_pandas_aggregate_receives_a_whole_group_in_batch_mode() -> None:
    table = batch_table()

    @udaf(result_type=DataTypes.DOUBLE(), func_type="pandas")
    def mean(values: Any) -> Any:
        return values.mean()

    assert rows_of(table.group_by(col("k")).select(col("k"), mean(col("v")))) == [(1, 3.0), (2, 5.0)]
    spread = udaf(
        lambda frame: (int(frame.v.min()), int(frame.v.max())),
        result_type=DataTypes.ROW([DataTypes.FIELD("low", DataTypes.INT()), DataTypes.FIELD("high", DataTypes.INT())]),
        func_type="pandas",
    )
    assert rows_of(table.group_by(col("k")).aggregate(spread).select(col("k"), col("low"), col("high"))) == [
        (1, 2, 4),
        (2, 5, 5),
    ]


def refusal(query: Any) -> str:
    changelog = Changelog([[Row(1, 2, "a", 0.5)]])
    with pytest.raises(MillstreamError) as error:
        list(after_each_epoch(changelog, query, only_grows=False, parallelism=1))
    report = getattr(error.value, "report", "")
    return f"{error.value} {report}"


def test_an_aggregate_without_retract_is_rejected_on_a_retracting_input() -> None:
    def build(t_env: Any, table: Any) -> Any:
        return table.group_by(col("k")).select(udaf(Unmerged(), name="unmerged")(col("v")))

    assert "the aggregate 'unmerged' has no retract(), and its input deletes or updates rows" in refusal(build)


def test_a_pandas_aggregate_is_rejected_in_streaming_groups() -> None:
    def build(t_env: Any, table: Any) -> Any:
        series = udaf(lambda values: 1, result_type=DataTypes.BIGINT(), func_type="pandas", name="series")
        return table.group_by(col("k")).select(series(col("v")))

    assert "the aggregate 'series' takes pandas Series" in refusal(build)


def test_a_function_that_raises_is_reported_with_the_row() -> None:
    class Strict(Middle):
        def accumulate(self, accumulator: Any, *args: Any) -> None:
            raise ValueError("not this one")

    def build(t_env: Any, table: Any) -> Any:
        return table.group_by(col("k")).select(udaf(Strict())(col("v"), col("s")))

    told = refusal(build)
    assert "not this one" in told and "(2, 'a')" in told


def test_a_result_of_another_type_than_declared_is_rejected() -> None:
    class Wrong(Middle):
        def get_value(self, accumulator: Any) -> Any:
            return "text"

    def build(t_env: Any, table: Any) -> Any:
        return table.group_by(col("k")).select(udaf(Wrong(), name="wrong")(col("v")))

    assert "the aggregate 'wrong': it returned 'text' (str), but declares BIGINT" in refusal(build)


class Sum(AggregateFunction):
    """A sum that starts at the value set by `open`."""

    def open(self, function_context: Any) -> None:
        self.first = 100

    def create_accumulator(self) -> Any:
        return [self.first]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += args[0]

    def retract(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] -= args[0]

    def get_value(self, accumulator: Any) -> int:
        return int(accumulator[0])

    def get_result_type(self) -> Any:
        return DataTypes.BIGINT()

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(DataTypes.BIGINT())


OF_NO_ROWS = "(SELECT total(v) FROM t AS o WHERE o.v = t.k)"


@pytest.mark.parametrize("value", [OF_NO_ROWS, f"{OF_NO_ROWS} * 2", f"CAST({OF_NO_ROWS} AS STRING)"])
@pytest.mark.parametrize("only_grows", [True, False])
def test_a_correlated_subquery_without_rows_has_the_aggregates_empty_result(value: str, only_grows: bool) -> None:
    changelog = Changelog([[Row(1, 5, "a", 0.5)], [Row(2, 1, "a", 0.5)], [Row(3, 1, "b", 0.5)]])

    def build(t_env: Any, table: Any) -> Any:
        t_env.create_temporary_function("total", udaf(Sum()))
        return t_env.sql_query(f"SELECT k, {value} AS total FROM t")

    def shown(total: int) -> Any:
        return total * 2 if "* 2" in value else str(total) if "STRING" in value else total

    for rows, given in after_each_epoch(changelog, build, only_grows=only_grows, crashes=[1], parallelism=2):
        assert given == Counter((k, shown(100 + sum(v for _, v, *_ in rows if v == k))) for k, *_ in rows)
