"""Bounds and encodes answers: their size is tracked while they are read, and the JSON text is encoded in pieces.

One key may have a value of megabytes, and a request may repeat that key ten thousand times. So values of unbounded size
are read in portions: few at first, more once they prove to be small, and never more than would fit into the rest of the
answer if all were as large as the largest so far.

Sizes are those of the JSON text, as it is sent: a character outside of ASCII has six or twelve bytes, as \\u escapes.

Python's encoder blocks other threads until it is done. An answer of megabytes is therefore encoded on the thread that
read it, a block of values at a time, and the loop answers others in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, TypeVar

from millstream.query.wire.refusals import TooLargeError
from millstream.query.wire.servers import ServedState

__all__ = [
    "EncodedJson",
    "check_size",
    "encoded",
    "encoded_at_once",
    "has_small_values",
    "json_size",
    "read_in_portions",
]

_FIRST_ROWS = 16
_SHARE = 4  # the share of the remaining size that one portion may use
_SMALL = frozenset({"LONG", "INT", "SHORT", "BYTE", "DOUBLE", "FLOAT", "BOOLEAN", "DATE", "TIME", "TIMESTAMP", "CHAR"})
_COLLECTIONS = ("list", "map", "window")
_BLOCK = 256
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_Keys = TypeVar("_Keys", bound=Sequence[Any])
_T = TypeVar("_T")


class EncodedJson(bytes):
    """A part of an answer that is JSON text already."""


def check_size(size: int, bytes_max: int) -> None:
    """Raises TooLargeError for an answer that exceeds its limit."""
    if size > bytes_max:
        raise TooLargeError(
            f"the answer has more than {bytes_max} bytes. Request fewer keys or rows at once, or read the state in "
            "process with millstream.query."
        )


def read_in_portions(
    keys: _Keys, read: Callable[[_Keys], _T], size_of: Callable[[_T], int], bytes_max: int, *, is_small: bool
) -> list[_T]:
    """The results of `read` for all keys, in parts. `is_small`: no value is large, so one part suffices.

    >>> read_in_portions("aaab", lambda part: part, len, 4, is_small=True)
    ['aaab']
    >>> [len(part) for part in read_in_portions("a" * 60, lambda part: part, len, 999, is_small=False)]
    [16, 32, 12]
    """
    parts, at, left, largest = [], 0, bytes_max, 1
    rows = len(keys) if is_small else _FIRST_ROWS
    while at < len(keys):
        portion: Any = keys[at : at + rows]
        parts.append(read(portion))
        size = size_of(parts[-1])
        left -= size
        check_size(bytes_max - left, bytes_max)
        largest = max(largest, -(-size // len(portion)))
        at += len(portion)
        rows = max(1, min(2 * rows, left // (_SHARE * largest)))
    return parts


def has_small_values(state: ServedState) -> bool:
    """Whether every possible value of the state has a few bytes.

    >>> [has_small_values(ServedState("s", "value", "LONG", kind, False, 1)) for kind in ("LONG", "STRING")]
    [True, False]
    """
    return state.kind not in _COLLECTIONS and _is_small(state.value_type)


def _is_small(written: Any) -> bool:
    if isinstance(written, dict):
        fields = [kind for _, kind in written.get("row", ())] + list(written.get("tuple", ()))
        return bool(fields) and all(map(_is_small, fields))
    return written in _SMALL


def json_size(value: Any) -> int:
    """The size of the text of a JSON value, in bytes.

    >>> json_size({"word": "abc", "counts": [1, 2]}), json_size("\N{GRINNING FACE}\\0"), json_size(1e-300)
    (29, 20, 6)
    """
    if isinstance(value, str):
        return len(encode_basestring_ascii(value))
    if isinstance(value, dict):
        return sum(json_size(key) + 2 + json_size(item) for key, item in value.items()) + (1 if value else 2)
    if isinstance(value, list):
        return sum(map(json_size, value)) + max(2, len(value) + 1)
    return (5 if value is False else 4) if value is None or isinstance(value, bool) else len(repr(value))


def encoded(content: Mapping[str, Any]) -> bytes:
    """The JSON text of an answer.

    >>> encoded({"epoch": 7, "reads": [{"keys": list(range(3))}], "rows": []})
    b'{"epoch":7,"reads":[{"keys":[0,1,2]}],"rows":[]}'
    """
    return b"".join(_pieces(content))


def encoded_at_once(content: Mapping[str, Any]) -> bytes:
    """The same for an answer that is known to be small."""
    return _encode(content).encode()


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, EncodedJson):
        yield value
    elif isinstance(value, Mapping):
        opening = "{"
        for key, item in value.items():
            yield f"{opening}{_encode(key)}:".encode()
            yield from _pieces(item)
            opening = ","
        yield b"}" if value else b"{}"
    elif isinstance(value, list) and len(value) > _BLOCK:
        opening = "["
        for start in range(0, len(value), _BLOCK):
            yield (opening + _encode(value[start : start + _BLOCK])[1:-1]).encode()
            opening = ","
        yield b"]"
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        opening = "["
        for item in value:
            yield opening.encode()
            yield from _pieces(item)
            opening = ","
        yield b"]"
    else:
        yield _encode(value).encode()
