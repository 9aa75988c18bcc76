"""`StreamExecutionEnvironment`: the entry point of a program. It collects the graph and runs it.

An environment has one configuration and one graph under construction. `execute` freezes the graph, passes it to
`millstream.jobs` with the settings, and is then ready for the next job. Importing this module does not import PySpark:
that happens when a job starts or a DataFrame is passed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.typeinfo import TypeInformation
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors import contracts
from millstream.connectors.program_sources import CollectionSource
from millstream.datastream.environment.caches import EnvironmentCaches
from millstream.datastream.environment.dependencies import EnvironmentDependencies
from millstream.datastream.environment.launch_defaults import job_receiver
from millstream.datastream.environment.settings import EnvironmentSettings
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper
from millstream.datastream.streams.argument_checks import at_users_line, checked_output_type, checked_text, refuse
from millstream.datastream.streams.missing_names import MissingNameHints
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import TypeMismatchError
from millstream.graph.builder import GraphBuilder
from millstream.graph.error_report import show_uncaught_errors
from millstream.graph.nodes import Edge, Graph, Read
from millstream.graph.site import here
from millstream.pyflink_names import add_pyflink_names
from millstream.records.batch import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.common.io import InputFormat
    from millstream.datastream.connectors.base import Source
    from millstream.datastream.functions.source_and_sink import SourceFunction
    from millstream.jobs.launch.job import Job

__all__ = ["StreamExecutionEnvironment"]

_NAME = "pipeline.name"
_DEFAULT_JOB_NAME = "Millstream Job"
_ITERATOR_VALUES_MAX = 1_000_000


class StreamExecutionEnvironment(MissingNameHints, EnvironmentSettings, EnvironmentDependencies):
    """The entry point of a program.

    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> stream = env.set_parallelism(2).from_collection([1, 2, 3]).map(lambda n: n + 1)
    >>> sink = stream.print()
    """

    _hints = (
        (frozenset({"from_elements"}), "Pass a list: env.from_collection([...])"),
        (
            frozenset({"read_text_file", "read_file"}),
            "Use env.from_source(source, ...) with FileSource.for_record_stream_format(format, path).build()",
        ),
        (
            frozenset({"from_sequence", "generate_sequence"}),
            "Use env.from_source(NumberSequenceSource(start, end), ...)",
        ),
        ("KeyedStream", "Begin with a source, and call it on the stream: env.from_collection(...).{name}(...)"),
    )

    def __init__(
        self,
        j_stream_execution_environment: Any = None,
        serializer: Any = None,
        *,
        configuration: Configuration | None = None,
    ) -> None:
        show_uncaught_errors()
        no_java_object(self, j_stream_execution_environment)
        if serializer is not None:
            raise refuse(
                f"StreamExecutionEnvironment: found serializer {serializer!r}; untyped values are always pickled"
            )
        self._builder = GraphBuilder()
        self._caches = EnvironmentCaches(self._cache_directory)
        self._session: SparkSession | None = None
        self._start_settings()
        if configuration is not None:
            self._merge(configuration)

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """A new environment. Command-line settings take precedence over `configuration`."""
        return StreamExecutionEnvironment(configuration=configuration)

    # --- sources ----------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[Any], type_info: TypeInformation | None = None) -> DataStream:
        """Emits the values of a list or any other finite iterable, in order. They are checked against the type
        immediately."""
        if isinstance(collection, str | bytes | Mapping):
            parts = "keys" if isinstance(collection, Mapping) else "letters" if isinstance(collection, str) else "bytes"
            raise refuse(
                f"from_collection: found {collection!r:.60}, expected a list or another iterable of records. For one "
                f"record pass [it]; if its {parts} are meant, list(it)"
            )
        try:
            is_endless_perhaps = not hasattr(collection, "__len__")
            values = list(islice(collection, _ITERATOR_VALUES_MAX + 1) if is_endless_perhaps else collection)
        except TypeMismatchError:  # raised by the user's iterator
            raise
        except TypeError as error:
            raise refuse(f"from_collection: found {collection!r}, expected a list or another iterable") from error
        if is_endless_perhaps and len(values) > _ITERATOR_VALUES_MAX:
            raise refuse(
                f"from_collection: found an iterator ({type(collection).__name__}) that has not ended after "
                f"{_ITERATOR_VALUES_MAX:,} values, expected a collection that fits into memory. If it does end, pass "
                "list(...) of it; if it does not, write a PythonSource and use from_source()"
            )
        value_type = checked_output_type("from_collection", type_info)
        with at_users_line():
            Batch.of_values(values, value_type)
        return self._read(CollectionSource(values, value_type), None, "Collection Source")

    def from_source(
        self,
        source: Source | contracts.Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Emits the records of a source: one of `millstream.datastream.connectors`, or a user-defined
        `PythonSource`."""
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise refuse(
                f"from_source: found {watermark_strategy!r} as second argument, expected a WatermarkStrategy; without "
                "event time that is WatermarkStrategy.no_watermarks(). The order is source, watermark_strategy, "
                "source_name"
            )
        engine = _typed_source(_engine_source("from_source", source), checked_output_type("from_source", type_info))
        return self._read(engine, watermark_strategy, checked_text("from_source, source_name", source_name))

    def add_source(
        self,
        source_func: SourceFunction | Source | contracts.Source,
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Emits the records of a source, without event time."""
        engine = _typed_source(_engine_source("add_source", source_func), checked_output_type("add_source", type_info))
        return self._read(engine, None, checked_text("add_source, source_name", source_name))

    def from_spark(
        self, df: DataFrame, trigger: dict[str, Any] | None = None, source_name: str = "Spark DataFrame"
    ) -> DataStream:
        """Emits the rows of any Spark DataFrame, static or streaming, as typed rows (beyond PyFlink).

        A streaming DataFrame runs indefinitely; `trigger={"availableNow": True}` reads the existing rows and ends. The
        job then runs in the DataFrame's session.
        """
        from millstream.connectors.spark_frame import SparkFrameSource

        session = getattr(df, "sparkSession", None)
        if session is None:
            raise refuse(f"from_spark: found {df!r} ({type(df).__name__}), expected a Spark DataFrame")
        self.use_spark_session(session)
        with at_users_line():
            source = SparkFrameSource(df, name=f"frame-{self._next_place()}", trigger=trigger)
        return self._read(source, None, checked_text("from_spark, source_name", source_name))

    def _next_place(self) -> int:
        """The position of the next operator in the program: stable across runs, and unique. Stores identify inputs by
        this number, which counts both halves of split windows."""
        from millstream.compiler.passes.split_windows import split_windows

        return len(split_windows(Graph("", tuple(self._builder.nodes.values()), 1, 1)).nodes) + 1

    def create_input(self, input_format: InputFormat, type_info: TypeInformation | None = None) -> DataStream:
        """Reads the input of an `AvroInputFormat`; for other formats use `from_source(FileSource…)`."""
        source = getattr(input_format, "file_source", None)
        if source is None:
            raise refuse(f"create_input: found {input_format!r}, expected an AvroInputFormat. FileSource reads others")
        engine = _typed_source(_engine_source("create_input", source), checked_output_type("create_input", type_info))
        return self._read(engine, None, type(input_format).__name__)

    def _read(self, source: contracts.Source, watermarks: WatermarkStrategy | None, name: str) -> DataStream:
        node = self._builder.add(
            Read(source, watermarks),
            f"Source: {name}",
            output_type=source.type_info,
            parallelism=1 if source.single else None,
            site=here(),
        )
        return DataStream(environment=self, edges=(Edge(node.id),))

    # --- running ----------------------------------------------------------------------------------------

    def use_spark_session(self, session: SparkSession) -> StreamExecutionEnvironment:
        """Runs the jobs of this environment in the given Spark session (beyond PyFlink), after checking its
        settings."""
        if self._session is not None and self._session is not session:
            raise refuse(
                "use_spark_session: this environment already uses another Spark session. Use one for all of it"
            )
        self._session = session
        return self

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Runs the job and waits for its end. A streaming job over unbounded input ends only when it is stopped."""
        from millstream.jobs.console.foreground import run_in_foreground

        return run_in_foreground(partial(self._launch, job_name), self._configuration.to_dict())

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Starts the job and returns immediately; the returned client provides its status and result, and can stop
        it."""
        return JobClient(self._start(job_name))

    def explain(self, job_name: str | None = None) -> str:
        """The plan as text: stages, operators, partitioning and record formats (beyond PyFlink). Runs nothing."""
        from millstream.compiler.explain import explain

        return explain(self._graph(job_name))

    def get_execution_plan(self) -> str:
        """The plan as JSON in Flink's format. Runs nothing."""
        from millstream.compiler.explain import plan_json

        return plan_json(self._graph(None))

    def close(self) -> None:
        """Discards the graph under construction and removes caches. Running jobs continue."""
        self._builder.take()
        self._caches.close()

    def _cache_directory(self) -> str | None:
        directory: str | None = options.read(options.CACHE_DIRECTORY, self._configuration)
        return directory

    def _graph(self, job_name: str | None) -> Graph:
        """The frozen graph of the next job."""
        name = self._job_name(job_name)
        self._check_parallelism()
        graph = self._builder.graph(
            name, self.get_parallelism(), self.get_max_parallelism(), chaining=self.is_chaining_enabled()
        )
        is_strict = options.read(options.SUM_OVERFLOW, self._configuration) == "error"
        return self._caches.offered(replace(graph, refuses_overflow=is_strict))

    def _job_name(self, job_name: str | None) -> str:
        fixed = self._settings.fixed(_NAME)
        if job_name is None:
            return self._configuration.get_string(_NAME, _DEFAULT_JOB_NAME) or _DEFAULT_JOB_NAME
        name = checked_text("job name", job_name)
        if fixed is not None and fixed != name:
            self._settings.warn_of_override(_NAME, name)
        return fixed or name

    def _start(self, job_name: str | None) -> Job:
        """Starts the job without waiting for its end; shows progress on a terminal."""
        from millstream.jobs.console.foreground import start_in_sight

        return start_in_sight(partial(self._launch, job_name), self._configuration.to_dict())

    def _launch(self, job_name: str | None, before_spark: Callable[[], None] = lambda: None) -> Job:
        """Starts the job. The builder is emptied even if this fails: the next job must not contain these nodes."""
        from millstream.jobs.launch.launch import launch

        try:
            graph = self._graph(job_name)
            receiver = job_receiver()
            if receiver is not None:
                return receiver(graph, self._job_settings())
            return launch(graph, self._job_settings(), self._configuration.to_dict(), before_spark)
        finally:
            self._builder.take()


def _engine_source(method: str, source: Any) -> contracts.Source:
    connector = source._connector if isinstance(source, JavaFunctionWrapper) else source
    if isinstance(connector, contracts.Source):
        return connector
    raise refuse(
        f"{method}: found {source!r} ({type(source).__name__}), expected a source such as FileSource or a PythonSource "
        "of yours. A builder must be finished with build()"
    )


def _typed_source(source: contracts.Source, type_info: TypeInformation | None) -> contracts.Source:
    """The source with the type declared by the program, if the source is untyped."""
    if type_info is None or type_info == source.type_info:
        return source
    if source.type_info is not None:
        raise refuse(f"the source emits {source.type_info} and type_info= is {type_info}. Omit type_info=")
    typed = copy.copy(source)
    typed.type_info = type_info
    return typed


add_pyflink_names(globals())
