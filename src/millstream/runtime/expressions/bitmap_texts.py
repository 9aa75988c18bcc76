"""Formats bitmaps as strings, `{1,2,3}`, truncated beyond a bound."""

from __future__ import annotations

from millstream.records.bitmaps import containers

__all__ = ["bitmap_text"]

_CHARACTERS_MAX = 0x80000


def bitmap_text(data: bytes) -> str:
    """The numbers in ascending order; after half a million characters the rest is replaced by three dots.

    >>> from millstream.records.bitmaps import EMPTY
    >>> bitmap_text(EMPTY)
    '{}'
    """
    parts: list[str] = []
    length = 0  # including the bracket and the commas between parts
    for key, halves in containers(data):
        if length > _CHARACTERS_MAX:
            parts.append("")  # marks that more numbers follow
            break
        parts.append(",".join(map(str, (halves.astype("int64") + (key << 16)).tolist())))
        length += len(parts[-1]) + 1
    whole = ",".join(parts)
    # As in Flink, the number that reaches the bound is the last one shown, even if others follow.
    end = whole.find(",", _CHARACTERS_MAX - 1)
    return f"{{{whole}}}" if end < 0 else f"{{{whole[:end]},...}}"
