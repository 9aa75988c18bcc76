"""Ends a job: records how it ended in its log, then in its store, and then releases its lease.

A log outside of the store is copied into it, so that `millstream logs` shows it anywhere. A driver that lost the job to
another one records nothing in the store: the job continues there.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from millstream.checkpoint.driver_lease import HeldLease
from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.run_end import RunEnd, write_run_end
from millstream.common.job_status import JobStatus
from millstream.errors import FencedError
from millstream.jobs.epochs.failures import reason_of, run_or_log
from millstream.jobs.epochs.progress import ProgressBoard
from millstream.jobs.launch.job_log import JobLog
from millstream.storage.memory import MemoryStore
from millstream.storage.names import log_name
from millstream.storage.store import Store

__all__ = ["JobEnd"]

_LOG_BYTES_MAX = 64 << 20
"""The copied size of a log; only the end of a longer one is copied."""


@dataclass(frozen=True)
class JobEnd:
    """Records the end of one job. `run`: the name of its log."""

    store: Store
    lease: HeldLease
    log: JobLog
    board: ProgressBoard
    run: str

    def __call__(self, status: JobStatus, error: BaseException | None, runtime_ms: int) -> None:
        run_or_log("writing the end of the log", lambda: self.log.end(status, error, runtime_ms))
        if self.lease.lost_to is None and not isinstance(error, FencedError):
            run_or_log("noting in the store how the job ended", lambda: self._note(status, error))
        run_or_log("copying the log into the store", self._copy_log)
        self.lease.close()

    def _copy_log(self) -> None:
        name = log_name(self.run)
        if self.store.local_path(name) is None and self.log.path.exists() and not isinstance(self.store, MemoryStore):
            with self.log.path.open("rb") as log:
                log.seek(max(0, self.log.path.stat().st_size - _LOG_BYTES_MAX))
                self.store.put(name, log.read())

    def _note(self, status: JobStatus, error: BaseException | None) -> None:
        reason = "" if error is None else reason_of(error)
        epoch, host, log = self.board.now.epoch, socket.gethostname(), str(self.log.path)
        end = RunEnd(self.run, status.name, epoch, system_ms(), host, os.getpid(), reason, log)
        write_run_end(self.store, end)
