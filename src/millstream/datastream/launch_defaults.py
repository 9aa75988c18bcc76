"""Settings that come from outside the program: `millstream run -p 4 -D key=value --store URL job.py`.

Whoever runs a program puts them in force around it; every environment made meanwhile starts from them. What the
program itself sets wins, as in Flink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["launch_defaults", "with_launch_defaults"]

_DEFAULTS: ContextVar[Mapping[str, str]] = ContextVar("millstream_launch_defaults")


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
