"""An exchange inside a task: records are packed into blocks, what goes out is counted, what comes in is checked.

A block is records packed into bytes, with all that is needed to unpack them. Typed records are one Arrow IPC stream (it
carries its own schema; several batches may follow one another); untyped records are one pickle of a list. The first
byte says which. Timestamps travel along, as a hidden column or beside the list. Decoding a typed block copies nothing.
A block that is stored begins with that byte. Before one that crosses an exchange stand seven zeros more, and it is as
long as a multiple of eight: so its numbers lie where a processor reads them quickest.

Invariants: a block is not much larger than asked for, unless a single record is; one that no block can carry is
refused. A task passes on the end of an epoch only if it has heard every sender of the stage before, and has received on
every channel exactly the blocks each sender says it sent, in order. Anything else is an error that fails the epoch: a
hole is never committed. Acknowledgements are not looked at here: they pass through to the driver, who knows how many
there must be.
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
from millstream.records.columns import PICKLE, TIMESTAMP_COLUMN, TYPED, filled_up
from millstream.records.pickling import pickled
from millstream.records.unpickling import unpickled
from millstream.runtime.exchange.laid_blocks import BrokenExchangeError, LaidBlocks
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
"""What stands before a block that is stored, and before one that crosses an exchange."""

BLOCK_BYTES_MAX = 1 << 30
"""No block is larger. A row of Spark's shuffle ends at 2 GiB."""

_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)
# Batches of fewer records, on average, share one when they share a block.
_SMALL_RECORDS = 4_096


class RecordTooLargeError(ProgramError):
    """A record is larger than a block can be."""


def encode_block(batches: Sequence[Batch], lead: bytes = STORED, laid: LaidBlocks | None = None) -> pa.Buffer:
    """Pack batches that are alike (same type, same columns, all with or all without timestamps) into one block, or into
    a file of `laid` and a note of it, where it takes such."""
    if batches[0].typed:
        columns = _joined([_with_timestamps(batch) for batch in batches])
        about_bytes = sum(batch.nbytes for batch in columns)
        if laid is not None and about_bytes <= BLOCK_BYTES_MAX:
            note = laid.laid(about_bytes, lambda file: _write_columns(file, lead, columns))
            if note is not None:
                return note
        # Measured first, then written in place: a stream that grows copies what it has again and again.
        measured = pa.MockOutputStream()
        _write_columns(measured, lead, columns)
        block = pa.allocate_buffer(measured.size())
        _write_columns(pa.FixedSizeBufferWriter(block), lead, columns)
        return block
    values = [value for batch in batches for value in batch.values()]
    stamps = None if batches[0].timestamps is None else np.concatenate([batch.timestamps for batch in batches])
    body = lead + PICKLE + pickled((values, stamps))
    return pa.py_buffer(filled_up(body) if lead else body)


def _joined(columns: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch of many small ones. Dealt out to many tasks, and again to many, a batch is crumbs, and each costs
    everybody on its way as much as a large one."""
    if len(columns) == 1 or sum(batch.num_rows for batch in columns) >= _SMALL_RECORDS * len(columns):
        return columns
    return [pa.concat_batches(columns)]


def _write_columns(sink: pa.NativeFile, lead: bytes, columns: Sequence[pa.RecordBatch]) -> None:
    sink.write(lead + TYPED)
    with pa.ipc.new_stream(sink, columns[0].schema, options=_OPTIONS) as writer:
        for batch in columns:
            writer.write_batch(batch)


class BlockPacker:
    """Gathers batches into blocks: small ones wait for one another up to a size, so that a block is worth its header.

    A batch that is larger than a block is cut. Of untyped records the size is only known when they are pickled: it is
    told by the last block, at first by some of them, and a block that came out too large is made anew in halves.
    """

    __slots__ = (
        "_batches",
        "_bytes",
        "_bytes_max",
        "_laid",
        "_lead",
        "_record_bytes",
        "_records",
        "_records_max",
        "_untyped_max",
    )

    def __init__(
        self,
        bytes_max: int,
        records_max: int,
        untyped_max: int,
        lead: bytes = STORED,
        laid: LaidBlocks | None = None,
    ) -> None:
        self._lead, self._laid = lead, laid
        self._bytes_max, self._records_max, self._untyped_max = bytes_max, records_max, untyped_max
        self._record_bytes = 0  # of an untyped record, by the last block
        self._forget()

    def _forget(self) -> None:
        self._batches: list[Batch] = []
        self._bytes = self._records = 0

    def add(self, batch: Batch) -> Iterator[tuple[pa.Buffer, int]]:
        """Take a batch; gives the blocks that are full, each with the number of its records."""
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
        """What waits, as a block, if anything does."""
        if self._batches:
            batches = self._batches
            self._forget()
            yield from self._blocks(batches)

    def _blocks(self, batches: list[Batch]) -> Iterator[tuple[pa.Buffer, int]]:
        block, records = encode_block(batches, self._lead, self._laid), sum(map(len, batches))
        if not batches[0].typed:
            self._record_bytes = block.size // max(records, 1)
            if block.size > 4 * self._bytes_max and records > 1:
                for half in _halves(Batch.concat(batches)):
                    yield from self._blocks([half])
                return
        if block.size > BLOCK_BYTES_MAX:
            raise RecordTooLargeError(
                f"a record takes {block.size:,} bytes, and at most {BLOCK_BYTES_MAX:,} can go to another task. "
                "Write what is so large to a file and send its name, or cut it into several records"
            )
        yield block, records


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = len(batch) // 2
    return batch.slice(0, middle), batch.slice(middle, len(batch) - middle)


def decode_block(payload: pa.Buffer, type_info: TypeInformation | None) -> Iterator[Batch]:
    """The batches of a block, in order."""
    begin = 0 if payload[0] else len(ALIGNED)
    kind, body = payload[begin : begin + 1].to_pybytes(), payload.slice(begin + 1)
    if kind == PICKLE:
        # The bytes were made by our own sender and came through Spark's authenticated shuffle, or from the job's store.
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


# So many records share a block at most.
_BLOCK_RECORDS_MAX = 131_072
_BLOCK_UNTYPED_MAX = 16_384


class Outbox:
    """Everything this task sends to the next stage; `laid`: where it lays blocks, if tasks can hand them over so."""

    def __init__(self, next_width: int, sender: int, block_bytes_max: int, laid: LaidBlocks | None = None) -> None:
        self._next_width = next_width
        self._laid = laid
        self._sender = sender
        self._block_bytes_max = block_bytes_max
        self._packers: dict[tuple[int, int], BlockPacker] = {}  # by channel and subtask
        self._calls: dict[int, UserCall] = {}  # by channel
        self._sent: dict[tuple[int, int, int], int] = defaultdict(int)  # channel, sender, subtask -> blocks
        self._ready: list[Envelope] = []

    def send(self, channel: Channel, router: Router, call: UserCall, batch: Batch) -> None:
        """Route a batch and pack what is large enough. `call` names the operator it comes from, for errors."""
        self._calls[channel.id] = call
        for subtask, piece in router(batch):
            key = (channel.id, subtask)
            packer = self._packers.get(key)
            if packer is None:
                bounds = self._block_bytes_max, _BLOCK_RECORDS_MAX, _BLOCK_UNTYPED_MAX
                packer = self._packers[key] = BlockPacker(*bounds, ALIGNED, self._laid)
            for payload in self._packed(channel.id, packer.add(piece)):
                self._put(key[0], self._sender, key[1], payload)

    def _packed(self, channel: int, blocks: Iterator[tuple[pa.Buffer, int]]) -> Iterator[pa.Buffer]:
        try:
            yield from (payload for payload, _ in blocks)
        except RecordTooLargeError as error:
            raise self._calls[channel].failed(error, "output") from error

    def relay(self, envelope: Envelope) -> None:
        """Pass on a block that is meant for a later stage."""
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
        """Pack everything that still waits."""
        for (channel, subtask), packer in self._packers.items():
            for payload in self._packed(channel, packer.rest()):
                self._put(channel, self._sender, subtask, payload)

    def barriers(self, epoch: int, nonce: str, ends: list[tuple[int, int, int, int]]) -> Iterator[Envelope]:
        """One barrier for every task of the next stage.

        `ends`: (channel, sender, subtask, watermark) of everything this task speaks for: its own channels and
        those it relays.
        """
        ends_by_target: list[list[ChannelEnd]] = [[] for _ in range(self._next_width)]
        for channel, sender, subtask, watermark in ends:
            blocks = self._sent.get((channel, sender, subtask), 0)
            ends_by_target[subtask % self._next_width].append(ChannelEnd(channel, sender, subtask, blocks, watermark))
        head = Barrier(epoch, self._sender, nonce).head()
        for target, target_ends in enumerate(ends_by_target):
            yield Envelope(target, BARRIER, pa.py_buffer(head + ends_bytes(target_ends)), sender=self._sender)

    def acknowledgements(self, payloads: Iterable[pa.Buffer]) -> Iterator[Envelope]:
        """This task's acknowledgement, and those it was handed, on to one task of the next stage."""
        target = self._sender % self._next_width
        for payload in payloads:
            yield Envelope(target, ACKNOWLEDGEMENT, payload, sender=self._sender)

    def failures(self, report: bytes) -> Iterator[Envelope]:
        """The news of a failure, to every task of the next stage; one of them gets the report."""
        for target in range(self._next_width):
            body = report if target == self._sender % self._next_width else b""
            yield Envelope(target, FAILURE, pa.py_buffer(body), sender=self._sender)


class Inbox:
    """Checks everything this task receives from the stage before."""

    def __init__(self, plan: Plan, stage: int, subtask: int, epoch: int) -> None:
        self._plan, self._stage, self._subtask, self._epoch = plan, stage, subtask, epoch
        self._senders = plan.stages[stage - 1].width if stage else 0
        self._width = plan.stages[stage].width
        self._received: dict[tuple[int, int, int], int] = defaultdict(int)
        self.barriers: dict[int, Barrier] = {}
        self.acknowledgements: list[pa.Buffer] = []
        self.failures: list[bytes] = []
        self.failed = False
        self._barriers_ns: tuple[int, int] | None = None  # when the first and the last one came

    def data(self, envelope: Envelope) -> None:
        """Take note of a block and check its place in the order of its sender."""
        place = (envelope.channel, envelope.sender, envelope.subtask)
        if envelope.sequence != self._received[place]:
            raise BrokenExchangeError(
                f"epoch {self._epoch}, stage {self._stage}, task {self._subtask}: block {envelope.sequence} of sender "
                f"{envelope.sender} came where {self._received[place]} was due; the epoch is run again"
            )
        self._received[place] += 1

    def barrier(self, barrier: Barrier) -> None:
        """Take note that a sender is done."""
        is_known = 0 <= barrier.sender < self._senders
        if barrier.epoch != self._epoch or barrier.sender in self.barriers or not is_known:
            raise BrokenExchangeError(
                f"epoch {self._epoch}, stage {self._stage}, task {self._subtask}: barrier of sender {barrier.sender} "
                f"for epoch {barrier.epoch} is doubled, of another epoch, or of none of the {self._senders} senders"
            )
        self.barriers[barrier.sender] = barrier
        now_ns = time.perf_counter_ns()
        self._barriers_ns = (now_ns if self._barriers_ns is None else self._barriers_ns[0], now_ns)

    @property
    def alignment_ns(self) -> int:
        """The time from the first barrier to the last."""
        return 0 if self._barriers_ns is None else self._barriers_ns[1] - self._barriers_ns[0]

    def acknowledgement(self, payload: pa.Buffer) -> None:
        """Keep what a task has to say to the driver, unread. A copy: the blocks it came with need not stay for it."""
        self.acknowledgements.append(pa.py_buffer(payload.to_pybytes()))

    @property
    def heard(self) -> str:
        """Which attempts of the stage before this task heard, once all have been heard."""
        return attempts_sum([self.barriers[sender].nonce for sender in range(self._senders)])

    def failure(self, report: bytes) -> None:
        """A sender failed; what it sent is void."""
        self.failed = True
        if report:
            self.failures.append(report)

    def check(self) -> dict[tuple[int, int, int], ChannelEnd]:
        """All senders heard, all blocks here. Returns the end of every channel, by (channel, sender, subtask)."""
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
        announced = "none were announced" if end is None else f"{end.blocks} were sent"
        if end is None or end.blocks != received:
            raise BrokenExchangeError(
                f"epoch {self._epoch}, stage {self._stage}, task {self._subtask}: "
                f"channel {place[0]}, sender {place[1]}: {received} blocks came, {announced}"
            )
