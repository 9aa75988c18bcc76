"""Envelopes: the only rows that cross Spark's shuffle.

An envelope is addressed to a task (`target`) and holds a block of records, a barrier, an acknowledgement on its way to
the driver, or the news of a failure. It names its channel, the subtask it is meant for (of a later stage, if it is
relayed), its sender, and its number among those of the sender: so the receiver can check that it has all, in order.

Payloads are as long as a multiple of eight bytes, so that each begins at one where many share a column: numbers in a
block are then where a processor likes them, and nobody has to copy them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

__all__ = [
    "ACKNOWLEDGEMENT",
    "BARRIER",
    "DATA",
    "ENVELOPE_DDL",
    "ENVELOPE_SCHEMA",
    "FAILURE",
    "Envelope",
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
    """One row. `channel` is -1 for all but blocks of records, which alone belong to a channel."""

    target: int
    kind: int
    payload: pa.Buffer
    channel: int = -1
    subtask: int = -1
    sender: int = -1
    sequence: int = -1


def seal(envelopes: Sequence[Envelope]) -> pa.RecordBatch:
    """Rows for the shuffle. A single envelope's payload is not copied."""
    heads = [pa.array([getattr(e, name) for e in envelopes], pa.int32()) for name in _NAMES]
    if len(envelopes) == 1:
        body = envelopes[0].payload
        ends = pa.py_buffer(np.array([0, body.size], dtype=np.int32))
        payload = pa.Array.from_buffers(pa.binary(), 1, [None, ends, body])
    else:
        payload = pa.array([e.payload.to_pybytes() for e in envelopes], pa.binary())
    return pa.RecordBatch.from_arrays([*heads, payload], schema=ENVELOPE_SCHEMA)


def open_envelopes(rows: pa.RecordBatch) -> Iterator[Envelope]:
    """The envelopes of a batch of rows; payloads are views, not copies."""
    heads = [rows.column(i).to_pylist() for i in range(len(_NAMES))]
    payloads = _views(rows.column(len(_NAMES)))
    for payload, head in zip(payloads, zip(*heads, strict=True), strict=True):
        target, kind, channel, subtask, sender, sequence = head
        yield Envelope(target, kind, payload, channel, subtask, sender, sequence)


def _views(payloads: pa.Array) -> Iterator[pa.Buffer]:
    """The values of a binary column, each where it lies: a scalar of the column would be a copy."""
    _, ends, data = payloads.buffers()
    width = np.int64 if payloads.type == pa.large_binary() else np.int32  # Spark can be told to send either
    bounds = np.frombuffer(ends, dtype=width)[payloads.offset :][: len(payloads) + 1].tolist()
    for start, stop in pairwise(bounds):
        yield _NOTHING if data is None else data.slice(start, stop - start)
