"""Which unique indexes of a table a sink that writes by key can live with.

A row takes the place of the one with its key. Another unique index than that of the key stands in the way of this:

    MySQL         ON DUPLICATE KEY UPDATE hits whichever index a row collides with: a row of another key is overwritten
    PostgreSQL    the statement is refused, after its epoch was committed in the job; also where rows only trade values
                  (a's mail to b, b's to a) and the table would be right in the end

So tables with such an index are refused before anything runs. Indexes that have all columns of the key among theirs
collide in rows of one key only, and are no matter. PostgreSQL checks a deferrable constraint when the transaction ends,
where only values that are really there twice collide: that is the stream's fault, and told as any other constraint is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors import ProgramError

__all__ = ["UniqueIndex", "check_upsert_key"]


@dataclass(frozen=True)
class UniqueIndex:
    """An index that refuses a second row. `columns` are those it has at their full length, without expressions.

    `is_whole`: it consists of them, for all rows. `is_deferrable`: it is checked at the end of the transaction.
    """

    name: str
    columns: frozenset[str]
    is_whole: bool = True
    is_deferrable: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({', '.join([*sorted(self.columns), *([] if self.is_whole else ['…'])])})"


def check_upsert_key(indexes: Sequence[UniqueIndex], key: Sequence[str], subject: str, advice: str) -> None:
    """Refuse a key that is not unique in the table, and other indexes that rows may collide in.

    `advice` ends the message: what this database offers, with {} for the name of the index.
    """
    columns = frozenset(key)
    if not any(index.is_whole and not index.is_deferrable and index.columns == columns for index in indexes):
        unique = ", ".join(map(str, indexes)) or "none"
        raise ProgramError(
            f"{subject}: {', '.join(key)} is not unique in the table (unique are: {unique}), so "
            "no row can be put in the place of another. Make it the primary key, or give it a unique index"
        )
    for index in indexes:
        if not index.is_deferrable and not columns <= index.columns:
            raise ProgramError(
                f"{subject}: the table has the unique index {index} beside the key {', '.join(key)}, and a row may "
                f"collide with a row of another key there. {advice.format(index.name)}"
            )
