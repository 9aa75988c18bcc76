"""Durations and instants, exact to the nanosecond and independent of any clock.

`Duration` is a length of time, `Instant` a point on the UTC time line, `Time` Flink's older length in milliseconds.
Parameters for a Duration also accept a `datetime.timedelta` or a `Time`: only `duration_ms` and `as_duration` convert
them. Nothing here reads the time of day.
"""

from __future__ import annotations

from datetime import timedelta
from functools import total_ordering
from numbers import Integral
from typing import Any, TypeAlias

from millstream.errors import NotAvailableError, ProgramError, TypeMismatchError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["LENGTH_MAX_MS", "Duration", "Instant", "Time"]

_NANOS_PER_MILLI = 1_000_000
_NANOS_PER_SECOND = 1_000_000_000


def _whole(method: str, number: int) -> int:
    """The number, if it is an int: a string would be repeated instead of multiplied."""
    if isinstance(number, Integral) and not isinstance(number, bool):
        return int(number)
    raise ProgramError(
        f"{method}: found {number!r} ({type(number).__name__}), expected a whole number. For less, use a smaller unit"
    )


@total_ordering
class Duration:
    """A length of time.

    >>> Duration.of_seconds(90) == Duration.of_minutes(1) + Duration.of_seconds(30)
    True
    >>> Duration.of_seconds(2).to_millis()
    2000
    """

    __slots__ = ("_nanos",)

    def __init__(self, j_duration: Any = None) -> None:
        if j_duration is not None:
            raise NotAvailableError("Duration(j_duration) wraps a Java object. Use Duration.of_seconds(...) and such.")
        self._nanos = 0

    @staticmethod
    def of_days(days: int) -> Duration:
        """A duration of whole days."""
        return _duration(_whole("Duration.of_days", days) * 86_400 * _NANOS_PER_SECOND)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """A duration of hours."""
        return _duration(_whole("Duration.of_hours", hours) * 3_600 * _NANOS_PER_SECOND)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """A duration of milliseconds."""
        return _duration(_whole("Duration.of_millis", millis) * _NANOS_PER_MILLI)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """A duration of minutes."""
        return _duration(_whole("Duration.of_minutes", minutes) * 60 * _NANOS_PER_SECOND)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """A duration of nanoseconds."""
        return _duration(_whole("Duration.of_nanos", nanos))

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """A duration of seconds."""
        return _duration(_whole("Duration.of_seconds", seconds) * _NANOS_PER_SECOND)

    def to_nanos(self) -> int:
        """The length in nanoseconds."""
        return self._nanos

    def to_millis(self) -> int:
        """The length in whole milliseconds, rounded down."""
        return self._nanos // _NANOS_PER_MILLI

    def __eq__(self, other: object) -> bool:
        return self._nanos == other._nanos if isinstance(other, Duration) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._nanos < other._nanos if isinstance(other, Duration) else NotImplemented

    def __add__(self, other: DurationLike) -> Duration:
        return _duration(self._nanos + as_duration(other)._nanos)

    def __sub__(self, other: DurationLike) -> Duration:
        return _duration(self._nanos - as_duration(other)._nanos)

    def __mul__(self, factor: int) -> Duration:
        return _duration(self._nanos * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Duration:
        return _duration(self._nanos // divisor)

    def __neg__(self) -> Duration:
        return _duration(-self._nanos)

    def __bool__(self) -> bool:
        return self._nanos != 0

    def __hash__(self) -> int:
        return hash((Duration, self._nanos))

    def __repr__(self) -> str:
        if self._nanos % _NANOS_PER_MILLI:
            return f"Duration.of_nanos({self._nanos})"
        return f"Duration.of_millis({self.to_millis()})"


def _duration(nanos: int) -> Duration:
    if isinstance(nanos, bool) or not isinstance(nanos, int):
        raise ProgramError(f"a Duration is made of whole numbers, found a {type(nanos).__name__}. Use a smaller unit.")
    duration = Duration()
    duration._nanos = nanos
    return duration


@total_ordering
class Instant:
    """A point on the UTC time line: whole seconds since 1970 and the nanoseconds after them.

    >>> Instant.of_epoch_milli(-1)
    Instant<-1, 999000000>
    >>> Instant.of_epoch_milli(1500).to_epoch_milli()
    1500
    """

    __slots__ = ("nanos", "seconds")

    def __init__(self, seconds: int, nanos: int) -> None:
        if not 0 <= nanos < _NANOS_PER_SECOND:
            raise ProgramError(
                f"an Instant has 0 to 999999999 nanoseconds after its second, found {nanos}. "
                "Carry the rest into seconds."
            )
        self.seconds = seconds
        self.nanos = nanos

    def to_epoch_milli(self) -> int:
        """Milliseconds since 1970, rounded down."""
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MILLI

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """The instant `epoch_milli` milliseconds after 1970."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instant):
            return NotImplemented
        return self.seconds == other.seconds and self.nanos == other.nanos

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Instant):
            return NotImplemented
        return (self.seconds, self.nanos) < (other.seconds, other.nanos)

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanos))

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


class Time:
    """Flink's older length of time, in milliseconds.

    >>> Time.minutes(2).to_milliseconds()
    120000
    """

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = _whole("Time.milliseconds", milliseconds)

    def to_milliseconds(self) -> int:
        """The length in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """A length in milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """A length in seconds."""
        return Time(_whole("Time.seconds", seconds) * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """A length in minutes."""
        return Time(_whole("Time.minutes", minutes) * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """A length in hours."""
        return Time(_whole("Time.hours", hours) * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """A length in days."""
        return Time(_whole("Time.days", days) * 86_400_000)

    def __eq__(self, other: object) -> bool:
        return self._milliseconds == other._milliseconds if isinstance(other, Time) else NotImplemented

    def __hash__(self) -> int:
        return hash((Time, self._milliseconds))

    def __repr__(self) -> str:
        return f"Time.milliseconds({self._milliseconds})"


DurationLike: TypeAlias = Duration | Time | timedelta
"""The types accepted as a length of time."""


def as_duration(length: DurationLike) -> Duration:
    """The same length as a Duration.

    >>> as_duration(timedelta(seconds=1)) == as_duration(Time.seconds(1)) == Duration.of_seconds(1)
    True
    """
    if isinstance(length, Duration):
        return length
    if isinstance(length, Time):
        return Duration.of_millis(length.to_milliseconds())
    if isinstance(length, timedelta):
        return _duration((length // timedelta(microseconds=1)) * 1000)
    raise TypeMismatchError(
        f"expected a length of time, found {length!r} ({type(length).__name__}). "
        "Use Duration.of_seconds(...), Duration.of_millis(...) or a datetime.timedelta."
    )


_DAY_MS = 86_400_000

LENGTH_MAX_MS = 2**60
"""The longest accepted length of time: an event time and several of them added still fit 64 bits."""


def duration_ms(length: DurationLike) -> int:
    """The length in whole milliseconds.

    >>> duration_ms(timedelta(seconds=1.5))
    1500
    """
    length_ms = as_duration(length).to_millis()
    if not -LENGTH_MAX_MS <= length_ms <= LENGTH_MAX_MS:
        days, days_max = length_ms // _DAY_MS, LENGTH_MAX_MS // _DAY_MS
        raise ProgramError(f"found a length of time of {days:,} days, expected at most {days_max:,} days")
    return length_ms


def waiting_s(length_s: float) -> float:
    """The seconds that a thread waits. A time that means "never" (such as Java's longest) becomes a century.

    >>> waiting_s(0.5), waiting_s((2**63 - 1) / 1000)
    (0.5, 3155760000.0)
    """
    return min(length_s, 100 * 365.25 * 86_400)


add_pyflink_names(globals())
