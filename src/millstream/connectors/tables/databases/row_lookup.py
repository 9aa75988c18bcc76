"""Rows of a table of a database by their keys: one SELECT for many keys.

Each thread has a connection of its own, which is kept. What the database refuses for good is an error of the program;
one that is away may be asked again.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pyarrow as pa

from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.dialect import TableName, Timeouts, dialect_of
from millstream.connectors.tables.lookups import LookupSource
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType

__all__ = ["DatabaseRows"]


class DatabaseRows(LookupSource):
    """Rows of a table, by SELECT."""

    def __init__(
        self, address: DatabaseAddress, table: TableName, row_type: RowType, keys: tuple[int, ...], name: str
    ) -> None:
        self._address, self._table, self._row_type, self._name = address, table, row_type, name
        self._keys = keys
        self._thread: Any = None
        self._all: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_thread": None, "_all": []}

    def rows(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        quoted = self._quoted
        columns = ", ".join(quoted(name) for name in self._row_type.names)
        statement = f"SELECT {columns} FROM {'.'.join(quoted(part) for part in self._table.parts)}"
        values: list[Any] = []
        if keys is not None:
            names = [quoted(self._row_type.names[at]) for at in self._keys]
            one = "(" + ", ".join(["%s"] * len(names)) + ")"
            statement += f" WHERE ({', '.join(names)}) IN ({', '.join([one] * keys.num_rows)})"
            values = [
                value for row in zip(*(column.to_pylist() for column in keys.columns), strict=True) for value in row
            ]
        found = self._fetched(statement, values)
        schema = self._row_type.schema
        arrays = [pa.array([row[at] for row in found], kind) for at, kind in enumerate(schema.types)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _quoted(self, name: str) -> str:
        mark = "`" if self._address.kind == "mysql" else '"'
        return f"{mark}{name.replace(mark, mark * 2).replace('%', '%%')}{mark}"

    def _fetched(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        dialect = dialect_of(self._address)
        if self._thread is None:
            self._thread = threading.local()
        connection = getattr(self._thread, "connection", None)
        try:
            if connection is None:
                connection = self._thread.connection = dialect.connect(self._address, Timeouts())
                self._all.append(connection)
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                rows: list[tuple[Any, ...]] = list(cursor.fetchall())
            connection.rollback()
            return rows
        except Exception as error:
            self._thread.connection = None
            if connection is not None:
                with suppress(Exception):
                    connection.close()
            reason = dialect.refusal(error)
            if reason is None:
                raise
            words = self._address.without_secrets(reason)
            raise ProgramError(f"table {self._name!r} at {self._address.shown} cannot be looked up: {words}") from error

    def close(self) -> None:
        for connection in self._all:
            with suppress(Exception):
                connection.close()
        self._all, self._thread = [], None
