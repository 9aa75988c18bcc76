"""Time functions of `expressions`."""

from __future__ import annotations

from typing import Any

from millstream.graph.site import refuse
from millstream.sql.syntax import RowValue
from millstream.table.expression import Expression, TimePointUnit
from millstream.table.expression_functions.calls import made_call
from millstream.table.expression_methods.syntax_holder import node_of

__all__ = [
    "convert_tz",
    "current_database",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_watermark",
    "date_format",
    "from_unixtime",
    "local_time",
    "local_timestamp",
    "source_watermark",
    "temporal_overlaps",
    "timestamp_diff",
    "to_date",
    "to_timestamp",
    "to_timestamp_ltz",
    "unix_timestamp",
]


def current_database() -> Expression[Any]:
    """The name of the current database."""
    return made_call("CURRENT_DATABASE")


def current_date() -> Expression[Any]:
    """The current date in the session's zone."""
    return made_call("CURRENT_DATE")


def current_time() -> Expression[Any]:
    """The current time of day in the session's zone."""
    return made_call("CURRENT_TIME")


def current_timestamp() -> Expression[Any]:
    """The current time, as an instant."""
    return made_call("CURRENT_TIMESTAMP")


def current_watermark(rowtimeAttribute: Any) -> Expression[Any]:
    """The current watermark of a time attribute; NULL before the first watermark."""
    return made_call("CURRENT_WATERMARK", rowtimeAttribute)


def local_time() -> Expression[Any]:
    """The current local time of day in the session's zone."""
    return made_call("LOCALTIME")


def local_timestamp() -> Expression[Any]:
    """The current local timestamp in the session's zone."""
    return made_call("LOCALTIMESTAMP")


def to_date(date_str: Any, format: Any = None) -> Expression[Any]:
    """Parses a date."""
    return made_call("TO_DATE", date_str, format)


def to_timestamp(timestamp_str: Any, format: Any = None) -> Expression[Any]:
    """Parses a local timestamp."""
    return made_call("TO_TIMESTAMP", timestamp_str, format)


def to_timestamp_ltz(*args: Any) -> Expression[Any]:
    """Converts a number of seconds (or units of another precision) since 1970, or a string, to an instant."""
    return made_call("TO_TIMESTAMP_LTZ", *args)


def temporal_overlaps(
    left_time_point: Any, left_temporal: Any, right_time_point: Any, right_temporal: Any
) -> Expression[Any]:
    """Whether two periods overlap; each is given by its start and its end or length."""
    left = RowValue((node_of(left_time_point), node_of(left_temporal)))
    right = RowValue((node_of(right_time_point), node_of(right_temporal)))
    return made_call("OVERLAPS", left, right)


def date_format(timestamp: Any, format: Any) -> Expression[Any]:
    """Formats a timestamp with a Java pattern."""
    return made_call("DATE_FORMAT", timestamp, format)


def timestamp_diff(time_point_unit: TimePointUnit, time_point1: Any, time_point2: Any) -> Expression[Any]:
    """The number of whole units between two timestamps."""
    if not isinstance(time_point_unit, TimePointUnit):
        raise refuse(f"timestamp_diff: found {time_point_unit!r} as the unit, expected one of TimePointUnit")
    return made_call("TIMESTAMPDIFF", time_point1, time_point2, unit=time_point_unit.name)


def convert_tz(date_str: Any, tz_from: Any, tz_to: Any) -> Expression[Any]:
    """Converts a timestamp string from one zone to another."""
    return made_call("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: Any, format: Any = None) -> Expression[Any]:
    """Formats a number of seconds since 1970."""
    return made_call("FROM_UNIXTIME", unixtime, format)


def unix_timestamp(date_str: Any = None, format: Any = None) -> Expression[Any]:
    """The seconds since 1970 of the current time, or of a timestamp string."""
    return made_call("UNIX_TIMESTAMP", date_str, format)


def source_watermark() -> Expression[Any]:
    """The stream's own watermarks, for use in a schema."""
    return made_call("SOURCE_WATERMARK")
