"""What a sweeper knows of the epochs that a store retains: when each was committed, and which files they name.

Retained epochs may be many, and their manifests large. Each manifest is read once, and of it stays only what differs
from the one before: the files that it names in addition, and those that it names no more. A file is named by *runs* of
epochs; it counts runs, not epochs, so that an epoch that goes costs what differs between its neighbours.
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
        self._gained: dict[int, frozenset[str]] = {}  # against the epoch before
        self._lost: dict[int, frozenset[str]] = {}
        self._runs: dict[str, int] = {}
        self._last: frozenset[str] = _NOTHING

    def __contains__(self, name: object) -> bool:
        return name in self._runs

    def add(self, epoch: int, names: Collection[str]) -> None:
        """The newest epoch: it names these files."""
        # Interned: a name stands in many manifests, and each that is read makes a text of its own.
        last = frozenset(map(sys.intern, names))
        gained, lost = last - self._last, self._last - last
        self._epochs.append(epoch)
        self._gained[epoch], self._lost[epoch] = gained or _NOTHING, lost or _NOTHING
        for name in gained:
            self._runs[name] = self._runs.get(name, 0) + 1
        self._last = last

    def remove(self, epoch: int) -> list[str]:
        """The epoch is gone; returns the files that no other one names."""
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
        self._end_runs(lost & gained_after)  # the run before it and the one behind it are one now
        return self._end_runs(gained & lost_after)

    def _end_runs(self, names: Collection[str]) -> list[str]:
        gone = []
        for name in names:
            self._runs[name] -= 1
            if not self._runs[name]:
                del self._runs[name]
                gone.append(name)
        return gone


@dataclass(frozen=True)
class RetainedHistory:
    """What sources and archives are told of the epochs that are left. `positions`: where the splits of some sources
    stood in each; `manifests` reads them one after the other, the newest first."""

    newest: int
    positions: Mapping[str, list[dict[str, Any]]]
    manifests: Callable[[], Iterator[Manifest]]


class RetainedEpochs:
    """The retained epochs of one store. `sources`: the uids of those whose positions are of interest. `tell` hears of
    every file that cannot be read, by its name and why."""

    def __init__(self, store: Store, sources: Collection[str], tell: Callable[[str, str], None]) -> None:
        self._store, self._log, self._sources, self._tell = store, ManifestLog(store), sources, tell
        self._clear()
        self.unreadable: set[int] = set()

    def _clear(self) -> None:
        self.files = NamedFiles()
        self.created_ms: dict[int, int] = {}
        self._positions: dict[int, dict[str, dict[str, Any]]] = {}

    def refresh(self, noted: Mapping[int, Manifest]) -> bool:
        """Look what is there now; `noted` spares reading. Whether an epoch has gone that was not forgotten."""
        epochs = self._log.epochs()
        gone = set(self.created_ms).difference(epochs)
        self.forget(gone)
        newest_known, self.unreadable = max(self.created_ms, default=0), set()
        for epoch in epochs:
            manifest = None if epoch in self.created_ms else noted.get(epoch) or self._read(epoch)
            if manifest is not None and epoch < newest_known:  # one was put back, or can be read again
                self._clear()
                return self.refresh(noted) or bool(gone)
            if manifest is not None:
                self._add(manifest)
        return bool(gone)

    def _read(self, epoch: int) -> Manifest | None:
        try:
            return self._log.read(epoch)
        except StoreAwayError:
            raise
        except StoreError as error:
            if self._store.exists(manifest_name(epoch)):
                self.unreadable.add(epoch)
                self._tell(manifest_name(epoch), error.message)
            return None

    def _add(self, manifest: Manifest) -> None:
        self.files.add(manifest.epoch, named_files(manifest))
        self.created_ms[manifest.epoch] = manifest.created_ms
        if self._sources:
            self._positions[manifest.epoch] = {
                uid: {split: at.offset for split, at in manifest.sources.get(uid, {}).items()} for uid in self._sources
            }

    def forget(self, epochs: Collection[int]) -> list[str]:
        """These are gone; returns the files that no other one names."""
        files: list[str] = []
        for epoch in epochs:
            if epoch in self.created_ms:
                del self.created_ms[epoch]
                self._positions.pop(epoch, None)
                files += self.files.remove(epoch)
        self.unreadable -= set(epochs)
        return files

    def history(self) -> RetainedHistory:
        """What is left now."""
        epochs = sorted(self.created_ms)
        positions = {uid: [self._positions[epoch][uid] for epoch in epochs] for uid in self._sources}
        return RetainedHistory(max(epochs, default=0), positions, lambda: self._manifests(epochs))

    def _manifests(self, epochs: list[int]) -> Iterator[Manifest]:
        for epoch in reversed(epochs):
            yield self._log.read(epoch)
