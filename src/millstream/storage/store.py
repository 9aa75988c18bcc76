"""A store holds a job's durable files under short relative names.

Invariant of every store: a name refers to no file, or to the complete content of one write. There are no torn files,
appends or partial overwrites, and when `put` or `create` returns, the data survives a power failure. Only `create` is
atomic between writers: of any number of callers, in any number of processes, exactly one gets True. Millstream's
exactly-once guarantee rests on this call.

A store rejects names that lead out of it (`..`, a leading `/`). An absent file is an error that names the file, not an
empty result.

Stores are shipped to tasks: they are pickled as their address, which the task opens.

Transient errors of the operating system (`is_transient`) are never reported as damage of a file.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from millstream.errors import ConfigurationError
from millstream.redaction import redacted_address, scheme_of, secrets_of

__all__ = ["Names", "Store", "is_object_address", "is_transient", "open_store", "shown_address"]

# Inside a class that has a method called `list`, the name `list` means that method.
Names = list[str]

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")


@runtime_checkable
class Store(Protocol):
    """Durable bytes under relative, '/'-separated names."""

    @property
    def url(self) -> str:
        """The address that `open_store` turns into this store again, here or in a task."""

    def put(self, name: str, data: bytes) -> None:
        """Write `data` under `name`, replacing existing content; durable when this returns."""

    def create(self, name: str, data: bytes) -> bool:
        """Write `data` only if `name` is absent, atomically; False when it exists already."""

    def get(self, name: str) -> bytes:
        """The whole content of `name`; StoreDamagedError naming the file when it is absent."""

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop` of `name`, fewer if it ends earlier; as `get` when it is absent."""

    def exists(self, name: str) -> bool:
        """Whether `name` exists."""

    def list(self, prefix: str) -> Names:
        """All names below the directory-like `prefix` ('' for everything), sorted."""

    def list_after(self, folder: str, after: str) -> Names:
        """The names directly in `folder` that sort after `after`, sorted. Where the store supports it, only these are
        requested, so that the cost is proportional to the result. Names in folders below may be omitted."""

    def delete(self, name: str) -> None:
        """Remove `name`; it may be absent."""

    def delete_many(self, names: Sequence[str]) -> None:
        """Remove these names, in few calls if the store supports that; they may be absent."""

    def modified_ms(self, name: str) -> int:
        """When `name` was last written, by the store's own clock; StoreDamagedError when it is absent.

        It is comparable only with the times of other names of this store: other clocks may differ."""

    def local_path(self, name: str) -> Path | None:
        """The path at which a task may write or map `name` directly (its folder exists), or None if the store is
        remote."""

    def settle(self, name: str) -> None:
        """Make `name` durable: after a task wrote it through `local_path`, or before trusting another writer's file."""

    def check_writable(self) -> None:
        """Create and delete a probe; StoreError with the address, the reason and the next step if that fails."""

    def remove_unfinished(self, before_ms: int) -> None:
        """Remove unnamed files that dead writers left before that time."""


def open_store(url: str, *, fsync: bool = True) -> Store:
    """Open the store at `url`: a path, `file:///…`, `memory://name`, `s3://…`, `gs://…` or `az://…`.

    Opening has no side effects: the first write creates a local folder, and the first call contacts a bucket. With
    `fsync=False`, files on a local disk do not survive a power failure (but do survive a killed process).

    >>> store = open_store("memory://doctest-open-store")
    >>> store.create("job.json", b"{}"), store.create("job.json", b"other")
    (True, False)
    >>> store.get("job.json"), store.list("")
    (b'{}', ['job.json'])
    """
    from millstream.storage.local import LocalStore
    from millstream.storage.memory import MemoryStore
    from millstream.storage.objects import ObjectStore

    if not url:
        raise ConfigurationError("The store's address is empty. Give a folder or an address such as s3://bucket/job.")
    scheme_match = _SCHEME.match(url)
    if scheme_match is None:
        return LocalStore(Path(url).expanduser(), fsync=fsync)
    scheme = scheme_match.group(1).lower()
    if scheme == "file":
        return LocalStore(_path_of(url), fsync=fsync)
    if scheme == "memory":
        return MemoryStore(url[len("memory://") :])
    if scheme in _OBJECT_SCHEMES:
        _refuse_credentials(url)
        return ObjectStore(url)
    raise ConfigurationError(
        f"Store address {scheme_of(url)} has the unknown scheme {scheme!r}. "
        f"Give a path, file://, memory://, s3://, gs:// or az://."
    )


def _refuse_credentials(url: str) -> None:
    """Rejects an address with credentials: addresses are shown, logged and stored."""
    parts = urlsplit(url)
    # A bucket's name has no colon: a password, or its part before the first `/`, follows one.
    if ":" in parts.netloc or secrets_of("address", f"?{parts.query}"):
        raise ConfigurationError(
            "The store's address has credentials in it. Addresses are shown and stored: give the plain one, such as "
            "s3://bucket/job, and the credentials in the environment."
        )


def is_object_address(url: str) -> bool:
    """Whether `url` is the address of an object store.

    >>> is_object_address("s3://bucket/job"), is_object_address("/jobs/clicks")
    (True, False)
    """
    scheme_match = _SCHEME.match(url)
    return scheme_match is not None and scheme_match.group(1).lower() in _OBJECT_SCHEMES


def shown_address(url: str) -> str:
    """The address in readable form: a local store as a path.

    >>> shown_address("file:///my%20jobs/clicks"), shown_address("s3://bucket/clicks")
    ('/my jobs/clicks', 's3://bucket/clicks')
    """
    return str(_path_of(url)) if url.startswith("file://") else url


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ConfigurationError(
            f"Store address {redacted_address(url)!r} names a host. "
            f"Write a local folder with three slashes: file:///folder."
        )
    return Path(unquote(url[len("file://") + len(parts.netloc) :]))


_TRANSIENT = frozenset(
    number
    for name in (
        *("EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EBUSY", "EINTR", "ENFILE", "EMFILE", "ENOMEM", "ENOLINK"),
        *("ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH", "EREMOTEIO", "ENOTCONN", "ESHUTDOWN"),
        *("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ENOSPC", "EDQUOT"),
    )
    if (number := getattr(errno, name, None)) is not None
)
"""Errors that a disk, a mounted file server or a busy machine may report temporarily."""


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later.

    >>> is_transient(OSError(errno.EIO, "Input/output error"))
    True
    >>> is_transient(FileNotFoundError(errno.ENOENT, "No such file"))
    False
    """
    return isinstance(error, OSError) and error.errno in _TRANSIENT
