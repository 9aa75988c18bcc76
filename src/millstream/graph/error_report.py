"""How an error of ours is shown: the user's traceback, record and operator first, then one sentence with the line.

`millstream run`, plain `python job.py` and a failing test show the same. Python prints an error nobody caught with
every frame that led to it; those of ours say nothing to the user, whose line is in the sentence. So
`show_uncaught_errors` puts a hook in place that shows our errors as the command line does, and leaves all others, and
a hook of somebody else's, alone. Where a test runner shows the error, the report comes first as well: it is the error's
cause (`FailureInTask`).
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

from millstream.errors import JobFailedError, MillstreamError

__all__ = ["show_error", "show_uncaught_errors"]


def show_error(error: MillstreamError, screen: TextIO) -> None:
    """The report of a failed job, if there is one, and the error in one sentence."""
    if isinstance(error, JobFailedError) and error.report:
        print(error.report, end="\n\n", file=screen)
    print(f"millstream: {error}", file=screen)


def show_uncaught_errors() -> None:
    """From now on, show our errors that nobody catches as the command line shows them."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_uncaught


def _show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, MillstreamError):
        sys.stdout.flush()
        show_error(error, sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
