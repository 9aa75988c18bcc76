"""A stream whose records are cached for later jobs of the same environment.

The first job that uses the stream computes and caches it; later jobs read the cache instead of recomputing everything
upstream. A cached stream is not an operator: calls that name or place it are rejected, as in PyFlink.
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
    """Caches the stream for later jobs."""
    environment = stream._environment
    before = [stream._node(edge.source) for edge in stream._edges]
    name = f"Cached {before[0].name.removeprefix('Source: ')}" if len(before) == 1 else "Cached Union"
    id = stream._add(Cache(0), name, stream._stream_type()).id
    environment._builder.amend(id, operation=Cache(id))  # its id is known only after it is added
    return CachedDataStream(environment=environment, edges=(Edge(id),))


class CachedDataStream(UnnamedStream):
    """The result of `DataStream.cache`."""

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
        """Returns this stream, which is already cached."""
        return self

    def invalidate(self) -> None:
        """Removes the cache. The next job that uses this stream computes and caches it again."""
        self._environment._caches.invalidate(self._edges[0].source)
