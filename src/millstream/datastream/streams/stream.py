"""`DataStream`: a stream of records and its transformations.

Every call adds one frozen node to the environment's graph and returns its output stream; nothing runs before `execute`.
Arguments are checked here, at the user's line. A stream is typed if its `output_type` was declared. Records of a typed
stream are sent as Arrow columns, others as pickled values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, overload

import pyarrow as pa

from millstream.common.execution_config import ExecutionConfig
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream.functions.function import FilterFunction, FlatMapFunction, KeySelector, MapFunction
from millstream.datastream.functions.process import ProcessFunction
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.streams.argument_checks import (
    checked_count,
    checked_function,
    checked_output_type,
    projected_type,
    refuse,
)
from millstream.datastream.streams.key_selection import key_selection
from millstream.datastream.streams.missing_names import Hints
from millstream.datastream.streams.side_outputs import with_side_output
from millstream.datastream.streams.stream_edges import OperatorControls, Partitionings, no_java_object
from millstream.datastream.streams.stream_outputs import StreamOutputs
from millstream.graph.nodes import (
    AssignTimestamps,
    Edge,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Operation,
    Partitioning,
    Process,
    Project,
)
from millstream.graph.notices import log_once
from millstream.graph.site import here
from millstream.records.batch import is_typed

if TYPE_CHECKING:
    from typing import Self

    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.datastream.streams.broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from millstream.datastream.streams.cached_data_stream import CachedDataStream
    from millstream.datastream.streams.connected_streams import ConnectedStreams
    from millstream.datastream.streams.iterative_stream import IterativeStream
    from millstream.datastream.streams.joined_streams import CoGroupedStreams, JoinedStreams
    from millstream.datastream.streams.keyed_stream import KeyedStream
    from millstream.datastream.streams.windowed_stream import AllWindowedStream
    from millstream.datastream.window import WindowAssigner

__all__ = ["DataStream"]

_PARTITION_PRESERVING = (Partitioning.UNSPECIFIED, Partitioning.FORWARD)


class DataStream(OperatorControls, Partitionings, StreamOutputs):
    """A stream of records of one type.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> words = env.from_collection(["to be", "or not"], Types.STRING()).flat_map(str.split, Types.STRING())
    >>> print(words.name("words").get_name(), words.get_type())
    words String
    """

    _hints: ClassVar[Hints] = (
        ("KeyedStream", "Call key_by(...) before it"),
        ("WindowedStream", "Call key_by(...).window(...) before it"),
        ("StreamExecutionEnvironment", "Call it on the environment: env.{name}(...)"),
    )

    def __init__(
        self,
        j_data_stream: Any = None,
        *,
        environment: StreamExecutionEnvironment | None = None,
        edges: tuple[Edge, ...] = (),
    ) -> None:
        no_java_object(self, j_data_stream)
        assert environment is not None and edges, "a stream is made by an environment or another stream"
        self._environment = environment
        self._edges = edges

    def _then(self, operation: Operation, name: str, output_type: TypeInformation | None) -> DataStream:
        """Adds a node that reads this stream; returns its output stream."""
        node = self._add(operation, name, output_type)
        return DataStream(environment=self._environment, edges=(Edge(node.id),))

    # --- about the stream -------------------------------------------------------------------------------

    def get_name(self) -> str:
        """The operator's name."""
        return self._own_node("get_name").name.removeprefix("Source: ").removeprefix("Sink: ")

    def get_type(self) -> TypeInformation:
        """The type of the records; `Types.PICKLED_BYTE_ARRAY()` if none was declared."""
        return self._stream_type() or Types.PICKLED_BYTE_ARRAY()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment of this stream."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """The environment's settings."""
        return self._environment.get_config()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Sets the operator's maximum parallelism, which cannot change once the job has state."""
        checked_count("set_max_parallelism", max_parallelism)
        node = self._own_node("set_max_parallelism")
        if node.parallelism is not None and node.parallelism > max_parallelism:
            raise refuse(
                f"set_max_parallelism: found {max_parallelism}, below the parallelism {node.parallelism} "
                f"of '{node.name}'"
            )
        return self._amend("set_max_parallelism", max_parallelism=max_parallelism)

    def force_non_parallel(self) -> Self:
        """Limits the operator to one subtask permanently."""
        return self._amend("force_non_parallel", parallelism=1, max_parallelism=1)

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accepted without effect: all operators share an epoch here, which `env.set_buffer_timeout` bounds."""
        checked_count("set_buffer_timeout", timeout_millis, least=-1)
        self._own_node("set_buffer_timeout")
        log_once(
            "buffer timeout",
            "the buffer timeout of one operator has no effect: records travel with their epoch. Set it for the "
            "environment: env.set_buffer_timeout(ms)",
        )
        return self

    def start_new_chain(self) -> Self:
        """Starts a new chain with this operator."""
        return self._amend("start_new_chain", starts_chain=True)

    # --- transformations --------------------------------------------------------------------------------

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Replaces every record by the result of `func`."""
        func = checked_function("map", func, MapFunction)
        return self._then(Map(func), "Map", checked_output_type("map", output_type))

    def flat_map(
        self, func: Callable[[Any], Iterable[Any]] | FlatMapFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Replaces every record by the elements of the iterable that `func` returns, for example a generator."""
        func = checked_function("flat_map", func, FlatMapFunction)
        return self._then(FlatMap(func), "FlatMap", checked_output_type("flat_map", output_type))

    def filter(self, func: Callable[[Any], bool] | FilterFunction) -> DataStream:
        """Selects the records for which `func` is true."""
        func = checked_function("filter", func, FilterFunction)
        return self._then(Filter(func), "Filter", self._stream_type())

    def process(self, func: ProcessFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Adds a `ProcessFunction`, with access to timestamps and side outputs."""
        func = checked_function("process", func, ProcessFunction, callables=False)
        return self._then(Process(func), "PROCESS", checked_output_type("process", output_type))

    def project(self, *field_indexes: int) -> DataStream:
        """Selects these fields of a row or tuple, in this order, without decoding columns."""
        output_type = projected_type(self._stream_type(), field_indexes)
        return self._then(Project(field_indexes), "Projection", output_type)

    def map_batches(self, func: Callable[[pa.RecordBatch], pa.RecordBatch], output_type: TypeInformation) -> DataStream:
        """Replaces whole Arrow record batches: `func` receives a batch and returns a batch of `output_type` (beyond
        PyFlink).

        The stream must be typed; a row has one column per field, any other type one column called `value`. The
        function may return fewer or more rows than it received.
        """
        func = checked_function("map_batches", func, MapFunction)
        if isinstance(func, MapFunction):
            raise refuse("map_batches: found a MapFunction, expected a function from RecordBatch to RecordBatch")
        if not is_typed(self._stream_type()):
            raise refuse(
                "map_batches: the stream is untyped and has no columns. Declare output_type= on the operator before"
            )
        declared = checked_output_type("map_batches", output_type)
        if not is_typed(declared):
            raise refuse(
                "map_batches: its result needs a type with columns. Declare output_type=, such as Types.LONG()"
            )
        return self._then(MapBatches(func), "Map Batches", declared)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Assigns an event timestamp to every record and generates watermarks."""
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise refuse(
                f"assign_timestamps_and_watermarks: found {watermark_strategy!r}, expected a WatermarkStrategy, such "
                "as WatermarkStrategy.for_monotonous_timestamps()"
            )
        return self._then(AssignTimestamps(watermark_strategy), "Timestamps/Watermarks", self._stream_type())

    def union(self, *streams: DataStream) -> DataStream:
        """Merges this stream and the others; all must have the same type."""
        edges = self._edges
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise refuse(f"union: found {stream!r} ({type(stream).__name__}), expected streams")
            if stream._environment is not self._environment:
                raise refuse(
                    "union: the streams belong to different environments. Create all of them in the same environment"
                )
            if stream._stream_type() != self._stream_type():
                raise refuse(
                    f"union: the streams have different types, {self.get_type()} and {stream.get_type()}. "
                    "Map one of them to the other's type"
                )
            edges += stream._edges
        return DataStream(environment=self._environment, edges=edges)

    def key_by(
        self, key_selector: Callable[[Any], Any] | KeySelector | int | str, key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Partitions the stream by key: all records of a key reach the same subtask. The key is the result of
        `key_selector`, or a field by position or name; in a typed stream the field is a column, with its type."""
        return self._keyed("key_by", Partitioning.HASH, key_selector, key_type)

    def reinterpret_as_keyed_stream(
        self, key_selector: Callable[[Any], Any] | KeySelector | int | str, key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Treats this stream as already partitioned by a key: like `key_by` without an exchange (beyond PyFlink;
        Flink's `DataStreamUtils.reinterpretAsKeyedStream`).

        Every record must be in the subtask to which `key_by` would send it; otherwise the job fails. The output of a
        keyed operator qualifies if the key is unchanged. The next operator has the same parallelism as this one.
        """
        moved = [edge.partitioning for edge in self._edges if edge.partitioning not in _PARTITION_PRESERVING]
        if moved:
            raise refuse(
                f"reinterpret_as_keyed_stream: the stream is partitioned by {moved[0].value}, so its records leave the "
                "subtasks of their keys. Call it on the stream an operator returned, or use key_by()"
            )
        return self._keyed("reinterpret_as_keyed_stream", Partitioning.FORWARD, key_selector, key_type)

    def _keyed(self, method: str, partitioning: Partitioning, key_selector: Any, key_type: Any) -> KeyedStream:
        from millstream.datastream.streams.keyed_stream import KeyedStream

        selector, declared = key_selection(key_selector, key_type, self._stream_type(), method)
        site = here()
        edges = (
            Edge(edge.source, partitioning, key_selector=selector, key_type=declared, tag=edge.tag, site=site)
            for edge in self._edges
        )
        return KeyedStream(
            original_data_type_info=self.get_type(),
            origin_stream=self,
            environment=self._environment,
            edges=tuple(edges),
        )

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The records that the process function yielded with this tag; for a source, the undecodable messages."""
        if not isinstance(output_tag, OutputTag):
            raise refuse(f"get_side_output: found {output_tag!r}, expected an OutputTag")
        node = self._own_node("get_side_output")
        type_info = checked_output_type("get_side_output", output_tag.type_info)
        operation = with_side_output(node, output_tag, type_info)
        self._environment._builder.amend(node.id, operation=operation)
        return DataStream(environment=self._environment, edges=(Edge(node.id, tag=output_tag.tag_id),))

    # --- windows over the whole stream ------------------------------------------------------------------

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Groups all records by window, in one subtask; `key_by(...).window(...)` is parallel."""
        from millstream.datastream.streams.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Windows of `size` records; with `slide`, of the last `size` records every `slide` records (beyond
        PyFlink)."""
        from millstream.datastream.streams.windowed_stream import AllWindowedStream, counted
        from millstream.datastream.window.counting import GlobalWindows

        return counted(AllWindowedStream(self, GlobalWindows.create()), "count_window_all", size, slide)

    # --- with itself ------------------------------------------------------------------------------------

    def iterate(self, max_wait_time_ms: int = 0, *, rounds_max: int | None = None) -> IterativeStream:
        """Starts a loop: the returned stream has the records of this stream and those fed back by `close_with` (beyond
        PyFlink).

        An epoch iterates up to `rounds_max` times (by default `millstream.loop.rounds-max`); records still in the loop
        are stored, and continue in the next epoch. The wait time is accepted without effect: a job detects when its
        loops are empty.
        """
        from millstream.datastream.streams.iterative_stream import iterated

        return iterated(self, max_wait_time_ms, rounds_max)

    # --- with another stream ----------------------------------------------------------------------------

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Connects this stream and another of any type in one operator, or with a broadcast stream, to read its
        state."""
        from millstream.datastream.streams.broadcast_stream import BroadcastConnectedStream, BroadcastStream
        from millstream.datastream.streams.connected_streams import ConnectedStreams

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        if not isinstance(ds, DataStream):
            raise refuse(f"connect: found {ds!r} ({type(ds).__name__}), expected a stream or a broadcast stream")
        return ConnectedStreams(self, ds)

    def join(self, other: DataStream) -> JoinedStreams:
        """Pairs records of this stream and another with the same key and window (beyond PyFlink):
        `a.join(b).where(selector).equal_to(selector).window(assigner).apply(function)`."""
        from millstream.datastream.streams.joined_streams import JoinedStreams

        return JoinedStreams(self, other)

    def co_group(self, other: DataStream) -> CoGroupedStreams:
        """Groups the records of both streams by key and window (beyond PyFlink), for outer joins:
        `a.co_group(b).where(selector).equal_to(selector).window(assigner).apply(function)`."""
        from millstream.datastream.streams.joined_streams import CoGroupedStreams

        return CoGroupedStreams(self, other)

    # --- for later jobs ---------------------------------------------------------------------------------

    def cache(self) -> CachedDataStream:
        """Caches the records for later jobs of this environment: the first job that uses this stream computes it from
        bounded input; later jobs read the cache. It is removed by `invalidate()`, `env.close()`, or program exit."""
        from millstream.datastream.streams.cached_data_stream import cached

        return cached(self)
