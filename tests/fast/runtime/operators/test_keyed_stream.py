"""Keyed streams: functions with state of a key, running aggregations, and columnar functions, in whole jobs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Row, Types
from millstream.compiler.explain import explain
from millstream.datastream import (
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millstream.datastream.functions import KeyedBatchFunction, KeyedBatchResult
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import JobFailedError, ProgramError
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, run

PAGE = Path(__file__).resolve().parents[4] / "docs" / "datastream" / "keyed-state.md"
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROW = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])
PAIRS = [("a", 1), ("b", 10), ("a", 2), ("c", 5), ("a", 4), ("b", -3), ("c", 5)]
SHAPES = [(1, None), (2, 2), (3, 1)]


class Counting:
    """Counts the records of each key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def next(self) -> int:
        count: int = (self.count.value() or 0) + 1
        self.count.update(count)
        return count


class Numbered(Counting, MapFunction):
    def map(self, value: Any) -> Any:
        return (*value, self.next())


class SecondsOnly(Counting, FilterFunction):
    def filter(self, value: Any) -> bool:
        return self.next() == 2


class AsOftenAsSeen(Counting, FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        for _ in range(self.next()):
            yield value


class NumberedByProcess(Counting, ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (*value, self.next())


def output(
    build: Any, values: list[Any], type_info: Any = PAIR, *, parallelism: int = 1, epoch_records: int | None = None
) -> list[Any]:
    """What `build` makes of a stream of `values`, run in memory."""
    out = Collect()
    result = run(
        lambda env: build(env.from_collection(values, type_info)).sink_to(out),
        parallelism=parallelism,
        epoch_records=epoch_records,
    )
    return result[out]


def numbered(values: list[Any]) -> list[Any]:
    seen: Counter[Any] = Counter()
    return [(*value, seen.update([value[0]]) or seen[value[0]]) for value in values]


# --- functions with state -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("parallelism", "epoch_records"), SHAPES)
@pytest.mark.parametrize("key", [0, lambda pair: pair[0]], ids=["field", "callable"])
def test_map_filter_flat_map_and_process_hold_state_of_their_key(
    key: Any, parallelism: int, epoch_records: int | None
) -> None:
    def out(build: Any) -> list[Any]:
        return sorted(output(build, PAIRS, parallelism=parallelism, epoch_records=epoch_records))

    assert out(lambda s: s.key_by(key).map(Numbered())) == sorted(numbered(PAIRS))
    assert out(lambda s: s.key_by(key).process(NumberedByProcess())) == sorted(numbered(PAIRS))
    seconds = sorted(value[:2] for value in numbered(PAIRS) if value[2] == 2)
    assert out(lambda s: s.key_by(key).filter(SecondsOnly())) == seconds
    assert out(lambda s: s.key_by(key).flat_map(AsOftenAsSeen(), PAIR)) == sorted(
        value[:2] for value in numbered(PAIRS) for _ in range(value[2])
    )


def test_plain_callables_run_as_on_any_stream() -> None:
    def build(stream: DataStream) -> DataStream:
        return stream.key_by(0).map(lambda p: p[1], Types.LONG()).key_by(lambda n: n).filter(lambda n: n > 0)

    assert sorted(output(build, PAIRS)) == [1, 2, 4, 5, 5, 10]


def test_a_process_function_on_a_keyed_stream_has_side_outputs_and_time() -> None:
    class Split(Counting, ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            assert ctx.timer_service().current_processing_time() is not None
            yield (OutputTag("later"), value) if self.next() > 1 else value

    first, later = Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        split = env.from_collection(PAIRS).key_by(0).process(Split())
        split.sink_to(first)
        split.get_side_output(OutputTag("later")).sink_to(later)

    result = run(build)
    assert result[first] == [("a", 1), ("b", 10), ("c", 5)]
    assert result[later] == [("a", 2), ("a", 4), ("b", -3), ("c", 5)]


def test_state_is_where_it_was_after_a_crash() -> None:
    out = Collect()
    script: list[Any] = [*PAIRS[:2], EPOCH, *PAIRS[2:4], CRASH, *PAIRS[4:]]
    result = run(lambda env: env.add_source(Script(script)).key_by(0).map(Numbered()).sink_to(out))
    assert sorted(result[out]) == sorted(numbered(PAIRS)) and result.restarts == 1


# --- keys by field ------------------------------------------------------------------------------------------


def test_a_field_by_position_or_name_is_a_key() -> None:
    rows = [Row("a", 1), Row("b", 2), Row("a", 3)]
    expected = [Row(user="a", amount=1), Row(user="a", amount=4), Row(user="b", amount=2)]
    for key in (0, "user"):
        found = output(lambda s, key=key: s.key_by(key).sum("amount"), rows, ROW, parallelism=2)
        assert sorted(found, key=tuple) == expected
    named = output(lambda s: s.key_by("user").map(lambda row: row), [{"user": 1}, {"user": 2}], None)
    assert sorted(record["user"] for record in named) == [1, 2]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "", "ü"]) | st.none(), st.integers(-5, 5)), max_size=20))
def test_a_field_and_a_callable_give_the_same_keys(pairs: list[Any]) -> None:
    by_field = output(lambda s: s.key_by(0).sum(1), pairs, parallelism=3, epoch_records=7)
    by_call = output(lambda s: s.key_by(lambda p: p[0], Types.STRING()).sum(1), pairs, parallelism=3, epoch_records=7)
    assert by_field == by_call


def test_a_field_that_is_not_there_is_refused() -> None:
    env = StreamExecutionEnvironment()
    pairs, numbers = env.from_collection(PAIRS, PAIR), env.from_collection([1], Types.LONG())
    for wrong, words in (
        (lambda: pairs.key_by(2), "from 0 to 1"),
        (lambda: pairs.key_by("user"), "Name one of"),
        (lambda: numbers.key_by(0), "only rows and tuples have fields"),
        (lambda: pairs.key_by(True), "expected KeySelector or a callable"),
    ):
        with pytest.raises(ProgramError, match=words) as refused:
            wrong()
        assert refused.value.at is not None and refused.value.at.startswith("test_keyed_stream.py")
    with pytest.raises(JobFailedError, match="has no such field"):
        output(lambda s: s.key_by(5).map(lambda p: p), PAIRS, None)
    with pytest.raises(JobFailedError, match=r"None .* has no such field"):
        output(lambda s: s.key_by(0).map(lambda p: p), [("a", 1), None], parallelism=2)


# --- reduce and its kin -------------------------------------------------------------------------------------


class Larger(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return max(value1, value2, key=lambda pair: pair[1])


@pytest.mark.parametrize(("parallelism", "epoch_records"), SHAPES)
@pytest.mark.parametrize("type_info", [PAIR, None], ids=["typed", "untyped"])
def test_reduce_gives_the_result_so_far_for_every_record(
    type_info: Any, parallelism: int, epoch_records: int | None
) -> None:
    def out(function: Any) -> list[Any]:
        shape = {"parallelism": parallelism, "epoch_records": epoch_records}
        return sorted(output(lambda s: s.key_by(lambda p: p[0]).reduce(function), PAIRS, type_info, **shape))

    expected = [("a", 1), ("a", 3), ("a", 7), ("b", 7), ("b", 10), ("c", 5), ("c", 10)]
    assert out(lambda so_far, pair: (so_far[0], so_far[1] + pair[1])) == expected
    assert out(Larger()) == [("a", 1), ("a", 2), ("a", 4), ("b", 10), ("b", 10), ("c", 5), ("c", 5)]


def test_a_reduce_function_may_change_its_first_argument() -> None:
    def add(so_far: Any, row: Any) -> Any:
        so_far[1] += row[1]
        return so_far

    def build(stream: DataStream) -> DataStream:
        return stream.key_by(lambda row: row[0]).reduce(add)

    for type_info in (ROW, None):
        found = output(build, [Row("a", 1), Row("a", 2), Row("a", 3)], type_info)
        assert [row[1] for row in found] == [1, 3, 6]


def test_a_numpy_function_can_reduce() -> None:
    assert output(lambda s: s.key_by(lambda n: n % 2).reduce(np.maximum), [1, 4, 3, 2], None) == [1, 4, 3, 4]


@pytest.mark.parametrize("type_info", [Types.LONG(), None], ids=["typed", "untyped"])
def test_plain_numbers_are_their_own_field_0(type_info: Any) -> None:
    for kind, expected in (("sum", [3, 4, 6]), ("min", [3, 4, 2]), ("max_by", [3, 4, 4])):
        build = lambda s, kind=kind: getattr(s.key_by(lambda n: n % 2), kind)()  # noqa: E731
        assert output(build, [3, 4, 2], type_info) == expected


def test_batch_gives_one_result_per_key() -> None:
    total, reduced, mode = Collect(), Collect(), RuntimeExecutionMode.BATCH

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(mode)
        pairs = env.from_collection(PAIRS, PAIR)
        pairs.key_by(0).sum(1).sink_to(total)
        pairs.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(reduced)

    for parallelism in (1, 2, 3):
        result = run(build, parallelism=parallelism)
        assert sorted(result[total]) == sorted(result[reduced]) == [("a", 7), ("b", 7), ("c", 10)]


def test_an_aggregation_is_where_it_was_after_a_crash() -> None:
    out = Collect()
    script: list[Any] = [*PAIRS[:3], EPOCH, *PAIRS[3:5], CRASH, *PAIRS[5:]]

    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script(script)).map(lambda pair: pair, PAIR).key_by(0).sum(1).sink_to(out)

    assert run(build)[out][-2:] == [("b", 7), ("c", 10)]


def test_a_job_goes_on_with_its_totals_at_another_parallelism() -> None:
    out, store = Collect(), "keyed-stream-rescale"

    def epochs(count: int, parallelism: int) -> Result:
        def build(env: StreamExecutionEnvironment) -> None:
            script = [item for pair in PAIRS for item in (pair, EPOCH)]
            pairs = env.add_source(Script(script)).map(lambda pair: pair, PAIR).set_parallelism(1)
            pairs.key_by(0).sum(1).uid("total").sink_to(out)

        return run(build, parallelism=parallelism, store=store, epochs=count, job_name="totals")

    epochs(3, parallelism=1)
    epochs(100, parallelism=3)
    assert out.values[-2:] == [("b", 7), ("c", 10)]


@pytest.mark.parametrize("type_info", [PAIR, None], ids=["typed", "untyped"])
@pytest.mark.parametrize("pairs", [[("a", 1), ("a", None)], [("b", None)], [("a", 1), None]], ids=repr)
def test_none_is_an_error_that_shows_the_record(pairs: list[Any], type_info: Any) -> None:
    with pytest.raises(JobFailedError) as failed:
        output(lambda s: s.key_by(lambda p: p and p[0], Types.STRING()).sum(1), pairs, type_info)
    assert "None" in failed.value.report and repr(pairs[-1]) in failed.value.report


def test_what_cannot_be_aggregated_is_refused_at_the_users_line() -> None:
    env = StreamExecutionEnvironment()
    listed = Types.TUPLE([Types.STRING(), Types.LIST(Types.INT())])
    keyed, lists = env.from_collection(PAIRS, PAIR).key_by(0), env.from_collection([], listed).key_by(0)
    for wrong, words in (
        (lambda: keyed.sum(0), "expected a number"),
        (lambda: keyed.sum(2), "from 0 to 1"),
        (lambda: keyed.min_by("amount"), "no such field"),
        (lambda: keyed.max(1.0), "expected a field's position or name"),
        (lambda: lists.max(1), "cannot be ordered"),
        (lambda: env.from_collection([1], Types.LONG()).key_by(lambda n: n).sum(1), "single value"),
        (lambda: keyed.reduce(Numbered()), "expected ReduceFunction"),
    ):
        with pytest.raises(ProgramError, match=words) as refused:
            wrong()
        assert refused.value.at is not None and refused.value.at.startswith("test_keyed_stream.py")


def test_a_reduce_that_fails_shows_the_record_and_the_line() -> None:
    with pytest.raises(JobFailedError) as failed:
        output(lambda s: s.key_by(0).reduce(lambda a, b: a[5]), PAIRS)
    assert "IndexError" in failed.value.report and "('a', 2)" in failed.value.report
    with pytest.raises(JobFailedError, match="returned None"):
        output(lambda s: s.key_by(0).reduce(lambda a, b: None), PAIRS)


# --- whole batches with their states ------------------------------------------------------------------------


def example() -> dict[str, Any]:
    """The program of docs/datastream/keyed-state.md."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found[1], PAGE.name, "exec"), names)
    return names


@pytest.mark.parametrize(("parallelism", "epoch_records"), SHAPES)
def test_the_example_of_the_page_sums_and_counts(parallelism: int, epoch_records: int | None) -> None:
    rows = [Row(*pair) for pair in PAIRS]
    shape = {"parallelism": parallelism, "epoch_records": epoch_records}
    last = {row.user: (row.sum, row.count) for row in output(example()["totals"], rows, ROW, **shape)}
    assert last == {"a": (7, 3), "b": (7, 2), "c": (10, 2)}


class LastAndGone(KeyedBatchFunction):
    """Keeps each key's last amount as text; forgets a key whose amount is negative."""

    def states(self) -> dict[str, Any]:
        return {"last": Types.STRING(), "untouched": Types.ROW([Types.INT()])}

    def process_batch(self, batch: Any) -> Any:
        assert batch.states["untouched"].null_count == len(batch.keys)
        last: list[Any] = batch.states["last"].to_pylist()
        before = []
        for key, amount in zip(batch.key_of.tolist(), batch.records.column(1).to_pylist(), strict=True):
            before.append(last[key])
            last[key] = None if amount < 0 else str(amount)
        output = pa.record_batch({"value": pa.array(before, pa.string())})
        return KeyedBatchResult(output, {"last": pa.array(last, pa.string())})


@pytest.mark.parametrize("epoch_records", [None, 1, 2])
def test_null_removes_a_state_and_a_state_left_out_stays(epoch_records: int | None) -> None:
    pairs = [("a", 1), ("b", 2), ("a", -1), ("a", 7), ("b", 3), ("a", 8)]
    build = lambda s: s.key_by(0).process_batches(LastAndGone(), Types.STRING())  # noqa: E731
    assert output(build, pairs, epoch_records=epoch_records) == [None, None, "1", None, "2", "7"]


class Returns(KeyedBatchFunction):
    def __init__(self, result: Any) -> None:
        self.result = result

    def states(self) -> dict[str, Any]:
        return {"count": Types.LONG()}

    def process_batch(self, batch: Any) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "expected a KeyedBatchResult"),
        (KeyedBatchResult(None, {"count": [1]}), "1 values for 3 keys"),
        (KeyedBatchResult(None, {"count": ["x", "y", "z"]}), "state 'count' is declared as int64"),
        (KeyedBatchResult(None, {"sum": [1, 2, 3]}), r"states\(\) declares \['count'\]"),
        (KeyedBatchResult(7), "expected a pyarrow RecordBatch"),
        (KeyedBatchResult(pa.record_batch({"x": [1]})), r"expected \['value'\]"),
    ],
)
def test_a_wrong_result_of_a_batch_function_is_named(result: Any, words: str) -> None:
    with pytest.raises(JobFailedError, match=words):
        output(lambda s: s.key_by(0).process_batches(Returns(result), Types.LONG()), PAIRS)


def test_batches_need_types_everywhere() -> None:
    class Pickled(Returns):
        def states(self) -> dict[str, Any]:
            return {"count": Types.PICKLED_BYTE_ARRAY()}

    env = StreamExecutionEnvironment()
    typed, untyped = env.from_collection(PAIRS, PAIR), env.from_collection(PAIRS)
    for wrong, words in (
        (lambda: untyped.key_by(0).process_batches(Returns(None), PAIR), "untyped"),
        (lambda: typed.key_by(lambda p: p[0]).process_batches(Returns(None), PAIR), "key has no declared type"),
        (lambda: typed.key_by(0).process_batches(Returns(None), Types.PICKLED_BYTE_ARRAY()), "output needs a type"),
        (lambda: typed.key_by(0).process_batches(Pickled(None), PAIR), "has no columns"),
        (lambda: typed.key_by(0).process_batches(lambda batch: batch, PAIR), "expected KeyedBatchFunction"),
    ):
        with pytest.raises(ProgramError, match=words):
            wrong()


def test_the_plan_tells_what_is_kept_per_key() -> None:
    class Nothing(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value

    env = StreamExecutionEnvironment()
    pairs = env.from_collection(PAIRS, PAIR)
    pairs.key_by(0).sum(1).print()
    pairs.key_by(0).reduce(lambda a, b: a).print()
    pairs.key_by(0).process(Nothing()).print()
    pairs.key_by(0).process_batches(Returns(None), PAIR).print()
    text = explain(env._graph("job"))
    kept = ("sum of field 1, in columns", "its reduced record", "the states of its function", "count: LONG, in columns")
    for what in kept:
        assert f"keeps per key: {what}" in text
