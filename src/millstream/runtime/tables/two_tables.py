"""Shared by all joins of two tables: gathers an epoch's rows, by side and sender.

Subclasses join when the epoch's input is complete. The first column of arriving rows is the key; it is not stored with
the row.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.graph.table_nodes import TableJoin
from millstream.records.batch import Batch
from millstream.records.columns import typed_schema
from millstream.records.table_type import TableRowType
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting, Origin, Output
from millstream.runtime.tables.changes import change_batches, change_signs, reject_retractions
from millstream.runtime.tables.joined_rows import SignedRows
from millstream.runtime.tables.pairs import PairMatcher
from millstream.runtime.task.spec import EpochSpec
from millstream.state.keys.hashing import Int64s
from millstream.state.stored.state_codec import StateCodec

__all__ = ["TwoTablesOperator"]

_Gathered = dict[Origin, list[tuple[SignedRows, Int64s | None]]]


class TwoTablesOperator(KeyedOperator):
    """Two keyed inputs of rows."""

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation, output_type = self.node.operation, self.node.output_type
        assert isinstance(operation, TableJoin) and output_type is not None
        self.join, self._type = operation, output_type
        self.schema = typed_schema(output_type)
        self._kinds = tuple(pa.struct(list(row_type.schema)) for row_type in operation.rows)
        self.edges = tuple(next(e for e in self.node.inputs if e.input == number) for number in (1, 2))
        self._keyings = tuple(Keying.of_edge(edge, self.call, self._owned) for edge in self.edges)
        self._epoch_rows: tuple[_Gathered, _Gathered] = ({}, {})
        self.matcher = PairMatcher(self, operation.rows, operation.condition, operation.session)
        self.is_batch = setting.facts.batch
        self.started_ns = 0

    def codec(self, number: int, name: str) -> StateCodec:
        """How rows of a side are stored under a name."""
        return task_codec(TableRowType(self.join.rows[number]), f"state '{name}' of '{self.node.name}'")

    @property
    def preserves_rows(self) -> tuple[bool, bool]:
        """For each side, whether the join emits its unmatched rows (or depends on them: SEMI, ANTI)."""
        return self.join.kind in ("LEFT", "FULL", "SEMI", "ANTI"), self.join.kind in ("RIGHT", "FULL")

    @property
    def output_sides(self) -> int:
        """How many sides have columns in the output."""
        return 1 if self.join.kind in ("SEMI", "ANTI") else 2

    def user_functions(self) -> Iterable[Any]:
        return self.matcher.functions

    def begin(self, spec: EpochSpec, nonce: str) -> None:
        self._epoch_rows = ({}, {})
        super().begin(spec, nonce)
        self.matcher.begin(spec.epoch)

    @property
    def event_ms(self) -> int:
        """The current event time. BATCH has only two times, before and after the end of input, so that the division
        into epochs is not visible."""
        if self.is_batch and self.time.watermark != MAX_WATERMARK:
            return MIN_WATERMARK
        return self.time.watermark

    def input(self, number: int, origin: Origin) -> Output:
        return partial(self._gather, number - 1, origin)

    def _gather(self, number: int, origin: Origin, batch: Batch) -> None:
        started = time.perf_counter_ns()
        self.records_in += len(batch)
        columns, signs = change_signs(batch.columns())
        if not self.join.changing[number]:
            reject_retractions(self.call, batch, signs, "join")
        rows = SignedRows.of_columns(self._keyings[number].column(batch), columns, self._kinds[number], signs)
        self._epoch_rows[number].setdefault(origin, []).append((rows, batch.timestamps))
        self.busy_ns += time.perf_counter_ns() - started

    def take_rows(self, number: int) -> tuple[list[SignedRows], list[Int64s | None]]:
        """Remove and return a side's gathered rows, in pieces, and their timestamps."""
        gathered = self._epoch_rows[number]
        pieces = [piece for origin in sorted(gathered) for piece in gathered[origin]]
        gathered.clear()
        return [rows for rows, _ in pieces], [stamps for _, stamps in pieces]

    def emit_rows(self, columns: pa.RecordBatch, kinds: Int64s | None = None, stamps: Int64s | None = None) -> None:
        """Emit rows in pieces; downstream time is not counted as this operator's."""
        for piece in change_batches(columns, kinds, self._type, stamps):
            self.busy_ns += time.perf_counter_ns() - self.started_ns
            self.emit(piece)
            self.started_ns = time.perf_counter_ns()
