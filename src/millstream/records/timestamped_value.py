"""A record of a window with its event time, as evictors see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.errors import ProgramError

__all__ = ["TimestampedValue"]


@dataclass(frozen=True, slots=True)
class TimestampedValue:
    """A value and its timestamp in ms, or None.

    >>> TimestampedValue("a", 5).get_timestamp(), TimestampedValue("b", None).has_timestamp()
    (5, False)
    """

    value: Any
    timestamp: int | None = None

    def get_value(self) -> Any:
        """The record."""
        return self.value

    def get_timestamp(self) -> int:
        """Its event time; an error if it has none."""
        if self.timestamp is None:
            raise ProgramError(
                f"the record {self.value!r} has no timestamp. Check has_timestamp() first, or assign timestamps "
                "with assign_timestamps_and_watermarks()"
            )
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Whether it has an event time."""
        return self.timestamp is not None
