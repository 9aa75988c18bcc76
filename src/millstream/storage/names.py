"""The one place that builds the names of stored files.

    job.json                                                   who owns the store
    manifests/{epoch}.json                                     one per committed epoch
    staged/{sink}/{epoch}-{subtask}-{nonce}-{part}{suffix}     output waiting to be published
    segments/{uid}/{state}/{epoch}-{subtask}-{nonce}.arrow     keyed state
    finished/{uid}/{epoch}-{nonce}.json                        splits of a source that are read to their end
    input/{source}/…                                           input that a source keeps: its own module names the files
    pins/{name}.json                                           an epoch that is kept: a savepoint, or a fork's beginning
    leases/{epoch}-{id}.json                                   an epoch that somebody reads
    control/{id}.json, control/{id}.answer.json                a request to the running job, and what came of it
    servers/{id}.json                                          a query server of the job, while it renews this
    receipts/{epoch}.json                                      an epoch is published
    savepoint.json                                             what a savepoint folder holds, with checksums
    leaving.json                                               manifests that are being removed, until that is done
    swept.json                                                 written by a sweeper to learn the store's time
    specs/{epoch}-{digest}.json                                the orders for an epoch's tasks, where they are long
    logs/{run}.log                                             the log of one run
    rebuilds/{number}                                          beside stores: which of a table's stores is the newest

Numbers are zero-padded, so that names sort as their numbers do. A user's texts (uids, names) become `safe` path parts.
The nonce in a name is random and never used again. So an attempt of a task that lost never touches the winner's file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.storage.path_parts import safe

__all__ = [
    "CONTROL",
    "FINISHED",
    "INPUT",
    "LEASES",
    "LOGS",
    "MANIFESTS",
    "PINS",
    "REBUILDS",
    "RECEIPTS",
    "SEGMENTS",
    "SERVERS",
    "SPECS",
    "STAGED",
    "SegmentName",
    "StagedName",
    "answer_name",
    "epoch_of_finished",
    "epoch_of_lease",
    "epoch_of_manifest",
    "epoch_of_receipt",
    "epoch_of_spec",
    "finished_name",
    "is_lease",
    "is_request",
    "is_server",
    "job_name",
    "lease_id",
    "lease_name",
    "leaving_name",
    "log_name",
    "manifest_name",
    "name_of_pin",
    "parse_segment",
    "parse_staged",
    "pin_name",
    "rebuild_name",
    "rebuild_of",
    "receipt_name",
    "request_name",
    "savepoint_name",
    "segment_name",
    "server_name",
    "spec_name",
    "staged_name",
    "staged_prefix",
    "swept_name",
]

MANIFESTS = "manifests"
STAGED = "staged"
INPUT = "input"
SEGMENTS = "segments"
LOGS = "logs"
PINS = "pins"
LEASES = "leases"
CONTROL = "control"
FINISHED = "finished"
SERVERS = "servers"
SPECS = "specs"
RECEIPTS = "receipts"
REBUILDS = "rebuilds"

_MANIFEST = re.compile(r"manifests/(\d{12,})\.json")
_STAGED = re.compile(r"staged/([^/]+)/(\d{12,})-(\d{5,})-([A-Za-z0-9]+)-(\d{5,})(\.[A-Za-z0-9.]+)?")
_FINISHED = re.compile(r"finished/[^/]+/(\d{12,})-[A-Za-z0-9]+\.json")
_LEASE = re.compile(r"leases/(\d{1,18})-[A-Za-z0-9]+\.json")
_RECEIPT = re.compile(r"receipts/(\d{12,18})\.json")
_SPEC = re.compile(r"specs/(\d{12,18})-[A-Za-z0-9]+\.json")
_REBUILD = re.compile(r"rebuilds/(\d{12})")
_SEGMENT = re.compile(r"segments/([^/]+)/([^/]+)/(\d{12,})-(\d{5,})-([A-Za-z0-9]+)\.arrow")


@dataclass(frozen=True)
class SegmentName:
    """What the name of a segment says: `uid` and `state` in their safe form; the nonce tells attempts apart."""

    uid: str
    state: str
    epoch: int
    subtask: int
    nonce: str


@dataclass(frozen=True)
class StagedName:
    """What the name of a staged file says: `uid` in its safe form; the nonce tells attempts apart."""

    uid: str
    epoch: int
    subtask: int
    nonce: str
    part: int
    suffix: str = ""


def job_name() -> str:
    """The record that says which job owns the store."""
    return "job.json"


def manifest_name(epoch: int) -> str:
    """The manifest of an epoch.

    >>> manifest_name(7)
    'manifests/000000000007.json'
    """
    if epoch < 1:
        raise ValueError(f"epochs are counted from 1, not {epoch}")
    return f"{MANIFESTS}/{epoch:012d}.json"


def epoch_of_manifest(name: str) -> int | None:
    """The epoch whose manifest `name` is, or None for any other file.

    >>> epoch_of_manifest("manifests/000000000007.json"), epoch_of_manifest("manifests/notes.txt")
    (7, None)
    """
    return _epoch_in(_MANIFEST, name)


def staged_prefix(uid: str) -> str:
    """The folder of everything the sink `uid` has staged.

    >>> staged_prefix("clicks/raw")
    'staged/clicks=2Fraw'
    """
    return f"{STAGED}/{safe(uid)}"


def staged_name(uid: str, epoch: int, subtask: int, nonce: str, part: int, suffix: str = "") -> str:
    """One file staged by one attempt of one subtask of the sink `uid`; `suffix` is a file ending or empty.

    >>> staged_name("clicks", 7, 2, "a1b2", 0, ".parquet")
    'staged/clicks/000000000007-00002-a1b2-00000.parquet'
    """
    name = f"{staged_prefix(uid)}/{epoch:012d}-{subtask:05d}-{nonce}-{part:05d}{suffix}"
    if parse_staged(name) is None:
        raise ValueError(f"not a staged name: {name!r} (the nonce is letters and digits, a suffix starts with '.')")
    return name


def parse_staged(name: str) -> StagedName | None:
    """What a staged name says, or None for any other file; the inverse of `staged_name`.

    >>> parse_staged("staged/clicks/000000000007-00002-a1b2-00000")
    StagedName(uid='clicks', epoch=7, subtask=2, nonce='a1b2', part=0, suffix='')
    """
    match = _STAGED.fullmatch(name)
    if match is None:
        return None
    uid, epoch, subtask, nonce, part, suffix = match.groups()
    return StagedName(uid, int(epoch), int(subtask), nonce, int(part), suffix or "")


def segment_name(uid: str, state: str, epoch: int, subtask: int, nonce: str) -> str:
    """A segment of a state of the operator `uid`; the nonce is new for every file that is begun.

    >>> segment_name("count", "total", 7, 2, "a1b2")
    'segments/count/total/000000000007-00002-a1b2.arrow'
    """
    name = f"{SEGMENTS}/{safe(uid)}/{safe(state)}/{epoch:012d}-{subtask:05d}-{nonce}.arrow"
    if parse_segment(name) is None:
        raise ValueError(f"not a segment's name: {name!r} (the nonce is letters and digits)")
    return name


def parse_segment(name: str) -> SegmentName | None:
    """What a segment's name says, or None for any other file; the inverse of `segment_name`.

    >>> parse_segment("segments/count/total/000000000007-00002-a1b2.arrow")
    SegmentName(uid='count', state='total', epoch=7, subtask=2, nonce='a1b2')
    """
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    uid, state, epoch, subtask, nonce = match.groups()
    return SegmentName(uid, state, int(epoch), int(subtask), nonce)


def finished_name(uid: str, epoch: int, nonce: str) -> str:
    """A list of splits of the source `uid` that were finished before `epoch`; the nonce is new for every list.

    >>> finished_name("clicks", 7, "a1b2"), epoch_of_finished(finished_name("clicks", 7, "a1b2"))
    ('finished/clicks/000000000007-a1b2.json', 7)
    """
    return f"{FINISHED}/{safe(uid)}/{epoch:012d}-{nonce}.json"


def epoch_of_finished(name: str) -> int | None:
    """The epoch that a list of finished splits was written for, or None for any other file."""
    return _epoch_in(_FINISHED, name)


def pin_name(name: str) -> str:
    """The pin of this name; what people call a savepoint or a fork.

    >>> pin_name("before upgrade"), name_of_pin(pin_name("before-upgrade")), name_of_pin("pins/notes.txt")
    ('pins/before=20upgrade.json', 'before-upgrade', None)
    """
    return f"{PINS}/{safe(name)}.json"


def name_of_pin(name: str) -> str | None:
    """The safe form of the name of the pin in the file `name`, or None for any other file."""
    return name.removeprefix(f"{PINS}/").removesuffix(".json") if _is_document(PINS, name) else None


def lease_id(epoch: int, nonce: str) -> str:
    """What one reader's lease is called: the name alone tells which epoch is held.

    >>> lease_name(lease_id(7, "a1")), epoch_of_lease("leases/7-a1.json"), epoch_of_lease("leases/a1.json")
    ('leases/7-a1.json', 7, None)
    """
    return f"{epoch}-{nonce}"


def lease_name(id: str) -> str:
    """The lease of one reader."""
    return f"{LEASES}/{safe(id)}.json"


def epoch_of_lease(name: str) -> int | None:
    """The epoch in the name of a lease, or None where it has none."""
    return _epoch_in(_LEASE, name)


def is_lease(name: str) -> bool:
    """Whether the file is a lease."""
    return _is_document(LEASES, name)


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
    return _is_document(CONTROL, name) and not name.endswith(".answer.json")


def savepoint_name() -> str:
    """What makes a folder a savepoint: the list of its files."""
    return "savepoint.json"


def leaving_name() -> str:
    """The manifests that a sweeper is about to remove, in one file."""
    return "leaving.json"


def swept_name() -> str:
    """What a sweeper writes to learn the store's time."""
    return "swept.json"


def receipt_name(epoch: int) -> str:
    """The receipt of an epoch: it says that the epoch is published.

    >>> receipt_name(7), epoch_of_receipt("receipts/000000000007.json"), epoch_of_receipt("receipts/notes.txt")
    ('receipts/000000000007.json', 7, None)
    """
    return f"{RECEIPTS}/{epoch:012d}.json"


def epoch_of_receipt(name: str) -> int | None:
    """The epoch whose receipt the file is, or None for any other file."""
    return _epoch_in(_RECEIPT, name)


def spec_name(epoch: int, digest: str) -> str:
    """The orders for the tasks of an epoch, where they are too long for a property.

    >>> spec_name(7, "a1"), epoch_of_spec("specs/000000000007-a1.json"), epoch_of_spec("specs/notes.txt")
    ('specs/000000000007-a1.json', 7, None)
    """
    return f"{SPECS}/{epoch:012d}-{digest}.json"


def epoch_of_spec(name: str) -> int | None:
    """The epoch whose spec the file is, or None for any other file."""
    return _epoch_in(_SPEC, name)


def server_name(id: str) -> str:
    """The registration of one query server.

    >>> server_name("a1"), is_server(server_name("a1"))
    ('servers/a1.json', True)
    """
    return f"{SERVERS}/{safe(id)}.json"


def is_server(name: str) -> bool:
    """Whether the file is the registration of a query server."""
    return _is_document(SERVERS, name)


def rebuild_name(number: int) -> str:
    """The sign that a table was made anew so often. It has no content: its name says all.

    >>> rebuild_name(2), rebuild_of(rebuild_name(2)), rebuild_of("rebuilds/2")
    ('rebuilds/000000000002', 2, None)
    """
    return f"{REBUILDS}/{number:012d}"


def rebuild_of(name: str) -> int | None:
    """How often a table was made anew, by the name of a sign."""
    return _epoch_in(_REBUILD, name)


def _epoch_in(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match.group(1)) if match else None


def _is_document(folder: str, name: str) -> bool:
    """Whether the file is one of the sealed documents in this folder."""
    return name.startswith(f"{folder}/") and name.endswith(".json")


def log_name(run: str) -> str:
    """The log of one run."""
    return f"{LOGS}/{safe(run)}.log"
