"""Operators that call a user's function for every record: map, filter, flat map and process.

Functions with any number of results per record process a batch in `Pieces`. Results are Python values until they are
emitted, so their size in bytes matters, not the number of input records. The size is unknown in advance: the first
piece is small, and each piece determines the size of the next. Functions with one result per record need no pieces.

A process function emits each of its results to the main output or to a side output. Results have the timestamp of their
record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import BasicTypeInfo
from millstream.errors import ProgramError, TypeMismatchError
from millstream.graph.nodes import Process
from millstream.graph.notices import warn_once
from millstream.graph.tags import SideTag
from millstream.records.batch import Batch, Timestamps, is_typed
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.suspicious_results import warn_if_all_none, warn_if_iterated, warn_if_not_bool
from millstream.runtime.operators.user_code import ElementContext

__all__ = [
    "FilterOperator",
    "FlatMapOperator",
    "MapOperator",
    "Pieces",
    "ProcessOperator",
    "SeveralResultsOperator",
    "inherited_timestamps",
]

_FIRST_RECORDS = 256
# Maximum growth from one piece to the next, if results are small.
_GROWTH = 8
_RESULT_BYTES = 16 << 20


class Pieces:
    """The size of the next piece: `records` of input, at most `records_max`.

    >>> pieces = Pieces(records_max=100_000)
    >>> pieces.learn(pieces.records, result_bytes=1_000)
    >>> pieces.records
    2048
    >>> pieces.learn(pieces.records, result_bytes=1 << 30)
    >>> pieces.records
    32
    """

    __slots__ = ("_records_max", "records")

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self.records = min(_FIRST_RECORDS, records_max)

    def learn(self, records: int, result_bytes: int) -> None:
        """Adjusts the size after a piece of `records` records had results of `result_bytes`."""
        affordable = records * _RESULT_BYTES // max(result_bytes, 1)
        self.records = max(1, min(affordable, _GROWTH * self.records, self._records_max))

    def of(self, batch: Batch) -> Iterator[Batch]:
        """Splits a batch into pieces; the size may change between pieces."""
        start = 0
        while start < len(batch):
            size = min(self.records, len(batch) - start)
            yield batch if size == len(batch) else batch.slice(start, size)
            start += size


# Maximum records of a batch that are Python values at once: more would be evicted from the CPU cache before they are
# converted back to columns, and all work around the function would take half as much time again.
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
        if len(batch) > 1 and not is_typed(self.node.output_type):
            warn_if_all_none(values, self.node, "map", "is emitted")
        result = self.typed(values, batch.timestamps, self.node.output_type)
        if isinstance(self.node.output_type, BasicTypeInfo) and result.typed and result.columns().column(0).null_count:
            warn_once(
                f"None of {self.uid}",
                f"the function of '{self.node.name}' returned None where {self.node.output_type} is declared; it is "
                "emitted as a null. Does every path through it end with a return? To drop records, use filter() or "
                "flat_map()",
                self.node.site,
            )
        return result


class FilterOperator(MapOperator):
    method = "filter"

    def apply(self, batch: Batch) -> Batch:
        values = batch.values()
        verdicts = self.call.each(self._function, values, "filter")
        warn_if_all_none(verdicts, self.node, "filter", "drops them")
        warn_if_not_bool(verdicts, self._function, self.node)
        mask = np.fromiter(map(bool, verdicts), dtype=bool, count=len(verdicts))
        stamps = None if batch.timestamps is None else batch.timestamps[mask]
        survivors = list(compress(values, verdicts))
        columns = batch.columns().filter(pa.array(mask)) if batch.typed else None
        return Batch(batch.type_info, len(survivors), survivors, columns, stamps)


class SeveralResultsOperator(MapOperator):
    """A function with any number of results per record: processes a batch in pieces, sized by the bytes of results."""

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
        results = None
        try:
            for value in remaining:
                results = function(value)
                if results is not None:
                    out.extend(results)
                ends.append(len(out))
        except Exception as error:
            raise self.call.failed(error, "flat_map", self.call.current(values, remaining)) from error
        warn_if_iterated(results, self.node, "flat_map")
        result = self.typed(out, inherited_timestamps(batch.timestamps, ends), self.node.output_type)
        self._pieces.learn(len(batch), result.nbytes)
        return result


def inherited_timestamps(timestamps: Timestamps | None, ends: list[int]) -> Timestamps | None:
    """Timestamps of derived records: those of their input records. `ends[i]`: number of results up to record i."""
    if timestamps is None or ends == list(range(1, len(ends) + 1)):  # one result each, the usual case
        return timestamps
    counts = np.array(ends, dtype=np.int64)
    counts[1:] -= counts[:-1].copy()
    return np.repeat(timestamps, counts)


class ProcessOperator(SeveralResultsOperator):
    """A `ProcessFunction`: yields values, and `(tag, value)` pairs for side outputs."""

    method = "process_element"
    _has_tags = False  # whether the function has emitted a tagged value

    def apply(self, batch: Batch) -> Batch | None:
        values = batch.values()
        remaining = iter(values)
        try:
            out, stamps = self._results_of(remaining, batch.timestamps)
        except Exception as error:
            raise self.call.failed(error, "process", self.call.current(values, remaining)) from error
        main: Batch | None = None
        parts = self._parts(out, stamps)
        self._pieces.learn(len(batch), sum(part.nbytes for _, part in parts))
        for tag, part in parts:
            if tag is None:
                main = part
            else:
                for output in self.side_outputs[tag]:
                    output(part)
        return main

    def _results_of(self, values: Iterator[Any], timestamps: Timestamps | None) -> tuple[list[Any], Timestamps | None]:
        """The function's results for all values, in order, with inherited timestamps."""
        function, context = self._function, self.element_context()
        results = None
        if timestamps is None:
            # A comprehension, because `extend` queries every generator's length hint first: a quarter of the time.
            out = [item for value in values if (results := function(value, context)) is not None for item in results]
            warn_if_iterated(results, self.node, "process")
            return out, None
        out = []
        ends: list[int] = []
        for value, context._timestamp in zip(values, timestamps.tolist(), strict=True):
            results = function(value, context)
            if results is not None:
                out.extend(results)
            ends.append(len(out))
        warn_if_iterated(results, self.node, "process")
        return out, inherited_timestamps(timestamps, ends)

    def element_context(self) -> Any:
        """The `ctx` of the function's calls for records."""
        return ElementContext(self.time)

    def _parts(self, out: list[Any], stamps: Timestamps | None) -> list[tuple[str | None, Batch]]:
        """Results by output: tagged values to their side outputs, the rest (None) to the main one."""
        if not self._has_tags and is_typed(self.node.output_type):
            # No declared type can represent a tag: if all values fit the type, none of them is tagged.
            with suppress(TypeMismatchError):
                return [(None, Batch.of_values(out, self.node.output_type, stamps))]
        tagged = [type(item) is tuple and len(item) == 2 and isinstance(item[0], SideTag) for item in out]
        if not any(tagged):
            return [(None, self.typed(out, stamps, self.node.output_type))]
        self._has_tags = True
        assert isinstance(self.node.operation, Process)
        parts: list[tuple[str | None, Batch]] = []
        for tag in self.side_outputs:
            positions = [i for i, is_tagged in enumerate(tagged) if is_tagged and out[i][0].tag_id == tag]
            if positions:
                side_stamps = None if stamps is None else stamps[positions]
                parts.append((tag, self._side(tag, [out[i] for i in positions], side_stamps)))
        self._warn_of_unread({out[i][0].tag_id for i in np.flatnonzero(tagged)} - set(self.side_outputs))
        is_main = ~np.array(tagged, dtype=bool)
        main = list(compress(out, is_main))
        return [*parts, (None, self.typed(main, None if stamps is None else stamps[is_main], self.node.output_type))]

    def _warn_of_unread(self, unread: set[str]) -> None:
        """Warns of records for a side output that has no reader: they are dropped, as in Flink. If other side outputs
        are read, the tag is often a typo."""
        for tag in sorted(unread) if self.side_outputs else ():
            warn_once(
                f"side output {tag} of {self.uid}",
                f"'{self.node.name}' emits records to side output '{tag}', which has no reader: they are dropped. The "
                f"side outputs with readers are {', '.join(repr(name) for name in sorted(self.side_outputs))}",
                self.node.site,
            )

    def _side(self, tag: str, tagged: list[tuple[SideTag, Any]], stamps: Timestamps | None) -> Batch:
        """The records of a side output, of the type declared by its readers."""
        assert isinstance(self.node.operation, Process)
        type_info = dict(self.node.operation.tags)[tag]
        for side_tag in {id(item[0]): item[0] for item in tagged}.values():
            if is_typed(type_info) and is_typed(side_tag.type_info) and side_tag.type_info != type_info:
                error = ProgramError(
                    f"side output '{tag}' is emitted as {side_tag.type_info} and read as {type_info}. Use the same "
                    "OutputTag in the function and in get_side_output()"
                )
                value = next(item[1] for item in tagged if item[0] is side_tag)
                raise self.call.failed(error, f"side output '{tag}'", (value,))
        return self.typed([item[1] for item in tagged], stamps, type_info, f"side output '{tag}'")
