"""The rows of one side of a regular join: in the store, by join key, for as long as they are in the table, or until
event time says that nothing can meet them any more.

A row is named by its key and a number that no other row ever has. Equal rows are told apart by their numbers; one of
them is taken away when a row like it is. Within an epoch the rows are read as they were before it.
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
    """Rows of one side: their keys, their contents as one column of structs, and a sign each: -1 is taken away. Rows
    that are stored have a number. `expires_ms`: when each is forgotten, where that goes by the clock; 0 for those that
    are not stored yet."""

    keys: KeyColumn
    contents: pa.Array
    signs: Int64s
    numbers: Int64s
    expires_ms: Int64s | None = None

    def __len__(self) -> int:
        return len(self.signs)

    def take(self, rows: Int64s) -> SignedRows:
        """These rows."""
        expires_ms = None if self.expires_ms is None else self.expires_ms[rows]
        contents = self.contents.take(pa.array(rows))
        return SignedRows(self.keys.take(rows), contents, self.signs[rows], self.numbers[rows], expires_ms)

    @property
    def expires_ms_or_zero(self) -> Int64s:
        """When each is forgotten by the clock; 0 where that is not known."""
        return np.zeros(len(self), dtype=np.int64) if self.expires_ms is None else self.expires_ms

    def where(self, chosen: Bools) -> SignedRows:
        """The rows that are chosen; all of them are not copied."""
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    @classmethod
    def of(cls, keys: KeyColumn, contents: pa.Array, signs: Int64s | None = None) -> SignedRows:
        """Rows that have come."""
        count = len(contents)
        signs = np.ones(count, dtype=np.int64) if signs is None else signs
        return cls(keys, contents, signs, np.full(count, -1, dtype=np.int64))

    @classmethod
    def of_columns(
        cls, keys: KeyColumn, columns: pa.RecordBatch, kind: pa.StructType, signs: Int64s | None
    ) -> SignedRows:
        """Rows that have come as columns: the key, then the contents, which are of `kind`."""
        contents = pa.StructArray.from_arrays(columns.columns[1 : 1 + kind.num_fields], fields=list(kind))
        return cls.of(keys, contents, signs)

    @classmethod
    def concat(cls, pieces: Sequence[SignedRows]) -> SignedRows:
        """All rows, one lot after another. One lot alone is not copied."""
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
        """The same without what comes and goes: of equal rows as many as are left, in the order they came."""
        if not len(self) or (self.signs > 0).all():
            return self
        codes = self.row_codes([self])[0]
        count = int(codes.max()) + 1
        left = np.zeros(count, dtype=np.int64)
        np.add.at(left, codes, self.signs)
        # Of each content the last rows of the sign that is left stay.
        kept = []
        for sign in (-1, 1):
            rows = np.flatnonzero(self.signs == sign)
            sizes = np.bincount(codes[rows], minlength=count)
            wanted = np.maximum(sign * left, 0)
            is_last = sizes[codes[rows]] - _places(codes[rows], count) <= wanted[codes[rows]]
            kept.append(rows[is_last])
        return self.take(np.sort(np.concatenate(kept)))

    def taken_away(self, changes: SignedRows, table: str, unstored: Bools) -> Bools:
        """Which of these stored rows changes take away, which are netted: of equal ones the first. `unstored`: which
        changes are of rows that never are."""
        taken_at = np.flatnonzero((changes.signs < 0) & ~unstored)
        (gone,), _ = self._taken_of([self], changes, taken_at, table, forgets=False)
        return gone

    def followed_by(self, changes: SignedRows, table: str, *, forgets: bool = False) -> tuple[Bools, Bools, Int64s]:
        """Which of these stored rows changes take away, which of the changes are rows that come and stay, and which
        take a row away that is not there. Of equal rows the first go, and a row that goes and comes again comes last:
        so rows stand in one order, wherever their changes were cut into epochs."""
        stays = changes.signs > 0
        if stays.all():
            return np.zeros(len(self), dtype=np.bool_), stays, np.empty(0, dtype=np.int64)
        added = np.flatnonzero(stays)
        lots = [self, changes.take(added)]
        (gone, gone_again), missing = self._taken_of(lots, changes, np.flatnonzero(~stays), table, forgets=forgets)
        stays[added[gone_again]] = False
        return gone, stays, missing

    @staticmethod
    def _taken_of(
        lots: Sequence[SignedRows], changes: SignedRows, taken_at: Int64s, table: str, *, forgets: bool
    ) -> tuple[list[Bools], Int64s]:
        """Which rows of the lots the changes at `taken_at` take away, of equal ones the first; and which of those
        changes find none."""
        sizes, missing = np.cumsum([len(rows) for rows in lots]), np.empty(0, dtype=np.int64)
        gone = np.zeros(int(sizes[-1]), dtype=np.bool_)
        if len(taken_at):
            codes, *lot_codes = SignedRows.row_codes([changes.take(taken_at), *lots])
            there_codes = np.concatenate(lot_codes)
            count = int(max(codes.max(), there_codes.max(initial=0))) + 1
            wanted, there = np.bincount(codes, minlength=count), np.bincount(there_codes, minlength=count)
            if (wanted > there).any():
                missing = taken_at[_places(codes, count) >= there[codes]]
            if len(missing) and not forgets:
                row = changes.take(missing[:1]).contents.to_pylist()[0]
                raise ProgramError(
                    f"a row of {table} was taken away that had never been added: {row}. Look at what the source says "
                    "of its changes: each -U and -D is of a row that it has given before"
                )
            gone[_places(there_codes, count) < wanted[there_codes]] = True
        return np.split(gone, sizes[:-1]), missing

    @staticmethod
    def row_codes(sides: Sequence[SignedRows]) -> list[Int64s]:
        """Numbers for rows of one side; those that are the same, key and contents, have one."""
        rows = [
            pa.StructArray.from_arrays([side.keys.array, side.contents], names=["key", "contents"]) for side in sides
        ]
        return row_numbers(rows)


def _places(codes: Int64s, count: int) -> Int64s:
    """For each row how many of its code, of which there are `count`, stand before it.

    >>> _places(np.array([1, 0, 1, 1]), 2).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=count)
    places = np.empty(len(codes), dtype=np.int64)
    places[order] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places


class NumberedTable(StateHandle):
    """A table of rows by key and number, in one subtask, that are kept, or forgotten, all alike."""

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
        """`timed`: each row says how long it is kept, in event time, in such a table; else all are kept, or for
        `ttl_ms` of the clock."""
        self._timed = None if timed is None else timed(name, key_type, max_parallelism, codec, evolves=False)
        plain = StateTable(name, key_type, max_parallelism, codec, sub_type=pa.int64(), ttl_ms=ttl_ms, evolves=False)
        super().__init__(plain if self._timed is None else self._timed, scope)
        self._ttl_ms = ttl_ms

    @property
    def forgets(self) -> bool:
        """Whether rows go by the clock: then one that is taken away may be gone already."""
        return self._timed is None and self._ttl_ms is not None

    def move_time(self, time_ms: int) -> None:
        """Event time has come so far: what has expired by then is forgotten."""
        if self._timed is not None:
            self._timed.time_ms = time_ms

    def stored_as(self, rows: pa.RecordBatch) -> SignedRows:
        """Rows as the table has them, in their order."""
        keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("key"))
        expires_ms = rows.column("expires_ms").to_numpy() if self.forgets else None
        ones = np.ones(rows.num_rows, dtype=np.int64)
        return SignedRows(keys, rows.column("value"), ones, rows.column("sub").to_numpy(), expires_ms)

    def put_numbered(
        self, keys: KeyColumn, numbers: Int64s, values: pa.Array, now_ms: int, expires_ms: Int64s | None
    ) -> None:
        """Keep values under these keys and numbers. `expires_ms`: the event time up to which each is kept; where that
        goes by the clock, the time up to which it is kept at least."""
        if self._timed is None and self._ttl_ms:
            at_least = 0 if expires_ms is None else expires_ms
            expires_ms = np.maximum(np.full(len(keys), now_ms + self._ttl_ms, dtype=np.int64), at_least)
        due_ms = expires_ms if self._timed is not None else None
        self.table.changes.put(keys, values, subs=pa.array(numbers), due_ms=due_ms, expires_ms=expires_ms)

    def forget(self, rows: SignedRows, chosen: Int64s) -> None:
        """Take away what is stored of some rows: what is in them need not be copied for that."""
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
        """None."""
        none, layout = np.empty(0, dtype=np.int64), self.table.layout
        keys = KeyColumn(none, pa.nulls(0, layout.stored_key_type))
        return SignedRows(keys, pa.nulls(0, layout.value_type), none, none)

    def of_keys(self, keys: KeyColumn) -> SignedRows:
        """The rows of these keys, which may repeat."""
        if not len(keys) or self.table.view.is_empty:
            return self.no_rows()
        distinct = np.sort(np.unique(key_numbers([keys.array])[0], return_index=True)[1])
        return self._rows(self.stored_rows(keys.take(distinct)))

    def stored_rows(self, keys: KeyColumn) -> pa.RecordBatch:
        """The rows of these keys, no two of which are equal, as they are stored. That it was looked is counted: what
        is hardly looked into is merged less."""
        self.table.keys_read = (self.table.keys_read or 0) + len(keys)
        return self.table.view.scan_keys(keys)

    def due_through(self, time_ms: int) -> tuple[SignedRows, Int64s]:
        """The rows that are due by then, with when they are, as they came. They are kept until they expire."""
        found = self.table.view.scan_due(min(time_ms, NEVER_MS - 1))  # what is never due is not due at the end
        if not found.num_rows:
            return self.no_rows(), np.empty(0, dtype=np.int64)
        due = plain_view(found.column("due_ms"))[np.argsort(found.column("sub").to_numpy(), kind="stable")]
        return self._rows(found), due

    def all(self) -> SignedRows:
        """Every row, those of this epoch too."""
        self.table.settle()
        blocks = list(self.table.view.scan())
        return SignedRows.concat([self._rows(block) for block in blocks]) if blocks else self.no_rows()

    def _rows(self, rows: pa.RecordBatch) -> SignedRows:
        stored = self.stored_as(rows)
        return stored.take(np.argsort(stored.numbers, kind="stable"))  # as they came

    def numbered(self, rows: SignedRows) -> SignedRows:
        """Rows that have come, with the next numbers."""
        numbers = self.next_number + np.arange(len(rows))
        self.next_number += len(rows)
        return replace(rows, numbers=numbers)

    def add(self, rows: SignedRows, now_ms: int, expires_ms: Int64s | None = None) -> None:
        """Keep rows, under the next numbers if they have none. `expires_ms`: the event time up to which each is
        kept."""
        if len(rows):
            numbers = rows.numbers if rows.numbers[0] >= 0 else self.numbered(rows).numbers
            self.put_numbered(rows.keys, numbers, rows.contents, now_ms, expires_ms)

    def remove(self, rows: SignedRows) -> None:
        """Take stored rows away."""
        self.forget(rows, np.arange(len(rows)))
