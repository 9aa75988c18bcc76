"""Small JSON files with a kind, a version and a checksum: pins, leases, savepoints, requests to a driver.

    {
     "format": "millstream-pin-1",
     ...
     "checksum": "<sha-256 of the document without this line, keys sorted>"
    }

An unreadable file is an error that names the file and the next step; it is never treated as absent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from millstream.errors import StoreAwayError, StoreDamagedError, StoreError
from millstream.storage.store import Store

__all__ = ["read_sealed", "seal", "unseal", "unseal_any"]

T = TypeVar("T")


def seal(kind: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encodes a document.

    >>> unseal(seal("pin", 1, {"epoch": 7}), "pin", 1, "pins/a.json")
    {'epoch': 7}
    """
    document = {"format": f"millstream-{kind}-{version}", **fields}
    return (json.dumps({**document, "checksum": _checksum(document)}, indent=1) + "\n").encode()


def unseal(data: bytes, kind: str, version: int, name: str) -> dict[str, Any]:
    """Decodes the fields of the document in `data`; `version` is the newest readable one."""
    try:
        document: dict[str, Any] = json.loads(data)
        format_ = document["format"]
        prefix, _, number = format_.rpartition("-")
        if prefix != f"millstream-{kind}":
            raise ValueError(f"it is a {format_}")
        newer = int(number) > version
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(name, kind, str(error)) from error
    if newer:
        raise StoreDamagedError(
            f"{name} has format {format_}, this Millstream reads up to {version}: it was written by a newer "
            "Millstream. Upgrade Millstream."
        )
    checksum = document.pop("checksum", None)
    if checksum != _checksum(document):
        raise _damaged(name, kind, "its checksum does not match its content")
    del document["format"]
    return document


def unseal_any(data: bytes, kind: str, version: int, name: str) -> dict[str, Any]:
    """Like `unseal`, but also reads files of the first versions, which had no version and checksum.

    >>> [unseal_any(data, "mark", 1, "a") for data in (seal("mark", 1, {"through": 7}), b'{"through": 6}')]
    [{'through': 7}, {'through': 6}]
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, kind, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(name, kind, f"it is a {type(document).__name__}")
    # A document with only one of the two is damaged.
    return unseal(data, kind, version, name) if "format" in document or "checksum" in document else document


def read_sealed(
    store: Store, names: Iterable[str], decoded: Callable[[bytes, str], T]
) -> Iterator[tuple[str, T | StoreError]]:
    """Decodes each of these files, or yields the error of an unreadable one (damaged, or not permitted). Concurrently
    removed files are skipped."""
    for name in names:
        try:
            data = store.get(name)
        except StoreDamagedError:
            continue  # removed since it was listed
        except StoreAwayError:
            raise
        except StoreError as error:
            yield name, error
            continue
        try:
            yield name, decoded(data, f"{name} of store {store.url}")
        except StoreDamagedError as error:
            yield name, error


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _damaged(name: str, kind: str, problem: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{name} is not a complete {kind}: {problem}. Nothing was overwritten; restore the file from a copy."
    )
