"""Names of files through which other processes and the running job share a store.

    pins/{name}.json                                           a pinned epoch: a savepoint, or the start of a fork
    leases/{epoch}-{id}.json                                   an epoch in use by a reader
    driver.json                                                the job's driver, which renews this
    ended.json                                                 how the job's last run ended
    control/{id}.json, control/{id}.answer.json                a request to the running job, and its answer
    servers/{id}.json                                          a query server of the job, which renews this
    refused/{sink}/{epoch}.json                                rows of an epoch that the sink's target refuses
    refused/{sink}/{epoch}.aside.json                          permission to set them aside
    rebuilds/{number}                                          next to stores: marks the newest store of a table

The naming rules of `names` apply.
"""

from __future__ import annotations

import re

from millstream.storage.names import epoch_in, is_document
from millstream.storage.path_parts import safe

__all__ = [
    "CONTROL",
    "LEASES",
    "PINS",
    "REBUILDS",
    "REFUSED",
    "SERVERS",
    "answer_name",
    "driver_name",
    "ended_name",
    "epoch_of_lease",
    "is_lease",
    "is_refused",
    "is_request",
    "is_server",
    "lease_id",
    "lease_name",
    "name_of_pin",
    "pin_name",
    "rebuild_name",
    "rebuild_of",
    "refused_name",
    "request_name",
    "server_name",
    "set_aside_name",
]

PINS = "pins"
LEASES = "leases"
CONTROL = "control"
SERVERS = "servers"
REFUSED = "refused"
REBUILDS = "rebuilds"

_LEASE = re.compile(r"leases/(\d{1,18})-[A-Za-z0-9]+\.json")
_REBUILD = re.compile(r"rebuilds/(\d{12})")


def pin_name(name: str) -> str:
    """The pin of this name: a savepoint or a fork.

    >>> pin_name("before upgrade"), name_of_pin(pin_name("before-upgrade")), name_of_pin("pins/notes.txt")
    ('pins/before=20upgrade.json', 'before-upgrade', None)
    """
    return f"{PINS}/{safe(name)}.json"


def name_of_pin(name: str) -> str | None:
    """The safe form of the name of the pin in the file `name`, or None for any other file."""
    return name.removeprefix(f"{PINS}/").removesuffix(".json") if is_document(PINS, name) else None


def lease_id(epoch: int, nonce: str) -> str:
    """The id of one reader's lease; it contains the retained epoch.

    >>> lease_name(lease_id(7, "a1")), epoch_of_lease("leases/7-a1.json"), epoch_of_lease("leases/a1.json")
    ('leases/7-a1.json', 7, None)
    """
    return f"{epoch}-{nonce}"


def lease_name(id: str) -> str:
    """The lease of one reader."""
    return f"{LEASES}/{safe(id)}.json"


def epoch_of_lease(name: str) -> int | None:
    """The epoch in the name of a lease, or None for any other file."""
    return epoch_in(_LEASE, name)


def is_lease(name: str) -> bool:
    """Whether the file is a lease."""
    return is_document(LEASES, name)


def driver_name() -> str:
    """The lease of the driver that runs the job (`checkpoint/driver_lease.py`)."""
    return "driver.json"


def ended_name() -> str:
    """How the last run of the job ended (`checkpoint/run_end.py`)."""
    return "ended.json"


def request_name(id: str) -> str:
    """A request to the running job."""
    return f"{CONTROL}/{safe(id)}.json"


def answer_name(id: str) -> str:
    """The answer to a request.

    >>> is_request(request_name("a1")), is_request(answer_name("a1"))
    (True, False)
    """
    return f"{CONTROL}/{safe(id)}.answer.json"


def is_request(name: str) -> bool:
    """Whether the file is a request."""
    return is_document(CONTROL, name) and not name.endswith(".answer.json")


def refused_name(uid: str, epoch: int) -> str:
    """The rows of an epoch that the target of the sink `uid` refuses.

    >>> refused_name("ledger", 7), set_aside_name("ledger", 7)
    ('refused/ledger/000000000007.json', 'refused/ledger/000000000007.aside.json')
    """
    return f"{REFUSED}/{safe(uid)}/{epoch:012d}.json"


def set_aside_name(uid: str, epoch: int) -> str:
    """The permission to set these rows aside."""
    return f"{REFUSED}/{safe(uid)}/{epoch:012d}.aside.json"


def is_refused(name: str) -> bool:
    """Whether the file lists refused rows.

    >>> is_refused("refused/ledger/000000000007.json"), is_refused("refused/ledger/000000000007.aside.json")
    (True, False)
    """
    return is_document(REFUSED, name) and not name.endswith(".aside.json")


def server_name(id: str) -> str:
    """The registration of one query server.

    >>> server_name("a1"), is_server(server_name("a1"))
    ('servers/a1.json', True)
    """
    return f"{SERVERS}/{safe(id)}.json"


def is_server(name: str) -> bool:
    """Whether the file is the registration of a query server."""
    return is_document(SERVERS, name)


def rebuild_name(number: int) -> str:
    """The marker that a table was rebuilt `number` times. It is empty; the name carries the number.

    >>> rebuild_name(2), rebuild_of(rebuild_name(2)), rebuild_of("rebuilds/2")
    ('rebuilds/000000000002', 2, None)
    """
    return f"{REBUILDS}/{number:012d}"


def rebuild_of(name: str) -> int | None:
    """The number of rebuilds of a table, from the name of its marker."""
    return epoch_in(_REBUILD, name)
