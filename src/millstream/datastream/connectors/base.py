"""What all sources and sinks of this package are: settings around the Python connector that does the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING

from millstream.connectors import contracts
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper

if TYPE_CHECKING:
    from millstream.datastream.streams.stream import DataStream

__all__ = ["DeliveryGuarantee", "Sink", "Source", "StreamTransformer", "SupportsPreprocessing"]


class Source(JavaFunctionWrapper):
    """A source for `StreamExecutionEnvironment.from_source`."""

    def __init__(self, source: contracts.Source | str) -> None:
        super().__init__(source)


class Sink(JavaFunctionWrapper):
    """A sink for `DataStream.sink_to`."""

    def __init__(self, sink: contracts.Sink | str) -> None:
        super().__init__(sink)


class DeliveryGuarantee(Enum):
    """What a sink promises after a failure."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class StreamTransformer(ABC):
    """Prepares a stream for a sink."""

    @abstractmethod
    def apply(self, ds: DataStream) -> DataStream:
        """The stream the sink should get for `ds`."""


class SupportsPreprocessing(ABC):
    """A sink that wants its stream prepared."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """How to prepare it; None: not at all."""
