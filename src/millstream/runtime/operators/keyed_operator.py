"""Operators of keyed streams: functions that see one key at a time, with state and timers of that key."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from millstream.records.batch import Batch, alike, is_typed
from millstream.runtime.exchange.key_classes import decode_key
from millstream.runtime.exchange.keying import Keying
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.runtime.keyed.visits import KeyRange, Visit, visits
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.pieces import Pieces
from millstream.runtime.task.barrier import Acknowledgement
from millstream.runtime.task.spec import EpochSpec, own_accounts
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.state_table import TableSetting

__all__ = ["KeyedOperator", "Part", "PerRecordOperator"]

# Of a visit's records so many are Python values at once.
_PIECE_RECORDS = 4_096
# What is gathered before it is worked on, even if more is to come in this epoch. Results that are not columns are
# Python values until they are sent, hence fewer.
_GATHERED_BYTES_MAX = 64 << 20
_GATHERED_RECORDS_MAX = 4_000_000
_GATHERED_UNTYPED_MAX = 65_536

Part = tuple[str | None, Batch]
"""Results for one output: None is the main one, else the tag of a side output."""


class KeyedOperator(Operator):
    """What all operators of a keyed stream share: how records are gathered and visited key by key, and a backend that
    is opened for every epoch and written at its end."""

    is_keyed = True

    def __init__(self, setting: OperatorSetting) -> None:
        node, context = setting.node, setting.context
        edge = node.inputs[0]
        assert edge.key_selector is not None
        self.backend = KeyedBackend(
            node.name, edge.key_type, context.parallelism, context.max_parallelism, context.subtask
        )
        super().__init__(setting.with_states(self.backend))
        self.time = self.backend.timers
        self._owned = KeyRange(self.backend.groups, context.max_parallelism)
        self.keying = Keying.of_edge(edge, self.call, self._owned)
        self._segments = OpenSegments(setting.facts.store, setting.facts.cache_folder)
        self._gathered: list[Batch] = []
        self._gathered_bytes = self._gathered_records = 0

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        super().begin(spec, nonce)
        self._gathered, self._gathered_bytes, self._gathered_records = [], 0, 0
        self._table_setting = TableSetting(
            self.uid,
            spec.epoch,
            self.setting.context.subtask,
            nonce,
            self.backend.groups,
            spec.now_ms,
            self._segments,
            decode_key=decode_key,
        )
        context = self.setting.context
        self.open_states(own_accounts(spec.states.get(self.uid, {}), context.subtask, context.parallelism))

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        """Open the states at the last version. `accounts` are of this subtask's keys, by the subtask that kept them."""
        with self.call.running("state"):
            self.backend.begin(self._table_setting, accounts)

    @property
    def state_read_ns(self) -> int:
        return self._segments.read_ns

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        acknowledgement.states[self.uid] = self.write_states()
        super().acknowledge(acknowledgement)

    def write_states(self) -> SubtaskAccount:
        """Write the states; returns the account of them."""
        with self.call.running("state"):
            return self.backend.end(self.time.now_ms)

    def take(self, batch: Batch) -> None:
        """Keep a batch until there is enough to work on, or the epoch's input is in."""
        if self._gathered and not alike(self._gathered[-1], batch):
            self._work()
        self.records_in += len(batch)
        self._gathered.append(batch)
        self._gathered_records += len(batch)
        self._gathered_bytes += batch.nbytes
        untyped = not batch.typed or not is_typed(self.node.output_type)
        if (
            self._gathered_records >= (_GATHERED_UNTYPED_MAX if untyped else _GATHERED_RECORDS_MAX)
            or self._gathered_bytes >= _GATHERED_BYTES_MAX
        ):
            self._work()

    def advance(self, watermark: int) -> int:
        self._work()
        return super().advance(watermark)

    def _work(self) -> None:
        """Visit the records gathered so far and hand on what comes of them."""
        if not self._gathered:
            return
        started = time.perf_counter_ns()
        records = Batch.concat(self._gathered)
        self._gathered, self._gathered_bytes, self._gathered_records = [], 0, 0
        with self.call.running("state"):
            self.backend.settle()
        for visit in visits(records, self.keying.gathered_keys(records), self._owned, self.backend.visit_keys_max):
            with self.call.running("state"):
                self.backend.visit(visit.keys, visit.values)
            for tag, batch in self.work(visit):
                self.busy_ns += time.perf_counter_ns() - started
                self._hand_on(tag, batch)
                started = time.perf_counter_ns()
            with self.call.running("state"):
                self.backend.leave()
        self.busy_ns += time.perf_counter_ns() - started

    def _hand_on(self, tag: str | None, batch: Batch) -> None:
        if not len(batch):
            return
        if tag is None:
            self.emit(batch)
        else:
            for output in self.side_outputs.get(tag, ()):
                output(batch)

    def work(self, visit: Visit) -> Iterator[Part]:
        """What this operator makes of the records of a visit."""
        raise NotImplementedError


class PerRecordOperator(KeyedOperator):
    """Calls a function for one record after another, each within its key."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._pieces = Pieces(_PIECE_RECORDS)

    def work(self, visit: Visit) -> Iterator[Part]:
        start = 0
        while start < len(visit):
            piece = visit.records.slice(start, min(self._pieces.records, len(visit) - start))
            parts = self.apply_at(piece, visit.codes[start : start + len(piece)].tolist())
            start += len(piece)
            self._pieces.learn(len(piece), sum(part.nbytes for _, part in parts))
            yield from parts
        self.backend.scope.leave()

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        """What comes of some records, whose keys have these numbers in the visit."""
        raise NotImplementedError
