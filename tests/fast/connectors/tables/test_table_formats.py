"""Table formats: encoded rows are read back, also by other programs, and batch decoding equals decoding one by one."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import io
import json
import pickle
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.messages.codecs import Messages
from millstream.connectors.tables.formats.cell_text import ISO, SQL, cell_value, read_cells, written_cells
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat
from millstream.connectors.tables.formats.formats import FORMATS, format_of, format_options
from millstream.connectors.tables.options import TableOptions
from millstream.errors import NotYetError, ProgramError, TypeMismatchError
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

STRING = types.VarCharType(0x7FFFFFFF)
VARIANT = types.VariantType()
_DAY = dt.datetime(1970, 1, 1)
SINGLE: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "yes": (types.BooleanType(), st.booleans()),
    "tiny": (types.TinyIntType(), st.integers(-128, 127)),
    "small": (types.SmallIntType(), st.integers(-(2**15), 2**15 - 1)),
    "whole": (types.IntType(), st.integers(-(2**31), 2**31 - 1)),
    "big": (types.BigIntType(), st.integers(-(2**63), 2**63 - 1)),
    "single": (types.FloatType(), st.floats(width=32, allow_nan=False)),
    "fraction": (types.DoubleType(), st.floats(allow_nan=False)),
    "money": (types.DecimalType(20, 8), st.decimals(-(10**11), 10**11, places=8)),
    "word": (STRING, st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)),
    "data": (types.VarBinaryType(0x7FFFFFFF), st.binary(min_size=1, max_size=6)),
    "day": (types.DateType(), st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    "clock": (types.TimeType(), st.integers(0, 86_399_999)),
    "at": (types.TimestampType(3), st.integers(-62_135_596_800_000, 253_402_300_799_999)),
    "precise": (types.TimestampType(9), st.integers(-(2**62), 2**62)),
    "moment": (types.LocalZonedTimestampType(6), st.integers(-(2**53), 2**53)),
}
NESTED: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "list": (ArrayType(types.IntType()), st.lists(st.integers(-9, 9) | st.none(), max_size=3)),
    "row": (
        RowType.of(["n", "at"], [types.IntType(), types.TimestampType(3)]),
        st.fixed_dictionaries({"n": st.integers(0, 9) | st.none(), "at": st.integers(0, 10**12) | st.none()}),
    ),
    "map": (
        MapType(STRING.not_null(), types.DoubleType()),
        st.dictionaries(st.text("ab\"'", max_size=3), st.floats(0, 1)).map(lambda each: list(each.items())),
    ),
    "bag": (MultisetType(STRING.not_null()), st.just([("a", 2)])),
}


TEXTS = st.text(st.sampled_from('ab", \\\n'), max_size=4) | st.just("a text of more than twenty-four letters")


@st.composite
def batches(draw: st.DrawFn, fields: dict[str, tuple[DataType, st.SearchStrategy[Any]]]) -> tuple[RowType, Batch]:
    count = draw(st.integers(1, 4))
    row_type = RowType.of(list(fields), [data_type for data_type, _ in fields.values()], nullable=False)
    columns = [
        pa.array(draw(st.lists(values | st.none(), min_size=count, max_size=count)), data_type.arrow)
        for data_type, values in fields.values()
    ]
    return row_type, Batch.of_columns(
        pa.RecordBatch.from_arrays(columns, schema=row_type.schema), TableRowType(row_type)
    )


def assert_same(actual: pa.RecordBatch, expected: pa.RecordBatch) -> None:
    for name in expected.schema.names:
        assert actual.column(name).equals(expected.column(name)), (name, actual.column(name), expected.column(name))


def table_format(name: str, **options_by_name: str) -> tuple[TableFormat, FormatOptions]:
    named = {f"{name}.{key.replace('__', '-')}": value for key, value in options_by_name.items()}
    options = TableOptions("t", named, format_options([name]))
    return FORMATS[name], FormatOptions(options, "")


def decoded(name: str, row_type: RowType, messages: list[bytes | None], **options: str) -> Any:
    format, chosen = table_format(name, **options)
    return format.decoder(chosen, row_type).decode(
        Messages(pa.array(messages, pa.binary()), lambda at: f"message {at}")
    )


def round_trip(name: str, row_type: RowType, batch: Batch, **options: str) -> pa.RecordBatch:
    format, chosen = table_format(name, **options)
    messages = format.encoder(chosen, row_type).encode(batch)
    answer = format.decoder(chosen, row_type).decode(Messages(messages, lambda at: f"message {at}"))
    assert not answer.bad, (answer.bad, messages)
    return answer.batch.columns()


CSV_TYPES = {**SINGLE, "row": NESTED["row"]}
AVRO_TYPES = {name: each for name, each in {**SINGLE, **NESTED}.items() if name != "precise"}


@settings(max_examples=10, deadline=None)
@given(batches(CSV_TYPES))
def test_csv_table_rows_survive_a_round_trip(rows: tuple[RowType, Batch]) -> None:
    row_type, batch = rows
    assert_same(round_trip("csv", row_type, batch, null__literal="NULL!"), batch.columns())


@settings(max_examples=10, deadline=None)
@given(batches({**SINGLE, **NESTED}), st.sampled_from([SQL, ISO]), st.booleans())
def test_json_table_rows_survive_a_round_trip(rows: tuple[RowType, Batch], style: str, leaves_out: bool) -> None:
    row_type, batch = rows
    options = {"timestamp__format.standard": style, "encode.ignore__null__fields": str(leaves_out).lower()}
    assert_same(round_trip("json", row_type, batch, **options), batch.columns())


@settings(max_examples=8, deadline=None)
@given(batches(AVRO_TYPES))
def test_avro_table_rows_survive_a_round_trip(rows: tuple[RowType, Batch]) -> None:
    row_type, batch = rows
    assert_same(round_trip("avro", row_type, batch), batch.columns())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SINGLE))
@settings(max_examples=15, deadline=None)
@given(st.data(), st.sampled_from([SQL, ISO]))
def test_decoding_a_text_column_equals_decoding_each_text(name: str, data: st.DataObject, style: str) -> None:
    data_type, values = SINGLE[name]
    column = pa.array(data.draw(st.lists(values | st.none(), min_size=1, max_size=4)), data_type.arrow)
    texts = written_cells(column, data_type, style)
    some = data.draw(
        st.lists(
            st.sampled_from([*texts.to_pylist(), "x", "2020-02-30", "1e400", " 7 ", "+5", "1.", "", "1_0"]), min_size=1
        )
    )
    mixed = pa.array(some, pa.string())
    read, bad = read_cells(mixed, data_type, style)
    expected: list[Any] = []
    for at, text in enumerate(some):
        try:
            expected.append(None if text is None else cell_value(text, data_type, style))
            assert bad is None or not bad[at]
        except ValueError:
            expected.append(None)
            assert bad is not None and bad[at], text
    assert read.equals(pa.array(expected, data_type.arrow))
    assert read_cells(texts, data_type, style)[0].equals(column)


@settings(max_examples=8, deadline=None)
@given(batches({**SINGLE, **NESTED}))
def test_json_by_column_equals_json_by_document(rows: tuple[RowType, Batch]) -> None:
    row_type, batch = rows
    format, options = table_format("json")
    messages = format.encoder(options, row_type).encode(batch)
    decoder: Any = format.decoder(options, row_type)
    slow = [row for message in messages.to_pylist() for row in decoder.rows(message)]
    assert_same(decoder.batch_of(slow), decoder.decode(Messages(messages, str)).batch.columns())
    for message in messages.to_pylist():
        json.loads(message)


def test_encoded_texts_are_flinks() -> None:
    row_type = RowType.of(
        ["a", "b", "c", "d", "e", "f", "g"],
        [
            types.TimestampType(3),
            types.LocalZonedTimestampType(3),
            types.DoubleType(),
            types.DecimalType(10, 2),
            types.TimeType(),
            STRING,
            types.VarBinaryType(9),
        ],
        nullable=False,
    )
    moment = dt.datetime(2020, 1, 1, 7, 8, 9, 120_000)
    values = [moment, moment, 1e7, decimal.Decimal("1.50"), dt.time(1, 2, 3), 'say "hi"', b"\x01"]
    columns = [pa.array([value], each.arrow) for value, each in zip(values, row_type.types, strict=True)]
    batch = Batch.of_columns(pa.RecordBatch.from_arrays(columns, schema=row_type.schema), TableRowType(row_type))
    for name, expected in (
        ("csv", b'"2020-01-01 07:08:09.12","2020-01-01 07:08:09.12Z",1.0E7,1.5,01:02:03,"say ""hi""",AQ=='),
        (
            "json",
            b'{"a":"2020-01-01 07:08:09.12","b":"2020-01-01 07:08:09.12Z","c":1.0E7,"d":1.5,"e":"01:02:03",'
            b'"f":"say \\"hi\\"","g":"AQ=="}',
        ),
    ):
        format, options = table_format(name)
        assert format.encoder(options, row_type).encode(batch).to_pylist() == [expected]


ROWS = RowType.of(["n", "word"], [types.IntType(), STRING], nullable=False)


def test_bad_messages_are_reported_or_ignored() -> None:
    for name, messages in (("csv", [b"1,a", b"x,b", b"3"]), ("json", [b'{"n":1}', b'{"n":"x","word":"b"}', b"{"])):
        answer = decoded(name, ROWS, list(messages))
        assert [row["n"] for row in answer.batch.columns().to_pylist()] == [1]
        assert [bad.index for bad in answer.bad] == [1, 2] and "'n'" in answer.bad[0].reason
        answer = decoded(name, ROWS, list(messages), ignore__parse__errors="true")
        assert answer.batch.columns().column(0).to_pylist() == [1, None] and not answer.bad
        assert answer.batch.columns().column(1).to_pylist()[1] == "b"
        assert answer.origins.tolist() == [0, 1]


def test_null_is_rejected_in_a_not_null_column() -> None:
    strict = RowType.of(["n", "word"], [types.IntType(False), STRING], nullable=False)
    for name, message in (("csv", b",a"), ("json", b'{"word":"a"}')):
        answer = decoded(name, strict, [message])
        assert len(answer.batch) == 0 and "NOT NULL" in answer.bad[0].reason
        assert len(decoded(name, strict, [message], ignore__parse__errors="true").batch) == 0


def test_json_accepts_flinks_notations() -> None:
    wide = RowType.of(
        ["n", "d", "word", "yes", "m"],
        [types.IntType(), types.DoubleType(), STRING, types.BooleanType(), types.DecimalType(4, 1)],
        nullable=False,
    )
    answer = decoded(
        "json", wide, [b'{"n":" 7 ","d":"1.5","word":{"a":[1]},"yes":"TRUE","m":"1.25"}', b'{"n":1.0,"word":5}']
    )
    assert answer.batch.columns().to_pylist() == [
        {"n": 7, "d": 1.5, "word": '{"a":[1]}', "yes": True, "m": decimal.Decimal("1.3")},
        {"n": 1, "d": None, "word": "5", "yes": None, "m": None},
    ]
    for document in (b'{"n":1.5}', b'{"n":2147483648}', b'{"n":true}', b'{"m":12345}', b"[]", b'{"yes":1}'):
        assert decoded("json", wide, [document]).bad, document
    missing = decoded("json", wide, [b'{"n":1}'], fail__on__missing__field="true")
    assert "'d' is missing" in missing.bad[0].reason


def test_table_csv_dialects() -> None:
    for options, message in (
        ({"field__delimiter": r"\t"}, b"1\ta,b"),
        ({"field__delimiter": ";", "quote__character": "'"}, b"1;'a,b'"),
        ({"disable__quote__character": "true", "field__delimiter": "|"}, b"1|a,b"),
        ({"escape__character": "\\"}, b"1,a\\,b"),
        ({"null__literal": "a,b"}, b'1,"a,b"'),
    ):
        answer = decoded("csv", ROWS, [message], **options)
        expected = None if "null__literal" in options else "a,b"
        assert answer.batch.columns().to_pylist() == [{"n": 1, "word": expected}], options
    assert len(decoded("csv", ROWS, [b"#1,a"], allow__comments="true").batch) == 0


def test_raw_has_one_column() -> None:
    for data_type, value, options in (
        (STRING, "grüße", {}),
        (STRING, "grüße", {"charset": "UTF-16LE"}),
        (types.VarBinaryType(9), b"\x00", {}),
        (types.IntType(), -5, {}),
        (types.DoubleType(), 0.5, {"endianness": "little-endian"}),
        (types.BooleanType(), True, {}),
    ):
        row_type = RowType.of(["v"], [data_type], nullable=False)
        columns = pa.RecordBatch.from_arrays([pa.array([value], data_type.arrow)], schema=row_type.schema)
        batch = Batch.of_columns(columns, TableRowType(row_type))
        assert round_trip("raw", row_type, batch, **options).to_pylist() == [{"v": value}]
    assert (
        "3 bytes, expected 4"
        in decoded("raw", RowType.of(["v"], [types.IntType()], nullable=False), [b"abc"]).bad[0].reason
    )
    with pytest.raises(ProgramError, match="one column, but the table has 2"):
        decoded("raw", ROWS, [])
    with pytest.raises(ProgramError, match=r"'raw\.charset' is 'X'"):
        decoded("raw", RowType.of(["v"], [STRING], nullable=False), [], charset="X")


@pytest.mark.parametrize(
    ("name", "for_files", "kind", "words"),
    [
        ("jsn", True, ProgramError, "which is not a format. Did you mean 'json'"),
        ("parquet", False, ProgramError, "not a format of messages"),
        ("maxwell-json", False, NotYetError, "a later version"),
    ],
)
def test_unavailable_formats_are_rejected_with_the_reason(
    name: str, for_files: bool, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        format_of(name, "t", "format", for_files)


@pytest.mark.parametrize(
    ("name", "data_type", "options", "words"),
    [
        ("csv", MapType(STRING, STRING), {}, "has no type for MAP"),
        ("json", types.DayTimeIntervalType(), {}, "has no type for INTERVAL"),
        ("avro", types.TimestampType(9), {}, "microseconds"),
        ("avro", MapType(types.IntType(), STRING), {}, "keys are text"),
        ("csv", STRING, {"field__delimiter": "ab"}, "'csv.field-delimiter' is 'ab', expected one character"),
        ("json", STRING, {"timestamp__format.standard": "iso"}, "expected one of SQL, ISO-8601"),
        ("json", STRING, {"ignore__parse__errors": "true", "fail__on__missing__field": "true"}, "both"),
        ("json", STRING, {"ignore__parse__errors": "maybe"}, "expected true or false"),
        ("csv", STRING, {"ignore__parse__error": "true"}, "Did you mean 'csv.ignore-parse-errors'"),
    ],
)
def test_unsupported_uses_of_a_format_are_reported_before_anything_runs(
    name: str, data_type: DataType, options: dict[str, str], words: str
) -> None:
    with pytest.raises(ProgramError, match=words.replace("(", r"\(")):
        decoded(name, RowType.of(["x"], [data_type], nullable=False), [], **options)


@pytest.mark.parametrize("name", ["parquet", "orc", "avro", "json", "csv"])
@pytest.mark.parametrize(("data_type", "way"), [(types.BitmapType(), "BITMAP_FROM_BYTES"), (VARIANT, "PARSE_JSON")])
@pytest.mark.parametrize("is_nested", [False, True])
def test_binary_and_text_fields_of_files_are_not_decoded_as_bitmaps_and_variants(
    name: str, data_type: DataType, way: str, is_nested: bool
) -> None:
    format, options = table_format(name)
    row_type = RowType.of(["x"], [RowType.of(["y"], [data_type]) if is_nested else data_type], nullable=False)
    with pytest.raises(ProgramError, match=way):
        format.reader(options, row_type)
    with pytest.raises(ProgramError, match=way):
        format.parts(options, row_type)


def test_a_field_that_requires_quotes_raises_when_quotes_are_disabled() -> None:
    format, options = table_format("csv", disable__quote__character="true")
    columns = pa.RecordBatch.from_arrays([pa.array([1], pa.int32()), pa.array(["a,b"])], schema=ROWS.schema)
    with pytest.raises(TypeMismatchError, match="cannot be written as CSV without quotes"):
        format.encoder(options, ROWS).encode(Batch.of_columns(columns, TableRowType(ROWS)))


@settings(max_examples=10, deadline=None)
@given(batches(CSV_TYPES))
def test_encoded_rows_are_readable_by_other_programs(rows: tuple[RowType, Batch]) -> None:
    row_type, batch = rows

    def encode_with(name: str, **chosen: str) -> bytes:
        format, options = table_format(name, **chosen)
        encoder = format.parts(options, row_type).encoder()
        encoder.add(batch)
        return encoder.finish()

    count = len(batch)
    lines = list(csv.reader(io.StringIO(encode_with("csv").decode(), newline=""), strict=True))
    assert len(lines) == count and all(len(line) == len(row_type.fields) for line in lines)
    documents = [json.loads(line) for line in encode_with("json").split(b"\n") if line]
    assert [each["big"] for each in documents] == batch.columns().column("big").to_pylist()
    assert pq.read_table(io.BytesIO(encode_with("parquet"))).to_pylist() == batch.columns().to_pylist()
    narrow = {name: CSV_TYPES[name] for name in ("big", "word", "money", "day")}
    records = RowType.of(list(narrow), [each for each, _ in narrow.values()], nullable=False)
    format, options = table_format("avro", codec="null")
    encoder = format.parts(options, records).encoder()
    encoder.add(Batch.of_columns(batch.columns().select(list(narrow)), TableRowType(records)))
    assert list(fastavro.reader(io.BytesIO(encoder.finish()))) == batch.columns().select(list(narrow)).to_pylist()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_encoders_and_decoders_survive_pickling(name: str) -> None:
    format, options = table_format(name)
    row_type = RowType.of(["word"], [STRING], nullable=False)
    for for_what, makers in (
        (format.is_for_files, (format.reader, format.parts)),
        (format.is_for_messages, (format.decoder, format.encoder)),
    ):
        for make in makers if for_what else ():
            assert type(pickle.loads(pickle.dumps(make(options, row_type)))) is type(make(options, row_type))


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(-10_000, 10_000) | st.none(), TEXTS | st.none()), min_size=1, max_size=12),
    st.sampled_from(["", "\\"]),
)
def test_repeated_rows_are_encoded_as_single_ones(rows: list[tuple[int | None, str | None]], escape: str) -> None:
    row_type = RowType.of(["at", "text"], [types.TimestampType(3), STRING], nullable=False)
    format, options = table_format("csv", **({"escape__character": escape} if escape else {}))
    encoder = format.encoder(options, row_type)
    many = (rows * 1500)[:1500]
    columns = [
        pa.array([at for at, _ in many], pa.timestamp("ms")),
        pa.array([text for _, text in many], pa.string()),
    ]
    batch = Batch.of_columns(pa.RecordBatch.from_arrays(columns, schema=row_type.schema), TableRowType(row_type))
    encoded_singly = [encoder.encode(batch.slice(row, 1))[0].as_py() for row in range(len(rows))]
    assert encoder.encode(batch).to_pylist() == (encoded_singly * 1500)[:1500]
