"""Watermark strategies: plain data that define how event time is read from records.

A strategy is immutable; every `with_...` returns a new one. The runtime reads `timestamp_assigner` (None: keep the
records' timestamps), `kind`, `max_out_of_orderness_ms` (None: no watermarks of that kind), `generator_factory`,
`idle_timeout_ms` and `alignment`. Nothing here reads a clock or records.
"""

from __future__ import annotations

import copy
import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.common.time import Duration, DurationLike, duration_ms
from millstream.common.utils import arguments_misfit, refuse_java
from millstream.errors import ProgramError
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "FieldTimestamps",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkKind",
    "WatermarkOutput",
    "WatermarkStrategy",
]


class TimestampAssigner(ABC):
    """Reads a record's event time.

    >>> class ByField(TimestampAssigner):
    ...     def extract_timestamp(self, value, record_timestamp):
    ...         return value[1]
    """

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Milliseconds since 1970 of this record; `record_timestamp` is its previous timestamp."""


class _CallableAssigner(TimestampAssigner):
    """A plain function used as an assigner."""

    def __init__(self, function: Callable[[Any, int], int]) -> None:
        self._function = function

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return self._function(value, record_timestamp)


class FieldTimestamps(TimestampAssigner):
    """The event time is a field of the record: milliseconds since 1970, or a datetime (without a zone: UTC).

    In a typed stream the field is a column, and the times of a whole batch are read without a call per record.

    >>> FieldTimestamps(1).extract_timestamp(("click", 1_700_000_000_000), 0)
    1700000000000
    """

    def __init__(self, field: int | str) -> None:
        self.field = field

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        try:
            moment = value[self.field]
        except (TypeError, KeyError, IndexError, ValueError) as error:
            raise ProgramError(
                f"with_timestamp_assigner({self.field!r}): the record {value!r} ({type(value).__name__}) has no such "
                "field. Pass a function of (value, timestamp), or map the records to rows or tuples first"
            ) from error
        if not isinstance(moment, datetime.datetime):
            return moment  # type: ignore[no-any-return] # the caller rejects anything but an int
        in_utc = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return (in_utc - _EPOCH) // _MILLISECOND

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldTimestamps) and self.field == other.field

    def __hash__(self) -> int:
        return hash(self.field)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


class WatermarkKind(Enum):
    """How watermarks are derived from timestamps."""

    NONE = "none"
    MONOTONOUS = "monotonous timestamps"
    BOUNDED = "bounded out-of-orderness"
    CUSTOM = "a generator of the program"


class WatermarkOutput(ABC):
    """Receives the progress of event time from a `WatermarkGenerator`."""

    @abstractmethod
    def emit_watermark(self, timestamp_ms: int) -> None:
        """No record at or before `timestamp_ms` is expected any more. A smaller one than the previous has no effect."""

    @abstractmethod
    def mark_idle(self) -> None:
        """This input does not hold the others back until it emits a watermark or is marked active."""

    @abstractmethod
    def mark_active(self) -> None:
        """This input counts again."""


class WatermarkGenerator(ABC):
    """Watermarks by the program's own rule, as in Flink's Java API. One generator serves one split or one subtask.

    >>> class EndOfHour(WatermarkGenerator):
    ...     def __init__(self):
    ...         self.hour_ms = 0
    ...     def on_event(self, value, timestamp, output):
    ...         self.hour_ms = max(self.hour_ms, timestamp // 3_600_000 * 3_600_000)
    ...     def on_periodic_emit(self, output):
    ...         output.emit_watermark(self.hour_ms - 1)
    >>> WatermarkStrategy.for_generator(EndOfHour)
    <WatermarkStrategy: a generator of the program>

    A generator's state is stored in the manifest and restored in the next epoch, which may run in another process. By
    default it consists of the attributes, which must then be JSON values. Override `snapshot` and `restore` for others.
    """

    @abstractmethod
    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        """Called for every record."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called at the end of every epoch in which the split was read (of every epoch, in the middle of the
        stream)."""

    def snapshot(self) -> Any:
        """The state to store, as a JSON value."""
        return dict(getattr(self, "__dict__", {}))

    def restore(self, state: Any) -> None:
        """Restore the result of `snapshot`."""
        vars(self).update(state)


@dataclass(frozen=True)
class WatermarkAlignment:
    """The maximum by which sources of one group may run ahead of one another."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


class WatermarkStrategy:
    """How timestamps and watermarks arise.

    >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    >>> strategy.max_out_of_orderness_ms, strategy.timestamp_assigner
    (5000, None)
    >>> strategy.with_idleness(Duration.of_minutes(1)).idle_timeout_ms
    60000
    """

    def __init__(self, j_watermark_strategy: Any = None) -> None:
        refuse_java(
            j_watermark_strategy,
            "WatermarkStrategy(j_watermark_strategy)",
            "use WatermarkStrategy.for_monotonous_timestamps() or for_bounded_out_of_orderness(...)",
        )
        self._kind = WatermarkKind.NONE
        self._generator_factory: Callable[[], WatermarkGenerator] | None = None
        self._max_out_of_orderness_ms: int | None = None
        self._timestamp_assigner: TimestampAssigner | None = None
        self._idle_timeout_ms: int | None = None
        self._alignment: WatermarkAlignment | None = None

    @property
    def kind(self) -> WatermarkKind:
        """How watermarks are derived from timestamps."""
        return self._kind

    @property
    def generator_factory(self) -> Callable[[], WatermarkGenerator] | None:
        """The factory of the program's own generators; None for the built-in kinds."""
        return self._generator_factory

    @property
    def max_out_of_orderness_ms(self) -> int | None:
        """How late a record may be; 0 for monotonous timestamps, None without watermarks."""
        return self._max_out_of_orderness_ms

    @property
    def timestamp_assigner(self) -> TimestampAssigner | None:
        """The assigner of timestamps; None keeps the existing ones."""
        return self._timestamp_assigner

    @property
    def idle_timeout_ms(self) -> int | None:
        """The time without records after which an input no longer holds watermarks back; None: never."""
        return self._idle_timeout_ms

    @property
    def alignment(self) -> WatermarkAlignment | None:
        """The alignment group of this source, and its maximal drift; None: it is not aligned."""
        return self._alignment

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int] | int | str
    ) -> WatermarkStrategy:
        """The strategy with this timestamp assigner. A function of (value, timestamp) is accepted too, and so is the
        position or name of a field, which is the fastest: a column of times needs no call per record."""
        if isinstance(timestamp_assigner, str | int) and not isinstance(timestamp_assigner, bool):
            return self._changed(_timestamp_assigner=FieldTimestamps(timestamp_assigner))
        if isinstance(timestamp_assigner, type):
            name = timestamp_assigner.__name__
            raise ProgramError(
                f"with_timestamp_assigner: found the class {name}, expected a TimestampAssigner. Pass an instance: "
                f"{name}()"
            )
        if not hasattr(timestamp_assigner, "extract_timestamp"):
            if not callable(timestamp_assigner):
                raise ProgramError(
                    f"with_timestamp_assigner: found {timestamp_assigner!r}, expected a TimestampAssigner. Pass an "
                    "object with extract_timestamp(value, record_timestamp), or the name of a field"
                )
            timestamp_assigner = _CallableAssigner(timestamp_assigner)
        assigner: Any = timestamp_assigner
        _check_takes_two(assigner)
        return self._changed(_timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: DurationLike) -> WatermarkStrategy:
        """The strategy with an idle timeout: an input without records for that time no longer holds watermarks back."""
        return self._changed(_idle_timeout_ms=_positive_ms(idle_timeout, "idle_timeout"))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        """The strategy with alignment: a split that is ahead of the slowest of its group by more than the drift waits.

        Checked before every epoch, regardless of `update_interval`; as in Flink, it affects only sources.
        """
        alignment = WatermarkAlignment(
            watermark_group,
            _positive_ms(max_allowed_watermark_drift, "max_allowed_watermark_drift"),
            1000 if update_interval is None else _positive_ms(update_interval, "update_interval"),
        )
        return self._changed(_alignment=alignment)

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """For timestamps that never decrease within one input split."""
        return WatermarkStrategy()._changed(_kind=WatermarkKind.MONOTONOUS, _max_out_of_orderness_ms=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: DurationLike) -> WatermarkStrategy:
        """For records that arrive at most this much later than others with a higher timestamp."""
        delay_ms = duration_ms(max_out_of_orderness)
        if delay_ms < 0:
            raise ProgramError(f"max_out_of_orderness is {delay_ms} ms, expected 0 or more. Pass a positive Duration.")
        return WatermarkStrategy()._changed(_kind=WatermarkKind.BOUNDED, _max_out_of_orderness_ms=delay_ms)

    @staticmethod
    def for_generator(factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Watermarks by the program's own rule: `factory()`, often the class itself, makes a generator per input."""
        if isinstance(factory, WatermarkGenerator) or not callable(factory):
            raise ProgramError(
                f"for_generator got {factory!r}, expected a factory of WatermarkGenerators, because splits have their "
                "own. Pass the class, or a function without arguments."
            )
        return WatermarkStrategy()._changed(_kind=WatermarkKind.CUSTOM, _generator_factory=factory)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """No event time: nothing waits for it."""
        return WatermarkStrategy()

    def _changed(self, **parts: Any) -> WatermarkStrategy:
        changed = copy.copy(self)
        vars(changed).update(parts)
        return changed

    def _parts(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, WatermarkStrategy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        delay = f", {self._max_out_of_orderness_ms} ms" if self._kind is WatermarkKind.BOUNDED else ""
        return f"<WatermarkStrategy: {self._kind.value}{delay}>"


def _check_takes_two(assigner: TimestampAssigner) -> None:
    """Rejects an assigner that cannot be called with a value and its timestamp."""
    call = assigner._function if isinstance(assigner, _CallableAssigner) else assigner.extract_timestamp
    misfit = arguments_misfit(call, ["value", "record_timestamp"])
    if misfit is not None:
        raise ProgramError(f"with_timestamp_assigner: the function {misfit}")


def _positive_ms(length: DurationLike, name: str) -> int:
    length_ms = duration_ms(length)
    if length_ms <= 0:
        raise ProgramError(f"{name} is {length_ms} ms, expected more than 0. Pass a positive {Duration.__name__}.")
    return length_ms


class AssignerWithPeriodicWatermarksWrapper:
    """PyFlink's wrapper of a Java assigner, used by connectors written in Java; not available here."""

    def __init__(self, j_assigner_with_periodic_watermarks: Any = None) -> None:
        refuse_java(
            j_assigner_with_periodic_watermarks,
            "AssignerWithPeriodicWatermarksWrapper(j_assigner_with_periodic_watermarks)",
            "write a TimestampAssigner and use WatermarkStrategy.with_timestamp_assigner",
        )


add_pyflink_names(globals())
