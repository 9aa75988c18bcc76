"""The metrics of user functions, with PyFlink's names. `registry` implements them in a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]


class MetricGroup(ABC):
    """A scope of names. The same name returns the same metric."""

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A nested group; with `extra`, a key and its value as two levels."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """A number that can increase and decrease."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        """A value obtained by calling `obj` whenever metrics are reported."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Events, reported as a rate over the last `time_span_in_seconds`."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Numbers, reported as count, sum, minimum and maximum."""


class Metric(ABC):  # noqa: B024 - PyFlink's base class; its subclasses have the methods
    """The base class of metrics."""


class Counter(Metric, ABC):
    """A number that can increase and decrease."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Adds `n`."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtracts `n`."""

    @abstractmethod
    def get_count(self) -> int:
        """The count in this task so far."""


class Meter(Metric, ABC):
    """Events over time."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Records `value` events."""

    @abstractmethod
    def get_count(self) -> int:
        """The events in this task so far."""


class Distribution(Metric, ABC):
    """Numbers reported in summary."""

    @abstractmethod
    def update(self, value: float) -> None:
        """Records a number."""


class Gauge(Metric, ABC):
    """A value obtained on demand."""

    @abstractmethod
    def get_value(self) -> Any:
        """The current value."""
