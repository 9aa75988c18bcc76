"""A store in an object store (S3, Google Cloud Storage, Azure and compatible services), through obstore.

Objects appear atomically, and a put that has returned is durable: the service guarantees both. `create` is its
conditional put (`If-None-Match: *`). `check_writable` rejects a service without conditional puts, because two drivers
could both believe they committed.

Uploads to S3 over TLS are not signed byte by byte: TLS protects the content in transit, and every file contains
checksums. Without TLS the digest is signed, which costs more than the rest of an upload.

Credentials, region and endpoint are read from the environment, as by the service's own tools. The connection is opened
on first use, not when a task unpickles the store.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import PlatformError, StoreAwayError, StoreDamagedError, StoreError
from millstream.redaction import redacted_address
from millstream.storage.object_errors import explained_errors, has_no_bucket, is_in_conflict, is_unknown_to_service
from millstream.storage.path_parts import checked_name
from millstream.storage.request_counts import REQUESTS
from millstream.storage.store import Names, open_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

__all__ = ["ObjectStore", "connect", "explained_errors", "service_address"]

_DELETED_AT_ONCE = 1_000
_LISTED_AT_ONCE = 1_000
# Objects up to this size are uploaded in one request: a multipart upload needs two more. Objects that are read whole
# are not larger (`state.segments.open_segments`).
_WHOLE_BYTES_MAX = 16 << 20
_PART_BYTES = 5 << 20
# Covers a service that is busy or restarting; callers that wait longer use a PatientStore.
_RETRIES: Any = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 2.0},
}
_NO_RETRIES: Any = {**_RETRIES, "max_retries": 0}
# Less than half a minute, so that a caller is notified in time if the service does not answer.
_TIMES: Any = {"timeout": timedelta(seconds=25), "connect_timeout": timedelta(seconds=5)}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_UNSIGNED = "AWS_UNSIGNED_PAYLOAD"
"""The client's own variable, which takes precedence. Some buckets reject unsigned content."""


class ObjectStore:
    """Objects under a bucket and prefix. `backend` replaces the address's own (for tests)."""

    def __init__(self, url: str, backend: Backend | None = None) -> None:
        self._url = url.rstrip("/")
        self._backend = self._creator = backend
        self._has_answered = False

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
        """As `put`; returns the service's entity tag for the content, "" if there is none."""
        with self._explain_errors(checked_name(name)):
            has_parts = len(data) > _WHOLE_BYTES_MAX
            if has_parts:
                REQUESTS.add(1 - -len(data) // _PART_BYTES)  # the parts, plus the start and the end of the upload
            return self._connection().put(name, data, use_multipart=has_parts, chunk_size=_PART_BYTES)["e_tag"] or ""

    def size_and_mark(self, name: str) -> tuple[int, str] | None:
        """Size and entity tag of `name` without reading it; None if it is absent."""
        with self._explain_errors(checked_name(name)):
            try:
                facts = self._connection().head(name)
            except FileNotFoundError:
                return None
        return facts["size"], facts["e_tag"] or ""

    def create(self, name: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        with self._explain_errors(checked_name(name)):
            try:
                # Never multipart: only a single put can be conditional. Never retried by the client: if a response is
                # lost, the retry would see that the name exists, but not who wrote it. PatientStore compares the
                # content.
                self._connection_for_creating().put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                if is_in_conflict(error):
                    raise StoreAwayError(
                        f"Store {self._url}: {name!r} is being written by another request just now. Try again."
                    ) from None
                return False
            except Exception as error:
                if is_unknown_to_service(error):
                    raise StoreError(
                        f"Store {self._url} has no conditional put, so two drivers could both commit. "
                        f"Use a service that answers If-None-Match: *, or a local folder."
                    ) from None
                raise
        return True

    def create_copy(self, name: str, source: str) -> bool | None:
        """As `create`, with the content of `source`, copied by the service; None if it does not support that."""
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        with self._explain_errors(checked_name(name)):
            try:
                self._connection().copy(checked_name(source), name, overwrite=False)
            except AlreadyExistsError:
                return False
            except FileNotFoundError as error:
                raise self._missing_error(source, error) from None
            except (NotSupportedError, NotImplementedError):
                return None
        return True

    def get(self, name: str) -> bytes:
        with self._explain_errors(checked_name(name)):
            try:
                return bytes(self._connection().get(name).bytes())
            except FileNotFoundError as error:
                raise self._missing_error(name, error) from None

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        with self._explain_errors(checked_name(name)):
            try:
                return bytes(self._connection().get_range(name, start=start, end=stop)) if stop > start else b""
            except FileNotFoundError as error:
                raise self._missing_error(name, error) from None

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
            # obstore matches prefixes only up to a '/', so 'staged/a' does not match 'staged/ab'.
            pages = self._connection().list(folder)
            names = sorted(item["path"] for page in pages for item in page)
        REQUESTS.add(max(0, len(names) - 1) // _LISTED_AT_ONCE)  # a request for each page
        return names

    def list_after(self, folder: str, after: str) -> Names:
        with self._explain_errors(folder):
            pages = self._connection().list(checked_name(folder), offset=checked_name(after))
            names = sorted(item["path"] for page in pages for item in page)
        REQUESTS.add(max(0, len(names) - 1) // _LISTED_AT_ONCE)
        return names

    def folders(self) -> tuple[str, ...]:
        """The names of the folders directly below."""
        with self._explain_errors(""):
            return tuple(sorted(self._connection().list_with_delimiter()["common_prefixes"]))

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
                    # Some services stop at an absent object.
                    for name in batch:
                        self.delete(name)

    def modified_ms(self, name: str) -> int:
        with self._explain_errors(checked_name(name)):
            try:
                return int(self._connection().head(name)["last_modified"].timestamp() * 1000)
            except FileNotFoundError as error:
                raise self._missing_error(name, error) from None

    def local_path(self, name: str) -> Path | None:
        checked_name(name)
        return None

    def settle(self, name: str) -> None:
        """Nothing to do: a visible object is durable."""
        checked_name(name)

    def check_writable(self) -> None:
        """Create a probe, check that a second create is refused, and delete the probe."""
        probe = f"probe-{secrets.token_hex(8)}"
        # Errors of the first create are raised unchanged: the probe does not exist, or the service does not answer.
        created, again = self.create(probe, b"1"), self.create(probe, b"2")
        self.delete(probe)
        if not created or again:
            raise StoreError(
                f"Store {self._url} ignores the condition of a conditional put, so two drivers could both commit. "
                f"Use a service that answers If-None-Match: *, or a local folder."
            )

    def remove_unfinished(self, before_ms: int) -> None:
        """Nothing to do: an unfinished upload does not appear as an object."""

    def _connection(self) -> Backend:
        if self._backend is None:
            self._backend = connect(self._url)
        return self._backend

    def _connection_for_creating(self) -> Backend:
        if self._creator is None:
            self._creator = connect(self._url, _NO_RETRIES)
        return self._creator

    def _missing_error(self, name: str, error: Exception) -> StoreError:
        if has_no_bucket(error):
            with self._explain_errors(name):
                raise error
        return StoreDamagedError(
            f"Store {self._url} has no file {name!r}, which was expected there. "
            f"Check whether it was moved or removed by hand, or by a rule of the bucket, and restore it."
        )

    @contextmanager
    def _explain_errors(self, name: str) -> Iterator[None]:
        with explained_errors(self._url, name, has_answered=self._has_answered):
            yield
        self._has_answered = True


def service_address(url: str) -> str:
    """The address with its service's endpoint, since several services may have a bucket of the same name.

    >>> service_address("/jobs/clicks")
    '/jobs/clicks'
    """
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    return f"{url} at {redacted_address(endpoint)}" if endpoint and url.startswith(("s3://", "s3a://")) else url


def connect(url: str, retries: Any = None) -> Backend:
    """A client of the service at `url`; sends no request yet. `retries` replaces the default."""
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise PlatformError(f"Store {url} needs the package obstore. Install it: pip install obstore") from error
    # Both spellings of S3 mean the same service; obstore knows the plain one. S3 supports copy-if-absent only by
    # multipart upload.
    plain_url = url.replace("s3a://", "s3://", 1)
    # An endpoint without TLS was configured explicitly, so plain HTTP is allowed.
    allows_http = any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS)
    config: Any = None
    if plain_url.startswith("s3://"):
        config = {"copy_if_not_exists": "multipart"}
        if _UNSIGNED not in os.environ:
            config["unsigned_payload"] = not allows_http
    options: Any = {**_TIMES, "allow_http": True} if allows_http else _TIMES
    return from_url(plain_url, config=config, client_options=options, retry_config=retries or _RETRIES)
