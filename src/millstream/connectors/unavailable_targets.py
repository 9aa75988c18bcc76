"""Classifies the failure when the target that a sink writes and publishes files to does not answer.

If the target is in the same service as the job's store, both are unavailable together: the error stays that of an
unavailable store, and the job pauses until it answers, without using up a restart. Any other target is a separate
system: the error names it, and the restart strategy decides, as for an unavailable database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.errors import ConnectorAwayError, StoreAwayError
from millstream.storage.store import Store, shown_address

__all__ = ["named_target"]

_SPELLINGS = {"s3a": "s3", "abfss": "az", "abfs": "az", "gcs": "gs", "": "file"}


@contextmanager
def named_target(url: str, store: Store) -> Iterator[None]:
    """Distinguishes, inside the context, an unavailable target at `url` from an unavailable job store.

    >>> from millstream.storage.memory import MemoryStore
    >>> with named_target("s3://results/a", MemoryStore("doctest-target")):
    ...     raise StoreAwayError("No answer.")
    Traceback (most recent call last):
    millstream.errors.ConnectorAwayError: The target s3://results/a does not answer: No answer. The job's own store is \
separate (memory://doctest-target). Nothing is lost: the step is retried once the target is available again.
    """
    try:
        yield
    except StoreAwayError as error:
        if _service(url) == _service(store.url):
            raise
        raise ConnectorAwayError(
            f"The target {shown_address(url)} does not answer: {error.message} The job's own store is separate "
            f"({shown_address(store.url)}). Nothing is lost: the step is retried once the target is available again."
        ) from error


def _service(url: str) -> str:
    """The scheme of an object store: from one machine either all buckets of a scheme are reachable, or none."""
    kind = url.partition("://")[0] if "://" in url else ""
    return _SPELLINGS.get(kind, kind)
