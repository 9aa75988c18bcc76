"""Routes records: determines their keys and the subtask that receives each record.

`Keying` extracts the keys of a batch, as Python values for functions or as a column for the store and the exchange. If
the key is a field of a typed stream, its column *is* the key column and no code runs per record. Otherwise the user's
selector is called for every record. If records arrive without an exchange by key (`reinterpret_as_keyed_stream`), each
key is checked against the key groups of the subtask: otherwise state of another subtask's key would silently be lost or
mixed.

A `Router` (one per outgoing channel of a task) splits a batch into pieces, each with its target. Pieces are as large as
possible: rebalancing distributes contiguous runs rather than single records. The remainder starts at a different
receiver in each epoch (`first_turn`), so that a stream of one record per epoch reaches all receivers.

Invariants: both forms represent the same keys, and values that are one key by the rule of `keys.key_columns` are one
key in either form. Routing is a deterministic function of batch, sender and epoch, so a replayed epoch routes every
record as before.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Partitioning
from millstream.plan.stages import Channel
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.runtime.exchange.key_classes import decode_key
from millstream.runtime.keyed.keyed_backend import GatheredKeys, KeyRange
from millstream.runtime.operators.user_code import UserCall
from millstream.state.keys.hashing import Int64s, xxhash64_column
from millstream.state.keys.key_columns import (
    KeyColumn,
    holds_declared_maps,
    is_stored_as_is,
    key_column,
    key_column_of_arrow,
    normalised,
)
from millstream.state.keys.settled_keys import settled_keys

__all__ = ["Keying", "Piece", "Router", "first_turn", "router_for"]

_SAMPLE_ROWS = 1_024
# Hashing a string costs several times a dictionary lookup, as long as the dictionary is small.
_REPEATS_MIN = 4
# For up to this many receivers, one scan per receiver is faster than a sort by receiver.
_RECEIVERS_FEW = 4


class Keying:
    """Extracts the keys of batches. `selector` is the user's, `key_type` its declared result type; with `owned`, a key
    outside that range is an error."""

    def __init__(
        self, selector: Any, key_type: TypeInformation | None, call: UserCall, owned: KeyRange | None = None
    ) -> None:
        self.key_type = key_type
        self._owned = owned
        self._call = call
        self._key_of = call.bind(selector, "get_key", "key selector")
        is_column = key_type is not None and is_stored_as_is(key_type) and not holds_declared_maps(key_type)
        self._column = selector.column if isinstance(selector, FieldKey) and is_column else None

    @classmethod
    def of_edge(cls, edge: Edge, call: UserCall, owned: KeyRange) -> Keying:
        """The keying of an edge into the subtask that owns `owned`. An exchange by key delivers only owned keys, so
        ownership is checked only without one."""
        checked = owned if edge.partitioning is Partitioning.FORWARD else None
        return cls(edge.key_selector, edge.key_type, call.at(edge.site), checked)

    def gathered_keys(self, batch: Batch) -> GatheredKeys:
        """The keys of records for the next visits."""
        field = self._field(batch)
        if field is None:
            return self._gathered_values(batch, self._settled(batch))
        column = self._check_owner(batch, _column_of(field))
        return GatheredKeys(column)

    def values(self, batch: Batch) -> list[Any]:
        """The key of every record, as functions see it."""
        keys = self._settled(batch)
        if self._owned is not None:
            self._gathered_values(batch, keys)
        return keys

    def column_to_group(self, batch: Batch) -> KeyColumn:
        """Like `column`, for records that are about to be grouped: only the few remaining keys are hashed."""
        field = self._field(batch) if self._owned is None else None
        return self.column(batch) if field is None else KeyColumn(None, normalised(field))

    def column(self, batch: Batch) -> KeyColumn:
        """The key of every record, in the store's form."""
        field = self._field(batch)
        if field is not None:
            return self._check_owner(batch, _column_of(field))
        keys = self._call.each(self._key_of, batch.values(), "key selector")
        with self._call.running("key selector"):
            column = key_column(keys, self.key_type)
        return self._check_owner(batch, column)

    def _settled(self, batch: Batch) -> list[Any]:
        keys = self._call.each(self._key_of, batch.values(), "key selector")
        with self._call.running("key selector"):
            return settled_keys(keys, self.key_type, decode_key)

    def _gathered_values(self, batch: Batch, keys: list[Any]) -> GatheredKeys:
        gathered_keys = GatheredKeys.of_values(keys, self.key_type)
        self._check_owner(batch, gathered_keys.column, gathered_keys.codes)
        return gathered_keys

    def _check_owner(self, batch: Batch, keys: KeyColumn, codes: Int64s | None = None) -> KeyColumn:
        """Returns the keys if this subtask owns them all. `codes`: each record's index into `keys`, if not one each."""
        if self._owned is None:
            return keys
        is_foreign = ~self._owned.holds(keys.hashes)
        if not is_foreign.any():
            return keys
        row = int(np.flatnonzero(is_foreign if codes is None else is_foreign[codes])[0])
        (record,) = batch.slice(row, 1).values()
        error = ProgramError(
            f"the key {self._key_of(record)!r} of this record does not belong to its subtask: "
            "reinterpret_as_keyed_stream() requires a stream that is already partitioned as key_by() partitions it, "
            "and this one is not. Use key_by() there, or pass the key (of the same type) and the maximum parallelism "
            "of the upstream operators"
        )
        raise self._call.failed(error, "key selector", (record,))

    def _field(self, batch: Batch) -> pa.Array | None:
        """The column that is the key, or None."""
        if self._column is None or not batch.typed:
            return None
        columns = batch.columns()
        kind = columns.schema.get_field_index(KIND_COLUMN)
        if kind >= 0 and columns.column(kind).null_count:  # None records have no fields
            return None
        return columns.column(self._column)


def _column_of(array: pa.Array) -> KeyColumn:
    """A key column; repeated strings are hashed once each.

    >>> texts = pa.array(["a", "b"] * 2_000)
    >>> _column_of(texts).hashes.tolist() == xxhash64_column(texts).tolist()
    True
    """
    is_text = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
    if not is_text or len(array) < _SAMPLE_ROWS or array.null_count:
        return key_column_of_arrow(array)
    sample = array.slice(0, _SAMPLE_ROWS).dictionary_encode().dictionary
    if len(sample) * _REPEATS_MIN > _SAMPLE_ROWS:
        return key_column_of_arrow(array)
    encoded = array.dictionary_encode()
    hashes = xxhash64_column(encoded.dictionary)
    return KeyColumn(hashes[encoded.indices.to_numpy()], array)


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
        return _deal(range(receivers), sender, epoch)
    if kind is Partitioning.RESCALE:
        return _deal(_neighbours(sender, channel.senders, receivers), sender, epoch)
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
    """The receivers of one sender under `rescale`: an equal share, so that each sender has few receivers."""
    if receivers >= senders:
        return range(sender * receivers // senders, (sender + 1) * receivers // senders)
    nearest = sender * receivers // senders
    return range(nearest, nearest + 1)


def first_turn(sender: int, epoch: int, receivers: int) -> int:
    """The receiver of a sender's first leftover record in an epoch. Within any `2 * receivers - 1` consecutive epochs
    every receiver is first at least once.

    Plain counting fails if records arrive only in every other epoch, as when a timer wakes the job in between: with an
    even number of receivers, half of them would never receive a record. So the count restarts in every block of epochs,
    at a pseudo-random receiver.

    >>> [first_turn(0, epoch, 3) for epoch in range(9)]
    [1, 2, 0, 1, 2, 0, 0, 1, 2]
    """
    block, number = divmod(epoch, receivers)
    return (sender + number + zlib.crc32(block.to_bytes(8, "little"))) % receivers


def _deal(targets: range, sender: int, epoch: int) -> Router:
    """Distributes records evenly. The receivers of the remainder rotate. Runs follow the order of receivers, so an
    operator that concatenates them in that order restores the original sequence."""
    turn = first_turn(sender, epoch, len(targets))

    def route(batch: Batch) -> Iterator[Piece]:
        nonlocal turn
        share, rest = divmod(len(batch), len(targets))
        start = 0
        for i, target in enumerate(targets):
            length = share + ((i - turn) % len(targets) < rest)
            if length:
                yield target, batch.slice(start, length)
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
    """Splits a batch by target and retains the order of records within each."""
    if receivers == 1:
        yield 0, batch
        return
    if receivers <= _RECEIVERS_FEW:
        for target in range(receivers):
            rows = np.flatnonzero(targets == target)
            if len(rows):
                yield target, batch if len(rows) == len(batch) else batch.take(rows)
        return
    # numpy sorts 16-bit numbers by radix, several times faster than wider ones.
    targets = targets.astype(np.uint16) if receivers <= 1 << 16 else targets
    order = np.argsort(targets, kind="stable")
    sorted_batch = batch.take(order)
    ends = np.searchsorted(targets[order], np.arange(receivers), side="right").tolist()
    start = 0
    for target, end in enumerate(ends):
        if end > start:
            yield target, sorted_batch.slice(start, end - start)
        start = end
