"""The metrics a user function sees, under PyFlink's names. What stands behind them in a task is `registry`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]


class MetricGroup(ABC):
    """A scope of names. Asking twice for the same name gives the same metric."""

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group inside this one; with `extra`, a key and its value as two levels."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """A number that goes up and down."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        """A value looked up, by calling `obj`, whenever metrics are reported."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Events, shown as a rate over the last `time_span_in_seconds`."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Numbers, shown as their count, sum, smallest and largest."""


class Metric(ABC):  # noqa: B024 - PyFlink's name for the family; the members have the methods
    """Anything that is measured."""


class Counter(Metric, ABC):
    """A number that goes up and down."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Adds."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Takes away."""

    @abstractmethod
    def get_count(self) -> int:
        """The count in this task so far."""


class Meter(Metric, ABC):
    """Events over time."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Notes that `value` events happened."""

    @abstractmethod
    def get_count(self) -> int:
        """The events in this task so far."""


class Distribution(Metric, ABC):
    """Numbers of which only the shape matters."""

    @abstractmethod
    def update(self, value: float) -> None:
        """Adds a number."""


class Gauge(Metric, ABC):
    """A value looked up when it is asked for."""

    @abstractmethod
    def get_value(self) -> Any:
        """The value now."""
