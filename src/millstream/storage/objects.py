"""A store in an object store (S3, Google Cloud Storage, Azure and what speaks their languages), through obstore.

An object appears whole or not at all, and a put that returned is durable: that is the service's promise. `create` is
its conditional put (`If-None-Match: *`). A service that cannot do that is refused by `check_writable`, because two
drivers could both believe they committed.

Credentials, region and endpoint come from the environment, as for the service's own tools. The connection is made at
first use, not when a task unpickles the store.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError, PlatformError, StoreAwayError, StoreDamagedError, StoreError
from millstream.storage.path_parts import checked_name
from millstream.storage.store import Names, open_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

__all__ = ["ObjectStore", "connect", "explained_errors"]

_DELETED_AT_ONCE = 1_000
# What a service answers to when it is busy or just restarting; whoever waits longer has patience of his own.
_RETRIES: Any = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 2.0},
}


class ObjectStore:
    """Objects under a bucket and prefix. `backend` replaces the one the address leads to (tests give one)."""

    def __init__(self, url: str, backend: Backend | None = None) -> None:
        self._url = url.rstrip("/")
        self._backend = backend

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"ObjectStore({self._url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (open_store, (self._url,))

    def put(self, name: str, data: bytes) -> None:
        self.put_marked(name, data)

    def put_marked(self, name: str, data: bytes) -> str:
        """As `put`; returns the mark that the service gives this content (its entity tag), "" if it gives none."""
        with self._explain_errors(checked_name(name)):
            return self._connection().put(name, data)["e_tag"] or ""

    def size_and_mark(self, name: str) -> tuple[int, str] | None:
        """What the service says of `name` without reading it; None when it is absent."""
        with self._explain_errors(checked_name(name)):
            try:
                facts = self._connection().head(name)
            except FileNotFoundError:
                return None
        return facts["size"], facts["e_tag"] or ""

    def create(self, name: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        with self._explain_errors(checked_name(name)):
            try:
                # Never multipart: only a single put can be conditional.
                self._connection().put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            except (NotSupportedError, NotImplementedError) as error:
                raise StoreError(
                    f"Store {self._url} has no conditional put, so two drivers could both commit. "
                    f"Use a service that answers If-None-Match: *, or a local folder."
                ) from error
        return True

    def create_copy(self, name: str, source: str) -> bool | None:
        """As `create`, with what `source` holds, copied by the service; None when the service cannot do that."""
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        with self._explain_errors(checked_name(name)):
            try:
                self._connection().copy(checked_name(source), name, overwrite=False)
            except AlreadyExistsError:
                return False
            except FileNotFoundError as error:
                raise self._missing_error(source) from error
            except (NotSupportedError, NotImplementedError):
                return None
        return True

    def get(self, name: str) -> bytes:
        with self._explain_errors(checked_name(name)):
            try:
                return bytes(self._connection().get(name).bytes())
            except FileNotFoundError as error:
                raise self._missing_error(name) from error

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        with self._explain_errors(checked_name(name)):
            try:
                return bytes(self._connection().get_range(name, start=start, end=stop)) if stop > start else b""
            except FileNotFoundError as error:
                raise self._missing_error(name) from error

    def exists(self, name: str) -> bool:
        with self._explain_errors(checked_name(name)):
            try:
                self._connection().head(name)
            except FileNotFoundError:
                return False
        return True

    def list(self, prefix: str) -> Names:
        folder = checked_name(prefix.rstrip("/")) if prefix.rstrip("/") else None
        with self._explain_errors(prefix):
            # A prefix of object stores ends at a '/', so 'staged/a' does not answer for 'staged/ab'.
            pages = self._connection().list(folder)
            return sorted(item["path"] for page in pages for item in page)

    def delete(self, name: str) -> None:
        with self._explain_errors(checked_name(name)):
            try:
                self._connection().delete(name)
            except FileNotFoundError:
                return

    def delete_many(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETED_AT_ONCE):
            batch = [checked_name(name) for name in names[start : start + _DELETED_AT_ONCE]]
            with self._explain_errors(batch[0]):
                try:
                    self._connection().delete(batch)
                except FileNotFoundError:
                    # Some services stop at an absent name.
                    for name in batch:
                        self.delete(name)

    def modified_ms(self, name: str) -> int:
        with self._explain_errors(checked_name(name)):
            try:
                return int(self._connection().head(name)["last_modified"].timestamp() * 1000)
            except FileNotFoundError as error:
                raise self._missing_error(name) from error

    def local_path(self, name: str) -> Path | None:
        checked_name(name)
        return None

    def settle(self, name: str) -> None:
        """Nothing to do: an object that can be seen is durable."""
        checked_name(name)

    def check_writable(self) -> None:
        """Create a probe, see that a second create is refused, and delete it."""
        probe = f"probe-{secrets.token_hex(8)}"
        try:
            created, again = self.create(probe, b"1"), self.create(probe, b"2")
        finally:
            self.delete(probe)
        if not created or again:
            raise StoreError(
                f"Store {self._url} ignores the condition of a conditional put, so two drivers could both commit. "
                f"Use a service that answers If-None-Match: *, or a local folder."
            )

    def remove_unfinished(self, before_ms: int) -> None:
        """Nothing to do: an upload that did not end is no object."""

    def _connection(self) -> Backend:
        if self._backend is None:
            self._backend = connect(self._url)
        return self._backend

    def _missing_error(self, name: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"Store {self._url} has no file {name!r}, which was expected there. "
            f"Look whether it was moved or removed by hand, or by a rule of the bucket, and put it back."
        )

    def _explain_errors(self, name: str) -> AbstractContextManager[None]:
        return explained_errors(self._url, name)


def connect(url: str) -> Backend:
    """The service at `url`. Nothing is asked of it yet."""
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise PlatformError(f"Store {url} needs the package obstore. Install it: pip install obstore") from error
    # S3's two spellings mean one service; obstore knows the plain one. S3 copies only if absent by way of an upload.
    plain_url = url.replace("s3a://", "s3://", 1)
    config: Any = {"copy_if_not_exists": "multipart"} if plain_url.startswith("s3://") else None
    return from_url(plain_url, config=config, retry_config=_RETRIES)


@contextmanager
def explained_errors(url: str, name: str) -> Iterator[None]:
    """Errors of the service, while `name` of the store at `url` is asked for, as ours."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        # obstore's messages end in a dump of its own structures; the first paragraph is for people.
        reason = str(error).split("\n\n", 1)[0].strip()
        raise _kind(error)(
            f"Store {url}: {name!r} cannot be reached: {reason}. "
            f"Check the address, the credentials in the environment and the network."
        ) from error


def _kind(error: Exception) -> type[StoreError]:
    """Whether the service refuses, or does not answer: a time-out, a lost connection, a status of 500 and more."""
    from obstore import exceptions as refusals

    final = (
        refusals.InvalidPathError,
        refusals.NotSupportedError,
        refusals.PermissionDeniedError,
        refusals.UnauthenticatedError,
        refusals.UnknownConfigurationKeyError,
        FileNotFoundError,
        NotImplementedError,
        PermissionError,
        TypeError,
        ValueError,
    )
    return StoreError if isinstance(error, final) else StoreAwayError
