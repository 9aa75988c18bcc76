"""Opens the epochs of a job: makes a view of a manifest, with the tables that it names.

Open segments are reused from epoch to epoch: a new epoch opens only new segments. Each state has its own segments, so
closing them does not affect other states. All segments of a table are open when it is returned, so the job may remove
their files afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.query.catalog import StateLocation, locations_of
from millstream.query.epoch_view import EpochView, StateReads
from millstream.query.keyed_reads import KeyedReads
from millstream.query.window_reads import WindowReads
from millstream.records.codecs import reject_pickle
from millstream.state.schemas.schema_history import History
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.table_source import is_alike, layout_of, view_of
from millstream.storage.store import Store
from millstream.storage.tier.tiered_store import store_with_cache

__all__ = ["EpochOpener"]


class EpochOpener:
    """Opens epochs of one store. `where` is the job's name in errors; the other options are those of `query.open`."""

    def __init__(
        self,
        store: Store,
        where: str,
        *,
        cache_folder: Path | None = None,
        maps: bool = True,
        allow_undeclared: bool = False,
        functions: Mapping[str, Any] | None = None,
        unpickle: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.where = where
        self._tables = _OpenTables(store, cache_folder, maps)
        self._allow_undeclared = allow_undeclared
        self._functions = dict(functions or {})
        self._open_pickle = unpickle or reject_pickle

    def check_ahead(self, bytes_max: int) -> None:
        """See `JobView.check_ahead`."""
        self._tables.checked_bytes_max = bytes_max

    def past_segments(self) -> OpenSegments:
        """A set of segments for past epochs, closed as a whole."""
        return self._tables.past_segments()

    def view(
        self, manifest: Manifest, past: OpenSegments | None = None, close: Callable[[], None] | None = None
    ) -> EpochView:
        """A view of the newest epoch, with everything open; or of a `past` epoch, which opens tables on use."""
        return EpochView(
            manifest,
            locations_of(manifest, self._allow_undeclared),
            lambda state: self._reads(state, past),
            self.where,
            is_opened=past is None,
            allow_undeclared=self._allow_undeclared,
            close=close,
        )

    def _reads(self, state: StateLocation, past: OpenSegments | None) -> StateReads:
        function = self._functions.get(state.info.name or "")
        result_of = None if function is None else getattr(function, "get_result", function)
        view = self._tables.view(state.stored, past)
        if state.info.kind != "window":
            archived, removed = (self._tables.view(table, past) for table in (state.archived, state.removed))
            return KeyedReads(state, view, result_of, self._open_pickle, archived=archived, removed=removed)
        merges = state.declared is not None and state.declared.merges
        homes = self._tables.view(state.homes, past) if merges else None
        return WindowReads(state, view, homes, result_of, self._open_pickle)


class _OpenTables:
    """The open tables of a store, by operator and state."""

    def __init__(self, store: Store, cache_folder: Path | None, maps: bool) -> None:
        self._store, self._maps = store_with_cache(store, cache_folder), maps
        self.checked_bytes_max = 0
        self._segments: dict[tuple[str, str], OpenSegments] = {}
        self._layouts: dict[tuple[str, str], tuple[Any, History, TableLayout]] = {}

    def view(self, state: StoredState | None, past: OpenSegments | None) -> TableView | None:
        """The table, all segments open, of the newest or a `past` epoch; None if the epoch lacks it."""
        if state is None or not state.refs:
            return None
        if past is not None:
            view = view_of(past, state, layout_of(past, state))
            _ = view.layers  # opens them
            return view
        name = (state.uid, state.name)
        segments = self._segments.setdefault(name, self.past_segments())
        layout = self._layout(name, segments, state)
        view = view_of(segments, state, layout)
        _ = view.layers  # opens them
        segments.keep_only(state.refs, layout)
        view.touch(self.checked_bytes_max)
        return view

    def past_segments(self) -> OpenSegments:
        return OpenSegments(self._store, maps=self._maps, is_foreign=True)

    def _layout(self, name: tuple[str, str], segments: OpenSegments, state: StoredState) -> TableLayout:
        newest, oldest = (pick(state.refs, key=lambda ref: ref.epoch) for pick in (max, min))
        origin = (newest.file, oldest.epoch, [entry.since for entry in state.history])
        before = self._layouts.get(name)
        if before is None or before[0] != origin:
            layout = layout_of(segments, state)
            # An equal layout stays the same object, and segments that were opened with it stay open.
            if before is not None and before[1] == state.history and is_alike(before[2], layout):
                layout = before[2]
            self._layouts[name] = before = (origin, state.history, layout)
        return before[2]
