"""A PostgreSQL server with logical replication enabled. As root it runs as the user postgres, which it requires."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from servers.server_process import HOST, ServerProcess, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["PostgresServer"]

_USER = "postgres"


def _bin() -> Path:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not folders:
        raise RuntimeError("there is no PostgreSQL server: run scripts/servers")
    return folders[-1]


class PostgresServer(ServerProcess):
    """`dsn` names the database `test` and a user with all rights, without a password."""

    name = "postgres"
    # SIGINT stops it immediately, closing its clients' connections; SIGTERM would wait for them.
    stop_signal = signal.SIGINT

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self.port = free_port()
        self.dsn = self.dsn_at(self.port)
        self._data = self.folder / "data"
        self._settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "wal_level": "logical",
            "max_wal_senders": "20",
            "max_replication_slots": "20",
            "max_prepared_transactions": "50",
            "max_connections": "100",
            "shared_buffers": "32MB",
            **settings,
        }
        if os.geteuid() == 0:
            shutil.chown(self.folder, _USER)

    def dsn_at(self, port: int, database: str = "test") -> str:
        return f"host={HOST} port={port} dbname={database} user={_USER}"

    def proxy(self) -> TcpProxy:
        """A proxy to the server that tests can cut: clients use `dsn_at(proxy.port)`."""
        return TcpProxy(self.port)

    def command(self) -> Sequence[str]:
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        return self._as_user(str(_bin() / "postgres"), "-D", str(self._data), *options)

    def _as_user(self, *command: str) -> list[str]:
        return ["runuser", "-u", _USER, "--", *command] if os.geteuid() == 0 else list(command)

    def start(self) -> None:
        is_new = not self._data.exists()
        if is_new:
            self._initialise()
        super().start()
        if is_new:
            self.execute("create database test", database="postgres")

    def _initialise(self) -> None:
        options = ["-A", "trust", "-U", _USER, "-E", "UTF8", "--locale=C", "--no-sync"]
        command = self._as_user(str(_bin() / "initdb"), "-D", str(self._data), *options)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def is_ready(self) -> bool:
        self.execute("select 1", database="postgres")
        return True

    def execute(self, statement: str, database: str = "test") -> list[tuple[object, ...]]:
        """Run one statement in a connection of its own, committed immediately. Returns its rows, if any."""
        import psycopg

        with psycopg.connect(self.dsn_at(self.port, database), autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []
