"""Regular joins: every pair of rows of two tables that change, kept in step with both.

In an epoch, with the net changes of both sides (L, R are what is stored before it, L' and R' after it):

    pairs        ΔL ⋈ R  +  L' ⋈ ΔR            signs multiply; L' is what stays of L, and what comes
    outer rows   a row of a side that is kept whole, without a partner, stands with NULLs: it comes or goes when it
                 comes or goes itself, or when its last partner goes or the first one comes
    semi, anti   rows of the left side with, or without, a partner

Stored rows are read by the keys that the other side's changes have; those of a side's own changes only where rows are
taken away, or where partners must be counted. A row whose key has a NULL has no partner, and is not stored. In BATCH
only final rows are wanted: what may come and go is made when the input has ended.

A row that no later row can meet is forgotten once event time says so (`Expiry`): that changes no result, whatever comes
late, since only columns are gone by that no late row can have.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from millstream.common.types import RowKind
from millstream.graph.table_nodes import RegularJoin
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import netted_rows
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.pairs import Pairs, columns_of_pairs, without_key
from millstream.runtime.tables.row_expiry import RowExpiry
from millstream.runtime.tables.two_tables import TwoTablesOperator
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import LEFT_TABLE, RIGHT_TABLE

__all__ = ["RegularJoinOperator"]

_SIDES = (LEFT_TABLE, RIGHT_TABLE)
_NAMES = ("left", "right")
_DELETE = RowKind.DELETE.value


class RegularJoinOperator(TwoTablesOperator):
    """Joins two tables that may change."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, RegularJoin)
        sides = []
        for number, name in enumerate(_SIDES):
            rows = JoinedRows(
                name,
                self.edges[number].key_type,
                setting.context.max_parallelism,
                self.codec(number, name),
                self.backend.scope,
                operation.ttl_ms[number],
                timed=RowTable if operation.expiries[number] else None,
            )
            self.backend.keep(name, rows)
            sides.append(rows)
        self._sides = tuple(sides)
        self._expiries = tuple(
            RowExpiry(side, row_type, operation.session, self.call) if side else None
            for side, row_type in zip(operation.expiries, operation.rows, strict=True)
        )
        # In BATCH rows that may go again are not given before the end.
        self._waits = self.is_batch and operation.kind != "INNER"

    # --- an epoch -------------------------------------------------------------------------------------------------

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        self._move_time()
        super().open_states(accounts)

    def write_states(self) -> SubtaskAccount:
        self._move_time()
        return super().write_states()

    def _move_time(self) -> None:
        for side in self._sides:
            side.move_time(MIN_WATERMARK if self.is_batch else self.time.watermark)

    def _changes(self, number: int) -> SignedRows:
        """What has come of a side, netted."""
        lots, _ = self.take_rows(number)
        return SignedRows.concat(lots).netted() if lots else self._sides[number].no_rows()

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        self.started_ns = time.perf_counter_ns()
        changes = self._changes(0), self._changes(1)
        if self._waits:
            self._store_all(changes)
            if reached == MAX_WATERMARK and not had_ended:
                with self.call.running("state"):
                    everything = self._sides[0].all(), self._sides[1].all()
                nothing = self._sides[0].no_rows(), self._sides[1].no_rows()
                self._give(self._joined(everything, nothing))
        elif len(changes[0]) or len(changes[1]):
            self._give(self._joined(changes, self._stored(changes)))
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        return reached

    def _store_all(self, changes: tuple[SignedRows, SignedRows]) -> None:
        with self.call.running("state"):
            for number, rows in enumerate(changes):
                self._keep(number, rows)

    def _keep(self, number: int, rows: SignedRows) -> None:
        """Store rows of a side, but for those that nothing can meet."""
        expiry, expires_ms = self._expiries[number], None
        if expiry is not None and len(rows):
            expires_ms = expiry.of(rows, self.time.now_ms)
            needed = np.flatnonzero(expires_ms > self.time.watermark)
            if len(needed) < len(rows):
                rows, expires_ms = rows.take(needed), expires_ms[needed]
        self._sides[number].add(rows, self.time.now_ms, expires_ms)

    def _stored(self, changes: tuple[SignedRows, SignedRows]) -> tuple[SignedRows, SignedRows]:
        """Of each side the stored rows that are needed."""
        needed = []
        with self.call.running("state"):
            for number, side in enumerate(self._sides):
                own, other = changes[number], changes[1 - number]
                wanted = [other]
                if self.is_whole[1 - number]:  # the partners of the other side's rows are counted
                    wanted.append(own)
                elif (own.signs < 0).any():
                    wanted.append(own.take(np.flatnonzero(own.signs < 0)))
                rows = [each for each in wanted if len(each)]
                needed.append(side.of_keys(SignedRows.concat_keys(rows)) if rows else side.no_rows())
        return needed[0], needed[1]

    def _joined(self, changes: tuple[SignedRows, SignedRows], stored: tuple[SignedRows, SignedRows]) -> Iterator[Pairs]:
        """What comes of the changes; the store follows them."""
        kept, fresh = [], []
        for number, side in enumerate(self._sides):
            has_no_key = without_key(changes[number])
            name = f"the {_NAMES[number]} side"
            gone = stored[number].taken_away(changes[number], name, has_no_key, forgets=side.forgets)
            is_added = changes[number].signs > 0
            added = changes[number].where(is_added)
            if not self._waits:
                with self.call.running("state"):
                    side.remove(stored[number].take(np.flatnonzero(gone)))
                    lacking = has_no_key[is_added]
                    self._keep(number, added.where(~lacking))
            kept.append(stored[number].where(~gone))
            fresh.append(added)
        if self.join.kind not in ("SEMI", "ANTI"):
            yield from self.matcher.pairs(changes[0], stored[1])
            # One after the other: putting them together would copy wide rows for each epoch.
            yield from self.matcher.pairs(kept[0], changes[1])
            yield from self.matcher.pairs(fresh[0], changes[1])
        for number in (0, 1):
            if self.is_whole[number]:
                after = SignedRows.concat([kept[1 - number], fresh[1 - number]])
                yield from self._alone(number, changes[number], kept[number], stored[1 - number], after)

    # --- results --------------------------------------------------------------------------------------------------

    def _alone(
        self, number: int, changes: SignedRows, others: SignedRows, before: SignedRows, after: SignedRows
    ) -> Iterator[Pairs]:
        """Rows of a side that stand, or stood, alone (of SEMI: that do not): its changes, and the others of it that are
        stored. `before` and `after`: the other side."""
        is_semi = self.join.kind == "SEMI"
        added, taken = (changes.take(np.flatnonzero(changes.signs == sign)) for sign in (1, -1))
        stood, stands = self.matcher.partners(number, others, before), self.matcher.partners(number, others, after)
        for rows, chosen, sign in (
            (taken, self.matcher.partners(number, taken, before) == is_semi, -1),
            (others, (stood == is_semi) & (stands != is_semi), -1),
            (added, self.matcher.partners(number, added, after) == is_semi, 1),
            (others, (stood != is_semi) & (stands == is_semi), 1),
        ):
            at = np.flatnonzero(chosen)
            yield Pairs.alone(number, rows, at, self._sides[1 - number].no_rows(), sign)

    def _give(self, results: Iterator[Pairs]) -> None:
        """Give out results. Where rows may come and go in one epoch, they are netted before."""
        nets = self.join.changing != (False, False) or self.join.kind != "INNER"
        held: list[pa.RecordBatch] = []
        signs: list[Int64s] = []
        for given in results:
            if not len(given.signs):
                continue
            columns = columns_of_pairs(given, self.schema, self.given_sides)
            if nets:
                held.append(columns)
                signs.append(given.signs)
            else:
                self._emit(columns, given.signs)
        if all((each > 0).all() for each in signs):  # nothing goes that comes, too
            for columns, own in zip(held, signs, strict=True):
                self._emit(columns, own)
        else:
            self._emit(*netted_rows(pa.concat_batches(held), np.concatenate(signs)))

    def _emit(self, columns: pa.RecordBatch, signs: Int64s) -> None:
        kinds = np.where(signs > 0, 0, _DELETE)
        if (signs > 0).any() and (signs < 0).any():
            order = np.argsort(signs, kind="stable")  # what goes comes first: a sink by key must not lose what comes
            columns, kinds = columns.take(pa.array(order)), kinds[order]
        self.give(columns, kinds)
