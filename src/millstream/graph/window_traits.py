"""Traits of window assigners, triggers and functions that the engine uses without calling them.

A program describes its windows by objects that are called for every record. If an object's behaviour is known in
advance, the engine can compute the same results faster. The base classes here declare such behaviour; the classes of
`datastream.window` derive from them.

A program's subclass of one of these may behave differently. Traits therefore apply only to direct instances of classes
marked with `as_described`; nothing is assumed about others.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import Any, TypeVar

from millstream.state.windows.pane_windows import PaneWindows

__all__ = [
    "EndlessAssigner",
    "FiringRule",
    "FixedTimeAssigner",
    "MergingAssigner",
    "PassThrough",
    "TimedTrigger",
    "as_described",
    "fires_at_its_end",
    "firing_rule",
    "fixed_windows",
    "is_plain_trigger",
    "passes_through",
]

Described = TypeVar("Described", bound=type)


def as_described(kind: Described) -> Described:
    """Marks a class whose instances behave as their traits declare. Derived classes do not inherit the mark."""
    kind._described = kind  # type: ignore[attr-defined]
    return kind


def _is_described(instance: Any) -> bool:
    return getattr(instance, "_described", None) is type(instance)


# --- assigners --------------------------------------------------------------------------------------------------------


class FixedTimeAssigner:
    """An assigner of windows over fixed intervals of time."""

    window_type: type[Any]  # the class of windows passed to functions, constructed from start and end

    @abstractmethod
    def panes(self, lateness_ms: int) -> PaneWindows:
        """The assigner's windows as panes, with this allowed lateness."""


class EndlessAssigner:
    """An assigner of windows without an end: the timestamp of their results is the maximum timestamp, not an event
    time. Also applies to derived classes."""


class MergingAssigner:
    """An assigner whose windows can merge. Also applies to derived classes."""


def fixed_windows(assigner: Any, lateness_ms: int) -> PaneWindows | None:
    """The windows of an assigner as panes; None if the program defines it, or its windows depend on more than a
    record's time."""
    return assigner.panes(lateness_ms) if isinstance(assigner, FixedTimeAssigner) and _is_described(assigner) else None


# --- triggers ---------------------------------------------------------------------------------------------------------


class FiringRule(Enum):
    """What makes an open window fire."""

    UNKNOWN = "unknown"  # a record may cause it to fire
    BY_TIME = "by time"  # never because of a record
    AT_ITS_END = "at its end"  # a record only sets a timer for the end


class TimedTrigger:
    """A trigger that depends only on time. `follows_event_time` applies if it fires at the end of its window."""

    fires = FiringRule.BY_TIME
    follows_event_time = False
    wraps: Any = None  # the wrapped trigger, whose firings it changes


def firing_rule(trigger: Any) -> FiringRule:
    """When windows with this trigger fire."""
    timed = _timed(trigger)
    return FiringRule.UNKNOWN if timed is None else timed.fires


def is_plain_trigger(trigger: Any, is_event_time: bool) -> bool:
    """Whether a trigger fires windows only at their end, in event time or processing time as requested."""
    timed = _timed(trigger)
    if timed is None or timed is not trigger:
        return False
    return timed.fires is FiringRule.AT_ITS_END and timed.follows_event_time == is_event_time


def fires_at_its_end(assigner: Any, trigger: Any) -> bool:
    """Whether windows fire only at their end, in the assigner's own time, and again for late records."""
    timed = _timed(trigger)
    return timed is not None and is_plain_trigger(timed, assigner.is_event_time())


def _timed(trigger: Any) -> TimedTrigger | None:
    """The trigger that determines when windows fire, possibly a wrapped one; None if unknown."""
    if not isinstance(trigger, TimedTrigger) or not _is_described(trigger):
        return None
    return trigger if trigger.wraps is None else _timed(trigger.wraps)


# --- functions --------------------------------------------------------------------------------------------------------


class PassThrough:
    """A window function that emits its input unchanged."""


def passes_through(function: Any) -> bool:
    """Whether a window function, in the adapter that calls it, emits the window's value unchanged."""
    inner = getattr(function, "_wrapped_function", None)
    return isinstance(inner, PassThrough) and _is_described(inner)
