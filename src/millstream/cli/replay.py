"""`millstream replay`: runs an operator's part of a committed epoch again in this process and compares the result.

The program runs as `millstream run` would run it, up to the point where it starts its job. The command intercepts that
job (`datastream.environment.launch_defaults`): its graph is replayed, and the program ends there, as if it had called
`sys.exit()`. Exit code 0: the result equals the committed one; 1: it differs, or the program failed; 2: the command
line is wrong.
"""

from __future__ import annotations

import bdb
import pdb  # noqa: T100 (the purpose of --pdb)
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from millstream.cli.refusals import refuse
from millstream.cli.run import DONE, FAILED, WRONG_COMMAND, RunRequest, run_program
from millstream.errors import JobFailedError, MillstreamError

if TYPE_CHECKING:
    from millstream.graph.nodes import Graph
    from millstream.jobs.settings.job_settings import JobSettings

__all__ = ["ReplayRequest", "replay_epoch"]


@dataclass(frozen=True)
class ReplayRequest:
    """The parsed command line of `millstream replay`."""

    snapshot: str
    operator: str
    script: Path
    arguments: tuple[str, ...] = ()
    pyflink: bool = False
    definitions: tuple[str, ...] = ()
    downstream: bool = True
    differences_max: int = 20
    debugger: bool = False
    debug: bool = False


class _Replayed(SystemExit):
    """Ends the program after the replay."""


def replay_epoch(request: ReplayRequest) -> int:
    """Run the replay; returns the exit code."""
    from millstream.cli.job_argument import find_snapshot_name
    from millstream.datastream.environment.launch_defaults import with_job_receiver
    from millstream.jobs.replay.replay import past_epoch, replay

    try:
        snapshot = str(find_snapshot_name(request.snapshot))
        past_epoch(snapshot).close()  # its errors are reported before the program runs
    except MillstreamError as error:
        return refuse(error, WRONG_COMMAND)

    def take(graph: Graph, settings: JobSettings) -> NoReturn:
        try:
            result = replay(
                graph,
                settings,
                snapshot,
                request.operator,
                downstream=request.downstream,
                differences_max=request.differences_max,
            )
        except JobFailedError as error:
            raised = _raised(error)
            if isinstance(raised, bdb.BdbQuit):  # the user left the debugger at a breakpoint
                raise KeyboardInterrupt from None
            if request.debugger:
                print(error.report, file=sys.stderr)
                pdb.post_mortem(raised.__traceback__)
            raise
        print(result.text())
        raise _Replayed(DONE if result.is_same else FAILED)

    # The console would announce Spark, which a replay does not use.
    program = RunRequest(
        script=request.script,
        arguments=request.arguments,
        pyflink=request.pyflink,
        definitions=("millstream.console=off", *request.definitions),
        debug=request.debug,
    )
    with with_job_receiver(take):
        try:
            code = run_program(program)
        except _Replayed as end:
            return DONE if end.code == DONE else FAILED
    if code == DONE:
        print(f"millstream: {request.script} ended without starting a job: there is nothing to replay", file=sys.stderr)
        return FAILED
    return code


def _raised(error: JobFailedError) -> BaseException:
    """The exception of the user's code."""
    raised: BaseException = error
    while raised.__cause__ is not None:
        raised = raised.__cause__
    return raised
