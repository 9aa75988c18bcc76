"""Formats and parses dates, times, timestamps and intervals by Flink's rules for casts.

`2020-2-3`, `2020-02` and `2020` are dates. The time of a timestamp is optional, and may have any number of fractional
digits; digits beyond the precision are dropped. `java_dates` handles user-defined patterns.
"""

from __future__ import annotations

import datetime as dt
import re

from millstream.runtime.expressions.kernel import EvaluationError
from millstream.runtime.expressions.standard_dates import parse_timestamp

__all__ = ["day_interval_text", "month_interval_text", "parse_day", "parse_stamp", "parse_time", "time_text"]

_DAY = re.compile(r"(-?\d{1,6})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?")
_EPOCH = dt.date(1970, 1, 1).toordinal()
DAY_S = 86_400


def parse_day(text: str) -> int:
    """Days since 1970."""
    trimmed = text.strip().split(" ", 1)[0]
    match = _DAY.fullmatch(trimmed)
    try:
        if match is None:
            raise ValueError
        return dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1)).toordinal() - _EPOCH
    except ValueError:
        raise EvaluationError(f"the text {text!r} is not a DATE: expected one like '2020-12-31'") from None


def parse_time(text: str, precision: int) -> int:
    """Milliseconds since midnight."""
    match = _TIME.fullmatch(text.strip())
    if match is None or int(match[1]) > 23 or int(match[2] or 0) > 59 or int(match[3] or 0) > 59:
        raise EvaluationError(f"the text {text!r} is not a TIME: expected one like '23:59:59'")
    fraction = int(((match[4] or "")[: min(precision, 3)] + "000")[:3])
    return ((int(match[1]) * 60 + int(match[2] or 0)) * 60 + int(match[3] or 0)) * 1_000 + fraction


def parse_stamp(text: str, precision: int, ticks_per_second: int) -> int:
    """Local time in ticks since 1970."""
    nano = parse_timestamp(text)
    if nano is None:
        raise EvaluationError(f"the text {text!r} is not a timestamp: expected one like '2020-12-31 23:59:59.999'")
    step: int = 10 ** (9 - precision)
    return nano // step * step * ticks_per_second // 1_000_000_000


def time_text(milliseconds: int, precision: int) -> str:
    """A time of day with the fractional digits of its type, at most 3."""
    seconds, rest = divmod(milliseconds, 1_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    fraction = f".{rest:03d}"[: 1 + min(precision, 3)] if precision else ""
    return f"{hour:02d}:{minute:02d}:{second:02d}{fraction}"


def day_interval_text(milliseconds: int) -> str:
    """Days to milliseconds, with a sign.

    >>> day_interval_text(3 * 86_400_000), day_interval_text(-5)
    ('+3 00:00:00.000', '-0 00:00:00.005')
    """
    days, rest = divmod(abs(milliseconds), DAY_S * 1_000)
    return f"{'-' if milliseconds < 0 else '+'}{days} {time_text(rest, 3)}"


def month_interval_text(months: int) -> str:
    """Years and months, with a sign.

    >>> month_interval_text(14)
    '+1-02'
    """
    years, rest = divmod(abs(months), 12)
    return f"{'-' if months < 0 else '+'}{years}-{rest:02d}"
