"""The two ends of a loop in a task. Records in the loop are state: the tail writes them, the head reads them.

An epoch iterates in *rounds* (`jobs/epochs/rounds.py`), each one run of the whole plan. In a round the tail gathers
arriving records and writes them like any state; in the next round, of the same epoch or the next, the head emits them
before its own input. So the loop needs no backward channel, its records are in every snapshot, and a crash repeats only
the rounds since the last manifest.

Event time downstream of the head waits for the records in the loop: it stays below the timestamps emitted in a round,
since each of these records may return. If no record returns, event time advances in the next round. So an iteration
never makes a record late.

Stored form, version 1: a column of blocks in the exchange format (`runtime/exchange/blocks.py`), as one operator list
(`operator_lists`), which has length and checksum. After a change of parallelism the blocks are redistributed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.graph.nodes import LoopHead
from millstream.records.batch import Batch
from millstream.records.watermarks import IDLE_WATERMARK, MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.blocks import BlockPacker, decode_block
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.task.spec import EpochSpec, own_accounts
from millstream.state.stored.accounts import ListEntry, LoopTail, SubtaskAccount
from millstream.state.stored.operator_lists import column_of, entry_of, shares
from millstream.state.stored.table_names import LOOP
from millstream.storage.names import segment_name

__all__ = ["LoopHeadOperator", "LoopTailOperator", "loop_is_settled", "loop_records"]

_STORED_AS = "blocks-1"
_BLOCK_RECORDS_MAX = 16_384
_BLOCK_BYTES_MAX = 4 << 20


def loop_records(accounts: Mapping[int, SubtaskAccount]) -> int:
    """The number of records in a loop, from the accounts of its tail."""
    return sum(account.loop.records for account in accounts.values() if account.loop is not None)


def loop_is_settled(accounts: Mapping[int, SubtaskAccount]) -> bool:
    """Whether event time downstream of a loop has fully advanced, from the accounts of its head."""
    return not any(account.holds for account in accounts.values())


class LoopTailOperator(Operator):
    """Stores arriving records for the head."""

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        """Begins a round with an empty buffer."""
        super().begin(spec, nonce)
        self._epoch, self._nonce = spec.epoch, nonce
        self._packer = BlockPacker(_BLOCK_BYTES_MAX, _BLOCK_RECORDS_MAX, _BLOCK_RECORDS_MAX)
        self._blocks: list[bytes] = []

    def take(self, batch: Batch) -> None:
        self.records_in += len(batch)
        self._add_blocks(self._packer.add(batch))

    def _add_blocks(self, packed: Iterator[tuple[pa.Buffer, int]]) -> None:
        with self.call.running("loop"):
            self._blocks += [block.to_pybytes() for block, _ in packed]

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Writes the gathered records."""
        entry: ListEntry | None = None
        self._add_blocks(self._packer.rest())
        if self._blocks:
            started = time.perf_counter_ns()
            with self.call.running("loop"):
                column = pa.array(self._blocks, pa.binary())
                file = segment_name(self.uid, LOOP, self._epoch, self.setting.context.subtask, self._nonce)
                entry = entry_of(column, "split", _STORED_AS, self.setting.facts.store, file, None)
            self.busy_ns += time.perf_counter_ns() - started
        tail = LoopTail(self.records_in, format(self.node.output_type), entry)
        acknowledgement.states[self.uid] = SubtaskAccount(loop=tail)
        super().acknowledge(acknowledgement)


class LoopHeadOperator(Operator):
    """Emits the returned records, then its input."""

    generates_watermarks = True

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(setting.node.operation, LoopHead) and setting.node.operation.tail is not None
        self._tail = setting.node.operation.tail

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        """Begins a round: locates the records that returned in the last one."""
        super().begin(spec, nonce)
        # The minimum over all heads, even if this head was ahead: a record of another head can return here, and no
        # operator downstream of an exchange has advanced past that minimum yet.
        self.time.watermark = spec.watermarks.get(self.uid, MIN_WATERMARK)
        context = self.setting.context
        accounts = spec.states.get(self._tail, {})
        # The tail's account of the same subtask; after a change of parallelism all accounts, to be redistributed.
        self._tails = own_accounts(accounts, context.subtask, context.parallelism)
        self._is_same_parallelism = self._tails is not accounts
        self._earliest: int | None = None
        self._holds = False

    def wake(self) -> None:
        with self.call.running("loop"):
            for batch in self._returned_batches():
                self.take(batch)

    def _returned_batches(self) -> Iterator[Batch]:
        tails = [self._tails[subtask].loop for subtask in sorted(self._tails)]
        entries = [None if tail is None else tail.blocks for tail in tails]
        context = self.setting.context
        counts = [0 if entry is None else entry.items for entry in entries]
        parts_by_subtask = shares(counts, 1 if self._is_same_parallelism else context.parallelism) if counts else []
        parts = parts_by_subtask[0 if self._is_same_parallelism else context.subtask] if parts_by_subtask else []
        for part in parts:
            tail, entry = tails[part.subtask], entries[part.subtask]
            assert tail is not None and entry is not None
            self._check(tail, entry)
            blocks = column_of([(entry, part)], self.setting.facts.store, f"the records in the loop '{self.node.name}'")
            for block in blocks or ():
                yield from decode_block(block.as_buffer(), self.node.output_type)

    def _check(self, tail: LoopTail, entry: ListEntry) -> None:
        type_name = format(self.node.output_type)
        if tail.type != type_name or entry.type != _STORED_AS:
            raise ProgramError(
                f"{tail.records} records of type {tail.type} are in the loop '{self.node.name}' (stored as "
                f"{entry.type}), and the program now has {type_name} there (stored as {_STORED_AS}). Let the loop run "
                "empty before its type is changed"
            )

    def apply(self, batch: Batch) -> Batch:
        if batch.timestamps is not None:
            on_time = batch.timestamps[batch.timestamps > self.time.watermark]
            if len(on_time):
                first = int(on_time.min())
                self._earliest = first if self._earliest is None else min(self._earliest, first)
        return batch

    def advance(self, watermark: int) -> int:
        """Advances event time, but not past the records emitted in this round: they may return. The end of event time
        also waits for records without timestamps."""
        if self._earliest is not None and self._earliest <= watermark:
            self._holds = True
            return super().advance(self._earliest - 1)
        if watermark == MAX_WATERMARK and self.records_in and self.time.watermark != MAX_WATERMARK:
            self._holds = True
            return self.time.watermark
        return IDLE_WATERMARK if watermark == IDLE_WATERMARK else super().advance(watermark)

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Reports whether event time waits."""
        acknowledgement.states[self.uid] = SubtaskAccount(holds=self._holds)
        super().acknowledge(acknowledgement)
