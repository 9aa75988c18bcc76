"""Shared by all columnar joins: gathers an epoch's records by side, drops late ones, and stores those that may still
match.

In an epoch:

1. records of both inputs are gathered as rows (`buffer`), by sender; late ones are sent to their side's output, or
   dropped and counted;
2. when the input is complete and time has moved from `before_ms` to `now_ms`, subclasses join;
3. rows that a later record may still match are added to the side's buffer, one segment each.

Lateness is decided by the watermark at the epoch's start, so it is the same in a repeated epoch. In BATCH the only time
is the end of input, and nothing is late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.graph.tags import SideTag
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.joins.buffer import RowBuffer, RowTable, SideRows
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.event_times import event_times
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting, Origin, Output
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.stored.state_codec import StateCodec

__all__ = ["Side", "TwoSidedOperator"]

_LATE_RECORDS = "numLateRecordsDropped"


class Side:
    """One side: how its records become rows, and its buffer. `fields`: the chosen fields of a record; None: the whole
    record."""

    def __init__(
        self, name: str, keying: Keying, buffer: RowBuffer, codec: StateCodec, fields: tuple[int, ...] | None
    ) -> None:
        self.name, self.keying, self.buffer, self.codec = name, keying, buffer, codec
        self._fields, self._kind = fields, codec.arrow_type
        self._gathered: dict[Origin, list[SideRows]] = {}

    def begin(self) -> None:
        """Reset the gathered rows."""
        self._gathered = {}

    def gather(self, origin: Origin, batch: Batch, rejection: Callable[[Batch, int], Exception]) -> None:
        """Gather the records of a batch as rows."""
        assert batch.timestamps is not None
        contents = self._record(batch) if self._fields is None else self._projected(batch, self._fields, rejection)
        rows = SideRows(self.keying.column(batch), batch.timestamps, contents)
        self._gathered.setdefault(origin, []).append(rows)

    def take_rows(self) -> SideRows:
        """Remove and return all gathered rows, ordered by sender."""
        gathered, self._gathered = self._gathered, {}
        pieces = [rows for origin in sorted(gathered) for rows in gathered[origin]]
        return SideRows.concat(pieces) if pieces else self.buffer.no_rows()

    def _record(self, batch: Batch) -> pa.Array:
        """Whole records: the columns of the stream unchanged, if possible."""
        kind = self._kind
        if not batch.typed or KIND_COLUMN in batch.columns().schema.names:
            return self.codec.encode(batch.values())
        columns = batch.columns().columns
        if pa.types.is_struct(kind) and kind.num_fields and len(columns) == kind.num_fields:
            return pa.StructArray.from_arrays(columns, fields=list(kind))
        if len(columns) == 1 and columns[0].type == kind:
            return columns[0]
        return self.codec.encode(batch.values())

    def _projected(
        self, batch: Batch, fields: tuple[int, ...], rejection: Callable[[Batch, int], Exception]
    ) -> pa.Array:
        columns = batch.columns()
        kinds = columns.schema.get_field_index(KIND_COLUMN)
        if kinds >= 0:
            rejected = np.flatnonzero(np.asarray(columns.column(kinds).fill_null(1)) != 0)
            if len(rejected):
                raise rejection(batch, int(rejected[0]))
        return pa.StructArray.from_arrays([columns.column(field) for field in fields], fields=list(self._kind))


class TwoSidedOperator(KeyedOperator):
    """Two keyed inputs, gathered. Subclasses set `sides` with `make_side` and implement `join`."""

    sides: tuple[Side, Side]
    late_tags: tuple[SideTag | None, SideTag | None] = (None, None)

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        self._late_records = setting.context.metrics.counter(_LATE_RECORDS)
        self._batch = setting.facts.batch
        self.before_ms = MIN_WATERMARK
        self.started_ns = 0

    def make_side(
        self, number: int, name: str, type_info: TypeInformation | None, fields: tuple[int, ...] | None = None
    ) -> Side:
        """The side of input `number`. `type_info` is the stored type of a record: all of it, or its `fields`."""
        edge = next(edge for edge in self.node.inputs if edge.input == number)
        codec = task_codec(type_info, f"state '{name}' of '{self.node.name}'")
        # Whole records evolve like any state; a newly chosen field would be missing in the output.
        table = RowTable(name, edge.key_type, self.setting.context.max_parallelism, codec, evolves=fields is None)
        buffer = RowBuffer(table, self.backend.scope)
        self.backend.keep(name, buffer)
        return Side(name, Keying.of_edge(edge, self.call, self._owned), buffer, codec, fields)

    # --- an epoch -------------------------------------------------------------------------------------------------

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        self.before_ms = self.now_ms
        for side in self.sides:
            side.begin()
            side.buffer.table.time_ms = self.before_ms
        super().open_states(accounts)

    @property
    def now_ms(self) -> int:
        """The event time used by joins."""
        if not self._batch:
            return self.time.watermark
        return MAX_WATERMARK if self.time.watermark == MAX_WATERMARK else MIN_WATERMARK

    def input(self, number: int, origin: Origin) -> Output:
        return partial(self._gather, number - 1, origin)

    def _gather(self, number: int, origin: Origin, batch: Batch) -> None:
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        late = self._late(self._times(batch))
        late_batch = None if late is None else batch.take(np.flatnonzero(late))
        timely = batch if late is None else batch.take(np.flatnonzero(~late))
        if len(timely):
            with self.call.running("state"):
                self.sides[number].gather(origin, timely, self._rejection)
        self.busy_ns += time.perf_counter_ns() - started
        if late_batch is not None:
            self._emit_late(number, late_batch)

    def _late(self, times: Int64s) -> Bools | None:
        """Mask of the late records; None if no record is late."""
        if self.before_ms == MIN_WATERMARK:
            return None
        late = self.are_late(times)
        return late if late.any() else None

    def are_late(self, times: Int64s) -> Bools:
        """Mask of the times that event time has passed."""
        return times < self.before_ms

    def _emit_late(self, number: int, batch: Batch) -> None:
        tag = self.late_tags[number]
        if tag is None:
            self._late_records.inc(len(batch))
        elif tag.tag_id in self.side_outputs:
            declared = dict(getattr(self.node.operation, "tags", ()))[tag.tag_id]
            if declared != batch.type_info:
                batch = self.typed(batch.values(), batch.timestamps, declared)
            self._emit_part(tag.tag_id, batch)

    def advance(self, watermark: int) -> int:
        reached = super().advance(watermark)
        self.started_ns = time.perf_counter_ns()
        self.join(*(side.take_rows() for side in self.sides))
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        return reached

    def join(self, left: SideRows, right: SideRows) -> None:
        """Emit the results of these rows and those in the buffers, and store rows that are still needed."""
        raise NotImplementedError

    def hand_on(self, tag: str | None, batch: Batch) -> None:
        """Emit some results of `join`; downstream time is not counted as this operator's."""
        self.busy_ns += time.perf_counter_ns() - self.started_ns
        self._emit_part(tag, batch)
        self.started_ns = time.perf_counter_ns()

    def store_rows(self, side: Side, rows: SideRows, expires_ms: Int64s) -> None:
        """Add rows to a side's buffer, except those that expire now."""
        remaining = np.flatnonzero(expires_ms > self.now_ms)
        if len(remaining) == len(rows):
            side.buffer.add(rows, expires_ms)
        elif len(remaining):
            side.buffer.add(rows.take(remaining), expires_ms[remaining])

    def write_states(self) -> SubtaskAccount:
        for side in self.sides:
            side.buffer.table.time_ms = self.now_ms
        return super().write_states()

    # --- checks of records -----------------------------------------------------------------------------------

    def _times(self, batch: Batch) -> Int64s:
        return event_times(batch, self.call, "joins by", "join")

    def _rejection(self, batch: Batch, row: int) -> Exception:
        error = ProgramError(
            "the record is None or not an INSERT, which has no fields to project. Filter such records out, or join "
            "with a function"
        )
        return self.call.failed(error, "project", tuple(batch.slice(row, 1).values()))
