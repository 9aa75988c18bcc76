"""Parses database addresses as JDBC or the database's own clients write them.

Plans, errors and logs show an address without its password and options: `repr` and `shown`
omit them. JDBC options with an equivalent in the Python client are translated, options that only tune the Java
driver are dropped, and any other option is an error, because ignoring one silently may surprise users in production.
TLS options are checked here too, and expressed as one of libpq's modes (`tls_modes`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, unquote

from millstream.connectors.databases.tls_modes import MYSQL_TLS_OPTIONS, mode_of, mysql_tls
from millstream.connectors.refused_rows import printable
from millstream.errors import ProgramError
from millstream.redaction import is_sensitive, redact, scheme_of

__all__ = ["DatabaseAddress", "parse_address"]

_KINDS = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
_PORTS = {"postgresql": 5432, "mysql": 3306}
_ADDRESS = re.compile(r"(?P<jdbc>jdbc:)?(?P<kind>[A-Za-z]+):(?P<rest>.*)", re.DOTALL)

# JDBC option names that differ in libpq and PyMySQL.
_JDBC_OPTIONS = {
    "postgresql": {
        "ApplicationName": "application_name",
        "connectTimeout": "connect_timeout",
        "currentSchema": "search_path",
        "options": "options",
        "sslcert": "sslcert",
        "sslkey": "sslkey",
        "sslmode": "sslmode",
        "sslrootcert": "sslrootcert",
        "targetServerType": "target_session_attrs",
    },
    "mysql": {},
}
_PYMYSQL_OPTIONS = (
    "bind_address",
    "collation",
    "init_command",
    "program_name",
    "read_default_file",
    "read_default_group",
    "unix_socket",
)
_PORT_MAX = 65_535
# Options that tune the Java driver without any effect visible to a program.
_JDBC_TUNING = frozenset(
    {
        "reWriteBatchedInserts",
        "rewriteBatchedStatements",
        "prepareThreshold",
        "defaultRowFetchSize",
        "tcpKeepAlive",
        "useUnicode",
        "characterEncoding",
        "useServerPrepStmts",
        "cachePrepStmts",
    }
)
_OPTION = re.compile(r"[A-Za-z]\w*=")
_TARGETS = {"primary": "read-write", "master": "read-write", "any": "any", "secondary": "standby"}


@dataclass(frozen=True)
class DatabaseAddress:
    """A database and its user. `hosts` may list several of a PostgreSQL; an empty host is the client's default.

    >>> parse_address("jdbc:postgresql://db:5433/sales?user=ann&password=secret")
    DatabaseAddress(postgresql://ann@db:5433/sales)
    """

    kind: str
    hosts: tuple[tuple[str, int], ...]
    database: str
    user: str | None = None
    password: str | None = None
    options: tuple[tuple[str, str], ...] = field(default=())

    @property
    def shown(self) -> str:
        """The address for display: no password, no options."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.kind}://{user}{hosts}/{self.database}"

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.shown})"

    def with_login(self, user: str | None, password: str | None) -> DatabaseAddress:
        """The same database; a user or password passed here overrides the one in the address."""
        return replace(
            self,
            user=self.user if user is None else user,
            password=self.password if password is None else password,
        )

    def without_secrets(self, text: str) -> str:
        """A server message for display: without the password and other secrets of the address, and without terminal
        escape sequences, because messages quote values of rows."""
        options = (value for name, value in self.options if is_sensitive(name))
        return printable(redact(text, [self.password, *options]))


def parse_address(url: str) -> DatabaseAddress:
    """The database at `url`: postgresql://user@host:5432/db, mysql://…, or the same behind `jdbc:`.

    >>> parse_address("postgres://ann:s%40t@localhost/sales").password
    's@t'
    """
    match = _ADDRESS.fullmatch(url.strip()) if isinstance(url, str) else None
    kind = _KINDS.get(match["kind"].lower()) if match else None
    if match is None or kind is None:
        raise ProgramError(
            f"Database address {scheme_of(url)} is malformed, expected jdbc:postgresql://host:5432/database, "
            "postgresql://user@host/database, or the same with mysql or mariadb"
        )
    place, _, query = match["rest"].partition("?")
    login, hosts, database = _parts(place, kind, url)
    user, _, password = login.partition(":")
    _check_query(query, url)
    options = dict(parse_qsl(query, keep_blank_values=True))
    address = DatabaseAddress(
        kind,
        hosts,
        unquote(database),
        options.pop("user", None) or unquote(user) or None,
        options.pop("password", None) or unquote(password) or None,
    )
    if kind == "mysql":
        is_mariadb = match["kind"].lower() == "mariadb"
        options = _mysql_options(options, address, is_mariadb=is_mariadb, is_jdbc=bool(match["jdbc"]))
    elif match["jdbc"]:
        options = _translated(options, address)
    if kind == "postgresql" and "sslmode" in options:
        mode_of(options["sslmode"], f"Database {address.shown}")
    return replace(address, options=tuple(sorted(options.items())))


def _mysql_options(
    options: dict[str, str], address: DatabaseAddress, *, is_mariadb: bool, is_jdbc: bool
) -> dict[str, str]:
    """The options under PyMySQL's names, except TLS: that becomes a libpq mode and the files it needs."""
    tls, others = mysql_tls(options, f"Database {address.shown}", is_mariadb=is_mariadb)
    if is_jdbc:
        others = _translated(others, address)
    elif unknown := sorted(others.keys() - set(_PYMYSQL_OPTIONS)):
        known = ", ".join(sorted(["user", "password", *_PYMYSQL_OPTIONS, *MYSQL_TLS_OPTIONS]))
        raise ProgramError(
            f"Database {address.shown}: the address has the option {unknown[0]!r}, which is not supported. "
            f"Remove it, or use one of {known}"
        )
    files = {"ssl_ca": tls.ca, "ssl_cert": tls.certificate, "ssl_key": tls.key}
    return {**others, "sslmode": tls.mode, **{name: path for name, path in files.items() if path is not None}}


def _parts(place: str, kind: str, url: str) -> tuple[str, tuple[tuple[str, int], ...], str]:
    """User, hosts and database of `//login@host:port,host:port/database`; JDBC also allows only `database`."""
    port = _PORTS[kind]
    has_host = place.startswith("//")
    authority, _, database = place[2:].partition("/") if has_host else ("", "", place.lstrip("/"))
    login, _, hosts = authority.rpartition("@")
    name, _, _ = url.partition("?")[2].partition("=")
    try:
        if "@" in database + name or (":" in database and not has_host):
            raise ValueError("a password in place of the database")
        return login, tuple(_host(host, port) for host in hosts.split(",")), database
    except ValueError:
        # The text parsed as a host may be the start of a password.
        raise ProgramError(
            f"Database address {scheme_of(url)} (not shown): its host and port cannot be read. Write host:{port}, or "
            f"[::1]:{port}, with a port from 1 to {_PORT_MAX}. In a user's name or password write / ? # @ : as %2F %3F "
            "%23 %40 %3A, or pass it separately"
        ) from None


def _check_query(query: str, url: str) -> None:
    """Reject text that may be the rest of a password containing `&` rather than an option."""
    parts = query.split("&")
    secret = next((at for at, part in enumerate(parts) if is_sensitive(part.partition("=")[0])), len(parts))
    if not all(_OPTION.match(part) for part in parts[secret + 1 :]):
        raise ProgramError(
            f"Database address {scheme_of(url)} (not shown): the text after the password is not an option. In a "
            "password write & as %26, or pass it separately"
        )


def _host(text: str, port: int) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]*))(?::(\d{1,5}))?", text, re.ASCII)
    if match is None or (match[3] and not 0 < int(match[3]) <= _PORT_MAX):
        raise ValueError(text)
    return match[1] or unquote(match[2]) or "localhost", int(match[3]) if match[3] else port


def _translated(options: dict[str, str], address: DatabaseAddress) -> dict[str, str]:
    """JDBC options under the Python client's names."""
    names, translated = _JDBC_OPTIONS[address.kind], {}
    for name, value in options.items():
        if name == "ssl":
            if value.lower() not in ("", "true", "false"):
                raise ProgramError(f"Database {address.shown}: ssl is {value!r}, expected true or false")
            if value.lower() != "false":
                # As in PostgreSQL's driver: ssl without a mode verifies the server.
                translated["sslmode"] = options.get("sslmode", "verify-full")
        elif name == "targetServerType" and value in _TARGETS:
            translated["target_session_attrs"] = _TARGETS[value]
        elif name in names:
            translated[names[name]] = value
        elif name not in _JDBC_TUNING:
            tls = ["ssl"] if address.kind == "postgresql" else MYSQL_TLS_OPTIONS
            known = ", ".join(sorted([*names, "user", "password", *tls]))
            raise ProgramError(
                f"Database {address.shown}: the address has the JDBC option {name!r}, which is not supported. "
                f"Remove it, or use one of {known}"
            )
    return translated
