"""Text files in UTF-16 and UTF-32: the lines that are in them, whatever the epochs, the order of bytes and the mark."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.connectors.contracts import SourceContext
from millstream.connectors.files.source import FileSource as EngineSource
from millstream.connectors.files.wide_text import WideTextLines, unit_line_blocks
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource, StreamFormat
from millstream.testing import Collect, run

CHARSETS = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
# U+0A0A and U+0A00: their bytes, across letters, look like line ends.
LETTERS = st.sampled_from("ab \u0a0a\u0a00\u010a\U0001f600\r")


def drain(source: EngineSource, budget: int) -> list[str]:
    context = SourceContext(0, 0, 1)
    records: list[str] = []
    for split in source.splits(context):
        offset: Any = split.start
        while not source.finished(split, offset):
            stop = source.reach(split, offset, budget, context)
            items = source.read(split, offset, stop)
            while True:
                try:
                    records.extend(next(items))
                except StopIteration as end:
                    offset = json.loads(json.dumps(stop if end.value is None else end.value))
                    break
    return records


@settings(deadline=None)
@given(
    st.lists(st.text(LETTERS, max_size=8), max_size=20),
    st.sampled_from(CHARSETS),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
def test_a_file_yields_its_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], charset: str, budget: int, packed: bool, ended: bool
) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    path = tmp_path_factory.mktemp("wide") / ("in.txt.gz" if packed else "in.txt")
    data = text.encode(charset)
    path.write_bytes(gzip.compress(data) if packed else data)
    expected = text.split("\n")
    if not expected[-1]:
        expected.pop()
    found = drain(EngineSource([str(path)], WideTextLines(charset)), budget)
    assert found == [line.removesuffix("\r") for line in expected]


@given(st.lists(st.text(LETTERS, max_size=8), max_size=20), st.integers(1, 9), st.integers(0, 300), st.booleans())
def test_blocks_of_any_size_and_stop_hold_whole_lines(
    lines: list[str], block_units: int, stop: int, is_little: bool
) -> None:
    charset = "utf-16-le" if is_little else "utf-16-be"
    data = "\n".join(lines).encode(charset)
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        limit = at + 1 + stop
        blocks = unit_line_blocks(io.BytesIO(data), at, limit, len(data), 2, is_little, 2 * block_units)
        while True:
            try:
                pieces.append(next(blocks))
            except StopIteration as end:
                at, _ = end.value
                break
    assert b"".join(pieces) == data
    assert all(piece.decode(charset).endswith("\n") for piece in pieces[:-1])


def test_without_a_mark_utf_16_has_the_large_end_first(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("a\nb".encode("utf-16-be"))
    assert drain(EngineSource([str(tmp_path / "in.txt")], WideTextLines("UTF-16")), 1) == ["a", "b"]


def test_what_our_sink_writes_in_utf_16_is_read_back(tmp_path: Path) -> None:
    out = Collect()

    def write(env: Any) -> None:
        sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder("UTF-16"))
        bucket = BucketAssigner.base_path_bucket_assigner()
        env.from_collection(["grün", "", "x"], Types.STRING()).sink_to(sink.with_bucket_assigner(bucket).build())

    def read(env: Any) -> None:
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format("UTF-16"), str(tmp_path)).build()
        env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").sink_to(out)

    run(write)
    assert run(read)[out] == ["grün", "", "x"]
