"""Built-in sums that overflow their declared type wrap around as Flink's do, or fail on request, in columns and record
by record alike. Decimals are exact, and rejected if they have too many digits.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.aggregation.aggregate_columns import Sum
from millstream.aggregation.aggregate_records import RecordMeasure
from millstream.aggregation.groups import Groups
from millstream.aggregation.rolling_columns import overflowing, roll
from millstream.aggregation.rolling_records import INTEGER_BITS, FieldReduce, wrapped
from millstream.common import Configuration, Row, Time, TypeInformation, Types, WatermarkStrategy
from millstream.common.typeinfo import BasicType
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import Aggregates, sum
from millstream.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.errors import JobFailedError, ProgramError
from millstream.records.columns import arrow_type
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate
from millstream.testing import EPOCH, Collect, Script, run

TYPES = {
    BasicType.BYTE: Types.BYTE(),
    BasicType.SHORT: Types.SHORT(),
    BasicType.INT: Types.INT(),
    BasicType.LONG: Types.LONG(),
}


def numbers(basic: BasicType) -> st.SearchStrategy[int]:
    """Numbers of the type, often at its bounds."""
    half = 1 << (INTEGER_BITS[basic] - 1)
    edges = st.sampled_from([half - 1, -half, half // 2, -half // 2, 1, -1, 0])
    return edges | st.integers(-half, half - 1)


@st.composite
def keyed_epochs(draw: Any) -> tuple[BasicType, list[list[tuple[int, int]]]]:
    basic = draw(st.sampled_from([*TYPES]))
    epoch = st.lists(st.tuples(st.integers(0, 2), numbers(basic)), min_size=1, max_size=12)
    return basic, draw(st.lists(epoch, min_size=1, max_size=4))


@given(keyed_epochs())
def test_running_sums_overflow_at_the_same_record_in_columns_and_record_by_record(
    history: tuple[BasicType, list[list[tuple[int, int]]]],
) -> None:
    basic, epochs = history
    kind, strict, lenient = arrow_type(TYPES[basic]), FieldReduce("sum", 0, basic, True), FieldReduce("sum", 0, basic)
    totals: dict[int, int] = {}
    for epoch in epochs:
        keys = sorted({key for key, _ in epoch})
        codes = np.array([keys.index(key) for key, _ in epoch])
        values = pa.array([value for _, value in epoch], kind)
        before = pa.array([totals.get(key) for key in keys], kind)
        has_before = np.array([key in totals for key in keys])
        expected, broken = [], []
        for at, (key, value) in enumerate(epoch):
            try:
                after = strict.reduce(totals[key], value) if key in totals else value
            except ProgramError:
                broken.append(at)
                after = lenient.reduce(totals[key], value)
            totals[key] = after
            expected.append(after)
        found = overflowing(values, codes, before, has_before).tolist()
        # After the first overflow of a key nothing is specified, because the job has failed.
        assert found[:1] == broken[:1]
        rolled = roll("sum", 0, [values], codes, [before], has_before)
        assert rolled.output[0].to_pylist() == expected


@given(st.data(), st.sampled_from([*TYPES]))
def test_window_sums_overflow_alike_in_columns_and_record_by_record(data: st.DataObject, basic: BasicType) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2), numbers(basic) | st.none()), min_size=1, max_size=20))
    cut = data.draw(st.integers(0, len(rows)))
    every_key: list[tuple[int, int | None]] = [(0, None), (1, None), (2, None)]
    measure = BoundAggregate("total", "sum", (AggregateArgument(TYPES[basic], 0),), is_strict=True)
    strict, kernel = RecordMeasure(measure, TYPES[basic]), Sum(measure)

    def combined(rows: list[tuple[int, int | None]]) -> pa.Array:
        column = pa.array([value for _, value in rows], arrow_type(TYPES[basic]))
        parts = kernel.lift([column], np.zeros(len(rows), dtype=np.int64))
        return kernel.combine(parts, Groups(np.array([key for key, _ in rows], dtype=np.int64), 3))[0]

    try:
        halves = pa.concat_arrays([combined([*every_key, *rows[:cut]]), combined([*every_key, *rows[cut:]])])
        parts = kernel.combine([halves], Groups(np.array([0, 1, 2, 0, 1, 2]), 3))
        in_columns: Any = kernel.results(parts).to_pylist()
        runs = kernel.ranged([halves.take(pa.array([0, 3, 1, 4, 2, 5]))])(np.array([0, 2, 4]), np.array([2, 4, 6]))
        assert runs[0].to_pylist() == parts[0].to_pylist()
    except ProgramError:
        in_columns = "refused"
    totals = [strict.empty() for _ in range(3)]
    for key, value in rows:
        totals[key] = strict.add(totals[key], value, 0)
    try:
        one_by_one: Any = list(map(strict.result, totals))
    except ProgramError:
        one_by_one = "refused"
    if basic is BasicType.LONG and in_columns == "refused":
        # A partial sum may overflow LONG where the whole would not.
        assert sum_of_sizes(rows) >= 2**63
    else:
        assert in_columns == one_by_one


def sum_of_sizes(rows: list[tuple[int, int | None]]) -> int:
    total = 0
    for _, value in rows:
        total += abs(value or 0)
    return total


# --- whole programs -----------------------------------------------------------------------------------------------

STRICT = Configuration().set_string("millstream.sum.overflow", "error")


class At:
    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        return int(value.at)


WINDOWS: dict[str, Any] = {
    "panes": TumblingEventTimeWindows.of(Time.days(1)),
    "sliding": SlidingEventTimeWindows.of(Time.days(2), Time.days(1)),
    "sessions": EventTimeSessionWindows.with_gap(Time.days(1)),
}


def summed(type_info: TypeInformation, values: list[Any], how: str, strict: bool, parallelism: int = 1) -> list[Any]:
    row_type = Types.ROW_NAMED(["key", "value", "at"], [Types.STRING(), type_info, Types.LONG()])
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        rows = [row for at, value in enumerate(values) for row in (Row("a", value, at), EPOCH)]
        time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        stream = env.add_source(Script(rows, type_info=row_type)).assign_timestamps_and_watermarks(time)
        keyed = stream.key_by("key")
        if how == "rolling":
            keyed.sum("value").map(lambda row: row.value).sink_to(out)
        else:
            keyed.window(WINDOWS[how]).aggregate(Aggregates(total=sum("value"))).map(lambda row: row.total).sink_to(out)
        if strict:
            env.configure(STRICT)  # set after the stream was built: it takes effect when the job starts

    return run(build, parallelism=parallelism)[out]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("how", ["rolling", *WINDOWS])
@pytest.mark.parametrize("basic", [*TYPES])
def test_a_sum_wraps_around_by_default_and_fails_on_request(basic: BasicType, how: str, parallelism: int) -> None:
    half = 1 << (INTEGER_BITS[basic] - 1)
    wrapping, fitting = [half - 2, 1, 1], [half - 2, 1, -5]
    assert summed(TYPES[basic], wrapping, how, False, parallelism)[-1] == -half == wrapped(half, basic)
    assert summed(TYPES[basic], fitting, how, True, parallelism)[-1] == half - 6
    with pytest.raises(JobFailedError, match=rf"exceeds {basic.name}.*millstream\.sum\.overflow = wrap.*test_overflow"):
        summed(TYPES[basic], wrapping, how, True, parallelism)


@pytest.mark.parametrize("how", ["rolling", *WINDOWS])
def test_decimals_are_summed_exactly_and_rejected_beyond_their_precision(how: str) -> None:
    assert summed(Types.DECIMAL(6, 2), [Decimal("0.10")] * 3, how, False)[-1] == Decimal("0.30")
    with pytest.raises(JobFailedError, match=r"19999\.98.*at most 6 digits"):
        summed(Types.DECIMAL(6, 2), [Decimal("9999.99")] * 2, how, False)


@given(st.lists(st.decimals(-9999, 9999, places=2), min_size=1, max_size=12))
def test_decimal_columns_are_compared_by_numeric_value(values: list[Decimal]) -> None:
    column, none = pa.array(values, pa.decimal128(6, 2)), pa.nulls(1, pa.decimal128(6, 2))
    codes, has_before = np.zeros(len(values), dtype=np.int64), np.array([False])
    for kind, best in (("min", min), ("max", max)):
        rolled = roll(kind, 0, [column], codes, [none], has_before)
        assert rolled.output[0].to_pylist() == [best(values[: at + 1]) for at in range(len(values))]


@pytest.mark.parametrize(
    ("number_type", "values", "totals"),
    [
        (Types.FLOAT(), [1.5, 2.5], [1.5, 4.0]),
        (Types.DOUBLE(), [1.5, 1e308], [1.5, 1e308]),
        (Types.BIG_INT(), [2**70, 1], [2**70, 2**70 + 1]),
        (Types.BIG_DEC(), [Decimal("1.5"), Decimal(1)], [Decimal("1.5"), Decimal("2.5")]),
        (Types.DECIMAL(5, 2), [Decimal("1.5"), Decimal(1)], [Decimal("1.50"), Decimal("2.50")]),
    ],
)
def test_sums_without_overflow_are_unaffected_by_strict_overflow(
    number_type: TypeInformation, values: list[Any], totals: list[Any]
) -> None:
    def program(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("millstream.sum.overflow", "error"))
        record_type = Types.TUPLE([Types.STRING(), number_type])
        pairs = env.from_collection([("a", value) for value in values], record_type).key_by(lambda pair: pair[0])
        pairs.sum(1).sink_to(out)
        pairs.count_window(2).aggregate(Aggregates(total=sum(1))).map(lambda row: row.total).sink_to(windows)

    out, windows = Collect("sums"), Collect("windows")
    result = run(program)
    assert [total for _, total in result[out]] == totals
    assert result[windows] == totals[-1:]
