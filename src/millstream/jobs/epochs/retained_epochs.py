"""A sweeper's index of the epochs that a store retains: when each was committed, and which files they name.

There may be many retained epochs with large manifests. Each manifest is read once, and only its difference from the
previous one is stored: the added files, and the files that it no longer names. Each file counts the *runs* of
consecutive epochs that name it, not the epochs, so removing an epoch costs only the difference between its neighbours.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.retention import named_files
from millstream.errors import StoreAwayError, StoreError
from millstream.storage.names import manifest_name
from millstream.storage.store import Store

__all__ = ["NamedFiles", "RetainedEpochs", "RetainedHistory"]

_NOTHING: frozenset[str] = frozenset()


class NamedFiles:
    """The files that a growing and shrinking sequence of epochs names.

    >>> files = NamedFiles()
    >>> for epoch, names in {1: "ab", 2: "bc", 3: "c", 4: "cb"}.items():
    ...     files.add(epoch, names)
    >>> sorted(files.remove(1)), sorted(files.remove(2)), "b" in files, sorted(files.remove(4)), "b" in files
    (['a'], [], True, ['b'], False)
    """

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._gained: dict[int, frozenset[str]] = {}  # compared with the epoch before
        self._lost: dict[int, frozenset[str]] = {}
        self._runs: dict[str, int] = {}
        self._last: frozenset[str] = _NOTHING

    def __contains__(self, name: object) -> bool:
        return name in self._runs

    def add(self, epoch: int, names: Collection[str]) -> None:
        """Appends the newest epoch, which names these files."""
        # Interned: many manifests contain the same name, and each manifest read creates a string of its own.
        last = frozenset(map(sys.intern, names))
        gained, lost = last - self._last, self._last - last
        self._epochs.append(epoch)
        self._gained[epoch], self._lost[epoch] = gained or _NOTHING, lost or _NOTHING
        for name in gained:
            self._runs[name] = self._runs.get(name, 0) + 1
        self._last = last

    def remove(self, epoch: int) -> list[str]:
        """Removes an epoch; returns the files that no other one names."""
        place = bisect.bisect_left(self._epochs, epoch)
        del self._epochs[place]
        gained, lost = self._gained.pop(epoch), self._lost.pop(epoch)
        if place == len(self._epochs):
            self._last = (self._last - gained) | lost
            return self._end_runs(gained)
        after = self._epochs[place]
        gained_after, lost_after = self._gained[after], self._lost[after]
        self._gained[after] = (gained - lost_after) | (gained_after - lost) or _NOTHING
        self._lost[after] = (lost - gained_after) | (lost_after - gained) or _NOTHING
        self._end_runs(lost & gained_after)  # the run before the epoch and the one after it are one run now
        return self._end_runs(gained & lost_after)

    def _end_runs(self, names: Collection[str]) -> list[str]:
        removed = []
        for name in names:
            self._runs[name] -= 1
            if not self._runs[name]:
                del self._runs[name]
                removed.append(name)
        return removed


@dataclass(frozen=True)
class RetainedHistory:
    """The retained epochs, for sources and archives. `positions`: in each epoch, the split positions of some sources;
    `manifests` reads the manifests one after the other, the newest first."""

    newest: int
    positions: Mapping[str, list[dict[str, Any]]]
    manifests: Callable[[], Iterator[Manifest]]


class RetainedEpochs:
    """The retained epochs of one store. `sources`: the uids of the sources whose positions are needed. `report` is
    called for every file that cannot be read, with its name and the reason."""

    def __init__(self, store: Store, sources: Collection[str], report: Callable[[str, str], None]) -> None:
        self._store, self._log, self._sources, self._report = store, ManifestLog(store), sources, report
        self._clear()
        self.unreadable: set[int] = set()

    def _clear(self) -> None:
        self.files = NamedFiles()
        self.created_ms: dict[int, int] = {}
        self._positions: dict[int, dict[str, dict[str, Any]]] = {}

    def refresh(self, noted: Mapping[int, Manifest]) -> bool:
        """Compare the index with the store; `noted` manifests need not be read. Returns whether an epoch was removed
        other than by `remove`."""
        epochs = self._log.epochs()
        removed = set(self.created_ms).difference(epochs)
        self.remove(removed)
        newest_known, self.unreadable = max(self.created_ms, default=0), set()
        for epoch in epochs:
            manifest = None if epoch in self.created_ms else noted.get(epoch) or self._read(epoch)
            if manifest is not None and epoch < newest_known:  # an epoch was restored, or is readable again
                self._clear()
                return self.refresh(noted) or bool(removed)
            if manifest is not None:
                self._add(manifest)
        return bool(removed)

    def _read(self, epoch: int) -> Manifest | None:
        try:
            return self._log.read(epoch)
        except StoreAwayError:
            raise
        except StoreError as error:
            if self._store.exists(manifest_name(epoch)):
                self.unreadable.add(epoch)
                self._report(manifest_name(epoch), error.message)
            return None

    def _add(self, manifest: Manifest) -> None:
        self.files.add(manifest.epoch, named_files(manifest))
        self.created_ms[manifest.epoch] = manifest.created_ms
        if self._sources:
            self._positions[manifest.epoch] = {
                uid: {split: at.offset for split, at in manifest.sources.get(uid, {}).items()} for uid in self._sources
            }

    def remove(self, epochs: Collection[int]) -> list[str]:
        """Remove these epochs from the index; returns the files that no other epoch names."""
        files: list[str] = []
        for epoch in epochs:
            if epoch in self.created_ms:
                del self.created_ms[epoch]
                self._positions.pop(epoch, None)
                files += self.files.remove(epoch)
        self.unreadable -= set(epochs)
        return files

    def history(self) -> RetainedHistory:
        """The epochs retained now."""
        epochs = sorted(self.created_ms)
        positions = {uid: [self._positions[epoch][uid] for epoch in epochs] for uid in self._sources}
        return RetainedHistory(max(epochs, default=0), positions, lambda: self._manifests(epochs))

    def _manifests(self, epochs: list[int]) -> Iterator[Manifest]:
        for epoch in reversed(epochs):
            yield self._log.read(epoch)
