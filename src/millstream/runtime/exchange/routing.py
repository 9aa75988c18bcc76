"""Where a record goes: its key, and the subtask that takes it.

`Keying` gives the keys of a batch, as Python values for functions or as a column for the store and the exchange. Where
the key is a field of a typed stream, its column *is* the key column and nothing runs per record. Else the user's
selector is called for every record. Where records come without an exchange by their key
(`reinterpret_as_keyed_stream`), each key is held against the key groups of the subtask: state of a key that belongs to
another one would be lost or mixed, in silence.

A `Router` (one per outgoing channel of a task) splits a batch into pieces, each with its target. Pieces are as large as
they can be: rebalancing deals out contiguous runs rather than single records. In each epoch odd records go to another
receiver (`first_turn`), so that a stream of one record an epoch comes to all of them.

Invariants: both forms of keys name the same keys, and what is one key by the rule of `keys.key_columns` is one key
in either. Routing is a function of the batch, the sender and the epoch, never of chance, so a replayed epoch routes
every record as it did before.
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
# Hashing a text costs several times what finding it in a dictionary does, as long as the dictionary stays small.
_REPEATS_MIN = 4
# Where there are no more, it is quicker to look for the records of each than to sort by receiver.
_RECEIVERS_FEW = 4


class Keying:
    """Finds the keys of batches. `selector` is the user's, `key_type` what it was declared to give; with `owned`, a key
    outside of it is an error."""

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
        """The keys of what comes along an edge to the subtask that has `owned`. An exchange by key brings no others;
        where there was none, that is checked."""
        checked = owned if edge.partitioning is Partitioning.FORWARD else None
        return cls(edge.key_selector, edge.key_type, call.at(edge.site), checked)

    def gathered_keys(self, batch: Batch) -> GatheredKeys:
        """The keys of records that are about to be visited."""
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
        """As `column`, for records of which few will be left when they are grouped: only those get a hash."""
        field = self._field(batch) if self._owned is None else None
        return self.column(batch) if field is None else KeyColumn(None, normalised(field))

    def column(self, batch: Batch) -> KeyColumn:
        """The key of every record, as the store knows it."""
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
        """The keys, if they all belong to this subtask. `codes`: which of `keys` each record has, if not one each."""
        if self._owned is None:
            return keys
        is_foreign = ~self._owned.holds(keys.hashes)
        if not is_foreign.any():
            return keys
        row = int(np.flatnonzero(is_foreign if codes is None else is_foreign[codes])[0])
        (record,) = batch.slice(row, 1).values()
        error = ProgramError(
            f"the key {self._key_of(record)!r} of this record does not belong to its subtask: "
            "reinterpret_as_keyed_stream() takes the stream to be partitioned by its key already, as key_by() "
            "partitions it, and it is not. Use key_by() there, or give it the key (of the same type) and the maximum "
            "parallelism that the operators before it have"
        )
        raise self._call.failed(error, "key selector", (record,))

    def _field(self, batch: Batch) -> pa.Array | None:
        """The column that is the key, where there is one."""
        if self._column is None or not batch.typed:
            return None
        columns = batch.columns()
        kind = columns.schema.get_field_index(KIND_COLUMN)
        if kind >= 0 and columns.column(kind).null_count:  # a record that is None has no field
            return None
        return columns.column(self._column)


def _column_of(array: pa.Array) -> KeyColumn:
    """A key column; texts that repeat are hashed once each.

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
    """The receivers that `rescale` gives to a sender: an equal share, so that records need not travel far."""
    if receivers >= senders:
        return range(sender * receivers // senders, (sender + 1) * receivers // senders)
    nearest = sender * receivers // senders
    return range(nearest, nearest + 1)


def first_turn(sender: int, epoch: int, receivers: int) -> int:
    """The receiver that gets the first odd record of a sender in an epoch: within any `2 * receivers - 1` epochs in a
    row, every receiver at least once.

    Plain counting would not do where records come in every other epoch only, as when a timer wakes the job in between:
    half of an even number of receivers would never get one. So the count begins anew in every block of epochs, at a
    place that depends on the block as if drawn.

    >>> [first_turn(0, epoch, 3) for epoch in range(9)]
    [1, 2, 0, 1, 2, 0, 0, 1, 2]
    """
    block, number = divmod(epoch, receivers)
    return (sender + number + zlib.crc32(block.to_bytes(8, "little"))) % receivers


def _deal(targets: range, sender: int, epoch: int) -> Router:
    """Gives all receivers as many records. Which ones get one more goes round; the runs are in the order of receivers,
    so that what gathers them again in that order has the records as they were."""
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
    """Split a batch by target, keeping the order of records within each."""
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
