"""Evictors remove records from a window when it fires: by count, by time, by distance, or by user code.

PyFlink has no evictors; these follow Flink's Java API. An evictor receives all records of the window in order of
arrival, and removes some before or after the window function runs. The removal is permanent: removed records are
missing if the window fires again. Evictors are pure and stateless.

A window with an evictor stores every record, because records cannot be aggregated on arrival.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.common.time import DurationLike, duration_ms
from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.datastream.window.windows import Window
from millstream.records.timestamped_value import TimestampedValue

if TYPE_CHECKING:
    from millstream.metrics import MetricGroup

__all__ = ["CountEvictor", "DeltaEvictor", "Evictor", "TimeEvictor", "TimestampedValue"]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class Evictor(ABC, Generic[T, W]):
    """Removes records from a window, before or after its function runs. `elements` is modified in place."""

    class EvictorContext(ABC):
        """The context available to an evictor."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The epoch's processing time, in ms."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """The group for the evictor's metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The operator's watermark, in ms."""

    @abstractmethod
    def evict_before(self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorContext) -> None:
        """Removes records before the window function runs. `size` is the number of records."""

    @abstractmethod
    def evict_after(self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorContext) -> None:
        """Removes records after the window function has run, before the next firing."""


class _OneTimeEvictor(Evictor[T, W]):
    """An evictor that evicts either before or after the function."""

    def __init__(self, do_evict_after: bool) -> None:
        self._do_evict_after = do_evict_after

    def _evict(self, elements: list[TimestampedValue]) -> None:
        raise NotImplementedError

    def evict_before(self, elements: list[TimestampedValue], size: int, window: W, ctx: Evictor.EvictorContext) -> None:
        if not self._do_evict_after:
            self._evict(elements)

    def evict_after(self, elements: list[TimestampedValue], size: int, window: W, ctx: Evictor.EvictorContext) -> None:
        if self._do_evict_after:
            self._evict(elements)


class CountEvictor(_OneTimeEvictor[T, W]):
    """Retains the last `max_count` records.

    >>> elements = [TimestampedValue(n) for n in range(5)]
    >>> CountEvictor.of(2).evict_before(elements, 5, None, None)
    >>> [element.value for element in elements]
    [3, 4]
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._max_count = checked_count("CountEvictor", max_count)

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor[Any, Any]:
        """Retains `max_count` records."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: -self._max_count]


class TimeEvictor(_OneTimeEvictor[T, W]):
    """Retains records of the last `window_size` ms before the newest record, and all records without timestamps.

    >>> elements = [TimestampedValue("a", 0), TimestampedValue("c", 20), TimestampedValue("b", 11)]
    >>> TimeEvictor(10).evict_before(elements, 3, None, None)
    >>> [element.value for element in elements]
    ['c', 'b']
    """

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._window_size_ms = checked_count("TimeEvictor", window_size)

    @staticmethod
    def of(window_size: DurationLike, do_evict_after: bool = False) -> TimeEvictor[Any, Any]:
        """Retains the records of the last `window_size`."""
        return TimeEvictor(duration_ms(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements and elements[0].has_timestamp():
            oldest = max(element.get_timestamp() for element in elements) - self._window_size_ms
            elements[:] = [element for element in elements if element.get_timestamp() > oldest]


class DeltaEvictor(_OneTimeEvictor[T, W]):
    """Retains records with a user-defined distance of less than `threshold` from the newest record.

    >>> elements = [TimestampedValue(n) for n in (1, 8, 5, 10)]
    >>> DeltaEvictor.of(5, lambda old, new: new - old).evict_before(elements, 4, None, None)
    >>> [element.value for element in elements]
    [8, 10]
    """

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        self._threshold = threshold
        self._delta = checked_delta("DeltaEvictor", delta_function)

    @staticmethod
    def of(
        threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> DeltaEvictor[Any, Any]:
        """Creates the evictor from a threshold and `delta_function(record, newest)`."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            newest = elements[-1].value
            elements[:] = [element for element in elements if self._delta(element.value, newest) < self._threshold]


def checked_delta(method: str, delta_function: Any) -> Callable[[Any, Any], float]:
    """Checks a distance function: a callable of two records, or an object with Flink's `get_delta`."""
    delta = getattr(delta_function, "get_delta", delta_function)
    if not callable(delta):
        raise refuse(f"{method}: found {delta_function!r}, expected a function of two records that returns a number")
    return delta  # type: ignore[no-any-return]
