"""A MariaDB server, from Debian's package. As root it runs as the user mysql, which it requires."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from servers.server_process import HOST, ServerProcess, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["MariadbServer"]

_USER = "mysql"


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise RuntimeError(f"there is no {name}: run scripts/servers")
    return found


class MariadbServer(ServerProcess):
    """The database `test`; the user `root` has the password `password`."""

    name = "mariadb"
    user = "root"
    password = "secret-of-the-tests"
    database = "test"

    def __init__(self) -> None:
        super().__init__()
        self.host = HOST
        self.port = free_port()
        self._data = self.folder / "data"
        if os.geteuid() == 0:
            shutil.chown(self.folder, _USER)

    def proxy(self) -> TcpProxy:
        """A proxy to the server that tests can cut."""
        return TcpProxy(self.port)

    def command(self) -> Sequence[str]:
        options = {
            "datadir": str(self._data),
            "bind-address": HOST,
            "port": str(self.port),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "innodb-buffer-pool-size": "32M",
            "innodb-log-file-size": "16M",
            "skip-name-resolve": "1",
        }
        return [
            _program("mariadbd"),
            "--no-defaults",
            *_as_user(),
            *(f"--{key}={value}" for key, value in options.items()),
        ]

    def start(self) -> None:
        is_new = not self._data.exists()
        if is_new:
            self._initialise()
        super().start()
        if is_new:
            self.execute(f"create database {self.database}", database="mysql")

    def _initialise(self) -> None:
        command = [
            _program("mariadb-install-db"),
            "--no-defaults",
            *_as_user(),
            f"--datadir={self._data}",
            "--skip-test-db",
        ]
        command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed:\n{done.stdout}{done.stderr}")

    def is_ready(self) -> bool:
        try:
            self.execute("select 1", database="mysql")
        except Exception:
            with self.connect("mysql", password="") as connection, connection.cursor() as cursor:
                cursor.execute(f"set password for 'root'@'{HOST}' = password('{self.password}')")
        return True

    def connect(self, database: str | None = None, password: str | None = None) -> Any:
        """pymysql's connection; each statement is committed immediately."""
        import pymysql

        return pymysql.connect(
            host=HOST,
            port=self.port,
            user=self.user,
            password=self.password if password is None else password,
            database=database or self.database,
            autocommit=True,
            connect_timeout=5,
        )

    def execute(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement in a connection of its own. Returns its rows."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def _as_user() -> list[str]:
    return [f"--user={_USER}"] if os.geteuid() == 0 else []
