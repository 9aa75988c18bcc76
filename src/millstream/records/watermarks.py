"""Watermarks with a special meaning: before the first record, after the last, and idle.

Event time is a 64-bit number of milliseconds, and the minimum over several inputs. Two numbers at the top of the range
have a special meaning, and their order makes the minimum correct:

    a real watermark  <  IDLE_WATERMARK  <  MAX_WATERMARK

A real watermark takes precedence over an idle input, which is not waited for; and an idle input takes precedence over
an ended one: while any input is idle, the end of the others does not appear as the end of all.
"""

from __future__ import annotations

__all__ = ["IDLE_WATERMARK", "MAX_WATERMARK", "MIN_WATERMARK", "REAL_WATERMARK_MAX", "shown_watermark"]

MIN_WATERMARK = -(2**63)
"""No record has arrived yet."""

MAX_WATERMARK = 2**63 - 1
"""The input has ended."""

IDLE_WATERMARK = MAX_WATERMARK - 1
"""Do not wait for this input. User functions never see this watermark."""

REAL_WATERMARK_MAX = MAX_WATERMARK - 2
"""The largest watermark that is an actual time."""


def shown_watermark(watermark: int | None) -> int | None:
    """A watermark for external display: None before the first one. 2^63 - 1 means that all input has ended.

    >>> shown_watermark(MIN_WATERMARK), shown_watermark(1_000)
    (None, 1000)
    """
    return None if watermark == MIN_WATERMARK else watermark
