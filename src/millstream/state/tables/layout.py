"""The layout of a table: the columns of one state's rows, and their sort order.

A table holds the rows `(key, sub, value, due_ms, expires_ms)` of one state of one operator. `sub` distinguishes rows
of one key: absent for a single value, a map's key, a list's sequence number, a timer's due time. The other columns
are optional, as the layout defines. Rows are changes: PUT, DELETE, and CLEAR, which voids everything older under its
key.

Rows are sorted by

    order      uint64: the key group in the top 16 bits, then the top 48 bits of the hash
    rest       uint16: the other 16 bits of the hash
    key        groups keys with the same hash: each key's rows are one run
    sub_order  int64: a 64-bit number or time itself, or the hash of any other sub

so that one binary search over plain integers locates a key, a second one locates the row of a sub, and a range of key
groups is a range of rows. Invariant: `order` and `rest` together are the key's hash and group, without loss, so a scan
can restore the hashes. A layout never reads a file; `segment` checks files against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.errors import TypeMismatchError
from millstream.state.keys.hashing import Int64s, UInt64s, xxhash64_column
from millstream.state.keys.key_columns import check_parallelism, plain_view

__all__ = [
    "CLEAR",
    "DELETE",
    "FIRST_SUB",
    "NEVER_MS",
    "PUT",
    "OlderRows",
    "TableLayout",
    "UInt8s",
    "hashes_of",
    "kinds_of",
    "order_of_group",
    "orders_in",
    "orders_of",
    "rests_of",
    "sub_orders_in",
]

UInt8s: TypeAlias = NDArray[np.uint8]
UInt16s: TypeAlias = NDArray[np.uint16]

PUT, DELETE, CLEAR = 0, 1, 2
"""The kinds of change, as stored."""

NEVER_MS = 2**63 - 1
"""The due or expiry time of a row that is never due or never expires."""

FIRST_SUB = -(2**63)
"""The sub order of a CLEAR, which sorts before all other rows of its key."""

_GROUP_SHIFT, _HASH_SHIFT = 48, 16


class OlderRows(Protocol):
    """Converts rows of segments written with another schema to rows of the table (`past`)."""

    def entry_of(self, footer: Mapping[str, Any], epoch: int) -> int:
        """The schema number of a segment of `epoch`; an error if its footer does not match that schema."""

    def present(self, rows: pa.RecordBatch, start: int, schema: pa.Schema) -> pa.RecordBatch:
        """Rows saved with the schema number `start`, converted to the columns of `schema`."""


@dataclass(frozen=True)
class TableLayout:
    """The columns of one state. Without a key type, keys are the bytes of `canonical_bytes`.

    `value_type` is None if a row has no value (a timer); `is_pickled` marks values as pickles in a binary column,
    `serializer_version` as written there by a user's serialiser. `past` is set if some segments have another schema.

    >>> TableLayout("total", pa.string(), value_type=pa.int64()).schema.names
    ['order', 'rest', 'key', 'kind', 'value']
    """

    state: str
    key_type: pa.DataType | None
    sub_type: pa.DataType | None = None
    value_type: pa.DataType | None = None
    is_pickled: bool = False
    has_due: bool = False
    has_ttl: bool = False
    max_parallelism: int = 128
    serializer_version: int | None = None
    past: OlderRows | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_parallelism(1, self.max_parallelism)
        if self.is_pickled and self.value_type != pa.binary():
            raise ValueError(f"state {self.state!r}: pickled values are a binary column, not {self.value_type}")

    @property
    def stored_key_type(self) -> pa.DataType:
        """The Arrow type of the key column."""
        return pa.binary() if self.key_type is None else self.key_type

    @property
    def has_ordered_sub(self) -> bool:
        """Whether subs are their own sort order: then the sub column is the sub order, and no sub is null."""
        return self.sub_type is not None and _is_ordered(self.sub_type)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a segment of this table."""
        fields = [
            pa.field("order", pa.uint64(), nullable=False),
            pa.field("rest", pa.uint16(), nullable=False),
            pa.field("key", self.stored_key_type),
            pa.field("kind", pa.uint8(), nullable=False),
        ]
        if self.sub_type is not None:
            fields.append(pa.field("sub", self.sub_type))
            if not self.has_ordered_sub:
                fields.append(pa.field("sub_order", pa.int64(), nullable=False))
        if self.value_type is not None:
            fields.append(pa.field("value", self.value_type))
        if self.has_due:
            fields.append(pa.field("due_ms", pa.int64(), nullable=False))
        if self.has_ttl:
            fields.append(pa.field("expires_ms", pa.int64(), nullable=False))
        return pa.schema(fields)

    def check_groups(self, groups: range) -> range:
        """`groups` itself if it is a range of this table's key groups."""
        if groups.step != 1 or not 0 <= groups.start <= groups.stop <= self.max_parallelism:
            raise ValueError(f"state {self.state!r}: {groups} is not a range of key groups 0..{self.max_parallelism}")
        return groups

    def sub_orders(self, subs: pa.Array) -> Int64s:
        """The sub order of every sub: equal for equal subs, and sorted like the subs for ordered types."""
        assert self.sub_type is not None
        if subs.type != self.sub_type:
            raise TypeMismatchError(
                f"state {self.state!r} has subs of {self.sub_type}, found {subs.type}. Cast them first.", value=subs
            )
        if not self.has_ordered_sub:
            return xxhash64_column(subs)
        if subs.null_count:
            raise TypeMismatchError(
                f"state {self.state!r}: None is not a key of a map whose keys are {self.sub_type}. Leave it out, or "
                "declare another key type.",
                value=None,
            )
        return plain_view(subs)


def _is_ordered(kind: pa.DataType) -> bool:
    t = pa.types
    checks = (t.is_int64, t.is_timestamp, t.is_time64, t.is_duration, t.is_date64)
    return any(is_kind(kind) for is_kind in checks)


def orders_of(hashes: Int64s, max_parallelism: int) -> UInt64s:
    """The sort prefix of every hash.

    >>> [hex(order) for order in orders_of(np.array([-1, 0x10001]), 128).tolist()]
    ['0x7fffffffffffff', '0x1000000000001']
    """
    unsigned = hashes.view(np.uint64)
    if max_parallelism & (max_parallelism - 1) == 0:
        groups = unsigned & np.uint64(max_parallelism - 1)
    else:
        groups = np.mod(hashes, max_parallelism).view(np.uint64)
    groups <<= np.uint64(_GROUP_SHIFT)
    groups |= unsigned >> np.uint64(_HASH_SHIFT)
    return groups


def rests_of(hashes: Int64s) -> UInt16s:
    """The bits of every hash that its order lacks."""
    return hashes.view(np.uint64).astype(np.uint16)


def hashes_of(orders: UInt64s, rests: UInt16s) -> Int64s:
    """Restores the hashes from the two columns.

    >>> hashes_of(orders_of(np.array([-5]), 128), rests_of(np.array([-5]))).tolist()
    [-5]
    """
    top = orders << np.uint64(_HASH_SHIFT)
    top |= rests
    return top.view(np.int64)


def order_of_group(group: int) -> int:
    """The smallest order of a key group; for the group after the last, the end of all orders."""
    return group << _GROUP_SHIFT


def orders_in(batch: pa.RecordBatch) -> UInt64s:
    """The order column of a batch of rows, as numpy."""
    return plain_view(batch.column("order")).view(np.uint64)


def kinds_of(batch: pa.RecordBatch) -> UInt8s:
    """The kind column of a batch of rows, as numpy."""
    return plain_view(batch.column("kind")).view(np.uint8)


def sub_orders_in(batch: pa.RecordBatch, layout: TableLayout) -> Int64s:
    """The sub order of every row: a column of its own, or the subs themselves."""
    view: Int64s = plain_view(batch.column("sub" if layout.has_ordered_sub else "sub_order"))
    return view
