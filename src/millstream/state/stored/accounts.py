"""Accounts: an operator's description of its state in the manifest, as types, and their stored form.

A manifest stores one `OperatorAccount` per operator under `states[uid]`: its event time, an account per subtask
(`SubtaskAccount`: versions of tables, timers, windows, loops), an account per function (`FunctionAccount`: lists of
operator state), a source's split data other than positions, and the output that a sink defers to a later epoch. Tasks
send accounts in their acknowledgements and receive them in the next epoch's spec.

The stored form follows from the types (`json_records`): an object with a field per attribute; attributes that equal
their default are omitted. Invariants: reading an account and writing it again yields the same JSON, and writing an
account and reading it yields an equal one. An unknown field, or a field of another type, is rejected with the name of
the operator and the field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from millstream.errors import StoreDamagedError
from millstream.records.watermarks import MIN_WATERMARK
from millstream.state.schemas.schema_history import History, history_from_json, history_to_json
from millstream.state.segments.version import Refs, refs_from_json, refs_to_json
from millstream.state.stored.queryable import Queryable
from millstream.state.stored.times import EventTimeState
from millstream.storage.json_records import Flat, Form, Misfit, from_json, to_json

__all__ = [
    "AccountReader",
    "FunctionAccount",
    "ListEntry",
    "ListMode",
    "ListSchema",
    "LoopTail",
    "OperatorAccount",
    "RecordedFile",
    "RecordedSplit",
    "SplitAccount",
    "StoredFile",
    "StoredTables",
    "SubtaskAccount",
    "WindowLengths",
    "accounts_of",
    "tables_of",
    "to_json",
]

ListMode = Literal["split", "union", "broadcast"]
WindowLengths: TypeAlias = tuple[int, int, int, int | None]
"""Window parameters: size, slide, offset and step, in ms (`PaneWindows.lengths_ms`)."""

T = TypeVar("T")
_VALUE_CHARACTERS_MAX = 200


class AccountReader:
    """Reads accounts of one epoch; StoreDamagedError names the operator and the field that cannot be read.

    Thousands of subtasks have the same schemas, and most splits store only their subtask, so equal accounts are parsed
    once.

    >>> AccountReader().subtask({"wake_ms": 7}, "count").wake_ms
    7
    >>> AccountReader().subtask({"wake_ms": "soon"}, "count")
    Traceback (most recent call last):
    millstream.errors.StoreDamagedError: the account of operator 'count' cannot be read: 'wake_ms' is 'soon', expected \
a whole number. Was it written by another Millstream? Use that one, or restore the manifest from a copy.
    """

    def __init__(self) -> None:
        self._operator = ""
        self._histories: dict[str, tuple[Any, History]] = {}
        self._plain_splits: dict[int, SplitAccount] = {}

    def operator(self, written: Any, operator: str) -> OperatorAccount:
        """Read an operator's account written by `to_json`."""
        return self._read(OperatorAccount, written, operator)

    def subtask(self, written: Any, operator: str) -> SubtaskAccount:
        """Read a subtask's account written by `to_json`."""
        return self._read(SubtaskAccount, written, operator)

    def function(self, written: Any, operator: str) -> FunctionAccount:
        """Read a function's account written by `to_json`."""
        return self._read(FunctionAccount, written, operator)

    def _read(self, kind: type[T], written: Any, operator: str) -> T:
        self._operator = operator
        try:
            return from_json(kind, self, written)
        except Misfit as misfit:
            shown = repr(misfit.value)
            if len(shown) > _VALUE_CHARACTERS_MAX:
                shown = f"{shown[:_VALUE_CHARACTERS_MAX]}…"
            raise StoreDamagedError(
                f"the account of operator '{operator}' cannot be read: '{'.'.join(misfit.path)}' is {shown}, expected "
                f"{misfit.expected}. Was it written by another Millstream? Use that one, or restore the manifest from "
                "a copy."
            ) from misfit

    def version(self, name: str, written: Any) -> Refs:
        """Read the list of a table's segments."""
        return refs_from_json(written, f"state '{name}' of '{self._operator}'")

    def history(self, name: str, written: Any) -> History:
        """Read the schema history of a table."""
        known = self._histories.get(name)
        if known is None or known[0] != written:
            known = written, history_from_json(written, f"state '{name}' of '{self._operator}'")
            self._histories[name] = known
        return known[1]

    def split(self, name: str, written: Any) -> SplitAccount:
        """Read the account of a split."""
        subtask = written.get("subtask") if isinstance(written, dict) and len(written) == 1 else None
        if type(subtask) is not int:
            return from_json(SplitAccount, self, written)
        known = self._plain_splits.get(subtask)
        if known is None:
            known = self._plain_splits[subtask] = SplitAccount(subtask)
        return known


# --- the types ----------------------------------------------------------------------------------------------------

_Version = Annotated[Refs, Form(refs_to_json, AccountReader.version)]
_Schema = Annotated[History, Form(history_to_json, AccountReader.history)]


class StoredFile(NamedTuple):
    """A state file, or a list inlined in the manifest (named by its checksum), with its rows and bytes."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class StoredTables:
    """The tables of one subtask by name: the segments and the schema history of each."""

    versions: Mapping[str, _Version]
    schemas: Mapping[str, _Schema] = field(default_factory=dict)

    def after(self, before: StoredTables | None) -> StoredTables:
        """These tables merged over the `before` tables."""
        if before is None:
            return self
        return StoredTables({**before.versions, **self.versions}, {**before.schemas, **self.schemas})

    def without(self, names: Collection[str]) -> StoredTables:
        """The tables with other names."""
        return StoredTables(
            {name: version for name, version in self.versions.items() if name not in names},
            {name: history for name, history in self.schemas.items() if name not in names},
        )

    @property
    def files(self) -> Iterator[StoredFile]:
        """The files of all segments; a file that is live for several ranges of key groups occurs once per range."""
        return (StoredFile(ref.file, ref.rows, ref.file_bytes) for refs in self.versions.values() for ref in refs)


@dataclass(frozen=True)
class ListSchema:
    """The types of an entry's items beyond the Arrow type of their column: the declared type, the version of the
    serialiser that wrote them, and the type of a map's keys. Entries of older versions lack these fields."""

    declared: Any = None
    version: int | None = None
    map_key: Any = None


@dataclass(frozen=True)
class ListEntry:
    """A stored list, or copy of a map, of one subtask: its description, and its bytes (`inline`) or their `file`."""

    mode: ListMode
    type: str
    items: int
    bytes: int
    sha256: str
    inline: str | None = None
    file: str | None = None
    schema: Annotated[ListSchema, Flat()] = ListSchema()

    @property
    def stored_file(self) -> StoredFile:
        """The file that holds the list; of an inlined list its checksum."""
        return StoredFile(self.file or self.sha256, self.items, self.bytes)


@dataclass(frozen=True)
class LoopTail:
    """Records fed back in a loop: their number, their type, and their blocks, if any."""

    records: int
    type: str
    blocks: ListEntry | None = None


@dataclass(frozen=True)
class SubtaskAccount:
    """One subtask's description of its state. Many fields: the stored form has one for each kind of state that any
    operator may have; most operators set only a few.

    `tables` are the tables of its key groups; `broadcast` the tables that subtask 0 stores for all. `elements_numbered`
    and `rows_numbered` are the next sequence numbers of list elements and of buffered join rows. `wake_ms` is when the
    next processing-time timer is due. Windows: `windows_ms` describes windows identified by number, `by_clock` whether
    they are in processing time (absent in accounts of older versions), `windows` the windows of a join, `pane_ms` the
    length and offset of panes, `fired_ms` the time up to which processing-time windows have fired. Operators that hold
    event time in mid-stream set `time`, the tail of a loop sets `loop`, and its head sets `holds`: whether event time
    waits for it.
    """

    tables: Annotated[StoredTables | None, Flat({"versions": "tables"})] = None
    broadcast: Annotated[StoredTables | None, Flat({"versions": "broadcast", "schemas": "broadcast_schemas"})] = None
    elements_numbered: Mapping[str, int] = field(default_factory=dict)
    rows_numbered: Mapping[str, int] = field(default_factory=dict)
    compaction_debt_bytes: int = 0
    queryable: Mapping[str, Queryable] = field(default_factory=dict)
    wake_ms: int | None = None
    windows_ms: WindowLengths | None = None
    windows: WindowLengths | None = None
    pane_ms: tuple[int, int] | None = None
    fired_ms: int | None = None
    time: Annotated[EventTimeState | None, Flat()] = None
    loop: Annotated[LoopTail | None, Flat()] = None
    holds: bool | None = None
    by_clock: bool | None = None

    @property
    def files(self) -> Iterator[StoredFile]:
        """All files that the account names."""
        for tables in (self.tables, self.broadcast):
            if tables is not None:
                yield from tables.files
        if self.loop is not None and self.loop.blocks is not None:
            yield self.loop.blocks.stored_file

    def without(self, tables: Collection[str], broadcast: Collection[str]) -> SubtaskAccount:
        """The account without the tables and the broadcast tables of these names."""
        return replace(
            self,
            tables=None if self.tables is None else self.tables.without(tables),
            broadcast=None if self.broadcast is None else self.broadcast.without(broadcast),
        )

    def waking_at(self, wake_ms: int) -> SubtaskAccount:
        """The account with a timer due at `wake_ms` at the latest."""
        return self if self.wake_ms is not None and self.wake_ms <= wake_ms else replace(self, wake_ms=wake_ms)


@dataclass(frozen=True)
class FunctionAccount:
    """The operator state of one subtask's function: its lists by name, and the attempt (`nonce`) that wrote them.
    `unions`: whether any list is or was a union; accounts of older versions lack it."""

    epoch: int
    nonce: str
    parallelism: int
    lists: Mapping[str, ListEntry]
    unions: bool | None = None

    @property
    def files(self) -> Iterator[StoredFile]:
        """All files that the account names."""
        return (entry.stored_file for entry in self.lists.values())


@dataclass(frozen=True)
class SplitAccount:
    """An unfinished split of a source: the subtask that reads it, and its event-time state other than the watermark,
    which is stored with its position."""

    subtask: int | None = None
    active_ms: int | None = None
    marked_idle: bool = False
    generator: Any = None

    @classmethod
    def of(cls, subtask: int, time: EventTimeState) -> SplitAccount:
        """The account of a split read by this subtask, with this event-time state."""
        return cls(subtask, time.active_ms, time.marked_idle, time.generator)

    def time(self, watermark: int) -> EventTimeState:
        """Its event-time state, with the watermark of its position."""
        return EventTimeState(watermark, self.active_ms, self.marked_idle, self.generator)

    @property
    def has_details(self) -> bool:
        """Whether its event-time state has more than the watermark."""
        return self.active_ms is not None or self.marked_idle or self.generator is not None


def _split_to_json(split: SplitAccount) -> dict[str, Any]:
    # A source may have ten thousand splits, most of which need only the subtask.
    return to_json(split) if split.has_details or split.subtask is None else {"subtask": split.subtask}


_Split = Annotated[SplitAccount, Form(_split_to_json, AccountReader.split)]


@dataclass(frozen=True)
class RecordedFile:
    """A file of recorded input, with the length and checksum that prove its completeness."""

    file: str
    bytes: int
    crc32: int


@dataclass(frozen=True)
class RecordedSplit:
    """The input read from a split in one epoch: the files it is recorded in, the subtask that read it, its position
    among that subtask's splits (`number`), and the source's own watermark after it."""

    files: tuple[RecordedFile, ...]
    subtask: int
    number: int
    watermark: int | None


@dataclass(frozen=True)
class OperatorAccount:
    """The manifest's entry for one operator.

    `event_times` are the event times of its subtasks, unless all equal the `watermark`. `subtasks` and `functions` are
    keyed by the number of the subtask. Of a source: its unfinished `splits` by name, how many it has not started
    (`unread`), when it last had records (`active_ms`), whether its splits were read in order of time (`by_time`), and
    the `recorded` input of the splits it read. `pending` is the output that a sink defers, in a format of the sink's.
    """

    watermark: int | None = None
    event_times: tuple[int, ...] = ()
    subtasks: Mapping[int, SubtaskAccount] = field(default_factory=dict)
    functions: Mapping[int, FunctionAccount] = field(default_factory=dict)
    splits: Mapping[str, _Split] = field(default_factory=dict)
    unread: int = 0
    active_ms: int | None = None
    recorded: Mapping[str, RecordedSplit] | None = None
    pending: Any = None
    by_time: bool = False

    @property
    def event_time(self) -> int:
        """Its watermark, or the minimum watermark if it has none."""
        return MIN_WATERMARK if self.watermark is None else self.watermark

    @property
    def keeps_state(self) -> bool:
        """Whether the operator or its function has any state."""
        return bool(self.subtasks or self.functions)


def tables_of(accounts: Mapping[int, SubtaskAccount]) -> list[StoredTables | None]:
    """The tables of the key groups of several subtasks, in the order of their numbers."""
    return [accounts[subtask].tables for subtask in sorted(accounts)]


# --- accounts in a manifest ---------------------------------------------------------------------------------------


class _Manifest(Protocol):
    """The part of a manifest's interface that concerns state."""

    @property
    def states(self) -> Mapping[str, Any]: ...

    def operator_name(self, uid: str) -> str: ...

    def derived(self, make: Callable[[Any], T]) -> T: ...


def accounts_of(manifest: _Manifest | None) -> Mapping[str, OperatorAccount]:
    """The accounts of all operators in a manifest, by uid; empty for None. Parsed once per manifest."""
    return {} if manifest is None else manifest.derived(_accounts)


def _accounts(manifest: _Manifest) -> Mapping[str, OperatorAccount]:
    reader = AccountReader()
    return {uid: reader.operator(written, manifest.operator_name(uid)) for uid, written in manifest.states.items()}
