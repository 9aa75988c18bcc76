"""A stream whose records are kept for later jobs. Comes with snapshots; making one says so."""

from __future__ import annotations

from typing import Any

from millstream.datastream.stream import DataStream
from millstream.errors import NotYetError

__all__ = ["CachedDataStream"]


class CachedDataStream(DataStream):
    """What `DataStream.cache` will return."""

    def __init__(self, j_data_stream: Any = None) -> None:
        raise NotYetError.of("CachedDataStream", "snapshots")

    def invalidate(self) -> None:
        raise NotYetError.of("CachedDataStream.invalidate", "snapshots")
