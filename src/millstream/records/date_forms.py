"""Patterns of valid dates and times, to check string columns before casting them.

A single 30th of February makes the cast of a whole column fail, and then every value is parsed individually. So the
pattern encodes the lengths of months, and leap years.
"""

from __future__ import annotations

__all__ = ["DAY_FORM", "HOUR_FORM"]

_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
DAY_FORM = f"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
"""`2024-02-29`, of the years 1 to 9999."""
HOUR_FORM = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
"""`23:59:59`."""
