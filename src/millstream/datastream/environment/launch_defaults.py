"""Settings from outside the program: `millstream run -p 4 -D key=value --store URL job.py`.

A command that runs a program activates settings around it: every environment created inside starts with them, and the
program cannot change those set by the user (`program_settings`). A command that needs the program's jobs for another
purpose (`millstream replay`) activates a receiver, which receives each job instead of launching it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

from millstream.graph.builder import abandon

if TYPE_CHECKING:
    from millstream.graph.nodes import Graph
    from millstream.jobs.launch.job import Job
    from millstream.jobs.settings.job_settings import JobSettings

__all__ = ["JobReceiver", "fixed_keys", "job_receiver", "launch_defaults", "with_job_receiver", "with_launch_defaults"]

JobReceiver: TypeAlias = "Callable[[Graph, JobSettings], Job]"
"""Starts a job in its own way, or ends the program by an exception, since it has no result to return."""

_DEFAULTS: ContextVar[Mapping[str, str]] = ContextVar("millstream_launch_defaults")
_PROPOSED: ContextVar[Collection[str]] = ContextVar("millstream_proposed_settings", default=())
_RECEIVER: ContextVar[JobReceiver | None] = ContextVar("millstream_job_receiver", default=None)


def launch_defaults() -> dict[str, str]:
    """The active settings."""
    return dict(_DEFAULTS.get({}))


def fixed_keys() -> set[str]:
    """The keys that the user set on the command line, which the program cannot change."""
    return set(launch_defaults()) - set(_PROPOSED.get())


@contextmanager
def with_launch_defaults(settings: Mapping[str, str], proposed: Collection[str] = ()) -> Iterator[None]:
    """Makes environments created inside the block start from `settings`. `proposed`: keys that the user did not set;
    the program may change them.

    >>> with with_launch_defaults({"parallelism.default": "4"}):
    ...     launch_defaults()
    {'parallelism.default': '4'}
    >>> launch_defaults()
    {}
    """
    tokens = _DEFAULTS.set(dict(settings)), _PROPOSED.set(frozenset(proposed))
    try:
        yield
    finally:
        _DEFAULTS.reset(tokens[0])
        _PROPOSED.reset(tokens[1])


def job_receiver() -> JobReceiver | None:
    """The active receiver; None if jobs are launched."""
    return _RECEIVER.get()


@contextmanager
def with_job_receiver(receiver: JobReceiver) -> Iterator[None]:
    """Passes jobs that would be launched inside the block to `receiver`."""
    token = _RECEIVER.set(receiver)
    try:
        yield
    except BaseException:
        abandon()  # the caller (say, a test runner) reports the failure; "nothing was run" would be redundant
        raise
    finally:
        _RECEIVER.reset(token)
