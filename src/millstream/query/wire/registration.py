"""Which servers there are: each says so in the job's store, for as long as it renews what it said.

A registration is a small sealed file in `servers/`: the server's address, the key groups it holds, and until when
that counts. It is a hint and never a truth: a client asks the server itself, and one that is not there any more, or
whose clock is wrong, is only tried last. What ended long ago is swept away by the next server that starts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import StoreDamagedError
from millstream.storage.names import SERVERS, is_server, server_name
from millstream.storage.store import Store

__all__ = ["RENEW_S", "Registration", "deregister", "register", "registrations_of"]

FORMAT = 1
LASTS_MS = 15_000
RENEW_S = 5.0
_FORGOTTEN_MS = 3_600_000


@dataclass(frozen=True)
class Registration:
    """A server of a job; `first_group` is None where it holds all key groups."""

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
        """What a server says now."""
        first, last = span or (None, None)
        return cls(id, job_id, url, flight_url, first, last, now_ms + LASTS_MS)

    def holds(self, group: int | None) -> bool:
        """Whether it holds the key group; None is a question that every server answers."""
        if group is None or self.first_group is None or self.last_group is None:
            return True
        return self.first_group <= group <= self.last_group


def register(store: Store, registration: Registration) -> None:
    """Say it, or say it again; and sweep what others said long ago."""
    store.put(server_name(registration.id), seal("server", FORMAT, asdict(registration)))
    now_ms = registration.ends_ms - LASTS_MS
    for other in registrations_of(store):
        if other.ends_ms < now_ms - _FORGOTTEN_MS:
            store.delete(server_name(other.id))


def deregister(store: Store, id: str) -> None:
    """Take it back."""
    store.delete(server_name(id))


def registrations_of(store: Store) -> list[Registration]:
    """What servers have said, ended or not. One that is taken back or cannot be read is left out: it is a hint.

    >>> from millstream.storage import open_store
    >>> store = open_store("memory://doctest-servers")
    >>> register(store, Registration.of("a", "j", "http://localhost:1", None, (0, 63), 0))
    >>> [(one.url, one.holds(63), one.holds(64)) for one in registrations_of(store)]
    [('http://localhost:1', True, False)]
    """
    found = []
    for name in store.list(SERVERS):
        if is_server(name):
            try:
                told: dict[str, Any] = unseal(store.get(name), "server", FORMAT, f"{name} of store {store.url}")
                registration = Registration(**told)
            except (StoreDamagedError, TypeError):
                continue
            if _is_sound(registration) and name == server_name(registration.id):
                found.append(registration)
    return found


def _is_sound(one: Registration) -> bool:
    """Whether it says what a server says: whoever writes there may write anything, with a seal that fits."""
    texts, numbers = [one.id, one.job_id, one.url], [one.ends_ms]
    texts += [] if one.flight_url is None else [one.flight_url]
    numbers += [group for group in (one.first_group, one.last_group) if group is not None]
    return all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
