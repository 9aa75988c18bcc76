"""A source for tests of planning: splits of ten records each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from millstream.common import Types
from millstream.connectors.contracts import Read, Source, SourceContext, Split

__all__ = ["TenRecords"]


class TenRecords(Source):
    """One split per name, each with ten records."""

    type_info = Types.LONG()

    def __init__(self, names: Collection[str], sequential: bool = False) -> None:
        self.names, self.sequential, self.bounded = names, sequential, True

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [Split(name) for name in self.names]

    def reach(self, split: Split, offset: int, budget: int, context: SourceContext) -> int:
        return min(10, offset + budget)

    def finished(self, split: Split, offset: int) -> bool:
        return offset == 10

    def read(self, split: Split, start: int, stop: int) -> Read:
        yield list(range(start, stop))
        return stop
