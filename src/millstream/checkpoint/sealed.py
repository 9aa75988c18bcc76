"""Small JSON files of one kind each, with a version and a checksum: pins, leases, savepoints, requests to a driver.

    {
     "format": "millstream-pin-1",
     ...
     "checksum": "<sha-256 of the document without this line, keys sorted>"
    }

What cannot be read is an error that names the file and what to do; it is never taken for absent.
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
    """A document as the bytes of its file.

    >>> unseal(seal("pin", 1, {"epoch": 7}), "pin", 1, "pins/a.json")
    {'epoch': 7}
    """
    document = {"format": f"millstream-{kind}-{version}", **fields}
    return (json.dumps({**document, "checksum": _checksum(document)}, indent=1) + "\n").encode()


def unseal(data: bytes, kind: str, version: int, name: str) -> dict[str, Any]:
    """The fields of the document in `data`; `version` is the newest that can be read."""
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
    """As `unseal`, of a kind that the first Millstreams wrote without version and checksum: such a one is read too.

    >>> [unseal_any(data, "mark", 1, "a") for data in (seal("mark", 1, {"through": 7}), b'{"through": 6}')]
    [{'through': 7}, {'through': 6}]
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, kind, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(name, kind, f"it is a {type(document).__name__}")
    # One that has either has lost the other.
    return unseal(data, kind, version, name) if "format" in document or "checksum" in document else document


def read_sealed(
    store: Store, names: Iterable[str], decoded: Callable[[bytes, str], T]
) -> Iterator[tuple[str, T | StoreError]]:
    """Each of these files, decoded, or why it cannot be read: it is damaged, or nobody else may read it. One that is
    removed meanwhile is left out."""
    for name in names:
        try:
            data = store.get(name)
        except StoreDamagedError:
            continue  # it was there a moment ago: somebody has removed it
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


def _damaged(name: str, kind: str, what: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{name} is no whole {kind}: {what}. Nothing was overwritten; restore the file from a copy."
    )
