"""What a job's store says of a table that the job reads: the copy of its rows, and the slot that tells its changes.

    input/{name}/slot.json        the slot that is about to be made, so that one left over from a crash is dropped
    input/{name}/table.json       the copy and the slot: written when both are complete; without it there is neither
    input/{name}/rows-{series}/00000.parquet …

Both documents are sealed. A series is a token that is drawn for each copy and is part of the names of its splits, so
that a position in one is never taken for one in another. A job that was forked reads the copy where it is, with the
series of the job it came from, and has a slot of its own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from millstream.checkpoint.sealed import seal, unseal
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.batch_series import input_folder
from millstream.connectors.contracts import Split
from millstream.connectors.databases.captured_tables import TablePart
from millstream.connectors.databases.pgoutput import LoggedColumn
from millstream.connectors.databases.table_copy import CopiedFile
from millstream.errors import FencedError, ProgramError, StoreDamagedError
from millstream.state.schemas.saved_types import type_from, written_type
from millstream.storage.json_records import Misfit, from_json, to_json
from millstream.storage.layered_stores import LayeredStore
from millstream.storage.store import Store

__all__ = [
    "StoredTable",
    "check_type",
    "claim_name",
    "create_table",
    "inherited_table",
    "load_intent",
    "load_table",
    "release_name",
    "remove_other_copies",
    "rows_folder",
    "save_intent",
    "save_table",
    "twice_begun",
]

_TABLE, _INTENT = "table.json", "slot.json"
_KIND, _INTENT_KIND, _FORMAT = "input-table", "input-slot", 1


@dataclass(frozen=True)
class StoredTable:
    """A table's copy in `store`, and the slot that tells what happened since `lsn`.

    `columns` are those of the log, with the numbers of their types. `is_removed`: every kept epoch had read the copy.
    `relation` and `parts` are what the catalogue knows the table and its partitions by; 0: the copy was made by a
    version that knew it by its name. `key`: what its rows are found by, where changes tell no more of a row than that.
    Many attributes: it is one document, which is stored as a whole.
    """

    series: str
    table: str
    type: Any
    store: str
    files: tuple[CopiedFile, ...]
    slot: str = ""
    publication: str = ""
    lsn: int = 0
    columns: tuple[LoggedColumn, ...] = ()
    system: str = ""
    is_removed: bool = False
    ends_at: int | None = None
    relation: int = 0
    is_partitioned: bool = False
    parts: tuple[TablePart, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def changes(self) -> str:
        """The name of the split of changes."""
        return f"{self.series}-changes"

    def splits(self) -> list[Split]:
        """A split for each file of the copy; its offset is the row number. The last is listed for ever: by it every
        manifest tells whether the copy was read."""
        splits = [
            Split(f"{self.series}-{number:05d}", 0, {"store": self.store, "file": file.file, "end": file.rows})
            for number, file in enumerate(self.files)
        ]
        return splits[-1:] if self.is_removed else splits

    def is_read(self, positions: dict[str, Any]) -> bool:
        """Whether the copy is read to its end at these positions."""
        return all(positions.get(split.name, 0) >= split.info["end"] for split in self.splits())


def rows_folder(name: str, series: str) -> str:
    """Where the files of a copy are."""
    return f"{input_folder(name)}/rows-{series}"


def remove_other_copies(store: Store, name: str, series: str) -> None:
    """Remove what starts that died have left: copies that no document names. Only for a job that has committed."""
    folder, own = f"{input_folder(name)}/rows-", f"{rows_folder(name, series)}/"
    files = [file for file in store.list(input_folder(name)) if file.startswith(folder) and not file.startswith(own)]
    if files:
        store.delete_many(files)


def save_table(store: Store, name: str, table: StoredTable) -> None:
    """From now on the store has this copy and slot."""
    store.put(f"{input_folder(name)}/{_TABLE}", seal(_KIND, _FORMAT, to_json(table)))


def create_table(store: Store, name: str, table: StoredTable) -> bool:
    """As `save_table`, unless another driver of the same job was first: then False."""
    return store.create(f"{input_folder(name)}/{_TABLE}", seal(_KIND, _FORMAT, to_json(table)))


def load_table(store: Store, name: str) -> StoredTable | None:
    """The copy and slot that `store` itself has under this name."""
    file = f"{input_folder(name)}/{_TABLE}"
    if not store.exists(file):
        return None
    document = unseal(store.get(file), _KIND, _FORMAT, f"Store {store.url}: {file!r}")
    try:
        return from_json(StoredTable, None, document)
    except Misfit as error:
        raise StoreDamagedError(
            f"Store {store.url}: {file!r} is not readable ({error}). Restore it from a copy"
        ) from error


def inherited_table(store: Store, name: str) -> StoredTable | None:
    """That of the job which this one was forked from."""
    bases = store.bases if isinstance(store, LayeredStore) else ()
    return next((table for base in bases if (table := load_table(base, name)) is not None), None)


def save_intent(store: Store, name: str, slot: str) -> None:
    """A slot of this name is about to be made."""
    store.put(f"{input_folder(name)}/{_INTENT}", seal(_INTENT_KIND, _FORMAT, {"slot": slot}))


def load_intent(store: Store, name: str) -> str | None:
    """A slot that was about to be made, and that nothing was read from."""
    file = f"{input_folder(name)}/{_INTENT}"
    if not store.exists(file):
        return None
    return str(unseal(store.get(file), _INTENT_KIND, _FORMAT, f"Store {store.url}: {file!r}")["slot"])


def check_type(stored: StoredTable, type_info: TypeInformation, table: str, subject: str) -> None:
    """Refuse a program that reads the stored copy as something else."""
    if stored.table != table or stored.type != written_type(type_info):
        found = type_from(stored.type, subject)
        raise ProgramError(
            f"{subject}: this job has stored rows of {stored.table} as {found.notation}, and is to read {table} as "
            f"{type_info.notation}. Declare what it was, or begin anew: give the source another name"
        )


def twice_begun(subject: str) -> FencedError:
    """Two drivers made the copy at once; the other one was faster."""
    return FencedError(f"{subject}: another driver has begun this job at the same time. This one has stopped")


_CLAIMS: set[tuple[str, str]] = set()
_CLAIMS_LOCK = threading.Lock()


def claim_name(store: Store, name: str) -> tuple[str, str]:
    """Take the name for a source of this job: two under one name would read each other's rows."""
    claim = (store.url, name)
    with _CLAIMS_LOCK:
        if claim in _CLAIMS:
            raise ProgramError(f"Two tables of this job are stored under the name {name!r}. Give each its own: name=…")
        _CLAIMS.add(claim)
    return claim


def release_name(claim: tuple[str, str] | None) -> None:
    """The source is closed."""
    with _CLAIMS_LOCK:
        if claim is not None:
            _CLAIMS.discard(claim)
