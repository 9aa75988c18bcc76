"""DECIMAL(p, s): exact in columns, in state, in files; a value with more digits is refused and never rounded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row, Types
from millstream.connectors.files.parts import CsvParts, ParquetParts
from millstream.connectors.foreign_columns import inward
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from millstream.datastream.functions import KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import ProgramError, TypeMismatchError
from millstream.query.wire.json_values import key_of_text
from millstream.records.batch import Batch
from millstream.records.columns import as_declared, from_record_batch, keeps_values, to_record_batch
from millstream.records.conformance import conform
from millstream.state.schemas.saved_types import type_from, type_of_arrow, written_type
from millstream.testing import EPOCH, Collect, Script, run

MONEY = Types.DECIMAL(10, 2)
PRICE = Types.ROW_NAMED(["item", "price"], [Types.STRING(), MONEY])


def test_a_value_has_the_digits_of_its_type() -> None:
    assert [str(value) for value in as_declared([Decimal("1.5"), 2, Decimal("1E+3"), Decimal("-0"), None], MONEY)] == [
        "1.50",
        "2.00",
        "1000.00",
        "0.00",
        "None",
    ]
    assert keeps_values([Decimal("1.50"), Decimal("0.00"), None], MONEY) and not keeps_values([Decimal("1.5")], MONEY)


@pytest.mark.parametrize(
    "value", [Decimal("1.005"), Decimal("123456789.00"), Decimal("NaN"), Decimal("Infinity"), 10**9]
)
def test_a_value_that_does_not_fit_is_refused_and_never_rounded(value: Any) -> None:
    with pytest.raises(
        TypeMismatchError, match=r"does not fit DECIMAL\(10, 2\): expected a number of at most 10 digits"
    ):
        Batch.of_values([value], MONEY)


@given(st.lists(st.none() | st.decimals(allow_nan=False, min_value=-(10**9), max_value=10**9, places=3), max_size=5))
def test_columns_agree_with_conform(values: list[Any]) -> None:
    try:
        expected = [conform(value, MONEY) for value in values]
    except TypeMismatchError:
        with pytest.raises(TypeMismatchError):
            to_record_batch(values, MONEY)
    else:
        results = from_record_batch(to_record_batch(values, MONEY), MONEY)
        assert list(map(repr, results)) == list(map(repr, expected))


def test_a_type_has_a_precision_and_a_scale_within_it() -> None:
    assert MONEY == Types.DECIMAL(10, 2) != Types.DECIMAL(10, 3)
    assert repr(MONEY) == "Types.DECIMAL(10, 2)"
    with pytest.raises(ProgramError, match="precision is 39"):
        Types.DECIMAL(39, 0)
    with pytest.raises(ProgramError, match="scale is 3, expected 0 to 2"):
        Types.DECIMAL(2, 3)


def test_parquet_has_the_precision_in_both_directions() -> None:
    encoder = ParquetParts().encoder()
    encoder.add(Batch.of_values([Row("pen", Decimal("1.5")), Row("ink", None)], PRICE))
    table = pq.read_table(pa.BufferReader(encoder.finish()))
    assert table.schema.field("price").type == pa.decimal128(10, 2)
    assert table.column("price").to_pylist() == [Decimal("1.50"), None]
    narrow = pa.record_batch({"item": ["x"], "price": pa.array([Decimal("7.5")], pa.decimal128(5, 1))})
    assert from_record_batch(inward(narrow, PRICE, "a file"), PRICE) == [Row(item="x", price=Decimal("7.50"))]
    fine = pa.record_batch({"item": ["x"], "price": pa.array([Decimal("7.555")], pa.decimal128(5, 3))})
    with pytest.raises(TypeMismatchError, match="a file"):
        inward(fine, PRICE, "a file")


@pytest.mark.parametrize("text", ["1E-57", "-1.00E-60", "1E-6000", "1E-21", "1E+18", "NaN"])
def test_digits_far_behind_the_point_are_refused_and_never_cut(text: str) -> None:
    wide = Types.DECIMAL(38, 20)
    with pytest.raises(TypeMismatchError, match="38 digits, 20 of them"):
        to_record_batch([Decimal(text)], wide)
    assert from_record_batch(to_record_batch([Decimal("0E-57")], wide), wide) == [Decimal("0E-20")]


def test_csv_and_json_messages_come_back() -> None:
    row = Row(item="pen", price=Decimal("1.50"))
    csv = CsvRowSerializationSchema.Builder(PRICE).build().serialize(row)
    assert csv == CsvParts().encode([row], PRICE) == b"pen,1.50\n"
    assert CsvRowDeserializationSchema.Builder(PRICE).build().deserialize(csv) == row
    json = JsonRowSerializationSchema.builder().with_type_info(PRICE).build().serialize(row)
    assert JsonRowDeserializationSchema.builder().type_info(PRICE).build().deserialize(json) == row


def test_a_manifest_names_the_type() -> None:
    assert written_type(Types.LIST(MONEY)) == {"list": "DECIMAL(10, 2)"}
    assert type_from("DECIMAL(10, 2)", "state") == MONEY
    assert type_of_arrow(pa.field("value", pa.decimal128(10, 2))) == MONEY
    assert key_of_text("1.5", "DECIMAL(10, 2)") == Decimal("1.5")


class Total(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", MONEY))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        total = (self.total.value() or 0) + value
        self.total.update(total)
        yield ctx.get_current_key(), total


def test_state_and_keys_may_be_decimals() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        prices = env.add_source(
            Script([Decimal("1.5"), Decimal("2"), EPOCH, Decimal("1.50"), Decimal("2.00")]), type_info=MONEY
        )
        prices.key_by(lambda price: price, key_type=MONEY).process(Total(), Types.TUPLE([MONEY, MONEY])).sink_to(out)

    result = run(build)[out]
    one, two = Decimal("1.50"), Decimal("2.00")
    assert sorted(result) == [(one, one), (one, 2 * one), (two, two), (two, 2 * two)]
