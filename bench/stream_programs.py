"""Sales and the rules for their groups, and the programs with several streams or exchanges that `bench_streams` runs.

A separate module, so that workers import it and functions are pickled by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from keyed_programs import AMOUNT_TYPE
from records import BATCH_RECORDS

from millstream.common.typeinfo import Types
from millstream.datastream import DataStream
from millstream.datastream.functions import BroadcastProcessFunction, ProcessFunction
from millstream.datastream.state import MapStateDescriptor

__all__ = [
    "RULE_TYPE",
    "SALE_TYPE",
    "Rules",
    "Sales",
    "by_broadcast_state",
    "by_dictionary",
    "by_process_function",
    "dealt_out",
    "keyed_again",
]

GROUPS = 100
RULE_TYPE = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.STRING()])
SALE_TYPE = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG(), Types.DOUBLE()])
PRICED_TYPE = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.STRING()])
_RULES = MapStateDescriptor("rules", Types.LONG(), Types.TUPLE([Types.DOUBLE(), Types.STRING()]))


@dataclass(frozen=True)
class Sales:
    """`total` records of (number, customer, group, amount)."""

    total: int

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(split)
        for first in range(self.total * split // splits, self.total * (split + 1) // splits, BATCH_RECORDS):
            count = min(BATCH_RECORDS, self.total * (split + 1) // splits - first)
            numbers, groups = np.arange(first, first + count), random.integers(0, GROUPS, count)
            columns = [
                pa.array(numbers),
                _customers().slice(0, count),
                pa.array(groups),
                pa.array(random.random(count)),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["f0", "f1", "f2", "f3"])


@lru_cache(maxsize=1)
def _customers() -> pa.Array:
    return pa.array([f"customer-{i % 1_000:04d}" for i in range(BATCH_RECORDS)])


def _rule(group: int) -> tuple[float, str]:
    return 1 + group / GROUPS, f"rate-{group:02d}"


@dataclass(frozen=True)
class Rules:
    """The rules of the first `total` groups, as (group, rate, name); all in one split."""

    total: int

    def __call__(self, split: int, splits: int) -> Iterator[pa.RecordBatch]:
        if split == 0:
            columns = zip(*((group, *_rule(group)) for group in range(self.total)), strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["f0", "f1", "f2"])


class Price(BroadcastProcessFunction):
    """The amount by the rule of its group, which is in broadcast state, and the rule's name."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        number, customer, group, amount = value
        rate, name = ctx.get_broadcast_state(_RULES).get(group)
        yield number, customer, group, amount * rate, name

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        group, rate, name = value
        ctx.get_broadcast_state(_RULES).put(group, (rate, name))


def by_broadcast_state(sales: DataStream, rules: DataStream) -> DataStream:
    """Sales by the rules that are in broadcast state."""
    return sales.connect(rules.broadcast(_RULES)).process(Price(), PRICED_TYPE)


def by_dictionary(sales: DataStream) -> DataStream:
    """Sales by the same rules in a dictionary of a plain map."""
    rules = {group: _rule(group) for group in range(GROUPS)}

    def price(value: Any) -> Any:
        number, customer, group, amount = value
        rate, name = rules[group]
        return number, customer, group, amount * rate, name

    return sales.map(price, PRICED_TYPE)


class PriceByDictionary(ProcessFunction):
    """The amount by the rule of its group, which is in a dictionary."""

    def open(self, runtime_context: Any) -> None:
        self.rules = {group: _rule(group) for group in range(GROUPS)}

    def process_element(self, value: Any, ctx: Any) -> Any:
        number, customer, group, amount = value
        rate, name = self.rules[group]
        yield number, customer, group, amount * rate, name


def by_process_function(sales: DataStream) -> DataStream:
    """The same by a function that yields its results, as one with broadcast state does."""
    return sales.process(PriceByDictionary(), PRICED_TYPE)


def _one_more(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(0), pc.add(batch.column(1), 1)], names=batch.schema.names)


def dealt_out(stream: DataStream, exchanges: int) -> DataStream:
    """Counted up twice in columns; distributed before the first time, or before both."""
    stream = stream.rebalance().map_batches(_one_more, AMOUNT_TYPE)
    return (stream.rebalance() if exchanges == 2 else stream).map_batches(_one_more, AMOUNT_TYPE)


def _turned(value: Any) -> Any:
    return value[1] + 1, value[0]


def keyed_again(stream: DataStream, exchanges: int) -> DataStream:
    """The fields of every record turned twice by a function; keyed before the first time, or before both."""
    stream = stream.key_by(0).map(_turned, AMOUNT_TYPE)
    return (stream.key_by(0) if exchanges == 2 else stream).map(_turned, AMOUNT_TYPE)
