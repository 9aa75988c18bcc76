"""The rows of a state, exported as Arrow, pandas, polars, a Spark DataFrame, or Python values.

Columns have the types that the program declared. Values without a type are bytes in the store: pickles, and keys of
composite or mixed kinds. Such keys are decoded here. A pickle is not, because unpickling runs code. Callers that trust
every writer of the store pass `unpickle`; without it such values are refused, and `raw=True` returns their bytes.
Neither is decoded in a Spark task.

For a Spark DataFrame nothing passes through the driver: a partition is a number, one per range of key groups. Its task
opens the store, reads the ranges of the segments with its key groups, and returns Arrow batches to Spark. The store
must be one that tasks can open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from millstream.errors import PickledValueError, PlatformError, ProgramError, TypeMismatchError
from millstream.state.keys.key_columns import key_group_range
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.forms import decoder_of
from millstream.state_reader.table_source import ALL_KEYS, TableSource

__all__ = ["RowSource", "StateRows", "spark_frame"]


class RowSource(Protocol):
    """A source of rows."""

    @property
    def state(self) -> StoredState:
        """The state of the rows."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of every block."""

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        """The rows, block after block."""


class StateRows:
    """The live rows of one state at one epoch. Reading is lazy; each call reads again.

    `renew` is called between blocks to retain the epoch while it is read. `unpickle` opens pickles.
    """

    def __init__(
        self,
        source: RowSource,
        renew: Callable[[], None],
        key: Any = ALL_KEYS,
        unpickle: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._source, self._renew, self._key = source, renew, key
        self._unpickle = unpickle or self._refuse

    @property
    def schema(self) -> pa.Schema:
        """The columns. Columns that only Python can read are binary here."""
        return self._source.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches of `schema`, some ten thousand rows each."""
        for block in self._source.blocks(key=self._key):
            self._renew()
            if block.num_rows:
                yield block

    def to_arrow(self) -> pa.RecordBatchReader:
        """A reader that returns batch after batch, so that a state may be larger than memory.

        Columns that only Python can read get the type that fits their values, for which all of them are read first;
        values without a common type are rejected.
        """
        if not self._decoders():
            return pa.RecordBatchReader.from_batches(self.schema, self.batches())
        table = pa.Table.from_batches(self.batches(), self.schema)
        for name, decode in self._decoders().items():
            values = [None if data is None else decode(data) for data in table.column(name).to_pylist()]
            try:
                column = pa.array(values)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise TypeMismatchError(
                    f"{self._source.state.what}: the values of column {name!r} have no common Arrow type ({error}). "
                    "Use to_pandas() or to_pylist(), which keep Python values, or raw=True for their bytes.",
                    value=values[0],
                ) from error
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return table.to_reader()

    def to_pandas(self) -> Any:
        """A pandas DataFrame. Columns that only Python can read hold the values themselves."""
        frame = pa.Table.from_batches(self.batches(), self.schema).to_pandas()
        for name, decode in self._decoders().items():
            frame[name] = [None if data is None else decode(data) for data in frame[name]]
        return frame

    def to_polars(self) -> Any:
        """A polars DataFrame, where polars is installed."""
        try:
            import polars  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise PlatformError("to_polars needs the package polars. Install it: pip install polars") from error
        return polars.from_arrow(self.to_arrow().read_all())

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries of Python values."""
        return list(self)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        decoders = self._decoders()
        for batch in self.batches():
            for row in batch.to_pylist():
                for name, decode in decoders.items():
                    row[name] = None if row[name] is None else decode(row[name])
                yield row

    def to_spark(self, session: Any, partitions: int | None = None) -> Any:
        """A Spark DataFrame, read in parallel: each partition reads its own range of key groups from the store.

        It is read when, and as often as, Spark runs it; keep the snapshot open until then. `partitions` defaults to the
        number of the session's cores.
        """

        if self._key is not ALL_KEYS:
            raise ProgramError("to_spark reads whole states. Read without a key and filter the DataFrame by it.")
        encoded = sorted(self._decoders())
        if encoded:
            raise TypeMismatchError(
                f"{self._source.state.what}: the columns {encoded} are pickled or have no declared type, and are not "
                "decoded in Spark's tasks. Read with raw=True for their bytes, or use to_pandas().",
                value=encoded,
            )
        return spark_frame(session, self._source, partitions)

    def _decoders(self) -> dict[str, Callable[[bytes], Any]]:
        decoders = ((field.name, decoder_of(field, self._unpickle)) for field in self.schema)
        return {name: decode for name, decode in decoders if decode is not None}

    def _refuse(self, data: bytes) -> NoReturn:
        raise PickledValueError(
            f"{self._source.state.what} has values without a declared type, which are stored as pickles. Opening a "
            "pickle runs code that is in it, and is left to the job. Declare a type, or read with raw=True for the "
            "bytes, or with unpickle=pickle.loads if you trust everybody who can write the store"
        )


def spark_frame(session: Any, source: Any, partitions: int | None) -> Any:
    """The DataFrame of a source."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if source.store.url.startswith("memory://"):
        raise ProgramError(
            f"store {source.store.url} is in this process's memory, which Spark's tasks cannot read. Use to_arrow(), "
            "or keep the job's store in a folder."
        )
    if not isinstance(source, TableSource):  # state of subtasks is small
        return session.createDataFrame(pa.Table.from_batches(source.blocks()))
    groups = source.layout.max_parallelism
    count = min(partitions or _cores(session), groups)
    schema = from_arrow_schema(source.schema, prefer_timestamp_ntz=True)
    return session.range(0, count, 1, count).mapInArrow(_reader(source, count, groups), schema)


def _cores(session: Any) -> int:
    context = getattr(session, "sparkContext", None)
    return int(context.defaultParallelism) if context is not None else 8


def _reader(
    source: TableSource, partitions: int, groups: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from source.blocks(key_group_range(number, partitions, groups))

    return read
