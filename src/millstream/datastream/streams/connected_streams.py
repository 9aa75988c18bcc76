"""Two streams of different types in one operator, which may share state.

A connection is not an operator: passing a function to it creates one. Either both streams are keyed, with the same key
type, or neither is; other combinations are rejected at the user's line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.function import CoFlatMapFunction, CoMapFunction
from millstream.datastream.functions.process import CoProcessFunction, KeyedCoProcessFunction
from millstream.datastream.streams.argument_checks import checked_function, checked_output_type, refuse
from millstream.datastream.streams.keyed_stream import KeyedStream
from millstream.datastream.streams.missing_names import MissingNameHints
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.time_domain import TimeDomain
from millstream.graph.nodes import (
    CoFlatMap,
    CoMap,
    CoProcess,
    Edge,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedCoProcess,
    Operation,
)
from millstream.graph.site import here

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["ConnectedStreams", "connected_environment", "second_input"]


def second_input(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """The edges as the second input of an operator."""
    return tuple(replace(edge, input=2) for edge in edges)


def connected_environment(stream1: DataStream, stream2: DataStream) -> StreamExecutionEnvironment:
    """The environment of both streams."""
    if stream1._environment is not stream2._environment:
        raise refuse("connect: the streams belong to different environments. Create both in the same environment")
    return stream1._environment


class ConnectedStreams(MissingNameHints):
    """The result of `DataStream.connect`: requires a function with a method for the records of each stream.

    Within an epoch all records of the first stream are processed before those of the second, which are buffered in
    memory until then. Each stream keeps its order, so a repeated epoch returns the same result.

    >>> from millstream.common import Types
    >>> from millstream.datastream import CoMapFunction, StreamExecutionEnvironment
    >>> class Labels(CoMapFunction):
    ...     def map1(self, value):
    ...         return f"number {value}"
    ...     def map2(self, value):
    ...         return f"word {value}"
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> numbers, words = env.from_collection([1, 2], Types.LONG()), env.from_collection(["a"], Types.STRING())
    >>> print(numbers.connect(words).map(Labels(), Types.STRING()).get_type())
    String
    """

    _hints = (("KeyedStream", "The two become one stream by map(...), flat_map(...) or process(...)"),)

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self._environment = connected_environment(stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: TypeInformation | None = None
    ) -> ConnectedStreams:
        """Partitions both streams by key: records with the same key reach the same subtask, with shared state."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Replaces every record by the result of `map1` or `map2`; on keyed streams the function may have keyed
        state."""
        func = checked_function("connect(...).map", func, CoMapFunction, callables=False)
        operation = KeyedCoMap(func) if self._is_keyed("map") else CoMap(func)
        return self._then(operation, "Co-Map", checked_output_type("map", output_type))

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Replaces every record by the results of `flat_map1` or `flat_map2`; on keyed streams it may have state."""
        func = checked_function("connect(...).flat_map", func, CoFlatMapFunction, callables=False)
        operation = KeyedCoFlatMap(func) if self._is_keyed("flat_map") else CoFlatMap(func)
        return self._then(operation, "Co-Flat Map", checked_output_type("flat_map", output_type))

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Adds a function with times and side outputs; on keyed streams with shared state and timers."""
        declared = checked_output_type("process", output_type)
        kind = KeyedCoProcessFunction if isinstance(func, KeyedCoProcessFunction) else CoProcessFunction
        func = checked_function("connect(...).process", func, kind, callables=False)
        if not self._is_keyed("process"):
            if isinstance(func, KeyedCoProcessFunction):
                raise refuse(
                    f"connect(...).process: {type(func).__name__} is a KeyedCoProcessFunction and the streams have no "
                    "key. Call key_by(selector1, selector2) before process(), or use a CoProcessFunction"
                )
            return self._then(CoProcess(func), "Co-Process", declared)
        domains = (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME)
        return self._then(KeyedCoProcess(func, time_domains=domains), "KEYED CO-PROCESS", declared)

    def _is_keyed(self, method: str) -> bool:
        """Whether both streams are keyed; raises an error if only one is, or if their keys have different types."""
        is_keyed, is_other_keyed = isinstance(self.stream1, KeyedStream), isinstance(self.stream2, KeyedStream)
        if is_keyed != is_other_keyed:
            which = ("first", "second") if is_keyed else ("second", "first")
            raise refuse(
                f"connect(...).{method}: the {which[0]} stream is keyed and the {which[1]} is not. Key both, by "
                "key_by(selector1, selector2) of the connection, or neither"
            )
        if is_keyed:
            first, second = self.stream1._edges[0].key_type, self.stream2._edges[0].key_type
            if first != second:
                raise refuse(
                    f"connect(...).{method}: the keys of the two streams have different types, {first or 'undeclared'} "
                    f"and {second or 'undeclared'}, so no two keys would be equal. Use the same key_type= for both"
                )
        return is_keyed

    def _then(self, operation: Operation, name: str, output_type: TypeInformation | None) -> DataStream:
        edges = self.stream1._edges + second_input(self.stream2._edges)
        node = self._environment._builder.add(operation, name, inputs=edges, output_type=output_type, site=here())
        return DataStream(environment=self._environment, edges=(Edge(node.id),))
