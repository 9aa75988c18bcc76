"""What comes from outside the program: `millstream run -p 4 -D key=value --store URL job.py`.

Whoever runs a program puts settings in force around it: every environment made meanwhile starts from them, and what the
program itself sets wins, as in Flink. Whoever needs the program's jobs for something else than running them
(`millstream replay`) puts a receiver in force, which gets each job instead of its being launched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from millstream.graph.nodes import Graph
    from millstream.jobs.launch.job import Job
    from millstream.jobs.settings.job_settings import JobSettings

__all__ = ["JobReceiver", "job_receiver", "launch_defaults", "with_job_receiver", "with_launch_defaults"]

JobReceiver: TypeAlias = "Callable[[Graph, JobSettings], Job]"
"""Gets a job and starts it in a way of its own, or ends the program by an exception: it has no result to go on with."""

_DEFAULTS: ContextVar[Mapping[str, str]] = ContextVar("millstream_launch_defaults")
_RECEIVER: ContextVar[JobReceiver | None] = ContextVar("millstream_job_receiver", default=None)


def launch_defaults() -> dict[str, str]:
    """The settings in force now."""
    return dict(_DEFAULTS.get({}))


@contextmanager
def with_launch_defaults(settings: Mapping[str, str]) -> Iterator[None]:
    """Let environments made inside the block start from `settings`.

    >>> with with_launch_defaults({"parallelism.default": "4"}):
    ...     launch_defaults()
    {'parallelism.default': '4'}
    >>> launch_defaults()
    {}
    """
    token = _DEFAULTS.set(dict(settings))
    try:
        yield
    finally:
        _DEFAULTS.reset(token)


def job_receiver() -> JobReceiver | None:
    """The receiver in force; None when jobs are launched."""
    return _RECEIVER.get()


@contextmanager
def with_job_receiver(receiver: JobReceiver) -> Iterator[None]:
    """Let `receiver` get the jobs that would be launched inside the block."""
    token = _RECEIVER.set(receiver)
    try:
        yield
    finally:
        _RECEIVER.reset(token)
