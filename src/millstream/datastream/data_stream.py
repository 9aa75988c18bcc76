"""All stream classes under the module path PyFlink programs import them from. Each is defined in a separate module."""

from __future__ import annotations

from millstream.datastream.streams.broadcast_stream import BroadcastConnectedStream, BroadcastStream
from millstream.datastream.streams.cached_data_stream import CachedDataStream
from millstream.datastream.streams.closeable_iterator import CloseableIterator
from millstream.datastream.streams.connected_streams import ConnectedStreams
from millstream.datastream.streams.keyed_stream import KeyedStream
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.streams.stream_outputs import DataStreamSink
from millstream.datastream.streams.windowed_stream import AllWindowedStream, WindowedStream
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "WINDOW_STATE_NAME",
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

WINDOW_STATE_NAME = "window-contents"
"""Flink's name of the state of a window's records."""

add_pyflink_names(globals())
