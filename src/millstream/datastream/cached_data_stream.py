"""A stream whose records are kept for later jobs of the same environment.

The first job that has it computes it and writes its records beside; later ones read those instead of computing
everything above again. It is no operator that could be named or placed: what does that is refused, as in PyFlink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from millstream.datastream.argument_checks import refuse
from millstream.datastream.stream import DataStream
from millstream.datastream.stream_edges import no_java_object
from millstream.graph.nodes import Cache, Edge, Partitioning

if TYPE_CHECKING:
    from millstream.datastream.slot_sharing_group import SlotSharingGroup
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["CachedDataStream", "cached"]


def cached(stream: DataStream) -> CachedDataStream:
    """The stream, kept for later jobs."""
    environment = stream._environment
    before = [stream._node(edge.source) for edge in stream._edges]
    name = f"Cached {before[0].name.removeprefix('Source: ')}" if len(before) == 1 else "Cached Union"
    id = stream._add(Cache(0), name, stream._stream_type()).id
    # Where the records are, if nothing was said of where they go.
    stays = len(before) == 1 and stream._edges[0].partitioning is Partitioning.UNSPECIFIED
    node = environment._builder.amend(id, operation=Cache(id), parallelism=before[0].parallelism if stays else None)
    environment._caches.add(node)
    return CachedDataStream(environment=environment, edges=(Edge(id),))


def _no_operator(method: str) -> NoReturn:
    raise refuse(
        f"{method}: a cached stream is no operator of its own. Call it before cache(), or on the next operator"
    )


class CachedDataStream(DataStream):
    """What `DataStream.cache` returns."""

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

    # --- refused, as in PyFlink -----------------------------------------------------------------------------

    def set_parallelism(self, parallelism: int) -> NoReturn:
        _no_operator("set_parallelism")

    def name(self, name: str) -> NoReturn:
        _no_operator("name")

    def get_name(self) -> NoReturn:
        _no_operator("get_name")

    def uid(self, uid: str) -> NoReturn:
        _no_operator("uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        _no_operator("set_uid_hash")

    def set_description(self, description: str) -> NoReturn:
        _no_operator("set_description")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        _no_operator("set_max_parallelism")

    def force_non_parallel(self) -> NoReturn:
        _no_operator("force_non_parallel")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        _no_operator("set_buffer_timeout")

    def start_new_chain(self) -> NoReturn:
        _no_operator("start_new_chain")

    def disable_chaining(self) -> NoReturn:
        _no_operator("disable_chaining")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        _no_operator("slot_sharing_group")
