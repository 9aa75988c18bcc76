"""Windows as values: their bounds, their end, and the merging of overlapping windows.

A time window covers `[start, end)` in ms, and its last instant is `end - 1`. Windows are compared by value, so two
tasks that create the same window agree. The serializers write them as PyFlink does, big-endian.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import IO, Any

from millstream.common.serializer import TypeSerializer

__all__ = [
    "MAX_LONG_VALUE",
    "CountWindow",
    "CountWindowSerializer",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "TimeWindow",
    "TimeWindowSerializer",
    "Window",
    "long_to_int_with_bit_mixing",
    "mod_inverse",
]

MAX_LONG_VALUE = 2**63 - 1

_INT_MASK = 2**32 - 1
_LONG_MASK = 2**64 - 1


def long_to_int_with_bit_mixing(x: int) -> int:
    """Hashes a 64-bit number to a signed 32-bit number, so that nearby windows have distant hashes.

    >>> long_to_int_with_bit_mixing(0), long_to_int_with_bit_mixing(1) != long_to_int_with_bit_mixing(2)
    (0, True)
    """
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _LONG_MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _LONG_MASK
    x ^= x >> 31
    low = x & _INT_MASK
    return low - 2**32 if low >= 2**31 else low


def mod_inverse(x: int) -> int:
    """The multiplicative inverse of an odd number modulo 2**32.

    >>> mod_inverse(3) * 3 % 2**32
    1
    """
    return pow(x, -1, 2**32)


class Window(ABC):
    """A finite or infinite group of records."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """The last instant that belongs to the window, in ms."""


class TimeWindow(Window):
    """The window from `start` up to, not including, `end`.

    >>> morning, noon = TimeWindow(0, 10), TimeWindow(10, 20)
    >>> morning.max_timestamp(), morning.intersects(noon), morning.cover(noon)
    (9, True, TimeWindow(start=0, end=20))
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether both windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that covers both windows."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the window of `window_size`, shifted by `offset`, that contains `timestamp`.

        >>> [TimeWindow.get_window_start_with_offset(t, 0, 10) for t in (-1, 0, 9, 10)]
        [-10, 0, 0, 10]
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: Any) -> None:
        """Calls `callback.merge(merged, result)` for every group of windows that overlap or touch."""
        groups: list[tuple[TimeWindow, list[TimeWindow]]] = []
        for window in sorted(windows, key=lambda w: w.start):
            if groups and groups[-1][0].intersects(window):
                covered, members = groups[-1]
                groups[-1] = (covered.cover(window), [*members, window])
            else:
                groups.append((window, [window]))
        for covered, members in groups:
            if len(members) > 1:
                callback.merge(members, covered)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and (self.start, self.end) == (other.start, other.end)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) < (other.start, other.end)

    def __le__(self, other: object) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) <= (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """A window with an id, which ends after a number of records."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        return MAX_LONG_VALUE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The single window that contains everything.

    >>> GlobalWindow.get() == GlobalWindow()
    True
    """

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """The window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return MAX_LONG_VALUE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "GlobalWindow"


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Serialises a window as two 64-bit numbers: start and end.

    >>> from io import BytesIO
    >>> stream = BytesIO()
    >>> TimeWindowSerializer().serialize(TimeWindow(1, 2), stream)
    >>> TimeWindowSerializer().deserialize(BytesIO(stream.getvalue()))
    TimeWindow(start=1, end=2)
    """

    def serialize(self, element: TimeWindow, stream: IO[bytes]) -> None:
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: IO[bytes]) -> TimeWindow:
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Serialises a window as one 64-bit number: its id."""

    def serialize(self, element: CountWindow, stream: IO[bytes]) -> None:
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: IO[bytes]) -> CountWindow:
        return CountWindow(*struct.unpack(">q", stream.read(8)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Serialises the window as one zero byte, because only one such window exists."""

    def serialize(self, element: GlobalWindow, stream: IO[bytes]) -> None:
        stream.write(b"\0")

    def deserialize(self, stream: IO[bytes]) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow.get()
