"""What comes from outside the program: `millstream run -p 4 -D key=value --store URL job.py`.

Whoever runs a program puts settings in force around it; every environment made meanwhile starts from them. What the
program itself sets wins, as in Flink. Whoever wants the program's jobs for something else than to run them
(`millstream replay`) takes them over: they are handed over in place of being launched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    from millstream.graph.nodes import Graph
    from millstream.jobs.settings.job_settings import JobSettings

__all__ = ["Taker", "launch_defaults", "taker_of_jobs", "with_jobs_taken", "with_launch_defaults"]

Taker: TypeAlias = "Callable[[Graph, JobSettings], NoReturn]"
"""Is given a job and ends the program, by an exception: there is no result that it could go on with."""

_DEFAULTS: ContextVar[Mapping[str, str]] = ContextVar("millstream_launch_defaults")
_TAKER: ContextVar[Taker | None] = ContextVar("millstream_taker_of_jobs", default=None)


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


def taker_of_jobs() -> Taker | None:
    """Who takes jobs over now, if anybody does."""
    return _TAKER.get()


@contextmanager
def with_jobs_taken(taker: Taker) -> Iterator[None]:
    """Let `taker` have the jobs that are to be launched inside the block."""
    token = _TAKER.set(taker)
    try:
        yield
    finally:
        _TAKER.reset(token)
