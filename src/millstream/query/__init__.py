"""Queries a running job: reads its state consistently, at the newest epoch or in the past.

    from millstream import query

    clicks = query.open("jobs/clicks")
    now = clicks.newest()                         # one committed epoch: all its answers belong together
    now.get("clicks-by-user", "ann")              # a value, a list, a dict; None
    now.get_many("clicks-by-user", ["ann", "bo"])
    now.windows("clicks-per-hour", "ann")         # windows that are still open, with their results so far
    with clicks.at(time=an_hour_ago) as then:       # any retained epoch
        then.get("clicks-by-user", "ann")
    for epoch in clicks.follow():                 # each new epoch as it is committed
        print(epoch.epoch, epoch.get("clicks-by-user", "ann"))

It reads only the job's store: it needs neither the program nor Spark, and does not affect the job. How a program makes
its states queryable, and the server, are described in docs/operate/queries.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.query.errors import (
    EpochGoneError,
    KeyTypeError,
    NoEpochError,
    StateKindError,
    UnknownJobError,
    UnknownStateError,
)

if TYPE_CHECKING:
    from millstream.query.catalog import QueryableState
    from millstream.query.epoch_view import EpochView
    from millstream.query.job_lookup import open
    from millstream.query.job_view import JobView
    from millstream.query.window_reads import WindowView

__all__ = [
    "EpochGoneError",
    "EpochView",
    "JobView",
    "KeyTypeError",
    "NoEpochError",
    "QueryableState",
    "StateKindError",
    "UnknownJobError",
    "UnknownStateError",
    "WindowView",
    "open",
]


def __getattr__(name: str) -> Any:
    """Loads the modules that read a store on first use: a client of a server does not need them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millstream.query.catalog import QueryableState
    from millstream.query.epoch_view import EpochView
    from millstream.query.job_lookup import open
    from millstream.query.job_view import JobView
    from millstream.query.window_reads import WindowView

    names = {kind.__name__: kind for kind in (QueryableState, EpochView, open, JobView, WindowView)}
    globals().update(names)
    return names[name]
