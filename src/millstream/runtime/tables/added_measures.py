"""Aggregates that were added to a query, of groups that were there before them.

A group that was stored without a measure has NULL in its parts. Over rows that only come, such an aggregate begins
with the rows that come from then on. Over rows that go, too, it cannot: rows would go that it never saw, and a count
fall below zero. There it is **unknown**, and its result NULL, in every group that was there, until none of the group's
rows is left: all that come then are seen. What is known is exact. COUNT(*) is known everywhere, since groups of rows
that go count them anyway.

What was given of a group before had no such column, so what is taken back of it has NULL there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.aggregation.aggregate_columns import Parts
from millstream.state.keys.key_columns import Bools
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = ["AddedMeasures", "Unseen", "masked"]

Unseen = Sequence[Bools | None]
"""For each measure the groups that have nothing of it; None: there is no such group."""


@dataclass(frozen=True)
class AddedMeasures:
    """Which measures of a query groups were stored without. `measures`: as partials have them, `stored`: as rows of
    groups have them. `is_signed`: rows go, too; the last measure counts them."""

    measures: Sequence[BoundAggregate]
    stored: Sequence[BoundAggregate]
    is_signed: bool

    def unseen(self, had: Bools, parts: Parts) -> Unseen:
        """Which groups were stored without a measure; `parts` are of those that are stored, which are `had`."""
        found: list[Bools | None] = []
        at = 0
        for measure in self.stored:
            mask = None
            if parts[at].null_count:
                mask = np.zeros(len(had), dtype=np.bool_)
                mask[had] = np.asarray(parts[at].is_null())
            found.append(mask)
            at += len(measure.parts)
        return found

    def with_counts(self, parts: Parts) -> Parts:
        """What is stored, with the counts of rows that are known."""
        if not self.is_signed:
            return parts
        parts = list(parts)
        at = 0
        for measure in self.stored:
            if _counts_rows(measure) and parts[at].null_count:
                parts[at] = _first_of(parts[at], parts[-1])
            at += len(measure.parts)
        return parts

    def unknown(self, unseen: Unseen) -> Unseen:
        """Which results are not known."""
        return [
            mask if self.is_signed and not _counts_rows(measure) else None
            for measure, mask in zip(self.stored, unseen, strict=True)
        ]

    def brought(self, parts: Parts, unknown: Unseen) -> Parts:
        """What an epoch brought, without what is of no use."""
        # Partials of rows that only come have other parts than measures (`distinct_arguments`); all of them are known.
        return _hidden(self.measures, parts, unknown) if self.is_signed else parts

    def kept(self, parts: Parts, unknown: Unseen) -> tuple[Parts, Unseen]:
        """What is kept of groups, and which results are still not known: those of groups that have rows."""
        if not any(mask is not None for mask in unknown):
            return parts, unknown
        has_rows = parts[-1].to_numpy() > 0
        unknown = [None if mask is None else mask & has_rows for mask in unknown]
        return _hidden(self.stored, parts, unknown), unknown


def _counts_rows(measure: BoundAggregate) -> bool:
    return measure.kind == "count" and not measure.arguments


def _first_of(counts: pa.Array, rows: pa.Array) -> pa.Array:
    """Counts, and the number of rows where there is none."""
    known = np.asarray(counts.is_valid())
    return pa.array(np.where(known, counts.fill_null(0).to_numpy(), rows.to_numpy()))


def _hidden(measures: Sequence[BoundAggregate], parts: Parts, unknown: Unseen) -> Parts:
    """Parts with NULL where a measure is unknown."""
    parts = list(parts)
    at = 0
    for measure, mask in zip(measures, unknown, strict=True):
        stop = at + len(measure.parts)
        if mask is not None:
            parts[at:stop] = [masked(part, mask) for part in parts[at:stop]]
        at = stop
    return parts


def masked(column: pa.Array, mask: Bools | None) -> pa.Array:
    """A column with NULL where the mask says so."""
    return column if mask is None else column.take(pa.array(np.arange(len(column)), mask=mask))
