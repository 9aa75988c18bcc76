"""Functions over the records of a window, and pass-through functions.

They are interfaces: a program subclasses them and passes them to a windowed stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from millstream.datastream.functions.function import Function
from millstream.datastream.functions.runtime_context import KeyedStateStore
from millstream.graph.window_traits import PassThrough, as_described

__all__ = [
    "AllWindowFunction",
    "PassThroughAllWindowFunction",
    "PassThroughWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessWindowFunction",
    "WindowFunction",
]

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Processes all records of a key's window when it fires."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results of the window."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Processes all records of a window over a whole stream when it fires."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results of the window."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Processes all records of a key's window, with the window's times and state."""

    class Context(ABC, Generic[W2]):
        """The context of the current window."""

        @abstractmethod
        def window(self) -> W2:
            """The window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The epoch's processing time, in ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The operator's watermark, in ms."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key and window; clear it in `clear`."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key across windows."""

    @abstractmethod
    def process(self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The results of the window."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Called when the window is removed: clears its `window_state`."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Processes all records of a window over a whole stream, with the window's state."""

    class Context(ABC, Generic[W2]):
        """The context of the current window."""

        @abstractmethod
        def window(self) -> W2:
            """The window."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this window; clear it in `clear`."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of the operator across windows."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT]:
        """The results of the window."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Called when the window is removed: clears its `window_state`."""


@as_described
class PassThroughWindowFunction(WindowFunction[IN, IN, KEY, W], PassThrough):
    """Emits a window's records unchanged.

    >>> list(PassThroughWindowFunction().apply("key", None, [1, 2]))
    [1, 2]
    """

    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        yield from inputs


class PassThroughAllWindowFunction(AllWindowFunction[IN, IN, W]):
    """Emits a window's records unchanged."""

    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        yield from inputs
