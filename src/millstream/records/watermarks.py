"""The watermarks that are no times: where event time stands before the first record, after the last, and when idle.

Event time is one number of 64 bits, in milliseconds, and where several inputs meet it is their minimum. So two numbers
at the top of the range have a meaning of their own, and their order is what makes the minimum right:

    a real watermark  <  IDLE_WATERMARK  <  MAX_WATERMARK

A real watermark beats an idle input, for nobody waits for that one; and an idle input beats one that has ended: while
anything is idle, the end of the rest does not look like the end of everything.
"""

from __future__ import annotations

__all__ = ["IDLE_WATERMARK", "MAX_WATERMARK", "MIN_WATERMARK", "REAL_WATERMARK_MAX", "shown_watermark"]

MIN_WATERMARK = -(2**63)
"""No record has come yet."""

MAX_WATERMARK = 2**63 - 1
"""The input has ended."""

IDLE_WATERMARK = MAX_WATERMARK - 1
"""Nobody should wait for this input now. No function ever sees it as a watermark."""

REAL_WATERMARK_MAX = MAX_WATERMARK - 2
"""The last one that is a time."""


def shown_watermark(watermark: int | None) -> int | None:
    """A watermark as people and programs outside see it: None before the first one. 2^63 - 1 says that all input has
    ended.

    >>> shown_watermark(MIN_WATERMARK), shown_watermark(1_000)
    (None, 1000)
    """
    return None if watermark == MIN_WATERMARK else watermark
