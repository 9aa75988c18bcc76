"""Ready aggregates over the windows of a stream: bound to its type, with the key and the bounds that stand before them.

An `Aggregates` without a window function on top is known to the engine (`graph.nodes: ReadyAggregates`), which may run
it in columns. What is said here besides, the function that folds records and the one that makes rows, is the same
one record at a time. An operator that knows a record's time calls `add_at(value, timestamp, accumulator)` in place of
`add`, so that `first`, `last`, `top_n` and `collect` go by event time there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.datastream.aggregates import Aggregates, KeyAndBounds
from millstream.graph.field_key import FieldKey, OneKey
from millstream.graph.nodes import ReadyAggregates
from millstream.records.batch import is_typed
from millstream.records.shapes import plain_type

if TYPE_CHECKING:
    from millstream.datastream.streams.keyed_stream import KeyedStream

__all__ = ["BoundAggregates", "bound_aggregates"]


@dataclass(frozen=True)
class BoundAggregates:
    """The aggregates of a stream, the function that puts key and bounds before them, and what both come to."""

    aggregates: Aggregates
    front: KeyAndBounds | None
    ready: ReadyAggregates


def bound_aggregates(stream: KeyedStream, aggregates: Aggregates) -> BoundAggregates:
    """The aggregates as they run over this stream."""
    stream_type = stream._stream_type()
    bound = aggregates.bound(stream_type if is_typed(stream_type) else None)
    key = _key_of(stream)
    names = tuple(measure.name for measure in bound.measures)
    front = KeyAndBounds(None if key is None else key[0], names) if bound.with_key else None
    has_key = bound.with_key and key is not None
    return BoundAggregates(
        bound, front, ReadyAggregates(bound.measures, has_key, bound.with_key, bound.result_type(key))
    )


def _key_of(stream: KeyedStream) -> tuple[str, TypeInformation | None] | None:
    """What the key is called in results, and its type; None where all records have one key."""
    edge = stream._edges[0]
    if isinstance(edge.key_selector, OneKey):
        return None
    stream_type = stream._stream_type()
    plain = None if stream_type is None else plain_type(stream_type)
    field = edge.key_selector.field if isinstance(edge.key_selector, FieldKey) else None
    if isinstance(plain, RowTypeInfo) and plain.has_given_names and isinstance(field, int):
        return plain.get_field_names()[field], edge.key_type
    return field if isinstance(field, str) else "key", edge.key_type
