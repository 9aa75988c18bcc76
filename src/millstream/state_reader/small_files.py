"""Checks every file of a store that is neither a manifest nor named in one: pins, leases, requests, specs.

Each kind has its folder, its name and its format (`storage/names.py`). A file whose content does not match its name is
a problem; a file with an unknown name is a stray, and only reported. Nothing is changed, and a file that is removed
during the check is ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping

from millstream.checkpoint.leases import read_leases
from millstream.checkpoint.manifest import decode
from millstream.checkpoint.manifest_bytes import from_text
from millstream.checkpoint.pins import read_pins
from millstream.checkpoint.sealed import unseal
from millstream.checkpoint.verification import Problem
from millstream.connectors.batch_series import is_sealed, read_sealed
from millstream.connectors.files.discovery import files_of_list, is_file_list
from millstream.connectors.kafka.partitions import is_partition_list, partitions_of_list
from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.content import content_of
from millstream.storage.names import (
    INPUT,
    LOGS,
    RECEIPTS,
    SPECS,
    epoch_of_finished,
    epoch_of_manifest,
    epoch_of_receipt,
    epoch_of_spec,
    is_stalled,
    job_name,
    leaving_name,
    parse_removal,
    parse_segment,
    parse_staged,
    savepoint_name,
    swept_name,
)
from millstream.storage.shared_names import (
    CONTROL,
    LEASES,
    PINS,
    SERVERS,
    driver_name,
    ended_name,
    is_lease,
    is_request,
    is_server,
    name_of_pin,
)
from millstream.storage.store import Store

__all__ = ["is_stray", "small_file_problems", "stored_input_problems"]

_FORMAT = 1  # of requests, answers, registrations, set-aside permissions and swept.json


def is_stray(name: str) -> bool:
    """Whether no version writes files of that name to a store.

    >>> is_stray("manifests/000000000007.json"), is_stray("manifests/notes.txt"), is_stray("input/in/consumed.json")
    (False, True, False)
    """
    if name in (job_name(), savepoint_name(), *_AT_THE_TOP) or name.startswith(f"{INPUT}/"):
        return False
    if name.startswith(f"{LOGS}/") or name_of_pin(name) or is_lease(name) or is_server(name):
        return False
    if is_request(name) or _is_answer(name):
        return False
    numbered = (epoch_of_manifest, epoch_of_finished, epoch_of_receipt, epoch_of_spec)
    parsed = (*numbered, parse_removal, parse_segment, parse_staged)
    return all(parse(name) is None for parse in parsed)


def small_file_problems(store: Store) -> Iterator[Problem]:
    """The problems of a store's small files."""
    for name, pin in read_pins(store):
        if isinstance(pin, StoreError):
            yield Problem(name, pin.message, f"of {PINS}")
    for name, lease in read_leases(store):
        if isinstance(lease, StoreError):
            yield Problem(name, lease.message, f"of {LEASES}")
    for folder in ("", CONTROL, RECEIPTS, SERVERS, SPECS):
        for name in store.list(folder) if folder else _AT_THE_TOP:
            check = _check_of(name)
            if check is not None and store.exists(name):
                try:
                    check(store.get(name), name)
                except StoreError as error:
                    if store.exists(name):
                        yield Problem(name, error.message)


def stored_input_problems(store: Store) -> Iterator[Problem]:
    """The problems of input that was stored before it was read: of its lists, and of the files they name."""
    for name in store.list(INPUT):
        if not name.endswith(".json"):
            continue
        try:
            if is_file_list(name):
                files_of_list(store.get(name))
                continue
            if is_partition_list(name):
                partitions_of_list(store.get(name), name)
                continue
            document = read_sealed(store, name) if is_sealed(name) else json.loads(store.get(name))
            files = document["files"] if "/markers/" in name else ()
            entries = [(file["file"], file.get("bytes"), file.get("crc32")) for file in files]
        except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if store.exists(name):
                yield Problem(name, f"it cannot be read: {error}", "a list of stored input")
            continue
        for file, length, checksum in entries:
            wrong = _input_problem(store, file, length, checksum)
            if wrong and store.exists(name):
                yield Problem(file, wrong, "stored input")


def _input_problem(store: Store, file: str, length: int | None, checksum: int | None) -> str:
    if not store.exists(file):
        return "it is missing"
    if length is None or content_of(store, file, length) == (length, checksum):
        return ""
    return "its length and checksum are not as written"


Check = Callable[[bytes, str], object]


def _check_of(name: str) -> Check | None:
    """The check for a file of this name, if any."""
    if name == leaving_name():
        return _leaving
    if is_stalled(name):
        return lambda data, where: unseal(data, "stalled-task", _FORMAT, where)
    if epoch_of_spec(name) is not None:
        return _spec
    kind = _KINDS.get(name) or next((kind for kind, is_of in _FOLDERS.items() if is_of(name)), None)
    return None if kind is None else lambda data, where: unseal(data, kind, _FORMAT, where)


def _is_answer(name: str) -> bool:
    return name.startswith(f"{CONTROL}/") and name.endswith(".answer.json")


_KINDS: Mapping[str, str] = {swept_name(): "swept", driver_name(): "driver", ended_name(): "run-end"}
_AT_THE_TOP = (leaving_name(), *_KINDS)
_FOLDERS: Mapping[str, Callable[[str], bool]] = {
    "request": is_request,
    "answer": _is_answer,
    "server": is_server,
    "receipt": lambda name: epoch_of_receipt(name) is not None,
}


def _leaving(data: bytes, name: str) -> None:
    for epoch, text in unseal(data, "leaving", _FORMAT, name)["manifests"].items():
        decode(from_text(text), f"epoch {epoch} in {name}")


def _spec(data: bytes, name: str) -> None:
    """Check a spec file: its name contains the start of its checksum."""
    digest = name.rpartition("-")[2].removesuffix(".json")
    if not hashlib.sha256(data).hexdigest().startswith(digest):
        raise StoreDamagedError(f"{name} is damaged: its checksum does not match its name. Remove it.")
