"""Writes state: builds a savepoint from tables, for a job to start from.

    SavepointBuilder("count-words")
        .state("count", "total", frame, key="word", key_type=Types.STRING(), value="n", value_type=Types.LONG())
        .write("bootstrap/")

A new job bootstraps its state this way; `from_snapshot` replaces some states of an existing one and copies the rest:
other states, timers, positions of sources. The result is a self-contained savepoint (`checkpoint.savepoints`): a folder
that can be copied anywhere. The list of its files is written last, so an incomplete folder is not a savepoint.

Types must equal the program's declarations, because a key's hash depends on its type: `key_type` is the type of
`key_by` (None if it is called without a type), `value_type` the type of the state's descriptor (None: pickled). Windows
cannot be written: only their operator knows which panes and timers belong together.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.program import ProgramOperator, program_of, program_to_json
from millstream.checkpoint.retention import named_files
from millstream.checkpoint.savepoints import seal
from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError, StoreError
from millstream.state.keys.key_columns import KeyColumn, key_column
from millstream.state.schemas.state_schemas import stored_tables
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment import layout_document
from millstream.state.stored.accounts import (
    FunctionAccount,
    OperatorAccount,
    SubtaskAccount,
    accounts_of,
    to_json,
)
from millstream.state.stored.operator_lists import entry_of, schema_of, stored_type
from millstream.state.stored.state_codec import StateCodec
from millstream.state.stored.table_names import BROADCAST_KEY, EVENT_TIMERS, PROCESSING_TIMERS
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.map_keys import MapKeyCodec
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.state_reader.catalog import states_of
from millstream.state_reader.input_rows import Columns, key_columns, map_key_column, picked, state_column, table_from
from millstream.state_reader.snapshot import Snapshot
from millstream.state_reader.table_source import layout_of
from millstream.storage.names import segment_name
from millstream.storage.store import Store, open_store

__all__ = ["SavepointBuilder"]

Kind = Literal["value", "list", "map", "reducing", "aggregating"]
_SINGLE = ("value", "reducing", "aggregating")


@dataclass
class _Table:
    """A table to be written: all its rows are in its changes."""

    uid: str
    table: StateTable
    is_broadcast: bool = False
    wake_ms: int | None = None


@dataclass
class _List:
    uid: str
    name: str
    mode: Literal["split", "union"]
    column: pa.Array
    codec: StateCodec


@dataclass
class SavepointBuilder:
    """Gathers states and writes them as one savepoint. Every method returns the builder.

    >>> rows = pa.table({"word": ["a", "b"], "n": [1, 2]})
    >>> from millstream.common import Types
    >>> words = SavepointBuilder("count-words").state(
    ...     "count", "total", rows, key="word", key_type=Types.STRING(), value="n", value_type=Types.LONG())
    >>> words.write("memory://doctest-savepoint-builder")
    'memory://doctest-savepoint-builder'
    >>> from millstream import state_reader
    >>> sorted(row["value"] for row in state_reader.open(words.written).at().read("count", "total"))
    [1, 2]
    """

    job: str
    max_parallelism: int = 128
    snapshot: Snapshot | None = None
    now_ms: Callable[[], int] = system_ms
    written: str = ""
    _tables: list[_Table] = field(default_factory=list)
    _lists: list[_List] = field(default_factory=list)
    _dropped: set[tuple[str, str]] = field(default_factory=set)
    _names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> SavepointBuilder:
        """A builder that copies a snapshot except the replaced states. Keep the snapshot open until `write`."""
        stored = [state for state in states_of(snapshot.manifest) if state.refs]
        groups = {layout_of(snapshot.segments, state).max_parallelism for state in stored[:1]} or {128}
        return cls(snapshot.manifest.job, groups.pop(), snapshot)

    @property
    def _epoch(self) -> int:
        return 1 if self.snapshot is None else self.snapshot.epoch

    # --- what to write --------------------------------------------------------------------------------------------

    def operator(self, uid: str, name: str) -> SavepointBuilder:
        """Set an operator's display name; the default is its uid."""
        self._names[uid] = name
        return self

    def state(
        self,
        uid: str,
        name: str,
        rows: Any,
        *,
        kind: Kind = "value",
        key: Columns = "key",
        key_type: TypeInformation | None = None,
        value: Columns = "value",
        value_type: TypeInformation | None = None,
        map_key: Columns = "map_key",
        map_key_type: TypeInformation | None = None,
        ttl_ms: int | None = None,
        expires_ms: str | None = None,
    ) -> SavepointBuilder:
        """Add the keyed state `name` of the operator `uid`, from the rows of a table.

        `key`, `value` and `map_key` are columns, or lists of columns for ROWs and TUPLEs. Elements of a list are in the
        order of the rows. With a time to live, `ttl_ms` is its length and `expires_ms` a column with the expiry time of
        each row; without the column all rows expire `ttl_ms` from now.
        """
        what = f"state '{name}' of '{uid}'"
        table = table_from(rows, what)
        if kind in _SINGLE:  # None is not a value
            present = picked(table, value, what)
            if len(present) == 1 and present[0].null_count:
                table = table.filter(present[0].is_valid())
        sub = MapKeyCodec(map_key_type, f"the map keys of {what}") if kind == "map" else None
        made = StateTable(
            name,
            key_type,
            self.max_parallelism,
            StateCodec(value_type, what),
            sub,
            sub_type=pa.int64() if kind == "list" else None,
            ttl_ms=ttl_ms,
        )
        subs = None if sub is None else map_key_column(table, map_key, map_key_type, sub)
        if kind == "list":
            subs = pa.array(np.arange(table.num_rows) + (self._epoch << 31))
        self._begin(made, uid).put(
            key_columns(table, key, key_type, what),
            state_column(table, value, value_type, what),
            subs=subs,
            expires_ms=self._expiry(table, ttl_ms, expires_ms, what),
        )
        return self._add(_Table(uid, made), table.num_rows)

    def _begin(self, made: StateTable, uid: str) -> TableChanges:
        """Open a table as an operator would in the savepoint's epoch; writes nothing yet."""
        nowhere = OpenSegments(open_store(f"memory://builder-{secrets.token_hex(6)}"))
        made.begin(TableSetting(uid, self._epoch, 0, "", range(self.max_parallelism), self.now_ms(), nowhere), ())
        made.changes = TableChanges(made.layout)  # of any size: they are written with the savepoint
        return made.changes

    def _expiry(self, table: pa.Table, ttl_ms: int | None, expires_ms: str | None, what: str) -> Any:
        if ttl_ms is None:
            if expires_ms is not None:
                raise ProgramError(f"{what}: expires_ms without ttl_ms. Give the state's time to live as well")
            return None
        if expires_ms is None:
            return np.full(table.num_rows, self.now_ms() + ttl_ms, dtype=np.int64)
        [column] = picked(table, expires_ms, what)
        return pc.fill_null(column.cast(pa.int64()), 2**63 - 1).to_numpy()

    def timers(
        self,
        uid: str,
        rows: Any,
        *,
        key: Columns = "key",
        key_type: TypeInformation | None = None,
        time_ms: str = "time_ms",
        domain: Literal["event", "processing"] = "event",
    ) -> SavepointBuilder:
        """Add the timers of a keyed function: a key and a time per row."""
        name = EVENT_TIMERS if domain == "event" else PROCESSING_TIMERS
        what = f"'{name}' of '{uid}'"
        table = table_from(rows, what)
        made = StateTable(name, key_type, self.max_parallelism, None, sub_type=pa.int64(), has_due=True)
        [times] = picked(table, time_ms, what)
        times = times.cast(pa.int64())
        keys = key_columns(table, key, key_type, what)
        self._begin(made, uid).put(keys, subs=times, due_ms=times.to_numpy())
        wake_ms = pc.min(times).as_py() if domain == "processing" else None
        return self._add(_Table(uid, made, wake_ms=wake_ms), None)

    def broadcast(
        self,
        uid: str,
        name: str,
        rows: Any,
        *,
        map_key: Columns = "map_key",
        map_key_type: TypeInformation | None = None,
        value: Columns = "value",
        value_type: TypeInformation | None = None,
    ) -> SavepointBuilder:
        """Add the broadcast state `name` of the operator `uid`: an entry per row."""
        what = f"broadcast state '{name}' of '{uid}'"
        table = table_from(rows, what)
        codec = MapKeyCodec(map_key_type, f"the map keys of {what}")
        made = StateTable(name, None, self.max_parallelism, StateCodec(value_type, what), codec)
        keys: KeyColumn = key_column([BROADCAST_KEY] * table.num_rows, None)
        subs = map_key_column(table, map_key, map_key_type, codec)
        self._begin(made, uid).put(keys, state_column(table, value, value_type, what), subs=subs)
        return self._add(_Table(uid, made, is_broadcast=True), table.num_rows)

    def operator_list(
        self,
        uid: str,
        name: str,
        rows: Any,
        *,
        value: Columns = "value",
        value_type: TypeInformation | None = None,
        mode: Literal["split", "union"] = "split",
    ) -> SavepointBuilder:
        """Add the operator list state `name` of the operator `uid`: an element per row, distributed at the job's
        start."""
        what = f"operator state '{name}' of '{uid}'"
        column = state_column(table_from(rows, what), value, value_type, what)
        self._lists.append(_List(uid, name, mode, column, StateCodec(value_type, what)))
        return self

    def drop(self, uid: str, name: str) -> SavepointBuilder:
        """Omit a state of the snapshot."""
        if self.snapshot is None:
            raise ProgramError("drop: there is no snapshot to drop a state from. Use SavepointBuilder.from_snapshot")
        stored = self.snapshot.stored(uid, name)
        self._dropped.add((stored.uid, stored.name))
        return self

    def _add(self, added: _Table, rows: int | None) -> SavepointBuilder:
        what = f"state '{added.table.name}' of '{added.uid}'"
        if rows is not None and added.table.changes.rows().num_rows < rows:
            columns = "a key and a map key" if added.table.layout.sub_type is not None else "a key"
            raise ProgramError(f"{what}: {rows} rows were passed, and some have {columns} in common. Pass one of each")
        self._check_keys(added, what)
        self._tables.append(added)
        return self

    def _check_keys(self, added: _Table, what: str) -> None:
        """Reject keys of a type other than in the snapshot: the job could not look them up."""
        if self.snapshot is None:
            return
        for stored in states_of(self.snapshot.manifest):
            scope = "broadcast" if added.is_broadcast else "keyed"
            if (stored.uid, stored.name, stored.scope) == (added.uid, added.table.name, scope):
                was, now = (
                    layout_document(layout_of(self.snapshot.segments, stored)),
                    layout_document(added.table.layout),
                )
                for part in ("key", "sub"):
                    if was[part] != now[part]:
                        raise ProgramError(
                            f"{what} was saved with {part} {was[part]}, and is passed with {now[part]}. Pass the "
                            f"{'key_type' if part == 'key' else 'kind and map_key_type'} of the snapshot"
                        )

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, folder: str) -> str:
        """Write the savepoint into an empty folder (or object store), and return its address."""
        target = open_store(folder)
        if target.list(""):
            raise StoreError(f"{folder} is not empty. A savepoint needs a folder of its own: choose another one.")
        try:
            manifest = self._manifest(target, secrets.token_hex(6))
            own_files = set(target.list(""))
            for name in sorted(named_files(manifest) - own_files):
                assert self.snapshot is not None
                target.put(name, self.snapshot.store.get(name))
            seal(target, manifest)
        except BaseException:
            for name in target.list(""):
                target.delete(name)
            raise
        self.written = folder
        return folder

    def _manifest(self, target: Store, nonce: str) -> Manifest:
        accounts, program = self._copied_accounts()
        for uid, account in accounts.items():
            accounts[uid] = self._without_replaced(uid, account)
        for table in self._tables:
            accounts[table.uid] = self._with_table(accounts.get(table.uid, OperatorAccount()), table, target, nonce)
        for added in self._lists:
            accounts[added.uid] = self._with_list(accounts.get(added.uid, OperatorAccount()), added, target, nonce)
        for uid in accounts:
            operator = program.get(uid, ProgramOperator(uid, 1, self.max_parallelism))
            program[uid] = replace(operator, name=self._names.get(uid, operator.name))
        states = {uid: to_json(account) for uid, account in accounts.items()}
        if self.snapshot is not None:
            return replace(
                self.snapshot.manifest,
                states=states,
                program=program_to_json(program),
                meanings={uid: each for uid, each in self.snapshot.manifest.meanings.items() if uid in accounts},
                status="SUSPENDED",
                staged={},
                published_through=self._epoch,
                run=nonce,
            )
        return Manifest(
            job=self.job,
            job_id=secrets.token_hex(16),
            epoch=1,
            parent=0,
            created_ms=self.now_ms(),
            run=nonce,
            status="SUSPENDED",
            states=states,
            program=program_to_json(program),
            published_through=1,
        )

    def _copied_accounts(self) -> tuple[dict[str, OperatorAccount], dict[str, ProgramOperator]]:
        if self.snapshot is None:
            return {}, {}
        manifest = self.snapshot.manifest
        newest = ManifestLog(self.snapshot.store).newest()
        published = manifest.epoch if newest is None else newest.published_through
        if any(manifest.staged.values()) and published < manifest.epoch:
            raise StoreError(
                f"{self.snapshot.where} is not known to be published yet, so a savepoint of it would lose its output. "
                "Take the epoch before, or wait for the next one."
            )
        return dict(accounts_of(manifest)), dict(program_of(manifest))

    def _without_replaced(self, uid: str, account: OperatorAccount) -> OperatorAccount:
        """The snapshot's account without dropped and replaced states."""
        dropped = {name for owner, name in self._dropped if owner == uid}
        keyed, broadcast = (
            dropped | {one.table.name for one in self._tables if one.uid == uid and one.is_broadcast is is_broadcast}
            for is_broadcast in (False, True)
        )
        lists = dropped | {one.name for one in self._lists if one.uid == uid}
        subtasks = {number: one.without(keyed, broadcast) for number, one in account.subtasks.items()}
        functions = {
            number: replace(one, lists={name: entry for name, entry in one.lists.items() if name not in lists})
            for number, one in account.functions.items()
        }
        return replace(account, subtasks=subtasks, functions=functions)

    def _with_table(self, account: OperatorAccount, added: _Table, target: Store, nonce: str) -> OperatorAccount:
        """The account with an added table: subtask 0 reports it, for all key groups, for any future
        parallelism."""
        name = added.table.name
        # A letter after the nonce, as in operators: kinds of state with one name have separate files.
        file = segment_name(added.uid, name, self._epoch, 0, f"{nonce}{'b' if added.is_broadcast else 'w'}")
        ref = added.table.changes.write(target, file, self._epoch, range(self.max_parallelism))
        subtask = account.subtasks.get(0, SubtaskAccount())
        if ref is not None:
            more = stored_tables({name: (ref,)}, {}, {name: added.table.schema})
            if added.is_broadcast:
                subtask = replace(subtask, broadcast=more.after(subtask.broadcast))
            else:
                subtask = replace(subtask, tables=more.after(subtask.tables))
            if added.wake_ms is not None:
                subtask = subtask.waking_at(added.wake_ms)
        return replace(account, subtasks={**account.subtasks, 0: subtask})

    def _with_list(self, account: OperatorAccount, added: _List, target: Store, nonce: str) -> OperatorAccount:
        """The account with an added list, as subtask 0's."""
        file = segment_name(added.uid, added.name, self._epoch, 0, f"{nonce}o")
        entry = entry_of(added.column, added.mode, stored_type(added.codec), target, file, None, schema_of(added.codec))
        function = account.functions.get(0, FunctionAccount(self._epoch, nonce, 1, {}))
        function = replace(function, lists={**function.lists, added.name: entry})
        return replace(account, functions={**account.functions, 0: function})
