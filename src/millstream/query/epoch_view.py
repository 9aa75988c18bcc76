"""A view of one epoch of a job: all answers belong to that epoch.

A view never changes. All segments of the newest epoch are opened with the view, so it needs no lease, and files that
the job removes afterwards stay readable while the view exists. A view of an older epoch holds a lease until it is
closed, and opens tables on use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.checkpoint.manifest import Manifest
from millstream.errors import did_you_mean
from millstream.query.catalog import QueryableState, StateLocation, StateName, find_state, served_name
from millstream.query.errors import KeyTypeError, StateKindError, UnknownStateError
from millstream.query.keyed_reads import KeyedReads
from millstream.query.table_reads import TableReads
from millstream.query.window_reads import WindowReads, WindowView
from millstream.records.watermarks import shown_watermark
from millstream.state.tables.table import TableView
from millstream.state_reader.forms import decoder_of
from millstream.state_reader.table_source import TableSource, shown

__all__ = ["EpochView", "StateReads"]

StateReads = KeyedReads | WindowReads
SCAN_ROWS_MAX = 10_000
_KEY = "key"


class EpochView:
    """The result of `JobView.newest` and `JobView.at`. Close a view of an older epoch, or use it in a `with` block."""

    def __init__(
        self,
        manifest: Manifest,
        states: Mapping[StateName, StateLocation],
        reads_of: Callable[[StateLocation], StateReads],
        where: str,
        *,
        is_opened: bool,
        allow_undeclared: bool = False,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._manifest, self._states = manifest, states
        self._reads_of = reads_of
        self._reads: dict[Any, StateReads] = {}
        self._tables: dict[str, TableReads] = {}
        if is_opened:
            self._reads = {name: reads_of(state) for name, state in states.items()}
            for name, state in states.items():
                self._reads.setdefault(served_name(state.info), self._reads[name])
        self._where = f"epoch {manifest.epoch} of {where}"
        self._allow_undeclared = allow_undeclared
        self._close = close

    # --- which epoch --------------------------------------------------------------------------------------------

    @property
    def job(self) -> str:
        """The job's name."""
        return self._manifest.job

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._manifest.job_id

    @property
    def epoch(self) -> int:
        """Its number."""
        return self._manifest.epoch

    @property
    def watermark(self) -> int | None:
        """Event time at the job's sinks; None without event time, or before the first watermark."""
        return shown_watermark(self._manifest.watermark)

    @property
    def committed_ms(self) -> int:
        """The time of its commit, by the job's clock."""
        return self._manifest.created_ms

    @property
    def status(self) -> str:
        """The job's status at this epoch: RUNNING, DRAINED, FINISHED or SUSPENDED."""
        return self._manifest.status

    def age_ms(self, now_ms: int) -> int:
        """The age of its answers; never below 0, even if clocks disagree."""
        return max(0, now_ms - self.committed_ms)

    def states(self) -> list[QueryableState]:
        """The queryable states."""
        return [state.info for state in self._states.values()]

    def state(self, state: StateName) -> QueryableState:
        """One of these states; raises UnknownStateError with the existing names."""
        return find_state(self._states, state, self._where, self._allow_undeclared).info

    def has(self, state: StateName) -> bool:
        """Whether the state can be queried at this epoch."""
        try:
            self.state(state)
        except UnknownStateError:
            return False
        return True

    def is_quick(self, state: StateName) -> bool:
        """Whether reading one key takes microseconds: the state is open, is not a collection, and needs no search."""
        reads = self._reads.get(state)
        return reads is not None and reads.is_quick

    def group_of(self, state: StateName, key: Any) -> int:
        """The key group of a key of a quick state."""
        view = self._reads[state].view
        assert view is not None and view.points is not None
        return view.points.group(key)

    # --- values of keys -----------------------------------------------------------------------------------------

    def get(self, state: StateName, key: Any) -> Any:
        """The value of a key: a value, a list, or a dict for a map; None if absent."""
        reads = self._reads.get(state) if state.__class__ is str else None
        if reads is None or reads.__class__ is not KeyedReads:
            reads = self._keyed(state)
        return reads.get(key)

    def get_many(self, state: StateName, keys: Sequence[Any]) -> list[Any]:
        """The values of many keys, in the order of the keys, by one search."""
        return self._keyed(state).get_many(list(keys))

    def get_columns(self, state: StateName, keys: pa.Array) -> pa.RecordBatch:
        """The columns key, found and value for a column of keys. Pickled values are returned as bytes; for an
        aggregating state values are accumulators."""
        return self._keyed(state).columns(keys)

    def windows(self, state: StateName, key: Any) -> list[WindowView]:
        """The windows of a key that can still change, with their results so far."""
        return self._windowed(state).windows(key)

    def windows_many(self, state: StateName, keys: Sequence[Any]) -> list[list[WindowView]]:
        """The open windows of each of many keys."""
        return self._windowed(state).windows_many(list(keys))

    def _windowed(self, state: StateName) -> WindowReads:
        reads = self._reads_of_state(state)
        if not isinstance(reads, WindowReads):
            what = f"{reads.location.what} is a {reads.kind} state"
            raise StateKindError(f"{what} and has no windows. Use get(state, key)")
        return reads

    def answer(self, state: StateName, key: Any) -> Any:
        """The answer for a key: its value, or its open windows."""
        reads = self._reads_of_state(state)
        return reads.windows(key) if isinstance(reads, WindowReads) else reads.get(key)

    # --- all of them ----------------------------------------------------------------------------------------------

    def scan(
        self, state: StateName, prefix: str | bytes | None = None, limit: int | None = SCAN_ROWS_MAX
    ) -> pa.RecordBatchReader:
        """Rows of a state as Arrow, in no particular order of keys: the rows of keys that begin with `prefix`, at most
        `limit`. The columns are those of docs/state-as-data.md; pickles are returned as bytes."""
        reads = self._reads_of_state(state)
        view, stored = reads.view, reads.location.stored
        if view is None or stored is None:
            return pa.table({_KEY: pa.nulls(0, pa.binary()), "value": pa.nulls(0, pa.binary())}).to_reader()
        columns = shown(view.segments, stored, view.layout, raw=False, flatten=False)
        source = TableSource(view.segments.store, stored, view.layout, columns)
        if prefix is not None and not _has_prefixes(source.schema):
            raise KeyTypeError(
                f"{reads.location.what} has keys of {reads.keys.type_name}, which have no prefix. Query without it",
                value=prefix,
            )
        blocks = map(reads.keys.shown, _scanned(source, view, prefix, limit))
        no_rows = pa.RecordBatch.from_pylist([], source.schema)
        return pa.RecordBatchReader.from_batches(reads.keys.shown(no_rows).schema, blocks)

    # --- tables of SQL ------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """The tables that can be queried: stored results of queries (docs/live-sql.md)."""
        return sorted(
            name
            for name, state in self._states.items()
            if isinstance(name, str) and state.declared is not None and state.declared.is_table
        )

    def table(self, name: str) -> TableReads:
        """A readable table; raises UnknownStateError with the existing names."""
        names = self.tables()
        if name not in names:
            hint = did_you_mean(name, names)
            have = ", ".join(f"'{known}'" for known in names) or "none"
            raise UnknownStateError(f"{self._where} has no table '{name}'.{hint} It has: {have}.")
        if name not in self._tables:
            declared, reads = self._states[name].declared, self._keyed(name)
            assert declared is not None
            self._tables[name] = TableReads(name, declared, reads)
        return self._tables[name]

    # --- which state ----------------------------------------------------------------------------------------------

    def _reads_of_state(self, state: Any) -> StateReads:
        with suppress(TypeError):  # an unhashable name is rejected below
            reads = self._reads.get(state)
            if reads is not None:
                return reads
        location = find_state(self._states, state, self._where, self._allow_undeclared)
        name = served_name(location.info)
        if name not in self._reads:
            self._reads[name] = self._reads_of(location)
        return self._reads[name]

    def _keyed(self, state: Any) -> KeyedReads:
        reads = self._reads_of_state(state)
        if not isinstance(reads, KeyedReads):
            raise StateKindError(f"{reads.location.what} is windows: a key may have several. Use windows(state, key)")
        return reads

    def close(self) -> None:
        """Release an older epoch."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> EpochView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _has_prefixes(schema: pa.Schema) -> bool:
    field = schema.field(_KEY)
    kind = field.type
    return decoder_of(field) is None and (pa.types.is_string(kind) or pa.types.is_binary(kind))


def _scanned(
    source: TableSource, view: TableView, prefix: str | bytes | None, limit: int | None
) -> Iterator[pa.RecordBatch]:
    left = limit
    for block in view.scan():
        rows = source.presented(block)
        if prefix is not None:
            rows = rows.filter(pc.starts_with(rows.column(_KEY), prefix))
        if left is not None:
            rows = rows.slice(0, left)
            left -= rows.num_rows
        if rows.num_rows:
            yield rows
        if left == 0:
            return
