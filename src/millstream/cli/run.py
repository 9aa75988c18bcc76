"""`millstream run`: runs a program as `python job.py` would run it, with settings from the command line.

In order: the command line is checked (exit code 2 if it is wrong), the settings are applied to environments that the
program makes, PyFlink's name is served if requested, and the program runs as `__main__`. Its exceptions are shown in
the user's terms: an error of ours as its message, a failed job as its report, any other error as the program's own
traceback without the frames of the launcher.
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
from millstream.errors import ConfigurationError, JobFailedError, MillstreamError, NotAvailableError, ProgramError
from millstream.graph.error_report import show_aborted, show_error, show_known_names, show_what_never_ran
from millstream.graph.site import PACKAGE_FOLDER

__all__ = ["RunRequest", "Start", "definition", "run_program", "settings_of", "start_of"]

DONE, FAILED, WRONG_COMMAND, ABORTED = 0, 1, 2, 130

_PARALLELISM = "parallelism.default"
_MASTER = "millstream.spark.master"
_STORE = "millstream.store"
_CONSOLE = "millstream.console"
_SNAPSHOT = "execution.state-recovery.path"
_TAKE_OVER = "millstream.take-over"
_DROPS = "execution.state-recovery.ignore-unclaimed-state"


@dataclass(frozen=True)
class RunRequest:
    """The parsed command line of `millstream run`."""

    script: Path
    arguments: tuple[str, ...] = ()
    pyflink: bool = False
    parallelism: int | None = None
    definitions: tuple[str, ...] = ()
    master: str | None = None
    store: str | None = None
    resume: str | None = None
    drops: bool = False
    takes_over: bool = False
    plain: bool = False
    debug: bool = False


@dataclass(frozen=True)
class Start:
    """The start selected by `--from`: the snapshot (None: the job's newest epoch), and the store it belongs to (None: a
    savepoint, which belongs to no job)."""

    snapshot: str | None
    store: str | None


def run_program(request: RunRequest) -> int:
    """Run the program; returns the exit code."""
    try:
        check_script(request.script)
        start = None if request.resume is None else start_of(request.resume)
        settings = settings_of(request, start, console_is_terminal=sys.stderr.isatty())
    except MillstreamError as error:
        return _refused(error, request.debug)
    from millstream.datastream.environment.launch_defaults import with_launch_defaults

    sets_console = request.plain or _CONSOLE in dict(map(definition, request.definitions))
    with with_launch_defaults(settings, () if sets_console else (_CONSOLE,)), _as_main(request):
        return _exit_code_of(request)


# --- the command line -----------------------------------------------------------------------------------------


def check_script(script: Path) -> None:
    """Raises ProgramError unless the program is a readable file."""
    if script.is_dir():
        raise ProgramError(f"{script} is a folder. Use the program's file: millstream run {script / 'job.py'}")
    if not script.exists():
        near = sorted(path.name for path in script.parent.glob("*.py"))[:5] if script.parent.is_dir() else []
        there = f"; the folder contains {', '.join(near)}" if near else ""
        raise ProgramError(f"the program {script} does not exist{there}. Use the path of a Python file")
    if not os.access(script, os.R_OK):
        raise ProgramError(f"{script} cannot be read by this user. Change its permissions")


def settings_of(request: RunRequest, start: Start | None = None, *, console_is_terminal: bool) -> dict[str, str]:
    """The settings of the options, all keys checked. An option overrides `-D` with the same key.

    Without `--store`, a job's snapshot is started in that job's own store: the job continues, or goes back.

    >>> settings_of(RunRequest(Path("job.py"), parallelism=4, store="jobs/a"), console_is_terminal=True)
    {'parallelism.default': '4', 'millstream.store': 'jobs/a', 'millstream.console': 'rich'}
    """
    settings = dict(definition(text) for text in request.definitions)
    if request.parallelism is not None:
        if request.parallelism < 1:
            raise ConfigurationError(f"-p: found {request.parallelism}, expected 1 or more subtasks")
        settings[_PARALLELISM] = str(request.parallelism)
    if request.master is not None:
        settings[_MASTER] = request.master
    store = request.store or (start.store if start else None)
    if store is not None:
        settings[_STORE] = store
    if start is not None and start.snapshot is not None:
        settings[_SNAPSHOT] = start.snapshot
    if request.drops:
        settings[_DROPS] = "true"
    if request.takes_over:
        settings[_TAKE_OVER] = "true"
    settings.setdefault(_CONSOLE, "plain" if request.plain or not console_is_terminal else "rich")
    if request.pyflink:
        # Executors on other machines do not inherit this process's environment.
        settings[f"spark.executorEnv.{SERVE_VARIABLE}"] = "1"
    return settings


def definition(text: str) -> tuple[str, str]:
    """The key and the value of a -D setting."""
    from millstream.common.options import check_key

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(f"-D: found {text!r}, expected KEY=VALUE, such as -D parallelism.default=4")
    check_key(key.strip())
    return key.strip(), value.strip()


def start_of(text: str) -> Start:
    """The start selected by `--from`, which must exist. A job without epochs starts as it would without `--from`."""
    from millstream.checkpoint.job_record import read
    from millstream.checkpoint.manifest import ManifestLog
    from millstream.checkpoint.savepoints import find_snapshot
    from millstream.cli.job_argument import find_snapshot_name
    from millstream.storage.store import open_store

    name = find_snapshot_name(text)
    if (Path(name.store) / "_metadata").is_file():
        raise NotAvailableError(
            f"--from {text}: that is a Flink savepoint, whose state format Millstream does not read. Build a "
            "savepoint from data "
            "with millstream.state_reader.SavepointBuilder"
        )
    store = open_store(name.store)
    if name.at is None and read(store) is not None and not ManifestLog(store).epochs():
        return Start(None, name.store)
    snapshot = find_snapshot(name)
    return Start(str(name), None if snapshot.is_savepoint else name.store)


# --- running it -----------------------------------------------------------------------------------------------


@contextmanager
def _as_main(request: RunRequest) -> Iterator[None]:
    """Sets up this process as `python job.py args…` would, in its workers too; restored afterwards."""
    folder = str(request.script.resolve().parent)
    arguments_before, path_before = sys.argv, list(sys.path)
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
            sys.argv, sys.path[:] = arguments_before, path_before


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
    except KeyboardInterrupt as error:
        show_aborted(error, sys.stderr)
        return ABORTED
    except Exception as error:
        _show_traceback(error, request, sys.stderr)
        return FAILED
    show_what_never_ran(sys.stderr)
    return DONE


def _refused(error: MillstreamError, debug: bool) -> int:
    _show_error(error, debug, sys.stderr)
    return WRONG_COMMAND


def _show_failure(error: JobFailedError, debug: bool, screen: TextIO) -> None:
    """Prints the user's traceback, record and operator, then a line with the failure and its location."""
    if debug and error.report:
        print(error.report, end="\n\n", file=screen)
    _show_error(error, debug, screen)


def _show_error(error: MillstreamError, debug: bool, screen: TextIO) -> None:
    if debug:
        traceback.print_exception(error, file=screen)
    else:
        show_error(error, screen)


def _show_traceback(error: Exception, request: RunRequest, screen: TextIO) -> None:
    """A traceback as plain Python shows it, with suggestions for misspelt names: it starts in the program, not in
    `runpy`, and ends there."""
    is_cut = False
    if not request.debug:
        error = error.with_traceback(_from_the_program(error.__traceback__, str(request.script)))
        frames = [*_frames(error.__traceback__)]
        own = [number for number, frame in enumerate(frames, 1) if not _is_engine_frame(frame)]
        is_cut = bool(own) and own[-1] < len(frames)
        error = error.with_traceback(_chained(frames[: own[-1]]) if own else None)
    sys.__excepthook__(type(error), error, error.__traceback__)
    show_known_names(error, screen)
    if is_cut:
        print("(Lines of Millstream's own are omitted: millstream run --debug shows them.)", file=screen)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "pyflink":
        print(
            f"millstream: to run a PyFlink program unmodified: millstream run --pyflink {request.script}. Or "
            "replace its imports from pyflink by millstream",
            file=screen,
        )


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_engine_frame(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(PACKAGE_FOLDER)


def _chained(frames: list[TracebackType]) -> TracebackType | None:
    """A traceback of these frames only."""
    trace: TracebackType | None = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


def _from_the_program(trace: TracebackType | None, script: str) -> TracebackType | None:
    frame = trace
    while frame is not None and frame.tb_frame.f_code.co_filename != script:
        frame = frame.tb_next
    if frame is not None:
        return frame
    # A SyntaxError: the program never began, and the frames that tried to compile it are not useful.
    return None
