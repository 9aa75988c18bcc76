"""Operators of functions that see one record at a time: map, filter, flat map.

Nothing runs per record but the user's own function.
"""

from __future__ import annotations

from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import BasicTypeInfo
from millstream.graph.notices import warn_once
from millstream.records.batch import Batch, Timestamps
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.pieces import Pieces

__all__ = ["FilterOperator", "FlatMapOperator", "MapOperator", "SeveralResultsOperator", "inherited_timestamps"]

# Of a batch so many records are Python values at once: those of more leave the processor's cache before they are
# columns again, and everything around the function takes half as much time more.
_PIECE_RECORDS = 8_192


class MapOperator(Operator):
    method = "map"

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._function = self.call.bind(self.user_function(), self.method, self.role)

    def take(self, batch: Batch) -> None:
        if len(batch) <= _PIECE_RECORDS:
            super().take(batch)
            return
        for start in range(0, len(batch), _PIECE_RECORDS):
            super().take(batch.slice(start, min(_PIECE_RECORDS, len(batch) - start)))

    def apply(self, batch: Batch) -> Batch | None:
        values = self.call.each(self._function, batch.values(), "map")
        result = self.typed(values, batch.timestamps, self.node.output_type)
        if isinstance(self.node.output_type, BasicTypeInfo) and result.typed and result.columns().column(0).null_count:
            warn_once(
                f"None of {self.uid}",
                f"the function of '{self.node.name}' returned None where {self.node.output_type} is declared; it is "
                "handed on as a null. Does every way through it end with a return? To drop records, use filter() or "
                "flat_map()",
                self.node.site,
            )
        return result


class FilterOperator(MapOperator):
    method = "filter"

    def apply(self, batch: Batch) -> Batch:
        values = batch.values()
        verdicts = self.call.each(self._function, values, "filter")
        mask = np.fromiter(map(bool, verdicts), dtype=bool, count=len(verdicts))
        stamps = None if batch.timestamps is None else batch.timestamps[mask]
        survivors = list(compress(values, verdicts))
        columns = batch.columns().filter(pa.array(mask)) if batch.typed else None
        return Batch(batch.type_info, len(survivors), survivors, columns, stamps)


class SeveralResultsOperator(MapOperator):
    """A function that gives any number of results of a record: it takes a batch in pieces, by the bytes they give."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._pieces = Pieces(setting.facts.batch_records_max)

    def take(self, batch: Batch) -> None:
        for piece in self._pieces.of(batch):
            super().take(piece)


class FlatMapOperator(SeveralResultsOperator):
    method = "flat_map"

    def apply(self, batch: Batch) -> Batch:
        values = batch.values()
        remaining = iter(values)
        out: list[Any] = []
        ends: list[int] = []
        function = self._function
        try:
            for value in remaining:
                results = function(value)
                if results is not None:
                    out.extend(results)
                ends.append(len(out))
        except Exception as error:
            raise self.call.failed(error, "flat_map", self.call.current(values, remaining)) from error
        result = self.typed(out, inherited_timestamps(batch.timestamps, ends), self.node.output_type)
        self._pieces.learn(len(batch), result.nbytes)
        return result


def inherited_timestamps(timestamps: Timestamps | None, ends: list[int]) -> Timestamps | None:
    """Timestamps of derived records: those of the record they came from. `ends[i]`: results up to record i."""
    if timestamps is None or ends == list(range(1, len(ends) + 1)):  # one result of each, as most functions give
        return timestamps
    counts = np.array(ends, dtype=np.int64)
    counts[1:] -= counts[:-1].copy()
    return np.repeat(timestamps, counts)
