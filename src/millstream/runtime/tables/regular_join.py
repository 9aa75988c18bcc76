"""Regular joins of two changing tables. Maintains the join incrementally from both sides' changes.

For the net changes ΔL and ΔR of an epoch (L, R are stored before it, L' and R' after it):

    pairs        ΔL ⋈ R  +  L' ⋈ ΔR            signs multiply; L' is L without deleted rows, plus inserted ones
    outer rows   an unmatched row of a preserved side is padded with NULLs; it is inserted or deleted with the
                 row itself, and when the row's last match is deleted or its first one inserted
    semi, anti   rows of the left side with, or without, a match

Stored rows are read by the keys of the other side's changes; they are read by the keys of their own side's changes only
for deletes, or to count matches. A row with a NULL in its key matches nothing and is not stored. In BATCH only final
rows are emitted: kinds that may retract wait for the end of input.

A row that no later row can match expires by event time (`Expiry`). This does not change results, however late rows are,
since it relies only on columns that late rows cannot have.

A row also expires at the end of its time-to-live. Results may then differ from the join of the whole tables, but the
output stays a valid changelog: only emitted rows are retracted, and only once. An expired row is no longer in the
table: nothing is emitted for it, not even when it is deleted. Output emitted with it stays, and it still counts as a
match: a row emitted with a match is not emitted as unmatched until that match is deleted or, if the key is unique,
replaced. `emitted_results` stores each row's match count.
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
_MATCH_COUNTS = (LEFT_PARTNERS, RIGHT_PARTNERS)
_NAMES = ("left", "right")
_DELETE = RowKind.DELETE.value


@dataclass(frozen=True)
class _Side:
    """One side in an epoch: its net changes; the stored rows of the relevant keys, and which of them are deleted; the
    stored rows that remain; inserts; and deletes of expired rows, which are not among the changes."""

    changes: SignedRows
    stored: SignedRows
    deleted: Bools
    retained: SignedRows
    added: SignedRows
    expired_deletes: SignedRows

    @cached_property
    def after(self) -> SignedRows:
        """The rows after the epoch."""
        return SignedRows.concat([self.retained, self.added])


class RegularJoinOperator(TwoTablesOperator):
    """Joins two changing tables."""

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
        self._match_counts = tuple(self._match_count_table(setting, operation, number) for number in (0, 1))
        self._expired_retractions = expired_retractions(setting) if any(side.has_ttl for side in self._sides) else None
        self._expiries = tuple(
            RowExpiry(side, row_type, operation.session, self.call) if side else None
            for side, row_type in zip(operation.expiries, operation.rows, strict=True)
        )
        # In BATCH, rows that may be retracted are emitted at the end of input.
        self._is_deferred = self.is_batch and operation.kind != "INNER"

    def _match_count_table(
        self, setting: OperatorSetting, operation: RegularJoin, number: int
    ) -> EmittedResults | None:
        """The emitted match count of each row of a side, if it is needed and does not follow from the stored rows."""
        if not (self.preserves_rows[number] and self._sides[1 - number].has_ttl):
            return None
        name = _MATCH_COUNTS[number]
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
        for table in (*self._sides, *self._match_counts):
            if table is not None:
                table.move_time(MIN_WATERMARK if self.is_batch else self.time.watermark)

    def _changes(self, number: int) -> SignedRows:
        """A side's input, consolidated. Where rows expire by the clock, the delete and insert of an equal row are both
        retained, since the inserted row is new."""
        pieces, _ = self.take_rows(number)
        rows = SignedRows.concat(pieces) if pieces else self._sides[number].no_rows()
        return rows if self._expired_retractions is not None and not self._is_deferred else rows.consolidated()

    def advance(self, watermark: int) -> int:
        had_ended = self.time.watermark == MAX_WATERMARK
        reached = super().advance(watermark)
        self.started_ns = time.perf_counter_ns()
        changes = self._changes(0), self._changes(1)
        if self._is_deferred:
            self._store_all(changes)
            if reached == MAX_WATERMARK and not had_ended:
                with self.call.running("state"):
                    everything = self._sides[0].all(), self._sides[1].all()
                nothing = self._sides[0].no_rows(), self._sides[1].no_rows()
                self._emit_results(self._joined(everything, nothing))
        elif len(changes[0]) or len(changes[1]):
            self._emit_results(self._joined(changes, self._stored(changes)))
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        return reached

    def _store_all(self, changes: tuple[SignedRows, SignedRows]) -> None:
        with self.call.running("state"):
            for number, rows in enumerate(changes):
                self._store(number, rows)

    def _store(self, number: int, rows: SignedRows) -> None:
        """Store rows of a side, except those that no later row can match."""
        expiry, expires_ms = self._expiries[number], None
        if expiry is not None and len(rows):
            expires_ms = expiry.of(rows, self.time.now_ms)
            needed = expires_ms > self.time.watermark
            rows, expires_ms = rows.where(needed), expires_ms[needed]
        self._sides[number].add(rows, self.time.now_ms, expires_ms)

    def _stored(self, changes: tuple[SignedRows, SignedRows]) -> tuple[SignedRows, SignedRows]:
        """The required stored rows of each side."""
        needed = []
        with self.call.running("state"):
            for number, side in enumerate(self._sides):
                own, other = changes[number], changes[1 - number]
                wanted = [other]
                if self.preserves_rows[1 - number]:  # to count the matches of the other side's rows
                    wanted.append(own)
                elif (own.signs < 0).any():
                    wanted.append(own.take(np.flatnonzero(own.signs < 0)))
                rows = [each for each in wanted if len(each)]
                needed.append(side.of_keys(SignedRows.concat_keys(rows)) if rows else side.no_rows())
        return needed[0], needed[1]

    def _joined(self, changes: tuple[SignedRows, SignedRows], stored: tuple[SignedRows, SignedRows]) -> Iterator[Pairs]:
        """The results of the changes; also updates the store."""
        left, right = (self._apply(number, changes[number], stored[number]) for number in (0, 1))
        if self.join.kind not in ("SEMI", "ANTI"):
            yield from self.matcher.pairs(left.changes, right.stored)
            # Separately: concatenating would copy wide rows each epoch.
            yield from self.matcher.pairs(left.retained, right.changes)
            yield from self.matcher.pairs(left.added, right.changes)
        for number, side, other in ((0, left, right), (1, right, left)):
            counts = self._match_counts[number]
            if counts is not None:
                yield from self._unmatched_rows_emitted(number, side, other, counts)
            elif self.preserves_rows[number]:
                yield from self._unmatched_rows(number, side, other)

    def _apply(self, number: int, changes: SignedRows, stored: SignedRows) -> _Side:
        """Apply the changes of a side to the store."""
        side = self._sides[number]
        changes, deleted, expired_deletes = self._resolve(number, changes, stored)
        has_no_key = without_key(changes)
        is_added = changes.signs > 0
        added = changes.where(is_added)
        if not self._is_deferred:
            if self._match_counts[number] is not None:
                added = side.numbered(added)
            with self.call.running("state"):
                side.delete(stored, np.flatnonzero(deleted))
                self._store(number, added.where(~has_no_key[is_added]))
        return _Side(changes, stored, deleted, stored.where(~deleted), added, expired_deletes)

    def _resolve(self, number: int, changes: SignedRows, stored: SignedRows) -> tuple[SignedRows, Bools, SignedRows]:
        """The net changes of a side, the stored rows they delete, and deletes of expired rows."""
        name, has_no_key = f"the {_NAMES[number]} side", without_key(changes)
        if self._expired_retractions is None:
            return changes, stored.deleted_mask(changes, name, has_no_key), self._sides[number].no_rows()
        keyed = changes.where(~has_no_key)
        deleted, is_added, missing = stored.match_changes(keyed, name, has_ttl=self._sides[number].has_ttl)
        self._expired_retractions.inc(len(missing))
        retractions = stored.where(deleted)
        retractions = replace(retractions, signs=-retractions.signs)
        net = SignedRows.concat([changes.where(has_no_key).consolidated(), retractions, keyed.where(is_added)])
        return net, deleted, keyed.take(missing)

    # --- results --------------------------------------------------------------------------------------------------

    def _unmatched_rows(self, number: int, side: _Side, other: _Side) -> Iterator[Pairs]:
        """Unmatched rows of a side (SEMI: matched ones) before and after: its changes, and its other stored rows."""
        before, after, deletes = other.stored, other.after, side.changes.where(side.changes.signs < 0)
        matched_mask = partial(self.matcher.matched_mask, number)
        flipped = self._flipped(
            number, side.retained, matched_mask(side.retained, before), matched_mask(side.retained, after)
        )
        yield self._unmatched(number, deletes, matched_mask(deletes, before), -1)
        yield flipped[0]
        yield self._unmatched(number, side.added, matched_mask(side.added, after), 1)
        yield flipped[1]

    def _unmatched_rows_emitted(
        self, number: int, side: _Side, other: _Side, counts: EmittedResults
    ) -> Iterator[Pairs]:
        """The same for joins whose matches expire: previous rows are retracted as they were emitted."""
        known_matches = self.matcher.match_counts(number, side.stored, other.stored)
        with self.call.running("state"):
            was_counted, before = counts.numbers_of(side.stored, known_matches)
        is_retained = ~side.deleted
        expired_deletes = self._expired_matches(number, side, other, before - known_matches)[is_retained]
        after = self.matcher.match_counts(number, side.retained, other.after) + expired_deletes
        added = self.matcher.match_counts(number, side.added, other.after)
        with self.call.running("state"):
            counts.delete(side.stored, np.flatnonzero(side.deleted))
            self._count(number, side.retained, (after != before[is_retained]) | ~was_counted[is_retained], after)
            self._count(number, side.added, ~without_key(side.added), added)
        yield self._unmatched(number, side.stored.where(side.deleted), before[side.deleted] > 0, -1)
        # Rows with a NULL key have no match and are not stored.
        keyless = side.changes.where((side.changes.signs < 0) & without_key(side.changes))
        yield self._unmatched(number, keyless, np.zeros(len(keyless), dtype=np.bool_), -1)
        flipped = self._flipped(number, side.retained, before[is_retained] > 0, after > 0)
        yield flipped[0]
        yield self._unmatched(number, side.added, added > 0, 1)
        yield flipped[1]

    def _expired_matches(self, number: int, side: _Side, other: _Side, expired_deletes: Int64s) -> Int64s:
        """For each stored row, the number of expired matches included in its emitted output. Deleted matches are
        subtracted. If keys are unique, any change of a key ends its expired rows."""
        if self._operation.unique[1 - number]:
            changed = SignedRows.concat([other.changes, other.expired_deletes])
            own, others = key_numbers([side.stored.keys.array, changed.keys.array])
            return np.where(np.isin(own, others), 0, expired_deletes)
        left: Int64s = expired_deletes - self.matcher.match_counts(number, side.stored, other.expired_deletes)
        return left.clip(min=0)

    def _count(self, number: int, rows: SignedRows, chosen: Bools, matched_mask: Int64s) -> None:
        """Store the emitted match counts of the chosen rows that are stored."""
        counts, expiry, expires_ms = self._match_counts[number], self._expiries[number], None
        assert counts is not None
        if expiry is not None and len(rows):
            expires_ms = expiry.of(rows, self.time.now_ms)
            chosen = chosen & (expires_ms > self.time.watermark)
            expires_ms = expires_ms[chosen]
        counts.put(rows, chosen, pa.array(matched_mask[chosen]), self.time.now_ms, expires_ms)

    def _flipped(self, number: int, rows: SignedRows, was_matched: Bools, is_matched: Bools) -> tuple[Pairs, Pairs]:
        """Retractions and inserts for unchanged rows that lost their last match or gained their first."""
        flipped = was_matched != is_matched
        rows, was_matched, is_matched = rows.where(flipped), was_matched[flipped], is_matched[flipped]
        return self._unmatched(number, rows, was_matched, -1), self._unmatched(number, rows, is_matched, 1)

    def _unmatched(self, number: int, rows: SignedRows, is_matched: Bools, sign: int) -> Pairs:
        """The unmatched rows; of SEMI, the matched ones."""
        chosen = np.flatnonzero(is_matched == (self.join.kind == "SEMI"))
        return Pairs.unmatched(number, rows, chosen, self._sides[1 - number].no_rows(), sign)

    def _emit_results(self, results: Iterator[Pairs]) -> None:
        """Emit results. If an epoch may insert and delete a row, results are consolidated first."""
        nets = self.join.changing != (False, False) or self.join.kind != "INNER"
        held: list[pa.RecordBatch] = []
        signs: list[Int64s] = []
        for pairs in results:
            if not len(pairs.signs):
                continue
            columns = columns_of_pairs(pairs, self.schema, self.output_sides)
            if nets:
                held.append(columns)
                signs.append(pairs.signs)
            else:
                self._emit(columns, pairs.signs)
        if all((each > 0).all() for each in signs):  # nothing cancels out
            for columns, own in zip(held, signs, strict=True):
                self._emit(columns, own)
        else:
            self._emit(*consolidated_rows(pa.concat_batches(held), np.concatenate(signs)))

    def _emit(self, columns: pa.RecordBatch, signs: Int64s) -> None:
        kinds = np.where(signs > 0, 0, _DELETE)
        if (signs > 0).any() and (signs < 0).any():
            order = np.argsort(signs, kind="stable")  # deletes first: a keyed sink must not lose the inserts
            columns, kinds = columns.take(pa.array(order)), kinds[order]
        self.emit_rows(columns, kinds)
