"""The two ends of an exchange inside a task: what goes out is packed and counted, what comes in is checked.

Invariant: a task passes on the end of an epoch only if it has heard every sender of the stage before, and has
received on every channel exactly the blocks each sender says it sent, in order. Anything else is an error that
fails the epoch: a hole is never committed. Acknowledgements are not looked at here: they pass through to the driver,
who knows how many there must be.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyarrow as pa

from millstream.plan.stages import Channel, Plan
from millstream.records.batch import Batch
from millstream.runtime.exchange.blocks import ALIGNED, BlockPacker, RecordTooLargeError
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

__all__ = ["BrokenExchangeError", "Inbox", "Outbox"]

# So many records share a block at most.
_BLOCK_RECORDS_MAX = 131_072
_BLOCK_UNTYPED_MAX = 16_384


class BrokenExchangeError(RuntimeError):
    """Blocks or barriers are missing, doubled or out of order: the epoch must be run again."""


class Outbox:
    """Everything this task sends to the next stage."""

    def __init__(self, next_width: int, sender: int, block_bytes_max: int) -> None:
        self._next_width = next_width
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
                packer = BlockPacker(self._block_bytes_max, _BLOCK_RECORDS_MAX, _BLOCK_UNTYPED_MAX, ALIGNED)
                self._packers[key] = packer
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
