"""Publishing from tasks: work that is too heavy for the driver is done where the data was made.

A sink that publishes so keeps, on the driver, the session that `opened` gave it, and hands each part of an epoch to
`commit_in_tasks`. On Spark every part is a task of its own. A run without Spark has no session; there the parts are
published here, one after another: the slow, obvious way, with the same result.

A task may run twice, also at the same time as its other attempt, so what it does must be harmless when repeated, as a
commit is anyway. What goes wrong in the world or in the settings is told to the driver as data, not raised: Spark would
try the task again at once, and wrap the sentence in a page of its own. Any other error is a bug of somebody's, and is
raised as it is, with its traceback.
"""

from __future__ import annotations

import builtins
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import cloudpickle

from millstream import errors
from millstream.errors import MillstreamError

__all__ = ["commit_in_tasks"]

P = TypeVar("P")

_Failure = tuple[str, str]
"""The kind of an error and what it says."""


def commit_in_tasks(session: Any, publish: Callable[[P], None], parts: Sequence[P]) -> None:
    """Call `publish` with each part, in tasks if there is a Spark session; raises what went wrong with one of them."""
    if session is None:
        for part in parts:
            publish(part)
        return
    rows = session.sparkContext.parallelize(parts, len(parts))
    # Pickled as the plan is: Spark's own copy of cloudpickle does not know which modules the user registered.
    failures = rows.mapPartitions(partial(_publish_rows, cloudpickle.dumps(publish))).collect()
    for kind, message in failures:
        raise _error_of(kind, message)


def _publish_rows(pickled_publish: bytes, parts: Iterator[P]) -> Iterator[_Failure]:
    """In a task: publish the parts, and say what went wrong."""
    publish: Callable[[P], None] = pickle.loads(pickled_publish)
    for part in parts:
        try:
            publish(part)
        except MillstreamError as error:
            yield type(error).__name__, error.message
        except (ConnectionError, TimeoutError) as error:
            yield type(error).__name__, str(error)


def _error_of(kind: str, message: str) -> Exception:
    """The error that a task told of.

    >>> _error_of("ConnectionError", "no answer"), _error_of("StoreAwayError", "no disk")
    (ConnectionError('no answer'), StoreAwayError('no disk'))
    """
    error_class: Any = getattr(errors, kind, getattr(builtins, kind, OSError))
    error: Exception = error_class(message)
    return error
