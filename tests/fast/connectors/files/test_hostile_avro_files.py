"""Avro files that are small and say that they are large: read in bounded work, or refused by name."""

from __future__ import annotations

import bz2
import decimal
import io
import json
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from millstream.connectors.contracts import Split
from millstream.connectors.files import avro_blocks
from millstream.connectors.files.avro_files import AvroRows
from millstream.connectors.messages import avro_bounds
from millstream.connectors.messages.avro_schemas import AvroSource
from millstream.errors import JobFailedError
from millstream.records.columns import from_record_batch

ROWS = AvroRows(AvroSource('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long", "default": 7}]}'))
MARK = b"0123456789abcdef"
Pack = Callable[[bytes], bytes]


def number(value: int) -> bytes:
    """As Avro writes it."""
    rest, written = value << 1, b""
    while rest > 127:
        written += bytes([rest & 127 | 128])
        rest >>= 7
    return written + bytes([rest])


def raw_deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


def file_of(path: Path, schema: Any, records: int, content: bytes, codec: str = "null") -> Path:
    whole = io.BytesIO()
    fastavro.writer(whole, schema, [], codec="null", sync_marker=MARK)
    named = whole.getvalue().replace(b"\x08null", number(len(codec)) + codec.encode())
    path.write_bytes(named + number(records) + number(len(content)) + content + MARK)
    return path


def rows_of(path: Path, rows: AvroRows = ROWS) -> list[int]:
    size = path.stat().st_size
    split = Split(path.name, 0, {"path": str(path), "size": size, "end": size, "mark": ""})
    return [row.id for batch in rows.read(split, 0, size) for row in from_record_batch(batch, rows.type_info)]


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in fields]}


def test_records_without_bytes_are_read_by_the_thousand_but_not_by_the_billion(tmp_path: Path) -> None:
    honest = file_of(tmp_path / "honest.avro", record(("n", "null")), 3, b"")
    assert rows_of(honest) == [7, 7, 7]
    path = file_of(tmp_path / "a.avro", record(("n", "null")), 10**12, b"")
    with pytest.raises(JobFailedError, match=r"a\.avro.*a block of 0 bytes claims to hold 1000000000000 records"):
        rows_of(path)


def test_an_array_of_nulls_that_is_skipped_is_refused(tmp_path: Path) -> None:
    schema = record(("id", "long"), ("n", {"type": "array", "items": "null"}))
    path = file_of(tmp_path / "a.avro", schema, 1, number(1) + number(10**12) + b"\0")
    with pytest.raises(JobFailedError, match=r"a\.avro has an unsupported schema.*items take no bytes"):
        rows_of(path)


def test_a_schema_that_names_types_of_types_is_bounded(tmp_path: Path) -> None:
    inner: Any = {"type": "record", "name": "L0", "fields": [{"name": "x", "type": "null"}]}
    for level in range(1, 40):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"L{level - 1}"}]
        inner = {"type": "record", "name": f"L{level}", "fields": fields}
    path = file_of(tmp_path / "a.avro", record(("id", "long"), ("deep", inner)), 1, number(1))
    with pytest.raises(JobFailedError, match=r"a\.avro.*fields, including nested ones"):
        rows_of(path)


def test_more_records_than_a_block_can_hold_are_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path / "a.avro", record(("id", "long")), 3, number(1) + number(2))
    with pytest.raises(JobFailedError, match=r"a\.avro.*a block of 2 bytes claims to hold 3 records"):
        rows_of(path)


def snappy(content: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(content, asbytes=True)) + zlib.crc32(content).to_bytes(4)


def lz4(content: bytes) -> bytes:
    return len(content).to_bytes(4, "little") + bytes(pa.Codec("lz4_raw").compress(content, asbytes=True))


def zstandard(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


PACKERS: dict[str, Pack] = {
    "deflate": raw_deflate,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": snappy,
    "lz4": lz4,
    "zstandard": zstandard,
}


@pytest.mark.parametrize(("codec", "pack"), PACKERS.items())
def test_a_packed_block_is_unpacked_as_far_as_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, pack: Pack
) -> None:
    schema, content = record(("id", "long")), number(5) * 1000
    path = file_of(tmp_path / "a.avro", schema, 1000, pack(content), codec)
    assert rows_of(path) == [5] * 1000
    monkeypatch.setattr(avro_blocks, "BLOCK_BYTES_MAX", 999)
    with pytest.raises(JobFailedError, match=r"a\.avro.*MiB unpacked"):
        rows_of(path)
    cut = file_of(tmp_path / "cut.avro", schema, 1000, pack(content)[:-5], codec)
    with pytest.raises(JobFailedError, match=r"cut\.avro is not complete"):
        rows_of(cut)


def test_a_record_with_fields_of_every_kind_is_measured() -> None:
    schema = record(
        ("a", ["null", "double"]),
        ("b", {"type": "fixed", "name": "F", "size": 5}),
        ("c", {"type": "enum", "name": "E", "symbols": ["x"]}),
        ("d", {"type": "map", "values": "F"}),
        ("e", "E"),
        ("f", {"type": "long", "logicalType": "timestamp-millis"}),
    )
    assert avro_bounds.least_bytes(fastavro.parse_schema(json.loads(json.dumps(schema)))) == 1 + 5 + 1 + 1 + 1 + 1


def test_the_program_reads_its_own_avro_as_if_nothing_was_bounded(tmp_path: Path) -> None:
    decimals = {"type": "bytes", "logicalType": "decimal", "precision": 20_000, "scale": 0}
    whole = io.BytesIO()
    fastavro.writer(whole, record(("d", decimals)), [{"d": decimal.Decimal(10) ** 15_000}])
    rows_of(file_of(tmp_path / "a.avro", record(("id", "long")), 1, number(1)))
    whole.seek(0)
    assert [each["d"].adjusted() for each in fastavro.reader(whole)] == [15_000]
    assert {each.__module__.partition(".")[0] for each in fastavro.read.BLOCK_READERS.values()} == {"fastavro"}


def test_a_decimal_of_a_megabyte_in_a_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    decimals = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    schema = record(("id", "long"), ("d", decimals))
    content = number(1) + number(1_000_000) + b"\x7f" * 1_000_000
    rows = AvroRows(AvroSource(json.dumps(schema)))
    with pytest.raises(JobFailedError, match=r"a\.avro.*a decimal of 1,000,000 bytes"):
        rows_of(file_of(tmp_path / "a.avro", schema, 1, content), rows)
    assert rows_of(file_of(tmp_path / "b.avro", schema, 1, number(1) + number(2) + b"\x00\x96"), rows) == [1]


@pytest.mark.parametrize("codec", PACKERS)
def test_a_file_with_one_byte_changed_or_cut_short_is_read_or_is_an_error_with_its_name(
    tmp_path: Path, codec: str
) -> None:
    content = b"".join(map(number, range(300)))
    whole = file_of(tmp_path / "whole.avro", record(("id", "long")), 300, PACKERS[codec](content), codec).read_bytes()
    draws = random.Random(1)
    for case in range(120):
        at = draws.randrange(len(whole))
        changed = whole[:at] + bytes([draws.randrange(256)]) + whole[at + 1 :] if case % 2 else whole[:at]
        path = tmp_path / f"{case}.avro"
        path.write_bytes(changed)
        try:
            assert len(rows_of(path)) <= 300
        except JobFailedError as error:
            assert path.name in str(error)
