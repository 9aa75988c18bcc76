"""Checks that the unique indexes of a table allow upserts by key.

A row replaces the existing row with its key. Any other unique index conflicts with this:

    MySQL         ON DUPLICATE KEY UPDATE matches any unique index: it may overwrite a row with another key
    PostgreSQL    refuses the statement, after the job has committed its epoch; also if rows only exchange values
                  (a's mail to b, b's to a) and the result would be valid

So tables with such an index are rejected before the job runs. Indexes that include all columns of the key
conflict only between rows of one key, and are allowed. PostgreSQL checks a deferrable constraint at the end of the
transaction, where only real duplicates conflict: these are errors in the stream, reported like any other constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors import ProgramError

__all__ = ["UniqueIndex", "check_upsert_key"]


@dataclass(frozen=True)
class UniqueIndex:
    """An index that refuses duplicates. `columns` are its full columns, without prefixes and expressions.

    `is_whole`: it consists of them, for all rows. `is_deferrable`: it is checked at the end of the transaction.
    """

    name: str
    columns: frozenset[str]
    is_whole: bool = True
    is_deferrable: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({', '.join([*sorted(self.columns), *([] if self.is_whole else ['…'])])})"


def check_upsert_key(indexes: Sequence[UniqueIndex], key: Sequence[str], subject: str, advice: str) -> None:
    """Reject a key that is not unique in the table, and other indexes in which rows may conflict.

    `advice` ends the message: the database's alternatives, with {} for the name of the index.
    """
    columns = frozenset(key)
    if not any(index.is_whole and not index.is_deferrable and index.columns == columns for index in indexes):
        unique = ", ".join(map(str, indexes)) or "none"
        raise ProgramError(
            f"{subject}: {', '.join(key)} is not unique in the table (unique are: {unique}), so "
            "no row can be replaced by it. Make it the primary key, or create a unique index on it"
        )
    for index in indexes:
        if not index.is_deferrable and not columns <= index.columns:
            raise ProgramError(
                f"{subject}: the table has the unique index {index} besides the key {', '.join(key)}, in which a row "
                f"may conflict with a row of another key. {advice.format(index.name)}"
            )
