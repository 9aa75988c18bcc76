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

import atexit
import sys
import sysconfig
import traceback
from os.path import basename
from types import TracebackType
from typing import TextIO

from millstream.errors import JobFailedError, MillstreamError
from millstream.graph.builder import never_run
from millstream.graph.site import PACKAGE_FOLDER, Site, in_plain_words

__all__ = ["aborted", "show_aborted", "show_error", "show_known_names", "show_uncaught_errors", "show_what_never_ran"]


def show_error(error: MillstreamError, screen: TextIO, *, has_program: bool = True) -> None:
    """The report of a failed job, if there is one, and the error in one sentence; with the line of the program that led
    to it, unless there is none (`has_program`)."""
    if isinstance(error, JobFailedError) and error.report:
        print(error.report, end="\n\n", file=screen)
    line = None if error.at or not has_program else _line_of(error)
    text = in_plain_words(str(error) if has_program else error.message)
    print(f"millstream: {text}", end="\n" if line is None else f" ({line})\n", file=screen)


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


class _Notice(str):
    """What is said of a Ctrl-C that was met by us, and not by a line of the program."""


def aborted(notice: str) -> KeyboardInterrupt:
    """Ctrl-C has ended what the program waited for: shown in one line, without the frames that waited. Of the very kind
    that Python raises, and no other: it ends a process whose shell is to know why."""
    return KeyboardInterrupt(_Notice(notice))


def show_aborted(error: KeyboardInterrupt, screen: TextIO) -> None:
    """The line."""
    print(f"millstream: {_notice_of(error) or 'aborted'}", file=screen)


def _notice_of(error: KeyboardInterrupt) -> str | None:
    return next((notice for notice in error.args if isinstance(notice, _Notice)), None)


def show_known_names(error: BaseException, screen: TextIO) -> None:
    """Of an attribute that one of our classes does not have, as `Types.INTEGER`: those it has."""
    kind = error.obj if isinstance(error, AttributeError) else None
    if isinstance(kind, type) and kind.__module__.startswith("millstream."):
        names = ", ".join(name for name in dir(kind) if not name.startswith("_"))
        print(f"millstream: {kind.__name__} has {names}", file=screen)


def show_uncaught_errors() -> None:
    """From now on, show our errors that nobody catches as the command line shows them."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_uncaught
        # Now: when Python is about to end, nobody knows any more which file it was given.
        atexit.register(_at_exit, getattr(sys.modules.get("__main__"), "__file__", None))


def show_what_never_ran(screen: TextIO) -> None:
    """Say that a program was built and nothing of it ran: the commonest mistake of a first program."""
    node = never_run()
    if node is not None:
        print(
            f"millstream: the program ended without env.execute(): nothing of it ran. Call it at the end ({node.site})",
            file=screen,
        )


def _at_exit(script: str | None) -> None:
    """The same for a program that Python runs by itself, if it came to its end: not for one that a test runner or a
    shell imports."""
    node = never_run()
    is_program = node is not None and script is not None and basename(script) == basename(node.site.file)
    if is_program and not _FAILED:
        show_what_never_ran(sys.stderr)


_FAILED: list[type[BaseException]] = []  # what ended the process


def _show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _FAILED.append(kind)
    if isinstance(error, MillstreamError):
        sys.stdout.flush()
        show_error(error, sys.stderr)
    elif isinstance(error, KeyboardInterrupt) and _notice_of(error):
        sys.stdout.flush()
        show_aborted(error, sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
        show_known_names(error, sys.stderr)
