"""What it means when the place that a sink writes and publishes files to does not answer.

Where the target is in the same service as the job's store, the two are away together: the error stays that of an absent
store, and the job pauses until it answers, without using a restart up. Any other target is a system of its own: the
error names it, and the restart strategy decides, as for a database that is away.
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
    """Within it, a target at `url` that does not answer is told apart from the job's store.

    >>> from millstream.storage.memory import MemoryStore
    >>> with named_target("s3://results/a", MemoryStore("doctest-target")):
    ...     raise StoreAwayError("No answer.")
    Traceback (most recent call last):
    millstream.errors.ConnectorAwayError: The target s3://results/a does not answer: No answer. The job's own store is \
another one (memory://doctest-target). Nothing is lost, and the same is done again; bring the target back.
    """
    try:
        yield
    except StoreAwayError as error:
        if _service(url) == _service(store.url):
            raise
        raise ConnectorAwayError(
            f"The target {shown_address(url)} does not answer: {error.message} The job's own store is another one "
            f"({shown_address(store.url)}). Nothing is lost, and the same is done again; bring the target back."
        ) from error


def _service(url: str) -> str:
    """Of object stores the kind: from one machine all buckets of a kind are reached, or none."""
    kind = url.partition("://")[0] if "://" in url else ""
    return _SPELLINGS.get(kind, kind)
