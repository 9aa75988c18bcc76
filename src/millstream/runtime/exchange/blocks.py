"""A task's side of an exchange: packs records into blocks, counts the blocks it sends, checks the blocks it receives.

A block packs records into self-contained bytes. Typed records are one Arrow IPC stream (it carries its own schema and
may hold several batches); untyped records are one pickle of a list. The first byte is the format. Timestamps are a
hidden column or a second list. Decoding a typed block copies nothing. A stored block begins with the format byte. A
block that crosses an exchange is preceded by seven zeros and padded to a multiple of eight bytes, which aligns its
numbers.

Invariants: a block is not much larger than requested, unless a single record is; a record larger than the maximum block
is rejected. A task forwards the end of an epoch only after it has a barrier from every upstream sender and has
received, on every channel, exactly the blocks that each sender announced, in order. Any deviation fails the epoch, so a
gap is never committed. Acknowledgements are not checked here: the driver knows how many to expect.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.plan.stages import Channel, Plan
from millstream.records.batch import Batch, alike
from millstream.records.columns import PICKLE, TIMESTAMP_COLUMN, TYPED, zero_padded
from millstream.records.pickling import pickled
from millstream.records.unpickling import unpickled
from millstream.runtime.exchange.messages import (
    ACKNOWLEDGEMENT,
    BARRIER,
    DATA,
    FAILURE,
    Barrier,
    ChannelEnd,
    Envelope,
    attempts_sum,
    ends_bytes,
)
from millstream.runtime.exchange.routing import Router
from millstream.runtime.exchange.shared_blocks import BrokenExchangeError, SharedBlocks
from millstream.runtime.operators.user_code import UserCall

__all__ = [
    "ALIGNED",
    "BLOCK_BYTES_MAX",
    "STORED",
    "BlockPacker",
    "BrokenExchangeError",
    "Inbox",
    "Outbox",
    "RecordTooLargeError",
    "decode_block",
    "encode_block",
]

STORED, ALIGNED = b"", bytes(7)
"""Prefix of a stored block, and of a block that crosses an exchange."""

BLOCK_BYTES_MAX = 1 << 30
"""The largest block. A row of Spark's shuffle is limited to 2 GiB."""

_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)
# Batches with fewer records, on average, are concatenated when they share a block.
_SMALL_RECORDS = 4_096


class RecordTooLargeError(ProgramError):
    """A record exceeds the maximum block size."""


def encode_block(batches: Sequence[Batch], lead: bytes = STORED, shared: SharedBlocks | None = None) -> pa.Buffer:
    """Packs batches of the same form (type, columns, with or without timestamps) into one block. With `shared`, writes
    a large typed block to a file and returns a reference to it."""
    if batches[0].typed:
        columns = _joined([_with_timestamps(batch) for batch in batches])
        estimated_bytes = sum(batch.nbytes for batch in columns)
        if shared is not None and estimated_bytes <= BLOCK_BYTES_MAX:
            reference = shared.share(estimated_bytes, lambda file: _write_columns(file, lead, columns))
            if reference is not None:
                return reference
        # Measured first, then written into a buffer of that size: a growing stream copies its contents repeatedly.
        measured = pa.MockOutputStream()
        _write_columns(measured, lead, columns)
        block = pa.allocate_buffer(measured.size())
        _write_columns(pa.FixedSizeBufferWriter(block), lead, columns)
        return block
    values = [value for batch in batches for value in batch.values()]
    stamps = None if batches[0].timestamps is None else np.concatenate([batch.timestamps for batch in batches])
    body = lead + PICKLE + pickled((values, stamps))
    return pa.py_buffer(zero_padded(body) if lead else body)


def _joined(columns: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Concatenates small batches. Two exchanges with many tasks split a batch into fragments, and each fragment costs
    every downstream operator as much as a large batch."""
    if len(columns) == 1 or sum(batch.num_rows for batch in columns) >= _SMALL_RECORDS * len(columns):
        return columns
    return [pa.concat_batches(columns)]


def _write_columns(sink: pa.NativeFile, lead: bytes, columns: Sequence[pa.RecordBatch]) -> None:
    sink.write(lead + TYPED)
    with pa.ipc.new_stream(sink, columns[0].schema, options=_OPTIONS) as writer:
        for batch in columns:
            writer.write_batch(batch)


class BlockPacker:
    """Gathers batches into blocks. Small batches wait until a block is large enough to be worth its header.

    A batch larger than a block is split. The size of untyped records is known only after pickling: it is estimated from
    the previous block (at first from a sample), and a block that turns out too large is encoded again in halves.
    """

    __slots__ = (
        "_batches",
        "_bytes",
        "_bytes_max",
        "_lead",
        "_record_bytes",
        "_records",
        "_records_max",
        "_shared",
        "_untyped_max",
    )

    def __init__(
        self,
        bytes_max: int,
        records_max: int,
        untyped_max: int,
        lead: bytes = STORED,
        shared: SharedBlocks | None = None,
    ) -> None:
        self._lead, self._shared = lead, shared
        self._bytes_max, self._records_max, self._untyped_max = bytes_max, records_max, untyped_max
        self._record_bytes = 0  # estimated size of an untyped record, from the previous block
        self._reset()

    def _reset(self) -> None:
        self._batches: list[Batch] = []
        self._bytes = self._records = 0

    def add(self, batch: Batch) -> Iterator[tuple[pa.Buffer, int]]:
        """Adds a batch; yields full blocks, each with its record count."""
        if self._batches and not alike(self._batches[-1], batch):
            yield from self.rest()
        size = batch.nbytes if batch.typed or not self._record_bytes else len(batch) * self._record_bytes
        if size > 2 * self._bytes_max and len(batch) > 1:
            for half in _halves(batch):
                yield from self.add(half)
            return
        self._batches.append(batch)
        self._records += len(batch)
        self._bytes += size
        records_max = self._records_max if batch.typed else self._untyped_max
        if self._records >= records_max or self._bytes >= self._bytes_max:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[pa.Buffer, int]]:
        """Packs the waiting batches, if any, into a block."""
        if self._batches:
            batches = self._batches
            self._reset()
            yield from self._blocks(batches)

    def _blocks(self, batches: list[Batch]) -> Iterator[tuple[pa.Buffer, int]]:
        block, records = encode_block(batches, self._lead, self._shared), sum(map(len, batches))
        if not batches[0].typed:
            self._record_bytes = block.size // max(records, 1)
            if block.size > 4 * self._bytes_max and records > 1:
                for half in _halves(Batch.concat(batches)):
                    yield from self._blocks([half])
                return
        if block.size > BLOCK_BYTES_MAX:
            raise RecordTooLargeError(
                f"a record takes {block.size:,} bytes, and at most {BLOCK_BYTES_MAX:,} can cross an exchange. "
                "Write the large value to a file and send its name, or split it into several records"
            )
        yield block, records


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch) // 2
    return batch.slice(0, middle), batch.slice(middle, len(batch) - middle)


def decode_block(payload: pa.Buffer, type_info: TypeInformation | None) -> Iterator[Batch]:
    """Unpacks the batches of a block, in order."""
    begin = 0 if payload[0] else len(ALIGNED)
    kind, body = payload[begin : begin + 1].to_pybytes(), payload.slice(begin + 1)
    if kind == PICKLE:
        # Our own sender made the bytes; they passed Spark's authenticated shuffle or come from the job's store.
        values, stamps = unpickled(body)
        yield Batch(type_info, len(values), values, None, stamps)
        return
    assert type_info is not None
    with pa.ipc.open_stream(body) as reader:
        for columns in reader:
            yield _without_timestamps(columns, type_info)


def _with_timestamps(batch: Batch) -> pa.RecordBatch:
    columns = batch.columns()
    if batch.timestamps is None:
        return columns
    return columns.append_column(TIMESTAMP_COLUMN, pa.array(batch.timestamps))


def _without_timestamps(columns: pa.RecordBatch, type_info: TypeInformation) -> Batch:
    position = columns.schema.get_field_index(TIMESTAMP_COLUMN)
    if position < 0:
        return Batch.of_columns(columns, type_info)
    stamps = columns.column(position).to_numpy()
    return Batch.of_columns(columns.remove_column(position), type_info, stamps)


# Maximum records per block.
_BLOCK_RECORDS_MAX = 131_072
_BLOCK_UNTYPED_MAX = 16_384


class Outbox:
    """Everything this task sends to the next stage. `shared`: writes blocks to memory files, if tasks can share
    them."""

    def __init__(self, next_width: int, sender: int, block_bytes_max: int, shared: SharedBlocks | None = None) -> None:
        self._next_width = next_width
        self._shared = shared
        self._sender = sender
        self._block_bytes_max = block_bytes_max
        self._packers: dict[tuple[int, int], BlockPacker] = {}  # by channel and subtask
        self._calls: dict[int, UserCall] = {}  # by channel
        self._sent: dict[tuple[int, int, int], int] = defaultdict(int)  # channel, sender, subtask -> blocks
        self._ready: list[Envelope] = []

    def send(self, channel: Channel, router: Router, call: UserCall, batch: Batch) -> None:
        """Routes a batch and packs full blocks. `call` names the operator that emitted it, for errors."""
        self._calls[channel.id] = call
        for subtask, piece in router(batch):
            key = (channel.id, subtask)
            packer = self._packers.get(key)
            if packer is None:
                bounds = self._block_bytes_max, _BLOCK_RECORDS_MAX, _BLOCK_UNTYPED_MAX
                packer = self._packers[key] = BlockPacker(*bounds, ALIGNED, self._shared)
            for payload in self._packed(channel.id, packer.add(piece)):
                self._put(key[0], self._sender, key[1], payload)

    def _packed(self, channel: int, blocks: Iterator[tuple[pa.Buffer, int]]) -> Iterator[pa.Buffer]:
        try:
            yield from (payload for payload, _ in blocks)
        except RecordTooLargeError as error:
            raise self._calls[channel].failed(error, "output") from error

    def relay(self, envelope: Envelope) -> None:
        """Forwards a block addressed to a later stage."""
        self._put(envelope.channel, envelope.sender, envelope.subtask, envelope.payload)

    def _put(self, channel: int, sender: int, subtask: int, payload: pa.Buffer) -> None:
        place = (channel, sender, subtask)
        target = subtask % self._next_width
        self._ready.append(Envelope(target, DATA, payload, channel, subtask, sender, self._sent[place]))
        self._sent[place] += 1

    def ready(self) -> Iterator[Envelope]:
        """Blocks to send now."""
        ready, self._ready = self._ready, []
        yield from ready

    def flush(self) -> None:
        """Packs all waiting records."""
        for (channel, subtask), packer in self._packers.items():
            for payload in self._packed(channel, packer.rest()):
                self._put(channel, self._sender, subtask, payload)

    def barriers(self, epoch: int, nonce: str, ends: list[tuple[int, int, int, int]]) -> Iterator[Envelope]:
        """One barrier for every task of the next stage.

        `ends`: (channel, sender, subtask, watermark) of this task's own channels and of those it relays.
        """
        ends_by_target: list[list[ChannelEnd]] = [[] for _ in range(self._next_width)]
        for channel, sender, subtask, watermark in ends:
            blocks = self._sent.get((channel, sender, subtask), 0)
            ends_by_target[subtask % self._next_width].append(ChannelEnd(channel, sender, subtask, blocks, watermark))
        head = Barrier(epoch, self._sender, nonce).head()
        for target, target_ends in enumerate(ends_by_target):
            yield Envelope(target, BARRIER, pa.py_buffer(head + ends_bytes(target_ends)), sender=self._sender)

    def acknowledgements(self, payloads: Iterable[pa.Buffer]) -> Iterator[Envelope]:
        """This task's acknowledgement and relayed ones, addressed to one task of the next stage."""
        target = self._sender % self._next_width
        for payload in payloads:
            yield Envelope(target, ACKNOWLEDGEMENT, payload, sender=self._sender)

    def failures(self, report: bytes) -> Iterator[Envelope]:
        """Failure envelopes for every task of the next stage; one of them carries the report."""
        for target in range(self._next_width):
            body = report if target == self._sender % self._next_width else b""
            yield Envelope(target, FAILURE, pa.py_buffer(body), sender=self._sender)


class Inbox:
    """Receives and checks everything from the previous stage."""

    def __init__(self, plan: Plan, stage: int, subtask: int, epoch: int) -> None:
        self._plan, self._stage, self._subtask, self._epoch = plan, stage, subtask, epoch
        self._senders = plan.stages[stage - 1].width if stage else 0
        self._width = plan.stages[stage].width
        self._received: dict[tuple[int, int, int], int] = defaultdict(int)
        self.barriers: dict[int, Barrier] = {}
        self.acknowledgements: list[pa.Buffer] = []
        self.failures: list[bytes] = []
        self.failed = False
        self._barriers_ns: tuple[int, int] | None = None  # arrival times of the first and the last

    def data(self, envelope: Envelope) -> None:
        """Counts a block and checks its sequence number."""
        place = (envelope.channel, envelope.sender, envelope.subtask)
        if envelope.sequence != self._received[place]:
            raise BrokenExchangeError(
                f"epoch {self._epoch}, stage {self._stage}, task {self._subtask}: block {envelope.sequence} of sender "
                f"{envelope.sender} arrived instead of block {self._received[place]}; the epoch is run again"
            )
        self._received[place] += 1

    def barrier(self, barrier: Barrier) -> None:
        """Records that a sender is done."""
        is_known = 0 <= barrier.sender < self._senders
        if barrier.epoch != self._epoch or barrier.sender in self.barriers or not is_known:
            raise BrokenExchangeError(
                f"epoch {self._epoch}, stage {self._stage}, task {self._subtask}: barrier of sender {barrier.sender} "
                f"for epoch {barrier.epoch} is a duplicate, of another epoch, or of none of the {self._senders} senders"
            )
        self.barriers[barrier.sender] = barrier
        now_ns = time.perf_counter_ns()
        self._barriers_ns = (now_ns if self._barriers_ns is None else self._barriers_ns[0], now_ns)

    @property
    def alignment_ns(self) -> int:
        """The time from the first barrier to the last."""
        return 0 if self._barriers_ns is None else self._barriers_ns[1] - self._barriers_ns[0]

    def acknowledgement(self, payload: pa.Buffer) -> None:
        """Stores a copy of an acknowledgement, unread, so that the shuffle batch it arrived in can be freed."""
        self.acknowledgements.append(pa.py_buffer(payload.to_pybytes()))

    @property
    def attempts(self) -> str:
        """Checksum of the upstream attempts this task received; requires all barriers."""
        return attempts_sum([self.barriers[sender].nonce for sender in range(self._senders)])

    def failure(self, report: bytes) -> None:
        """A sender failed; its data is void."""
        self.failed = True
        if report:
            self.failures.append(report)

    def check(self) -> dict[tuple[int, int, int], ChannelEnd]:
        """Checks that every barrier and block arrived. Returns the channel ends by (channel, sender, subtask)."""
        missing = sorted(set(range(self._senders)) - set(self.barriers))
        if missing:
            raise BrokenExchangeError(
                f"epoch {self._epoch}, stage {self._stage}, task {self._subtask}: no barrier from sender(s) {missing}"
            )
        ends = {(e.channel, e.sender, e.subtask): e for b in self.barriers.values() for e in b.ends}
        for channel in self._plan.channels:
            if channel.source_stage < self._stage <= channel.target_stage and not channel.local:
                for subtask in range(self._subtask, channel.receivers, self._width):
                    for sender in range(channel.senders):
                        self._check_end(ends.get((channel.id, sender, subtask)), (channel.id, sender, subtask))
        return ends

    def _check_end(self, end: ChannelEnd | None, place: tuple[int, int, int]) -> None:
        received = self._received.get(place, 0)
        announced = "none announced" if end is None else f"{end.blocks} sent"
        if end is None or end.blocks != received:
            raise BrokenExchangeError(
                f"epoch {self._epoch}, stage {self._stage}, task {self._subtask}: "
                f"channel {place[0]}, sender {place[1]}: {received} blocks received, {announced}"
            )
