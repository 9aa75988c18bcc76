"""Formats numbers for people: counts, rates, durations, sizes. Pure, and the same in every display."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

__all__ = ["bytes_text", "count_text", "epoch_time_text", "rate_text", "span_text", "time_text"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECOND_MS = 1_000
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (_SECOND_MS, "s"))


def count_text(count: int) -> str:
    """
    >>> count_text(1234567)
    '1,234,567'
    """
    return f"{count:,}"


def rate_text(per_second: float) -> str:
    """
    >>> rate_text(0.25), rate_text(12345.6)
    ('0.2/s', '12,346/s')
    """
    return f"{per_second:,.0f}/s" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}/s"


def span_text(span_ms: float) -> str:
    """A duration in its two largest units at most.

    >>> span_text(250), span_text(12_000), span_text(192_000), span_text(93_600_000)
    ('0.2 s', '12 s', '3 min 12 s', '1 d 2 h')
    """
    if span_ms < 10 * _SECOND_MS:
        return f"{span_ms / _SECOND_MS:.1f} s"
    for (unit_ms, unit), (part_ms, part) in pairwise(_UNITS):
        if span_ms >= unit_ms:
            return f"{int(span_ms // unit_ms)} {unit} {int(span_ms % unit_ms // part_ms)} {part}"
    return f"{int(span_ms // _SECOND_MS)} s"


def epoch_time_text(epoch_ms: float) -> str:
    """The duration of an epoch.

    >>> epoch_time_text(118.4), epoch_time_text(2500)
    ('118 ms', '2.5 s')
    """
    return f"{epoch_ms:.0f} ms" if epoch_ms < _SECOND_MS else span_text(epoch_ms)


def bytes_text(size_bytes: int) -> str:
    """
    >>> bytes_text(0), bytes_text(1536), bytes_text(5 << 30)
    ('0 B', '1.5 KiB', '5.0 GiB')
    """
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(at_ms: int, now_ms: int) -> str:
    """A timestamp in UTC: the time of day if its date is today, otherwise with the date.

    >>> time_text(3_725_000, now_ms=4_000_000), time_text(3_725_000, now_ms=90_000_000)
    ('01:02:05', '1970-01-01 01:02:05')

    A timestamp outside the calendar is shown as a number.

    >>> time_text(2**62, now_ms=0)
    '4,611,686,018,427,387,904 ms'
    """
    try:
        at, now = (_EPOCH + timedelta(milliseconds=ms) for ms in (at_ms, now_ms))
    except OverflowError:
        return f"{count_text(at_ms)} ms"
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
