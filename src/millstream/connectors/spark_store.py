"""Interface between Spark and a job's store: addresses, types, and a sink that passes output to Spark.

Spark opens files itself, so a store visible only to this process is rejected. Types are derived from a Spark
schema by their names.

`SparkWriterSink` passes an epoch's output, as a Spark DataFrame, to any batch writer of Spark. Tasks stage Parquet
in the job's store; on commit the driver reads the epoch's files as one DataFrame and calls the user's function with it
and the name of the commit (`CommitId`). After a crash the function may be called again for the same commit, with the
same rows: a function that overwrites its output under that name, or skips a known one, makes the output
exactly-once (`idempotent=True` declares this, and the plan shows it).

This module does not import Spark: it uses the session passed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.contracts import CommitId, Json, Sink, SinkWriter, WriterContext
from millstream.connectors.foreign_columns import foreign_schema, outward
from millstream.errors import ProgramError, StoreDamagedError, StoreError
from millstream.records.batch import Batch, is_typed
from millstream.storage.names import staged_name
from millstream.storage.store import Store

__all__ = ["SparkWriterSink", "spark_url", "type_of_spark_schema"]

_SIMPLE = {
    "string": Types.STRING,
    "char": Types.STRING,
    "varchar": Types.STRING,
    "boolean": Types.BOOLEAN,
    "byte": Types.BYTE,
    "tinyint": Types.BYTE,
    "short": Types.SHORT,
    "smallint": Types.SHORT,
    "integer": Types.INT,
    "int": Types.INT,
    "long": Types.LONG,
    "bigint": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "decimal": Types.BIG_DEC,
    "date": Types.SQL_DATE,
    "timestamp": Types.INSTANT,
    "timestamp_ntz": Types.SQL_TIMESTAMP,
}


def spark_url(store: Store, name: str) -> str:
    """The address in Spark of the file or folder `name` of the store."""
    path = store.local_path(name)
    if path is not None:
        # Not `as_uri`: Hadoop uses a path as written and would not decode %XX.
        return f"file://{path.as_posix()}"
    if store.url.startswith("memory://"):
        raise StoreError(
            f"Store {store.url} is in this process's memory, where Spark cannot read or write. "
            f"Use a folder or an object store for the job."
        )
    # Hadoop's scheme for the same service.
    return f"{store.url.rstrip('/')}/{name}".replace("s3://", "s3a://", 1)


def type_of_spark_schema(schema: Any) -> TypeInformation:
    """The ROW type of a Spark StructType.

    TIMESTAMP is an instant and becomes INSTANT; TIMESTAMP_NTZ is a local time and becomes SQL_TIMESTAMP.
    """
    return _row(schema, "")


def _row(struct: Any, path: str) -> TypeInformation:
    names = [field.name for field in struct.fields]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ProgramError(f"The DataFrame has the column {doubles[0]!r} twice. Rename one with withColumnRenamed.")
    return Types.ROW_NAMED(names, [_type(field.dataType, f"{path}{field.name}") for field in struct.fields])


def _type(data_type: Any, path: str) -> TypeInformation:
    name = data_type.typeName()
    if name in _SIMPLE:
        return _SIMPLE[name]()
    if name == "binary":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if name == "array":
        return Types.LIST(_type(data_type.elementType, f"{path}[]"))
    if name == "map":
        return Types.MAP(_type(data_type.keyType, f"{path}{{key}}"), _type(data_type.valueType, f"{path}{{value}}"))
    if name == "struct":
        return _row(data_type, f"{path}.")
    raise ProgramError(
        f"Column {path!r} of the DataFrame has Spark's type {data_type.simpleString()}, which has no counterpart here. "
        f"Cast it in Spark first, for instance to string."
    )


class SparkWriterSink(Sink):
    """Calls `write(dataframe, commit)` once per committed epoch; skips epochs without output.

    >>> from millstream.common.typeinfo import Types
    >>> sink = SparkWriterSink(lambda df, commit: df.write.mode("overwrite").parquet(f"out/{commit}"), Types.LONG())
    >>> sink.guarantee
    'at-least-once'
    """

    def __init__(
        self, write: Callable[[Any, CommitId], None], type_info: TypeInformation, idempotent: bool = False
    ) -> None:
        if not callable(write):
            raise ProgramError(f"SparkWriterSink: {write!r} is not callable. Pass a function of (DataFrame, commit).")
        if not is_typed(type_info):
            raise ProgramError("A Spark DataFrame needs columns, but this stream is untyped. Declare its output_type.")
        foreign_schema(type_info)
        self.write = write
        self.type_info = type_info
        self.guarantee = "exactly-once" if idempotent else "at-least-once"
        self._session: Any = None

    def opened(self, session: Any) -> Sink:
        sink = SparkWriterSink(self.write, self.type_info, self.guarantee == "exactly-once")
        sink._session = session
        return sink

    def __getstate__(self) -> dict[str, Any]:
        # The function and the session stay on the driver: a user's function may hold objects that no task can load.
        return {**self.__dict__, "write": None, "_session": None}

    def writer(self, context: WriterContext) -> SinkWriter:
        return _ParquetWriter(context, self.type_info)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if not publish:
            return
        for payload in publish:
            # Reported here, with a clearer message than Spark's.
            if not store.exists(payload["file"]):
                raise StoreDamagedError(
                    f"Store {store.url} has no file {payload['file']!r}, output of epoch {commit.epoch} that was not "
                    f"yet passed to the Spark writer. Put it back; no output of the epoch was written."
                )
        paths = [spark_url(store, payload["file"]) for payload in publish]
        # The names of staged files are not partition columns, regardless of the characters in the sink's uid.
        reader = self._session.read.option("recursiveFileLookup", "true")
        self.write(reader.parquet(*paths), commit)

    def describe(self) -> str:
        return f"Spark writer {getattr(self.write, '__name__', type(self.write).__name__)}"


class _ParquetWriter(SinkWriter):
    def __init__(self, context: WriterContext, type_info: TypeInformation) -> None:
        self._context = context
        self._type_info = type_info
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: Batch) -> None:
        if batch.length == 0:
            return
        columns = batch.columns()
        if len(columns.schema) != len(foreign_schema(self._type_info)):
            raise ProgramError(
                "A Spark writer accepts inserts only, but this batch holds updates or deletions. "
                "Filter the rows by their kind before the sink."
            )
        self._batches.append(outward(columns, self._type_info))

    def stage(self) -> Sequence[Json]:
        if not self._batches:
            return ()
        context = self._context
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches(self._batches), sink)
        name = staged_name(context.uid, context.epoch, context.subtask, context.nonce, 0, ".parquet")
        context.store.put(name, bytes(sink.getvalue()))
        return ({"file": name, "records": sum(batch.num_rows for batch in self._batches)},)
