"""Bitmaps as text: `{1,2,3}`, with an end for those that are too long to read."""

from __future__ import annotations

from millstream.records.bitmaps import containers

__all__ = ["bitmap_text"]

_CHARACTERS_MAX = 0x80000


def bitmap_text(data: bytes) -> str:
    """The numbers, ascending; where they take more than half a million characters, the first of them and three dots.

    >>> from millstream.records.bitmaps import EMPTY
    >>> bitmap_text(EMPTY)
    '{}'
    """
    parts: list[str] = []
    length = 0  # with the bracket, and a comma between parts
    for key, halves in containers(data):
        if length > _CHARACTERS_MAX:
            parts.append("")  # something follows
            break
        parts.append(",".join(map(str, (halves.astype("int64") + (key << 16)).tolist())))
        length += len(parts[-1]) + 1
    whole = ",".join(parts)
    # As Flink's: the number with which the text reaches the bound is the last one, if others follow it.
    end = whole.find(",", _CHARACTERS_MAX - 1)
    return f"{{{whole}}}" if end < 0 else f"{{{whole[:end]},...}}"
