"""The rows of one stored table as a reader sees them: its columns, and block after block of rows.

A table has the columns key, sub, value, due and expiry time (`state.tables.layout`). Their meaning depends on the kind
of state: a sub may be a map's key, a list's sequence number, a timer's time, a pane's start, or the number of a window.
`shown` decides that once, from the state and its layout; `TableSource.blocks` then yields live rows, the newest version
of each, with every column converted for a whole block at a time.

A source is small data and is shipped to Spark's tasks, which open the store themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.types import Row
from millstream.errors import StateSchemaError, StoreDamagedError, TypeMismatchError
from millstream.state.keys.key_columns import KeyColumn, key_column, key_column_of_arrow, key_groups, same
from millstream.state.schemas.history_repair import covering
from millstream.state.schemas.past import Past, stored_value_type
from millstream.state.schemas.ready_upgrades import ready_upgrade, shown_upgrade
from millstream.state.schemas.saved_types import type_from, written_type
from millstream.state.schemas.schema_history import History, entry_at, is_same_form
from millstream.state.schemas.state_schemas import ValueChanges
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.state_codec import StateCodec
from millstream.state.stored.table_names import (
    JOIN_ROWS,
    MERGING_WINDOWS,
    PANES,
    TABLE_ROWS,
    TABLE_SESSIONS,
    TIMERS,
    WINDOW_VALUES,
)
from millstream.state.tables.layout import NEVER_MS, PUT, TableLayout
from millstream.state.tables.table import TableView
from millstream.state.windows.pane_windows import PaneWindows
from millstream.state_reader.catalog import StoredState
from millstream.state_reader.forms import Encoded, Fields, Form, Plain, key_form, window_form
from millstream.storage.store import Store
from millstream.storage.tier.tiered_store import store_with_cache

__all__ = [
    "ALL_KEYS",
    "Shown",
    "TableSource",
    "is_alike",
    "is_of_windows",
    "kind_of",
    "layout_of",
    "reads_older",
    "shown",
    "view_of",
]

ALL_KEYS: Any = object()
"""No key in particular."""

_WINDOW_OWNERS = ("window ", "trigger ")
_PICKLED, _CANONICAL = "PICKLED", "canonical"


def layout_of(segments: OpenSegments, state: StoredState) -> TableLayout:
    """The layout of a table as last declared; segments of older types are converted.

    The types come from the manifest, not from the files: a segment of any other type is damaged. Only manifests of
    older versions rely on the files.
    """
    newest = max(state.refs, key=lambda ref: ref.epoch)
    layout, history = segments.stored_layout(newest, state.name), state.history
    if not history:
        return layout
    _check_rows(layout, state)
    if min(ref.epoch for ref in state.refs) < history[0].since:
        history = covering(history, state.refs, lambda ref: segments.stored_layout(ref, state.name), None, state.what)
    last = history[-1]
    changes = ValueChanges(StateCodec(last.type, state.what), None)
    converters = [
        _only_the_program(state.what, history, at) or changes.converter(history, at) for at in range(len(history) - 1)
    ]
    return replace(
        layout,
        value_type=stored_value_type(last),
        is_pickled=last.version is None and written_type(last.type) == _PICKLED,
        has_ttl=last.ttl_ms is not None,
        serializer_version=last.version,
        past=Past(state.what, history, converters),
    )


def reads_older(state: StoredState, older: StoredState) -> bool:
    """Whether rows of an older version of a state can be converted to its current schema."""
    if not state.history or not older.history or not older.refs:
        return True
    oldest = older.history[entry_at(older.history, min(ref.epoch for ref in older.refs))]
    known = next((at for at, entry in enumerate(state.history) if is_same_form(entry, oldest)), None)
    return known is not None and _only_the_program(state.what, state.history, known) is None


def _only_the_program(what: str, history: History, start: int) -> _OnlyTheProgram | None:
    """A converter that refuses values saved as `history[start]`, if only a task can convert them."""
    later = history[start + 1 :]
    if any(entry.version != history[-1].version for entry in history[start:]):
        upgraded = next((entry.upgrade for entry in later if entry.upgrade is not None), None)
        return _OnlyTheProgram(what, "its serializer" if upgraded is None else f"upgrade={shown_upgrade(upgraded)}")
    unknown = next((name for entry in later if (name := entry.upgrade) and ready_upgrade(name) is None), None)
    return None if unknown is None else _OnlyTheProgram(what, f"upgrade={unknown}")


@dataclass(frozen=True)
class _OnlyTheProgram:
    """Replaces a program's function that would convert old values. It raises when values are read, not before, so the
    state can be described, and other states are unaffected."""

    what: str
    how: str

    def __call__(self, column: pa.Array) -> pa.Array:
        raise StateSchemaError(
            f"{self.what} still has values of an older type, which only the program's {self.how} can read. The job "
            "rewrites some of them in every epoch: let it continue, and try again."
        )


def is_alike(layout: TableLayout, other: TableLayout) -> bool:
    """Whether two layouts have the same columns, regardless of how older rows are converted."""
    return replace(layout, past=None) == replace(other, past=None)


def _check_rows(layout: TableLayout, state: StoredState) -> None:
    """Reject a file whose key types differ from the manifest."""
    last = state.history[-1]
    stored = [layout.key_type is None, layout.sub_type]
    expected = [last.key == _CANONICAL, layout.sub_type]
    if last.map_key is not None:
        expected[1] = StateCodec(type_from(last.map_key, state.what), state.what).arrow_type
    if stored != expected:
        raise StoreDamagedError(
            f"{state.what} has a segment with keys of {layout.key_type} and map keys of {layout.sub_type}, where the "
            f"manifest has {last.key} and {last.map_key}. Were files of another job copied into this store? "
            "Restore it from a copy."
        )


def kind_of(state: StoredState, view: TableView) -> str:
    """The kind of a state; inferred if the manifest lacks it, as in older versions."""
    if state.kind or view.layout.sub_type is None:
        return state.kind or "value"
    if view.layout.sub_type != pa.int64():
        return "map"
    # The elements of a list are numbered from epoch · 2³¹ on; a map with such keys would be rare.
    lowest = min((pc.min(subs).as_py() for subs in _stored(view, "sub", puts_only=True)), default=None)
    return "list" if lowest is None or lowest >= 1 << 31 else "map"


def view_of(segments: OpenSegments, state: StoredState, layout: TableLayout) -> TableView:
    """The whole table."""
    return TableView(segments, layout, state.refs, range(layout.max_parallelism), state.now_ms)


def is_of_windows(state: StoredState, layout: TableLayout) -> bool:
    """Whether rows belong to a key and a window (`state.windows.places`), not to a key alone."""
    kind = layout.key_type
    if kind is None or not pa.types.is_struct(kind) or not state.name.startswith(_WINDOW_OWNERS):
        return False
    return [field.name for field in kind] == ["key", "window"] and kind.field("window").type == pa.binary()


@dataclass(frozen=True)
class Shown:
    """A part of a row and its form."""

    part: str
    form: Form


def shown(
    segments: OpenSegments, state: StoredState, layout: TableLayout, *, raw: bool, flatten: bool
) -> tuple[Shown, ...]:
    """The columns of a state, in order."""
    columns: list[Shown] = []
    view = view_of(segments, state, layout)
    if is_of_windows(state, layout):
        inner, keys = layout.stored_key_type.field("key").type, (place.field("key") for place in _stored(view, "key"))
        columns.append(Shown("place key", _key(inner == pa.binary(), inner, keys, raw)))
        windows = (place.field("window") for place in _stored(view, "key"))
        columns.append(Shown("place window", window_form("window", windows)))
    elif state.scope != "broadcast":
        columns.append(Shown("key", _key(layout.key_type is None, layout.stored_key_type, _stored(view, "key"), raw)))
    columns += _sub_columns(state, view, raw)
    if layout.is_pickled:
        columns.append(Shown("value", Encoded("value", "pickle", raw)))
    elif state.kind == MERGING_WINDOWS:
        columns.append(Shown("value", window_form("state_window", _stored(view, "value"))))
    elif layout.value_type is not None:
        is_struct = pa.types.is_struct(layout.value_type) and layout.value_type.num_fields > 0
        form = Fields("value", layout.value_type) if flatten and is_struct else Plain("value", layout.value_type)
        columns.append(Shown("value", form))
    if layout.has_ttl:
        columns.append(Shown("expires_ms", Plain("expires_ms", pa.int64())))
    return tuple(columns)


def _stored(view: TableView, column: str, *, puts_only: bool = False) -> Iterator[pa.Array]:
    """All stored values of a column, including dead rows: the kinds of keys need a complete scan."""
    for layer in view.layers:
        for number in range(len(layer.segment.entries)):
            chunk = layer.segment.chunk(number)
            rows = chunk.batch.filter(pa.array(chunk.kinds == PUT)) if puts_only else chunk.batch
            if rows.num_rows:
                yield rows.column(column).drop_null()


def _key(is_canonical: bool, type_: pa.DataType, stored: Iterable[pa.Array], raw: bool) -> Form:
    if not is_canonical:
        return Plain("key", type_)
    return Encoded("key", "key", is_raw=True) if raw else key_form("key", stored)


def _sub_columns(state: StoredState, view: TableView, raw: bool) -> list[Shown]:
    layout, whole, kind = view.layout, pa.int64(), kind_of(state, view)
    if layout.sub_type is None:
        return []
    if kind == TIMERS:
        return [Shown("sub", Plain("time_ms", whole))]
    if kind == "list":
        return [Shown("index", Plain("index", whole))]
    if kind == TABLE_ROWS:
        return [Shown("sub", Plain("row_number", whole))]
    if kind == TABLE_SESSIONS:
        return [Shown("sub", Plain("session_start_ms", whole)), Shown("due_ms", Plain("session_end_ms", whole))]
    if kind == JOIN_ROWS:
        return [Shown("due_ms", Plain("time_ms", whole))]
    if kind == PANES:
        return [Shown("sub", Plain("pane_start_ms", whole)), Shown("due_ms", Plain("pane_end_ms", whole))]
    if kind == WINDOW_VALUES:
        if state.windows_ms is None:  # written before accounts recorded windows
            return [Shown("sub", Plain("window_number", whole)), Shown("due_ms", Plain("due_ms", whole))]
        return [
            Shown("window start", Plain("window_start_ms", whole)),
            Shown("window end", Plain("window_end_ms", whole)),
        ]
    if kind == MERGING_WINDOWS:
        return [Shown("sub", window_form("window", _stored(view, "sub")))]
    if _has_pickled_subs(state, view):
        return [Shown("sub", Encoded("map_key", "pickle", raw))]
    return [Shown("sub", Plain("map_key", layout.sub_type))]


def _has_pickled_subs(state: StoredState, view: TableView) -> bool:
    """Whether map keys are pickled. Without a record in the manifest: pickles all begin and end with the same bytes."""
    if view.layout.sub_type != pa.binary() or state.history:
        return bool(state.history) and state.history[-1].map_key == _PICKLED
    columns = list(_stored(view, "sub"))
    return all(
        pc.all(pc.and_(pc.starts_with(column, b"\x80\x05"), pc.ends_with(column, b"."))).as_py() for column in columns
    )


@dataclass(frozen=True)
class TableSource:
    """Rows of a table. `cache_folder` is where files of a remote store are cached."""

    store: Store
    state: StoredState
    layout: TableLayout
    columns: tuple[Shown, ...]
    cache_folder: Path | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of every block."""
        return pa.schema([field for column in self.columns for field in column.form.fields])

    def blocks(self, groups: range | None = None, key: Any = ALL_KEYS) -> Iterator[pa.RecordBatch]:
        """The live rows (of some key groups, or of one key), some ten thousand at a time."""
        view = view_of(
            OpenSegments(store_with_cache(self.store, self.cache_folder), is_foreign=True), self.state, self.layout
        )
        scanned = view.scan(groups) if key is ALL_KEYS else self._of_key(view, key)
        for block in scanned:
            yield self.presented(block)

    def presented(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a scan as a reader sees them."""
        arrays = [array for column in self.columns for array in column.form.arrays(self._part(block, column.part))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _part(self, block: pa.RecordBatch, part: str) -> pa.Array:
        if part == "index":
            return _index_in_key(block)
        if part in ("place key", "place window"):
            return block.column("key").field(part.removeprefix("place "))
        if part in ("window start", "window end"):
            assert self.state.windows_ms is not None
            size, slide, offset, step = self.state.windows_ms
            windows, numbers = PaneWindows(size, slide, offset, step), block.column("sub").to_numpy()
            return pa.array(windows.starts(numbers) if part == "window start" else windows.ends(numbers))
        if part == "expires_ms":
            times = block.column(part)
            return pc.if_else(pc.equal(times, NEVER_MS), pa.scalar(None, pa.int64()), times)
        return block.column(part)

    # --- one key --------------------------------------------------------------------------------------------------

    def _of_key(self, view: TableView, key: Any) -> Iterator[pa.RecordBatch]:
        of_windows = is_of_windows(self.state, self.layout)
        inner = self.layout.stored_key_type.field("key").type if of_windows else self.layout.key_type
        column = self._key_column(key, None if of_windows and inner == pa.binary() else inner)
        if not of_windows:
            yield view.scan_keys(column).drop_columns(["position"])
            return
        # The windows of a key may be anywhere in its key group.
        group = int(key_groups(column.hashes, self.layout.max_parallelism)[0])
        for block in view.scan(range(group, group + 1)):
            wanted = column.array.take(pa.array(np.zeros(block.num_rows, dtype=np.int64)))
            yield block.filter(pa.array(same(block.column("key").field("key"), wanted)))

    def _key_column(self, key: Any, key_type: pa.DataType | None) -> KeyColumn:
        if key_type is None:
            return key_column([key], None)
        try:
            return key_column_of_arrow(pa.array([_in_tuples(key)], key_type))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TypeMismatchError(
                f"{self.state.what} has keys of {key_type}, and {key!r} is none ({error}).", value=key
            ) from error


def _in_tuples(key: Any) -> Any:
    """The key with its rows as tuples: Arrow treats a row as a list of pairs."""
    return tuple(map(_in_tuples, key)) if isinstance(key, (Row, tuple, list)) else key


def _index_in_key(block: pa.RecordBatch) -> pa.Array:
    """The index of every row within its key. All rows of a key are contiguous, in one block."""
    keys, rows = block.column("key"), np.arange(block.num_rows)
    begins = np.ones(block.num_rows, dtype=np.bool_)
    begins[1:] = ~same(keys.slice(0, max(block.num_rows - 1, 0)), keys.slice(1))
    return pa.array(rows - np.maximum.accumulate(np.where(begins, rows, 0)))
