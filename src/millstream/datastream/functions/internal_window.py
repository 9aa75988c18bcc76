"""PyFlink's adapters between its window operator and a user's window function.

PyFlink exports them, though only its own operator creates them. The adapters are implemented: each passes a window's
contents to the wrapped function in the expected form. The two internal contexts, which only PyFlink's operator fills
in, are rejected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic

from millstream.datastream.functions.function import Function
from millstream.datastream.functions.runtime_context import KeyedStateStore, RuntimeContext
from millstream.datastream.functions.window import (
    IN,
    KEY,
    OUT,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    W,
)
from millstream.errors import NotAvailableError

__all__ = [
    "InternalIterableAllWindowFunction",
    "InternalIterableProcessAllWindowFunction",
    "InternalIterableProcessWindowFunction",
    "InternalIterableWindowFunction",
    "InternalProcessAllWindowContext",
    "InternalProcessWindowContext",
    "InternalSingleValueAllWindowFunction",
    "InternalSingleValueProcessAllWindowFunction",
    "InternalSingleValueProcessWindowFunction",
    "InternalSingleValueWindowFunction",
    "InternalWindowFunction",
]


class InternalWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Adapter interface: computes results from a window's contents."""

    class InternalWindowContext(ABC):
        """The window operator as an internal function sees it."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The epoch's processing time, in ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The operator's watermark, in ms."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key and window."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key."""

    @abstractmethod
    def process(self, key: KEY, window: W, context: InternalWindowContext, input_data: IN) -> Iterable[OUT]:
        """The results of the window."""

    @abstractmethod
    def clear(self, window: W, context: InternalWindowContext) -> None:
        """Called when the window is removed."""


class _FunctionAdapter(InternalWindowFunction[Any, Any, Any, Any]):
    """An adapter around a user's function, which it opens and closes."""

    def __init__(self, wrapped_function: Any) -> None:
        self._wrapped_function = wrapped_function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._wrapped_function.open(runtime_context)

    def close(self) -> None:
        self._wrapped_function.close()

    def clear(self, window: Any, context: InternalWindowFunction.InternalWindowContext) -> None:
        """Does nothing: window functions without a context have no window state."""


class InternalSingleValueWindowFunction(_FunctionAdapter):
    """For a window that was reduced to one value."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.apply(key, window, [input_data])  # type: ignore[no-any-return]


class InternalSingleValueAllWindowFunction(_FunctionAdapter):
    """For a window over a whole stream that was reduced to one value."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.apply(window, [input_data])  # type: ignore[no-any-return]


class InternalIterableWindowFunction(_FunctionAdapter):
    """For a window that stores all its records."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.apply(key, window, input_data)  # type: ignore[no-any-return]


class InternalIterableAllWindowFunction(_FunctionAdapter):
    """For a window over a whole stream that stores all its records."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.apply(window, input_data)  # type: ignore[no-any-return]


def _no_context(name: str) -> NotAvailableError:
    return NotAvailableError(
        f"{name} belongs to PyFlink's own window operator. A function gets its context from the stream."
    )


class InternalProcessWindowContext(ProcessWindowFunction.Context[W]):
    """Filled in by PyFlink's window operator; programs never create one."""

    def __init__(self) -> None:
        raise _no_context("InternalProcessWindowContext")

    def window(self) -> W:
        raise _no_context("InternalProcessWindowContext")

    def current_processing_time(self) -> int:
        raise _no_context("InternalProcessWindowContext")

    def current_watermark(self) -> int:
        raise _no_context("InternalProcessWindowContext")

    def window_state(self) -> KeyedStateStore:
        raise _no_context("InternalProcessWindowContext")

    def global_state(self) -> KeyedStateStore:
        raise _no_context("InternalProcessWindowContext")


class InternalProcessAllWindowContext(ProcessAllWindowFunction.Context[W]):
    """Filled in by PyFlink's window operator; programs never create one."""

    def __init__(self) -> None:
        raise _no_context("InternalProcessAllWindowContext")

    def window(self) -> W:
        raise _no_context("InternalProcessAllWindowContext")

    def window_state(self) -> KeyedStateStore:
        raise _no_context("InternalProcessAllWindowContext")

    def global_state(self) -> KeyedStateStore:
        raise _no_context("InternalProcessAllWindowContext")


class _WindowContext(ProcessWindowFunction.Context[Any]):
    """The user's context: the window, and the operator's context."""

    def __init__(self, window: Any, context: InternalWindowFunction.InternalWindowContext) -> None:
        self._window = window
        self._context = context

    def window(self) -> Any:
        return self._window

    def current_processing_time(self) -> int:
        return self._context.current_processing_time()

    def current_watermark(self) -> int:
        return self._context.current_watermark()

    def window_state(self) -> KeyedStateStore:
        return self._context.window_state()

    def global_state(self) -> KeyedStateStore:
        return self._context.global_state()


class InternalSingleValueProcessWindowFunction(_FunctionAdapter):
    """For a process function over a window that was reduced to one value."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.process(key, _WindowContext(window, context), [input_data])  # type: ignore[no-any-return]

    def clear(self, window: Any, context: InternalWindowFunction.InternalWindowContext) -> None:
        self._wrapped_function.clear(_WindowContext(window, context))


class InternalSingleValueProcessAllWindowFunction(_FunctionAdapter):
    """For a process function over a whole stream's window that was reduced to one value."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.process(_WindowContext(window, context), [input_data])  # type: ignore[no-any-return]

    def clear(self, window: Any, context: InternalWindowFunction.InternalWindowContext) -> None:
        self._wrapped_function.clear(_WindowContext(window, context))


class InternalIterableProcessWindowFunction(_FunctionAdapter):
    """For a process function over a window that stores all its records."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.process(key, _WindowContext(window, context), input_data)  # type: ignore[no-any-return]

    def clear(self, window: Any, context: InternalWindowFunction.InternalWindowContext) -> None:
        self._wrapped_function.clear(_WindowContext(window, context))


class InternalIterableProcessAllWindowFunction(_FunctionAdapter):
    """For a process function over a whole stream's window that stores all its records."""

    def process(self, key: Any, window: Any, context: Any, input_data: Any) -> Iterable[Any]:
        return self._wrapped_function.process(_WindowContext(window, context), input_data)  # type: ignore[no-any-return]

    def clear(self, window: Any, context: InternalWindowFunction.InternalWindowContext) -> None:
        self._wrapped_function.clear(_WindowContext(window, context))
