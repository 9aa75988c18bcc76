"""Records with a key and an amount, and the keyed programs that `bench_state` runs over them.

A separate module, so that workers import it and functions are pickled by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from records import BATCH_RECORDS

from millstream.common.typeinfo import Types
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.functions import KeyedBatchFunction, KeyedBatchResult
from millstream.datastream.state import ValueStateDescriptor

__all__ = [
    "AMOUNT_TYPE",
    "TOTAL_TYPE",
    "Amounts",
    "ColumnTotals",
    "Payloads",
    "Population",
    "Spread",
    "TimedTotals",
    "Totals",
]

_PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
AMOUNT_TYPE = Types.TUPLE([Types.LONG(), Types.LONG()])
TOTAL_TYPE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
PAYLOAD_BYTES = 100
_FAR_MS = 1 << 52


def _batch(keys: Any, amounts: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(amounts)], names=["f0", "f1"])


@dataclass(frozen=True)
class Amounts:
    """`total` records: a random one of `keys` keys, and a small amount."""

    total: int
    keys: int
    seed: int = 0

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng((self.seed, split))
        share = self.total * (split + 1) // splits - self.total * split // splits
        for first in range(0, share, BATCH_RECORDS):
            count = min(BATCH_RECORDS, share - first)
            yield _batch(random.integers(0, self.keys, count), random.integers(0, 1000, count))


@dataclass(frozen=True)
class Population:
    """Every key from `first` up to `stop` once; the amount -1 requests timers of a `TimedTotals`."""

    first: int
    stop: int
    amount: int = 1

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        for first in range(self.first + split * BATCH_RECORDS, self.stop, splits * BATCH_RECORDS):
            keys = np.arange(first, min(first + BATCH_RECORDS, self.stop), dtype=np.int64)
            yield _batch(keys, np.full(len(keys), self.amount, dtype=np.int64))


@dataclass(frozen=True)
class Spread:
    """`total` of the keys below `keys`, each once, evenly spread."""

    total: int
    keys: int

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        for first in range(split * BATCH_RECORDS, self.total, splits * BATCH_RECORDS):
            numbers = np.arange(first, min(first + BATCH_RECORDS, self.total), dtype=np.int64)
            yield _batch(numbers * (self.keys // self.total), np.ones(len(numbers), dtype=np.int64))


class Totals(KeyedProcessFunction):
    """Sum and count per key in one `ValueState`, emitted for every record."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", _PAIR))

    def process_element(self, value: Any, ctx: Any) -> Any:
        known = self.total.value()
        total = (value[1], 1) if known is None else (known[0] + value[1], known[1] + 1)
        self.total.update(total)
        yield value[0], total[0], total[1]


class TimedTotals(Totals):
    """The same; a record with a negative amount sets one timer of each kind in the far future, nothing else."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] < 0:
            ctx.timer_service().register_event_time_timer(_FAR_MS + value[0])
            ctx.timer_service().register_processing_time_timer(_FAR_MS + value[0])
            return
        yield from super().process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        raise RuntimeError(f"timer {timestamp} is in the far future and fired")


class ColumnTotals(KeyedBatchFunction):
    """Sum and count per key in columns, emitted for the keys of every batch."""

    def states(self) -> Any:
        return {"sum": Types.LONG(), "count": Types.LONG()}

    def process_batch(self, batch: Any) -> KeyedBatchResult:
        sums = batch.states["sum"].fill_null(0).to_numpy().copy()
        np.add.at(sums, batch.key_of, batch.records.column(1).to_numpy())
        counts = batch.states["count"].fill_null(0).to_numpy() + np.bincount(batch.key_of, minlength=len(batch.keys))
        output = pa.record_batch({"f0": batch.keys, "f1": pa.array(sums), "f2": pa.array(counts)})
        return KeyedBatchResult(output, {"sum": sums, "count": counts})


class Payloads(KeyedProcessFunction):
    """Stores a payload of 100 bytes per key, changed by every record; emits nothing."""

    def open(self, runtime_context: Any) -> None:
        self.payload = runtime_context.get_state(ValueStateDescriptor("payload", Types.PRIMITIVE_ARRAY(Types.BYTE())))

    def process_element(self, value: Any, ctx: Any) -> None:
        known = self.payload.value()
        head = value[1] if known is None else int.from_bytes(known[:8], "little") + value[1]
        self.payload.update(head.to_bytes(8, "little") + bytes(PAYLOAD_BYTES - 8))
