"""The stored rows of one side of a regular join, by join key. They are stored as long as they are in the table, or
until event time shows that no later row can match them.

A row is identified by its key and a number that is never reused. The numbers distinguish equal rows; a delete removes
one row equal to it. Within an epoch, reads return the rows as of its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.states import Scope, StateHandle
from millstream.runtime.tables.changes import row_numbers
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, KeyColumn, plain_view
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.layout import NEVER_MS
from millstream.state.tables.state_table import StateTable

__all__ = ["JoinedRows", "NumberedTable", "SignedRows"]


@dataclass(frozen=True)
class SignedRows:
    """Rows of one side: their keys, their contents as one struct column, and their signs: -1 is a delete. Stored rows
    have a number. `expires_ms`: when each expires by the clock, if rows expire; 0 for rows that are not stored yet."""

    keys: KeyColumn
    contents: pa.Array
    signs: Int64s
    numbers: Int64s
    expires_ms: Int64s | None = None

    def __len__(self) -> int:
        return len(self.signs)

    def take(self, rows: Int64s) -> SignedRows:
        """The rows at these positions."""
        expires_ms = None if self.expires_ms is None else self.expires_ms[rows]
        contents = self.contents.take(pa.array(rows))
        return SignedRows(self.keys.take(rows), contents, self.signs[rows], self.numbers[rows], expires_ms)

    @property
    def expires_ms_or_zero(self) -> Int64s:
        """When each row expires by the clock; 0 where that is not known."""
        return np.zeros(len(self), dtype=np.int64) if self.expires_ms is None else self.expires_ms

    def where(self, chosen: Bools) -> SignedRows:
        """The chosen rows; not copied if all are."""
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    @classmethod
    def of(cls, keys: KeyColumn, contents: pa.Array, signs: Int64s | None = None) -> SignedRows:
        """Arrived rows."""
        count = len(contents)
        signs = np.ones(count, dtype=np.int64) if signs is None else signs
        return cls(keys, contents, signs, np.full(count, -1, dtype=np.int64))

    @classmethod
    def of_columns(
        cls, keys: KeyColumn, columns: pa.RecordBatch, kind: pa.StructType, signs: Int64s | None
    ) -> SignedRows:
        """Arrived rows as columns: the key, then the contents, of type `kind`."""
        contents = pa.StructArray.from_arrays(columns.columns[1 : 1 + kind.num_fields], fields=list(kind))
        return cls.of(keys, contents, signs)

    @classmethod
    def concat(cls, pieces: Sequence[SignedRows]) -> SignedRows:
        """All rows, concatenated. A single piece is not copied."""
        pieces = [rows for rows in pieces if len(rows)] or pieces[:1]
        if len(pieces) == 1:
            return pieces[0]
        expires_ms = None
        if any(rows.expires_ms is not None for rows in pieces):
            expires_ms = np.concatenate([rows.expires_ms_or_zero for rows in pieces])
        return cls(
            cls.concat_keys(pieces),
            pa.concat_arrays([rows.contents for rows in pieces]),
            np.concatenate([rows.signs for rows in pieces]),
            np.concatenate([rows.numbers for rows in pieces]),
            expires_ms,
        )

    @staticmethod
    def concat_keys(pieces: Sequence[SignedRows]) -> KeyColumn:
        """The keys of all rows."""
        return KeyColumn.concat([rows.keys for rows in pieces])

    def consolidated(self) -> SignedRows:
        """The rows without pairs of insert and delete that cancel out, in arrival order."""
        if not len(self) or (self.signs > 0).all():
            return self
        codes = self.row_codes([self])[0]
        count = int(codes.max()) + 1
        left = np.zeros(count, dtype=np.int64)
        np.add.at(left, codes, self.signs)
        # Among equal rows, the last ones with the remaining sign are retained.
        retained = []
        for sign in (-1, 1):
            rows = np.flatnonzero(self.signs == sign)
            sizes = np.bincount(codes[rows], minlength=count)
            wanted = np.maximum(sign * left, 0)
            is_last = sizes[codes[rows]] - _places(codes[rows], count) <= wanted[codes[rows]]
            retained.append(rows[is_last])
        return self.take(np.sort(np.concatenate(retained)))

    def deleted_mask(self, changes: SignedRows, table: str, unstored: Bools) -> Bools:
        """Mask of the stored rows that consolidated changes delete, of equal ones the first. `unstored` masks changes
        of rows that are never stored."""
        deletes_at = np.flatnonzero((changes.signs < 0) & ~unstored)
        (deleted,), _ = self._match_deletes([self], changes, deletes_at, table, has_ttl=False)
        return deleted

    def match_changes(self, changes: SignedRows, table: str, *, has_ttl: bool = False) -> tuple[Bools, Bools, Int64s]:
        """Masks of the stored rows that changes delete and of the inserts that remain; the positions of deletes without
        a matching row. Of equal rows the first are deleted, and a row deleted and inserted again is last, so the order
        of rows does not depend on how changes are divided into epochs."""
        stays = changes.signs > 0
        if stays.all():
            return np.zeros(len(self), dtype=np.bool_), stays, np.empty(0, dtype=np.int64)
        added = np.flatnonzero(stays)
        pieces = [self, changes.take(added)]
        (deleted, deleted_again), missing = self._match_deletes(
            pieces, changes, np.flatnonzero(~stays), table, has_ttl=has_ttl
        )
        stays[added[deleted_again]] = False
        return deleted, stays, missing

    @staticmethod
    def _match_deletes(
        pieces: Sequence[SignedRows], changes: SignedRows, deletes_at: Int64s, table: str, *, has_ttl: bool
    ) -> tuple[list[Bools], Int64s]:
        """For each piece, a mask of its rows that the deletes at `deletes_at` match, of equal rows the first; and the
        deletes without a match."""
        sizes, missing = np.cumsum([len(rows) for rows in pieces]), np.empty(0, dtype=np.int64)
        deleted = np.zeros(int(sizes[-1]), dtype=np.bool_)
        if len(deletes_at):
            codes, *piece_codes = SignedRows.row_codes([changes.take(deletes_at), *pieces])
            present_codes = np.concatenate(piece_codes)
            count = int(max(codes.max(), present_codes.max(initial=0))) + 1
            wanted, present = np.bincount(codes, minlength=count), np.bincount(present_codes, minlength=count)
            if (wanted > present).any():
                missing = deletes_at[_places(codes, count) >= present[codes]]
            if len(missing) and not has_ttl:
                row = changes.take(missing[:1]).contents.to_pylist()[0]
                raise ProgramError(
                    f"a row of {table} was retracted that was never inserted: {row}. Check the source's changelog: "
                    "every -U and -D must be of a row that it emitted before"
                )
            deleted[_places(present_codes, count) < wanted[present_codes]] = True
        return np.split(deleted, sizes[:-1]), missing

    @staticmethod
    def row_codes(sides: Sequence[SignedRows]) -> list[Int64s]:
        """Numbers for rows of one side; rows with equal key and contents have the same number."""
        rows = [
            pa.StructArray.from_arrays([side.keys.array, side.contents], names=["key", "contents"]) for side in sides
        ]
        return row_numbers(rows)


def _places(codes: Int64s, count: int) -> Int64s:
    """For each row the number of earlier rows with the same code; there are `count` codes.

    >>> _places(np.array([1, 0, 1, 1]), 2).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=count)
    places = np.empty(len(codes), dtype=np.int64)
    places[order] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places


class NumberedTable(StateHandle):
    """A table of rows by key and number in one subtask, with one retention rule for all rows."""

    def __init__(
        self,
        name: str,
        key_type: TypeInformation | None,
        max_parallelism: int,
        codec: StateCodec,
        scope: Scope,
        ttl_ms: int | None,
        *,
        timed: type[RowTable] | None = None,
    ) -> None:
        """`timed`: stores an event time of expiry for each row in a table of this type; otherwise rows are stored
        without limit, or for `ttl_ms` of the clock."""
        self._timed = None if timed is None else timed(name, key_type, max_parallelism, codec, evolves=False)
        plain = StateTable(name, key_type, max_parallelism, codec, sub_type=pa.int64(), ttl_ms=ttl_ms, evolves=False)
        super().__init__(plain if self._timed is None else self._timed, scope)
        self._ttl_ms = ttl_ms

    @property
    def has_ttl(self) -> bool:
        """Whether rows expire by the clock: then a deleted row may have expired already."""
        return self._timed is None and self._ttl_ms is not None

    def move_time(self, time_ms: int) -> None:
        """Advance event time: rows due by then expire."""
        if self._timed is not None:
            self._timed.time_ms = time_ms

    def stored_as(self, rows: pa.RecordBatch) -> SignedRows:
        """Rows of the table, in their stored order."""
        keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("key"))
        expires_ms = rows.column("expires_ms").to_numpy() if self.has_ttl else None
        ones = np.ones(rows.num_rows, dtype=np.int64)
        return SignedRows(keys, rows.column("value"), ones, rows.column("sub").to_numpy(), expires_ms)

    def put_numbered(
        self, keys: KeyColumn, numbers: Int64s, values: pa.Array, now_ms: int, expires_ms: Int64s | None
    ) -> None:
        """Store values under these keys and numbers. `expires_ms`: the event time at which each expires; where rows
        expire by the clock, the earliest such time."""
        if self._timed is None and self._ttl_ms:
            at_least = 0 if expires_ms is None else expires_ms
            expires_ms = np.maximum(np.full(len(keys), now_ms + self._ttl_ms, dtype=np.int64), at_least)
        due_ms = expires_ms if self._timed is not None else None
        self.table.changes.put(keys, values, subs=pa.array(numbers), due_ms=due_ms, expires_ms=expires_ms)

    def delete(self, rows: SignedRows, chosen: Int64s) -> None:
        """Delete the chosen stored rows, without reading their contents."""
        if len(chosen):
            self.table.changes.delete(rows.keys.take(chosen), subs=pa.array(rows.numbers[chosen]))


class JoinedRows(NumberedTable):
    """The stored rows of one side in one subtask."""

    next_number: int
    numbers_rows = True

    def begin(self) -> None:
        self.next_number = self.table.rows_numbered
        self.table.keys_read = 0

    def no_rows(self) -> SignedRows:
        """No rows, with the table's types."""
        none, layout = np.empty(0, dtype=np.int64), self.table.layout
        keys = KeyColumn(none, pa.nulls(0, layout.stored_key_type))
        return SignedRows(keys, pa.nulls(0, layout.value_type), none, none)

    def of_keys(self, keys: KeyColumn) -> SignedRows:
        """The stored rows of these keys, which may repeat."""
        if not len(keys) or self.table.view.is_empty:
            return self.no_rows()
        distinct = np.sort(np.unique(key_numbers([keys.array])[0], return_index=True)[1])
        return self._rows(self.stored_rows(keys.take(distinct)))

    def stored_rows(self, keys: KeyColumn) -> pa.RecordBatch:
        """The rows of these distinct keys, as stored. Counts the keys read: a table with few reads is compacted
        less."""
        self.table.keys_read = (self.table.keys_read or 0) + len(keys)
        return self.table.view.scan_keys(keys)

    def due_through(self, time_ms: int) -> tuple[SignedRows, Int64s]:
        """The rows due by that time, in arrival order, and their due times. They stay stored until they expire."""
        due_rows = self.table.view.scan_due(
            min(time_ms, NEVER_MS - 1)
        )  # rows that are never due are not due at the end
        if not due_rows.num_rows:
            return self.no_rows(), np.empty(0, dtype=np.int64)
        due = plain_view(due_rows.column("due_ms"))[np.argsort(due_rows.column("sub").to_numpy(), kind="stable")]
        return self._rows(due_rows), due

    def all(self) -> SignedRows:
        """Every row, this epoch's included."""
        self.table.settle()
        blocks = list(self.table.view.scan())
        return SignedRows.concat([self._rows(block) for block in blocks]) if blocks else self.no_rows()

    def _rows(self, rows: pa.RecordBatch) -> SignedRows:
        stored = self.stored_as(rows)
        return stored.take(np.argsort(stored.numbers, kind="stable"))  # arrival order

    def numbered(self, rows: SignedRows) -> SignedRows:
        """Arrived rows with the next numbers."""
        numbers = self.next_number + np.arange(len(rows))
        self.next_number += len(rows)
        return replace(rows, numbers=numbers)

    def add(self, rows: SignedRows, now_ms: int, expires_ms: Int64s | None = None) -> None:
        """Store rows, under the next numbers if they have none. `expires_ms`: the event time at which each expires."""
        if len(rows):
            numbers = rows.numbers if rows.numbers[0] >= 0 else self.numbered(rows).numbers
            self.put_numbered(rows.keys, numbers, rows.contents, now_ms, expires_ms)

    def remove(self, rows: SignedRows) -> None:
        """Delete stored rows."""
        self.delete(rows, np.arange(len(rows)))
