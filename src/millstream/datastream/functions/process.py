"""Process functions, with access to timestamps, timers, side outputs, and broadcast state.

These classes define names and signatures; the task provides the contexts. The stream checks the function's class when
it is passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.datastream.functions.function import Function
from millstream.datastream.time_domain import TimeDomain
from millstream.datastream.timerservice import TimerService

if TYPE_CHECKING:
    from millstream.datastream.state import (
        BroadcastState,
        MapStateDescriptor,
        ReadOnlyBroadcastState,
        StateDescriptor,
    )

__all__ = [
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CoProcessFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "ProcessFunction",
]

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
KEY = TypeVar("KEY")
OUT = TypeVar("OUT")


class _TimedContext(ABC):
    """The time of the current record, and the clock."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """The clock, and on keyed streams the timers."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """The event timestamp of the current record or timer, in ms, or None."""


class _KeyedContext(_TimedContext):
    @abstractmethod
    def get_current_key(self) -> Any:
        """The key of the current record or timer."""


class ProcessFunction(Function):
    """Processes each record with its context; emits any number of values to the stream or to side outputs.

    >>> from millstream.datastream import OutputTag
    >>> odd = OutputTag("odd")
    >>> class Even(ProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         yield (odd, value) if value % 2 else value
    """

    class Context(_TimedContext):
        """The context of the current record."""

    @abstractmethod
    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Yield values for the stream, or pairs `(OutputTag, value)` for a side output."""


class KeyedProcessFunction(Function):
    """Processes each record of a keyed stream, with state and timers of its key."""

    class Context(_KeyedContext):
        """The context of the current record."""

    class OnTimerContext(Context):
        """The context of the current timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether the timer is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Yield values for the stream, or pairs `(OutputTag, value)` for a side output."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer of the current key is due. Does nothing by default."""
        return None


class CoProcessFunction(Function):
    """Processes records of two connected streams, with one method for each."""

    class Context(_TimedContext):
        """The context of the current record."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Processes a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Processes a record of the second stream."""


class KeyedCoProcessFunction(Function):
    """Processes records of two connected keyed streams, which share state and timers per key."""

    class Context(_KeyedContext):
        """The context of the current record."""

    class OnTimerContext(Context):
        """The context of the current timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether the timer is an event-time or a processing-time timer."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Processes a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Processes a record of the second stream."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer of the current key is due. Does nothing by default."""
        return None


class BaseBroadcastProcessFunction(Function):
    """Base of the two broadcast functions: contexts that may write broadcast state, or only read it."""

    class BaseContext(ABC):
        """Times, as the operator sees them."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The event timestamp of the current record, in ms, or None."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The epoch's processing time, in ms."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The operator's watermark, in ms."""

    class Context(BaseContext):
        """The context of broadcast records, in which broadcast state is writable."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """The broadcast state of this name."""

    class ReadOnlyContext(BaseContext):
        """The context of the other side's records, in which broadcast state is read-only."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
            """The broadcast state of this name."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Processes a stream that reads the state written by a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """The context of broadcast records."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """The context of the other side's records."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext) -> Iterable[OUT] | None:
        """Processes a record of the stream that is not broadcast."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[OUT] | None:
        """Processes a broadcast record; every subtask receives it and must process it identically."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Processes a keyed stream, with state and timers, that reads the state written by a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """The context of broadcast records."""

        @abstractmethod
        def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], Any]) -> None:
            """Calls `function(key, state)` for every key that has this state (as in Flink's Java API)."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """The context of keyed records."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clock and the timers of the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the current record."""

    class OnTimerContext(ReadOnlyContext, ABC):
        """The context of the current timer."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Whether the timer is an event-time or a processing-time timer."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the current timer."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext) -> Iterable[OUT] | None:
        """Processes a record of the keyed stream."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[OUT] | None:
        """Processes a broadcast record; every subtask receives it and must process it identically."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[OUT] | None:
        """Called when a timer of the current key is due. Does nothing by default."""
        return None
