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

A row whose time-to-live is over is forgotten, too, and then results may differ from those of the whole tables; but what
is given stays a changelog: only what was given is taken away, and once. A row that was forgotten is in the table no
more: nothing is given for it, not when it goes either. What was given with it stays. So does the standing of its
partners: a row that was given with a partner does not stand alone before that partner goes or, where a key has one row
at most, another one comes in its place. `emitted_results` stores each row's match count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import Types
from millstream.common.types import RowKind
from millstream.graph.table_nodes import RegularJoin
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.joins.buffer import RowTable
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.tables.changes import consolidated_rows
from millstream.runtime.tables.emitted_results import EmittedResults, expired_retractions
from millstream.runtime.tables.joined_rows import JoinedRows, SignedRows
from millstream.runtime.tables.pairs import Pairs, columns_of_pairs, without_key
from millstream.runtime.tables.row_expiry import RowExpiry
from millstream.runtime.tables.two_tables import TwoTablesOperator
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.table_names import LEFT_PARTNERS, LEFT_TABLE, RIGHT_PARTNERS, RIGHT_TABLE

__all__ = ["RegularJoinOperator"]

_SIDES = (LEFT_TABLE, RIGHT_TABLE)
_PARTNERS = (LEFT_PARTNERS, RIGHT_PARTNERS)
_NAMES = ("left", "right")
_DELETE = RowKind.DELETE.value


@dataclass(frozen=True)
class _Side:
    """What is known of a side in an epoch: its changes, net; what is stored of the keys that matter, and which of it
    goes; what stays of it; what comes; and rows that were taken away when they had been forgotten, which are none of
    the changes."""

    changes: SignedRows
    stored: SignedRows
    gone: Bools
    kept: SignedRows
    added: SignedRows
    forgotten: SignedRows

    @cached_property
    def after(self) -> SignedRows:
        """What is there when the epoch is over."""
        return SignedRows.concat([self.kept, self.added])


class RegularJoinOperator(TwoTablesOperator):
    """Joins two tables that may change."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = self.node.operation
        assert isinstance(operation, RegularJoin)
        self._operation = operation
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
        self._standings = tuple(self._partner_counts(setting, operation, number) for number in (0, 1))
        self._forgotten = expired_retractions(setting) if any(side.forgets for side in self._sides) else None
        self._expiries = tuple(
            RowExpiry(side, row_type, operation.session, self.call) if side else None
            for side, row_type in zip(operation.expiries, operation.rows, strict=True)
        )
        # In BATCH rows that may go again are not given before the end.
        self._waits = self.is_batch and operation.kind != "INNER"

    def _partner_counts(self, setting: OperatorSetting, operation: RegularJoin, number: int) -> EmittedResults | None:
        """With how many partners each row of a side was given, where that matters and is not seen from the rows."""
        if not (self.is_whole[number] and self._sides[1 - number].forgets):
            return None
        name = _PARTNERS[number]
        counts = EmittedResults(
            name,
            self.edges[number].key_type,
            setting.context.max_parallelism,
            task_codec(Types.LONG(), f"state '{name}' of '{self.node.name}'"),
            self.backend.scope,
            operation.ttl_ms[number],
            timed=RowTable if operation.expiries[number] else None,
        )
        self.backend.keep(name, counts)
        return counts

    # --- an epoch -------------------------------------------------------------------------------------------------

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        self._move_time()
        super().open_states(accounts)

    def write_states(self) -> SubtaskAccount:
        self._move_time()
        return super().write_states()

    def _move_time(self) -> None:
        for table in (*self._sides, *self._standings):
            if table is not None:
                table.move_time(MIN_WATERMARK if self.is_batch else self.time.watermark)

    def _changes(self, number: int) -> SignedRows:
        """What has come of a side, netted; where rows expire by the clock, a row that was deleted and inserted again is
        young, and both changes of it are left."""
        lots, _ = self.take_rows(number)
        rows = SignedRows.concat(lots) if lots else self._sides[number].no_rows()
        return rows if self._forgotten is not None and not self._waits else rows.consolidated()

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
            needed = expires_ms > self.time.watermark
            rows, expires_ms = rows.where(needed), expires_ms[needed]
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
        left, right = (self._followed(number, changes[number], stored[number]) for number in (0, 1))
        if self.join.kind not in ("SEMI", "ANTI"):
            yield from self.matcher.pairs(left.changes, right.stored)
            # One after the other: putting them together would copy wide rows for each epoch.
            yield from self.matcher.pairs(left.kept, right.changes)
            yield from self.matcher.pairs(left.added, right.changes)
        for number, side, other in ((0, left, right), (1, right, left)):
            counts = self._standings[number]
            if counts is not None:
                yield from self._alone_as_given(number, side, other, counts)
            elif self.is_whole[number]:
                yield from self._alone(number, side, other)

    def _followed(self, number: int, changes: SignedRows, stored: SignedRows) -> _Side:
        """What changes of a side. The store follows."""
        side = self._sides[number]
        changes, gone, forgotten = self._applied(number, changes, stored)
        has_no_key = without_key(changes)
        is_added = changes.signs > 0
        added = changes.where(is_added)
        if not self._waits:
            if self._standings[number] is not None:
                added = side.numbered(added)
            with self.call.running("state"):
                side.forget(stored, np.flatnonzero(gone))
                self._keep(number, added.where(~has_no_key[is_added]))
        return _Side(changes, stored, gone, stored.where(~gone), added, forgotten)

    def _applied(self, number: int, changes: SignedRows, stored: SignedRows) -> tuple[SignedRows, Bools, SignedRows]:
        """The net changes of a side, which stored rows they delete, and deletes of rows that had expired."""
        name, has_no_key = f"the {_NAMES[number]} side", without_key(changes)
        if self._forgotten is None:
            return changes, stored.taken_away(changes, name, has_no_key), self._sides[number].no_rows()
        keyed = changes.where(~has_no_key)
        gone, is_added, missing = stored.followed_by(keyed, name, forgets=self._sides[number].forgets)
        self._forgotten.inc(len(missing))
        deleted = stored.where(gone)
        deleted = replace(deleted, signs=-deleted.signs)
        net = SignedRows.concat([changes.where(has_no_key).consolidated(), deleted, keyed.where(is_added)])
        return net, gone, keyed.take(missing)

    # --- results --------------------------------------------------------------------------------------------------

    def _alone(self, number: int, side: _Side, other: _Side) -> Iterator[Pairs]:
        """Rows of a side that stand, or stood, alone (of SEMI: that do not): its changes, and the others of it that are
        stored."""
        before, after, taken = other.stored, other.after, side.changes.where(side.changes.signs < 0)
        partners = partial(self.matcher.partners, number)
        turned = self._turned(number, side.kept, partners(side.kept, before), partners(side.kept, after))
        yield self._standing(number, taken, partners(taken, before), -1)
        yield turned[0]
        yield self._standing(number, side.added, partners(side.added, after), 1)
        yield turned[1]

    def _alone_as_given(self, number: int, side: _Side, other: _Side, counts: EmittedResults) -> Iterator[Pairs]:
        """The same where partners are forgotten: a row stands as it was given."""
        known_partners = self.matcher.partner_counts(number, side.stored, other.stored)
        with self.call.running("state"):
            was_counted, before = counts.numbers_of(side.stored, known_partners)
        is_kept = ~side.gone
        forgotten = self._still_forgotten(number, side, other, before - known_partners)[is_kept]
        after = self.matcher.partner_counts(number, side.kept, other.after) + forgotten
        added = self.matcher.partner_counts(number, side.added, other.after)
        with self.call.running("state"):
            counts.forget(side.stored, np.flatnonzero(side.gone))
            self._count(number, side.kept, (after != before[is_kept]) | ~was_counted[is_kept], after)
            self._count(number, side.added, ~without_key(side.added), added)
        yield self._standing(number, side.stored.where(side.gone), before[side.gone] > 0, -1)
        # What has no key has no partner, and is not stored.
        keyless = side.changes.where((side.changes.signs < 0) & without_key(side.changes))
        yield self._standing(number, keyless, np.zeros(len(keyless), dtype=np.bool_), -1)
        turned = self._turned(number, side.kept, before[is_kept] > 0, after > 0)
        yield turned[0]
        yield self._standing(number, side.added, added > 0, 1)
        yield turned[1]

    def _still_forgotten(self, number: int, side: _Side, other: _Side, forgotten: Int64s) -> Int64s:
        """How many partners that were forgotten each stored row still stands with. One that goes is one less. Where a
        key has one row at most, whatever comes or goes of the key says that those before it are gone."""
        if self._operation.unique[1 - number]:
            changed = SignedRows.concat([other.changes, other.forgotten])
            own, others = key_numbers([side.stored.keys.array, changed.keys.array])
            return np.where(np.isin(own, others), 0, forgotten)
        left: Int64s = forgotten - self.matcher.partner_counts(number, side.stored, other.forgotten)
        return left.clip(min=0)

    def _count(self, number: int, rows: SignedRows, chosen: Bools, partners: Int64s) -> None:
        """Write down with how many partners the chosen rows are given, of those that are stored."""
        counts, expiry, expires_ms = self._standings[number], self._expiries[number], None
        assert counts is not None
        if expiry is not None and len(rows):
            expires_ms = expiry.of(rows, self.time.now_ms)
            chosen = chosen & (expires_ms > self.time.watermark)
            expires_ms = expires_ms[chosen]
        counts.put(rows, chosen, pa.array(partners[chosen]), self.time.now_ms, expires_ms)

    def _turned(self, number: int, rows: SignedRows, had: Bools, has: Bools) -> tuple[Pairs, Pairs]:
        """What goes and what comes of rows that stay, and had partners, or have some."""
        turned = had != has
        rows, had, has = rows.where(turned), had[turned], has[turned]
        return self._standing(number, rows, had, -1), self._standing(number, rows, has, 1)

    def _standing(self, number: int, rows: SignedRows, has_partner: Bools, sign: int) -> Pairs:
        """Those of the rows that stand alone; of SEMI, that do not."""
        chosen = np.flatnonzero(has_partner == (self.join.kind == "SEMI"))
        return Pairs.alone(number, rows, chosen, self._sides[1 - number].no_rows(), sign)

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
            self._emit(*consolidated_rows(pa.concat_batches(held), np.concatenate(signs)))

    def _emit(self, columns: pa.RecordBatch, signs: Int64s) -> None:
        kinds = np.where(signs > 0, 0, _DELETE)
        if (signs > 0).any() and (signs < 0).any():
            order = np.argsort(signs, kind="stable")  # what goes comes first: a sink by key must not lose what comes
            columns, kinds = columns.take(pa.array(order)), kinds[order]
        self.give(columns, kinds)
