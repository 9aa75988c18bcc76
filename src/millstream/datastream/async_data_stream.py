"""Asynchronous calls per record. The interfaces are there; running them comes with asynchronous I/O."""

from __future__ import annotations

from typing import Any

from millstream.common.time import Time
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions.asynchronous import AsyncFunction, AsyncRetryStrategy
from millstream.datastream.stream import DataStream
from millstream.errors import NotYetError

__all__ = ["AsyncDataStream"]

_INSTEAD = "a FlatMapFunction that makes the calls itself"


class AsyncDataStream:
    """Entry points for asynchronous operators."""

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise NotYetError.of("AsyncDataStream.unordered_wait", "asynchronous I/O", _INSTEAD)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise NotYetError.of("AsyncDataStream.unordered_wait_with_retry", "asynchronous I/O", _INSTEAD)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise NotYetError.of("AsyncDataStream.ordered_wait", "asynchronous I/O", _INSTEAD)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        raise NotYetError.of("AsyncDataStream.ordered_wait_with_retry", "asynchronous I/O", _INSTEAD)
