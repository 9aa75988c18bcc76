"""The states of a job, Flink's names.

    CREATED ──► RUNNING ──► FINISHED
                  │ ▲
        user stop │ │ restart strategy
                  ▼ │
    CANCELLING  FAILING ──► FAILED
        │         │
        ▼         ▼
    CANCELED   RESTARTING ──► RUNNING

SUSPENDED (the driver ended, the store can resume the job) and RECONCILING (a new driver is reading the store)
are the two sides of a driver's death.
"""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """The status of a job.

    >>> JobStatus.FINISHED.is_globally_terminal_state(), JobStatus.SUSPENDED.is_globally_terminal_state()
    (True, False)
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended permanently: nothing resumes it."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Whether this driver has ended the job; a suspended job may continue elsewhere."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()


add_pyflink_names(globals())
