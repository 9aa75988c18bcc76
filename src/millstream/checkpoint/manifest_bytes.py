"""The bytes of a manifest's file: its fields as JSON, sealed by a checksum; a large one is packed.

A small manifest is human-readable text. With many subtasks it would take megabytes in every epoch, mostly repeated
names, so it is written as

    {"format": "millstream-manifest-3", "bytes": 1003717,
    <the fields as JSON, a line each, in gzip>,
     "checksum": "<sha-256 of every byte above>"
    }

`tail -n +2 FILE | zcat` shows it. Decision 0021 has the figures, and explains why manifests do not share parts.

Invariants: equal fields are equal bytes; a flipped, missing or additional byte is detected anywhere; decompression
stops at the declared size, and at `_UNPACKED_BYTES_MAX`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from millstream.errors import StoreDamagedError

__all__ = ["PACKED", "damaged", "fields_of", "from_text", "to_bytes", "to_text"]

PACKED = 3
"""The newest format: the packed one. It contains a document of format 1 or 2."""

_PACKED_FROM_CHARACTERS = 1 << 16
_UNPACKED_BYTES_MAX = 1 << 30
_HEAD = re.compile(rb'\A\{\s*"format": "millstream-manifest-(\d{1,9})"')
_PACKED_HEAD = re.compile(rb'\{"format": "millstream-manifest-3", "bytes": (\d{1,10}),\n')
_SEAL = ',\n "checksum": "{}"\n}}\n'
_SEAL_BYTES = len(_SEAL.format("0" * 64))
_IN_BASE64 = "base64:"


def to_bytes(fields: Mapping[str, Any]) -> bytes:
    """Encodes the fields, in this order. `format` is the first of them.

    >>> print(to_bytes({"format": "millstream-manifest-1", "job": "clicks"}).decode()[:67], "…")
    {
     "format": "millstream-manifest-1",
     "job": "clicks",
     "checksum" …
    """
    lines = [f'"{name}":{_compact(value)}' for name, value in fields.items()]
    document = ("{" + ",\n".join(lines) + "}").encode()
    if len(document) <= _PACKED_FROM_CHARACTERS:
        text = json.dumps({name: _sorted(value) for name, value in fields.items()}, indent=1, allow_nan=False)
        return _sealed(text.removesuffix("\n}").encode())
    head = f'{{"format": "millstream-manifest-{PACKED}", "bytes": {len(document)},\n'
    return _sealed(head.encode() + gzip.compress(document, compresslevel=1, mtime=0))


def fields_of(data: bytes, name: str) -> dict[str, Any]:
    """Decodes the fields of a file; StoreDamagedError names the file and the problem."""
    head = _HEAD.match(data)
    if head is None:
        content = "empty" if not data.strip(b"\0") else "not a manifest from its first line on"
        raise damaged(name, f"it is {content}")
    version, sealed = int(head.group(1)), _is_sealed(data)
    if version > PACKED and (sealed or len(data) < _SEAL_BYTES or b'\n "checksum": "' not in data[-_SEAL_BYTES:]):
        raise StoreDamagedError(
            f"{name} has manifest format {version}, this Millstream reads up to {PACKED}: "
            f"it was written by a newer Millstream. Upgrade Millstream, then start the job again."
        )
    if not sealed:
        cut = not data.endswith(b'"\n}\n')
        raise damaged(name, "it is cut short" if cut else "its checksum does not match its content")
    try:
        fields: dict[str, Any] = json.loads(_unpacked(data) if version == PACKED else data)
    except (ValueError, RecursionError, EOFError, zlib.error) as error:
        raise damaged(name, f"its content breaks the format ({type(error).__name__}: {error})") from error
    return fields


def to_text(data: bytes) -> str:
    r"""The bytes of a file as text, to embed in a JSON document; packed ones as base64.

    >>> to_text(b'{"format": 1}'), to_text(b"\x1f\x8b"), from_text(to_text(b"\x1f\x8b"))
    ('{"format": 1}', 'base64:H4s=', b'\x1f\x8b')
    """
    return data.decode("ascii") if data.isascii() else _IN_BASE64 + base64.b64encode(data).decode("ascii")


def from_text(text: str) -> bytes:
    """Reverses `to_text`. Other strings give bytes that fail their checksum."""
    if not text.startswith(_IN_BASE64):
        return text.encode(errors="surrogatepass")
    try:
        return base64.b64decode(text.removeprefix(_IN_BASE64), validate=True)
    except ValueError:
        return b""


def damaged(name: str, problem: str) -> StoreDamagedError:
    """The error for a file that differs from the written bytes."""
    return StoreDamagedError(f"{name} is damaged: {problem}. Nothing was overwritten; restore the file from a copy.")


def _unpacked(data: bytes) -> bytes:
    head = _PACKED_HEAD.match(data)
    if head is None:
        raise ValueError("its first line does not say how long it is")
    length = int(head.group(1))
    if length > _UNPACKED_BYTES_MAX:
        raise ValueError(f"it unpacks to {length} bytes, expected {_UNPACKED_BYTES_MAX} at most")
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    document = unpacking.decompress(data[head.end() : -_SEAL_BYTES], length + 1)
    if len(document) != length or not unpacking.eof or unpacking.unused_data:
        raise ValueError(f"it does not unpack to the {length} bytes stated in its first line")
    return document


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _sealed(body: bytes) -> bytes:
    return body + _SEAL.format(hashlib.sha256(body).hexdigest()).encode()


def _is_sealed(data: bytes) -> bool:
    body = data[:-_SEAL_BYTES]
    return data[-_SEAL_BYTES:] == _SEAL.format(hashlib.sha256(body).hexdigest()).encode()


def _sorted(value: Any) -> Any:
    """`value` with the keys of every dict sorted, so that equal manifests are equal bytes."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in value]
    return value
