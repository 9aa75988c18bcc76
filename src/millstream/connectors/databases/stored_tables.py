"""The documents in a job's store for a captured table: the copy of its rows, and the slot with its changes.

    input/{name}/slot.json        the slot that is about to be created, so that one left over from a crash is dropped
    input/{name}/table.json       the copy and the slot: written when both are complete; without it neither exists
    input/{name}/rows-{series}/00000.parquet …

Both documents are sealed. A series is a random token per copy and part of the names of its splits, so that a position
in one copy is never mistaken for one in another. A forked job reads the original job's copy, under its series, and has
its own slot.
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
    "concurrent_start_error",
    "create_table",
    "inherited_table",
    "load_intent",
    "load_table",
    "release_name",
    "remove_other_copies",
    "rows_folder",
    "save_intent",
    "save_table",
]

_TABLE, _INTENT = "table.json", "slot.json"
_KIND, _INTENT_KIND, _FORMAT = "input-table", "input-slot", 1


@dataclass(frozen=True)
class StoredTable:
    """A table's copy in `store`, and the slot with the changes since `lsn`.

    `columns` are those of the log, with the oids of their types. `is_removed`: every retained epoch had read the copy.
    `relation` and `parts` identify the table and its partitions in the catalogue; 0: an older version made the copy
    and identified it by name. `key`: the columns that identify rows, where changes have no other columns of a row.
    Many attributes: they are one document, stored as a whole.
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
        """A split for each file of the copy; its offset is the row number. The last one is always listed, so that every
        manifest shows whether the copy was read."""
        splits = [
            Split(f"{self.series}-{number:05d}", 0, {"store": self.store, "file": file.file, "end": file.rows})
            for number, file in enumerate(self.files)
        ]
        return splits[-1:] if self.is_removed else splits

    def is_read(self, positions: dict[str, Any]) -> bool:
        """Whether these positions are at the end of the copy."""
        return all(positions.get(split.name, 0) >= split.info["end"] for split in self.splits())


def rows_folder(name: str, series: str) -> str:
    """The folder of a copy."""
    return f"{input_folder(name)}/rows-{series}"


def remove_other_copies(store: Store, name: str, series: str) -> None:
    """Remove copies left by crashed starts, which no document names. Only for a job that has committed."""
    folder, own = f"{input_folder(name)}/rows-", f"{rows_folder(name, series)}/"
    files = [file for file in store.list(input_folder(name)) if file.startswith(folder) and not file.startswith(own)]
    if files:
        store.delete_many(files)


def save_table(store: Store, name: str, table: StoredTable) -> None:
    """Write the document of this copy and slot."""
    store.put(f"{input_folder(name)}/{_TABLE}", seal(_KIND, _FORMAT, to_json(table)))


def create_table(store: Store, name: str, table: StoredTable) -> bool:
    """As `save_table`, but False if another driver of the same job wrote it first."""
    return store.create(f"{input_folder(name)}/{_TABLE}", seal(_KIND, _FORMAT, to_json(table)))


def load_table(store: Store, name: str) -> StoredTable | None:
    """The copy and slot in `store` itself under this name."""
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
    """The copy and slot of the original job of a fork."""
    bases = store.bases if isinstance(store, LayeredStore) else ()
    return next((table for base in bases if (table := load_table(base, name)) is not None), None)


def save_intent(store: Store, name: str, slot: str) -> None:
    """Record that a slot of this name is about to be created."""
    store.put(f"{input_folder(name)}/{_INTENT}", seal(_INTENT_KIND, _FORMAT, {"slot": slot}))


def load_intent(store: Store, name: str) -> str | None:
    """The slot that was about to be created, and was never read."""
    file = f"{input_folder(name)}/{_INTENT}"
    if not store.exists(file):
        return None
    return str(unseal(store.get(file), _INTENT_KIND, _FORMAT, f"Store {store.url}: {file!r}")["slot"])


def check_type(stored: StoredTable, type_info: TypeInformation, table: str, subject: str) -> None:
    """Reject a program that reads the stored copy with another type."""
    if stored.table != table or stored.type != written_type(type_info):
        stored_type = type_from(stored.type, subject)
        raise ProgramError(
            f"{subject}: this job has stored rows of {stored.table} as {stored_type.notation}, but reads {table} as "
            f"{type_info.notation}. Declare the stored type, or start again: give the source another name"
        )


def concurrent_start_error(subject: str) -> FencedError:
    """The error if two drivers created the copy concurrently and the other one won."""
    return FencedError(f"{subject}: another driver has started this job at the same time. This one has stopped")


_CLAIMS: set[tuple[str, str]] = set()
_CLAIMS_LOCK = threading.Lock()


def claim_name(store: Store, name: str) -> tuple[str, str]:
    """Claim the name for a source of this job: two sources under one name would read each other's rows."""
    claim = (store.url, name)
    with _CLAIMS_LOCK:
        if claim in _CLAIMS:
            raise ProgramError(f"Two tables of this job are stored under the name {name!r}. Give each its own: name=…")
        _CLAIMS.add(claim)
    return claim


def release_name(claim: tuple[str, str] | None) -> None:
    """Release the name when the source is closed."""
    with _CLAIMS_LOCK:
        if claim is not None:
            _CLAIMS.discard(claim)
