"""Parses durations and memory sizes in configuration: `10 s`, `500ms`, `PT1M`, `64mb`.

Pure and exact: an invalid string is rejected with an error that lists the valid forms.
"""

from __future__ import annotations

import re
from fractions import Fraction

from millstream.errors import ConfigurationError

__all__ = ["parse_bytes", "parse_duration_ms"]

_NUMBER_AND_UNIT = re.compile(r"\s*(\d{1,19})\s*([^\W\d]*)\s*")
_ISO = re.compile(
    r"P(?:(\d{1,18})D)?(?:T(?:(\d{1,18})H)?(?:(\d{1,18})M)?(?:(\d{1,18}(?:\.\d{1,18})?)S)?)?", re.IGNORECASE
)

# Nanoseconds per unit.
_DURATIONS = {
    unit: nanos
    for nanos, units in {
        86_400_000_000_000: "d day days",
        3_600_000_000_000: "h hour hours",
        60_000_000_000: "m min minute minutes",
        1_000_000_000: "s sec secs second seconds",
        1_000_000: "ms milli millis millisecond milliseconds",
        1_000: "µs us micro micros microsecond microseconds",
        1: "ns nano nanos nanosecond nanoseconds",
    }.items()
    for unit in units.split()
}

_SIZES = {
    unit: 1 << 10 * power
    for power, units in enumerate(
        (
            "b byte bytes",
            "k kb kibibyte kibibytes",
            "m mb mebibyte mebibytes",
            "g gb gibibyte gibibytes",
            "t tb tebibyte tebibytes",
        )
    )
    for unit in units.split()
}


def parse_duration_ms(text: str) -> int:
    """Milliseconds, rounded down; a bare number is milliseconds.

    >>> [parse_duration_ms(text) for text in ("10 s", "500ms", "1 min", "PT1M30S", "250")]
    [10000, 500, 60000, 90000, 250]
    """
    iso = _ISO.fullmatch(text.strip())
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (Fraction(part or 0) for part in iso.groups())
        return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    match = _NUMBER_AND_UNIT.fullmatch(text)
    unit = (match[2].lower() or "ms") if match else ""
    if not match or unit not in _DURATIONS:
        raise ConfigurationError(
            f"{text!r} is not a duration. Write it as '10 s', '500 ms', '1 min', '2 h' or 'PT10S'."
        )
    return int(match[1]) * _DURATIONS[unit] // 1_000_000


def parse_bytes(text: str) -> int:
    """Bytes; units are powers of 1024, a bare number is bytes.

    >>> [parse_bytes(text) for text in ("64mb", "1 g", "100")]
    [67108864, 1073741824, 100]
    """
    match = _NUMBER_AND_UNIT.fullmatch(text)
    unit = (match[2].lower() or "b") if match else ""
    if not match or unit not in _SIZES:
        raise ConfigurationError(f"{text!r} is not a memory size. Write it as '64mb', '1 g' or a number of bytes.")
    return int(match[1]) * _SIZES[unit]
