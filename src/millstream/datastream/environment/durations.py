"""Reads durations from a configuration: `10 s`, or a number of ms without unit."""

from __future__ import annotations

from millstream.common.configuration import Configuration
from millstream.common.options.quantities import parse_duration_ms

__all__ = ["duration_ms"]


def duration_ms(configuration: Configuration, key: str, default_ms: int) -> int:
    """The setting in ms. Flink writes "never" as -1, which is not a duration and is returned unchanged.

    >>> duration_ms(Configuration().set_string("k", "2 s"), "k", 0), duration_ms(Configuration(), "k", -1)
    (2000, -1)
    """
    text = configuration.get_string(key, None)
    if text is None:
        return default_ms
    return -1 if text.strip().removesuffix("ms").strip() == "-1" else parse_duration_ms(text)
