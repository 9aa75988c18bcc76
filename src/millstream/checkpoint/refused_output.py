"""Rows of committed epochs that a sink's target rejects: two small files in the store, each with one writer.

    refused/{sink}/{epoch}.json          the driver: the rows, and why; later, the files they were written to
    refused/{sink}/{epoch}.aside.json    `millstream refused --set-aside`: the folder they may be written to

An epoch with rejected rows stays unpublished until the target accepts them, or until the user permits setting them
aside. With a permission the driver lists the rows, publishes the epoch without them, and writes them to the named
folder, in this order; each step can be repeated. Until they are written, the permission can be changed to another
folder: otherwise a full or missing folder would block the job permanently. A list without a permission is only
informative: the driver removes it before it tries again, since by then the target may have accepted some of the rows.

The list of a published epoch remains as a journal of the rows that never reached a target, up to a number of lists.
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
    "LISTS_MAX",
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
LISTS_MAX = 1_000
"""Lists of published epochs retained per sink, newest first."""


@dataclass(frozen=True)
class ListedRow:
    """A rejected row: its position (`connectors/refused_rows.py`), the reason, and the beginning of the row as JSON."""

    item: int
    row: int
    reason: str
    shown: str


@dataclass(frozen=True)
class RefusedList:
    """Rows of `epoch` that the target of `sink` rejects. `folder`, `files`: where they were written; "" and empty
    before that."""

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
    """Writes the list of an epoch, replacing an existing one."""
    store.put(refused_name(refused.sink, refused.epoch), seal("refused", FORMAT, asdict(refused)))


def read_refused(store: Store, sink: str, epoch: int) -> RefusedList | None:
    """The list of an epoch, if any."""
    name = refused_name(sink, epoch)
    return _decoded(store.get(name), f"{name} of store {store.url}") if store.exists(name) else None


def remove_refused(store: Store, sink: str, epoch: int) -> None:
    """Removes the list of an epoch."""
    store.delete(refused_name(sink, epoch))


def drop_old_lists(store: Store, job_id: str, sink: str) -> None:
    """Removes lists of epochs published without these rows, except the newest. Only the older ones are read."""
    folder = refused_name(sink, 0).rpartition("/")[0]
    names = sorted(name for name in store.list(REFUSED) if is_refused(name) and name.startswith(f"{folder}/"))
    for _, refused in read_sealed(store, names[:-LISTS_MAX], _decoded):
        if isinstance(refused, RefusedList) and refused.job_id == job_id and refused.is_set_aside:
            store.delete_many([set_aside_name(sink, refused.epoch), refused_name(sink, refused.epoch)])


def refused_lists(store: Store, job_id: str) -> Iterator[tuple[str, RefusedList | StoreError]]:
    """The lists of a job, by sink and epoch, or the error of an unreadable one."""
    for name, refused in read_sealed(store, sorted(filter(is_refused, store.list(REFUSED))), _decoded):
        if isinstance(refused, StoreError) or refused.job_id == job_id:
            yield name, refused


def allow_setting_aside(store: Store, refused: RefusedList, folder: str) -> bool:
    """Permits writing the rows of this epoch to `folder`; False if that permission exists already. Replaces a
    permission that names another folder, belongs to another job, or is damaged."""
    with suppress(StoreDamagedError):
        if allowed_folder(store, refused.job_id, refused.sink, refused.epoch) == folder:
            return False
    fields = {"job_id": refused.job_id, "sink": refused.sink, "epoch": refused.epoch, "folder": folder}
    store.put(set_aside_name(refused.sink, refused.epoch), seal("set-aside", FORMAT, fields))
    return True


def allowed_folder(store: Store, job_id: str, sink: str, epoch: int) -> str | None:
    """The folder for the rows of this epoch; None: setting them aside is not permitted."""
    name = set_aside_name(sink, epoch)
    if not store.exists(name):
        return None
    where = f"{name} of store {store.url}"
    fields = unseal(store.get(name), "set-aside", FORMAT, where)
    folder = fields.get("folder")
    if not isinstance(folder, str) or not folder:
        raise StoreDamagedError(f"{where} names no folder. Repeat the permission: `millstream refused --set-aside`.")
    # A store may be reused for a new job, which uses the same epoch numbers.
    return folder if (fields.get("job_id"), fields.get("sink"), fields.get("epoch")) == (job_id, sink, epoch) else None


def _decoded(data: bytes, where: str) -> RefusedList:
    fields: dict[str, Any] = unseal(data, "refused", FORMAT, where)
    try:
        rows = tuple(ListedRow(**row) for row in fields.pop("rows"))
        return RefusedList(rows=rows, files=tuple(fields.pop("files")), **fields)
    except (KeyError, TypeError) as error:
        raise StoreDamagedError(f"{where} is not a complete list of refused rows ({error}). Remove it.") from error
