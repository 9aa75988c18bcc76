"""`millstream run`: a program run as `python job.py` would run it, with settings from the command line.

In order: everything typed is checked (exit code 2 when it is wrong), the settings are put in force for environments
that the program makes, PyFlink's name is served if asked for, and the program runs as `__main__`. What it raises is
shown in the user's terms: an error of ours is its message, a failed job its report, anything else the program's own
traceback without the frames of whoever started it.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from millstream.cli.pyflink_import import SERVE_VARIABLE, serve_pyflink
from millstream.errors import ConfigurationError, JobFailedError, MillstreamError, NotYetError, ProgramError, StoreError

__all__ = ["RunRequest", "run_program", "settings_of"]

DONE, FAILED, WRONG_COMMAND, ABORTED = 0, 1, 2, 130

_PARALLELISM = "parallelism.default"
_STORE = "millstream.store"
_CONSOLE = "millstream.console"


@dataclass(frozen=True)
class RunRequest:
    """What was typed after `millstream run`."""

    script: Path
    arguments: tuple[str, ...] = ()
    pyflink: bool = False
    parallelism: int | None = None
    definitions: tuple[str, ...] = ()
    store: str | None = None
    resume: str | None = None
    plain: bool = False
    debug: bool = False


def run_program(request: RunRequest) -> int:
    """Run it; returns the exit code."""
    try:
        check_script(request.script)
        settings = settings_of(request, console_is_terminal=sys.stderr.isatty())
        if request.resume is not None:
            check_resumable(request.resume)
    except MillstreamError as error:
        return _refused(error, request.debug)
    from millstream.datastream.launch_defaults import with_launch_defaults

    with with_launch_defaults(settings), _as_main(request):
        return _exit_code_of(request)


# --- what was typed -------------------------------------------------------------------------------------------


def check_script(script: Path) -> None:
    """The program must be a file that can be read."""
    if script.is_dir():
        raise ProgramError(f"{script} is a folder. Give the program's file: millstream run {script / 'job.py'}")
    if not script.exists():
        near = sorted(path.name for path in script.parent.glob("*.py"))[:5] if script.parent.is_dir() else []
        there = f"; there are {', '.join(near)}" if near else ""
        raise ProgramError(f"there is no program {script}{there}. Give the path of a Python file")
    if not os.access(script, os.R_OK):
        raise ProgramError(f"{script} cannot be read by this user. Change its permissions")


def settings_of(request: RunRequest, *, console_is_terminal: bool) -> dict[str, str]:
    """The settings that the options stand for, all keys checked. `-D` loses to the option that means the same.

    >>> settings_of(RunRequest(Path("job.py"), parallelism=4, store="jobs/a"), console_is_terminal=True)
    {'parallelism.default': '4', 'millstream.store': 'jobs/a'}
    """
    settings = dict(_definition(text) for text in request.definitions)
    if request.parallelism is not None:
        if request.parallelism < 1:
            raise ConfigurationError(f"-p: found {request.parallelism}, expected 1 or more subtasks")
        settings[_PARALLELISM] = str(request.parallelism)
    if request.store is not None and request.resume is not None and request.store != request.resume:
        raise ConfigurationError(
            f"--store is {request.store} and --from is {request.resume}: a job resumes in its own store. "
            "Give one of them"
        )
    store = request.resume or request.store
    if store is not None:
        settings[_STORE] = store
    if request.plain or not console_is_terminal:
        settings.setdefault(_CONSOLE, "plain")
    if request.pyflink:
        # Executors on other machines do not inherit this process's environment.
        settings[f"spark.executorEnv.{SERVE_VARIABLE}"] = "1"
    return settings


def _definition(text: str) -> tuple[str, str]:
    from millstream.common.options import check_key

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(f"-D: found {text!r}, expected KEY=VALUE, such as -D parallelism.default=4")
    check_key(key.strip())
    return key.strip(), value.strip()


def check_resumable(url: str) -> None:
    """`--from` must name a store that already holds a job."""
    from millstream.checkpoint.job_record import read
    from millstream.storage.store import open_store

    local = Path(url)
    if local.is_file() or (local / "_metadata").exists():
        raise NotYetError.of(f"starting from {url}", "snapshots", "--from STORE resumes a job at its newest epoch")
    if read(open_store(url)) is None:
        raise StoreError(
            f"--from {url}: no job has ever run there. Use --store to start one, or `millstream list` to find its store"
        )


# --- running it -----------------------------------------------------------------------------------------------


@contextmanager
def _as_main(request: RunRequest) -> Iterator[None]:
    """This process as `python job.py args…` would find it, in its workers too; put back afterwards."""
    folder = str(request.script.resolve().parent)
    kept_arguments, kept_path = sys.argv, list(sys.path)
    changes = {"PYTHONPATH": os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))}
    if request.pyflink:
        serve_pyflink()
        changes[SERVE_VARIABLE] = "1"
    sys.argv = [str(request.script), *request.arguments]
    sys.path.insert(0, folder)
    with _environment(changes):
        try:
            yield
        finally:
            sys.argv, sys.path[:] = kept_arguments, kept_path


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _exit_code_of(request: RunRequest) -> int:
    try:
        runpy.run_path(str(request.script), run_name="__main__")
    except JobFailedError as error:
        _show_failure(error, request.debug, sys.stderr)
        return FAILED
    except MillstreamError as error:
        _show_error(error, request.debug, sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("millstream: aborted", file=sys.stderr)
        return ABORTED
    except Exception as error:
        _show_traceback(error, request, sys.stderr)
        return FAILED
    return DONE


def _refused(error: MillstreamError, debug: bool) -> int:
    _show_error(error, debug, sys.stderr)
    return WRONG_COMMAND


def _show_failure(error: JobFailedError, debug: bool, screen: TextIO) -> None:
    """The user's traceback, record and operator come first; then, in one line, what failed and where."""
    if error.report:
        print(error.report, file=screen)
        print(file=screen)
    _show_error(error, debug, screen)


def _show_error(error: MillstreamError, debug: bool, screen: TextIO) -> None:
    if debug:
        traceback.print_exception(error, file=screen)
    else:
        print(f"millstream: {error}", file=screen)


def _show_traceback(error: Exception, request: RunRequest, screen: TextIO) -> None:
    """A traceback as plain Python shows it: it starts in the program, not in `runpy`."""
    if not request.debug:
        error = error.with_traceback(_from_the_program(error.__traceback__, str(request.script)))
    traceback.print_exception(error, file=screen)


def _from_the_program(trace: TracebackType | None, script: str) -> TracebackType | None:
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    if found is not None:
        return found
    # A SyntaxError: the program never began, and the frames that tried to compile it say nothing.
    return None
