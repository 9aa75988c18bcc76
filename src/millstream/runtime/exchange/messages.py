"""The messages between tasks: envelopes, barriers and acknowledgements.

An **envelope** is the only row type that crosses Spark's shuffle. It is addressed to a task (`target`) and holds a
block of records (`blocks`), a barrier, an acknowledgement on its way to the driver, or a failure report. It has its
channel, the receiving subtask (of a later stage, if it is relayed), its sender, and a sequence number per sender, so
the receiver can check that blocks are complete and in order. Payload sizes are multiples of eight bytes, so that every
payload in a shared column starts at an aligned offset and the numbers in a block can be read without a copy.

A **barrier** ends a task's part of an epoch. It is sent to *every* task of the next stage and carries only the
receiver's share: how many blocks the sender put on each channel for this receiver (so a gap is detected), the watermark
of each channel, and the `nonce` that identifies the sender's *attempt*. Every pair of tasks exchanges a barrier, so it
is only a hundred bytes of fixed fields.

An **acknowledgement** reports the input, staged output and counters of one task. It is sent once, to one task of the
next stage, which relays it unread to the following stage, and so on to the driver.

Spark may run a task twice and let different receivers read different attempts. So every acknowledgement carries one
checksum of the upstream attempts its task received (`attempts_sum`). The driver computes the same checksum over the
acknowledged attempts and rejects the epoch if one differs.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.records.columns import zero_padded
from millstream.state.stored.accounts import AccountReader, FunctionAccount, RecordedSplit, SubtaskAccount
from millstream.state.stored.times import EventTimeState
from millstream.storage.json_records import Flat, from_json, to_json

__all__ = [
    "ACKNOWLEDGEMENT",
    "BARRIER",
    "DATA",
    "ENVELOPE_DDL",
    "ENVELOPE_SCHEMA",
    "FAILURE",
    "Acknowledgement",
    "Barrier",
    "ChannelEnd",
    "Envelope",
    "SplitRead",
    "attempts_sum",
    "ends_bytes",
    "open_envelopes",
    "seal",
]

DATA, BARRIER, FAILURE, ACKNOWLEDGEMENT = 0, 1, 2, 3

_NAMES = ("target", "kind", "channel", "subtask", "sender", "sequence")
ENVELOPE_SCHEMA = pa.schema([*((name, pa.int32()) for name in _NAMES), ("payload", pa.binary())])
ENVELOPE_DDL = ", ".join([*(f"{name} int" for name in _NAMES), "payload binary"])


_NOTHING = pa.py_buffer(b"")


@dataclass(frozen=True)
class Envelope:
    """One row of the shuffle. `channel` is -1 for all kinds but blocks of records."""

    target: int
    kind: int
    payload: pa.Buffer
    channel: int = -1
    subtask: int = -1
    sender: int = -1
    sequence: int = -1


def seal(envelopes: Sequence[Envelope]) -> pa.RecordBatch:
    """Packs envelopes into rows for the shuffle. The payload of a single envelope is not copied."""
    heads = [pa.array([getattr(e, name) for e in envelopes], pa.int32()) for name in _NAMES]
    if len(envelopes) == 1:
        body = envelopes[0].payload
        ends = pa.py_buffer(np.array([0, body.size], dtype=np.int32))
        payload = pa.Array.from_buffers(pa.binary(), 1, [None, ends, body])
    else:
        payload = pa.array([e.payload.to_pybytes() for e in envelopes], pa.binary())
    return pa.RecordBatch.from_arrays([*heads, payload], schema=ENVELOPE_SCHEMA)


def open_envelopes(rows: pa.RecordBatch) -> Iterator[Envelope]:
    """Unpacks the envelopes of a batch of rows; payloads are views, not copies."""
    heads = [rows.column(i).to_pylist() for i in range(len(_NAMES))]
    payloads = _views(rows.column(len(_NAMES)))
    for payload, head in zip(payloads, zip(*heads, strict=True), strict=True):
        target, kind, channel, subtask, sender, sequence = head
        yield Envelope(target, kind, payload, channel, subtask, sender, sequence)


def _views(payloads: pa.Array) -> Iterator[pa.Buffer]:
    """The values of a binary column as slices of its buffer. Scalars of the column would be copied."""
    _, ends, data = payloads.buffers()
    width = np.int64 if payloads.type == pa.large_binary() else np.int32  # a Spark setting chooses the type
    bounds = np.frombuffer(ends, dtype=width)[payloads.offset :][: len(payloads) + 1].tolist()
    for start, stop in pairwise(bounds):
        yield _NOTHING if data is None else data.slice(start, stop - start)


# Epoch, sender, size of the nonce. The padded nonce follows, then the ends.
_HEAD = struct.Struct("<qii")
_END = struct.Struct("<iii4xqq")


class ChannelEnd(NamedTuple):
    """The block count and watermark of one sender on one channel for one receiving subtask in this epoch."""

    channel: int
    sender: int
    subtask: int
    blocks: int
    watermark: int


@dataclass(frozen=True)
class SplitRead:
    """How far a split was read in an epoch: the end offset, its event time, and the amount. `recorded`: the recording
    of the input, if the job records it."""

    offset: Any
    time: Annotated[EventTimeState, Flat()]
    records: int = 0
    bytes: int = 0
    recorded: RecordedSplit | None = None


@dataclass
class Acknowledgement:
    """One task's report of its part of an epoch. It is sent as JSON; most of it is stored in the manifest.

    Many fields: the driver receives all information from a task here.
    """

    stage: int
    subtask: int
    nonce: str
    upstream_attempts: str = ""  # checksum of the upstream attempts it received
    sources: dict[str, dict[str, SplitRead]] = field(default_factory=dict)  # by uid and split
    staged: dict[str, list[Any]] = field(default_factory=dict)  # sink uid -> items its writer staged
    states: dict[str, SubtaskAccount] = field(default_factory=dict)  # uid -> the operator's account of this subtask
    operator_states: dict[str, FunctionAccount] = field(default_factory=dict)  # uid -> its function's account
    watermarks: dict[str, int] = field(default_factory=dict)  # uid -> event time at the end of the epoch
    event_times: dict[str, int] = field(default_factory=dict)  # uid -> this subtask's event time, if it resumes there
    operators: dict[str, dict[str, int]] = field(default_factory=dict)  # uid -> records in and out, time by phase
    times: dict[str, int] = field(default_factory=dict)  # of the whole task: duration, store requests
    metrics: dict[str, Any] = field(default_factory=dict)
    output: list[list[str]] = field(default_factory=list)  # lines that user code printed and logged: [stream, text]
    place: str = ""  # the cluster process in which it ran; empty if there is only one

    def encode(self) -> pa.Buffer:
        """Encodes it as JSON."""
        fields = dict(vars(self))
        fields["sources"] = {
            uid: {split: to_json(read) for split, read in splits.items()} for uid, splits in self.sources.items()
        }
        for name in ("states", "operator_states"):
            fields[name] = {uid: to_json(account) for uid, account in fields[name].items()}
        text = json.dumps(fields, separators=(",", ":"))
        return pa.py_buffer((text + " " * (-len(text) % 8)).encode("ascii"))

    @classmethod
    def decode(cls, payload: bytes, reader: AccountReader | None = None) -> Acknowledgement:
        """Decodes the result of `encode`. A shared `reader` parses parts that several accounts have in common once."""
        reader = reader or AccountReader()
        fields = json.loads(payload)
        fields["sources"] = {
            uid: {split: from_json(SplitRead, reader, read) for split, read in splits.items()}
            for uid, splits in fields["sources"].items()
        }
        fields["states"] = {uid: reader.subtask(account, uid) for uid, account in fields["states"].items()}
        functions = fields["operator_states"]
        fields["operator_states"] = {uid: reader.function(account, uid) for uid, account in functions.items()}
        return cls(**fields)


@dataclass(frozen=True)
class Barrier:
    """The end of an epoch, from one task to one task.

    >>> barrier = Barrier(7, 1, "run-1", (ChannelEnd(0, 1, 3, 2, 40),))
    >>> Barrier.decode(barrier.encode()) == barrier
    True
    """

    epoch: int
    sender: int
    nonce: str
    ends: tuple[ChannelEnd, ...] = ()

    def encode(self) -> pa.Buffer:
        """Encodes the barrier."""
        return pa.py_buffer(self.head() + ends_bytes(self.ends))

    def head(self) -> bytes:
        """The encoded part that is the same for all receivers; `ends_bytes` follows it."""
        nonce = self.nonce.encode()
        return _HEAD.pack(self.epoch, self.sender, len(nonce)) + zero_padded(nonce)

    @classmethod
    def decode(cls, payload: pa.Buffer) -> Barrier:
        """Decodes the result of `encode`."""
        data = payload.to_pybytes()
        epoch, sender, length = _HEAD.unpack_from(data)
        begin = _HEAD.size + length
        ends = tuple(map(ChannelEnd._make, _END.iter_unpack(data[begin + -begin % 8 :])))
        return cls(epoch, sender, data[_HEAD.size : begin].decode(), ends)


def ends_bytes(ends: Iterable[ChannelEnd]) -> bytes:
    """Encodes channel ends."""
    return b"".join(_END.pack(*end) for end in ends)


def attempts_sum(nonces: Sequence[str]) -> str:
    """A checksum of the attempts of all tasks of a stage, in task order.

    >>> attempts_sum(["a", "b"]) == attempts_sum(["b", "a"]), attempts_sum([])
    (False, '')
    """
    return hashlib.sha256("\n".join(nonces).encode()).hexdigest()[:32] if nonces else ""
