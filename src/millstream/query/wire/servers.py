"""The servers of a job: their addresses, checked before use, their registrations, and descriptions of their states.

A registration is a small sealed file in `servers/` of the job's store: the server's address, the key groups it holds,
and when it expires unless it is renewed. It is only a hint: clients query the server itself, and try a server that has
ended or has a wrong clock last. The next server that starts removes registrations that expired long ago.

A state is described by its types, and by the assignment of its keys to key groups. A client queries the server that
holds the key group of a key, and a server refuses keys of groups that it does not hold. Both compute the group with
this module, by the job's own hash.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from millstream.checkpoint.sealed import seal, unseal
from millstream.common.typeinfo import TypeInformation
from millstream.errors import StoreDamagedError
from millstream.records.columns import arrow_type
from millstream.state.keys.key_columns import is_stored_as_is, key_column, key_column_of_arrow
from millstream.state.schemas.saved_types import type_from
from millstream.storage.json_records import Misfit, from_json, to_json
from millstream.storage.shared_names import SERVERS, is_server, server_name
from millstream.storage.store import Store

__all__ = [
    "RENEW_S",
    "Registration",
    "ServedState",
    "ServerAddress",
    "ServerPlace",
    "deregister",
    "is_loopback",
    "register",
    "registrations_of",
]

FORMAT = 1
LASTS_MS = 15_000
RENEW_S = 5.0
_EXPIRED_MS = 3_600_000
_GROUPS_MAX = 1 << 15
_TLS = {"http": False, "https": True, "grpc": False, "grpc+tcp": False, "grpc+tls": True}


@dataclass(frozen=True)
class ServerAddress:
    """The address of a server: `https://HOST:PORT`, `grpc+tls://HOST:PORT`, …."""

    scheme: str
    host: str
    port: int | None

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return _TLS[self.scheme]

    @property
    def is_flight(self) -> bool:
        """Whether it is an address of Arrow Flight."""
        return self.scheme.startswith("grpc")

    @classmethod
    def parsed(cls, url: object) -> ServerAddress | None:
        """The parts of a URL; None if it is not an address of a server.

        >>> ServerAddress.parsed("https://DB1:8787")
        ServerAddress(scheme='https', host='db1', port=8787)
        >>> [ServerAddress.parsed(url) for url in ("file:///etc", "http://user@a:1", "http://a?b", "grpc+unix:///a", 7)]
        [None, None, None, None, None]
        """
        if not isinstance(url, str) or len(url) > 300:
            return None
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return None
        if parts.scheme not in _TLS or not host or "@" in parts.netloc:
            return None
        return None if parts.query or parts.fragment else cls(parts.scheme, host.lower(), port)


def is_loopback(host: str) -> bool:
    """Whether the address is reachable only from this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0")]
    [True, True, True, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class ServerPlace:
    """A server and the key groups it holds; `first_group` is None if it holds all."""

    url: str
    first_group: int | None = None
    last_group: int | None = None
    flight_url: str | None = None

    def holds(self, groups: Iterable[int]) -> bool:
        """Whether it holds all of these groups.

        >>> ServerPlace("http://a", 0, 63).holds([0, 63]), ServerPlace("http://a").holds([99])
        (True, True)
        """
        first, last = self.first_group, self.last_group
        return first is None or last is None or all(first <= group <= last for group in groups)

    @classmethod
    def parsed(cls, description: object) -> ServerPlace | None:
        """Parses the description of a server by a registration or another server; None if it is invalid."""
        if not isinstance(description, Mapping):
            return None
        url, flight_url = description.get("url"), description.get("flight_url")
        first, last = description.get("first_group"), description.get("last_group")
        if not isinstance(url, str) or not ((first is None and last is None) or (_is_group(first) and _is_group(last))):
            return None
        return cls(url, first, last, flight_url if isinstance(flight_url, str) else None)


def _is_group(value: object) -> bool:
    return type(value) is int and 0 <= value < _GROUPS_MAX


@dataclass(frozen=True)
class Registration:
    """A server's description of itself; `first_group` is None if it holds all key groups."""

    id: str
    job_id: str
    url: str
    flight_url: str | None
    first_group: int | None
    last_group: int | None
    ends_ms: int

    @classmethod
    def of(
        cls, id: str, job_id: str, url: str, flight_url: str | None, span: tuple[int, int] | None, now_ms: int
    ) -> Registration:
        """A server's current description."""
        first, last = span or (None, None)
        return cls(id, job_id, url, flight_url, first, last, now_ms + LASTS_MS)


def register(store: Store, registration: Registration) -> None:
    """Write or renew a registration, and remove others that expired long ago."""
    store.put(server_name(registration.id), seal("server", FORMAT, to_json(registration)))
    now_ms = registration.ends_ms - LASTS_MS
    for other in registrations_of(store):
        if other.ends_ms < now_ms - _EXPIRED_MS:
            store.delete(server_name(other.id))


def deregister(store: Store, id: str) -> None:
    """Remove a registration."""
    store.delete(server_name(id))


def registrations_of(store: Store) -> list[Registration]:
    """All registrations, expired or not. A registration that was removed or cannot be read is skipped: it is only a
    hint.

    >>> from millstream.storage import open_store
    >>> store = open_store("memory://doctest-servers")
    >>> register(store, Registration.of("a", "j", "http://localhost:1", None, (0, 63), 0))
    >>> [(server.url, server.first_group, server.last_group) for server in registrations_of(store)]
    [('http://localhost:1', 0, 63)]
    """
    registrations = []
    for name in store.list(SERVERS):
        if is_server(name):
            try:
                fields: dict[str, Any] = unseal(store.get(name), "server", FORMAT, f"{name} of store {store.url}")
                # Anybody with write access can write anything with a valid seal, so the codec accepts only what a
                # server writes.
                registration = from_json(Registration, None, fields)
            except (StoreDamagedError, Misfit):
                continue
            if name == server_name(registration.id):
                registrations.append(registration)
    return registrations


_TYPE_DEPTH_MAX = 64


@dataclass(frozen=True)
class ServedState:
    """A queryable state. Types are as a manifest writes them: "LONG", {"row": [...]}, "PICKLED" for none.

    `key_groups` is the number of key groups, the maximum parallelism of the operator; 0 if the group of a key is
    unknown.
    """

    name: str
    kind: str
    key_type: Any
    value_type: Any
    is_pickled: bool
    key_groups: int

    @classmethod
    def parsed(cls, description: object) -> ServedState | None:
        """Parses a server's description of a state; None if it is invalid."""
        if not isinstance(description, Mapping):
            return None
        name, kind, groups = description.get("name"), description.get("kind"), description.get("key_groups")
        key_type, value_type = description.get("key_type"), description.get("value_type")
        if not (isinstance(name, str) and isinstance(kind, str) and type(groups) is int):
            return None
        if not (0 <= groups <= _GROUPS_MAX and _is_shallow(key_type) and _is_shallow(value_type)):
            return None
        return cls(name, kind, key_type, value_type, bool(description.get("is_pickled")), groups)

    def groups_of(self, keys: Sequence[Any]) -> list[int]:
        """The key group of every key.

        >>> ServedState("totals", "value", "STRING", "LONG", False, 128).groups_of(["a", "b"])
        [76, 83]
        """
        groups: list[int] = key_column(list(keys), self._declared).groups(self.key_groups).tolist()
        return groups

    def groups_of_column(self, keys: pa.Array) -> list[int]:
        """The key group of every key of a column; vectorised if the column has their declared type."""
        declared = self._declared
        if declared is None or not is_stored_as_is(declared) or keys.type != arrow_type(declared):
            return self.groups_of(keys.to_pylist())
        groups: list[int] = key_column_of_arrow(keys).groups(self.key_groups).tolist()
        return groups

    def column(self, keys: Sequence[Any]) -> pa.Array:
        """Keys as a column of their declared type."""
        return pa.array(keys, None if self._declared is None else arrow_type(self._declared))

    @property
    def _declared(self) -> TypeInformation | None:
        return None if self.key_type == "PICKLED" else type_from(self.key_type, f"the key of '{self.name}'")


def _is_shallow(written: Any, depth: int = 0) -> bool:
    """Whether a written type is not deeper than real types are."""
    inner = written.values() if isinstance(written, Mapping) else written if isinstance(written, list) else ()
    return depth < _TYPE_DEPTH_MAX and all(_is_shallow(part, depth + 1) for part in inner)
