"""Intervals, parts of times, and time attributes on an `Expression`.

`lit(5).minutes` is the SQL literal INTERVAL '5' MINUTE; on a column it is the product with an interval of one unit.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from millstream.expressions.types import DateType, TimestampType, TimeType
from millstream.graph.site import refuse
from millstream.sql.syntax import Call, Cast, Interval, Literal
from millstream.table.expression_methods.syntax_holder import SyntaxHolder
from millstream.table.expression_methods.units import TimeIntervalUnit

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["TimeMethods"]


class TimeMethods(SyntaxHolder):
    """Times and intervals."""

    @property
    def to_date(self) -> Expression[Any]:
        """Parses a date as yyyy-MM-dd."""
        return self._made(Cast(self._node, DateType()))

    @property
    def to_time(self) -> Expression[Any]:
        """Parses a time of day as HH:mm:ss."""
        return self._made(Cast(self._node, TimeType(0)))

    @property
    def to_timestamp(self) -> Expression[Any]:
        """Parses a timestamp as yyyy-MM-dd HH:mm:ss."""
        return self._made(Cast(self._node, TimestampType(3)))

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Expression[Any]:
        """A field of a timestamp: the year, the hour, …"""
        return self._call("EXTRACT", unit=_unit("extract", time_interval_unit))

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Expression[Any]:
        """Rounds down to an integer; a timestamp to the start of its day, hour, …"""
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Expression[Any]:
        """Rounds up to an integer; a timestamp to the end of its day, hour, …"""
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, function: str, unit: TimeIntervalUnit | None) -> Expression[Any]:
        return self._call(function) if unit is None else self._call(function, unit=_unit(function.lower(), unit))

    @property
    def rowtime(self) -> Expression[Any]:
        """The column as event time, when converting a stream to a table."""
        return self._call("ROWTIME")

    @property
    def proctime(self) -> Expression[Any]:
        """The column as processing time, when converting a stream to a table."""
        return self._call("PROCTIME")

    def _interval(self, unit: str, times: int = 1) -> Expression[Any]:
        """An interval of a number of units: a literal, or the product with a column."""
        node = self._node
        if isinstance(node, Literal) and isinstance(node.value, int | Decimal) and not isinstance(node.value, bool):
            count = node.value * times
            return self._made(Interval(str(abs(count)), unit, negative=count < 0))
        return self._made(Call("*", (node, Interval(str(times), unit))))

    @property
    def year(self) -> Expression[Any]:
        """An interval of years."""
        return self._interval("YEAR")

    @property
    def quarter(self) -> Expression[Any]:
        """An interval of quarters."""
        return self._interval("MONTH", 3)

    @property
    def month(self) -> Expression[Any]:
        """An interval of months."""
        return self._interval("MONTH")

    @property
    def week(self) -> Expression[Any]:
        """An interval of weeks."""
        return self._interval("DAY", 7)

    @property
    def day(self) -> Expression[Any]:
        """An interval of days."""
        return self._interval("DAY")

    @property
    def hour(self) -> Expression[Any]:
        """An interval of hours."""
        return self._interval("HOUR")

    @property
    def minute(self) -> Expression[Any]:
        """An interval of minutes."""
        return self._interval("MINUTE")

    @property
    def second(self) -> Expression[Any]:
        """An interval of seconds."""
        return self._interval("SECOND")

    @property
    def milli(self) -> Expression[Any]:
        """An interval of milliseconds."""
        node = self._node
        if isinstance(node, Literal) and isinstance(node.value, int) and not isinstance(node.value, bool):
            seconds, millis = divmod(abs(node.value), 1000)
            return self._made(Interval(f"{seconds}.{millis:03d}", "SECOND", negative=node.value < 0))
        return self._made(Call("*", (node, Interval("0.001", "SECOND"))))

    years, quarters, months, weeks, days = year, quarter, month, week, day
    hours, minutes, seconds, millis = hour, minute, second, milli


def _unit(method: str, unit: Any) -> str:
    if not isinstance(unit, TimeIntervalUnit):
        raise refuse(f"{method}: found {unit!r} as the unit, expected one of TimeIntervalUnit, as TimeIntervalUnit.DAY")
    return unit.name
