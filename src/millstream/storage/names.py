"""Builds all names of stored files, except those that other processes also write (`shared_names`).

    job.json                                                   the owner of the store
    manifests/{epoch}.json                                     one per committed epoch
    staged/{sink}/{epoch}-{subtask}-{nonce}-{part}{suffix}     output waiting to be published
    segments/{uid}/{state}/{epoch}-{subtask}-{nonce}.arrow     keyed state
    finished/{uid}/{epoch}-{nonce}.json                        finished splits of a source
    input/{source}/…                                           input that a source stores: its own module names the
    files receipts/{epoch}.json                                      marks an epoch as published
    savepoint.json                                             the files of a savepoint folder, with checksums
    manifests/leaving-{first}-{last}-{nonce}[.decided]         removal of epochs (`checkpoint/removals.py`)
    leaving.json                                               written by older versions instead
    swept.json                                                 written by a sweeper to read the store's clock
    specs/{epoch}-{digest}.json                                the spec of an epoch's tasks, if it is long
    logs/{run}.log                                             the log of one run

Numbers are zero-padded, so that names sort as their numbers do. User strings (uids, names) become `safe` path parts.
The nonce in a name is random and never reused, so a lost attempt of a task never touches the winner's file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.storage.path_parts import safe

__all__ = [
    "FINISHED",
    "INPUT",
    "LOGS",
    "MANIFESTS",
    "RECEIPTS",
    "REMOVALS",
    "SEGMENTS",
    "SPECS",
    "STAGED",
    "RemovalName",
    "SegmentName",
    "StagedName",
    "epoch_in",
    "epoch_of_finished",
    "epoch_of_manifest",
    "epoch_of_receipt",
    "epoch_of_spec",
    "finished_name",
    "is_document",
    "is_stalled",
    "job_name",
    "leaving_name",
    "log_name",
    "manifest_name",
    "parse_removal",
    "parse_segment",
    "parse_staged",
    "receipt_name",
    "removal_name",
    "savepoint_name",
    "segment_name",
    "spec_name",
    "staged_name",
    "staged_prefix",
    "stalled_name",
    "swept_name",
]

MANIFESTS = "manifests"
STAGED = "staged"
INPUT = "input"
SEGMENTS = "segments"
LOGS = "logs"
FINISHED = "finished"
SPECS = "specs"
RECEIPTS = "receipts"
REMOVALS = "manifests/leaving-"  # sorts after all manifests

_MANIFEST = re.compile(r"manifests/(\d{12,})\.json")
_REMOVAL = re.compile(r"manifests/leaving-(\d{12,18})-(\d{12,18})-([A-Za-z0-9]+)(\.decided)?")
_STAGED = re.compile(r"staged/([^/]+)/(\d{12,})-(\d{5,})-([A-Za-z0-9]+)-(\d{5,})(\.[A-Za-z0-9.]+)?")
_FINISHED = re.compile(r"finished/[^/]+/(\d{12,})-[A-Za-z0-9]+\.json")
_RECEIPT = re.compile(r"receipts/(\d{12,18})\.json")
_SPEC = re.compile(r"specs/(\d{12,18})-[A-Za-z0-9]+\.json")
_SEGMENT = re.compile(r"segments/([^/]+)/([^/]+)/(\d{12,})-(\d{5,})-([A-Za-z0-9]+)\.arrow")


@dataclass(frozen=True)
class SegmentName:
    """The parts of a segment's name: `uid` and `state` in their safe form; the nonce distinguishes attempts."""

    uid: str
    state: str
    epoch: int
    subtask: int
    nonce: str


@dataclass(frozen=True)
class StagedName:
    """The parts of a staged file's name: `uid` in its safe form; the nonce distinguishes attempts."""

    uid: str
    epoch: int
    subtask: int
    nonce: str
    part: int
    suffix: str = ""


@dataclass(frozen=True)
class RemovalName:
    """A range of epochs whose manifests are being removed. `is_decision`: the file that decides the removal."""

    first: int
    last: int
    nonce: str
    is_decision: bool = False


def job_name() -> str:
    """The record of the job that owns the store."""
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
    return epoch_in(_MANIFEST, name)


def removal_name(removal: RemovalName) -> str:
    """The file that announces a removal, or decides it.

    >>> removal_name(RemovalName(3, 7, "a1"))
    'manifests/leaving-000000000003-000000000007-a1'
    >>> parse_removal(removal_name(RemovalName(3, 7, "a1", is_decision=True))), parse_removal(manifest_name(3))
    (RemovalName(first=3, last=7, nonce='a1', is_decision=True), None)
    """
    return f"{REMOVALS}{removal.first:012d}-{removal.last:012d}-{removal.nonce}{'.decided' * removal.is_decision}"


def parse_removal(name: str) -> RemovalName | None:
    """The parts of a removal's name, or None for any other file; the inverse of `removal_name`."""
    match = _REMOVAL.fullmatch(name)
    return None if match is None else RemovalName(int(match[1]), int(match[2]), match[3], match[4] is not None)


def staged_prefix(uid: str) -> str:
    """The folder of the staged files of the sink `uid`.

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
    """The parts of a staged name, or None for any other file; the inverse of `staged_name`.

    >>> parse_staged("staged/clicks/000000000007-00002-a1b2-00000")
    StagedName(uid='clicks', epoch=7, subtask=2, nonce='a1b2', part=0, suffix='')
    """
    match = _STAGED.fullmatch(name)
    if match is None:
        return None
    uid, epoch, subtask, nonce, part, suffix = match.groups()
    return StagedName(uid, int(epoch), int(subtask), nonce, int(part), suffix or "")


def segment_name(uid: str, state: str, epoch: int, subtask: int, nonce: str) -> str:
    """A segment of a state of the operator `uid`; every file gets a new nonce.

    >>> segment_name("count", "total", 7, 2, "a1b2")
    'segments/count/total/000000000007-00002-a1b2.arrow'
    """
    name = f"{SEGMENTS}/{safe(uid)}/{safe(state)}/{epoch:012d}-{subtask:05d}-{nonce}.arrow"
    if parse_segment(name) is None:
        raise ValueError(f"not a segment's name: {name!r} (the nonce is letters and digits)")
    return name


def parse_segment(name: str) -> SegmentName | None:
    """The parts of a segment's name, or None for any other file; the inverse of `segment_name`.

    >>> parse_segment("segments/count/total/000000000007-00002-a1b2.arrow")
    SegmentName(uid='count', state='total', epoch=7, subtask=2, nonce='a1b2')
    """
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    uid, state, epoch, subtask, nonce = match.groups()
    return SegmentName(uid, state, int(epoch), int(subtask), nonce)


def finished_name(uid: str, epoch: int, nonce: str) -> str:
    """A list of splits of the source `uid` that were finished before `epoch`; every list gets a new nonce.

    >>> finished_name("clicks", 7, "a1b2"), epoch_of_finished(finished_name("clicks", 7, "a1b2"))
    ('finished/clicks/000000000007-a1b2.json', 7)
    """
    return f"{FINISHED}/{safe(uid)}/{epoch:012d}-{nonce}.json"


def epoch_of_finished(name: str) -> int | None:
    """The epoch for which a list of finished splits was written, or None for any other file."""
    return epoch_in(_FINISHED, name)


def savepoint_name() -> str:
    """The list of a savepoint's files, which marks a folder as a savepoint."""
    return "savepoint.json"


def leaving_name() -> str:
    """The file that lists the manifests that a sweeper of an older version is about to remove."""
    return "leaving.json"


def swept_name() -> str:
    """The file that a sweeper writes to read the store's clock."""
    return "swept.json"


def receipt_name(epoch: int) -> str:
    """The receipt of an epoch, which marks it as published.

    >>> receipt_name(7), epoch_of_receipt("receipts/000000000007.json"), epoch_of_receipt("receipts/notes.txt")
    ('receipts/000000000007.json', 7, None)
    """
    return f"{RECEIPTS}/{epoch:012d}.json"


def epoch_of_receipt(name: str) -> int | None:
    """The epoch whose receipt the file is, or None for any other file."""
    return epoch_in(_RECEIPT, name)


def spec_name(epoch: int, digest: str) -> str:
    """The spec of an epoch's tasks, if it is too long for a property.

    >>> spec_name(7, "a1"), epoch_of_spec("specs/000000000007-a1.json"), epoch_of_spec("specs/notes.txt")
    ('specs/000000000007-a1.json', 7, None)
    """
    return f"{SPECS}/{epoch:012d}-{digest}.json"


def stalled_name(epoch: int, stage: int, subtask: int, token: str) -> str:
    """The progress of a long-running task. It is removed with the specs of its epoch.

    >>> name = stalled_name(7, 1, 0, "a1")
    >>> epoch_of_spec(name), is_stalled(name), is_stalled(spec_name(7, "a"))
    (7, True, False)
    """
    return f"{SPECS}/{epoch:012d}-stalled{stage}x{subtask}x{token}.json"


def is_stalled(name: str) -> bool:
    """Whether the file is the progress of a long-running task."""
    return epoch_of_spec(name) is not None and "-stalled" in name


def epoch_of_spec(name: str) -> int | None:
    """The epoch whose spec the file is, or None for any other file."""
    return epoch_in(_SPEC, name)


def epoch_in(pattern: re.Pattern[str], name: str) -> int | None:
    """The number in the first group of a pattern that matches the whole name."""
    match = pattern.fullmatch(name)
    return int(match.group(1)) if match else None


def is_document(folder: str, name: str) -> bool:
    """Whether the file is one of the sealed documents in this folder."""
    return name.startswith(f"{folder}/") and name.endswith(".json")


def log_name(run: str) -> str:
    """The log of one run."""
    return f"{LOGS}/{safe(run)}.log"
