"""What other processes may ask of a running job, and what they are told.

A command is done when it returns: a job that was asked to stop has stopped. What it raises is the answer no, and the
job goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.common.job_status import JobStatus
from millstream.errors import JobFailedError
from millstream.jobs.control.command import Command, Parameter
from millstream.jobs.launch.job import Job

__all__ = ["commands_of"]


def commands_of(job: Job) -> Mapping[str, Command]:
    """The commands of a job, by name, for a `RequestServer`."""

    def stop(drain: bool = False) -> str:
        job.stop(drain)
        job.wait()
        return _end_text(job)

    def cancel() -> str:
        job.cancel()
        job.wait()
        return _end_text(job)

    def rescale(parallelism: int) -> str:
        job.rescale(parallelism)
        return f"'{job.board.now.job_name}' goes on at parallelism {parallelism} with its next epoch"

    def savepoint(to: str | None = None, name: str | None = None) -> str:
        return job.savepoint(to, name)

    def published() -> str:
        return str(job.published())

    return {
        "stop": Command(stop, {"drain": Parameter(bool)}),
        "cancel": Command(cancel),
        "rescale": Command(rescale, {"parallelism": Parameter(int, required=True)}),
        "savepoint": Command(savepoint, {"to": Parameter(str), "name": Parameter(str)}),
        "published": Command(published),
    }


def _end_text(job: Job) -> str:
    """How a job ended that was asked to."""
    now, status = job.board.now, job.status()
    if status is JobStatus.FAILED:
        raise JobFailedError(f"'{now.job_name}' failed instead: {now.last_error}")
    if status is JobStatus.CANCELED:
        return f"'{now.job_name}' is cancelled; what it committed, up to epoch {now.epoch}, stays"
    how = "is finished" if status is JobStatus.FINISHED else "has stopped"
    return f"'{now.job_name}' {how} at epoch {now.epoch}; everything up to it is published"
