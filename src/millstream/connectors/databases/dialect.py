"""What the sink asks of a database. A dialect answers in the database's own words; it holds no connection.

The sink's transaction is the same everywhere: lock the committer's row, look whether its epoch is there already, write
the rows, write the epoch, commit. Only the words differ, and the fastest way to hand over many rows.
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
    """A table, perhaps with its schema. Names are taken as they are written: no letter changes its case.

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
            f"Table name {text!r} is not understood, expected name or schema.name. "
            'A name that has dots or quotes itself stands in double quotes: "odd.name"'
        )

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class TableShape:
    """What a database says of a table: its columns with their types, and the indexes that refuse a second row."""

    columns: dict[str, str]
    unique: tuple[UniqueIndex, ...]
    needed: frozenset[str] = frozenset()
    """Columns that must be given: they take no null and have no default."""


@dataclass(frozen=True)
class Timeouts:
    """How long to wait for a connection, and how long one statement, or a pause within a transaction, may take."""

    connect_s: float = 10.0
    transaction_s: float = 300.0


@dataclass(frozen=True)
class RowBatch:
    """Rows to be written: `columns` laid out as `type_info` says, without their change kinds; `first` is the number of
    the first among all rows of the commit. `deletes`: which rows remove the row of their key; None: none does."""

    columns: pa.RecordBatch
    type_info: TypeInformation
    first: int = 0
    deletes: pa.Array | None = None


class Dialect(ABC):
    """A kind of database."""

    other_index_advice: ClassVar[str]
    """What to do about a unique index that is not the key's; {} is its name."""

    @abstractmethod
    def connect(self, address: DatabaseAddress, timeouts: Timeouts) -> Any:
        """A new connection that commits only when it is told to."""

    def deadline(self, connection: Any, total_s: float) -> AbstractContextManager[None]:
        """Within it, nothing waits longer for an answer of the server. Default: the connection sees to that itself."""
        return nullcontext()

    @abstractmethod
    def refusal(self, error: BaseException) -> str | None:
        """Why the database will not do this however often it is asked; None for an error that may pass."""

    @abstractmethod
    def shape(self, connection: Any, table: TableName) -> TableShape | None:
        """What the table looks like; None if there is none. Raises ProgramError for one that keeps no promise."""

    @abstractmethod
    def make_commits_table(self, connection: Any, table: TableName) -> None:
        """Make the table of commits, unless it is there."""

    @abstractmethod
    def lock_committer(self, connection: Any, table: TableName, committer: str) -> int:
        """Take the row of a committer for this transaction, made if need be; its newest epoch, 0 if there is none."""

    @abstractmethod
    def record_commit(self, connection: Any, table: TableName, committer: str, epoch: int) -> None:
        """Write the newest epoch into the row."""

    @abstractmethod
    def append(self, connection: Any, table: TableName, names: Sequence[str], batches: Iterator[RowBatch]) -> None:
        """Add rows to the table."""

    @abstractmethod
    def upsert(
        self, connection: Any, table: TableName, names: Sequence[str], key: Sequence[str], batches: Iterator[RowBatch]
    ) -> None:
        """Make the table hold, for each key among the rows, the last of them, or none if that one deletes."""

    def clear_upserted(self, connection: Any, table: TableName, names: Sequence[str]) -> None:
        """Forget what `upsert` has gathered, if it gathers rows for the whole transaction: what is put stays put."""
        return

    @abstractmethod
    def execute(self, connection: Any, statement: str, batches: Iterator[RowBatch], batch_rows: int) -> None:
        """Execute the statement with its `?` taken from each row, row after row."""

    @abstractmethod
    def texts(
        self, connection: Any, query: str, parameters: Sequence[Any], types: Sequence[TypeInformation]
    ) -> list[pa.Array]:
        """The answer to a query as columns of texts, written as PostgreSQL writes values of these types."""

    @abstractmethod
    def is_unfit(self, error: BaseException) -> bool:
        """Whether a parameter was refused because no value of its column can be equal to it."""


def dialect_of(address: DatabaseAddress) -> Dialect:
    """The dialect of the database at `address`."""
    if address.kind == "postgresql":
        from millstream.connectors.databases.postgres_dialect import PostgresDialect

        return PostgresDialect()
    from millstream.connectors.databases.mysql_dialect import MysqlDialect

    return MysqlDialect()
