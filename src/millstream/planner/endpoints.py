"""Ends of a plan that are the program's own: rows that come from a DataStream or a list, rows that go to one.

A `TableEntry.origin` is a `RowOrigin`, where rows do not come from a connector; a `Sink.target` that is no table of
the catalog is a `RowTarget`. Lowering calls them with the builder of the job: whatever they need, they add there, so that
a table that is never run adds nothing to the program's graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.graph.builder import GraphBuilder
    from millstream.graph.nodes import Edge

__all__ = ["RowOrigin", "RowTarget"]


class RowOrigin(ABC):
    """Where rows come from. `is_bounded`: they end by themselves. `has_times`: their batches come with timestamps and
    watermarks of their own, which SOURCE_WATERMARK() means."""

    is_bounded: bool = True
    has_times: bool = False

    @abstractmethod
    def read(self, builder: GraphBuilder) -> tuple[Edge, ...]:
        """Add what reads the rows, and return the edges along which they come: batches of the entry's `read` columns,
        in that order, as a `TableRowType` of just these."""

    def describe(self) -> str:
        """What EXPLAIN shows."""
        return type(self).__name__


class RowTarget(ABC):
    """Where rows go."""

    changes: tuple[str, ...] = ("+I",)
    """The kinds of changes it takes."""

    @abstractmethod
    def write(self, builder: GraphBuilder, edges: tuple[Edge, ...]) -> None:
        """Take the rows that come along these edges, typed as the sink's schema."""

    def describe(self) -> str:
        """What EXPLAIN shows."""
        return type(self).__name__
