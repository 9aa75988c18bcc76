"""The outputs of a stream: sinks, the terminal, the program itself, a Spark writer.

Adding a sink does not run anything: `execute` runs the job. Only `execute_and_collect` starts it immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from millstream.connectors import contracts
from millstream.connectors.collect import CollectSink, open_queue
from millstream.connectors.direct_sinks import ForeachSink
from millstream.connectors.print_sink import PrintSink
from millstream.datastream.functions.function import Function
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper, SinkFunction
from millstream.datastream.streams.argument_checks import at_users_line, checked_count, refuse
from millstream.datastream.streams.closeable_iterator import CloseableIterator
from millstream.datastream.streams.function_calls import check_takes
from millstream.datastream.streams.stream_edges import OperatorControls, StreamEdges, no_java_object
from millstream.graph.nodes import Edge, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millstream.datastream.connectors.base import Sink
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["DataStreamSink", "StreamOutputs"]


class DataStreamSink(OperatorControls):
    """The result of `print`, `sink_to` and `add_sink`: set its name, uid, parallelism or description."""

    _hints = (
        ("KeyedStream", "A sink ends its stream: assign the stream before it to a variable, and continue from there"),
        ("StreamExecutionEnvironment", "Call it on the environment: env.{name}(...)"),
    )

    def __init__(
        self,
        j_data_stream_sink: Any = None,
        *,
        environment: StreamExecutionEnvironment | None = None,
        edges: tuple[Edge, ...] = (),
    ) -> None:
        no_java_object(self, j_data_stream_sink)
        assert environment is not None, "a sink is made by a stream"
        self._environment = environment
        self._edges = edges


# The maximum number of committed records that wait for a reader of execute_and_collect; beyond it the job waits.
_COLLECT_RECORDS_MAX = 1_000_000


class StreamOutputs(StreamEdges):
    """The sink calls of a `DataStream`."""

    def _written(self, sink: contracts.Sink, name: str) -> DataStreamSink:
        node = self._add(Write(sink), f"Sink: {name}")
        return DataStreamSink(environment=self._environment, edges=(Edge(node.id),))

    def add_sink(self, sink_func: SinkFunction | contracts.Sink | Callable[[Any], Any]) -> DataStreamSink:
        """Passes every record to a sink function, or to any callable.

        A callable is called in the task during an epoch, and again if the epoch is repeated after a failure, so it is
        at-least-once. For exactly-once use `sink_to` with a sink that commits.
        """
        if isinstance(sink_func, JavaFunctionWrapper):
            return self._written(_engine_sink("add_sink", sink_func), "Unnamed")
        if isinstance(sink_func, contracts.Sink):
            return self._written(sink_func, "Unnamed")
        is_class = isinstance(sink_func, type)
        if not is_class and (callable(sink_func) or callable(getattr(sink_func, "invoke", None))):
            if isinstance(sink_func, Function):
                raise refuse(
                    f"add_sink: found a {type(sink_func).__name__}, which is a transformation; pass a sink or a "
                    "callable"
                )
            check_takes("add_sink", getattr(sink_func, "invoke", sink_func), "value")
            return self._written(ForeachSink(sink_func), "Unnamed")
        hint = f". Pass an instance: {sink_func.__name__}()" if isinstance(sink_func, type) else ""
        raise refuse(f"add_sink: found {sink_func!r}, expected a SinkFunction, a sink or a callable{hint}")

    def sink_to(self, sink: Sink | contracts.Sink) -> DataStreamSink:
        """Writes every record to `sink`: one of `millstream.datastream.connectors`, or a user-defined
        `TwoPhaseSink`."""
        return self._written(_engine_sink("sink_to", sink), "Writer")

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Prints every record, prefixed by its subtask's number if there are several."""
        if sink_identifier is not None and not isinstance(sink_identifier, str):
            raise refuse(f"print: found {sink_identifier!r} as the sink's identifier, expected a string")
        return self._written(PrintSink(sink_identifier), "Print to Std. Out")

    def to_spark(
        self, writer: Callable[[DataFrame, contracts.CommitId], None], idempotent: bool = False
    ) -> DataStreamSink:
        """Passes each epoch's output to `writer(dataframe, commit)`, any Spark batch write (beyond PyFlink).

        The same epoch may be passed again after a crash. `commit` is its unique name, even if the job is restored
        elsewhere or forked: a writer that overwrites existing output under `str(commit)`, or skips commits already
        written, makes the output exactly-once. Declare this with `idempotent=True`, which the plan shows. The stream
        must be typed.
        """
        from millstream.connectors.spark_store import SparkWriterSink

        if not callable(writer):
            raise refuse(f"to_spark: found {writer!r}, expected a function of (DataFrame, commit)")
        type_info = self._stream_type()
        if type_info is None:
            raise refuse(
                "to_spark: the stream is untyped and a DataFrame needs columns. Declare output_type= before it"
            )
        with at_users_line():
            sink = SparkWriterSink(writer, type_info, idempotent)
        return self._written(sink, "Spark Writer")

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, limit: None = None) -> CloseableIterator: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Any]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Any]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Runs the job now and iterates over this stream's records in the program, as their epochs are committed.

        Without `limit`, returns an iterator, best used in a `with` block, which stops the job on exit. With `limit`,
        returns a list of at most that many records, and stops the job when they have arrived.
        """
        if limit is not None:
            checked_count("execute_and_collect, limit", limit)
        type_info = self._stream_type()
        sink = CollectSink(type_info)
        queue = open_queue(sink.id, _COLLECT_RECORDS_MAX)
        self._written(sink, "Data stream collect sink")
        job = self._environment._start(job_execution_name)
        iterator = CloseableIterator(type_info=type_info, job=job, queue=queue, queue_id=sink.id)
        if limit is None:
            return iterator
        with iterator:
            return list(islice(iterator, limit))


def _engine_sink(method: str, sink: Any) -> contracts.Sink:
    engine_sink = sink._connector if isinstance(sink, JavaFunctionWrapper) else sink
    if isinstance(engine_sink, contracts.Sink):
        return engine_sink
    raise refuse(
        f"{method}: found {sink!r} ({type(sink).__name__}), expected a sink such as FileSink or a TwoPhaseSink of "
        "yours. A builder must be finished with build(); a plain callable is passed to add_sink()"
    )
