"""Flink's `DataStreamUtils`, as far as it is about streams: a stream taken as one that is keyed already."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.function import KeySelector
from millstream.datastream.streams.argument_checks import refuse
from millstream.datastream.streams.stream import DataStream

if TYPE_CHECKING:
    from millstream.datastream.streams.keyed_stream import KeyedStream

__all__ = ["DataStreamUtils"]


class DataStreamUtils:
    """What Flink offers beside the methods of a stream (not in PyFlink)."""

    @staticmethod
    def reinterpret_as_keyed_stream(
        stream: DataStream,
        key_selector: Callable[[Any], Any] | KeySelector | int | str,
        key_type: TypeInformation | None = None,
    ) -> KeyedStream:
        """The stream as one that is partitioned by this key already, without an exchange.

        Every record must be in the subtask `key_by` would have sent it to, and fails the job if it is not.

        >>> from millstream.common import Types
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> pair = Types.TUPLE([Types.STRING(), Types.LONG()])
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> sums = env.from_collection([("a", 1), ("b", 2)], pair).key_by(0).sum(1)
        >>> highest = DataStreamUtils.reinterpret_as_keyed_stream(sums, 0).max(1)
        >>> print(highest.get_type())
        TupleTypeInfo(String, Long)
        """
        if not isinstance(stream, DataStream):
            raise refuse(f"reinterpret_as_keyed_stream: found {stream!r} ({type(stream).__name__}), expected a stream")
        return stream.reinterpret_as_keyed_stream(key_selector, key_type)
