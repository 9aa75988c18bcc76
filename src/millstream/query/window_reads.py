"""Reads open windows: the windows of a key that can still change, each with its result so far.

The three window operators store windows in three ways (`runtime.windows`), so there are three readers with the same
kind of answer:

    panes      accumulators of panes: every window that has not expired is the sum of its panes
    numbered   a value for each number of a window
    places     rows of a key and a window; if windows merge, a table of the key lists them and where each stores
               its contents, otherwise they are found by a scan of the key's group

A window that has fired, and is retained for late records, is included: it can still change. The result is that of the
reduce or built-in aggregate, before any window function on top. For a user-defined `AggregateFunction`, the caller that
opened the store provides `get_result`; without it, the answer is the accumulator, marked as such. Contents without a
declared type are pickles, which are refused unless the store was opened with a function that unpickles them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_records import RecordMeasure
from millstream.aggregation.pane_firing import WindowRange, fired_windows
from millstream.aggregation.pane_rows import Accumulators, PaneRows
from millstream.common.types import Row
from millstream.query.catalog import StateLocation
from millstream.query.keyed_reads import KeyEncoding, stored_key_type
from millstream.records.codecs import OpenPickle, reject_pickle
from millstream.state.keys.hashing import xxhash64_column
from millstream.state.keys.key_columns import KeyColumn, key_groups, same
from millstream.state.schemas.saved_types import type_from
from millstream.state.stored.queryable import NUMBERED, PANES, Queryable
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.table import TableView
from millstream.state.windows.bound_aggregates import BoundAggregate
from millstream.state.windows.places import place_hashes

__all__ = ["WindowReads", "WindowView"]

_FAR = 1 << 62
_TIME_WINDOW_BYTES = 16
_TIMED = "timed records"
_AS_STORED = ("count", "sum", "min", "max")
_INT64 = 1 << 63


@dataclass(frozen=True)
class WindowView:
    """An open window of a key: [start, end) in ms, None for windows without a time range, and its result so far.
    `is_accumulator`: `result` is the accumulator of a user-defined `AggregateFunction`."""

    start: int | None
    end: int | None
    result: Any
    is_accumulator: bool = False


class WindowReads:
    """Reads the windows of one operator. `view` and `homes` are None while they are empty (or no windows merge)."""

    def __init__(
        self,
        location: StateLocation,
        view: TableView | None,
        homes: TableView | None,
        result_of: Callable[[Any], Any] | None,
        open_pickle: OpenPickle = reject_pickle,
    ) -> None:
        assert location.declared is not None
        self._open_pickle = open_pickle
        self.location, self.view, self._homes = location, view, homes
        self.declared: Queryable = location.declared
        key_type = self.declared.key_type
        self.keys = KeyEncoding(key_type, None if key_type is None else stored_key_type(key_type), location.what)
        self._result_of = result_of
        self.is_accumulator = self.declared.contents == "aggregated" and result_of is None
        self._panes = self._pane_results() if self.declared.form == PANES else None
        self._result = self._result_maker()
        self._codec = self._content_codec()
        self._point = self._quick_windows()

    @property
    def is_quick(self) -> bool:
        """Whether reading the windows of one key takes microseconds."""
        return self._point is not None

    def _pane_results(self) -> tuple[Accumulators, Row, list[StateCodec]]:
        """The kernels that compute results of panes, the row type of results, and the codec of each result."""
        measures = self.declared.typed_measures()
        what, open_pickle = self.location.what, self._open_pickle
        codecs = [StateCodec(measure.result_type, what, open_pickle=open_pickle) for measure in measures]
        return Accumulators(measures), Row(*(measure.name for measure in measures)), codecs

    # --- results --------------------------------------------------------------------------------------------------

    def _result_maker(self) -> Callable[[Any], Any]:
        if self._result_of is not None:
            return self._result_of
        if self.declared.contents != "ready":
            return lambda value: value
        measures = [RecordMeasure(measure, None) for measure in self.declared.typed_measures()]
        named = Row(*(measure.measure.name for measure in measures))
        return lambda parts: named(*(measure.result(part) for measure, part in zip(measures, parts, strict=True)))

    def _content_codec(self) -> StateCodec:
        written, what = self.declared.value, self.location.what
        kind = None if written == "PICKLED" else type_from(written, what)
        if self.declared.contents == _TIMED and self.view is not None and not self.view.layout.is_pickled:
            history = self.location.stored.history if self.location.stored is not None else ()
            kind = history[-1].type if history else kind
        return StateCodec(kind, what, open_pickle=self._open_pickle)

    # --- the windows of a key ---------------------------------------------------------------------------------------

    def windows(self, key: Any) -> list[WindowView]:
        """The open windows of a key, by end, then start."""
        windows = None if self._point is None else self._point(key)
        return self.windows_many([key])[0] if windows is None else windows

    def _quick_windows(self) -> Callable[[Any], list[WindowView] | None] | None:
        """A function for plain keys of tumbling windows whose results are stored unchanged; it returns None for keys of
        other types. None: the slow path is needed."""
        if self.view is None or self._panes is None or not self.declared.pane_windows.is_tumbling:
            return None
        if not all(map(_is_as_stored, self.declared.typed_measures())):
            return None
        kind, points = self.view.layout.key_type, self.view.points
        if points is None or kind not in (pa.int64(), pa.string()):
            return None
        key_class, read = int if kind == pa.int64() else str, points.get_subs
        windows, named = self.declared.pane_windows, self._panes[1]
        dead = windows.dead_through(self.view.now_ms)

        def get(key: Any) -> list[WindowView] | None:
            if type(key) is not key_class or (type(key) is int and not -_INT64 <= key < _INT64):
                return None
            try:
                rows = [(windows.last_window(pane), parts) for pane, parts in read(key)]
            except UnicodeEncodeError:
                return None
            return [
                WindowView(*windows.bounds(number), named(*parts.values())) for number, parts in rows if number > dead
            ]

        return get

    def windows_many(self, keys: list[Any]) -> list[list[WindowView]]:
        """The open windows of each key."""
        column = self.keys.column(keys)
        answers: list[list[WindowView]] = [[] for _ in keys]
        if self.view is None:
            return answers
        if self.declared.form == PANES:
            windows_at = self._of_panes(column)
        elif self.declared.form == NUMBERED:
            windows_at = self._of_numbers(column)
        else:
            keys_at = enumerate(column.take(np.array([at])) for at in range(len(column)))
            windows_at = ((at, window) for at, key in keys_at for window in self._of_places(key))
        for at, window in windows_at:
            answers[at].append(window)
        for windows in answers:
            windows.sort(key=lambda window: (window.end or 0, window.start or 0))
        return answers

    def _of_panes(self, column: KeyColumn) -> Iterator[tuple[int, WindowView]]:
        """Windows with the position of their key."""
        assert self.view is not None and self._panes is not None
        rows = self.view.scan_keys(column)
        if not rows.num_rows:
            return
        windows, (accumulators, named, codecs) = self.declared.pane_windows, self._panes
        # Positions identify keys: a key that is requested twice has two positions.
        keys = KeyColumn(rows.column("hash").to_numpy(), rows.column("position"))
        panes = PaneRows(keys, rows.column("sub").to_numpy(), accumulators.read(rows.column("value")))
        range_ = WindowRange(windows.dead_through(self.view.now_ms), _FAR)
        for fired in fired_windows(panes, windows, range_, accumulators):
            results = accumulators.results(fired.parts)
            columns = [codec.decode(result) for codec, result in zip(codecs, results, strict=True)]
            starts, ends = windows.starts(fired.windows).tolist(), windows.ends(fired.windows).tolist()
            for at, start, end, *values in zip(fired.keys.to_pylist(), starts, ends, *columns, strict=True):
                yield at, WindowView(start, end, named(*values))

    def _of_numbers(self, column: KeyColumn) -> Iterator[tuple[int, WindowView]]:
        assert self.view is not None
        rows = self.view.scan_keys(column)
        windows, values = self.declared.pane_windows, self._codec.decode(rows.column("value"))
        positions, numbers = rows.column("position").to_pylist(), rows.column("sub").to_pylist()
        for at, number, value in zip(positions, numbers, values, strict=True):
            start, end = windows.bounds(number)
            yield at, WindowView(int(start), int(end), self._result(value), self.is_accumulator)

    # --- places -----------------------------------------------------------------------------------------------------

    def _of_places(self, column: KeyColumn) -> Iterator[WindowView]:
        contents: dict[bytes, list[Any]] = {}
        tokens: dict[bytes, bytes] | None = None
        if self.declared.merges:
            tokens = self._merged(column)
            rows = self._rows_at(column, list(tokens))
        else:
            rows = self._rows_in_group(column)
        values = self._codec.decode(rows.column("value")) if rows.num_rows else []
        for place, value in zip(rows.column("key").field("window").to_pylist(), values, strict=True):
            contents.setdefault(place, []).append(value)
        for home, held in contents.items():
            start, end = _bounds(home if tokens is None else tokens[home])
            yield WindowView(start, end, self._of_contents(held), self.is_accumulator)

    def _of_contents(self, held: list[Any]) -> Any:
        if self.declared.contents == "records":
            return held
        if self.declared.contents == _TIMED:
            return [record for record, _ in held]
        return self._result(held[0])

    def _merged(self, column: KeyColumn) -> dict[bytes, bytes]:
        """Maps the storage location of each window's contents to the window."""
        if self._homes is None:
            return {}
        rows = self._homes.scan_keys(column)
        return dict(zip(rows.column("value").to_pylist(), rows.column("sub").to_pylist(), strict=True))

    def _rows_at(self, column: KeyColumn, tokens: list[bytes]) -> pa.RecordBatch:
        assert self.view is not None
        layout, windows = self.view.layout, pa.array(tokens, pa.binary())
        keys = column.take(np.zeros(len(tokens), dtype=np.int64))
        hashes = place_hashes(keys.hashes, xxhash64_column(windows), layout.max_parallelism)
        array = pa.StructArray.from_arrays([keys.array, windows], fields=list(layout.stored_key_type))
        return self.view.scan_keys(KeyColumn(hashes, array))

    def _rows_in_group(self, column: KeyColumn) -> pa.RecordBatch:
        """The windows of a key may be anywhere in its key group."""
        assert self.view is not None
        group = int(key_groups(column.hashes, self.view.layout.max_parallelism)[0])
        blocks = []
        for block in self.view.scan(range(group, group + 1)):
            key = column.array.take(pa.array(np.zeros(block.num_rows, dtype=np.int64)))
            blocks.append(block.filter(pa.array(same(block.column("key").field("key"), key))))
        return pa.concat_batches(blocks) if blocks else self._rows_at(column, [])


def _is_as_stored(measure: BoundAggregate) -> bool:
    """Whether the result is the only part of the accumulator, a number that Python reads unchanged."""
    types = [kind.notation for _, kind in measure.parts]
    return measure.kind in _AS_STORED and types == [measure.result_type.notation] and types[0] in ("LONG", "DOUBLE")


def _bounds(token: bytes) -> tuple[int | None, int | None]:
    """Start and end of a time window; None for windows of other kinds."""
    if len(token) != _TIME_WINDOW_BYTES:
        return None, None
    start, end = np.frombuffer(token, ">i8").tolist()
    return start, end
