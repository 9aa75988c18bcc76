"""Pins keep an epoch of a job for ever: a savepoint by reference, and a fork that shares the job's files.

A pin is a small file beside the manifests; as long as it stands, nothing that its epoch names is collected. Anybody who
can write to the store may set one, without asking the driver: the pin is written first and the manifest looked for
afterwards (`removals.held_manifest`).
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
    """An epoch that is kept, under a name, and why. `by` is the address of a fork."""

    name: str
    epoch: int
    reason: Reason
    created_ms: int
    by: str = ""


def pin_epoch(store: Store, pin: Pin) -> Manifest:
    """Keep `pin.epoch` and return its manifest; StoreError when the epoch is gone, or the name is taken.

    >>> from millstream.storage import open_store
    >>> pin_epoch(open_store("memory://doctest-pins"), Pin("before-upgrade", 3, "savepoint", created_ms=0))
    Traceback (most recent call last):
    millstream.errors.StoreError: store memory://doctest-pins has no epoch 3; it has none. \
Only epochs that are retained can be kept.
    """
    if not store.create(pin_name(pin.name), seal("pin", FORMAT, asdict(pin))):
        raise StoreError(f"store {store.url} already has a savepoint or fork named '{pin.name}'. Give another name.")
    try:
        manifest = held_manifest(store, pin.epoch)
    except BaseException:
        with suppress(StoreError):  # what nobody was told of must hold nothing
            store.delete(pin_name(pin.name))
        raise
    if manifest is None:
        store.delete(pin_name(pin.name))
        epochs = ManifestLog(store).epochs()
        have = "none" if not epochs else f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
        raise StoreError(
            f"store {store.url} has no epoch {pin.epoch}; it has {have}. Only epochs that are retained can be kept."
        )
    return manifest


def pins_of(store: Store) -> list[Pin]:
    """All pins of a store, by name; one that is removed meanwhile is left out. So is an unreadable one, with a word."""
    pins = []
    for _, pin in read_pins(store):
        if isinstance(pin, Pin):
            pins.append(pin)
        else:
            _LOG.warning("%s", pin.message)
    return pins


def read_pins(store: Store) -> Iterator[tuple[str, Pin | StoreError]]:
    """Every pin's file, with the pin, or why it cannot be read."""
    return read_sealed(store, (name for name in store.list(PINS) if name_of_pin(name) is not None), _decoded)


def _decoded(data: bytes, where: str) -> Pin:
    fields = unseal(data, "pin", FORMAT, where)
    try:
        # Not all of them: what a later Millstream adds without a new format need not be known.
        name, epoch, reason, created_ms = (fields[name] for name in ("name", "epoch", "reason", "created_ms"))
    except KeyError as error:
        raise StoreDamagedError(f"{where} is no whole pin: it has no {error}. Restore the file from a copy.") from error
    if not isinstance(name, str) or type(epoch) is not int or epoch < 1:
        raise StoreDamagedError(f"{where} is no whole pin: it names no epoch. Restore the file from a copy.")
    return Pin(name, epoch, reason, created_ms, fields.get("by", ""))


def unpin(store: Store, name: str) -> None:
    """Let an epoch go; StoreError when there is no such pin."""
    if not store.exists(pin_name(name)):
        have = ", ".join(pin.name for pin in pins_of(store)) or "none"
        raise StoreError(f"store {store.url} has no savepoint or fork named '{name}'; it has {have}.")
    store.delete(pin_name(name))
