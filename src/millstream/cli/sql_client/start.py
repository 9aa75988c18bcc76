"""How the SQL client is started: with a prompt, or with statements that are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream.cli.refusals import refuse
from millstream.cli.run import definition
from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.errors import MillstreamError, ProgramError

__all__ = ["SqlRequest", "run_sql"]

_GREETING = "Millstream SQL. Statements end with a semicolon; HELP; says more, QUIT; leaves."


@dataclass(frozen=True)
class SqlRequest:
    """What the command line asks for."""

    files: tuple[Path, ...] = ()
    first_files: tuple[Path, ...] = ()
    statements: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    store: str | None = None
    batch: bool = False


def run_sql(request: SqlRequest) -> int:
    """Run the client; returns the exit code."""
    try:
        client = SqlClient(Terminal.standard(), _settings(request), request.batch)
        scripts = [(_text(path), str(path)) for path in (*request.first_files, *request.files)]
    except MillstreamError as error:
        return refuse(error)
    scripts += [(text, "-e") for text in request.statements]
    for text, name in scripts:
        if not client.run_script(text, name):
            client.stop_jobs()
            return 1
    if not request.files and not request.statements:
        return _dialogue(client)
    return 0 if client.wait_for_jobs() else 1


def _dialogue(client: SqlClient) -> int:
    import sys

    if not sys.stdin.isatty():  # statements come through a pipe
        is_good = client.run_script(sys.stdin.read(), "standard input")
        return 0 if client.wait_for_jobs() and is_good else 1
    from millstream.cli.sql_client.prompt import converse

    print(_GREETING)
    try:
        converse(client)
    finally:
        client.stop_jobs()
    return 0


def _settings(request: SqlRequest) -> dict[str, str]:
    settings = dict(definition(text) for text in request.definitions)
    if request.store is not None:
        settings["millstream.store"] = request.store
    return settings


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}. Give a file of SQL statements") from None
    except UnicodeDecodeError:
        raise ProgramError(f"{path} is no UTF-8 text. Save it as UTF-8") from None
