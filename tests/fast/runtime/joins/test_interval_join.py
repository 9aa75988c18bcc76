"""Interval joins: what meets what, what is late, what is kept and how long, and what is refused.

That they give the pairs of the slow reference on random input is tested in `tests/golden`, that programs with them
give one answer at every parallelism and epoch size by those of `programs/interval_joins.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from waits.refusals import Refused

from millstream.common import Duration, Row, RowKind, Time, Types, WatermarkStrategy
from millstream.datastream import (
    DataStream,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import JobFailedError, ProgramError
from millstream.runtime.joins.interval_join import ProcessJoinOperator
from millstream.testing import EPOCH, Collect, Result, Script, Watermark, run

RECORD = Types.ROW_NAMED(["key", "name", "ms"], [Types.STRING(), Types.STRING(), Types.LONG()])
LATE_LEFT, LATE_RIGHT = OutputTag("late left", RECORD), OutputTag("late right")
STAMPED = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda record, _: record[2])

_STORES = itertools.count()


def at(*names: str) -> list[Any]:
    """Records of key "k" from "a5": named so, at 5 ms."""
    return [("k", name, int(name[1:])) for name in names]


def keyed(env: StreamExecutionEnvironment, items: list[Any], name: str, type_info: Any = RECORD) -> Any:
    return env.from_source(Script(items, type_info=type_info), STAMPED, name).key_by("key" if type_info else 0)


def joined(left: list[Any], right: list[Any], joining: Any, *more: tuple[OutputTag, Collect], **how: Any) -> Result:
    """Run a join of two scripts; `joining` says what to do with the two keyed streams."""
    out, type_info = Collect("out"), how.pop("type_info", RECORD)
    mode = how.pop("mode", RuntimeExecutionMode.STREAMING)

    def build(env: StreamExecutionEnvironment) -> None:
        env.set_runtime_mode(mode)
        stream: DataStream = joining(keyed(env, left, "left", type_info), keyed(env, right, "right", type_info))
        stream.uid("join").sink_to(out)
        for tag, sink in more:
            stream.get_side_output(tag).sink_to(sink)

    return run(build, **how)


def names(a: Any, b: Any) -> str:
    return f"{a[1]}-{b[1]}"


def within(lower: Any, upper: Any) -> Any:
    return lambda left, right: left.interval_join(right).between(lower, upper).apply(names)


def stored_rows(result: Result) -> list[int]:
    """How many rows of either side each epoch left in the store."""
    return [
        sum(
            ref["rows"]
            for account in manifest.states.get("join", {}).get("subtasks", {}).values()
            for refs in account["tables"].values()
            for ref in refs
        )
        for manifest in result.manifests
    ]


# --- what meets what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds",
    [(-2, 3), (Time.milliseconds(-2), Time.milliseconds(3)), (Duration.of_millis(-2), timedelta(milliseconds=3))],
    ids=["numbers", "times", "durations"],
)
def test_both_bounds_belong_to_the_interval(bounds: tuple[Any, Any]) -> None:
    result = joined(at("a10"), at("b7", "b8", "b13", "b14"), within(*bounds))
    assert result["out"] == ["a10-b8", "a10-b13"]


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [(True, False, ["a10-b9", "a10-b13"]), (False, True, ["a10-b8", "a10-b9"]), (True, True, ["a10-b9"])],
)
def test_a_bound_can_be_left_out(lower: bool, upper: bool, expected: list[str]) -> None:
    def joining(left: Any, right: Any) -> DataStream:
        results = left.interval_join(right).in_event_time().between(-2, 3)
        results = results.lower_bound_exclusive() if lower else results
        return (results.upper_bound_exclusive() if upper else results).apply(names)  # type: ignore[no-any-return]

    assert joined(at("a10"), at("b8", "b9", "b13"), joining)["out"] == expected


def test_records_of_other_keys_do_not_meet() -> None:
    result = joined([("k", "a1", 1), ("l", "a2", 2)], [("l", "b1", 1), ("m", "b2", 2)], within(-5, 5))
    assert result["out"] == ["a2-b1"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (at("a1", "a5"), at("b3")),
        ([*at("a1", "a5"), EPOCH], [EPOCH, *at("b3")]),
        ([EPOCH, *at("a1", "a5")], [*at("b3"), EPOCH]),
        ([*at("a1"), EPOCH, EPOCH, *at("a5")], [EPOCH, *at("b3"), EPOCH]),
    ],
    ids=["one epoch", "left first", "right first", "in between"],
)
def test_a_pair_is_emitted_once_in_either_arrival_order(left: list[Any], right: list[Any]) -> None:
    assert sorted(joined(left, right, within(-5, 5))["out"]) == ["a1-b3", "a5-b3"]


def test_results_have_the_larger_timestamp() -> None:
    result = joined(at("a1", "a9"), at("b5"), within(-5, 5))
    assert [(results.value, results.timestamp) for results in result.of("out")] == [("a1-b5", 5), ("a9-b5", 9)]


def test_results_come_by_left_record_and_then_by_the_time_of_the_right_one_stored_left_ones_first() -> None:
    left, right = [*at("a9"), EPOCH, *at("a7", "a3")], [*at("b4"), EPOCH, *at("b8", "b2", "b6")]
    result = joined(left, right, within(-9, 9))
    assert result["out"] == [
        "a9-b4",
        "a9-b2",
        "a9-b6",
        "a9-b8",
        *(f"{a}-b{b}" for a in ("a7", "a3") for b in (2, 4, 6, 8)),
    ]


def test_a_stream_meets_itself_and_a_union_is_one_side() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        one, two = (env.from_source(Script(at(name), type_info=RECORD), STAMPED, name) for name in ("a1", "b2"))
        both = one.union(two).key_by("key")
        both.interval_join(both).between(1, 1).apply(names).sink_to(out)

    assert run(build, parallelism=2)[out] == ["a1-b2"]


@pytest.mark.parametrize("key", [None, 1.5, ("a", 2), b"x", Row("r", 1)], ids=repr)
def test_keys_without_a_declared_type_meet(key: Any) -> None:
    left, right = [(key, "a1", 1), EPOCH, (key, "a2", 2)], [EPOCH, (key, "b3", 3), ("other", "b4", 4)]
    assert joined(left, right, within(0, 9), type_info=None)["out"] == ["a1-b3", "a2-b3"]


def test_lists_meet_as_keys_of_a_declared_type() -> None:
    kind = Types.TUPLE([Types.PRIMITIVE_ARRAY(Types.LONG()), Types.STRING(), Types.LONG()])
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        left, right = (
            env.from_source(Script(items, type_info=kind), STAMPED, name).key_by(0)
            for name, items in (
                ("left", [([1, 2], "a1", 1), ([], "a2", 2), EPOCH]),
                ("right", [EPOCH, ([1, 2], "b3", 3), ([3], "b4", 4)]),
            )
        )
        left.interval_join(right).between(0, 9).project([1], [1]).sink_to(out)

    assert list(map(tuple, run(build)[out])) == [("a1", "b3")]


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_record_is_late_by_the_watermark_its_epoch_began_with() -> None:
    left = [*at("a10"), Watermark(8), *at("a7", "a8"), Watermark(8)]
    right = [Watermark(9), *at("b7", "b8"), Watermark(9)]
    result = joined(left, right, within(-9, 9))
    assert result["out"] == ["a10-b8", "a8-b8"]
    assert result.metrics["join.numLateRecordsDropped"]["counter"] == 2


def test_late_records_of_either_side_have_an_output_of_their_own() -> None:
    lates = Collect("late left"), Collect("late right")
    left = [Watermark(8), *at("a7", "a8"), Watermark(8)]
    right = [Watermark(9), *at("b7", "b8"), Watermark(9)]

    def joining(a: Any, b: Any) -> DataStream:
        results = a.interval_join(b).between(-9, 9).side_output_left_late_data(LATE_LEFT)
        return results.side_output_right_late_data(LATE_RIGHT).project(["name"], ["ms"])  # type: ignore[no-any-return]

    result = joined(left, right, joining, (LATE_LEFT, lates[0]), (LATE_RIGHT, lates[1]))
    assert result["out"] == [Row(name="a8", ms=8)]
    assert [(record.value, record.timestamp) for record in result.of(lates[0])] == [(Row(key="k", name="a7", ms=7), 7)]
    assert [(results.value, results.timestamp) for results in result.of(lates[1])] == [
        (Row(key="k", name="b7", ms=7), 7)
    ]
    assert result.metrics["join.numLateRecordsDropped"]["counter"] == 0


def test_in_batch_nothing_is_late() -> None:
    left, right = [*at("a10"), Watermark(30), *at("a1")], [*at("b9"), Watermark(30), *at("b2")]
    result = joined(left, right, within(-2, 2), mode=RuntimeExecutionMode.BATCH)
    assert sorted(result["out"]) == ["a1-b2", "a10-b9"]


@pytest.mark.parametrize(
    "how", [within(-3, 3), lambda a, b: a.interval_join(b).between(-3, 3).project(["name"], ["ms"])]
)
def test_a_record_is_stored_as_long_as_a_timely_one_can_match_it(how: Any) -> None:
    left, right = [*at("a10"), Watermark(13), Watermark(14)], [*at("b20"), Watermark(13), Watermark(14)]
    result = joined([*left, Watermark(23), Watermark(24), EPOCH], [*right, Watermark(23), Watermark(24), EPOCH], how)
    assert stored_rows(result)[:4] == [2, 1, 1, 0]
    # At the very moment, the last that can meet them does.
    assert joined(left, [Watermark(13), *at("b13"), Watermark(14)], within(-3, 3))["out"] == ["a10-b13"]
    assert joined([Watermark(23), *at("a23"), EPOCH], [*at("b20"), Watermark(23), EPOCH], within(-3, 3))["out"] == [
        "a23-b20"
    ]


def test_a_record_with_only_earlier_matches_expires_at_its_own_time() -> None:
    left, right = [*at("a10"), Watermark(4), Watermark(6), EPOCH], [Watermark(4), Watermark(6), EPOCH]
    assert stored_rows(joined(left, right, within(-9, -5)))[:2] == [1, 0]


def test_what_expires_within_its_epoch_is_never_written() -> None:
    left, right = [*at("a1", "a2", "a50"), Watermark(40), EPOCH], [*at("b1", "b3", "b60"), Watermark(40), EPOCH]
    result = joined(left, right, within(0, 5))
    assert result["out"] == ["a1-b1", "a1-b3", "a2-b3"]
    assert stored_rows(result)[0] == 2


def test_records_of_many_epochs_survive_compaction() -> None:
    lefts = [f"a{n}" for n in range(1, 13)]
    left = [item for name in lefts for item in (*at(name), EPOCH)]
    result = joined(left, [EPOCH] * len(lefts) + at("b20"), within(0, 99))
    assert result["out"] == [f"{name}-b20" for name in lefts]
    assert stored_rows(result)[len(lefts) - 1] == len(lefts)


def test_times_at_the_ends_of_their_range_meet() -> None:
    far = 2**63 - 2
    items = [("k", "a", far)], [("k", "b", far), ("k", "c", -far)]
    assert joined(*items, within(-(2**62), 2**62))["out"] == ["a-b"]
    assert joined([*items[0], EPOCH], [EPOCH, *items[1]], within(-(2**62), 2**62))["out"] == ["a-b"]


# --- functions --------------------------------------------------------------------------------------------------------


class Told(ProcessJoinFunction):
    """Pairs with their times; the number of the pair within its key goes to the side."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("left", Types.LONG()))

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield left[1], right[1], ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.get_timestamp()
        yield LATE_RIGHT, (left[0], self.count.value())


class Nothing(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> None:
        return None


def test_a_function_sees_times_has_side_outputs_and_holds_state_of_the_key() -> None:
    counts = Collect("counts")
    left = [("k", "a1", 1), ("l", "a2", 2), EPOCH, ("k", "a3", 3)]
    right = [("k", "b2", 2), ("l", "b3", 3), EPOCH, ("l", "b4", 4), ("k", "b5", 5)]
    result = joined(
        left, right, lambda a, b: a.interval_join(b).between(0, 9).process(Told()), (LATE_RIGHT, counts), parallelism=2
    )
    assert sorted(result["out"]) == [
        ("a1", "b2", 1, 2, 2),
        ("a1", "b5", 1, 5, 5),
        ("a2", "b3", 2, 3, 3),
        ("a2", "b4", 2, 4, 4),
        ("a3", "b5", 3, 5, 5),
    ]
    assert sorted(result["counts"]) == [("k", 1), ("k", 2), ("k", 3), ("l", 1), ("l", 2)]
    assert {(results.value, results.timestamp) for results in result.of(counts)} >= {(("k", 1), 2), (("l", 2), 4)}


def test_state_of_a_key_is_one_over_many_pieces_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessJoinOperator, "pairs_max", 2)
    counts = Collect("counts")
    joined(
        at("a1", "a2", "a3"),
        at("b1", "b2"),
        lambda a, b: a.interval_join(b).between(-9, 9).process(Told()),
        (LATE_RIGHT, counts),
    )
    assert [record.value for record in counts.records] == [("k", n) for n in range(1, 7)]


def test_a_function_may_emit_nothing() -> None:
    result = joined(at("a1"), at("b1"), lambda a, b: a.interval_join(b).between(0, 0).process(Nothing()))
    assert result["out"] == []


@pytest.mark.parametrize("plain", [True, False], ids=["apply", "process"])
def test_an_error_in_a_function_names_the_pair(plain: bool) -> None:
    def failing(left: Any, right: Any, ctx: Any = None) -> Any:
        return 1 // (left[2] - right[2])

    class Failing(ProcessJoinFunction):
        process_element = staticmethod(failing)  # type: ignore[assignment]

    def joining(a: Any, b: Any) -> DataStream:
        results = a.interval_join(b).between(-9, 9)
        return results.apply(failing) if plain else results.process(Failing())  # type: ignore[no-any-return]

    with pytest.raises(JobFailedError) as caught:
        joined(at("a1"), at("b3", "b1"), joining)
    assert "ZeroDivisionError" in caught.value.report
    assert "(Row(key='k', name='a1', ms=1), Row(key='k', name='b1', ms=1))" in caught.value.report
    assert "'Interval Join' (join function)" in caught.value.report


def test_a_typed_result_is_held_against_its_type() -> None:
    with pytest.raises(JobFailedError, match="a1-b1"):
        joined(at("a1"), at("b1"), lambda a, b: a.interval_join(b).between(0, 0).apply(names, Types.LONG()))


def test_a_state_named_like_a_table_of_the_joins_own_is_refused() -> None:
    class Named(Nothing):
        def open(self, runtime_context: Any) -> None:
            runtime_context.get_state(ValueStateDescriptor("left records", Types.LONG()))

    with pytest.raises(JobFailedError, match="'left records'"):
        joined(at("a1"), at("b1"), lambda a, b: a.interval_join(b).between(0, 0).process(Named()))


def test_records_that_are_none_meet_like_others() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        sides = [
            env.from_source(Script([*at(name), EPOCH], type_info=RECORD), STAMPED, name)
            .map(lambda record: None if record[1] == "a1" else record, RECORD)
            .key_by(lambda record: 0, Types.LONG())
            for name in ("a1", "b1")
        ]
        sides[0].interval_join(sides[1]).between(0, 0).apply(lambda a, b: (a, b)).sink_to(out)

    out = Collect()
    assert run(build)[out] == [(None, Row(key="k", name="b1", ms=1))]


def test_a_row_that_is_not_an_insert_fails_the_job() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        left = env.from_source(Script(at("a1"), type_info=RECORD), STAMPED, "left")
        deleted = left.map(lambda record: Row.of_kind(RowKind.DELETE, *record), RECORD).key_by("key")
        left.key_by("key").interval_join(deleted).between(0, 9).apply(names).print()

    with pytest.raises(JobFailedError, match="expected a row of kind INSERT"):
        run(build)


# --- in columns -------------------------------------------------------------------------------------------------------


def project(*fields: Any, **more: Any) -> Any:
    return lambda left, right: left.interval_join(right).between(-9, 9).project(*fields, **more)


@pytest.mark.parametrize(
    ("fields", "names_", "expected"),
    [
        ((["key", "name"], ["ms"]), None, Row(key="k", name="a1", ms=3)),
        (([2, 1], [0]), None, Row(ms=1, name="a1", key="k")),
        ((["name"], ["name"]), ["left", "right"], Row(left="a1", right="b3")),
        ((["name", "name"], []), ["one", "two"], Row(one="a1", two="a1")),
        (((), ("name",)), None, Row(name="b3")),
    ],
)
def test_fields_are_chosen_by_name_or_position(fields: Any, names_: Any, expected: Row) -> None:
    result = joined([*at("a1"), EPOCH], [EPOCH, *at("b3")], project(*fields, names=names_))
    assert result["out"] == [expected]


def test_fields_of_tuples_make_a_row_without_names() -> None:
    kind, out = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()]), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        left, right = (
            env.from_source(Script(at(name), type_info=kind), STAMPED, name).key_by(0) for name in ("a1", "b3")
        )
        stream = left.interval_join(right).between(0, 9).project(["f1"], [1, 2])
        assert stream.get_type() == Types.ROW([Types.STRING(), Types.STRING(), Types.LONG()])
        stream.sink_to(out)

    assert list(map(tuple, run(build)[out])) == [("a1", "b3", 3)]


def test_only_the_chosen_fields_are_stored() -> None:
    left, right = [*at("a1"), EPOCH, *at("a2")], [*at("b99"), EPOCH, *at("b98")]
    chosen, whole = joined(left, right, project(["name"], ["ms"])), joined(left, right, within(-9, 9))
    assert 0 < stored_bytes(chosen) < stored_bytes(whole)


def test_other_fields_than_the_stored_ones_are_rejected() -> None:
    left, right, store = [*at("a1"), EPOCH, *at("a2")], [*at("b1"), EPOCH, *at("b2")], f"joined-{next(_STORES)}"
    assert joined(left, right, project(["name"], ["ms"]), store=store, epochs=1).status == "SUSPENDED"
    with pytest.raises(JobFailedError, match=r"'left records' of .* was saved with the fields name,.* another uid"):
        joined(left, right, project(["key"], ["ms"]), store=store)


def stored_bytes(result: Result) -> int:
    accounts = result.manifests[0].states["join"]["subtasks"].values()
    return sum(ref["file_bytes"] for account in accounts for refs in account["tables"].values() for ref in refs)


@pytest.mark.parametrize("record", [None, Row.of_kind(RowKind.DELETE, "k", "b1", 1)], ids=["None", "a delete"])
def test_a_record_without_fields_to_project_fails_the_job(record: Any) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        left = keyed(env, at("a1"), "left")
        right = env.from_source(Script(at("b1"), type_info=RECORD), STAMPED, "right").map(lambda _: record, RECORD)
        left.interval_join(right.key_by(lambda _: "k", Types.STRING())).between(0, 9).project([0], [1]).print()

    with pytest.raises(JobFailedError, match="which has no fields to project"):
        run(build)


def test_the_plan_shows_stored_fields_and_vectorisation() -> None:
    env = StreamExecutionEnvironment()
    left, right = keyed(env, at("a1"), "left"), keyed(env, at("b1"), "right")
    left.interval_join(right).between(-1, 2).lower_bound_exclusive().project([0], [1]).print()
    assert "records that match when right is 0 ms to 2 ms after left, joined in columns" in env.explain()


# --- what is refused --------------------------------------------------------------------------------------------------


class NotAJoin(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return None


def test_streams_that_cannot_be_joined_are_refused() -> None:
    env = StreamExecutionEnvironment()
    plain = env.from_source(Script(at("a1"), type_info=RECORD), STAMPED, "plain")
    left, right = keyed(env, at("a1"), "left"), keyed(env, at("b1"), "right")
    with Refused("interval_join: found", "expected a keyed stream", "key_by"):
        left.interval_join(plain)
    with Refused("different types, STRING and LONG", "key_type="):
        left.interval_join(plain.key_by("ms"))
    with Refused("different types, STRING and undeclared"):
        left.interval_join(plain.key_by(lambda record: record[0]))
    with Refused("different environments"):
        left.interval_join(keyed(StreamExecutionEnvironment(), at("a1"), "other"))
    with Refused("interval joins use event time only", "assign_timestamps_and_watermarks"):
        left.interval_join(right).in_processing_time()


def test_intervals_that_hold_no_time_are_refused() -> None:
    env = StreamExecutionEnvironment()
    joining = keyed(env, at("a1"), "left").interval_join(keyed(env, at("b1"), "right"))
    with Refused("the interval is negative, from 5 ms to -5 ms", "between(-5, 5)"):
        joining.between(Time.milliseconds(5), -5)
    with Refused("as the lower bound", "found 1.5 (float)"):
        joining.between(1.5, 2)
    with Refused("as the upper bound", "found True (bool)"):
        joining.between(1, True)
    with Refused("the interval from 1 ms to 2 ms is empty", "Widen it"):
        joining.between(1, 2).lower_bound_exclusive().upper_bound_exclusive().apply(names)


def test_functions_and_tags_of_another_kind_are_refused() -> None:
    env = StreamExecutionEnvironment()
    joining = keyed(env, at("a1"), "left").interval_join(keyed(env, at("b1"), "right")).between(0, 1)
    with Refused("expected ProcessJoinFunction", "Pass it to process()"):
        joining.process(NotAJoin())
    with Refused("Pass an instance: Nothing()"):
        joining.process(Nothing)
    with Refused("interval_join(...).process", "expected ProcessJoinFunction"):
        joining.process(names)
    with Refused("ProcessJoinFunction is passed to process()"):
        joining.apply(Nothing())
    with Refused("interval_join(...).between(...).process()"):
        env.from_collection([1]).map(Nothing())
    with Refused("side_output_left_late_data: found 'late'"):
        joining.side_output_left_late_data("late")
    with Refused("side_output_right_late_data: found 'late'"):
        joining.side_output_right_late_data("late")
    with Refused("as a type"):
        joining.apply(names, str)
    with Refused("never emits to side output 'late right'", "side_output_left_late_data"):
        joining.project([0], [1]).get_side_output(LATE_RIGHT)


def test_projections_that_name_no_row_are_refused() -> None:
    env = StreamExecutionEnvironment()
    left, right = keyed(env, at("a1"), "left"), keyed(env, at("b1"), "right")
    untyped = env.from_source(Script(at("a1")), STAMPED, "untyped").key_by(0, Types.STRING())
    joining = left.interval_join(right).between(0, 1)
    with Refused("has no such field", "['key', 'name', 'ms']"):
        joining.project(["nme"], ["ms"])
    with Refused("has no such field", "from 0 to 2"):
        joining.project([0], [3])
    with Refused("several fields named key, name", "names="):
        joining.project(["key", "name"], ["name", "key"])
    with Refused("several fields named x", "a different name for each field"):
        joining.project(["key"], ["name"], names=["x", "x"])
    with Refused("found 1 names for 2 fields"):
        joining.project(["key"], ["name"], names=["x"])
    with Refused("expected a list of strings"):
        joining.project(["key"], ["name"], names="xy")
    with Refused("found 'key' as fields of the left stream"):
        joining.project("key", ["name"])
    with Refused("no field was named"):
        joining.project([], [])
    with Refused("the right stream is untyped"):
        left.interval_join(untyped).between(0, 1).project(["key"], [1])


def test_a_side_without_timestamps_is_refused_before_the_job_starts() -> None:
    env = StreamExecutionEnvironment()
    bare = env.from_collection([("k", "b1", 1)], RECORD).key_by("key")
    joining = keyed(env, at("a1"), "left").interval_join(bare).between(0, 1)
    joining.apply(names).print()
    with pytest.raises(
        ProgramError, match=r"joins by event time, and no operator before its second input .*timestamps"
    ):
        env.explain()


def test_records_without_timestamps_fail_the_job_with_the_record() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        left = env.from_source(Script(at("a1"), type_info=RECORD), STAMPED, "left")
        bare = env.from_collection([("k", "b1", 1)], RECORD)
        left.union(bare).key_by("key").interval_join(left.key_by("key")).between(0, 1).apply(names).print()

    with pytest.raises(JobFailedError, match="its records have no timestamps"):
        run(build)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_programs_of_the_page_run_as_they_are_printed() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "datastream" / "joins.md").read_text()
    section = page.partition("## Interval joins")[2].partition("\n## ")[0]
    names_: dict[str, Any] = {}
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)), "joins.md", "exec"), names_)
    hour = 3_600_000
    bought = Types.ROW_NAMED(["order", "item", "at"], [Types.STRING(), Types.STRING(), Types.LONG()])
    paid = Types.ROW_NAMED(["order", "cents", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])
    delays, amounts, pairs_, late = Collect(), Collect(), Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        orders = env.from_source(
            Script([("1", "book", hour), ("2", "pen", hour), Watermark(hour), EPOCH], type_info=bought),
            STAMPED,
            "orders",
        )
        payments = env.from_source(
            Script([("2", 5, 3 * hour), Watermark(hour), ("1", 700, hour + 9), ("2", 8, 7), EPOCH], type_info=paid),
            STAMPED,
            "payments",
        )
        names_["with_delay"](orders, payments).sink_to(delays)
        names_["amounts"](orders, payments).sink_to(amounts)
        results, lates = names_["checked"](orders, payments)
        results.sink_to(pairs_)
        lates.sink_to(late)

    result = run(build, parallelism=2)
    assert result[delays] == [("1", 700, 9)]
    assert result[amounts] == result[pairs_] == [Row(order="1", item="book", cents=700)]
    assert result[late] == [Row(order="2", cents=8, at=7)]
