"""Delta tables (beyond PyFlink): each epoch is one transaction of the table, exactly once.

The package `deltalake` performs the transactions: `pip install 'millstream[delta]'`. It needs no JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.delta.sink import DeltaTableSink
from millstream.datastream.connectors.base import Sink
from millstream.datastream.streams.argument_checks import at_users_line, checked_count, checked_text, refuse

if TYPE_CHECKING:
    from typing import Self

__all__ = ["DeltaSink", "DeltaSinkBuilder"]


class DeltaSinkBuilder:
    """Collects a Delta sink's settings."""

    def __init__(self, table_path: str, row_type: RowTypeInfo) -> None:
        self._table_path = table_path
        self._row_type = row_type
        self._partition_columns: tuple[str, ...] = ()
        self._file_bytes_max: int | None = None

    def with_partition_columns(self, *names: str) -> Self:
        """Partitions the table by these columns; an existing table must have the same partitioning."""
        self._partition_columns = tuple(checked_text("with_partition_columns", name) for name in names)
        return self

    def with_file_size(self, bytes_max: int) -> Self:
        """Starts a new data file when the current one holds about this many bytes in memory; 128 MiB by default."""
        self._file_bytes_max = checked_count("with_file_size", bytes_max)
        return self

    def build(self) -> DeltaSink:
        """The sink."""
        size: Any = {} if self._file_bytes_max is None else {"file_bytes_max": self._file_bytes_max}
        with at_users_line():
            return DeltaSink(DeltaTableSink(self._table_path, self._row_type, self._partition_columns, **size))


class DeltaSink(Sink):
    """A sink that appends rows to a Delta table, for `DataStream.sink_to`.

    >>> from millstream.common import Types
    >>> sales = Types.ROW_NAMED(["day", "cents"], [Types.SQL_DATE(), Types.LONG()])
    >>> sink = DeltaSink.for_row_type("warehouse/sales", sales).with_partition_columns("day").build()
    """

    def __init__(self, engine: DeltaTableSink) -> None:
        super().__init__(engine)

    @staticmethod
    def for_row_type(table_path: str, row_type: Any) -> DeltaSinkBuilder:
        """Starts a builder for the table's folder or URL, which is created if it does not exist, and the type of its
        rows."""
        if not isinstance(row_type, RowTypeInfo):
            raise refuse(
                f"DeltaSink.for_row_type: found {row_type!r} as the row type, expected "
                "Types.ROW_NAMED([names], [types])"
            )
        return DeltaSinkBuilder(checked_text("DeltaSink.for_row_type, table_path", table_path), row_type)
