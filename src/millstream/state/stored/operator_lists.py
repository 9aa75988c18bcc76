"""The stored form of operator state, and its redistribution when the parallelism changes.

A list of one subtask is one Arrow column; so is its copy of a map, as pairs. In the manifest it is an *entry*
(`accounts.ListEntry`): its description, and its bytes if small, else the file that holds them. Files are stored under
`segments/`, so that they are retained as long as a manifest names them.

    {"mode": "split", "type": "int64", "declared": "LONG", "items": 3, "bytes": 328, "sha256": "…", "inline": "…"}
    {"mode": "union", "type": "pickled", "items": 9000, "bytes": 700000, "sha256": "…", "file": "segments/…"}

The assignment of items to subtasks depends on the counts alone (`shares`), so a subtask reads only the files it needs.
Reading checks length and checksum: damaged state is an error, never an empty list.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millstream.common.typeinfo import Types
from millstream.errors import StoreDamagedError
from millstream.state.schemas.saved_types import type_from, type_of_arrow, written_type
from millstream.state.schemas.schema_history import SavedAs
from millstream.state.schemas.state_schemas import ValueChanges
from millstream.state.stored.accounts import FunctionAccount, ListEntry, ListMode, ListSchema
from millstream.state.stored.state_codec import StateCodec
from millstream.storage.store import Store

__all__ = [
    "INLINE_BYTES_MAX",
    "Slice",
    "StoredLists",
    "column_of",
    "entry_of",
    "saved_as",
    "schema_of",
    "shares",
    "stored_type",
]

_PICKLED = "pickled"
INLINE_BYTES_MAX = 64 * 1024
"""The longest list, in bytes, that a subtask inlines in the manifest."""


@dataclass(frozen=True)
class Slice:
    """The items `[start, stop)` of the list stored by `subtask`."""

    subtask: int
    start: int
    stop: int


def shares(counts: Sequence[int], parallelism: int) -> list[list[Slice]]:
    """The slices that each of `parallelism` subtasks restores from lists of these lengths, one per previous subtask.

    With the same parallelism every subtask restores its own list. Otherwise all items, in the order of the previous
    subtasks, are divided into contiguous runs of even length: nothing is lost or duplicated, and order is preserved.

    >>> shares([2, 1], 2)
    [[Slice(subtask=0, start=0, stop=2)], [Slice(subtask=1, start=0, stop=1)]]
    >>> shares([2, 2], 1)
    [[Slice(subtask=0, start=0, stop=2), Slice(subtask=1, start=0, stop=2)]]
    """
    if len(counts) == parallelism:
        return [[Slice(subtask, 0, count)] if count else [] for subtask, count in enumerate(counts)]
    total = sum(counts)
    return [_run(counts, total * i // parallelism, total * (i + 1) // parallelism) for i in range(parallelism)]


def _run(counts: Sequence[int], first: int, end: int) -> list[Slice]:
    """The slices that make up the items `[first, end)` of all concatenated lists."""
    slices: list[Slice] = []
    begins = 0
    for subtask, count in enumerate(counts):
        start, stop = max(first - begins, 0), min(end - begins, count)
        if start < stop:
            slices.append(Slice(subtask, start, stop))
        begins += count
    return slices


@dataclass(frozen=True)
class StoredLists:
    """The operator state of one operator in the last manifest, by subtask."""

    accounts: Mapping[int, FunctionAccount]

    @classmethod
    def for_subtask(cls, accounts: Mapping[int, FunctionAccount], subtask: int, parallelism: int) -> StoredLists:
        """The part that one of `parallelism` subtasks needs: its own account, if that was written at the same
        parallelism and records that no list is a union; every subtask needs all items of a union."""
        account = accounts.get(subtask)
        is_enough = account is not None and account.parallelism == parallelism and account.unions is False
        return cls({subtask: account}) if account is not None and is_enough else cls(accounts)

    @property
    def has_unions(self) -> bool:
        """Whether any list is or was a union, even if this subtask's part of it is empty."""
        return any(
            account.unions or any(entry.mode == "union" for entry in account.lists.values())
            for account in self.accounts.values()
        )

    @property
    def parallelism(self) -> int:
        """The number of subtasks that wrote the state, including those without any; 0 if there is no state."""
        return max((account.parallelism for account in self.accounts.values()), default=0)

    @property
    def epoch(self) -> int | None:
        """The epoch at whose end the state was written."""
        return max((account.epoch for account in self.accounts.values()), default=None)

    def names(self) -> list[str]:
        """The names of the lists of all subtasks."""
        return sorted({name for account in self.accounts.values() for name in account.lists})

    def entries(self, name: str) -> list[ListEntry | None]:
        """The list of this name in every subtask."""
        accounts = (self.accounts.get(subtask) for subtask in range(self.parallelism))
        return [None if account is None else account.lists.get(name) for account in accounts]

    def mode(self, name: str) -> ListMode:
        """The redistribution mode of a stored list."""
        return next(entry.mode for entry in self.entries(name) if entry is not None)

    def of_subtask(self, subtask: int) -> Mapping[str, ListEntry]:
        """The lists stored by one subtask."""
        account = self.accounts.get(subtask)
        return {} if account is None else account.lists

    def share(self, name: str, mode: ListMode, subtask: int, parallelism: int) -> list[tuple[ListEntry, Slice]]:
        """The parts of a list that `subtask` of `parallelism` restores: all items (union), or its share; for a map one
        copy, its own or, in turn, another subtask's."""
        entries = self.entries(name)
        if mode == "broadcast":
            owner = subtask % max(len(entries), 1)
            copy = entries[owner] if entries else None
            return [] if copy is None else [(copy, Slice(owner, 0, copy.items))]
        counts = [0 if entry is None else entry.items for entry in entries]
        wanted = shares(counts, 1)[0] if mode == "union" else shares(counts, parallelism)[subtask]
        return [(entry, part) for part in wanted if (entry := entries[part.subtask]) is not None]


def stored_type(codec: StateCodec) -> str:
    """The type of a list as named in an entry."""
    return _PICKLED if codec.is_pickled else str(codec.arrow_type)


def schema_of(codec: StateCodec) -> ListSchema:
    """The types of a list beyond its column: its declared type and its serialiser's version."""
    return ListSchema(written_type(codec.saved_type), codec.version)


def saved_as(entry: ListEntry, changes: ValueChanges, column: pa.Array) -> SavedAs:
    """The schema that a list, or the values of a map, were saved with. Entries of older versions record less; the
    missing parts are taken from the declaration."""
    schema = entry.schema
    if schema.declared is not None:
        kind = type_from(schema.declared, changes.what)
        return SavedAs(0, 0, kind, entry.mode, "", map_key=schema.map_key, version=schema.version)
    codec, is_pickled = changes.codec, entry.type == _PICKLED or entry.type.endswith(f", {_PICKLED}>")
    if (is_pickled, column.type) == (codec.is_pickled, codec.arrow_type):
        kind, version = codec.saved_type, codec.version
    else:
        kind, version = Types.PICKLED_BYTE_ARRAY() if is_pickled else type_of_arrow(pa.field("", column.type)), None
    return SavedAs(0, 0, kind, entry.mode, "", map_key=changes.map_key, version=version)


def entry_of(
    column: pa.Array,
    mode: ListMode,
    type_name: str,
    store: Store,
    file: str,
    before: ListEntry | None,
    schema: ListSchema | None = None,
) -> ListEntry:
    """Store a list and return its entry. `before` is its previous entry; a file of the same content is reused."""
    data = _encoded(column)
    entry = ListEntry(
        mode, type_name, len(column), len(data), hashlib.sha256(data).hexdigest(), schema=schema or ListSchema()
    )
    if len(data) <= INLINE_BYTES_MAX:
        return replace(entry, inline=base64.b64encode(data).decode("ascii"))
    if before is not None and before.file is not None and replace(entry, file=before.file) == before:
        return before
    store.put(file, data)
    return replace(entry, file=file)


def column_of(
    parts: Sequence[tuple[ListEntry, Slice]], store: Store, what: str, changes: ValueChanges | None = None
) -> pa.Array | None:
    """The items of all parts as one column, None without items. `what` names the state in errors. `changes` converts
    each part to the declared type; without it the parts are returned as they were saved."""
    columns = []
    for entry, part in parts:
        column = _read(entry, store, what).slice(part.start, part.stop - part.start)
        columns.append(column if changes is None else _changed(column, entry, changes))
    return pa.concat_arrays(columns) if columns else None


def _changed(column: pa.Array, entry: ListEntry, changes: ValueChanges) -> pa.Array:
    """A list, or the values of a map, converted to the declared type."""
    codec, is_map = changes.codec, entry.mode == "broadcast"
    values = column.field("value") if is_map else column
    saved = saved_as(entry, changes, values)
    now = replace(saved, type=codec.saved_type, version=codec.version, map_key=changes.map_key)
    values = changes.column(values, saved, now)
    return pa.StructArray.from_arrays([column.field("key"), values], names=["key", "value"]) if is_map else values


def _read(entry: ListEntry, store: Store, what: str) -> pa.Array:
    where = "manifest" if entry.file is None else f"file {entry.file!r}"
    try:
        data = base64.b64decode(entry.inline or "", validate=True) if entry.file is None else store.get(entry.file)
    except (StoreDamagedError, binascii.Error) as error:
        raise _damaged(what, store, where, str(error)) from error
    if len(data) != entry.bytes or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise _damaged(what, store, where, f"{len(data)} bytes found, {entry.bytes} written, or other ones")
    try:
        with pa.ipc.open_stream(data) as reader:
            batches = list(reader)
        for batch in batches:
            # In an untrusted store checksums prove nothing, and offsets outside the buffer would crash Arrow.
            batch.validate(full=True)
        column = pa.concat_arrays([batch.column(0) for batch in batches])
        if len(column) != entry.items or (entry.mode == "broadcast" and not pa.types.is_struct(column.type)):
            raise ValueError(f"{len(column)} items of {column.type} found, {entry.items} written as {entry.mode}")
        return column
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        raise _damaged(what, store, where, str(error)) from error


def _damaged(what: str, store: Store, where: str, why: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{what}: the {where} in store {store.url} was lost or changed after it was written ({why}). "
        "Nothing was overwritten: bring it back from a copy, or start from an older epoch"
    )


def _encoded(column: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_arrays([column], names=["item"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
