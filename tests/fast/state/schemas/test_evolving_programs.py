"""Programs whose state changes its type between two runs on one store: every kind of state, with crashes and
rescaling.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from programs.versions import Build, Story

from millstream.common import Duration, Row, Time, Types, WatermarkStrategy
from millstream.datastream import ProcessWindowFunction
from millstream.datastream.aggregates import Aggregate, Aggregates, count
from millstream.datastream.aggregates import max as largest
from millstream.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessJoinFunction,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateSerializer,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import JobFailedError, ProgramError
from millstream.testing import CRASH, EPOCH, Collect, run


class Keep(KeyedProcessFunction):
    """Emits the stored value of a record's key, then applies the record."""

    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor

    def open(self, runtime_context: Any) -> None:
        getters = {
            ValueStateDescriptor: runtime_context.get_state,
            ListStateDescriptor: runtime_context.get_list_state,
            MapStateDescriptor: runtime_context.get_map_state,
            ReducingStateDescriptor: runtime_context.get_reducing_state,
            AggregatingStateDescriptor: runtime_context.get_aggregating_state,
        }
        self.state = getters[type(self.descriptor)](self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        key, item = value
        yield key, self._content()
        if isinstance(self.descriptor, ValueStateDescriptor):
            self.state.update(item)
        elif isinstance(self.descriptor, MapStateDescriptor):
            self.state.put(*item)
        else:
            self.state.add(item)

    def _content(self) -> Any:
        if isinstance(self.descriptor, ValueStateDescriptor):
            return self.state.value()
        if isinstance(self.descriptor, MapStateDescriptor):
            return dict(self.state.items())
        content = self.state.get()
        return list(content) if isinstance(self.descriptor, ListStateDescriptor) else content


def keeping(descriptor: Any) -> Build:
    return lambda stream, out: (
        stream.key_by(lambda value: value[0], Types.STRING())
        .process(Keep(descriptor))
        .name("count-words")
        .uid("keep")
        .sink_to(out)
        .uid("out")
    )


def row(**fields: Any) -> Any:
    return Types.ROW_NAMED(list(fields), list(fields.values()))


STRING, LONG, INT, DOUBLE = Types.STRING(), Types.LONG(), Types.INT(), Types.DOUBLE()


# --- every kind of state ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [(1,), (2, 3, 1)], ids=["one task", "rescaled"])
@pytest.mark.parametrize("epochs", [1, 6], ids=["as it was saved", "compacted"])
def test_a_value_changes_its_type_in_every_run(parallelism: tuple[int, ...], epochs: int) -> None:
    def often(key: str, *items: Any) -> list[Any]:
        return [mark for item in items for _ in range(epochs) for mark in (EPOCH, (key, item))]

    story = Story(
        [("a", ("x", 1)), *often("b", ("y", 2))],
        [("c", ("z", 3, 4)), *often("d", ("w", 5, 6))],
        [("a", (9.0, "v")), ("b", (9.0, "v")), ("c", (9.0, "v")), ("d", (9.0, "v")), *often("e", (1.0, "u"))],
        [(key, (0.5,)) for key in "abcde"],
    )
    outs = story.play(
        keeping(ValueStateDescriptor("visit", row(page=STRING, count=INT))),
        keeping(
            ValueStateDescriptor("visit", row(url=STRING, count=LONG, first=INT)).evolve(
                renames={"page": "url"}, defaults={"first": -1}
            )
        ),
        keeping(ValueStateDescriptor("visit", row(first=DOUBLE, url=STRING))),
        keeping(ValueStateDescriptor("visit", row(first=DOUBLE))),
        parallelism=parallelism,
    )
    third = {key: tuple(held) for key, held in outs[2] if held is not None and key != "e"}
    assert third == {"a": (-1.0, "x"), "b": (-1.0, "y"), "c": (4.0, "z"), "d": (6.0, "w")}
    assert {key: held["first"] for key, held in outs[3]} == {"a": 9.0, "b": 9.0, "c": 9.0, "d": 9.0, "e": 1.0}


def test_a_field_may_be_renamed_without_other_changes() -> None:
    story = Story([("a", ("x",))], [("a", ("y",))])
    _, [(_, held)] = story.play(
        keeping(ValueStateDescriptor("visit", row(page=STRING))),
        keeping(ValueStateDescriptor("visit", row(url=STRING)).evolve(renames={"page": "url"})),
    )
    assert held["url"] == "x"


def test_a_changed_type_is_logged_once_when_the_first_epoch_commits(caplog: pytest.LogCaptureFixture) -> None:
    story = Story([("a", 1)], [("a", 2), EPOCH, ("a", 3)])
    story.act(keeping(ValueStateDescriptor("count", INT)))
    assert "changed" not in caplog.text
    story.act(keeping(ValueStateDescriptor("count", LONG)), is_last=True)
    logged = [text for text in caplog.messages if "changed" in text]
    assert logged == ["  changed  state 'count' of 'count-words': was int32, is int64; old values are read as such"]


def test_list_elements_change_their_type() -> None:
    story = Story([("a", (1, "x")), EPOCH, ("a", (2, "y"))], [("a", (3, "z", 5))])
    _, [(_, held)] = story.play(
        keeping(ListStateDescriptor("seen", Types.TUPLE([INT, STRING]))),
        keeping(ListStateDescriptor("seen", Types.TUPLE([LONG, STRING, LONG])).evolve(defaults={"f2": 0})),
    )
    assert held == [(1, "x", 0), (2, "y", 0)]


def test_map_values_change_their_type_also_when_nested() -> None:
    old = row(tags=Types.LIST(row(name=STRING)), by_day=Types.MAP(STRING, INT))
    new = row(by_day=Types.MAP(STRING, DOUBLE), tags=Types.LIST(row(label=STRING, weight=INT)))
    story = Story([("a", ("k", ([("x",), ("y",)], {"mon": 3})))], [("a", ("l", ({}, [])))])
    _, [(_, held)] = story.play(
        keeping(MapStateDescriptor("carts", STRING, old)),
        keeping(
            MapStateDescriptor("carts", STRING, new).evolve(renames={"tags.name": "label"}, defaults={"tags.weight": 1})
        ),
    )
    assert held["k"]["by_day"] == {"mon": 3.0}
    assert [(tag["label"], tag["weight"]) for tag in held["k"]["tags"]] == [("x", 1), ("y", 1)]


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def test_reduced_and_aggregated_state_continues_in_a_wider_type() -> None:
    makers: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda kind: ReducingStateDescriptor("sum", lambda a, b: a + b, kind), 3 + 2**31),
        (lambda kind: AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([kind, LONG])), (3 + 2**31) / 3),
    ]
    for make, expected in makers:
        story = Story([("a", 1), ("a", 2)], [("a", 2**31), ("a", 0)])
        _, (_, (_, held)) = story.play(keeping(make(INT)), keeping(make(LONG)))
        assert held == expected


def windowed(kind: Any) -> Build:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])

    def build(stream: Any, out: Collect) -> None:
        typed = stream.map(lambda value: Row(*value), kind).uid("typed").assign_timestamps_and_watermarks(strategy)
        windows = typed.key_by(lambda value: value[0], STRING).window(
            TumblingEventTimeWindows.of(Time.milliseconds(10))
        )
        summed = windows.reduce(lambda a, b: Row(a[0], b[1], *(x + y for x, y in zip(a[2:], b[2:], strict=True))))
        summed.uid("keep").sink_to(out).uid("out")

    return build


def test_open_windows_retain_their_accumulators() -> None:
    story = Story([("a", 1, 5), ("a", 2, 6)], [("a", 3, 7), ("a", 12, 1)])
    _, [first, second] = story.play(
        windowed(row(key=STRING, time=LONG, amount=INT)), windowed(row(key=STRING, time=LONG, amount=DOUBLE))
    )
    assert (first["amount"], second["amount"]) == (18.0, 1.0)


class All(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield [tuple(element) for element in elements]


def collected(kind: Any) -> Build:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])

    def build(stream: Any, out: Collect) -> None:
        typed = stream.map(lambda value: Row(*value), kind).uid("typed").assign_timestamps_and_watermarks(strategy)
        windows = typed.key_by(lambda value: value[0], STRING).window(
            TumblingEventTimeWindows.of(Time.milliseconds(10))
        )
        windows.process(All(), Types.PICKLED_BYTE_ARRAY()).uid("keep").sink_to(out).uid("out")

    return build


def test_elements_of_open_windows_change_their_type() -> None:
    story = Story([("a", 1)], [("a", 2, 5)])
    _, out = story.play(collected(row(key=STRING, time=INT)), collected(row(key=STRING, time=LONG, amount=DOUBLE)))
    assert out == [[("a", 1, None), ("a", 2, 5.0)]]


class Rules(BroadcastProcessFunction):
    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield dict(ctx.get_broadcast_state(self.descriptor).items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(self.descriptor).put(*value)
        return []


def ruled(descriptor: Any) -> Build:
    def build(stream: Any, out: Collect) -> None:
        rules = stream.filter(lambda value: value[0] == "rule").map(lambda value: value[1]).broadcast(descriptor)
        others = stream.filter(lambda value: value[0] != "rule")
        others.connect(rules).process(Rules(descriptor)).uid("keep").sink_to(out).uid("out")

    return build


def test_broadcast_state_changes_its_type_in_every_subtask() -> None:
    story = Story([("rule", ("r", (5, "x")))], [("ask", 0), ("ask", 1), EPOCH, ("rule", ("s", (6,)))], [("ask", 0)])
    _, second, third = story.play(
        ruled(MapStateDescriptor("rules", STRING, Types.TUPLE([INT, STRING]))),
        ruled(MapStateDescriptor("rules", STRING, Types.TUPLE([LONG]))),
        ruled(MapStateDescriptor("rules", STRING, DOUBLE, upgrade=lambda old: old[0] / 2)),
        parallelism=(1, 2),
    )
    assert second == [{"r": (5,)}, {"r": (5,)}]
    assert third == [{"r": 2.5, "s": 3.0}]


class OperatorList(ProcessFunction, CheckpointedFunction):
    def __init__(self, descriptor: Any, union: bool) -> None:
        self.descriptor, self.union = descriptor, union

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = (store.get_union_list_state if self.union else store.get_list_state)(self.descriptor)

    def snapshot_state(self, context: Any) -> None:
        """Nothing to do: the list itself is the state."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield list(self.state)
        self.state.add(value)


@pytest.mark.parametrize("union", [False, True], ids=["split", "union"])
def test_operator_list_state_changes_its_type(union: bool) -> None:
    def list_program(descriptor: Any) -> Build:
        return lambda stream, out: stream.process(OperatorList(descriptor, union)).uid("keep").sink_to(out).uid("out")

    story = Story([1, 2], [3], ["x"], ["y"])
    _, [second], [third], [fourth] = story.play(
        list_program(ListStateDescriptor("seen", INT)),
        list_program(ListStateDescriptor("seen", LONG)),
        list_program(ListStateDescriptor("seen", STRING, upgrade=lambda number: f"#{number}")),
        list_program(ListStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY(), upgrade={STRING: len})),
    )
    assert (second, third, fourth) == ([1, 2], ["#1", "#2", "#3"], [2, 2, 2, 1])


class OperatorMap(ProcessFunction, CheckpointedFunction):
    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_broadcast_state(self.descriptor)

    def snapshot_state(self, context: Any) -> None:
        """Nothing to do: the map itself is the state."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield dict(self.state.items())
        self.state.put(*value)


def map_program(*kinds: Any, **more: Any) -> Build:
    descriptor = MapStateDescriptor("rules", *kinds, **more)
    return lambda stream, out: stream.process(OperatorMap(descriptor)).uid("keep").sink_to(out).uid("out")


def test_operator_map_state_changes_its_type() -> None:
    story = Story([("a", 1)], [("b", 2)], [("c", "x")])
    _, [second], [third] = story.play(
        map_program(STRING, INT),
        map_program(STRING, LONG),
        map_program(STRING, STRING, upgrade=lambda number: "x" * number),
    )
    assert (second, third) == ({"a": 1}, {"a": "x", "b": "xx"})


def test_map_keys_of_another_type_are_rejected_in_operator_state_too() -> None:
    story = Story([(1, 1)], [(1, 2)])
    story.act(map_program(INT, LONG))
    with pytest.raises(
        JobFailedError, match=r"operator state 'rules' of .* was saved with map keys of INT, they are now L"
    ):
        story.act(map_program(LONG, LONG), is_last=True)


def joined(kind: Any) -> Build:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])

    def build(stream: Any, out: Collect) -> None:
        timed = stream.map(lambda value: Row(*value), kind).uid("typed").assign_timestamps_and_watermarks(strategy)
        left, right = (
            timed.filter(lambda value, key=key: value[0] == key).key_by(lambda _: "all", STRING) for key in ("l", "r")
        )
        both = left.interval_join(right).between(Time.milliseconds(-9), Time.milliseconds(9))
        both.process(Pairs(), Types.PICKLED_BYTE_ARRAY()).uid("keep").sink_to(out).uid("out")

    return build


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield tuple(left), tuple(right)


def test_join_records_awaiting_a_match_change_their_type() -> None:
    story = Story([("l", 1)], [("r", 2, "new")])
    _, out = story.play(joined(row(side=STRING, at=INT)), joined(row(side=STRING, at=LONG, note=STRING)))
    assert out == [(("l", 1, None), ("r", 2, "new"))]


def test_a_crash_in_the_first_epoch_of_a_change_leaves_no_trace_of_it() -> None:
    story = Story([("a", 1)], [("a", 2), CRASH, ("b", 3)], [("a", 4), ("b", 4)])
    old, new = (keeping(ValueStateDescriptor("total", kind)) for kind in (INT, LONG))
    story.act(old)
    before = story.account()
    story.act(new)
    assert story.account() == before
    assert story.act(old) == [("a", 1), ("b", None)]
    assert story.act(new, is_last=True) == [("a", 2), ("b", 3)]


def test_a_state_not_declared_for_a_while_retains_its_stored_type() -> None:
    story = Story([("a", 1)], [("a", 2)], [("a", 3)])
    _, _, [(_, held)] = story.play(
        keeping(ValueStateDescriptor("total", INT)),
        keeping(ValueStateDescriptor("another", LONG)),
        keeping(ValueStateDescriptor("total", DOUBLE)),
    )
    assert held == 1.0 and isinstance(held, float)


# --- functions and serialisers ----------------------------------------------------------------------------------


class Cents(StateSerializer[Decimal]):
    version = 2

    def serialize(self, value: Decimal) -> bytes:
        return str(int(value * 100)).encode()

    def deserialize(self, data: bytes, version: int) -> Decimal:
        return Decimal(data.decode()) / (100 if version >= 2 else 1)


class Euros(Cents):
    version = 1

    def serialize(self, value: Decimal) -> bytes:
        return str(int(value)).encode()


def test_a_custom_serializer_reads_values_of_its_older_version() -> None:
    story = Story([("a", Decimal(3))], [("a", Decimal("1.5")), EPOCH, ("b", Decimal(1))], [("a", 0.0)])
    first, second, third = story.play(
        keeping(ValueStateDescriptor("price", Types.PICKLED_BYTE_ARRAY(), serializer=Euros())),
        keeping(ValueStateDescriptor("price", Types.PICKLED_BYTE_ARRAY(), serializer=Cents())),
        keeping(ValueStateDescriptor("price", DOUBLE, upgrade={Cents(): float})),
    )
    assert (first, second[:1], third) == ([("a", None)], [("a", Decimal(3))], [("a", 1.5)])


def test_adding_and_removing_a_ttl() -> None:
    def expiring() -> ValueStateDescriptor:
        descriptor = ValueStateDescriptor("last", LONG)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(50)).build())
        return descriptor

    story = Story([("a", 1)], [("b", 2)], [("a", 3), ("b", 4)])
    story.act(keeping(ValueStateDescriptor("last", LONG)))
    story.act(keeping(expiring()))
    story.clock.advance(1_000)
    assert story.act(keeping(ValueStateDescriptor("last", LONG)), is_last=True) == [("a", None), ("b", None)]


# --- rejected changes -------------------------------------------------------------------------------------------


def test_an_incompatible_change_stops_the_job_at_the_users_line_without_data_loss() -> None:
    story = Story([("a", 1)], [("a", 2)])
    story.act(keeping(ValueStateDescriptor("total", LONG)))
    before = story.account()
    message = (
        r"StateSchemaError: state 'total' of 'count-words' was saved as int64, is now string\. Give it a new name, or "
        r"pass upgrade=\. \(test_evolving_programs\.py:\d+\)"
    )
    with pytest.raises(JobFailedError, match=message):
        run(
            lambda env: keeping(ValueStateDescriptor("total", STRING))(
                env.add_source(story._script).uid("in"), Collect()
            ),
            store=story.store,
        )
    assert story.account() == before
    assert story.act(keeping(ValueStateDescriptor("total", LONG)), is_last=True) == [("a", 1)]


@pytest.mark.parametrize(
    "old, new, message",
    [
        (ValueStateDescriptor("s", LONG), ListStateDescriptor("s", LONG), "was saved as a value, is now a list"),
        (
            ListStateDescriptor("s", Types.TUPLE([LONG, LONG])),
            MapStateDescriptor("s", LONG, LONG),
            "was saved as a list, is now a map",
        ),
        (
            MapStateDescriptor("s", INT, LONG),
            MapStateDescriptor("s", LONG, LONG),
            "was saved with map keys of INT, they are now LONG: they hash differently",
        ),
    ],
)
def test_changes_that_would_relocate_rows_are_rejected(old: Any, new: Any, message: str) -> None:
    item: Any = 1 if isinstance(old, ValueStateDescriptor) else (1, 2)
    story = Story([("a", item)], [("a", item)])
    story.act(keeping(old))
    with pytest.raises(JobFailedError, match=f"state 's' of 'count-words' {message}"):
        story.act(keeping(new), is_last=True)


def test_a_key_of_another_type_is_rejected() -> None:
    def by(kind: Any) -> Build:
        return lambda stream, out: (
            stream.key_by(lambda value: value[0], kind)
            .process(Keep(ValueStateDescriptor("s", LONG)))
            .uid("keep")
            .sink_to(out)
            .uid("out")
        )

    story = Story([(1, 1)], [(1, 2)])
    story.act(by(INT))
    with pytest.raises(JobFailedError, match=r"keys of int32, they are now int64: they hash differently.*another uid"):
        story.act(by(LONG), is_last=True)


def aggregated(**measures: Aggregate) -> Build:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])

    def build(stream: Any, out: Collect) -> None:
        typed = stream.map(lambda value: Row(*value), row(key=STRING, time=LONG)).uid("typed")
        timed = typed.assign_timestamps_and_watermarks(strategy).key_by(lambda value: value[0], STRING)
        windows = timed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        windows.aggregate(Aggregates(**measures)).uid("keep").sink_to(out).uid("out")

    return build


def test_accumulators_of_open_windows_cannot_change_their_aggregate() -> None:
    story = Story([("a", 1)], [("a", 2)])
    story.act(aggregated(n=count()))
    with pytest.raises(
        JobFailedError, match=r"was saved as .*, is now .* or give the operator another uid to begin anew"
    ):
        story.act(aggregated(n=count(), latest=largest("time")), is_last=True)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ValueStateDescriptor("s", LONG, upgrade=5), "found upgrade=5, expected a function"),
        (lambda: ValueStateDescriptor("s", LONG, upgrade={"LONG": int}), "expected a function from an old value"),
        (lambda: ValueStateDescriptor("s", LONG, serializer=int), "expected a StateSerializer with a version"),
        (lambda: ValueStateDescriptor("s", LONG).evolve(renames={"a": 1}), r"expected names: \{old: new\}"),
        (lambda: ValueStateDescriptor("s", LONG).evolve(renames={"a": "b.c"}), "expected it without a path"),
        (lambda: ValueStateDescriptor("s", LONG).evolve(renames={"a": "c", "b": "c"}), "two fields with one new name"),
    ],
)
def test_invalid_evolution_options_are_rejected_where_they_are_written(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message) as refusal:
        make()
    assert refusal.value.at is not None and refusal.value.at.startswith("test_evolving_programs.py:")


def test_descriptors_that_differ_only_in_a_function_are_equal() -> None:
    one, other = (ValueStateDescriptor("s", LONG, upgrade=lambda old: old) for _ in range(2))
    assert one == other
    assert one != ValueStateDescriptor("s", LONG).evolve(defaults={"a": 1})
