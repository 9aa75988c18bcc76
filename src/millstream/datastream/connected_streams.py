"""Two streams of different types in one operator. Comes with several streams; making one says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import TypeInformation
from millstream.errors import NotYetError

if TYPE_CHECKING:
    from millstream.datastream.functions.function import CoFlatMapFunction, CoMapFunction
    from millstream.datastream.functions.process import CoProcessFunction, KeyedCoProcessFunction
    from millstream.datastream.stream import DataStream

__all__ = ["ConnectedStreams"]


class ConnectedStreams:
    """What `DataStream.connect` will return."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        raise NotYetError.of("ConnectedStreams", "several streams", "union() streams of one type")

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: TypeInformation | None = None
    ) -> ConnectedStreams:
        raise NotYetError.of("ConnectedStreams.key_by", "several streams")

    def map(self, func: CoMapFunction, output_type: TypeInformation | None = None) -> DataStream:
        raise NotYetError.of("ConnectedStreams.map", "several streams")

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeInformation | None = None) -> DataStream:
        raise NotYetError.of("ConnectedStreams.flat_map", "several streams")

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        raise NotYetError.of("ConnectedStreams.process", "several streams")
