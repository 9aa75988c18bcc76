"""What a program said about windows before it said what to do with them: the settings of a windowed stream.

Plain data, filled in by `trigger`, `evictor`, `allowed_lateness` and `side_output_late_data`. None means that the
program did not say: the assigner's own trigger, no evictor, late records dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.datastream.output_tag import OutputTag
from millstream.datastream.window.assigners import WindowAssigner
from millstream.datastream.window.evictors import Evictor
from millstream.datastream.window.triggers import Trigger

__all__ = ["Windowing"]


@dataclass(frozen=True)
class Windowing:
    """Which windows, when they fire, what is left out of them, and how long they wait for late records."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any] | None = None
    evictor: Evictor[Any, Any] | None = None
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
