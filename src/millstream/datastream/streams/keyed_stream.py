"""A stream partitioned by key.

Every operation here receives all records of a key in one subtask, in order. Function objects may have keyed state;
plain callables have no `open()` in which to obtain it, and run as on any stream. `reduce`, `sum` and the others emit a
running result per record in STREAMING, and one final result per key in BATCH. A keyed stream is not an operator: naming
or placing it is rejected, as in PyFlink (`unnamed_stream`).

`DataStreamUtils` has a method of Flink's class of that name: reinterpretation as a keyed stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.datastream.functions.function import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
)
from millstream.datastream.functions.keyed_batch import KeyedBatchFunction
from millstream.datastream.functions.process import KeyedProcessFunction, ProcessFunction
from millstream.datastream.states.queryable import checked_queryable_name
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type, checked_states, refuse
from millstream.datastream.streams.ready_aggregates import rolling_field
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.datastream.streams.unnamed_stream import UnnamedStream
from millstream.datastream.time_domain import TimeDomain
from millstream.graph.nodes import Edge, KeyedBatches, KeyedFilter, KeyedFlatMap, KeyedMap, KeyedProcess, Reduce
from millstream.records.batch import is_typed

if TYPE_CHECKING:
    from millstream.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
    from millstream.datastream.states.queryable import QueryableStateStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.datastream.streams.closeable_iterator import CloseableIterator
    from millstream.datastream.streams.interval_join import IntervalJoin
    from millstream.datastream.streams.windowed_stream import WindowedStream
    from millstream.datastream.window import WindowAssigner

__all__ = ["DataStreamUtils", "KeyedStream"]


def _partitioned_by_key(method: str) -> NoReturn:
    raise refuse(
        f"{method}: the stream is partitioned by its key. Call it instead of key_by(), or after the next operator"
    )


class _KeyAndRecord:
    """Converts a record to a row of its key and the record."""

    def __init__(self, key_selector: Callable[[Any], Any] | KeySelector) -> None:
        self._key_of = key_selector.get_key if isinstance(key_selector, KeySelector) else key_selector

    def __call__(self, value: Any) -> Row:
        return Row(f0=self._key_of(value), f1=value)


class KeyedStream(UnnamedStream):
    """The result of `DataStream.key_by`."""

    made_by = ("key_by", "keyed")
    _hints = (
        ("WindowedStream", "Call window(...) before it"),
        ("StreamExecutionEnvironment", "Call it on the environment: env.{name}(...)"),
    )

    class AccumulateType(Enum):
        """The rolling aggregations of a keyed stream."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    def __init__(
        self,
        j_keyed_stream: Any = None,
        original_data_type_info: TypeInformation | None = None,
        origin_stream: DataStream | None = None,
        *,
        environment: StreamExecutionEnvironment | None = None,
        edges: tuple[Edge, ...] = (),
    ) -> None:
        no_java_object(self, j_keyed_stream)
        assert origin_stream is not None, "key_by makes keyed streams"
        super().__init__(environment=environment, edges=edges)
        self._original_data_type_info = original_data_type_info
        self._origin_stream = origin_stream

    def key_by(
        self, key_selector: Callable[[Any], Any] | KeySelector | int | str, key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Partitions the records by a different key."""
        return self._origin_stream.key_by(key_selector, key_type)

    # --- functions with keyed state -----------------------------------------------------------------------

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Replaces every record by the result of `func`; a `MapFunction` may have state of the record's key."""
        if not isinstance(func, MapFunction):
            return super().map(func, output_type)
        checked_function("map", func, MapFunction)
        return self._then(KeyedMap(func), "Map", checked_output_type("map", output_type))

    def flat_map(
        self, func: Callable[[Any], Iterable[Any]] | FlatMapFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Replaces every record by the results of `func`; a `FlatMapFunction` may have state of the record's key."""
        if not isinstance(func, FlatMapFunction):
            return super().flat_map(func, output_type)
        checked_function("flat_map", func, FlatMapFunction)
        return self._then(KeyedFlatMap(func), "FlatMap", checked_output_type("flat_map", output_type))

    def filter(self, func: Callable[[Any], bool] | FilterFunction) -> DataStream:
        """Selects the records for which `func` is true; a `FilterFunction` may have state of the record's key."""
        if not isinstance(func, FilterFunction):
            return super().filter(func)
        checked_function("filter", func, FilterFunction)
        return self._then(KeyedFilter(func), "Filter", self._stream_type())

    def process(
        self, func: KeyedProcessFunction | ProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Adds a process function, with state and timers of the record's key."""
        kind = KeyedProcessFunction if isinstance(func, KeyedProcessFunction) else ProcessFunction
        func = checked_function("process", func, kind, callables=False)
        domains = (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME)
        declared = checked_output_type("process", output_type)
        return self._then(KeyedProcess(func, time_domains=domains), "KEYED PROCESS", declared)

    def process_batches(self, func: KeyedBatchFunction, output_type: TypeInformation) -> DataStream:
        """Adds a `KeyedBatchFunction`: whole Arrow batches with the states of their keys (beyond PyFlink).

        Intended for vectorised logic at high rates; docs/datastream/keyed-state.md describes its use and costs. Stream,
        key, states and output need declared types.
        """
        func = checked_function("process_batches", func, KeyedBatchFunction, callables=False)
        if not is_typed(self._stream_type()):
            raise refuse(
                "process_batches: the stream is untyped and has no columns. Declare output_type= on the operator before"
            )
        if not is_typed(self._edges[0].key_type):
            raise refuse("process_batches: the key has no declared type. Use key_by(field) or key_by(..., key_type=)")
        declared = checked_output_type("process_batches", output_type)
        if not is_typed(declared):
            raise refuse("process_batches: its output needs a type with columns. Declare output_type=")
        states = checked_states("process_batches", func.states())
        return self._then(KeyedBatches(func, states), "KEYED BATCHES", declared)

    def execute_and_collect(  # type: ignore[override]
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Runs the job now and iterates over this stream's records in the program, each a Row of the key (f0) and the
        record (f1), as in PyFlink."""
        edge = self._edges[0]
        assert edge.key_selector is not None
        types = [edge.key_type, self._stream_type()]
        output_type = None
        if any(map(is_typed, types)):
            output_type = Types.ROW([each or Types.PICKLED_BYTE_ARRAY() for each in types])
        pairs = self.map(_KeyAndRecord(edge.key_selector), output_type)
        return pairs.name("Key and record").execute_and_collect(job_execution_name, limit)

    # --- running aggregations -----------------------------------------------------------------------------

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """Combines the records of a key: each result is `func` of the previous result and the next record."""
        func = checked_function("reduce", func, ReduceFunction)
        return self._then(Reduce(func), "Reduce", self._stream_type())

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of a field; the other fields are those of the key's first record.

        In a stream of plain numbers the only field is 0. Sums follow the declared type: BYTE to LONG wrap around, FLOAT
        has 32 bits, BIG_INT and BIG_DEC are exact. None is an error.
        """
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The running minimum of a field; the other fields are those of the key's first record."""
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The running maximum of a field; the other fields are those of the key's first record."""
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record with the smallest value of a field so far; of several, the first."""
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record with the largest value of a field so far; of several, the first."""
        return self._rolling("max_by", position_to_max_by)

    def _rolling(self, kind: str, field: Any) -> DataStream:
        stream_type = self._stream_type()
        operation = rolling_field(kind, field, stream_type if is_typed(stream_type) else None)
        return self._then(operation, kind.replace("_", " ").title(), stream_type)

    # --- queryable state -------------------------------------------------------------------------------------

    def as_queryable_state(
        self, queryable_state_name: str, state_descriptor: ValueStateDescriptor | ReducingStateDescriptor | None = None
    ) -> QueryableStateStream:
        """Ends the stream in queryable state with this name (as in Flink's Java API): the last record of every key, or
        with a `ReducingStateDescriptor` the reduction of all records of a key."""
        from millstream.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
        from millstream.datastream.states.queryable import KeepLast, QueryableStateStream

        if state_descriptor is None:
            name = checked_queryable_name("as_queryable_state", queryable_state_name)
            state_descriptor = ValueStateDescriptor(name, self.get_type())
        if not isinstance(state_descriptor, ValueStateDescriptor | ReducingStateDescriptor):
            raise refuse(
                f"as_queryable_state: found {state_descriptor!r}, expected a ValueStateDescriptor or a "
                "ReducingStateDescriptor. For other kinds use a process function, and call set_queryable there"
            )
        state_descriptor.set_queryable(queryable_state_name)
        operation = KeyedProcess(KeepLast(state_descriptor))
        node = self._add(operation, f"Queryable state: {queryable_state_name}")
        self._environment._builder.amend(node.id, queryable=queryable_state_name)
        return QueryableStateStream(environment=self._environment, edges=(Edge(node.id),), descriptor=state_descriptor)

    # --- windows --------------------------------------------------------------------------------------------

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Groups the records of each key by window; add an operation with `reduce`, `aggregate`, `process` …"""
        from millstream.datastream.streams.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` records of a key; with `slide`, windows of the last `size` records every `slide`
        records."""
        from millstream.datastream.streams.windowed_stream import WindowedStream, counted
        from millstream.datastream.window.counting import GlobalWindows

        return counted(WindowedStream(self, GlobalWindows.create()), "count_window", size, slide)

    # --- with another keyed stream --------------------------------------------------------------------------

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Pairs records of this stream and `other` that have the same key and are close in time (as in Flink's Java
        API): set the bounds with `between`."""
        from millstream.datastream.streams.interval_join import IntervalJoin

        return IntervalJoin(self, other)

    # --- rejected: the key already determines the partitioning, and key_by is not an operator ---------------

    def shuffle(self) -> NoReturn:
        _partitioned_by_key("shuffle")

    def rescale(self) -> NoReturn:
        _partitioned_by_key("rescale")

    def rebalance(self) -> NoReturn:
        _partitioned_by_key("rebalance")

    def forward(self) -> NoReturn:
        _partitioned_by_key("forward")

    def global_(self) -> NoReturn:
        _partitioned_by_key("global_")

    def broadcast(self, *args: Any) -> NoReturn:
        _partitioned_by_key("broadcast")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> NoReturn:
        _partitioned_by_key("partition_custom")

    def iterate(self, max_wait_time_ms: int = 0, *, rounds_max: int | None = None) -> NoReturn:
        raise refuse(
            "iterate: a loop cannot start on a keyed stream. Call iterate() before key_by(), and key_by() in the loop"
        )

    def cache(self) -> NoReturn:
        raise refuse("cache: a keyed stream cannot be cached. Call it before key_by()")


class DataStreamUtils:
    """Methods that Flink offers in addition to those of a stream (not in PyFlink)."""

    @staticmethod
    def reinterpret_as_keyed_stream(
        stream: DataStream,
        key_selector: Callable[[Any], Any] | KeySelector | int | str,
        key_type: TypeInformation | None = None,
    ) -> KeyedStream:
        """Treats the stream as already partitioned by this key, without an exchange.

        Every record must be in the subtask to which `key_by` would send it; otherwise the job fails.

        >>> from millstream.common import Types
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> pair = Types.TUPLE([Types.STRING(), Types.LONG()])
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sums = env.from_collection([("a", 1), ("b", 2)], pair).key_by(0).sum(1)
        >>> highest = DataStreamUtils.reinterpret_as_keyed_stream(sums, 0).max(1)
        >>> print(highest.get_type())
        TupleTypeInfo(String, Long)
        """
        if not isinstance(stream, DataStream):
            raise refuse(f"reinterpret_as_keyed_stream: found {stream!r} ({type(stream).__name__}), expected a stream")
        return stream.reinterpret_as_keyed_stream(key_selector, key_type)
