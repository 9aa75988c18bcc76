"""Reads one source to its end, then the next: for example historical files, then the topic that continues them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.connectors import contracts, hybrid
from millstream.datastream.connectors.base import Source
from millstream.datastream.streams.argument_checks import at_users_line, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from typing import Self

__all__ = ["HybridSource", "HybridSourceBuilder"]


class HybridSource(Source):
    """Several sources, read one after the other. All but the last must be bounded.

    >>> from millstream.datastream.connectors.number_seq import NumberSequenceSource
    >>> source = HybridSource.builder(NumberSequenceSource(1, 3)).add_source(NumberSequenceSource(4, 6)).build()
    """

    def __init__(self, j_hybrid_source: Any = None, *, engine: hybrid.HybridSource | None = None) -> None:
        no_java_object(self, j_hybrid_source)
        if engine is None:
            raise refuse("HybridSource: create one with HybridSource.builder(first).add_source(next).build()")
        super().__init__(engine)

    @staticmethod
    def builder(first_source: Source | contracts.Source) -> HybridSourceBuilder:
        """Starts a builder with the source that is read first."""
        return HybridSourceBuilder(stages=(_engine_of("builder", first_source),))


class HybridSourceBuilder:
    """Collects the sources, in reading order."""

    def __init__(self, j_hybrid_source_builder: Any = None, *, stages: tuple[contracts.Source, ...] = ()) -> None:
        no_java_object(self, j_hybrid_source_builder)
        if not stages:
            raise refuse("HybridSourceBuilder: begin with HybridSource.builder(first_source)")
        self._stages = stages

    def add_source(self, source: Source | contracts.Source) -> Self:
        """Adds a source that is read after the previous ones have ended."""
        self._stages = (*self._stages, _engine_of("add_source", source))
        return self

    def build(self) -> HybridSource:
        """The source."""
        with at_users_line():
            return HybridSource(engine=hybrid.HybridSource(self._stages))


def _engine_of(method: str, source: Any) -> contracts.Source:
    engine = getattr(source, "_connector", source)
    if not isinstance(engine, contracts.Source):
        raise refuse(f"{method}: found {source!r}, expected a source, such as one of millstream.datastream.connectors")
    return engine


add_pyflink_names(globals())
