"""Looks up rows of a database table by key: one SELECT for many keys.

Each thread has its own cached connection. Values are read as in a scan, from the database's text format,
and keys are bound as in a sink, so that a column has the same meaning in all access paths. A permanent database error
is an error of the program; requests to an unavailable database may be retried.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.column_types import typed_batch
from millstream.connectors.databases.dialect import TableName, Timeouts, dialect_of
from millstream.connectors.databases.sql_values import row_values
from millstream.connectors.foreign_columns import inward
from millstream.connectors.tables.databases.plain_rows import plain_row, table_batch
from millstream.connectors.tables.lookups import LookupSource
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType

__all__ = ["DatabaseRows"]

_PARAMETERS_MAX = 30_000
"""PostgreSQL allows 65,535 parameters per statement."""


class _InvalidKeyError(Exception):
    """The database rejects one of the keys as a value of its column."""


class DatabaseRows(LookupSource):
    """Rows of a table, looked up by SELECT."""

    def __init__(
        self, address: DatabaseAddress, table: TableName, row_type: RowType, keys: tuple[int, ...], name: str
    ) -> None:
        self._address, self._table, self._row_type, self._name = address, table, row_type, name
        self._keys, self._plain = keys, plain_row(row_type, name)
        self._thread: Any = None
        self._all: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_thread": None, "_all": []}

    def rows(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        names, types = self._plain.get_field_names(), self._plain.get_field_types()
        columns = ", ".join(self._quoted(name) for name in names)
        statement = f"SELECT {columns} FROM {'.'.join(self._quoted(part) for part in self._table.parts)}"
        if keys is None:
            answers = [self._fetched(statement, [], types)]
        else:
            wanted = self._key_values(keys)
            step = max(1, _PARAMETERS_MAX // max(1, len(self._keys)))
            answers = [
                answer
                for at in range(0, len(wanted), step)
                for answer in self._matching(statement, wanted[at : at + step], types)
            ]
        subject = f"table {self._name!r} at {self._address.shown}"
        batches = [
            table_batch(
                typed_batch(texts, list(self._row_type.names), types, subject), self._plain, self._row_type, subject
            )
            for texts in answers
        ]
        schema = self._row_type.schema
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches([pa.RecordBatch.from_pylist([], schema=schema), *batches])

    def _key_values(self, keys: pa.RecordBatch) -> list[tuple[Any, ...]]:
        """The keys as parameters, converted as a sink would write them."""
        names, types = self._plain.get_field_names(), self._plain.get_field_types()
        key_type = Types.ROW_NAMED([names[at] for at in self._keys], [types[at] for at in self._keys])
        columns = inward(pa.RecordBatch.from_arrays(keys.columns, key_type.get_field_names()), key_type, self._name)
        return row_values(columns, key_type.get_field_types(), arrays=self._address.kind == "postgresql")

    def _matching(
        self, statement: str, wanted: list[tuple[Any, ...]], types: list[TypeInformation]
    ) -> Iterator[list[pa.Array]]:
        """The rows of these keys. Omits only keys that no row can have, such as text that is not a number."""
        names = ", ".join(self._quoted(self._row_type.names[at]) for at in self._keys)
        mark = "(" + ", ".join(["%s"] * len(self._keys)) + ")"
        condition = f" WHERE ({names}) IN ({', '.join([mark] * len(wanted))})"
        try:
            yield self._fetched(statement + condition, [value for row in wanted for value in row], types)
        except _InvalidKeyError:
            half = len(wanted) // 2
            for some in (wanted[:half], wanted[half:]) if half else ():
                yield from self._matching(statement, some, types)

    def _quoted(self, name: str) -> str:
        mark = "`" if self._address.kind == "mysql" else '"'
        return f"{mark}{name.replace(mark, mark * 2).replace('%', '%%')}{mark}"

    def _fetched(self, statement: str, values: list[Any], types: list[TypeInformation]) -> list[pa.Array]:
        dialect = dialect_of(self._address)
        if self._thread is None:
            self._thread = threading.local()
        connection = getattr(self._thread, "connection", None)
        try:
            if connection is None:
                connection = self._thread.connection = dialect.connect(self._address, Timeouts())
                self._all.append(connection)
            columns = dialect.texts(connection, statement, values, types)
            connection.rollback()
            return columns
        except Exception as error:
            if connection is not None and dialect.is_invalid_parameter(error):
                connection.rollback()
                raise _InvalidKeyError from error
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
