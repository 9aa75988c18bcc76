"""Windows, a record at a time: the slow reference for the operator.

Every window is a list of its records; all state is in dictionaries, nothing is stored, merged or read in bulk. Merging
windows are found by scanning all windows of the key. Firing, dropping and cleanup follow the rules of Flink's
documentation, record by record. Assigners, triggers and evictors are the program's: they are pure, and have tests of
their own.

The input is a list of epochs; within an epoch the watermark stays at its value at the end of the previous epoch.
Processing-time timers fire when the clock has passed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.records.timestamped_value import TimestampedValue
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK

__all__ = ["Epoch", "Fired", "WindowReference"]


@dataclass(frozen=True)
class Epoch:
    """Records (key, value, timestamp), the clock at their arrival, and the watermark after them."""

    records: Sequence[tuple[Any, Any, int]]
    watermark: int
    now_ms: int = 0


@dataclass(frozen=True)
class Fired:
    """A window that fired with these values, in this epoch (the first is 0)."""

    epoch: int
    key: Any
    window: Any
    values: tuple[Any, ...]


@dataclass
class WindowReference:
    """A window operator of one subtask. `fired` and `late` collect the results of the epochs run so far."""

    assigner: Any
    trigger: Any
    evictor: Any = None
    allowed_lateness_ms: int = 0
    merges: bool = False
    fired: list[Fired] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._contents: dict[tuple[Any, Any], list[TimestampedValue]] = {}
        self._trigger_states: dict[tuple[Any, Any, str], Any] = {}
        self._timers: set[tuple[str, int, Any, Any]] = set()
        self._epoch = -1
        self._watermark, self._now_ms = MIN_WATERMARK, 0

    def run(self, epochs: Sequence[Epoch]) -> WindowReference:
        """Run all epochs in order."""
        for epoch in epochs:
            self._epoch += 1
            self._now_ms = epoch.now_ms
            self._fire_timers("processing", epoch.now_ms - 1)
            for key, value, timestamp in epoch.records:
                self._take(key, value, timestamp)
            self._fire_timers("processing", epoch.now_ms - 1)
            self._watermark = max(self._watermark, epoch.watermark)
            self._fire_timers("event", self._watermark)
        return self

    def _take(self, key: Any, value: Any, timestamp: int) -> None:
        has_window = False
        for assigned in self.assigner.assign_windows(value, timestamp, self):
            window = self._merged(key, assigned) if self.merges else assigned
            if self._is_expired(window):
                self._contents.pop((key, window), None)
                continue
            has_window = True
            self._contents.setdefault((key, window), []).append(TimestampedValue(value, timestamp))
            if self._cleanup_time(window) < MAX_WATERMARK:
                self._timers.add((self._domain(), self._cleanup_time(window), key, window))
            self._apply_trigger_result(
                self.trigger.on_element(value, timestamp, window, _Context(self, key, window)), key, window
            )
        if not has_window and self.assigner.is_event_time() and timestamp + self.allowed_lateness_ms <= self._watermark:
            self.late.append(value)

    def _merged(self, key: Any, window: Any) -> Any:
        """The window that covers `window` and all windows of the key that intersect it, transitively."""
        parts: list[Any] = []
        while True:
            others = (other for k, other in self._contents if k == key and other not in parts)
            near = [other for other in others if other.intersects(window)]
            if not near:
                break
            parts += near
            for other in near:
                window = window.cover(other)
        if parts and parts != [window]:
            parts.sort(key=lambda part: part.start)
            self.trigger.on_merge(window, _Context(self, key, window, parts))
            for part in parts:
                self.trigger.clear(part, _Context(self, key, part))
                self._timers.discard((self._domain(), self._cleanup_time(part), key, part))
            contents = [element for part in parts for element in self._contents.pop((key, part))]
            self._contents[key, window] = contents
        return window

    def _domain(self) -> str:
        return "event" if self.assigner.is_event_time() else "processing"

    def _cleanup_time(self, window: Any) -> int:
        lateness = self.allowed_lateness_ms if self.assigner.is_event_time() else 0
        last: int = window.max_timestamp() + lateness
        return min(last, MAX_WATERMARK)

    def _is_expired(self, window: Any) -> bool:
        return bool(self.assigner.is_event_time()) and self._cleanup_time(window) <= self._watermark

    def _apply_trigger_result(self, result: Any, key: Any, window: Any) -> None:
        elements = self._contents.get((key, window), [])
        if result.is_fire() and elements:
            if self.evictor is not None:
                self.evictor.evict_before(elements, len(elements), window, self)
            self.fired.append(Fired(self._epoch, key, window, tuple(element.value for element in elements)))
            if self.evictor is not None:
                self.evictor.evict_after(elements, len(elements), window, self)
        if result.is_purge():
            elements.clear()

    def _fire_timers(self, domain: str, through: int) -> None:
        while True:
            due = [timer for timer in self._timers if timer[0] == domain and timer[1] <= through]
            if not due:
                return
            timer = min(due, key=lambda timer: timer[1])
            self._timers.discard(timer)
            _, time, key, window = timer
            if (key, window) not in self._contents:
                continue  # a timer of a window that was deleted or merged into another
            context = _Context(self, key, window)
            on_time = self.trigger.on_event_time if domain == "event" else self.trigger.on_processing_time
            self._apply_trigger_result(on_time(time, window, context), key, window)
            if domain == self._domain() and time == self._cleanup_time(window):
                self.trigger.clear(window, context)
                del self._contents[key, window]

    # The context methods for assigners and evictors.

    def get_current_processing_time(self) -> int:
        """The clock of the epoch."""
        return self._now_ms

    def get_current_watermark(self) -> int:
        """The current watermark."""
        return self._watermark


class _Context:
    """The context of a trigger, for one key and window."""

    def __init__(self, reference: WindowReference, key: Any, window: Any, merged: Sequence[Any] = ()) -> None:
        self._reference, self._key, self._window, self._merged = reference, key, window, merged

    def get_current_processing_time(self) -> int:
        return self._reference._now_ms

    def get_current_watermark(self) -> int:
        return self._reference._watermark

    def register_event_time_timer(self, time: int) -> None:
        self._reference._timers.add(("event", time, self._key, self._window))

    def register_processing_time_timer(self, time: int) -> None:
        self._reference._timers.add(("processing", time, self._key, self._window))

    def delete_event_time_timer(self, time: int) -> None:
        self._reference._timers.discard(("event", time, self._key, self._window))

    def delete_processing_time_timer(self, time: int) -> None:
        self._reference._timers.discard(("processing", time, self._key, self._window))

    def get_partitioned_state(self, descriptor: Any) -> _State:
        return _State(self._reference._trigger_states, (self._key, self._window, descriptor.get_name()), descriptor)

    def merge_partitioned_state(self, descriptor: Any) -> None:
        target = self.get_partitioned_state(descriptor)
        for part in self._merged:
            source = _Context(self._reference, self._key, part).get_partitioned_state(descriptor)
            value = source.value()
            if value is not None and part != self._window:
                source.clear()
                target.add(value)


class _State:
    """A value or a reduced value, in a dictionary."""

    def __init__(self, values: dict[Any, Any], place: Any, descriptor: Any) -> None:
        self._values, self._place, self._descriptor = values, place, descriptor

    def value(self) -> Any:
        return self._values.get(self._place)

    get = value

    def update(self, value: Any) -> None:
        self._values[self._place] = value

    def add(self, value: Any) -> None:
        before = self.value()
        reduce = self._descriptor.get_reduce_function().reduce
        self.update(value if before is None else reduce(before, value))

    def clear(self) -> None:
        self._values.pop(self._place, None)
