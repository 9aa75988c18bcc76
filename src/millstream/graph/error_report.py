"""Displays Millstream's errors: the user's traceback, record and operator first, then one sentence with the line.

`millstream run`, plain `python job.py` and a failing test show the same report. Python prints an uncaught error with
all frames, but the engine's frames do not help the user, whose line is in the sentence. `show_uncaught_errors`
therefore installs a hook that displays Millstream's errors as the command line does; it does not change other errors or
an existing hook. A test runner also shows the report first, because it is the error's cause (`FailureInTask`).

Errors of the lower layers, which have no access to the program, carry no line; the line is then taken from the
traceback.
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
    """Prints the report of a failed job, if any, and the error in one sentence, with the program's line that caused it.
    `has_program` is False if there is no program to show a line of."""
    if isinstance(error, JobFailedError) and error.report:
        print(error.report, end="\n\n", file=screen)
    line = None if error.at or not has_program else _line_of(error)
    text = in_plain_words(str(error) if has_program else error.message)
    print(f"millstream: {text}", end="\n" if line is None else f" ({line})\n", file=screen)


# Frames of neither the program nor Millstream: Python itself, launchers, and packages.
_ELSEWHERE = (
    "<",
    PACKAGE_FOLDER,
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "scripts")},
)


def _line_of(error: MillstreamError) -> Site | None:
    """The last line of the program in the error's traceback, or None."""
    frames = traceback.extract_tb(error.__traceback__)
    program = [frame for frame in frames if not frame.filename.startswith(_ELSEWHERE)]
    return Site(program[-1].filename, program[-1].lineno or 0) if program else None


class _Notice(str):
    """The notice for a Ctrl-C handled by the engine, not by a line of the program."""


def aborted(notice: str) -> KeyboardInterrupt:
    """A KeyboardInterrupt with a notice, shown on one line without stack frames. Its class is Python's own, so that the
    process ends with the exit status that a shell expects."""
    return KeyboardInterrupt(_Notice(notice))


def show_aborted(error: KeyboardInterrupt, screen: TextIO) -> None:
    """Prints the notice."""
    print(f"millstream: {_notice_of(error) or 'aborted'}", file=screen)


def _notice_of(error: KeyboardInterrupt) -> str | None:
    return next((notice for notice in error.args if isinstance(notice, _Notice)), None)


def show_known_names(error: BaseException, screen: TextIO) -> None:
    """Prints the attributes of one of our classes after an AttributeError, as for `Types.INTEGER`."""
    kind = error.obj if isinstance(error, AttributeError) else None
    if isinstance(kind, type) and kind.__module__.startswith("millstream."):
        names = ", ".join(name for name in dir(kind) if not name.startswith("_"))
        print(f"millstream: {kind.__name__} has {names}", file=screen)


def show_uncaught_errors() -> None:
    """Installs the hook: uncaught errors are then displayed as on the command line."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_uncaught
        # Read now: at exit, `__main__` may have lost its file name.
        atexit.register(_at_exit, getattr(sys.modules.get("__main__"), "__file__", None))


def show_what_never_ran(screen: TextIO) -> None:
    """Reports that a program was built but not run: the most frequent mistake in a first program."""
    node = never_run()
    if node is not None:
        print(
            f"millstream: the program ended without env.execute(): nothing was run. Call it at the end ({node.site})",
            file=screen,
        )


def _at_exit(script: str | None) -> None:
    """Reports this at exit if Python ran the program directly and it ended normally, but not if a test runner or a
    shell imported it."""
    node = never_run()
    is_program = node is not None and script is not None and basename(script) == basename(node.site.file)
    if is_program and not _FAILED:
        show_what_never_ran(sys.stderr)


_FAILED: list[type[BaseException]] = []  # errors that ended the process


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
