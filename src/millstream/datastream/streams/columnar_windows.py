"""How ready aggregates over windows are run: in columns where they can be, a record at a time where they cannot.

`columnar_window_nodes` adds two operators to the graph, a partial aggregate in the task that has the records and,
behind the exchange, the panes; or nothing, and says so by None. Then `per_record` gives the same aggregates in the
shape that the general window operator takes. Both give the same results.

What `WindowedStream.aggregate` does with an `Aggregates` that has no window function on top:

    results = columnar_window_nodes(stream, windowing, aggregates)
    if results is None:
        slow = per_record(stream, aggregates)   # slow.function, slow.window_function, slow.output_type

With a window function on top it takes `aggregates.bound(stream type)` as any `AggregateFunction`. An operator that
knows a record's time calls `add_at(value, timestamp, accumulator)` in place of `add`, so that `first`, `last`, `top_n`
and `collect` go by event time there too.

In columns run tumbling, sliding and cumulative windows of both times, under the trigger they have by themselves. What
the program asked for beyond that (an evictor, a trigger of its own, late records in a side output) is told once,
because it is slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from millstream.aggregation.groups import can_be_grouped
from millstream.aggregation.kernels import runs_in_columns
from millstream.aggregation.pane_rows import partial_type
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.datastream.aggregates import Aggregates, KeyAndBounds
from millstream.datastream.functions.function import NullByteKeySelector
from millstream.datastream.streams.notices import say_once
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.window import assigners
from millstream.datastream.window.cumulative_assigners import (
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
)
from millstream.datastream.window.triggers import EventTimeTrigger, ProcessingTimeTrigger
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Node, PaneAggregate, PartialAggregate, Partitioning, Read
from millstream.graph.site import here
from millstream.records.batch import is_typed
from millstream.records.columns import arrow_type
from millstream.records.shapes import plain_type
from millstream.state.keys.key_columns import is_stored_as_is
from millstream.state.windows.pane_windows import PaneWindows

if TYPE_CHECKING:
    from millstream.datastream.streams.keyed_stream import KeyedStream

__all__ = ["PerRecord", "WindowSettings", "columnar_window_nodes", "per_record"]


class WindowSettings(Protocol):
    """What a program said of its windows."""

    @property
    def assigner(self) -> Any: ...
    @property
    def trigger(self) -> Any: ...
    @property
    def evictor(self) -> Any: ...
    @property
    def allowed_lateness_ms(self) -> int: ...
    @property
    def late_tag(self) -> Any: ...


@dataclass(frozen=True)
class PerRecord:
    """Ready aggregates for the general operator: the function, what stands on top of it, and the type of results."""

    function: Aggregates
    window_function: KeyAndBounds | None
    output_type: TypeInformation | None


def per_record(stream: KeyedStream, aggregates: Aggregates) -> PerRecord:
    """The aggregates one record at a time, with the same results as in columns."""
    bound = aggregates.bound(_type_of(stream))
    key = _key_of(stream)
    names = tuple(measure.name for measure in bound.measures)
    on_top = KeyAndBounds(None if key is None else key[0], names) if bound.with_key else None
    return PerRecord(bound, on_top, bound.result_type(key))


def columnar_window_nodes(stream: KeyedStream, settings: WindowSettings, aggregates: Aggregates) -> DataStream | None:
    """The stream of results in columns; None where the aggregates have to run a record at a time."""
    bound = aggregates.bound(_type_of(stream))
    key, key_type = _key_of(stream), stream._edges[0].key_type
    output_type = bound.result_type(key)
    windows = pane_windows(settings.assigner, settings.allowed_lateness_ms)
    if output_type is None or key_type is None or windows is None or not _has_columns(stream, bound):
        return None
    if not _fires_by_itself(settings):
        return None
    name, site = type(settings.assigner).__name__, here()
    builder, carried = stream._environment._builder, partial_type(bound.measures, key_type)
    partials = tuple(
        builder.add(
            PartialAggregate(bound.measures, windows),
            f"Partial {name}",
            inputs=(_local(edge),),
            output_type=carried,
            parallelism=_parallelism_of(builder.nodes[edge.source]),
            site=site,
        )
        for edge in stream._edges
    )
    by_key = FieldKey(0, 0)
    # A stream that was said to be partitioned by its key needs no exchange here either.
    stays = stream._edges[0].partitioning is Partitioning.FORWARD
    partitioning = Partitioning.FORWARD if stays else Partitioning.HASH
    edges = tuple(Edge(node.id, partitioning, key_selector=by_key, key_type=key_type) for node in partials)
    operation = PaneAggregate(bound.measures, windows, bound.with_key and key is not None, bound.with_key)
    return DataStream(environment=stream._environment, edges=edges)._then(operation, name, output_type)


def pane_windows(assigner: Any, lateness_ms: int) -> PaneWindows | None:
    """The windows of an assigner as panes; None where it is one of the program's own, or its windows are no stretches
    of time that are known beforehand."""
    kind = type(assigner)
    if kind in (assigners.TumblingEventTimeWindows, assigners.SlidingEventTimeWindows):
        return PaneWindows(assigner._size, assigner._slide, assigner._offset, None, True, lateness_ms)
    if kind in (assigners.TumblingProcessingTimeWindows, assigners.SlidingProcessingTimeWindows):
        return PaneWindows(assigner._size, assigner._slide, assigner._offset, None, False)
    if kind in (CumulativeEventTimeWindows, CumulativeProcessingTimeWindows):
        size_ms, is_event_time = assigner._max_size, kind is CumulativeEventTimeWindows
        late_ms = lateness_ms if is_event_time else 0
        return PaneWindows(size_ms, size_ms, assigner._offset, assigner._step, is_event_time, late_ms)
    return None


def _local(edge: Edge) -> Edge:
    """The way into a partial aggregate: records stay in their task, whatever their key. One key for all is no key to
    look for in records."""
    selector = None if isinstance(edge.key_selector, NullByteKeySelector) else edge.key_selector
    # Unspecified, not forward: should the program change the parallelism before it later, records are dealt out, unless
    # they are said to be where their keys belong.
    stays = edge.partitioning is Partitioning.FORWARD
    partitioning = Partitioning.FORWARD if stays else Partitioning.UNSPECIFIED
    return Edge(edge.source, partitioning, key_selector=selector, key_type=edge.key_type, tag=edge.tag)


def _parallelism_of(node: Node) -> int | None:
    """The parallelism of the operator before, so that a partial aggregate runs where the records are."""
    single = isinstance(node.operation, Read) and node.operation.source.single
    return 1 if single else node.parallelism


def _type_of(stream: KeyedStream) -> TypeInformation | None:
    stream_type = stream._stream_type()
    return stream_type if is_typed(stream_type) else None


def _key_of(stream: KeyedStream) -> tuple[str, TypeInformation | None] | None:
    """What the key is called in results, and its type; None where all records have one key."""
    edge = stream._edges[0]
    if isinstance(edge.key_selector, NullByteKeySelector):
        return None
    stream_type = stream._stream_type()
    plain = None if stream_type is None else plain_type(stream_type)
    field = edge.key_selector.field if isinstance(edge.key_selector, FieldKey) else None
    if isinstance(plain, RowTypeInfo) and plain.has_given_names and isinstance(field, int):
        return plain.get_field_names()[field], edge.key_type
    return field if isinstance(field, str) else "key", edge.key_type


def _has_columns(stream: KeyedStream, bound: Aggregates) -> bool:
    """Whether records, key and aggregates all are columns."""
    key_type = stream._edges[0].key_type
    if _type_of(stream) is None or key_type is None or not is_stored_as_is(key_type):
        return False
    return can_be_grouped(arrow_type(key_type)) and all(map(runs_in_columns, bound.measures))


def _fires_by_itself(settings: WindowSettings) -> bool:
    """Whether nothing was asked for that needs every record; else it is said what it costs."""
    own = EventTimeTrigger if settings.assigner.is_event_time() else ProcessingTimeTrigger
    slower = [
        what
        for what, is_asked in (
            ("an evictor", settings.evictor is not None),
            ("a trigger of its own", settings.trigger is not None and type(settings.trigger) is not own),
            ("late records in a side output", settings.late_tag is not None),
        )
        if is_asked
    ]
    if slower:
        say_once(
            f"aggregates, {slower}",
            f"the windows at {here()} have {' and '.join(slower)}: their aggregates run a record at a time, not in "
            "columns, which is slower",
        )
    return not slower
