"""The calls of a program build the graph they say, and a wrong call is refused at its own line."""

from __future__ import annotations

import inspect
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from waits.refusals import Refused

from millstream.common import Configuration, Duration, Row, Types, WatermarkStrategy
from millstream.common.restart_strategy import RestartStrategies
from millstream.connectors.direct_sinks import ForeachSink
from millstream.datastream import (
    CheckpointingMode,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeyedStream,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    RuntimeExecutionMode,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.connectors.python import PythonSource, Split
from millstream.datastream.environment.launch_defaults import with_launch_defaults
from millstream.errors import ConfigurationError, NotAvailableError, ProgramError, TypeMismatchError
from millstream.graph.nodes import (
    AssignTimestamps,
    Edge,
    Filter,
    FlatMap,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    KeyedProcess,
    Map,
    MapBatches,
    Node,
    Partitioning,
    Process,
    Project,
    Read,
    Reduce,
    RollingField,
    Write,
)

PAIR = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])


class Double(MapFunction):
    def map(self, value: int) -> int:
        return value * 2


class Twice(FlatMapFunction):
    def flat_map(self, value: Any) -> list[Any]:
        return [value, value]


class Odd(FilterFunction):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


class Split2(ProcessFunction):
    """Gives out its records to any side output that may be asked for."""

    tags = (OutputTag("t"), OutputTag("late"), OutputTag("early"))

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value
        yield from ((tag, value) for tag in self.tags)


class Keyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


class ByKey(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value


class First(Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        return 0


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3], Types.LONG())


@pytest.fixture
def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([Row("a", 1)], PAIR)


def nodes(stream: Any) -> list[Node]:
    return list(stream._environment._graph("job").nodes)


def last(stream: Any) -> Node:
    return nodes(stream)[-1]


# --- transformations ----------------------------------------------------------------------------------------


def test_every_transformation_adds_one_node_with_its_name_type_and_line(pairs: DataStream) -> None:
    stream = (
        pairs.map(lambda row: row, PAIR)
        .flat_map(Twice(), PAIR)
        .filter(lambda row: True)
        .process(Split2(), PAIR)
        .project(1)
        .map_batches(lambda batch: batch, Types.ROW_NAMED(["n"], [Types.LONG()]))
        .assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks())
    )
    stream.print()
    graph_nodes = nodes(stream)
    kinds = (Read, Map, FlatMap, Filter, Process, Project, MapBatches, AssignTimestamps, Write)
    assert tuple(type(node.operation) for node in graph_nodes) == kinds
    assert [node.name for node in graph_nodes] == [
        "Source: Collection Source",
        "Map",
        "FlatMap",
        "Filter",
        "PROCESS",
        "Projection",
        "Map Batches",
        "Timestamps/Watermarks",
        "Sink: Print to Std. Out",
    ]
    assert [f"{node.output_type}" for node in graph_nodes[3:8]] == [
        "ROW<word STRING, count LONG>",
        "ROW<word STRING, count LONG>",
        "ROW<count LONG>",
        "ROW<n LONG>",
        "ROW<n LONG>",
    ]
    lines = [node.site.line for node in graph_nodes[1:8]]
    assert lines == list(range(lines[0], lines[0] + 7)), "each node keeps the line of its own call"
    assert all(node.site.file == __file__ for node in graph_nodes[1:])
    assert [node.inputs[0].source for node in graph_nodes[1:]] == list(range(1, 9))


def test_a_stream_without_a_declared_type_is_untyped(numbers: DataStream) -> None:
    mapped = numbers.map(str)
    assert mapped.get_type() == Types.PICKLED_BYTE_ARRAY()
    assert last(mapped).output_type is None
    assert last(numbers.map(str, Types.PICKLED_BYTE_ARRAY())).output_type is None, "saying so changes nothing"
    assert numbers.filter(Odd()).get_type() == Types.LONG()


def test_streams_are_values_and_can_be_used_twice(numbers: DataStream) -> None:
    numbers.map(Double(), Types.LONG())
    numbers.filter(Odd())
    assert [node.inputs for node in nodes(numbers)] == [(), (Edge(1),), (Edge(1),)]


def test_a_union_is_several_edges_into_the_next_node(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    others = env.from_collection([4], Types.LONG())
    merged = numbers.union(others, numbers.rebalance()).map(Double())
    assert last(merged).inputs == (Edge(1), Edge(2), Edge(1, Partitioning.REBALANCE))


@pytest.mark.parametrize(
    ("method", "partitioning"),
    [
        ("shuffle", Partitioning.SHUFFLE),
        ("rescale", Partitioning.RESCALE),
        ("rebalance", Partitioning.REBALANCE),
        ("forward", Partitioning.FORWARD),
        ("broadcast", Partitioning.BROADCAST),
        ("global_", Partitioning.GLOBAL),
    ],
)
def test_a_partitioning_is_a_property_of_the_next_edge(
    numbers: DataStream, method: str, partitioning: Partitioning
) -> None:
    partitioned = getattr(numbers, method)()
    assert len(nodes(numbers)) == 1, "no node is added"
    assert last(partitioned.map(Double())).inputs == (Edge(1, partitioning),)
    again = partitioned.rebalance().map(Double())
    assert last(again).inputs == (Edge(1, Partitioning.REBALANCE),), "the last one counts"


def test_keys_and_custom_partitioners_travel_on_the_edge(numbers: DataStream) -> None:
    selector, partitioner = ByKey(), First()
    keyed = numbers.key_by(selector, Types.LONG())
    assert isinstance(keyed, KeyedStream)
    assert last(keyed.map(Double())).inputs == (
        Edge(1, Partitioning.HASH, key_selector=selector, key_type=Types.LONG()),  # type: ignore[arg-type]
    )
    custom = numbers.partition_custom(partitioner, selector).map(Double())
    expected = Edge(1, Partitioning.CUSTOM, key_selector=selector, partitioner=partitioner)  # type: ignore[arg-type]
    assert last(custom).inputs == (expected,)


def test_key_by_again_replaces_the_key(numbers: DataStream) -> None:
    def other(value: int) -> int:
        return -value

    edges = last(numbers.key_by(ByKey()).key_by(other).filter(Odd())).inputs
    assert [edge.key_selector for edge in edges] == [other]


def test_side_outputs_are_registered_on_their_process_node(numbers: DataStream) -> None:
    late, early = OutputTag("late", Types.LONG()), OutputTag("early")
    main = numbers.process(Split2(), Types.LONG())
    side = main.get_side_output(late)
    assert side.get_type() == Types.LONG()
    assert main.get_side_output(early).get_type() == Types.PICKLED_BYTE_ARRAY()
    main.get_side_output(late)
    operation = nodes(main)[1].operation
    assert isinstance(operation, Process)
    assert operation.tags == (("late", Types.LONG()), ("early", None))
    assert last(side.map(Double())).inputs == (Edge(2, tag="late"),)
    assert last(side.rebalance().map(Double())).inputs == (Edge(2, Partitioning.REBALANCE, tag="late"),)


def test_map_batches_takes_and_gives_typed_columns(numbers: DataStream) -> None:
    def half(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    assert last(numbers.map_batches(half, Types.DOUBLE())).operation == MapBatches(half)
    with Refused("untyped", "output_type"):
        numbers.map(str).map_batches(half, Types.DOUBLE())
    with Refused("needs a type with columns"):
        numbers.map_batches(half, Types.PICKLED_BYTE_ARRAY())


# --- naming and placement -----------------------------------------------------------------------------------


def test_controls_amend_the_node_they_stand_for(numbers: DataStream) -> None:
    stream = numbers.map(Double()).name("double").uid("d").set_parallelism(3).set_max_parallelism(6)
    stream.set_description("times two").start_new_chain().disable_chaining().set_uid_hash("0" * 32)
    stream.slot_sharing_group(SlotSharingGroup.builder("heavy").build())
    node = last(stream)
    assert (node.name, node.uid, node.parallelism, node.max_parallelism) == ("double", "d", 3, 6)
    assert (node.description, node.starts_chain, node.chaining_disabled) == ("times two", True, True)
    assert (node.slot_sharing_group, node.uid_hash) == ("heavy", "0" * 32)
    assert stream.get_name() == "double"


def test_sources_and_sinks_keep_their_prefix_when_named(numbers: DataStream) -> None:
    numbers.name("counters")
    sink = numbers.print().name("screen").uid("out").set_parallelism(1)
    assert [node.name for node in nodes(sink)] == ["Source: counters", "Sink: screen"]
    assert numbers.get_name() == "counters"


@pytest.mark.parametrize(
    "make",
    [
        lambda stream: stream.union(stream.map(Double(), Types.LONG())),
        lambda stream: stream.rebalance(),
        lambda stream: stream.key_by(ByKey()),
        lambda stream: stream.process(Split2()).get_side_output(OutputTag("t")),
    ],
    ids=["union", "partitioned", "keyed", "side output"],
)
def test_what_is_no_operator_cannot_be_named_or_placed(numbers: DataStream, make: Any) -> None:
    stream = make(numbers)
    with Refused("not an operator"):
        stream.name("x")
    with Refused("not an operator"):
        stream.uid("x")
    with Refused("not an operator"):
        stream.set_parallelism(1)
    with Refused("not an operator"):
        stream.get_name()


def test_a_uid_belongs_to_one_operator(numbers: DataStream) -> None:
    numbers.map(Double()).uid("same").uid("same")
    with Refused("'same' is used by 'Map'"):
        numbers.filter(Odd()).uid("same")


def test_a_collection_is_read_by_one_subtask(numbers: DataStream) -> None:
    assert last(numbers).parallelism == 1
    with Refused("not parallel", "found 2"):
        numbers.set_parallelism(2)


# --- wrong arguments ----------------------------------------------------------------------------------------


def test_wrong_functions_are_refused_where_they_are_passed(numbers: DataStream) -> None:
    with Refused("map: found 7 (int)", "MapFunction or a callable"):
        numbers.map(7)  # type: ignore[arg-type]
    with Refused("found a FlatMapFunction (Twice)", "flat_map()"):
        numbers.map(Twice())  # type: ignore[arg-type]
    with Refused("found the class Double", "Double()"):
        numbers.map(Double)  # type: ignore[arg-type]
    with Refused("filter: found a MapFunction"):
        numbers.filter(Double())  # type: ignore[arg-type]
    with Refused("process: found", "expected ProcessFunction"):
        numbers.process(lambda value, ctx: [value])  # type: ignore[arg-type]
    with Refused("key_by(...).process()"):
        numbers.process(Keyed())  # type: ignore[arg-type]
    with Refused("key_by: found None"):
        numbers.key_by(None)  # type: ignore[arg-type]
    with Refused("partition_custom, key selector"):
        numbers.partition_custom(First(), 3)  # type: ignore[arg-type]


def test_wrong_types_are_refused_where_they_are_declared(numbers: DataStream) -> None:
    with Refused("Types.NAME()"):
        numbers.map(Double(), Types.LONG)  # type: ignore[arg-type]
    with Refused("found 'str'"):
        numbers.map(Double(), "str")  # type: ignore[arg-type]


def test_project_refuses_fields_that_are_not_there(pairs: DataStream, numbers: DataStream) -> None:
    assert pairs.project(1, 0).get_type() == Types.ROW_NAMED(["count", "word"], [Types.LONG(), Types.STRING()])
    with Refused("no field 2", "0 to 1"):
        pairs.project(2)
    with Refused("no field -1"):
        pairs.project(-1)
    with Refused("no field was named"):
        pairs.project()
    with Refused("has a field twice"):
        pairs.project(0, 0)
    with Refused("the stream is LONG"):
        numbers.project(0)
    with Refused("the stream is untyped"):
        numbers.map(str).project(0)


def test_tuples_are_projected_as_tuples(env: StreamExecutionEnvironment) -> None:
    tuples = env.from_collection([(1, "a")], Types.TUPLE([Types.LONG(), Types.STRING()]))
    assert tuples.project(1).get_type() == Types.TUPLE([Types.STRING()])


def test_a_union_of_different_types_names_both(numbers: DataStream, pairs: DataStream) -> None:
    with Refused("LONG", "ROW<word STRING, count LONG>"):
        numbers.union(pairs)
    foreign = StreamExecutionEnvironment.get_execution_environment().from_collection([1], Types.LONG())
    with Refused("different environments"):
        numbers.union(foreign)


def test_side_outputs_need_a_process_function_and_one_type(numbers: DataStream) -> None:
    with Refused("'Map' has no side outputs"):
        numbers.map(Double()).get_side_output(OutputTag("t"))
    main = numbers.process(Split2())
    main.get_side_output(OutputTag("t", Types.LONG()))
    with Refused("was read as LONG", "STRING"):
        main.get_side_output(OutputTag("t", Types.STRING()))
    with Refused("found the id ''"):
        OutputTag("")


def test_a_keyed_stream_refuses_another_partitioning(numbers: DataStream) -> None:
    keyed = numbers.key_by(ByKey())
    with Refused("partitioned by its key"):
        keyed.rebalance()
    with Refused("partitioned by its key"):
        keyed.broadcast()


def test_functions_of_a_keyed_stream_run_with_its_keys(numbers: DataStream) -> None:
    keyed = numbers.key_by(ByKey())
    for stream, operation in (
        (keyed.map(Double()), KeyedMap),
        (keyed.map(lambda n: n), Map),
        (keyed.flat_map(Twice()), KeyedFlatMap),
        (keyed.filter(Odd()), KeyedFilter),
        (keyed.process(Split2()), KeyedProcess),
        (keyed.process(Keyed()), KeyedProcess),
        (keyed.reduce(max), Reduce),
        (keyed.sum(), RollingField),
    ):
        node = stream._own_node("test")
        assert type(node.operation) is operation
        assert node.inputs[0].partitioning is Partitioning.HASH


# --- sources and sinks --------------------------------------------------------------------------------------


def test_a_collection_is_checked_against_its_type_at_the_call(env: StreamExecutionEnvironment) -> None:
    with Refused("'two'", kind=TypeMismatchError):
        env.from_collection([1, "two"], Types.LONG())
    with Refused("from_collection: found 5"):
        env.from_collection(5)  # type: ignore[arg-type]


def test_what_makes_a_collection_is_heard_in_its_own_words(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1], Types.LONG())
    with Refused("map: found 5", kind=TypeMismatchError):
        env.from_collection(numbers.map(5) for _ in range(2))  # type: ignore[arg-type]


def test_any_iterable_is_a_collection(env: StreamExecutionEnvironment) -> None:
    source = last(env.from_collection(n * n for n in range(3))).operation
    assert isinstance(source, Read)
    assert source.source.describe()


class Days(PythonSource):
    bounded = True

    def splits(self, context: Any) -> list[Split]:
        return [Split("days")]

    def reach(self, split: Split, offset: Any, budget: int, context: Any) -> Any:
        return min(offset + budget, 7)

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        yield list(range(start, stop))


def test_sources_of_all_shapes_become_read_nodes(env: StreamExecutionEnvironment) -> None:
    watermarks = WatermarkStrategy.for_monotonous_timestamps()
    sequence = env.from_source(NumberSequenceSource(1, 9), watermarks, "numbers")
    assert sequence.get_type() == Types.LONG()
    operation = last(sequence).operation
    assert isinstance(operation, Read) and operation.watermarks is watermarks
    days = Days()
    assert env.add_source(days, "days", Types.LONG()).get_type() == Types.LONG()
    assert days.type_info is None, "the program's own source is not changed"
    assert env.add_source(DataGeneratorSource(lambda n: n, count=3)).get_type() == Types.PICKLED_BYTE_ARRAY()
    with Refused("emits LONG and type_info= is STRING"):
        env.from_source(NumberSequenceSource(1, 2), watermarks, "n", Types.STRING())
    with Refused("expected a source"):
        env.add_source("org.example.Source")  # type: ignore[arg-type]
    with Refused("expected a WatermarkStrategy"):
        env.from_source(NumberSequenceSource(1, 2), None, "n")  # type: ignore[arg-type]


def test_a_callable_sink_is_at_least_once(numbers: DataStream) -> None:
    sink = last(numbers.add_sink(print)).operation
    assert isinstance(sink, Write) and isinstance(sink.sink, ForeachSink)
    assert sink.sink.guarantee == "at-least-once"
    with Refused("expected a SinkFunction"):
        numbers.add_sink(3)  # type: ignore[arg-type]
    with Refused("which is a transformation"):
        numbers.add_sink(_CallableMap())
    with Refused("a plain callable is passed to add_sink()"):
        numbers.sink_to(print)  # type: ignore[arg-type]


class _CallableMap(Double):
    def __call__(self, value: int) -> int:
        return value


def test_java_objects_and_class_names_are_refused() -> None:
    from millstream.datastream.functions import SourceFunction

    with pytest.raises(NotAvailableError, match="no Flink JVM"):
        SourceFunction("org.example.Source")
    with pytest.raises(NotAvailableError, match="no Flink JVM"):
        DataStream(object())


# --- the environment ----------------------------------------------------------------------------------------


def test_parallelism_is_checked_where_it_is_set(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    for wrong in (0, -1, True, "2", 1.5):
        with Refused("set_parallelism: found", "at least 1"):
            env.set_parallelism(wrong)  # type: ignore[arg-type]
        with Refused("set_parallelism: found", "at least 1"):
            numbers.map(Double()).set_parallelism(wrong)  # type: ignore[arg-type]
    env.set_max_parallelism(4)
    with Refused("found 5", "maximum of 4"):
        env.set_parallelism(5)
    with Refused("found 5 for 'Map', whose maximum is 4"):
        numbers.map(Double()).set_parallelism(5)
    with Refused("at least 1"):
        env.configure(Configuration().set_string("parallelism.default", "none"))


def test_a_parallelism_above_the_usual_maximum_may_be_allowed_afterwards(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(200)
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    env.from_collection([1]).print()
    with pytest.raises(ProgramError, match="200 and the maximum 128") as raised:
        env._graph("job")
    assert raised.value.at == f"test_data_stream_api.py:{line}", "the line that set it, not the one that ran it"
    env.set_max_parallelism(256)
    assert env._graph("job").max_parallelism == 256


def test_an_environment_can_be_used_again(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    numbers.print()
    assert len(env._graph("first").nodes) == 2
    env._builder.take()
    numbers.map(Double()).print()
    second = env._graph("second")
    assert [node.name for node in second.nodes] == ["Source: Collection Source", "Map", "Sink: Print to Std. Out"]
    assert second.job_name == "second"


def test_unknown_keys_are_refused_with_the_nearest(env: StreamExecutionEnvironment) -> None:
    with Refused("parallelism.default", kind=ConfigurationError):
        env.configure(Configuration().set_integer("paralelism.default", 2))
    with Refused("BATCH", kind=ConfigurationError):
        env.configure(Configuration().set_string("execution.runtime-mode", "fast"))
    env.configure(Configuration().set_string("spark.executor.memory", "2g").set_string("user.mine", "x"))


def test_one_setting_has_one_value_however_it_is_set(env: StreamExecutionEnvironment) -> None:
    env.configure(Configuration.from_dict({"parallelism.default": 7, "execution.checkpointing.interval": "10 s"}))
    assert (env.get_parallelism(), env.get_config().get_parallelism(), env.get_checkpoint_interval()) == (7, 7, 10_000)
    env.get_config().set_parallelism(3).set_max_parallelism(9)
    assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 9)
    env.enable_checkpointing(500, CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpoint_config().get_checkpoint_interval() == 500
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE


def test_the_jobs_settings_are_read_from_the_configuration(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_store("out/store").enable_checkpointing(250)
    env.get_config().set_global_job_parameters({"city": "Bern"})
    env.configure(
        Configuration.from_dict(
            {
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "4",
                "restart-strategy.fixed-delay.delay": "2 s",
            }
        )
    )
    settings = env._job_settings()
    assert (settings.runtime_mode, settings.store, settings.checkpoint_interval_ms) == ("BATCH", "out/store", 250)
    assert dict(settings.job_parameters) == {"city": "Bern"}
    assert settings.restart == RestartStrategies.fixed_delay_restart(4, 2000)
    assert settings.site.file == __file__
    env.set_restart_strategy(RestartStrategies.no_restart())
    assert env._job_settings().restart == RestartStrategies.no_restart(), "the call wins over the configuration"


def test_the_command_line_wins_over_the_program_and_the_program_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with with_launch_defaults({"parallelism.default": "6", "millstream.store": "given"}):
        plain = StreamExecutionEnvironment.get_execution_environment()
        configuration = Configuration().set_integer("parallelism.default", 2)
        configured = StreamExecutionEnvironment.get_execution_environment(configuration)
    plain.set_parallelism(3)
    for env in (plain, configured):
        env.from_collection([1]).print()
        assert env._graph("job").parallelism == 6
        assert env._job_settings().store == "given"
    messages = [record.getMessage() for record in caplog.records]
    for value in (2, 3):
        told = f"the command line sets parallelism.default to '6': the program's '{value}' is not used"
        assert len([each for each in messages if told in each]) == 1
    later = StreamExecutionEnvironment.get_execution_environment()
    assert later._job_settings().store is None


def test_chaining_and_timeouts_are_switches(env: StreamExecutionEnvironment) -> None:
    assert env.is_chaining_enabled() and env.get_buffer_timeout() == 100
    env.disable_operator_chaining().set_buffer_timeout(-1)
    assert not env.is_chaining_enabled() and env.get_buffer_timeout() == -1
    env.from_collection([1]).print()
    assert env._graph("job").chaining is False
    env.get_checkpoint_config().set_alignment_timeout(Duration.of_seconds(2))
    assert env.get_checkpoint_config().get_aligned_checkpoint_timeout() == Duration.of_seconds(2)


def test_python_files_must_exist(env: StreamExecutionEnvironment) -> None:
    env.add_python_file(__file__)
    assert env._configuration.get_string("python.files", None) == __file__
    with Refused("'absent.py' does not exist"):
        env.add_python_file("absent.py")


def test_a_python_folder_is_sent_packed(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "words.py").write_text("WORDS = ['a']")
    env.add_python_file(str(tmp_path / "mine"))
    packed = env._configuration.get_string("python.files", None)
    assert packed is not None
    assert zipfile.ZipFile(packed).namelist() == ["words.py"]


def test_tasks_run_in_the_programs_own_interpreter(env: StreamExecutionEnvironment) -> None:
    env.set_python_executable(sys.executable)
    with pytest.raises(NotAvailableError, match="same packages"):
        env.set_python_executable("python-of-another-time")
