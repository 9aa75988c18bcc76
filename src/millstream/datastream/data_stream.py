"""All stream classes under the module path PyFlink programs import them from. Each lives in a module of its own."""

from __future__ import annotations

from millstream.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
from millstream.datastream.cached_data_stream import CachedDataStream
from millstream.datastream.closeable_iterator import CloseableIterator
from millstream.datastream.connected_streams import ConnectedStreams
from millstream.datastream.data_stream_sink import DataStreamSink
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.stream import DataStream
from millstream.datastream.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]
