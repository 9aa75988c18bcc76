"""What other processes may ask of a running job, and what they are told.

A command is done when it returns: a job that was asked to stop has stopped. What it raises is the answer no, and the
job goes on. Its arguments are what somebody wrote into a file: they are held against what the command takes before it
is called, and an argument that is missing, unknown or of another type is an answer no like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.common.job_status import JobStatus
from millstream.errors import JobFailedError
from millstream.jobs.job import Job

__all__ = ["Command", "Parameter", "commands_of"]

_KINDS = {int: "a whole number", bool: "true or false", str: "a text"}


@dataclass(frozen=True)
class Parameter:
    """An argument that a command takes; one that is not `required` may be left out, or be null."""

    type: type[int] | type[bool] | type[str]
    required: bool = False


@dataclass(frozen=True)
class Command:
    """A command and the arguments that it takes.

    >>> Command(lambda n: f"at {n}", {"n": Parameter(int, required=True)}).obey({"n": 2.5})
    Traceback (most recent call last):
    millstream.errors.JobFailedError: found 2.5 for 'n', expected a whole number
    """

    call: Callable[..., str]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def obey(self, arguments: Mapping[str, Any]) -> str:
        """Do it; JobFailedError when these are not its arguments."""
        unknown = sorted(arguments.keys() - self.parameters.keys())
        if unknown:
            takes = ", ".join(sorted(self.parameters)) or "none"
            raise JobFailedError(f"found the argument {unknown[0]!r}, which is not known here; it takes {takes}")
        given = {name: value for name, value in arguments.items() if value is not None}
        for name, parameter in self.parameters.items():
            if name not in given and parameter.required:
                raise JobFailedError(f"found no {name!r}, expected {_KINDS[parameter.type]}")
            if name in given and type(given[name]) is not parameter.type:
                raise JobFailedError(f"found {given[name]!r} for {name!r}, expected {_KINDS[parameter.type]}")
        return self.call(**given)


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
