"""The private memory of this program's Python processes, sampled in the background.

Mapped segments belong to the page cache, which the system reclaims when necessary; what counts is anonymous memory,
`Anonymous` in the kernel's report of a process. Only descendants of this process are sampled.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

import psutil

__all__ = ["PrivateMemory", "anonymous_bytes"]

_EVERY_S = 0.1


def anonymous_bytes(pid: int) -> int:
    """The private memory of a process; 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass  # it has ended
    return 0


class PrivateMemory:
    """Samples inside a `with` block; `most_bytes` is the maximum of any one Python process."""

    def __init__(self) -> None:
        self.most_bytes = self.samples = 0
        self._pids: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def seen(self) -> int:
        """The number of sampled processes."""
        return len(self._pids)

    def _watch(self) -> None:
        own = psutil.Process(os.getpid())
        while not self._ended.wait(_EVERY_S):
            self.samples += 1
            for process in [own, *own.children(recursive=True)]:
                try:
                    is_python = "python" in process.name()
                except psutil.Error:
                    continue
                if is_python:
                    self._pids.add(process.pid)
                    self.most_bytes = max(self.most_bytes, anonymous_bytes(process.pid))

    def __enter__(self) -> PrivateMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
