"""A store that retries while the store below it is temporarily unavailable.

A request that fails because the store does not answer (`StoreAwayError`) is repeated, after increasing pauses, until
the time limit is reached. Then the error is raised, and the restart strategy applies. Permanent errors (a missing file,
damage, no permission) are raised at once.

Every request may be repeated, because stores write files atomically. Only `create` needs care: a repeated create may
fail with "exists already" because of its own first attempt. Then the stored bytes are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from millstream.errors import StoreAwayError
from millstream.storage.store import Names, Store

__all__ = ["PATIENCE_S", "Patience", "PatientStore", "patiently", "with_patience"]

PATIENCE_S = 10.0
"""The default limit of how long the store may be unavailable."""

_Answer = TypeVar("_Answer")
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True)
class Patience:
    """How long a store may be unavailable, and the clock that measures it. Tests pass their own clock."""

    total_s: float = field(default_factory=lambda: PATIENCE_S)
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


def with_patience(store: Store, total_s: float | None = None) -> Store:
    """`store` with retries for up to `total_s`; `store` itself when that is 0."""
    patience = Patience() if total_s is None else Patience(total_s)
    return PatientStore(store, patience) if patience.total_s > 0 else store


def patiently(
    request: Callable[[], _Answer], repeat: Callable[[], _Answer] | None = None, patience: Patience | None = None
) -> _Answer:
    """The result of `request`, repeated while the store is unavailable; repetitions call `repeat` if it is passed."""
    patience, pause_s = patience or Patience(), _FIRST_PAUSE_S
    deadline_s = patience.monotonic() + patience.total_s
    while True:
        try:
            return request()
        except StoreAwayError:
            if patience.monotonic() + pause_s > deadline_s:
                raise
        patience.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        request = repeat or request


class PatientStore:
    """`store`, with requests repeated while it is unavailable.

    >>> from millstream.storage.memory import MemoryStore
    >>> store = PatientStore(MemoryStore("doctest-patient"))
    >>> store.create("a", b"1"), store.create("a", b"1"), store.get("a")
    (True, False, b'1')
    """

    def __init__(self, store: Store, patience: Patience | None = None) -> None:
        self._store, self._patience = store, patience or Patience()

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def below(self) -> Store:
        """The wrapped store, without retries."""
        return self._store

    def __repr__(self) -> str:
        return f"PatientStore({self._store!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (PatientStore, (self._store, self._patience))

    def _retry(self, request: Callable[[], _Answer], repeat: Callable[[], _Answer] | None = None) -> _Answer:
        """The result of `request`, or of `repeat` (if passed) once a request went unanswered."""
        return patiently(request, repeat, self._patience)

    def put(self, name: str, data: bytes) -> None:
        self._retry(lambda: self._store.put(name, data))

    def create(self, name: str, data: bytes) -> bool:
        def repeat() -> bool:
            return self._store.create(name, data) or self._store.get(name) == data

        return self._retry(lambda: self._store.create(name, data), repeat)

    def get(self, name: str) -> bytes:
        return self._retry(lambda: self._store.get(name))

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self._retry(lambda: self._store.get_range(name, start, stop))

    def exists(self, name: str) -> bool:
        return self._retry(lambda: self._store.exists(name))

    def list(self, prefix: str) -> Names:
        return self._retry(lambda: self._store.list(prefix))

    def list_after(self, folder: str, after: str) -> Names:
        return self._retry(lambda: self._store.list_after(folder, after))

    def delete(self, name: str) -> None:
        self._retry(lambda: self._store.delete(name))

    def delete_many(self, names: Sequence[str]) -> None:
        self._retry(lambda: self._store.delete_many(names))

    def modified_ms(self, name: str) -> int:
        return self._retry(lambda: self._store.modified_ms(name))

    def local_path(self, name: str) -> Path | None:
        return self._retry(lambda: self._store.local_path(name))

    def settle(self, name: str) -> None:
        self._retry(lambda: self._store.settle(name))

    def check_writable(self) -> None:
        self._retry(self._store.check_writable)

    def remove_unfinished(self, before_ms: int) -> None:
        self._retry(lambda: self._store.remove_unfinished(before_ms))
