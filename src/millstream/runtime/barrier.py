"""Barriers: what a task tells every task of the next stage when its part of an epoch is done.

A barrier says how many blocks its sender put on each channel for this receiver (so a hole cannot pass unnoticed),
how far event time has come on it, and carries the acknowledgements gathered so far: each task's own account of
what it read, staged and counted. Acknowledgements travel with one barrier only, so each reaches the driver once.

`nonce` names the *attempt* of the sending task. Spark may run a task twice and let different receivers read
different attempts; the driver compares the nonces everybody heard and refuses such a mixed epoch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

__all__ = ["MAX_WATERMARK", "MIN_WATERMARK", "Acknowledgement", "Barrier", "ChannelEnd"]

MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1


@dataclass(frozen=True)
class ChannelEnd:
    """What one sender put on one channel for one receiving subtask in this epoch."""

    channel: int
    sender: int
    subtask: int
    blocks: int
    watermark: int


@dataclass
class Acknowledgement:
    """One task's account of its part of an epoch. Everything in it is JSON: it ends up in the manifest."""

    stage: int
    subtask: int
    nonce: str
    heard: dict[str, str] = field(default_factory=dict)  # sender of the previous stage -> its nonce
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)  # uid -> split -> {offset, watermark, records}
    staged: dict[str, list[Any]] = field(default_factory=dict)  # sink uid -> what its writer handed over
    states: dict[str, Any] = field(default_factory=dict)  # uid -> what the operator itself keeps of this subtask
    operator_states: dict[str, Any] = field(default_factory=dict)  # uid -> what its function keeps of this subtask
    watermarks: dict[str, int] = field(default_factory=dict)  # uid -> event time at the end of the epoch
    event_times: dict[str, int] = field(default_factory=dict)  # uid -> where this subtask stands, if it goes on there
    operators: dict[str, dict[str, int]] = field(default_factory=dict)  # uid -> records in, out, where time went
    times: dict[str, int] = field(default_factory=dict)  # of the whole task: how long it took, and its alignment
    metrics: dict[str, Any] = field(default_factory=dict)
    output: list[list[str]] = field(default_factory=list)  # what user code printed and logged: [stream, text]


@dataclass(frozen=True)
class Barrier:
    """The end of an epoch, from one task to one task."""

    epoch: int
    sender: int
    nonce: str
    ends: tuple[ChannelEnd, ...] = ()
    acknowledgements: tuple[Acknowledgement, ...] = ()

    def encode(self) -> pa.Buffer:
        """As JSON, the form it travels in."""
        body = {
            "epoch": self.epoch,
            "sender": self.sender,
            "nonce": self.nonce,
            "ends": [[e.channel, e.sender, e.subtask, e.blocks, e.watermark] for e in self.ends],
            "acknowledgements": [vars(a) for a in self.acknowledgements],
        }
        return pa.py_buffer(json.dumps(body, separators=(",", ":")).encode())

    @classmethod
    def decode(cls, payload: pa.Buffer) -> Barrier:
        """Read what `encode` wrote."""
        body = json.loads(payload.to_pybytes())
        return cls(
            body["epoch"],
            body["sender"],
            body["nonce"],
            tuple(ChannelEnd(*end) for end in body["ends"]),
            tuple(Acknowledgement(**a) for a in body["acknowledgements"]),
        )
