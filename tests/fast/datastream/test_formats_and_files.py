"""File sources and sinks as programs build them, and the message schemas of the formats."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.common.serialization import Encoder
from millstream.connectors.files.csv_records import CsvDialect, CsvRecords
from millstream.connectors.files.part_rules import (
    BasePathBuckets,
    DateTimeBuckets,
    FunctionBuckets,
    OnCheckpoint,
    WhenLargeOrOld,
)
from millstream.connectors.files.parts import CsvParts, JsonParts, ParquetParts, TextParts
from millstream.connectors.files.sink import FileSink as EngineSink
from millstream.connectors.files.source import FileSource as EngineSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
    StreamingFileSink,
)
from millstream.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from millstream.datastream.formats.json import JsonBulkWriters, JsonRowDeserializationSchema, JsonRowSerializationSchema
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from millstream.errors import JobFailedError, NotAvailableError, ProgramError, TypeMismatchError
from millstream.graph.nodes import Read, Write
from millstream.records.batch import Batch
from millstream.testing import Collect, run

AD = Types.ROW_NAMED(["ad", "clicks"], [Types.STRING(), Types.LONG()])


def engine_source(source: FileSource) -> EngineSource:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    operation = env._graph("job").nodes[0].operation
    assert isinstance(operation, Read) and isinstance(operation.source, EngineSource)
    return operation.source


def engine_sink(sink: FileSink | StreamingFileSink) -> EngineSink:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection(["x"], Types.STRING())
    if isinstance(sink, FileSink):
        stream.sink_to(sink)
    else:
        stream.add_sink(sink)
    operation = env._graph("job").nodes[-1].operation
    assert isinstance(operation, Write) and isinstance(operation.sink, EngineSink)
    return operation.sink


def read_csv(folder: Path, data: bytes, format: CsvRecords) -> list[Any]:
    (folder / "in.csv").write_bytes(data)
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_record_stream_format(CsvReaderFormat(engine=format), str(folder / "in.csv")).build()
    sink = Collect()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "files").sink_to(sink)
    return run(env)[sink]


# --- sources ------------------------------------------------------------------------------------------------


def test_text_files_are_bounded_unless_monitored() -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in", "more")
    static = engine_source(builder.build())
    assert static.bounded and static.type_info == Types.STRING() and len(static.paths) == 2
    watched = engine_source(builder.monitor_continuously(Duration.of_seconds(5)).build())
    assert not watched.bounded and watched.discovery_interval_ms == 5000
    assert engine_source(builder.process_static_file_set().build()).bounded


def test_csv_and_parquet_sources_are_typed_by_their_schema() -> None:
    schema = CsvSchema.builder().add_string_column("ad").add_number_column("clicks").set_column_separator(";").build()
    csv = engine_source(FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "in").build())
    assert (
        csv.type_info == AD and isinstance(csv.format, CsvRecords) and csv.format.dialect == CsvDialect(delimiter=";")
    )
    parquet = engine_source(FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(AD), "in").build())
    assert parquet.type_info == AD


def test_json_lines_are_typed_or_plain_values() -> None:
    plain = engine_source(FileSource.for_record_stream_format(StreamFormat.json_line_format(), "in").build())
    typed = engine_source(FileSource.for_record_stream_format(StreamFormat.json_line_format(AD), "in").build())
    assert (plain.type_info, typed.type_info) == (None, AD)


def test_a_source_is_refused_when_it_is_not_finished_or_of_the_wrong_format() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in")
    with pytest.raises(ProgramError, match=r"finished with build\(\)"):
        env.from_source(builder, WatermarkStrategy.no_watermarks(), "files")  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="expected a BulkFormat"):
        FileSource.for_bulk_file_format(StreamFormat.text_line_format(), "in")  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="no path"):
        FileSource.for_record_stream_format(StreamFormat.text_line_format())
    with pytest.raises(ProgramError, match=r"test_formats_and_files\.py"):
        StreamFormat.text_line_format("UTF-88")


# --- sinks --------------------------------------------------------------------------------------------------


def test_a_row_sink_has_flinks_defaults(tmp_path: Path) -> None:
    sink = engine_sink(FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build())
    assert isinstance(sink.format, TextParts)
    assert sink.rolling == WhenLargeOrOld(128 << 20, 60_000, 60_000)
    assert sink.buckets == DateTimeBuckets("yyyy-MM-dd--HH")
    assert (sink.prefix, sink.suffix) == ("part", "")


def test_a_sinks_folders_files_and_rolling_can_be_chosen(tmp_path: Path) -> None:
    def by_city(value: Any) -> str:
        return str(value)

    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    builder.with_output_file_config(OutputFileConfig("ads", ".txt"))
    builder.with_rolling_policy(RollingPolicy.default_rolling_policy(1024, Duration.of_minutes(2), 5000))
    sink = engine_sink(builder.with_bucket_assigner(BucketAssigner.python_bucket_assigner(by_city)).build())
    assert (sink.prefix, sink.suffix) == ("ads", ".txt")
    assert sink.rolling == WhenLargeOrOld(1024, 120_000, 5000)
    assert sink.buckets == FunctionBuckets(by_city)
    builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    last = engine_sink(builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    assert last.rolling == OnCheckpoint() and last.buckets == BasePathBuckets()


def test_bulk_formats_publish_with_their_epoch(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_columns_from(CsvSchema(None, AD)).set_use_header().build()
    for factory, parts in (
        (ParquetBulkWriters.for_row_type(AD), ParquetParts(AD)),
        (CsvBulkWriters.for_schema(schema), CsvParts(("ad", "clicks"), header=True, row_type=AD)),
        (JsonBulkWriters.for_lines(), JsonParts()),
    ):
        sink = engine_sink(FileSink.for_bulk_format(str(tmp_path), factory).build())
        assert sink.format == parts and sink.rolling == OnCheckpoint()


def test_csv_files_take_records_by_the_names_of_the_schema_and_refuse_what_does_not_fit() -> None:
    schema = CsvSchema.builder().add_string_column("ad").add_number_column("price", Types.DECIMAL(5, 2)).build()
    parts: Any = CsvBulkWriters.for_schema(schema).parts
    swapped = Types.ROW_NAMED(["price", "ad"], [Types.DECIMAL(5, 2), Types.STRING()])
    assert parts.encode([Row(price=Decimal("1.5"), ad="x")], swapped) == b"x,1.50\n"
    assert parts.encode([{"price": Decimal("1.5"), "ad": "x"}], None) == b"x,1.50\n"
    for wrong in ("ad", (Decimal(1), "x"), ("x",)):
        with pytest.raises(TypeMismatchError, match="does not fit ROW<ad STRING, price DECIMAL"):
            parts.encode([wrong], None)


def test_numbers_that_json_has_not_are_written_as_text_and_read_back(tmp_path: Path) -> None:
    number = Types.ROW_NAMED(["n"], [Types.DOUBLE()])
    written = JsonParts().encode([Row(n=1.5), Row(n=float("nan")), Row(n=float("-inf"))], number)
    assert written == b'{"n":1.5}\n{"n":"NaN"}\n{"n":"-Infinity"}\n'
    (tmp_path / "numbers.json").write_bytes(written)
    out = Collect()
    source = FileSource.for_record_stream_format(StreamFormat.json_line_format(number), str(tmp_path)).build()
    run(lambda env: env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").sink_to(out))
    assert [str(row.n) for row in out.values] == ["1.5", "nan", "-inf"]


def test_the_older_file_sink_is_the_same_sink(tmp_path: Path) -> None:
    builder = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    sink = engine_sink(builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
    assert sink.rolling == OnCheckpoint()


def test_a_sink_that_cannot_be_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="expected an Encoder"):
        FileSink.for_row_format(str(tmp_path), "utf-8")  # type: ignore[arg-type]
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    with pytest.raises(ProgramError, match=r"test_formats_and_files\.py"):
        builder.with_output_file_config(OutputFileConfig("_hidden", "")).build()
    with pytest.raises(ProgramError, match="part_size"):
        RollingPolicy.default_rolling_policy(part_size=0)
    with pytest.raises(ProgramError, match="expected a FileCompactStrategy"):
        builder.enable_compact(None, None)  # type: ignore[arg-type]


# --- schemas ------------------------------------------------------------------------------------------------

ROWS = st.builds(
    lambda text, number, flag, list_: Row(text=text, number=number, flag=flag, items=list_),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.booleans(),
    st.lists(st.integers(-5, 5), min_size=1, max_size=3),
)
WIDE = Types.ROW_NAMED(
    ["text", "number", "flag", "items"], [Types.STRING(), Types.LONG(), Types.BOOLEAN(), Types.LIST(Types.LONG())]
)


@settings(deadline=None)
@given(ROWS)
def test_json_messages_come_back_as_they_went(row: Row) -> None:
    written = JsonRowSerializationSchema.builder().with_type_info(WIDE).build().serialize(row)
    assert JsonRowDeserializationSchema.builder().type_info(WIDE).build().deserialize(written) == row


@settings(deadline=None)
@given(ROWS, st.sampled_from([",", ";", "\t", "|"]), st.sampled_from(["'", '"']))
def test_csv_messages_come_back_as_they_went(row: Row, delimiter: str, quote: str) -> None:
    writer = CsvRowSerializationSchema.Builder(WIDE).set_field_delimiter(delimiter).set_quote_character(quote)
    reader = CsvRowDeserializationSchema.Builder(WIDE).set_field_delimiter(delimiter).set_quote_character(quote)
    written = writer.set_null_literal("<none>").set_array_element_delimiter(":").build().serialize(row)
    read = reader.set_null_literal("<none>").set_array_element_delimiter(":").build().deserialize(written)
    assert read == row


@pytest.mark.parametrize("line_delimiter", ["", "\n", "\r", "\r\n"])
@pytest.mark.parametrize("text", ["\r", "\n", "a\r\nb", "", "'", "a,b"])
def test_line_ends_inside_a_field_stay_inside_it_whatever_ends_the_record(text: str, line_delimiter: str) -> None:
    written = CsvRowSerializationSchema.Builder(AD).set_line_delimiter(line_delimiter).build().serialize(Row(text, 1))
    assert written.endswith(line_delimiter.encode())
    assert CsvRowDeserializationSchema.Builder(AD).build().deserialize(written) == Row(ad=text, clicks=1)


def test_a_field_that_needs_quotes_is_refused_when_there_are_none() -> None:
    builder = CsvRowSerializationSchema.Builder(AD).disable_quote_character()
    assert builder.build().serialize(Row("plain", 1)) == b"plain,1\n"
    with pytest.raises(TypeMismatchError, match="without quotes"):
        builder.build().serialize(Row("a,b", 1))
    assert builder.set_escape_character("\\").build().serialize(Row("a,b", 1)) == b"a\\,b,1\n"


def test_a_message_that_cannot_be_read_is_an_error_or_left_out() -> None:
    strict = JsonRowDeserializationSchema.builder().type_info(AD).build()
    with pytest.raises(TypeMismatchError, match="not a valid JSON document of ROW<ad STRING, clicks LONG>"):
        strict.deserialize(b'{"ad": ')
    with pytest.raises(TypeMismatchError, match="clicks"):
        strict.deserialize(b'{"ad": "x", "clicks": "many"}')
    lenient = JsonRowDeserializationSchema.builder().type_info(AD).ignore_parse_errors().build()
    assert lenient.deserialize(b"[") is None
    whole = JsonRowDeserializationSchema.builder().type_info(AD).fail_on_missing_field().build()
    assert strict.deserialize(b'{"ad": "x"}') == Row(ad="x", clicks=None)
    with pytest.raises(TypeMismatchError, match="'clicks' is missing"):
        whole.deserialize(b'{"ad": "x"}')
    csv = CsvRowDeserializationSchema.Builder(AD)
    with pytest.raises(TypeMismatchError, match="it has 3 fields, expected 2"):
        csv.build().deserialize(b"x,1,2")
    assert csv.set_ignore_parse_errors(True).build().deserialize(b"x,many") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", b"short,1\n"),
        ("a b", b'"a b",1\n'),  # a space comes before the comma
        ("a-b_c.d", b"a-b_c.d,1\n"),
        ('say "x"', b'"say ""x""",1\n'),
        ("x" * 24, b"x" * 24 + b",1\n"),
        ("x" * 25, b'"' + b"x" * 25 + b'",1\n'),  # longer than it looks at
        ("", b",1\n"),
    ],
)
def test_csv_text_is_quoted_as_flinks_writer_does(text: str, expected: bytes) -> None:
    assert CsvRowSerializationSchema.Builder(AD).build().serialize(Row(text, 1)) == expected
    assert CsvParts().encode([Row(text, 1)], AD) == CsvParts().encode([(text, 1)]) == expected


def test_csv_numbers_are_javas_and_stand_bare() -> None:
    types = [Types.FLOAT(), Types.DOUBLE(), Types.BOOLEAN(), Types.BIG_DEC(), Types.LIST(Types.FLOAT())]
    row_type = Types.ROW(types)
    row = Row(1.1, 1e10, True, Decimal("1.10"), [1.1, 2.0])
    assert CsvRowSerializationSchema.Builder(row_type).build().serialize(row) == b"1.1,1.0E10,true,1.10,1.1;2.0\n"
    unquoted = CsvRowSerializationSchema.Builder(row_type).disable_quote_character().build()
    assert unquoted.serialize(row) == b"1.1,1.0E10,true,1.10,1.1;2.0\n"
    german = CsvRowSerializationSchema.Builder(row_type).set_field_delimiter(".").build().serialize(row)
    assert german == b'"1.1"."1.0E10".true."1.10"."1.1;2.0"\n'


def test_array_columns_have_separators_of_their_own_in_both_directions(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_array_column("a", ";", Types.INT()).add_array_column("b", "|")
    schema = CsvSchema.builder().add_columns_from(builder.build()).build()
    encoder = CsvBulkWriters.for_schema(schema).parts.encoder()
    encoder.add(Batch.of_values([Row([1, 2], ["x", "y"])], schema.get_row_type()))
    data = encoder.finish()
    assert data == b"1;2,x|y\n"
    assert read_csv(tmp_path, data, CsvRecords(schema.get_row_type(), schema._dialect)) == [Row(a=[1, 2], b=["x", "y"])]


def test_a_row_in_a_row_is_one_csv_field(tmp_path: Path) -> None:
    inner = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.STRING()])
    row_type = Types.ROW_NAMED(["at", "n"], [inner, Types.LONG()])
    written = CsvRowSerializationSchema.Builder(row_type).build().serialize(Row(Row(1, "a"), 2))
    assert written == b"1;a,2\n"
    expected = Row(at=Row(x=1, y="a"), n=2)
    assert CsvRowDeserializationSchema.Builder(row_type).build().deserialize(written) == expected
    assert read_csv(tmp_path, written, CsvRecords(row_type)) == [expected]
    with pytest.raises(TypeMismatchError, match="has 3 parts between ';', expected 2"):
        CsvRowDeserializationSchema.Builder(row_type).build().deserialize(b"1;a;b,2")
    with pytest.raises(ProgramError, match="its elements are nested"):
        CsvRowSerializationSchema.Builder(Types.ROW([Types.LIST(Types.LIST(Types.INT()))]))


def test_a_header_that_names_other_columns_is_read_by_position_unless_it_is_strict(tmp_path: Path) -> None:
    columns = CsvSchema.builder().add_string_column("ad").add_number_column("clicks")
    lenient, strict = columns.set_use_header().build(), columns.set_strict_headers().build()
    for header, line in [(b"Ad,Clicks", b"x,1"), (b"clicks,ad", b"1,x"), (b"ad,clicks", b"x,1")]:
        data = header + b"\n" + line + b"\n"
        assert read_csv(tmp_path, data, CsvRecords(AD, lenient._dialect)) == [Row(ad="x", clicks=1)]
    with pytest.raises(JobFailedError, match=r"\['ad', 'clicks'\] of the declared type is missing"):
        read_csv(tmp_path, b"Ad,Clicks\nx,1\n", CsvRecords(AD, strict._dialect))


def test_a_csv_schema_refuses_what_it_cannot_say() -> None:
    builder = CsvSchema.builder().add_string_column("ad")
    with pytest.raises(ProgramError, match="the column 'ad' already exists"):
        builder.add_boolean_column("ad")
    with pytest.raises(ProgramError, match="expected a number type"):
        builder.add_number_column("n", Types.STRING())
    with pytest.raises(ProgramError, match="not both"):
        builder.set_use_header().set_skip_first_data_row()
    with pytest.raises(NotAvailableError, match="lines end at"):
        builder.set_line_separator("|")
    with pytest.raises(ProgramError, match="no column"):
        CsvSchema.builder().build()
    with pytest.raises(ProgramError, match="expected a CsvSchema"):
        CsvReaderFormat.for_schema(builder)  # type: ignore[arg-type]


def test_a_line_that_the_charset_cannot_write_is_named() -> None:
    with pytest.raises(ProgramError, match="The charset ascii has no 'é', which is in 'née'"):
        TextParts("ascii").encode(["ab", "née", "x"])
