"""INSERT jobs that outlive the client: each runs in a separate process, a client without a terminal.

The process receives, through a private pipe (statements may hold secrets), the statements that defined the session, and
the statement to run (`DetachedRequest`). It answers once: that the job runs, or why not. From then on the two
communicate only through the job's store. The process has its own terminal session, so neither Ctrl-C nor the end of the
terminal reaches it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from millstream.errors import ProgramError
from millstream.graph.site import Site
from millstream.planner.entries import TableEntry, shown
from millstream.planner.listings import create_table_text
from millstream.planner.session import PlannerSession
from millstream.sql import statements as sql

__all__ = ["DetachedAnswer", "DetachedRequest", "SessionLog", "start_detached", "starts_job"]

_COMMAND = (sys.executable, "-m", "millstream.cli.sql_client.detached_job")
_NOT_REPLAYED = (
    *(sql.QueryStatement, sql.Insert, sql.StatementSet, sql.Execute, sql.CompilePlan, sql.StopJob),
    *(sql.Explain, sql.Show, sql.Describe, sql.ClientCommand),
)


def starts_job(statement: sql.Statement) -> bool:
    """Whether a statement starts a job that writes into tables."""
    if isinstance(statement, sql.Execute):
        return statement.statement is None or starts_job(statement.statement)
    if isinstance(statement, sql.CompilePlan):
        return statement.execute
    if isinstance(statement, sql.CreateTable):
        return statement.query is not None and not statement.materialized
    return isinstance(statement, sql.Insert | sql.StatementSet)


@dataclass(frozen=True)
class SentStatement:
    """A statement as text, with its line in the user's script."""

    text: str
    file: str
    line: int

    @classmethod
    def of(cls, text: str, site: Site) -> SentStatement:
        return cls(text, site.file, site.line)

    @property
    def site(self) -> Site:
        return Site(self.file, self.line)


class SessionLog:
    """The statements that defined a session: definitions and settings. Statements that run or show something are
    omitted, and so are materialised tables, whose jobs belong to the session."""

    def __init__(self, settings: Mapping[str, str], is_batch: bool) -> None:
        self._settings, self._is_batch = dict(settings), is_batch
        self.statements: list[SentStatement] = []

    def request(self, statement: SentStatement, store: str) -> DetachedRequest:
        """The request to run this statement in a process with the current session."""
        path = [each for each in sys.path if each]
        return DetachedRequest(statement, store, tuple(self.statements), self._settings, self._is_batch, path)

    def note(self, statement: sql.Statement, text: SentStatement, session: PlannerSession) -> None:
        """Records an executed statement. CREATE TABLE … AS is recorded as its table: its job is not started twice."""
        if isinstance(statement, sql.CreateTable) and starts_job(statement):
            made = session.find_table(statement.name)
            assert isinstance(made, TableEntry)
            word = "TEMPORARY TABLE" if made.is_temporary else "TABLE"
            self.statements.append(replace(text, text=f"DROP {word} IF EXISTS {shown(made.path)}"))
            self.statements.append(replace(text, text=create_table_text(made, with_secrets=True)))
            return
        is_materialized = getattr(statement, "materialized", False) or (
            isinstance(statement, sql.Alter | sql.Drop) and statement.kind == "MATERIALIZED TABLE"
        )
        if not isinstance(statement, _NOT_REPLAYED) and not is_materialized:
            self.statements.append(text)


@dataclass(frozen=True)
class DetachedRequest:
    """The request to the process. `path`: where it imports the user's functions from."""

    statement: SentStatement
    store: str
    session: Sequence[SentStatement] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    is_batch: bool = False
    path: Sequence[str] = ()

    @classmethod
    def from_json(cls, text: str) -> DetachedRequest:
        fields = json.loads(text)
        session = tuple(SentStatement(**each) for each in fields.pop("session"))
        return cls(statement=SentStatement(**fields.pop("statement")), session=session, **fields)


@dataclass(frozen=True)
class DetachedAnswer:
    """The answer of the process: the job's id, or the `problem` that prevented its start; and its warnings."""

    job_id: str = ""
    problem: str = ""
    notices: Sequence[str] = ()


def start_detached(request: DetachedRequest, command: Sequence[str] = _COMMAND) -> DetachedAnswer:
    """Start the process and wait until the job runs; raises ProgramError if it does not. Ctrl-C ends the process."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
        # Modules that can be imported here, whether installed or in a folder, can be imported there.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        with process.stdin, process.stdout:
            process.stdin.write(json.dumps(asdict(request)))
            process.stdin.close()
            text = process.stdout.read()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if not text:
        code = process.wait()
        raise ProgramError(
            f"the process of the job ended with code {code} before the job ran. Run it attached to see the reason"
        )
    answer = DetachedAnswer(**json.loads(text))
    if answer.problem:
        process.wait()
        raise ProgramError(answer.problem)
    # The process continues; it is not waited for here.
    process.returncode = 0
    return answer
