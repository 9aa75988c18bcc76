"""Where a database is: read from the address that JDBC or the database's own clients use.

An address is shown without its password and without its options, in plans, errors and logs alike: `repr` and `shown`
leave them out. JDBC's options that mean something to a Python client are translated, those that only tune the Java
driver are left out, and any other is refused: an option that is silently ignored is a surprise at night.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, unquote

from millstream.errors import ProgramError

__all__ = ["DatabaseAddress", "parse_address"]

_KINDS = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
_PORTS = {"postgresql": 5432, "mysql": 3306}
_ADDRESS = re.compile(r"(?P<jdbc>jdbc:)?(?P<kind>[A-Za-z]+):(?P<rest>.*)", re.DOTALL)

# What JDBC calls so is called otherwise by libpq and PyMySQL.
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
    "mysql": {"sslCa": "ssl_ca", "serverSslCert": "ssl_ca"},
}
# These tune the Java driver, and change nothing that a program could see.
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
_TARGETS = {"primary": "read-write", "master": "read-write", "any": "any", "secondary": "standby"}


@dataclass(frozen=True)
class DatabaseAddress:
    """A database and who connects to it. `hosts` may be several of a PostgreSQL; an empty one is the client's default.

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
        """The address for people: no password, no options."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.kind}://{user}{hosts}/{self.database}"

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.shown})"

    def with_login(self, user: str | None, password: str | None) -> DatabaseAddress:
        """The same database; a user or password that is given counts more than the one in the address."""
        return replace(
            self,
            user=self.user if user is None else user,
            password=self.password if password is None else password,
        )

    def without_secrets(self, text: str) -> str:
        """`text`, with the password blotted out wherever it stands."""
        return text.replace(self.password, "***") if self.password else text


def parse_address(url: str) -> DatabaseAddress:
    """The database at `url`: postgresql://user@host:5432/db, mysql://…, or the same behind `jdbc:`.

    >>> parse_address("postgres://ann:s%40t@localhost/sales").password
    's@t'
    """
    match = _ADDRESS.fullmatch(url.strip()) if isinstance(url, str) else None
    kind = _KINDS.get(match["kind"].lower()) if match else None
    if match is None or kind is None:
        raise ProgramError(
            f"Database address {_masked(url)!r} is not understood, expected jdbc:postgresql://host:5432/database, "
            "postgresql://user@host/database, or the same with mysql or mariadb"
        )
    place, _, query = match["rest"].partition("?")
    login, hosts, database = _parts(place, kind, url)
    user, _, password = login.partition(":")
    options = dict(parse_qsl(query, keep_blank_values=True))
    address = DatabaseAddress(
        kind,
        hosts,
        unquote(database),
        options.pop("user", None) or unquote(user) or None,
        options.pop("password", None) or unquote(password) or None,
    )
    if match["jdbc"]:
        options = _translated(options, address)
    return replace(address, options=tuple(sorted(options.items())))


def _parts(place: str, kind: str, url: str) -> tuple[str, tuple[tuple[str, int], ...], str]:
    """Login, hosts and database of `//login@host:port,host:port/database`; JDBC also writes only `database`."""
    port = _PORTS[kind]
    if not place.startswith("//"):
        return "", (("localhost", port),), place.lstrip("/")
    authority, _, database = place[2:].partition("/")
    login, _, hosts = authority.rpartition("@")
    try:
        return login, tuple(_host(host, port) for host in hosts.split(",")), database
    except ValueError:
        raise ProgramError(
            f"Database address {_masked(url)!r}: {hosts!r} is no host and port. Write host:5432, or [::1]:5432"
        ) from None


def _host(text: str, port: int) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]*))(?::(\d+))?", text)
    if match is None:
        raise ValueError(text)
    return match[1] or unquote(match[2]) or "localhost", int(match[3]) if match[3] else port


def _translated(options: dict[str, str], address: DatabaseAddress) -> dict[str, str]:
    """JDBC's options as the Python client calls them."""
    names, found = _JDBC_OPTIONS[address.kind], {}
    for name, value in options.items():
        if name in ("ssl", "useSSL"):
            if value.lower() in ("", "true"):
                found["sslmode"] = options.get("sslmode", "require")
        elif name == "targetServerType" and value in _TARGETS:
            found["target_session_attrs"] = _TARGETS[value]
        elif name in names:
            found[names[name]] = value
        elif name not in _JDBC_TUNING:
            known = ", ".join(sorted([*names, "user", "password", "ssl"]))
            raise ProgramError(
                f"Database {address.shown}: the address has the JDBC option {name!r}, which is not known here. "
                f"Leave it out, or use one of {known}"
            )
    return found


def _masked(url: object) -> str:
    """An address that could not be read, without what may be a password."""
    text = re.sub(r"//[^@/]*@", "//***@", str(url))
    return re.sub(r"(?i)(password=)[^&]*", r"\1***", text)
