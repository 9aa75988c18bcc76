"""A deadline for an epoch: what runs longer is cancelled, and counts as failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

__all__ = ["EpochDeadline", "EpochTimedOutError"]

_AGAIN_S = 0.2


class EpochTimedOutError(RuntimeError):
    """An epoch took longer than `execution.checkpointing.timeout`; it is run again, or the job fails."""

    def __init__(self, epoch: int, timeout_ms: int) -> None:
        super().__init__(
            f"epoch {epoch} took longer than {timeout_ms} ms (execution.checkpointing.timeout) and was cancelled. "
            "If it needs the time, allow more; else let an epoch read less (millstream.epoch.max-records)"
        )


class EpochDeadline:
    """A block that is to end within `timeout_ms`; None: it may take its time.

    When it does not, `cancel` is called, from another thread and until the block has ended: what is to be cancelled may
    be starting at that very moment. After the block nothing is cancelled any more.

    >>> with EpochDeadline(60_000, cancel=lambda: None) as deadline:
    ...     pass
    >>> deadline.expired
    False
    """

    def __init__(self, timeout_ms: int | None, cancel: Callable[[], None]) -> None:
        self.expired = False
        self._timeout_ms, self._cancel = timeout_ms, cancel
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> EpochDeadline:
        if self._timeout_ms is not None:
            self._thread = threading.Thread(
                target=self._watch, args=(self._timeout_ms / 1000,), name="millstream-deadline", daemon=True
            )
            self._thread.start()
        return self

    def _watch(self, timeout_s: float) -> None:
        if self._over.wait(timeout_s):
            return
        self.expired = True
        while not self._over.is_set():
            self._cancel()
            self._over.wait(_AGAIN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
