"""The database operations of the sink. A dialect implements them for one kind of database, and holds no connection.

The sink's transaction is the same everywhere: lock the committer's row, check whether it already has the epoch, write
the rows, write the epoch, commit. Dialects differ only in the statements, and in the fastest way to transfer many rows.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.unique_indexes import UniqueIndex
from millstream.errors import ProgramError

__all__ = ["Dialect", "RowBatch", "TableName", "TableShape", "Timeouts", "dialect_of"]

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True)
class TableName:
    """A table, optionally with its schema. Names are case-sensitive, as written.

    >>> TableName.parse("sales.totals"), TableName.parse('"odd.name"')
    (TableName(parts=('sales', 'totals')), TableName(parts=('odd.name',)))
    """

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TableName:
        parts, at = [], 0
        while isinstance(text, str) and (match := _PART.match(text, at)):
            parts.append(match[1].replace('""', '"') if match[1] else match[2])
            at = match.end()
            if at == len(text) and len(parts) <= 2:
                return cls(tuple(parts))
            if text[at : at + 1] != ".":
                break
            at += 1
        raise ProgramError(
            f"Table name {text!r} is malformed, expected name or schema.name. "
            'Put a name that contains dots or quotes into double quotes: "odd.name"'
        )

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class TableShape:
    """The catalogue entry of a table: its columns with their types, and its unique indexes."""

    columns: dict[str, str]
    unique: tuple[UniqueIndex, ...]
    needed: frozenset[str] = frozenset()
    """Required columns: NOT NULL without a default."""


@dataclass(frozen=True)
class Timeouts:
    """Time limits for a connection, and for one statement or a pause within a transaction."""

    connect_s: float = 10.0
    transaction_s: float = 300.0


@dataclass(frozen=True)
class RowBatch:
    """Rows to write: `columns` laid out as in `type_info`, without their row kinds; `first` is the number of
    the first among all rows of the commit. `deletes`: mask of rows that delete by key; None: no row deletes."""

    columns: pa.RecordBatch
    type_info: TypeInformation
    first: int = 0
    deletes: pa.Array | None = None


class Dialect(ABC):
    """A kind of database."""

    other_index_advice: ClassVar[str]
    """Advice for a unique index other than the key's; {} is its name."""

    @abstractmethod
    def connect(self, address: DatabaseAddress, timeouts: Timeouts) -> Any:
        """A new connection without autocommit."""

    def deadline(self, connection: Any, total_s: float) -> AbstractContextManager[None]:
        """Limits how long each call waits for the server inside the context. Default: the connection's own limits."""
        return nullcontext()

    @abstractmethod
    def refusal(self, error: BaseException) -> str | None:
        """Why the database permanently refuses this; None for a transient error."""

    @abstractmethod
    def shape(self, connection: Any, table: TableName) -> TableShape | None:
        """The table's shape; None if it does not exist. Raises ProgramError for a table that loses commits."""

    @abstractmethod
    def make_commits_table(self, connection: Any, table: TableName) -> None:
        """Create the table of commits, unless it exists."""

    @abstractmethod
    def lock_committer(self, connection: Any, table: TableName, committer: str) -> int:
        """Lock the committer's row for this transaction, creating it if necessary; returns its newest epoch, or 0."""

    @abstractmethod
    def record_commit(self, connection: Any, table: TableName, committer: str, epoch: int) -> None:
        """Write the newest epoch into the row."""

    @abstractmethod
    def append(self, connection: Any, table: TableName, names: Sequence[str], batches: Iterator[RowBatch]) -> None:
        """Insert rows into the table."""

    @abstractmethod
    def upsert(
        self, connection: Any, table: TableName, names: Sequence[str], key: Sequence[str], batches: Iterator[RowBatch]
    ) -> None:
        """For each key among the rows, replace the table's row by the last of them, or delete it if that row is a
        delete."""

    def clear_upserted(self, connection: Any, table: TableName, names: Sequence[str]) -> None:
        """Discard rows that `upsert` may have staged for the transaction; rows already written stay."""
        return

    @abstractmethod
    def execute(self, connection: Any, statement: str, batches: Iterator[RowBatch], batch_rows: int) -> None:
        """Execute the statement for each row in order, with its fields as the `?` parameters."""

    @abstractmethod
    def texts(
        self, connection: Any, query: str, parameters: Sequence[Any], types: Sequence[TypeInformation]
    ) -> list[pa.Array]:
        """A query result as columns of strings, in PostgreSQL's text format for these types."""

    @abstractmethod
    def is_invalid_parameter(self, error: BaseException) -> bool:
        """Whether a parameter was refused because no value of its column can equal it."""


def dialect_of(address: DatabaseAddress) -> Dialect:
    """The dialect of the database at `address`."""
    if address.kind == "postgresql":
        from millstream.connectors.databases.postgres_dialect import PostgresDialect

        return PostgresDialect()
    from millstream.connectors.databases.mysql_dialect import MysqlDialect

    return MysqlDialect()
