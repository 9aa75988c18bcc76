"""Base classes of the sources and sinks of this package: settings around a Python connector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from enum import Enum
from typing import TYPE_CHECKING, Self

from millstream.connectors import contracts
from millstream.connectors.files.places import refuse_credentials
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper
from millstream.datastream.streams.argument_checks import at_users_line
from millstream.pyflink_names import add_pyflink_names

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

    def with_dead_letters(self, folder: str) -> Self:
        """A copy of this sink that writes rows rejected by the target to files in `folder`, and continues (beyond
        PyFlink): `{commit}.jsonl` has each row with the reason, `{commit}-0.arrow` the rows with their types.
        """
        with at_users_line():
            refuse_credentials(folder, "with_dead_letters")
            sink = copy(self)
            sink._connector = self._connector.with_dead_letters(folder)
        return sink


class DeliveryGuarantee(Enum):
    """A sink's guarantee after a failure."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class StreamTransformer(ABC):
    """Prepares a stream for a sink."""

    @abstractmethod
    def apply(self, ds: DataStream) -> DataStream:
        """The transformed stream, which the sink receives instead of `ds`."""


class SupportsPreprocessing(ABC):
    """A sink that transforms its input stream."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """The transformation; None leaves the stream unchanged."""


add_pyflink_names(globals())
