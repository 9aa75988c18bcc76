"""Running aggregations in columns agree with a record-by-record reference: any types, cuts and epochs."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.aggregation.rolling_columns import accumulate, order_numbers
from millstream.aggregation.rolling_records import FieldReduce, mutable_copy
from millstream.common import Row, Types
from millstream.common.typeinfo import BasicType, BasicTypeInfo, TypeInformation
from millstream.compiler.passes.roll_in_columns import rolling_operation
from millstream.datastream.streams.ready_aggregates import rolling_field
from millstream.graph.field_key import FieldKey
from millstream.graph.nodes import Edge, Node, Partitioning, Reduce
from millstream.metrics.registry import MetricRegistry
from millstream.plan.operations import Rolling
from millstream.records.batch import Batch
from millstream.records.columns import as_declared
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.operators.user_code import TaskContext
from millstream.runtime.task.registry import operator_for
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.state.keys.canonical_decoding import decode
from millstream.state.keys.settled_keys import settled_keys
from millstream.storage.memory import MemoryStore

KINDS = ("sum", "min", "max", "min_by", "max_by")
UID = "total"


STORES = itertools.count()


def lowered(kind: str, field: int | str, type_info: TypeInformation) -> Rolling | Reduce:
    """The operator for `kind` of a field, as the compiler chooses it."""
    return rolling_operation(rolling_field(kind, field, type_info), type_info)


class OneOperator:
    """One aggregation in one subtask, through epochs; every epoch opens a new operator, as after a restart."""

    def __init__(self, operation: Any, type_info: TypeInformation, key_type: TypeInformation | None) -> None:
        self.key_type = key_type
        self.node = Node(
            2,
            operation,
            "total",
            inputs=(Edge(1, Partitioning.HASH, FieldKey(0, 0), key_type),),
            output_type=type_info,
            uid=UID,
            parallelism=1,
            max_parallelism=128,
        )
        self.store = MemoryStore(f"rolling-{next(STORES)}")
        self.states: dict[str, Any] = {}
        self.epoch = 0

    def run(
        self, batches: list[list[Any]], *, batch: bool = False, ends: bool = False, had_ended: bool = False
    ) -> list[Any]:
        """An epoch over these batches; returns its output."""
        self.epoch += 1
        context = TaskContext("total", 1, 128, 0, 0, {}, MetricRegistry().group(UID))
        facts = JobFacts("job", "id", "run", self.store, batch_records_max=1024, batch=batch)
        operator = operator_for(OperatorSetting(self.node, context, facts))
        assert isinstance(operator, KeyedOperator)
        out: list[Any] = []
        operator.outputs = [lambda batch: out.extend(batch.values())]
        watermarks = {UID: MAX_WATERMARK} if had_ended else {}
        spec = EpochSpec(self.epoch, 0, 0, ends, {}, {}, watermarks, {UID: self.states} if self.states else {})
        operator.begin(spec, f"n{self.epoch}")
        for values in batches:
            operator.take(Batch.of_values(values, self.node.output_type))
        operator.advance(MAX_WATERMARK if ends else MIN_WATERMARK)
        acknowledgement = Acknowledgement(0, 0, "n", {})
        operator.acknowledge(acknowledgement)
        self.states = {"0": acknowledgement.states[UID]}
        return out


class Reference:
    """The same aggregation, with a dictionary."""

    def __init__(self, kind: str, type_info: TypeInformation, key_type: TypeInformation) -> None:
        self.field_type = type_info.get_field_types()[1]  # type: ignore[attr-defined]
        basic = self.field_type.basic_type if isinstance(self.field_type, BasicTypeInfo) else None
        self.reduce = FieldReduce(kind, 1, basic)
        self.type_info, self.key_type = type_info, key_type
        self.results: dict[Any, Any] = {}

    def run(self, batches: list[list[Any]]) -> list[Any]:
        out = []
        for record in (record for values in batches for record in as_declared(values, self.type_info)):
            key = record[0] + 0.0 if type(record[0]) is float else record[0]
            key = repr(settled_keys([key], self.key_type, decode)[0])
            before = self.results.get(key)
            self.results[key] = self.reduce.first(record) if before is None else self.reduce.reduce(before, record)
            out.append(self.results[key])
        return out


def without_fold(time: Any) -> Any:
    return time.replace(fold=0)


def integers_of_bits(bits: int) -> st.SearchStrategy[int]:
    top = 1 << (bits - 1)
    return st.integers(-top, top - 1) | st.sampled_from([top - 1, -top, 1, -1, 0])


VALUES: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "BYTE": (Types.BYTE(), integers_of_bits(8)),
    "SHORT": (Types.SHORT(), integers_of_bits(16)),
    "INT": (Types.INT(), integers_of_bits(32)),
    "LONG": (Types.LONG(), integers_of_bits(64)),
    "FLOAT": (Types.FLOAT(), st.floats(width=32)),
    "DOUBLE": (Types.DOUBLE(), st.floats()),
    "BIG_INT": (Types.BIG_INT(), integers_of_bits(200)),
    "BIG_DEC": (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False, places=3)),
}
ORDERED: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    **VALUES,
    "STRING": (Types.STRING(), st.text(max_size=3)),
    "BOOLEAN": (Types.BOOLEAN(), st.booleans()),
    "DATE": (Types.SQL_DATE(), st.dates()),
    "TIMESTAMP": (Types.SQL_TIMESTAMP(), st.datetimes().map(without_fold)),
    "TIME": (Types.SQL_TIME(), st.times().map(without_fold)),
}
KEYS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), st.sampled_from(["a", "b", "c", "", "ä"])),
    (Types.LONG(), st.integers(0, 3) | st.none()),
    (Types.DOUBLE(), st.sampled_from([0.0, -0.0, math.nan, 1.5])),
    (Types.TUPLE([Types.INT(), Types.STRING()]), st.tuples(st.integers(0, 1), st.sampled_from("xy"))),
]


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, TypeInformation, TypeInformation, list[list[list[Any]]]]:
    """A kind, the types of record and key, and epochs of batches of records."""
    kind = draw(st.sampled_from(KINDS))
    field_type, values = draw(st.sampled_from(list((VALUES if kind == "sum" else ORDERED).values())))
    key_type, keys = draw(st.sampled_from(KEYS))
    type_info = Types.TUPLE([key_type, field_type, Types.INT()])
    numbers = iter(range(10**6))
    record = st.builds(lambda key, value: (key, value, next(numbers)), keys, values)
    batch = st.lists(record, min_size=1, max_size=12)
    return kind, type_info, key_type, draw(st.lists(st.lists(batch, max_size=4), min_size=1, max_size=4))


def comparable(records: list[Any]) -> list[str]:
    """Records in a form in which NaN equals NaN and -0.0 differs from 0.0."""
    return list(map(repr, records))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(histories())
def test_columnar_aggregations_agree_with_the_reference(history: Any) -> None:
    kind, type_info, key_type, epochs = history
    operator = OneOperator(lowered(kind, 1, type_info), type_info, key_type)
    reference = Reference(kind, type_info, key_type)
    for batches in epochs:
        assert comparable(operator.run(batches)) == comparable(reference.run(batches))


@settings(max_examples=10, deadline=None)
@given(histories())
def test_batch_emits_one_final_result_per_key_at_the_end(history: Any) -> None:
    kind, type_info, key_type, epochs = history
    operator = OneOperator(lowered(kind, 1, type_info), type_info, key_type)
    reference = Reference(kind, type_info, key_type)
    for batches in epochs:
        reference.run(batches)
        assert operator.run(batches, batch=True) == []
    final = operator.run([], batch=True, ends=True)
    assert sorted(comparable(final)) == sorted(comparable(list(reference.results.values())))


def test_final_results_are_emitted_once() -> None:
    type_info = Types.TUPLE([Types.LONG(), Types.LONG()])
    for operation in (Rolling("sum", 1), Reduce(FieldReduce("sum", 1))):
        operator = OneOperator(operation, type_info, Types.LONG())
        assert operator.run([[(1, 2), (1, 3)]], batch=True, ends=True) == [(1, 5)]
        assert operator.run([], batch=True, ends=True, had_ended=True) == []


def test_long_runs_of_one_key_are_summed_exactly_in_order() -> None:
    type_info = Types.TUPLE([Types.LONG(), Types.FLOAT(), Types.INT()])
    random = np.random.default_rng(7)

    def batch() -> list[Any]:
        keys, values = random.zipf(1.5, 3_000) % 50, random.normal(0, 1e5, 3_000)
        return [(key, value, 0) for key, value in zip(keys.tolist(), values.tolist(), strict=True)]

    batches = [batch(), batch()]
    operator = OneOperator(Rolling("sum", 1), type_info, Types.LONG())
    assert comparable(operator.run(batches)) == comparable(Reference("sum", type_info, Types.LONG()).run(batches))


def test_which_fields_run_in_columns() -> None:
    for name, (field_type, _) in ORDERED.items():
        operation = lowered("max", 1, Types.TUPLE([Types.LONG(), field_type]))
        assert isinstance(operation, Reduce if name.startswith("BIG") else Rolling), name


def test_rows_and_plain_numbers_are_aggregated() -> None:
    row = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])
    operator = OneOperator(lowered("sum", "count", row), row, Types.STRING())
    assert operator.run([[Row("a", 1), Row("b", 5), Row("a", 2**31 - 1)]]) == [
        Row(word="a", count=1),
        Row(word="b", count=5),
        Row(word="a", count=-(2**31)),
    ]


# --- the parts ----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-100, 100), min_size=1, max_size=200), min_size=1, max_size=8))
def test_accumulating_runs_one_by_one_and_in_step_agrees(runs: list[list[int]]) -> None:
    lengths = np.array([len(run) for run in runs])
    values = np.array([value for run in runs for value in run])
    accumulated = accumulate(np.maximum, values, np.cumsum(lengths) - lengths, lengths)
    expected = [max(run[: i + 1]) for run in runs for i in range(len(run))]
    assert accumulated.tolist() == expected


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_order_numbers_sort_like_their_floats(values: list[float]) -> None:
    numbers = order_numbers(pa.array(values, pa.float64())).tolist()
    for a, i in zip(values, numbers, strict=True):
        for b, j in zip(values, numbers, strict=True):
            assert (a < b, a == b) == (i < j, i == j)


def test_every_nan_sorts_last() -> None:
    nans = np.array([math.nan, np.copysign(math.nan, -1.0), math.inf, -math.inf])
    positive, negative, largest, smallest = order_numbers(pa.array(nans)).tolist()
    assert smallest < largest < positive == negative


# --- one record at a time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [("a", 1), ["a", 1], Row("a", 1), Row(word="a", count=1)], ids=repr)
def test_a_sum_replaces_the_field_in_a_record_of_the_same_kind(record: Any) -> None:
    result = FieldReduce("sum", 1).reduce(record, record)
    assert type(result) is type(record) and list(result) == ["a", 2] and list(record) == ["a", 1]


class Pair(NamedTuple):
    key: str
    value: int


def test_a_named_tuple_stays_a_named_tuple() -> None:
    assert FieldReduce("sum", 1).reduce(Pair("a", 1), Pair("a", 2)) == Pair("a", 3)
    assert type(FieldReduce("sum", 1).reduce(Pair("a", 1), Pair("a", 2))) is Pair


def test_decimals_are_added_exactly() -> None:
    one, tiny = decimal.Decimal(10) ** 40, decimal.Decimal("1e-40")
    assert str(FieldReduce("sum", 0, BasicType.BIG_DEC).reduce(one, tiny)) == f"1{'0' * 40}.{'0' * 39}1"


def test_changing_a_copied_value_does_not_change_the_original() -> None:
    for value in (Row("a", 1), Row("a", [1]), ["a", [1]], {"a": {"b": 1}}):
        copy = mutable_copy(value)
        assert copy == value and copy is not value
    inner = mutable_copy(("a", [1]))
    assert inner == ("a", [1])
    day = dt.date(2024, 1, 1)
    assert mutable_copy(day) == day
