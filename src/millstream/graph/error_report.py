"""How an error of ours is shown: the user's traceback, record and operator first, then one sentence with the line.

`millstream run`, plain `python job.py` and a failing test show the same. Python prints an error nobody caught with
every frame that led to it; those of ours say nothing to the user, whose line is in the sentence. So
`show_uncaught_errors` puts a hook in place that shows our errors as the command line does, and leaves all others, and
a hook of somebody else's, alone. Where a test runner shows the error, the report comes first as well: it is the error's
cause (`FailureInTask`).

An error of the lower layers, which know nothing of programs, has no line: then the traceback says which line of the
program led to it.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from types import TracebackType
from typing import TextIO

from millstream.errors import JobFailedError, MillstreamError
from millstream.graph.site import PACKAGE_FOLDER, Site

__all__ = ["show_error", "show_uncaught_errors"]


def show_error(error: MillstreamError, screen: TextIO) -> None:
    """The report of a failed job, if there is one, and the error in one sentence."""
    if isinstance(error, JobFailedError) and error.report:
        print(error.report, end="\n\n", file=screen)
    line = None if error.at else _line_of(error)
    print(f"millstream: {error}" if line is None else f"millstream: {error} ({line})", file=screen)


# Neither the program's nor ours: Python itself, what starts programs, and packages.
_ELSEWHERE = (
    "<",
    PACKAGE_FOLDER,
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "scripts")},
)


def _line_of(error: MillstreamError) -> Site | None:
    """The last line of the program on the way to the error; None where no program is on the way."""
    frames = traceback.extract_tb(error.__traceback__)
    program = [frame for frame in frames if not frame.filename.startswith(_ELSEWHERE)]
    return Site(program[-1].filename, program[-1].lineno or 0) if program else None


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
