"""Answers as JSON texts, made in pieces.

Python's encoder lets nobody else run until it is done. An answer of megabytes is therefore encoded on the thread that
read it, a block of values at a time, and the loop answers others in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["encoded", "encoded_at_once"]

_BLOCK = 256
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def encoded(content: Mapping[str, Any]) -> bytes:
    """The JSON text of an answer.

    >>> encoded({"epoch": 7, "reads": [{"keys": list(range(3))}], "rows": []})
    b'{"epoch":7,"reads":[{"keys":[0,1,2]}],"rows":[]}'
    """
    return "".join(_pieces(content)).encode()


def encoded_at_once(content: Mapping[str, Any]) -> bytes:
    """The same for an answer that is known to be small."""
    return _encode(content).encode()


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        opening = "{"
        for key, item in value.items():
            yield f"{opening}{_encode(key)}:"
            yield from _pieces(item)
            opening = ","
        yield "}" if value else "{}"
    elif isinstance(value, list) and len(value) > _BLOCK:
        opening = "["
        for start in range(0, len(value), _BLOCK):
            yield opening + _encode(value[start : start + _BLOCK])[1:-1]
            opening = ","
        yield "]"
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        opening = "["
        for item in value:
            yield opening
            yield from _pieces(item)
            opening = ","
        yield "]"
    else:
        yield _encode(value)
