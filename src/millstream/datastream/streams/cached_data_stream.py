"""A stream whose records are kept for later jobs of the same environment.

The first job that has it computes it and writes its records beside; later ones read those instead of computing
everything above again. It is no operator that could be named or placed: what does that is refused, as in PyFlink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.stream import DataStream
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.datastream.streams.unnamed_stream import UnnamedStream
from millstream.graph.nodes import Cache, Edge

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["CachedDataStream", "cached"]


def cached(stream: DataStream) -> CachedDataStream:
    """The stream, kept for later jobs."""
    environment = stream._environment
    before = [stream._node(edge.source) for edge in stream._edges]
    name = f"Cached {before[0].name.removeprefix('Source: ')}" if len(before) == 1 else "Cached Union"
    id = stream._add(Cache(0), name, stream._stream_type()).id
    environment._builder.amend(id, operation=Cache(id))  # its number is known only once it is made
    return CachedDataStream(environment=environment, edges=(Edge(id),))


class CachedDataStream(UnnamedStream):
    """What `DataStream.cache` returns."""

    made_by = ("cache", "cached")

    def __init__(
        self,
        j_data_stream: Any = None,
        *,
        environment: StreamExecutionEnvironment | None = None,
        edges: tuple[Edge, ...] = (),
    ) -> None:
        no_java_object(self, j_data_stream)
        super().__init__(environment=environment, edges=edges)

    def cache(self) -> CachedDataStream:
        """This stream: it is cached already."""
        return self

    def invalidate(self) -> None:
        """Remove what is cached. The next job that has this stream computes and caches it again."""
        self._environment._caches.invalidate(self._edges[0].source)
