"""Pins retain an epoch of a job permanently: for a savepoint by reference, or a fork that shares the job's files.

A pin is a small file next to the manifests; while it exists, no file named by its epoch is collected. Any writer to the
store may create one, independently of the driver: it writes the pin first and reads the manifest afterwards
(`removals.held_manifest`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Literal

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.removals import held_manifest
from millstream.checkpoint.sealed import read_sealed, seal, unseal
from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.shared_names import PINS, name_of_pin, pin_name
from millstream.storage.store import Store

__all__ = ["Pin", "pin_epoch", "pins_of", "read_pins", "unpin"]

_LOG = logging.getLogger(__name__)

FORMAT = 1
Reason = Literal["savepoint", "fork"]


@dataclass(frozen=True)
class Pin:
    """A pinned epoch with its name and the reason. `by` is the address of a fork."""

    name: str
    epoch: int
    reason: Reason
    created_ms: int
    by: str = ""


def pin_epoch(store: Store, pin: Pin) -> Manifest:
    """Pins `pin.epoch` and returns its manifest; StoreError if the epoch does not exist or the name is in use.

    >>> from millstream.storage import open_store
    >>> pin_epoch(open_store("memory://doctest-pins"), Pin("before-upgrade", 3, "savepoint", created_ms=0))
    Traceback (most recent call last):
    millstream.errors.StoreError: store memory://doctest-pins has no epoch 3; it has none. \
Only retained epochs can be pinned.
    """
    if not store.create(pin_name(pin.name), seal("pin", FORMAT, asdict(pin))):
        raise StoreError(f"store {store.url} already has a savepoint or fork named '{pin.name}'. Use another name.")
    try:
        manifest = held_manifest(store, pin.epoch)
    except BaseException:
        with suppress(StoreError):  # a pin that the caller does not know of must not hold anything
            store.delete(pin_name(pin.name))
        raise
    if manifest is None:
        store.delete(pin_name(pin.name))
        epochs = ManifestLog(store).epochs()
        existing = "none" if not epochs else f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
        raise StoreError(
            f"store {store.url} has no epoch {pin.epoch}; it has {existing}. Only retained epochs can be pinned."
        )
    return manifest


def pins_of(store: Store) -> list[Pin]:
    """All pins of a store, by name. Concurrently removed ones are skipped; unreadable ones are logged and skipped."""
    pins = []
    for _, pin in read_pins(store):
        if isinstance(pin, Pin):
            pins.append(pin)
        else:
            _LOG.warning("%s", pin.message)
    return pins


def read_pins(store: Store) -> Iterator[tuple[str, Pin | StoreError]]:
    """Every pin file with its pin, or the error of an unreadable one."""
    return read_sealed(store, (name for name in store.list(PINS) if name_of_pin(name) is not None), _decoded)


def _decoded(data: bytes, where: str) -> Pin:
    fields = unseal(data, "pin", FORMAT, where)
    try:
        # Unknown fields are ignored: a later version may add fields without a new format.
        name, epoch, reason, created_ms = (fields[name] for name in ("name", "epoch", "reason", "created_ms"))
    except KeyError as error:
        raise StoreDamagedError(
            f"{where} is not a complete pin: it has no {error}. Restore the file from a copy."
        ) from error
    if not isinstance(name, str) or type(epoch) is not int or epoch < 1:
        raise StoreDamagedError(f"{where} is not a complete pin: it names no epoch. Restore the file from a copy.")
    return Pin(name, epoch, reason, created_ms, fields.get("by", ""))


def unpin(store: Store, name: str) -> None:
    """Removes a pin; StoreError if it does not exist."""
    if not store.exists(pin_name(name)):
        existing = ", ".join(pin.name for pin in pins_of(store)) or "none"
        raise StoreError(f"store {store.url} has no savepoint or fork named '{name}'; it has {existing}.")
    store.delete(pin_name(name))
