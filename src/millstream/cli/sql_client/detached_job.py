"""The process of one detached job: it recreates the session, runs the one statement, answers once, and stays until the
job has ended. The job's output is written to the job's log: there is no terminal.

SIGTERM, for example at shutdown, lets the job finish its running epoch.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict

from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.cli.sql_client.detached import DetachedAnswer, DetachedRequest

__all__ = ["main", "run_detached"]

_OUTPUT = "millstream.output"


class _LoggedLines(io.TextIOBase):
    """A stream whose lines are written to the log of the running job."""

    def __init__(self) -> None:
        self._unfinished_line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._unfinished_line = (self._unfinished_line + text).split("\n")
        for line in lines:
            logging.getLogger(_OUTPUT).info("%s", line)
        return len(text)


class _Warnings(logging.Handler):
    """Collects the warnings logged until the job runs, for the client that waits."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run_detached(request: DetachedRequest, answer: Callable[[DetachedAnswer], None]) -> int:
    """Run the statement, answer, and wait for the job's end; returns the exit code."""
    errors, warnings = io.StringIO(), _Warnings()
    logging.getLogger(_OUTPUT).setLevel(logging.INFO)
    logging.getLogger().addHandler(warnings)
    lines = _LoggedLines()
    settings = {**request.settings, "millstream.store": request.store}
    with redirect_stdout(lines), redirect_stderr(errors):
        client = SqlClient(Terminal(io.StringIO()), settings, request.is_batch)
        for sent in request.session:
            if not client.run_statement(sent.text, sent.site):
                answer(DetachedAnswer(problem=_problem(errors)))
                return 1
        # Settings that the session has changed do not apply to this process.
        for key, value in {"millstream.store": request.store, "execution.attached": "true"}.items():
            client.environment.get_config().set(key, value)
        client.environment.get_config().set("table.dml-sync", "false")
        is_good = client.run_statement(request.statement.text, request.statement.site)
        jobs = client.environment._runner.jobs
        if not is_good or not jobs:
            answer(DetachedAnswer(problem=_problem(errors)))
            return 1
        answer(DetachedAnswer(job_id=str(jobs[-1][0].job_id), notices=tuple(warnings.lines)))
        logging.getLogger().removeHandler(warnings)
        logging.getLogger().addHandler(logging.NullHandler())
        with redirect_stderr(lines):
            return 0 if client.wait_for_jobs() else 1


def _problem(errors: io.StringIO) -> str:
    """The client's error about a statement that failed."""
    text = errors.getvalue().strip()
    return text.removeprefix("millstream: ") or "the job could not be started"


def _stop(signal_number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Read the request from standard input and answer on standard output, which is closed then."""
    signal.signal(signal.SIGTERM, _stop)
    request = DetachedRequest.from_json(sys.stdin.read())
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as output:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)

        def answer(content: DetachedAnswer) -> None:
            output.write(json.dumps(asdict(content)))
            output.close()

        return run_detached(request, answer)


if __name__ == "__main__":
    sys.exit(main())
