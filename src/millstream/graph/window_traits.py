"""What the engine may know of assigners, triggers and functions of windows without calling them.

A program describes its windows by objects that are called for every record. Where it is known beforehand what such an
object would do, there are faster ways to the same results. The base classes here let it say so: they are to the engine
what the classes of `datastream.window` are to programs.

A class derived from one of ours may do otherwise. So only instances of just those classes that are marked with
`as_described` are taken at their word; of all others nothing is known.
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
    """Mark a class whose instances do what its traits say. The mark does not pass on to derived classes."""
    kind._described = kind  # type: ignore[attr-defined]
    return kind


def _is_described(instance: Any) -> bool:
    return getattr(instance, "_described", None) is type(instance)


# --- assigners --------------------------------------------------------------------------------------------------------


class FixedTimeAssigner:
    """An assigner whose windows are stretches of time that are known beforehand."""

    window_type: type[Any]  # what a window is to functions: made of its start and its end

    @abstractmethod
    def panes(self, lateness_ms: int) -> PaneWindows:
        """Its windows, which take late records for so long."""


class EndlessAssigner:
    """An assigner whose windows end with time itself: that is the timestamp of their results, and no time of an event.
    Derived classes are such, too."""


class MergingAssigner:
    """An assigner whose windows can become one. Derived classes are such, too."""


def fixed_windows(assigner: Any, lateness_ms: int) -> PaneWindows | None:
    """The windows of an assigner as panes; None where it is one of the program's own, or its windows depend on more
    than a record's time."""
    return assigner.panes(lateness_ms) if isinstance(assigner, FixedTimeAssigner) and _is_described(assigner) else None


# --- triggers ---------------------------------------------------------------------------------------------------------


class FiringRule(Enum):
    """When a window that is still open fires."""

    UNKNOWN = "unknown"  # a record alone may make it fire
    BY_TIME = "by time"  # never for a record alone
    AT_ITS_END = "at its end"  # and all that a record does is to set a timer for that


class TimedTrigger:
    """A trigger that follows a clock. `follows_event_time` matters where it fires at the end of its window."""

    fires = FiringRule.BY_TIME
    follows_event_time = False
    wraps: Any = None  # the trigger whose firings it changes


def firing_rule(trigger: Any) -> FiringRule:
    """When windows with this trigger fire."""
    timed = _timed(trigger)
    return FiringRule.UNKNOWN if timed is None else timed.fires


def is_plain_trigger(trigger: Any, is_event_time: bool) -> bool:
    """Whether a trigger fires windows at their end, by event time or by the clock, and does nothing else."""
    timed = _timed(trigger)
    if timed is None or timed is not trigger:
        return False
    return timed.fires is FiringRule.AT_ITS_END and timed.follows_event_time == is_event_time


def fires_at_its_end(assigner: Any, trigger: Any) -> bool:
    """Whether windows fire when they are over, in the assigner's own time, and for no other reason but late records."""
    timed = _timed(trigger)
    return timed is not None and is_plain_trigger(timed, assigner.is_event_time())


def _timed(trigger: Any) -> TimedTrigger | None:
    """The trigger that says when windows fire, itself or inside another; None where that is not known."""
    if not isinstance(trigger, TimedTrigger) or not _is_described(trigger):
        return None
    return trigger if trigger.wraps is None else _timed(trigger.wraps)


# --- functions --------------------------------------------------------------------------------------------------------


class PassThrough:
    """A window function that gives out what it gets."""


def passes_through(function: Any) -> bool:
    """Whether a window function, in the adapter that calls it, gives out the window's value as it is."""
    inner = getattr(function, "_wrapped_function", None)
    return isinstance(inner, PassThrough) and _is_described(inner)
