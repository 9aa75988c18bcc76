"""The store that tasks use: reads are cached on their machine, and writes are stored in the cache before their upload.

Only files with names that are never reused use the tier: segments, staged output and the specs of epochs. Their content
never changes, so a copy is equivalent to the file. Files that are part of the commit protocol (manifests, `create`,
leases) are written to the store directly.

`put` returns when the file is in the tier. The file is durable when `flush` has returned: until then it is lost if its
machine fails, but not if its process dies (`LocalTier.adopt`).
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from millstream.errors import StoreDamagedError, StoreError, UnsentFileError
from millstream.storage.local import LocalStore
from millstream.storage.names import SEGMENTS, SPECS, STAGED
from millstream.storage.objects import service_address
from millstream.storage.patience import Patience, patiently
from millstream.storage.request_counts import REQUESTS
from millstream.storage.store import Names, Store
from millstream.storage.tier.local_tier import LocalTier, TierAbsentError
from millstream.storage.tier.side_by_side import side_by_side
from millstream.storage.tier.uploads import Uploads

__all__ = ["BYTES_MAX", "TierSettings", "TieredStore", "default_folder", "store_with_cache", "tiered_store"]

_LOG = logging.getLogger(__name__)
_READ = tuple(f"{folder}/" for folder in (SEGMENTS, STAGED, SPECS))
_WRITTEN = tuple(f"{folder}/" for folder in (SEGMENTS, STAGED))

BYTES_MAX = 16 << 30
"""The default size of a machine's tier."""


def default_folder() -> Path:
    """The default folder of this user's tier, below the folder for temporary files."""
    return Path(tempfile.gettempdir(), f"millstream-tier-{os.getuid()}")


@dataclass(frozen=True)
class TierSettings:
    """The folder of a machine's tier (None: `default_folder`) and its size (None: `BYTES_MAX`, or a quarter of its disk
    if that is less). It is shipped to tasks."""

    folder: str | None = None
    bytes_max: int | None = None


class TieredStore:
    """`store`, with the files of tasks cached in `tier`. One instance per process, with the process's upload queue.

    `patience`: how long to wait for a missing file that another machine may not have uploaded yet.

    >>> from millstream.storage.memory import MemoryStore
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     below = MemoryStore("doctest-tiered")
    ...     store = TieredStore(below, LocalTier(Path(folder), 1 << 20))
    ...     store.put("segments/a", b"1")
    ...     store.flush()
    ...     below.delete("segments/a")
    ...     store.get("segments/a")
    b'1'
    """

    def __init__(self, store: Store, tier: LocalTier, uploads: Uploads | None = None) -> None:
        self._store, self.tier = store, tier
        self._address = service_address(store.url)
        self.uploads = uploads or Uploads(store, tier, self._address)
        self.patience = Patience(0.0)

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def below(self) -> Store:
        """The wrapped store."""
        return self._store

    def __repr__(self) -> str:
        return f"TieredStore({self._store!r}, {self.tier!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (tiered_store, (self._store, TierSettings(str(self.tier.folder), self.tier.bytes_max)))

    # --- the tier -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until all files put by this process are in the store; raises the first failure."""
        try:
            self.uploads.flush()
        finally:
            self.take_over_requests()

    def check(self) -> None:
        """Raises if an upload failed permanently."""
        self.uploads.check()

    def take_over_requests(self) -> None:
        """Count the requests of upload threads as this thread's."""
        REQUESTS.take_over(self.uploads.take_request_count())

    @property
    def put_count(self) -> int:
        """The number of files that this process has put into the tier for the store so far."""
        return self.uploads.queued_count

    def unsent_bytes(self, put_count: int) -> int:
        """The unsent bytes of all files put after the first `put_count`."""
        return self.uploads.pending_bytes(put_count)

    def adopt(self) -> None:
        """Upload the unsent files of dead processes of this machine. Checks at most once a second."""
        if not self.uploads.is_due():
            return
        for file in self.tier.adopt(self._address):
            self.uploads.queue(file, is_adopted=True)

    def fetch_all(self, names: Sequence[str]) -> None:
        """Fetch uncached files concurrently. Failures are left to the reader of the file."""
        missing = [name for name in names if not self.tier.has(self._address, name)]
        if len(missing) > 1:
            side_by_side([partial(self.get, name) for name in missing])

    def hold(self, name: str, length: int) -> Path | None:
        """A path for mapping a file of the tier, which starts with its content, until `release`. None if it is not
        cached whole."""
        return self.tier.hold(self._address, name, length)

    def release(self, held: Path) -> None:
        """Release a file that is no longer mapped."""
        self.tier.release(held)

    def discard(self, name: str) -> None:
        """Drop a damaged copy of a file; the next read fetches it again."""
        self.tier.discard(self._address, name)

    # --- the Store interface ------------------------------------------------------------------------------------

    def put(self, name: str, data: bytes) -> None:
        if name.startswith(_WRITTEN):
            file = self.tier.keep_unsent(self._address, name, data)
            if file is not None:
                self.uploads.queue(file, data)
                return
        self._store.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        return self._store.create(name, data)

    def get(self, name: str) -> bytes:
        if not name.startswith(_READ):
            return self._store.get(name)
        data = self.tier.read(self._address, name)
        if data is None:
            data = patiently(partial(self._fetch, name), patience=self.patience)
            self.tier.keep(self._address, name, data)
        return data

    def _fetch(self, name: str) -> bytes:
        try:
            return self._store.get(name)
        except StoreDamagedError as error:
            # Another process may have adopted the file during the first lookup.
            data = self.tier.read(self._address, name)
            if data is None:
                raise self._missing_error(error) from error
            return data

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        if not name.startswith(_READ):
            return self._store.get_range(name, start, stop)
        data = self.tier.read_part(self._address, name, start, stop)
        if data is None:
            data = patiently(partial(self._fetch_range, name, start, stop), patience=self.patience)
        return data

    def _fetch_range(self, name: str, start: int, stop: int) -> bytes:
        try:
            data = self._store.get_range(name, start, stop)
        except StoreDamagedError as error:
            part = self.tier.read_part(self._address, name, start, stop)
            if part is None:
                raise self._missing_error(error) from error
            return part
        if len(data) == stop - start:
            self.tier.keep_part(self._address, name, start, data)
        return data

    def _missing_error(self, error: StoreDamagedError) -> StoreError:
        """The error for a missing file; transient if the file may not have been uploaded yet."""
        if not self.patience.total_s:
            return error
        return UnsentFileError(f"{error.message} The machine that wrote it may not have sent it yet, or be gone.")

    def exists(self, name: str) -> bool:
        return (name.startswith(_WRITTEN) and self.tier.is_unsent(self._address, name)) or self._store.exists(name)

    def list(self, prefix: str) -> Names:
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        # Unsent files first: a file uploaded in the meantime is then listed by the store.
        unsent = {name for name in self.tier.unsent_names(self._address) if name.startswith(folder)}
        return sorted(unsent.union(self._store.list(prefix)))

    def list_after(self, folder: str, after: str) -> Names:
        unsent = {name for name in self.tier.unsent_names(self._address) if name.startswith(f"{folder}/")}
        return sorted({name for name in unsent if name > after}.union(self._store.list_after(folder, after)))

    def delete(self, name: str) -> None:
        self._drop(name)
        self._store.delete(name)

    def delete_many(self, names: Sequence[str]) -> None:
        for name in names:
            self._drop(name)
        self._store.delete_many(names)

    def _drop(self, name: str) -> None:
        if name.startswith(_READ):
            self.uploads.withdraw(name)
            self.tier.withdraw(self._address, name)
            self.tier.discard(self._address, name)

    def modified_ms(self, name: str) -> int:
        if name in self.uploads.pending:
            self.flush()
        return self._store.modified_ms(name)

    def local_path(self, name: str) -> Path | None:
        # Files are written by `put`, so that a full disk is handled here and not by the writer.
        return self._store.local_path(name)

    def settle(self, name: str) -> None:
        self._store.settle(name)

    def check_writable(self) -> None:
        self._store.check_writable()

    def remove_unfinished(self, before_ms: int) -> None:
        self._store.remove_unfinished(before_ms)


def tiered_store(store: Store, settings: TierSettings | None) -> Store:
    """`store` with the tier of this machine; `store` itself if the tier is disabled, if the store is a folder, or if
    the tier cannot be used, which is logged once."""
    if settings is None or isinstance(store, LocalStore):
        return store
    with _LOCK:
        tier = _tier_of_process(settings)
        if tier is None:
            return store
        return _STORES.of(store, tier)


def store_with_cache(store: Store, folder: Path | None) -> Store:
    """`store` with a tier in a reader's cache folder."""
    return tiered_store(store, None if folder is None else TierSettings(str(folder)))


class _Stores:
    """The stores of a process, one instance of each. A worker serves many jobs, one after the other: recently used
    stores and those with pending uploads stay open."""

    def __init__(self, recent_max: int = 32) -> None:
        self._recent_max = recent_max
        self._recent: OrderedDict[tuple[int, str], TieredStore] = OrderedDict()
        self._used: WeakValueDictionary[tuple[int, str], TieredStore] = WeakValueDictionary()
        # Threads of unfinished uploads hold references to these stores: reopening one reuses it.
        self._uploads: WeakValueDictionary[tuple[int, str], Uploads] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._used)

    def of(self, store: Store, tier: LocalTier) -> TieredStore:
        """The store of this process; the caller holds the lock."""
        key = (id(tier), repr(store))  # a tier lives as long as its process
        tiered = self._used.get(key)
        if tiered is None:
            tiered = self._used[key] = TieredStore(store, tier, self._uploads.get(key))
            self._uploads[key] = tiered.uploads
        self._recent[key] = tiered
        self._recent.move_to_end(key)
        if len(self._recent) > self._recent_max:
            self._recent.popitem(last=False)
        return tiered


_LOCK = threading.Lock()
_TIERS: dict[tuple[int, TierSettings], LocalTier | None] = {}
_STORES = _Stores()


def _tier_of_process(settings: TierSettings) -> LocalTier | None:
    """The tier, opened once per process (a forked process opens its own)."""
    key = (os.getpid(), settings)
    if key not in _TIERS:
        folder = Path(settings.folder) if settings.folder else default_folder()
        try:
            _TIERS[key] = LocalTier(folder, settings.bytes_max or min(BYTES_MAX, _disk_bytes(folder) // 4))
        except TierAbsentError as error:
            _TIERS[key] = None
            _LOG.warning(
                "there is no local tier in %s: %s. The job continues with the store alone; set millstream.tier.folder "
                "to a folder that this user can write",
                folder,
                error,
            )
    return _TIERS[key]


def _disk_bytes(folder: Path) -> int:
    """The size of the disk of the folder, which need not exist."""
    place = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(place).total
