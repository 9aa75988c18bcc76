"""Conversion of rows that were written under an older schema.

A `Past` is created for a table that has such segments. It is part of the table's layout, so every reader of a segment
gets rows in the current schema: lookups, scans and compaction need no code for it. It converts a chunk once, when the
chunk is first read. Only columns affected by a schema change:

    value        converted through all changes since, for rows with a value; deletes have none to convert
    expires_ms   a state that gained a TTL when it had rows: these expire as if written at that time. A state that
                 lost its TTL: rows that had expired by then stay expired, whether or not they were cleaned up

Invariant: keys, subs and order never change, so a chunk stays sorted. The manifest lists the types: a file with any
other type is damaged. The epoch of a file selects its type among them. If they disagree, the file takes precedence:
older versions lost the starting epoch of a type if several subtasks had changed the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import StoreDamagedError
from millstream.records.columns import arrow_type
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import plain_view
from millstream.state.schemas.evolution import plan_projection, project
from millstream.state.schemas.saved_types import written_type
from millstream.state.schemas.schema_history import History, SavedAs, entry_at
from millstream.state.tables.layout import DELETE, NEVER_MS, PUT, UInt8s, kinds_of

__all__ = ["Converter", "Past", "entry_of_segment", "footer_misfit", "projected", "stored_value_type"]

Converter = Callable[[pa.Array], pa.Array]


class Past:
    """`converters[i]` converts values saved as `history[i]` to the current type; the last entry needs none."""

    def __init__(self, what: str, history: History, converters: Sequence[Converter]) -> None:
        self._what = what
        self._history = history
        self._converters = converters

    def entry_of(self, footer: Mapping[str, Any], epoch: int) -> int:
        """The history entry of a segment of `epoch`; StoreDamagedError if its footer contradicts it."""
        at = entry_of_segment(self._history, footer, epoch)
        if at is None:
            misfit = footer_misfit(footer, self._history[entry_at(self._history, epoch)])
            raise self._damaged(str(misfit))
        return at

    def present(self, rows: pa.RecordBatch, start: int, schema: pa.Schema) -> pa.RecordBatch:
        """Rows saved as the entry `start`, converted to the current columns."""
        self._check(rows, self._history[start])
        if start == len(self._history) - 1:
            return rows
        kinds, expires_ms = self._lifetimes(rows, start)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        there = kinds == PUT
        columns["kind"] = pa.array(kinds)
        columns["value"] = _spread(self._converters[start](_picked(columns["value"], there)), there)
        if expires_ms is not None:
            columns["expires_ms"] = pa.array(expires_ms)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _check(self, rows: pa.RecordBatch, saved: SavedAs) -> None:
        actual, expected = rows.schema.field("value").type, stored_value_type(saved)
        if actual != expected:
            raise self._damaged(f"with values of {actual}, where the manifest has {expected}")

    def _damaged(self, misfit: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"{self._what} has a segment {misfit}. Were files of another job copied into this store? Restore it from a "
            "copy, or start the job from an older epoch."
        )

    def _lifetimes(self, rows: pa.RecordBatch, start: int) -> tuple[UInt8s, Int64s | None]:
        """The kinds and expiry times of the rows, after all changes of the TTL."""
        kinds = kinds_of(rows)
        has_ttl = self._history[start].ttl_ms is not None
        expires_ms: Int64s | None = plain_view(rows.column("expires_ms")) if has_ttl else None
        for entry in self._history[start + 1 :]:
            if entry.ttl_ms is not None and expires_ms is None:
                expires_ms = np.where(kinds == PUT, min(entry.since_ms + entry.ttl_ms, NEVER_MS), NEVER_MS)
            elif entry.ttl_ms is None and expires_ms is not None:
                kinds = np.where((kinds == PUT) & (expires_ms <= entry.since_ms), np.uint8(DELETE), kinds)
                expires_ms = None
        return kinds, expires_ms


def entry_of_segment(history: History, footer: Mapping[str, Any], epoch: int) -> int | None:
    """The number of the entry that a segment of this epoch and footer was saved as: the newest entry not later than the
    epoch that matches, else the first match. None: no match."""
    newest = entry_at(history, epoch)
    candidates = (*range(newest, -1, -1), *range(newest + 1, len(history)))
    return next((at for at in candidates if footer_misfit(footer, history[at]) is None), None)


def footer_misfit(footer: Mapping[str, Any], saved: SavedAs) -> str | None:
    """How the footer of a segment contradicts the manifest, as the end of a sentence after "has a segment"."""
    is_pickled = saved.version is None and written_type(saved.type) == "PICKLED"
    if footer["pickled"] != is_pickled:
        return f"whose values are {'' if footer['pickled'] else 'no '}pickles, where the manifest has {saved.type}"
    if footer["value"] != str(stored_value_type(saved)):
        return f"with values of {footer['value']}, where the manifest has {stored_value_type(saved)}"
    if footer.get("serializer") != saved.version:
        versions = (footer.get("serializer"), saved.version)
        actual, expected_version = ("no serializer" if v is None else f"version {v} of a serializer" for v in versions)
        return f"written by {actual}, where the manifest has {expected_version}"
    if footer["ttl"] != (saved.ttl_ms is not None):
        expected = "no time to live" if saved.ttl_ms is None else "a time to live"
        return f"whose rows {'expire' if footer['ttl'] else 'never expire'}, where the manifest has {expected}"
    return None


def stored_value_type(saved: SavedAs) -> pa.DataType:
    """The Arrow type of the value column of segments saved as this entry."""
    value_type = None if saved.version is not None else arrow_type(saved.type)
    return pa.binary() if value_type is None else value_type


def projected(history: History, at: int) -> Converter:
    """The projection from `history[at]` to the next entry, for changes without a user function."""
    old, new = history[at], history[at + 1]
    change = plan_projection(old.type, new.type, new.evolution)
    return lambda column: project(column, change)


def _picked(values: pa.Array, there: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
    return values if there.all() else values.filter(pa.array(there))


def _spread(values: pa.Array, there: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
    """Places values at the masked rows, null elsewhere."""
    if len(values) == len(there):
        return values
    return values.take(pa.array(np.cumsum(there) - 1, mask=~there))
