"""Rows of committed epochs that a sink's target refuses: two small files in the store, each written by one side only.

    refused/{sink}/{epoch}.json          the driver: which rows, and why; later, where they were written
    refused/{sink}/{epoch}.aside.json    somebody who runs `millstream refused --set-aside`: where they may be written

An epoch whose rows are refused stays unpublished until the target takes them, or until there is a permission. With a
permission the driver lists the rows, publishes the epoch without them, and writes them to the folder that was named: in
this order, and each step is harmless when repeated. Until they are written there the permission may name another
folder: one that is full or gone would hold the job up for good. A list without a permission is only told: the driver
removes it before it tries again, for by then some of the rows may have been taken.

The list of an epoch that was published stays: it is the journal of what never reached a target. So many are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from millstream.checkpoint.sealed import read_sealed, seal, unseal
from millstream.errors import StoreDamagedError, StoreError
from millstream.storage.shared_names import REFUSED, is_refused, refused_name, set_aside_name
from millstream.storage.store import Store

__all__ = [
    "FORMAT",
    "KEPT_LISTS",
    "ListedRow",
    "RefusedList",
    "allow_setting_aside",
    "allowed_folder",
    "drop_old_lists",
    "read_refused",
    "refused_lists",
    "remove_refused",
    "write_refused",
]

FORMAT = 1
KEPT_LISTS = 1_000
"""So many lists of epochs that were published are kept, the newest of each sink."""


@dataclass(frozen=True)
class ListedRow:
    """A refused row by its place (`connectors/refused_rows.py`), the reason, and the beginning of the row as JSON."""

    item: int
    row: int
    reason: str
    shown: str


@dataclass(frozen=True)
class RefusedList:
    """What the target of `sink` refuses of `epoch`. `folder`, `files`: where the rows were written; "": not yet."""

    job_id: str
    sink: str
    epoch: int
    operator: str
    target: str
    rows: tuple[ListedRow, ...]
    listed_ms: int
    folder: str = ""
    files: tuple[str, ...] = field(default=())

    @property
    def is_set_aside(self) -> bool:
        """Whether the epoch was published without these rows."""
        return bool(self.files)


def write_refused(store: Store, refused: RefusedList) -> None:
    """Write the list of an epoch, in the place of one that was there."""
    store.put(refused_name(refused.sink, refused.epoch), seal("refused", FORMAT, asdict(refused)))


def read_refused(store: Store, sink: str, epoch: int) -> RefusedList | None:
    """The list of an epoch, if there is one."""
    name = refused_name(sink, epoch)
    return _decoded(store.get(name), f"{name} of store {store.url}") if store.exists(name) else None


def remove_refused(store: Store, sink: str, epoch: int) -> None:
    """Remove the list of an epoch."""
    store.delete(refused_name(sink, epoch))


def drop_old_lists(store: Store, job_id: str, sink: str) -> None:
    """Keep the newest lists of epochs that were published without these rows. Only older ones are read."""
    folder = refused_name(sink, 0).rpartition("/")[0]
    names = sorted(name for name in store.list(REFUSED) if is_refused(name) and name.startswith(f"{folder}/"))
    for _, refused in read_sealed(store, names[:-KEPT_LISTS], _decoded):
        if isinstance(refused, RefusedList) and refused.job_id == job_id and refused.is_set_aside:
            store.delete_many([set_aside_name(sink, refused.epoch), refused_name(sink, refused.epoch)])


def refused_lists(store: Store, job_id: str) -> Iterator[tuple[str, RefusedList | StoreError]]:
    """The lists of a job, by sink and epoch, or why one cannot be read."""
    for name, refused in read_sealed(store, sorted(filter(is_refused, store.list(REFUSED))), _decoded):
        if isinstance(refused, StoreError) or refused.job_id == job_id:
            yield name, refused


def allow_setting_aside(store: Store, refused: RefusedList, folder: str) -> bool:
    """Say that the rows of this epoch may be written to `folder`; False if that stands there already. Replaces a
    permission that names another folder, is another job's, or is damaged."""
    with suppress(StoreDamagedError):
        if allowed_folder(store, refused.job_id, refused.sink, refused.epoch) == folder:
            return False
    fields = {"job_id": refused.job_id, "sink": refused.sink, "epoch": refused.epoch, "folder": folder}
    store.put(set_aside_name(refused.sink, refused.epoch), seal("set-aside", FORMAT, fields))
    return True


def allowed_folder(store: Store, job_id: str, sink: str, epoch: int) -> str | None:
    """Where the rows of this epoch may be written; None: nobody has said that they may be set aside."""
    name = set_aside_name(sink, epoch)
    if not store.exists(name):
        return None
    where = f"{name} of store {store.url}"
    fields = unseal(store.get(name), "set-aside", FORMAT, where)
    folder = fields.get("folder")
    if not isinstance(folder, str) or not folder:
        raise StoreDamagedError(
            f"{where} names no folder. Give the permission again: `millstream refused --set-aside`."
        )
    # A store may be begun anew: its epochs then have the same numbers.
    return folder if (fields.get("job_id"), fields.get("sink"), fields.get("epoch")) == (job_id, sink, epoch) else None


def _decoded(data: bytes, where: str) -> RefusedList:
    fields: dict[str, Any] = unseal(data, "refused", FORMAT, where)
    try:
        rows = tuple(ListedRow(**row) for row in fields.pop("rows"))
        return RefusedList(rows=rows, files=tuple(fields.pop("files")), **fields)
    except (KeyError, TypeError) as error:
        raise StoreDamagedError(f"{where} is no whole list of refused rows ({error}). Remove it.") from error
