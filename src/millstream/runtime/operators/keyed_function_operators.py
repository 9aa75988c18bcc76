"""Map, filter and flat map on a keyed stream: the same functions, with state of the current record's key."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.records.batch import Batch, is_typed
from millstream.runtime.operators.function_operators import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    inherited_timestamps,
)
from millstream.runtime.operators.keyed_operator import Part, PerRecordOperator
from millstream.runtime.operators.suspicious_results import warn_if_all_none, warn_if_iterated, warn_if_not_bool

__all__ = ["KeyedFilterOperator", "KeyedFlatMapOperator", "KeyedMapOperator"]


class KeyedMapOperator(PerRecordOperator, MapOperator):
    """A `MapFunction` on a keyed stream: it may have state of the current record's key."""

    def _results(self, batch: Batch, numbers: list[int]) -> list[Any]:
        """The function's result for every record, each called with its key as the current key."""
        function, scope, values = self._function, self.backend.scope, batch.values()
        remaining = iter(values)
        results: list[Any] = []
        append = results.append
        try:
            for scope.at, value in zip(numbers, remaining, strict=True):
                append(function(value))
        except Exception as error:
            raise self.call.failed(error, self.method, self.call.current(values, remaining)) from error
        return results

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        results = self._results(batch, numbers)
        if len(batch) > 1 and not is_typed(self.node.output_type):
            warn_if_all_none(results, self.node, "map", "is emitted")
        return [(None, self.typed(results, batch.timestamps, self.node.output_type))]


class KeyedFilterOperator(KeyedMapOperator, FilterOperator):
    """A `FilterFunction` on a keyed stream."""

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        verdicts = self._results(batch, numbers)
        warn_if_all_none(verdicts, self.node, "filter", "drops them")
        warn_if_not_bool(verdicts, self._function, self.node)
        rows = np.flatnonzero(list(map(bool, verdicts)))
        return [(None, batch.take(rows))]


class KeyedFlatMapOperator(KeyedMapOperator, FlatMapOperator):
    """A `FlatMapFunction` on a keyed stream."""

    def apply_at(self, batch: Batch, numbers: list[int]) -> list[Part]:
        function, scope, values = self._function, self.backend.scope, batch.values()
        remaining = iter(values)
        out: list[Any] = []
        ends: list[int] = []
        results = None
        try:
            for scope.at, value in zip(numbers, remaining, strict=True):
                results = function(value)
                if results is not None:
                    out.extend(results)
                ends.append(len(out))
        except Exception as error:
            raise self.call.failed(error, "flat_map", self.call.current(values, remaining)) from error
        warn_if_iterated(results, self.node, "flat_map")
        return [(None, self.typed(out, inherited_timestamps(batch.timestamps, ends), self.node.output_type))]
