"""A store in this process's memory, for tests and for jobs that need no durability.

All stores opened under the same name share their files, as two drivers share a folder. In another process the same name
is an empty store: memory is not shared between processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from millstream.errors import StoreDamagedError
from millstream.storage.path_parts import checked_name
from millstream.storage.store import Names, open_store

__all__ = ["MemoryStore"]


class _Shelf:
    """The files of one name, and the lock that makes `create` atomic."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        self.lock = threading.Lock()


_SHELVES: dict[str, _Shelf] = {}
_SHELVES_LOCK = threading.Lock()


class MemoryStore:
    """Files in a dictionary shared by all stores of the same name in this process.

    >>> MemoryStore("doctest").put("a", b"1")
    >>> MemoryStore("doctest").get("a")
    b'1'
    """

    def __init__(self, name: str) -> None:
        with _SHELVES_LOCK:
            self._shelf = _SHELVES.setdefault(name, _Shelf())
        self._name = name

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    def __repr__(self) -> str:
        return f"MemoryStore({self._name!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (open_store, (self.url,))

    def put(self, name: str, data: bytes) -> None:
        with self._shelf.lock:
            self._write(checked_name(name), data)

    def create(self, name: str, data: bytes) -> bool:
        with self._shelf.lock:
            if checked_name(name) in self._shelf.files:
                return False
            self._write(name, data)
            return True

    def _write(self, name: str, data: bytes) -> None:
        self._shelf.files[name] = bytes(data)
        self._shelf.modified_ms[name] = int(time.time() * 1000)

    def get(self, name: str) -> bytes:
        with self._shelf.lock:
            data = self._shelf.files.get(checked_name(name))
        if data is None:
            raise self._missing_error(name)
        return data

    def _missing_error(self, name: str) -> StoreDamagedError:
        return StoreDamagedError(f"Store {self.url} has no file {name!r}, which was expected there.")

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self.get(name)[start:stop]

    def exists(self, name: str) -> bool:
        with self._shelf.lock:
            return checked_name(name) in self._shelf.files

    def list(self, prefix: str) -> Names:
        folder = checked_name(prefix.rstrip("/")) + "/" if prefix.rstrip("/") else ""
        with self._shelf.lock:
            return sorted(name for name in self._shelf.files if name.startswith(folder))

    def list_after(self, folder: str, after: str) -> Names:
        return [name for name in self.list(folder) if name > after]

    def delete(self, name: str) -> None:
        with self._shelf.lock:
            self._shelf.files.pop(checked_name(name), None)

    def delete_many(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    def modified_ms(self, name: str) -> int:
        with self._shelf.lock:
            if checked_name(name) not in self._shelf.files:
                raise self._missing_error(name)
            return self._shelf.modified_ms[name]

    def local_path(self, name: str) -> Path | None:
        checked_name(name)
        return None

    def settle(self, name: str) -> None:
        checked_name(name)

    def check_writable(self) -> None:
        """Memory is always writable."""

    def remove_unfinished(self, before_ms: int) -> None:
        """Nothing to do: a name and its content appear together."""
