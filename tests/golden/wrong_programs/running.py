"""Runs wrong programs like `millstream run job.py`, in memory, and records what a user sees: exit code and text.

    python running.py < programs.json > outcomes.json

Each program runs in a process of its own, forked from this one, which has imported everything: a program ends as it
would for a user, and is not affected by others. Only Spark is missing: jobs run on the runner of `millstream.testing`.
Details that differ between machines (folders, random names, time) are masked.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from types import CodeType
from typing import Any

HERE = Path(__file__).parent


class _Ended(BaseException):
    """The program's job has run to its end."""


def _run_in_memory(graph: Any, settings: Any) -> Any:
    from millstream.jobs.console.foreground import run_in_foreground
    from millstream.jobs.launch.launch import Launch
    from millstream.runtime.task.local import LocalRunner
    from millstream.storage.memory import MemoryStore
    from millstream.testing import ManualClock

    runner = LocalRunner()
    try:
        run_in_foreground(
            lambda _: Launch(ManualClock(), runner, MemoryStore("wrong")).prepare(graph, settings).start(),
            {"millstream.console": "off"},
        )
    finally:
        runner.close()
    raise _Ended


# Errors are reported with the last line of the program, which this is not.
def _unseen(code: CodeType) -> CodeType:
    constants = (_unseen(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_filename="<the test>", co_consts=tuple(constants))


_run_in_memory.__code__ = _unseen(_run_in_memory.__code__)


def _in_child(program: str, folder: Path) -> int:
    from millstream.cli.run import RunRequest, run_program
    from millstream.datastream.environment.launch_defaults import with_job_receiver

    (folder / "job.py").write_text(program)
    os.chdir(folder)
    sys.path.insert(0, str(HERE))
    with with_job_receiver(_run_in_memory):
        try:
            return run_program(RunRequest(Path("job.py"), definitions=("millstream.console=off",)))
        except _Ended:
            return 0


def outcome_of(program: str) -> str:
    """The exit code, and the output in the order it was written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        seen = folder / "seen"
        child = os.fork()
        if child == 0:
            code = 99
            try:
                screen = os.open(seen, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
                os.dup2(screen, 1)
                os.dup2(screen, 2)
                code = _in_child(program, folder)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        text = _masked(seen.read_text(), folder)
    return f"exit {os.waitstatus_to_exitcode(status)}\n{text}".rstrip() + "\n"


def _masked(text: str, folder: Path) -> str:
    text = text.replace(f"{folder}/", "").replace(str(folder), "FOLDER")
    text = text.replace(os.path.dirname(os.__file__), "PYTHON")
    return re.sub(r"0x[0-9a-f]{8,}", "0x…", text)


def main() -> None:
    """Run the programs from standard input."""
    # PyArrow imports pandas when it first builds a column of values: half of a program's time, if each does so.
    import pandas  # noqa: F401

    import millstream.cli.run
    import millstream.datastream.connectors
    import millstream.jobs.launch.launch
    import millstream.testing  # noqa: F401

    sys.path.insert(0, str(HERE))
    sys.dont_write_bytecode = True
    json.dump([outcome_of(program) for program in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
