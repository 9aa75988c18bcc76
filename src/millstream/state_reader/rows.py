"""The rows of a state, to take away: as Arrow, pandas, polars, a Spark DataFrame, or Python values.

Columns come typed, as the program declared them. What was stored without a type is bytes in the store: pickles, and
keys that are composed or of several kinds. Such keys are decoded here. A pickle is not: opening it runs code that is in
it. Whoever trusts all who can write the store brings `unpickle`; without it such values are refused, and `raw=True`
gives their bytes. Neither is decoded in a Spark task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from millstream.errors import PickledValueError, PlatformError, ProgramError, TypeMismatchError
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.forms import decoder_of
from millstream.state_reader.table_source import ALL_KEYS

__all__ = ["RowSource", "StateRows"]


class RowSource(Protocol):
    """Where rows come from."""

    @property
    def state(self) -> StoredState:
        """The state they are of."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of every block."""

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        """The rows, block after block."""


class StateRows:
    """The live rows of one state at one epoch. Nothing is read before it is asked for; each call reads again.

    `renew` is called between blocks: the epoch is held while it is read. `unpickle` makes values of pickles.
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
        """The columns. Those that only Python can read are binary here."""
        return self._source.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches of `schema`, some ten thousand rows each."""
        for block in self._source.blocks(key=self._key):
            self._renew()
            if block.num_rows:
                yield block

    def to_arrow(self) -> pa.RecordBatchReader:
        """A reader that gives batch after batch, so that a state may be larger than memory.

        Columns that only Python can read get the type that fits their values, for which all of them are read first;
        values that have no common type are refused.
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

        It is read when Spark runs it, as often as it runs it; keep the snapshot open until then. `partitions` is as
        many as the session has cores, unless given.
        """
        from millstream.state_reader.spark_rows import spark_frame

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
        found = ((field.name, decoder_of(field, self._unpickle)) for field in self.schema)
        return {name: decode for name, decode in found if decode is not None}

    def _refuse(self, data: bytes) -> NoReturn:
        raise PickledValueError(
            f"{self._source.state.what} has values without a declared type, which are stored as pickles. Opening a "
            "pickle runs code that is in it, and is left to the job. Declare a type, or read with raw=True for the "
            "bytes, or with unpickle=pickle.loads if you trust everybody who can write the store"
        )
