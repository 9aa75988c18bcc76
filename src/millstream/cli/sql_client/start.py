"""Starts the SQL client: with a prompt, or with statements from the command line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from millstream.cli.refusals import refuse
from millstream.cli.run import definition
from millstream.cli.sql_client.client import ATTACHED, SqlClient, Terminal
from millstream.errors import MillstreamError, ProgramError

__all__ = ["SqlRequest", "run_sql"]

_GREETING = "Millstream SQL. Statements end with a semicolon; HELP; says more, QUIT; leaves."


@dataclass(frozen=True)
class SqlRequest:
    """The parsed command line."""

    files: tuple[Path, ...] = ()
    first_files: tuple[Path, ...] = ()
    statements: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    store: str | None = None
    batch: bool = False
    detach: bool = False


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
    if not sys.stdin.isatty():  # statements are read from a pipe
        try:
            text = _decoded(sys.stdin.buffer.read(), "standard input")
        except MillstreamError as error:
            return refuse(error)
        is_good = client.run_script(text, "standard input")
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
    if request.detach:
        settings[ATTACHED] = "false"
    return settings


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}. Use a file of SQL statements") from None
    return _decoded(data, str(path))


def _decoded(data: bytes, name: str) -> str:
    """The text of statements, without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"line {line} has the byte 0x{data[error.start]:02x}"
        raise ProgramError(f"{name} is not UTF-8 text: {problem}. Save it as UTF-8") from None
