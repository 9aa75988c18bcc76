"""The operators: what each kind of node does to a batch.

An operator takes a batch, computes what it gives out, and hands that to its outputs (further operators of the
task, or exchanges). It is opened once per task attempt and kept across epochs in its worker process. Operators
measure their own time, not that of those they hand to, so the shares add up.

No operator does anything per record outside the user's own function.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError, TypeMismatchError
from millstream.graph.nodes import (
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Node,
    Process,
    Project,
)
from millstream.graph.tags import SideTag
from millstream.records.batch import Batch, Timestamps, is_typed
from millstream.records.columns import KIND_COLUMN, checked_batch, stream_schema
from millstream.runtime.operators.context import ElementContext, TaskContext, TaskTimerService
from millstream.runtime.operators.failure import UserCall
from millstream.runtime.operators.operator_state import OperatorState
from millstream.runtime.operators.pieces import Pieces
from millstream.runtime.task.barrier import Acknowledgement
from millstream.runtime.task.spec import EpochSpec

__all__ = [
    "OPERATORS",
    "Operator",
    "OperatorSetting",
    "Origin",
    "Output",
    "ProcessOperator",
    "inherited_timestamps",
]

# Of a batch so many records are Python values at once: those of more leave the processor's cache before they are
# columns again, and everything around the function takes half as much time more.
_PIECE_RECORDS = 8_192

Output = Callable[[Batch], None]
Origin = tuple[int, int]
"""Where a batch comes from: the channel and the subtask that sent it."""


@dataclass(frozen=True)
class OperatorSetting:
    """Where an operator stands: its node, its runtime context, and whether its batches may be large."""

    node: Node
    context: TaskContext
    batch_records_max: int

    def with_states(self, states: Any) -> OperatorSetting:
        """The same, for an operator whose functions may ask for keyed state."""
        return replace(self, context=replace(self.context, states=states))


class Operator:
    """One node in one subtask. Subclasses say what `apply` gives for a batch."""

    method = ""  # the name of the user's method, for function classes
    role = "function"
    is_keyed = False

    def __init__(self, setting: OperatorSetting) -> None:
        node = setting.node
        assert node.uid is not None
        self.node = node
        self.uid = node.uid
        self.setting = setting
        self.call = UserCall(node.name, node.uid, str(node.site))
        self.outputs: list[Output] = []
        self.side_outputs: dict[str, list[Output]] = {}
        self.time = TaskTimerService()
        self.operator_state = OperatorState(self.uid, setting.context.parallelism, setting.context.subtask, self.call)
        self.records_in = self.records_out = self.busy_ns = 0

    # The user's function object, when it is one with open() and close().
    def user_function(self) -> Any:
        return getattr(self.node.operation, "function", None)

    def stateful(self) -> Any:
        """The object that keeps operator state as long as this operator is open, if it has the methods for it."""
        return self.user_function()

    def open(self) -> None:
        """Give the user's function its operator state and open it, once."""
        self.operator_state.initialize(self.stateful(), self.setting.context.states)
        opener = getattr(self.user_function(), "open", None)
        if callable(opener):
            with self.call.running("open"):
                opener(self.setting.context)

    def close(self) -> None:
        """Close the user's function."""
        closer = getattr(self.user_function(), "close", None)
        if callable(closer):
            with self.call.running("close"):
                closer()

    def begin(self, spec: EpochSpec) -> None:
        """An epoch begins. Time stands at what the last epoch ended with."""
        context = self.setting.context
        key_groups = context.max_parallelism if self.is_keyed else None
        self.time.now_ms = spec.now_ms
        self.time.watermark = spec.event_time(self.uid, context.subtask, context.parallelism, key_groups)
        self.records_in = self.records_out = self.busy_ns = 0

    def keep(self, acknowledgement: Acknowledgement) -> None:
        """An epoch ends, and all its output is made: keep the function's operator state."""
        started = time.perf_counter_ns()
        self.operator_state.acknowledge(acknowledgement)
        self.busy_ns += time.perf_counter_ns() - started

    @property
    def state_read_ns(self) -> int:
        """The time this operator has spent looking up keyed state since it was made."""
        return 0

    def wake(self) -> None:
        """All operators of the task have begun; none has taken a batch. Emit what is due, if anything is."""

    def receive_end(self) -> None:
        """All that other tasks sent is here, and nothing is missing. What is read in this task comes after."""

    def input(self, number: int, origin: Origin) -> Output:
        """What takes the batches of an input. Operators of connected streams have two, numbered from 1."""
        return self.take

    def take(self, batch: Batch) -> None:
        """Work on a batch and hand on the result."""
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        result = self.apply(batch)
        self.busy_ns += time.perf_counter_ns() - started
        if result is not None and len(result):
            self.emit(result)

    def apply(self, batch: Batch) -> Batch | None:
        """What this operator makes of a batch."""
        raise NotImplementedError

    def emit(self, batch: Batch) -> None:
        """Hand a batch to every output."""
        self.records_out += len(batch)
        for output in self.outputs:
            output(batch)

    def advance(self, watermark: int) -> int:
        """Event time has come to `watermark` on all inputs; returns where it stands behind this operator."""
        self.time.watermark = max(self.time.watermark, watermark)
        return self.time.watermark

    def typed(
        self,
        values: list[Any],
        timestamps: Timestamps | None,
        type_info: TypeInformation | None,
        role: str = "output type",
    ) -> Batch:
        """A batch of what user code returned, checked against the type it was declared to have."""
        try:
            return Batch.of_values(values, type_info, timestamps)
        except TypeMismatchError as error:
            raise self.call.failed(error, role) from error


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
        return self.typed(values, batch.timestamps, self.node.output_type)


class FilterOperator(MapOperator):
    method = "filter"

    def apply(self, batch: Batch) -> Batch:
        values = batch.values()
        kept = self.call.each(self._function, values, "filter")
        mask = np.fromiter(map(bool, kept), dtype=bool, count=len(kept))
        stamps = None if batch.timestamps is None else batch.timestamps[mask]
        survivors = list(compress(values, kept))
        columns = batch.columns().filter(pa.array(mask)) if batch.typed else None
        return Batch(batch.type_info, len(survivors), survivors, columns, stamps)


class _SeveralResultsOperator(MapOperator):
    """A function that gives any number of results of a record: it takes a batch in pieces, by the bytes they give."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._pieces = Pieces(setting.batch_records_max)

    def take(self, batch: Batch) -> None:
        for piece in self._pieces.of(batch):
            super().take(piece)


class FlatMapOperator(_SeveralResultsOperator):
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


class ProcessOperator(_SeveralResultsOperator):
    """A `ProcessFunction`: yields values, and `(tag, value)` pairs for side outputs."""

    method = "process_element"
    _has_tags = False  # whether the function has given out a tagged value

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
        """What the function gives for each of the values, one after another, with the timestamps of those."""
        function, context = self._function, self.element_context()
        if timestamps is None:
            # A comprehension, because `extend` asks every generator first how long it is: a quarter of the time.
            return [
                item for value in values if (results := function(value, context)) is not None for item in results
            ], None
        out: list[Any] = []
        ends: list[int] = []
        for value, context._timestamp in zip(values, timestamps.tolist(), strict=True):
            results = function(value, context)
            if results is not None:
                out.extend(results)
            ends.append(len(out))
        return out, inherited_timestamps(timestamps, ends)

    def element_context(self) -> Any:
        """The `ctx` of the function's calls for records."""
        return ElementContext(self.time)

    def _parts(self, out: list[Any], stamps: Timestamps | None) -> list[tuple[str | None, Batch]]:
        """Results by output: tagged values to their side outputs, the rest (None) to the main one."""
        if not self._has_tags and is_typed(self.node.output_type):
            # No type has a place for a tag: where all values fit it, none of them needs to be looked at.
            with suppress(TypeMismatchError):
                return [(None, Batch.of_values(out, self.node.output_type, stamps))]
        tagged = [type(item) is tuple and len(item) == 2 and isinstance(item[0], SideTag) for item in out]
        if not any(tagged):
            return [(None, self.typed(out, stamps, self.node.output_type))]
        self._has_tags = True
        assert isinstance(self.node.operation, Process)
        parts: list[tuple[str | None, Batch]] = []
        for tag in self.side_outputs:
            at = [i for i, is_tagged in enumerate(tagged) if is_tagged and out[i][0].tag_id == tag]
            if at:
                parts.append((tag, self._side(tag, [out[i] for i in at], None if stamps is None else stamps[at])))
        is_main = ~np.array(tagged, dtype=bool)
        main = list(compress(out, is_main))
        return [*parts, (None, self.typed(main, None if stamps is None else stamps[is_main], self.node.output_type))]

    def _side(self, tag: str, tagged: list[tuple[SideTag, Any]], stamps: Timestamps | None) -> Batch:
        """The records of a side output, of the type that its readers declared."""
        assert isinstance(self.node.operation, Process)
        type_info = dict(self.node.operation.tags)[tag]
        for found in {id(item[0]): item[0] for item in tagged}.values():
            if is_typed(type_info) and is_typed(found.type_info) and found.type_info != type_info:
                error = ProgramError(
                    f"side output '{tag}' is given out as {found.type_info} and read as {type_info}. Use the same "
                    "OutputTag in the function and in get_side_output()"
                )
                value = next(item[1] for item in tagged if item[0] is found)
                raise self.call.failed(error, f"side output '{tag}'", (value,))
        return self.typed([item[1] for item in tagged], stamps, type_info, f"side output '{tag}'")


class ProjectOperator(Operator):
    def apply(self, batch: Batch) -> Batch:
        assert isinstance(self.node.operation, Project) and self.node.output_type is not None
        columns = batch.columns()
        schema = stream_schema(self.node.output_type)
        assert schema is not None
        chosen = [columns.column(i) for i in self.node.operation.indexes]
        kind = columns.schema.get_field_index(KIND_COLUMN)
        if kind >= 0:
            chosen.append(columns.column(kind))
            schema = schema.append(columns.schema.field(kind))
        return Batch.of_columns(
            pa.RecordBatch.from_arrays(chosen, schema=schema), self.node.output_type, batch.timestamps
        )


class MapBatchesOperator(Operator):
    """The user's function gets and returns Arrow record batches. Same number of rows: timestamps are kept."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        assert isinstance(self.node.operation, MapBatches) and self.node.output_type is not None
        self._map = self.node.operation.function
        self._schema = stream_schema(self.node.output_type)

    def apply(self, batch: Batch) -> Batch | None:
        assert self.node.output_type is not None
        try:
            result = self._map(batch.columns())
            # The usual case costs next to nothing: one batch, just as declared.
            as_declared = isinstance(result, pa.RecordBatch) and result.schema.equals(self._schema)
            parts = [result] if as_declared else self._parts_of(result)
        except Exception as error:
            raise self.call.failed(error, "map_batches") from error
        parts = [part for part in parts if part.num_rows]
        if not parts:
            return None
        columns = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        stamps = batch.timestamps if columns.num_rows == len(batch) else None
        return Batch.of_columns(columns, self.node.output_type, stamps)

    def _parts_of(self, result: Any) -> list[pa.RecordBatch]:
        assert self.node.output_type is not None
        return [checked_batch(part, self.node.output_type) for part in _batches(result)]


def _batches(result: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.combine_chunks().to_batches()
    elif isinstance(result, Iterable):
        for item in result:
            yield from _batches(item)
    else:
        raise ProgramError(
            "map_batches must return a pyarrow RecordBatch, a Table, or an iterable of them; "
            f"got {type(result).__name__}"
        )


OPERATORS: dict[type, type[Operator]] = {
    Map: MapOperator,
    FlatMap: FlatMapOperator,
    Filter: FilterOperator,
    Process: ProcessOperator,
    Project: ProjectOperator,
    MapBatches: MapBatchesOperator,
}
