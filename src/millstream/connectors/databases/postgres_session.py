"""PostgreSQL sessions through psycopg 3: their settings, and the classification of their errors.

The settings uphold our guarantees regardless of the role's settings: an acknowledged commit is on the server's
disk (`synchronous_commit` is enabled where it is off), and the server ends sessions that stall within a transaction,
so that no other session waits for a locked row forever. Values have the same text format regardless of the server's
time zone and date style.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases.addresses import DatabaseAddress
from millstream.connectors.databases.dialect import TableName, Timeouts
from millstream.errors import PlatformError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = [
    "NO_TRANSACTION_TIMEOUT",
    "connect",
    "deadline",
    "is_transient",
    "psycopg",
    "quoted",
    "quoted_name",
    "refusal",
]

_IDLE_MS_MAX = 60_000
_SETTINGS = """
    SET TimeZone = 'UTC';
    SET DateStyle = 'ISO';
    SET bytea_output = 'hex';
    SET extra_float_digits = 1;
    SET lock_timeout = '10s';
    SET statement_timeout = {statement_ms};
    SET idle_in_transaction_session_timeout = {idle_ms};
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""

NO_TRANSACTION_TIMEOUT = """
    SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) IS NOT NULL
"""
"""For transactions that last while a table is copied. PostgreSQL 17 has the setting."""

# Classes and codes of transient errors: lost connections, shutdown and recovery, time-outs, deadlocks, no room.
_TRANSIENT_CLASSES = ("08", "53", "40")
_TRANSIENT_CODES = frozenset({"57P01", "57P02", "57P03", "57P05", "57014", "55P03", "25P03", "55006"})
# A refused connection has no code, only the server's message: these are transient, any other FATAL is not.
_PASSING_REFUSALS = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting connections",
    "too many clients",
    "too many connections",
    "connection slots are reserved",
)
_WRONG_SETTINGS = (
    "invalid connection option",
    "invalid sslmode",
    "no password supplied",
    # TLS: the server is not the named host, or no certificate is available to verify it.
    "certificate verify failed",
    "does not match host name",
    "certificate file",
    "private key file",
    "does not support SSL, but SSL was required",
)


def psycopg() -> Any:
    """The client library."""
    try:
        import psycopg
    except ImportError as error:
        raise PlatformError(
            "PostgreSQL needs the package psycopg, which is not installed: pip install 'millstream[postgres]'"
        ) from error
    return psycopg


def connect(address: DatabaseAddress, timeouts: Timeouts, *, plain: bool = True, **more: Any) -> Connection[Any]:
    """A session with durable commits, strings in UTF-8 and times in UTC.

    One that is not `plain` uses the replication protocol, and may be idle while a snapshot is read.
    """
    options = dict(address.options)
    search_path = options.pop("search_path", None)
    milliseconds = int(timeouts.transaction_s * 1000)
    settings = {
        "client_encoding": "UTF8",
        "application_name": "millstream",
        "connect_timeout": str(max(2, int(timeouts.connect_s))),
        # Detects a broken network by missing keep-alives; without these settings, only after hours.
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "30000",
        **options,
        "host": ",".join(host for host, _ in address.hosts),
        "port": ",".join(str(port) for _, port in address.hosts),
        "dbname": address.database,
        **{name: value for name, value in (("user", address.user), ("password", address.password)) if value},
    }
    if not plain:
        idle = "-c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0"
        settings["options"] = f"{settings.get('options', '')} {idle}".strip()
    connection: Connection[Any] = psycopg().connect(**settings, **more)
    if not plain:
        return connection
    try:
        with connection.cursor() as cursor:
            # One round trip for all settings.
            idle_ms = min(milliseconds, _IDLE_MS_MAX)  # 0 means no limit
            cursor.execute(_SETTINGS.format(statement_ms=milliseconds, idle_ms=idle_ms).encode())
        if search_path is not None:
            connection.execute("SELECT set_config('search_path', %s, false)", [search_path])
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def deadline(connection: Connection[Any], total_s: float) -> Iterator[None]:
    """Close the socket if the body takes longer: a call that waits for the server then fails.

    The server's own time-outs do not help if an intermediary loses its answer and keeps connections open.
    """
    timer = threading.Timer(total_s, _cut, [connection.fileno()])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cut(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def is_transient(error: BaseException) -> bool:
    """Whether an error is transient."""
    library = psycopg()
    if not isinstance(error, library.Error):
        return isinstance(error, OSError)
    code = error.sqlstate
    if code is not None:
        return code.startswith(_TRANSIENT_CLASSES) or code in _TRANSIENT_CODES
    if not isinstance(error, library.OperationalError):
        return False
    text = str(error)
    if "FATAL:" in text:
        return any(words in text for words in _PASSING_REFUSALS)
    return not any(words in text for words in _WRONG_SETTINGS)


def refusal(error: BaseException) -> str | None:
    """The server's message if it refuses permanently; None for a transient error."""
    if is_transient(error):
        return None
    diag = getattr(error, "diag", None)
    messages = [str(error).splitlines()[0].strip() if str(error) else type(error).__name__]
    for more in (getattr(diag, "message_detail", None), getattr(diag, "message_hint", None)):
        messages += [more] if more else []
    context = (getattr(diag, "context", None) or "").splitlines()
    return ". ".join(part.rstrip(".") for part in [*messages, *context[:1]])


def quoted_name(name: str) -> str:
    """A name quoted for SQL.

    >>> quoted_name("Odd name")
    '"Odd name"'
    """
    return '"' + name.replace('"', '""') + '"'


def quoted(table: TableName) -> str:
    """A table name quoted for SQL."""
    return ".".join(map(quoted_name, table.parts))
