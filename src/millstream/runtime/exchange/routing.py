"""Which subtask takes a record: one router per outgoing channel of a task.

A router splits a batch into pieces, each with its target. Pieces are as large as they can be: rebalancing deals
out contiguous runs rather than single records. Everything here is a function of the batch, the sender and the
epoch, never of chance, so a replayed epoch routes every record as it did before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import ProgramError
from millstream.graph.nodes import Partitioning
from millstream.plan.stages import Channel
from millstream.records.batch import Batch
from millstream.runtime.exchange.keying import Keying
from millstream.runtime.operators.failure import UserCall

__all__ = ["Piece", "Router", "router_for"]

Piece = tuple[int, Batch]
Router = Callable[[Batch], Iterator[Piece]]


def router_for(channel: Channel, sender: int, epoch: int, call: UserCall) -> Router:
    """The router of `channel` in subtask `sender`. `call` runs user code and reports its failures."""
    receivers = channel.receivers
    kind = channel.edge.partitioning
    if kind is Partitioning.FORWARD:
        return _always(sender)
    if kind is Partitioning.GLOBAL:
        return _always(0)
    if kind is Partitioning.BROADCAST:
        return lambda batch: ((target, batch) for target in range(receivers))
    if kind is Partitioning.REBALANCE:
        return _deal(range(receivers), sender)
    if kind is Partitioning.RESCALE:
        return _deal(_neighbours(sender, channel.senders, receivers), sender)
    if kind is Partitioning.SHUFFLE:
        return _shuffle(receivers, np.random.default_rng([epoch, sender, channel.id]))
    if kind is Partitioning.HASH:
        return _hash(channel, call)
    if kind is Partitioning.CUSTOM:
        return _custom(channel, call)
    raise AssertionError(f"unresolved partitioning {kind}")


def _always(target: int) -> Router:
    return lambda batch: iter(((target, batch),))


def _neighbours(sender: int, senders: int, receivers: int) -> range:
    """The receivers that `rescale` gives to a sender: an equal share, so that records need not travel far."""
    if receivers >= senders:
        return range(sender * receivers // senders, (sender + 1) * receivers // senders)
    nearest = sender * receivers // senders
    return range(nearest, nearest + 1)


def _deal(targets: range, first: int) -> Router:
    turn = first % len(targets)

    def route(batch: Batch) -> Iterator[Piece]:
        nonlocal turn
        share, rest = divmod(len(batch), len(targets))
        start = 0
        for i in range(len(targets)):
            length = share + (i < rest)
            if length:
                yield targets[(turn + i) % len(targets)], batch.slice(start, length)
                start += length
        turn = (turn + rest) % len(targets)

    return route


def _shuffle(receivers: int, random: np.random.Generator) -> Router:
    return lambda batch: _scatter(batch, random.integers(0, receivers, len(batch)), receivers)


def _hash(channel: Channel, call: UserCall) -> Router:
    keying = Keying(channel.edge.key_selector, channel.edge.key_type, call)

    def route(batch: Batch) -> Iterator[Piece]:
        keys = keying.column(batch)
        return _scatter(batch, keys.partitions(channel.receivers, channel.key_groups), channel.receivers)

    return route


def _custom(channel: Channel, call: UserCall) -> Router:
    assert channel.edge.key_selector is not None
    receivers = channel.receivers
    key_of = call.bind(channel.edge.key_selector, "get_key", "key selector")
    partition = call.bind(channel.edge.partitioner, "partition", "partitioner")

    def target_of(value: Any) -> int:
        target = partition(key_of(value), receivers)
        if not isinstance(target, int) or not 0 <= target < receivers:
            raise ProgramError(
                f"the partitioner returned {target!r}; it must return an int from 0 to {receivers - 1} "
                "(its second argument minus one)"
            )
        return target

    def route(batch: Batch) -> Iterator[Piece]:
        targets = np.array(call.each(target_of, batch.values(), "partitioner"), dtype=np.int64)
        return _scatter(batch, targets, receivers)

    return route


def _scatter(batch: Batch, targets: npt.NDArray[Any], receivers: int) -> Iterator[Piece]:
    """Split a batch by target, keeping the order of records within each."""
    if receivers == 1:
        yield 0, batch
        return
    order = np.argsort(targets, kind="stable")
    sorted_batch = batch.take(order)
    ends = np.searchsorted(targets[order], np.arange(receivers), side="right").tolist()
    start = 0
    for target, end in enumerate(ends):
        if end > start:
            yield target, sorted_batch.slice(start, end - start)
        start = end
