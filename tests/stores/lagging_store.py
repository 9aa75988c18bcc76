"""An in-memory store whose files arrive late, like those of a machine that uploads in the background, and that may be
unavailable.

Files written by tasks stay on their machine and are readable there; they reach the store on request, or later. A
manifest that references a file missing in the store is an error of the driver, and is raised as one.
"""

from __future__ import annotations

import random
import threading

from millstream.checkpoint.manifest import decode
from millstream.checkpoint.retention import named_files
from millstream.errors import StoreAwayError
from millstream.storage.memory import MemoryStore
from millstream.storage.names import SEGMENTS, STAGED, epoch_of_manifest

__all__ = ["Lag", "LaggingStore"]

_LAGS: dict[str, Lag] = {}
_SENT_BESIDE = (f"{SEGMENTS}/", f"{STAGED}/")


class Lag:
    """The lag of a store: unsent files, and whether it responds. `draw`: a requested file is sent with a random
    delay; None: immediately.
    """

    def __init__(self, draw: random.Random | None = None) -> None:
        self.draw = draw
        self.tier: dict[str, bytes] = {}
        self.unsent: set[str] = set()
        self.violations: list[str] = []
        self.manifests: list[int] = []
        self.present = threading.Event()
        self.present.set()
        self.holds_manifests = threading.Event()
        self.holds_manifests.set()

    def lose(self) -> None:
        """The machine is lost with all its files."""
        self.unsent.clear()
        self.tier.clear()


class LaggingStore(MemoryStore):
    """`name` is that of the store below. Tasks and driver share one lag."""

    def __init__(self, name: str, lag: Lag | None = None) -> None:
        super().__init__(name)
        self.lag = _LAGS.setdefault(name, lag or Lag())

    def __reduce__(self) -> tuple[object, ...]:
        return (LaggingStore, (self._name,))

    def _ask(self, what: str) -> None:
        if not self.lag.present.is_set():
            raise StoreAwayError(f"{what}: no answer")

    def put(self, name: str, data: bytes) -> None:
        if name.startswith(_SENT_BESIDE):
            self.lag.tier[name] = data
            self.lag.unsent.add(name)
            return
        self._ask(name)
        super().put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        self._ask(name)
        epoch = epoch_of_manifest(name)
        if epoch is not None:
            self.lag.holds_manifests.wait()
            self._ask(name)
            missing = [file for file in named_files(decode(data, name)) if not MemoryStore.exists(self, file)]
            if missing:
                self.lag.violations.append(f"{name} names {missing}, which are not in the store")
            self.lag.manifests.append(epoch)
        return super().create(name, data)

    def get(self, name: str) -> bytes:
        data = self.lag.tier.get(name)
        if data is not None:
            return data
        self._ask(name)
        return super().get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        data = self.lag.tier.get(name)
        if data is not None:
            return data[start:stop]
        self._ask(name)
        return super().get_range(name, start, stop)

    def exists(self, name: str) -> bool:
        self._ask(name)
        if name in self.lag.unsent and (self.lag.draw is None or self.lag.draw.random() < 0.5):
            super().put(name, self.lag.tier[name])
            self.lag.unsent.discard(name)
        return super().exists(name)

    def list(self, prefix: str) -> list[str]:
        self._ask(prefix)
        return super().list(prefix)

    def delete_many(self, names: object) -> None:
        self._ask("delete")
        for name in names:  # type: ignore[attr-defined]
            self.lag.unsent.discard(name)
            self.lag.tier.pop(name, None)
        super().delete_many(names)  # type: ignore[arg-type]
