"""Numbers that strangers wrote to be computed for ever: each is a row, NULL, or a bad message, in bounded work."""

from __future__ import annotations

import decimal
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from oracles.text_calls import PROBLEM, answer, bound, computed, expected

from millstream.cli.state import key_from_text
from millstream.common.options.quantities import parse_bytes, parse_duration_ms
from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.databases.column_types import typed_column
from millstream.connectors.files.csv_records import CsvDialect
from millstream.connectors.messages.avro import AvroDecoder, AvroRecords
from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.connectors.messages.changelog import CanalDecoder, DebeziumDecoder
from millstream.connectors.messages.codecs import MessageDecoder, Messages
from millstream.connectors.messages.csv_messages import CsvDecoder, CsvMessages
from millstream.connectors.messages.json_reading import JsonDecoder
from millstream.connectors.tables.datagen.factory import DatagenFactory
from millstream.connectors.tables.factory import TableDefinition
from millstream.connectors.tables.formats.cell_text import cell_value
from millstream.connectors.tables.formats.csv_format import CsvTableDecoder
from millstream.connectors.tables.formats.format import FormatOptions
from millstream.connectors.tables.formats.formats import FORMATS, format_options
from millstream.connectors.tables.formats.json_cells import JsonReading
from millstream.connectors.tables.formats.json_format import JsonTableDecoder
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ConfigurationError, MillstreamError, ProgramError, TypeMismatchError
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import definition_of
from millstream.expressions.nested_types import ArrayType, MapType, RowType
from millstream.expressions.row_expressions import Call
from millstream.planner.binding.literals import bind_interval, bind_literal
from millstream.query.server.job_answers import moment_ms
from millstream.query.wire.json_values import key_of_text
from millstream.records.bounded_numbers import bounded_decimal, is_whole, whole_part
from millstream.runtime.expressions.java_format import JavaFormatError, java_format
from millstream.runtime.expressions.kernel import KERNELS, EvaluationError, SessionFacts, load_kernels
from millstream.runtime.expressions.value_casts import cast_value
from millstream.sql import syntax

SQL_TYPES: dict[type, DataType] = {
    str: types.VarCharType(types.LENGTH_MAX),
    int: types.BigIntType(),
    float: types.DoubleType(),
    decimal.Decimal: types.DecimalType(38, 0),
}
KINDS: list[tuple[type, ...]] = [
    (str,), (str, str), (int,), (float,), (int, int), (float, int), (str, int), (decimal.Decimal, int)
]  # fmt: skip
NUMBERS = [
    "1e999999999",
    "-1e999999999",
    "1e-999999999",
    "0e999999999",
    "0e-999999999",
    "1e" + "9" * 1000,
    "9" * 10_000,
    "9" * 39,
    "1." + "1" * 10_000,
    "1" + "0" * 60 + "e-60",
    "1e400",
    "5e-324",
    "-0",
    "-0.0e5",
]
ROW_TYPES: list[TypeInformation] = [
    Types.DECIMAL(38, 18), Types.DECIMAL(10, 2), Types.BIG_DEC(), Types.BIG_INT(), Types.LONG(), Types.INT(),
    Types.DOUBLE(), Types.FLOAT(), Types.STRING(), Types.LIST(Types.LONG()), Types.MAP(Types.STRING(), Types.BIG_DEC()),
]  # fmt: skip
TABLE_TYPES: list[DataType] = [
    types.DecimalType(38, 18), types.DecimalType(10, 2), types.BigIntType(), types.IntType(), types.TinyIntType(),
    types.DoubleType(), types.FloatType(), types.VarCharType(20_000), types.BooleanType(), types.TimestampType(3),
    ArrayType(types.IntType()), MapType(types.VarCharType(9), types.BigIntType()),
]  # fmt: skip
CASTS: list[DataType] = [each for each in TABLE_TYPES if not isinstance(each, ArrayType | MapType)]

Act = Callable[[str], Any]


def read(decoder: MessageDecoder, *messages: str) -> None:
    decoder.decode(Messages(pa.array([message.encode() for message in messages]), str)).batch.values()


def read_framed(decoder: MessageDecoder, frame: str, number: str) -> None:
    read(decoder, *[frame % document for document in in_documents(number)])


def in_documents(number: str) -> list[str]:
    """The number as it may stand in JSON, bare and as text, alone, in a list and in an object."""
    bare = [number, f"[{number}]", f'{{"k": {number}}}']
    return [f'{{"a": {value}}}' for value in [*bare, json.dumps(number), f'["{number}"]', f'{{"{number}": {number}}}']]


def entry_points() -> Iterator[tuple[str, Act]]:
    """Whatever makes numbers of text that came from outside."""
    for kind in ROW_TYPES:
        row = Types.ROW_NAMED(["a"], [kind])
        for name, decoder, frame in (
            ("json", JsonDecoder(row), "%s"),
            ("debezium", DebeziumDecoder(row), '{"before": null, "after": %s, "op": "c"}'),
            ("canal", CanalDecoder(row), '{"type": "INSERT", "data": [%s]}'),
        ):
            yield f"{name} {kind}", partial(read_framed, decoder, frame)
        if "MAP" not in str(kind):
            yield f"csv {kind}", partial(read, CsvDecoder(CsvMessages(row)))
    for of in TABLE_TYPES:
        table = RowType.of(["a"], [of])
        for ignores in (False, True):
            decoder = JsonTableDecoder(table, JsonReading(ignores_bad=ignores))
            yield f"json table {of} {ignores}", partial(read_framed, decoder, "%s")
        for name, frame in (
            ("debezium-json", '{"before": null, "after": %s, "op": "c"}'),
            ("canal-json", '{"type": "INSERT", "data": [%s]}'),
        ):
            decoder = FORMATS[name].decoder(FormatOptions(TableOptions("t", {}, format_options([name])), ""), table)
            yield f"{name} table {of}", partial(read_framed, decoder, frame)
        if not isinstance(of, MapType):
            yield f"csv table {of}", partial(read, CsvTableDecoder(table, CsvDialect()))
    for of in CASTS:
        yield f"cast {of}", lambda number, of=of: cast_value(number, types.VarCharType(20_000), of, SessionFacts())
    for kind in ROW_TYPES[:-2]:
        yield f"database {kind}", lambda number, k=kind: typed_column(pa.array([number]), k, "column a")
    yield "literal", lambda number: bind_literal(syntax.Literal("NUMBER", number), "UTC")
    for unit in ("SECOND", "DAY", "MONTH"):
        yield f"interval {unit}", lambda number, u=unit: bind_interval(syntax.Interval(number, u))
    yield "interval", lambda number: bind_interval(syntax.Interval(f"1 {number}", "DAY", unit_to="HOUR"))
    for written in ("LONG", "DOUBLE", "BIG_DEC", "DECIMAL(38, 18)", "INT"):
        yield f"key {written}", lambda number, w=written: key_of_text(number, w)
        yield f"json key {written}", lambda number, w=written: key_of_text(number, w, "json")
    for of in (types.DecimalType(38, 18), types.BigIntType(), types.DoubleType(), types.VarCharType(9)):
        for option in ("fields.a.min", "fields.a.length", "number-of-rows", "rows-per-second"):
            yield f"datagen {option} {of}", partial(generated, of, option)
    raw_options = FormatOptions(TableOptions("t", {}, format_options(["raw"])), "")
    for of in (types.BigIntType(), types.DoubleType(), types.VarCharType(9)):
        yield f"raw {of}", partial(read, FORMATS["raw"].decoder(raw_options, RowType.of(["a"], [of])))
    for field in (pa.int64(), pa.float64(), pa.decimal128(38, 2), pa.timestamp("ms"), pa.bool_()):
        yield f"command line key {field}", partial(key_from_text, pa.field("key", field))
    yield "duration", parse_duration_ms
    yield "ISO duration", lambda number: parse_duration_ms(f"PT{number}S")
    yield "size", parse_bytes
    yield "moment", moment_ms
    yield from functions()
    yield "whole part", lambda number: whole_part(decimal.Decimal(number)) + is_whole(decimal.Decimal(number))
    yield "decimal", lambda number: int(bounded_decimal(number))


def generated(of: DataType, option: str, number: str) -> None:
    table = TableDefinition("t", RowType.of(["a"], [of]), {option: number})
    DatagenFactory().source(table, None, ())


def functions() -> Iterator[tuple[str, Act]]:
    """SQL functions of a text, and of numbers, as the planner binds them: the kernel, and the reference."""
    load_kernels()
    for name in sorted(KERNELS):
        if definition_of(name) is None:
            continue
        for kinds in (
            (str,),
            (str, str),
            (int,),
            (float,),
            (int, int),
            (float, int),
            (str, int),
            (decimal.Decimal, int),
        ):
            with suppress(ProgramError, ValueError, LookupError):  # not its arguments
                call = bound(name, [SQL_TYPES[kind] for kind in kinds], {})
                if call.arguments:
                    yield f"{name}{kinds}", partial(called, call, kinds)


def called(call: Call, kinds: tuple[type, ...], number: str) -> None:
    row = [converted(kind, number) for kind in kinds]
    for way in (expected, computed):
        try:
            way(call, [row])
        except (TypeError, pa.ArrowInvalid, EvaluationError):  # the first two: where the planner would have put a cast
            pass
        except Exception as error:
            raise RuntimeError(f"{call.function}{kinds} of {number[:20]} by {way.__name__}") from error


def converted(kind: type, number: str) -> Any:
    """The number as a value of this kind that a column may hold, as large as it gets."""
    if kind is str:
        return number
    value = float(number)
    if kind is float:
        return value
    return kind(max(-(2**62), min(2**62, value)) if value == value else 0)


def sweep() -> None:
    """All entry points with all numbers; says which it is at, for whoever ends it."""
    for name, act in entry_points():
        for number in NUMBERS:
            print(f"{name} of {number[:20]}", flush=True)
            with suppress(ValueError, ArithmeticError, MillstreamError, EvaluationError):
                act(number)
    print("the end")


@pytest.mark.slow
def test_no_untrusted_number_is_computed_forever_or_ends_the_process() -> None:
    limits = partial(resource.setrlimit, resource.RLIMIT_CPU, (200, 200))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limits, env=environment)
    assert ended.stdout.splitlines()[-1:] == ["the end"], (ended.returncode, ended.stdout[-200:], ended.stderr[-2000:])


@pytest.mark.parametrize("number", ["1e999999999", "1e-999999999", "9" * 10_000])
def test_a_number_beyond_its_column_is_a_bad_message_and_the_others_are_read(number: str) -> None:
    table = RowType.of(["a", "d"], [types.BigIntType(), types.DecimalType(10, 2)])
    messages = pa.array([b'{"a": 1, "d": 1.5}', f'{{"a": {number}, "d": 1}}'.encode(), b'{"a": 3, "d": 2}'])
    decoded = JsonTableDecoder(table, JsonReading()).decode(Messages(messages, str))
    assert [row.a for row in decoded.batch.values()] == [1, 3] and [bad.index for bad in decoded.bad] == [1]
    ignoring = JsonTableDecoder(table, JsonReading(ignores_bad=True)).decode(Messages(messages, str))
    assert not ignoring.bad and ignoring.batch.values()[-1].a == 3


def test_a_decimal_of_a_database_with_too_many_digits_is_an_error_and_not_another_number() -> None:
    with pytest.raises(TypeMismatchError, match="column a"):
        typed_column(pa.array(["9" * 10_000]), Types.DECIMAL(38, 0), "column a")


@pytest.mark.parametrize("text", ["\\ud800", "a\\udfff"])
@pytest.mark.parametrize("ignores", [False, True])
def test_half_a_surrogate_pair_is_a_bad_value_and_does_not_stop_the_job(text: str, ignores: bool) -> None:
    table = RowType.of(["a"], [types.VarCharType(20)])
    messages = pa.array([f'{{"a": "{text}"}}'.encode(), b'{"a": "b"}'])
    decoded = JsonTableDecoder(table, JsonReading(ignores_bad=ignores)).decode(Messages(messages, str))
    assert [row.a for row in decoded.batch.values()] == ([None, "b"] if ignores else ["b"])
    assert [bad.index for bad in decoded.bad] == ([] if ignores else [0])


def test_an_avro_decimal_of_a_megabyte_is_a_bad_message() -> None:
    of_bytes = {"type": "record", "name": "R", "fields": [{"name": "d", "type": "bytes"}]}
    decimals = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    schema = AvroSource(json.dumps({"type": "record", "name": "R", "fields": [{"name": "d", "type": decimals}]}))
    messages = []
    for data in (b"\x7f" * 1_000_000, b"\x00\x96"):
        message = io.BytesIO()
        fastavro.schemaless_writer(message, of_bytes, {"d": data})
        messages.append(message.getvalue())
    decoded = AvroDecoder(AvroRecords(schema)).decode(Messages(pa.array(messages), str))
    assert [row.d for row in decoded.batch.values()] == [decimal.Decimal("1.50")]
    assert ["expected one of at most 38 digits" in bad.reason for bad in decoded.bad] == [True]


@pytest.mark.parametrize(
    "number", ["1e-999999999", "-1e-200000", "0e999999999", "0e-999999999", f"1e-{'9' * 100}", "0.004"]
)
def test_a_number_far_below_the_last_digit_of_its_decimal_is_0(number: str) -> None:
    of, text = types.DecimalType(10, 2), types.VarCharType(200)
    assert str(cast_value(number, text, of, SessionFacts())) == "0.00"
    assert str(cell_value(number, of)) == "0.00"
    if len(number) < 20:  # JSON's reader makes a decimal first
        messages = pa.array([f'{{"a": {number}}}'.encode()])
        decoded = JsonTableDecoder(RowType.of(["a"], [of]), JsonReading()).decode(Messages(messages, str))
        assert [str(row.a) for row in decoded.batch.values()] == ["0.00"]
    with pytest.raises(EvaluationError, match=r"beyond the decimals that are read.*expected DECIMAL\(10, 2\)"):
        cast_value("1e999999999", text, of, SessionFacts())


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("fields.a.min", "1e999999999"),
        ("fields.a.max", "NaN"),
        ("rows-per-second", "nan"),
        ("rows-per-second", "1e999"),
    ],
)
def test_an_option_of_generated_rows_that_no_column_holds_is_an_error_with_its_name(option: str, number: str) -> None:
    with pytest.raises(ProgramError, match=f"option '{option}' is '{number}', expected a number"):
        generated(types.DecimalType(10, 2), option, number)


@pytest.mark.parametrize("parse", [parse_duration_ms, parse_bytes])
def test_a_duration_or_size_of_ten_thousand_digits_is_an_error_that_says_how_to_write_it(parse: Act) -> None:
    with pytest.raises(ConfigurationError, match="Write it as"):
        parse("9" * 10_000)


def test_dates_and_moments_of_hostile_numbers_are_null_or_a_problem() -> None:
    assert answer("TO_DATE", "9" * 10_000) is None and answer("UNIX_TIMESTAMP", "9" * 10_000, "yyyy") == -(2**63)
    assert str(answer("TO_DATE", "0" * 10_000 + "2020-1-1")) == "2020-01-01"
    assert [answer("TO_TIMESTAMP_LTZ", each, 3) for each in (float("inf"), float("nan"), 1e308)] == [None] * 3
    assert answer("TO_TIMESTAMP_LTZ", 5, 400) == answer("TO_TIMESTAMP_LTZ", 5, -2_000_000_000) == PROBLEM


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("REPEAT", ("a", 2_000_000_000)),
        ("REPEAT", ("a" * 10_000, 2**62)),
        ("LPAD", ("a", 2_000_000_000, "b")),
        ("RPAD", ("a", 2_000_000_000, "bc")),
    ],
)
def test_a_function_makes_no_text_of_gigabytes(function: str, arguments: tuple[Any, ...]) -> None:
    assert answer(function, *arguments) == PROBLEM


@pytest.mark.parametrize("function", ["ROUND", "TRUNCATE"])
@pytest.mark.parametrize("digits", [-(2**31) + 1, -2_000_000_000, 2**31 - 1])
def test_rounding_to_any_number_of_digits_has_an_answer(function: str, digits: int) -> None:
    expected = 0.0 if digits < 0 else 5.5
    assert answer(function, 5.5, digits) == expected and answer(function, 5, digits) == int(expected)


@pytest.mark.parametrize("template", ["%2000000000d", "%.2000000000s", "%2000000000$d"])
def test_a_format_produces_a_million_characters_at_most(template: str) -> None:
    with pytest.raises(JavaFormatError, match="more than a million"):
        java_format(template, (5,), ("5",))


if __name__ == "__main__":
    sweep()
