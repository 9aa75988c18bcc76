"""The SQL client itself: executes statements one by one, and shows their results.

It holds one TableEnvironment. Errors are shown and discarded in a dialogue, and end a script. Ctrl-C ends the query
that is shown, never the client. The job of an INSERT runs concurrently with the dialogue; a script waits for it at its
end, and the end of a dialogue stops it with its last epoch committed, and prints how to resume it. With
`'execution.attached' = 'false'` it runs in a process of its own (`detached.py`) and outlives the client.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from textwrap import wrap
from typing import TextIO

from rich.console import Console

from millstream.cli.sql_client.completion import KnownNames
from millstream.cli.sql_client.detached import (
    DetachedAnswer,
    DetachedRequest,
    SentStatement,
    SessionLog,
    start_detached,
    starts_job,
)
from millstream.cli.sql_client.live_table import show_live
from millstream.cli.sql_client.screen import Pages, read_key, write_lines
from millstream.common.options import STORE
from millstream.errors import JobFailedError, MillstreamError
from millstream.expressions.functions.registry import definition_of
from millstream.graph.error_report import show_error
from millstream.graph.site import Site, StatementSite, at_site
from millstream.jobs.console.bottom_area import terminal_size
from millstream.jobs.launch.job import Job
from millstream.sql.keywords import RESERVED
from millstream.sql.parser import parse_statement
from millstream.sql.splitting import in_place, statement_spans
from millstream.sql.statements import ClientCommand, SetOption, Statement
from millstream.storage.store import shown_address
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.operations.detached_jobs import detach
from millstream.table.results.outcome import Outcome
from millstream.table.table_environment import TableEnvironment

__all__ = ["ATTACHED", "RESULT_MODE", "SqlClient", "Terminal"]

RESULT_MODE = "sql-client.execution.result-mode"
ATTACHED = "execution.attached"
_MODES = ("table", "changelog", "tableau")
_HELP = """\
Statements end with a semicolon. Among them:
  CREATE TABLE … WITH ('connector' = 'datagen')   tables; also VIEW, FUNCTION, DATABASE
  SELECT …                                        a query: Ctrl-C ends it
  INSERT INTO … SELECT …                          a job that runs in the background, until you leave
  SET 'execution.attached' = 'false'              the jobs of later INSERTs outlive this client
  EXPLAIN …, DESCRIBE …, SHOW TABLES | FUNCTIONS | JOBS | …
  STOP JOB 'id' [WITH SAVEPOINT]
  SET 'key' = 'value', RESET 'key', SET           settings, such as 'parallelism.default'
  SET 'sql-client.execution.result-mode' = 'table' | 'changelog' | 'tableau'
  HELP, CLEAR, QUIT
Tab completes names and words, the arrows browse the history.
"""


@dataclass(frozen=True)
class Terminal:
    """The output of results; `is_live`: it is a terminal with a user and a keyboard."""

    output: TextIO
    is_live: bool = False
    next_key: Callable[[], str] = read_key

    @classmethod
    def standard(cls) -> Terminal:
        """The standard output: live if it and the input are terminals."""
        return cls(sys.stdout, sys.stdout.isatty() and sys.stdin.isatty())


class SqlClient:
    """One session of the client."""

    def __init__(
        self,
        terminal: Terminal,
        settings: Mapping[str, str],
        is_batch: bool = False,
        start_detached: Callable[[DetachedRequest], DetachedAnswer] = start_detached,
    ) -> None:
        mode = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
        self.environment = TableEnvironment.create(mode)
        self.environment._runner.sees_others = True
        self._terminal = terminal
        self._console = Console(file=terminal.output)
        self.has_quit = False
        self._statements = 0
        self._log = SessionLog(settings, is_batch)
        self._start_detached = start_detached
        for key, value in settings.items():
            self.environment.get_config().set(key, value)

    # --- statements ---------------------------------------------------------------------------------------------------

    def run_script(self, text: str, name: str) -> bool:
        """Execute the statements of a script, up to the first failure; returns whether all succeeded."""
        try:
            spans = statement_spans(text)
        except MillstreamError as error:
            return self._refused(error, name)
        for span in spans:
            if not self.run_statement(in_place(span), Site(name, span.line)):
                return False
            if self.has_quit:
                break
        return True

    def run_statement(self, text: str, site: Site | None = None) -> bool:
        """Execute one statement and show its result; False if it failed. `site`: the line of the script that it begins
        in; None for a typed one."""
        self._statements += 1
        place = None if site is None else f"{site.file}, line {site.line}"
        site = site or StatementSite("statement", self._statements)
        try:
            statement = parse_statement(text)
            if isinstance(statement, ClientCommand):
                self._run_command(statement.word)
            elif isinstance(statement, SetOption) and statement.key == RESULT_MODE:
                self._set_mode(str(statement.value))
            elif starts_job(statement) and not self._is_attached():
                at_site(site, partial(self._detach, statement, text, site))
            else:
                at_site(site, partial(self._execute, statement, text, site))
        except MillstreamError as error:
            return self._refused(error, place)
        except KeyboardInterrupt:
            self._print("the query was ended")
            return self._terminal.is_live
        except Exception as error:
            if not self._terminal.is_live:
                raise
            # A bug of ours or of a user function. The dialogue and its jobs continue.
            message = f"{type(error).__name__}: {error}. This is unexpected: please report it with the statement"
            return self._refused(MillstreamError(message), place)
        return True

    def _is_attached(self) -> bool:
        return str(self.environment.get_config().get(ATTACHED, "true")).strip().lower() != "false"

    def _detach(self, statement: Statement, text: str, site: Site) -> None:
        """Run the job of an INSERT in a separate process."""

        def start(store: str) -> str:
            with self._console.status("starting the job …") if self._terminal.is_live else nullcontext():
                answer = self._start_detached(self._log.request(statement_text, store))
            for notice in answer.notices:
                self._print(notice)
            return answer.job_id

        statement_text = SentStatement.of(text, site)
        with self.environment._statements.prepared(statement) as sinks:
            job = detach(self.environment._runner, sinks, start) if sinks else None
        if job is None:
            self._print("there is nothing to run: the table exists already")
            return
        self._log.note(statement, statement_text, self.environment._session)
        self._print(
            f"job {job.job_id} runs in a process of its own and outlives this client; its store is {job.address}"
        )
        self._print("SHOW JOBS lists it, STOP JOB ends it, and so does: " + f"millstream stop {job.short_name}")

    def _execute(self, statement: Statement, text: str, site: Site) -> None:
        is_first = not self.environment._runner.jobs
        with self._console.status("…") if self._terminal.is_live and is_first else nullcontext():
            outcome = self.environment.execute_sql(text)._outcome
        job = outcome.source.job
        if job is not None or not starts_job(statement):
            self._log.note(statement, SentStatement.of(text, site), self.environment._session)
        if job is not None and not outcome.is_query:
            self._print(f"job {job.job_id} runs; SHOW JOBS lists it, STOP JOB ends it")
            if self._terminal.is_live:
                self._print(f"it ends with this client; SET '{ATTACHED}' = 'false' lets later jobs outlive it")
            return
        try:
            self._show(outcome)
        finally:
            outcome.source.close()

    def _show(self, outcome: Outcome) -> None:
        mode = self._mode()
        if not self._terminal.is_live:
            write_lines(outcome.lines(), self._terminal.output)
        elif outcome.is_query and mode == "table":
            output = self._terminal.output
            show_live(outcome.schema.names, outcome.changes, output, lambda: terminal_size(output))
        else:
            size = self._console.size
            Pages(self._terminal.output, size.height, size.width, self._terminal.next_key).show(outcome.lines())

    # --- commands of the client ---------------------------------------------------------------------------------------

    def _run_command(self, word: str) -> None:
        if word in ("QUIT", "EXIT"):
            self.has_quit = True
        elif word == "CLEAR":
            self._console.clear()
        else:
            write_lines(_HELP.splitlines(), self._terminal.output)

    def _mode(self) -> str:
        return str(self.environment.get_config().get(RESULT_MODE, "table"))

    def _set_mode(self, mode: str) -> None:
        if mode.lower() not in _MODES:
            raise MillstreamError(f"{RESULT_MODE!r} is {mode!r}, expected one of {', '.join(_MODES)}")
        self.environment.get_config().set(RESULT_MODE, mode.lower())

    def _refused(self, error: MillstreamError, place: str | None = None) -> bool:
        if place is not None:
            self._print(place)
        # No program line can be reported; the message shows the position in the statement.
        show_error(error, self._terminal.output if self._terminal.is_live else sys.stderr, has_program=False)
        return False

    def _print(self, text: str) -> None:
        lines = [f"[{text}]"]
        if self._terminal.is_live:
            lines = wrap(lines[0], self._console.size.width - 1, break_long_words=False, break_on_hyphens=False)
        write_lines(lines, self._terminal.output)

    # --- the end, and names for the prompt ----------------------------------------------------------------------------

    def wait_for_jobs(self) -> bool:
        """Wait for the jobs that INSERTs started; returns whether all succeeded. Ctrl-C stops running ones."""
        good = True
        for job, _ in self.environment._runner.jobs:
            try:
                job.wait()
                job.result()
            except KeyboardInterrupt:
                self.stop_jobs()
                return good
            except MillstreamError as error:
                if job.status().name == "FAILED":
                    good = self._refused(error, f"job {job.job_id}")
        return good

    def stop_jobs(self) -> None:
        """End the jobs that still run in this process, each with its running epoch committed and published. Ctrl-C, or
        output that cannot be published, ends a job at once. Prints how each can be resumed, and which jobs continue."""
        running = [job for job, _ in self.environment._runner.jobs if not job.status().is_terminal_state()]
        if running and self._terminal.is_live:
            self._print("stopping the jobs of this client; Ctrl-C does not wait for the running epoch")
        for job in running:
            job.stop()
        for job in running:
            self._wait_for_stop(job)
            now = job.board.now
            how = "was cancelled" if job.status().name == "CANCELED" else "has stopped"
            self._print(f"job {job.job_id} ({now.job_name}) {how} at epoch {now.epoch}, as this client ends")
            if now.epoch:
                store = self.environment.get_config().get(STORE.key, "") or shown_address(now.store)
                resumed = f"SET '{STORE.key}' = '{store}'; then the same statements"
                self._print(f"to resume it: {resumed}")
        for detached, _ in self.environment._runner.detached:
            if not detached.has_ended:
                self._print(
                    f"job {detached.job_id} ({detached.name}) continues: millstream stop {detached.short_name} ends it"
                )

    def _wait_for_stop(self, job: Job) -> None:
        try:
            while not job.wait(0.1):
                job.check_publishing("is cancelled")
        except (KeyboardInterrupt, JobFailedError):
            job.cancel()
            job.wait()

    def names(self) -> KnownNames:
        """The names that statements can currently use."""
        environment = self.environment
        tables = {}
        for name in (*environment.list_tables(), *environment.list_views(), *environment.list_temporary_tables()):
            try:
                tables[name] = environment.from_path(f"`{name}`").get_schema().get_field_names()
            except MillstreamError:
                tables[name] = []
        functions = {}
        for name in environment.list_functions():
            built_in = definition_of(name)
            # A function of the program keeps its case, and has no description of its arguments.
            functions[name.upper() if built_in else name] = built_in.syntax if built_in else f"{name}(…)"
        return KnownNames(tables, functions, sorted(RESERVED))
