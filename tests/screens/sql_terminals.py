"""`millstream sql` at a terminal, with its jobs in the client's own process: its screens, without a JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from waits.patience import until

from millstream.cli.sql_client.screen import Pages
from screens.shown_tables import changelog_on, rows_on
from screens.terminal import Terminal

__all__ = [
    "PROMPT",
    "SIZES",
    "ask",
    "at_every_size",
    "carry_out",
    "changes_are",
    "end_query",
    "sql_terminal",
    "table_is",
]

PROMPT = r"Millstream SQL>$"
SIZES = ((24, 80), (40, 120), (60, 200))
ROOT = Path(__file__).resolve().parents[2]
_CLIENT = """
import sys
from millstream.cli.sql_client import client, detached, detached_job
from millstream.cli.main import app
from millstream.datastream.environment.launch_defaults import with_job_receiver
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch, new_folder
from millstream.runtime.task.local import LocalRunner
from millstream.storage.store import open_store

def started(graph, settings):
    store = open_store(settings.store or new_folder(graph.job_name))
    return Launch(SystemClock(), LocalRunner(), store).start(graph, settings)

with with_job_receiver(started):
    if sys.argv[1:] == ["detached job"]:
        sys.exit(detached_job.main())
    detached.start_detached.__defaults__ = ([sys.executable, "-c", sys.orig_argv[2], "detached job"],)
    app(["sql", *sys.argv[1:]])
"""
"""The client, and the processes of its detached jobs, as `millstream sql` but for Spark: tasks run in their process."""


@contextmanager
def sql_terminal(folder: Path, *arguments: str) -> Iterator[Terminal]:
    """The client at its first prompt."""
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}
    person = Terminal([sys.executable, "-c", _CLIENT, *arguments], cwd=folder, environment=environment)
    try:
        person.read_until(PROMPT)
        yield person
    finally:
        person.close()


def carry_out(person: Terminal, statement: str) -> None:
    """Run a statement that returns no rows."""
    person.type(statement)
    person.read_until(rf"OK\n{PROMPT}")


def table_is(person: Terminal, expected: list[tuple[str, ...]]) -> None:
    """Read until the live table has exactly these rows."""
    _read_until(person, f"{expected} in a table", lambda: rows_on(person.screen.lines) == expected)


def changes_are(person: Terminal, expected: list[tuple[str, ...]]) -> None:
    """Read until the printed changes amount to exactly these rows."""
    _read_until(person, f"{expected} by changes", lambda: changelog_on(person.screen.all_text.split("\n")) == expected)


def at_every_size(person: Terminal, expected: list[tuple[str, ...]]) -> None:
    """The same table at each window size."""
    for rows, columns in SIZES:
        person.resize(rows, columns)
        table_is(person, expected)
        below = person.screen.text.rpartition("Millstream SQL>")[2]
        assert below.count("┏") == 1, person.screen.text  # nothing of the other size's screen is left


def ask(person: Terminal, query: str, rows: int = 24, columns: int = 80) -> None:
    """Run a query on an empty screen of a size."""
    person.resize(rows, columns)
    person.type("CLEAR;")
    person.read_until(f"^{PROMPT}")
    person.type(f"{query};")


def end_query(person: Terminal) -> None:
    """Ctrl-C."""
    person.interrupt()
    person.read_until(rf"the query was ended\]\n{PROMPT}")


def _read_until(person: Terminal, what: str, is_there: Callable[[], bool]) -> None:
    def has_come() -> bool:
        if person.screen.text.endswith(Pages.PROMPT):
            person.type("")  # one more line
        return is_there() or not person.read(0.1)

    try:
        until(what, has_come)
        assert is_there(), "the client has ended"
    except AssertionError as error:
        raise AssertionError(f"{error}\n{person.screen.all_text}") from None
